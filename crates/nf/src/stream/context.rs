//! The stream context: it puts the packets of sessions in order for the stream functions behind it.

use std::any::Any;

use mmb_flow::SessionId;
use mmb_packet::{Kind, PacketFlags};
use mmb_stream::{Cause, KeptBytes, Policy, Status, TcpStream, View};

use super::counters::{self, COUNTERS, EARLY, FIRST_EDIT, StreamCounter};
use super::edits::{EditMemory, EditTally, NOT_EDITED, RESETS};
use super::step::Step;
use super::{has_closed, verdict_closed};
use crate::context::Holding;
use crate::held::OUTER_SPACE;
use crate::instance::{DynFunction, RawContext};
use crate::program::ir::GroupPlace;
use crate::set::{Set, VECTOR};
use crate::tcp_segment::segment;
use crate::vector::{RawVector, scratchpad};
use crate::{ArgError, Packet, Properties, SessionInfo, Verdict, WorkerCounters};

/// Bytes of a worker that wait for acknowledgements, and connections that have such bytes.
const KEPT_BYTES: usize = 32 << 20;
const KEPT_CONNECTIONS: usize = 65_536;

/// The state of a worker.
pub(crate) struct ContextState {
    pub policy: Policy,
    pub kept: KeptBytes,
}

/// An instance that the compiler inserts in front of stream functions.
pub(crate) struct StreamContext {
    pub(super) counters: WorkerCounters<COUNTERS>,
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
        if let Some([counts @ .., unheld]) = tally.take() {
            self.counters.add(worker, EARLY + Cause::NoRoom as usize, unheld);
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
            Status::Read | Status::Leaving => {
                let waiting = match held {
                    [0, 0] => String::new(),
                    [one, other] => format!(", waiting for them {one}/{other}"),
                };
                let fixed = stream.is_edited() && stream.kept() == NOT_EDITED;
                let fixed = if fixed { ", cannot be edited" } else { "" };
                Some(format!("next {}/{}{waiting}{fixed}", next(0), next(1)))
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
                let fault = if keeps_bytes { self.segment_fault(packet, stream, worker) } else { None };
                let mut verdict = match fault {
                    Some(reason) => Verdict::Drop(reason),
                    None => self.tcp_answered(packet, &segment, (stream, view), &mut step),
                };
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
