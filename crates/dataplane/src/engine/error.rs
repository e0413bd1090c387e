//! Errors of the engine.

use std::io;

use crate::engine::config::{MAX_SCRATCHPAD, MAX_SESSIONS, MAX_WORKERS};
use crate::engine::pools::PoolError;
use crate::features::port::error::PortError;

/// Why the engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The number of workers is out of range.
    #[error("invalid number of workers: {0}; ask for 1 to {MAX_WORKERS}")]
    Workers(usize),
    /// The number of sessions is out of range.
    #[error("invalid number of sessions: {0}; ask for 1 to {MAX_SESSIONS}")]
    Sessions(usize),
    /// The scratchpad of a session is too large.
    #[error("invalid scratchpad size: {0} bytes; ask for at most {MAX_SCRATCHPAD} with --scratchpad")]
    Scratchpad(usize),
    /// DPDK refused something.
    #[error(transparent)]
    Dpdk(#[from] mmb_dpdk::Error),
    /// Packet memory cannot be allocated.
    #[error(transparent)]
    PacketMemory(#[from] PoolError),
    /// Memory of sessions cannot be allocated.
    #[error("no memory for {sessions} sessions ({reason}); ask for fewer with --sessions")]
    SessionMemory {
        /// Sessions asked for.
        sessions: usize,
        /// The allocation's error.
        reason: String,
    },
    /// An eventfd cannot be created.
    #[error("cannot create an eventfd: {0}")]
    EventFd(#[source] io::Error),
    /// A thread cannot be started.
    #[error("cannot start the thread of {name}: {reason}")]
    Thread {
        /// What the thread runs.
        name: String,
        /// The system's error.
        reason: io::Error,
    },
    /// A worker ended while it started.
    #[error("worker {0} ended before it started")]
    WorkerEnded(usize),
    /// A worker cannot be set up.
    #[error("worker {worker}: {step}: {reason}")]
    Worker {
        /// The worker's number.
        worker: usize,
        /// What failed.
        step: &'static str,
        /// Why.
        reason: String,
    },
    /// A port of a bench cannot be opened.
    #[error(transparent)]
    Port(#[from] PortError),
}
