//! The engine: workers, publication, configuration, counters and packet memory.

pub(crate) mod config;
pub(crate) mod control;
pub(crate) mod counters;
pub mod detached;
pub(crate) mod error;
pub(crate) mod handoff;
pub(crate) mod log_queue;
pub(crate) mod node;
pub(crate) mod periodic;
pub(crate) mod pool_growth;
pub(crate) mod pools;
pub(crate) mod shared;
pub(crate) mod snapshot;
pub(crate) mod start;
pub(crate) mod stats;
pub(crate) mod thread;
pub(crate) mod worker;
