//! What the daemon and the process of a broker both see: progress and counters.

use std::io;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, Mutex, PoisonError};

use mmb_fabric::{EventBell, Region, SharedMemory, Sleeper, Waker, Words};

use crate::counters::{Count, Counters};

/// Words of the memory: turns, the sleep of the keeper, counters.
const WORDS: usize = 2 + Count::ALL.len();

/// The words of the memory.
pub(super) struct Page {
    /// Odd while the event loop works. Another number in each turn.
    turns: Region,
    /// Whether the keeper sleeps until the event loop works.
    keeper: Region,
    counters: Region,
}

impl Page {
    pub fn new(memory: &Arc<SharedMemory>) -> Option<Page> {
        let region = |first, len| Region::new(memory, first, len);
        Some(Page { turns: region(0, 1)?, keeper: region(1, 1)?, counters: region(2, Count::ALL.len())? })
    }

    fn turns(&self) -> Option<&AtomicU64> {
        self.turns.words().first()
    }

    /// Returns the turn of the event loop. Odd: it works.
    pub fn turn(&self) -> u64 {
        self.turns().map_or(0, |turns| turns.load(Relaxed))
    }

    /// The event loop begins or ends to work.
    pub fn set_working(&self, works: bool) {
        if let Some(turns) = self.turns() {
            let turn = turns.load(Relaxed);
            turns.store(if works { (turn | 1).wrapping_add(2) } else { turn & !1 }, Release);
        }
    }

    pub fn sleeper(&self) -> Sleeper<Region> {
        Sleeper::new(self.keeper.clone())
    }

    pub fn waker(&self) -> Waker<Region> {
        Waker::new(self.keeper.clone())
    }

    pub fn counters(&self) -> Counters {
        Counters::shared(self.counters.clone())
    }
}

/// What the daemon keeps of a process. Memory and bell are those of all processes of the broker, one after
/// the other.
pub(crate) struct Shared {
    pub memory: Arc<SharedMemory>,
    pub(super) page: Page,
    pub counters: Arc<Counters>,
    /// The process wakes the keeper.
    pub bell: EventBell,
    /// The daemon wakes the keeper.
    pub attention: EventBell,
    /// The number of the process. 0: there is none.
    pub number: AtomicU32,
    pub restarts: AtomicU32,
    last_failure: Mutex<Option<String>>,
}

impl Shared {
    pub fn new() -> io::Result<Shared> {
        let memory = Arc::new(SharedMemory::create("mmb-broker", WORDS)?);
        let page = Page::new(&memory).ok_or_else(|| io::Error::other("the memory is too small"))?;
        Ok(Shared {
            counters: Arc::new(page.counters()),
            memory,
            page,
            bell: EventBell::new()?,
            attention: EventBell::new()?,
            number: AtomicU32::new(0),
            restarts: AtomicU32::new(0),
            last_failure: Mutex::default(),
        })
    }

    /// Notes why the process has ended, or has not started.
    pub fn set_failure(&self, reason: &str) {
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
    }

    /// Returns why the last process ended, or has not started.
    pub fn last_failure(&self) -> Option<String> {
        self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether there is no process.
    pub fn is_down(&self) -> bool {
        self.number.load(Relaxed) == 0
    }

    /// The process has ended.
    pub fn set_down(&self) {
        self.number.store(0, Relaxed);
        self.page.set_working(false);
        self.counters.end_connections();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_odd_while_the_loop_works() {
        let shared = Shared::new().unwrap();
        let mut seen = Vec::new();
        for works in [true, false, true, true, false, false] {
            shared.page.set_working(works);
            let turn = shared.page.turn();
            assert_eq!(turn % 2 == 1, works);
            assert!(!works || !seen.contains(&turn));
            seen.push(turn);
        }
    }
}
