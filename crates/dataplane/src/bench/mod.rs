//! `mmb bench`: what a policy costs, measured on the real graph with traffic made in memory.
//!
//! Theory of operation. Each worker walks the same nodes as in the daemon between a source that makes packets and a
//! sink that frees them. Source and sink are nodes of their own, so that the graph's own cycle counters keep their cost
//! apart; `cycles_per_packet` is the sum of all other nodes over the packets made. A short warm-up fills caches and
//! branch predictors and is not counted. Workers of a bench share nothing but the policy, as with RSS.
//! Where rules need sessions, flows are opened before it, and what a worker does for its sessions between two walks counts
//! as one more node.
//! With [`BenchConfig::routes`], packets are routed by a table made up for it. What rules and sessions cost is then compared
//! with the plain path, which is measured before with the same traffic and no rules.
//! With [`Traffic::NullPorts`] the nodes poll and send on DPDK's null ports instead, receive and transmit
//! included, which is what testpmd between such ports does.

mod chains;
mod ends;
mod open;
mod prefixes;
mod report;
mod routed;
mod traffic;

use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use mmb_dpdk::{Eal, EalConfig, Graph, HugePages, ThreadGuard, rdtsc, register_thread};
use mmb_nf::StageCounters;
use mmb_packet::DropReason;
use mmb_route::Routes;

pub use chains::{ChainCost, StageCost};
pub use prefixes::{MAX_PREFIXES, Prefixes};
pub use report::{BenchReport, NodeCost, RoutedCost};
pub use traffic::{Generated, Generator, MAX_FRAME, Order, Proto};

use crate::engine::config::{Forwarding, MAX_WORKERS, PortConfig, PortId};
use crate::engine::control::{NodeRuntime, Room, node_runtime, sessions};
use crate::engine::counters::{EDIT_FAILURES, RuleCounters, RuleTable};
use crate::engine::error::EngineError;
use crate::engine::pools::Pools;
use crate::engine::shared::Shared;
use crate::engine::snapshot::Snapshot;
use crate::engine::worker::Worker;
use crate::features::port::device::OpenPort;
use crate::features::port::open as port;
use crate::graph;

const WARM_UP: Duration = Duration::from_millis(200);
const WALKS_PER_CLOCK: u32 = 32;
const MEMORY_MB: u32 = 192;
/// How long the plain path is measured where it is not all that is measured.
const PLAIN_SECONDS: f64 = 1.0;

/// Where the packets of a bench come from.
#[derive(Clone, Debug)]
pub enum Traffic {
    /// Computed flows.
    Generated(Generated),
    /// A capture's frames, over and over.
    Pcap(PathBuf),
    /// These frames, over and over.
    Frames(Vec<Vec<u8>>),
    /// DPDK's null ports, frames of so many zero bytes; receive and transmit are part of the cost.
    NullPorts(usize),
}

/// What to measure.
pub struct BenchConfig {
    /// Policy and wires. Packets come in by the first wired port; without ports, by one end of a made-up wire. With routes,
    /// by the first routed port, or the first wired one, which is then routed.
    pub forwarding: Forwarding,
    /// Routes by which packets go, in the place of wires.
    pub routes: Option<Prefixes>,
    /// The packets.
    pub traffic: Traffic,
    /// How long to measure.
    pub seconds: f64,
    /// Workers, each with traffic of its own.
    pub workers: usize,
    /// Sessions that each worker has room for.
    pub sessions: usize,
    /// Bytes of each session for functions of chains.
    pub scratchpad: usize,
}

/// Why a bench did not run; displays as one sentence.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BenchError(String);

impl From<EngineError> for BenchError {
    fn from(e: EngineError) -> Self {
        BenchError(e.to_string())
    }
}

/// Of everything random but the traffic.
const SEED: u64 = 1;

/// One worker's counters at one time, or what came to them between two.
struct Reading {
    nodes: Vec<NodeRuntime>,
    drops: Vec<(DropReason, u64)>,
    unedited: Vec<(DropReason, u64)>,
    rules: Vec<RuleCounters>,
    stages: Vec<StageCounters>,
}

impl Reading {
    fn take(graph: &Graph<Worker>) -> Reading {
        let worker = graph.state();
        let slots = worker.snapshot.policy.slots() as u32;
        let table = &worker.snapshot.counters[worker.id];
        let (drops, unedited) = (&worker.counters().drops, &worker.counters().unedited);
        Reading {
            nodes: node_runtime(&graph.stats_handle()),
            drops: DropReason::ALL.iter().map(|&reason| (reason, drops.get(reason))).collect(),
            unedited: EDIT_FAILURES.iter().map(|&reason| (reason, unedited.get(reason))).collect(),
            rules: (0..slots).map(|slot| table.get(slot)).collect(),
            stages: worker.sessions.chain_counters().to_vec(),
        }
    }

