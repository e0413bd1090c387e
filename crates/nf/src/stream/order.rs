//! The segments of TCP are put in order.
//!
//! Theory of operation. The state of a connection ([`TcpStream`]) decides what becomes of a segment. Here is
//! done what it has decided: the segment goes on with a view, waits, is dropped, or the connection is reset.
//! A segment that follows the one before it, while none waits, takes a short way ([`StreamContext::tcp`]).

use mmb_packet::{DropReason, PacketFlags, checksum};
use mmb_stream::{Cause, HeldRange, OnOverflow, Outcome, Segment, Status, TcpStream, View};

use super::context::StreamContext;
use super::counters::{BYTES, EARLY, PACKETS};
use super::early::{Early, stream_numbers};
use super::edits::ExpectedNumbers;
use super::step::Step;
use crate::context::keep;
use crate::set::{Set, VECTOR};
use crate::tcp_segment::{FLAGS, SYN, timestamp_value};
use crate::{Packet, Verdict};

/// Of a TCP header (RFC 9293, 3.1).
const URG: u8 = 0x20;
const URGENT_POINTER: usize = 18;

impl StreamContext {
    /// Looks at a segment before anything is noted of it, in front of functions that read content. Returns
    /// why it has to be dropped.
    ///
    /// Receivers take no segment with a wrong checksum (RFC 9293, 3.1). Its bytes must not be kept as the
    /// first copy, and nothing that its header says is true. Many receivers take the byte at the urgent
    /// pointer out of the stream (RFC 6093, 3.1), which functions do not see. So the pointer is removed.
    #[inline(always)]
    pub(super) fn segment_fault(
        &self,
        packet: &mut Packet<'_>,
        stream: &mut TcpStream,
        worker: u16,
    ) -> Option<DropReason> {
        let flags = packet.tcp_flags();
        let is_read = !matches!(stream.status(), Status::Passed(_)) || flags & SYN != 0;
        // Bytes that functions have read, or edited, may be under way.
        if (is_read || stream.kept() != 0) && !has_valid_checksum(packet) {
            return Some(DropReason::StreamChecksum);
        }
        if !stream.may_come_from(packet.direction as usize, packet.in_port, flags) {
            self.count(worker, Cause::WrongPort);
            return Some(DropReason::StreamWindow);
        }
        if flags & URG != 0 && is_read {
            remove_urgent(packet, flags);
        }
        None
    }

    /// Processes a packet of a TCP connection. Writes what functions get to `view`, which is [`View::NONE`].
    /// Returns the verdict.
    ///
    /// The view is written where it stays: a load of all of it directly behind stores of its parts stalls.
    #[inline(always)]
    pub(super) fn tcp(
        &self,
        packet: &mut Packet<'_>,
        segment: &Segment,
        (stream, view): (&mut TcpStream, &mut View),
        step: &mut Step<'_>,
    ) -> Verdict {
        match take_next(packet, segment, (&mut *stream, &mut *view), step) {
            true => Verdict::Pass,
            false => self.take_other(packet, segment, (stream, view), step),
        }
    }

    /// Processes a packet that [`take_next`] does not take. See [`StreamContext::tcp`].
    pub(super) fn take_other(
        &self,
        packet: &mut Packet<'_>,
        segment: &Segment,
        (stream, view): (&mut TcpStream, &mut View),
        step: &mut Step<'_>,
    ) -> Verdict {
        let (found, verdict) = match may_wait(packet, stream, step) {
            true => self.queued(packet, stream, segment, step),
            false => self.uncommon(packet, stream, segment, step),
        };
        if stream.is_in_flight(packet.direction as usize, segment.end()) {
            note_stamp(packet, stream);
        }
        *view = found;
        verdict
    }

    /// Processes a packet that does not simply follow the one before it, and for which none waits.
    #[cold]
    fn uncommon(
        &self,
        packet: &mut Packet<'_>,
        stream: &mut TcpStream,
        segment: &Segment,
        step: &mut Step<'_>,
    ) -> (View, Verdict) {
        match stream.uncommon(packet.direction as usize, segment, &step.policy) {
            Outcome::Pass(view, Cause::None) => (view, Verdict::Pass),
            outcome => self.settle(packet, stream, outcome, step),
        }
    }

