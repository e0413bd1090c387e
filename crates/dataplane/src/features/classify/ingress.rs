//! The ingress hook of `classify`: a packet's window is filled while the packet's parsed headers are in
//! registers.
//!
//! Theory of operation. `ip4-input` and `ip6-input` give each packet to [`WindowHook`]. So `classify` need
//! not read the packets again: those of a vector exceed the first-level cache. If all packets of a vector go
//! to `classify`, the hook stores this vector. If that node gets another one ([`WholeVector`]), it fills the
//! windows itself, and so it does if rules read the output port.

use mmb_dpdk::Packet;
use mmb_packet::{PlainHeaders, fill_plain_window, fill_window};
use mmb_policy::Batch;

use crate::engine::node::vector::{VECTOR, WholeVector};
use crate::engine::snapshot::Snapshot;
use crate::engine::worker::Worker;
use crate::features::ip::hook::{Ingress, IngressHook, InputParts, PlainPacket};

/// The part of `classify` in the input nodes.
pub(crate) struct ClassifyIngress;

/// The ingress hook of `classify`.
pub(crate) struct WindowHook<'a> {
    snapshot: &'a Snapshot,
    /// The chunks that rules read.
    chunks: u8,
    batch: &'a mut Batch,
    filled: &'a mut Option<WholeVector>,
}

impl Ingress for ClassifyIngress {
    type Hook<'a> = WindowHook<'a>;

    #[inline(always)]
    fn split(worker: &mut Worker) -> (InputParts<'_>, WindowHook<'_>) {
        let Worker { id, snapshot, routing, handoff, rules, shared, .. } = worker;
        let repairs = &shared.workers[*id].counters.repairs;
        let (batch, filled) = rules.hook_parts();
        (
            InputParts { id: *id, snapshot, routing, spread: handoff.spread, repairs },
            WindowHook { snapshot, chunks: snapshot.policy.classifier().chunks(), batch, filled },
        )
    }
}

impl IngressHook for WindowHook<'_> {
    #[inline(always)]
    fn begin(&mut self) {
        *self.filled = None;
    }

    #[inline(always)]
    fn take_plain<H: PlainHeaders>(&mut self, at: usize, packet: &PlainPacket<'_, H>) {
        let PlainPacket { headers, data, meta, port, .. } = *packet;
        let (peer, window) = (self.snapshot.peer(port), &mut self.batch.windows[at % VECTOR]);
        fill_plain_window(headers, (data, meta), port, peer, self.chunks, window);
    }

    fn take_other(&mut self, at: usize, packet: &Packet) {
        let window = &mut self.batch.windows[at % VECTOR];
        let port = packet.port();
        fill_window(packet.data(), packet.meta(), port, self.snapshot.peer(port), self.chunks, window);
    }

    #[inline(always)]
    fn end(&mut self, packets: &[&mut Packet], version: u8) {
        // The output port, which depends on the route, is not in these windows.
        let is_complete = !self.snapshot.needs_out_port;
        *self.filled = WholeVector::new(packets, version).filter(|_| is_complete);
    }

    fn claims_expired(_: &Snapshot, _: &mut Packet) -> bool {
        false
    }
}
