mod early;
mod unread;

use proptest::prelude::*;

use super::*;

const ACK: u8 = Segment::ACK;
const SYN: u8 = Segment::SYN;
const FIN: u8 = Segment::FIN;
const RST: u8 = Segment::RST;

fn segment(flags: u8, seq: u32, ack: u32, len: u16) -> Segment {
    Segment { seq, ack, len, window: 60_000, flags, ..Segment::default() }
}

fn pass(skip: u16, len: u16) -> Outcome {
    let cause = match (skip, len) {
        (0, _) => Cause::None,
        (_, 0) => Cause::Retransmitted,
        _ => Cause::Overlap,
    };
    Outcome::Pass(View { skip, len, ..View::NONE }, cause)
}

/// A connection after the handshake. The numbers of both directions begin at these.
fn open(initial: [u32; 2]) -> TcpStream {
    let mut stream = TcpStream::default();
    let [a, b] = initial;
    let policy = Policy::default();
    for (direction, segment) in [
        (0, segment(SYN, a.wrapping_sub(1), 0, 0)),
        (1, segment(SYN | ACK, b.wrapping_sub(1), a, 0)),
        (0, segment(ACK, a, b, 0)),
    ] {
        assert_eq!(stream.segment(direction, &segment, &policy), pass(0, 0));
    }
    stream
}

fn send(stream: &mut TcpStream, direction: usize, segment: Segment) -> Outcome {
    stream.segment(direction, &segment, &Policy::default())
}

#[test]
fn numbers_wrap() {
    let mut stream = open([u32::MAX - 9, 5]);
    assert_eq!(send(&mut stream, 0, segment(ACK, u32::MAX - 9, 5, 30)), pass(0, 30));
    assert_eq!(stream.next(0), Some(20));
    assert_eq!(send(&mut stream, 0, segment(ACK, u32::MAX - 4, 5, 30)), pass(25, 5));
    assert_eq!(send(&mut stream, 1, segment(ACK, 5, 25, 3)), pass(0, 3));
    assert_eq!(send(&mut stream, 0, segment(ACK, u32::MAX - 9, 8, 30)), pass(30, 0));
}

#[test]
fn keepalives_and_window_probes_have_nothing_new() {
    let mut stream = open([1000, 5]);
    send(&mut stream, 0, segment(ACK, 1000, 5, 100));
    for len in [0, 1] {
        // RFC 9293, 3.8.4: a keepalive may have one byte of garbage.
        let Outcome::Pass(view, _) = send(&mut stream, 0, segment(ACK, 1099, 5, len)) else { panic!() };
        assert_eq!(view.len, 0);
    }
    assert_eq!(stream.next(0), Some(1100));
    // RFC 9293, 3.8.6.1: a window probe may have one byte behind the window.
    send(&mut stream, 1, Segment { window: 0, ..segment(ACK, 5, 1100, 0) });
    assert_eq!(send(&mut stream, 0, segment(ACK, 1100, 5, 1)), pass(0, 1));
}

#[test]
fn an_acknowledgement_never_waits() {
    let mut stream = open([1000, 5]);
    assert_eq!(send(&mut stream, 0, segment(ACK, 1700, 5, 0)), pass(0, 0));
    assert_eq!(stream.next(0), Some(1000));
}

#[test]
fn segments_outside_of_the_window_are_dropped() {
    let mut stream = open([1000, 5]);
    send(&mut stream, 1, Segment { window: 500, ..segment(ACK, 5, 1000, 0) });
    // The greatest edge that the sender has been told counts, and the handshake had none.
    assert!(matches!(send(&mut stream, 0, segment(ACK, 1499, 5, 10)), Outcome::Hold(_)));
    assert_eq!(send(&mut stream, 0, segment(ACK, 1500, 5, 10)), Outcome::Drop(Cause::OutsideWindow));
    // In order, the receiver decides.
    assert_eq!(send(&mut stream, 0, segment(ACK, 1000, 5, 700)), pass(0, 700));
}

