//! Connections as the RFCs describe them, segment by segment.

mod others;
mod window;

use super::*;
use crate::Direction::{Forward, Reverse};

const FIN: u8 = TcpSegment::FIN;
const SYN: u8 = TcpSegment::SYN;
const RST: u8 = TcpSegment::RST;
const ACK: u8 = TcpSegment::ACK;

/// Initial sequence numbers. Both wrap soon.
const ISS: [u32; 2] = [0xffff_fff0, 0x7fff_fffe];

/// A tracked connection. Sequence numbers of segments are relative to the sender's initial number,
/// acknowledgements to the receiver's.
struct Connection {
    track: TrackState,
    acks: [u32; 2],
    settings: SessionSettings,
}

fn segment(direction: Direction, flags: u8, seq: u32, ack: u32, len: u32) -> TcpSegment {
    let [own, other] = [ISS[direction as usize], ISS[direction.opposite() as usize]];
    TcpSegment {
        seq: own.wrapping_add(seq),
        ack: if flags & ACK != 0 { other.wrapping_add(ack) } else { 0 },
        len,
        window: 1000,
        flags,
        scale: (flags & SYN != 0).then_some(2),
    }
}

impl Connection {
    fn open(flags: u8, seq: u32, ack: u32, len: u32, settings: SessionSettings) -> Self {
        let mut acks = [7; 2];
        let first = TrackInput::Tcp(segment(Forward, flags, seq, ack, len));
        let (track, seen) = TrackState::open(&first, &mut acks, &settings).expect("opens");
        assert_eq!(seen.verdict, TrackVerdict::Pass);
        assert!(seen.embryonic, "nobody has answered");
        Connection { track, acks, settings }
    }

    fn syn() -> Self {
        Self::open(SYN, 0, 0, 0, SessionSettings::default())
    }

    fn established_with(settings: SessionSettings) -> Self {
        Self::open(SYN, 0, 0, 0, settings).then(Reverse, SYN | ACK, 0, 1, 0, "syn-received").then(
            Forward,
            ACK,
            1,
            1,
            0,
            "established",
        )
    }

    fn established() -> Self {
        Self::established_with(SessionSettings::default())
    }

    fn closed() -> Self {
        Self::established()
            .then(Forward, FIN | ACK, 1, 1, 0, "fin-wait")
            .then(Reverse, FIN | ACK, 1, 2, 0, "closing")
            .then(Forward, ACK, 2, 2, 0, "closed")
    }

    fn packet(&mut self, direction: Direction, flags: u8, seq: u32, ack: u32, len: u32) -> TrackOutcome {
        self.segment(direction, segment(direction, flags, seq, ack, len))
    }

    fn segment(&mut self, direction: Direction, segment: TcpSegment) -> TrackOutcome {
        self.track.update(direction, &TrackInput::Tcp(segment), &mut self.acks, &self.settings)
    }

    /// A segment that passes, and the state after it.
    fn then(mut self, direction: Direction, flags: u8, seq: u32, ack: u32, len: u32, state: &str) -> Self {
        let seen = self.packet(direction, flags, seq, ack, len);
        assert_eq!((seen.verdict, self.track.state_name()), (TrackVerdict::Pass, state));
        self
    }

    /// A segment that is dropped.
    fn refuses(mut self, direction: Direction, flags: u8, seq: u32, ack: u32, len: u32) -> Self {
        let before = (self.track, self.acks);
        let seen = self.packet(direction, flags, seq, ack, len);
        assert_eq!(seen.verdict, TrackVerdict::Drop(DropReason::TcpWindow), "{flags:#x} {seq} {ack} {len}");
        assert_eq!((self.track, self.acks), before, "dropped, yet it counted");
        self
    }

    fn opens_another(mut self, direction: Direction) {
        assert_eq!(self.packet(direction, SYN, 100_000, 0, 0).verdict, TrackVerdict::New);
    }
}

/// Default timeouts by state: RFC 5382 REQ-5 (two hours and four minutes; four minutes), RFC 7857 section 2.2
/// (four minutes after a RST).
const TRANSITORY: u32 = 240_000;
const ESTABLISHED: u32 = 7_440_000;

