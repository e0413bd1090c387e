//! One direction of a connection.

use bytemuck::{Pod, Zeroable};

use super::types::{HeldRange, NextHeld};
use crate::{View, is_after, is_before};

/// One direction of a connection. Zeros: nothing has been seen.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub(super) struct Flow {
    /// The next sequence number that functions get.
    pub next: u32,
    /// The greatest acknowledgement number of the receiver. Valid with [`ACKED`].
    pub acked: u32,
    /// The right edge of the receiver's window. Valid with [`EDGE`]. Before: that of the answer to a SYN.
    pub edge: u32,
    /// The number of the first SYN. Valid with [`SYN`].
    pub initial: u32,
    /// The number of a SYN that may begin another connection. Valid with [`PENDING`]. Without that: the last
    /// timestamp of the sender. Valid with [`STAMPED`].
    pub pending_or_stamp: u32,
    pub bits: u16,
    /// Shift of the windows that this direction's sender announces. Valid with [`SCALED`].
    pub scale: u8,
    /// The shift of the pending SYN plus one. 0: it has none.
    pub pending_scale: u8,
}

/// The stream is read: `next` is valid.
pub(super) const SYNCED: u16 = 1 << 0;
/// Its SYN was seen.
pub(super) const SYN: u16 = 1 << 1;
/// Its FIN has gone on; `next` is the FIN's number.
pub(super) const FIN: u16 = 1 << 2;
pub(super) const ACKED: u16 = 1 << 3;
pub(super) const EDGE: u16 = 1 << 4;
/// Its SYN had a window scale.
pub(super) const SCALED: u16 = 1 << 5;
/// Segments may be held.
pub(super) const HELD: u16 = 1 << 6;
/// Its SYN permits selective acknowledgements.
pub(super) const SACK: u16 = 1 << 7;
/// A SYN that may begin another connection has gone on.
pub(super) const PENDING: u16 = 1 << 8;
/// So much has gone on that a number in front of `initial` may be one of the stream.
pub(super) const FAR: u16 = 1 << 9;
/// Bytes behind its SYN came before any segment of the other direction. [`PENDING`] is set, too.
pub(super) const EARLY: u16 = 1 << 10;
/// The receiver may lack bytes of which no copy was kept: those in front of the first one that was read, or
/// that had gone on when a function joined.
pub(super) const UNKEPT: u16 = 1 << 11;
/// A segment with a timestamp has gone on. Never with [`PENDING`].
pub(super) const STAMPED: u16 = 1 << 12;
/// Bytes of a stream behind which [`FAR`] is set.
const FAR_AWAY: u32 = 1 << 30;

impl Flow {
    /// The stream goes on to a number.
    #[inline(always)]
    pub fn advance(&mut self, next: u32) {
        self.next = next;
        let is_far = next.wrapping_sub(self.initial) > FAR_AWAY;
        self.bits |= if is_far { FAR } else { 0 };
    }

    /// Whether a number is in front of the stream.
    pub fn is_in_front(&self, number: u32) -> bool {
        self.bits & (SYN | FAR) == SYN && !is_after(number, self.initial)
    }

    /// Takes the new bytes of a segment if none are missing in front of them.
    pub fn take(&mut self, HeldRange { from, to, has_fin }: HeldRange) -> NextHeld {
        if is_after(from, self.next) && self.bits & FIN == 0 {
            return NextHeld::Wait;
        }
        if self.bits & FIN != 0 && (is_after(to, self.next) || has_fin && to != self.next) {
            return NextHeld::Drop;
        }
        let len = to.wrapping_sub(from);
        let skip = self.next.wrapping_sub(from).min(len);
        let reaches = !is_before(to, self.next);
        let is_end = has_fin && reaches && self.bits & FIN == 0;
        if reaches {
            self.advance(to);
        }
        if is_end {
            self.bits |= FIN;
        }
        // Both are at most the length of an IP packet.
        let (skip, len) = (skip as u16, (len - skip) as u16);
        NextHeld::Pass(View { skip, len, is_end, ..View::NONE })
    }
}
