//! Which SYN a stream begins with.
//!
//! Theory of operation. A middlebox sees SYNs that the receiver ignores: those of a host that knows a
//! wrong number, those of forgers, and those that are lost behind it. If it began to read at the number of
//! such a SYN, it would take other bytes for copies of what has gone on, and these would reach the receiver
//! unread. So a SYN counts if nothing else has been read, and a SYN on a connection counts if it is answered.
//! Bytes in front of the SYN that counts do not go on.
//!
//! Bytes behind a SYN may come before its answer. Either the answer takes another way, or somebody sends what
//! the receiver does not take yet: functions would read it, and could not edit it, and what the receiver
//! takes later would be a copy of it. So these bytes are read, and if an answer to the SYN comes, the stream
//! begins again behind the SYN.

use super::flow::{ACKED, EARLY, FIN, Flow, PENDING, SCALED, STAMPED, SYN, SYNCED};
use super::{Cause, OnPickup, Outcome, Policy, Segment, Status, TcpStream, shift_of};
use crate::{is_after, is_before};

/// The flags that tell the segments of a handshake from others.
const KIND: u8 = Segment::SYN | Segment::ACK | Segment::RST;
const SYN_ACK: u8 = Segment::SYN | Segment::ACK;

impl TcpStream {
    /// Whether a segment is the SYN of another connection with the same addresses and ports (RFC 9293,
    /// 3.10.7.4 and 3.6.1): the one before has ended or was never answered. A reset does not end it, since
    /// the receiver may have ignored it.
    pub(super) fn restarts(&self, direction: usize, segment: &Segment) -> bool {
        let [flow, other] = [direction, !direction].map(|at| &self.flows[at & 1]);
        let is_syn = segment.flags & KIND == Segment::SYN;
        let is_over = flow.bits & other.bits & FIN != 0;
        let is_unanswered = flow.bits & SYN != 0 && other.bits & SYNCED == 0;
        let is_other = flow.bits & SYN == 0 || flow.initial != segment.seq;
        let is_read = matches!(self.status(), Status::Read | Status::Leaving);
        // What an answer without a SYN has brought.
        let is_early = other.bits & EARLY != 0 && flow.bits & SYNCED == 0;
        is_syn && is_other && is_read && (is_over || is_unanswered || is_early)
    }

    /// A segment of a connection that is read has its place. Notes if it has bytes, and the SYN in front of
    /// them is not answered.
    pub(super) fn note_early(&mut self, direction: usize, segment: &Segment) {
        let other = self.flows[!direction & 1];
        let flow = &mut self.flows[direction & 1];
        let has_bytes = segment.len != 0 || segment.flags & Segment::FIN != 0;
        let is_awaiting = flow.bits & (SYN | EARLY) == SYN && other.bits & SYNCED == 0;
        if is_awaiting && has_bytes && segment.flags & Segment::SYN == 0 {
            flow.pending_or_stamp = flow.initial;
            flow.pending_scale = if flow.bits & SCALED != 0 { flow.scale + 1 } else { 0 };
            flow.bits = flow.bits & !STAMPED | PENDING | EARLY;
        }
    }

    /// Whether a segment answers a SYN and its data (RFC 7413), and more bytes came before this answer. The
    /// stream cannot begin again behind the data, and no client sends so (RFC 7413, 4.2.1).
    pub fn answers_early_data(&self, direction: usize, segment: &Segment) -> bool {
        let other = &self.flows[!direction & 1];
        let data = segment.ack.wrapping_sub(other.pending_or_stamp.wrapping_add(1));
        let is_early = other.bits & (EARLY | ACKED) == EARLY;
        segment.flags & KIND == SYN_ACK && is_early && (1..=u16::MAX.into()).contains(&data)
    }

