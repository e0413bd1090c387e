//! A session as the model keeps it, and TCP's states as far as well-behaved ends go.

use mmb_flow::Timeouts;

use crate::common::{ACK, FIN, RST, SYN};
use crate::packet::{Detail, ICMP, TCP, Tuple};

/// Timeouts at half seconds: time goes by in whole ones.
pub const TIMEOUTS: Timeouts = Timeouts {
    tcp_handshake: 4_500,
    tcp_established: 60_500,
    tcp_half_closed: 15_500,
    tcp_closed: 5_500,
    tcp_reset: 2_500,
    udp_unreplied: 6_500,
    udp_replied: 20_500,
    icmp: 3_500,
    other: 9_500,
    fragment: 1_500,
    held: 1_500,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Unreplied,
    Replied,
    SynSent,
    SynReceived,
    PickedUp,
    /// Picked up by a FIN.
    PickedUpLate,
    Established,
    FinForward,
    FinReverse,
    Closing,
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Reverse,
}

/// Which rule, and which of those that have had this text.
pub type RuleId = (usize, u32);

#[derive(Clone, Debug)]
pub struct Session {
    pub original: Tuple,
    /// After translation.
    pub outside: Tuple,
    /// The number that is added to the originator's sequence numbers.
    pub delta: u32,
    pub attached: Vec<RuleId>,
    pub translators: Vec<RuleId>,
    /// the pool or the port forward that it needs: which of those that there have been.
    pub pool: Option<u32>,
    pub port_forward: Option<u32>,
    pub inbound: bool,
    pub state: State,
    pub reset: bool,
    /// A RST came that the other side need not accept.
    pub doubtful: bool,
    /// The window check is on: the end of what was sent is known.
    pub checked: bool,
    /// Who has sent the last FIN.
    pub closer: Direction,
    /// The next sequence number of each side, as the originator sees them.
    pub next: [u32; 2],
    /// What each side is known to expect.
    pub acked: [u32; 2],
    pub last: u64,
}

impl Session {
    /// The state that a first packet opens, and what comes next of both sides.
    pub fn begin(proto: u8, detail: Detail) -> (State, [u32; 2]) {
        let state = match (proto, detail.flags) {
            (TCP, SYN) => State::SynSent,
            (TCP, flags) if flags & FIN != 0 => State::PickedUpLate,
            (TCP, _) => State::PickedUp,
            _ => State::Unreplied,
        };
        (state, [detail.seq.wrapping_add(used(detail)), detail.ack])
    }

    pub fn direction_of(&self, tuple: Tuple) -> Option<Direction> {
        match tuple {
            t if t == self.original => Some(Direction::Forward),
            t if t == self.outside.reversed() => Some(Direction::Reverse),
            _ => None,
        }
    }

    pub fn timeout(&self) -> u64 {
        let t = TIMEOUTS;
        let timeout = match (self.state, self.original.proto) {
            (_, ICMP) => t.icmp,
            (State::Unreplied, _) => t.udp_unreplied,
            (State::Replied, _) => t.udp_replied,
            (State::SynSent | State::SynReceived | State::PickedUp | State::PickedUpLate, _) => {
                t.tcp_handshake
            }
            (State::Established, _) => t.tcp_established,
            (State::FinForward | State::FinReverse, _) => t.tcp_half_closed,
            (State::Closing | State::Closed, _) => t.tcp_closed,
        };
        if self.reset || self.doubtful { timeout.min(t.tcp_reset).into() } else { timeout.into() }
    }

