//! State transitions of TCP connections.
//!
//! First the code checks whether a segment is credible: a RST by [`TrackState::rst_proof`], a FIN by
//! [`TrackState::fin_counts`], a SYN by its acknowledgement. Credible segments become [`Event`]s of the table
//! [`next`]. All other segments pass and change nothing.
//!
//! A sender who cannot see the connection must guess. He cannot end it (RFC 5961): a RST counts only with the
//! very number that the receiver expects, and a SYN never counts on an open connection. A RST or FIN of which
//! the receiver may yet miss data before it is credible only if it also acknowledges what its sender has
//! received. It shortens the timeout, and is forgotten when a later segment disproves it.

use mmb_packet::DropReason;

use super::state::{State, TrackFlags};
use super::{IN_FLIGHT, TcpSegment, TrackState, TrackVerdict, later_ack, latest_ack};
use crate::Direction::{self, Forward, Reverse};
use crate::SessionSettings;

/// What a segment means for the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A SYN without an acknowledgement.
    Syn,
    /// An acknowledgement of the other side's SYN.
    Answer,
    /// A FIN.
    Fin,
    /// The acknowledgement of the second FIN.
    Acknowledged,
}

/// What a RST proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RstProof {
    /// The receiver expects its number.
    Exact,
    /// The receiver has the connection reset if it has received all that was sent before.
    Plausible,
    /// It proves nothing. With the window check: it lies in the window.
    Nothing,
    /// With the window check: it lies outside of the window.
    Outside,
}

/// The state after an event in one direction.
pub(super) fn next(state: State, direction: Direction, event: Event) -> State {
    match (state, direction, event) {
        // Simultaneous open (RFC 9293, figure 8; RFC 5382, REQ-2). A split handshake begins like this too.
        (State::SynSent, Reverse, Event::Syn) => State::SynBoth,
        // The usual SYN and ACK, or the other side's acknowledgement in a simultaneous open.
        (State::SynSent | State::SynBoth, Reverse, Event::Answer) => State::SynReceived,
        // The third segment of the handshake: it proves the originator's address.
        (State::SynBoth | State::SynReceived, Forward, Event::Answer) => State::Established,
        // One side has no more data to send.
        (State::Established, Forward, Event::Fin) => State::FinForward,
        (State::Established, Reverse, Event::Fin) => State::FinReverse,
        // The other side has no more data to send either.
        (State::FinForward, Reverse, Event::Fin) | (State::FinReverse, Forward, Event::Fin) => State::Closing,
        // Only TIME-WAIT is left, at one end.
        (State::Closing, _, Event::Acknowledged) => State::Closed,
        // A retransmission, or an event without meaning in this state.
        _ => state,
    }
}

/// Whether `number` lies between `low` and `high`, inclusive, modulo 2^32.
fn between(low: u32, number: u32, high: u32) -> bool {
    number.wrapping_sub(low) <= high.wrapping_sub(low)
}

impl TrackState {
    /// Opens a session with any segment.
    pub(super) fn open_tcp(
        &mut self,
        segment: &TcpSegment,
        acks: &mut [u32; 2],
        settings: &SessionSettings,
    ) -> Result<(), DropReason> {
        if segment.is(TcpSegment::SYN) {
            self.begin(segment, acks);
            return Ok(());
        }
        if !settings.tcp_pickup {
            return Err(DropReason::SessionMiddle);
        }
        // Picked up in the middle of the connection. The window scales remain unknown.
        self.set_state(if segment.has(TcpSegment::FIN) { State::FinForward } else { State::Established });
        if segment.has(TcpSegment::RST) {
            self.set(TrackFlags::RESET);
        }
        let ack = if segment.has(TcpSegment::ACK) { segment.ack } else { 0 };
        *acks = [ack, segment.seq.wrapping_add(segment.has(TcpSegment::SYN).into())];
        self.set_end(Forward, segment.end());
        self.follow_if(settings, Forward, segment);
        Ok(())
    }

