//! Packets in front of the functions: what their acknowledgements mean to the sender.

use mmb_packet::{DropReason, Kind, prefetch};
use mmb_stream::{
    Cause as StreamCause, KeptBytes, OnMptcp, OnPickup, Policy, Segment, Status, TcpStream, Translated, View,
};

use super::counters::{RESETS, SEVERAL_PATHS, STRIPPED};
use super::detached::number_of;
use super::frames::{Cause, ExpectedNumbers};
use super::hold::HeldBytes;
use super::options::{has_mptcp, is_signed, mss, remove_mptcp, selects_behind, translate_sack};
use super::{EditMemory, MOST_CHANGES, MOST_HELD, MOST_NEW_BYTES, MOST_UNKNOWN, NOT_EDITED};
use crate::context::Emissions;
use crate::held::ApartStates;
use crate::set::{Set, VECTOR};
use crate::stream::context::{StreamContext, datagram, for_functions};
use crate::stream::early::Early;
use crate::stream::order::take_next;
use crate::stream::step::Step;
use crate::tcp_segment::{ACKNOWLEDGMENT, WINDOW, segment, timestamp_value};
use crate::vector::{RawVector, scratchpad};
use crate::{Packet, Verdict};

impl EditMemory {
    /// Packets that were held go on. `stream`: the connection of a packet, and its direction.
    pub(in crate::stream) fn resume(
        &mut self,
        at: Set,
        mut stream: impl FnMut(usize) -> Option<(TcpStream, usize)>,
    ) {
        self.resets.clear();
        at.for_each(|i| {
            let stream = stream(i).filter(|(stream, _)| stream.is_edited());
            self.begin(i, stream.map_or(0, |(stream, _)| number_of(&stream)));
            let keeps_length = |(stream, direction): (TcpStream, usize)| keeps_length(&stream, direction);
            self.one_way.insert_if(i, stream.is_some_and(keeps_length));
        });
    }

    /// Translates the acknowledgement of a packet and of its segment, and sends what its window has room for.
    /// `shift`: that of the window, if it is known.
    pub(super) fn translate(
        &mut self,
        packet: &mut Packet<'_>,
        segment: &mut Segment,
        (number, at): (u32, usize),
        shift: Option<u8>,
        emissions: &mut Emissions,
    ) {
        let other = 1 - packet.direction as usize;
        let Translated { ack, window, differs, pending } =
            self.splices.translate(number, other, segment.ack, (segment.window, shift));
        if differs {
            translate_sack(packet, &self.splices, number, other);
        }
        if ack != segment.ack {
            packet.write_l4(ACKNOWLEDGMENT, &ack.to_be_bytes());
        }
        if window != segment.window {
            packet.write_l4(WINDOW, &window.to_be_bytes());
        }
        (segment.ack, segment.window) = (ack, window);
        if !pending.is_empty() {
            self.send_back(&Cause { packet, at, number }, pending, emissions);
        }
    }
}

impl EditMemory {
    /// A new connection begins in the place of one, with a packet of the other direction.
    fn restart(&mut self, number: u32, other: usize, stream: &TcpStream) {
        self.splices.clear(number);
        if let Some(next) = stream.next(other) {
            self.splices.begin(number, other, next, false);
        }
    }

    /// Notes the payload of a segment: of a large frame, that of each of its segments.
    fn note_arrival(&mut self, packet: &Packet<'_>, segment: &Segment, number: u32) {
        let size = if packet.segment_size == 0 { u16::MAX } else { packet.segment_size };
        let place = (segment.seq, segment.len.min(size).into());
        self.splices.note_segment(number, packet.direction as usize, place);
    }

    /// Notes the last timestamp of a packet's sender. If nothing is known of its numbers, that is the
    /// packet's.
    fn note_stamp(&mut self, packet: &Packet<'_>, stream: &TcpStream, number: u32) {
        let direction = packet.direction as usize;
        let stamp = stream.stamp(direction).or_else(|| timestamp_value(packet.head, packet.meta));
        if let Some(stamp) = stamp {
            self.splices.note_stamp(number, direction, stamp);
        }
    }

    /// No function reads a connection any more. Forgets it if its ends count alike, and all bytes that
    /// functions have read are acknowledged: a repeated one could be another one.
    fn end_detached_splice(&mut self, stream: &mut TcpStream) {
        let number = stream.kept();
        if stream.is_edited() && number != NOT_EDITED && !self.needs_offsets(stream) {
            self.splices.remove(number);
            stream.clear_edited();
        }
    }

