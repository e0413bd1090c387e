//! What the engine reports: work of nodes and workers, drops, and rule counters.

use mmb_dpdk::StatsHandle;
use mmb_packet::DropReason;
use serde::Serialize;

use crate::engine::config::PortId;
use crate::engine::control::{Engine, lock};
use crate::engine::counters::{EDIT_FAILURES, RuleCounters};
use crate::engine::shared::Shared;
use crate::features::port::device::PortInfo;

/// The work of one node.
#[derive(Clone, Debug, Serialize)]
pub struct NodeRuntime {
    /// The node's name.
    pub name: String,
    /// Packets that it processed.
    pub packets: u64,
    /// Vectors that it was called with.
    pub vectors: u64,
    /// TSC ticks that it took.
    pub ticks: u64,
}

/// The work of one worker.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerRuntime {
    /// The worker's number.
    pub worker: usize,
    /// The CPU to which it is pinned.
    pub cpu: Option<usize>,
    /// Times it went to sleep.
    pub sleeps: u64,
    /// Transport checksums that it completed for kernel peers.
    pub checksum_repairs: u64,
    /// The nodes of its graph.
    pub nodes: Vec<NodeRuntime>,
}

impl Engine {
    /// The work of all workers and nodes.
    pub fn runtime(&self) -> Vec<WorkerRuntime> {
        let workers = self.workers.iter().zip(&self.shared.workers).enumerate();
        workers
            .map(|(id, (running, shared))| WorkerRuntime {
                worker: id,
                cpu: running.cpu,
                sleeps: shared.counters.sleeps.get(),
                checksum_repairs: shared.counters.repairs.get(),
                nodes: node_runtime(&running.stats),
            })
            .collect()
    }

    /// Packets and bytes that the rule in `slot` matched since the slot was zeroed.
    pub fn rule_counters(&self, slot: u32) -> RuleCounters {
        let publisher = lock(&self.publisher);
        let mut sum = RuleCounters::default();
        publisher.counters.iter().for_each(|table| sum += table.get(slot));
        sum
    }

    /// Zeroes the counters of a slot that no published policy uses.
    pub fn zero_rule_counters(&self, slot: u32) {
        lock(&self.publisher).counters.iter().for_each(|table| table.zero(slot));
    }

    /// State and counters of a port; none if it is not open.
    pub fn port_info(&self, id: PortId) -> Option<PortInfo> {
        self.open(id).map(|port| port.info())
    }

    /// Packets dropped, by reason.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        drops(&self.shared)
    }

    /// Packets forwarded unedited because their edits failed, by reason.
    pub fn unedited(&self) -> Vec<(DropReason, u64)> {
        unedited(&self.shared)
    }

    /// The size of the engine in a few words.
    pub fn describe(&self) -> String {
        let n = self.workers.len();
        let pages = if self.eal.huge_pages() { "huge pages" } else { "ordinary pages" };
        format!(
            "{n} worker{}, {} packet buffers, {pages}",
            if n == 1 { "" } else { "s" },
            self.pools.buffers()
        )
    }
}

pub(crate) fn node_runtime(stats: &StatsHandle) -> Vec<NodeRuntime> {
    stats
        .stats()
        .into_iter()
        .map(|n| NodeRuntime {
            name: n.name.to_owned(),
            packets: n.packets,
            vectors: n.vectors,
            ticks: n.ticks,
        })
        .collect()
}

pub(crate) fn drops(shared: &Shared) -> Vec<(DropReason, u64)> {
    let sum = |reason| shared.drop_counters().map(|drops| drops.get(reason)).sum();
    DropReason::known().map(|reason| (reason, sum(reason))).collect()
}

pub(crate) fn unedited(shared: &Shared) -> Vec<(DropReason, u64)> {
    let sum = |reason| shared.workers.iter().map(|w| w.counters.unedited.get(reason)).sum();
    EDIT_FAILURES.iter().map(|&reason| (reason, sum(reason))).collect()
}
