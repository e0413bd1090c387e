//! What counters cost, and the test for traces and captures that nobody has asked for.
//!
//! Theory of operation. Two workers on one thread walk the same graph with the same traffic, in turn, a few
//! walks at a time. The rules of one count their packets, and it looks for a trace between two walks, as the
//! daemon does. The other does neither. Both run the same code. A turn is so short that other programs seldom
//! interrupt it, and a round takes the median of many turns, which ignores the interrupted ones.
//!
//! The graph reads the time-stamp counter twice for each vector of a node. A graph cannot do without, so this
//! part is computed from the vectors and from what a reading costs.

use std::time::{Duration, Instant};

use mmb_dataplane::detached::DetachedWorker;
use mmb_dpdk::rdtsc;
use serde::Serialize;

use super::report::{BETWEEN, BenchReport, is_end};
use super::source::TrafficIo;

/// Rounds, in each of which both workers are measured.
const ROUNDS: usize = 40;
/// Walks of a turn.
const WALKS: u32 = 4;
const CLOCK_READINGS: u64 = 10_000;

/// What counting costs, in TSC ticks a packet and in percent of the ticks of all nodes but source and sink.
#[derive(Clone, Debug, Serialize)]
pub struct CountingCost {
    /// Number of measurements.
    pub rounds: usize,
    /// Ticks a packet of rule counters and of the test for traces: the median.
    pub ticks_per_packet: f64,
    /// The median in percent.
    pub percent: f64,
    /// The least of the rounds in percent; negative where the difference is smaller than the noise.
    pub least_percent: f64,
    /// Ticks a packet for reading the clock around nodes.
    pub clock_ticks_per_packet: f64,
    /// Reading the clock in percent.
    pub clock_percent: f64,
}

/// Measures for about `seconds`. `report` is that of the same traffic.
pub(super) fn measure(
    counted: &mut DetachedWorker<TrafficIo>,
    bare: &mut DetachedWorker<TrafficIo>,
    report: &BenchReport,
    seconds: f64,
) -> CountingCost {
    let time = Duration::from_secs_f64(seconds / ROUNDS as f64);
    let (before, mut turns) = (packets(counted), 0);
    let (mut wholes, mut differences) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        let start = Instant::now();
        while with.is_empty() || start.elapsed() < time {
            with.push(turn(counted, DetachedWorker::maintain));
            without.push(turn(bare, DetachedWorker::maintain_without_traces));
        }
        turns += with.len();
        let whole = median(&mut with);
        wholes.push(whole);
        differences.push(whole - median(&mut without));
    }
    let per_turn = (packets(counted) - before) as f64 / turns as f64;
    // Source and sink are part of a turn, and no part of what the cost is compared with.
    let share = report.ticks_per_packet / report.ticks(|_| true).max(f64::MIN_POSITIVE);
    let path = median(&mut wholes) * share / per_turn;
    let percent = |ticks: f64| 100.0 * ticks / path.max(f64::MIN_POSITIVE);
    let difference = median(&mut differences) / per_turn;
    let clock = clock_ticks_per_packet(report);
    CountingCost {
        rounds: ROUNDS,
        ticks_per_packet: difference,
        percent: percent(difference),
        least_percent: percent(differences[0] / per_turn),
        clock_ticks_per_packet: clock,
        clock_percent: percent(clock),
    }
}

/// The ticks of a few walks.
#[inline(never)]
fn turn(worker: &mut DetachedWorker<TrafficIo>, maintain: impl Fn(&mut DetachedWorker<TrafficIo>)) -> f64 {
    let start = rdtsc();
    for _ in 0..WALKS {
        maintain(worker);
        worker.walk();
    }
    (rdtsc() - start) as f64
}

/// The median of values, of which there is at least one. Sorts them.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Packets that have come into the graph.
fn packets(worker: &DetachedWorker<TrafficIo>) -> u64 {
    worker.reading().nodes.iter().find(|node| node.name == "l2-input").map_or(0, |node| node.packets)
}

/// What reading the clock twice for each vector costs.
fn clock_ticks_per_packet(report: &BenchReport) -> f64 {
    let first = rdtsc();
    for _ in 1..CLOCK_READINGS {
        std::hint::black_box(rdtsc());
    }
    let reading = (rdtsc() - first) as f64 / CLOCK_READINGS as f64;
    let nodes = report.nodes.iter().filter(|(name, _)| !is_end(name) && *name != BETWEEN);
    let vectors: u64 = nodes.map(|(_, node)| node.vectors).sum();
    2.0 * reading * vectors as f64 / report.packets.max(1) as f64
}