/// RFC 7323, 2.2: the shift applies if both SYNs have the option, and not to the SYNs themselves.
#[test]
fn windows_are_scaled_if_both_sides_agree() {
    for (answer, edge) in [(Some(2), 1000 + (500 << 7)), (None, 1500)] {
        let mut stream = TcpStream::default();
        let syn = Segment { scale: answer, ..segment(SYN, 999, 0, 0) };
        send(&mut stream, 0, syn);
        send(&mut stream, 1, Segment { scale: Some(7), ..segment(SYN | ACK, 4, 1000, 0) });
        send(&mut stream, 1, Segment { window: 500, ..segment(ACK, 5, 1000, 0) });
        assert!(matches!(send(&mut stream, 0, segment(ACK, edge - 1, 5, 1)), Outcome::Hold(_)));
        let beyond = send(&mut stream, 0, segment(ACK, edge, 5, 1));
        assert_eq!(beyond, Outcome::Drop(Cause::OutsideWindow));
    }
}

#[test]
fn a_fin_ends_a_direction_and_has_a_number() {
    let mut stream = open([1000, 5]);
    let end = View { len: 10, is_end: true, ..View::NONE };
    assert_eq!(send(&mut stream, 0, segment(ACK | FIN, 1000, 5, 10)), Outcome::Pass(end, Cause::None));
    assert!(stream.is_ended(0) && !stream.is_ended(1));
    // Repeated, with other borders; then its acknowledgement.
    assert_eq!(send(&mut stream, 0, segment(ACK | FIN, 1000, 5, 10)), pass(10, 0));
    assert_eq!(send(&mut stream, 0, segment(ACK | FIN, 1010, 5, 0)), pass(0, 0));
    assert_eq!(send(&mut stream, 1, segment(ACK, 5, 1011, 20)), pass(0, 20), "half-closed");
    assert_eq!(send(&mut stream, 0, segment(ACK, 1011, 25, 0)), pass(0, 0));
    // Nothing follows a FIN.
    for late in [segment(ACK, 1005, 5, 10), segment(ACK, 1010, 5, 10), segment(ACK | FIN, 1020, 5, 0)] {
        assert_eq!(send(&mut stream, 0, late), Outcome::Drop(Cause::BehindEnd));
    }
    let end = View { is_end: true, ..View::NONE };
    assert_eq!(send(&mut stream, 1, segment(ACK | FIN, 25, 1011, 0)), Outcome::Pass(end, Cause::None));
}

#[test]
fn a_fin_waits_for_the_bytes_in_front_of_it() {
    let mut stream = open([1000, 5]);
    let range = HeldRange { from: 1010, to: 1010, has_fin: true };
    assert_eq!(send(&mut stream, 0, segment(ACK | FIN, 1010, 5, 0)), Outcome::Hold(range));
    assert_eq!(stream.next_held(0, range), NextHeld::Wait);
    send(&mut stream, 0, segment(ACK, 1000, 5, 10));
    let end = View { is_end: true, ..View::NONE };
    assert_eq!(stream.next_held(0, range), NextHeld::Pass(end));
}

/// RFC 5961, 3: only the number that the receiver expects resets a connection.
#[test]
fn resets_count_inside_of_the_window_alone() {
    let mut stream = open([1000, 5]);
    send(&mut stream, 0, segment(ACK, 1000, 5, 100));
    for outside in [999, 1101, 1000 + (1 << 31)] {
        let outcome = send(&mut stream, 0, segment(RST, outside, 0, 0));
        assert_eq!(outcome, Outcome::Pass(View::NONE, Cause::ResetOutside));
    }
    // No reset has counted, so that this SYN is answered by the receiver and begins nothing.
    assert_eq!(send(&mut stream, 0, segment(SYN, 777, 0, 0)), pass(0, 0));
    assert_eq!(stream.next(0), Some(1100));
    assert_eq!(send(&mut stream, 0, segment(RST, 1100, 0, 0)), pass(0, 0));
    // Bytes behind a reset are read: the receiver may not have accepted it.
    assert_eq!(send(&mut stream, 0, segment(ACK, 1100, 5, 10)), pass(0, 10));
    // So a SYN behind it begins another connection when it is answered.
    assert_eq!(send(&mut stream, 0, segment(SYN, 777, 0, 0)), pass(0, 0));
    assert_eq!(stream.next(0), Some(1110));
    let Outcome::Pass(view, Cause::None) = send(&mut stream, 1, segment(SYN | ACK, 50, 778, 0)) else {
        panic!()
    };
    assert!(view.is_restart);
    assert_eq!((stream.next(0), stream.next(1)), (Some(778), Some(51)));
}

