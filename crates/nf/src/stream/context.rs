//! The stream context: it puts the packets of sessions in order for the stream functions behind it.

use std::any::Any;

use mmb_flow::{Direction, SessionId, TcpSegment};
use mmb_packet::{DropReason, Kind, PacketFlags};
use mmb_stream::{
    Cause, HeldRange, KeptBytes, OnOverflow, Outcome, Policy, Segment, Status, TcpStream, View, is_after,
};

use super::counters::{self, BYTES, COUNTERS, EARLY, FIRST_EDIT, PACKETS, StreamCounter};
use super::early::{Early, stream_numbers};
use super::edits::{EditMemory, EditTally, ExpectedNumbers, RESETS};
use super::{has_closed, reset_both, verdict_closed};
use crate::context::{Emissions, Holding, keep};
use crate::held::{ApartStates, HeldPlace, OUTER_SPACE, ProcessRoom, Urgency};
use crate::instance::{DynFunction, RawContext};
use crate::program::ir::GroupPlace;
use crate::set::{Set, VECTOR};
use crate::tcp_segment::{FLAGS, permits_sack, timestamp};
use crate::vector::{RawVector, scratchpad};
use crate::{ArgError, Packet, Properties, SessionInfo, Verdict, WorkerCounters};

/// Bytes of a worker that wait for acknowledgements, and connections that have such bytes.
const KEPT_BYTES: usize = 32 << 20;
const KEPT_CONNECTIONS: usize = 65_536;

/// Of a TCP header (RFC 9293, 3.1).
const URG: u8 = 0x20;
const URGENT_POINTER: usize = 18;

/// The state of a worker.
pub(crate) struct ContextState {
    pub policy: Policy,
    pub kept: KeptBytes,
}

/// An instance that the compiler inserts in front of stream functions.
pub(crate) struct StreamContext {
    pub(super) counters: WorkerCounters<COUNTERS>,
}

/// The packet that is being processed, and what can be done with it.
pub(super) struct Step<'a> {
    pub holding: Holding<'a>,
    pub emissions: &'a mut Emissions,
    pub policy: Policy,
    pub worker: u16,
    /// Milliseconds.
    pub now: u32,
    pub at: usize,
    /// The numbers that the ends expect, if functions may edit the connection.
    pub edited: Option<ExpectedNumbers>,
    /// Connections that were reset.
    pub resets: u64,
    /// Indices of the states of functions in processes, if one of the group edits.
    pub apart: ApartStates,
}

impl StreamContext {
    /// The type of the instances.
    pub const KIND: &'static str = "stream";

    pub fn new(workers: u16) -> StreamContext {
        StreamContext { counters: WorkerCounters::new(workers) }
    }
}

impl StreamContext {
    /// Adds to a counter of edits, by its place in [`EDIT_COUNTERS`].
    pub(super) fn count_edit(&self, worker: u16, which: usize, count: u64) {
        if count != 0 {
            self.counters.add(worker, FIRST_EDIT + which, count);
        }
    }

    pub(super) fn count(&self, worker: u16, cause: Cause) {
        if cause != Cause::None {
            self.counters.add(worker, EARLY + cause as usize, 1);
        }
    }

    /// Adds edits to the counters.
    #[inline]
    pub(super) fn take_tally(&self, worker: u16, tally: &mut EditTally) {
        if let Some(counts) = tally.take() {
            counts.into_iter().enumerate().for_each(|(which, n)| self.count_edit(worker, which, n));
        }
    }

    /// Returns all counters with their values.
    fn all_counters(&self) -> Vec<(StreamCounter, u64)> {
        counters::all().enumerate().map(|(which, counter)| (counter, self.counters.sum(which))).collect()
    }

    /// Returns what `show functions` prints.
    fn counter_report(&self) -> Vec<(String, String)> {
        let shown = self.all_counters().into_iter().enumerate();
        let shown = shown.filter(|&(which, (_, count))| which <= EARLY || count != 0);
        shown.map(|(_, (counter, count))| (counter.text.to_owned(), count.to_string())).collect()
    }
}