#[test]
fn a_connection_opens_and_closes() {
    let mut c = Connection::syn();
    let mut see = |direction, flags, seq, ack, state: &str, timeout, settled, embryonic| {
        let seen = c.packet(direction, flags, seq, ack, 0);
        assert_eq!(c.track.state_name(), state);
        assert_eq!(
            seen,
            TrackOutcome { verdict: TrackVerdict::Pass, timeout, settled: [settled; 2], embryonic },
            "{state}"
        );
    };
    see(Forward, SYN, 0, 0, "syn-sent", TRANSITORY, false, true);
    see(Reverse, SYN | ACK, 0, 1, "syn-received", TRANSITORY, false, true);
    see(Forward, ACK, 1, 1, "established", ESTABLISHED, true, false);
    see(Reverse, FIN | ACK, 1, 1, "close-wait", TRANSITORY, true, false);
    see(Forward, ACK, 1, 2, "close-wait", TRANSITORY, true, false);
    see(Forward, FIN | ACK, 1, 2, "closing", TRANSITORY, false, false);
    see(Forward, FIN | ACK, 1, 2, "closing", TRANSITORY, false, false);
    see(Reverse, ACK, 2, 2, "closed", TRANSITORY, true, false);
    see(Forward, FIN | ACK, 1, 2, "closed", TRANSITORY, true, false);
}

#[test]
fn acknowledgements_are_kept_and_only_go_forward() {
    let mut c = Connection::established();
    assert_eq!(c.acks, [ISS[1].wrapping_add(1), ISS[0].wrapping_add(1)]);
    c.packet(Reverse, ACK, 1, 5001, 100);
    c.packet(Reverse, ACK, 1, 4001, 100);
    assert_eq!(c.acks[1], ISS[0].wrapping_add(5001));
    assert_eq!(later_ack(u32::MAX, 3), 3);
    assert_eq!(later_ack(3, u32::MAX), 3);
    assert_eq!(latest_ack(u32::MAX, 3), 3);
    assert_eq!(latest_ack(3, u32::MAX), 3);
}

/// A forged acknowledgement holds until the next one of the host.
#[test]
fn forged_acknowledgements_do_not_last() {
    for forged in [1 << 20, 1 << 30, 1 << 31, u32::MAX - (1 << 20)] {
        let mut c = Connection::established();
        c.packet(Forward, ACK, 1, forged, 0);
        c.packet(Forward, ACK, 1, 5001, 0);
        c.packet(Forward, ACK, 1, 4001, 0);
        assert_eq!(c.acks[0], ISS[1].wrapping_add(5001), "{forged}");
        c.then(Reverse, RST, 5001, 0, 0, "reset");
        // The acknowledgement of a FIN that does not count does not count either.
        let mut c = Connection::established();
        c.packet(Forward, FIN | ACK, 1, forged, 0);
        c.then(Reverse, RST, 1, 0, 0, "reset");
    }
}

/// RFC 5382, REQ-2; RFC 9293, figure 8.
#[test]
fn both_open_at_once() {
    let both = || Connection::syn().then(Reverse, SYN, 0, 0, 0, "syn-both");
    both().then(Forward, SYN | ACK, 0, 1, 0, "established").then(Reverse, SYN | ACK, 0, 1, 0, "established");
    both().then(Reverse, SYN | ACK, 0, 1, 0, "syn-received").then(Forward, ACK, 1, 1, 0, "established");
    both().then(Reverse, SYN, 0, 0, 0, "syn-both").then(Forward, ACK, 1, 3, 0, "syn-both");
}

#[test]
fn a_segment_that_does_not_acknowledge_the_syn_opens_nothing() {
    Connection::syn()
        .then(Reverse, SYN | ACK, 0, 0, 0, "syn-sent")
        .then(Reverse, SYN | ACK, 0, 2, 0, "syn-sent")
        .then(Reverse, ACK, 9000, 1, 0, "syn-sent")
        .then(Forward, ACK, 1, 1, 0, "syn-sent")
        .then(Forward, SYN | ACK, 0, 1, 0, "syn-sent")
        .then(Forward, SYN | FIN, 0, 0, 0, "syn-sent")
        .then(Reverse, SYN | ACK, 0, 1, 0, "syn-received")
        .then(Forward, ACK, 1, 0, 0, "syn-received")
        .then(Forward, ACK, 1, 2, 0, "syn-received")
        .then(Reverse, ACK, 1, 1, 0, "syn-received")
        .then(Reverse, FIN | ACK, 1, 1, 0, "syn-received")
        .then(Forward, ACK, 1, 1, 0, "established");
}

