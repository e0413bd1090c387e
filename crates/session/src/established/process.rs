//! The loop over packets of established sessions.
//!
//! Theory of operation. Lookup names a candidate flow for each packet. The loop compares the packet's key
//! where it reads the flow anyway. A candidate that is wrong ends the loop. It is resolved by a full lookup,
//! and the loop goes on with that packet. Wrong candidates are so rare that a loop without this branch is
//! worth more. The loop is compiled four times: for vectors that contain keys of IPv4 only, and for others;
//! for packets that can be routed, and for others.
//!
//! Packets of a flow often follow each other. Such a train is decided and counted as a whole.

use std::hint::select_unpredictable;

use mmb_flow::{Flow, FlowFlags, FlowRef, Table, latest_ack, translate_ip4, translate_ip4_common};
use mmb_packet::{StageWord, prefetch};
use mmb_policy::VECTOR;

use super::DecisionCache;
use super::next_hops::{NO_HOP, PacketStamps, count_by_decision, is_next_hop};
use super::positions::Positions;
use crate::lookup::summary::PacketSummary;
use crate::lookup::vector::{PREFETCH_PACKETS, Train, VectorLookup};
use crate::{Environment, Next, Packets};

/// How many packets ahead the loop prefetches flows into the L1 cache.
const PREFETCH_FLOWS: usize = 8;

/// The flags that tell whether the session translates a packet, and how.
const TRANSLATION: FlowFlags = FlowFlags::XLAT4.union(FlowFlags::CHAINED).union(FlowFlags::CHAIN_TRANSLATES);

/// Time and surroundings of a vector.
pub(crate) struct VectorContext<'a, E> {
    pub now: u32,
    pub env: &'a E,
    /// Sessions that have ended so far.
    pub removals: u32,
    /// Bytes of a scratchpad.
    pub scratchpad_bytes: usize,
}

/// How many packets of a vector have passed, were routed, and go through chains.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub passed: usize,
    pub forwarded: usize,
    pub chained: usize,
}

/// What becomes of a packet by its flow and decision.
#[derive(Clone, Copy)]
enum Admission {
    /// It is counted and goes on.
    Established,
    /// [`super::uncommon`] finishes it.
    Uncommon,
    /// [`super::carry_over`] finishes it, and counts it.
    Stale,
    /// The slow path finishes it.
    SlowPath,
    /// Rules that depend on each packet are to be found.
    PerPacketRules,
}

/// Whether the note of an IPv4 flow is current and tells that the decision only accepts.
#[inline(always)]
fn has_current_note(flow: &Flow, summary: &PacketSummary, note: u32) -> bool {
    (flow.opaque4()[0] == note)
        & (flow.flags & (FlowFlags::SETTLED | FlowFlags::XLAT_SLOW) == FlowFlags::SETTLED)
        & (summary.flags & PacketSummary::NOT_PLAIN == 0)
}

impl DecisionCache {
    /// Finishes the packets that only need to be counted and translated. Appends the positions of packets for
    /// [`super::uncommon`] to `uncommon`. `IP6`: the vector may contain keys of IPv6. `FORWARD`: packets can
    /// be routed ([`Packets::can_forward`]).
    #[inline(always)]
    pub fn process_established<const IP6: bool, const FORWARD: bool, E: Environment, P: Packets>(
        &mut self,
        table: &mut Table,
        lookup: &mut VectorLookup,
        context: &VectorContext<'_, E>,
        packets: &mut P,
        next: &mut [Next],
        uncommon: &mut Positions,
    ) -> Totals {
        let mut totals = Totals::default();
        let mut from = 0;
        loop {
            from = self.process_from::<IP6, FORWARD, E, P>(
                from,
                table,
                lookup,
                context,
                packets,
                next,
                uncommon,
                &mut totals,
            );
            if from >= next.len() {
                return totals;
            }
            // The candidate was wrong. The resolved flow is processed next.
            lookup.keys.resolve(table, from);
        }
    }

