//! The engine: workers on threads, the table of open ports, and publication.
//!
//! Theory of operation. A process has one engine, since it has one DPDK environment. The control side opens
//! and closes ports at any time; a port takes part while a published [`Forwarding`] names it. Publication
//! builds the snapshot, swaps the pointer, wakes sleeping workers, and returns when all of them run on it.
//! Only then the old snapshot is dropped, by the publishing thread and never by a worker.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mmb_dpdk::{Eal, FastHook, FlowHandle, Mempool, Port, ReadablePool, ReceiveLarge, StatsHandle};
use mmb_fastpath::PortMonitor;
use mmb_lang::PortKind;
use mmb_nf::Program;
use mmb_nf::process::PacketMemory;
use mmb_policy::ElementChange;
use mmb_session::{LimitedSource, SharedSessions};
use mmb_system::FileAccess;

use crate::engine::config::{Forwarding, PortId};
use crate::engine::counters::RuleTable;
use crate::engine::periodic::PeriodicThread;
use crate::engine::pools::{Pools, ReadablePackets, SharedScratchpads};
use crate::engine::shared::Shared;
use crate::engine::snapshot::Snapshot;
use crate::engine::thread::failure::{PATIENCE, Patience, WorkerFailure};
use crate::features::fastpath::config::{admits, is_learning};
use crate::features::fastpath::host::{connect_twins, update_redirects};
use crate::features::flow_rules::InstalledRules;
use crate::features::port::device::{OpenPort, OpenPorts};
use crate::features::port::error::PortError;
use crate::features::port::offloads::restore_offloads;
use crate::features::port::open as port;

/// How long a publisher polls the workers without a pause.
const SPIN: Duration = Duration::from_micros(100);

/// Most programs of chains at a time: workers give them numbers of 16 bits, and begin with one of their own.
const MAX_PROGRAMS: usize = u16::MAX as usize;

/// Whether one more program has room beside `programs`, or is one of them.
fn has_room(programs: &[Arc<Program>], next: &Arc<Program>) -> bool {
    programs.len() < MAX_PROGRAMS || programs.iter().any(|program| Arc::ptr_eq(program, next))
}

/// Returns which large frames the functions of a program take.
fn large_frames_for(program: &Program) -> ReceiveLarge {
    match program.chains().next() {
        None => ReceiveLarge::Whole,
        Some(_) if program.takes_large_frames() => ReceiveLarge::Tcp,
        Some(_) => ReceiveLarge::Segmented,
    }
}

/// A running worker as the engine sees it.
pub(super) struct RunningWorker {
    pub(super) thread: JoinHandle<()>,
    pub(super) cpu: Option<usize>,
    pub(super) stats: StatsHandle,
    pub(super) scratchpads: Option<SharedScratchpads>,
}

/// What publications change.
pub(super) struct Publisher {
    pub(super) generation: u64,
    /// Rule counters of each worker.
    pub(super) counters: Vec<RuleTable>,
    /// Programs of chains that were published and that a session may still use.
    pub(super) programs: Vec<Arc<Program>>,
    /// The flow rules of ports.
    pub(super) flow_rules: InstalledRules<FlowHandle>,
}

/// Workers, ports, and what they run on.
pub struct Engine {
    pub(super) shared: Arc<Shared>,
    /// What the sessions of all workers share.
    pub(super) sessions: Arc<SharedSessions>,
    pub(super) workers: Vec<RunningWorker>,
    /// The thread that writes packets to the kernel's interfaces.
    pub(super) punt_writer: Option<JoinHandle<()>>,
    pub(super) ports: Arc<OpenPorts>,
    pub(super) port_monitor: PortMonitor,
    pub(super) stall_monitor: PeriodicThread,
    pub(super) publisher: Mutex<Publisher>,
    /// Devices that are open and no ports yet.
    pub(super) prepared: Mutex<Vec<(PortKind, Port)>>,
    pub(super) pools: Pools,
    pub(super) files: Arc<FileAccess>,
    pub(super) eal: Eal,
}

