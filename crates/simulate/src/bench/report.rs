//! The report of a bench.

use std::collections::BTreeMap;

use serde::Serialize;

use mmb_dataplane::RuleCounters;
use mmb_dataplane::detached::WorkerReading;

use super::chains::{self, ChainCost};
use super::counting::CountingCost;
use super::measured::Measured;
use super::memory::SessionMemory;
use super::turns::Comparison;

/// Name of the source node.
pub(super) const SOURCE: &str = "bench-rx";
/// Name of the sink node.
pub(super) const SINK: &str = "bench-tx";

/// The work between two walks, reported as a node.
pub(super) const BETWEEN: &str = "between-walks";

/// The cost of one node.
#[derive(Clone, Debug, Serialize)]
pub struct NodeCost {
    /// Packets.
    pub packets: u64,
    /// Vectors.
    pub vectors: u64,
    /// TSC ticks per packet of this node.
    pub ticks_per_packet: f64,
}

/// The cost of routing.
#[derive(Clone, Debug, Serialize)]
pub struct RoutedCost {
    /// Random routes in the table.
    pub routes: usize,
    /// Seconds to generate the routes and to fill the table.
    pub routes_seconds: f64,
    /// TSC ticks per packet of `ip4-input`, `ip4-lookup` and `ip4-rewrite`, or their IPv6 counterparts,
    /// without rules.
    pub plain_path: f64,
    /// The cost of rules and sessions: all ticks beyond the plain path, as a multiple of it; `None` without
    /// rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
}

/// Result of a bench.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    /// Packets made.
    pub packets: u64,
    /// Time they took, in seconds.
    pub seconds: f64,
    /// Packets per second; making and freeing them is included.
    pub pps: f64,
    /// TSC ticks per packet of all nodes but the source and the sink.
    pub ticks_per_packet: f64,
    /// TSC ticks per second.
    pub tsc_hz: u64,
    /// Workers.
    pub workers: usize,
    /// The cost of each node, source and sink included.
    pub nodes: BTreeMap<String, NodeCost>,
    /// Packets dropped, by reason; reasons that did not occur are left out.
    pub drops: BTreeMap<&'static str, u64>,
    /// Packets that left unchanged because their edits failed, by reason; reasons that did not occur are left
    /// out.
    pub unedited: BTreeMap<&'static str, u64>,
    /// The cost of routing, if packets are routed.
    #[serde(flatten)]
    pub routed: Option<RoutedCost>,
    /// The cost of service chains, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chains: Option<ChainCost>,
    /// The sessions that were open, if one worker had some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<SessionMemory>,
    /// What counting costs, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counting: Option<CountingCost>,
    /// What the rules cost more than others, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<Comparison>,
    /// Matches of the rule in each slot; slots without a match are left out.
    #[serde(skip)]
    pub rules: Vec<(u32, RuleCounters)>,
}

/// Whether a node is the source or the sink.
pub(super) fn is_end(name: &str) -> bool {
    name == SOURCE || name == SINK
}

/// Subtracts an earlier reading of the same worker.
pub(super) fn difference(mut now: WorkerReading, before: &WorkerReading) -> WorkerReading {
    for (now, then) in now.nodes.iter_mut().zip(&before.nodes) {
        now.packets -= then.packets;
        now.vectors -= then.vectors;
        now.ticks -= then.ticks;
    }
    now.drops.iter_mut().zip(&before.drops).for_each(|(now, then)| now.1 -= then.1);
    now.edit_failures.iter_mut().zip(&before.edit_failures).for_each(|(now, then)| now.1 -= then.1);
    now.rules.iter_mut().zip(&before.rules).for_each(|(now, then)| *now -= *then);
    chains::subtract(&mut now.stages, &before.stages);
    now
}

