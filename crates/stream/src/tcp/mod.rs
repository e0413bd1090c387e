//! TCP: the numbers of a connection in both directions.

mod early;
mod flow;
mod handshake;
mod types;

#[cfg(test)]
mod tests;

use bytemuck::{Pod, Zeroable};

use crate::{View, is_after, is_before};
use flow::{ACKED, EARLY, EDGE, FAR, FIN, Flow, HELD, PENDING, SACK, SCALED, SYN, SYNCED, UNKEPT};
pub use types::{
    Cause, HeldRange, NextHeld, OnMptcp, OnOverflow, OnPickup, Outcome, Policy, Segment, Status,
};

/// `kept` is a number of [`crate::Splices`].
const EDITED: u8 = 1 << 0;
/// The SYN of a direction has an option of connections that are not edited. Shifted by the direction.
const FIXED: u8 = 1 << 1;
/// The lowest bit of [`TcpStream::detached`].
const DETACHED: u32 = 3;

/// Furthest distance of a segment that waits, if the receiver's window is not known: the greatest window (RFC
/// 7323, 2.3).
const MOST_AHEAD: i32 = 1 << 30;

/// The state of a TCP connection. Plain data; zeros at the beginning.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct TcpStream {
    flows: [Flow; 2],
    /// A [`Status`].
    status: u8,
    /// [`EDITED`], [`FIXED`] for each direction, and the functions that are detached.
    marks: u8,
    /// The port of each end plus one, from its SYN. 0: it is not known.
    ports: [u8; 2],
    /// Number of the connection among those whose bytes are kept. 0: none.
    kept: u32,
}

const _: () = assert!(size_of::<TcpStream>() == 56, "scratchpads have little room");

impl TcpStream {
    /// Whether and why not the connection is read.
    pub fn status(&self) -> Status {
        Status::of(self.status)
    }

    /// Stops reading the connection. All further segments go on without a view. The scales of the windows
    /// stay known: bytes that functions have inserted may wait for room. So does a SYN that is not answered.
    pub fn stop(&mut self, cause: Cause) {
        const STAY: u16 = SYN | SCALED | PENDING | EARLY;
        let flows = self.flows;
        self.clear(Status::Passed(cause));
        self.flows = flows.map(|Flow { scale, pending_or_stamp, pending_scale, bits, .. }| {
            let bits = bits & STAY;
            Flow { scale, pending_or_stamp, pending_scale, bits, ..Flow::default() }
        });
    }

    /// Most functions of a group that can be detached.
    pub const MOST_DETACHED: usize = 8 - DETACHED as usize;

    /// Returns the functions that read no more of the session: a bit for each.
    pub fn detached(&self) -> u8 {
        self.marks >> DETACHED
    }

    /// A function reads no more of the session. `bit`: its own, of the lowest [`TcpStream::MOST_DETACHED`].
    /// `all`: those of all functions. If none is left, the connection passes from the next segment on.
    pub fn detach(&mut self, bit: u8, all: u8) {
        self.marks |= bit << DETACHED;
        if bit != 0 && self.detached() == all && self.status() == Status::Read {
            self.status = Status::Leaving.number();
        }
    }

    /// A function has joined that reads the session. If none has read it before, it is as one whose SYN was
    /// not seen.
    pub fn attach(&mut self) {
        match self.status() {
            Status::Leaving => self.status = Status::Read.number(),
            Status::Passed(Cause::Detached) => self.clear(Status::New),
            _ => {}
        }
        for flow in &mut self.flows {
            flow.bits |= if flow.bits & SYNCED != 0 { UNKEPT } else { 0 };
        }
    }

    /// Whether the receiver of a direction may lack bytes of which no copy was kept, since no function that
    /// reads content was given them.
    #[inline(always)]
    pub fn has_unkept(&self, direction: usize) -> bool {
        self.flows[direction & 1].bits & UNKEPT != 0
    }

    /// Whether bytes of a direction may have gone on that lie behind those that were read: its beginning was
    /// not seen, and the first segment may have been a late one. Its length must not change then.
    #[inline(always)]
    pub fn is_unsure(&self, direction: usize) -> bool {
        self.flows[direction & 1].bits & (UNKEPT | SYN) == UNKEPT
    }

    /// The receiver of a direction has all bytes of which no copy was kept.
    pub fn clear_unkept(&mut self, direction: usize) {
        self.flows[direction & 1].bits &= !UNKEPT;
    }

    /// No function is detached. The connection passes still if it did.
    pub fn forget_detached(&mut self) {
        self.marks &= (1 << DETACHED) - 1;
    }

    /// Forgets all but the number of the kept bytes.
    fn clear(&mut self, status: Status) {
        *self = TcpStream {
            status: status.number(),
            kept: self.kept,
            marks: self.marks,
            ports: self.ports,
            ..TcpStream::default()
        };
    }