/// With SYN cookies, each SYN gets an answer, and another one after a while.
#[test]
fn the_last_answer_counts() {
    Connection::syn()
        .then(Reverse, SYN | ACK, 0, 1, 0, "syn-received")
        .then(Forward, SYN, 0, 0, 0, "syn-received")
        .then(Reverse, SYN | ACK, 70_000, 1, 0, "syn-received")
        .then(Forward, ACK, 1, 1, 0, "syn-received")
        .then(Forward, ACK, 1, 70_001, 0, "established");
}

#[test]
fn a_second_attempt_from_the_same_port_replaces_the_first() {
    Connection::syn()
        .then(Forward, SYN, 5000, 0, 0, "syn-sent")
        .then(Reverse, SYN | ACK, 0, 1, 0, "syn-sent")
        .then(Reverse, SYN | ACK, 0, 5001, 0, "syn-received");
}

/// RFC 7413: data in the SYN, acknowledged or not, and data of the server before the end of the handshake.
#[test]
fn fast_open() {
    let syn = || Connection::open(SYN, 0, 0, 500, SessionSettings::default());
    for acknowledged in [1, 200, 501] {
        syn().then(Reverse, SYN | ACK, 0, acknowledged, 0, "syn-received").then(
            Forward,
            ACK,
            501,
            1,
            0,
            "established",
        );
    }
    syn().then(Reverse, SYN | ACK, 0, 502, 0, "syn-sent");
    syn()
        .then(Reverse, SYN | ACK, 0, 501, 100, "syn-received")
        .then(Reverse, ACK, 101, 501, 1000, "syn-received")
        .then(Forward, ACK, 501, 1101, 0, "established");
}

#[test]
fn a_fin_may_come_with_the_end_of_the_handshake() {
    Connection::syn().then(Reverse, SYN | ACK, 0, 1, 0, "syn-received").then(
        Forward,
        FIN | ACK,
        1,
        1,
        10,
        "fin-wait",
    );
}

#[test]
fn half_closed_connections_continue() {
    let c = Connection::established()
        .then(Forward, FIN | ACK, 1, 1, 20, "fin-wait")
        .then(Reverse, ACK, 1, 22, 0, "fin-wait")
        .then(Reverse, ACK, 1, 22, 1400, "fin-wait")
        .then(Forward, ACK, 22, 1401, 0, "fin-wait");
    // Both FINs are acknowledged only now.
    c.then(Reverse, FIN | ACK, 1401, 22, 0, "closing")
        .then(Forward, ACK, 22, 1401, 0, "closing")
        .then(Forward, ACK, 22, 1402, 0, "closed");
}

#[test]
fn both_close_at_once() {
    Connection::established()
        .then(Forward, FIN | ACK, 1, 1, 0, "fin-wait")
        .then(Reverse, FIN | ACK, 1, 1, 0, "closing")
        .then(Forward, ACK, 2, 2, 0, "closing")
        .then(Reverse, ACK, 2, 2, 0, "closed");
}

/// RFC 5961, section 3.2: only the expected number resets. A RST ahead of it must acknowledge what its sender
/// has received, and then it only shortens the timeout.
#[test]
fn only_the_expected_number_resets() {
    let window = 65_535 << 2;
    for direction in [Forward, Reverse] {
        for (seq, bare, acknowledging) in [
            (0, "established", "established"),
            (1, "reset", "reset"),
            (2, "established", "doubtful"),
            (1000, "established", "doubtful"),
            (1 + window, "established", "doubtful"),
            (2 + window, "established", "established"),
            (u32::MAX, "established", "established"),
            (1 << 31, "established", "established"),
        ] {
            Connection::established().then(direction, RST, seq, 0, 0, bare);
            Connection::established().then(direction, RST | ACK, seq, 1, 0, acknowledging);
            let guess = if seq == 1 { "reset" } else { "established" };
            for ack in [0, 2 + window, 1 << 31] {
                Connection::established().then(direction, RST | ACK, seq, ack, 0, guess);
            }
        }
    }
}

