//! What leaves: segments as they are, and others that are built from the output.

use super::super::log::EditPool;
use super::{
    ACKED, BEGUN, BEHIND, EDGE, FIN, FIN_SENT, Flow, PASSES, PROBED, PUSHED, STAMPED, Splices, TOLD,
};
use crate::{Segment, View, is_after, is_before};

/// Bytes of the output, by the receiver's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputRange {
    /// Number of the first byte.
    pub from: u32,
    /// Number behind the last byte.
    pub to: u32,
    /// The FIN follows.
    pub has_fin: bool,
}

impl OutputRange {
    /// Whether there is nothing to send.
    pub fn is_empty(self) -> bool {
        self.from == self.to && !self.has_fin
    }
}

/// A segment that goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leaving {
    /// Sequence number.
    pub seq: u32,
    /// Bytes of payload.
    pub len: u32,
    /// The lower eight flags.
    pub flags: u8,
    /// Which of the payload is new.
    pub view: View,
    /// The output has grown by the new payload, and by nothing else.
    pub is_unchanged: bool,
    /// The receiver's number behind the output before this segment.
    pub before: u32,
    /// Bytes of the sender have become output, or were removed.
    pub has_moved: bool,
    /// The sender's number behind all that was seen of it, also of what waits.
    pub next: u32,
    /// Acknowledgement number and window, as the receiver is told.
    pub carries: (u32, u16),
}

/// How a segment goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// As it is, with this sequence number.
    InPlace(u32),
    /// As segments that are built from the output.
    Built(BuiltSegments),
}

/// The segments that are sent in place of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuiltSegments {
    /// The first bytes of the payload, which go on as they are: those in front of the output.
    pub front: OutputRange,
    /// Bytes that were sent before, and then bytes that follow.
    pub ranges: [OutputRange; 2],
    /// The receiver gets an acknowledgement without bytes, with this sequence number.
    pub acknowledgement: Option<u32>,
    /// The sender gets an acknowledgement: its bytes were removed, and nothing else is outstanding.
    pub answers_sender: bool,
}

impl BuiltSegments {
    /// A segment whose `len` bytes, up to a receiver's number, were acknowledged. Functions do not see its
    /// bytes, which may be others than those that they have let out, so it goes on without them. The receiver
    /// answers it as any segment with old numbers (RFC 9293, 3.10.7.4): the sender learns what it has.
    fn without_bytes(end: u32, len: u32, has_fin: bool) -> BuiltSegments {
        let fin = OutputRange { from: end, to: end, has_fin };
        let acknowledgement = (!has_fin).then(|| end.wrapping_sub(len));
        BuiltSegments { ranges: [OutputRange::default(), fin], acknowledgement, ..BuiltSegments::default() }
    }
}

impl Splices {
    /// Returns output that was not sent and fits into the receiver's window, and notes it as sent.
    pub fn take_pending(&mut self, number: u32, direction: usize) -> OutputRange {
        self.parts(number, direction).map(|(flow, _)| flow.take_pending()).unwrap_or_default()
    }

    /// Takes back bytes at the end of what was sent: they leave later. `is_pushed`: they are those of a
    /// pushed segment (PSH).
    pub fn defer(&mut self, number: u32, direction: usize, bytes: u32, is_pushed: bool) {
        if let Some((flow, _)) = self.parts(number, direction) {
            flow.sent = flow.sent.wrapping_sub(bytes);
            flow.bits |= if is_pushed { PUSHED } else { 0 };
        }
    }

    /// Whether deferred bytes were pushed. All of them leave now.
    pub fn take_push(&mut self, number: u32, direction: usize) -> bool {
        let Some((flow, _)) = self.parts(number, direction) else { return false };
        let is_pushed = flow.has(PUSHED);
        flow.bits &= !PUSHED;
        is_pushed
    }

    /// Returns deferred bytes in front of a receiver's number, and notes them as sent.
    pub fn take_deferred(&mut self, number: u32, direction: usize, end: u32) -> OutputRange {
        let Some((flow, _)) = self.parts(number, direction) else { return OutputRange::default() };
        let (from, limit) = (flow.sent, flow.limit());
        let to = if is_after(end, limit) { limit } else { end };
        if !is_after(to, from) {
            return OutputRange::default();
        }
        flow.sent = to;
        OutputRange { from, to, has_fin: false }
    }

