//! What the sessions of all workers share: room in the tables, NAT ports, and the limit of each source.
//!
//! Theory of operation. Packets of open sessions use none of this. Opening and ending a session writes to
//! shared memory: to the count of its source, to the claim of its external port, and, once in some hundred
//! sessions, to the room that is left ([`quota`]). A single worker writes without locked instructions.

mod admission;
mod limits;
mod quota;
mod sources;

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use mmb_flow::PortOwners;

pub(crate) use admission::{Admission, SourceCount};
pub use limits::LimitedSource;
use quota::{Quota, Room};
pub(crate) use sources::SourceHash;
use sources::SourceTable;

/// Reports of limited sources that wait for the control side. Further ones are lost.
const REPORTS: usize = 256;

/// What the sessions of all workers of an engine share.
#[derive(Debug)]
pub struct SharedSessions {
    quota: Quota,
    sources: SourceTable,
    pub(crate) ports: Arc<PortOwners>,
    limited: ArrayQueue<LimitedSource>,
}

impl SharedSessions {
    /// Room for `sessions` sessions of `workers` workers. `seed`: a secret.
    pub fn new(sessions: usize, workers: u16, seed: u64) -> SharedSessions {
        let sessions = u32::try_from(sessions).unwrap_or(u32::MAX).clamp(1, mmb_flow::MAX_CAPACITY);
        SharedSessions {
            quota: Quota::new(sessions, workers),
            sources: SourceTable::new(sessions, workers > 1, seed),
            ports: Arc::default(),
            limited: ArrayQueue::new(REPORTS),
        }
    }

    /// The maximum number of sessions.
    pub fn capacity(&self) -> u32 {
        self.quota.total()
    }

    /// Takes the reports of sources that have reached their limit since the last call.
    pub fn take_limited(&self) -> Vec<LimitedSource> {
        std::iter::from_fn(|| self.limited.pop()).take(REPORTS).collect()
    }
}