    /// Processes packets from a position on. Returns the position of the first packet whose candidate is
    /// wrong, or the end.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "the loop keeps each of them in a register")]
    fn process_from<const IP6: bool, const FORWARD: bool, E: Environment, P: Packets>(
        &mut self,
        from: usize,
        table: &mut Table,
        lookup: &VectorLookup,
        context: &VectorContext<'_, E>,
        packets: &mut P,
        next: &mut [Next],
        uncommon: &mut Positions,
        totals: &mut Totals,
    ) -> usize {
        let note_decision = self.decisions.exceeds_cache(table.len() as usize);
        let (keys, n) = (&lookup.keys, next.len().min(VECTOR));
        let (flows, scratchpads) = table.flows_and_scratchpads();
        let mut at = from;
        while at < n {
            let flow_ref = keys.candidate(at);
            if let Some(coming) = flows.get(keys.candidate(at + PREFETCH_FLOWS).0 as usize) {
                prefetch::read(coming);
            }
            let flow = match flows.get_mut(flow_ref.0 as usize) {
                Some(flow) if keys.is_match::<IP6>(at, flow) => flow,
                _ if flow_ref.is_some() => return at,
                _ => {
                    next[at] = Next::SlowPath;
                    at += 1;
                    continue;
                }
            };
            if flow.flags.contains(FlowFlags::CHAINED) {
                scratchpads.read(flow_ref.session(), context.scratchpad_bytes);
            }
            if keys.is_repeated::<IP6>(at, at + 1) {
                let place = (at, flow_ref, note_decision);
                at = self.process_train::<IP6, FORWARD, E, P>(
                    place, flow, lookup, context, packets, next, uncommon, totals,
                );
                continue;
            }
            let summary = &lookup.summaries[at % VECTOR];
            next[at] = match self.admit::<IP6>(flow_ref, flow, (summary, 1), note_decision) {
                Admission::Established => {
                    flow.count(1, summary.bytes);
                    flow.last_seen = context.now;
                    let out_port = || context.env.out_port(summary.in_port);
                    self.pass::<IP6, FORWARD, P>((at, flow_ref), flow, summary, out_port, packets, totals)
                }
                other => self.refer(other, (at, flow_ref), context, packets, uncommon),
            };
            at += 1;
        }
        n
    }

    /// Processes the train that begins at a position. Returns the position behind it.
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "those of the loop")]
    fn process_train<const IP6: bool, const FORWARD: bool, E: Environment, P: Packets>(
        &mut self,
        (first, flow_ref, note_decision): (usize, FlowRef, bool),
        flow: &mut Flow,
        lookup: &VectorLookup,
        context: &VectorContext<'_, E>,
        packets: &mut P,
        next: &mut [Next],
        uncommon: &mut Positions,
        totals: &mut Totals,
    ) -> usize {
        let Train { end, packets: n, summary } = lookup.train::<IP6>(first, next.len());
        let positions = (first..end).zip(&mut next[first..end]);
        match self.admit::<IP6>(flow_ref, flow, (&summary, n), note_decision) {
            Admission::Established => {
                flow.count(n, summary.bytes);
                flow.last_seen = context.now;
                let out_port = context.env.out_port(summary.in_port);
                for (at, next) in positions {
                    let (place, summary) = ((at, flow_ref), &lookup.summaries[at % VECTOR]);
                    *next = self.pass::<IP6, FORWARD, P>(place, flow, summary, || out_port, packets, totals);
                }
            }
            other => {
                for (at, next) in positions {
                    *next = self.refer(other, (at, flow_ref), context, packets, uncommon);
                }
            }
        }
        end
    }

    /// Finishes an established packet that has been counted. Returns its outcome. `out_port` returns the port
    /// by which it leaves.
    #[inline(always)]
    fn pass<const IP6: bool, const FORWARD: bool, P: Packets>(
        &mut self,
        (at, flow_ref): (usize, FlowRef),
        flow: &mut Flow,
        summary: &PacketSummary,
        out_port: impl FnOnce() -> u16,
        packets: &mut P,
        totals: &mut Totals,
    ) -> Next {
        flow.ack = select_unpredictable(
            summary.flags & PacketSummary::ACK != 0,
            latest_ack(flow.ack, summary.ack),
            flow.ack,
        );
        if FORWARD {
            packets.prefetch_forward(at + PREFETCH_PACKETS);
        }
        if translate_established::<FORWARD, P>((at, flow_ref), flow, summary, out_port, packets) {
            totals.chained += 1;
            return Next::Chain;
        }
        let hop = if FORWARD { self.next_hop::<IP6>(flow) } else { NO_HOP };
        if is_next_hop(hop) && forward::<IP6, P>(packets, (at, hop), flow) {
            totals.forwarded += 1;
            return Next::Forwarded;
        }
        totals.passed += 1;
        self.note_miss::<IP6>((at, hop), flow);
        Next::Pass
    }

    /// Refers a packet to where it is finished. Returns its outcome until then.
    #[inline(always)]
    fn refer<E: Environment, P: Packets>(
        &mut self,
        admission: Admission,
        (at, flow_ref): (usize, FlowRef),
        context: &VectorContext<'_, E>,
        packets: &mut P,
        uncommon: &mut Positions,
    ) -> Next {
        match admission {
            Admission::Established | Admission::SlowPath => {}
            Admission::Uncommon => uncommon.push(at),
            Admission::Stale => self.stale.push(at),
            Admission::PerPacketRules => {
                let (_, meta) = packets.head_and_meta(at);
                // The number of removals tells later whether the session may have ended meanwhile.
                (meta.session, meta.stage) = (flow_ref.0, StageWord::from_removals(context.removals));
                return Next::PerPacketRules;
            }
        }
        Next::SlowPath
    }

    /// Decides what becomes of `n` packets with a summary, and counts them for their rules if they are
    /// [`Admission::Established`] or [`Admission::Uncommon`] because of their decision.
    #[inline(always)]
    fn admit<const IP6: bool>(
        &mut self,
        flow_ref: FlowRef,
        flow: &mut Flow,
        (summary, n): (&PacketSummary, u32),
        note_decision: bool,
    ) -> Admission {
        let note = self.stamps.stamp(summary.in_port);
        if (!IP6 || flow.is_ip4()) && has_current_note(flow, summary, note) {
            if flow.opaque4()[1] == 0 {
                self.deferred.defer(flow_ref, flow);
            }
            return Admission::Established;
        }
        if !flow.flags.contains(FlowFlags::SETTLED) || summary.flags & PacketSummary::LOOPED != 0 {
            return Admission::Uncommon;
        }
        if summary.flags & PacketSummary::UNSTEADY != 0 {
            return Admission::SlowPath;
        }
        let decision = self.decisions.stamp(summary.in_port);
        if self.has_per_packet_rules {
            return match self.decisions.is_current(flow.decision(), decision) {
                true => Admission::PerPacketRules,
                false => Admission::SlowPath,
            };
        }
        self.prefetch_decisions |= note_decision;
        let stamps = PacketStamps { decision, note, note_decision };
        match count_by_decision(flow, &mut self.decisions, (n, summary.bytes), stamps) {
            None if self.decisions.has_changes() => Admission::Stale,
            None => Admission::SlowPath,
            Some(flags) if flags.is_empty() && !flow.flags.contains(FlowFlags::XLAT_SLOW) => {
                Admission::Established
            }
            Some(_) => Admission::Uncommon,
        }
    }
}

