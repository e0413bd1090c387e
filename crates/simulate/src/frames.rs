//! A simulator that takes frames and returns frames, one walk at a time: for tests, and to see what a
//! configuration does to a packet.

use std::collections::VecDeque;
use std::net::IpAddr;

use mmb_dataplane::detached::{DetachedConfig, DetachedEngine, PacketIo, PacketMemory};
use mmb_dataplane::{DEFAULT_SCRATCHPAD, Forwarding, NeighborRequest, PortId, RoutingCounters};
use mmb_dpdk::{HugePages, Mempool, Packet, Slots};
use mmb_packet::DropReason;
use mmb_route::Routes;

use crate::harness::{Harness, HarnessError};

const MEMORY_MB: u32 = 64;

/// A frame and the port where it arrives or leaves.
pub type PortFrame = (PortId, Vec<u8>);

/// Workers that process frames under a clock that the caller sets.
pub struct FrameSimulator {
    workers: Harness<FrameQueue>,
    engine: DetachedEngine,
}

/// Metadata that a device gives to received packets.
#[derive(Clone, Copy, Default)]
struct RxMetadata {
    mark: Option<u32>,
    hash: Option<u32>,
}

/// Frames on their way in and out.
struct FrameQueue {
    pool: Mempool,
    incoming: VecDeque<PortFrame>,
    metadata: RxMetadata,
    outgoing: Vec<PortFrame>,
}

impl PacketIo for FrameQueue {
    fn receive(&mut self, slots: &mut Slots<'_>) {
        while slots.room() > 0
            && let Some((port, frame)) = self.incoming.pop_front()
        {
            // Without a buffer the frame is lost, and the test that misses it fails.
            let Some(mut packet) = self.pool.alloc_from(&frame) else { continue };
            packet.set_port(port.0);
            self.metadata.mark.into_iter().for_each(|mark| packet.set_mark(mark));
            self.metadata.hash.into_iter().for_each(|hash| packet.set_rss_hash(hash));
            let _ = slots.push(packet);
        }
    }

    fn transmit(&mut self, packets: &[&mut Packet]) {
        let frames = packets.iter().map(|packet| (PortId(packet.meta().out_port), packet.to_vec()));
        self.outgoing.extend(frames);
    }
}

impl FrameSimulator {
    /// One worker with this maximum number of sessions. Port ids are plain numbers; no device is opened.
    ///
    /// # Errors
    /// DPDK does not start, or memory is not available.
    pub fn new(forwarding: Forwarding, routes: Routes, sessions: usize) -> Result<Self, HarnessError> {
        Self::with_workers(1, forwarding, routes, sessions)
    }

    /// Several workers that share out the sessions and hand packets over. All frames arrive at the first one.
    ///
    /// # Errors
    /// As [`FrameSimulator::new`].
    pub fn with_workers(
        n: usize,
        forwarding: Forwarding,
        routes: Routes,
        sessions: usize,
    ) -> Result<Self, HarnessError> {
        let memory = PacketMemory::create(MEMORY_MB, HugePages::Never)?;
        let config = DetachedConfig {
            nodes: ["frames-rx", "frames-tx"],
            workers: n,
            is_connected: true,
            sessions,
            scratchpad: DEFAULT_SCRATCHPAD,
            share_scratchpads: false,
            null_port_frame: None,
        };
        let engine = DetachedEngine::new(&memory, config, forwarding, Some(routes))?;
        let workers = Harness::new(&engine, 0..n, |_| {
            Ok(Some(FrameQueue {
                pool: memory.pool(0)?,
                incoming: VecDeque::new(),
                metadata: RxMetadata::default(),
                outgoing: Vec::new(),
            }))
        })?;
        Ok(FrameSimulator { workers, engine })
    }

    /// Brings in frames at a time in milliseconds and returns those that leave.
    pub fn run(&mut self, now: u32, frames: Vec<PortFrame>) -> Vec<PortFrame> {
        self.run_with(RxMetadata::default(), now, frames)
    }

    /// Brings in frames with this mark of the port.
    pub fn run_marked(&mut self, now: u32, mark: u32, frames: Vec<PortFrame>) -> Vec<PortFrame> {
        self.run_with(RxMetadata { mark: Some(mark), hash: None }, now, frames)
    }

    /// Brings in frames with this RSS hash.
    pub fn run_hashed(&mut self, now: u32, hash: u32, frames: Vec<PortFrame>) -> Vec<PortFrame> {
        self.run_with(RxMetadata { mark: None, hash: Some(hash) }, now, frames)
    }

    fn run_with(&mut self, metadata: RxMetadata, now: u32, frames: Vec<PortFrame>) -> Vec<PortFrame> {
        if let Some(queue) = self.workers.first_mut().and_then(|worker| worker.io()) {
            (queue.incoming, queue.metadata) = (frames.into(), metadata);
        }
        let mut outgoing = Vec::new();
        loop {
            let mut has_more = false;
            for worker in self.workers.iter_mut() {
                worker.set_time(now);
                worker.maintain();
                worker.walk();
                if let Some(queue) = worker.io() {
                    outgoing.append(&mut queue.outgoing);
                    has_more |= !queue.incoming.is_empty();
                }
                has_more |= worker.has_emissions() || worker.has_released();
            }
            if !has_more && !self.engine.has_handoffs() {
                return outgoing;
            }
        }
    }

    /// Publishes other routes.
    pub fn publish_routes(&mut self, routes: Routes) {
        self.engine.publish_routes(routes);
    }

    /// Sets the machine's own addresses for packets that arrive at a port, as
    /// [`mmb_dataplane::detached::DetachedEngine::set_locals`] does.
    pub fn set_locals(&mut self, port: PortId, local: &[IpAddr], shared: &[IpAddr]) {
        self.engine.set_locals(port, local, shared);
    }

    /// Publishes other rules and ports.
    pub fn publish(&mut self, forwarding: Forwarding) {
        self.engine.publish(forwarding);
    }

    /// Publishes other rules and ports. Packets with this mark of the port need no session under these rules.
    pub fn publish_marked(&mut self, forwarding: Forwarding, mark: u32) {
        self.engine.publish_marked(forwarding, mark);
    }

    /// Takes the workers' requests to the kernel.
    pub fn neighbor_requests(&self) -> Vec<NeighborRequest> {
        self.engine.neighbor_requests()
    }

    /// Counters of routing.
    pub fn routing_counters(&self) -> RoutingCounters {
        self.engine.routing_counters()
    }

    /// Number of sessions of each worker.
    pub fn sessions(&self) -> Vec<u64> {
        self.workers.iter().map(|worker| worker.session_count()).collect()
    }

    /// Dropped packets by reason; reasons that did not occur are left out.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        self.engine.drops()
    }

    /// Dropped packets that arrived at a port, by reason; reasons that did not occur are left out.
    pub fn port_drops(&self, port: PortId) -> Vec<(DropReason, u64)> {
        self.engine.port_drops(port)
    }

    /// Milliseconds until some worker has work without a packet; `None`: never.
    pub fn next_timer(&self) -> Option<u32> {
        self.workers.iter().filter_map(|worker| worker.next_timer()).min()
    }
}