/// A reset that the receiver ignores and a SYN that it answers with a challenge (RFC 5961, 4), with the
/// number in front of the next byte: what functions have of a word in both segments stays.
#[test]
fn a_reset_and_a_syn_in_a_word_restart_nothing() {
    for reset in [1000, 1004] {
        let mut stream = open([1000, 5]);
        send(&mut stream, 0, segment(ACK, 1000, 5, 4));
        send(&mut stream, 0, segment(RST, reset, 0, 0));
        assert_eq!(send(&mut stream, 0, segment(SYN, 1003, 0, 0)), pass(0, 0));
        assert_eq!(send(&mut stream, 1, segment(ACK, 5, 1004, 0)), pass(0, 0), "the challenge");
        let outcome = send(&mut stream, 0, segment(ACK, 1004, 5, 5));
        assert_eq!(outcome, pass(0, 5), "bytes of the same stream, without a restart");
    }
}

#[test]
fn data_of_a_syn_is_read_or_dropped() {
    let mut stream = TcpStream::default();
    assert_eq!(send(&mut stream, 0, segment(SYN, 99, 0, 20)), pass(0, 20));
    let mut stream = open([1000, 5]);
    assert_eq!(send(&mut stream, 0, segment(SYN, 99, 0, 20)), Outcome::Drop(Cause::OutsideWindow));
}

/// A host cannot speak for the other end from its own side.
#[test]
fn segments_come_from_the_port_of_their_sender() {
    let mut stream = TcpStream::default();
    assert!(stream.may_come_from(0, 3, SYN));
    assert!(stream.may_come_from(1, 3, SYN | ACK), "nothing is known yet: the ends may be behind one port");
    assert!(stream.may_come_from(1, 3, ACK));
    assert!(stream.may_come_from(1, 4, SYN | ACK), "the answer of the end itself");
    assert!(stream.may_come_from(0, 3, ACK) && stream.may_come_from(1, 4, ACK));
    for flags in [ACK, SYN, SYN | ACK, RST, FIN | ACK] {
        assert!(!stream.may_come_from(1, 3, flags) && !stream.may_come_from(0, 4, flags));
    }
    assert!(stream.may_come_from(0, 9, ACK) && stream.may_come_from(1, 9, ACK), "another way");
    // Also in the next connection of the session, and for ports that are not known.
    stream.stop(Cause::Gap);
    assert!(!stream.may_come_from(1, 3, ACK));
    assert!(stream.may_come_from(1, 300, ACK) && stream.may_come_from(1, u16::MAX, ACK));
}

#[test]
fn an_endpoint_that_does_not_answer_is_asked_again() {
    let mut stream = TcpStream::default();
    send(&mut stream, 0, segment(SYN, 100, 0, 0));
    send(&mut stream, 0, segment(SYN, 100, 0, 0));
    assert_eq!(stream.next(0), Some(101));
    send(&mut stream, 0, segment(SYN, 9000, 0, 0));
    assert_eq!(stream.next(0), Some(9001));
    // The answer tells which of them the server has got.
    send(&mut stream, 1, segment(SYN | ACK, 7, 101, 0));
    assert_eq!((stream.next(0), stream.next(1)), (Some(101), Some(8)));
}

/// RFC 7413: data on a SYN, accepted or declined.
#[test]
fn fast_open_data_counts_once() {
    for accepted in [true, false] {
        let mut stream = TcpStream::default();
        assert_eq!(send(&mut stream, 0, segment(SYN, 99, 0, 20)), pass(0, 20));
        let ack = if accepted { 120 } else { 100 };
        assert_eq!(send(&mut stream, 1, segment(SYN | ACK, 4, ack, 0)), pass(0, 0));
        if !accepted {
            assert_eq!(send(&mut stream, 0, segment(ACK, 100, 5, 20)), pass(20, 0));
        }
        assert_eq!(send(&mut stream, 0, segment(ACK, 120, 5, 7)), pass(0, 7));
    }
}

#[test]
fn simultaneous_open() {
    let mut stream = TcpStream::default();
    send(&mut stream, 0, segment(SYN, 99, 0, 0));
    send(&mut stream, 1, segment(SYN, 199, 0, 0));
    send(&mut stream, 0, segment(SYN | ACK, 99, 200, 0));
    send(&mut stream, 1, segment(SYN | ACK, 199, 100, 0));
    assert_eq!(send(&mut stream, 0, segment(ACK, 100, 200, 5)), pass(0, 5));
    assert_eq!(send(&mut stream, 1, segment(ACK, 200, 105, 6)), pass(0, 6));
}

