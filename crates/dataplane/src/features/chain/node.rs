//! `chain`: takes the packets of sessions that a rule has given to a service chain through its functions, and sends them on;
//! `chain-rx`: sends what functions have made while no packet of theirs was under way.
//!
//! Theory of operation. Rules come before chains: a packet that they edit is edited here first, as by `rewrite`. One that must
//! not go on unedited leaves the vector before the chain sees it. The others are shown to the sessions all together, each as
//! its bytes and its metadata, and go where these say: out, to be routed, to `drop`, or to `flow-lookup` once more if they
//! have been turned back to the inside.
//!
//! A frame that a function makes is copied into a buffer of its own and goes out in front of the vector at which it was made: a
//! connection that a function opens is open before the packets that it lets through. It meets no rule and no chain. One
//! that goes where its packet goes is routed if that is.

use arrayvec::ArrayVec;
use mmb_dpdk::{Emit, Mbuf, Packet, Vector};
use mmb_flow::FlowRef;
use mmb_nf::{Emission, Emissions};
use mmb_packet::{DropReason, Meta, OUT_ROUTED, TailSegments, flags, parse};
use mmb_session::{Next, NextSet};

use crate::engine::config::PortId;
use crate::engine::vector::{ROUTED_L3, VECTOR};
use crate::engine::worker::Worker;
use crate::features::classify::rewrite::edit;
use crate::features::route::hop::Ways;

const TX: u16 = 0;
const DROP: u16 = 1;
const AGAIN: u16 = 2;
const HANDOFF: u16 = 3;
const WAYS: Ways = Ways { first: 4 };
/// Of `chain-rx`.
const RX_WAYS: Ways = Ways { first: 1 };

/// The edges of `chain`.
pub(crate) fn next(sink: &'static str) -> Vec<&'static str> {
    [&[sink, "drop", "flow-lookup", "handoff"], &Ways::NODES[..]].concat()
}

/// The edges of `chain-rx`.
pub(crate) fn rx_next(sink: &'static str) -> Vec<&'static str> {
    [&[sink], &Ways::NODES[..]].concat()
}

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let n = vector.len();
    let mut next = [Next::Pass; VECTOR];
    let (kept, tally) = run(worker, vector.packets(), &mut next);
    if !worker.sessions.emissions().is_empty() {
        bring_in(worker, &mut vector);
    }
    if kept == n && tally.all(Next::Send) && worker.snapshot.wired {
        return vector.send_all(TX);
    }
    let mut edges = [DROP; VECTOR];
    for ((packet, next), edge) in vector.packets()[..kept].iter_mut().zip(&next).zip(&mut edges) {
        *edge = match next {
            Next::Send if packet.meta().out_port >= OUT_ROUTED => leave(packet),
            Next::Send => TX,
            Next::Relookup => AGAIN,
            Next::HandOff => HANDOFF,
            _ => DROP,
        };
    }
    vector.send(&edges[..n]);
}

type Shown<'a> = ArrayVec<mmb_nf::Packet<'a>, VECTOR>;

/// Takes packets through the chains of their sessions. Those that are dropped for want of an edit are behind the others
/// afterwards; how many others there are.
#[inline(always)]
fn run(worker: &mut Worker, packets: &mut [&mut Packet], next: &mut [Next; VECTOR]) -> (usize, NextSet) {
    let mut shown = Shown::new();
    if show(packets, &mut shown) {
        drop(shown);
        return run_edited(worker, packets, next);
    }
    (shown.len(), chain(worker, &mut shown, next))
}

/// The same, of packets some of which rules edit.
#[inline(never)]
fn run_edited(
    worker: &mut Worker,
    packets: &mut [&mut Packet],
    next: &mut [Next; VECTOR],
) -> (usize, NextSet) {
    let mut kept = 0;
    for at in 0..packets.len() {
        if packets[at].meta().edits_len == 0 || edit(worker, packets[at]) {
            packets.swap(kept, at);
            kept += 1;
        }
    }
    let mut shown = Shown::new();
    show(&mut packets[..kept], &mut shown);
    (kept, chain(worker, &mut shown, next))
}

/// Packets as the sessions want to see them. Whether rules edit some of them.
#[inline(always)]
fn show<'a>(packets: &'a mut [&mut Packet], shown: &mut Shown<'a>) -> bool {
    let mut edits = 0;
    for packet in packets {
        let (len, in_port) = (packet.pkt_len() as u32, packet.port());
        let (head, tail, meta) = packet.head_tail_and_meta();
        edits |= meta.edits_len;
        let packet = mmb_session::chain_packet(head, meta, len, in_port);
        shown.push(mmb_nf::Packet { tail: tail.map(|tail| tail as &dyn TailSegments), ..packet });
    }
    edits != 0
}