    /// Returns the number of the connection in [`crate::KeptBytes`]. 0: there is none.
    pub fn kept(&self) -> u32 {
        self.kept
    }

    /// Sets the number of the connection in [`crate::KeptBytes`].
    pub fn set_kept(&mut self, number: u32) {
        self.kept = number;
    }

    /// Whether [`TcpStream::kept`] is a number of [`crate::Splices`].
    pub fn is_edited(&self) -> bool {
        self.marks & EDITED != 0
    }

    /// Sets the number of the connection in [`crate::Splices`].
    pub fn set_edited(&mut self, number: u32) {
        (self.kept, self.marks) = (number, self.marks | EDITED);
    }

    /// The connection has no number of [`crate::Splices`] any more.
    pub fn clear_edited(&mut self) {
        (self.kept, self.marks) = (0, self.marks & !EDITED);
    }

    /// Notes whether a direction's SYN asks for a connection that is not edited: one with signatures (RFC
    /// 2385, RFC 5925), or with several paths (RFC 8684). Returns whether the SYNs of both directions do. A
    /// client may ask for what its server does not know.
    pub fn note_fixed(&mut self, direction: usize, is_fixed: bool) -> bool {
        let mark = FIXED << (direction & 1);
        self.marks = if is_fixed { self.marks | mark } else { self.marks & !mark };
        self.marks & (FIXED | FIXED << 1) == FIXED | FIXED << 1
    }

    /// Whether a segment comes in by a port that may be its sender's. A host can send segments with the
    /// address of the other end, for example an acknowledgement of bytes that the receiver has not got. They
    /// come in by the wrong port. The ports are those of the SYN and of its answer. If these are equal,
    /// nothing can be told apart. Ports from 255 on are not compared.
    #[inline(always)]
    pub fn may_come_from(&mut self, direction: usize, port: u16, flags: u8) -> bool {
        let port = u8::try_from(port.saturating_add(1)).unwrap_or(0);
        let [own, other] = [direction, !direction].map(|at| self.ports[at & 1]);
        if flags & Segment::SYN != 0 && (own == 0 || other == 0 || own == other) {
            self.ports[direction & 1] = port;
            return true;
        }
        port == 0 || port != other || own == 0 || own == other
    }

    /// Returns the greatest acknowledgement number of a direction's receiver.
    pub fn acknowledged(&self, direction: usize) -> Option<u32> {
        let flow = &self.flows[direction & 1];
        (flow.bits & ACKED != 0).then_some(flow.acked)
    }

    /// Whether both directions come by here: a segment of one of them has acknowledged what was seen of the
    /// other one. If not, acknowledgements may take another way.
    #[inline(always)]
    pub fn is_two_way(&self) -> bool {
        let [one, other] = &self.flows;
        (one.bits | other.bits) & ACKED != 0
    }

    /// Returns the next sequence number that functions get of a direction. None: the direction is not read.
    pub fn next(&self, direction: usize) -> Option<u32> {
        let flow = self.flows.get(direction).filter(|flow| flow.bits & SYNCED != 0);
        flow.map(|flow| flow.next)
    }

    /// Returns the shift of the windows that a direction's sender announces behind its SYN. None: its SYN was
    /// not seen.
    #[inline(always)]
    pub fn window_shift(&self, direction: usize) -> Option<u8> {
        let [flow, other] = [direction, !direction].map(|at| &self.flows[at & 1]);
        let shift = if flow.bits & other.bits & SCALED != 0 { flow.scale } else { 0 };
        (flow.bits & SYN != 0).then_some(shift)
    }

    /// Whether a direction has ended with a FIN.
    pub fn is_ended(&self, direction: usize) -> bool {
        self.flows.get(direction).is_some_and(|flow| flow.bits & FIN != 0)
    }

    /// Whether segments of a direction may wait. The caller asks its queue then.
    #[inline(always)]
    pub fn may_hold(&self, direction: usize) -> bool {
        self.flows[direction & 1].bits & HELD != 0
    }

    /// The queue of a direction is empty.
    pub fn clear_held(&mut self, direction: usize) {
        self.flows[direction & 1].bits &= !HELD;
    }

    /// Looks at a segment of direction 0 or 1, and decides what becomes of it.
    pub fn segment(&mut self, direction: usize, segment: &Segment, policy: &Policy) -> Outcome {
        match self.take_next(direction, segment) {
            true => Outcome::Pass(View::all(segment.len), Cause::None),
            false => self.uncommon(direction, segment, policy),
        }
    }

