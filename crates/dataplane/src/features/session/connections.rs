//! Sessions on the control side: listing, clearing, counters, and use of NAT pools.

use std::sync::Arc;

use mmb_flow::{NatEvent, PoolUsage, SessionId};
use mmb_session::LoggedPacket;
pub use mmb_session::SessionCounters;
use mmb_session::{DumpCursor, SessionView};

use crate::engine::control::Engine;
use crate::engine::thread::mailbox::run_on_worker;

/// A session as the API shows it.
pub type Connection = SessionView;

/// Sessions listed by one task of a worker: enough that a task costs little, few enough that no packet waits
/// long.
const CHUNK: usize = 256;

/// Identifies a session, also against other sessions that had or will have its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    worker: u16,
    session: SessionId,
    uid: u32,
}

impl ConnectionId {
    /// The session with this number and uid at this worker.
    pub fn new(worker: u16, session: u32, uid: u32) -> ConnectionId {
        ConnectionId { worker, session: SessionId(session), uid }
    }
}

impl From<&Connection> for ConnectionId {
    fn from(view: &Connection) -> Self {
        ConnectionId { worker: view.worker, session: view.id, uid: view.uid }
    }
}

/// A session whose packets are not left to the fast path while this exists.
pub struct KeptSession {
    engine: Arc<Engine>,
    worker: u16,
}

impl Drop for KeptSession {
    fn drop(&mut self) {
        self.engine.set_kept(self.worker, None);
    }
}

/// A position in the list of all sessions; begins at the first one.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectionCursor {
    worker: usize,
    at: DumpCursor,
}

impl Engine {
    /// Appends about 256 sessions from `cursor` on, and moves the cursor behind them. Returns false at the
    /// end.
    ///
    /// A chunk may be empty although more follow. Sessions that begin or end meanwhile may be left out; every
    /// other session is listed once.
    pub fn connections(&self, cursor: &mut ConnectionCursor, out: &mut Vec<Connection>) -> bool {
        let Some(worker) = self.shared().workers.get(cursor.worker) else { return false };
        let (mut chunk, mut at) = (Vec::with_capacity(CHUNK), cursor.at);
        let answer = run_on_worker(worker, move |sessions, host, now| {
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

    /// A session. None: it has ended.
    pub fn connection(&self, id: ConnectionId) -> Option<Connection> {
        let worker = self.shared().workers.get(usize::from(id.worker))?;
        run_on_worker(worker, move |sessions, host, now| {
            sessions.open_session((id.session, id.uid), now, host)
        })?
    }

    /// Returns the packets of a session from the fast path to the engine until the result is dropped, one
    /// session at a time.
    pub fn keep_in_engine(self: &Arc<Engine>, id: ConnectionId) -> KeptSession {
        self.set_kept(id.worker, Some((id.session, id.uid)));
        KeptSession { engine: self.clone(), worker: id.worker }
    }

    fn set_kept(&self, worker: u16, session: Option<(SessionId, u32)>) {
        if let Some(worker) = self.shared().workers.get(usize::from(worker)) {
            // A worker that does not respond ends the process.
            let _ = run_on_worker(worker, move |sessions, host, now| {
                sessions.keep_in_engine(now, session, host);
            });
        }
    }

    /// Ends those of the sessions that have not ended yet. Returns how many.
    pub fn clear(&self, ids: &[ConnectionId]) -> usize {
        let mut ids = ids.to_vec();
        ids.sort_unstable_by_key(|id| id.worker);
        let mut cleared = 0;
        for of_worker in ids.chunk_by(|a, b| a.worker == b.worker) {
            for chunk in of_worker.chunks(CHUNK) {
                let Some(worker) = self.shared().workers.get(usize::from(chunk[0].worker)) else { continue };
                let chunk = chunk.to_vec();
                let answer = run_on_worker(worker, move |sessions, host, _| {
                    chunk.iter().filter(|id| sessions.clear(id.session, id.uid, host)).count()
                });
                cleared += answer.unwrap_or(0);
            }
        }
        cleared
    }

    /// Waits until workers have sent what ports had received before, unless ports receive more than workers
    /// can process.
    pub fn settle(&self) {
        /// Walks that a packet may need: it is received, handed to the worker of its session, and given to
        /// the worker that sends. A task runs between two walks.
        const TASKS: usize = 4;
        for _ in 0..TASKS {
            for worker in &self.shared().workers {
                // A worker that does not respond ends the process.
                let _ = run_on_worker(worker, |_, _, _| ());
            }
        }
    }

    /// Session counters of each worker.
    pub fn session_counters_by_worker(&self) -> Vec<SessionCounters> {
        let counters =
            |worker| run_on_worker(worker, |sessions, _, _| sessions.counters()).unwrap_or_default();
        self.shared().workers.iter().map(counters).collect()
    }

    /// Use of the NAT pools, in the order of the configuration.
    pub fn nat_usage(&self) -> Vec<PoolUsage> {
        let mut sum: Vec<PoolUsage> = Vec::new();
        for worker in &self.shared().workers {
            let usage = run_on_worker(worker, |sessions, _, _| sessions.nat().usage()).unwrap_or_default();
            if sum.is_empty() {
                sum = usage;
            } else {
                sum.iter_mut().zip(&usage).for_each(|(sum, usage)| sum.add(usage));
            }
        }
        sum
    }

    /// Packets that rules log since the last call, in order for each worker, and how many have been lost so
    /// far because nobody fetched them. Wakes no worker.
    pub fn logged_packets(&self) -> (Vec<LoggedPacket>, u64) {
        let mut packets = Vec::new();
        let lost = self.shared().workers.iter().map(|worker| worker.log.drain_to(&mut packets)).sum();
        (packets, lost)
    }

    /// Events of NAT pools since the last call, in order for each worker, and how many events have been lost
    /// so far because nobody fetched them.
    pub fn nat_events(&self) -> (Vec<NatEvent>, u64) {
        let (mut events, mut lost) = (Vec::new(), 0);
        for worker in &self.shared().workers {
            let result = run_on_worker(worker, |sessions, _, _| {
                let nat = sessions.nat_mut();
                let events: Vec<_> = std::iter::from_fn(|| nat.event()).collect();
                (events, nat.lost_events())
            });
            if let Some((of_worker, n)) = result {
                events.extend(of_worker);
                lost += n;
            }
        }
        (events, lost)
    }
}
