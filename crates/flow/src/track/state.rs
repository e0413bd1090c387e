//! The states of sessions, as a table: what each is called, how long it lasts, what may take the short way in it.

use super::TrackState;
use crate::Direction::{Forward, Reverse};
use crate::{Direction, SessionSettings, Timeouts};

/// A state; [`Flags`] beside it say more.
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
    /// Both have acknowledged.
    Established,
    /// The originator has sent a FIN.
    FinForward,
    /// The other side has sent a FIN.
    FinReverse,
    /// Both have, and not both are acknowledged.
    Closing,
    /// Both are acknowledged.
    Closed,
}

/// Bits above the state in [`TrackState`]'s last byte.
pub(super) struct Flags;

impl Flags {
    /// A valid RST was seen, and nothing but such since.
    pub const RESET: u8 = 1 << 4;
    /// The other side has not answered; with TCP, the originator has not shown that it saw the answer.
    pub const UNANSWERED: u8 = 1 << 5;
    /// A SYN of the originator has come on an open connection.
    const SYN_FORWARD: u8 = 1 << 6;
    /// One of the other side has.
    const SYN_REVERSE: u8 = 1 << 7;
    /// Either.
    pub const SYNS: u8 = Self::SYN_FORWARD | Self::SYN_REVERSE;

    /// That a SYN of this direction has come on an open connection.
    pub const fn syn(direction: Direction) -> u8 {
        match direction {
            Direction::Forward => Self::SYN_FORWARD,
            Direction::Reverse => Self::SYN_REVERSE,
        }
    }
}

/// One row of the table.
struct Row {
    state: State,
    /// What `show connections` calls it, and what it calls it while it is not answered.
    names: [&'static str; 2],
    /// How long it lasts without packets, likewise.
    timeouts: [fn(&Timeouts) -> u32; 2],
    /// Whether packets without SYN, FIN and RST change anything in it.
    settled: bool,
}

const STATES: [Row; 11] = [
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
    // Not settled: the acknowledgement of the last FIN is what it waits for.
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

    pub(super) fn has(&self, flags: u8) -> bool {
        self.state & flags != 0
    }

    pub(super) fn set(&mut self, flags: u8) {
        self.state |= flags;
    }

    pub(super) fn clear(&mut self, flags: u8) {
        self.state &= !flags;
    }

    pub(super) fn is_tcp(&self) -> bool {
        self.state() >= State::SynSent
    }

    /// The state's name, as `show connections` prints it. `fin-wait` is a connection that the originator has closed,
    /// `close-wait` one that the other side has: TCP's names for the originator's states.
    pub fn state_name(&self) -> &'static str {
        match (self.has(Flags::RESET), self.is_embryonic()) {
            (true, _) => "reset",
            (_, embryonic) => self.row().names[usize::from(embryonic)],
        }
    }

    /// TCP: whether a side has sent its FIN.
    pub fn has_fin(&self) -> bool {
        self.state() > State::Established
    }

    /// TCP: the one number that a segment of the originator has to acknowledge for the connection to be open, if that is all that is
    /// missing. None also if there are several.
    pub fn awaited_ack(&self, acks: &[u32; 2]) -> Option<u32> {
        let ack = acks[Forward as usize];
        let waits = self.state() == State::SynReceived && !self.has(Flags::RESET);
        (waits && ack == self.end(Reverse)).then_some(ack)
    }

    /// Whether the session may be ended to make room for another: the other side has not answered, or the originator of
    /// a TCP connection has not shown that it saw the answer.
    pub fn is_embryonic(&self) -> bool {
        self.has(Flags::UNANSWERED)
    }

    /// How long the session lives without packets, in milliseconds.
    pub fn timeout(&self, settings: &SessionSettings) -> u32 {
        let timeouts = &settings.timeouts;
        let timeout = self.row().timeouts[usize::from(self.is_embryonic())](timeouts);
        if self.has(Flags::RESET) { timeout.min(timeouts.tcp_reset) } else { timeout }
    }

    /// Whether packets of each direction (forward, reverse) may take the short way, if they have none of SYN, FIN and
    /// RST: they would change nothing here.
    ///
    /// With the window check on, every TCP segment has to be looked at.
    pub fn settled(&self, settings: &SessionSettings) -> [bool; 2] {
        let checked = self.is_tcp() && settings.tcp_window_check;
        let settled = self.row().settled && !self.has(Flags::RESET) && !checked;
        [settled, settled && !self.is_embryonic()]
    }
}
