//! `mmb bench`: what a policy costs, measured on the real graph with traffic made in memory.
//!
//! Theory of operation. Each worker walks the same nodes as in the daemon between a source that makes packets and a
//! sink that frees them. Source and sink are nodes of their own, so that the graph's own cycle counters keep their cost
//! apart; `cycles_per_packet` is the sum of all other nodes over the packets made. A short warm-up fills caches and
//! branch predictors and is not counted. Workers of a bench share nothing but the policy, as with RSS.
//! Where rules need sessions, flows are opened before it, and what a worker does for its sessions between two walks counts
//! as one more node.
//! With [`Traffic::NullPorts`] the nodes poll and send on DPDK's null ports instead, receive and transmit
//! included, which is what testpmd between such ports does.

mod ends;
mod open;
mod traffic;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use mmb_dpdk::{Eal, EalConfig, Graph, HugePages, ThreadGuard, rdtsc, register_thread};
use mmb_packet::DropReason;
use serde::Serialize;

pub use traffic::{Generated, Generator, MAX_FRAME, Order, Proto};

use crate::config::{Forwarding, MAX_WORKERS, PortConfig, PortId};
use crate::counters::{EDIT_FAILURES, RuleCounters, RuleTable};
use crate::engine::{EngineError, NodeRuntime, node_runtime, sessions};
use crate::nodes;
use crate::pools::Pools;
use crate::port::{self, OpenPort};
use crate::shared::Shared;
use crate::snapshot::Snapshot;
use crate::worker::Worker;

const WARM_UP: Duration = Duration::from_millis(200);
const WALKS_PER_CLOCK: u32 = 32;
const MEMORY_MB: u32 = 192;

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
    /// Policy and wires. Packets come in by the first wired port; without ports, by one end of a made-up wire.
    pub forwarding: Forwarding,
    /// The packets.
    pub traffic: Traffic,
    /// How long to measure.
    pub seconds: f64,
    /// Workers, each with traffic of its own.
    pub workers: usize,
    /// Sessions that each worker has room for.
    pub sessions: usize,
}

/// One node's share.
#[derive(Clone, Debug, Serialize)]
pub struct NodeCost {
    /// Packets.
    pub packets: u64,
    /// Vectors.
    pub vectors: u64,
    /// TSC ticks per packet of this node.
    pub cycles_per_packet: f64,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    /// Packets made.
    pub packets: u64,
    /// Time they took, in seconds.
    pub seconds: f64,
    /// Packets per second, making and freeing them included.
    pub pps: f64,
    /// TSC ticks per packet of all nodes but the source and the sink.
    pub cycles_per_packet: f64,
    /// TSC ticks per second.
    pub tsc_hz: u64,
    /// Workers.
    pub workers: usize,
    /// Each node's share, source and sink included.
    pub nodes: BTreeMap<String, NodeCost>,
    /// Packets dropped, by reason; reasons that did not occur are left out.
    pub drops: BTreeMap<&'static str, u64>,
    /// Packets that went on as they came because their edits failed, by reason; reasons that did not occur are left out.
    pub unedited: BTreeMap<&'static str, u64>,
    /// What each rule's slot matched, for slots that matched anything.
    #[serde(skip)]
    pub rules: Vec<(u32, RuleCounters)>,
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

/// What a worker does between two walks, as a node.
const BETWEEN: &str = "between-walks";
/// Of everything random but the traffic.
const SEED: u64 = 1;

/// One worker's counters at one time, or what came to them between two.
struct Reading {
    nodes: Vec<NodeRuntime>,
    drops: Vec<(DropReason, u64)>,
    unedited: Vec<(DropReason, u64)>,
    rules: Vec<RuleCounters>,
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
    let ends = ends::Plan::new(&config.traffic).map_err(BenchError)?;
    let eal = Eal::init(&EalConfig {
        memory_mb: MEMORY_MB,
        huge: HugePages::Auto,
        privileged: false,
        ..EalConfig::default()
    })
    .map_err(|e| BenchError(e.to_string()))?;
    let pools = Pools::create(MEMORY_MB)?;
    let (forwarding, in_port) = with_wire(&config.forwarding);
    let ports = ends.open_ports(&pools, &forwarding, config.workers)?;
    let slots = forwarding.policy.slots();
    let mut counters = vec![RuleTable::default(); config.workers];
    counters.iter_mut().for_each(|table| table.grow(slots));
    let open = |id: PortId| ports.iter().find(|(p, _)| *p == id).map(|(_, port)| port.clone());
    let snapshot = Snapshot::new(1, forwarding, open, counters);
    let shared = Arc::new(Shared::detached(snapshot, config.workers).map_err(|e| BenchError(e.to_string()))?);
    let measured = measure(config, &ends, &pools, &shared, in_port)?;
    Ok(report(&measured, eal))
}

/// `forwarding` with a wire to come in by, and the port where packets come in.
fn with_wire(forwarding: &Forwarding) -> (Forwarding, PortId) {
    let mut forwarding = forwarding.clone();
    if let Some(port) = forwarding.ports.iter().find(|p| p.peer.is_some()) {
        let id = port.id;
        return (forwarding, id);
    }
    let (a, b) = (PortId(0), PortId(1));
    forwarding.ports.retain(|p| p.id != a && p.id != b);
    forwarding.ports.push(PortConfig { id: a, peer: Some(b), enabled: true });
    forwarding.ports.push(PortConfig { id: b, peer: Some(a), enabled: true });
    (forwarding, a)
}

fn measure(
    config: &BenchConfig,
    ends: &ends::Plan,
    pools: &Pools,
    shared: &Arc<Shared>,
    in_port: PortId,
) -> Result<Vec<Measured>, BenchError> {
    let barrier = Barrier::new(config.workers);
    std::thread::scope(|scope| {
        let start = |id: usize| {
            let barrier = &barrier;
            scope.spawn(move || -> Result<Measured, BenchError> {
                let result = prepare(id, config, ends, pools, shared, in_port);
                // Every thread reaches the barrier, also one that failed, or the others would wait for ever.
                barrier.wait();
                let (registration, mut graph) = result?;
                let measured = prepared_walk(&mut graph, config)?;
                drop(graph);
                drop(registration);
                Ok(measured)
            })
        };
        let threads: Vec<_> = (0..config.workers).map(start).collect();
        let join = |t: std::thread::ScopedJoinHandle<'_, Result<Measured, BenchError>>| {
            t.join().unwrap_or_else(|_| Err(BenchError("a worker of the bench ended early".into())))
        };
        threads.into_iter().map(join).collect()
    })
}

