//! The loop of a worker's thread: walk the graph, and sleep when nothing comes.
//!
//! Theory of operation. The thread polls while there is traffic. When nothing has come for [`SPIN`] (in the
//! mode `event`: when a walk has found nothing), it sets its sleep flag, checks once more for work, and
//! sleeps on the file descriptors of its ports and on an eventfd. Whoever leaves work for the worker writes
//! to the eventfd if the flag is set, so no work is lost between the check and the sleep. Ports without a
//! descriptor are polled after a pause that grows while nothing comes. In the mode `poll`, the thread never
//! sleeps.

use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::time::{Duration, Instant};

use mmb_dpdk::Graph;
use mmb_lang::ProcessMode;

use crate::engine::thread::sleep::Sleeper;
use crate::engine::worker::{Worker, begin};

/// How long a worker polls without a packet before it sleeps.
const SPIN: Duration = Duration::from_micros(200);
/// How long a worker polls while the kernel forwards settled flows. Most packets that still arrive here begin
/// a flow and come alone. Polling between them would take processor time from the kernel.
const SPIN_BESIDE_KERNEL: Duration = Duration::from_micros(3);
/// Walks without a packet between two reads of the clock.
const WALKS_PER_CLOCK: u32 = 16;

/// Walks the graph until the engine stops.
pub(crate) fn run(graph: &mut Graph<Worker>, sleeper: &mut Sleeper) {
    let shared = graph.state().shared.clone();
    let mut idle_since = Instant::now();
    let mut idle_walks = 0u32;
    sleeper.watch(graph.state());
    while !shared.stop.load(Relaxed) {
        if begin(graph) {
            sleeper.watch(graph.state());
            graph.state().acknowledge();
        }
        graph.walk();
        if std::mem::take(&mut graph.state_mut().ports.received) > 0 {
            idle_walks = 0;
            sleeper.reset_pause();
            continue;
        }
        if idle_walks == 0 {
            idle_since = Instant::now();
        }
        idle_walks = idle_walks.wrapping_add(1).max(1);
        let has_waited = match graph.state().snapshot.worker_mode {
            ProcessMode::Poll => false,
            ProcessMode::Event => true,
            ProcessMode::Adaptive => {
                idle_walks.is_multiple_of(WALKS_PER_CLOCK) && idle_since.elapsed() >= spin_time(graph.state())
            }
        };
        if has_waited {
            sleep(graph, sleeper);
            idle_walks = WALKS_PER_CLOCK - 1;
        }
        pause(graph.state());
    }
}

/// The longest sleep in milliseconds when every port has a descriptor: a bound in case the kernel loses an
/// event, or a port had no memory for packets and must be asked again.
fn longest_sleep(mode: ProcessMode) -> u32 {
    if mode == ProcessMode::Event { 1000 } else { 100 }
}

/// How long to poll without a packet.
fn spin_time(worker: &Worker) -> Duration {
    if worker.fast.is_learning() { SPIN_BESIDE_KERNEL } else { SPIN }
}

/// Pauses between two walks without a packet. Beside the kernel and beside processes of functions, the thread
/// yields the processor: the thread that gets it mostly brings the next packet.
fn pause(worker: &Worker) {
    if worker.fast.is_learning() || worker.flows.sessions.has_processes() {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

/// Sets the sleep flag, checks that no work came meanwhile, and sleeps.
fn sleep(graph: &mut Graph<Worker>, sleeper: &mut Sleeper) {
    let worker = graph.state_mut();
    let shared = &worker.shared.workers[worker.id];
    shared.sleeping.store(true, SeqCst);
    fence(SeqCst);
    let has_work = shared.inbox_len() > 0
        || worker.shared.generation.load(Acquire) != worker.snapshot.generation
        || worker.routing.is_outdated(&worker.shared)
        || worker.shared.stop.load(Relaxed)
        || !shared.mailbox.is_empty()
        || worker.flows.sessions.has_packets_in_processes()
        || worker.flows.has_due_work
        || worker.flows.sessions.emissions().has_reinjections()
        || worker.fast.is_sweeping();
    if !has_work {
        shared.counters.sleeps.add(1);
        worker.flows.sessions.flush(&worker.snapshot.for_worker(worker.id));
        let timers = [worker.next_timer(), worker.fast.next_sweep()];
        let bound = longest_sleep(worker.snapshot.worker_mode);
        sleeper.sleep(timers.into_iter().flatten().fold(bound, u32::min));
    }
    shared.sleeping.store(false, SeqCst);
}
