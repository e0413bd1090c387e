//! Runs a bench.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use mmb_dataplane::detached::{DetachedConfig, DetachedEngine, DetachedWorker, PacketMemory};
use mmb_dataplane::{EngineError, Forwarding, MAX_WORKERS, PortId};
use mmb_dpdk::{HugePages, rdtsc};
use mmb_route::Routes;

use super::config::{BenchConfig, BenchError, Traffic};
use super::counting::CountingCost;
use super::measured::Measured;
use super::memory::SessionMemory;
use super::report::BenchReport;
use super::source::{TrafficIo, TrafficPlan};
use super::traffic::Order;
use super::turns::{Comparison, Setting, Side};
use super::{chains, counting, open, report, routed, turns, wire};
use crate::harness::Harness;

const WARM_UP: Duration = Duration::from_millis(200);
const WALKS_PER_CLOCK: u32 = 32;
const MEMORY_MB: u32 = 192;
/// Seconds to measure the plain path if it is not the whole measurement.
const PLAIN_SECONDS: f64 = 1.0;

/// Runs a bench; starts DPDK if it does not run yet.
///
/// # Errors
/// A number is out of range, a capture has no frames, or memory is not available.
pub fn run(config: &BenchConfig) -> Result<BenchReport, BenchError> {
    if !(1..=MAX_WORKERS).contains(&config.workers) {
        return Err(BenchError::Workers(config.workers));
    }
    if !(config.seconds > 0.0 && config.seconds <= 3600.0) {
        return Err(BenchError::Seconds(config.seconds));
    }
    let bench = Bench::new(config)?;
    let has_rules = !config.forwarding.policy.is_empty() || !config.forwarding.nat.is_empty();
    let plain = match bench.routes {
        Some(_) if has_rules => Some(bench.measure(true, config.seconds.min(PLAIN_SECONDS))?),
        _ => None,
    };
    let measured = bench.measure(false, config.seconds)?;
    let tsc_hz = bench.memory.tsc_hz();
    let mut report = report::report(&measured, tsc_hz);
    if config.counting {
        report.counting = Some(bench.measure_counting(&report)?);
    }
    if let Some(other) = &config.against {
        report.against = Some(bench.measure_against(other, &report)?);
    }
    report.chains = chains::cost(&config.forwarding.chains, &measured, &report);
    if let (Some(prefixes), Some((_, seconds))) = (config.routes, &bench.routes) {
        let plain = plain.map(|plain| report::report(&plain, tsc_hz));
        report.routed = Some(report.cost_of_routing(plain.as_ref(), prefixes.count(), *seconds));
    }
    Ok(report)
}

/// A prepared bench.
struct Bench<'a> {
    config: &'a BenchConfig,
    plan: TrafficPlan,
    memory: PacketMemory,
    forwarding: Forwarding,
    /// Ports where packets and their answers arrive.
    ports: [PortId; 2],
    /// The routes, and the seconds that their generation took.
    routes: Option<(Routes, f64)>,
}