    /// Takes a segment that follows the one before it, of an open connection. All of its bytes are new.
    /// Returns false, and changes nothing, if it is another one.
    #[inline(always)]
    pub fn take_next(&mut self, direction: usize, segment: &Segment) -> bool {
        const SIMPLE: u8 = Segment::SYN | Segment::FIN | Segment::RST | Segment::ACK;
        let [flow, other] = [direction, !direction].map(|at| &self.flows[at & 1]);
        let is_simple = segment.flags & SIMPLE == Segment::ACK
            && flow.bits & (SYNCED | FIN) == SYNCED
            && other.bits & SYNCED != 0
            && self.status == Status::Read.number()
            && segment.seq == flow.next;
        if !is_simple || !self.acknowledge(direction, segment) {
            return false;
        }
        let flow = &mut self.flows[direction & 1];
        flow.advance(flow.next.wrapping_add(segment.len.into()));
        true
    }

    /// Notes acknowledgement and window of a segment. Returns false, and changes nothing, if it acknowledges
    /// bytes that have not gone on.
    #[inline(always)]
    fn acknowledge(&mut self, direction: usize, segment: &Segment) -> bool {
        let scale = self.window_shift(direction);
        let other = &mut self.flows[!direction & 1];
        if other.bits & SYNCED == 0 {
            return true;
        }
        let end = other.next.wrapping_add(u32::from(other.bits & FIN != 0));
        if is_after(segment.ack, end) {
            return false;
        }
        if other.bits & ACKED == 0 || is_after(segment.ack, other.acked) {
            let distance = segment.ack.wrapping_sub(other.initial);
            let is_number = other.bits & (SYN | FAR) != SYN || distance.wrapping_sub(1) < 1 << 31;
            if !is_number {
                // It acknowledges another connection.
                return true;
            }
            (other.acked, other.bits) = (segment.ack, other.bits | ACKED);
        }
        let is_syn = segment.flags & Segment::SYN != 0;
        // Without the SYN, the scale of the window is not known.
        let Some(scale) = scale else {
            if is_syn && other.bits & EDGE == 0 {
                other.edge = segment.ack.wrapping_add(segment.window.into());
            }
            return true;
        };
        let shift = if is_syn { 0 } else { scale };
        let edge = segment.ack.wrapping_add(u32::from(segment.window) << (shift & 15));
        if other.bits & EDGE == 0 || is_after(edge, other.edge) {
            (other.edge, other.bits) = (edge, other.bits | EDGE);
        }
        true
    }

    /// Looks at a segment that [`TcpStream::take_next`] does not take.
    #[cold]
    pub fn uncommon(&mut self, direction: usize, segment: &Segment, policy: &Policy) -> Outcome {
        let is_restart = self.restarts(direction, segment);
        if is_restart {
            self.clear(Status::New);
            self.forget_detached();
        }
        let mut has_read = is_restart;
        let before = self.status();
        if self.answers_early_data(direction, segment) {
            return Outcome::Drop(Cause::OutsideWindow);
        }
        if self.begins_again(direction, segment) {
            // Of a connection whose SYN was not seen, nothing was read.
            has_read = before != Status::Passed(Cause::NoSyn);
            self.forget_detached();
        }
        match self.status() {
            Status::Leaving => return self.give_up(Cause::Detached, OnPickup::Pass),
            // What begins with it may be read, so its data (RFC 7413) must not go on unread.
            Status::Passed(_) if segment.is_syn_with_data() => return Outcome::Drop(Cause::OutsideWindow),
            Status::Passed(_) => return Outcome::Pass(View::NONE, Cause::None),
            Status::New if segment.flags & Segment::SYN == 0 => {
                if policy.pickup != OnPickup::Inspect || segment.flags & Segment::RST != 0 {
                    return self.give_up(Cause::NoSyn, policy.pickup);
                }
                self.status = Status::Read.number();
            }
            Status::New => self.status = Status::Read.number(),
            Status::Read => {}
        }
        let outcome = self.read(direction, segment, policy);
        match outcome {
            Outcome::Pass(view, cause) if has_read => Outcome::Pass(View { is_restart: true, ..view }, cause),
            _ => outcome,
        }
    }

