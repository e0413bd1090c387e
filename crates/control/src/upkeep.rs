//! Work that no command waits for: building the classifier anew when single changes have made it worse than it could be,
//! and telling what NAT pools gave to whom.
//!
//! Theory of operation of the first. A rule that comes alone is put where the classifier's tables of the moment allow; after many of
//! them other tables would serve better ([`mmb_policy::Policy::is_stale`]). A thread of its own then builds the
//! classifier from scratch, from a copy of the configuration and without any lock, which takes seconds for the largest
//! policies while commands go on. What it built is published if the rules are still those that were copied; otherwise
//! it starts again. Rules keep indexes, slots and counters, and the engine sees one more publication.
//!
//! Of the second: while there are NAT pools, the same thread fetches the workers' events four times a second and writes
//! one line each to standard error, where whoever runs the daemon keeps its log. Workers never wait for it; events that
//! they could not keep until it came are counted, and told as a number.

use std::io::{self, Write};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::control::Control;
use crate::log;
use crate::render::count;

/// Time between two tries while rules come and go.
const PAUSE: Duration = Duration::from_millis(200);

/// Time between two looks at the workers' NAT events.
const NAT_PAUSE: Duration = Duration::from_millis(250);

/// What the thread that runs [`Control::keep_up`] is told.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    todo: Mutex<Todo>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Todo {
    /// The classifier is to be built anew.
    rebuild: bool,
    /// The configuration is another: there may be NAT pools now.
    look: bool,
    /// The thread is to end.
    stop: bool,
}

impl Upkeep {
    fn tell(&self, what: impl FnOnce(&mut Todo)) {
        what(&mut self.todo.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Asks for the classifier to be built anew.
    pub fn ask(&self) {
        self.tell(|todo| todo.rebuild = true);
    }

    /// Asks for a look at the configuration.
    pub fn look(&self) {
        self.tell(|todo| todo.look = true);
    }

    /// Waits until there is something to do, and no longer than `most` if that is given. Takes what there is to do.
    fn wait(&self, most: Option<Duration>) -> Todo {
        let todo = self.todo.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = |todo: &mut Todo| !todo.rebuild && !todo.look && !todo.stop;
        let mut todo = match most {
            None => self.changed.wait_while(todo, idle).unwrap_or_else(PoisonError::into_inner),
            Some(most) => {
                let waited = self.changed.wait_timeout_while(todo, most, idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        std::mem::take(&mut *todo)
    }
}

impl Control {
    /// Does what no command waits for, until [`Control::end_upkeep`]: for a thread of its own.
    pub fn keep_up(&self) {
        let mut lost = 0;
        loop {
            let pools = !self.present().config.nat().pools().is_empty();
            let todo = self.upkeep().wait(pools.then_some(NAT_PAUSE));
            if todo.stop {
                return;
            }
            lost = self.tell_nat_events(lost);
            while todo.rebuild && !self.rebuild() {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Writes what NAT pools gave and took since the last time, when `before` events had been lost; how many have been now.
    fn tell_nat_events(&self, before: u64) -> u64 {
        let (events, lost) = self.engine().nat_events();
        let now = log::utc(SystemTime::now());
        let mut text: String = events.iter().map(|event| log::nat_line(&now, event)).collect();
        if lost > before {
            let lost = lost - before;
            text.push_str(&format!(
                "{now} nat: {} more not told of: too many at once\n",
                count(lost, "event")
            ));
        }
        // A log that cannot be written is no reason to stop.
        let _ = io::stderr().write_all(text.as_bytes());
        lost
    }

    /// Makes [`Control::keep_up`] return once it has done what it is at.
    pub fn end_upkeep(&self) {
        self.upkeep().tell(|todo| todo.stop = true);
    }

    /// Builds the classifier anew if it is worth it. False: the rules changed meanwhile, so that it was for nothing.
    pub fn rebuild(&self) -> bool {
        let before = self.present().config;
        if !before.policy().is_stale() {
            return true;
        }
        let rebuilt = before.policy().rebuilt();
        let (_turn, mut state) = self.begin();
        if !state.config.has_rules_of(&before) {
            return false;
        }
        state.config.set_rebuilt(rebuilt);
        self.publish(&state);
        self.commit(state);
        true
    }
}