    /// A function has joined the group of a session.
    pub fn attach(&mut self, session: u32, stream: &mut TcpStream) {
        if stream.status() == Status::Passed(StreamCause::Detached) {
            self.end_detached_splice(stream);
            if self.detach(session, stream, false) {
                stream.clear_edited();
            }
        }
        stream.attach();
    }
}

impl StreamContext {
    /// Processes packets that functions may edit. Returns the positions of those that do not pass.
    pub(in crate::stream) fn arrive_all(
        &self,
        raw: RawVector<'_, '_>,
        policy: Policy,
        kept: &mut KeptBytes,
    ) -> Set {
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
            holding,
            edits,
            group,
            unread,
            mut room,
            ..
        } = raw;
        let Some(memory) = edits else { return Set::EMPTY };
        memory.enter(at);
        self.take_tally(worker, &mut memory.tally);
        let mut step = Step::new((holding, emissions), policy, (worker, now));
        step.apart = room.as_ref().map_or_else(ApartStates::new, |room| room.states.clone());
        prefetch_connections(at, |i| scratchpad(pads, bases[i & (VECTOR - 1)], offset).copied(), memory);
        let mut events = Set::EMPTY;
        at.for_each(|i| {
            let n = i & (VECTOR - 1);
            views[n] = View::NONE;
            memory.numbers[n] = 0;
            let (Some(packet), Some(stream)) = (packets.get_mut(i), scratchpad(pads, bases[n], offset))
            else {
                return;
            };
            (step.at, step.edited) = (i, None);
            if let Some(room) = &mut room
                && let Some(segment) = segment(packet)
                && let Some(reason) = step.refusal(room, (packet, i), (&segment, stream), bases)
            {
                verdicts[n] = Verdict::Drop(reason);
                return events.insert(i);
            }
            let verdict = if packet.meta.kind.l4() == Kind::TCP {
                let view = &mut views[n];
                let verdict = match self.segment_fault(packet, stream, worker) {
                    Some(reason) => Verdict::Drop(reason),
                    None => self.arrive(packet, (stream, view), &mut step, (memory, kept)),
                };
                let around = (&mut *unread, &step.holding, Some(&*memory));
                for_functions(view, (packet.session, stream), group, around);
                verdict
            } else {
                views[n] = datagram(packet);
                memory.begin_datagram(i, packet);
                Verdict::Pass
            };
            if verdict != Verdict::Pass {
                verdicts[n] = verdict;
                events.insert(i);
            }
        });
        self.count_views(worker, at, views);
        self.count_edit(worker, RESETS, step.resets);
        events
    }

    /// Processes a packet of a TCP connection that functions may edit. Writes what they get to `view`, which
    /// is [`View::NONE`]. Returns the verdict.
    fn arrive(
        &self,
        packet: &mut Packet<'_>,
        (stream, view): (&mut TcpStream, &mut View),
        step: &mut Step<'_>,
        (memory, kept): (&mut EditMemory, &mut KeptBytes),
    ) -> Verdict {
        let Some(mut segment) = segment(packet) else { return Verdict::Pass };
        let is_syn = segment.flags & Segment::SYN != 0;
        if !is_syn && step.holding.held.is_taken_over(packet.session.0) {
            // A function gets the packet as the ends count, and drops it.
            return Verdict::Pass;
        }
        let is_open = !is_syn && stream.is_edited() && stream.status() == Status::Read;
        if !is_open && !self.prepare(packet, stream, (memory, kept), step) {
            return self.overflow(packet, stream, StreamCause::NotKept, step).1;
        }
        let number = number_of(stream);
        memory.numbers[step.at & (VECTOR - 1)] = number;
        if number == 0 {
            return self.tcp(packet, &segment, (stream, view), step);
        }
        let direction = packet.direction as usize;
        memory.note_arrival(packet, &segment, number);
        if stream.is_unsure(1 - direction) {
            note_certain(packet, &segment, (stream, number), memory);
        }
        if stream.answers_early_data(direction, &segment) {
            self.count(step.worker, StreamCause::OutsideWindow);
            return Verdict::Drop(DropReason::StreamWindow);
        }
        let other = packet.direction.opposite() as usize;
        let awaits = stream.has_held() && !memory.splices.is_acknowledged(number, other);
        let is_foreign = is_syn && !memory.splices.expects(number, 1 - direction, segment.ack);
        if segment.flags & Segment::ACK != 0 && !is_foreign {
            let shift = if is_syn { Some(0) } else { stream.window_shift(direction) };
            memory.translate(packet, &mut segment, (number, step.at), shift, step.emissions);
        }
        if segment.len != 0 && !make_room(memory, (number, direction), segment.len, stream.is_two_way()) {
            return self.overflow(packet, stream, StreamCause::NotKept, step).1;
        }
        let next = stream.next(direction);
        let is_next = take_next(packet, &segment, (&mut *stream, &mut *view), step);
        let place = (segment.seq, segment.len);
        let verdict = if is_next && memory.splices.note_next(number, direction, place, step.now) {
            memory.one_way.insert_if(step.at, keeps_length(stream, direction));
            Verdict::Pass
        } else {
            let numbers = (&segment, next);
            self.arrive_other(packet, (stream, view, is_next), (memory, number), numbers, step)
        };
        memory.note_stamp(packet, stream, number);
        memory.fresh.insert_if(step.at, view.len != 0);
        if stream.has_held()
            && let Some(early) = Early::of(packet, &segment, (stream, awaits), verdict)
        {
            let numbers = memory.early_numbers(packet, &segment, number, &early);
            let numbers = numbers.filter(|_| !step.is_apart(packet, early.direction));
            let end = memory.sent_end(number, early.direction);
            self.tell_early((packet, &segment, stream), early, (numbers, end), step);
        }
        verdict
    }

    /// Processes a packet that [`take_next`] does not take, or behind bytes that functions hold back. Returns
    /// the verdict. `is_next`: it was taken. `next`: the next number of the stream in front of the packet.
    fn arrive_other(
        &self,
        packet: &mut Packet<'_>,
        (stream, view, is_next): (&mut TcpStream, &mut View, bool),
        (memory, number): (&mut EditMemory, u32),
        (segment, next): (&Segment, Option<u32>),
        step: &mut Step<'_>,
    ) -> Verdict {
        let direction = packet.direction as usize;
        let verdict = if is_next {
            Verdict::Pass
        } else {
            step.edited = ExpectedNumbers::of(&memory.splices, number, direction);
            self.take_other(packet, segment, (&mut *stream, &mut *view), step)
        };
        if view.is_restart {
            step.drop_apart(packet);
            memory.restart(number, 1 - direction, stream);
        }
        if let Status::Passed(_) = stream.status() {
            memory.splices.stop(number);
        }
        if verdict == Verdict::Pass {
            view.is_release =
                self.note_passing(packet, (memory, number), (stream, (segment, next)), view, step);
        }
        verdict
    }

    /// Notes the bytes of a packet that passes. Returns whether bytes that functions hold back have to go on.
    /// `next`: the next number of the stream in front of the packet.
    fn note_passing(
        &self,
        packet: &Packet<'_>,
        (memory, number): (&mut EditMemory, u32),
        (stream, (segment, next)): (&TcpStream, (&Segment, Option<u32>)),
        view: &View,
        step: &mut Step<'_>,
    ) -> bool {
        let (direction, is_syn) = (packet.direction as usize, segment.flags & Segment::SYN != 0);
        let start = segment.seq.wrapping_add(is_syn.into());
        if is_syn || view.len != 0 || view.is_end {
            memory.splices.begin(number, direction, start.wrapping_add(view.skip.into()), !is_syn);
        }
        // The answer to a SYN passes before other bytes. Those of the SYN itself come before it.
        memory.one_way.insert_if(step.at, !is_syn && keeps_length(stream, direction));
        let place = (number, direction, !is_syn && !stream.is_two_way());
        let held = HeldBytes::of(memory, place, next, (start, segment.len), view);
        self.end_hold(packet, (memory, number), (stream, held), step)
    }

    /// Decides whether a connection is edited from a packet on. Returns false if there is no room.
    fn prepare(
        &self,
        packet: &mut Packet<'_>,
        stream: &mut TcpStream,
        (memory, kept): (&mut EditMemory, &mut KeptBytes),
        step: &Step<'_>,
    ) -> bool {
        // If functions have read it, and one that edits has joined them, it is edited from the next byte on.
        // Packets that are in processes, or wait, have to go on before.
        if !stream.is_edited() && stream.status() == Status::Read && !step.has_packets(packet) {
            adopt(packet, stream, memory, kept);
        }
        let is_syn = packet.tcp_flags() & Segment::SYN != 0;
        if is_syn && !stream.is_edited() {
            kept.remove(stream.kept());
            stream.set_kept(0);
        }
        // A connection whose SYN was not seen is not edited, unless it is inspected all the same.
        let may_begin = stream.status() == Status::New && step.policy.pickup == OnPickup::Inspect;
        if (is_syn || may_begin) && !self.admit(packet, stream, (is_syn, step.policy.mptcp), memory) {
            return false;
        }
        if stream.status() == Status::Passed(StreamCause::Detached) && !is_syn {
            memory.end_detached_splice(stream);
        }
        true
    }

    /// Decides whether a connection can be edited. Returns false if there is no room for it.
    #[cold]
    fn admit(
        &self,
        packet: &mut Packet<'_>,
        stream: &mut TcpStream,
        (is_syn, on_mptcp): (bool, OnMptcp),
        memory: &mut EditMemory,
    ) -> bool {
        if !stream.is_edited() {
            let Some(number) = memory.splices.insert() else { return false };
            stream.set_edited(number);
        }
        if !is_syn && is_not_editable(packet, memory) {
            memory.splices.remove(stream.kept());
            stream.set_edited(NOT_EDITED);
        } else if is_syn && stream.kept() != NOT_EDITED {
            let is_multipath = has_mptcp(packet);
            // Data of a SYN is edited before anybody knows whether the other end wants several paths.
            let is_stripped = is_multipath && (on_mptcp == OnMptcp::Strip || packet.l4_payload_len() != 0);
            let is_fixed = is_signed(packet) || is_multipath && !is_stripped;
            if stream.note_fixed(packet.direction as usize, is_fixed) {
                memory.splices.remove(stream.kept());
                stream.set_edited(NOT_EDITED);
                memory.tally.add(SEVERAL_PATHS, is_multipath.into());
                return true;
            }
            if is_stripped {
                remove_mptcp(packet);
                memory.tally.add(STRIPPED, 1);
            }
            if let Some(mss) = mss(packet) {
                memory.splices.note_mss(stream.kept(), 1 - packet.direction as usize, mss);
            }
        }
        true
    }
}