    /// Processes a packet of a TCP connection, and answers its sender if it is too early.
    #[inline(always)]
    pub(super) fn tcp_answered(
        &self,
        packet: &mut Packet<'_>,
        segment: &Segment,
        (stream, view): (&mut TcpStream, &mut View),
        step: &mut Step<'_>,
    ) -> Verdict {
        let other = packet.direction.opposite() as usize;
        let awaits = stream.has_held() && !stream.is_acknowledged(other);
        let verdict = self.tcp(packet, segment, (stream, view), step);
        if stream.has_held()
            && let Some(early) = Early::of(packet, segment, (stream, awaits), verdict)
        {
            let numbers = stream_numbers(packet, stream, &early);
            let end = stream.end(early.direction as usize);
            self.tell_early((packet, segment, stream), early, (numbers, end), step);
        }
        verdict
    }

    /// Processes a packet whose session may have packets that wait.
    #[cold]
    fn queued(
        &self,
        packet: &mut Packet<'_>,
        stream: &mut TcpStream,
        segment: &Segment,
        step: &mut Step<'_>,
    ) -> (View, Verdict) {
        let place = step.place(packet);
        let held = &step.holding.held;
        if held.has_pending(place, packet.direction) && !held.has_room(place, segment.len.into()) {
            // It would have to follow them. Nothing is noted of it, so that it can come again.
            return (View::NONE, Verdict::Drop(DropReason::HeldFull));
        }
        if packet.meta.flags.contains(PacketFlags::FRAGMENT) {
            return self.overflow(packet, stream, Cause::Fragment, step);
        }
        let outcome = stream.segment(packet.direction as usize, segment, &step.policy);
        self.settle(packet, stream, outcome, step)
    }

    /// Does what the stream has decided.
    #[cold]
    fn settle(
        &self,
        packet: &mut Packet<'_>,
        stream: &mut TcpStream,
        outcome: Outcome,
        step: &mut Step<'_>,
    ) -> (View, Verdict) {
        if step.holding.held.is_taken_over(packet.session.0) {
            // A function gets the packet, and drops it.
            return (View::NONE, Verdict::Pass);
        }
        match outcome {
            Outcome::Pass(view, cause) => {
                self.count(step.worker, cause);
                step.note_stamp(packet, stream);
                let verdict = step.follow(packet, view);
                if stream.may_hold(packet.direction as usize) {
                    let worker = step.worker;
                    step.release(packet, stream, |view| self.given(worker, view));
                }
                if verdict != Verdict::Pass {
                    self.given(step.worker, view);
                    return (View::NONE, verdict);
                }
                (view, verdict)
            }
            Outcome::Hold(range) => (View::NONE, self.hold(packet, stream, range, step)),
            Outcome::Drop(cause) => {
                self.count(step.worker, cause);
                let is_end = cause == Cause::BehindEnd;
                let reason = if is_end { DropReason::StreamEnd } else { DropReason::StreamWindow };
                (View::NONE, Verdict::Drop(reason))
            }
            Outcome::Stop(cause) => {
                self.count(step.worker, cause);
                step.stop(packet);
                (View::NONE, step.follow(packet, View::NONE))
            }
            Outcome::Reset(cause) => {
                self.count(step.worker, cause);
                (View::NONE, step.reset(packet))
            }
        }
    }

    /// Holds a segment that came too early.
    fn hold(
        &self,
        packet: &mut Packet<'_>,
        stream: &mut TcpStream,
        range: HeldRange,
        step: &mut Step<'_>,
    ) -> Verdict {
        let (place, direction) = (step.place(packet), packet.direction);
        self.counters.add(step.worker, EARLY, 1);
        if step.holding.held.has_range(place, direction, range) {
            self.count(step.worker, Cause::Duplicate);
            return Verdict::Drop(DropReason::StreamDuplicate);
        }
        if !step.holding.held.has_room(place, range.len() as u32) {
            return self.overflow(packet, stream, Cause::NoRoom, step).1;
        }
        stream.note_held(direction as usize);
        let stamp = timestamp_value(packet.head, packet.meta);
        keep(packet, step.holding.held.hold_segment((place, direction), range, stamp))
    }

