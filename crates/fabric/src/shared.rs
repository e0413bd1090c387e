//! What the engine keeps of a process: state, counters, memory. No process sees it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use mmb_nf::process::PacketMemory;
use mmb_nf::{LineSource, OnFailure};

use crate::doorbell::{Bell, EventBell};
use crate::layout::Geometry;
use crate::memory::SharedMemory;
use crate::pool::Pool;

/// The engine's packet memory, once it is known.
pub type Packets = Arc<OnceLock<Arc<dyn PacketMemory>>>;

/// The memory of a domain.
pub struct DomainMemory {
    pub pool: Arc<Pool>,
    pub memory: Arc<SharedMemory>,
    pub on_failure: OnFailure,
    /// What the processes of a `zero-copy` domain read besides. None: the domain is private.
    pub packets: Option<Packets>,
}

/// Counters of a worker. No two workers write to the same cache line.
#[derive(Default)]
#[repr(align(128))]
pub struct LinkCounters {
    /// Descriptors that were sent.
    pub sent: AtomicU64,
    /// Packets that stayed where they were.
    pub in_place: AtomicU64,
    /// How often the process was woken up.
    pub wakeups: AtomicU64,
    /// Buffers with packets or events of the worker.
    pub buffers: AtomicU64,
    /// The state of the process that the worker has seen ([`Shared::state`]).
    pub attached: AtomicU64,
    /// Buffers that this process has.
    pub in_flight: AtomicU64,
    /// How often the worker has looked for descriptors.
    pub polls: AtomicU64,
    /// Descriptors of the process that were accepted.
    pub accepted: AtomicU64,
    /// Descriptors that were refused.
    pub refused: AtomicU64,
    /// Packets for which there was no room.
    pub full: AtomicU64,
    /// Packets that were in a process when it ended.
    pub lost: AtomicU64,
}

/// What the workers and the thread of a process share.
pub struct Shared {
    pub domain: Arc<DomainMemory>,
    pub geometry: Geometry,
    pub pads: Arc<SharedMemory>,
    /// The function changes no packet.
    pub is_read_only: bool,
    /// Writes the lines of the function. None: it has no log.
    pub log: Option<Arc<dyn LineSource>>,
    /// The number of the process, doubled, and one more while it runs.
    pub state: AtomicU64,
    /// Wakes the process.
    pub bell: EventBell,
    /// Wakes the thread that looks after the process.
    pub attention: EventBell,
    pub counters: Box<[LinkCounters]>,
    /// Whether the thread sleeps without a limit, and is to be woken with the next packets.
    pub keeper: Arc<[AtomicU64]>,
    last_failure: Mutex<Option<String>>,
    kill: AtomicU64,
    rings: Mutex<Option<Arc<SharedMemory>>>,
}

impl Shared {
    pub fn new(
        domain: Arc<DomainMemory>,
        geometry: Geometry,
        pads: Arc<SharedMemory>,
        is_read_only: bool,
        log: Option<Arc<dyn LineSource>>,
    ) -> std::io::Result<Shared> {
        Ok(Shared {
            domain,
            geometry,
            pads,
            is_read_only,
            log,
            state: AtomicU64::new(0),
            bell: EventBell::new()?,
            attention: EventBell::new()?,
            counters: (0..geometry.workers).map(|_| LinkCounters::default()).collect(),
            keeper: [AtomicU64::new(0)].into(),
            last_failure: Mutex::new(None),
            kill: AtomicU64::new(0),
            rings: Mutex::new(None),
        })
    }

    /// Returns the memory in which the process reads packets. None: they are copied for it.
    pub fn packets(&self) -> Option<&Arc<dyn PacketMemory>> {
        self.domain.packets.as_ref().filter(|_| self.is_read_only)?.get()
    }

    /// Whether a state is that of a process that runs.
    pub fn is_up(state: u64) -> bool {
        state & 1 != 0
    }

    /// Returns the rings of the process that runs.
    pub fn rings(&self) -> Option<Arc<SharedMemory>> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A process runs, with these rings.
    pub fn set_up(&self, rings: &Arc<SharedMemory>) {
        *self.rings.lock().unwrap_or_else(PoisonError::into_inner) = Some(rings.clone());
        let state = self.state.load(Relaxed) | 1;
        self.state.store(state, Release);
    }

    /// The process has ended.
    pub fn set_down(&self) {
        let state = (self.state.load(Relaxed) | 1) + 1;
        self.state.store(state, Release);
        *self.rings.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Notes why the process has ended, or has not started.
    pub fn set_failure(&self, reason: &str) {
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
    }

    /// Returns why the last process ended, or has not started.
    pub fn last_failure(&self) -> Option<String> {
        self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks for the end of a process that breaks the rules.
    pub fn request_kill(&self) {
        self.kill.store(self.state.load(Acquire), Release);
        self.attention.ring();
    }

    /// Whether the end of the process that runs was asked for.
    pub fn is_kill_requested(&self) -> bool {
        let state = self.state.load(Acquire);
        Self::is_up(state) && self.kill.load(Acquire) == state
    }
}
