//! Bytes that are replaced, held back and repeated, and their numbers.

use crate::bench::{ACK, Bench, FIN, Left, SYN, segment};
use crate::count::Count;
use crate::substitute::Substitute;
use mmb_nf::harness::Harness;
use mmb_nf::{ChainVerdict, DropReason, Registry, StageCounters};
use mmb_packet::build::{Frame, Ip4, Ip6, Tcp};

/// The default of `stream-hold-time` in milliseconds.
const HOLD_TIME: u32 = 300;

#[test]
fn a_word_of_the_same_length_leaves_in_its_packet() {
    let mut bench = Bench::new("nf add w substitute evil good", "w");
    assert_eq!(bench.send(0, 0, 0, ACK, "an evil word"), [segment(0, 0, 0, ACK, "an good word")]);
    // Repeated with other borders, and with other bytes.
    assert_eq!(bench.send(0, 4, 0, ACK, "vilXX"), [segment(0, 3, 0, ACK, "good w")]);
    assert_eq!(bench.send(1, 0, 12, ACK, ""), [segment(1, 0, 12, ACK, "")]);
}

/// Segments that grow share the room of those behind them in a vector: not each leaves as a full one and a
/// small one.
#[test]
fn bytes_that_do_not_fit_leave_with_the_next_ones() {
    let mut bench = Bench::new("nf add w substitute evil harmless", "w");
    // Without an option, a receiver takes 536 bytes (RFC 9293, 3.7.1).
    let full = |word: &str| format!("{word}{}", "x".repeat(536 - word.len()));
    let [evil, none] = [full("evil"), full("good")];
    let harmless = evil.replace("evil", "harmless");
    let frames = |bench: &Bench, payloads: &[&String], flags: &[u8]| {
        let at = |n| payloads.iter().take(n).map(|payload| payload.len()).sum::<usize>() as i32;
        let frame = |n: usize| bench.frame(0, at(n), 0, ACK | flags[n], payloads[n].as_bytes());
        (0..payloads.len()).map(frame).collect::<Vec<_>>()
    };
    let check = |left: Vec<Left>, lens: &[usize], expected: &str| {
        let mut bytes = String::new();
        for (_, from, _, flags, payload) in &left {
            assert_eq!((*from as usize, *flags & !8), (bytes.len(), ACK), "in order");
            bytes += payload;
        }
        assert_eq!(left.iter().map(|left| left.4.len()).collect::<Vec<_>>(), lens);
        assert!(bytes == expected);
        left
    };
    let sent = frames(&bench, &[&evil; 8], &[0; 8]);
    let sent = bench.harness.send("c", &sent);
    let left = bench.left(&sent);
    check(left, &[536, 536, 536, 536, 536, 536, 536, 536, 32], &harmless.repeat(8));
    // Nothing waits for the next vector, or in front of a segment that stays as it is. The last of pushed
    // bytes are pushed.
    let mut bench = Bench::new("nf add w substitute evil harmless", "w");
    let sent = frames(&bench, &[&evil, &none, &evil, &evil], &[0, 0, 8, 8]);
    let sent = bench.harness.send("c", &sent);
    let left = bench.left(&sent);
    let expected = format!("{harmless}{none}{harmless}{harmless}");
    let left = check(left, &[536, 4, 536, 536, 536, 8], &expected);
    assert_eq!(left.iter().map(|left| left.3 & 8).collect::<Vec<_>>(), [0, 0, 0, 0, 0, 8]);
}

/// Forbidden bytes do not leave in segments that the receiver discards. RFC 9293, 3.10.7.4: it answers a
/// segment with old numbers by an acknowledgement.
#[test]
fn segments_with_old_numbers_leave_without_their_bytes() {
    let mut bench = Bench::new("nf add w substitute evil harmless", "w");
    bench.send(0, 0, 0, ACK, "an evil word");
    // One of three segments is acknowledged, which the sender does not learn of.
    bench.send(0, 12, 0, ACK, " and another evil");
    bench.send(1, 0, 16, ACK, "");
    assert_eq!(bench.send(0, 0, 0, ACK, "an evil word"), [segment(0, 4, 0, ACK, "")]);
    assert_eq!(bench.send(0, 3, 0, ACK, "evil"), [segment(0, 7, 0, ACK, "")]);
    // The first bytes were acknowledged, the others were not.
    let left = bench.send(0, 3, 0, ACK, "EVILEVIL and another EVIL");
    assert_eq!(left, [segment(0, 16, 0, ACK, " and another harmless")]);
    bench.send(1, 0, 37, ACK, "");
    for old in ["an evil word and another evil", "evil evil evil"] {
        let at = 37 - old.len() as i32;
        assert_eq!(bench.send(0, 29 - old.len() as i32, 0, ACK, old), [segment(0, at, 0, ACK, "")]);
    }
    // Keepalives in front of the first byte that is not acknowledged, without a byte and with one.
    assert_eq!(bench.send(0, 28, 0, ACK, ""), [segment(0, 36, 0, ACK, "")]);
    assert_eq!(bench.send(0, 28, 0, ACK, "e"), [segment(0, 36, 0, ACK, "")]);
    // The end, alone and behind bytes.
    assert_eq!(bench.send(0, 29, 0, ACK | FIN, ""), [segment(0, 37, 0, ACK | FIN, "")]);
    bench.send(1, 0, 38, ACK, "");
    assert_eq!(bench.send(0, 29, 0, ACK | FIN, ""), [segment(0, 37, 0, ACK | FIN, "")]);
    assert_eq!(bench.send(0, 25, 0, ACK | FIN, "evil"), [segment(0, 37, 0, ACK | FIN, "")]);
}

