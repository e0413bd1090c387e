//! One worker: the state that the nodes of its graph share, and the thread that walks the graph.
//!
//! Theory of operation. A worker owns everything it touches: its receive queues, batch buffers, sessions, counters and
//! random numbers. What crosses threads is the published snapshot (read), two rings per worker (packets of its flows that
//! another worker received; packets for ports it sends on), a mailbox, and a sleep flag. Between two walks it takes over a
//! new snapshot, reads the clock, and lets some of the sessions end whose time has come; a walk is one instant. The thread polls while there is
//! traffic. When nothing has come for [`SPIN`], or for less if the kernel has most of it, it sets its sleep flag, looks once
//! more, and sleeps on the file descriptors of its ports and an eventfd that others write to when they leave it work; ports without a descriptor
//! are looked at again after a pause that grows while nothing comes.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;
use std::time::{Duration, Instant};

use mmb_dpdk::{Burst, FastGranularity, Graph, Mbuf, Mempool, RingReceiver};
use mmb_fastpath::{FastCounters, FlowLearner};
use mmb_flow::ErrorBudget;
use mmb_packet::DropReason;
use mmb_policy::Batch;
use mmb_route::Routes;
use mmb_session::{ReleasedFragment, Sessions};

use crate::engine::config::MAX_PORTS;
use crate::engine::counters::{Counter, DropCounters, ReasonCounters, RoutingTally};
use crate::engine::packet_io::PacketIo;
use crate::engine::shared::{Inbox, Shared, has_groups};
use crate::engine::sleep::Sleeper;
use crate::engine::snapshot::Snapshot;
use crate::engine::vector::VECTOR;
use crate::features::ip::locals::Locals;
use crate::features::route::requests::Asked;
use crate::features::route::waiting::Waiting;

/// How long a worker polls without a packet before it sleeps.
const SPIN: Duration = Duration::from_micros(200);
/// … while flows are learnt by the kernel. What comes here then is mostly first packets, each with a pause behind it: to poll meanwhile
/// would take from the kernel, and from whoever else runs here, the time that it needs to send on the rest.
const SPIN_BESIDE_KERNEL: Duration = Duration::from_micros(3);
/// Bytes of the longest IP packet with its link header and tags; longer frames make the scratch buffer grow once.
const SCRATCH: usize = 65_536 + 128;
/// Milliseconds after which routes are taken for lasting: while they change all the time, nothing is gained by what sessions keep of
/// them, and each packet would pay for it.
const CALM: u32 = 100;
/// Walks between two looks at the clock while nothing comes.
const WALKS_PER_CLOCK: u32 = 16;

/// Sessions that end between two walks, at most.
const ENDS: usize = 64;

/// What one worker counts.
#[derive(Debug, Default)]
pub(crate) struct WorkerCounters {
    pub drops: DropCounters,
    pub routing: RoutingTally,
    /// Packets that went on as they came because their edits failed.
    pub unedited: ReasonCounters,
    /// Frames that functions of chains have made and that were sent.
    pub emitted: Counter,
    /// … that could not be: counted among the drops, though no packet is missing.
    pub unsent: Counter,
    /// Transport checksums completed for kernel peers.
    pub repairs: Counter,
    /// Times the worker went to sleep.
    pub sleeps: Counter,
    /// What the kernel does by itself.
    pub fast: FastCounters,
}

/// A small, fast generator for `drop p` (xorshift64*); not for secrets.
pub(crate) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed | 1)
    }

    #[inline]
    pub fn next(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }
}

/// What a worker takes the time from.
pub(crate) enum Clock {
    /// Time that goes by, from here on.
    Runs(Instant),
    /// Milliseconds that somebody sets.
    Stands(u32),
}

impl Clock {
    /// Milliseconds, which begin again at 0 after 49 days.
    fn now(&self) -> u32 {
        match self {
            Clock::Runs(origin) => origin.elapsed().as_millis() as u32,
            Clock::Stands(now) => *now,
        }
    }
}

