//! The ring to the thread that writes packets to the kernel's interfaces.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::time::Duration;

use mmb_dpdk::{Burst, RingReceiver, RingSender, ring};

use super::limit::PuntBuckets;
use crate::engine::counters::DropCounters;
use crate::engine::error::EngineError;
use crate::engine::thread::failure::Patience;
use crate::engine::thread::waker::Waker;

/// Packets that wait for the thread; more than the buckets of all classes hold by default.
const RING: usize = 4096;

/// What workers share for packets to the kernel.
#[derive(Default)]
pub(crate) struct PuntShared {
    /// The limits' buckets.
    pub buckets: PuntBuckets,
    /// The ring to the thread. None: workers transmit the packets themselves.
    pub queue: Option<PuntQueue>,
}

/// The sending side of the ring, and the state of the thread.
pub(crate) struct PuntQueue {
    ring: RingSender,
    pub waker: Waker,
    /// Whether the thread sleeps.
    pub sleeping: AtomicBool,
    /// Counts begins and ends of bursts.
    pub bursts: AtomicU64,
    /// Packets that the thread dropped.
    pub drops: DropCounters,
}

impl PuntQueue {
    /// A queue and the receiving side of its ring.
    ///
    /// # Errors
    /// There is no memory or no descriptor.
    pub fn new() -> Result<(PuntQueue, RingReceiver), EngineError> {
        let (sender, receiver) = ring("packets for the kernel", RING)?;
        let waker = Waker::blocking().map_err(EngineError::EventFd)?;
        let queue = PuntQueue {
            ring: sender,
            waker,
            sleeping: false.into(),
            bursts: 0.into(),
            drops: DropCounters::default(),
        };
        Ok((queue, receiver))
    }

    /// Whether the thread sleeps, and has written all packets of this worker.
    ///
    /// The thread sets its flag behind the last write, and clears it before it takes packets out of the
    /// ring. So if the ring is empty and the flag is set afterwards, packets that were in it are written.
    /// Packets of other workers may come meanwhile. They are of other flows.
    pub fn is_idle(&self) -> bool {
        let is_empty = self.ring.is_empty();
        fence(SeqCst);
        is_empty && self.sleeping.load(SeqCst)
    }

    /// Gives packets of a burst to the thread. Packets that do not fit stay in the burst.
    pub fn send(&self, burst: &mut Burst) {
        self.ring.send_burst(burst);
        fence(SeqCst);
        if self.sleeping.load(SeqCst) {
            self.waker.wake();
        }
    }

    /// Ends the thread's sleep.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Waits until the thread uses no snapshot that was replaced before this call, but not for ever: an
    /// interface may hold the thread. Then the thread itself frees the snapshot at the end of its burst.
    pub fn wait_unused(&self, stop: &AtomicBool) {
        fence(SeqCst);
        let burst = self.bursts.load(SeqCst);
        let mut patience = Patience::new();
        while !patience.is_over()
            && burst % 2 == 1
            && self.bursts.load(SeqCst) == burst
            && !stop.load(Relaxed)
        {
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}
