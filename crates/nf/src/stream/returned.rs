//! What comes back from the process of a stream function.

use mmb_packet::{DropReason, Kind};
use mmb_stream::{OnOverflow, TcpStream, View};

use super::answers::{AnswerState, SessionNote};
use super::edits::{EditInput, EditMemory, ExpectedNumbers, TAIL};
use super::reset_both;
use super::typed::{act, act_edited, detach, refuse_following};
use crate::context::{Emissions, Holding};
use crate::held::{NO_BUFFER, OUTER_SPACE};
use crate::instance::DynFunction;
use crate::program::ir::GroupPlace;
use crate::set::{Set, VECTOR};
use crate::vector::{RawVector, scratchpad};
use crate::verdict::{EditRights, ProcessVerdict, StreamVerdict};
use crate::{Context, OnFailure, Packet, Verdict};

/// A packet of a stream function in a process that goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Returned {
    pub verdict: ProcessVerdict,
    /// The buffer with the result of a function that edits, or [`NO_BUFFER`].
    pub buffer: u32,
    /// What the function could do with the bytes.
    pub rights: EditRights,
    /// The number of the bytes that functions in front have changed. 0: none have.
    pub rope: u32,
}

impl Returned {
    /// The function has not got the packet.
    pub const LOST: Returned =
        Returned { verdict: ProcessVerdict::Lost, buffer: NO_BUFFER, rights: EditRights::NONE, rope: 0 };
}

/// Does what a stream function in a process has decided about packets. Returns the positions of those that do
/// not pass.
///
/// Bytes that the function has not read, or of which nobody knows whether it has, cannot be read later: they
/// have been noted. With `on-failure drop`, their connection is reset. With `pass`, they go on, and the
/// function reads no more of the connection, since it would read bytes with a gap.
pub(crate) fn apply_returned(
    raw: RawVector<'_, '_>,
    returned: &[Returned; VECTOR],
    on_failure: OnFailure,
) -> Set {
    let RawVector { packets, at, bases, pads, verdicts, views, emissions, on_overflow, group, .. } = raw;
    let is_outer = raw.holding.space == OUTER_SPACE;
    let (held, mut events) = (raw.holding.held, Set::EMPTY);
    at.for_each(|i| {
        let n = i & (VECTOR - 1);
        let Some(packet) = packets.get(i).filter(|_| !events.contains(i)) else { return };
        let (verdict, is_lost) = match returned[n].verdict {
            ProcessVerdict::Stream(verdict) => (verdict, false),
            ProcessVerdict::Packet(_) | ProcessVerdict::Lost => (StreamVerdict::Pass, true),
        };
        if is_lost {
            let otherwise = Otherwise { on_failure, edits: false, reason: DropReason::ProcessFailed };
            let (verdict, is_gap) = lost((packet, i), given(views[n], group), (otherwise, None), emissions);
            if verdict == Verdict::Pass {
                if is_gap {
                    detach(false, (&mut *pads, bases[n], 0), group, None);
                }
                return;
            }
            events.insert(i);
            if matches!(verdict, Verdict::End(_)) {
                // What follows in the vector is of the same connection, which is reset once.
                verdicts[n] = Verdict::Drop(DropReason::ProcessFailed);
                refuse_following(at, i, bases, verdicts, &mut events);
            }
            verdicts[n] = verdict;
            return;
        }
        if verdict == StreamVerdict::Detach {
            return detach(false, (&mut *pads, bases[n], 0), group, None);
        }
        let held = is_outer.then_some(&mut *held);
        if let Some(acted) = act(verdict, (i, packet, views[n]), (on_overflow, None), (&mut *emissions, held))
        {
            verdicts[n] = acted;
            events.insert(i);
            if matches!(acted, Verdict::Refuse(_)) || matches!(verdict, StreamVerdict::Close(_)) {
                refuse_following(at, i, bases, verdicts, &mut events);
            }
        }
    });
    events
}

/// What a function has got of a packet.
fn given(view: View, group: GroupPlace) -> View {
    if view.detached & group.bit != 0 { View::NONE } else { view }
}

/// A function in a process of a group that edits.
#[derive(Clone, Copy)]
pub(crate) struct EditingOwner<'a> {
    pub on_failure: OnFailure,
    /// The instance of the worker, which gets no packets.
    pub shadow: &'a dyn DynFunction,
}

/// What becomes of a packet that a function in a process does not get.
#[derive(Clone, Copy)]
pub(crate) struct Otherwise {
    pub on_failure: OnFailure,
    /// The function edits itself.
    pub edits: bool,
    /// Why it does not get the packet.
    pub reason: DropReason,
}

/// Returns why a packet cannot be sent to a process, by the verdict on it.
pub(crate) fn reason_of(verdict: Verdict) -> DropReason {
    match verdict {
        Verdict::Drop(reason) | Verdict::End(reason) => reason,
        _ => DropReason::ProcessFailed,
    }
}

/// What has come back of a packet.
#[derive(Clone, Copy)]
struct Outcome<'a> {
    verdict: ProcessVerdict,
    /// What the function has asked for.
    result: &'a [u8],
    /// The client gets the answer with this number.
    answer: Option<u32>,
}