/// The state of one worker, shared by the nodes of its graph.
pub(crate) struct Worker {
    pub id: usize,
    pub shared: Arc<Shared>,
    pub snapshot: Arc<Snapshot>,
    pub routes: Arc<Routes>,
    routes_generation: u64,
    /// When they were taken over.
    routes_since: u32,
    /// The machine's own addresses, of which neither rules nor sessions are to know.
    pub locals: Arc<Locals>,
    /// The Ethernet address of each routed port, as [`macs`] has it.
    pub macs: [u64; MAX_PORTS],
    /// Packets that wait for the Ethernet address of their next hop.
    pub waiting: Waiting,
    /// What the kernel has been asked for of late.
    pub asked: Asked,
    /// ICMP errors that routing may send.
    pub errors: ErrorBudget,
    /// Packets that are about to be cut into fragments.
    pub long: Vec<Mbuf>,
    /// A fragment in the making.
    pub piece: Vec<u8>,
    /// Buffers for packets made here; without it, none are.
    pub pool: Option<Mempool>,
    pub batch: Box<Batch>,
    /// The same, for the rules that are asked for each packet of a session.
    pub per_packet: Box<Batch>,
    /// The sessions of this worker's flows.
    pub sessions: Sessions,
    /// What functions of chains had made in vain as of the last look.
    pub emissions_lost: u64,
    /// Fragments that wait for the first one of their datagram, in the places that the sessions give out.
    pub held: Box<[Option<Mbuf>]>,
    pub clock: Clock,
    /// The time of this walk, in milliseconds of the clock.
    pub now: u32,
    /// There is something to do for the sessions at once, packets or none.
    busy: bool,
    /// There are sessions, though the snapshot does not need them, or timers that run.
    lingering: bool,
    /// Edit lists of the packets of this walk: rule slots in rule order.
    pub edits: Vec<u32>,
    /// Packets of several buffers in one piece, for rules that look at bytes: of the longest IP packet with its link header.
    pub scratch: Vec<u8>,
    pub random: Random,
    /// Workers among which flows are spread by software: 1 when each receives its own flows already.
    pub spread: u32,
    /// Packets from other workers.
    pub inbox: Option<Inbox<RingReceiver>>,
    /// Packets on their way to a port or to another worker; taken out while a node fills it.
    pub burst: Option<Burst>,
    /// Packets received since the last look.
    pub received: usize,
    /// The port that is polled first.
    pub first_port: usize,
    /// The flows that the kernel has from this worker.
    pub fast: FlowLearner,
    /// Source and sink of a worker without ports.
    pub io: Option<Box<dyn PacketIo>>,
}

impl Worker {
    /// A worker that receives its own flows only.
    pub fn new(id: usize, shared: Arc<Shared>, seed: u64, mut sessions: Sessions) -> Worker {
        let snapshot = shared.current();
        sessions.adopt(&snapshot.of(id), &snapshot.of(id));
        let routes_generation = shared.routes_generation.load(Acquire);
        let routes = shared.routes();
        let mut fast = FlowLearner::default();
        fast.adopt(snapshot.fast.as_ref(), (id, shared.workers.len()), &mut sessions);
        Worker {
            macs: macs(&routes),
            locals: shared.locals(),
            routes,
            routes_generation,
            routes_since: 0,
            waiting: Waiting::default(),
            asked: Asked::default(),
            errors: ErrorBudget::new(0),
            long: Vec::with_capacity(VECTOR),
            piece: Vec::with_capacity(SCRATCH),
            pool: None,
            id,
            spread: 1,
            inbox: None,
            burst: Some(Burst::new()),
            snapshot,
            shared,
            batch: Box::default(),
            per_packet: Box::default(),
            sessions,
            emissions_lost: 0,
            held: (0..Sessions::TICKETS).map(|_| None).collect(),
            clock: Clock::Runs(Instant::now()),
            now: 0,
            busy: false,
            lingering: false,
            edits: Vec::with_capacity(1024),
            scratch: Vec::with_capacity(SCRATCH),
            random: Random::new(seed),
            received: 0,
            first_port: 0,
            fast,
            io: None,
        }
    }

    #[inline]
    pub fn counters(&self) -> &WorkerCounters {
        &self.shared.workers[self.id].counters
    }

    /// Does what is to be done between two walks. Whether a newly published snapshot was taken over.
    #[inline]
    pub fn begin(&mut self) -> bool {
        self.edits.clear();
        let published = self.shared.generation.load(Acquire) != self.snapshot.generation;
        if self.shared.routes_generation.load(Acquire) != self.routes_generation {
            self.take_over_routes();
        }
        let asked = !self.shared.workers[self.id].mailbox.is_empty();
        if published || asked || self.snapshot.flows || self.lingering || !self.waiting.is_empty() {
            self.tend(published);
        }
        if published {
            let place = (self.id, self.shared.workers.len());
            self.fast.adopt(self.snapshot.fast.as_ref(), place, &mut self.sessions);
        }
        if self.fast.needs_maintenance() {
            self.tend_fast();
        }
        published
    }

    #[inline(never)]
    fn tend_fast(&mut self) {
        let Worker { id, shared, snapshot, fast, clock, sessions, .. } = self;
        let (time, counters) = ((clock.now(), shared.fast.in_force()), &shared.workers[*id].counters.fast);
        fast.maintain(time, sessions, &snapshot.of(*id), counters);
    }

    /// The generation of what the kernel learns from this walk.
    pub fn fast_generation(&self) -> u64 {
        let spread = has_groups(&self.routes);
        let granularity =
            self.snapshot.fast.as_ref().map_or(FastGranularity::Flow, |config| config.granularity(spread));
        self.shared.fast.generation(self.snapshot.generation, self.routes_generation, granularity)
    }

    /// Whether routes last long enough at present for sessions to keep what they say.
    pub fn has_calm_routes(&self) -> bool {
        self.now.wrapping_sub(self.routes_since) >= CALM
    }

    #[cold]
    fn take_over_routes(&mut self) {
        // In this order: routes that are newer than their number are only taken over once more.
        self.routes_generation = self.shared.routes_generation.load(Acquire);
        self.routes = self.shared.routes();
        self.macs = macs(&self.routes);
        self.locals = self.shared.locals();
        self.sessions.routes_changed();
        self.routes_since = self.clock.now();
        self.waiting.look_again();
    }