fn prepare(
    id: usize,
    config: &BenchConfig,
    ends: &ends::Plan,
    pools: &Pools,
    shared: &Arc<Shared>,
    in_port: PortId,
) -> Result<(ThreadGuard, Graph<Worker>), BenchError> {
    let registration = register_thread().map_err(|e| BenchError(e.to_string()))?;
    let sessions = sessions(0, 1, config.sessions, SEED)?;
    let mut worker = Box::new(Worker::new(id, shared.clone(), SEED + id as u64, sessions));
    worker.spread = 1;
    let nodes = match ends.source(id as u64, pools, in_port)? {
        Some(source) => {
            worker.ends = Some(Box::new(source));
            nodes::between(ends::nodes())
        }
        None => nodes::live(false),
    };
    let graph =
        Graph::build(&format!("bench-{id}"), &nodes, worker).map_err(|e| BenchError(e.to_string()))?;
    Ok((registration, graph))
}

/// Opens the flows, if they are opened by something else than the packets that are measured, warms up, and measures.
fn prepared_walk(graph: &mut Graph<Worker>, config: &BenchConfig) -> Result<Measured, BenchError> {
    let mut most = usize::MAX;
    if let Traffic::Generated(traffic) = &config.traffic
        && graph.state().snapshot.flows
    {
        match traffic.order {
            Order::Fresh => most = traffic.flows as usize,
            _ => open::open(graph, traffic.flows)?,
        }
    }
    walk_for(graph, most, WARM_UP);
    Ok(walk_for(graph, most, Duration::from_secs_f64(config.seconds)))
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
            while sessions.clear_some(nodes::VECTOR, &snapshot.of(*id)) {}
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let worker = graph.state_mut();
    worker.sessions.flush(&worker.snapshot.of(worker.id));
    Measured { reading: Reading::take(graph).since(&before), seconds, between, walks }
}

fn report(measured: &[Measured], eal: Eal) -> BenchReport {
    let mut nodes: BTreeMap<String, (u64, u64, u64)> = BTreeMap::new();
    let (mut drops, mut unedited) = (BTreeMap::new(), BTreeMap::new());
    let mut rules: BTreeMap<u32, RuleCounters> = BTreeMap::new();
    for reading in measured.iter().map(|m| &m.reading) {
        for node in reading.nodes.iter().filter(|node| node.vectors > 0) {
            let sum = nodes.entry(node.name.clone()).or_default();
            *sum = (sum.0 + node.packets, sum.1 + node.vectors, sum.2 + node.cycles);
        }
        for (sums, counts) in [(&mut drops, &reading.drops), (&mut unedited, &reading.unedited)] {
            for (reason, n) in counts.iter().filter(|(_, n)| *n > 0) {
                *sums.entry(reason.name()).or_default() += n;
            }
        }
        for (slot, counters) in (0..).zip(&reading.rules).filter(|(_, c)| c.packets > 0) {
            *rules.entry(slot).or_default() += *counters;
        }
    }
    let packets = nodes.get("l2-input").map_or(0, |sum| sum.0);
    if nodes.contains_key("flow-lookup") {
        let sum = |f: fn(&Measured) -> u64| measured.iter().map(f).sum();
        nodes.insert(BETWEEN.to_owned(), (packets, sum(|m| m.walks), sum(|m| m.between)));
    }
    let seconds = measured.iter().map(|m| m.seconds).fold(0.0, f64::max);
    let cycles: u64 = nodes.iter().filter(|(name, _)| !ends::is_end(name)).map(|(_, sum)| sum.2).sum();
    let per_packet =
        |cycles: u64, packets: u64| if packets == 0 { 0.0 } else { cycles as f64 / packets as f64 };
    let cost = |(packets, vectors, cycles): (u64, u64, u64)| NodeCost {
        packets,
        vectors,
        cycles_per_packet: per_packet(cycles, packets),
    };
    BenchReport {
        packets,
        seconds,
        pps: packets as f64 / seconds,
        cycles_per_packet: per_packet(cycles, packets),
        tsc_hz: eal.tsc_hz(),
        workers: measured.len(),
        nodes: nodes.into_iter().map(|(name, sum)| (name, cost(sum))).collect(),
        drops,
        unedited,
        rules: rules.into_iter().collect(),
    }
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
