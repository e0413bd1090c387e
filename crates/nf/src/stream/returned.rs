//! What comes back from the process of a stream function.

use mmb_packet::{DropReason, Kind};
use mmb_stream::{TcpStream, View};

use super::edits::{EditInput, EditMemory, ExpectedNumbers};
use super::reset_both;
use super::typed::{act, act_edited, detach, refuse_following};
use crate::context::Emissions;
use crate::held::{NO_BUFFER, OUTER_SPACE};
use crate::program::ir::GroupPlace;
use crate::set::{Set, VECTOR};
use crate::vector::{RawVector, scratchpad};
use crate::verdict::{EditRights, ProcessVerdict, StreamVerdict};
use crate::{OnFailure, Packet, Verdict};

/// A packet of a stream function in a process that goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Returned {
    pub verdict: ProcessVerdict,
    /// The buffer with the result of a function that edits, or [`NO_BUFFER`].
    pub buffer: u32,
    /// What the function could do with the bytes.
    pub rights: EditRights,
}

impl Returned {
    /// The function has not got the packet.
    pub const LOST: Returned =
        Returned { verdict: ProcessVerdict::Lost, buffer: NO_BUFFER, rights: EditRights::NONE };
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
            let (verdict, is_gap) = lost((packet, i), views[n], (on_failure, None), emissions);
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

/// Does what a function that edits in a process has decided about packets, and asked for. Returns the
/// positions of those that do not pass.
///
/// `read`: reads the result of a packet. See [`apply_returned`] for bytes that the function has not got: what
/// it holds back goes on in front of them, or their connection is reset.
pub(crate) fn apply_edited(
    raw: RawVector<'_, '_>,
    returned: &[Returned; VECTOR],
    (on_failure, holds_until_decided): (OnFailure, bool),
    mut read: impl FnMut(u32, &mut Vec<u8>),
) -> Set {
    let RawVector { packets, at, bases, pads, offset, verdicts, views, emissions, .. } = raw;
    let (on_overflow, group) = (raw.on_overflow, raw.group);
    let (Some(memory), mut events) = (raw.edits, Set::EMPTY) else { return Set::EMPTY };
    memory.begin_returned();
    let mut result = std::mem::take(&mut memory.work.result);
    at.for_each(|i| {
        let n = i & (VECTOR - 1);
        let (Some(packet), one) = (packets.get(i), &returned[n]) else { return };
        let stream = scratchpad::<TcpStream>(pads, bases[n], group.offset as usize).copied();
        memory.restore(i, packet, stream.as_ref(), one.rights);
        if events.contains(i) {
            return;
        }
        let is_detached = stream.is_some_and(|stream| stream.detached() & group.bit != 0);
        let view = if is_detached { View::NONE } else { views[n] };
        let place = (&mut *pads, bases[n], offset);
        let (verdict, is_end) = match one.verdict {
            ProcessVerdict::Stream(verdict) => {
                result.clear();
                if !view.is_none() && one.buffer != NO_BUFFER {
                    read(one.buffer, &mut result);
                }
                let longest = View { is_release: view.is_release && !holds_until_decided, ..view };
                let is_done = replay((packet, i), (verdict, longest), (place, &result), memory);
                match (is_done, verdict) {
                    (false, _) => {
                        let invalid = StreamVerdict::Reset(DropReason::ProcessInvalid);
                        (act_edited(invalid, (i, packet, view), on_overflow, (memory, &mut *emissions)), true)
                    }
                    (true, StreamVerdict::Pass) => return,
                    (true, StreamVerdict::Detach) => {
                        return detach(true, (&mut *pads, bases[n], offset), group, Some(memory));
                    }
                    (true, verdict) => {
                        let is_close = matches!(verdict, StreamVerdict::Close(_));
                        let acted =
                            act_edited(verdict, (i, packet, view), on_overflow, (memory, &mut *emissions));
                        (acted, is_close)
                    }
                }
            }
            ProcessVerdict::Packet(_) | ProcessVerdict::Lost => {
                let verdict =
                    lose_edited((packet, i), view, on_failure, (place, group), (memory, &mut *emissions));
                (Some(verdict).filter(|&verdict| verdict != Verdict::Pass), false)
            }
        };
        let Some(verdict) = verdict else { return };
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

/// A function that edits in a process does not get a packet. Returns what becomes of it. With `on-failure
/// pass`, what the function holds back goes on.
#[cold]
pub(crate) fn lose_edited(
    (packet, at): (&Packet<'_>, usize),
    view: View,
    on_failure: OnFailure,
    ((pads, base, offset), group): ((&mut [u8], u32, usize), GroupPlace),
    (memory, emissions): (&mut EditMemory, &mut Emissions),
) -> Verdict {
    let (edited, emitted) = (memory.expected_numbers(at, packet), emissions.len());
    let (verdict, is_gap) = lost((packet, at), view, (on_failure, edited), emissions);
    if edited.is_some() {
        memory.note_reset(at, emitted..emissions.len());
    }
    if verdict == Verdict::Pass && is_gap {
        if let Some(tail) = scratchpad::<u32>(pads, base, offset) {
            let view = View { is_release: true, ..view };
            memory.let_out(packet, EditInput { at, view, tail });
        }
        detach(true, (pads, base, offset), group, Some(memory));
    }
    verdict
}

/// Returns what becomes of a packet that the function has not read, and whether it has missed bytes of a
/// connection.
#[cold]
fn lost(
    (packet, at): (&Packet<'_>, usize),
    view: View,
    (on_failure, edited): (OnFailure, Option<ExpectedNumbers>),
    emissions: &mut Emissions,
) -> (Verdict, bool) {
    let is_gap = packet.meta.kind.l4() == Kind::TCP && !view.is_none();
    let verdict = match on_failure {
        OnFailure::Pass => Verdict::Pass,
        OnFailure::Drop if is_gap => {
            reset_both(emissions, (packet, at), edited);
            Verdict::End(DropReason::ProcessFailed)
        }
        OnFailure::Drop => Verdict::Drop(DropReason::ProcessFailed),
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
    match lost((packet, at), view, (on_failure, None), emissions) {
        (_, false) => verdict,
        (Verdict::Pass, true) => {
            detach(false, (pads, base, 0), group, None);
            // It may have to follow others.
            if verdict == Verdict::Hold { verdict } else { Verdict::Pass }
        }
        (verdict, true) => verdict,
    }
}