#[inline(always)]
fn chain(worker: &mut Worker, shown: &mut Shown<'_>, next: &mut [Next; VECTOR]) -> NextSet {
    let Worker { id, now, snapshot, sessions, .. } = worker;
    sessions.process_chain(*now, &snapshot.of(*id), shown, next)
}

/// The edge of a packet that goes to no port at once.
#[cold]
fn leave(packet: &mut Packet) -> u16 {
    if packet.meta().out_port == OUT_ROUTED {
        return WAYS.of(packet);
    }
    packet.meta_mut().drop_reason = DropReason::Unwired as u8;
    DROP
}

/// Brings the frames that functions have made into the graph. In a replay, each has the number of the packet that it was made
/// for.
#[cold]
fn bring_in(worker: &mut Worker, vector: &mut Vector<'_>) {
    let emissions = std::mem::take(worker.sessions.emissions());
    for emission in emissions.iter() {
        let brought = made(worker, &emission, WAYS).and_then(|(mut packet, edge)| {
            let number = emission.packet.and_then(|at| vector.packets().get(usize::from(at))?.timestamp());
            if let Some(number) = number {
                packet.set_timestamp(number);
            }
            vector.inject(edge, packet).map_err(|_| DropReason::NoBuffer)
        });
        count(worker, &emission, brought);
    }
    put_back(worker, emissions);
}

/// Sends what functions have made between two walks, or when sessions began.
pub(crate) fn emit(worker: &mut Worker, emit: &mut Emit<'_>) -> usize {
    if worker.sessions.emissions().is_empty() { 0 } else { emit_all(worker, emit) }
}

#[cold]
fn emit_all(worker: &mut Worker, emit: &mut Emit<'_>) -> usize {
    let emissions = std::mem::take(worker.sessions.emissions());
    let mut n = 0;
    for emission in emissions.iter() {
        let brought = made(worker, &emission, RX_WAYS).and_then(|(packet, edge)| {
            let one = emit.emit(edge, 1, |slots| drop(slots.push(packet)));
            n += one;
            if one == 1 { Ok(()) } else { Err(DropReason::NoBuffer) }
        });
        count(worker, &emission, brought);
    }
    put_back(worker, emissions);
    worker.received += n;
    n
}

/// A frame that a function has made, and its edge.
fn made(worker: &Worker, emission: &Emission<'_>, ways: Ways) -> Result<(Mbuf, u16), DropReason> {
    if PortId(emission.out_port).index().is_none() && emission.out_port != OUT_ROUTED {
        return Err(DropReason::Unwired);
    }
    let made = worker.pool.as_ref().and_then(|pool| pool.alloc_from(emission.frame));
    let mut packet = made.ok_or(DropReason::NoBuffer)?;
    packet.set_port(emission.in_port);
    let mut meta = Meta { out_port: emission.out_port, session: FlowRef::NONE.0, ..Meta::default() };
    if emission.out_port != OUT_ROUTED {
        *packet.meta_mut() = meta;
        return Ok((packet, TX));
    }
    parse(packet.data(), packet.pkt_len(), &mut meta)?;
    if meta.kind.l3() == 0 || usize::from(meta.l3_off) != ROUTED_L3 {
        return Err(DropReason::NoRoute);
    }
    meta.flags |= flags::OURS;
    *packet.meta_mut() = meta;
    let edge = ways.of(&packet);
    Ok((packet, edge))
}

fn count(worker: &Worker, emission: &Emission<'_>, brought: Result<(), DropReason>) {
    let counters = worker.counters();
    match brought {
        Ok(()) => counters.emitted.add(1),
        Err(reason) => {
            counters.unsent.add(1);
            counters.drops.add(emission.in_port, reason as u8, 1);
        }
    }
}

/// Gives the empty buffers back, and counts what they had no room for.
fn put_back(worker: &mut Worker, mut emissions: Emissions) {
    let lost = emissions.lost() - std::mem::replace(&mut worker.emissions_lost, emissions.lost());
    worker.counters().unsent.add(lost);
    worker.counters().drops.add(PortId::NONE.0, DropReason::NoBuffer as u8, lost);
    emissions.clear();
    *worker.sessions.emissions() = emissions;
}
