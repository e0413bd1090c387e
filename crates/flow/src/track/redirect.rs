//! The state of a redirect: what the packets of one direction show of their session.
//!
//! # Theory of operation
//!
//! A redirect leads the packets of a flow to the worker that owns their session. The worker that stores it
//! sees this direction only, and has no tracker for it. The redirect must live as long as the session can:
//! without it, the worker judges a packet of an open connection as one that opens a session. The flags of TCP
//! segments tell whether the connection may be open. Sequence numbers are not compared: a forged segment can
//! only change the lifetime, and [`RedirectState::LEAST`] remains.

use mmb_packet::Kind;

use super::state::TrackFlags;
use super::{TcpSegment, TrackState};
use crate::{Key, Timeouts};

/// The state of a redirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RedirectState {
    /// TCP: the connection may be half open, or reset.
    Opening,
    /// TCP: the connection may be open. Other protocols: the only state.
    Open,
    /// TCP: the sender has closed its side.
    Closing,
    /// The claims on ports of NAT name the worker, too: the redirect only saves the search.
    Claimed,
}

impl RedirectState {
    const ALL: [RedirectState; 4] =
        [RedirectState::Opening, RedirectState::Open, RedirectState::Closing, RedirectState::Claimed];

    /// The shortest lifetime without packets, in milliseconds.
    const LEAST: u32 = 120_000;

    /// The state with this number; [`RedirectState::Opening`] if there is none.
    pub(crate) fn from_number(number: u8) -> RedirectState {
        RedirectState::ALL.get(usize::from(number)).copied().unwrap_or(RedirectState::Opening)
    }

    /// The state after the first packet, which has this key.
    pub fn of_first(key: &Key) -> RedirectState {
        match Kind(key.kind).l4() {
            Kind::TCP => RedirectState::Opening,
            _ => RedirectState::Open,
        }
    }

    /// The state for a session that the owner knows.
    pub fn of_session(track: &TrackState) -> RedirectState {
        match track {
            _ if track.has_fin() => RedirectState::Closing,
            _ if track.is_tcp() && track.has(TrackFlags::RESET.union(TrackFlags::UNANSWERED)) => {
                RedirectState::Opening
            }
            _ => RedirectState::Open,
        }
    }

    /// The state after another packet. `flags`: those of TCP; 0 for other protocols.
    #[inline]
    #[must_use]
    pub fn after(self, flags: u8) -> RedirectState {
        let has = |flag: u8| flags & flag != 0;
        match self {
            RedirectState::Claimed => self,
            // A new connection with the same ports. On an open one, a SYN changes nothing.
            RedirectState::Closing if has(TcpSegment::SYN) => RedirectState::Opening,
            RedirectState::Closing => self,
            _ if has(TcpSegment::SYN) => self,
            // If the receiver ignores the RST, the next segment shows it.
            _ if has(TcpSegment::RST) => RedirectState::Opening,
            _ if has(TcpSegment::FIN) => RedirectState::Closing,
            _ => RedirectState::Open,
        }
    }

    /// Lifetime without packets, in milliseconds: that of any session with this key that the state permits,
    /// unless the claims name the worker.
    pub fn timeout(self, key: &Key, timeouts: &Timeouts) -> u32 {
        let t = timeouts;
        let of_session = match (self, Kind(key.kind).l4()) {
            (RedirectState::Claimed, _) => 0,
            (RedirectState::Opening, Kind::TCP) => t.tcp_handshake.max(t.tcp_reset),
            (RedirectState::Open, Kind::TCP) => t.tcp_established,
            (RedirectState::Closing, Kind::TCP) => t.tcp_half_closed.max(t.tcp_closed).max(t.tcp_reset),
            (_, Kind::UDP) => t.udp_unreplied.max(t.udp_replied),
            _ => t.icmp.max(t.other),
        };
        of_session.max(RedirectState::LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYN: u8 = TcpSegment::SYN;
    const ACK: u8 = TcpSegment::ACK;
    const FIN: u8 = TcpSegment::FIN | ACK;
    const RST: u8 = TcpSegment::RST;

    fn key(l4: u8) -> Key {
        Key { kind: Kind::IP4 | l4, ..Key::default() }
    }

    #[test]
    fn flags_of_tcp_lead_from_state_to_state() {
        use RedirectState::{Claimed, Closing, Open, Opening};
        let after = |flags: &[u8]| {
            flags.iter().fold(RedirectState::of_first(&key(Kind::TCP)), |state, &flags| state.after(flags))
        };
        for (flags, state) in [
            (&[][..], Opening),
            (&[SYN, SYN], Opening),
            (&[ACK], Open),
            (&[SYN, ACK, SYN], Open),
            (&[ACK, RST], Opening),
            (&[ACK, RST, ACK], Open),
            (&[ACK, FIN, ACK, RST, ACK], Closing),
            (&[ACK, FIN, ACK, SYN], Opening),
        ] {
            assert_eq!(after(flags), state, "{flags:?}");
        }
        assert!([SYN, ACK, FIN, RST].iter().all(|&flags| Claimed.after(flags) == Claimed));
        assert_eq!([Kind::UDP, Kind::ICMP, 0].map(|l4| RedirectState::of_first(&key(l4))), [Open; 3]);
        let numbers = RedirectState::ALL.map(|state| RedirectState::from_number(state as u8));
        assert_eq!(numbers, RedirectState::ALL);
    }

    #[test]
    fn a_redirect_lives_as_long_as_its_session() {
        use RedirectState::{Claimed, Closing, Open, Opening};
        let timeouts = Timeouts { tcp_closed: 250_000, icmp: 130_000, ..Timeouts::default() };
        for (state, l4, timeout) in [
            (Opening, Kind::TCP, timeouts.tcp_handshake),
            (Open, Kind::TCP, timeouts.tcp_established),
            (Closing, Kind::TCP, 250_000),
            (Open, Kind::UDP, timeouts.udp_replied),
            (Open, Kind::ICMP, 130_000),
            (Open, 0, 130_000),
            (Claimed, Kind::TCP, RedirectState::LEAST),
        ] {
            assert_eq!(state.timeout(&key(l4), &timeouts), timeout, "{state:?} {l4}");
        }
        let short = Timeouts { udp_unreplied: 1_000, udp_replied: 2_000, ..timeouts };
        assert_eq!(Open.timeout(&key(Kind::UDP), &short), RedirectState::LEAST);
    }

    #[test]
    fn a_known_session_gives_the_state() {
        let settings = crate::SessionSettings::default();
        let segment =
            |flags, seq, ack| crate::TrackInput::Tcp(TcpSegment { flags, seq, ack, ..TcpSegment::default() });
        let (mut track, mut acks) = (TrackState::default(), [0; 2]);
        assert_eq!(RedirectState::of_session(&track), RedirectState::Open);
        assert!(track.init(&segment(SYN, 100, 0), &mut acks, &settings).is_ok());
        assert_eq!(RedirectState::of_session(&track), RedirectState::Opening);
        track.update(crate::Direction::Reverse, &segment(SYN | ACK, 500, 101), &mut acks, &settings);
        track.update(crate::Direction::Forward, &segment(ACK, 101, 501), &mut acks, &settings);
        assert_eq!(RedirectState::of_session(&track), RedirectState::Open);
        track.update(crate::Direction::Forward, &segment(FIN, 101, 501), &mut acks, &settings);
        assert_eq!(RedirectState::of_session(&track), RedirectState::Closing);
    }
}