    /// The same, where it takes a look at the clock.
    fn tend(&mut self, published: bool) {
        self.now = self.clock.now();
        if published {
            let new = self.shared.current();
            self.sessions.adopt(&self.snapshot.of(self.id), &new.of(self.id));
            self.snapshot = new;
        }
        self.busy = self.sessions.tick(self.now, &self.snapshot.of(self.id), ENDS);
        if !self.snapshot.flows {
            self.busy |= self.sessions.clear_batch(ENDS, &self.snapshot.of(self.id));
        }
        while let Some(ReleasedFragment::Retry(place) | ReleasedFragment::TimedOut(place)) =
            self.sessions.next_released_fragment()
        {
            self.lose(place);
        }
        if let Some(errand) = self.shared.workers[self.id].mailbox.take() {
            errand(&mut self.sessions, &self.snapshot.of(self.id), self.now);
        }
        self.lingering = self.timers().is_some();
    }

    /// Milliseconds until there is something to do for the sessions if no packet comes.
    pub fn timers(&self) -> Option<u32> {
        if self.busy {
            return Some(0);
        }
        let timers = [self.sessions.next_tick(), self.waiting.next_tick(self.now)];
        timers.into_iter().flatten().min()
    }

    /// Reads the clock, unless that was done before this walk: for what is rare.
    pub fn tell_time(&mut self) {
        if !self.snapshot.flows {
            self.now = self.clock.now();
        }
    }

    /// Whether fragments wait.
    pub fn holds(&self) -> bool {
        self.held.iter().any(Option::is_some)
    }

    /// Drops the fragment that waits in `place`.
    pub fn lose(&mut self, place: u32) {
        if let Some(packet) = self.held.get_mut(place as usize).and_then(Option::take) {
            self.counters().drops.add(packet.port(), DropReason::FragmentLost as u8, 1);
            drop(packet);
        }
    }

    /// Says that nothing of an older snapshot is in use any more.
    fn acknowledge(&self) {
        self.shared.workers[self.id].seen.store(self.snapshot.generation, Release);
    }
}

/// In the place of an Ethernet address where there is none; no frame's is like that.
const NO_MAC: u64 = u64::MAX;

/// The Ethernet addresses of routed ports: what the first eight bytes of a frame to them are as a little-endian number, but
/// for the upper two.
fn macs(routes: &Routes) -> [u64; MAX_PORTS] {
    std::array::from_fn(|port| match routes.interface(port as u16) {
        Some(face) => {
            let [a, b, c, d, e, f] = face.mac;
            u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
        }
        None => NO_MAC,
    })
}

/// Walks the graph until the engine stops.
pub(crate) fn run(graph: &mut Graph<Worker>, sleeper: &mut Sleeper) {
    let shared = graph.state().shared.clone();
    let mut idle_since = Instant::now();
    let mut idle_walks = 0u32;
    sleeper.watch(graph.state());
    while !shared.stop.load(Relaxed) {
        if graph.state_mut().begin() {
            sleeper.watch(graph.state());
            graph.state().acknowledge();
        }
        graph.walk();
        if std::mem::take(&mut graph.state_mut().received) > 0 {
            idle_walks = 0;
            sleeper.traffic();
            continue;
        }
        idle_walks += 1;
        if idle_walks == 1 {
            idle_since = Instant::now();
        } else if idle_walks.is_multiple_of(WALKS_PER_CLOCK) && idle_since.elapsed() >= spin(graph.state()) {
            sleep(graph, sleeper);
            idle_walks = WALKS_PER_CLOCK - 1;
        }
        pause(graph.state());
    }
}

/// How long to poll without a packet.
fn spin(worker: &Worker) -> Duration {
    if worker.fast.is_learning() { SPIN_BESIDE_KERNEL } else { SPIN }
}

/// Between two walks without a packet. Beside the kernel, whoever else wants the processor has it first: that is mostly who brings the next
/// packet, and to find it then takes less than to be woken for it.
fn pause(worker: &Worker) {
    if worker.fast.is_learning() {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

/// Says that the worker sleeps, makes sure that nothing came in between, and sleeps.
fn sleep(graph: &mut Graph<Worker>, sleeper: &mut Sleeper) {
    let worker = graph.state_mut();
    let me = &worker.shared.workers[worker.id];
    me.sleeping.store(true, SeqCst);
    fence(SeqCst);
    let pending = me.inbox_len() > 0
        || worker.shared.generation.load(Acquire) != worker.snapshot.generation
        || worker.shared.routes_generation.load(Acquire) != worker.routes_generation
        || worker.shared.stop.load(Relaxed)
        || !me.mailbox.is_empty()
        || worker.busy
        || worker.fast.is_sweeping();
    if !pending {
        me.counters.sleeps.add(1);
        worker.sessions.flush(&worker.snapshot.of(worker.id));
        let timers = [worker.timers(), worker.fast.next_sweep()];
        sleeper.sleep(timers.into_iter().flatten().min());
    }
    me.sleeping.store(false, SeqCst);
}