impl<'a> Step<'a> {
    pub fn new(
        (holding, emissions): (Holding<'a>, &'a mut Emissions),
        policy: Policy,
        (worker, now): (u16, u32),
    ) -> Step<'a> {
        let apart = ApartStates::new();
        Step { holding, emissions, policy, worker, now, at: 0, edited: None, resets: 0, apart }
    }

    pub(super) fn place(&self, packet: &Packet<'_>) -> HeldPlace {
        self.holding.place(packet)
    }

    /// Returns why a segment is dropped for want of room in a process. Nothing is noted of it, so that it can
    /// come again.
    #[inline]
    pub fn refusal(
        &self,
        room: &mut ProcessRoom,
        (packet, at): (&Packet<'_>, usize),
        (segment, stream): (&Segment, &TcpStream),
        bases: &[u32; VECTOR],
    ) -> Option<DropReason> {
        let (place, direction) = (self.place(packet), packet.direction);
        let held = &*self.holding.held;
        let may_be_read = segment.len != 0 || segment.flags & (Segment::SYN | Segment::FIN) != 0;
        if !may_be_read && !room.has_others(at, (place, direction), bases, held) {
            return None;
        }
        let next = stream.next(direction as usize);
        let urgency = match next.is_some_and(|next| is_after(segment.seq, next)) {
            true => Urgency::Early,
            false if held.held_of(place, direction) != 0 => Urgency::Awaited,
            false => Urgency::Ordinary,
        };
        room.take(at, (place, urgency), bases, held).err()
    }

    /// Whether segments of a packet's direction wait for bytes in front of them.
    pub fn has_early(&self, packet: &Packet<'_>) -> bool {
        self.holding.held.held_of(self.place(packet), packet.direction) != 0
    }

    /// Whether packets of a packet's session and a direction are in processes of the group.
    pub fn is_apart(&self, packet: &Packet<'_>, direction: Direction) -> bool {
        let (place, held) = (self.place(packet), &*self.holding.held);
        self.apart
            .iter()
            .map(|&state| HeldPlace { state, ..place })
            .any(|place| held.held_of(place, direction) != 0 || held.has_pending(place, direction))
    }

    /// Whether packets of a packet's session wait in the group, or are in its processes.
    pub fn has_packets(&self, packet: &Packet<'_>) -> bool {
        let (place, held) = (self.place(packet), &*self.holding.held);
        [Direction::Forward, Direction::Reverse].into_iter().any(|direction| {
            held.held_of(place, direction) != 0
                || held.has_pending(place, direction)
                || self.is_apart(packet, direction)
        })
    }

    /// Drops the packets of a session that are in processes of the group.
    #[cold]
    pub fn drop_apart(&mut self, packet: &Packet<'_>) {
        let place = self.place(packet);
        for &state in &self.apart {
            self.holding.held.leave(HeldPlace { state, ..place });
        }
    }

    /// A packet repeats bytes that are not kept. They cannot come again, so that the connection cannot go on.
    #[cold]
    pub fn unkept(&mut self, packet: &Packet<'_>) -> Verdict {
        if self.policy.overflow == OnOverflow::Pass { Verdict::Pass } else { self.reset(packet) }
    }

    pub fn reset(&mut self, packet: &Packet<'_>) -> Verdict {
        self.resets += 1;
        reset_both(self.emissions, (packet, self.at), self.edited);
        Verdict::End(DropReason::StreamReset)
    }
}