#[test]
fn a_connection_without_a_syn() {
    let first = segment(ACK, 5000, 700, 10);
    let with = |pickup| {
        let mut stream = TcpStream::default();
        let policy = Policy { pickup, ..Policy::default() };
        let outcome = stream.segment(0, &first, &policy);
        (outcome, stream)
    };
    let (outcome, stream) = with(OnPickup::Pass);
    assert_eq!((outcome, stream.status()), (Outcome::Stop(Cause::NoSyn), Status::Passed(Cause::NoSyn)));
    assert_eq!(with(OnPickup::Reset).0, Outcome::Reset(Cause::NoSyn));
    let (outcome, mut stream) = with(OnPickup::Inspect);
    assert_eq!(outcome, pass(0, 10));
    let policy = Policy { pickup: OnPickup::Inspect, ..Policy::default() };
    // A keepalive does not tell the next number of its direction.
    assert_eq!(stream.segment(1, &segment(ACK, 699, 5010, 0), &policy), pass(0, 0));
    assert_eq!(stream.segment(1, &segment(ACK, 700, 5010, 4), &policy), pass(0, 4));
    // Bytes that took another way.
    assert_eq!(stream.segment(1, &segment(ACK, 704, 5110, 0), &policy), pass(0, 0));
    assert_eq!(stream.segment(0, &segment(ACK, 5110, 704, 8), &policy), pass(0, 8));
}

/// A segment that is sent in front of a SYN must not hide the connection.
#[test]
fn a_stray_segment_hides_nothing() {
    let mut stream = TcpStream::default();
    assert_eq!(send(&mut stream, 0, segment(ACK, 1, 1, 0)), Outcome::Stop(Cause::NoSyn));
    send(&mut stream, 0, segment(SYN, 99, 0, 0));
    assert_eq!(send(&mut stream, 1, segment(SYN | ACK, 4, 555, 0)), pass(0, 0), "another handshake");
    assert_eq!(stream.status(), Status::Passed(Cause::NoSyn));
    send(&mut stream, 1, segment(SYN | ACK, 4, 100, 0));
    assert_eq!(send(&mut stream, 0, segment(ACK, 100, 5, 10)), pass(0, 10));
    assert_eq!(send(&mut stream, 1, segment(ACK, 5, 110, 3)), pass(0, 3));
    // Nor with data on the SYN: it comes again behind the handshake.
    let mut stream = TcpStream::default();
    assert_eq!(send(&mut stream, 0, segment(ACK, 1, 1, 0)), Outcome::Stop(Cause::NoSyn));
    assert_eq!(send(&mut stream, 0, segment(SYN, 99, 0, 20)), Outcome::Drop(Cause::OutsideWindow));
    send(&mut stream, 0, segment(SYN, 99, 0, 0));
    send(&mut stream, 1, segment(SYN | ACK, 4, 100, 0));
    assert_eq!(send(&mut stream, 0, segment(ACK, 100, 5, 20)), pass(0, 20));
}

#[test]
fn acknowledgements_of_bytes_that_were_not_seen_are_dropped() {
    let mut stream = open([1000, 5]);
    // All bytes behind a SYN come by here: nobody has got these.
    for seq in [99, 5] {
        let outcome = send(&mut stream, 1, segment(ACK, seq, 2000, 0));
        assert_eq!(outcome, Outcome::Drop(Cause::OutsideWindow));
    }
    assert_eq!(send(&mut stream, 0, segment(ACK, 1000, 5, 9)), pass(0, 9));
}

/// The bytes behind a SYN that the receiver ignores are no copies of what has gone on.
#[test]
fn bytes_in_front_of_the_syn_do_not_go_on() {
    let mut stream = open([1000, 5]);
    assert_eq!(send(&mut stream, 0, segment(ACK, 999, 5, 1)), pass(0, 0), "a keepalive with a byte");
    for (seq, len) in [(900, 50), (999, 2), (998, 1), (990, 100)] {
        let outcome = send(&mut stream, 0, segment(ACK, seq, 5, len));
        assert_eq!(outcome, Outcome::Drop(Cause::OutsideWindow), "{seq} {len}");
    }
    assert_eq!(send(&mut stream, 0, segment(ACK, 1000, 5, 10)), pass(0, 10));
    // A reset and a SYN that never reach the receiver; the connection goes on behind them.
    send(&mut stream, 0, segment(RST, 1010, 0, 0));
    send(&mut stream, 0, segment(SYN, 500_000, 0, 0));
    assert_eq!(send(&mut stream, 0, segment(ACK, 1010, 5, 10)), pass(0, 10));
}

