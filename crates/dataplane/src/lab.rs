//! One detached worker that takes and returns frames, for unit tests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use mmb_dpdk::{HugePages, Mempool, Packet, Slots, ThreadGuard, register_thread};
use mmb_policy::ElementChange;
use mmb_route::Routes;

use crate::engine::config::{DEFAULT_SCRATCHPAD, Forwarding, PortId};
use crate::engine::detached::{DetachedConfig, DetachedEngine, DetachedWorker, PacketIo, PacketMemory};
use crate::engine::error::EngineError;
use crate::engine::shared::Shared;
use mmb_fastpath::FastPathConfig;

const MEMORY_MB: u32 = 64;

/// Serializes tests: DPDK starts once per process, and a lab takes half of its memory.
pub(crate) static TURN: Mutex<()> = Mutex::new(());

/// A worker of an engine; tests bring in frames and look at what leaves.
pub(crate) struct Lab {
    worker: DetachedWorker<Frames>,
    engine: DetachedEngine,
    _registration: ThreadGuard,
}

/// Frames on their way in and out, with their ports.
struct Frames {
    pool: Mempool,
    incoming: VecDeque<(PortId, Vec<u8>)>,
    outgoing: Vec<(PortId, Vec<u8>)>,
    /// Bytes of payload of the segments of frames that arrive, which are large ones. 0: they are ordinary.
    segment_size: u16,
}

impl PacketIo for Frames {
    fn receive(&mut self, slots: &mut Slots<'_>) {
        while slots.room() > 0
            && let Some((port, frame)) = self.incoming.pop_front()
        {
            let mut packet = self.pool.alloc_from(&frame).expect("a packet buffer");
            packet.set_port(port.0);
            if self.segment_size != 0 {
                packet.set_large(self.segment_size);
            }
            let _ = slots.push(packet);
        }
    }

    fn transmit(&mut self, packets: &[&mut Packet]) {
        let frames = packets.iter().map(|packet| (PortId(packet.meta().out_port), packet.to_vec()));
        self.outgoing.extend(frames);
    }
}

impl Lab {
    /// A worker for this number of sessions.
    pub fn new(forwarding: Forwarding, routes: Routes, sessions: usize) -> Result<Lab, EngineError> {
        let memory = PacketMemory::create(MEMORY_MB, HugePages::Never)?;
        let config = DetachedConfig {
            nodes: ["lab-rx", "lab-tx"],
            workers: 1,
            is_connected: false,
            sessions,
            scratchpad: DEFAULT_SCRATCHPAD,
            share_scratchpads: false,
            null_port_frame: None,
        };
        let engine = DetachedEngine::new(&memory, config, forwarding, Some(routes))?;
        let registration = register_thread()?;
        let pool = memory.pool(0)?;
        let io = Frames { pool, incoming: VecDeque::new(), outgoing: Vec::new(), segment_size: 0 };
        Ok(Lab { worker: engine.worker(0, Some(io))?, engine, _registration: registration })
    }

    /// Frames that arrive are large ones, with segments of so many bytes of payload.
    pub fn receive_large(&mut self, segment_size: u16) {
        self.worker.io().expect("frames").segment_size = segment_size;
    }

    /// Brings in frames at a time in milliseconds and returns those that leave.
    pub fn run(&mut self, now: u32, frames: Vec<(PortId, Vec<u8>)>) -> Vec<(PortId, Vec<u8>)> {
        self.worker.io().expect("frames").incoming = frames.into();
        loop {
            self.worker.set_time(now);
            self.worker.maintain();
            self.worker.walk();
            let more = self.worker.has_emissions() || self.worker.has_released();
            let io = self.worker.io().expect("frames");
            if io.incoming.is_empty() && !more {
                return std::mem::take(&mut io.outgoing);
            }
        }
    }

    /// Publishes other rules and ports with this fast path.
    pub fn publish_fast(&mut self, forwarding: Forwarding, fast: FastPathConfig) {
        self.engine.publish_fast(forwarding, fast);
    }

    /// Publishes rules that differ by a change of elements of sets, with this fast path.
    pub fn publish_fast_elements(
        &mut self,
        forwarding: Forwarding,
        fast: Arc<FastPathConfig>,
        change: ElementChange,
    ) {
        self.engine.publish_fast_elements(forwarding, fast, change);
    }

    /// Publishes other routes.
    pub fn publish_routes(&mut self, routes: Routes) {
        self.engine.publish_routes(routes);
    }

    /// Number of sessions.
    pub fn sessions(&self) -> Vec<u64> {
        vec![self.worker.session_count()]
    }

    /// What workers share.
    pub fn shared(&self) -> &Shared {
        self.engine.shared()
    }

    /// The states of the sessions, as `show connections` prints them.
    pub fn states(&self) -> Vec<&'static str> {
        self.worker.session_states()
    }
}