/// A receiver without room is asked for its window by a byte behind it (RFC 9293, 3.8.6.1): an edited one.
#[test]
fn window_probes_have_edited_bytes() {
    let mut bench = Bench::with_window("nf add w substitute evil harmless", "w", 3);
    bench.send(0, 0, 0, ACK, "abc");
    bench.window = 0;
    assert_eq!(bench.send(1, 0, 3, ACK, ""), [segment(1, 0, 3, ACK, "")]);
    // Of the word, the first byte of what takes its place.
    assert_eq!(bench.send(0, 3, 0, ACK, "evil"), [segment(0, 3, 0, ACK, "h")]);
    assert_eq!(bench.send(0, 3, 0, ACK, "e"), [segment(0, 3, 0, ACK, "h")]);
    // Without a byte, as Linux does.
    assert_eq!(bench.send(0, 2, 0, ACK, ""), [segment(0, 2, 0, ACK, "")]);
    bench.window = 10_000;
    let mut left = bench.send(1, 0, 4, ACK, "");
    left.sort();
    assert_eq!(left, [segment(0, 4, 0, ACK | 8, "armless"), segment(1, 0, 3, ACK, "")]);
}

#[test]
fn numbers_behind_a_longer_word_are_translated() {
    let mut bench = Bench::new("nf add w substitute evil harmless", "w");
    assert_eq!(bench.send(0, 0, 0, ACK, "an evil word"), [segment(0, 0, 0, ACK, "an harmless word")]);
    assert_eq!(bench.send(0, 12, 0, ACK, "mord"), [segment(0, 16, 0, ACK, "mord")]);
    // Inside of the word, behind it, and all.
    for (acked, told) in [(2, 2), (3, 3), (5, 3), (10, 3), (11, 7), (16, 12), (20, 16)] {
        assert_eq!(bench.send(1, 0, acked, ACK, ""), [segment(1, 0, told, ACK, "")], "{acked}");
    }
    assert_eq!(bench.send(0, 16, 0, ACK | FIN, ""), [segment(0, 20, 0, ACK | FIN, "")]);
    assert_eq!(bench.send(1, 0, 21, ACK, "ok"), [segment(1, 0, 17, ACK, "ok")]);
    assert_eq!(bench.send(0, 17, 2, ACK, ""), [segment(0, 21, 2, ACK, "")]);
    // The segment with the word has left in another one, and is no drop.
    let counters = bench.harness.runner().counters();
    let sum = |of: fn(&StageCounters) -> u64| counters.iter().map(of).sum::<u64>();
    assert_eq!((sum(|stage| stage.consumed), sum(|stage| stage.drops)), (1, 0));
}

#[test]
fn a_segment_that_is_removed_whole_is_acknowledged() {
    let mut bench = Bench::new("nf add w substitute evil", "w");
    assert_eq!(bench.send(0, 0, 0, ACK, "evil"), [segment(1, 0, 4, ACK, "")]);
    assert_eq!(bench.send(0, 4, 0, ACK, "evilgood"), [segment(0, 0, 0, ACK, "good")]);
    assert_eq!(bench.send(0, 4, 0, ACK, "evilgood"), [segment(0, 0, 0, ACK, "good")]);
    assert_eq!(bench.send(1, 0, 4, ACK, ""), [segment(1, 0, 12, ACK, "")]);
}

#[test]
fn nothing_of_a_word_goes_on_before_it_is_decided() {
    let mut bench = Bench::new("nf add w substitute evil [removed]", "w");
    assert_eq!(bench.send(0, 0, 0, ACK, "an ev"), [segment(0, 0, 0, ACK, "an ")]);
    assert_eq!(bench.send(1, 0, 3, ACK, ""), [segment(1, 0, 3, ACK, "")]);
    assert_eq!(bench.send(0, 5, 0, ACK, "i"), []);
    assert_eq!(bench.send(0, 6, 0, ACK, "l!"), [segment(0, 3, 0, ACK, "[removed]!")]);
    // The beginning of a word at the end of the stream is none.
    assert_eq!(bench.send(0, 8, 0, ACK | FIN, "evi"), [segment(0, 13, 0, ACK | FIN, "evi")]);
}

