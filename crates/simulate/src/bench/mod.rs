//! `mmb bench`: the cost of a policy, measured on the daemon's graph with traffic made in memory.
//!
//! Theory of operation. Each worker walks the daemon's nodes between a source that makes packets and a sink
//! that frees them. Source and sink are nodes of their own, so the graph's tick counters keep their cost
//! apart; `ticks_per_packet` is the sum of all other nodes over the packets made. A short warm-up fills
//! caches and branch predictors and is not counted. Workers share nothing but the policy, as with RSS.
//!
//! Where rules need sessions, flows are opened before the measurement. The work for sessions between two
//! walks counts as one more node. With [`BenchConfig::routes`], packets are routed by a generated table. The
//! cost of rules and sessions is then compared with the plain path, which is measured first, with the same
//! traffic and no rules. With [`Traffic::NullPorts`] the nodes poll and send on DPDK's null ports, as testpmd
//! does; receive and transmit are part of the cost.

mod answers;
mod chains;
mod config;
mod counting;
mod measured;
mod memory;
mod open;
mod prefixes;
mod report;
mod routed;
mod run;
mod source;
mod traffic;
mod turns;
mod wire;

pub use chains::{ChainCost, StageCost};
pub use config::{BenchConfig, BenchError, Traffic};
pub use counting::CountingCost;
pub use memory::{SessionMemory, resident};
pub use prefixes::{MAX_PREFIXES, Prefixes};
pub use report::{BenchReport, NodeCost, RoutedCost};
pub use run::run;
pub use traffic::{Generated, Generator, MAX_FRAME, Order, Proto};
pub use turns::Comparison;
