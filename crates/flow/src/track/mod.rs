//! Connection tracking: the states of sessions.
//!
//! # Theory of operation
//!
//! A packet of the originator opens a session. The session then moves through the states of `state`: for TCP
//! by the transitions in `tcp`, for other protocols from unreplied to replied. The state determines the
//! lifetime without packets, whether the session is embryonic (evicted first when the table is full) and
//! whether it is settled. In a settled direction, packets with none of SYN, FIN and RST cannot change the
//! state, and the caller does not pass them to the tracker. It only updates the last acknowledgement
//! number of each direction ([`latest_ack`]). As far as a middlebox can know, that is the number that the
//! sender of the acknowledgement expects next.
//!
//! The tracker follows connections and does not police them. A segment that it does not understand passes and
//! changes nothing: the ends decide, and their next packets show the result. So blindly forged segments have
//! little effect. A RST with the number that its receiver expects makes the session expire sooner, unless
//! another segment shows that the connection is alive (RFC 7857, section 2.2). Other RSTs, and FINs, need
//! more proof. Segments are dropped only if the window check is enabled.
//!
//! Sequence and acknowledgement numbers are those of the originator: of forward packets as received, of
//! reverse packets after translation.

#[cfg(test)]
mod model;
mod redirect;
mod segment;
mod state;
mod tcp;
#[cfg(test)]
mod tests;
mod window;

use bytemuck::{Pod, Zeroable};
use mmb_packet::DropReason;

pub use redirect::RedirectState;
pub use segment::{TcpSegment, TrackInput};
use state::{State, TrackFlags};

use crate::{Direction, SessionSettings};

/// The tracker's state of a session: 22 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct TrackState {
    /// By direction: one past the highest sequence number sent. Without the window check, updated by SYN and
    /// FIN only.
    end: [[u8; 4]; 2],
    /// By direction: one past the highest sequence number that the peer's window permits. Zero without the
    /// window check.
    max_end: [[u8; 4]; 2],
    /// By direction: the largest window offered, unscaled. 0: the direction is not followed, and the fields
    /// above are invalid for the window check. Zero without the window check.
    window: [[u8; 2]; 2],
    /// Window scales, the originator's in the lower four bits. 15: unknown.
    scales: u8,
    /// [`State`] in the lower four bits, [`TrackFlags`] in the upper.
    state: u8,
}

const _: () = assert!(size_of::<TrackState>() == 22);

/// The part of [`TrackState`] that each session needs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct TrackCore {
    end: [[u8; 4]; 2],
    scales: u8,
    state: u8,
}

/// The part of [`TrackState`] that the window check needs. Otherwise zero.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct TrackWindows {
    max_end: [[u8; 4]; 2],
    window: [[u8; 2]; 2],
}

/// What the tracker decides about a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrackVerdict {
    /// The packet belongs to the session.
    #[default]
    Pass,
    /// The packet opens a connection where an old one has ended. The caller ends the session and treats the
    /// packet as one without a session.
    New,
    /// The packet is to be dropped.
    Drop(DropReason),
}

/// The state of a session after a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrackOutcome {
    /// The decision about the packet.
    pub verdict: TrackVerdict,
    /// See [`TrackState::timeout`].
    pub timeout: u32,
    /// See [`TrackState::settled`].
    pub settled: [bool; 2],
    /// See [`TrackState::is_embryonic`].
    pub embryonic: bool,
}

/// The later of two acknowledgement or sequence numbers (RFC 9293, 3.4: modulo 2^32).
#[inline]
pub fn later_ack(a: u32, b: u32) -> u32 {
    if (b.wrapping_sub(a) as i32) > 0 { b } else { a }
}

/// Bytes in flight that a RST, a FIN or an acknowledgement may differ from the last acknowledgement while
/// windows are not followed. The windows that connections offer are seldom larger, and what they could offer
/// is a quarter of all numbers.
const IN_FLIGHT: u32 = 1 << 18;