    /// Looks at a segment of a connection that is read.
    fn read(&mut self, direction: usize, segment: &Segment, policy: &Policy) -> Outcome {
        let is_syn = segment.flags & Segment::SYN != 0;
        if segment.flags & Segment::RST != 0 {
            return self.reset(direction, segment);
        }
        self.replace_answer(direction, segment);
        self.answer(direction, segment);
        if segment.flags & Segment::ACK != 0
            && !self.acknowledge(direction, segment)
            && let Some(outcome) = self.skip_to(direction, segment, policy)
        {
            return outcome;
        }
        let is_awaited = self.flows[!direction & 1].bits & SYN != 0;
        let flow = &mut self.flows[direction & 1];
        let start = segment.seq.wrapping_add(u32::from(is_syn));
        if flow.bits & SYNCED == 0 {
            if is_syn {
                flow.bits |= SYN | if segment.scale.is_some() { SCALED } else { 0 };
                flow.bits |= if segment.permits_sack { SACK } else { 0 };
                (flow.initial, flow.scale) = (segment.seq, shift_of(segment.scale));
            } else if segment.len == 0 {
                // A keepalive without data has a number in front of the next one.
                return Outcome::Pass(View::NONE, Cause::None);
            } else if is_awaited {
                // Nobody takes bytes in front of the answer to a SYN.
                return Outcome::Drop(Cause::OutsideWindow);
            } else if policy.pickup != OnPickup::Inspect {
                return self.give_up(Cause::NoSyn, policy.pickup);
            }
            (flow.next, flow.bits) = (start, flow.bits | if is_syn { SYNCED } else { SYNCED | UNKEPT });
        } else if is_syn && (flow.bits & SYN == 0 || flow.initial != segment.seq) {
            // Answered by the end point (RFC 5961, 4). If that begins another connection, data of the SYN has
            // to come again behind it (RFC 7413, 4.2.1).
            return match segment.is_syn_with_data() {
                true => Outcome::Drop(Cause::OutsideWindow),
                false => Outcome::Pass(View::NONE, Cause::None),
            };
        }
        self.note_early(direction, segment);
        self.place(direction, start, segment)
    }

    /// A reset goes on. The receiver accepts it if it has the number that the receiver expects (RFC 5961, 3):
    /// one between the last acknowledgement and the end of what has gone on.
    ///
    /// The stream does not end with it, since the receiver may not get it. Its bytes are read on if there are
    /// more.
    fn reset(&self, direction: usize, segment: &Segment) -> Outcome {
        let flow = &self.flows[direction & 1];
        let first = if flow.bits & ACKED != 0 { flow.acked } else { flow.next };
        let end = flow.next.wrapping_add(u32::from(flow.bits & FIN != 0));
        let is_expected = !is_before(segment.seq, first) && !is_after(segment.seq, end);
        // The answer to a SYN has no number of its own (RFC 9293, 3.10.7.3).
        let is_refusal = flow.bits & SYNCED == 0 && segment.flags & Segment::ACK != 0;
        let may_count = flow.bits & SYNCED != 0 && is_expected || is_refusal;
        Outcome::Pass(View::NONE, if may_count { Cause::None } else { Cause::ResetOutside })
    }

    /// Finds the place of a segment in the stream.
    fn place(&mut self, direction: usize, start: u32, segment: &Segment) -> Outcome {
        let flow = &mut self.flows[direction & 1];
        let range = HeldRange {
            from: start,
            to: start.wrapping_add(segment.len.into()),
            has_fin: segment.flags & Segment::FIN != 0,
        };
        if range.is_empty() {
            return Outcome::Pass(View::NONE, Cause::None);
        }
        if flow.is_in_front(start) {
            // No bytes have gone on there. A receiver that takes them has begun at another number.
            let is_keepalive = flow.bits & ACKED != 0 && start == flow.initial && segment.len == 1;
            return match is_keepalive {
                true => Outcome::Pass(View::NONE, Cause::None),
                false => Outcome::Drop(Cause::OutsideWindow),
            };
        }
        match flow.take(range) {
            NextHeld::Pass(view) => {
                let cause = match (view.skip, view.len) {
                    (0, _) => Cause::None,
                    (_, 0) if !view.is_end => Cause::Retransmitted,
                    _ => Cause::Overlap,
                };
                return Outcome::Pass(view, cause);
            }
            NextHeld::Drop => return Outcome::Drop(Cause::BehindEnd),
            NextHeld::Wait => {}
        }
        let is_outside = flow.bits & EDGE != 0 && !is_before(start, flow.edge);
        if is_outside || start.wrapping_sub(flow.next) as i32 > MOST_AHEAD {
            return Outcome::Drop(Cause::OutsideWindow);
        }
        Outcome::Hold(range)
    }

    /// The caller holds a segment.
    pub fn note_held(&mut self, direction: usize) {
        self.flows[direction & 1].bits |= HELD;
    }

    /// Decides about the first held segment of a direction.
    pub fn next_held(&mut self, direction: usize, range: HeldRange) -> NextHeld {
        let flow = &mut self.flows[direction & 1];
        // Another connection may have begun meanwhile.
        if flow.is_in_front(range.from) { NextHeld::Drop } else { flow.take(range) }
    }
}

/// Returns the shift of a window scale option (RFC 7323, 2.3).
fn shift_of(scale: Option<u8>) -> u8 {
    scale.map_or(0, |scale| scale.min(14))
}