    pub fn name(&self) -> &'static str {
        match self.state {
            _ if self.reset => "reset",
            _ if self.doubtful => "doubtful",
            State::Unreplied => "unreplied",
            State::Replied => "replied",
            State::SynSent => "syn-sent",
            State::SynReceived => "syn-received",
            State::PickedUp | State::PickedUpLate => "picked-up",
            State::Established => "established",
            State::FinForward => "fin-wait",
            State::FinReverse => "close-wait",
            State::Closing => "closing",
            State::Closed => "closed",
        }
    }

    /// Whether a SYN opens another connection.
    pub fn is_over(&self) -> bool {
        self.reset || matches!(self.state, State::Closed | State::PickedUp | State::PickedUpLate)
    }

    /// A segment, or another packet, that may come next; numbers are the originator's view.
    pub fn next_packet(&self, choice: u8) -> (Direction, Detail) {
        use Direction::{Forward, Reverse};
        let turn = if choice & 1 == 0 { Forward } else { Reverse };
        if self.original.proto != TCP {
            return (turn, Detail { len: usize::from(choice % 9), ..Detail::default() });
        }
        let (direction, flags, len) = match (self.state, choice % 8) {
            _ if self.reset && choice.is_multiple_of(3) => (Forward, SYN, 0),
            _ if self.reset => (turn, ACK, 0),
            _ if self.doubtful && choice.is_multiple_of(3) => (Forward, SYN, 0),
            (State::SynSent, 0) => (Forward, SYN, 0),
            (State::SynSent, 1) => (Reverse, RST | ACK, 0),
            (State::SynSent, _) => (Reverse, SYN | ACK, 0),
            (State::SynReceived, 0) => (Reverse, SYN | ACK, 0),
            (State::SynReceived, 1) => (Forward, RST, 0),
            (State::SynReceived, _) => (Forward, ACK, 0),
            (State::FinForward, 0 | 1) => (Reverse, FIN | ACK, 3),
            (State::FinReverse, 0 | 1) => (Forward, FIN | ACK, 3),
            (State::FinForward, 2) | (State::FinReverse, 3) => (turn, ACK, 0),
            (State::FinForward, _) => (Reverse, ACK, 9),
            (State::FinReverse, _) => (Forward, ACK, 9),
            (State::Closed, 0 | 1) => (Forward, SYN, 0),
            (State::Closing, _) => (if self.closer == Forward { Reverse } else { Forward }, ACK, 0),
            (State::Closed, _) => (turn, ACK, 0),
            (State::PickedUp, 2..) => (turn, ACK, 5),
            (State::PickedUpLate, _) => (turn, ACK, 0),
            (_, 0 | 1) => (turn, RST | ACK, 0),
            (_, 2 | 3) => (turn, FIN | ACK, 0),
            _ => (turn, ACK, 5),
        };
        let [own, other] = [self.next[direction as usize], self.next[1 - direction as usize]];
        let first = if self.is_over() { own.wrapping_add(77_000) } else { own.wrapping_sub(1) };
        let seq = match flags & SYN {
            0 => own,
            // The other side's first number is what it likes.
            _ if direction == Reverse && self.state == State::SynSent => 9_000,
            _ => first,
        };
        let ack = if flags & ACK != 0 { other } else { 0 };
        (direction, Detail { len, flags, seq, ack, tos: 0 })
    }

    /// A packet has passed.
    pub fn advance(&mut self, direction: Direction, detail: Detail, now: u64) {
        self.last = now;
        let Detail { flags, seq, .. } = detail;
        if self.original.proto != TCP {
            if direction == Direction::Reverse {
                self.state = State::Replied;
            }
            return;
        }
        let other = self.acked[1 - direction as usize];
        if flags & RST != 0 {
            let is_expected = match self.state {
                State::SynSent | State::SynReceived | State::PickedUpLate => true,
                State::Established if self.checked => true,
                _ => seq == other,
            };
            self.reset |= is_expected;
            self.doubtful |= !is_expected && self.state == State::Established;
            return;
        }
        if flags != SYN {
            (self.reset, self.doubtful) = (false, false);
        }
        if flags & ACK != 0 {
            self.acked[direction as usize] = detail.ack;
        }
        if flags & SYN != 0 {
            self.acked[1 - direction as usize] = seq.wrapping_add(1);
        }
        self.next[direction as usize] = seq.wrapping_add(used(detail));
        let fin = flags & FIN != 0;
        if fin {
            self.closer = direction;
        }
        self.state = match (self.state, direction) {
            (State::SynSent, Direction::Reverse) if flags == SYN | ACK => State::SynReceived,
            (State::SynReceived, Direction::Forward) if flags == ACK => State::Established,
            (State::PickedUp, Direction::Reverse) if fin => State::FinReverse,
            (State::PickedUp, Direction::Reverse) => State::Established,
            (State::PickedUp, Direction::Forward) => State::PickedUp,
            (State::PickedUpLate, Direction::Reverse) => State::FinForward,
            (State::Established, Direction::Forward) if fin => State::FinForward,
            (State::Established, Direction::Reverse) if fin => State::FinReverse,
            (State::FinForward, Direction::Reverse) if fin => State::Closing,
            (State::FinReverse, Direction::Forward) if fin => State::Closing,
            (State::Closing, _) => State::Closed,
            (state, _) => state,
        };
    }
}

/// Sequence numbers that a segment takes.
fn used(detail: Detail) -> u32 {
    detail.len as u32 + u32::from(detail.flags & SYN != 0) + u32::from(detail.flags & FIN != 0)
}
