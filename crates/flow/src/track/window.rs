//! Window tracking: how far each side may send, and what it must acknowledge.
//!
//! The algorithm is Guido van Rooij's ("Real Stateful TCP Packet Filtering in IP Filter", 2001). From the
//! segments that pass, a middlebox knows bounds of what the ends can send. Valid sequence numbers lie between
//! one window below what the end has sent and the end of the window that it was offered. Valid
//! acknowledgements do not exceed what the other side has sent, and do not lie further back than what it may
//! have in flight.
//!
//! The algorithm needs to see every segment. A connection that was not followed from its SYN is accepted as
//! it is. It is then checked with the largest possible windows, since its scales are unknown.

use super::state::{State, TrackFlags};
use super::{TcpSegment, TrackState, later_ack};
use crate::Direction::{self, Forward, Reverse};
use crate::SessionSettings;
use crate::track::segment::MOST_SCALE;

/// Both scales are unknown.
pub(super) const UNKNOWN_SCALES: u8 = 0xff;
/// An unknown scale.
const UNKNOWN: u8 = 0x0f;
/// Minimum distance of delayed acknowledgements: an unscaled window and some slack.
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

    /// The largest window that a side has offered, unscaled; 0: none.
    pub(super) fn window(&self, direction: Direction) -> u32 {
        u16::from_ne_bytes(self.window[direction as usize]).into()
    }

    /// Stores a window. A closed window counts as one byte: the other side may send one as a probe.
    pub(super) fn set_window(&mut self, direction: Direction, window: u16) {
        self.window[direction as usize] = window.max(1).to_ne_bytes();
    }

    pub(super) fn set_scale(&mut self, direction: Direction, scale: Option<u8>) {
        let shift = direction as u8 * 4;
        let scale = scale.map_or(UNKNOWN, |scale| scale.min(MOST_SCALE));
        self.scales = self.scales & !(UNKNOWN << shift) | scale << shift;
    }

    /// Notes that a function has answered the originator's SYN, and that the originator has confirmed the
    /// answer. The function confirms the other side's SYN itself, so that SYN establishes the connection: the
    /// other side may send all it has, and its FIN, before another segment of the originator passes.
    ///
    /// The function has promised a scale if the originator's SYN had one. So the originator scales its
    /// windows whatever the other side answers. What the other side sends is not scaled then, as it knows of
    /// no promise.
    pub fn set_proxied(&mut self) {
        self.set_scale(Reverse, Some(0));
    }

    /// Whether [`TrackState::set_proxied`] was called. Valid until the other side's SYN: its scale is unknown
    /// otherwise.
    pub(super) fn is_proxied(&self) -> bool {
        self.scales >> 4 == 0
    }

    /// Stores the scale of the other side's SYN. Windows are scaled only if both sides have a scale (RFC
    /// 7323, 1.3), or if the originator was promised one.
    pub(super) fn settle_scales(&mut self, scale: Option<u8>) {
        let is_promised = self.is_proxied();
        self.set_scale(Reverse, scale.or(is_promised.then_some(0)));
        if self.scales & UNKNOWN == UNKNOWN || self.scales >> 4 == UNKNOWN {
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

    /// The largest window that a side has offered, scaled.
    fn largest_window(&self, direction: Direction) -> u32 {
        self.window(direction) << self.scale(direction)
    }

    /// The largest window that a side can offer.
    pub(super) fn widest_window(&self, direction: Direction) -> u32 {
        u32::from(u16::MAX) << self.scale(direction)
    }

    /// Whether the segments of both sides have been followed.
    pub(super) fn is_followed(&self) -> bool {
        let open = self.state() >= State::Established && !self.has(TrackFlags::UNANSWERED);
        open && self.window(Forward) != 0 && self.window(Reverse) != 0
    }

    /// From here on the tracker does not see all segments.
    pub(super) fn forget_windows(&mut self) {
        self.window = [[0; 2]; 2];
        self.scales = UNKNOWN_SCALES;
    }

    /// Clears what only the window check reads, if windows are not checked.
    pub fn drop_unchecked_windows(&mut self, settings: &SessionSettings) {
        if !settings.tcp_window_check {
            (self.max_end, self.window) = ([[0; 4]; 2], [[0; 2]; 2]);
        }
    }

    /// Whether a segment without RST can belong to the connection. Both sides must be followed.
    pub(super) fn in_window(&self, direction: Direction, segment: &TcpSegment) -> bool {
        let other = direction.opposite();
        let sent = self.end(direction);
        let room = up_to(segment.data_end(), self.max_end(direction))
            && up_to(sent.wrapping_sub(self.largest_window(other)), segment.end());
        // An acknowledgement may still cover what passed before the connection was followed.
        let theirs = self.end(other);
        let last = if self.scales == UNKNOWN_SCALES { self.max_end(other) } else { theirs };
        let back = self.largest_window(direction).max(ACK_SLACK);
        room && (!segment.has(TcpSegment::ACK)
            || (up_to(segment.ack, last) && up_to(theirs.wrapping_sub(back), segment.ack)))
    }

    /// Updates the windows if they are checked.
    pub(super) fn follow_if(
        &mut self,
        settings: &SessionSettings,
        direction: Direction,
        segment: &TcpSegment,
    ) {
        if settings.tcp_window_check {
            self.follow(direction, segment);
        }
    }

    /// Updates both sides' windows from a segment.
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
