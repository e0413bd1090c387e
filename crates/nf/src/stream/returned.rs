//! What comes back from the process of a stream function.

use mmb_packet::{DropReason, Kind};
use mmb_stream::View;

use super::reset_both;
use super::typed::{act, detach, refuse_following};
use crate::context::Emissions;
use crate::held::OUTER_SPACE;
use crate::program::ir::GroupPlace;
use crate::set::{Set, VECTOR};
use crate::vector::RawVector;
use crate::verdict::{ProcessVerdict, StreamVerdict};
use crate::{OnFailure, Packet, Verdict};

/// Does what a stream function in a process has decided about packets. Returns the positions of those that do
/// not pass.
///
/// Bytes that the function has not read, or of which nobody knows whether it has, cannot be read later: they
/// have been noted. With `on-failure drop`, their connection is reset. With `pass`, they go on, and the
/// function reads no more of the connection, since it would read bytes with a gap.
pub(crate) fn apply_returned(
    raw: RawVector<'_, '_>,
    returned: &[ProcessVerdict; VECTOR],
    on_failure: OnFailure,
) -> Set {
    let RawVector { packets, at, bases, pads, verdicts, views, emissions, on_overflow, group, .. } = raw;
    let is_outer = raw.holding.space == OUTER_SPACE;
    let (held, mut events) = (raw.holding.held, Set::EMPTY);
    at.for_each(|i| {
        let n = i & (VECTOR - 1);
        let Some(packet) = packets.get(i).filter(|_| !events.contains(i)) else { return };
        let (verdict, is_lost) = match returned[n] {
            ProcessVerdict::Stream(verdict) => (verdict, false),
            ProcessVerdict::Packet(_) | ProcessVerdict::Lost => (StreamVerdict::Pass, true),
        };
        if is_lost {
            let (verdict, is_gap) = lost((packet, i), views[n], on_failure, emissions);
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

/// Returns what becomes of a packet that the function has not read, and whether it has missed bytes of a
/// connection.
#[cold]
pub(crate) fn lost(
    (packet, at): (&Packet<'_>, usize),
    view: View,
    on_failure: OnFailure,
    emissions: &mut Emissions,
) -> (Verdict, bool) {
    let is_gap = packet.meta.kind.l4() == Kind::TCP && !view.is_none();
    let verdict = match on_failure {
        OnFailure::Pass => Verdict::Pass,
        OnFailure::Drop if is_gap => {
            reset_both(emissions, (packet, at), None);
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
    match lost((packet, at), view, on_failure, emissions) {
        (_, false) => verdict,
        (Verdict::Pass, true) => {
            detach(false, (pads, base, 0), group, None);
            // It may have to follow others.
            if verdict == Verdict::Hold { verdict } else { Verdict::Pass }
        }
        (verdict, true) => verdict,
    }
}