    /// Takes a segment that simply goes on: it has no flags that count, all of its bytes are new and as they
    /// came, they fit into the receiver's window, and nothing waits in front of them. `segment`: its number,
    /// and what it carries. Returns its number for the receiver. None: it is another one, and nothing is
    /// changed.
    pub fn take_next(
        &mut self,
        (number, direction): (u32, usize),
        (seq, carries): (u32, (u32, u16)),
        bytes: &[u8],
        now: u32,
    ) -> Option<u32> {
        const USUAL: u16 = BEGUN | ACKED | EDGE | TOLD | STAMPED;
        let flow = &mut self.connections.get_mut((number as usize).checked_sub(1)?)?[direction & 1];
        let from = flow.output_end();
        let to = from.wrapping_add(bytes.len() as u32);
        let is_next =
            flow.bits & BEGUN != 0 && flow.bits & !USUAL == 0 && flow.end == seq && flow.sent == from;
        if !is_next || flow.has(EDGE) && is_before(flow.edge, to) {
            return None;
        }
        if !bytes.is_empty() {
            if !self.output.has_room(number, direction, bytes.len())
                || !self.output.append(number, direction, from, bytes)
            {
                return None;
            }
            flow.end = seq.wrapping_add(bytes.len() as u32);
            (flow.sent, flow.held_since) = (to, now);
        }
        flow.carried = carries;
        Some(from)
    }

    /// Decides how a segment goes on, and notes what is sent.
    pub fn depart(&mut self, number: u32, direction: usize, leaving: &Leaving) -> Departure {
        let Some((flow, edits)) = self.parts(number, direction).filter(|(flow, _)| flow.has(BEGUN)) else {
            return Departure::InPlace(leaving.seq);
        };
        let carries_news = std::mem::replace(&mut flow.carried, leaving.carries) != leaving.carries;
        let is_syn = leaving.flags & Segment::SYN != 0;
        let has_fin = leaving.flags & Segment::FIN != 0;
        let start = leaving.seq.wrapping_add(u32::from(is_syn));
        if leaving.view.is_end {
            flow.bits |= FIN;
        }
        let is_empty = leaving.len == 0 && !has_fin;
        if is_empty && is_syn {
            // The first of its connection, or of the next one.
            return Departure::InPlace(leaving.seq);
        }
        let is_reset = leaving.flags & Segment::RST != 0;
        if is_empty || is_reset {
            return Departure::InPlace(flow.number_of(edits, start, (leaving.next, is_reset)));
        }
        if flow.has(PASSES) && !is_before(start, flow.end) && !flow.lacks_preacked(start) {
            let seq = start.wrapping_add(flow.log.offset);
            let end = seq.wrapping_add(leaving.len);
            if is_after(end, flow.sent) {
                flow.sent = end;
            }
            return Departure::InPlace(seq.wrapping_sub(u32::from(is_syn)));
        }
        let front = flow.front(edits, start, leaving.len);
        if !front.is_empty() {
            return self.depart_behind(number, direction, leaving, (start, front));
        }
        let is_new = leaving.view.skip == 0 && u32::from(leaving.view.len) == leaving.len;
        let fits = flow.limit() == flow.output_end() || leaving.len == 1 && flow.is_idle();
        let is_complete = !has_fin || leaving.view.is_end;
        if is_new && leaving.is_unchanged && flow.sent == leaving.before && fits && is_complete {
            flow.sent = flow.output_end();
            flow.bits |= if has_fin { FIN_SENT } else { 0 };
            return Departure::InPlace(leaving.before.wrapping_sub(u32::from(is_syn)));
        }
        let end = start.wrapping_add(leaving.len);
        let has_old = !leaving.view.is_end && leaving.view.len == 0;
        if let Some(number) = flow.old_number(edits, end, has_fin).filter(|_| has_old) {
            return Departure::Built(BuiltSegments::without_bytes(number, leaving.len, has_fin));
        }
        self.build(number, direction, leaving, (start, carries_news))
    }

    /// Decides how a segment goes on of which the first bytes are in front of the output.
    #[cold]
    fn depart_behind(
        &mut self,
        number: u32,
        direction: usize,
        leaving: &Leaving,
        (start, front): (u32, OutputRange),
    ) -> Departure {
        let len = front.to.wrapping_sub(front.from);
        if len == leaving.len {
            return Departure::InPlace(front.from.wrapping_sub((leaving.flags & Segment::SYN != 0).into()));
        }
        let seq = start.wrapping_add(len);
        let skip = leaving.view.skip.saturating_sub(u16::try_from(len).unwrap_or(u16::MAX));
        let view = View { skip, ..leaving.view };
        let rest = Leaving { seq, len: leaving.len - len, view, ..*leaving };
        match self.build(number, direction, &rest, (seq, false)) {
            Departure::Built(built) => Departure::Built(BuiltSegments { front, ..built }),
            in_place => in_place,
        }
    }

