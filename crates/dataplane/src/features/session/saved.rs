//! Sessions that outlive the process: copies of those of all workers, and giving them to workers.

use std::collections::HashMap;
use std::sync::Arc;

use mmb_flow::Key;
use mmb_session::{
    CopyMarks, DumpCursor, KeptRules, NotRestored, Placement, SavedRule, SavedSession, SavedSessions,
    SessionSet,
};

use crate::engine::control::Engine;
use crate::engine::thread::mailbox::run_on_worker;

/// Sessions that a worker copies or inserts in one task. No packet waits meanwhile.
const CHUNK: usize = 4096;
/// Sessions that a worker copies in one task while packets wait: less than a millisecond.
const RUNNING_CHUNK: usize = 512;

/// Sessions that were copied while packets went on, to find out later which of them have changed.
#[derive(Debug)]
pub struct SessionCopies {
    /// The generation of rules under which they were copied.
    generation: u64,
    /// For each worker, in the order of the copies.
    marks: Vec<Vec<CopyMarks>>,
}

/// What became of saved sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreReport {
    /// Sessions that go on.
    pub restored: u64,
    /// Sessions that were left out, by [`NotRestored`].
    pub left_out: [u64; NotRestored::ALL.len()],
}

impl RestoreReport {
    /// Adds another report.
    pub fn add(&mut self, other: &RestoreReport) {
        self.restored += other.restored;
        self.left_out.iter_mut().zip(other.left_out).for_each(|(sum, more)| *sum += more);
    }

    fn count(&mut self, outcomes: &[Result<(), NotRestored>]) {
        for outcome in outcomes {
            match outcome {
                Ok(()) => self.restored += 1,
                Err(reason) => self.left_out[*reason as usize] += 1,
            }
        }
    }
}

/// Sessions of several tasks, whose equal lists of rules become one.
#[derive(Default)]
struct Collection {
    all: SavedSessions,
    numbers: HashMap<Vec<SavedRule>, u32>,
}

impl Collection {
    fn add(&mut self, part: SavedSessions) {
        let Collection { all, numbers } = self;
        let mut number = |list: Vec<SavedRule>| {
            *numbers.entry(list).or_insert_with_key(|list| {
                all.lists.push(list.clone());
                all.lists.len() as u32 - 1
            })
        };
        let lists: Vec<u32> = part.lists.into_iter().map(&mut number).collect();
        let renumbered = part.sessions.into_iter().map(|mut session| {
            session.rule_list = lists[session.rule_list as usize];
            session
        });
        all.sessions.extend(renumbered);
        all.left_out += part.left_out;
    }
}

impl Engine {
    /// Copies all sessions. No port may take part in the published forwarding. None: a worker does not
    /// respond.
    pub fn save_sessions(&self) -> Option<SavedSessions> {
        let mut collection = Collection::default();
        for worker in &self.shared().workers {
            let mut cursor = DumpCursor::default();
            loop {
                let (part, at, more) = run_on_worker(worker, move |sessions, host, now| {
                    let mut at = cursor;
                    let (part, more) = sessions.save(now, host, &mut at, CHUNK);
                    (part, at, more)
                })?;
                cursor = at;
                collection.add(part);
                if !more {
                    break;
                }
            }
        }
        Some(collection.all)
    }

    /// Copies all sessions while packets go on. None: a worker does not respond.
    pub fn copy_sessions(&self) -> Option<(SavedSessions, SessionCopies)> {
        let (mut collection, mut marks) = (Collection::default(), Vec::new());
        let generation = self.shared().current().generation;
        for worker in &self.shared().workers {
            let (mut cursor, mut of_worker) = (DumpCursor::default(), Vec::new());
            loop {
                let (part, copied, at, more) = run_on_worker(worker, move |sessions, host, now| {
                    let mut at = cursor;
                    let (part, copied, more) = sessions.save_running(now, host, &mut at, RUNNING_CHUNK);
                    (part, copied, at, more)
                })?;
                cursor = at;
                collection.add(part);
                of_worker.push(copied);
                if !more {
                    break;
                }
            }
            marks.push(of_worker);
        }
        // What cannot be copied is tried again at the end.
        let saved = SavedSessions { left_out: 0, ..collection.all };
        Some((saved, SessionCopies { generation, marks }))
    }

    /// Whether copies are of the rules and settings that are published.
    pub fn are_current(&self, copies: &SessionCopies) -> bool {
        copies.generation == self.shared().current().generation
    }

