//! What the way of a descriptor to a polling process and back costs, without the function and the packet.
//!
//! Two threads on two processors are the worker and the process. The worker issues buffers in vectors, and
//! takes back what has come; the process returns what it gets. Up to four vectors are on their way. Ticks are
//! those of the time-stamp counter that pass for each descriptor, both ways together: with the ledger, which
//! says whether a descriptor is a true one, and with the rings alone. Rounds are short, so that some of them
//! have both processors for themselves on a machine with other work.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use mmb_fabric::sandbox::pin;
use mmb_fabric::{Consumer, Descriptor, Ledger, Pool, Producer, Region, SharedMemory, ring_words};

const SLOTS: usize = 4096;
const BUFFERS: u32 = 4096;
/// Vectors on their way.
const AHEAD: usize = 4;
/// Descriptors that are received at a time.
const RECEIVED: usize = 64;
const ROUNDS: usize = 150;
const TIME: Duration = Duration::from_millis(10);

fn main() {
    // `cargo test` runs this as well, and measures nothing.
    if !std::env::args().any(|word| word == "--bench") {
        return;
    }
    println!("vector  ticks a packet, with the ledger  rings alone");
    for vector in [1, 8, 32, 64, 256] {
        let [with, alone] = [true, false].map(|with_ledger| {
            let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| measure(vector, with_ledger)).collect();
            rounds.sort_unstable_by(f64::total_cmp);
            (rounds[ROUNDS / 2], rounds[0])
        });
        println!(
            "{vector:>6}  {:>12.1} (least {:>6.1})  {:>8.1} (least {:>6.1})",
            with.0, with.1, alone.0, alone.1
        );
    }
}

/// Returns the ticks for each descriptor.
fn measure(vector: usize, with_ledger: bool) -> f64 {
    let memory = Arc::new(SharedMemory::create("hop", 2 * ring_words(SLOTS)).unwrap());
    let [there, back] =
        [0, 1].map(|n| Region::new(&memory, n * ring_words(SLOTS), ring_words(SLOTS)).unwrap());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let process = (Consumer::new(there.clone()).unwrap(), Producer::new(back.clone()).unwrap());
        scope.spawn(|| serve(process, vector, &is_over));
        // With one processor, or fewer than it may use, the kernel chooses.
        let _ = pin(0);
        let worker = (Producer::new(there).unwrap(), Consumer::new(back).unwrap());
        let ticks = send(worker, vector, with_ledger);
        is_over.store(true, Relaxed);
        ticks
    })
}

/// The process: returns what comes, at most a vector at a time.
fn serve((mut there, mut back): (Consumer<Region>, Producer<Region>), vector: usize, is_over: &AtomicBool) {
    let _ = pin(1);
    let mut descriptors = vec![Descriptor::default(); vector];
    while !is_over.load(Relaxed) {
        let n = there.pop_vector(&mut descriptors).unwrap();
        for descriptor in &descriptors[..n] {
            back.push(*descriptor).unwrap();
        }
        there.publish();
        back.publish();
    }
}

/// The worker.
fn send(
    (mut there, mut back): (Producer<Region>, Consumer<Region>),
    vector: usize,
    with_ledger: bool,
) -> f64 {
    let mut ledger = Ledger::new(Arc::new(Pool::new(BUFFERS, 64).unwrap()));
    let (mut under_way, mut returned, begin) = (0, 0_u64, Instant::now());
    let plain = Descriptor { buffer: 1, len: 60, tag: 0, session: 1, generation: 1 };
    let mut received = [Descriptor::default(); RECEIVED];
    while begin.elapsed() < TIME {
        // The clock is read once for many vectors.
        for _ in 0..64 {
            if under_way <= (AHEAD - 1) * vector {
                for _ in 0..vector {
                    let descriptor = if with_ledger { ledger.issue(60, 1, 0).unwrap().1 } else { plain };
                    there.push(descriptor).unwrap();
                }
                there.publish();
                under_way += vector;
            }
            let n = back.pop_vector(&mut received).unwrap();
            back.publish();
            for descriptor in received[..n].iter().filter(|_| with_ledger) {
                let buffer = ledger.accept(descriptor).unwrap();
                ledger.free(buffer);
            }
            under_way -= n;
            returned += n as u64;
        }
    }
    begin.elapsed().as_nanos() as f64 * ticks_per_ns() / returned as f64
}

/// The rate of the time-stamp counter, if the kernel reports it.
fn ticks_per_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("bogomips"));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    value.map_or(1.0, |bogomips| bogomips / 2000.0)
}
