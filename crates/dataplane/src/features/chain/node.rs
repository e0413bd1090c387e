//! `chain` runs the functions of service chains on the packets of sessions; `chain-rx` sends frames that
//! functions made between two vectors.
//!
//! Theory of operation. Rules come before chains: a packet with edits is edited here first, as by `rewrite`.
//! A packet that is dropped because its edits failed leaves the vector before the chain. The other packets
//! are given to the sessions together. The sessions say where each packet goes: out, to a route lookup, to
//! `drop`, or to `flow-lookup` again if it was turned back to the inside.
//!
//! A frame that a function makes is copied into a buffer of its own. It leaves before the vector during which
//! it was made: a connection that a function opens is open before the packets that the function lets through.
//! The frame meets no rule and no chain. A frame that follows its packet's direction is routed if the packet
//! is.
//!
//! A frame may also pass the chain of its session, as a packet: `chain-rx` takes it through.
//!
//! A packet that a function holds leaves the vector, and the worker keeps it ([`HeldPackets`]). `chain-rx`
//! takes released packets through the rest of their chains, before the packets of the walk come. The runner
//! makes packets of their sessions wait that would overtake them.
//!
//! [`HeldPackets`]: crate::features::session::state::HeldPackets

use arrayvec::ArrayVec;
use mmb_dpdk::{Burst, Emit, Mbuf, Packet, Vector};
use mmb_flow::FlowRef;
use mmb_nf::{Emission, Emissions};
use mmb_packet::{DropReason, Meta, OUT_ROUTED, PacketFlags, TailSegments, parse};
use mmb_session::{ChainBatch, HeldEvent, Next, NextSet};

use crate::engine::config::PortId;
use crate::engine::node::edges::{Edges, RoutedEdges, SINK, edges, routed_edges, send, send_all};
use crate::engine::node::vector::{ROUTED_L3, VECTOR};
use crate::engine::worker::Worker;
use crate::features::classify::edit::apply_edits;
use crate::features::handoff::send::push;
use crate::features::session::state::FlowManager;

edges! {
    /// The edges of `chain` and `chain-rx`.
    pub(crate) enum Edge {
        Transmit => SINK,
        Drop => "drop",
        Consume => "consume",
        FlowLookup => "flow-lookup",
        Handoff => "handoff",
        Ip4Lookup => "ip4-lookup",
        Ip6Lookup => "ip6-lookup",
        Punt => "punt",
    }
}
routed_edges!(Edge);

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let n = vector.len();
    let mut next = [Next::Pass; VECTOR];
    let (mut kept, kinds) = run(worker, vector.packets(), &mut next);
    if !worker.flows.sessions.emissions().is_empty() {
        if worker.flows.sessions.emissions().sort() && n > 1 {
            next[kept..n].fill(Next::Drop);
            return send_in_order(worker, vector, &next);
        }
        inject_emissions(worker, &mut vector);
    }
    if kept == n && kinds.is_only(Next::Send) && worker.snapshot.all_wired {
        return send_all(vector, Edge::Transmit);
    }
    if kinds.contains(Next::Hold) {
        next[kept..].fill(Next::Drop);
        kept -= worker.flows.held_in_chains.extract(&mut vector, &mut next);
    }
    let mut edges = [Edge::Drop; VECTOR];
    for ((packet, next), edge) in vector.packets()[..kept].iter_mut().zip(&next).zip(&mut edges) {
        *edge = edge_of(packet, *next);
    }
    send(vector, &edges);
}

/// The edge of a packet behind its chain.
#[inline(always)]
fn edge_of(packet: &mut Packet, next: Next) -> Edge {
    match next {
        Next::Send if packet.meta().out_port >= OUT_ROUTED => route_or_drop(packet),
        Next::Send => Edge::Transmit,
        Next::Relookup => Edge::FlowLookup,
        Next::HandOff => Edge::Handoff,
        Next::Consume => Edge::Consume,
        _ => Edge::Drop,
    }
}

/// Runs the chains of packets. Packets that are dropped because their edits failed are last afterwards;
/// returns how many packets come before them.
#[inline(always)]
fn run(worker: &mut Worker, packets: &mut [&mut Packet], next: &mut [Next; VECTOR]) -> (usize, NextSet) {
    let mut batch = ChainBatch::new();
    fill_batch(packets, &mut batch);
    if batch.has_edits() {
        drop(batch);
        return run_edited(worker, packets, next);
    }
    (batch.len(), chain(worker, &mut batch, next))
}

