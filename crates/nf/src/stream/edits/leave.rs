//! Packets behind the functions: what is left of their bytes goes on.

use mmb_packet::{DropReason, Kind};
use mmb_stream::{BuiltSegments, Departure, Leaving, OutputRange, Segment, TcpStream, View};

use super::EditMemory;
use super::counters::RESETS;
use super::frames::{CWR, Cause, ExpectedNumbers, most_of_frame};
use crate::context::Emissions;
use crate::set::{Set, VECTOR};
use crate::stream::context::StreamContext;
use crate::stream::{StreamData, reset_both};
use crate::tcp_segment::{FIN, PSH, RST, SEQ, SYN, segment};
use crate::vector::{RawVector, scratchpad};
use crate::{Packet, Verdict};

/// Bytes that are overwritten at a time.
const PIECE: usize = 512;

/// Flags of segments whose bytes all leave at once. Those of a pushed segment (PSH) wait as well, as no byte
/// waits for longer than its vector takes.
const NOT_DEFERRED: u8 = SYN | FIN | RST;

impl StreamContext {
    /// Takes packets out of the group of functions. Returns the positions of those that do not pass.
    pub(in crate::stream) fn leave_all(&self, raw: RawVector<'_, '_>) -> Set {
        let RawVector {
            packets,
            at,
            bases,
            pads,
            offset,
            verdicts,
            views,
            now,
            worker,
            emissions,
            edits,
            ..
        } = raw;
        let mut events = Set::EMPTY;
        let Some(memory) = edits else { return events };
        at.for_each(|i| {
            let n = i & (VECTOR - 1);
            if memory.number(i) == 0 {
                if memory.is_changed_datagram(i)
                    && let Some(packet) = packets.get_mut(i)
                    && memory.leave_datagram(packet, (i, views[n]), emissions) == Verdict::Consume
                {
                    verdicts[n] = Verdict::Consume;
                    events.insert(i);
                }
                return;
            }
            if !memory.deferred.is_empty() && packets.get(i).is_some_and(is_marked) {
                memory.send_unmarked(packets, i, emissions);
            }
            let Some(packet) = packets.get_mut(i) else { return };
            let Some(segment) = segment(packet) else { return };
            let place = (i, views[n], now);
            if let Some(seq) = take_next(packet, &segment, place, memory) {
                if seq != segment.seq {
                    packet.write_l4(SEQ, &seq.to_be_bytes());
                }
                return;
            }
            let Some(stream) = scratchpad(pads, bases[n], offset) else { return };
            let verdict = leave_other(packet, (stream, &segment), place, memory, emissions);
            if verdict != Verdict::Pass {
                verdicts[n] = verdict;
                events.insert(i);
            }
        });
        if !memory.deferred.is_empty() {
            memory.send_all_deferred(packets, emissions);
        }
        memory.renumber_resets(packets, emissions);
        self.take_tally(worker, &mut memory.tally);
        events
    }
}

/// Takes a packet of which all bytes are new, and that no function has changed. Returns its number for the
/// receiver. None: it may not go on as it is.
#[inline(always)]
fn take_next(
    packet: &Packet<'_>,
    segment: &Segment,
    (at, view, now): (usize, View, u32),
    memory: &mut EditMemory,
) -> Option<u32> {
    let is_new = view.skip == 0 && view.len == segment.len && segment.flags & (SYN | FIN | RST) == 0;
    if !is_new || memory.changed.contains(at) || !memory.deferred.is_empty() {
        return None;
    }
    let header = packet.l4_header_len();
    let bytes = packet.l4().get(header..header + usize::from(segment.len))?;
    let place = (memory.number(at), packet.direction as usize);
    memory.splices.take_next(place, (segment.seq, (segment.ack, segment.window)), bytes, now)
}

/// A packet that does not simply go on leaves the group of functions.
fn leave_other(
    packet: &mut Packet<'_>,
    (stream, segment): (&TcpStream, &Segment),
    (at, view, now): (usize, View, u32),
    memory: &mut EditMemory,
    emissions: &mut Emissions,
) -> Verdict {
    let (number, direction) = (memory.number(at), packet.direction as usize);
    let is_syn = segment.flags & Segment::SYN != 0;
    let start = segment.seq.wrapping_add(is_syn.into()).wrapping_add(view.skip.into());
    let (end, end_of_output) = memory.splices.ends(number, direction);
    let Some((before, is_unchanged)) = append(packet, (at, start), view, memory) else {
        memory.send_deferred(&Cause { packet, at, number }, end_of_output, emissions);
        memory.tally.add(RESETS, 1);
        reset_both(emissions, (packet, at), ExpectedNumbers::of(&memory.splices, number, direction));
        return Verdict::End(DropReason::StreamReset);
    };
    let has_moved = memory.splices.ends(number, direction).0 != end;
    if has_moved {
        memory.splices.note_hold(number, direction, now);
    }
    // More of the stream may have arrived while a process had the packet.
    let is_last = memory.returned.contains(at) && segment.flags & Segment::RST == 0;
    let next = if is_last { None } else { stream.next(direction) };
    // The window of a SYN is not scaled.
    let shift = if is_syn { stream.window_shift(direction).unwrap_or(0) } else { 0 };
    let leaving = Leaving {
        seq: segment.seq,
        len: segment.len.into(),
        flags: segment.flags,
        view,
        is_unchanged,
        before,
        has_moved,
        next: next.unwrap_or(start),
        carries: (segment.ack, segment.window >> shift),
    };
    let has_changed_bytes = segment.len != 0 && !is_unchanged;
    if !has_changed_bytes {
        // The segment does not take bytes of those in front of it along.
        memory.send_deferred(&Cause { packet, at, number }, before, emissions);
    }
    let defers = has_changed_bytes && segment.flags & NOT_DEFERRED == 0;
    match memory.depart(packet, (number, at), (&leaving, defers), emissions) {
        true => Verdict::Pass,
        false => Verdict::Consume,
    }
}

