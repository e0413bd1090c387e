//! Stream functions: the payload of a session as one sequence of bytes.
//!
//! Theory of operation. In front of the first of adjacent stream functions, the compiler inserts a *stream
//! context*, an instance of its own ([`context`]). It puts the segments of TCP in order for all of them: it
//! holds what comes too early, and notes for each packet which of its bytes are new
//! ([`mmb_stream::View`]). The stream functions behind it read the views, and touch only packets with
//! something new. Replies meet the same functions in reverse order, and the context in front of them.
//!
//! The state of a connection is in the session's scratchpad, next to those of the functions. It is prefetched
//! with them, needs no lookup, and its memory cannot run out.

mod agree;
mod answers;
mod context;
mod counters;
mod data;
mod early;
mod edits;
mod function;
mod lines;
mod order;
mod returned;
mod step;
mod takeover;
mod typed;
mod waiting;

pub(crate) use answers::AnswerState;
pub(crate) use context::{ContextState, StreamContext};
pub use counters::{CounterKind, StreamCounter};
pub use data::StreamData;
pub use edits::{EditError, SettledEdits, StreamEdit};
pub(crate) use edits::{EditMemory, NOT_EDITED, TAIL};
pub use function::StreamFunction;
pub use lines::{LineGate, LinePace, LineSource};
pub(crate) use returned::{
    EditingOwner, Otherwise, Returned, apply_edited, apply_returned, lose_edited, reason_of, unsent,
};
pub(crate) use takeover::AnswerNumbers;
pub use takeover::TakenOver;
pub(crate) use typed::TypedStream;
pub(crate) use waiting::raise_stamp;

use self::edits::ExpectedNumbers;
use crate::context::{Emissions, Holding};
use crate::held::OUTER_SPACE;
use crate::tcp_segment::{SegmentTo, answer_closed, close, reset};
use crate::{Packet, Verdict};

/// Sends a reset to both ends of a packet's connection. `edited`: the numbers that they expect, if
/// functions may edit the connection. Does nothing if the packet is not TCP.
#[cold]
fn reset_both(
    emissions: &mut Emissions,
    (packet, at): (&Packet<'_>, usize),
    edited: Option<ExpectedNumbers>,
) {
    if let Some(numbers) = edited {
        return numbers.reset((packet, at), emissions);
    }
    for to in SegmentTo::BOTH {
        if let Some(frame) = reset(packet.head, packet.meta, to) {
            // In front of bytes of the same vector, it would not have the number that the receiver expects.
            emissions.push_in_order(to.target(), at, &[frame.bytes()]);
        }
    }
}

/// Sends a FIN to both ends of a packet's connection, in the place of its bytes from `skip` on. Does nothing
/// if the packet is not TCP.
#[cold]
fn close_both(emissions: &mut Emissions, at: usize, packet: &Packet<'_>, skip: u32) {
    for to in SegmentTo::BOTH {
        if let Some(frame) = close(packet.head, packet.meta, skip, to) {
            emissions.push_in_order(to.target(), at, &[frame.bytes()]);
        }
    }
}

/// Whether sessions are there for which [`verdict_closed`] has to be asked.
fn has_closed(holding: &Holding<'_>) -> bool {
    holding.space == OUTER_SPACE && holding.held.has_closed()
}

/// Returns the verdict on a packet of a session whose ends have got a FIN, and answers the packet's sender.
/// So the ends do not repeat what they send. None: it is another session.
#[cold]
fn verdict_closed(
    holding: &Holding<'_>,
    emissions: &mut Emissions,
    (packet, at): (&Packet<'_>, usize),
) -> Option<Verdict> {
    let reason = holding.held.closed(packet.session.0)?;
    if let Some(frame) = answer_closed(packet.head, packet.meta) {
        emissions.push_in_order(SegmentTo::Sender.target(), at, &[frame.bytes()]);
    }
    Some(Verdict::Drop(reason))
}