/// Locks a mutex. A thread that panicked with the lock left nothing half done: values are replaced as a
/// whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// What the control side and the workers share.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// What the control side and the workers share, to keep.
    pub(crate) fn shared_arc(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Sources that have reached their limit of sessions since the last call. Workers do not notice the call.
    pub fn take_limited_sources(&self) -> Vec<LimitedSource> {
        self.sessions.take_limited()
    }

    /// The DPDK environment.
    pub(crate) fn eal(&self) -> &Eal {
        &self.eal
    }

    /// The pools of packets, whose memory other processes can map ([`Mempool::file`]).
    pub fn packet_pools(&self) -> Vec<Mempool> {
        self.pools.all()
    }

    /// The memory of ordinary packets, for processes that read packets where they are. None: no other process
    /// can map it.
    pub fn packet_memory(&self) -> Option<Arc<dyn PacketMemory>> {
        let pool = ReadablePool::new(self.pools.ordinary())?;
        Some(Arc::new(ReadablePackets(pool)))
    }

    /// The file with the scratchpads of a worker's sessions. None: there is no such worker, or scratchpads
    /// are private ([`crate::EngineConfig::share_scratchpads`]).
    pub fn scratchpads(&self, worker: usize) -> Option<&SharedScratchpads> {
        self.workers.get(worker)?.scratchpads.as_ref()
    }

    /// Switches on the receive offloads of interfaces that a killed process has left off. Call it before the
    /// first port is opened, and while no other process has ports with the same state directory.
    pub fn restore_offloads(&self) {
        restore_offloads(self.files.state());
    }

    /// Does what a port needs and what may be done while another process has the device, so that opening and
    /// publishing it take less time. `is_fast`: ports of its kind will learn flows for the fast path. Errors
    /// are left to [`Engine::open_port`].
    pub fn prepare_port(&self, name: &str, kind: &PortKind, is_fast: bool) {
        if let Some(port) = port::prepare(&self.pools, name, kind, self.workers.len(), is_fast) {
            lock(&self.prepared).push((kind.clone(), port));
        }
    }

    /// Discards what prepared ports have received: the other process has received it, too. What they receive
    /// from now on waits for [`Engine::open_port`].
    pub fn discard_received(&self) {
        lock(&self.prepared).iter_mut().for_each(|(_, port)| port.discard_received());
    }

    /// Closes prepared ports that were not opened.
    pub fn close_prepared(&self) {
        lock(&self.prepared).clear();
    }

    /// Tells how many AF_XDP ports a configuration has, and how many packets it lets the functions of a
    /// worker hold. When the first of the ports opens, the pool of packets gets buffers for that. Later ports
    /// share these: the pool cannot grow while the kernel has its memory.
    pub fn plan_buffers(&self, xdp_ports: usize, held: u32) {
        self.pools.plan(xdp_ports, held);
    }

    /// Opens a device as port `id`, which must not be open. The port takes part once a published forwarding
    /// names it. `name` is the operator's name for it.
    ///
    /// # Errors
    /// The device cannot be opened; nothing is left open.
    pub fn open_port(&self, id: PortId, name: &str, kind: &PortKind) -> Result<(), PortError> {
        let mut ports = lock(&self.ports);
        let is_xdp = |port: &&Arc<OpenPort>| port.device().fast_hook() == Some(FastHook::Xdp);
        let xdp_ports = ports.iter().flatten().filter(is_xdp).count();
        let Some(entry) = id.index().map(|index| &mut ports[index]) else {
            return Err(PortError::TooMany(name.to_owned()));
        };
        if entry.is_some() {
            return Err(PortError::Open(name.to_owned()));
        }
        let mut prepared = lock(&self.prepared);
        let at = prepared.iter().position(|(other, _)| other == kind);
        let device = at.map(|at| prepared.swap_remove(at).1);
        let workers = self.workers.len();
        let port = port::open(&self.pools, &self.files, name, kind, (workers, xdp_ports), device)?;
        *entry = Some(Arc::new(port));
        self.stall_monitor.wake();
        // No packet of the port that had this number before is in a graph any more.
        self.shared.drop_counters().for_each(|drops| drops.zero_port(id.0));
        Ok(())
    }

    /// Closes a port that no published forwarding names. Does nothing if it is not open.
    pub fn close_port(&self, id: PortId) {
        lock(&self.publisher).flow_rules.remove_port(id);
        if let Some(index) = id.index() {
            let port = lock(&self.ports)[index].take();
            drop(port);
        }
    }

    /// Whether the engine can run on a program of chains, beside those that open sessions still use. A worker
    /// without room for it would go on with the program before.
    pub fn has_room_for(&self, program: &Arc<Program>) -> bool {
        let mut publisher = lock(&self.publisher);
        publisher.programs.retain(|program| Arc::strong_count(program) > 1);
        has_room(&publisher.programs, program)
    }

    /// Publishes `forwarding`. Returns when every worker runs on it; then ports and rule slots that only the
    /// old one used are free.
    ///
    /// # Errors
    /// A worker has ended, or does not respond within seconds. The engine works no longer.
    pub fn publish(&self, forwarding: Forwarding) -> Result<(), WorkerFailure> {
        self.publish_change(forwarding, None)
    }

    /// Publishes `forwarding`, which differs from the published one by a change of elements of sets, and by
    /// nothing else. Returns as [`Engine::publish`].
    ///
    /// # Errors
    /// As [`Engine::publish`].
    pub fn publish_elements(
        &self,
        forwarding: Forwarding,
        change: ElementChange,
    ) -> Result<(), WorkerFailure> {
        self.publish_change(forwarding, Some(change))
    }

    fn publish_change(
        &self,
        forwarding: Forwarding,
        elements: Option<ElementChange>,
    ) -> Result<(), WorkerFailure> {
        let mut publisher = lock(&self.publisher);
        self.pools.provide_for_held(forwarding.settings.held.worker);
        publisher.generation += 1;
        let slots = forwarding.policy.slots();
        publisher.counters.iter_mut().for_each(|table| table.grow(slots));
        let generation = publisher.generation;
        let ports = lock(&self.ports).clone();
        let open = |id: PortId| id.index().and_then(|i| ports[i].clone());
        let participating: Vec<_> =
            forwarding.ports.iter().filter_map(|config| Some((config.id, open(config.id)?))).collect();
        let devices = || participating.iter().map(|(id, port)| (*id, port.device()));
        let (is_learning, was_learning) = (is_learning(&forwarding), self.shared.fast.is_learning());
        let mode = forwarding.fast_path;
        let learns =
            |port: &OpenPort| is_learning && port.device().fast_hook().is_some_and(|hook| admits(mode, hook));
        let learning = participating.iter().filter(|(_, port)| learns(port));
        learning.for_each(|(_, port)| port.engage_fast_path(true));
        connect_twins(&forwarding, open);
        devices().for_each(|(_, port)| port.merge_segments(!forwarding.keeps_segments));
        let large = large_frames_for(&forwarding.chains);
        devices().for_each(|(_, port)| port.restrict_large(large));
        let plan = publisher.flow_rules.replace(&forwarding, devices().map(|(_, port)| port));
        if is_learning && elements.is_none() {
            // Before workers learn: they would refuse flows to ports that have not been checked yet.
            update_redirects(&self.ports);
        }
        let snapshot = Snapshot::new(generation, forwarding, open, publisher.counters.clone());
        let mut snapshot = Snapshot { mark: plan.mark, ..snapshot };
        if let Some(change) = elements {
            snapshot = snapshot.with_elements(change, &self.shared.current());
        }
        // Kept until no session refers to it, so that no worker frees it.
        if !publisher.programs.iter().any(|program| Arc::ptr_eq(program, &snapshot.chains)) {
            publisher.programs.push(snapshot.chains.clone());
        }
        let old = self.shared.publish(snapshot);
        if is_learning && !was_learning {
            self.port_monitor.resume();
        }
        self.wait_for(generation)?;
        drop(old);
        devices().for_each(|(_, port)| port.receive_large(large));
        let others = participating.iter().filter(|(_, port)| !learns(port));
        others.for_each(|(_, port)| port.engage_fast_path(false));
        publisher.flow_rules.install(&plan, devices());
        publisher.programs.retain(|program| Arc::strong_count(program) > 1);
        Ok(())
    }

    /// Calls `hook` on the first failure of a worker, from the thread that notices it.
    pub fn on_failure(&self, hook: impl FnOnce(WorkerFailure) + Send + 'static) {
        self.shared.failure.on_failure(Box::new(hook));
    }

    /// Waits until every worker runs on `generation`. A worker takes a generation over within microseconds,
    /// or within tens of microseconds if it sleeps. That is shorter than any sleep of this thread, so it
    /// polls first. It yields between polls, since a worker may need the same processor.
    fn wait_for(&self, generation: u64) -> Result<(), WorkerFailure> {
        for (id, worker) in self.shared.workers.iter().enumerate() {
            let mut patience = Patience::new();
            while worker.seen.load(Acquire) < generation && !self.shared.stop.load(Relaxed) {
                if let Some(failure) = self.shared.failure.get() {
                    return Err(failure);
                }
                if patience.is_over() {
                    let failure = WorkerFailure::Silent { worker: id, seconds: PATIENCE.as_secs() };
                    self.shared.failure.set(failure);
                    return Err(failure);
                }
                if patience.waited() < SPIN {
                    std::thread::yield_now();
                } else {
                    std::thread::sleep(Duration::from_micros(20));
                }
            }
        }
        if let Some(queue) = &self.shared.punt.queue {
            queue.wait_unused(&self.shared.stop);
        }
        Ok(())
    }

    /// The open ports whose kernel interfaces have disappeared.
    pub fn vanished_ports(&self) -> Vec<PortId> {
        let ports = lock(&self.ports);
        let numbered = (0..).map(PortId).zip(ports.iter());
        let vanished = numbered.filter(|(_, port)| port.as_ref().is_some_and(|port| port.has_vanished()));
        vanished.map(|(id, _)| id).collect()
    }

    /// The open port with this id.
    pub(crate) fn open(&self, id: PortId) -> Option<Arc<OpenPort>> {
        lock(&self.ports)[id.index()?].clone()
    }

    /// Number of flow rules that a port has installed.
    pub(crate) fn flow_rules(&self, id: PortId) -> usize {
        lock(&self.publisher).flow_rules.count(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_beyond_the_numbers_of_a_worker_are_refused() {
        let mut programs = vec![Arc::<Program>::default(); MAX_PROGRAMS - 1];
        let last = Arc::default();
        assert!(has_room(&programs, &last));
        programs.push(last.clone());
        assert!(has_room(&programs, &last), "it has a number");
        assert!(!has_room(&programs, &Arc::default()));
    }
}