    /// Decides which segments are sent in place of one.
    fn build(
        &mut self,
        number: u32,
        direction: usize,
        leaving: &Leaving,
        (start, carries_news): (u32, bool),
    ) -> Departure {
        let Some((flow, edits)) = self.parts(number, direction) else {
            return Departure::InPlace(leaving.seq);
        };
        let is_repeated = leaving.view.len == 0 && !leaving.view.is_end;
        let old = if is_repeated { leaving.len } else { leaving.view.skip.into() };
        let mut repeated = OutputRange { from: flow.sent, to: flow.sent, has_fin: false };
        let lacks_preacked = flow.lacks_preacked(start) && (is_repeated || old != 0);
        if old != 0 && !is_after(start, flow.end) || lacks_preacked {
            let from = flow.log.receiver_numbers(edits, start).0;
            let to = flow.log.receiver_numbers(edits, start.wrapping_add(old)).1;
            let is_older = flow.has(ACKED) && is_before(from, flow.acked);
            repeated.from = if is_older || lacks_preacked { flow.acked } else { from };
            let last = if is_after(flow.sent, flow.output_end()) { flow.output_end() } else { flow.sent };
            repeated.to = if is_after(to, last) { last } else { to };
            if !is_before(repeated.from, repeated.to) {
                repeated.from = repeated.to;
            }
        }
        let was_sent = flow.has(FIN_SENT);
        let is_idle = flow.is_idle();
        let mut fresh = self.take_pending(number, direction);
        let Some((flow, _)) = self.parts(number, direction) else { return Departure::InPlace(leaving.seq) };
        // A FIN that is repeated.
        let reaches = start.wrapping_add(leaving.len) == flow.end;
        if leaving.flags & Segment::FIN != 0 && was_sent && reaches {
            fresh.has_fin = true;
        }
        // The receiver has no room: a byte behind its window asks for the window.
        if fresh.is_empty() && is_idle && flow.sent != flow.output_end() {
            fresh = OutputRange { to: flow.sent.wrapping_add(1), ..fresh };
            flow.bits |= PROBED;
        }
        let is_silent = repeated.is_empty() && fresh.is_empty();
        let is_done = flow.has(ACKED) && !is_before(flow.acked, flow.output_end());
        let next = flow.next();
        Departure::Built(BuiltSegments {
            front: OutputRange::default(),
            ranges: [repeated, fresh],
            acknowledgement: (is_silent && carries_news).then_some(next),
            answers_sender: is_silent && is_done && leaving.has_moved,
        })
    }
}

impl Flow {
    /// See [`Splices::take_pending`].
    #[inline]
    pub(super) fn take_pending(&mut self) -> OutputRange {
        let (from, limit) = (self.sent, self.limit());
        if is_after(limit, self.sent) {
            (self.sent, self.bits) = (limit, self.bits & !PROBED);
        }
        let has_fin = self.has(FIN) && !self.has(FIN_SENT) && self.sent == self.output_end();
        self.bits |= if has_fin { FIN_SENT } else { 0 };
        OutputRange { from, to: self.sent, has_fin }
    }

    /// Whether all that was sent is acknowledged.
    fn is_idle(&self) -> bool {
        self.has(ACKED) && self.acked == self.next()
    }

    /// Returns the first bytes of a segment that are in front of the output, and that the receiver may lack.
    fn front(&self, edits: &EditPool, start: u32, len: u32) -> OutputRange {
        if !self.has(BEHIND) || !is_before(start, self.first) {
            return OutputRange::default();
        }
        let from = self.log.receiver_numbers(edits, start).0;
        OutputRange { from, to: from.wrapping_add(self.first.wrapping_sub(start).min(len)), has_fin: false }
    }

    /// Returns the number of a segment without payload, or of a reset.
    ///
    /// The sender is ahead of what has gone on if bytes of it wait. What is longer behind edits than the
    /// sender knows may end behind the receiver's window, where acknowledgements are ignored (RFC 9293,
    /// 3.10.7.4). So they go on in front of what waits. A reset that does not follow all that was seen keeps
    /// its place: it would count there (RFC 5961, 3.2).
    fn number_of(&self, edits: &EditPool, start: u32, (next, is_reset): (u32, bool)) -> u32 {
        let next = next.wrapping_add(u32::from(self.has(FIN)));
        let is_told = self.has(TOLD) && !is_after(start, self.told.wrapping_add(1));
        let is_ahead = start == next || !is_reset && is_told && is_after(start, next);
        if is_ahead && !self.has(PASSES) {
            return self.next();
        }
        self.log.receiver_numbers(edits, start).0
    }

    /// Returns the receiver's number behind the bytes of a segment that the receiver has all acknowledged: a
    /// keepalive, or a retransmission. `end`: the sender's.
    fn old_number(&self, edits: &EditPool, end: u32, has_fin: bool) -> Option<u32> {
        let is_complete = self.sent == self.output_end() || self.has(PASSES);
        let is_whole = !is_after(end, self.end) && is_complete && self.has(ACKED);
        let to = self.log.receiver_numbers(edits, end).1;
        let last = to.wrapping_add(u32::from(has_fin));
        let is_old = is_whole && !is_after(last, self.acked) && (!has_fin || self.has(FIN_SENT));
        is_old.then_some(to)
    }
}
