//! What the engine tells of its workers' sessions, and how they are ended.

use mmb_flow::{NatEvent, PoolUsage, SessionId};
pub use mmb_session::SessionCounters;
use mmb_session::{DumpCursor, SessionView};

use crate::engine::control::Engine;
use crate::engine::mailbox::ask;

/// A session as it is shown.
pub type Connection = SessionView;

/// Sessions that a worker tells of at a time: so many that asking costs little, so few that no packet waits long.
const CHUNK: usize = 256;

/// Which session; tells it from others that have had or will have its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    worker: u16,
    session: SessionId,
    uid: u32,
}

impl From<&Connection> for ConnectionId {
    fn from(view: &Connection) -> Self {
        ConnectionId { worker: view.worker, session: view.id, uid: view.uid }
    }
}

/// How far a walk over all sessions has come; starts at the beginning.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectionCursor {
    worker: usize,
    at: DumpCursor,
}

impl Engine {
    /// Appends the next sessions from `cursor` on, about 256, and moves the cursor behind them. False when the walk is over.
    ///
    /// A chunk may be empty although the walk goes on. Sessions that begin or end during a walk may be left out; every
    /// other one comes once.
    pub fn connections(&self, cursor: &mut ConnectionCursor, out: &mut Vec<Connection>) -> bool {
        let Some(worker) = self.shared().workers.get(cursor.worker) else { return false };
        let (mut chunk, mut at) = (Vec::with_capacity(CHUNK), cursor.at);
        let answer = ask(worker, move |sessions, host, now| {
            let more = sessions.dump(now, host, &mut at, CHUNK, |view| chunk.push(view));
            (chunk, at, more)
        });
        let Some((chunk, at, more)) = answer else { return false };
        out.extend(chunk);
        *cursor = match more {
            true => ConnectionCursor { at, ..*cursor },
            false => ConnectionCursor { worker: cursor.worker + 1, at: DumpCursor::default() },
        };
        true
    }

    /// Ends sessions, those of them that have not ended by themselves; how many.
    pub fn clear(&self, ids: &[ConnectionId]) -> usize {
        let mut ids = ids.to_vec();
        ids.sort_unstable_by_key(|id| id.worker);
        let mut cleared = 0;
        for of_worker in ids.chunk_by(|a, b| a.worker == b.worker) {
            for chunk in of_worker.chunks(CHUNK) {
                let Some(worker) = self.shared().workers.get(usize::from(chunk[0].worker)) else { continue };
                let chunk = chunk.to_vec();
                let answer = ask(worker, move |sessions, host, _| {
                    chunk.iter().filter(|id| sessions.clear(id.session, id.uid, host)).count()
                });
                cleared += answer.unwrap_or(0);
            }
        }
        cleared
    }

    /// What each worker's sessions have counted.
    pub fn session_counters_by_worker(&self) -> Vec<SessionCounters> {
        let ask = |worker| ask(worker, |sessions, _, _| sessions.counters()).unwrap_or_default();
        self.shared().workers.iter().map(ask).collect()
    }

    /// How full NAT's pools are, in the order of the configuration.
    pub fn nat_usage(&self) -> Vec<PoolUsage> {
        let mut sum: Vec<PoolUsage> = Vec::new();
        for worker in &self.shared().workers {
            let usage = ask(worker, |sessions, _, _| sessions.nat().usage()).unwrap_or_default();
            if sum.is_empty() {
                sum = usage;
            } else {
                sum.iter_mut().zip(&usage).for_each(|(sum, usage)| sum.add(usage));
            }
        }
        sum
    }

    /// What has happened to NAT's pools since this was asked last, in order for each worker, and how many events have
    /// been lost so far because nobody asked.
    pub fn nat_events(&self) -> (Vec<NatEvent>, u64) {
        let (mut events, mut lost) = (Vec::new(), 0);
        for worker in &self.shared().workers {
            let told = ask(worker, |sessions, _, _| {
                let nat = sessions.nat_mut();
                let events: Vec<_> = std::iter::from_fn(|| nat.event()).collect();
                (events, nat.lost_events())
            });
            if let Some((told, n)) = told {
                events.extend(told);
                lost += n;
            }
        }
        (events, lost)
    }
}
