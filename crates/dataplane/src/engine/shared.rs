//! What the control side and the workers share.
//!
//! Theory of operation. Snapshots, routes and local addresses are immutable values behind atomic pointers.
//! Their generations are counters that workers compare between two walks. Routes that were replaced are kept
//! until no worker uses them; the next publisher frees them, so that no worker spends time on it.
//!
//! The next hops that sessions and the fast path keep outlive publications that concern no forwarded flow
//! ([`Routes::flow_generation`]).

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;
use mmb_dpdk::RingSender;
use mmb_fastpath::FastPathState;
use mmb_route::Routes;

use crate::engine::config::PortId;
use crate::engine::counters::{DropCounters, WorkerCounters};
use crate::engine::handoff::Inbox;
use crate::engine::log_queue::LogQueue;
use crate::engine::snapshot::Snapshot;
use crate::engine::thread::failure::FailureReport;
use crate::engine::thread::mailbox::Mailbox;
use crate::engine::thread::waker::Waker;
use crate::features::ip::locals::LocalAddresses;
use crate::features::punt::queue::PuntShared;
use crate::features::route::requests::NeighborRequests;

/// The part of a worker that other threads see.
pub(crate) struct WorkerShared {
    pub counters: WorkerCounters,
    /// Generation of the snapshot that the worker runs on.
    pub seen: AtomicU64,
    pub sleeping: AtomicBool,
    pub waker: Arc<Waker>,
    /// Tasks of other threads that need the worker's sessions.
    pub mailbox: Mailbox,
    /// Packets that rules log.
    pub log: LogQueue,
    /// The rings for packets from other workers; none when there is one worker.
    pub inbox: Option<Inbox<RingSender>>,
}

impl WorkerShared {
    pub fn new(inbox: Option<Inbox<RingSender>>) -> std::io::Result<WorkerShared> {
        Ok(WorkerShared {
            counters: WorkerCounters::default(),
            seen: 0.into(),
            sleeping: false.into(),
            waker: Arc::new(Waker::new()?),
            mailbox: Mailbox::default(),
            log: LogQueue::default(),
            inbox,
        })
    }

    /// Packets in the worker's rings.
    pub fn inbox_len(&self) -> usize {
        self.inbox.as_ref().map_or(0, |inbox| inbox.flows.len() + inbox.transmits.len())
    }

    /// Wakes the worker if it sleeps; to be called after work was left for it.
    pub fn wake_if_sleeping(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}

/// Whether some route has several next hops.
pub(crate) fn has_multipath(routes: &Routes) -> bool {
    !routes.hops.members().is_empty()
}

/// Shared by the engine and all workers.
pub(crate) struct Shared {
    current: ArcSwap<Snapshot>,
    /// Generation of the published snapshot.
    pub generation: AtomicU64,
    routes: ArcSwap<Routes>,
    locals: ArcSwap<LocalAddresses>,
    /// Counts publications of routes and of local addresses.
    pub routes_generation: AtomicU64,
    /// Counts those of them that may concern forwarded flows ([`Routes::keeps_flows_of`]).
    pub flow_generation: AtomicU64,
    /// The fast path in the kernel.
    pub fast: Arc<FastPathState>,
    /// Routes that were replaced and that workers may still use.
    retired: Mutex<Vec<Arc<Routes>>>,
    /// Neighbours that the kernel is to resolve.
    pub requests: NeighborRequests,
    /// Packets for the kernel.
    pub punt: PuntShared,
    /// Somebody traces packets.
    pub is_traced: AtomicBool,
    /// When the engine started; the clocks of all workers begin here.
    pub start: Instant,
    pub stop: AtomicBool,
    /// The first worker that ended or does not respond.
    pub failure: FailureReport,
    pub workers: Vec<WorkerShared>,
}

impl Shared {
    pub fn new(first: Snapshot, workers: Vec<WorkerShared>) -> std::io::Result<Shared> {
        Ok(Shared {
            generation: AtomicU64::new(first.generation),
            current: ArcSwap::from_pointee(first),
            routes: ArcSwap::default(),
            locals: ArcSwap::default(),
            routes_generation: AtomicU64::new(0),
            flow_generation: AtomicU64::new(0),
            fast: Arc::default(),
            retired: Mutex::default(),
            requests: NeighborRequests::new()?,
            punt: PuntShared::default(),
            is_traced: AtomicBool::new(false),
            start: Instant::now(),
            stop: AtomicBool::new(false),
            failure: FailureReport::default(),
            workers,
        })
    }

    /// For workers that do not give packets to each other.
    pub fn detached(snapshot: Snapshot, workers: usize) -> std::io::Result<Shared> {
        let workers = (0..workers).map(|_| WorkerShared::new(None)).collect::<Result<_, _>>()?;
        Shared::new(snapshot, workers)
    }

    /// Counters of dropped packets, one for each thread that drops some.
    pub fn drop_counters(&self) -> impl Iterator<Item = &DropCounters> {
        let writer = self.punt.queue.as_ref().map(|queue| &queue.drops);
        self.workers.iter().map(|worker| &worker.counters.drops).chain(writer)
    }

    /// The published snapshot.
    pub fn current(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Publishes `snapshot`. Returns the snapshot before it, on which workers may still run.
    pub fn publish(&self, snapshot: Snapshot) -> Arc<Snapshot> {
        let Snapshot { generation, fast_generation, .. } = snapshot;
        let fast = snapshot.fast.clone();
        let old = self.current.swap(Arc::new(snapshot));
        self.generation.store(generation, Ordering::Release);
        self.fast.publish(fast, fast_generation);
        for worker in &self.workers {
            worker.wake_if_sleeping();
        }
        old
    }

    /// The published routes.
    pub fn routes(&self) -> Arc<Routes> {
        self.routes.load_full()
    }

    /// Publishes routes; each worker takes them over before its next walk.
    pub fn publish_routes(&self, routes: Routes) {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let routes = Arc::new(routes);
        let old = self.routes.swap(routes.clone());
        self.routes_changed(!routes.keeps_flows_of(&old));
        retired.push(old);
        // No worker can load retired routes again, so those with one reference can be freed.
        retired.retain(|routes| Arc::strong_count(routes) > 1);
    }

    /// Takes the routes and the machine's own addresses of another engine.
    pub fn follow(&self, other: &Shared) {
        self.routes.store(other.routes());
        self.locals.store(other.locals());
        self.routes_changed(true);
    }

    /// The machine's own addresses.
    pub fn locals(&self) -> Arc<LocalAddresses> {
        self.locals.load_full()
    }

    /// Sets the machine's own addresses for packets that come in by a port, and those that rules or NAT use,
    /// too.
    pub fn set_locals(&self, port: PortId, local: &[IpAddr], shared: &[IpAddr]) {
        self.locals.rcu(|locals| locals.with(port, local, shared));
        self.routes_changed(true);
    }

    fn routes_changed(&self, concerns_flows: bool) {
        if concerns_flows {
            let before = self.flow_generation.fetch_add(1, Ordering::Release);
            self.fast.publish_routes(before + 1, || has_multipath(&self.routes()));
        }
        // Last: a worker that sees this number sees the other one.
        self.routes_generation.fetch_add(1, Ordering::Release);
        for worker in &self.workers {
            worker.wake_if_sleeping();
        }
    }
}