/// After a FIN, stacks send the number of the FIN, or the one behind.
#[test]
fn a_reset_may_follow_a_fin() {
    for (seq, state) in [(100, "fin-wait"), (101, "reset"), (102, "reset"), (103, "fin-wait")] {
        Connection::established().then(Forward, FIN | ACK, 1, 1, 100, "fin-wait").then(
            Forward,
            RST | ACK,
            seq,
            1,
            0,
            state,
        );
    }
}

/// An attack without sight of the connection: RSTs at all places of the windows that the connection could
/// offer, then a SYN.
#[test]
fn guessed_resets_and_a_syn_do_not_end_a_connection() {
    let picked_up = || {
        Connection::open(ACK, 5000, 8000, 100, SessionSettings::default()).then(
            Reverse,
            ACK,
            8000,
            5100,
            0,
            "established",
        )
    };
    for (connection, seq) in [(Connection::established as fn() -> Connection, 3), (picked_up, 8003)] {
        for direction in [Forward, Reverse] {
            let mut c = connection();
            for guess in 0..(1u32 << 16) {
                for flags in [RST, RST | ACK] {
                    let at = seq + (guess << 16);
                    c.segment(direction, segment(direction, flags, at, at ^ 1 << 31, 0));
                }
                let seen = c.packet(direction, SYN, seq + (guess << 16), 0, 0);
                assert_eq!(seen.verdict, TrackVerdict::Pass);
            }
            assert_eq!((c.track.state_name(), c.track.timeout(&c.settings)), ("established", ESTABLISHED));
            c.then(direction.opposite(), ACK, 9000, 9000, 0, "established");
        }
    }
}

/// A RST behind data that is not yet acknowledged: only the receiver knows whether it counts. If it does not,
/// it sends a challenge ACK (RFC 5961, section 3.2).
#[test]
fn a_doubtful_connection_lives_on_if_it_does() {
    let mut c = Connection::established();
    c.settings.timeouts.tcp_reset = 10_000;
    let seen = c.packet(Reverse, RST | ACK, 1001, 1, 0);
    assert_eq!((seen.timeout, seen.settled, seen.embryonic), (10_000, [false; 2], false));
    // The SYN of another connection between the same ports passes. It does not end this one.
    let mut c = c.then(Forward, SYN, 100_000, 0, 0, "doubtful");
    let seen = c.packet(Forward, ACK, 1, 1, 0);
    assert_eq!((c.track.state_name(), seen.timeout), ("established", ESTABLISHED));
    let mut c = c.then(Reverse, RST | ACK, 1001, 1, 0, "doubtful").then(
        Reverse,
        SYN | ACK,
        500_000,
        100_001,
        0,
        "established",
    );
    assert_eq!(c.packet(Forward, ACK, 100_001, 500_001, 0).settled, [true; 2], "the other connection");
    let mut c = Connection::established().then(Reverse, RST | ACK, 1001, 1, 0, "doubtful");
    c.packet(Reverse, RST, 1, 0, 0);
    assert_eq!(c.track.state_name(), "reset");
}

#[test]
fn a_reset_during_the_handshake_must_acknowledge_the_syn() {
    for (ack, state) in [(0, "syn-sent"), (1, "reset"), (2, "syn-sent")] {
        Connection::syn().then(Reverse, RST | ACK, 0, ack, 0, state);
    }
    Connection::syn().then(Reverse, RST, 0, 0, 0, "syn-sent");
    Connection::syn().then(Forward, RST, 1, 0, 0, "reset");
    Connection::syn().then(Forward, RST, 2, 0, 0, "syn-sent");
    // The answer to a challenge of a server that still has an older connection (RFC 9293, figure 10).
    Connection::syn()
        .then(Reverse, ACK, 300, 100, 0, "syn-sent")
        .then(Forward, RST, 100, 0, 0, "syn-sent")
        .then(Forward, SYN, 0, 0, 0, "syn-sent")
        .then(Reverse, SYN | ACK, 0, 1, 0, "syn-received")
        .then(Forward, RST, 1, 0, 0, "reset");
}

