//! Errors of the engine.

use std::io;

use crate::engine::config::{MAX_SCRATCHPAD, MAX_SESSIONS, MAX_WORKERS};
use crate::engine::pools::PoolError;
use crate::features::port::error::PortError;

/// The step that failed when a worker was set up.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// DPDK has no number left for the thread.
    #[error("DPDK does not accept the thread: {0}")]
    Register(#[source] mmb_dpdk::Error),
    /// The worker cannot sleep until packets arrive.
    #[error("cannot wait on ports: {0}")]
    Wait(#[source] io::Error),
    /// DPDK refuses the graph.
    #[error("cannot build the graph: {0}")]
    Graph(#[source] mmb_dpdk::Error),
}

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
        reason: io::Error,
    },
    /// There is no descriptor left for the file of scratchpads.
    #[error("cannot share scratchpads: {0}")]
    ShareScratchpads(#[source] io::Error),
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
    #[error("worker {worker}: {step}")]
    Worker {
        /// The worker's number.
        worker: usize,
        /// What failed, and why.
        #[source]
        step: WorkerError,
    },
    /// A port of a bench cannot be opened.
    #[error(transparent)]
    Port(#[from] PortError),
}