    /// Takes an earlier reading of the same worker off.
    fn since(mut self, before: &Reading) -> Reading {
        for (now, then) in self.nodes.iter_mut().zip(&before.nodes) {
            now.packets -= then.packets;
            now.vectors -= then.vectors;
            now.cycles -= then.cycles;
        }
        self.drops.iter_mut().zip(&before.drops).for_each(|(now, then)| now.1 -= then.1);
        self.unedited.iter_mut().zip(&before.unedited).for_each(|(now, then)| now.1 -= then.1);
        for (now, then) in self.rules.iter_mut().zip(&before.rules) {
            now.packets -= then.packets;
            now.bytes -= then.bytes;
        }
        chains::since(&mut self.stages, &before.stages);
        self
    }
}

/// One worker's measurement.
struct Measured {
    reading: Reading,
    seconds: f64,
    /// Ticks between walks, for sessions.
    between: u64,
    walks: u64,
}

/// Runs a bench. It starts DPDK, so a process can run one.
///
/// # Errors
/// One sentence: a capture without frames, no memory, a number out of range.
pub fn run(config: &BenchConfig) -> Result<BenchReport, BenchError> {
    if !(1..=MAX_WORKERS).contains(&config.workers) {
        return Err(BenchError(format!("{} workers do not go; ask for 1 to {MAX_WORKERS}", config.workers)));
    }
    if !(config.seconds > 0.0 && config.seconds <= 3600.0) {
        return Err(BenchError(format!("{} seconds do not go; ask for 0.1 to 3600", config.seconds)));
    }
    let ends = ends::Plan::new(&config.traffic, config.routes.is_some()).map_err(BenchError)?;
    let eal = Eal::init(&EalConfig {
        memory_mb: MEMORY_MB,
        huge: HugePages::Auto,
        privileged: false,
        ..EalConfig::default()
    })
    .map_err(|e| BenchError(e.to_string()))?;
    let stage = Stage::new(config, ends)?;
    let rules = !config.forwarding.policy.is_empty() || !config.forwarding.nat.is_empty();
    let plain = match stage.routes {
        Some(_) if rules => Some(measure(&stage, &stage.shared(true)?, config.seconds.min(PLAIN_SECONDS))?),
        _ => None,
    };
    let measured = measure(&stage, &stage.shared(false)?, config.seconds)?;
    let mut report = report::report(&measured, eal.tsc_hz());
    report.chains = chains::cost(&config.forwarding.chains, &measured, &report);
    if let (Some(prefixes), Some((_, seconds))) = (config.routes, &stage.routes) {
        let plain = plain.map(|plain| report::report(&plain, eal.tsc_hz()));
        report.routed = Some(report.cost_of_routing(plain.as_ref(), prefixes.count(), *seconds));
    }
    Ok(report)
}

/// What workers are made from.
struct Stage<'a> {
    config: &'a BenchConfig,
    ends: ends::Plan,
    pools: Pools,
    forwarding: Forwarding,
    /// Where packets come in, and where their answers do.
    ports: [PortId; 2],
    /// The routes, and the seconds that making them took.
    routes: Option<(Routes, f64)>,
}

impl<'a> Stage<'a> {
    fn new(config: &'a BenchConfig, ends: ends::Plan) -> Result<Stage<'a>, BenchError> {
        let (forwarding, near, far) = match config.routes {
            Some(_) => routed::ports(&config.forwarding),
            None => with_wire(&config.forwarding),
        };
        let everything = !matches!(config.traffic, Traffic::Generated(_));
        let start = Instant::now();
        let routes = config.routes.map(|prefixes| routed::routes(prefixes, everything, near, far));
        let routes = routes.map(|routes| (routes, start.elapsed().as_secs_f64()));
        let pools = Pools::create(MEMORY_MB)?;
        Ok(Stage { config, ends, pools, forwarding, ports: [near, far], routes })
    }

    /// What workers share, without rules if it is `plain`.
    fn shared(&self, plain: bool) -> Result<Arc<Shared>, BenchError> {
        let mut forwarding = self.forwarding.clone();
        if plain {
            forwarding = Forwarding { ports: forwarding.ports, ..Forwarding::default() };
        }
        let workers = self.config.workers;
        let ports = self.ends.open_ports(&self.pools, &forwarding, workers)?;
        let slots = forwarding.policy.slots();
        let mut counters = vec![RuleTable::default(); workers];
        counters.iter_mut().for_each(|table| table.grow(slots));
        let open = |id: PortId| ports.iter().find(|(p, _)| *p == id).map(|(_, port)| port.clone());
        let snapshot = Snapshot::new(1, forwarding, open, counters);
        let shared = Shared::detached(snapshot, workers).map_err(|e| BenchError(e.to_string()))?;
        if let Some((routes, _)) = &self.routes {
            shared.publish_routes(routes.clone());
        }
        Ok(Arc::new(shared))
    }
}

/// `forwarding` with a wire to come in by, and its ends: where packets come in, and where they go.
fn with_wire(forwarding: &Forwarding) -> (Forwarding, PortId, PortId) {
    let mut forwarding = forwarding.clone();
    if let Some((near, far)) = first_wire(&forwarding.ports) {
        return (forwarding, near, far);
    }
    let (a, b) = (PortId(0), PortId(1));
    forwarding.ports.retain(|p| p.id != a && p.id != b);
    forwarding.ports.push(PortConfig::wire(a, b));
    forwarding.ports.push(PortConfig::wire(b, a));
    (forwarding, a, b)
}

/// The first wire: two ports that lead to each other, which a routed port and its twin do not.
fn first_wire(ports: &[PortConfig]) -> Option<(PortId, PortId)> {
    let leads = |from: PortId, to: PortId| ports.iter().any(|p| p.id == from && p.peer == Some(to));
    ports.iter().filter_map(|p| Some((p.id, p.peer?))).find(|&(near, far)| leads(far, near))
}

/// Measures for some time.
fn measure(stage: &Stage<'_>, shared: &Arc<Shared>, seconds: f64) -> Result<Vec<Measured>, BenchError> {
    let barrier = Barrier::new(stage.config.workers);
    std::thread::scope(|scope| {
        let start = |id: usize| {
            let barrier = &barrier;
            scope.spawn(move || -> Result<Measured, BenchError> {
                let result = prepare(id, stage, shared);
                // Every thread reaches the barrier, also one that failed, or the others would wait for ever.
                barrier.wait();
                let (registration, mut graph) = result?;
                let measured = prepared_walk(&mut graph, &stage.config.traffic, seconds)?;
                drop(graph);
                drop(registration);
                Ok(measured)
            })
        };
        let threads: Vec<_> = (0..stage.config.workers).map(start).collect();
        let join = |t: std::thread::ScopedJoinHandle<'_, Result<Measured, BenchError>>| {
            t.join().unwrap_or_else(|_| Err(BenchError("a worker of the bench ended early".into())))
        };
        threads.into_iter().map(join).collect()
    })
}

