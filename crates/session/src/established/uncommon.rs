//! Packets of established sessions that need more than counting and simple translation.

use mmb_flow::{FlowFlags, FlowRef, RedirectState, Table, latest_ack, translate_ip4};
use mmb_packet::{DropReason, Meta, PacketFlags, StageWord};
use rand::Rng;
use rand::rngs::SmallRng;

use super::DecisionCache;
use super::decisions::DecisionFlags;
use crate::lookup::summary::{PacketSummary, steady_ack};
use crate::rules::attached::RuleLists;
use crate::translation::record::SessionRecords;
use crate::{Environment, Next, SessionCounters, broker};

/// The parts of a worker's sessions that the established path uses.
pub(crate) struct EstablishedPath<'a> {
    pub table: &'a mut Table,
    pub cache: &'a mut DecisionCache,
    pub random: &'a mut SmallRng,
    pub lists: &'a RuleLists,
    /// Buffer for slots of rules.
    pub slots: &'a mut Vec<u32>,
    pub records: &'a SessionRecords,
    pub counters: &'a mut SessionCounters,
}

impl EstablishedPath<'_> {
    /// Finishes a packet whose flow is not settled, or a packet that was counted and whose rules do more than
    /// accept, or whose translation is not simple.
    #[inline(never)]
    pub fn process_uncommon(
        &mut self,
        (now, env): (u32, &impl Environment),
        (flow_ref, summary): (FlowRef, &PacketSummary),
        (head, meta): (&mut [u8], &mut Meta),
        edits: &mut Vec<u32>,
    ) -> Next {
        let &PacketSummary { in_port, bytes, .. } = summary;
        meta.session = flow_ref.0;
        let flow = self.table.flow(flow_ref);
        let is_chained = flow.flags.contains(FlowFlags::CHAINED);
        if !flow.flags.contains(FlowFlags::SETTLED) || meta.flags.contains(PacketFlags::LOOPED) {
            if is_chained && let Some(reason) = self.count_refused(flow_ref, in_port, bytes) {
                return drop_packet(meta, reason);
            }
            return self.follow_redirect(now, flow_ref, summary.flags as u8, meta);
        }
        let number = flow.decision();
        let (decided, ack) = (self.cache.decisions.flags(number), steady_ack(head, meta).flatten());
        if decided.intersects(DecisionFlags::MAY_DROP) && self.drops(number, env) {
            return drop_packet(meta, DropReason::Rule);
        }
        if let Err(reason) = self.count_and_translate(now, flow_ref, (head, meta), bytes, ack) {
            return drop_packet(meta, reason);
        }
        let to_broker = broker::divert(self.table, env, flow_ref, in_port, (head, meta));
        if !decided.contains(DecisionFlags::EDIT) && !is_chained {
            return if to_broker { Next::Send } else { Next::Pass };
        }
        if !to_broker {
            meta.out_port = env.out_port(in_port);
        }
        let first = edits.len();
        if let Some(decision) = self.cache.decisions.full(number) {
            edits.extend_from_slice(decision.edits());
        }
        let next = set_edits(first, meta, edits);
        if is_chained { Next::Chain } else { next }
    }

    /// Counts a packet of a session that a function has refused, if all its rules are known. Returns the
    /// reason for the drop.
    fn count_refused(&mut self, flow_ref: FlowRef, in_port: u16, bytes: u32) -> Option<DropReason> {
        let decisions = &mut self.cache.decisions;
        let reason = self.records.refusal(self.table, flow_ref.session(), decisions.epoch())?;
        let (number, stamp) = (self.table.flow(flow_ref).decision(), decisions.stamp(in_port));
        decisions.count(number, stamp, (1, bytes)).map(|_| reason)
    }

    /// Hands a packet to the worker that a redirect names. Packets that may shorten the life of the redirect,
    /// and other packets of flows that are not settled, take the slow path. `flags`: those of TCP.
    fn follow_redirect(&mut self, now: u32, flow_ref: FlowRef, flags: u8, meta: &mut Meta) -> Next {
        let was_returned = meta.flags.intersects(PacketFlags::REFUSED | PacketFlags::ASTRAY);
        let old = self.table.redirect_state(flow_ref);
        let state = old.after(flags);
        let stays = !was_returned && (state == old || state == RedirectState::Open);
        let worker = self.table.redirect_worker(flow_ref).filter(|_| stays);
        let Some(worker) = worker else { return Next::SlowPath };
        if state != old {
            self.table.set_redirect_state(flow_ref, state);
        }
        self.table.flow_mut(flow_ref).last_seen = now;
        hand_off(self.counters, meta, worker)
    }

    /// Whether a decision that drops, always or at random, drops this packet. Counts what it decides.
    fn drops(&mut self, number: u32, env: &impl Environment) -> bool {
        let random = &mut self.random;
        let Some(full) = self.cache.decisions.full(number) else { return false };
        let outcome = full.decide(&mut || random.random());
        if let Some(slot) = outcome.decider {
            env.count_decided(slot, 1);
        }
        outcome.drop
    }

    /// Counts and translates a packet of a settled flow. `ack`: its TCP acknowledgement number.
    #[inline(always)]
    pub fn count_and_translate(
        &mut self,
        now: u32,
        flow_ref: FlowRef,
        (head, meta): (&mut [u8], &Meta),
        bytes: u32,
        ack: Option<u32>,
    ) -> Result<(), DropReason> {
        let Some(flow) = self.table.flows_mut().get_mut(flow_ref.0 as usize) else { return Ok(()) };
        flow.count(1, bytes);
        flow.last_seen = now;
        if flow.flags.contains(FlowFlags::XLAT_SLOW) {
            return self.translate_complex(flow_ref, head, meta, ack);
        }
        if let Some(ack) = ack {
            flow.ack = latest_ack(flow.ack, ack);
        }
        if flow.flags & (FlowFlags::XLAT4 | FlowFlags::CHAIN_TRANSLATES) == FlowFlags::XLAT4 {
            translate_ip4(&flow.xlat4(), head, meta);
        }
        Ok(())
    }

    /// Translates a packet where more than IPv4 addresses and ports is replaced. Sequence numbers may be
    /// translated, too.
    fn translate_complex(
        &mut self,
        flow_ref: FlowRef,
        head: &mut [u8],
        meta: &Meta,
        ack: Option<u32>,
    ) -> Result<(), DropReason> {
        if let Some(ack) = ack {
            let ack = self.records.tracked_ack(self.table, flow_ref, ack);
            let flow = self.table.flow_mut(flow_ref);
            flow.ack = latest_ack(flow.ack, ack);
        }
        self.records.translate(self.table, flow_ref, head, meta)
    }
}

/// Sets the drop reason of a packet.
pub(super) fn drop_packet(meta: &mut Meta, reason: DropReason) -> Next {
    meta.drop_reason = reason as u8;
    Next::Drop
}

/// Gives a packet to another worker.
pub(crate) fn hand_off(counters: &mut SessionCounters, meta: &mut Meta, worker: u16) -> Next {
    counters.redirected += 1;
    meta.flags |= PacketFlags::HANDED;
    meta.stage = StageWord::from_worker(worker);
    Next::HandOff
}

/// Stores the range of a packet's edits, which begin at `first` and end at the end of the list.
pub(crate) fn set_edits(first: usize, meta: &mut Meta, edits: &mut Vec<u32>) -> Next {
    edits.truncate(first + mmb_policy::MAX_EDITS);
    meta.set_edits(first as u32, (edits.len() - first) as u16);
    if meta.edits_len == 0 { Next::Pass } else { Next::Edit }
}
