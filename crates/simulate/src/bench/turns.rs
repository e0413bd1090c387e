//! Compares two settings: what one costs more than the other.
//!
//! Theory of operation. Two workers on one thread walk the same graph with the same traffic, in turn, a few
//! walks at a time, one with the first setting and the other with the second. A turn is so short that other
//! programs seldom interrupt it. What counts is the median of the differences between two turns that follow
//! each other: interrupted turns do not change it, and both turns of a pair have the same clock rate and the
//! same neighbours on the processor. The worker that begins a pair alternates, since a turn finds the caches
//! as the turn before has left them. After half of the rounds the workers change settings, since memory of
//! one may lie better than that of the other.

use std::time::{Duration, Instant};

use mmb_dataplane::detached::{DetachedEngine, DetachedWorker};
use mmb_dpdk::rdtsc;
use serde::Serialize;

use super::report::BenchReport;
use super::source::TrafficIo;

/// Rounds, in each of which both settings are measured; an even number.
const ROUNDS: usize = 40;
/// Walks of a turn.
const WALKS: u32 = 4;
/// Turns after a change of settings that are not measured.
const WARM_UP_TURNS: usize = 200;

/// One of two settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    First,
    Second,
}

/// An engine and its only worker.
pub(super) struct Side<'a> {
    pub engine: &'a DetachedEngine,
    pub worker: &'a mut DetachedWorker<TrafficIo>,
}

/// What the first of two settings costs more than the second, in TSC ticks a packet and in percent of the
/// ticks of all nodes but source and sink.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Number of measurements.
    pub rounds: usize,
    /// The difference in ticks a packet: the median.
    pub ticks_per_packet: f64,
    /// The median in percent of the path with the first setting.
    pub percent: f64,
    /// The least difference of the rounds in percent; negative where noise exceeds the difference.
    pub least_percent: f64,
    /// Ticks a packet of the path with the first setting.
    #[serde(skip)]
    pub path: f64,
}

/// Measures for about `seconds`. `report` is that of the same traffic with the first setting. `publish` gives
/// an engine a setting, and `maintain` does the work of a worker between two walks with a setting.
pub(super) fn compare(
    mut sides: [Side<'_>; 2],
    (report, seconds): (&BenchReport, f64),
    publish: impl Fn(&DetachedEngine, Setting),
    maintain: impl Fn(&mut DetachedWorker<TrafficIo>, Setting),
) -> Comparison {
    let time = Duration::from_secs_f64(seconds / ROUNDS as f64);
    let (before, mut turns) = (sides.each_ref().map(|side| packets(side.worker)), 0);
    let (mut walks, mut medians, mut least) = (Vec::new(), Vec::new(), f64::INFINITY);
    for settings in [[Setting::First, Setting::Second], [Setting::Second, Setting::First]] {
        for (side, setting) in sides.iter_mut().zip(settings) {
            publish(side.engine, setting);
            (0..WARM_UP_TURNS).for_each(|_| _ = turn(side.worker, setting, &maintain));
            turns += WARM_UP_TURNS;
        }
        let mut differences = Vec::new();
        for _ in 0..ROUNDS / 2 {
            let (mut wholes, mut pairs) = (Vec::new(), Vec::new());
            let start = Instant::now();
            while pairs.is_empty() || start.elapsed() < time {
                let mut ticks = [0.0; 2];
                let begins = pairs.len() % 2;
                for at in [begins, 1 - begins] {
                    ticks[at] = turn(sides[at].worker, settings[at], &maintain);
                }
                let [first, second] =
                    if settings[0] == Setting::First { ticks } else { [ticks[1], ticks[0]] };
                wholes.push(first);
                pairs.push(first - second);
            }
            turns += 2 * pairs.len();
            walks.push(median(&mut wholes));
            differences.push(median(&mut pairs));
        }
        medians.push(median(&mut differences));
        least = least.min(differences[0]);
    }
    let after: u64 = sides.iter().zip(before).map(|(side, before)| packets(side.worker) - before).sum();
    let per_turn = after as f64 / turns as f64;
    // Source and sink are part of a turn, and no part of what the difference is compared with.
    let share = report.ticks_per_packet / report.ticks(|_| true).max(f64::MIN_POSITIVE);
    let path = median(&mut walks) * share / per_turn;
    let percent = |ticks: f64| 100.0 * ticks / path.max(f64::MIN_POSITIVE);
    let ticks_per_packet = medians.iter().sum::<f64>() / medians.len() as f64 / per_turn;
    Comparison {
        rounds: ROUNDS,
        ticks_per_packet,
        percent: percent(ticks_per_packet),
        least_percent: percent(least / per_turn),
        path,
    }
}

/// The ticks of a few walks.
#[inline(never)]
fn turn(
    worker: &mut DetachedWorker<TrafficIo>,
    setting: Setting,
    maintain: &impl Fn(&mut DetachedWorker<TrafficIo>, Setting),
) -> f64 {
    let start = rdtsc();
    for _ in 0..WALKS {
        maintain(worker, setting);
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
