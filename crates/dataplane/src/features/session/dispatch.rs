//! The nodes of policies that need sessions: `flow-lookup` finds every packet's session and does what its cached decision
//! says; `flow-classify` finds the rules that have to be asked for each packet of a session; `flow-track` is for packets
//! that open sessions, change their state, or are out of the ordinary. What is done is [`mmb_session`]'s business; a node
//! shows it the packets and sends them where it says.
//!
//! Theory of operation. [`Next`], as a number, is the edge that a packet takes, the same for all three nodes, so that most
//! vectors are sent on without a look at each packet. What passes goes to `wire-output`, by a routed port as well. Fragments that wait for the first one of their datagram leave the
//! graph: their buffers stand in the worker's `held`, at the place that the sessions gave out, and come back by
//! `flow-track` to `flow-lookup` when the first one has come.

use mmb_dpdk::{Packet, Vector};
use mmb_packet::{DropReason, Meta, OUT_ROUTED, StageWord, flags};
use mmb_route::NextHops;
use mmb_session::{Next, NextSet, Packets};

use crate::engine::vector::{AHEAD, VECTOR};
use crate::engine::worker::Worker;
use crate::features::route::hop::{Ways, is_punted};
use crate::features::route::rewrite::send_on4;

/// Behind the edges that [`Next`] numbers: to be routed. Back to `flow-lookup` go fragments that have waited, from `flow-track`.
pub(super) const WAYS: Ways = Ways { first: 12 };
pub(super) const AGAIN: u16 = Next::Relookup as u16;
/// Reasons for which NAT drops packets to its addresses that it knows nothing of.
const UNMAPPED: u8 = DropReason::NatUnmapped as u8;
const QUOTE: u8 = DropReason::IcmpQuote as u8;

const _: () = assert!(
    Next::Pass as u16 == 0
        && Next::Send as u16 == 1
        && Next::Edit as u16 == 2
        && Next::Drop as u16 == 3
        && Next::Reply as u16 == 4
        && Next::HandOff as u16 == 5
        && Next::Hold as u16 == 6
        && Next::PerPacketRules as u16 == 7
        && Next::SlowPath as u16 == 8
        && Next::Chain as u16 == 9
        && Next::Relookup as u16 == 10
        && Next::Forwarded as u16 == 11
);

/// Edges of the three nodes. No packet takes that of [`Next::Hold`]; nor is one sent back to where it was, except from
/// `flow-track`.
pub(crate) fn edges(node: &str, sink: &'static str) -> Vec<&'static str> {
    let (per_packet, slow) = match node {
        "flow-lookup" => ("flow-classify", "flow-track"),
        "flow-classify" => ("drop", "flow-track"),
        _ => ("drop", "drop"),
    };
    let again = if node == "flow-track" { "flow-lookup" } else { "drop" };
    let mut edges = vec![
        "wire-output",
        sink,
        "rewrite",
        "drop",
        sink,
        "handoff",
        "drop",
        per_packet,
        slow,
        "chain",
        again,
        sink,
    ];
    edges.extend(Ways::NODES);
    edges
}

/// What tells a packet from others that are under way.
#[inline(always)]
pub(crate) fn who(packet: &Packet) -> usize {
    std::ptr::from_ref(packet).addr()
}

/// A vector's packets as the sessions see them.
pub(crate) struct Shown<'a, 'b> {
    pub packets: &'a mut [&'b mut Packet],
    /// By which packets are sent on, if any are routed.
    pub hops: Option<&'a NextHops>,
}

impl Packets for Shown<'_, '_> {
    #[inline]
    fn len(&self) -> usize {
        self.packets.len()
    }

    #[inline]
    fn head(&self, at: usize) -> &[u8] {
        self.packets[at].data()
    }

    #[inline]
    fn meta(&self, at: usize) -> &Meta {
        self.packets[at].meta()
    }

    #[inline]
    fn head_and_meta(&mut self, at: usize) -> (&mut [u8], &mut Meta) {
        self.packets[at].data_and_meta()
    }

    #[inline]
    fn in_port(&self, at: usize) -> u16 {
        self.packets[at].port()
    }