/// [`run`] for packets of which some have edits.
#[inline(never)]
fn run_edited(
    worker: &mut Worker,
    packets: &mut [&mut Packet],
    next: &mut [Next; VECTOR],
) -> (usize, NextSet) {
    let mut kept = 0;
    for at in 0..packets.len() {
        let is_kept = packets[at].meta().edits_len == 0
            || apply_edits(&worker.snapshot, &worker.rules.edits, worker.counters(), packets[at]);
        if is_kept {
            packets.swap(kept, at);
            kept += 1;
        }
    }
    let mut batch = ChainBatch::new();
    fill_batch(&mut packets[..kept], &mut batch);
    (kept, chain(worker, &mut batch, next))
}

/// Fills the batch with a vector's packets.
#[inline(always)]
fn fill_batch<'a>(packets: &'a mut [&mut Packet], batch: &mut ChainBatch<'a>) {
    batch.extend(packets.iter_mut().map(|packet| view(packet)));
}

/// `consume`: frees packets whose bytes functions have sent in other frames.
pub(crate) fn consume(worker: &mut Worker, vector: Vector<'_>) {
    worker.counters().consumed.add(vector.len() as u64);
    vector.free();
}

/// A packet, for the functions of chains.
#[inline(always)]
fn view(packet: &mut Packet) -> mmb_nf::Packet<'_> {
    let (len, in_port) = (packet.pkt_len() as u32, packet.port());
    let segment_size = if packet.is_large() { packet.segment_size() } else { 0 };
    let (head, tail, meta) = packet.head_tail_and_meta();
    let packet = mmb_session::chain_packet(head, meta, len, in_port);
    mmb_nf::Packet { tail: tail.map(|tail| tail as &dyn TailSegments), segment_size, ..packet }
}

#[inline(always)]
fn chain(worker: &mut Worker, batch: &mut ChainBatch<'_>, next: &mut [Next; VECTOR]) -> NextSet {
    let Worker { id, clock, snapshot, flows, routing, .. } = worker;
    let env = snapshot.for_worker(*id).with_routes(&routing.routes);
    flows.sessions.process_chain(clock.now, &env, batch, next)
}

/// The edge of a packet without an output port.
#[cold]
fn route_or_drop(packet: &mut Packet) -> Edge {
    if packet.meta().out_port == OUT_ROUTED {
        return Edge::for_routed(packet);
    }
    packet.meta_mut().drop_reason = DropReason::Unwired as u8;
    Edge::Drop
}

/// Adds the frames of functions to the walk. In a replay, each gets the number of the packet for which it was
/// made.
#[cold]
fn inject_emissions(worker: &mut Worker, vector: &mut Vector<'_>) {
    let emissions = std::mem::take(worker.flows.sessions.emissions());
    for emission in emissions.iter() {
        let sent = build(worker, &emission).and_then(|(mut packet, edge)| {
            let number = emission.packet.and_then(|at| vector.packets().get(usize::from(at))?.timestamp());
            if let Some(number) = number {
                packet.set_timestamp(number);
            }
            vector.inject(edge.number(), packet).map_err(|_| DropReason::NoBuffer)
        });
        count(worker, &emission, sent);
    }
    return_buffers(worker, emissions);
}

/// Sends packets, and frames of functions at their places among them.
#[cold]
fn send_in_order(worker: &mut Worker, mut vector: Vector<'_>, next: &[Next; VECTOR]) {
    let mut packets: ArrayVec<Mbuf, VECTOR> = ArrayVec::new();
    vector.extract_if(|_| true, |packet| packets.push(packet));
    let emissions = std::mem::take(worker.flows.sessions.emissions());
    let mut frames = emissions.iter().peekable();
    for (at, mut packet) in packets.into_iter().enumerate() {
        let number = packet.timestamp();
        while let Some(emission) = frames.next_if(|frame| !frame.is_in_order || is_up_to(frame, at)) {
            let sent = build(worker, &emission).and_then(|(mut frame, edge)| {
                number.filter(|_| emission.packet.is_some()).into_iter().for_each(|n| frame.set_timestamp(n));
                vector.inject(edge.number(), frame).map_err(|_| DropReason::NoBuffer)
            });
            count(worker, &emission, sent);
        }
        if next[at] == Next::Hold {
            worker.flows.held_in_chains.hold(packet);
            continue;
        }
        let (edge, in_port) = (edge_of(&mut packet, next[at]), packet.port());
        if vector.inject(edge.number(), packet).is_err() {
            worker.counters().drops.add(in_port, DropReason::NoBuffer as u8, 1);
        }
    }
    drop(frames);
    return_buffers(worker, emissions);
}