/// Prefetches what is kept of the connections of packets. `stream`: that of a packet.
#[inline(always)]
fn prefetch_connections(at: Set, mut stream: impl FnMut(usize) -> Option<TcpStream>, memory: &EditMemory) {
    at.for_each(|i| {
        if let Some(stream) = stream(i).filter(TcpStream::is_edited) {
            memory.splices.for_each_line(stream.kept(), prefetch::read);
        }
    });
}

/// Whether edits of a direction must not change its length: the other direction does not come by here, or
/// bytes behind those that were seen may have gone on.
fn keeps_length(stream: &TcpStream, direction: usize) -> bool {
    !stream.is_two_way() || stream.is_unsure(direction)
}

/// Notes if the receiver of the other direction has acknowledged all that has gone on of it, and has nothing
/// behind it. So what follows is new.
#[cold]
fn note_certain(
    packet: &Packet<'_>,
    segment: &Segment,
    (stream, number): (&mut TcpStream, u32),
    memory: &EditMemory,
) {
    let other = 1 - packet.direction as usize;
    let has_begun = memory.splices.has_begun(number, other);
    let is_all = has_begun && memory.splices.next(number, other) == segment.ack;
    if segment.flags & Segment::ACK != 0 && is_all && !selects_behind(packet, segment.ack) {
        stream.clear_unkept(other);
    }
}