/// Adds up the workers' measurements.
pub(super) fn report(measured: &[Measured], tsc_hz: u64) -> BenchReport {
    let mut nodes: BTreeMap<String, (u64, u64, u64)> = BTreeMap::new();
    let (mut drops, mut unedited) = (BTreeMap::new(), BTreeMap::new());
    let mut rules: BTreeMap<u32, RuleCounters> = BTreeMap::new();
    for reading in measured.iter().map(|m| &m.reading) {
        for node in reading.nodes.iter().filter(|node| node.vectors > 0) {
            let sum = nodes.entry(node.name.clone()).or_default();
            *sum = (sum.0 + node.packets, sum.1 + node.vectors, sum.2 + node.ticks);
        }
        for (sums, counts) in [(&mut drops, &reading.drops), (&mut unedited, &reading.edit_failures)] {
            for (reason, n) in counts.iter().filter(|(_, n)| *n > 0) {
                *sums.entry(reason.name()).or_default() += n;
            }
        }
        for (slot, counters) in (0..).zip(&reading.rules).filter(|(_, c)| c.packets > 0) {
            *rules.entry(slot).or_default() += *counters;
        }
    }
    let packets = nodes.get("l2-input").map_or(0, |sum| sum.0);
    if nodes.contains_key("flow-lookup") {
        let sum = |f: fn(&Measured) -> u64| measured.iter().map(f).sum();
        nodes.insert(BETWEEN.to_owned(), (packets, sum(|m| m.walks), sum(|m| m.between)));
    }
    let seconds = measured.iter().map(|m| m.seconds).fold(0.0, f64::max);
    let ticks: u64 = nodes.iter().filter(|(name, _)| !is_end(name)).map(|(_, sum)| sum.2).sum();
    let per_packet =
        |ticks: u64, packets: u64| if packets == 0 { 0.0 } else { ticks as f64 / packets as f64 };
    let cost = |(packets, vectors, ticks): (u64, u64, u64)| NodeCost {
        packets,
        vectors,
        ticks_per_packet: per_packet(ticks, packets),
    };
    BenchReport {
        packets,
        seconds,
        pps: packets as f64 / seconds,
        ticks_per_packet: per_packet(ticks, packets),
        tsc_hz,
        workers: measured.len(),
        nodes: nodes.into_iter().map(|(name, sum)| (name, cost(sum))).collect(),
        drops,
        unedited,
        routed: None,
        chains: None,
        // The memory of several workers grows at the same time.
        sessions: if let [one] = measured { one.sessions } else { None },
        counting: None,
        against: None,
        rules: rules.into_iter().collect(),
    }
}

/// The nodes of the plain path.
const PLAIN: [&str; 6] = ["ip4-input", "ip4-lookup", "ip4-rewrite", "ip6-input", "ip6-lookup", "ip6-rewrite"];
/// The node that every packet passes and that is not part of the plain path.
const LINK: &str = "l2-input";

impl BenchReport {
    /// TSC ticks per packet of the selected nodes.
    pub(super) fn ticks(&self, wanted: impl Fn(&str) -> bool) -> f64 {
        let of = |(_, node): (&String, &NodeCost)| node.packets as f64 * node.ticks_per_packet;
        let all: f64 = self.nodes.iter().filter(|(name, _)| wanted(name)).map(of).sum();
        all / self.packets.max(1) as f64
    }

    /// The cost of routing. `plain` is the report of the same traffic without rules; `None` if this one has
    /// no rules.
    pub(super) fn cost_of_routing(
        &self,
        plain: Option<&BenchReport>,
        routes: usize,
        seconds: f64,
    ) -> RoutedCost {
        let plain_path = plain.unwrap_or(self).ticks(|name| PLAIN.contains(&name));
        let whole = self.ticks(|name| name != LINK && !is_end(name));
        let ratio = plain.map(|_| (whole - plain_path) / plain_path.max(f64::MIN_POSITIVE));
        RoutedCost { routes, routes_seconds: seconds, plain_path, ratio }
    }
}
