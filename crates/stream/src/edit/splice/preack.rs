//! Bytes that functions hold back, and that are acknowledged to their sender.
//!
//! Theory of operation. A sender that gets no answer repeats the bytes that are held back, and sends no
//! others. Then they are acknowledged in the receiver's place, so that the sender goes on with those that
//! follow. It does not repeat them from then on. No timer is needed: the sender has bytes behind them that
//! are not acknowledged, and it repeats these until the receiver has got all. With each repetition leaves
//! all output that the receiver has not acknowledged ([`Flow::lacks_preacked`]).

use super::{ACKED, BEGUN, Flow, PREACKED, Splices, TOLD};
use crate::{is_after, is_before};

impl Splices {
    /// Bytes that functions hold back, all in front of `seq`, are acknowledged to their sender, which does
    /// not repeat them then. `shift`: that of the receiver's window, if it is known.
    ///
    /// Returns acknowledgement number and window for the sender, and how many bytes are acknowledged that
    /// were not before. The sender must have bytes from `seq` on, so that its timer brings lost output out
    /// again.
    pub fn pre_acknowledge(
        &mut self,
        number: u32,
        direction: usize,
        seq: u32,
        shift: Option<u8>,
    ) -> (u32, u16, u32) {
        let (told, window) = self.carried(number, 1 - direction);
        let Some((flow, _)) = self.parts(number, direction).filter(|(flow, _)| flow.has(BEGUN)) else {
            return (told, window, 0);
        };
        let before = flow.told_ack(flow.end);
        if is_after(seq, before) {
            (flow.preacked, flow.bits) = (seq, flow.bits | PREACKED);
        }
        let ack = flow.told_ack(flow.end);
        let window = shift.filter(|_| flow.has(TOLD)).map_or(window, |shift| flow.field(ack, shift.min(14)));
        if let Some((other, _)) = self.parts(number, 1 - direction) {
            other.carried = (ack, window);
        }
        (ack, window, ack.wrapping_sub(before))
    }

    /// Bytes of a direction come that begin at a number. Returns whether functions hold back none in front of
    /// them. Then only these can begin to wait.
    #[inline]
    pub fn note_next(&mut self, number: u32, direction: usize, (seq, len): (u32, u16), now: u32) -> bool {
        let Some((flow, _)) = self.parts(number, direction) else { return false };
        let is_next = flow.has(BEGUN) && !is_after(seq, flow.end);
        if is_next && len != 0 {
            flow.held_since = now;
        }
        is_next
    }

    /// Notes that bytes of a direction begin to wait for functions.
    pub fn note_hold(&mut self, number: u32, direction: usize, now: u32) {
        if let Some((flow, _)) = self.parts(number, direction) {
            flow.held_since = now;
        }
    }

    /// Returns the time for which bytes of a direction wait for functions.
    pub fn hold_time(&self, number: u32, direction: usize, now: u32) -> u32 {
        self.flow(number, direction).map_or(0, |flow| now.wrapping_sub(flow.held_since))
    }
}

impl Flow {
    /// Returns what the sender is told for an acknowledgement in its numbers.
    pub(super) fn told_ack(&self, ack: u32) -> u32 {
        if self.has(PREACKED) && is_before(ack, self.preacked) { self.preacked } else { ack }
    }

    /// Whether a sender that repeats its bytes from `start` on has no others in front of them, while the
    /// receiver may lack some: they were pre-acknowledged.
    pub(super) fn lacks_preacked(&self, start: u32) -> bool {
        self.has(PREACKED) && self.has(ACKED) && !is_after(start, self.preacked)
    }
}