    /// The originator's first SYN, or a SYN that replaces it.
    fn begin(&mut self, segment: &TcpSegment, acks: &mut [u32; 2]) {
        self.set_state(State::SynSent);
        self.set_end(Forward, segment.end());
        self.set_window(Forward, segment.window);
        self.set_scale(Forward, segment.scale);
        *acks = [0, segment.seq.wrapping_add(1)];
    }

    pub(super) fn tcp(
        &mut self,
        direction: Direction,
        segment: &TcpSegment,
        acks: &mut [u32; 2],
        settings: &SessionSettings,
    ) -> TrackVerdict {
        *self = self.revised(acks);
        let checked = settings.tcp_window_check && self.is_followed();
        if segment.has(TcpSegment::RST) {
            return self.rst(direction, segment, acks, checked);
        }
        if segment.has(TcpSegment::SYN) && !segment.has(TcpSegment::ACK) {
            return if segment.is(TcpSegment::SYN) {
                self.syn(direction, segment, acks)
            } else {
                TrackVerdict::Pass
            };
        }
        if checked && !self.in_window(direction, segment) {
            if !self.may_open_anew(direction, segment) {
                return TrackVerdict::Drop(DropReason::TcpWindow);
            }
            self.forget_windows();
        }
        self.open_anew(direction, segment, acks);
        self.clear(TrackFlags::RESET);
        if self.state() == State::Doubtful {
            self.set_state(State::Established);
        }
        if self.state() < State::Established {
            self.handshake(direction, segment, acks, settings);
        }
        if self.state() >= State::Established {
            self.opened(direction, segment, acks, (settings, checked));
        }
        TrackVerdict::Pass
    }

    /// Handles a RST.
    fn rst(
        &mut self,
        direction: Direction,
        segment: &TcpSegment,
        acks: &[u32; 2],
        checked: bool,
    ) -> TrackVerdict {
        match self.rst_proof(direction, segment, acks, checked) {
            RstProof::Exact => self.set(TrackFlags::RESET),
            // The other states have short timeouts anyway.
            RstProof::Plausible if self.state() == State::Established && !self.is_embryonic() => {
                self.set_state(State::Doubtful);
            }
            RstProof::Plausible | RstProof::Nothing => {}
            RstProof::Outside => return TrackVerdict::Drop(DropReason::TcpWindow),
        }
        TrackVerdict::Pass
    }

    /// Handles a SYN without an acknowledgement.
    fn syn(&mut self, direction: Direction, segment: &TcpSegment, acks: &mut [u32; 2]) -> TrackVerdict {
        let over = self.has(TrackFlags::RESET) || self.state() == State::Closed;
        match (self.state(), direction) {
            _ if over => return TrackVerdict::New,
            // A retransmission, or another attempt from the same port.
            (State::SynSent, Forward) => self.begin(segment, acks),
            (State::SynSent, Reverse) => {
                self.set_state(next(State::SynSent, Reverse, Event::Syn));
                self.greet(segment, acks);
            }
            (State::SynBoth | State::SynReceived, _) => {}
            // The session was picked up and not answered. The host that it was picked up from may replace it.
            (_, Forward) if self.is_embryonic() => return TrackVerdict::New,
            // Passes. If the receiver is still connected, it answers with a challenge ACK (RFC 9293,
            // 3.10.7.4; RFC 5961, section 4). If the sender is not connected, it answers that with a RST, and
            // then opens again. See `open_anew`.
            _ => self.set(TrackFlags::syn(direction)),
        }
        TrackVerdict::Pass
    }

    /// Handles a segment with an acknowledgement, perhaps with a SYN, during the handshake.
    fn handshake(
        &mut self,
        direction: Direction,
        segment: &TcpSegment,
        acks: &mut [u32; 2],
        settings: &SessionSettings,
    ) {
        let state = self.state();
        let syn = segment.has(TcpSegment::SYN);
        let [own, others] = [acks[direction as usize], self.end(direction.opposite())];
        // The first answer contains a SYN too. The originator cannot send it.
        let comes = state != State::SynSent || (syn && direction == Reverse);
        // The acknowledgement covers the other side's SYN, and at most the data that came with it (RFC 7413).
        let answers = comes && segment.has(TcpSegment::ACK) && between(own, segment.ack, others);
        if answers {
            let is_confirmed = state == State::SynSent && self.is_proxied();
            acks[direction as usize] = segment.ack;
            if direction == Reverse && syn {
                // Also if the SYN comes again with another number. SYN cookies do that after a while (RFC
                // 4987, 3.6).
                self.greet(segment, acks);
            } else {
                self.set_end(direction, later_ack(self.end(direction), segment.end()));
                self.follow_if(settings, direction, segment);
            }
            self.set_state(next(state, direction, Event::Answer));
            if is_confirmed {
                self.set_state(next(self.state(), Forward, Event::Answer));
            }
        }
        if self.state() == State::Established {
            self.clear(TrackFlags::UNANSWERED);
        }
    }