#[cold]
fn adopt(packet: &Packet<'_>, stream: &mut TcpStream, memory: &mut EditMemory, kept: &mut KeptBytes) {
    let number =
        if is_not_editable(packet, memory) { Some(NOT_EDITED) } else { memory.splices.adopt(stream, kept) };
    if let Some(number) = number {
        kept.remove(stream.kept());
        stream.set_edited(number);
        [0, 1].into_iter().for_each(|direction| stream.clear_unkept(direction));
    }
}

/// Whether a segment in the middle of a connection tells that it cannot be edited: it is signed, or the
/// connection has several paths, which number its bytes, too (RFC 8684, 3.3).
fn is_not_editable(packet: &Packet<'_>, memory: &mut EditMemory) -> bool {
    let is_multipath = has_mptcp(packet);
    memory.tally.add(SEVERAL_PATHS, is_multipath.into());
    is_multipath || is_signed(packet)
}

/// Makes room for all that functions may make of a segment, if it can be done. Nothing is known of what the
/// receiver has acknowledged if that takes another way: bytes far in front are taken to be.
fn make_room(memory: &mut EditMemory, (number, direction): (u32, usize), len: u16, is_two_way: bool) -> bool {
    let has = has_room(memory, number, direction, len.into());
    if has || is_two_way {
        return has;
    }
    memory.splices.forget(number, direction, MOST_UNKNOWN);
    has_room(memory, number, direction, len.into())
}

/// Whether all that functions may make of a segment has room.
fn has_room(memory: &EditMemory, number: u32, direction: usize, len: usize) -> bool {
    let bytes = len + MOST_NEW_BYTES + MOST_HELD as usize;
    memory.splices.has_room(number, direction, bytes, MOST_CHANGES)
}
