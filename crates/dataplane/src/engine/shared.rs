//! What the control side and the workers share.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use mmb_dpdk::{RingReceiver, RingSender, ring};
use mmb_fastpath::FastPathState;
use mmb_route::Routes;

use crate::engine::config::PortId;
use crate::engine::mailbox::Mailbox;
use crate::engine::sleep::Waker;
use crate::engine::snapshot::Snapshot;
use crate::engine::worker::WorkerCounters;
use crate::features::ip::locals::Locals;
use crate::features::route::requests::Wants;

/// The part of a worker that other threads see.
pub(crate) struct WorkerShared {
    pub counters: WorkerCounters,
    /// Generation of the snapshot the worker runs on.
    pub seen: AtomicU64,
    pub sleeping: AtomicBool,
    pub waker: Arc<Waker>,
    /// What other threads want of its sessions.
    pub mailbox: Mailbox,
    /// The way in for packets from other workers; none when there is one worker only.
    pub inbox: Option<Inbox<RingSender>>,
}

/// Two rings by which a worker gets packets from others.
pub(crate) struct Inbox<R> {
    /// Packets of its flows, parsed, to classify.
    pub flows: R,
    /// Packets for ports that it sends on.
    pub sends: R,
}

/// Packets that fit a hand-off ring.
const RING: usize = 4096;

/// Makes the rings of one worker.
pub(crate) fn inbox(worker: usize) -> Result<(Inbox<RingSender>, Inbox<RingReceiver>), mmb_dpdk::Error> {
    let (flows_in, flows_out) = ring(&format!("flows of worker {worker}"), RING)?;
    let (sends_in, sends_out) = ring(&format!("sends of worker {worker}"), RING)?;
    Ok((Inbox { flows: flows_in, sends: sends_in }, Inbox { flows: flows_out, sends: sends_out }))
}

impl WorkerShared {
    pub fn new(inbox: Option<Inbox<RingSender>>) -> std::io::Result<WorkerShared> {
        Ok(WorkerShared {
            counters: WorkerCounters::default(),
            seen: 0.into(),
            sleeping: false.into(),
            waker: Arc::new(Waker::new()?),
            mailbox: Mailbox::default(),
            inbox,
        })
    }

    /// Packets that wait in the worker's rings.
    pub fn inbox_len(&self) -> usize {
        self.inbox.as_ref().map_or(0, |inbox| inbox.flows.len() + inbox.sends.len())
    }

    /// To be called after work was left for the worker: ends its sleep if it sleeps.
    pub fn wake_if_sleeping(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}

/// Whether some route has several next hops.
pub(crate) fn has_groups(routes: &Routes) -> bool {
    !routes.hops.members().is_empty()
}

/// Shared by the engine and all workers.
pub(crate) struct Shared {
    current: ArcSwap<Snapshot>,
    /// Generation of the published snapshot.
    pub generation: AtomicU64,
    routes: ArcSwap<Routes>,
    locals: ArcSwap<Locals>,
    /// Counts publications of routes and of local addresses.
    pub routes_generation: AtomicU64,
    /// What the kernel does by itself.
    pub fast: Arc<FastPathState>,
    /// Routes that are not in force any more, until no worker uses them: they are freed here, and not by a worker.
    retired: Mutex<Vec<Arc<Routes>>>,
    /// What workers want the kernel to find out.
    pub wants: Wants,
    pub stop: AtomicBool,
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
            fast: Arc::default(),
            retired: Mutex::default(),
            wants: Wants::new()?,
            stop: AtomicBool::new(false),
            workers,
        })
    }

    /// For workers that run on one snapshot and get no packets from each other.
    pub fn detached(snapshot: Snapshot, workers: usize) -> std::io::Result<Shared> {
        let workers = (0..workers).map(|_| WorkerShared::new(None)).collect::<Result<_, _>>()?;
        Shared::new(snapshot, workers)
    }

    /// The published snapshot.
    pub fn current(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Publishes `snapshot` and returns the one before it, which workers may still run on.
    pub fn publish(&self, snapshot: Snapshot) -> Arc<Snapshot> {
        let (generation, fast) = (snapshot.generation, snapshot.fast.clone());
        let old = self.current.swap(Arc::new(snapshot));
        self.generation.store(generation, Ordering::Release);
        self.fast.publish(fast, generation);
        for worker in &self.workers {
            worker.wake_if_sleeping();
        }
        old
    }

    /// The published routes.
    pub fn routes(&self) -> Arc<Routes> {
        self.routes.load_full()
    }

    /// Publishes routes; workers take them over when they get to it.
    pub fn publish_routes(&self, routes: Routes) {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.push(self.routes.swap(Arc::new(routes)));
        self.routes_changed();
        // Nobody can come by one of them any more, so those that are only here stay so.
        retired.retain(|routes| Arc::strong_count(routes) > 1);
    }

    /// Which of the machine's own addresses no rule is to see.
    pub fn locals(&self) -> Arc<Locals> {
        self.locals.load_full()
    }

    /// Says what the machine's own addresses are for packets that come in by a port.
    pub fn set_locals(&self, port: PortId, local: &[IpAddr]) {
        self.locals.rcu(|locals| locals.with(port, local));
        self.routes_changed();
    }

    fn routes_changed(&self) {
        let before = self.routes_generation.fetch_add(1, Ordering::Release);
        self.fast.publish_routes(before + 1, || has_groups(&self.routes()));
        for worker in &self.workers {
            worker.wake_if_sleeping();
        }
    }
}