/// Does what a function in a process has decided about packets of a group that edits, and what it has asked
/// for. Returns the positions of those that do not pass.
///
/// `read`: reads the result of a packet. See [`apply_returned`] for bytes that the function has not got: what
/// it holds back goes on in front of them, or their connection is reset.
pub(crate) fn apply_edited(
    raw: RawVector<'_, '_>,
    returned: &[Returned; VECTOR],
    owner: EditingOwner<'_>,
    mut read: impl FnMut(u32, &mut Vec<u8>),
) -> Set {
    let RawVector { packets, at, bases, pads, offset, verdicts, views, emissions, now, worker, .. } = raw;
    let (on_overflow, group, held) = (raw.on_overflow, raw.group, raw.holding.held);
    let (edits, sees_packets) = (owner.shadow.edits(), owner.shadow.edits() && owner.shadow.sees_packets());
    let (Some(memory), mut events) = (raw.edits, Set::EMPTY) else { return Set::EMPTY };
    memory.begin_returned();
    let mut result = std::mem::take(&mut memory.work.result);
    at.for_each(|i| {
        let n = i & (VECTOR - 1);
        let (Some(packet), one) = (packets.get(i), &returned[n]) else { return };
        let stream = scratchpad::<TcpStream>(pads, bases[n], group.offset as usize).copied();
        memory.restore(i, packet, stream.as_ref(), (one.rights, one.rope));
        if events.contains(i) {
            return;
        }
        let is_detached = stream.is_some_and(|stream| stream.detached() & group.bit != 0);
        let view = if is_detached { View::NONE } else { given(views[n], group) };
        result.clear();
        if edits && (!view.is_none() || sees_packets) && one.buffer != NO_BUFFER {
            read(one.buffer, &mut result);
        }
        let mut came = Outcome { verdict: one.verdict, result: &result, answer: None };
        if sees_packets && let Some(note) = SessionNote::take(&mut came.result) {
            came.answer = note.answer;
            if let Some(state) = scratchpad::<AnswerState>(pads, bases[n], offset + TAIL) {
                state.note(note);
            }
        }
        let place = ((&mut *pads, bases[n], offset), group);
        let acted = match (came.answer, came.verdict) {
            (Some(number), ProcessVerdict::Stream(StreamVerdict::Drop(reason))) => {
                let holding = Holding { answer: memory.answer_numbers(i), ..Holding::new(&mut *held) };
                let at = Some(i as u8);
                let cx = Context { now, worker, local: &mut (), emissions, at, ingress: u16::MAX, holding };
                let acted = match answer(packet, (number, reason), place.0, owner.shadow, (memory, cx)) {
                    true => Some(Verdict::Drop(reason)),
                    false => {
                        let reset = StreamVerdict::Reset(reason);
                        act_edited(reset, (i, packet, view), on_overflow, (memory, emissions))
                    }
                };
                acted.map(|verdict| (verdict, true))
            }
            _ => settle((packet, i), view, came, (owner, on_overflow), place, (memory, emissions)),
        };
        let Some((verdict, is_end)) = acted else { return };
        events.insert(i);
        if matches!(verdict, Verdict::End(_)) {
            // What follows in the vector is of the same connection, which is reset once.
            verdicts[n] = Verdict::Drop(DropReason::ProcessFailed);
            refuse_following(at, i, bases, verdicts, &mut events);
        }
        verdicts[n] = verdict;
        if is_end || matches!(verdict, Verdict::Refuse(_)) {
            refuse_following(at, i, bases, verdicts, &mut events);
        }
    });
    memory.work.result = result;
    events
}