    /// Whether the handshake of a new connection completes while another one is read or passes unread: its
    /// SYN has come, and this is the answer. So a stray segment in front of a SYN does not hide the
    /// connection. Both ends may have forgotten a connection and open another one.
    pub(super) fn begins_again(&mut self, direction: usize, segment: &Segment) -> bool {
        let is_passed = match self.status() {
            Status::New | Status::Passed(Cause::None) => return false,
            Status::Passed(_) => true,
            Status::Read | Status::Leaving => false,
        };
        let flow = &mut self.flows[direction & 1];
        match segment.flags & KIND {
            Segment::SYN => {
                let is_other = flow.bits & SYN == 0 || flow.initial != segment.seq;
                if is_passed || flow.bits & SYNCED != 0 && is_other {
                    let is_same = flow.bits & PENDING != 0 && flow.pending_or_stamp == segment.seq;
                    flow.pending_or_stamp = segment.seq;
                    flow.pending_scale = segment.scale.map_or(0, |_| shift_of(segment.scale) + 1);
                    flow.bits = flow.bits & !STAMPED | PENDING;
                    flow.bits &= !if is_same { 0 } else { EARLY };
                }
                false
            }
            SYN_ACK => {
                let other = &mut self.flows[!direction & 1];
                let is_early = other.bits & EARLY != 0;
                let is_pending = other.bits & PENDING != 0 && (!is_early || other.bits & ACKED == 0);
                if !is_pending || segment.ack != other.pending_or_stamp.wrapping_add(1) {
                    return false;
                }
                let scaled = if other.pending_scale != 0 { SCALED } else { 0 };
                *other = Flow {
                    initial: segment.ack.wrapping_sub(1),
                    next: segment.ack,
                    scale: other.pending_scale.saturating_sub(1),
                    bits: SYN | SYNCED | scaled,
                    ..Flow::default()
                };
                self.flows[direction & 1] = Flow::default();
                self.status = Status::Read.number();
                true
            }
            _ => false,
        }
    }

    /// The connection cannot be read.
    pub(super) fn give_up(&mut self, cause: Cause, pickup: OnPickup) -> Outcome {
        if pickup == OnPickup::Reset {
            return Outcome::Reset(cause);
        }
        self.stop(cause);
        Outcome::Stop(cause)
    }

    /// If a SYN is answered again with another number, and nobody has acknowledged the first answer, the
    /// stream begins with this one. SYN cookies change after a while (RFC 4987, 3.6).
    pub(super) fn replace_answer(&mut self, direction: usize, segment: &Segment) {
        let flow = &mut self.flows[direction & 1];
        let is_unread = flow.bits & (SYN | SYNCED | ACKED | FIN) == SYN | SYNCED
            && flow.next == flow.initial.wrapping_add(1);
        if segment.flags & KIND == SYN_ACK && is_unread && flow.initial != segment.seq {
            *flow = Flow::default();
        }
    }

    /// If a segment answers another SYN than the last one that was seen, the stream begins with that one.
    pub(super) fn answer(&mut self, direction: usize, segment: &Segment) {
        let (flow, other) = (self.flows[direction & 1], &mut self.flows[!direction & 1]);
        let is_answer = segment.flags & SYN_ACK == SYN_ACK;
        let is_known = is_after(segment.ack, other.initial) && !is_after(segment.ack, other.next);
        if is_answer && flow.bits & SYNCED == 0 && other.bits & SYN != 0 && !is_known {
            (other.next, other.initial) = (segment.ack, segment.ack.wrapping_sub(1));
        }
    }

    /// The receiver has acknowledged bytes that have not gone on. None: the segment is looked at further.
    pub(super) fn skip_to(
        &mut self,
        direction: usize,
        segment: &Segment,
        policy: &Policy,
    ) -> Option<Outcome> {
        let (flow, other) = (self.flows[direction & 1], &mut self.flows[!direction & 1]);
        if flow.bits & SYNCED == 0 {
            return None;
        }
        if other.bits & SYN != 0 {
            // All bytes come by here: nobody has got these. Their sender drops the segment, too (RFC 9293,
            // 3.10.7.4).
            return Some(Outcome::Drop(Cause::OutsideWindow));
        }
        // Who forges an acknowledgement has to know the number of its own direction.
        let first = if flow.bits & ACKED != 0 { flow.acked } else { flow.next };
        if is_before(segment.seq, first) || is_after(segment.seq, flow.next) {
            return None;
        }
        if policy.pickup != OnPickup::Inspect {
            return Some(self.give_up(Cause::Gap, policy.pickup));
        }
        // The bytes in between have taken another way.
        other.next = segment.ack;
        None
    }
}