/// RFC 7857, section 2.2: after a RST the mapping stays for four minutes. If packets follow, the connection
/// stays too.
#[test]
fn a_reset_connection_continues_if_packets_follow() {
    let mut c = Connection::established();
    c.settings.timeouts.tcp_reset = 250_000;
    let seen = c.packet(Reverse, RST, 1, 0, 0);
    assert_eq!((seen.timeout, seen.settled, seen.embryonic), (250_000, [false; 2], false));
    let mut c = c.then(Forward, ACK, 1, 1, 100, "established");
    assert_eq!(c.packet(Forward, ACK, 101, 1, 100).timeout, ESTABLISHED);
    c.packet(Forward, FIN | ACK, 201, 1, 0);
    let seen = c.packet(Reverse, RST, 1, 0, 0);
    assert_eq!((seen.timeout, c.track.state_name()), (TRANSITORY, "reset"), "no longer than without it");
    c.then(Reverse, ACK, 1, 201, 0, "fin-wait");
}

#[test]
fn a_fin_counts_in_the_window_only() {
    let window = 65_535 << 2;
    for (seq, state) in
        [(1, "fin-wait"), (1 + window, "fin-wait"), (2 + window, "established"), (u32::MAX, "established")]
    {
        Connection::established().then(Forward, FIN | ACK, seq, 1, 0, state);
        for ack in [2 + window, 1 << 31] {
            Connection::established().then(Forward, FIN | ACK, seq, ack, 0, "established");
        }
        Connection::established().then(Forward, FIN, seq, 0, 0, "established");
    }
    // A retransmission whose data is partly acknowledged.
    Connection::established().then(Reverse, ACK, 1, 801, 0, "established").then(
        Forward,
        FIN | ACK,
        1,
        1,
        1000,
        "fin-wait",
    );
    let c = Connection::established().then(Reverse, ACK, 1, 801, 0, "established");
    c.then(Forward, FIN | ACK, 1, 1, 700, "established");
}

/// Nothing follows a FIN. If the other side acknowledges more, the FIN was forged.
#[test]
fn a_fin_is_disproved_by_what_follows() {
    let mut c = Connection::established()
        .then(Forward, FIN | ACK, 5001, 1, 0, "fin-wait")
        .then(Forward, ACK, 1, 1, 1000, "fin-wait")
        .then(Reverse, ACK, 1, 5002, 0, "fin-wait");
    let state = |c: &Connection| {
        let track = c.track.revised(&c.acks);
        (track.state_name(), track.timeout(&c.settings))
    };
    assert_eq!(state(&c), ("fin-wait", TRANSITORY));
    // A packet of the established path, which the tracker does not see.
    c.acks[Reverse as usize] = c.acks[Reverse as usize].wrapping_add(1);
    assert_eq!(state(&c), ("established", ESTABLISHED));
    c.then(Reverse, FIN | ACK, 1, 5003, 0, "close-wait").then(Forward, FIN | ACK, 5003, 2, 0, "closing");
    // With a forged FIN, the other side's FIN does not close.
    let mut c = Connection::established().then(Forward, FIN | ACK, 5001, 1, 0, "fin-wait").then(
        Reverse,
        FIN | ACK,
        1,
        1,
        0,
        "closing",
    );
    c.acks[Reverse as usize] = c.acks[Reverse as usize].wrapping_add(9000);
    assert_eq!(state(&c), ("close-wait", TRANSITORY));
    c.then(Forward, ACK, 9001, 2, 0, "close-wait")
        .then(Forward, FIN | ACK, 9001, 2, 0, "closing")
        .then(Reverse, ACK, 2, 9002, 0, "closed");
}

#[test]
fn a_syn_opens_another_connection_where_one_is_over() {
    for direction in [Forward, Reverse] {
        Connection::closed().opens_another(direction);
        Connection::established().then(Forward, RST, 1, 0, 0, "reset").opens_another(direction);
        Connection::syn().then(Reverse, RST | ACK, 0, 1, 0, "reset").opens_another(direction);
    }
    // Of a session that was picked up and not answered, only its host's side is known.
    let picked_up = || Connection::open(ACK, 1, 1, 0, SessionSettings::default());
    picked_up().opens_another(Forward);
    picked_up().then(Reverse, SYN, 100_000, 0, 0, "picked-up");
    let other = |c: Connection, state| {
        c.then(Forward, SYN, 100_000, 0, 0, state).then(Forward, SYN | FIN, 100_000, 0, 0, state)
    };
    other(Connection::established(), "established");
    let c = other(Connection::established().then(Forward, FIN | ACK, 1, 1, 0, "fin-wait"), "fin-wait");
    other(c.then(Reverse, FIN | ACK, 1, 2, 0, "closing"), "closing");
}