/// Numbers wrap: after four GiB, a retransmission may be in front of the SYN's number.
#[test]
fn retransmissions_of_long_streams_go_on() {
    let mut stream = open([1000, 5]);
    let mut next = 1000u32;
    for _ in 0..(1u64 << 32) / 65_000 + 1 {
        assert_eq!(send(&mut stream, 0, segment(ACK, next, 5, 65_000)), pass(0, 65_000));
        next = next.wrapping_add(65_000);
    }
    assert_eq!(send(&mut stream, 0, segment(ACK, next.wrapping_sub(65_000), 5, 65_000)), pass(65_000, 0));
}

/// SYN cookies change after a while (RFC 4987, 3.6): the last answer before an acknowledgement counts.
#[test]
fn an_answer_with_another_number_replaces_the_first() {
    for first in [7u32, 90_000] {
        let mut stream = TcpStream::default();
        send(&mut stream, 0, segment(SYN, 99, 0, 0));
        send(&mut stream, 1, segment(SYN | ACK, first, 100, 0));
        send(&mut stream, 1, segment(SYN | ACK, 5000, 100, 0));
        assert_eq!(stream.next(1), Some(5001));
        send(&mut stream, 0, segment(ACK, 100, 5001, 0));
        // The first acknowledgement decides.
        send(&mut stream, 1, segment(SYN | ACK, first, 100, 0));
        assert_eq!(send(&mut stream, 1, segment(ACK, 5001, 100, 20)), pass(0, 20), "{first}");
    }
}

/// An answer that the client does not accept, in front of the one that it accepts.
#[test]
fn a_wrong_answer_hides_nothing() {
    for wrong in [(90_000, 555), (7, 555), (90_000, 7)] {
        let mut stream = TcpStream::default();
        send(&mut stream, 0, segment(SYN, 99, 0, 0));
        send(&mut stream, 1, segment(SYN | ACK, wrong.0, wrong.1, 0));
        send(&mut stream, 0, segment(RST, wrong.1, 0, 0));
        send(&mut stream, 1, segment(SYN | ACK, 5000, 100, 0));
        send(&mut stream, 0, segment(ACK, 100, 5001, 0));
        assert_eq!(send(&mut stream, 1, segment(ACK, 5001, 100, 20)), pass(0, 20), "{wrong:?}");
        assert_eq!(send(&mut stream, 0, segment(ACK, 100, 5021, 20)), pass(0, 20), "{wrong:?}");
    }
}

/// Both ends have forgotten a connection that is read, and open another one. Nobody has seen a reset.
#[test]
fn an_answered_syn_begins_again() {
    for pickup in [OnPickup::Pass, OnPickup::Inspect] {
        let policy = Policy { pickup, ..Policy::default() };
        let mut stream = open([1000, 5]);
        if pickup == OnPickup::Inspect {
            // A stray segment with a greater number than the connection.
            stream = TcpStream::default();
            assert_eq!(stream.segment(0, &segment(ACK, 900_000, 5, 10), &policy), pass(0, 10));
        }
        stream.segment(0, &segment(SYN, 8000, 0, 0), &policy);
        let restart = View { is_restart: true, ..View::NONE };
        let answer = stream.segment(1, &segment(SYN | ACK, 300, 8001, 0), &policy);
        assert_eq!(answer, Outcome::Pass(restart, Cause::None));
        assert_eq!(stream.segment(0, &segment(ACK, 8001, 301, 10), &policy), pass(0, 10));
        assert_eq!(stream.segment(1, &segment(ACK, 301, 8011, 10), &policy), pass(0, 10));
    }
}

/// The naive model: all bytes of a direction by number, and copies of the segments that wait.
#[derive(Default)]
struct Model {
    bytes: Vec<u8>,
    waiting: Vec<(usize, Vec<u8>)>,
}

impl Model {
    fn send(&mut self, from: usize, bytes: &[u8]) {
        self.waiting.push((from, bytes.to_vec()));
        // The first of the lowest.
        while let Some(at) = (0..self.waiting.len()).min_by_key(|&at| self.waiting[at].0)
            && self.waiting[at].0 <= self.bytes.len()
        {
            let (from, bytes) = self.waiting.remove(at);
            let known = (self.bytes.len() - from).min(bytes.len());
            self.bytes.extend_from_slice(&bytes[known..]);
        }
    }
}

/// The caller's part: it holds segments and reads what is new.
struct Reader {
    stream: TcpStream,
    initial: u32,
    held: Vec<(HeldRange, Vec<u8>)>,
    bytes: Vec<u8>,
    is_ended: bool,
}

