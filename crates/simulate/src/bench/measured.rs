//! The measurement of one worker.

use mmb_dataplane::detached::WorkerReading;

use super::memory::SessionMemory;

/// One worker's measurement.
pub(super) struct Measured {
    pub reading: WorkerReading,
    pub seconds: f64,
    /// TSC ticks between walks, for sessions.
    pub between: u64,
    pub walks: u64,
    /// The sessions that were opened before.
    pub sessions: Option<SessionMemory>,
}