/// Both ends have lost their state, and neither sends a RST.
#[test]
fn a_connection_that_both_ends_forgot_is_opened_anew() {
    let far = 1 << 30;
    for state in ["established", "fin-wait"] {
        for checked in [false, true] {
            let settings = SessionSettings { tcp_window_check: checked, ..SessionSettings::default() };
            let mut c = Connection::established_with(settings);
            if state == "fin-wait" {
                c = c.then(Forward, FIN | ACK, 1, 1, 0, state);
            }
            let c = c
                .then(Forward, SYN, far, 0, 0, state)
                .then(Reverse, SYN | ACK, 2 * far, far + 1, 0, "established")
                .then(Forward, ACK, far + 1, 2 * far + 1, 0, "established")
                .then(Reverse, ACK, 2 * far + 1, far + 1, 900, "established");
            // Without the window check, only acknowledgements are known.
            let expected = if checked { 901 } else { 1 };
            c.then(Reverse, RST, 2 * far + expected, 0, 0, "reset");
        }
    }
    // Without the SYN it is a retransmission or a forgery.
    let mut c = Connection::established();
    let acks = c.acks;
    c.packet(Reverse, SYN, far, 0, 0);
    c.packet(Reverse, SYN | ACK, far, 1, 0);
    assert_eq!(c.acks, acks, "both of the same side");
}

#[test]
fn connections_are_picked_up_in_their_middle() {
    let mut c = Connection::open(ACK, 5000, 8000, 100, SessionSettings::default());
    assert_eq!(c.track.state_name(), "picked-up");
    let seen = c.packet(Forward, ACK, 5100, 8000, 100);
    assert_eq!((seen.timeout, seen.settled, seen.embryonic), (TRANSITORY, [true, false], true));
    let seen = c.packet(Reverse, ACK, 8000, 4000, 0);
    assert_eq!((seen.timeout, seen.settled, seen.embryonic), (ESTABLISHED, [true; 2], false));
    assert_eq!(c.track.state_name(), "established");
    assert_eq!(c.acks, [ISS[1].wrapping_add(8000), ISS[0].wrapping_add(4000)]);
    c.then(Forward, FIN | ACK, 5200, 8000, 0, "fin-wait");
    let closing = || Connection::open(FIN | ACK, 5000, 8000, 0, SessionSettings::default());
    assert_eq!(closing().track.state_name(), "picked-up");
    closing().then(Reverse, ACK, 8000, 5001, 0, "fin-wait");
    closing().then(Reverse, FIN | ACK, 8000, 5001, 0, "closing").then(Forward, ACK, 5001, 8001, 0, "closed");
    let reset = Connection::open(RST, 5000, 0, 0, SessionSettings::default());
    assert_eq!(reset.track.timeout(&reset.settings), TRANSITORY);
    assert_eq!(reset.track.state_name(), "reset");
    let answer = Connection::open(SYN | ACK, 0, 1, 0, SessionSettings::default());
    assert_eq!(answer.acks, [ISS[1].wrapping_add(1), ISS[0].wrapping_add(1)]);
    answer.then(Reverse, ACK, 1, 1, 0, "established");
}

#[test]
fn connections_are_not_picked_up_if_disabled() {
    let settings = SessionSettings { tcp_pickup: false, ..SessionSettings::default() };
    for flags in [ACK, FIN | ACK, RST, RST | ACK, SYN | ACK, SYN | FIN, SYN | RST, 0] {
        let first = TrackInput::Tcp(segment(Forward, flags, 0, 0, 0));
        let refused = TrackState::open(&first, &mut [0; 2], &settings).map(|_| ());
        assert_eq!(refused, Err(DropReason::SessionMiddle), "{flags:#x}");
    }
    assert_eq!(Connection::open(SYN, 0, 0, 0, settings).track.state_name(), "syn-sent");
}