/// Routes a packet to a next hop, as [`Packets::forward4`] does. `IP6`: the packet may be IPv6.
#[inline(always)]
fn forward<const IP6: bool, P: Packets>(packets: &mut P, (at, hop): (usize, u16), flow: &Flow) -> bool {
    if !IP6 || flow.is_ip4() { packets.forward4(at, hop) } else { packets.forward6(at, hop) }
}

/// Translates a packet. Returns `true` if the packet goes through the chain of its session. `FORWARD`: the
/// packet's bytes have been prefetched for routing.
#[inline(always)]
fn translate_established<const FORWARD: bool, P: Packets>(
    (at, flow_ref): (usize, FlowRef),
    flow: &Flow,
    summary: &PacketSummary,
    out_port: impl FnOnce() -> u16,
    packets: &mut P,
) -> bool {
    if flow.flags & TRANSLATION == FlowFlags::XLAT4 && summary.l4 != 0 {
        if !FORWARD {
            packets.prefetch_bytes(at + PREFETCH_PACKETS);
        }
        let is_udp = summary.flags & PacketSummary::UDP != 0;
        translate_ip4_common(&flow.xlat4(), packets.head_mut(at), summary.l4.into(), is_udp);
    } else if flow.flags & (FlowFlags::XLAT4 | FlowFlags::CHAIN_TRANSLATES) == FlowFlags::XLAT4 {
        packets.prefetch(at + PREFETCH_PACKETS);
        let (head, meta) = packets.head_and_meta(at);
        translate_ip4(&flow.xlat4(), head, meta);
    }
    if !flow.flags.contains(FlowFlags::CHAINED) {
        return false;
    }
    packets.prefetch_meta(at + PREFETCH_PACKETS);
    let meta = packets.meta_mut(at);
    (meta.session, meta.edits_len) = (flow_ref.0, 0);
    meta.out_port = out_port();
    true
}