impl Reader {
    fn read(&mut self, view: View, bytes: &[u8]) {
        assert!(!self.is_ended || view.is_none(), "bytes behind the end");
        let (skip, len) = (usize::from(view.skip), usize::from(view.len));
        assert_eq!(skip + len, bytes.len());
        self.bytes.extend_from_slice(&bytes[skip..]);
        self.is_ended |= view.is_end;
    }

    fn send(&mut self, from: usize, bytes: &[u8], flags: u8) {
        let seq = self.initial.wrapping_add(from as u32);
        let outcome = send(&mut self.stream, 0, segment(ACK | flags, seq, 5, bytes.len() as u16));
        match outcome {
            Outcome::Pass(view, _) => self.read(view, bytes),
            Outcome::Hold(range) => {
                // In front of those with a greater number.
                let later = |(held, _): &(HeldRange, _)| is_after(held.from, range.from);
                let at = self.held.iter().position(later).unwrap_or(self.held.len());
                self.held.insert(at, (range, bytes.to_vec()));
                self.stream.note_held(0);
            }
            Outcome::Drop(Cause::BehindEnd) => assert!(self.is_ended),
            other => panic!("{other:?}"),
        }
        while let Some((range, _)) = self.held.first()
            && self.stream.may_hold(0)
        {
            match self.stream.next_held(0, *range) {
                NextHeld::Wait => break,
                NextHeld::Pass(view) => {
                    let (_, bytes) = self.held.remove(0);
                    self.read(view, &bytes);
                }
                NextHeld::Drop => drop(self.held.remove(0)),
            }
        }
    }
}

proptest! {
    /// Segments in any order, repeated, with any borders and with different bytes where they overlap: the
    /// bytes that are read are those of the naive model, and in the end all are read.
    #[test]
    fn all_bytes_are_read_once(
        initial in prop_oneof![any::<u32>(), (u32::MAX - 300)..u32::MAX],
        len in 1usize..400,
        segments in prop::collection::vec((0usize..400, 1usize..90, any::<u8>()), 0..60),
        step in 1usize..100,
    ) {
        let mut reader = Reader {
            stream: open([initial, 5]), initial, held: Vec::new(), bytes: Vec::new(), is_ended: false,
        };
        let mut model = Model::default();
        for (from, size, byte) in segments {
            let (from, to) = (from.min(len), (from + size).min(len));
            let bytes = vec![byte; to - from];
            // The last segment has the FIN.
            let flags = if to == len { FIN } else { 0 };
            reader.send(from, &bytes, flags);
            model.send(from, &bytes);
            prop_assert_eq!(&reader.bytes, &model.bytes);
            prop_assert_eq!(reader.is_ended, model.bytes.len() == len && reader.stream.is_ended(0));
        }
        for from in (0..len).step_by(step) {
            let to = (from + step).min(len);
            reader.send(from, &vec![0xaa; to - from], if to == len { FIN } else { 0 });
            model.send(from, &vec![0xaa; to - from]);
        }
        prop_assert_eq!(&reader.bytes, &model.bytes);
        prop_assert_eq!(reader.bytes.len(), len);
        prop_assert!(reader.is_ended && reader.held.is_empty());
    }

    /// Any segments at all: nothing panics, and the views of each direction are as long as the numbers say.
    #[test]
    fn any_segments(
        segments in prop::collection::vec(
            (0usize..2, any::<u8>(), prop_oneof![0u32..50, any::<u32>()], prop_oneof![0u32..50, any::<u32>()],
             0u16..20, prop::option::of(any::<u8>())),
            0..50,
        ),
        pickup in prop_oneof![Just(OnPickup::Pass), Just(OnPickup::Inspect), Just(OnPickup::Reset)],
    ) {
        let mut stream = TcpStream::default();
        let policy = Policy { pickup, ..Policy::default() };
        for (direction, flags, seq, ack, len, scale) in segments {
            let before = stream.next(direction);
            let segment = Segment { seq, ack, len, window: 9, flags, scale, permits_sack: false };
            if let Outcome::Pass(view, _) = stream.segment(direction, &segment, &policy) {
                prop_assert!(view.skip + view.len <= len);
                if let (Some(before), Some(after)) = (before, stream.next(direction))
                    && !view.is_restart
                    && flags & SYN == 0
                {
                    prop_assert_eq!(after.wrapping_sub(before), u32::from(view.len));
                }
            }
        }
    }
}
