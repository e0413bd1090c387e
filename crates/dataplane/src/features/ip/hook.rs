//! Ingress hooks: what a feature does with the packets of `ip4-input` and `ip6-input`.
//!
//! Theory of operation. A feature that applies rules to packets can take each packet over while its parsed
//! headers are in registers, and prefetch what it will need. The nodes are compiled once for each hook, so
//! that the calls are inlined. The graph registers the nodes with each hook ([`InputNodes`]); the choice is
//! made once per vector.

use mmb_dpdk::{Packet, Vector};
use mmb_packet::{Meta, PlainHeaders};

use super::locals::LocalAddresses;
use crate::engine::counters::Counter;
use crate::engine::snapshot::Snapshot;
use crate::engine::worker::Worker;
use crate::features::route::state::RoutingState;

/// `ip4-input` and `ip6-input` with one hook.
#[derive(Clone, Copy)]
pub(crate) struct InputNodes {
    pub ip4: fn(&mut Worker, Vector<'_>),
    pub ip6: fn(&mut Worker, Vector<'_>),
}

/// The parts of a worker that the input nodes use themselves.
pub(crate) struct InputParts<'a> {
    pub id: usize,
    pub snapshot: &'a Snapshot,
    pub routing: &'a RoutingState,
    /// See [`crate::engine::handoff::Handoff::spread`].
    pub spread: u32,
    /// Counts completed checksums.
    pub repairs: &'a Counter,
}

impl InputParts<'_> {
    pub fn locals(&self) -> &LocalAddresses {
        &self.routing.locals
    }
}

/// A feature that has a hook.
pub(crate) trait Ingress {
    type Hook<'a>: IngressHook;

    /// Borrows the parts of the nodes and those of the hook.
    fn split(worker: &mut Worker) -> (InputParts<'_>, Self::Hook<'_>);
}

/// A plain packet with its parsed headers.
pub(crate) struct PlainPacket<'a, H> {
    pub headers: &'a H,
    /// The beginning of the frame.
    pub data: &'a [u8],
    pub meta: &'a Meta,
    /// The RSS hash of the device.
    pub device_hash: Option<u32>,
    /// The input port.
    pub port: u16,
    /// Length of the frame.
    pub bytes: u32,
}

impl<'a, H> PlainPacket<'a, H> {
    /// A packet with these headers.
    pub fn new(packet: &'a Packet, headers: &'a H) -> PlainPacket<'a, H> {
        let (data, meta, device_hash) = (packet.data(), packet.meta(), packet.rss_hash());
        let (port, bytes) = (packet.port(), packet.pkt_len() as u32);
        PlainPacket { headers, data, meta, device_hash, port, bytes }
    }
}

/// The hook of a feature. It takes the packets to which rules apply.
pub(crate) trait IngressHook {
    /// Begins a vector.
    fn begin(&mut self);

    /// Takes the packet at a position.
    fn take_plain<H: PlainHeaders>(&mut self, at: usize, packet: &PlainPacket<'_, H>);

    /// Takes the packet at a position, which is not plain and whose metadata is complete.
    fn take_other(&mut self, at: usize, packet: &Packet);

    /// Ends a vector of one version of IP ([`mmb_packet::Kind::l3`]). All its packets were taken and are sent
    /// to the feature's node as a whole.
    fn end(&mut self, packets: &[&mut Packet], version: u8);

    /// Whether the feature takes an expired packet, one whose TTL does not allow another hop, although routes
    /// lead it to the machine itself.
    fn claims_expired(snapshot: &Snapshot, packet: &mut Packet) -> bool;
}
