//! The table of session states: their names, their timeouts, and whether packets take the established path.

use super::TrackState;
use crate::Direction::{Forward, Reverse};
use crate::{Direction, SessionSettings, Timeouts};
use bitflags::bitflags;

/// The state of a session. [`TrackFlags`] complement it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum State {
    /// Neither TCP, UDP nor an ICMP query.
    Other = 0,
    Udp,
    /// An ICMP query.
    Icmp,
    /// TCP: the originator has sent a SYN.
    SynSent,
    /// Both sides have sent a SYN, and neither has acknowledged the other's (RFC 9293, figure 8).
    SynBoth,
    /// The other side has acknowledged the originator's SYN and sent its own.
    SynReceived,
    /// Both sides have acknowledged.
    Established,
    /// The originator has sent a FIN.
    FinForward,
    /// The other side has sent a FIN.
    FinReverse,
    /// Both sides have sent a FIN, and not both are acknowledged.
    Closing,
    /// Both FINs are acknowledged.
    Closed,
    /// An open connection with a RST that the receiver may have ignored. The next segment shows that it has.
    Doubtful,
}

bitflags! {
    /// Flags in the upper bits of the last byte of [`TrackState`]. The lower bits are the [`State`].
    #[repr(transparent)]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct TrackFlags: u8 {
        /// A RST that the receiver must accept was seen, and only RSTs since.
        const RESET = 1 << 4;
        /// The other side has not answered. TCP: the originator has not confirmed the answer.
        const UNANSWERED = 1 << 5;
        /// A SYN of the originator came on an open connection.
        const SYN_FORWARD = 1 << 6;
        /// A SYN of the other side came on an open connection.
        const SYN_REVERSE = 1 << 7;
        /// A SYN of either side.
        const SYNS = Self::SYN_FORWARD.bits() | Self::SYN_REVERSE.bits();
    }
}

impl TrackFlags {
    /// The flag for a SYN of this direction on an open connection.
    pub const fn syn(direction: Direction) -> TrackFlags {
        match direction {
            Direction::Forward => Self::SYN_FORWARD,
            Direction::Reverse => Self::SYN_REVERSE,
        }
    }
}

/// One row of the table.
struct Row {
    state: State,
    /// Names for `show connections`: normally, and while unanswered.
    names: [&'static str; 2],
    /// Lifetimes without packets: normally, and while unanswered.
    timeouts: [fn(&Timeouts) -> u32; 2],
    /// Whether packets without SYN, FIN and RST leave the state unchanged.
    settled: bool,
}

const STATES: [Row; 12] = [
    Row {
        state: State::Other,
        names: ["replied", "unreplied"],
        timeouts: [|t| t.other, |t| t.other],
        settled: true,
    },
    Row {
        state: State::Udp,
        names: ["replied", "unreplied"],
        timeouts: [|t| t.udp_replied, |t| t.udp_unreplied],
        settled: true,
    },
    Row {
        state: State::Icmp,
        names: ["replied", "unreplied"],
        timeouts: [|t| t.icmp, |t| t.icmp],
        settled: true,
    },
    Row {
        state: State::SynSent,
        names: ["syn-sent"; 2],
        timeouts: [|t| t.tcp_handshake, |t| t.tcp_handshake],
        settled: false,
    },
    Row {
        state: State::SynBoth,
        names: ["syn-both"; 2],
        timeouts: [|t| t.tcp_handshake, |t| t.tcp_handshake],
        settled: false,
    },
    Row {
        state: State::SynReceived,
        names: ["syn-received"; 2],
        timeouts: [|t| t.tcp_handshake, |t| t.tcp_handshake],
        settled: false,
    },
    Row {
        state: State::Established,
        names: ["established", "picked-up"],
        timeouts: [|t| t.tcp_established, |t| t.tcp_handshake],
        settled: true,
    },
    Row {
        state: State::FinForward,
        names: ["fin-wait", "picked-up"],
        timeouts: [|t| t.tcp_half_closed, |t| t.tcp_handshake],
        settled: true,
    },
    Row {
        state: State::FinReverse,
        names: ["close-wait"; 2],
        timeouts: [|t| t.tcp_half_closed, |t| t.tcp_handshake],
        settled: true,
    },
    // Not settled: the state waits for the acknowledgement of the last FIN.
    Row {
        state: State::Closing,
        names: ["closing"; 2],
        timeouts: [|t| t.tcp_closed, |t| t.tcp_handshake],
        settled: false,
    },
    Row {
        state: State::Closed,
        names: ["closed"; 2],
        timeouts: [|t| t.tcp_closed, |t| t.tcp_handshake],
        settled: true,
    },
    // Not settled: the next segment ends the doubt.
    Row {
        state: State::Doubtful,
        names: ["doubtful"; 2],
        timeouts: [|t| t.tcp_reset.min(t.tcp_established), |t| t.tcp_handshake],
        settled: false,
    },
];

const _: () = {
    let mut i = 0;
    while i < STATES.len() {
        assert!(STATES[i].state as usize == i);
        i += 1;
    }
};

impl TrackState {
    fn row(&self) -> &'static Row {
        STATES.get(usize::from(self.state & 0x0f)).unwrap_or(&STATES[0])
    }