#[test]
fn bytes_that_wait_go_on_if_the_sender_repeats_them_behind_the_hold_time() {
    let mut bench = Bench::new("nf add w substitute evil good", "w");
    assert_eq!(bench.send(0, 0, 0, ACK, "a devi"), [segment(0, 0, 0, ACK, "a d")]);
    // Something in front of them is lost: nothing is let out.
    assert_eq!(bench.send(0, 0, 0, ACK, "a devi"), [segment(0, 0, 0, ACK, "a d")]);
    bench.send(1, 0, 3, ACK, "");
    // They are acknowledged but for the last one.
    assert_eq!(bench.send(0, 3, 0, ACK, "evi"), [segment(1, 0, 5, ACK, "")]);
    assert_eq!(bench.send(0, 5, 0, ACK, "i"), []);
    bench.harness.wait(HOLD_TIME - 1);
    assert_eq!(bench.send(0, 5, 0, ACK, "i"), []);
    // The acknowledgement was lost.
    assert_eq!(bench.send(0, 3, 0, ACK, "evi"), [segment(1, 0, 5, ACK, "")]);
    // The receiver's acknowledgements do not take it back.
    assert_eq!(bench.send(1, 0, 3, ACK, "x"), [segment(1, 0, 5, ACK, "x")]);
    bench.harness.wait(1);
    assert_eq!(bench.send(0, 5, 0, ACK, "i"), [segment(0, 3, 0, ACK, "evi")]);
    // Lost behind mmb: the sender has one byte of them.
    assert_eq!(bench.send(0, 5, 0, ACK, "i"), [segment(0, 3, 0, ACK, "evi")]);
    assert_eq!(bench.send(1, 1, 3, ACK, ""), [segment(1, 1, 5, ACK, "")]);
    assert_eq!(bench.send(1, 1, 6, ACK, ""), [segment(1, 1, 6, ACK, "")]);
    assert_eq!(bench.send(0, 6, 1, ACK, "l"), [segment(0, 6, 1, ACK, "l")]);
}

#[test]
fn a_word_does_not_get_through_if_half_of_it_is_repeated() {
    let mut bench = Bench::new("nf add w substitute evil harmless", "w");
    bench.send(1, 0, 0, ACK, "");
    assert_eq!(bench.send(0, 0, 0, ACK, "evi"), []);
    assert_eq!(bench.send(0, 0, 0, ACK, "evi"), [segment(1, 0, 2, ACK, "")]);
    assert_eq!(bench.send(0, 3, 0, ACK, "l!"), [segment(0, 0, 0, ACK, "harmless!")]);
    // The first byte that the sender has not an acknowledgement of is in the word.
    assert_eq!(bench.send(0, 2, 0, ACK, "il!"), [segment(0, 0, 0, ACK, "harmless!")]);
    assert_eq!(bench.send(0, 5, 0, ACK | FIN, ""), [segment(0, 9, 0, ACK | FIN, "")]);
    assert_eq!(bench.send(1, 0, 4, ACK, ""), [segment(1, 0, 2, ACK, "")]);
    assert_eq!(bench.send(1, 0, 10, ACK, ""), [segment(1, 0, 6, ACK, "")]);
}

#[test]
fn bytes_in_front_of_early_segments_are_acknowledged_and_wait() {
    let mut bench = Bench::new("nf add w substitute evil harmless", "w");
    bench.send(1, 0, 0, ACK, "");
    assert_eq!(bench.send(0, 0, 0, ACK, "e"), []);
    assert_eq!(bench.send(0, 3, 0, ACK, "l"), [segment(1, 0, 0, ACK, "")]);
    bench.harness.wait(10 * HOLD_TIME);
    assert_eq!(bench.send(0, 0, 0, ACK, "e"), [segment(1, 0, 1, ACK, "")]);
    let word = bench.send(0, 1, 0, ACK, "vi");
    assert_eq!(word, [segment(0, 0, 0, ACK, "harmless")]);
    // The word is lost, and then the end: the sender has the end alone.
    assert_eq!(bench.send(0, 4, 0, ACK | FIN, ""), [segment(0, 8, 0, ACK | FIN, "")]);
    assert_eq!(bench.send(1, 0, 0, ACK, ""), [segment(1, 0, 1, ACK, "")]);
    assert_eq!(bench.send(0, 1, 0, ACK, "vil"), [segment(0, 0, 0, ACK, "harmless")]);
}

