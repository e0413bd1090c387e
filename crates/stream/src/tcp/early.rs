//! What the sender of segments that came too early can be told in the receiver's place.

use super::TcpStream;
use super::flow::{ACKED, FIN, HELD, PENDING, SACK, STAMPED, SYNCED};
use crate::{is_after, is_before};

impl TcpStream {
    /// Whether segments of any direction may wait.
    #[inline(always)]
    pub fn has_held(&self) -> bool {
        (self.flows[0].bits | self.flows[1].bits) & HELD != 0
    }

    /// Whether both SYNs permit selective acknowledgements (RFC 2018).
    pub fn permits_sack(&self) -> bool {
        self.flows[0].bits & self.flows[1].bits & SACK != 0
    }

    /// Whether the receiver of a direction has acknowledged all that has gone on.
    pub fn is_acknowledged(&self, direction: usize) -> bool {
        let flow = &self.flows[direction & 1];
        flow.bits & (SYNCED | ACKED) == SYNCED | ACKED && flow.acked == flow.next
    }

    /// Whether a segment that ends in front of a number repeats bytes that the receiver may lack, or is the
    /// last one. A keepalive is one byte in front of them (RFC 9293, 3.8.4).
    pub fn is_in_flight(&self, direction: usize, end: u32) -> bool {
        let flow = &self.flows[direction & 1];
        let next = flow.next.wrapping_add(u32::from(flow.bits & FIN != 0));
        let first = if flow.bits & ACKED != 0 { flow.acked.wrapping_sub(1) } else { flow.next };
        flow.bits & SYNCED != 0 && !is_before(end, first) && !is_after(end, next)
    }

    /// Notes the timestamp of a segment that is in flight. The number of another one may be a guess, and its
    /// timestamp would make the ends ignore each other (RFC 7323, 5.3).
    #[inline(always)]
    pub fn note_stamp(&mut self, direction: usize, stamp: u32) {
        let flow = &mut self.flows[direction & 1];
        let is_later = flow.bits & STAMPED == 0 || !is_before(stamp, flow.pending_or_stamp);
        if flow.bits & PENDING == 0 && is_later {
            (flow.pending_or_stamp, flow.bits) = (stamp, flow.bits | STAMPED);
        }
    }

    /// Returns the last timestamp of a direction's sender. None: it is not known, as while a SYN waits for
    /// its answer.
    pub fn stamp(&self, direction: usize) -> Option<u32> {
        let flow = &self.flows[direction & 1];
        (flow.bits & STAMPED != 0).then_some(flow.pending_or_stamp)
    }

    /// Returns the number behind all that has gone on of a direction, its FIN included.
    pub fn end(&self, direction: usize) -> Option<u32> {
        self.next(direction).map(|next| next.wrapping_add(u32::from(self.is_ended(direction))))
    }

    /// Returns the right edge of the window of a direction's receiver. None: it is not known.
    pub(crate) fn edge(&self, direction: usize) -> Option<u32> {
        self.window(direction)?;
        self.flows.get(direction).map(|flow| flow.edge)
    }

    /// Returns the window of a direction's receiver behind the bytes that it has acknowledged, as the field
    /// of a header. None: it is not known.
    pub fn window(&self, direction: usize) -> Option<u16> {
        let flow = self.flows.get(direction).filter(|flow| flow.bits & ACKED != 0)?;
        let shift = self.window_shift(direction ^ 1)?;
        // Its right edge must not move back.
        let field = flow.edge.wrapping_sub(flow.acked).div_ceil(1 << (shift & 15));
        Some(field.min(u16::MAX.into()) as u16)
    }
}
