//! Bytes that functions hold back while their sender repeats them.
//!
//! Theory of operation. A function holds back what may begin a word. Two reasons make a sender repeat such
//! bytes: what follows them was lost in front of mmb, or nothing follows, and the sender waits for an
//! answer. In the first case, letting them out lets a word through. In the second case, holding them stops
//! the connection. What tells both apart is what the sender does when the bytes are acknowledged: it goes
//! on with those that follow. So they are acknowledged in the receiver's place, without the last one, which
//! the sender goes on to repeat. A repetition behind the hold time lets them out. If segments behind the
//! bytes wait, the sender has more to send: all bytes are acknowledged, and none goes on.
//!
//! If only one direction of a connection was seen, nothing is acknowledged in the receiver's place: the
//! sender gets the receiver's own acknowledgements.

use mmb_stream::{TcpStream, View, is_after, is_before};

use super::counters::{BY_SIZE, BY_TIME, PREACKED};
use super::frames::Cause;
use super::{EditMemory, MOST_HELD};
use crate::Packet;
use crate::stream::context::StreamContext;
use crate::stream::step::Step;

/// What functions hold back of a packet's direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HeldBytes {
    /// Bytes that were held back before the packet.
    len: u32,
    /// The sender's number behind them.
    next: u32,
    /// The sender's number of the packet's first byte.
    start: u32,
    /// The packet brings bytes.
    has_new: bool,
    /// The packet repeats some of them, and nothing in front of them is outstanding.
    is_repeated: bool,
    /// No segment of the other direction was seen.
    is_one_way: bool,
}

impl HeldBytes {
    /// Returns what is held back. `next`: the next number of the stream in front of a segment. `start`,
    /// `len`: the bytes of the segment.
    pub fn of(
        memory: &EditMemory,
        (number, direction, is_one_way): (u32, usize, bool),
        next: Option<u32>,
        (start, len): (u32, u16),
        view: &View,
    ) -> HeldBytes {
        let (end, _) = memory.splices.ends(number, direction);
        let has_new = view.len != 0;
        let Some(next) = next.filter(|&next| is_after(next, end)) else {
            return HeldBytes { has_new, ..HeldBytes::default() };
        };
        let len = u32::from(len);
        let has_old = len != 0 && !has_new && !view.is_end;
        let is_repeated = has_old && is_after(start.wrapping_add(len), end);
        HeldBytes {
            len: if memory.splices.has_begun(number, direction) { next.wrapping_sub(end) } else { 0 },
            next,
            start,
            has_new,
            is_repeated: is_repeated && (is_one_way || memory.splices.is_acknowledged(number, direction)),
            is_one_way,
        }
    }
}

impl StreamContext {
    /// Returns whether bytes that functions hold back have to go on. Acknowledges them if they do not, and
    /// their sender repeats them.
    pub(super) fn end_hold(
        &self,
        packet: &Packet<'_>,
        (memory, number): (&mut EditMemory, u32),
        (stream, held): (&TcpStream, HeldBytes),
        step: &mut Step<'_>,
    ) -> bool {
        let direction = packet.direction as usize;
        if held.len == 0 {
            if held.has_new {
                memory.splices.note_hold(number, direction, step.now);
            }
            return false;
        }
        // Bytes in a process count as well.
        let is_apart = step.is_apart(packet, packet.direction);
        if held.len > if is_apart { 2 * MOST_HELD } else { MOST_HELD } {
            self.count_edit(step.worker, BY_SIZE, 1);
            return true;
        }
        if !held.is_repeated || is_apart {
            return false;
        }
        let has_early = stream.may_hold(direction) && step.has_early(packet);
        let is_over =
            !has_early && memory.splices.hold_time(number, direction, step.now) >= step.policy.hold_time;
        self.count_edit(step.worker, BY_TIME, is_over.into());
        // Functions may hold them longer.
        let ack = held.next.wrapping_sub(u32::from(!has_early));
        if !held.is_one_way && is_before(held.start, ack) {
            let shift = stream.window_shift(1 - direction);
            let (ack, _, len) = memory.splices.pre_acknowledge(number, direction, ack, shift);
            memory.tell(&Cause { packet, at: step.at, number }, ack, step.emissions);
            self.count_edit(step.worker, PREACKED, len.into());
        }
        is_over
    }
}
