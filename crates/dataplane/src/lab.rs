//! One worker without a thread, a device or a clock: frames go into its graph and come out, one walk at a time. For tests, and
//! for looking at what a configuration does to a packet.

use std::net::IpAddr;
use std::sync::Arc;

use mmb_dpdk::{
    Eal, EalConfig, Emit, Graph, HugePages, NodeDef, NodeKind, ThreadGuard, Vector, register_thread,
};
use mmb_packet::DropReason;
use mmb_route::Routes;

use crate::config::{Forwarding, PortId};
use crate::counters::RuleTable;
use crate::engine::{EngineError, drops, sessions};
use crate::nodes::{self, Ends, VECTOR};
use crate::pools::Pools;
use crate::routing::RoutingCounters;
use crate::shared::Shared;
use crate::snapshot::Snapshot;
use crate::wants::Want;
use crate::worker::{Clock, Worker};

const MEMORY_MB: u32 = 64;
/// Of everything random.
const SEED: u64 = 1;

/// A worker between two hands; see the module's description.
pub struct Lab {
    graph: Graph<Worker>,
    shared: Arc<Shared>,
    _registration: ThreadGuard,
}

/// Frames on their way, by the port where they come in or go out.
#[derive(Default)]
struct Table {
    coming: std::collections::VecDeque<(PortId, Vec<u8>)>,
    gone: Vec<(PortId, Vec<u8>)>,
}

impl Lab {
    /// A worker with room for so many sessions; starts DPDK if it does not run yet. No device is opened, port ids are just
    /// numbers.
    ///
    /// # Errors
    /// What is missing: memory, mostly.
    pub fn new(forwarding: Forwarding, routes: Routes, most_sessions: usize) -> Result<Lab, EngineError> {
        let failed = |e: &dyn std::fmt::Display| EngineError(e.to_string());
        let config = EalConfig {
            memory_mb: MEMORY_MB,
            huge: HugePages::Never,
            privileged: false,
            ..EalConfig::default()
        };
        Eal::get().map_or_else(|| Eal::init(&config), Ok).map_err(|e| failed(&e))?;
        let pools = Pools::create(MEMORY_MB)?;
        let shared = Shared::detached(snapshot(1, forwarding), 1).map_err(|e| failed(&e))?;
        shared.publish_routes(routes);
        let shared = Arc::new(shared);
        let registration = register_thread().map_err(|e| failed(&e))?;
        let sessions = sessions(0, 1, most_sessions, SEED)?;
        let mut worker = Box::new(Worker::new(0, shared.clone(), SEED, sessions));
        worker.clock = Clock::Stands(0);
        worker.pool = Some(pools.ordinary());
        worker.ends = Some(Box::new(Table::default()));
        let ends = Ends {
            source: NodeDef { name: "lab-rx", kind: NodeKind::Source(emit), next: &["l2-input"] },
            sink: NodeDef { name: "lab-tx", kind: NodeKind::Inner(collect), next: &[] },
        };
        let graph = Graph::build("lab", &nodes::between(ends), worker).map_err(|e| failed(&e))?;
        Ok(Lab { graph, shared, _registration: registration })
    }

    /// Lets frames in, each by its port, at a time in milliseconds; what goes out meanwhile, and by which port.
    pub fn run(&mut self, now: u32, frames: Vec<(PortId, Vec<u8>)>) -> Vec<(PortId, Vec<u8>)> {
        let worker = self.graph.state_mut();
        worker.clock = Clock::Stands(now);
        if let Some(table) = table(worker) {
            table.coming = frames.into();
        }
        loop {
            self.graph.state_mut().begin();
            self.graph.walk();
            let Some(table) = table(self.graph.state_mut()) else { return Vec::new() };
            if table.coming.is_empty() {
                return std::mem::take(&mut table.gone);
            }
        }
    }

    /// Puts other routes in force.
    pub fn publish_routes(&mut self, routes: Routes) {
        self.shared.publish_routes(routes);
    }

    /// Says what the machine's own addresses are, of which rules are not to know, for packets that come in by a port.
    pub fn set_locals(&mut self, port: PortId, local: &[IpAddr]) {
        self.shared.set_locals(port, local);
    }

    /// Puts other rules and ports in force.
    pub fn publish(&mut self, forwarding: Forwarding) {
        let generation = self.graph.state().snapshot.generation + 1;
        self.shared.publish(snapshot(generation, forwarding));
    }

    /// What the worker wants the kernel to find out.
    pub fn wants(&self) -> Vec<Want> {
        self.shared.wants.take()
    }

    /// What routing has counted.
    pub fn routing_counters(&self) -> RoutingCounters {
        RoutingCounters::of(&self.shared)
    }

    /// Packets dropped, by those reasons that occurred.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        drops(&self.shared).into_iter().filter(|(_, n)| *n > 0).collect()
    }

    /// The same of packets that had come in by a port.
    pub fn port_drops(&self, port: PortId) -> Vec<(DropReason, u64)> {
        let counters = &self.shared.workers[0].counters.drops;
        let of = |&reason| (reason, counters.of_port(port.0, reason));
        DropReason::ALL.iter().map(of).filter(|(_, n)| *n > 0).collect()
    }

    /// Milliseconds until the worker has something to do without a packet.
    pub fn next_tick(&self) -> Option<u32> {
        self.graph.state().timers()
    }
}

fn snapshot(generation: u64, forwarding: Forwarding) -> Snapshot {
    let mut table = RuleTable::default();
    table.grow(forwarding.policy.slots());
    Snapshot::new(generation, forwarding, |_| None, vec![table])
}

fn table(worker: &mut Worker) -> Option<&mut Table> {
    worker.ends.as_mut()?.downcast_mut()
}

fn emit(worker: &mut Worker, emit: &mut Emit<'_>) -> usize {
    let Some(pool) = worker.pool.clone() else { return 0 };
    let Some(table) = table(worker) else { return 0 };
    emit.emit(0, VECTOR, |slots| {
        while slots.room() > 0
            && let Some((port, frame)) = table.coming.pop_front()
        {
            // Without a buffer the frame is missing among those that come out, which is noticed.
            let Some(mut packet) = pool.packet(&frame) else { continue };
            packet.set_port(port.0);
            let _ = slots.push(packet);
        }
    })
}

fn collect(worker: &mut Worker, mut vector: Vector<'_>) {
    if let Some(table) = table(worker) {
        let gone = vector.packets().iter().map(|packet| (PortId(packet.meta().out_port), packet.to_vec()));
        table.gone.extend(gone);
    }
    vector.free();
}