    /// Copies the sessions that are not among `copies` as they are now. No port may take part in the
    /// published forwarding. Also returns the positions of those copies that are of no use. `are_current`:
    /// what [`Engine::are_current`] said before the ports stopped. None: a worker does not respond.
    pub fn save_changed_sessions(
        &self,
        copies: SessionCopies,
        are_current: bool,
    ) -> Option<(SavedSessions, Vec<u32>)> {
        let (mut collection, mut changed, mut first) = (Collection::default(), Vec::new(), 0);
        for (worker, marks) in self.shared().workers.iter().zip(copies.marks) {
            let lengths: Vec<u32> = marks.iter().map(|marks| marks.len() as u32).collect();
            let (found, unchanged) = match are_current {
                true => run_on_worker(worker, move |sessions, host, now| {
                    let mut unchanged = SessionSet::default();
                    let find = |marks| sessions.find_changed(now, host, marks, &mut unchanged);
                    (marks.iter().map(find).collect(), unchanged)
                })?,
                false => {
                    (lengths.iter().map(|length| (0..*length).collect()).collect(), SessionSet::default())
                }
            };
            let found: Vec<Vec<u32>> = found;
            for (positions, length) in found.iter().zip(lengths) {
                changed.extend(positions.iter().map(|position| first + position));
                first += length;
            }
            let (unchanged, mut cursor) = (Arc::new(unchanged), DumpCursor::default());
            loop {
                let unchanged = unchanged.clone();
                let (part, at, more) = run_on_worker(worker, move |sessions, host, now| {
                    let mut at = cursor;
                    let (part, more) = sessions.save_changed(now, host, &mut at, CHUNK, &unchanged);
                    (part, at, more)
                })?;
                cursor = at;
                collection.add(part);
                if !more {
                    break;
                }
            }
        }
        Some((collection.all, changed))
    }

    /// Forgets restored sessions with these keys, at whatever worker they are. Returns their number. None: a
    /// worker does not respond.
    pub fn forget_restored(&self, keys: Vec<[Key; 2]>) -> Option<u64> {
        let (keys, mut forgotten) = (Arc::new(keys), 0);
        for worker in &self.shared().workers {
            let keys = keys.clone();
            forgotten += run_on_worker(worker, move |sessions, host, now| {
                let keys = keys.iter().flatten();
                keys.filter(|key| sessions.forget_restored(key, now, host)).count() as u64
            })?;
        }
        Some(forgotten)
    }

    /// Gives sessions of an earlier process to the workers that own them. The published forwarding has the
    /// rules and pools, and no port may take part in it. `kept`: what is left of each list of rules. None: a
    /// worker does not respond.
    pub fn restore_sessions(&self, sessions: &[SavedSession], kept: Vec<KeptRules>) -> Option<RestoreReport> {
        let (workers, nat, kept) =
            (&self.shared().workers, self.shared().current().nat.clone(), Arc::new(kept));
        let mut report = RestoreReport::default();
        for chunk in sessions.chunks(CHUNK) {
            let places: Vec<_> =
                chunk.iter().map(|session| Placement::of(session, &nat, workers.len() as u16)).collect();
            let mut redirects = vec![Vec::new(); workers.len()];
            for (number, worker) in workers.iter().enumerate() {
                let owned =
                    || chunk.iter().zip(&places).filter(|(_, place)| usize::from(place.owner) == number);
                let (own, kept): (Vec<SavedSession>, _) =
                    (owned().map(|(session, _)| *session).collect(), kept.clone());
                if own.is_empty() {
                    continue;
                }
                let outcomes = run_on_worker(worker, move |sessions, host, now| {
                    let restore = |saved: &SavedSession| match kept.get(saved.rule_list as usize) {
                        Some(kept) => sessions.restore(saved, kept, now, host),
                        None => Err(NotRestored::NotAllowed),
                    };
                    own.iter().map(restore).collect::<Vec<_>>()
                })?;
                report.count(&outcomes);
                let restored = owned().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok());
                for ((_, place), _) in restored {
                    for (key, home) in place.redirects.into_iter().flatten() {
                        redirects[usize::from(home)].push((key, (place.owner, place.state)));
                    }
                }
            }
            for (worker, redirects) in workers.iter().zip(redirects).filter(|(_, list)| !list.is_empty()) {
                run_on_worker(worker, move |sessions, _, now| {
                    let mut restore = |(key, redirect): &_| sessions.restore_redirect(key, *redirect, now);
                    redirects.iter().for_each(&mut restore);
                })?;
            }
        }
        Some(report)
    }
}
