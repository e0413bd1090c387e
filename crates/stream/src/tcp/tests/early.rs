//! Bytes behind a SYN that come before its answer.

use super::*;

const SYN_ACK: u8 = SYN | ACK;

fn opened() -> TcpStream {
    let mut stream = TcpStream::default();
    send(&mut stream, 0, segment(SYN, 99, 0, 0));
    stream
}

fn is_restart(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Pass(View { is_restart: true, len: 0, .. }, Cause::None))
}

#[test]
fn they_are_read_again_behind_the_answer() {
    let mut stream = opened();
    assert_eq!(send(&mut stream, 0, segment(ACK, 100, 7, 20)), pass(0, 20));
    assert!(!stream.is_two_way());
    assert!(is_restart(send(&mut stream, 1, segment(SYN_ACK, 4, 100, 0))));
    assert!(stream.is_two_way());
    assert_eq!(send(&mut stream, 0, segment(ACK, 100, 5, 20)), pass(0, 20));
    // The answer comes again.
    assert_eq!(send(&mut stream, 1, segment(SYN_ACK, 4, 100, 0)), pass(0, 0));
    assert_eq!(send(&mut stream, 0, segment(ACK, 100, 5, 20)), pass(20, 0));
}

/// The functions have given up because of such bytes, before or after more of them have come.
#[test]
fn functions_that_have_given_up_read_again() {
    for more in 0..3 {
        let mut stream = opened();
        send(&mut stream, 0, segment(ACK, 100, 7, 20));
        stream.detach(1, 1);
        for n in 0..more {
            send(&mut stream, 0, segment(ACK, 120 + n, 7, 1));
        }
        assert!(is_restart(send(&mut stream, 1, segment(SYN_ACK, 4, 100, 0))), "{more}");
        assert_eq!((stream.status(), stream.detached()), (Status::Read, 0));
        assert_eq!(send(&mut stream, 0, segment(ACK, 100, 5, 20)), pass(0, 20));
    }
}

/// RFC 7413: the answer takes the data of the SYN, behind which more has come.
#[test]
fn they_do_not_follow_fast_open_data() {
    let mut stream = TcpStream::default();
    send(&mut stream, 0, segment(SYN, 99, 0, 20));
    send(&mut stream, 0, segment(ACK, 120, 7, 20));
    for ack in [101, 120, 140] {
        let answer = segment(SYN_ACK, 4, ack, 0);
        assert_eq!(send(&mut stream, 1, answer), Outcome::Drop(Cause::OutsideWindow), "{ack}");
    }
    assert!(is_restart(send(&mut stream, 1, segment(SYN_ACK, 4, 100, 0))));
    assert_eq!(stream.next(0), Some(100));
}

/// The answer took another way, and the receiver has got bytes: nothing begins again.
#[test]
fn they_count_when_the_receiver_has_acknowledged_some() {
    let mut stream = opened();
    send(&mut stream, 0, segment(ACK, 100, 7, 20));
    send(&mut stream, 1, segment(ACK, 7, 110, 0));
    assert!(stream.is_two_way());
    assert!(!is_restart(send(&mut stream, 1, segment(SYN_ACK, 6, 100, 0))));
    assert_eq!(send(&mut stream, 0, segment(ACK, 100, 7, 25)), pass(20, 5));
}

/// Another SYN begins another connection.
#[test]
fn they_do_not_keep_another_connection_from_being_read() {
    let mut stream = opened();
    send(&mut stream, 0, segment(ACK, 100, 7, 20));
    send(&mut stream, 0, segment(SYN, 4999, 0, 0));
    assert_eq!(send(&mut stream, 1, segment(SYN_ACK, 4, 5000, 0)), pass(0, 0));
    assert_eq!(send(&mut stream, 0, segment(ACK, 5000, 5, 20)), pass(0, 20));
}

/// Numbers of segments whose timestamps count: what was not acknowledged, and a keepalive in front of it.
#[test]
fn segments_in_flight_are_known() {
    for fin in [0, 1] {
        let mut stream = open([1000, 500]);
        send(&mut stream, 0, segment(ACK, 1000, 500, 20));
        send(&mut stream, 1, segment(ACK, 500, 1010, 0));
        if fin == 1 {
            send(&mut stream, 0, segment(ACK | FIN, 1020, 500, 0));
        }
        let found = (900..1100).filter(|&end| stream.is_in_flight(0, end));
        assert_eq!(found.collect::<Vec<_>>(), (1009..=1020 + fin).collect::<Vec<_>>());
    }
    assert!(!opened().is_in_flight(1, 0), "nothing was seen");
}

#[test]
fn the_last_timestamp_is_kept() {
    let mut stream = opened();
    assert_eq!(stream.stamp(0), None);
    for (stamp, last) in [(u32::MAX, u32::MAX), (5, 5), (u32::MAX, 5), (6, 6)] {
        stream.note_stamp(0, stamp);
        assert_eq!((stream.stamp(0), stream.stamp(1)), (Some(last), None));
    }
    // A SYN that may begin another connection is noted in its place.
    let mut stream = open([1000, 500]);
    stream.note_stamp(0, 7);
    send(&mut stream, 0, segment(SYN, 4999, 0, 0));
    stream.note_stamp(0, 8);
    assert_eq!(stream.stamp(0), None);
    assert!(is_restart(send(&mut stream, 1, segment(SYN_ACK, 4, 5000, 0))));
}
