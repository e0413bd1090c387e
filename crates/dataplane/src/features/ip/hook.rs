//! Ingress hooks: what a feature does with the packets of `ip4-input` and `ip6-input`.
//!
//! Theory of operation. A feature that applies rules to packets can take each packet over while its parsed
//! headers are in registers, and prefetch what it will need. The nodes are compiled once for each hook, so
//! that the calls are inlined. The graph registers the nodes with each hook ([`InputNodes`]); the choice is
//! made once per vector.

use mmb_dpdk::{Packet, Vector};
use mmb_packet::PlainHeaders;

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

/// The hook of a feature. It takes the packets to which rules apply.
pub(crate) trait IngressHook {
    /// The hook takes packets. If not, its calls are compiled away.
    const IS_ACTIVE: bool;

    /// Begins a vector.
    fn begin(&mut self);

    /// Takes the plain packet at a position. `device_hash`: the RSS hash of the device.
    fn take_plain<H: PlainHeaders>(
        &mut self,
        at: usize,
        headers: &H,
        device_hash: Option<u32>,
        port: u16,
        bytes: u32,
    );

    /// Takes the packet at a position, which is not plain and whose metadata is complete.
    fn take_other(&mut self, at: usize, packet: &Packet);

    /// Ends a vector of one version of IP ([`mmb_packet::Kind::l3`]). All its packets were taken and are sent
    /// to the feature's node as a whole.
    fn end(&mut self, packets: &[&mut Packet], version: u8);

    /// Whether the feature takes an expired packet, one whose TTL does not allow another hop, although routes
    /// lead it to the machine itself.
    fn claims_expired(snapshot: &Snapshot, packet: &mut Packet) -> bool;
}

/// No feature.
pub(crate) struct NoIngress;

/// The hook of no feature.
pub(crate) struct NoHook;

impl Ingress for NoIngress {
    type Hook<'a> = NoHook;

    #[inline(always)]
    fn split(worker: &mut Worker) -> (InputParts<'_>, NoHook) {
        let Worker { id, snapshot, routing, handoff, shared, .. } = worker;
        let repairs = &shared.workers[*id].counters.repairs;
        (InputParts { id: *id, snapshot, routing, spread: handoff.spread, repairs }, NoHook)
    }
}

impl IngressHook for NoHook {
    const IS_ACTIVE: bool = false;

    #[inline(always)]
    fn begin(&mut self) {}

    #[inline(always)]
    fn take_plain<H: PlainHeaders>(&mut self, _: usize, _: &H, _: Option<u32>, _: u16, _: u32) {}

    #[inline(always)]
    fn take_other(&mut self, _: usize, _: &Packet) {}

    #[inline(always)]
    fn end(&mut self, _: &[&mut Packet], _: u8) {}

    #[inline(always)]
    fn claims_expired(_: &Snapshot, _: &mut Packet) -> bool {
        false
    }
}
