//! The loop of a worker's thread: walk the graph, and sleep when nothing comes.
//!
//! Theory of operation. The thread polls while there is traffic. When nothing has come for [`SPIN`] (in the
//! mode `event`: when a walk has found nothing), it sets its sleep flag, checks once more for work, and
//! sleeps on the file descriptors of its ports and on an eventfd. Whoever leaves work for the worker writes
//! to the eventfd if the flag is set, so no work is lost between the check and the sleep. Ports without a
//! descriptor are polled after a pause that grows while nothing comes. In the mode `poll`, the thread never
//! sleeps.
//!
//! A thread that polls on a processor that others need takes their time, and has used its own when a packet
//! comes: then it waits for the processor, while a thread that has slept gets it at once. So the mode
//! `adaptive` behaves like `event` while processors are short ([`Processors`]), and for a while after the
//! thread has lost the processor ([`Idle`]).

use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::time::{Duration, Instant};

use mmb_dpdk::Graph;
use mmb_lang::ProcessMode;

use crate::engine::thread::processors::Processors;
use crate::engine::thread::sleep::Sleeper;
use crate::engine::worker::{Worker, begin};

/// How long a worker polls without a packet before it sleeps.
const SPIN: Duration = Duration::from_micros(200);
/// How long a worker polls while the kernel forwards settled flows. Most packets that still arrive here begin
/// a flow and come alone. Polling between them would take processor time from the kernel.
const SPIN_BESIDE_KERNEL: Duration = Duration::from_micros(3);
/// Walks without a packet between two reads of the clock.
const WALKS_PER_CLOCK: u32 = 16;
/// Between two such reads, a thread that has not lost the processor takes far less.
const PREEMPTED: Duration = Duration::from_micros(500);
/// How long a worker that has lost the processor does not poll without packets.
const CONTENDED: Duration = Duration::from_secs(1);

/// The walks without a packet in the mode `adaptive`.
struct Idle {
    walks: u32,
    since: Instant,
    /// When the clock was read last in these walks.
    looked: Instant,
    /// Others need the processor until then.
    contended_until: Option<Instant>,
}

/// What a worker without packets does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Poll,
    /// It sleeps, and polls again when it wakes up.
    Sleep,
    /// It sleeps whenever a walk finds nothing.
    SleepAtOnce,
}

impl Idle {
    fn new(now: Instant) -> Idle {
        Idle { walks: 0, since: now, looked: now, contended_until: None }
    }

    /// Returns what the worker does behind a walk without a packet. It sleeps if it has polled for `spin`, or
    /// should not poll. `are_short`: whether processors are short at a time.
    fn rest(
        &mut self,
        spin: Duration,
        clock: impl Fn() -> Instant,
        mut are_short: impl FnMut(Instant) -> bool,
    ) -> Rest {
        if let Some(until) = self.contended_until {
            self.contended_until = Some(until).filter(|&until| clock() < until);
            return Rest::SleepAtOnce;
        }
        self.walks += 1;
        if self.walks == 1 {
            self.since = clock();
            self.looked = self.since;
            return if are_short(self.since) { Rest::SleepAtOnce } else { Rest::Poll };
        }
        if !self.walks.is_multiple_of(WALKS_PER_CLOCK) {
            return Rest::Poll;
        }
        let now = clock();
        if now - self.looked >= PREEMPTED {
            self.contended_until = Some(now + CONTENDED);
        }
        self.looked = now;
        match now - self.since >= spin {
            _ if are_short(now) => Rest::SleepAtOnce,
            true => Rest::Sleep,
            false => Rest::Poll,
        }
    }

    /// The worker has slept: the clock is read after its next walk without a packet.
    fn wake(&mut self, now: Instant) {
        (self.walks, self.looked) = (WALKS_PER_CLOCK - 1, now);
    }
}

