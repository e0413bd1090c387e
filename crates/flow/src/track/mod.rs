//! The states of sessions.
//!
//! Theory of operation. A session is opened by a packet of its originator and then moves through the states of
//! [`state`], by the transitions in [`tcp`] for TCP, and from unreplied to replied for everything else. State decides how
//! long the session lives without packets, whether it is embryonic (to be ended first when the table is full), and whether
//! it is settled: in a settled direction, packets with none of SYN, FIN and RST cannot change the state, and the engine
//! does not show them to the tracker. It only keeps the highest acknowledgement number of each direction up to date
//! ([`later_ack`]), which is what the side that sent it expects to receive next, as far as a box in the middle can know.
//!
//! The tracker follows connections; it does not police them. Whatever it does not understand passes without changing
//! anything: the ends decide what to make of it, and their next packets tell. So what a stranger forges blindly has little
//! effect: a RST or FIN outside of the window is not believed, one inside of it makes the session expire sooner unless
//! another segment shows that the connection lives (RFC 7857, section 2.2). Only with the window check, which is a choice,
//! are segments dropped.
//!
//! Sequence and acknowledgement numbers are in the originator's view: those of forward packets as they came in, those of
//! reverse packets as they go out, translated.

#[cfg(test)]
mod model;
mod segment;
mod state;
mod tcp;
#[cfg(test)]
mod tests;
mod window;

use bytemuck::{Pod, Zeroable};
use mmb_packet::DropReason;

pub use segment::{TcpSegment, TrackInput};
use state::{Flags, State};

use crate::{Direction, SessionSettings};

/// What the tracker keeps of a session: 22 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct TrackState {
    /// By direction: one behind the highest sequence number sent. Without the window check only as of SYN and FIN.
    end: [[u8; 4]; 2],
    /// By direction: one behind the highest sequence number that the other side's window lets it send. While the
    /// originator's SYN is not answered, the number of that SYN stands in the first.
    max_end: [[u8; 4]; 2],
    /// By direction: the largest window it has offered, as it stood in the header; 0: not followed, and the three fields
    /// above mean nothing for the window check.
    window: [[u8; 2]; 2],
    /// Window scales: the originator's in the lower four bits. 15: not known.
    scales: u8,
    /// [`State`] in the lower four bits, [`Flags`] in the upper.
    state: u8,
}

const _: () = assert!(size_of::<TrackState>() == 22);

/// What the tracker says of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrackVerdict {
    /// It belongs to the session.
    #[default]
    Pass,
    /// It opens a connection where an old one has ended: the session is to be ended and the packet to be treated as one
    /// of no session.
    New,
    /// It is to be dropped.
    Drop(DropReason),
}

/// What is so after a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrackOutcome {
    /// What becomes of the packet.
    pub verdict: TrackVerdict,
    /// As [`TrackState::timeout`].
    pub timeout: u32,
    /// As [`TrackState::settled`].
    pub settled: [bool; 2],
    /// As [`TrackState::is_embryonic`].
    pub embryonic: bool,
}

/// Of two acknowledgement or sequence numbers the one that comes later (RFC 9293, 3.4: modulo 2^32).
#[inline]
pub fn later_ack(a: u32, b: u32) -> u32 {
    if (b.wrapping_sub(a) as i32) > 0 { b } else { a }
}

impl Direction {
    /// The other one.
    pub fn opposite(self) -> Direction {
        match self {
            Direction::Forward => Direction::Reverse,
            Direction::Reverse => Direction::Forward,
        }
    }
}

impl TrackState {
    /// Begins a session with its first packet. `acks` (forward, reverse) are set to what each side expects to receive
    /// next, as far as the packet tells: they belong into both halves' `ack`.
    ///
    /// # Errors
    /// [`DropReason::SessionMiddle`]: a TCP segment that opens no connection, and `tcp_pickup` is off.
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

    /// The same in its place: what has just been written in small pieces is not to be moved in large ones.
    ///
    /// # Errors
    /// As [`TrackState::open`].
    #[inline]
    pub fn init(
        &mut self,
        traffic: &TrackInput,
        acks: &mut [u32; 2],
        settings: &SessionSettings,
    ) -> Result<TrackOutcome, DropReason> {
        *self =
            TrackState { state: Flags::UNANSWERED, scales: window::UNKNOWN_SCALES, ..TrackState::default() };
        match traffic {
            TrackInput::Tcp(segment) => self.open_tcp(segment, acks, settings)?,
            TrackInput::Udp => self.set_state(State::Udp),
            TrackInput::Icmp => self.set_state(State::Icmp),
            TrackInput::Other => self.set_state(State::Other),
        }
        Ok(self.seen(TrackVerdict::Pass, settings))
    }

    /// Takes note of another packet. `acks` are both halves' `ack` (forward, reverse), and brought up to date.
    ///
    /// A packet of a kind that the session is not (a TCP header cut short, a later fragment) passes and changes nothing.
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
                    self.clear(Flags::UNANSWERED);
                }
                TrackVerdict::Pass
            }
            (_, TrackInput::Tcp(segment)) if self.is_tcp() => self.tcp(direction, segment, acks, settings),
            _ => TrackVerdict::Pass,
        };
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