fn prepare(
    id: usize,
    stage: &Stage<'_>,
    shared: &Arc<Shared>,
) -> Result<(ThreadGuard, Graph<Worker>), BenchError> {
    let registration = register_thread().map_err(|e| BenchError(e.to_string()))?;
    let room = Room { sessions: stage.config.sessions, scratchpad: stage.config.scratchpad };
    let mut sessions = sessions(0, 1, room, SEED)?;
    sessions.set_clock(rdtsc);
    let mut worker = Box::new(Worker::new(id, shared.clone(), SEED + id as u64, sessions));
    worker.spread = 1;
    worker.pool = Some(stage.pools.ordinary());
    let nodes = match stage.ends.source(id as u64, &stage.pools, stage.ports)? {
        Some(source) => {
            worker.ends = Some(Box::new(source));
            graph::between(ends::nodes(), false)
        }
        None => graph::live(false),
    };
    let graph =
        Graph::build(&format!("bench-{id}"), &nodes, worker).map_err(|e| BenchError(e.to_string()))?;
    Ok((registration, graph))
}

/// Opens the flows, if they are opened by something else than the packets that are measured, warms up, and measures.
fn prepared_walk(graph: &mut Graph<Worker>, traffic: &Traffic, seconds: f64) -> Result<Measured, BenchError> {
    let mut most = usize::MAX;
    if let Traffic::Generated(traffic) = traffic
        && graph.state().snapshot.flows
    {
        match traffic.order {
            Order::Fresh => most = traffic.flows as usize,
            _ => open::open(graph, traffic.flows)?,
        }
    }
    walk_for(graph, most, WARM_UP);
    Ok(walk_for(graph, most, Duration::from_secs_f64(seconds)))
}

/// Walks for some time. As soon as there are `most` sessions, they are ended, which is not measured.
fn walk_for(graph: &mut Graph<Worker>, most: usize, time: Duration) -> Measured {
    let before = Reading::take(graph);
    let (mut between, mut walks) = (0, 0);
    let start = Instant::now();
    while start.elapsed() < time {
        for _ in 0..WALKS_PER_CLOCK {
            let tick = rdtsc();
            graph.state_mut().begin();
            between += rdtsc() - tick;
            graph.walk();
        }
        walks += u64::from(WALKS_PER_CLOCK);
        let Worker { id, snapshot, sessions, .. } = graph.state_mut();
        if sessions.counters().sessions as usize >= most {
            while sessions.clear_batch(crate::engine::vector::VECTOR, &snapshot.of(*id)) {}
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let worker = graph.state_mut();
    worker.sessions.flush(&worker.snapshot.of(worker.id));
    Measured { reading: Reading::take(graph).since(&before), seconds, between, walks }
}

type Ports = Vec<(PortId, Arc<OpenPort>)>;

/// Opens two generating null ports for the first wire of `forwarding`.
fn open_null_ports(
    pools: &Pools,
    forwarding: &Forwarding,
    size: usize,
    workers: usize,
) -> Result<Ports, EngineError> {
    let wired = forwarding.ports.iter().filter(|p| p.peer.is_some()).take(2);
    wired
        .map(|p| {
            let port =
                port::open_generating_null(pools, size, workers).map_err(|e| EngineError(e.to_string()))?;
            Ok((p.id, Arc::new(port)))
        })
        .collect()
}