    /// Handles the other side's SYN. The originator must acknowledge it. Windows and scales of both sides are
    /// then known.
    fn greet(&mut self, segment: &TcpSegment, acks: &mut [u32; 2]) {
        acks[Forward as usize] = segment.seq.wrapping_add(1);
        self.set_end(Reverse, segment.end());
        self.set_window(Reverse, segment.window);
        self.settle_scales(segment.scale);
        for direction in [Forward, Reverse] {
            let other = direction.opposite();
            self.set_max_end(direction, acks[other as usize].wrapping_add(self.window(other)));
        }
    }

    /// Handles a segment without RST of a connection that is or was open.
    fn opened(
        &mut self,
        direction: Direction,
        segment: &TcpSegment,
        acks: &mut [u32; 2],
        (settings, checked): (&SessionSettings, bool),
    ) {
        let (own, ack) = (direction as usize, segment.has(TcpSegment::ACK));
        if self.is_embryonic() && direction == Reverse {
            self.clear(TrackFlags::UNANSWERED);
            acks[own] = if ack { segment.ack } else { acks[own] };
        }
        let state = self.state();
        let closed = next(state, direction, Event::Fin);
        let is_fin = segment.has(TcpSegment::FIN) && closed != state;
        let counts = !is_fin || checked || self.fin_counts(direction, segment, acks);
        if is_fin && counts {
            self.set_end(direction, segment.end());
            self.set_state(closed);
        }
        if ack && counts {
            acks[own] = latest_ack(acks[own], segment.ack);
        }
        if self.fins_acknowledged(acks) {
            self.set_state(next(self.state(), direction, Event::Acknowledged));
        }
        self.follow_if(settings, direction, segment);
    }

    /// Returns the state without a FIN that was forged: the other side has acknowledged data beyond it.
    pub fn revised(mut self, acks: &[u32; 2]) -> TrackState {
        let is_disproved = |direction: Direction| {
            let (end, ack) = (self.end(direction), acks[direction.opposite() as usize]);
            ack != end && later_ack(end, ack) == ack
        };
        let state = match self.state() {
            State::FinForward if is_disproved(Forward) => State::Established,
            State::FinReverse if is_disproved(Reverse) => State::Established,
            State::Closing if is_disproved(Forward) => State::FinReverse,
            State::Closing if is_disproved(Reverse) => State::FinForward,
            state => state,
        };
        self.set_state(state);
        self
    }

    fn fins_acknowledged(&self, acks: &[u32; 2]) -> bool {
        let reached = |ack: u32, end: u32| later_ack(ack, end) == ack;
        reached(acks[Reverse as usize], self.end(Forward))
            && reached(acks[Forward as usize], self.end(Reverse))
    }

    /// Whether the side of this direction has sent its FIN.
    pub fn is_closed(&self, direction: Direction) -> bool {
        match self.state() {
            State::Closing | State::Closed => true,
            State::FinForward => direction == Forward,
            State::FinReverse => direction == Reverse,
            _ => false,
        }
    }

    /// Whether a SYN and ACK may answer a SYN that came on the open connection. Then both ends have forgotten
    /// the connection and open another with the same addresses and ports.
    fn may_open_anew(&self, direction: Direction, segment: &TcpSegment) -> bool {
        let both = segment.is(TcpSegment::SYN | TcpSegment::ACK);
        both && self.state() >= State::Established && self.has(TrackFlags::syn(direction.opposite()))
    }

