//! Windows: how far each side may send, and what has to be acknowledged.
//!
//! Guido van Rooij's algorithm ("Real Stateful TCP Packet Filtering in IP Filter", 2001): from what passed, a box in the
//! middle knows bounds of what the ends can send, not more. Sequence numbers that an end may use lie between one window
//! below what it has sent and the end of the window that it was offered; acknowledgements do not go beyond what the other
//! side has sent, nor further back than what it may have in flight.
//!
//! It holds only if every segment is seen. Connections that are not followed from their SYN on are taken as they come,
//! and then judged with the widest windows that there are, as nobody says what their scales are.

use super::state::{Flags, State};
use super::{TcpSegment, TrackState, later_ack};
use crate::Direction::{self, Forward, Reverse};
use crate::SessionSettings;
use crate::track::segment::MOST_SCALE;

/// Neither scale is known.
pub(super) const UNKNOWN_SCALES: u8 = 0xff;
/// A scale that is not known.
const UNKNOWN: u8 = 0x0f;
/// Acknowledgements that were overtaken on the way lie so far back at least: a window without scale, and a bit.
const ACK_SLACK: u32 = 66_000;

/// `a <= b`, modulo 2^32.
fn up_to(a: u32, b: u32) -> bool {
    later_ack(a, b) == b
}

impl TrackState {
    pub(super) fn end(&self, direction: Direction) -> u32 {
        u32::from_ne_bytes(self.end[direction as usize])
    }

    pub(super) fn set_end(&mut self, direction: Direction, end: u32) {
        self.end[direction as usize] = end.to_ne_bytes();
    }

    pub(super) fn max_end(&self, direction: Direction) -> u32 {
        u32::from_ne_bytes(self.max_end[direction as usize])
    }

    pub(super) fn set_max_end(&mut self, direction: Direction, max_end: u32) {
        self.max_end[direction as usize] = max_end.to_ne_bytes();
    }

    /// The largest window that a side has offered, without its scale; 0: none.
    pub(super) fn window(&self, direction: Direction) -> u32 {
        u16::from_ne_bytes(self.window[direction as usize]).into()
    }

    /// One that is shut counts as one byte: the other side may send that to find out.
    pub(super) fn set_window(&mut self, direction: Direction, window: u16) {
        self.window[direction as usize] = window.max(1).to_ne_bytes();
    }

    pub(super) fn set_scale(&mut self, direction: Direction, scale: Option<u8>) {
        let shift = direction as u8 * 4;
        let scale = scale.map_or(UNKNOWN, |scale| scale.min(MOST_SCALE));
        self.scales = self.scales & !(UNKNOWN << shift) | scale << shift;
    }

    /// The other side's SYN has this scale. Windows are scaled only if both have one (RFC 7323, 1.3).
    pub(super) fn settle_scales(&mut self, scale: Option<u8>) {
        self.set_scale(Reverse, scale);
        if scale.is_none() || self.scales & UNKNOWN == UNKNOWN {
            self.scales = 0;
        }
    }

    fn scale(&self, direction: Direction) -> u8 {
        (self.scales >> (direction as u8 * 4) & UNKNOWN).min(MOST_SCALE)
    }

    /// The window that a segment offers.
    fn offered(&self, direction: Direction, segment: &TcpSegment) -> u32 {
        let scale = if segment.has(TcpSegment::SYN) { 0 } else { self.scale(direction) };
        (u32::from(segment.window) << scale).max(1)
    }

    /// The largest window that a side has offered.
    fn largest_window(&self, direction: Direction) -> u32 {
        self.window(direction) << self.scale(direction)
    }

    /// The largest window that a side can offer.
    pub(super) fn widest_window(&self, direction: Direction) -> u32 {
        u32::from(u16::MAX) << self.scale(direction)
    }

    /// Whether both sides' segments have been followed.
    pub(super) fn is_followed(&self) -> bool {
        let open = self.state() >= State::Established && !self.has(Flags::UNANSWERED);
        open && self.window(Forward) != 0 && self.window(Reverse) != 0
    }

    /// Segments pass from here on that the tracker does not see.
    pub(super) fn forget_windows(&mut self) {
        self.window = [[0; 2]; 2];
        self.scales = UNKNOWN_SCALES;
    }

    /// Whether a segment without RST can be one of the connection. Both sides must be followed.
    pub(super) fn in_window(&self, direction: Direction, segment: &TcpSegment) -> bool {
        let other = direction.opposite();
        let sent = self.end(direction);
        let room = up_to(segment.data_end(), self.max_end(direction))
            && up_to(sent.wrapping_sub(self.largest_window(other)), segment.end());
        // What passed before the connection was followed may still be acknowledged.
        let theirs = self.end(other);
        let last = if self.scales == UNKNOWN_SCALES { self.max_end(other) } else { theirs };
        let back = self.largest_window(direction).max(ACK_SLACK);
        room && (!segment.has(TcpSegment::ACK)
            || (up_to(segment.ack, last) && up_to(theirs.wrapping_sub(back), segment.ack)))
    }

    /// Keeps the windows if they are checked, else notes that they are not kept.
    pub(super) fn follow_if(
        &mut self,
        settings: &SessionSettings,
        direction: Direction,
        segment: &TcpSegment,
    ) {
        if settings.tcp_window_check {
            self.follow(direction, segment);
        } else if self.window != [[0; 2]; 2] {
            self.window = [[0; 2]; 2];
        }
    }

    /// Takes note of what a segment says about both sides' windows.
    pub(super) fn follow(&mut self, direction: Direction, segment: &TcpSegment) {
        let other = direction.opposite();
        let first = self.window(direction) == 0;
        let later = |old, new| if first { new } else { later_ack(old, new) };
        if first {
            self.scales = UNKNOWN_SCALES;
        }
        if !self.is_closed(direction) {
            self.set_end(direction, later(self.end(direction), segment.end()));
        }
        if segment.has(TcpSegment::ACK) {
            let offered = segment.ack.wrapping_add(self.offered(direction, segment));
            self.set_max_end(other, later(self.max_end(other), offered));
        }
        let largest = self.window(direction).max(segment.window.into());
        self.set_window(direction, u16::try_from(largest).unwrap_or(u16::MAX));
    }
}