/// The acknowledgement number to remember of two that came one after the other. A number that lies a little
/// below the old one was overtaken. One far below shows that the old one was forged.
#[inline(always)]
pub fn latest_ack(old: u32, new: u32) -> u32 {
    if old.wrapping_sub(new) <= IN_FLIGHT { old } else { new }
}

impl Direction {
    /// The opposite direction.
    pub fn opposite(self) -> Direction {
        match self {
            Direction::Forward => Direction::Reverse,
            Direction::Reverse => Direction::Forward,
        }
    }
}

impl TrackState {
    pub(crate) fn of_parts(core: TrackCore, windows: TrackWindows) -> TrackState {
        let (TrackCore { end, scales, state }, TrackWindows { max_end, window }) = (core, windows);
        TrackState { end, max_end, window, scales, state }
    }

    pub(crate) fn parts(&self) -> (TrackCore, TrackWindows) {
        let TrackState { end, max_end, window, scales, state } = *self;
        (TrackCore { end, scales, state }, TrackWindows { max_end, window })
    }

    /// Creates the state of a session from its first packet. Sets `acks` (forward, reverse) to what each side
    /// expects next, as far as the packet tells. The caller stores them in both flows.
    ///
    /// # Errors
    /// [`DropReason::SessionMiddle`]: a TCP segment other than a SYN while `tcp_pickup` is off.
    #[inline]
    pub fn open(
        traffic: &TrackInput,
        acks: &mut [u32; 2],
        settings: &SessionSettings,
    ) -> Result<(TrackState, TrackOutcome), DropReason> {
        let mut track = TrackState::default();
        let seen = track.init(traffic, acks, settings)?;
        Ok((track, seen))
    }

    /// Does what [`TrackState::open`] does, in place: a copy of freshly written small fields would stall.
    ///
    /// # Errors
    /// [`DropReason::SessionMiddle`], as for [`TrackState::open`].
    #[inline]
    pub fn init(
        &mut self,
        traffic: &TrackInput,
        acks: &mut [u32; 2],
        settings: &SessionSettings,
    ) -> Result<TrackOutcome, DropReason> {
        *self = TrackState {
            state: TrackFlags::UNANSWERED.bits(),
            scales: window::UNKNOWN_SCALES,
            ..TrackState::default()
        };
        match traffic {
            TrackInput::Tcp(segment) => self.open_tcp(segment, acks, settings)?,
            TrackInput::Udp => self.set_state(State::Udp),
            TrackInput::Icmp => self.set_state(State::Icmp),
            TrackInput::Other => self.set_state(State::Other),
        }
        self.drop_unchecked_windows(settings);
        Ok(self.seen(TrackVerdict::Pass, settings))
    }

    /// Updates the state with a packet. `acks` (forward, reverse) are the acknowledgement numbers of both
    /// flows; they are updated too.
    ///
    /// A packet of another kind than the session (a truncated TCP header, a later fragment) passes and
    /// changes nothing.
    pub fn update(
        &mut self,
        direction: Direction,
        traffic: &TrackInput,
        acks: &mut [u32; 2],
        settings: &SessionSettings,
    ) -> TrackOutcome {
        let verdict = match (self.state(), traffic) {
            (State::Udp, TrackInput::Udp)
            | (State::Icmp, TrackInput::Icmp)
            | (State::Other, TrackInput::Other) => {
                if direction == Direction::Reverse {
                    self.clear(TrackFlags::UNANSWERED);
                }
                TrackVerdict::Pass
            }
            (_, TrackInput::Tcp(segment)) if self.is_tcp() => self.tcp(direction, segment, acks, settings),
            _ => TrackVerdict::Pass,
        };
        self.drop_unchecked_windows(settings);
        self.seen(verdict, settings)
    }

    fn seen(&self, verdict: TrackVerdict, settings: &SessionSettings) -> TrackOutcome {
        TrackOutcome {
            verdict,
            timeout: self.timeout(settings),
            settled: self.settled(settings),
            embryonic: self.is_embryonic(),
        }
    }
}
