//! Packets without session.

use mmb_flow::{FlowRef, IcmpErrorKind, Key, NatConfig, rewrite_as_icmp_error};
use mmb_packet::{DropReason, PacketBuf, flags};

use super::nat::REDIRECT_TIMEOUT;
use super::refusal::Refusal;
use crate::rules::opening::OpeningRules;
use crate::sessions::Sessions;
use crate::slow_path::packet::SlowPacket;
use crate::{Environment, Next};

impl Sessions {
    /// Processes a packet without session.
    pub(crate) fn process_unknown<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &mut SlowPacket<'_, E, P>,
        key: &Key,
    ) -> Next {
        let mut opening = self.rules.opening(&self.chains, pkt);
        let next = self.open_or_pass(pkt, key, &mut opening);
        self.rules.keep_opening(opening);
        if next == Next::Drop && pkt.is_looped() {
            self.undo_hairpin(pkt, key);
        }
        next
    }

    /// Removes the session that a packet has just opened, whose translation came back to NAT and was dropped
    /// there. Otherwise it would keep a mapping and count against limits.
    fn undo_hairpin<E: Environment, P: PacketBuf>(&mut self, pkt: &SlowPacket<'_, E, P>, key: &Key) {
        let reply = self.table.find(&key.reversed());
        if !reply.is_some() || self.table.redirect_worker(reply).is_some() {
            return;
        }
        let id = reply.session();
        let (packets, _) = self.table.flow(reply.opposite()).counts();
        if self.table.session(id).created == pkt.now && packets <= 1 && self.table.is_embryonic(id) {
            self.undo_opening(id, pkt.env);
        }
    }

    /// Opens a session if NAT or a rule demands it. Otherwise the packet passes by stateless rules.
    fn open_or_pass<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &mut SlowPacket<'_, E, P>,
        key: &Key,
        opening: &mut OpeningRules,
    ) -> Next {
        let is_for_nat = pkt.env.nat().is_nat_destination(key);
        if pkt.is_looped() && !is_for_nat {
            return pkt.drop(DropReason::NatUnmapped);
        }
        if is_for_nat && !opening.binds {
            return self.process_inbound(pkt, key);
        }
        if is_for_nat && !pkt.is_looped() && !pkt.was_returned() {
            // It may be a reply between two hosts inside, whose session belongs to the owner of the port.
            let owner = self.nat_owner(key);
            if owner != self.config.worker && self.config.can_hand_off(key, pkt.meta.flags) {
                return self.finish_opening(pkt, key, Err(Refusal::HandOff(owner)));
            }
        }
        if is_for_nat && !pkt.is_looped() && pkt.env.routed(pkt.in_port) && self.is_unmapped(key) {
            // A routed address may also be local to the machine: the packet must stay as its sender made it.
            return self.process_inbound(pkt, key);
        }
        if let Some(worker) = self.forward_worker(pkt, key) {
            return self.finish_opening(pkt, key, Err(Refusal::HandOff(worker)));
        }
        if !opening.opens {
            return self.process_stateless(pkt);
        }
        if opening.only_counts {
            let bytes = u64::from(pkt.bytes());
            pkt.hits.iter().for_each(|hit| pkt.env.count(hit.slot, 1, bytes));
        } else if self.drops_stateless(pkt) {
            return pkt.drop(DropReason::Rule);
        }
        let opened = self.open(pkt, key, opening, is_for_nat);
        self.finish_opening(pkt, key, opened)
    }

    /// Whether a packet to an address of NAT is for no host inside, as far as this worker knows.
    fn is_unmapped(&self, key: &Key) -> bool {
        self.nat_owner(key) == self.config.worker && !self.nat.pools.is_mapped(key)
    }

    /// Returns the worker that owns the sessions of the packet's source because of a forward to it. Replies
    /// may come to any worker, and may match no rule.
    fn forward_worker<E: Environment, P>(&self, pkt: &SlowPacket<'_, E, P>, key: &Key) -> Option<u16> {
        let [a, b, c, d, ..] = key.source;
        if !self.config.can_hand_off(key, pkt.meta.flags) || !pkt.env.nat().is_forwarded(key) {
            return None;
        }
        let worker = NatConfig::host_worker([a, b, c, d], usize::from(self.config.workers)) as u16;
        (worker != self.config.worker).then_some(worker)
    }

    /// Sends on a packet that has opened a session, or finishes it as the refusal demands.
    pub(super) fn finish_opening<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &mut SlowPacket<'_, E, P>,
        key: &Key,
        opened: Result<FlowRef, Refusal>,
    ) -> Next {
        match opened {
            Ok(flow) => {
                pkt.meta.session = flow.0;
                self.translate_and_send(pkt, flow)
            }
            Err(Refusal::HandOff(worker)) => {
                pkt.edits.truncate(pkt.first_edit);
                if pkt.is_handed() && !self.config.is_home(key) {
                    pkt.meta.flags |= flags::ASTRAY;
                    return self.hand_off(pkt.meta, self.config.home_worker(key));
                }
                // Only the home worker stores redirects, so that two redirects cannot name each other.
                if self.config.is_home(key) {
                    self.insert_redirect(key, worker, pkt.now);
                }
                self.hand_off(pkt.meta, worker)
            }
            Err(Refusal::Return(worker)) => {
                pkt.edits.truncate(pkt.first_edit);
                pkt.meta.flags |= flags::REFUSED;
                self.hand_off(pkt.meta, worker)
            }
            Err(Refusal::Drop(reason)) => {
                self.count_refusal(reason);
                pkt.drop(reason)
            }
            Err(Refusal::Reject(reason, source)) => {
                self.count_refusal(reason);
                self.reject(pkt, reason, source)
            }
            Err(Refusal::Answered) => {
                pkt.drop(DropReason::SynCookie);
                pkt.meta.out_port = pkt.in_port;
                Next::Reply
            }
        }
    }

    /// Counts a session that was not opened.
    fn count_refusal(&mut self, reason: DropReason) {
        match reason {
            DropReason::SessionFull => self.counters.refused_full += 1,
            DropReason::SessionLimit => self.counters.refused_source += 1,
            DropReason::SessionMiddle => self.counters.refused_middle += 1,
            DropReason::NatExhausted => self.counters.refused_exhausted += 1,
            DropReason::NatLimit => self.counters.refused_limit += 1,
            _ => {}
        }
    }

    /// Drops a packet and answers with an ICMP error, within the limit of errors.
    fn reject<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &mut SlowPacket<'_, E, P>,
        reason: DropReason,
        source: [u8; 16],
    ) -> Next {
        let next = pkt.drop(reason);
        let may_answer = !pkt.is_looped() && self.nat.error_budget.take(pkt.now);
        if !may_answer || !rewrite_as_icmp_error(pkt.packet, pkt.meta, IcmpErrorKind::PROHIBITED, source) {
            return next;
        }
        self.counters.answered += 1;
        pkt.meta.drop_reason = reason as u8;
        pkt.meta.out_port = pkt.in_port;
        Next::Reply
    }

    /// Stores that packets with this key go to another worker.
    fn insert_redirect(&mut self, key: &Key, worker: u16, now: u32) {
        // Without a redirect, the next packet is handed off as this one.
        if self.counters.redirects < u64::from(self.admission.capacity())
            && let Ok(id) = self.table.insert_redirect(key, worker, now)
        {
            // A redirect has no room of a session, and so cannot make room for one.
            self.table.remove_embryonic(id);
            self.counters.redirects += 1;
            self.table.arm_timer(id, now.wrapping_add(REDIRECT_TIMEOUT));
        }
    }
}
