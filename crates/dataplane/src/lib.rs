//! The engine of mmb: the graph's nodes, workers, ports, and the snapshots of the policy that they run on.
//!
//! | module | what lives there |
//! |---|---|
//! | [`config`] | what the engine is told |
//! | [`engine`] | start, stop, ports, publication |
//! | `shared`, `snapshot`, `counters` | what crosses threads |
//! | `worker`, `sleep`, `mailbox` | a worker's thread |
//! | `chains` | what the engine tells of chains |
//! | `connections` | what the engine tells of sessions |
//! | `routing`, `wants`, `locals` | what the engine takes and tells about routes |
//! | `fastpath` | flows that the kernel sends on by itself |
//! | `neighbors` | packets that wait for an Ethernet address |
//! | `nodes` | the graph, one file per node |
//! | `offload` | what ports find out about packets by themselves |
//! | `port`, `pools` | devices and packet memory |
//! | [`replay`], [`bench`], [`lab`] | the same graph between ends made in memory |

#![forbid(unsafe_code)]

pub mod bench;
mod chains;
pub mod config;
mod connections;
mod counters;
pub mod engine;
mod fastpath;
pub mod lab;
mod locals;
mod mailbox;
mod neighbors;
mod nodes;
mod offload;
mod pools;
mod port;
pub mod replay;
mod routing;
mod shared;
mod sleep;
mod snapshot;
mod wants;
mod worker;

pub use config::{
    DEFAULT_SCRATCHPAD, DEFAULT_SESSIONS, EngineConfig, Forwarding, MAX_PORTS, MAX_SCRATCHPAD, MAX_WORKERS,
    PortConfig, PortId, Routed,
};
pub use connections::{Connection, ConnectionCursor, ConnectionId, SessionCounters};
pub use counters::{EDIT_FAILURES, RuleCounters};
pub use engine::{Engine, EngineError, NodeRuntime, WorkerRuntime};
pub use fastpath::{FastPathInfo, FastPortInfo, fast_path_obstacle};
pub use mmb_dpdk::Steering;
pub use mmb_policy::Policy;
pub use offload::Capability;
pub use port::{PortError, PortInfo};
pub use routing::RoutingCounters;
pub use wants::{Want, Wants};