impl EditMemory {
    /// A segment goes on, or others in its place. Returns whether it goes on. `defers`: bytes that do not
    /// fill a segment may leave with later ones of the vector.
    pub(super) fn depart(
        &mut self,
        packet: &mut Packet<'_>,
        (number, at): (u32, usize),
        (leaving, defers): (&Leaving, bool),
        emissions: &mut Emissions,
    ) -> bool {
        let is_syn = leaving.flags & Segment::SYN != 0;
        let mut built = match self.splices.depart(number, packet.direction as usize, leaving) {
            Departure::InPlace(seq) => {
                if seq != leaving.seq {
                    packet.write_l4(SEQ, &seq.to_be_bytes());
                }
                return true;
            }
            Departure::Built(built) => built,
        };
        if built.front.is_empty() && !is_syn && overwrite(packet, leaving, &built, self, at) {
            return true;
        }
        let cause = Cause { packet, at, number };
        self.send_front(&cause, built.front, emissions);
        let has_frames = built.ranges.iter().any(|range| !range.is_empty());
        if has_frames {
            let is_deferred = defers && self.defer(&cause, &mut built.ranges);
            let last = if is_deferred { 0 } else { packet.tcp_flags() & PSH | self.take_push(&cause) };
            self.send_on(&cause, built.ranges, last, emissions);
        } else if is_syn {
            self.send_bare(&cause, leaving.seq, emissions);
        } else if let Some(seq) = built.acknowledgement {
            self.send_bare(&cause, seq, emissions);
        }
        if built.answers_sender {
            self.acknowledge(&cause, emissions);
        }
        false
    }
}

impl EditMemory {
    /// Gives resets of functions the numbers that receivers expect behind the bytes of packets in front.
    /// These had not gone on when the functions decided. Receivers ignore other numbers (RFC 5961, 3.2).
    fn renumber_resets(&mut self, packets: &[Packet<'_>], emissions: &mut Emissions) {
        for (at, index) in std::mem::take(&mut self.resets) {
            let Some(packet) = packets.get(at) else { continue };
            let numbers = ExpectedNumbers::of(&self.splices, self.number(at), packet.direction as usize);
            if let Some(frame) = numbers.and_then(|numbers| numbers.reset_receiver(packet)) {
                emissions.replace(index, frame.bytes());
            }
        }
    }
}

/// Segments that have grown. Each would leave as a full segment and a small one. So the bytes that do not
/// fill a segment wait for the next changed segment of their connection in the vector. Those of large frames
/// wait whole: what a vector brings of a connection leaves as one large frame, if it fits.
impl EditMemory {
    /// Takes bytes that wait for later ones out of the second range. Returns whether there are some.
    fn defer(&mut self, cause: &Cause<'_, '_>, ranges: &mut [OutputRange; 2]) -> bool {
        let [repeated, fresh] = ranges;
        let is_joined = !repeated.is_empty() && !repeated.has_fin && repeated.to == fresh.from;
        let from = if is_joined { repeated.from } else { fresh.from };
        let (len, most) = (fresh.to.wrapping_sub(from), self.most_payload(cause));
        // A CWR or a mark in the IP header would be lost: the headers are those of the last packet.
        let has_mark = cause.packet.tcp_flags() & CWR != 0 || is_marked(cause.packet);
        let is_large = cause.packet.segment_size != 0 && !has_mark;
        let rest = len % if is_large { most_of_frame(cause.packet, most) } else { most };
        let is_deferred = (is_large || len > most)
            && rest != 0
            && rest <= fresh.to.wrapping_sub(fresh.from)
            && !fresh.has_fin;
        if is_deferred {
            let is_pushed = cause.packet.tcp_flags() & PSH != 0;
            self.splices.defer(cause.number, cause.packet.direction as usize, rest, is_pushed);
            fresh.to = fresh.to.wrapping_sub(rest);
            self.deferred.insert(cause.at);
        }
        is_deferred
    }