/// Answers the client of a packet in the place of its server. Returns false if that cannot be now.
#[cold]
fn answer(
    packet: &Packet<'_>,
    (number, reason): (u32, DropReason),
    (pads, base, offset): (&mut [u8], u32, usize),
    shadow: &dyn DynFunction,
    (memory, mut cx): (&mut EditMemory, Context<'_, ()>),
) -> bool {
    let Some(state) = scratchpad::<AnswerState>(pads, base, offset + TAIL) else { return false };
    let is_answered = state.begin(packet, (number, shadow.answer(number)), reason, &mut cx);
    if let Some(tail) = scratchpad::<u32>(pads, base, offset).filter(|_| is_answered) {
        // What waited for the function never goes on.
        memory.remove_tail(std::mem::take(tail));
    }
    is_answered
}

/// Does what has come back of a packet: a verdict, and what the function has asked for. Returns the verdict
/// on a packet that does not pass, and whether later ones of its session have the same.
fn settle(
    (packet, at): (&Packet<'_>, usize),
    view: View,
    came: Outcome<'_>,
    (owner, on_overflow): (EditingOwner<'_>, OnOverflow),
    (place, group): ((&mut [u8], u32, usize), GroupPlace),
    (memory, emissions): (&mut EditMemory, &mut Emissions),
) -> Option<(Verdict, bool)> {
    let (pads, base, offset) = place;
    let edits = owner.shadow.edits();
    let ProcessVerdict::Stream(verdict) = came.verdict else {
        let (on_failure, reason) = (owner.on_failure, DropReason::ProcessFailed);
        let otherwise = Otherwise { on_failure, edits, reason };
        let place = ((pads, base, offset), group);
        let verdict = lose_edited((packet, at), view, otherwise, place, (memory, emissions));
        return Some((verdict, false)).filter(|&(verdict, _)| verdict != Verdict::Pass);
    };
    let longest = View { is_release: view.is_release && !owner.shadow.holds_until_decided(), ..view };
    let place = (&mut *pads, base, offset);
    if edits && !replay((packet, at), (verdict, longest), (place, came.result), memory) {
        let invalid = StreamVerdict::Reset(DropReason::ProcessInvalid);
        let acted = act_edited(invalid, (at, packet, view), on_overflow, (memory, emissions));
        return acted.map(|verdict| (verdict, true));
    }
    let has_unheld = std::mem::take(&mut memory.has_unheld);
    let verdict = if has_unheld { StreamVerdict::NoRoom } else { verdict };
    let acted = act_edited(verdict, (at, packet, view), on_overflow, (memory, emissions));
    // The process holds bytes back that have gone on: it must get no more.
    if acted.is_none() && (has_unheld || verdict == StreamVerdict::Detach) {
        detach(edits, (pads, base, offset), group, Some(memory));
    }
    acted.map(|acted| (acted, matches!(verdict, StreamVerdict::Close(_))))
}

/// Does to the bytes of a packet what a function in a process has asked for. Returns false if that cannot be.
fn replay(
    (packet, at): (&Packet<'_>, usize),
    (verdict, view): (StreamVerdict, View),
    ((pads, base, offset), result): ((&mut [u8], u32, usize), &[u8]),
    memory: &mut EditMemory,
) -> bool {
    let passes = matches!(verdict, StreamVerdict::Pass | StreamVerdict::Detach | StreamVerdict::NoRoom);
    let Some(tail) = scratchpad::<u32>(pads, base, offset).filter(|_| passes && !view.is_none()) else {
        return true;
    };
    if view.is_restart {
        memory.remove_tail(std::mem::take(tail));
    }
    memory.replay(packet, EditInput { at, view, tail }, result)
}

/// A function in a process does not get a packet of a group that edits. Returns what becomes of it. With
/// `on-failure pass`, what the function holds back goes on.
#[cold]
pub(crate) fn lose_edited(
    (packet, at): (&Packet<'_>, usize),
    view: View,
    otherwise: Otherwise,
    ((pads, base, offset), group): ((&mut [u8], u32, usize), GroupPlace),
    (memory, emissions): (&mut EditMemory, &mut Emissions),
) -> Verdict {
    let (edited, emitted) = (memory.expected_numbers(at, packet), emissions.len());
    let edits = otherwise.edits;
    let (verdict, is_gap) = lost((packet, at), view, (otherwise, edited), emissions);
    if edited.is_some() {
        memory.note_reset(at, emitted..emissions.len());
    }
    if verdict == Verdict::Pass && is_gap {
        if let Some(tail) = scratchpad::<u32>(pads, base, offset).filter(|_| edits) {
            let view = View { is_release: true, ..view };
            memory.let_out(packet, EditInput { at, view, tail });
        }
        detach(edits, (pads, base, offset), group, Some(memory));
    }
    verdict
}

/// Returns what becomes of a packet that the function has not read, and whether it has missed bytes of a
/// connection.
#[cold]
fn lost(
    (packet, at): (&Packet<'_>, usize),
    view: View,
    (otherwise, edited): (Otherwise, Option<ExpectedNumbers>),
    emissions: &mut Emissions,
) -> (Verdict, bool) {
    let is_gap = packet.meta.kind.l4() == Kind::TCP && !view.is_none();
    let verdict = match otherwise.on_failure {
        OnFailure::Pass => Verdict::Pass,
        OnFailure::Drop if is_gap => {
            reset_both(emissions, (packet, at), edited);
            Verdict::End(otherwise.reason)
        }
        OnFailure::Drop => Verdict::Drop(otherwise.reason),
    };
    (verdict, is_gap)
}

/// Does what becomes of a packet that cannot be sent to the process. Returns its verdict. `verdict`: that on
/// a packet of which nothing is noted.
#[cold]
pub(crate) fn unsent(
    (packet, at): (&Packet<'_>, usize),
    view: View,
    (verdict, on_failure): (Verdict, OnFailure),
    (pads, base, group): (&mut [u8], u32, GroupPlace),
    emissions: &mut Emissions,
) -> Verdict {
    let otherwise = Otherwise { on_failure, edits: false, reason: reason_of(verdict) };
    match lost((packet, at), view, (otherwise, None), emissions) {
        (_, false) => verdict,
        (Verdict::Pass, true) => {
            detach(false, (pads, base, 0), group, None);
            // It may have to follow others.
            if verdict == Verdict::Hold { verdict } else { Verdict::Pass }
        }
        (verdict, true) => verdict,
    }
}