    #[inline]
    fn bytes(&self, at: usize) -> u32 {
        self.packets[at].pkt_len() as u32
    }

    #[inline(always)]
    fn packet_addr(&self, at: usize) -> usize {
        who(self.packets[at])
    }

    #[inline(always)]
    fn head_mut(&mut self, at: usize) -> &mut [u8] {
        self.packets[at].data_mut()
    }

    #[inline(always)]
    fn can_forward(&self) -> bool {
        self.hops.is_some()
    }

    #[inline(always)]
    fn forward(&mut self, at: usize, hop: u16) -> bool {
        let Some(hops) = self.hops else { return false };
        let (head, meta) = self.packets[at].data_and_meta();
        meta.stage = StageWord::from_next_hop(hop.into());
        send_on4(head, meta, hops.get(hop.into()))
    }

    #[inline(always)]
    fn prefetch_forward(&self, at: usize) {
        if let Some(packet) = self.packets.get(at + AHEAD) {
            packet.prefetch_header();
        }
        if let Some(packet) = self.packets.get(at) {
            packet.prefetch_data();
        }
    }

    #[inline(always)]
    fn prefetch_bytes(&self, at: usize) {
        if let Some(packet) = self.packets.get(at + AHEAD) {
            packet.prefetch_buffer_address();
        }
        if let Some(packet) = self.packets.get(at) {
            packet.prefetch_data();
        }
    }

    #[inline(always)]
    fn prefetch(&self, at: usize) {
        if let Some(packet) = self.packets.get(at) {
            packet.prefetch_header();
            packet.prefetch_data();
        }
    }
}

/// Sends every packet where it was said to go.
#[inline]
pub(super) fn dispatch(
    worker: &mut Worker,
    mut vector: Vector<'_>,
    next: &mut [Next; VECTOR],
    tally: NextSet,
) {
    for next in [Next::Pass, Next::Chain] {
        if tally.all(next) {
            return vector.send_all(next as u16);
        }
    }
    if tally.has(Next::Hold) {
        set_aside(worker, &mut vector, next);
    }
    let n = vector.len();
    let mut edges = [0; VECTOR];
    for (edge, next) in edges.iter_mut().zip(&*next) {
        *edge = *next as u16;
    }
    if tally.has(Next::Send) || (tally.has(Next::Drop) && !worker.routes.interfaces.is_empty()) {
        route(worker, &mut vector, next, &mut edges);
    }
    vector.send(&edges[..n]);
}

/// Has those packets routed that the sessions send where routing says. One to an address that NAT shares with the machine, and of
/// which NAT knows nothing, is the machine's.
#[cold]
fn route(worker: &Worker, vector: &mut Vector<'_>, next: &[Next; VECTOR], edges: &mut [u16; VECTOR]) {
    for ((packet, next), edge) in vector.packets().iter().zip(next).zip(edges) {
        let meta = packet.meta();
        if *next == Next::Send && meta.out_port == OUT_ROUTED {
            *edge = WAYS.of(packet);
        }
        if *next == Next::Drop
            && (meta.drop_reason == UNMAPPED || meta.drop_reason == QUOTE)
            && meta.flags & flags::LOOPED == 0
            && worker.snapshot.is_routed(packet.port())
            && is_punted(&worker.routes, packet)
        {
            *edge = WAYS.punt();
        }
    }
}

/// Takes the packets that have to wait out of the vector. The others move up, as their `next` do.
#[cold]
pub(super) fn set_aside(worker: &mut Worker, vector: &mut Vector<'_>, next: &mut [Next; VECTOR]) {
    let all = *next;
    let stay = all[..vector.len()].iter().filter(|next| **next != Next::Hold);
    next.iter_mut().zip(stay).for_each(|(to, next)| *to = *next);
    vector.extract_if(
        |at| all[at] == Next::Hold,
        |packet| {
            let place = packet.meta().stage.ticket() as usize;
            // The place is free: the sessions give it out again only after they have called for the packet in it.
            if let Some(place) = worker.held.get_mut(place) {
                *place = Some(packet);
            }
        },
    );
}
