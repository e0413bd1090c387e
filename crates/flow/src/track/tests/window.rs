//! The window check.

use super::*;

fn checked() -> SessionSettings {
    SessionSettings { tcp_window_check: true, ..SessionSettings::default() }
}

/// Windows are 1,000 with scale 2. Those of the SYNs are 1,000 unscaled.
#[test]
fn the_window_check() {
    let mut c = Connection::established_with(checked());
    assert_eq!(c.packet(Forward, ACK, 1, 1, 0).settled, [false; 2]);
    c.then(Forward, ACK, 1, 1, 1000, "established")
        .refuses(Forward, ACK, 2, 1, 1000)
        .then(Reverse, ACK, 1, 1001, 0, "established")
        .then(Forward, ACK, 1001, 1, 4000, "established")
        .refuses(Forward, ACK, 1002, 1, 4000)
        // Not sent yet, and too old to be in flight.
        .refuses(Reverse, ACK, 1, 5002, 0)
        .refuses(Reverse, ACK, 1, 5001u32.wrapping_sub(66_001), 0)
        .then(Reverse, ACK, 1, 5001u32.wrapping_sub(66_000), 0, "established")
        // A retransmission within a window.
        .then(Forward, ACK, 1, 1, 1000, "established")
        .refuses(Forward, ACK, 0, 1, 1000)
        // A keep-alive, and its answer.
        .then(Reverse, ACK, 0, 5001, 0, "established")
        .then(Forward, ACK, 5001, 1, 0, "established");
}

#[test]
fn the_window_check_applies_to_resets_and_not_to_syns() {
    Connection::established_with(checked())
        .refuses(Reverse, RST, 4002, 0, 0)
        .refuses(Reverse, RST | ACK, u32::MAX, 1, 0)
        .then(Forward, SYN, 1 << 30, 0, 0, "established")
        // In the window, but not the expected number (RFC 5961, section 3.2).
        .then(Reverse, RST, 4001, 0, 0, "doubtful")
        .then(Forward, ACK, 1, 1, 0, "established")
        .then(Reverse, RST, 1, 0, 0, "reset");
    // Behind data that is not yet acknowledged.
    Connection::established_with(checked())
        .then(Reverse, ACK, 1, 1, 700, "established")
        .then(Reverse, RST, 701, 0, 0, "reset");
}

/// A closed window: one byte may be sent as a probe (RFC 9293, 3.8.6.1).
#[test]
fn a_window_may_be_zero() {
    let mut c = Connection::established_with(checked());
    let shut = |direction, seq, ack| TcpSegment { window: 0, ..segment(direction, ACK, seq, ack, 0) };
    c.packet(Forward, ACK, 1, 1, 1000);
    c.segment(Reverse, shut(Reverse, 1, 1001));
    let mut c = c.then(Forward, ACK, 1001, 1, 1, "established").refuses(Forward, ACK, 1001, 1, 2);
    c.segment(Reverse, shut(Reverse, 1, 1001));
    c.then(Reverse, ACK, 1, 1002, 0, "established").then(Forward, ACK, 1002, 1, 4000, "established");
}

/// Nothing can be acknowledged after a FIN.
#[test]
fn data_beyond_a_fin_is_outside_the_window() {
    Connection::established_with(checked())
        .then(Forward, FIN | ACK, 1, 1, 0, "fin-wait")
        .then(Forward, ACK, 2, 1, 100, "fin-wait")
        .refuses(Reverse, ACK, 1, 102, 0)
        .then(Reverse, ACK, 1, 2, 0, "fin-wait");
}

/// RFC 7323, 2.2: the window of a segment with SYN is never scaled.
#[test]
fn windows_of_a_syn_are_not_scaled() {
    Connection::open(SYN, 0, 0, 0, checked())
        .then(Reverse, SYN, 0, 0, 0, "syn-both")
        .then(Forward, SYN | ACK, 0, 1, 0, "established")
        .refuses(Reverse, ACK, 1, 1, 1001)
        .then(Reverse, ACK, 1, 1, 1000, "established")
        .then(Forward, ACK, 1, 1001, 0, "established")
        .then(Reverse, ACK, 1001, 1, 4000, "established");
}

