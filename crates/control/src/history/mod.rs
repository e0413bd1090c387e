//! The history of the configuration: who changed what and when, and the way back.
//!
//! Theory of operation. [`Control::commit`](crate::Control) records each state whose lines differ from those
//! of the state before it. A [`Revision`] has the lines of the configuration after its change, as a
//! [`Snapshot`] that shares the texts of rules with the policy. The last [`REVISIONS`] are kept, in memory.
//! The author of a change is that of the request that runs on the thread ([`Author::run`]).
//!
//! The elements of named sets change often. Commands on elements make no revision: the revision in force gets
//! the new elements, so that a way back leads to the elements before the next change.
//!
//! A change can wait for a confirmation. [`History::expect_confirmation`] notes the revision before the
//! change and a deadline, under the lock on changes. If nobody confirms until then, the maintenance thread
//! makes that revision the configuration again. A further change that waits moves the deadline, and the
//! revision to go back to stays.

mod author;

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

pub(crate) use author::Author;

use crate::config::Config;
use crate::config::file::Snapshot;

/// Number of revisions that are kept.
pub(crate) const REVISIONS: usize = 100;

/// A configuration that was in force.
#[derive(Clone)]
pub(crate) struct Revision {
    /// From 1, and never used again.
    pub number: u64,
    /// When the change was made.
    pub time: SystemTime,
    /// Who changed what.
    pub author: Author,
    /// The lines after the change.
    pub snapshot: Snapshot,
}

/// A change that waits for its confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Confirmation {
    /// When the change is taken back.
    pub deadline: Instant,
    /// The revision that comes back then.
    pub revision: u64,
}

/// The revisions, and the change that waits for its confirmation.
#[derive(Default)]
pub(crate) struct History {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// By ascending number.
    revisions: VecDeque<Revision>,
    confirmation: Option<(Confirmation, Snapshot)>,
}

impl History {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Each method leaves a complete list behind.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a configuration, if it has other lines than the last one.
    pub fn record(&self, config: &Config) {
        let mut inner = self.lock();
        let last = inner.revisions.back();
        let snapshot = Snapshot::of(config, last.map(|last| &last.snapshot));
        if last.is_some_and(|last| last.snapshot == snapshot) {
            return;
        }
        let number = last.map_or(1, |last| last.number + 1);
        let author = if number == 1 { Author::start() } else { Author::current() };
        inner.revisions.push_back(Revision { number, time: SystemTime::now(), author, snapshot });
        if inner.revisions.len() > REVISIONS {
            inner.revisions.pop_front();
        }
    }

    /// Gives the revision in force the elements of the sets of a configuration.
    pub fn update_elements(&self, config: &Config) {
        if let Some(last) = self.lock().revisions.back_mut() {
            last.snapshot.set_elements(config);
        }
    }

    /// All revisions, by ascending number.
    pub fn revisions(&self) -> Vec<Revision> {
        self.lock().revisions.iter().cloned().collect()
    }

    /// The revision with a number, and the one before it, if that one is still kept.
    pub fn revision(&self, number: u64) -> Option<(Revision, Option<Revision>)> {
        let inner = self.lock();
        let at = inner.revisions.iter().position(|revision| revision.number == number)?;
        let before = at.checked_sub(1).and_then(|at| inner.revisions.get(at));
        Some((inner.revisions[at].clone(), before.cloned()))
    }

    /// Number of the revision in force.
    pub fn current(&self) -> u64 {
        self.lock().revisions.back().map_or(0, |last| last.number)
    }

    /// Notes that the change that is recorded next has to be confirmed within a time. `None`: it needs no
    /// confirmation, and neither do the changes before it.
    pub fn expect_confirmation(&self, time: Option<Duration>) {
        let mut inner = self.lock();
        let Some(time) = time else {
            inner.confirmation = None;
            return;
        };
        let deadline = Instant::now() + time;
        match &mut inner.confirmation {
            Some((confirmation, _)) => confirmation.deadline = deadline,
            None => {
                let last = inner.revisions.back().cloned();
                inner.confirmation =
                    last.map(|last| (Confirmation { deadline, revision: last.number }, last.snapshot));
            }
        }
    }

    /// The change that waits for its confirmation.
    pub fn confirmation(&self) -> Option<Confirmation> {
        self.lock().confirmation.as_ref().map(|(confirmation, _)| *confirmation)
    }

    /// Confirms the change that waits. False: none does.
    pub fn confirm(&self) -> bool {
        self.lock().confirmation.take().is_some()
    }

    /// Takes the change whose deadline has passed: the revision to go back to and its lines.
    pub fn take_expired(&self, now: Instant) -> Option<(u64, Snapshot)> {
        let mut inner = self.lock();
        let (confirmation, snapshot) = inner.confirmation.take_if(|(c, _)| c.deadline <= now)?;
        Some((confirmation.revision, snapshot))
    }
}

#[cfg(test)]
mod tests;