impl<'a> Bench<'a> {
    fn new(config: &'a BenchConfig) -> Result<Bench<'a>, BenchError> {
        let instances = config.forwarding.chains.instances();
        let has_streams = instances.iter().any(|instance| instance.reads_streams());
        let plan = TrafficPlan::new(&config.traffic, config.routes.is_some(), has_streams)?;
        let memory = PacketMemory::create(MEMORY_MB, HugePages::Auto)?;
        let (forwarding, near, far) = with_ports(config, &config.forwarding);
        let has_default = !matches!(config.traffic, Traffic::Generated(_));
        let start = Instant::now();
        let routes = config.routes.map(|prefixes| routed::routes(prefixes, has_default, near, far));
        let routes = routes.map(|routes| (routes, start.elapsed().as_secs_f64()));
        Ok(Bench { config, plan, memory, forwarding, ports: [near, far], routes })
    }

    /// An engine with the rules, or without any if it `is_plain`.
    fn engine(&self, is_plain: bool) -> Result<DetachedEngine, EngineError> {
        let mut forwarding = self.forwarding.clone();
        if is_plain {
            forwarding = Forwarding { ports: forwarding.ports, ..Forwarding::default() };
        }
        let config = DetachedConfig {
            nodes: [report::SOURCE, report::SINK],
            workers: self.config.workers,
            is_connected: false,
            sessions: self.config.sessions,
            scratchpad: self.config.scratchpad,
            share_scratchpads: false,
            null_port_frame: self.plan.null_port_frame(),
        };
        let routes = self.routes.as_ref().map(|(routes, _)| routes.clone());
        DetachedEngine::new(&self.memory, config, forwarding, routes)
    }

    /// Measures what counting costs, on the calling thread.
    fn measure_counting(&self, report: &BenchReport) -> Result<CountingCost, BenchError> {
        self.with_sides(|sides| counting::measure(sides, &self.forwarding, (report, self.config.seconds)))
    }

    /// Measures what the rules cost more than other rules, on the calling thread.
    fn measure_against(&self, other: &Forwarding, report: &BenchReport) -> Result<Comparison, BenchError> {
        let (other, ..) = with_ports(self.config, other);
        let publish = |engine: &DetachedEngine, setting| match setting {
            Setting::First => engine.publish(self.forwarding.clone()),
            Setting::Second => engine.publish(other.clone()),
        };
        let maintain = |worker: &mut DetachedWorker<TrafficIo>, _| worker.maintain();
        self.with_sides(|sides| turns::compare(sides, (report, self.config.seconds), publish, maintain))
    }

    /// Gives two workers with the same rules and traffic to a function.
    fn with_sides<R>(&self, measure: impl FnOnce([Side<'_>; 2]) -> R) -> Result<R, BenchError> {
        if matches!(self.config.traffic, Traffic::NullPorts(_)) {
            return Err(BenchError::TurnsOfNullPorts);
        }
        let (one, other) = (self.engine(false)?, self.engine(false)?);
        let source = || self.plan.source(0, &self.memory, self.ports);
        let mut harness = Harness::new(&one, 0..1, |_| source())?;
        let mut second = other.worker(0, source()?)?;
        let first = harness.first_mut().ok_or(BenchError::WorkerEnded)?;
        for worker in [&mut *first, &mut second] {
            if prepare(worker, &self.config.traffic)?.max_sessions != u64::MAX {
                return Err(BenchError::TurnsOfNewSessions);
            }
        }
        Ok(measure([Side { engine: &one, worker: first }, Side { engine: &other, worker: &mut second }]))
    }

    /// Measures with all workers at the same time.
    fn measure(&self, is_plain: bool, seconds: f64) -> Result<Vec<Measured>, BenchError> {
        let engine = self.engine(is_plain)?;
        let barrier = Barrier::new(self.config.workers);
        std::thread::scope(|scope| {
            let start = |id: usize| {
                let (engine, barrier) = (&engine, &barrier);
                scope.spawn(move || -> Result<Measured, BenchError> {
                    let source = |id| self.plan.source(id as u64, &self.memory, self.ports);
                    let harness = Harness::new(engine, id..id + 1, source);
                    // Every thread waits, even after an error; otherwise the others would wait for ever.
                    barrier.wait();
                    let mut harness = harness?;
                    let worker = harness.first_mut().ok_or(BenchError::WorkerEnded)?;
                    measure_worker(worker, &self.config.traffic, seconds)
                })
            };
            let threads: Vec<_> = (0..self.config.workers).map(start).collect();
            let join = |t: std::thread::ScopedJoinHandle<'_, Result<Measured, BenchError>>| {
                t.join().unwrap_or(Err(BenchError::WorkerEnded))
            };
            threads.into_iter().map(join).collect()
        })
    }
}

/// The rules with ports, and the two ports where packets and their answers arrive.
fn with_ports(config: &BenchConfig, forwarding: &Forwarding) -> (Forwarding, PortId, PortId) {
    match config.routes {
        Some(_) => routed::ports(forwarding),
        None => wire::with_wire(forwarding),
    }
}

/// Opens the flows unless the measured packets do, warms up, and measures.
fn measure_worker(
    worker: &mut DetachedWorker<TrafficIo>,
    traffic: &Traffic,
    seconds: f64,
) -> Result<Measured, BenchError> {
    let prepared = prepare(worker, traffic)?;
    let measured = walk_for(worker, prepared.max_sessions, Duration::from_secs_f64(seconds));
    Ok(Measured { sessions: prepared.sessions, ..measured })
}

/// A worker whose flows are open, unless the measured packets open them.
struct Prepared {
    /// The sessions that there may be.
    max_sessions: u64,
    sessions: Option<SessionMemory>,
}

/// Opens the flows unless the measured packets do, and warms up.
fn prepare(worker: &mut DetachedWorker<TrafficIo>, traffic: &Traffic) -> Result<Prepared, BenchError> {
    let (mut max_sessions, mut sessions) = (u64::MAX, None);
    if let Traffic::Generated(traffic) = traffic
        && worker.needs_sessions()
    {
        match traffic.order {
            Order::Fresh => max_sessions = traffic.flows.into(),
            _ => sessions = SessionMemory::of(worker, |worker| open::open(worker, traffic.flows))?,
        }
    }
    walk_for(worker, max_sessions, WARM_UP);
    Ok(Prepared { max_sessions, sessions })
}

/// Walks for some time. With `max_sessions` sessions, all of them are ended, which is not measured.
fn walk_for(worker: &mut DetachedWorker<TrafficIo>, max_sessions: u64, time: Duration) -> Measured {
    let before = worker.reading();
    let (mut between, mut walks) = (0, 0);
    let start = Instant::now();
    while start.elapsed() < time {
        for _ in 0..WALKS_PER_CLOCK {
            let tick = rdtsc();
            worker.maintain();
            between += rdtsc() - tick;
            worker.walk();
        }
        walks += u64::from(WALKS_PER_CLOCK);
        if worker.session_count() >= max_sessions {
            worker.clear_sessions();
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    worker.flush_counters();
    let reading = report::difference(worker.reading(), &before);
    Measured { reading, seconds, between, walks, sessions: None }
}