#[test]
fn pre_acknowledged_bytes_arrive_when_their_function_has_left() {
    let mut bench = Bench::new("nf add w substitute evil harmless", "w");
    bench.send(1, 0, 0, ACK, "");
    assert_eq!(bench.send(0, 0, 0, ACK, "ev"), []);
    assert_eq!(bench.send(0, 5, 0, ACK, "."), [segment(1, 0, 0, ACK, "")]);
    assert_eq!(bench.send(0, 0, 0, ACK, "ev"), [segment(1, 0, 2, ACK, "")]);
    bench.harness.load("nf add n count-packets\nchain add c n").expect("valid");
    let mut left = bench.send(0, 2, 0, ACK, "il!");
    left.sort();
    assert!(left.contains(&segment(0, 0, 0, ACK, "ev")), "{left:?}");
    // What has gone on is lost. The sender repeats what it has.
    assert_eq!(bench.send(1, 0, 0, ACK, ""), [segment(1, 0, 2, ACK, "")]);
    assert_eq!(bench.send(0, 2, 0, ACK, "il!."), [segment(0, 0, 0, ACK, "ev")]);
    assert_eq!(bench.send(1, 0, 2, ACK, ""), [segment(1, 0, 2, ACK, "")]);
    assert_eq!(bench.send(0, 2, 0, ACK, "il!."), [segment(0, 2, 0, ACK, "il!.")]);
}

#[test]
fn two_functions_edit_one_after_the_other() {
    let lines = "nf add a substitute abc d\nnf add b substitute dd evil";
    let mut bench = Bench::new(lines, "a then b");
    assert_eq!(bench.send(0, 0, 0, ACK, "xab"), [segment(0, 0, 0, ACK, "x")]);
    assert_eq!(bench.send(0, 3, 0, ACK, "cab"), []);
    assert_eq!(bench.send(0, 6, 0, ACK, "cy"), [segment(0, 1, 0, ACK, "evily")]);
    // Replies meet the functions in reverse order.
    assert_eq!(bench.send(1, 0, 3, ACK, "abcd"), [segment(1, 0, 1, ACK, "d")]);
    assert_eq!(bench.send(1, 0, 6, ACK, "abcd"), [segment(1, 0, 8, ACK, "d")]);
}

#[test]
fn functions_that_edit_are_next_to_the_others() {
    let mut registry = Registry::default();
    registry.add_stream::<Substitute>();
    registry.add_stream::<Count>();
    let lines = "nf add a substitute x y\nnf add b substitute z\nnf add again flow\nchain add c a then [udp then again] then b";
    assert!(Harness::new(registry, lines).is_err());
}

#[test]
fn ip6_and_a_reset() {
    let mut bench = Bench::new("nf add w substitute evil harmless", "w");
    bench.send(0, 0, 0, ACK, "evil");
    assert_eq!(bench.send(0, 4, 0, ACK | 4, ""), [segment(0, 8, 0, ACK | 4, "")]);
    // A reset with a number far away is not one that the receiver expects.
    assert_eq!(bench.send(0, 1004, 0, 4, ""), [segment(0, 1008, 0, 4, "")]);
    let ends = [[1u16; 8], [2u16; 8]];
    bench.net = [Ip6::new(ends[0], ends[1]).into(), Ip6::new(ends[1], ends[0]).into()];
    bench.open();
    let frame = bench.frame(0, 0, 0, ACK, b"evil");
    let sent = bench.harness.send("c", &[frame]);
    assert_eq!(sent[0].verdict, ChainVerdict::Consume);
    let (_, frame) = &sent[0].emitted[0];
    mmb_nf::testing::assert_checksums(frame);
    assert!(frame.ends_with(b"harmless") && frame.len() == 54 + 20 + 8);
}

/// A host that opens more connections than there is room for does not get one that is not edited.
#[test]
fn a_connection_without_room_does_not_begin() {
    let mut registry = Registry::default();
    registry.add_stream::<Substitute>();
    let lines = "nf add a substitute evil good\nchain add c a";
    let mut harness = Harness::with_sessions(registry, lines, 70_000).expect("valid");
    let syn = |n: u32| {
        let source = [10, 1, (n >> 14) as u8, 1];
        let tcp = Tcp { seq: 1, flags: SYN, ..Tcp::new(1000 + (n & 0x3fff) as u16, 80) };
        Frame::new(Ip4::new(source, [10, 0, 0, 2]), tcp).build()
    };
    let mut refused = 0;
    for first in (0..65_600).step_by(200) {
        let frames: Vec<_> = (first..first + 200).map(syn).collect();
        let sent = harness.send("c", &frames);
        refused +=
            sent.iter().filter(|sent| sent.verdict == ChainVerdict::Drop(DropReason::HeldFull)).count();
    }
    assert_eq!(refused, 65_600 - 65_536);
    harness.end_all();
    assert_eq!(harness.send("c", &[syn(0)])[0].verdict, ChainVerdict::Pass);
}
