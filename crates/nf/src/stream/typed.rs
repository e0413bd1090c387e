//! A stream function without its type.

use std::any::Any;
use std::sync::Arc;

use bytemuck::Pod;
use mmb_packet::{DropReason, Kind};
use mmb_stream::{OnOverflow, TcpStream, View};

use super::answers::SessionNote;
use super::edits::{ByteEdits, EditInput, EditMemory, ExpectedNumbers, TAIL};
use super::{StreamData, StreamFunction, close_both, reset_both};
use crate::bytes::raw::{Follows, PassedBytes, RawBytes, Refusal};
use crate::context::{Emissions, Holding};
use crate::held::{HeldPackets, OUTER_SPACE};
use crate::instance::{DynFunction, RawContext};
use crate::program::ir::GroupPlace;
use crate::set::{Set, VECTOR};
use crate::vector::{RawVector, scratchpad};
use crate::{
    ArgError, Background, Context, LineSource, Packet, Properties, SessionInfo, StreamVerdict, Verdict,
};

pub(crate) struct TypedStream<F>(pub F);

/// Does what a function has decided about a packet, at position `i` of the vector. None: the packet passes.
/// `held`: if later packets of a closed session can be answered.
#[cold]
pub(super) fn act(
    verdict: StreamVerdict,
    (i, packet, view): (usize, &Packet<'_>, View),
    (on_overflow, edited): (OnOverflow, Option<ExpectedNumbers>),
    (emissions, held): (&mut Emissions, Option<&mut HeldPackets>),
) -> Option<Verdict> {
    let reason = match (verdict, on_overflow) {
        (StreamVerdict::Pass | StreamVerdict::Detach, _) | (StreamVerdict::NoRoom, OnOverflow::Pass) => {
            return None;
        }
        (StreamVerdict::NoRoom, OnOverflow::Drop) => DropReason::StreamRoom,
        (StreamVerdict::Drop(reason), _) => return Some(Verdict::Drop(reason)),
        (StreamVerdict::End(reason), _) => return Some(Verdict::End(reason)),
        (StreamVerdict::Block(reason), _) => reason,
        (StreamVerdict::Close(reason), _) if edited.is_none() => {
            close_both(emissions, i, packet, view.skip.into());
            let is_tcp = packet.meta.kind.l4() == Kind::TCP;
            if held.filter(|_| is_tcp).is_some_and(|held| held.close(packet.session.0, reason)) {
                return Some(Verdict::Drop(reason));
            }
            reason
        }
        (StreamVerdict::Close(reason) | StreamVerdict::Reset(reason), _) => {
            reset_both(emissions, (packet, i), edited);
            reason
        }
        (StreamVerdict::NoRoom, OnOverflow::Reset) => {
            reset_both(emissions, (packet, i), edited);
            DropReason::StreamReset
        }
    };
    Some(Verdict::Refuse(reason))
}

/// Does what a function has decided about a packet of a connection that it may edit: see [`act`].
#[cold]
pub(super) fn act_edited(
    verdict: StreamVerdict,
    (i, packet, view): (usize, &Packet<'_>, View),
    on_overflow: OnOverflow,
    (memory, emissions): (&mut EditMemory, &mut Emissions),
) -> Option<Verdict> {
    let edited = memory.expected_numbers(i, packet);
    let emitted = emissions.len();
    let acted = act(verdict, (i, packet, view), (on_overflow, edited), (&mut *emissions, None));
    if acted.is_some() && edited.is_some() {
        memory.note_reset(i, emitted..emissions.len());
    }
    acted
}

/// The session of a packet at position `i` is refused, or closed. So are its packets behind it in the vector.
#[cold]
pub(super) fn refuse_following(
    at: Set,
    i: usize,
    bases: &[u32; VECTOR],
    verdicts: &mut [Verdict; VECTOR],
    events: &mut Set,
) {
    let (base, verdict) = (bases[i & (VECTOR - 1)], verdicts[i & (VECTOR - 1)]);
    at.for_each(|next| {
        let n = next & (VECTOR - 1);
        if next > i && bases[n] == base {
            verdicts[n] = verdict;
            events.insert(next);
        }
    });
}

/// A function reads no more of a session, unless it holds bytes back.
#[cold]
pub(super) fn detach(
    edits: bool,
    (pads, base, offset): (&mut [u8], u32, usize),
    group: GroupPlace,
    memory: Option<&EditMemory>,
) {
    let tail = scratchpad::<u32>(pads, base, offset).copied().filter(|tail| edits && *tail != 0);
    let has_tail = |tail: u32| {
        memory.is_some_and(|memory| [0, 1].into_iter().any(|direction| memory.has_tail(tail, direction)))
    };
    if let Some(stream) = scratchpad::<TcpStream>(pads, base, group.offset as usize)
        && group.bit != 0
        && !tail.is_some_and(has_tail)
    {
        stream.detach(group.bit, group.all);
    }
}

/// Returns the number of the tail of a function that edits, and its state: see [`TAIL`].
#[inline(always)]
fn tail_and_state<T: Pod>(pads: &mut [u8], base: u32, offset: usize) -> Option<(&mut u32, &mut T)> {
    let pad = pads.get_mut(base as usize * 8 + offset..)?.get_mut(..TAIL + size_of::<T>())?;
    let (tail, state) = pad.split_first_chunk_mut::<TAIL>()?;
    let tail = bytemuck::try_from_bytes_mut(&mut tail[..size_of::<u32>()]).ok()?;
    Some((tail, bytemuck::try_from_bytes_mut(state).ok()?))
}

impl<F: StreamFunction> TypedStream<F> {
    /// Offset of the function's state in its scratchpad.
    const STATE: usize = if F::EDITS { TAIL } else { 0 };

    /// Calls the function for the new bytes of a packet.
    #[inline(always)]
    fn call(
        &self,
        data: &StreamData<'_, '_>,
        is_restart: bool,
        state: &mut F::State,
        cx: &mut Context<'_, F::Local>,
    ) -> StreamVerdict {
        if is_restart {
            self.0.restart(state, cx);
        }
        if F::SEES_PACKETS {
            let verdict = self.0.packet(data.packet(), state, cx);
            if verdict != StreamVerdict::Pass {
                return verdict;
            }
        }
        let verdict = if data.is_empty() { StreamVerdict::Pass } else { self.0.data(data, state, cx) };
        match verdict {
            StreamVerdict::Pass | StreamVerdict::Detach if data.is_end() => {
                self.0.end(data.direction(), state, cx)
            }
            _ => verdict,
        }
    }

    /// Calls a function that edits.
    fn edit(
        &self,
        (packet, at): (&Packet<'_>, usize),
        view: View,
        (tail, state): (&mut u32, &mut F::State),
        memory: &mut EditMemory,
        cx: &mut Context<'_, F::Local>,
    ) -> StreamVerdict {
        let view = View { is_release: view.is_release && !F::HOLDS_UNTIL_DECIDED, ..view };
        if view.is_restart {
            memory.remove_tail(std::mem::take(tail));
            cx.holding.held.end_takeover(packet.session.0);
            self.0.restart(state, cx);
        }
        if F::SEES_PACKETS {
            let verdict = self.0.packet(packet, state, cx);
            if verdict != StreamVerdict::Pass {
                return verdict;
            }
        }
        if view.is_none() {
            return StreamVerdict::Pass;
        }
        let input = EditInput { at, view, tail };
        let verdict = memory.edit(packet, input, |data| self.0.edit(data, state, cx)).unwrap_or_default();
        let has_unheld = std::mem::take(&mut memory.has_unheld);
        match verdict {
            StreamVerdict::Pass | StreamVerdict::Detach if has_unheld => StreamVerdict::NoRoom,
            StreamVerdict::Pass | StreamVerdict::Detach if view.is_end => {
                self.0.end(packet.direction, state, cx)
            }
            _ => verdict,
        }
    }

    /// In a process: writes down what the worker has to know of the session of a packet. `answer`: the number
    /// of the answer to its client.
    fn note_session(
        &self,
        (at, answer): (usize, Option<u32>),
        (pads, base, offset): (&mut [u8], u32, usize),
        edits: Option<&mut EditMemory>,
    ) {
        let recorder = edits.and_then(|memory| memory.recorder.as_mut()).filter(|_| F::SEES_PACKETS);
        if let (Some(recorder), Some(state)) = (recorder, scratchpad(pads, base, offset + TAIL)) {
            let (watches, output) = (self.0.watches(state), self.0.output(state));
            recorder.note_session(at, SessionNote { answer, watches, output });
        }
    }

    /// Calls the function for a packet. `pads`: all scratchpads, the session's place in them, and that of the
    /// function. `edits`: also whether the session is one of the flow manager's.
    #[inline(always)]
    fn one(
        &self,
        (packet, at): (&Packet<'_>, usize),
        view: View,
        (pads, base, offset): (&mut [u8], u32, usize),
        (edits, is_outer): (Option<&mut EditMemory>, bool),
        cx: &mut Context<'_, F::Local>,
    ) -> StreamVerdict {
        match edits {
            Some(memory) if F::EDITS => {
                let Some(state) = tail_and_state(pads, base, offset) else { return StreamVerdict::Pass };
                if F::SEES_PACKETS && is_outer {
                    cx.holding.answer = memory.answer_numbers(at);
                }
                self.edit((packet, at), view, state, memory, cx)
            }
            edits => {
                let state = scratchpad(pads, base, offset + Self::STATE);
                let Some(state) = state else { return StreamVerdict::Pass };
                let rope = edits.and_then(|memory| memory.rope(at));
                let data = StreamData::new(packet, view).with_edits(&[], rope);
                self.call(&data, view.is_restart, state, cx)
            }
        }
    }
}

impl<F: StreamFunction> DynFunction for TypedStream<F> {
    fn any(&self) -> &dyn Any {
        self
    }

    fn kind(&self) -> &'static str {
        F::TYPE
    }

    fn properties(&self) -> Properties {
        Properties {
            accepts: self.0.accepts(),
            outputs: self.0.outputs(),
            is_read_only: !F::EDITS,
            takes_large_frames: true,
            ..Properties::default()
        }
    }

    fn pad(&self) -> (usize, usize) {
        if F::EDITS {
            return (TAIL + size_of::<F::State>(), align_of::<F::State>().max(align_of::<u32>()));
        }
        (size_of::<F::State>(), align_of::<F::State>())
    }

    fn is_stream(&self) -> bool {
        true
    }

    /// A function that looks at packets would miss them in brokers.
    fn reads_bytes(&self) -> bool {
        !F::SEES_PACKETS
    }

    fn read_bytes(
        &self,
        raw: &RawBytes<'_, '_>,
        passed: &mut PassedBytes,
        pad: &mut [u8],
        (cx, local): (RawContext<'_>, &mut dyn Any),
    ) -> Result<(), Refusal> {
        let state = pad.get_mut(Self::STATE..).unwrap_or(&mut []);
        let (Ok(state), Some(local)) = (bytemuck::try_from_bytes_mut(state), local.downcast_mut()) else {
            return Err(Refusal::Close);
        };
        let (mut cx, mut edits) = (cx.typed(local), ByteEdits::default());
        let is_end = raw.follows == Follows::End;
        let view = View { is_end, ..View::NONE };
        let data = StreamData::of_bytes(raw.packet, view, raw.bytes);
        let mut verdict = match (data.is_empty(), F::EDITS) {
            (true, _) => StreamVerdict::Pass,
            (false, false) => self.0.data(&data, state, &mut cx),
            (false, true) => {
                let can_hold = raw.follows == Follows::More;
                edits.edit(data, (raw.held, can_hold), |data| self.0.edit(data, state, &mut cx))
            }
        };
        if is_end && matches!(verdict, StreamVerdict::Pass | StreamVerdict::Detach) {
            verdict = self.0.end(raw.packet.direction, state, &mut cx);
        }
        passed.is_detached = verdict == StreamVerdict::Detach;
        match verdict {
            StreamVerdict::Pass | StreamVerdict::Detach => {
                edits.write(raw.bytes, &mut passed.out, &mut passed.rest);
                Ok(())
            }
            StreamVerdict::Reset(_) => Err(Refusal::Reset),
            // As `stream-overflow drop` has it, what has no room for its state does not pass.
            StreamVerdict::Block(_)
            | StreamVerdict::Close(_)
            | StreamVerdict::NoRoom
            | StreamVerdict::Drop(_)
            | StreamVerdict::End(_) => Err(Refusal::Close),
        }
    }

    fn request_headers(&self) -> Vec<Box<[u8]>> {
        self.0.request_headers()
    }

    fn l7(&self) -> Option<&dyn crate::DynL7> {
        self.0.l7()
    }

    fn reads_content(&self) -> bool {
        F::READS_CONTENT
    }

    fn edits(&self) -> bool {
        F::EDITS
    }

    fn holds_until_decided(&self) -> bool {
        F::HOLDS_UNTIL_DECIDED
    }

    fn refuses(&self, pad: &[u8]) -> bool {
        let state = pad.get(Self::STATE..).and_then(|state| bytemuck::try_pod_read_unaligned(state).ok());
        state.is_some_and(|state| self.0.refuses(&state))
    }

    fn sees_packets(&self) -> bool {
        F::SEES_PACKETS
    }

    fn watches(&self, pad: &[u8]) -> bool {
        let state = pad.get(Self::STATE..).and_then(|state| bytemuck::try_pod_read_unaligned(state).ok());
        F::SEES_PACKETS && state.is_none_or(|state| self.0.watches(&state))
    }

    fn output(&self, pad: &[u8]) -> Option<u8> {
        self.0.output(bytemuck::try_from_bytes(pad.get(Self::STATE..)?).ok()?)
    }

    fn answer(&self, number: u32) -> &[u8] {
        self.0.answer(number)
    }

    fn describe(&self, pad: &[u8], _: [u32; 2]) -> Option<String> {
        self.0.describe(bytemuck::try_from_bytes(pad.get(Self::STATE..)?).ok()?)
    }

    fn local(&self) -> Box<dyn Any + Send> {
        Box::new(self.0.local())
    }

    fn open(&self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>, local: &mut dyn Any) {
        let state = pad.get_mut(Self::STATE..).unwrap_or(&mut []);
        if let (Ok(state), Some(local)) = (bytemuck::try_from_bytes_mut(state), local.downcast_mut()) {
            self.0.open(state, session, &mut cx.typed(local));
        }
    }

    fn release(&self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>, local: &mut dyn Any) {
        let mut cx = cx;
        let (tail, state) = pad.split_at_mut_checked(Self::STATE).unwrap_or_default();
        if let (Some(&tail), Some(memory)) = (tail.first_chunk(), cx.edits.take()) {
            memory.remove_tail(u32::from_ne_bytes(tail));
        }
        if let (Ok(state), Some(local)) = (bytemuck::try_from_bytes_mut(state), local.downcast_mut()) {
            self.0.release(state, session, &mut cx.typed(local));
        }
    }

    fn vector(&self, raw: RawVector<'_, '_>, local: &mut dyn Any) -> Set {
        let Some(local) = local.downcast_mut::<F::Local>() else { return Set::EMPTY };
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
            mut edits,
            on_overflow,
            group,
            mut stream_verdicts,
            ..
        } = raw;
        let is_outer = raw.holding.space == OUTER_SPACE;
        let holding = Holding::new(raw.holding.held);
        let mut events = Set::EMPTY;
        let mut cx = Context { now, worker, local, emissions, at: None, ingress: u16::MAX, holding };
        at.for_each(|i| {
            let view = views[i & (VECTOR - 1)];
            let is_detached = view.detached & group.bit != 0;
            if view.is_none() && !F::SEES_PACKETS || is_detached || events.contains(i) {
                return;
            }
            let Some(packet) = packets.get(i) else { return };
            cx.at = Some(i as u8);
            let base = bases[i & (VECTOR - 1)];
            let place = (&mut *pads, base, offset);
            let verdict = self.one((packet, i), view, place, (edits.as_deref_mut(), is_outer), &mut cx);
            if let Some(verdicts) = stream_verdicts.as_deref_mut() {
                verdicts[i & (VECTOR - 1)] = verdict;
                let answer = cx.holding.answered.take();
                self.note_session((i, answer), (pads, base, offset), edits.as_deref_mut());
                if verdict.ends_stream() || answer.is_some() {
                    // The session goes no further: its packets behind this one are not read.
                    let is_behind = |next: usize| next > i && bases[next & (VECTOR - 1)] == base;
                    events = events.union(at.filter(is_behind));
                }
                return;
            }
            match verdict {
                StreamVerdict::Pass => return,
                StreamVerdict::Detach => {
                    return detach(F::EDITS, (pads, base, offset), group, edits.as_deref());
                }
                _ => {}
            }
            let place = (i, packet, view);
            let acted = match edits.as_deref_mut() {
                Some(memory) => act_edited(verdict, place, on_overflow, (memory, &mut *cx.emissions)),
                None => {
                    let held = is_outer.then_some(&mut *cx.holding.held);
                    act(verdict, place, (on_overflow, None), (&mut *cx.emissions, held))
                }
            };
            if let Some(acted) = acted {
                verdicts[i & (VECTOR - 1)] = acted;
                events.insert(i);
                if matches!(acted, Verdict::Refuse(_)) || matches!(verdict, StreamVerdict::Close(_)) {
                    refuse_following(at, i, bases, verdicts, &mut events);
                }
            }
        });
        events
    }

    fn set(&self, args: &[&str]) -> Result<(), ArgError> {
        self.0.set(args)
    }

    fn report(&self) -> Vec<(String, String)> {
        self.0.report()
    }

    fn background(&self) -> Option<Background> {
        self.0.background()
    }

    fn lines(&self) -> Option<Arc<dyn LineSource>> {
        self.0.lines()
    }

    /// Tails of functions that edit are not in scratchpads.
    fn has_local_state(&self) -> bool {
        F::EDITS || size_of::<F::Local>() != 0
    }
}