/// Whether a frame comes in front of what is behind a position.
fn is_up_to(emission: &Emission<'_>, at: usize) -> bool {
    emission.packet.is_none_or(|packet| usize::from(packet) <= at)
}

/// Sends frames that functions made between two walks, or when sessions began, and packets that functions
/// have released.
pub(crate) fn receive(worker: &mut Worker, emit: &mut Emit<'_>) -> usize {
    if worker.flows.sessions.has_processes() {
        worker.flows.sessions.poll_processes();
    }
    let mut n = if worker.flows.sessions.emissions().is_empty() { 0 } else { emit_all(worker, emit) };
    if worker.flows.sessions.emissions().has_reinjections() {
        n += reinject_all(worker, emit);
    }
    if worker.flows.sessions.has_held_events() {
        n += resume_all(worker, emit);
    }
    n
}

/// Takes packets that functions hold no longer on, or frees them. What does not fit in this walk waits for
/// the next one.
#[cold]
fn resume_all(worker: &mut Worker, emit: &mut Emit<'_>) -> usize {
    let mut n = 0;
    let Some(mut burst) = worker.ports.burst.take() else { return 0 };
    // Frames that functions make take room as well.
    while emit.room() >= VECTOR + Emissions::MAX_FRAMES && take_released(worker, &mut burst) {
        n += run_burst(worker, &mut burst, emit, true);
    }
    worker.ports.burst = Some(burst);
    n
}

/// Takes frames of functions through the chains of their sessions. What does not fit in this walk waits for
/// the next one.
#[cold]
fn reinject_all(worker: &mut Worker, emit: &mut Emit<'_>) -> usize {
    let mut n = 0;
    let Some(mut burst) = worker.ports.burst.take() else { return 0 };
    while emit.room() >= VECTOR + Emissions::MAX_FRAMES && take_reinjected(worker, &mut burst) {
        n += run_burst(worker, &mut burst, emit, false);
    }
    worker.ports.burst = Some(burst);
    n
}

/// Fills a burst with frames that are to pass chains. Returns false if there are none.
fn take_reinjected(worker: &mut Worker, burst: &mut Burst) -> bool {
    let Worker { ports, flows, shared, id, .. } = worker;
    while !burst.is_full() {
        let taken = flows.sessions.emissions().reinject(|one| {
            let packet = ports.pool.as_ref().and_then(|pool| pool.alloc_from(one.frame));
            let made = packet.ok_or(DropReason::NoBuffer).and_then(|mut packet| {
                *packet.meta_mut() = one.meta()?;
                packet.set_port(one.in_port);
                Ok(packet)
            });
            (one.in_port, made)
        });
        match taken {
            Some((_, Ok(packet))) => push(burst, packet),
            Some((in_port, Err(reason))) => {
                shared.workers[*id].counters.drops.add(in_port, reason as u8, 1);
            }
            None => break,
        }
    }
    !burst.is_empty()
}

/// Fills a burst with released packets. Returns false if there are none.
fn take_released(worker: &mut Worker, burst: &mut Burst) -> bool {
    let drops = &worker.shared.workers[worker.id].counters.drops;
    let FlowManager { sessions, held_in_chains, .. } = &mut worker.flows;
    while !burst.is_full() {
        match sessions.next_held_event() {
            Some(HeldEvent::Released(ticket)) => {
                if let Some(packet) = held_in_chains.release(ticket) {
                    push(burst, packet);
                }
            }
            Some(HeldEvent::Dropped(ticket, reason)) => held_in_chains.drop_held(ticket, reason, drops),
            None => break,
        }
    }
    !burst.is_empty()
}