    /// A packet cannot be put in order.
    pub(super) fn overflow(
        &self,
        packet: &mut Packet<'_>,
        stream: &mut TcpStream,
        cause: Cause,
        step: &mut Step<'_>,
    ) -> (View, Verdict) {
        self.count(step.worker, cause);
        let is_fragment = cause == Cause::Fragment;
        let verdict = match step.policy.overflow {
            OnOverflow::Drop if is_fragment => Verdict::Drop(DropReason::StreamFragment),
            OnOverflow::Drop => Verdict::Drop(DropReason::HeldFull),
            OnOverflow::Pass => {
                stream.stop(cause);
                step.stop(packet);
                step.follow(packet, View::NONE)
            }
            OnOverflow::Reset => {
                let numbers = || ExpectedNumbers::of_stream(stream, packet.direction as usize);
                step.edited = step.edited.or_else(numbers);
                step.reset(packet)
            }
        };
        (View::NONE, verdict)
    }

    /// Counts what functions are given of a packet that is not in the vector now.
    fn given(&self, worker: u16, view: View) {
        self.counters.add(worker, BYTES, view.len.into());
        self.counters.add(worker, PACKETS, u64::from(view.len != 0));
    }

    /// Counts what functions are given of the packets of a vector.
    pub(super) fn count_views(&self, worker: u16, at: Set, views: &[View; VECTOR]) {
        let (mut bytes, mut count) = (0, 0);
        at.for_each(|i| {
            let len = views[i & (VECTOR - 1)].len;
            bytes += u64::from(len);
            count += u64::from(len != 0);
        });
        self.counters.add(worker, BYTES, bytes);
        self.counters.add(worker, PACKETS, count);
    }
}

/// Whether a packet may have to wait, or to follow others that have not gone on.
#[inline(always)]
fn may_wait(packet: &Packet<'_>, stream: &TcpStream, step: &Step<'_>) -> bool {
    step.holding.held.is_draining()
        || stream.may_hold(packet.direction as usize)
        || packet.meta.flags.contains(PacketFlags::FRAGMENT)
}

/// Takes a packet that simply follows the one before it, while none waits. Returns false, and changes
/// nothing, if it is another one.
#[inline(always)]
pub(super) fn take_next(
    packet: &Packet<'_>,
    segment: &Segment,
    (stream, view): (&mut TcpStream, &mut View),
    step: &Step<'_>,
) -> bool {
    let is_next = !may_wait(packet, stream, step) && stream.take_next(packet.direction as usize, segment);
    if is_next {
        view.len = segment.len;
        note_stamp(packet, stream);
    }
    is_next
}

/// Notes the timestamp of a segment of which nothing is ahead of the stream.
#[inline(always)]
fn note_stamp(packet: &Packet<'_>, stream: &mut TcpStream) {
    if let Some(stamp) = timestamp_value(packet.head, packet.meta) {
        stream.note_stamp(packet.direction as usize, stamp);
    }
}

/// Whether the checksum of a packet is valid. That of a large frame is written by what sends it. A partial
/// one is completed: a port may have a kernel behind it of which the engine does not know.
#[inline(always)]
fn has_valid_checksum(packet: &mut Packet<'_>) -> bool {
    let tail = packet.tail;
    let rest = || (0..).map_while(move |number| tail?.segment(number));
    packet.segment_size != 0
        || checksum::is_tcp_valid(packet.head, rest(), packet.meta)
        || checksum::complete_partial(packet.head, rest(), packet.meta)
}

#[cold]
fn remove_urgent(packet: &mut Packet<'_>, flags: u8) {
    packet.write_l4(FLAGS, &[flags & !URG]);
    packet.write_l4(URGENT_POINTER, &[0, 0]);
}
