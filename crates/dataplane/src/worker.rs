//! One worker: the state that the nodes of its graph share, and the thread that walks the graph.
//!
//! Theory of operation. A worker owns everything it touches: its receive queues, batch buffers, counters and random
//! numbers. What crosses threads is the published snapshot (read), two rings per worker (packets of its flows that
//! another worker received; packets for ports it sends on), and a sleep flag. The thread polls while there is
//! traffic. When nothing has come for [`SPIN`], it sets its sleep flag, looks once more, and sleeps on the file
//! descriptors of its ports and an eventfd that others write to when they leave it work; ports without a descriptor
//! are looked at again after a pause that grows while nothing comes.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;
use std::time::{Duration, Instant};

use mmb_dpdk::{Burst, Graph, RingReceiver};
use mmb_policy::Batch;

use crate::counters::{Counter, ReasonCounters};
use crate::shared::{Inbox, Shared};
use crate::sleep::Sleeper;
use crate::snapshot::Snapshot;

/// How long a worker polls without a packet before it sleeps.
const SPIN: Duration = Duration::from_micros(200);
/// Bytes of the longest IP packet with its link header and tags; longer frames make the scratch buffer grow once.
const SCRATCH: usize = 65_536 + 128;
/// Walks between two looks at the clock while nothing comes.
const WALKS_PER_CLOCK: u32 = 64;

/// What one worker counts.
#[derive(Debug, Default)]
pub(crate) struct WorkerCounters {
    pub drops: ReasonCounters,
    /// Packets that went on as they came because their edits failed.
    pub unedited: ReasonCounters,
    /// Transport checksums completed for kernel peers.
    pub repairs: Counter,
    /// Times the worker went to sleep.
    pub sleeps: Counter,
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

/// The state of one worker, shared by the nodes of its graph.
pub(crate) struct Worker {
    pub id: usize,
    pub shared: Arc<Shared>,
    pub snapshot: Arc<Snapshot>,
    pub batch: Box<Batch>,
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
    /// Source and sink of replay and bench.
    pub ends: Option<Box<dyn std::any::Any>>,
}

impl Worker {
    /// A worker that receives its own flows only.
    pub fn new(id: usize, shared: Arc<Shared>, seed: u64) -> Worker {
        Worker {
            id,
            spread: 1,
            inbox: None,
            burst: Some(Burst::new()),
            snapshot: shared.current(),
            shared,
            batch: Box::default(),
            edits: Vec::with_capacity(1024),
            scratch: Vec::with_capacity(SCRATCH),
            random: Random::new(seed),
            received: 0,
            first_port: 0,
            ends: None,
        }
    }

    #[inline]
    pub fn counters(&self) -> &WorkerCounters {
        &self.shared.workers[self.id].counters
    }

    /// The worker that a flow belongs to: the hash scaled to the number of workers, without a division.
    #[inline]
    pub fn owner_of_flow(&self, hash: u32) -> usize {
        match self.spread {
            1 => self.id,
            n => ((u64::from(hash) * u64::from(n)) >> 32) as usize,
        }
    }

    /// Takes over a newly published snapshot, if there is one; to be called between walks only.
    #[inline]
    pub fn adopt(&mut self) -> bool {
        self.edits.clear();
        if self.shared.generation.load(Acquire) == self.snapshot.generation {
            return false;
        }
        self.snapshot = self.shared.current();
        true
    }

    /// Says that nothing of an older snapshot is in use any more.
    fn acknowledge(&self) {
        self.shared.workers[self.id].seen.store(self.snapshot.generation, Release);
    }
}

/// Walks the graph until the engine stops.
pub(crate) fn run(graph: &mut Graph<Worker>, sleeper: &mut Sleeper) {
    let shared = graph.state().shared.clone();
    let mut idle_since = Instant::now();
    let mut idle_walks = 0u32;
    sleeper.watch(graph.state());
    while !shared.stop.load(Relaxed) {
        if graph.state_mut().adopt() {
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
        } else if idle_walks.is_multiple_of(WALKS_PER_CLOCK) && idle_since.elapsed() >= SPIN {
            sleep(graph, sleeper);
            idle_walks = WALKS_PER_CLOCK - 1;
        }
        std::hint::spin_loop();
    }
}

/// Says that the worker sleeps, makes sure that nothing came in between, and sleeps.
fn sleep(graph: &mut Graph<Worker>, sleeper: &mut Sleeper) {
    let worker = graph.state();
    let me = &worker.shared.workers[worker.id];
    me.sleeping.store(true, SeqCst);
    fence(SeqCst);
    let pending = me.inbox_len() > 0
        || worker.shared.generation.load(Acquire) != worker.snapshot.generation
        || worker.shared.stop.load(Relaxed);
    if !pending {
        me.counters.sleeps.add(1);
        sleeper.sleep();
    }
    me.sleeping.store(false, SeqCst);
}
