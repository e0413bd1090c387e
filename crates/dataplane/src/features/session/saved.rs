//! Sessions that outlive the process: copies of those of all workers, and giving them to workers.

use std::collections::HashMap;
use std::sync::Arc;

use mmb_session::{DumpCursor, KeptRules, NotRestored, Placement, SavedRule, SavedSession, SavedSessions};

use crate::engine::control::Engine;
use crate::engine::thread::mailbox::run_on_worker;

/// Sessions that a worker copies or inserts in one task. No packet waits meanwhile.
const CHUNK: usize = 4096;

/// What became of saved sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreReport {
    /// Sessions that go on.
    pub restored: u64,
    /// Sessions that were left out, by [`NotRestored`].
    pub left_out: [u64; NotRestored::ALL.len()],
}

impl RestoreReport {
    fn add(&mut self, outcomes: &[Result<(), NotRestored>]) {
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
                report.add(&outcomes);
                let restored = owned().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok());
                for ((_, place), _) in restored {
                    for (key, home) in place.redirects.into_iter().flatten() {
                        redirects[usize::from(home)].push((key, place.owner));
                    }
                }
            }
            for (worker, redirects) in workers.iter().zip(redirects).filter(|(_, list)| !list.is_empty()) {
                run_on_worker(worker, move |sessions, _, now| {
                    redirects.iter().for_each(|(key, owner)| sessions.restore_redirect(key, *owner, now));
                })?;
            }
        }
        Some(report)
    }
}
