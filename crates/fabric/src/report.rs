//! What `show functions` prints of a process.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use mmb_nf::process::ProcessStatus;

use crate::host::rings_of;
use crate::ring;
use crate::shared::{LinkCounters, Shared};

/// Returns what is known of a process. `number`: 0 if there is none.
pub fn status(shared: &Shared, number: u32, restarts: u32) -> ProcessStatus {
    let sum = |counter: fn(&LinkCounters) -> &AtomicU64| {
        shared.counters.iter().map(|one| counter(one).load(Relaxed)).sum::<u64>()
    };
    let (mut there, mut back, mut free_slots) = (0, 0, 0);
    for worker in 0..shared.geometry.workers {
        let Some(pair) = rings_of(shared, worker) else { continue };
        let (written, read) = ring::counters(&pair.there);
        let (returned, taken) = ring::counters(&pair.back);
        // What the process writes is not trusted.
        let level = |level: u64| level.min(shared.geometry.slots.into());
        there += level(written.wrapping_sub(read));
        back += level(returned.wrapping_sub(taken));
        free_slots += u64::from(shared.geometry.slots) - level(written.wrapping_sub(read));
    }
    ProcessStatus {
        process: (number > 0).then_some(number),
        restarts,
        last_failure: shared.last_failure(),
        cpu: cpu_time(number).unwrap_or_default(),
        descriptors: sum(|counters| &counters.sent),
        in_place: sum(|counters| &counters.in_place),
        wakeups: sum(|counters| &counters.wakeups),
        ring_levels: (there, back),
        slots: u64::from(shared.geometry.slots) * u64::from(shared.geometry.workers),
        credits: free_slots.min(shared.domain.pool.free() as u64),
        buffers: sum(|counters| &counters.buffers),
        full: sum(|counters| &counters.full),
        lost: sum(|counters| &counters.lost),
        refused: sum(|counters| &counters.refused),
    }
}

/// Names and values of a process for `show functions`.
pub fn lines(shared: &Shared, status: &ProcessStatus, mode: &str) -> Vec<(String, String)> {
    let process = match status.process {
        None => "none".to_owned(),
        Some(number) => format!("{number}, {:.2} s of CPU", status.cpu.as_secs_f64()),
    };
    let (there, back) = status.ring_levels;
    let (free, buffers) = (shared.domain.pool.free(), shared.domain.pool.buffers());
    let lines = [
        ("process", process),
        ("mode", mode.to_owned()),
        ("restarts", status.restarts.to_string()),
        ("last failure", status.last_failure.clone().unwrap_or_else(|| "none".to_owned())),
        ("descriptors", status.descriptors.to_string()),
        ("in place", status.in_place.to_string()),
        ("wakeups", status.wakeups.to_string()),
        ("rings", format!("{there} there, {back} back, of {}", status.slots)),
        ("credits", status.credits.to_string()),
        ("buffers", status.buffers.to_string()),
        ("free buffers", format!("{free} of {buffers}")),
        ("no room", status.full.to_string()),
        ("lost", status.lost.to_string()),
        ("rejected", status.refused.to_string()),
    ];
    lines.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Completes what a function reports of its log: its lines are written here.
pub fn of_log(shared: &Shared, mut lines: Vec<(String, String)>) -> Vec<(String, String)> {
    let name = |name| if name == "lost" { "lost lines".to_owned() } else { name };
    let written = shared.log.iter().flat_map(|log| log.report());
    lines.extend(written.map(|(of, value)| (name(of), value)));
    lines
}

/// Returns the processor time of a process.
pub fn cpu_time(number: u32) -> Option<Duration> {
    let fields = stat_fields(number)?;
    let ticks: Vec<u64> =
        fields.split_whitespace().skip(11).take(2).filter_map(|word| word.parse().ok()).collect();
    // Linux counts in hundredths of a second for programs (USER_HZ).
    (ticks.len() == 2).then(|| Duration::from_millis(ticks.iter().sum::<u64>() * 10))
}

/// Whether a process runs, or waits for a processor.
pub fn is_runnable(number: u32) -> bool {
    stat_fields(number).is_some_and(|fields| fields.trim_start().starts_with('R'))
}

/// Returns the fields of a process behind its name, from its state on (proc_pid_stat(5)).
fn stat_fields(number: u32) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The name is in brackets, and may contain anything.
    Some(text.rsplit_once(')')?.1.to_owned())
}
