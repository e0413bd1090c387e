//! The sessions' ingress hook: the session of a packet is prefetched while its parsed headers are in
//! registers.
//!
//! Theory of operation. `ip4-input` and `ip6-input` give each packet to [`SessionHook`]. If all packets of a
//! vector go to `flow-lookup`, the hook stores one prefetch token for the vector, and `flow-lookup` takes it.
//! If that node gets another vector ([`WholeVector`]), it discards the token and looks up the sessions
//! without it.

use mmb_dpdk::Packet;
use mmb_flow::{FlowRef, Key};
use mmb_packet::{Kind, PlainHeaders};
use mmb_session::Sessions;

use super::state::PrefetchedVector;
use crate::engine::node::vector::{ROUTED_L3, WholeVector};
use crate::engine::snapshot::Snapshot;
use crate::engine::worker::Worker;
use crate::features::ip::hook::{Ingress, IngressHook, InputParts, PlainPacket};

/// The sessions' part in the input nodes.
pub(crate) struct SessionIngress;

/// The sessions' ingress hook.
pub(crate) struct SessionHook<'a> {
    sessions: &'a mut Sessions,
    prefetched: &'a mut Option<PrefetchedVector>,
}

impl Ingress for SessionIngress {
    type Hook<'a> = SessionHook<'a>;

    #[inline(always)]
    fn split(worker: &mut Worker) -> (InputParts<'_>, SessionHook<'_>) {
        let Worker { id, snapshot, routing, handoff, flows, shared, .. } = worker;
        let repairs = &shared.workers[*id].counters.repairs;
        (
            InputParts { id: *id, snapshot, routing, spread: handoff.spread, repairs },
            SessionHook { sessions: &mut flows.sessions, prefetched: &mut flows.prefetched },
        )
    }
}

impl IngressHook for SessionHook<'_> {
    #[inline(always)]
    fn begin(&mut self) {
        *self.prefetched = None;
        self.sessions.begin_prefetch();
    }

    #[inline(always)]
    fn take_plain<H: PlainHeaders>(&mut self, at: usize, packet: &PlainPacket<'_, H>) {
        let PlainPacket { headers, device_hash, port, bytes, .. } = *packet;
        self.sessions.prefetch(at, headers, device_hash, port, bytes);
    }

    fn take_other(&mut self, at: usize, packet: &Packet) {
        let bytes = packet.pkt_len() as u32;
        self.sessions.prefetch_any(at, packet.data(), packet.meta(), packet.port(), bytes);
    }

    #[inline(always)]
    fn end(&mut self, packets: &[&mut Packet], version: u8) {
        let token = self.sessions.end_prefetch(packets.len());
        *self.prefetched = WholeVector::new(packets, version).map(|vector| (token, vector));
    }

    /// NAT takes packets to its addresses.
    fn claims_expired(snapshot: &Snapshot, packet: &mut Packet) -> bool {
        let (head, meta) = packet.data_and_meta();
        meta.session = FlowRef::NONE.0;
        let mut key = Key { kind: meta.kind.0, proto: meta.proto, ..Key::default() };
        let destination = ROUTED_L3 + 16..ROUTED_L3 + 20;
        if meta.kind.l3() == Kind::IP4
            && let Some(to) = head.get(destination)
        {
            key.destination[..4].copy_from_slice(to);
        }
        snapshot.nat.is_nat_destination(&key)
    }
}