    /// Discards what is known of the old connection if a SYN and ACK answers. If both numbers lie below what
    /// is acknowledged, the segment is a retransmission of the old connection.
    fn open_anew(&mut self, direction: Direction, segment: &TcpSegment, acks: &mut [u32; 2]) {
        let (own, other) = (direction as usize, direction.opposite() as usize);
        let next = segment.seq.wrapping_add(1);
        let behind =
            later_ack(next, acks[other]) == acks[other] && later_ack(segment.ack, acks[own]) == acks[own];
        if behind || !self.may_open_anew(direction, segment) {
            return;
        }
        self.set_state(State::Established);
        self.clear(TrackFlags::SYNS | TrackFlags::UNANSWERED);
        self.forget_windows();
        (acks[own], acks[other]) = (segment.ack, next);
    }

    /// Returns what a RST proves.
    ///
    /// Only the number that the receiver expects resets an open connection (RFC 5961, section 3.2). As far as
    /// a middlebox knows, that is the last acknowledgement. With the window check it is also the end of what
    /// was sent. After a FIN, some stacks send the number of the FIN or the one behind. Before the SYN is
    /// answered, the RST must acknowledge it (RFC 9293, 3.10.7.3).
    fn rst_proof(
        &self,
        direction: Direction,
        segment: &TcpSegment,
        acks: &[u32; 2],
        checked: bool,
    ) -> RstProof {
        let (own, other) = (acks[direction as usize], acks[direction.opposite() as usize]);
        let end = self.end(direction);
        // Until the originator's SYN is answered, the other side expects the number behind it.
        let first = acks[Reverse as usize].wrapping_sub(1);
        let sent = |number| between(first, number, self.end(Forward));
        let is_exact = match (self.state(), direction) {
            (State::SynSent, Forward) => sent(segment.seq),
            (State::SynSent, Reverse) => {
                segment.has(TcpSegment::ACK) && sent(segment.ack) && segment.ack != first
            }
            _ if self.is_closed(direction) => {
                segment.seq == other || between(end.wrapping_sub(1), segment.seq, end)
            }
            _ => segment.seq == other || checked && segment.seq == end,
        };
        let window = if checked { self.max_end(direction) } else { self.farthest(direction, other) };
        let is_inside = between(other, segment.seq, later_ack(other, window));
        let is_answer = checked
            || segment.has(TcpSegment::ACK)
                && between(own, segment.ack, self.farthest(direction.opposite(), own));
        match (is_exact, is_inside) {
            (true, _) => RstProof::Exact,
            (_, true) if is_answer => RstProof::Plausible,
            (_, false) if checked => RstProof::Outside,
            _ => RstProof::Nothing,
        }
    }

    /// Whether a FIN is credible, without the window check: it ends what the receiver expects or may have in
    /// flight, and acknowledges what its sender may have received.
    fn fin_counts(&self, direction: Direction, segment: &TcpSegment, acks: &[u32; 2]) -> bool {
        let (own, other) = (acks[direction as usize], acks[direction.opposite() as usize]);
        let acknowledged =
            between(own.wrapping_sub(IN_FLIGHT), segment.ack, self.farthest(direction.opposite(), own));
        segment.has(TcpSegment::ACK)
            && acknowledged
            && between(other.wrapping_sub(1), segment.data_end(), self.farthest(direction, other))
    }

    /// Whether a segment with this sequence number may be on its way in a direction (RFC 5927, section 4.1):
    /// the other side has not acknowledged it, and may yet receive it. `true` if nothing is known of the
    /// other side.
    pub fn may_be_in_flight(&self, direction: Direction, sequence: u32, acks: &[u32; 2]) -> bool {
        let is_one_sided = self.state() >= State::Established && self.is_embryonic();
        let expected = acks[direction.opposite() as usize];
        !self.is_tcp()
            || is_one_sided
            || between(expected.wrapping_sub(1), sequence, self.farthest(direction, expected))
    }

    /// The farthest number that may be in flight in a direction, if the other side expects `next`.
    fn farthest(&self, direction: Direction, next: u32) -> u32 {
        next.wrapping_add(self.widest_window(direction.opposite()).min(IN_FLIGHT))
    }
}