    pub(super) fn state(&self) -> State {
        self.row().state
    }

    pub(super) fn set_state(&mut self, state: State) {
        self.state = self.state & 0xf0 | state as u8;
    }

    pub(super) fn has(&self, flags: TrackFlags) -> bool {
        self.state & flags.bits() != 0
    }

    pub(super) fn set(&mut self, flags: TrackFlags) {
        self.state |= flags.bits();
    }

    pub(super) fn clear(&mut self, flags: TrackFlags) {
        self.state &= !flags.bits();
    }

    pub(super) fn is_tcp(&self) -> bool {
        self.state() >= State::SynSent
    }

    /// The name of the state for `show connections`. `fin-wait`: the originator has closed. `close-wait`: the
    /// other side has closed. These are TCP's names for the originator's states.
    pub fn state_name(&self) -> &'static str {
        match (self.has(TrackFlags::RESET), self.is_embryonic()) {
            (true, _) => "reset",
            (_, embryonic) => self.row().names[usize::from(embryonic)],
        }
    }

    /// TCP: whether a side has sent its FIN.
    pub fn has_fin(&self) -> bool {
        matches!(self.state(), State::FinForward | State::FinReverse | State::Closing | State::Closed)
    }

    /// TCP: whether both sides have sent their FINs.
    pub fn has_both_fins(&self) -> bool {
        matches!(self.state(), State::Closing | State::Closed)
    }

    /// TCP: the only number that a segment of the originator must acknowledge to open the connection. None if
    /// more than that is missing, or if several numbers are possible.
    pub fn awaited_ack(&self, acks: &[u32; 2]) -> Option<u32> {
        let ack = acks[Forward as usize];
        let waits = self.state() == State::SynReceived && !self.has(TrackFlags::RESET);
        (waits && ack == self.end(Reverse)).then_some(ack)
    }

    /// Whether the session may be evicted: the other side has not answered, or the originator of a TCP
    /// connection has not confirmed the answer.
    pub fn is_embryonic(&self) -> bool {
        self.has(TrackFlags::UNANSWERED)
    }

    /// Lifetime without packets, in milliseconds.
    pub fn timeout(&self, settings: &SessionSettings) -> u32 {
        let timeouts = &settings.timeouts;
        let timeout = self.row().timeouts[usize::from(self.is_embryonic())](timeouts);
        if self.has(TrackFlags::RESET) { timeout.min(timeouts.tcp_reset) } else { timeout }
    }

    /// Whether packets of each direction (forward, reverse) with none of SYN, FIN and RST may take the
    /// established path.
    ///
    /// With the window check, the tracker must see every TCP segment.
    pub fn settled(&self, settings: &SessionSettings) -> [bool; 2] {
        let checked = self.is_tcp() && settings.tcp_window_check;
        let settled = self.row().settled && !self.has(TrackFlags::RESET) && !checked;
        [settled, settled && !self.is_embryonic()]
    }
}
