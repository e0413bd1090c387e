//! Answers to packets that are refused: TCP resets and ICMP errors.
//!
//! Theory of operation. A rule that rejects drops a packet as one that drops does. Then the packet becomes
//! the answer to its sender and leaves by the port that it came in by. TCP gets the reset of a closed port,
//! in the name of the destination (RFC 9293, 3.10.7.1). Everything else gets an ICMP error, administratively
//! prohibited (RFC 1812, 5.2.7.1; RFC 4443, 3.1). Its source is the destination of the packet, too: a box
//! between two wires has no address. All answers share the limit of ICMP errors; packets beyond it are
//! dropped without one.

use mmb_flow::{IcmpErrorKind, may_answer, rewrite_as_icmp_error};
use mmb_nf::tcp_segment::{SegmentTo, reset};
use mmb_packet::{DropReason, Kind, Meta, PacketBuf, PacketFlags, parse};

use super::SlowPath;
use super::packet::SlowPacket;
use crate::store::SessionStore;
use crate::{Environment, Next};

impl SlowPath {
    /// Answers a packet that a rule has dropped, if the rule rejects it and an answer may be sent.
    pub(super) fn answer_rejected<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
    ) -> Next {
        let rejects = |slot| pkt.env.policy().rule_info(slot).rejects;
        if !store.rules.last_decider.is_some_and(|rule| rejects(rule.slot)) {
            return Next::Drop;
        }
        match destination(pkt.packet.head(), pkt.meta) {
            Some(source) => self.reject(store, pkt, DropReason::Rule, source),
            None => Next::Drop,
        }
    }

    /// Drops a packet and answers within the limit of ICMP errors. `source` is the source of an ICMP error,
    /// in the format of keys. A TCP packet that a rule drops gets a reset.
    pub(super) fn reject<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
        reason: DropReason,
        source: [u8; 16],
    ) -> Next {
        let next = pkt.drop(reason);
        if pkt.is_looped() || !may_answer(pkt.packet.head(), pkt.meta) || !self.error_budget.take(pkt.now) {
            return next;
        }
        let is_answered = if reason == DropReason::Rule && pkt.meta.kind.l4() == Kind::TCP {
            rewrite_as_reset(pkt.packet, pkt.meta)
        } else {
            rewrite_as_icmp_error(pkt.packet, pkt.meta, IcmpErrorKind::PROHIBITED, source)
        };
        if !is_answered {
            return next;
        }
        store.counters.answered += 1;
        pkt.meta.drop_reason = reason as u8;
        pkt.meta.out_port = pkt.in_port;
        Next::Reply
    }
}

/// Rewrites a TCP packet as a reset to its sender. False if it is a reset itself or a fragment; it is
/// unchanged then.
fn rewrite_as_reset(packet: &mut impl PacketBuf, meta: &mut Meta) -> bool {
    if meta.flags.contains(PacketFlags::FRAGMENT) {
        return false;
    }
    let Some(frame) = reset(packet.head(), meta, SegmentTo::Sender) else { return false };
    let bytes = frame.bytes();
    let Some(excess) = packet.len().checked_sub(bytes.len()) else { return false };
    if packet.head().len() < bytes.len() || !packet.shrink_back(excess) {
        return false;
    }
    packet.head_mut()[..bytes.len()].copy_from_slice(bytes);
    parse(packet.head(), bytes.len(), meta).is_ok()
}

/// The destination address of a packet, in the format of keys.
fn destination(head: &[u8], meta: &Meta) -> Option<[u8; 16]> {
    let ip = head.get(usize::from(meta.l3_off)..)?;
    match meta.kind.l3() {
        Kind::IP4 => {
            let address = ip.get(16..20)?;
            Some(std::array::from_fn(|i| address.get(i).copied().unwrap_or(0)))
        }
        _ => ip.get(24..40)?.first_chunk().copied(),
    }
}
