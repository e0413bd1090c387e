//! The engine of mmb: the graph's nodes, workers, ports, and the snapshots of the policy that they run on.
//!
//! | module | what lives there |
//! |---|---|
//! | [`config`] | what the engine is told |
//! | [`engine`] | start, stop, ports, publication |
//! | `shared`, `snapshot`, `counters` | what crosses threads |
//! | `worker`, `sleep`, `mailbox` | a worker's thread |
//! | `connections` | what the engine tells of sessions |
//! | `nodes` | the graph, one file per node |
//! | `port`, `pools` | devices and packet memory |
//! | [`replay`], [`bench`] | the same graph between ends made in memory |

#![forbid(unsafe_code)]

pub mod bench;
pub mod config;
mod connections;
mod counters;
pub mod engine;
mod mailbox;
mod nodes;
mod pools;
mod port;
pub mod replay;
mod shared;
mod sleep;
mod snapshot;
mod worker;

pub use config::{DEFAULT_SESSIONS, EngineConfig, Forwarding, MAX_PORTS, MAX_WORKERS, PortConfig, PortId};
pub use connections::{Connection, ConnectionCursor, ConnectionId, SessionCounters};
pub use counters::{EDIT_FAILURES, RuleCounters};
pub use engine::{Engine, EngineError, NodeRuntime, WorkerRuntime};
pub use mmb_policy::Policy;
pub use port::{PortError, PortInfo};