    /// Sends bytes that wait in front of a packet whose IP header reports congestion (RFC 3168, 5): they have
    /// not met it.
    #[cold]
    fn send_unmarked(&mut self, packets: &[Packet<'_>], at: usize, emissions: &mut Emissions) {
        let Some(marked) = packets.get(at) else { return };
        let (number, direction) = (self.number(at), marked.direction);
        let is_last = |&before: &usize| {
            self.number(before) == number
                && packets.get(before).is_some_and(|packet| packet.direction == direction)
        };
        let last = (0..at).rev().filter(|&before| self.deferred.contains(before)).find(is_last);
        if let Some((at, packet)) = last.and_then(|at| Some((at, packets.get(at)?))) {
            let (_, end) = self.splices.ends(number, direction as usize);
            self.send_deferred(&Cause { packet, at, number }, end, emissions);
        }
    }

    /// The flags of the last segment with deferred bytes: PSH if they were pushed.
    fn take_push(&mut self, cause: &Cause<'_, '_>) -> u8 {
        let is_pushed = !self.deferred.is_empty()
            && self.splices.take_push(cause.number, cause.packet.direction as usize);
        if is_pushed { PSH } else { 0 }
    }

    /// Sends bytes that wait in front of a receiver's number, at the place of a packet.
    fn send_deferred(&mut self, cause: &Cause<'_, '_>, end: u32, emissions: &mut Emissions) {
        if self.deferred.is_empty() {
            return;
        }
        let range = self.splices.take_deferred(cause.number, cause.packet.direction as usize, end);
        if !range.is_empty() {
            let last = self.take_push(cause);
            self.send_on_plain(cause, range, last, emissions);
        }
    }

    /// Sends all bytes that wait, behind the last packets that have added to them.
    #[cold]
    fn send_all_deferred(&mut self, packets: &[Packet<'_>], emissions: &mut Emissions) {
        for at in (0..packets.len().min(VECTOR)).rev() {
            let Some(packet) = packets.get(at).filter(|_| self.deferred.contains(at)) else { continue };
            let cause = Cause { packet, at, number: self.number(at) };
            let range = self.splices.take_pending(cause.number, packet.direction as usize);
            let last = self.take_push(&cause);
            if !range.is_empty() {
                self.send_on_plain(&cause, range, last, emissions);
            }
        }
        self.deferred = Set::EMPTY;
    }
}

/// Whether the IP header of a packet reports congestion.
fn is_marked(packet: &Packet<'_>) -> bool {
    const CONGESTED: u8 = 3;
    let byte = packet.head.get(usize::from(packet.meta.l3_off) + 1).copied().unwrap_or(0);
    let field = if packet.meta.kind.l3() == Kind::IP4 { byte } else { byte >> 4 };
    field & CONGESTED == CONGESTED
}

/// Appends what is left of a packet's new bytes to the output. Returns the receiver's number in front of
/// them, and whether they are those of the packet. None: there is no room.
fn append(
    packet: &Packet<'_>,
    (at, start): (usize, u32),
    view: View,
    memory: &mut EditMemory,
) -> Option<(u32, bool)> {
    let (number, direction) = (memory.number(at), packet.direction as usize);
    let EditMemory { changed, ropes, splices, .. } = memory;
    let rope = ropes.get(at).filter(|_| changed.contains(at));
    let from = match rope {
        Some(rope) if !rope.is_empty() => Some(rope.from),
        None if view.len != 0 => Some(start),
        _ => None,
    };
    if let Some(from) = from.filter(|&from| from != splices.ends(number, direction).0) {
        splices.skip_to(number, direction, from);
    }
    let (_, before) = splices.ends(number, direction);
    let mut body = StreamData::new(packet, view).chunks();
    let (is_kept, is_unchanged) = match rope {
        Some(rope) => (
            splices.append_rope(number, direction, rope, body),
            rope.is_plain(start, view.len.into()) || rope.is_empty() && view.len == 0,
        ),
        None => (body.all(|chunk| splices.append(number, direction, chunk)), true),
    };
    is_kept.then_some((before, is_unchanged))
}

/// Overwrites the payload of a packet if other bytes of the same length leave in its place. Returns false if
/// it cannot be done.
fn overwrite(
    packet: &mut Packet<'_>,
    leaving: &Leaving,
    built: &BuiltSegments,
    memory: &EditMemory,
    at: usize,
) -> bool {
    let (number, direction) = (memory.number(at), packet.direction as usize);
    let [repeated, fresh] = built.ranges;
    let range = match (repeated.is_empty(), fresh.is_empty()) {
        (false, true) => repeated,
        (true, false) => fresh,
        (false, false) if repeated.to == fresh.from => OutputRange { from: repeated.from, ..fresh },
        _ => return false,
    };
    let OutputRange { from, to, has_fin } = range;
    let is_same = to.wrapping_sub(from) == leaving.len && has_fin == (leaving.flags & FIN != 0);
    let header = packet.l4_header_len();
    if !is_same || packet.l4().len() < header + leaving.len as usize {
        return false;
    }
    let mut place = header;
    let is_kept = memory.splices.for_each_piece(number, direction, (from, to), |bytes| {
        for piece in bytes.chunks(PIECE) {
            if packet.l4().get(place..place + piece.len()) != Some(piece) {
                packet.write_l4(place, piece);
            }
            place += piece.len();
        }
    });
    if is_kept {
        packet.write_l4(SEQ, &from.to_be_bytes());
    }
    is_kept
}