/// Takes packets through their chains: from behind the functions that have released them, or from the
/// beginning.
fn run_burst(worker: &mut Worker, burst: &mut Burst, emit: &mut Emit<'_>, are_released: bool) -> usize {
    let mut next = [Next::Pass; VECTOR];
    let mut batch: ChainBatch<'_> = burst.iter_mut().map(view).collect();
    let Worker { id, clock, snapshot, flows, routing, .. } = &mut *worker;
    let env = snapshot.for_worker(*id).with_routes(&routing.routes);
    match are_released {
        true => flows.sessions.process_released(clock.now, &env, &mut batch, &mut next),
        false => flows.sessions.process_chain(clock.now, &env, &mut batch, &mut next),
    };
    drop(batch);
    worker.flows.sessions.emissions().sort();
    let emissions = std::mem::take(worker.flows.sessions.emissions());
    let (mut frames, mut at, mut n) = (emissions.iter().peekable(), 0, 0);
    burst.drain(|mut packet| {
        while let Some(frame) = frames.next_if(|frame| !frame.is_in_order || is_up_to(frame, at)) {
            n += emit_one(worker, &frame, emit);
        }
        match next.get(at) {
            Some(Next::Hold) => worker.flows.held_in_chains.hold(packet),
            next => {
                let edge = edge_of(&mut packet, *next.unwrap_or(&Next::Drop));
                n += emit.emit(edge.number(), 1, |slots| drop(slots.push(packet)));
            }
        }
        at += 1;
    });
    drop(frames);
    return_buffers(worker, emissions);
    worker.ports.received += n;
    n
}

#[cold]
fn emit_all(worker: &mut Worker, emit: &mut Emit<'_>) -> usize {
    let emissions = std::mem::take(worker.flows.sessions.emissions());
    let mut n = 0;
    for emission in emissions.iter() {
        n += emit_one(worker, &emission, emit);
    }
    return_buffers(worker, emissions);
    worker.ports.received += n;
    n
}

/// Sends a frame. Returns how many were sent.
fn emit_one(worker: &mut Worker, emission: &Emission<'_>, emit: &mut Emit<'_>) -> usize {
    let sent = build(worker, emission).and_then(|(packet, edge)| {
        match emit.emit(edge.number(), 1, |slots| drop(slots.push(packet))) {
            1 => Ok(()),
            _ => Err(DropReason::NoBuffer),
        }
    });
    let n = usize::from(sent.is_ok());
    count(worker, emission, sent);
    n
}

/// Builds the packet of a frame that a function made, and chooses its edge.
fn build(worker: &Worker, emission: &Emission<'_>) -> Result<(Mbuf, Edge), DropReason> {
    if PortId(emission.out_port).index().is_none() && emission.out_port != OUT_ROUTED {
        return Err(DropReason::Unwired);
    }
    let packet = worker.ports.pool.as_ref().and_then(|pool| pool.alloc_from(emission.frame));
    let mut packet = packet.ok_or(DropReason::NoBuffer)?;
    packet.set_port(emission.in_port);
    if emission.segment_size != 0 {
        packet.set_large(emission.segment_size);
    }
    let mut meta = Meta { out_port: emission.out_port, session: FlowRef::NONE.0, ..Meta::default() };
    if emission.out_port != OUT_ROUTED {
        *packet.meta_mut() = meta;
        return Ok((packet, Edge::Transmit));
    }
    parse(packet.data(), packet.pkt_len(), &mut meta)?;
    if meta.kind.l3() == 0 || usize::from(meta.l3_off) != ROUTED_L3 {
        return Err(DropReason::NoRoute);
    }
    meta.flags |= PacketFlags::OURS;
    *packet.meta_mut() = meta;
    let edge = Edge::for_routed(&packet);
    Ok((packet, edge))
}

fn count(worker: &Worker, emission: &Emission<'_>, sent: Result<(), DropReason>) {
    let counters = worker.counters();
    match sent {
        Ok(()) => counters.emitted.add(1),
        Err(reason) => {
            counters.unsent.add(1);
            counters.drops.add(emission.in_port, reason as u8, 1);
        }
    }
}

/// Returns the empty buffers to the sessions, and counts frames that did not fit in them.
fn return_buffers(worker: &mut Worker, mut emissions: Emissions) {
    let lost = emissions.lost() - std::mem::replace(&mut worker.flows.emissions_lost, emissions.lost());
    worker.counters().unsent.add(lost);
    worker.counters().drops.add(PortId::NONE.0, DropReason::NoBuffer as u8, lost);
    emissions.clear();
    *worker.flows.sessions.emissions() = emissions;
}
