//! Work that no command waits for: building the classifier anew when single changes have made it worse than it could be.
//!
//! Theory of operation. A rule that comes alone is put where the classifier's tables of the moment allow; after many of
//! them other tables would serve better ([`mmb_policy::Policy::is_stale`]). A thread of its own then builds the
//! classifier from scratch, from a copy of the configuration and without any lock, which takes seconds for the largest
//! policies while commands go on. What it built is published if the rules are still those that were copied; otherwise
//! it starts again. Rules keep indexes, slots and counters, and the engine sees one more publication.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::control::Control;

/// Time between two tries while rules come and go.
const PAUSE: Duration = Duration::from_millis(200);

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

    /// Waits until there is something to build; false: the thread is to end.
    fn wait(&self) -> bool {
        let todo = self.todo.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = |todo: &mut Todo| !todo.rebuild && !todo.stop;
        let mut todo = self.changed.wait_while(todo, idle).unwrap_or_else(PoisonError::into_inner);
        todo.rebuild = false;
        !todo.stop
    }
}

impl Control {
    /// Does what no command waits for, until [`Control::end_upkeep`]: for a thread of its own.
    pub fn keep_up(&self) {
        while self.upkeep().wait() {
            while !self.rebuild() {
                std::thread::sleep(PAUSE);
            }
        }
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
