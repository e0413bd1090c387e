//! Documents about workers and drops.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{RoutingCounts, SessionCounts};

/// `show drops`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DropList {
    /// Dropped packets by reason; all reasons.
    pub drops: IndexMap<String, u64>,
    /// Packets forwarded unedited because they could not be edited, by reason; all reasons.
    #[serde(default)]
    pub unedited: IndexMap<String, u64>,
}

/// `show runtime`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Runtime {
    /// The workers.
    pub workers: Vec<WorkerEntry>,
    /// Sessions of all workers.
    #[serde(default)]
    pub sessions: SessionCounts,
    /// Counters of routing; absent while no interface is routed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<RoutingCounts>,
}

/// Counters of a worker since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkerEntry {
    /// Number of the worker, from 0.
    pub worker: u64,
    /// The core that the worker is bound to.
    pub cpu: Option<u64>,
    /// How often the worker slept because there were no packets.
    pub sleeps: u64,
    /// Transport checksums completed for a kernel peer that had left them to hardware.
    pub checksum_repairs: u64,
    /// Sessions that the worker owns.
    #[serde(default)]
    pub sessions: u64,
    /// The nodes of the worker's graph by name.
    pub nodes: IndexMap<String, NodeEntry>,
}

/// A node of a worker's graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeEntry {
    /// Packets processed.
    pub packets: u64,
    /// Vectors processed.
    pub vectors: u64,
    /// Clock ticks (TSC) spent.
    pub ticks: u64,
    /// Clock ticks per packet; 0 without packets.
    pub ticks_per_packet: f64,
    /// Packets per vector; 0 without vectors.
    pub packets_per_vector: f64,
}