impl StreamContext {
    /// Looks at a segment before anything is noted of it. Returns false if it is to be dropped.
    ///
    /// `is_exact`: functions judge bytes. Many receivers take the byte at the urgent pointer out of the
    /// stream (RFC 6093, 3.1), which functions do not see. So the pointer is removed.
    #[inline(always)]
    pub(super) fn admits(
        &self,
        packet: &mut Packet<'_>,
        stream: &mut TcpStream,
        worker: u16,
        is_exact: bool,
    ) -> bool {
        let flags = packet.tcp_flags();
        if !stream.may_come_from(packet.direction as usize, packet.in_port, flags) {
            self.count(worker, Cause::WrongPort);
            return false;
        }
        if flags & URG != 0 && is_exact && !matches!(stream.status(), Status::Passed(_)) {
            remove_urgent(packet, flags);
        }
        true
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
        let direction = packet.direction as usize;
        let may_wait = step.holding.held.is_draining() || stream.may_hold(direction);
        let is_queued = may_wait || packet.meta.flags.contains(PacketFlags::FRAGMENT);
        if !is_queued && stream.take_next(direction, segment) {
            view.len = segment.len;
            return Verdict::Pass;
        }
        let (found, verdict) = match is_queued {
            true => self.queued(packet, stream, segment, step),
            false => self.uncommon(packet, stream, segment, step),
        };
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
    fn tcp_answered(
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
                step.note_stamp(packet);
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
        let stamp = timestamp(packet.head, packet.meta).map(|(_, value, _)| value);
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

#[cold]
fn remove_urgent(packet: &mut Packet<'_>, flags: u8) {
    packet.write_l4(FLAGS, &[flags & !URG]);
    packet.write_l4(URGENT_POINTER, &[0, 0]);
}

/// Returns the facts about a packet of TCP.
#[inline(always)]
pub(super) fn segment(packet: &Packet<'_>) -> Option<Segment> {
    let TcpSegment { seq, ack, len, window, flags, scale } = TcpSegment::read(packet.head, packet.meta)?;
    let len = u16::try_from(len).unwrap_or(u16::MAX);
    let permits_sack = flags & Segment::SYN != 0 && permits_sack(packet.head, packet.meta);
    Some(Segment { seq, ack, len, window, flags, scale, permits_sack })
}

/// Notes in the view of a packet which functions of a group read no more of its session. Notes the session if
/// none of them reads it any more.
#[inline(always)]
pub(super) fn for_functions(
    view: &mut View,
    (session, stream): (SessionId, &TcpStream),
    group: GroupPlace,
    (unread, holding, memory): (&mut Vec<SessionId>, &Holding<'_>, Option<&EditMemory>),
) {
    let detached = stream.detached();
    if detached != 0 {
        view.detached = detached;
        note_unread(unread, (session, stream), group, (holding, memory));
    }
}

/// Notes a session that no function of its chain reads any more, and of which nothing is kept but constant
/// offsets.
#[cold]
fn note_unread(
    unread: &mut Vec<SessionId>,
    (session, stream): (SessionId, &TcpStream),
    group: GroupPlace,
    (holding, memory): (&Holding<'_>, Option<&EditMemory>),
) {
    let is_settled = || match memory {
        Some(memory) if stream.is_edited() => memory.is_settled(session.0, Some(stream)),
        _ => stream.kept() == 0,
    };
    let is_unread = stream.status() == Status::Passed(Cause::Detached) && is_settled();
    let may_leave = group.is_alone && stream.detached() == group.all && holding.space == OUTER_SPACE;
    if is_unread && may_leave && unread.len() < unread.capacity() && unread.last() != Some(&session) {
        unread.push(session);
    }
}

/// Returns what functions get of a packet that is not TCP: the payload of a datagram, or of a later fragment
/// of one.
#[inline(always)]
pub(super) fn datagram(packet: &Packet<'_>) -> View {
    const UDP: u8 = 17;
    let len = packet.l4_payload_len() as u16;
    if packet.meta.kind.l4() == Kind::UDP {
        // Bytes behind the length of the header are no payload (RFC 768).
        let field = packet.l4().get(4..6).map_or(0, |field| u16::from_be_bytes([field[0], field[1]]));
        return View::all(len.min(field.saturating_sub(8)));
    }
    let is_later = packet.meta.flags.contains(PacketFlags::LATER_FRAGMENT);
    if is_later && packet.meta.proto == UDP { View::all(len) } else { View::NONE }
}

impl DynFunction for StreamContext {
    fn any(&self) -> &dyn Any {
        self
    }

    fn kind(&self) -> &'static str {
        Self::KIND
    }

    fn properties(&self) -> Properties {
        Properties { takes_large_frames: true, ..Properties::default() }
    }

    fn pad(&self) -> (usize, usize) {
        (size_of::<TcpStream>(), align_of::<TcpStream>())
    }

    fn holds(&self) -> bool {
        true
    }

    fn describe(&self, pad: &[u8], held: [u32; 2]) -> Option<String> {
        let stream: &TcpStream = bytemuck::try_from_bytes(pad).ok()?;
        let next = |direction: usize| match stream.next(direction) {
            Some(next) if stream.is_ended(direction) => format!("{next} (end)"),
            Some(next) => next.to_string(),
            None => "-".to_owned(),
        };
        match stream.status() {
            Status::New => None,
            Status::Passed(cause) => Some(format!("not read: {}", StreamCounter::of(cause).text)),
            Status::Read | Status::Leaving if held == [0, 0] => Some(format!("next {}/{}", next(0), next(1))),
            Status::Read | Status::Leaving => {
                Some(format!("next {}/{}, waiting for them {}/{}", next(0), next(1), held[0], held[1]))
            }
        }
    }

    fn local(&self) -> Box<dyn Any + Send> {
        let kept = KeptBytes::new(KEPT_BYTES, KEPT_CONNECTIONS);
        Box::new(ContextState { policy: Policy::default(), kept })
    }

    fn open(&self, _: &mut [u8], _: &SessionInfo, _: RawContext<'_>, _: &mut dyn Any) {}

    fn release(&self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>, local: &mut dyn Any) {
        cx.holding.held.end_takeover(session.id.0);
        cx.holding.held.end_closed(session.id.0);
        let Ok(stream) = bytemuck::try_from_bytes::<TcpStream>(pad) else { return };
        match (stream.is_edited(), cx.edits, local.downcast_mut::<ContextState>()) {
            (true, Some(memory), _) => memory.splices.remove(stream.kept()),
            (false, _, Some(state)) => state.kept.remove(stream.kept()),
            _ => {}
        }
    }

    fn exit(&self, raw: RawVector<'_, '_>) -> Set {
        self.leave_all(raw)
    }

    fn vector(&self, raw: RawVector<'_, '_>, local: &mut dyn Any) -> Set {
        let Some(ContextState { policy, kept }) = local.downcast_mut() else { return Set::EMPTY };
        if raw.edits.is_some() {
            return self.arrive_all(raw, *policy, kept);
        }
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
            keeps_bytes,
            group,
            unread,
            mut room,
            ..
        } = raw;
        let mut step = Step::new((holding, emissions), *policy, (worker, now));
        let has_closed = has_closed(&step.holding);
        let mut events = Set::EMPTY;
        at.for_each(|i| {
            let n = i & (VECTOR - 1);
            views[n] = View::NONE;
            let stream = scratchpad::<TcpStream>(pads, bases[n], offset);
            let (Some(packet), Some(stream)) = (packets.get_mut(i), stream) else { return };
            if packet.meta.kind.l4() != Kind::TCP {
                views[n] = datagram(packet);
            } else if has_closed
                && let Some(verdict) = verdict_closed(&step.holding, step.emissions, (packet, i))
            {
                verdicts[n] = verdict;
                events.insert(i);
            } else if let Some(segment) = segment(packet) {
                if let Some(room) = &mut room
                    && let Some(reason) = step.refusal(room, (packet, i), (&segment, stream), bases)
                {
                    verdicts[n] = Verdict::Drop(reason);
                    return events.insert(i);
                }
                step.at = i;
                let view = &mut views[n];
                let mut verdict = self.tcp_answered(packet, &segment, (stream, view), &mut step);
                if keeps_bytes && verdict == Verdict::Pass {
                    verdict = self.agree(packet, &segment, stream, (view, kept), &mut step);
                }
                for_functions(view, (packet.session, stream), group, (unread, &step.holding, None));
                if verdict != Verdict::Pass {
                    verdicts[n] = verdict;
                    events.insert(i);
                }
            }
        });
        self.count_views(worker, at, views);
        self.count_edit(worker, RESETS, step.resets);
        events
    }

    /// Released packets have their views already.
    fn resume(&self, raw: RawVector<'_, '_>, local: &mut dyn Any) -> Set {
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
            ..
        } = raw;
        let mut events = Set::EMPTY;
        if let Some(memory) = edits {
            memory.resume(at, |i| {
                let stream = scratchpad::<TcpStream>(pads, bases[i & (VECTOR - 1)], offset)?;
                Some((*stream, packets.get(i)?.direction as usize))
            });
            return events;
        }
        if has_closed(&holding) {
            at.for_each(|i| {
                let Some(packet) = packets.get(i) else { return };
                if let Some(verdict) = verdict_closed(&holding, emissions, (packet, i)) {
                    verdicts[i & (VECTOR - 1)] = verdict;
                    events.insert(i);
                }
            });
        }
        let Some(ContextState { policy, kept }) = local.downcast_mut().filter(|_| raw.keeps_bytes) else {
            return events;
        };
        let mut step = Step::new((holding, emissions), *policy, (worker, now));
        at.without(events).for_each(|i| {
            let n = i & (VECTOR - 1);
            if let (Some(packet), Some(stream)) = (packets.get_mut(i), scratchpad(pads, bases[n], offset)) {
                let Some(segment) = segment(packet) else { return };
                step.at = i;
                let verdict = self.agree(packet, &segment, stream, (&views[n], kept), &mut step);
                if verdict != Verdict::Pass {
                    verdicts[n] = verdict;
                    events.insert(i);
                }
            }
        });
        self.count_edit(worker, RESETS, step.resets);
        events
    }

    fn set(&self, _: &[&str]) -> Result<(), ArgError> {
        Err("a stream context has no settings of its own: see `set stream-pickup`, `set stream-overflow`"
            .into())
    }

    fn report(&self) -> Vec<(String, String)> {
        self.counter_report()
    }

    fn stream_counters(&self) -> Vec<(StreamCounter, u64)> {
        self.all_counters()
    }
}