/// RFC 7323, 1.3: both sides scale or neither.
#[test]
fn windows_are_not_scaled_if_one_side_cannot() {
    for missing in [Forward, Reverse] {
        let scale = |direction| (direction != missing).then_some(7);
        let syn = TcpSegment { scale: scale(Forward), ..segment(Forward, SYN, 0, 0, 0) };
        let mut acks = [0; 2];
        let (track, _) = TrackState::open(&TrackInput::Tcp(syn), &mut acks, &checked()).expect("opens");
        let mut c = Connection { track, acks, settings: checked() };
        c.segment(Reverse, TcpSegment { scale: scale(Reverse), ..segment(Reverse, SYN | ACK, 0, 1, 0) });
        c.then(Forward, ACK, 1, 1, 0, "established")
            .then(Reverse, ACK, 1, 1, 1000, "established")
            .refuses(Reverse, ACK, 2, 1, 1000);
    }
}

/// A function has answered the originator's SYN, and the originator has confirmed that.
fn proxied(syn: TcpSegment, settings: SessionSettings) -> Connection {
    let mut acks = [0; 2];
    let (mut track, _) = TrackState::open(&TrackInput::Tcp(syn), &mut acks, &settings).expect("opens");
    track.set_proxied();
    Connection { track, acks, settings }
}

/// The other side closes before another segment of the originator passes.
#[test]
fn the_other_sides_syn_establishes_a_proxied_connection() {
    for settings in [SessionSettings::default(), checked()] {
        proxied(segment(Forward, SYN, 0, 0, 100), settings)
            .then(Forward, SYN, 0, 0, 100, "syn-sent")
            .then(Reverse, SYN | ACK, 0, 1, 0, "established")
            .then(Reverse, SYN | ACK, 0, 1, 0, "established")
            .then(Reverse, FIN | ACK, 1, 101, 500, "close-wait")
            .then(Forward, FIN | ACK, 101, 502, 0, "closing")
            .then(Reverse, ACK, 502, 102, 0, "closed")
            .opens_another(Forward);
    }
}

/// A function has answered the originator's SYN in the place of the other side, which may not scale.
#[test]
fn a_promised_scale_holds_whatever_the_other_side_supports() {
    for (own, other, windows) in [
        (Some(7), None, [1000 << 7, 1000]),
        (Some(7), Some(2), [1000 << 7, 1000 << 2]),
        (Some(7), Some(0), [1000 << 7, 1000]),
        (None, None, [1000, 1000]),
    ] {
        let syn = TcpSegment { scale: own, ..segment(Forward, SYN, 0, 0, 0) };
        let mut c = proxied(syn, checked());
        for _ in 0..2 {
            c.segment(Reverse, TcpSegment { scale: other, ..segment(Reverse, SYN | ACK, 0, 1, 0) });
        }
        c.then(Forward, ACK, 1, 1, 0, "established")
            .refuses(Reverse, ACK, 2, 1, windows[0])
            .then(Reverse, ACK, 1, 1, windows[0], "established")
            .refuses(Forward, ACK, 2, 1, windows[1])
            .then(Forward, ACK, 1, 1, windows[1], "established");
    }
}

/// Connections that were not seen from the beginning, or not completely, are accepted as they are.
#[test]
fn the_window_check_can_be_turned_on_late() {
    let mut c = Connection::established().then(Forward, ACK, 1, 1, 100, "established");
    c.settings = checked();
    let c = c
        .then(Forward, ACK, 900_000, 700_000, 100, "established")
        .then(Reverse, ACK, 700_000, 890_000, 100, "established")
        .then(Reverse, ACK, 700_100, 905_000, 0, "established")
        .refuses(Reverse, ACK, 700_100, 900_000 + (1 << 30), 0)
        .refuses(Forward, ACK, 1 << 31, 700_000, 100);
    let mut c = c.then(Forward, ACK, 905_000, 700_100, 0, "established");
    c.settings = SessionSettings::default();
    assert_eq!(c.packet(Forward, ACK, 1 << 31, 1, 0).settled, [true; 2]);
    let mut c = Connection::open(ACK, 5000, 8000, 100, checked());
    assert_eq!(c.packet(Forward, ACK, 5100, 8000, 100).settled, [false; 2]);
    c.then(Reverse, ACK, 8000, 5200, 0, "established").refuses(Forward, ACK, 1 << 31, 8000, 100);
}
