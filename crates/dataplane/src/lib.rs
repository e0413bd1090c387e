//! The engine of mmb: the graph's nodes, workers, ports, and the snapshots of the policy that they run on.
//!
//! | module | contents |
//! |---|---|
//! | `engine` | workers, publication, configuration, counters, packet memory |
//! | `features` | one folder per feature: its nodes, state and counters |
//! | `graph` | the graph of nodes |
//! | [`detached`] | workers without threads and devices, for simulation and tests |

#![forbid(unsafe_code)]

mod engine;
mod features;
mod graph;
#[cfg(test)]
mod lab;

pub use engine::config::{
    AddressChecks, DEFAULT_SCRATCHPAD, DEFAULT_SESSIONS, EngineConfig, Forwarding, MAX_PORTS, MAX_SCRATCHPAD,
    MAX_WORKERS, PortConfig, PortId, Routed,
};
pub use engine::control::Engine;
pub use engine::counters::{EDIT_FAILURES, RuleCounters};
pub use engine::detached;
pub use engine::error::{EngineError, WorkerError};
pub use engine::pools::{PoolError, SharedScratchpads};
pub use engine::stats::{NodeRuntime, WorkerRuntime};
pub use engine::thread::failure::WorkerFailure;
pub use features::fastpath::config::{admits as fast_path_admits, learns};
pub use features::flow_rules::Capability;
pub use features::port::device::PortInfo;
pub use features::port::error::PortError;
pub use features::port::open::is_interface_up;
pub use features::punt::limit::PuntLimits;
pub use features::route::control::RoutingCounters;
pub use features::route::requests::{NeighborRequest, NeighborRequests};
pub use features::session::connections::{
    Connection, ConnectionCursor, ConnectionId, KeptSession, SessionCounters,
};
pub use features::session::saved::{RestoreReport, SessionCopies};
pub use features::trace::live::{LiveTrace, NextTrace, TraceSelection};
pub use features::trace::record::{
    AppliedRules, PacketTrace, TraceDetail, TraceEnd, TraceRequest, TraceStep, TracedSession,
};
pub use mmb_dpdk::{
    FastHook, NetDev, Offloads, SelectorError, SocketSelector, Steering, is_veth, needs_physical_addresses,
};
pub use mmb_fastpath::{FastPathInfo, FastPortInfo, FastPortRole, fast_path_obstacle};
pub use mmb_policy::Policy;
pub use mmb_session::{
    FunctionVisit, KeptRules, LimitedSource, LogVerdict, LoggedHeaders, LoggedPacket, NO_POOL, NO_PORT,
    NotRestored, SavedRule, SavedSession, SavedSessions, SessionFile, SessionFileError,
};
