//! `mmb bench`: the cost of a policy, measured on the daemon's graph with traffic made in memory.
//!
//! Theory of operation. Each worker walks the daemon's nodes between a source that makes packets and a sink that
//! frees them. Source and sink are nodes of their own, so the graph's cycle counters keep their cost apart;
//! `cycles_per_packet` is the sum of all other nodes over the packets made. A short warm-up fills caches and branch
//! predictors and is not counted. Workers share nothing but the policy, as with RSS.
//!
//! Where rules need sessions, flows are opened before the measurement. The work for sessions between two walks
//! counts as one more node. With [`BenchConfig::routes`], packets are routed by a generated table. The cost of rules
//! and sessions is then compared with the plain path, which is measured first, with the same traffic and no rules.
//! With [`Traffic::NullPorts`] the nodes poll and send on DPDK's null ports, as testpmd does; receive and transmit
//! are part of the cost.

mod chains;
mod open;
mod prefixes;
mod report;
mod routed;
mod source;
mod traffic;
mod wire;

use std::path::PathBuf;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use mmb_dataplane::detached::{DetachedConfig, DetachedEngine, DetachedWorker, PacketMemory, WorkerReading};
use mmb_dataplane::{EngineError, Forwarding, MAX_WORKERS, PortId};
use mmb_dpdk::{HugePages, rdtsc};
use mmb_route::Routes;

pub use chains::{ChainCost, StageCost};
pub use prefixes::{MAX_PREFIXES, Prefixes};
pub use report::{BenchReport, NodeCost, RoutedCost};
pub use traffic::{Generated, Generator, MAX_FRAME, Order, Proto};

use crate::capture::CaptureError;
use crate::harness::{Harness, HarnessError};
use source::{TrafficIo, TrafficPlan};

const WARM_UP: Duration = Duration::from_millis(200);
const WALKS_PER_CLOCK: u32 = 32;
const MEMORY_MB: u32 = 192;
/// Seconds to measure the plain path if it is not the whole measurement.
const PLAIN_SECONDS: f64 = 1.0;

/// Where the packets of a bench come from.
#[derive(Clone, Debug)]
pub enum Traffic {
    /// Computed flows.
    Generated(Generated),
    /// The frames of a capture, repeated.
    Pcap(PathBuf),
    /// These frames, repeated.
    Frames(Vec<Vec<u8>>),
    /// DPDK's null ports with frames of this many zero bytes; receive and transmit are part of the cost.
    NullPorts(usize),
}

/// What to measure.
pub struct BenchConfig {
    /// Policy and wires. Packets arrive at the first wired port, or at one end of a generated wire. With routes, they
    /// arrive at the first routed port, or at the first wired one, which is then routed.
    pub forwarding: Forwarding,
    /// Routes instead of wires.
    pub routes: Option<Prefixes>,
    /// The packets.
    pub traffic: Traffic,
    /// Duration of the measurement.
    pub seconds: f64,
    /// Number of workers, each with its own traffic.
    pub workers: usize,
    /// Maximum number of sessions of each worker.
    pub sessions: usize,
    /// Bytes of each session for functions of chains.
    pub scratchpad: usize,
}

/// Why a bench failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The number of workers is out of range.
    #[error("{0} workers are not possible; ask for 1 to {MAX_WORKERS}")]
    Workers(usize),
    /// The duration is out of range.
    #[error("{0} seconds are not possible; ask for 0.1 to 3600")]
    Seconds(f64),
    /// Traffic without flows.
    #[error("0 flows are not possible; ask for 1 or more")]
    NoFlows,
    /// A frame is too long.
    #[error("frames of {0} bytes are not possible; the maximum is {MAX_FRAME}")]
    FrameTooLong(usize),
    /// An empty list of frames.
    #[error("there is no frame to send")]
    NoFrames,
    /// Null ports in routed mode.
    #[error("frames of zeros cannot be routed; null ports need wires")]
    RoutedNullPorts,
    /// The capture cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The capture is damaged before its first frame.
    #[error("{0}")]
    DamagedCapture(String),
    /// The capture has no usable frame.
    #[error("{} contains no Ethernet frame of up to {MAX_FRAME} bytes", path.display())]
    EmptyCapture {
        /// The file.
        path: PathBuf,
    },
    /// Flows could not be opened.
    #[error("{lost} of {flows} flows were not opened; are there enough --sessions?")]
    FlowsLost {
        /// Number of flows that were not opened.
        lost: usize,
        /// Number of all flows.
        flows: u32,
    },
    /// A worker's thread panicked.
    #[error("a worker of the bench ended early")]
    WorkerEnded,
    /// The simulation cannot start.
    #[error(transparent)]
    Harness(#[from] HarnessError),
}

impl From<EngineError> for BenchError {
    fn from(error: EngineError) -> Self {
        BenchError::Harness(error.into())
    }
}

/// One worker's measurement.
struct Measured {
    reading: WorkerReading,
    seconds: f64,
    /// TSC ticks between walks, for sessions.
    between: u64,
    walks: u64,
}

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
        let plan = TrafficPlan::new(&config.traffic, config.routes.is_some())?;
        let memory = PacketMemory::create(MEMORY_MB, HugePages::Auto)?;
        let (forwarding, near, far) = match config.routes {
            Some(_) => routed::ports(&config.forwarding),
            None => wire::with_wire(&config.forwarding),
        };
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
            null_port_frame: self.plan.null_port_frame(),
        };
        let routes = self.routes.as_ref().map(|(routes, _)| routes.clone());
        DetachedEngine::new(&self.memory, config, forwarding, routes)
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

/// Opens the flows unless the measured packets do, warms up, and measures.
fn measure_worker(
    worker: &mut DetachedWorker<TrafficIo>,
    traffic: &Traffic,
    seconds: f64,
) -> Result<Measured, BenchError> {
    let mut max_sessions = u64::MAX;
    if let Traffic::Generated(traffic) = traffic
        && worker.needs_sessions()
    {
        match traffic.order {
            Order::Fresh => max_sessions = traffic.flows.into(),
            _ => open::open(worker, traffic.flows)?,
        }
    }
    walk_for(worker, max_sessions, WARM_UP);
    Ok(walk_for(worker, max_sessions, Duration::from_secs_f64(seconds)))
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
    Measured { reading: report::difference(worker.reading(), &before), seconds, between, walks }
}
