//! What counters cost, and the test for traces and captures that nobody has asked for.
//!
//! Theory of operation. With the first setting, rules count their packets, and the worker looks for a trace
//! between two walks, as the daemon does. With the second, it does neither. Both run the same code
//! ([`super::turns`]).
//!
//! The graph reads the time-stamp counter twice for each vector of a node. A graph cannot do without, so this
//! part is computed from the vectors and from what a reading costs.

use mmb_dataplane::Forwarding;
use mmb_dpdk::rdtsc;
use serde::Serialize;

use super::report::{BETWEEN, BenchReport, is_end};
use super::turns::{Comparison, Setting, Side, compare};

const CLOCK_READINGS: u64 = 10_000;

/// What counting costs.
#[derive(Clone, Debug, Serialize)]
pub struct CountingCost {
    /// Rule counters, and the test for traces.
    #[serde(flatten)]
    pub counters: Comparison,
    /// Ticks a packet for reading the clock around nodes.
    pub clock_ticks_per_packet: f64,
    /// Reading the clock in percent of the same path.
    pub clock_percent: f64,
}

/// Measures for about `seconds`. `report` is that of the same traffic.
pub(super) fn measure(
    sides: [Side<'_>; 2],
    forwarding: &Forwarding,
    (report, seconds): (&BenchReport, f64),
) -> CountingCost {
    let counters = compare(
        sides,
        (report, seconds),
        |engine, setting| match setting {
            Setting::First => engine.publish(forwarding.clone()),
            Setting::Second => engine.publish_uncounted(forwarding.clone()),
        },
        |worker, setting| match setting {
            Setting::First => worker.maintain(),
            Setting::Second => worker.maintain_without_traces(),
        },
    );
    let clock = clock_ticks_per_packet(report);
    let clock_percent = 100.0 * clock / counters.path.max(f64::MIN_POSITIVE);
    CountingCost { counters, clock_ticks_per_packet: clock, clock_percent }
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
