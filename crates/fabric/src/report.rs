//! What `show functions` prints of a process.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::host::rings_of;
use crate::ring;
use crate::shared::{LinkCounters, Shared};

/// Names and values of a process. `number`: 0 if there is none.
pub fn of_process(shared: &Shared, number: u32, restarts: u32) -> Vec<(String, String)> {
    let sum = |counter: fn(&LinkCounters) -> &AtomicU64| {
        shared.counters.iter().map(|one| counter(one).load(Relaxed)).sum::<u64>().to_string()
    };
    let process = match number {
        0 => "none".to_owned(),
        number => match cpu_time(number) {
            Some(time) => format!("{number}, {:.2} s of CPU", time.as_secs_f64()),
            None => number.to_string(),
        },
    };
    let (mut there, mut back, mut descriptors) = (0, 0, 0);
    for worker in 0..shared.geometry.workers {
        let Some(pair) = rings_of(shared, worker) else { continue };
        let (written, read) = ring::counters(&pair.there);
        let (returned, taken) = ring::counters(&pair.back);
        there += written.wrapping_sub(read);
        back += returned.wrapping_sub(taken);
        descriptors += written;
    }
    let slots = u64::from(shared.geometry.slots) * u64::from(shared.geometry.workers);
    let (free, buffers) = (shared.domain.pool.free(), shared.domain.pool.buffers());
    let lines = [
        ("process", process),
        ("restarts", restarts.to_string()),
        ("descriptors", descriptors.to_string()),
        ("rings", format!("{there} there, {back} back, of {slots}")),
        ("free buffers", format!("{free} of {buffers}")),
        ("no room", sum(|counters| &counters.full)),
        ("lost", sum(|counters| &counters.lost)),
        ("rejected", sum(|counters| &counters.rejected)),
    ];
    lines.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns the processor time of a process (proc_pid_stat(5)).
fn cpu_time(number: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The name is in brackets, and may contain anything.
    let (_, rest) = text.rsplit_once(')')?;
    let ticks: Vec<u64> =
        rest.split_whitespace().skip(11).take(2).filter_map(|word| word.parse().ok()).collect();
    // Linux counts in hundredths of a second for programs (USER_HZ).
    (ticks.len() == 2).then(|| Duration::from_millis(ticks.iter().sum::<u64>() * 10))
}