/// Walks the graph until the engine stops.
pub(crate) fn run(graph: &mut Graph<Worker>, sleeper: &mut Sleeper) {
    let shared = graph.state().shared.clone();
    let now = Instant::now();
    let (mut idle, mut processors) = (Idle::new(now), Processors::new(now));
    sleeper.watch(graph.state());
    while !shared.stop.load(Relaxed) {
        if begin(graph) {
            sleeper.watch(graph.state());
            graph.state().acknowledge();
        }
        graph.walk();
        let ports = &mut graph.state_mut().ports;
        if std::mem::take(&mut ports.received) > 0 {
            ports.growths.check();
            ports.was_idle = false;
            idle.walks = 0;
            sleeper.reset();
            continue;
        }
        let mode = graph.state().snapshot.worker_mode;
        graph.state_mut().ports.was_idle = mode != ProcessMode::Poll;
        let rest = match mode {
            ProcessMode::Poll => Rest::Poll,
            ProcessMode::Event => Rest::SleepAtOnce,
            ProcessMode::Adaptive => {
                let are_short = |now| processors.are_short(now);
                match idle.rest(spin_time(graph.state()), Instant::now, are_short) {
                    // Frames that wait to be sent wait for others to run.
                    Rest::Poll if sleeper.has_backlog() => Rest::Sleep,
                    rest => rest,
                }
            }
        };
        if rest != Rest::Poll {
            sleep(graph, sleeper, rest == Rest::SleepAtOnce);
            idle.wake(Instant::now());
        }
        pause(graph.state());
    }
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

/// Sets the sleep flag, checks that no work came meanwhile, and sleeps. `again`: as soon as a walk finds
/// nothing.
fn sleep(graph: &mut Graph<Worker>, sleeper: &mut Sleeper, again: bool) {
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
        worker.ports.growths.check();
        worker.flows.sessions.flush(&worker.snapshot.for_worker(worker.id));
        let timers = [worker.next_timer(), worker.fast.next_sweep()];
        sleeper.sleep(timers.into_iter().flatten().min(), again);
    }
    shared.sleeping.store(false, SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A worker without packets, whose walks take so long. Returns in how many walks it sleeps.
    fn walks_until_sleep(idle: &mut Idle, now: &Cell<Instant>, walk: Duration) -> u32 {
        let walks = (1..10_000).find(|_| {
            now.set(now.get() + walk);
            idle.rest(SPIN, || now.get(), |_| false) != Rest::Poll
        });
        walks.expect("it sleeps")
    }

    #[test]
    fn a_worker_polls_before_it_sleeps() {
        let now = Cell::new(Instant::now());
        let mut idle = Idle::new(now.get());
        for _ in 0..3 {
            idle.walks = 0;
            // A multiple of the walks between two reads, behind the first one.
            assert_eq!(walks_until_sleep(&mut idle, &now, Duration::from_micros(1)), 208);
            idle.wake(now.get());
            assert_eq!(walks_until_sleep(&mut idle, &now, Duration::from_micros(1)), 1, "nothing has come");
        }
    }

    #[test]
    fn a_worker_that_has_lost_the_processor_sleeps_at_once_for_a_while() {
        let now = Cell::new(Instant::now());
        let mut idle = Idle::new(now.get());
        assert_eq!(walks_until_sleep(&mut idle, &now, Duration::from_micros(100)), 16);
        let begin = now.get();
        while now.get() - begin < CONTENDED {
            (idle.walks, idle.looked) = (0, now.get());
            assert_eq!(walks_until_sleep(&mut idle, &now, Duration::from_micros(10)), 1);
        }
        idle.walks = 0;
        assert_eq!(walks_until_sleep(&mut idle, &now, Duration::from_micros(10)), 32);
    }

    #[test]
    fn a_worker_sleeps_at_once_while_processors_are_short() {
        let now = Cell::new(Instant::now());
        let mut idle = Idle::new(now.get());
        let sleeps = |idle: &mut Idle| idle.rest(SPIN, || now.get(), |_| true) != Rest::Poll;
        for _ in 0..3 {
            assert!(sleeps(&mut idle));
            idle.wake(now.get());
            assert!(sleeps(&mut idle), "nothing has come");
            idle.walks = 0;
        }
    }

    #[test]
    fn time_asleep_is_not_time_without_the_processor() {
        let now = Cell::new(Instant::now());
        let mut idle = Idle::new(now.get());
        walks_until_sleep(&mut idle, &now, Duration::from_micros(1));
        now.set(now.get() + CONTENDED);
        idle.wake(now.get());
        walks_until_sleep(&mut idle, &now, Duration::from_micros(1));
        assert_eq!(idle.contended_until, None);
    }
}
