//! Stream functions that edit, between two ends that follow the numbers.

use mmb_flow::SessionSettings;
use mmb_nf::harness::{Harness, Sent};
use mmb_nf::{ArgError, ChainVerdict, DropReason, Registry, Setup, StageCounters, StreamFunction};
use mmb_packet::build::{Frame, Ip4, Ip6, Net, Tcp};
use mmb_stream::{OnMptcp, Policy};

#[path = "common/left.rs"]
mod left;
#[path = "common/substitute.rs"]
mod substitute;

use substitute::Substitute;

/// Counts bytes, and does not edit.
struct Count;

impl StreamFunction for Count {
    const TYPE: &'static str = "count-bytes";
    const USAGE: &'static str = "";
    const HELP: &'static str = "counts bytes";
    const READS_CONTENT: bool = false;
    type State = u32;
    type Local = ();

    fn new(_: &Setup<'_>) -> Result<Self, ArgError> {
        Ok(Count)
    }
}

/// The default of `stream-hold-time` in milliseconds.
const HOLD_TIME: u32 = 300;
const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 1;
/// Offset of the TCP header of IPv4.
const TCP: usize = 34;

struct Bench {
    harness: Harness,
    net: [Net; 2],
    initial: [u32; 2],
    /// The window of segments.
    window: u16,
}

/// A segment that has left: direction, distance of its number from the first byte, acknowledged bytes of the
/// other direction, flags and payload.
type Left = (usize, i32, i32, u8, String);

impl Bench {
    fn new(functions: &str, chain: &str) -> Bench {
        Bench::with_window(functions, chain, 10_000)
    }

    fn with_window(functions: &str, chain: &str, window: u16) -> Bench {
        let mut registry = Registry::default();
        registry.add_stream::<Substitute>();
        registry.add_stream::<Count>();
        let harness = Harness::new(registry, &format!("{functions}\nchain add c {chain}")).expect("valid");
        let ends = [[10, 0, 0, 1], [10, 0, 0, 2]];
        let net = [Ip4::new(ends[0], ends[1]).into(), Ip4::new(ends[1], ends[0]).into()];
        let mut bench = Bench { harness, net, initial: [1000, 0xffff_fff0], window };
        bench.open();
        bench
    }

    fn open(&mut self) {
        for (direction, flags) in [(0, SYN), (1, SYN | ACK), (0, ACK)] {
            let from = if flags & SYN != 0 { -1 } else { 0 };
            let frame = self.frame(direction, from, 0, flags, b"");
            let sent = self.harness.send("c", std::slice::from_ref(&frame));
            assert_eq!((sent[0].verdict, &sent[0].frame), (ChainVerdict::Pass, &frame));
        }
    }

    /// Returns what is counted of several paths, and of refused edits.
    fn counters(&self) -> Vec<(String, u64)> {
        let contexts = self.harness.program().instances().iter().flat_map(|one| one.stream_counters());
        let is_it = |text: &str| text.contains("several paths") || text.contains("not-editable");
        contexts
            .filter(|(counter, count)| *count != 0 && is_it(counter.text))
            .map(|(counter, count)| (counter.text.to_owned(), count))
            .collect()
    }

    fn frame(&self, direction: usize, from: i32, acked: i32, flags: u8, bytes: &[u8]) -> Vec<u8> {
        let number = |direction: usize, at: i32| self.initial[direction].wrapping_add(at as u32);
        let (seq, ack) = (number(direction, from), number(1 - direction, acked));
        let (sport, dport) = if direction == 0 { (4000, 80) } else { (80, 4000) };
        let tcp = Tcp { seq, ack, flags, window: self.window, ..Tcp::new(sport, dport) };
        Frame::new(self.net[direction].clone(), tcp).payload(bytes).build()
    }

    fn left(&self, sent: &[Sent]) -> Vec<Left> {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let left = left::left(sent, self.initial).into_iter();
        left.map(|one| (one.direction, one.from, one.acked, one.flags, text(one.bytes))).collect()
    }

    /// Sends a segment. Returns what leaves.
    fn send(&mut self, direction: usize, from: i32, acked: i32, flags: u8, bytes: &str) -> Vec<Left> {
        let frame = self.frame(direction, from, acked, flags, bytes.as_bytes());
        let sent = self.harness.send("c", &[frame]);
        let mut left = self.left(&sent);
        let released = self.harness.released();
        left.extend(self.left(&released));
        left
    }
}

fn segment(direction: usize, from: i32, acked: i32, flags: u8, bytes: &str) -> Left {
    (direction, from, acked, flags, bytes.to_owned())
}

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
    bench.harness.load("nf add n count-bytes\nchain add c n").expect("valid");
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

const LONGER: &str = "nf add w substitute evil harmless\nnf add n count-bytes";

#[test]
fn offsets_outlive_the_functions() {
    for chain in ["n", "n then again", "again"] {
        let mut bench = Bench::new(LONGER, "w then n");
        assert_eq!(bench.send(0, 0, 0, ACK, "an evil word"), [segment(0, 0, 0, ACK, "an harmless word")]);
        assert_eq!(bench.send(1, 0, 16, ACK, "one evil"), [segment(1, 0, 12, ACK, "one harmless")]);
        let lines = format!("nf add n count-bytes\nnf add again flow\nchain add c {chain}");
        bench.harness.load(&lines).expect("valid");
        // Further bytes are not edited, and the numbers of both ends stay.
        assert_eq!(bench.send(0, 12, 0, ACK, "evil"), [segment(0, 16, 0, ACK, "evil")]);
        assert_eq!(bench.send(1, 8, 20, ACK, "evil"), [segment(1, 12, 16, ACK, "evil")]);
        // What was edited and is not acknowledged is repeated as it was.
        assert_eq!(bench.send(1, 0, 20, ACK, "one evil"), [segment(1, 0, 16, ACK, "one harmless")]);
        assert_eq!(bench.send(0, 16, 16, ACK, ""), [segment(0, 20, 12, ACK, "")]);
        // The receiver answers what it has got.
        assert_eq!(bench.send(1, 0, 16, ACK, "one evil"), [segment(1, 4, 12, ACK, "")]);
        assert_eq!(bench.send(0, 16, 16, ACK | FIN, ""), [segment(0, 20, 12, ACK | FIN, "")]);
        assert_eq!(bench.send(1, 12, 21, ACK | FIN, ""), [segment(1, 16, 17, ACK | FIN, "")]);
        assert_eq!(bench.send(0, 17, 17, ACK, ""), [segment(0, 21, 13, ACK, "")]);
        bench.harness.end_all();
    }
}

#[test]
fn offsets_outlive_several_functions_and_new_edits_add_to_them() {
    let mut bench = Bench::new(LONGER, "w");
    assert_eq!(bench.send(0, 0, 0, ACK, "evil"), [segment(0, 0, 0, ACK, "harmless")]);
    assert_eq!(bench.send(1, 0, 8, ACK, ""), [segment(1, 0, 4, ACK, "")]);
    // Another function that edits takes the place of the first one, and has its numbers.
    bench.harness.load("nf add r substitute dark bright\nchain add c r").expect("valid");
    assert_eq!(bench.send(0, 4, 0, ACK, "evil dark"), [segment(0, 8, 0, ACK, "evil bright")]);
    assert_eq!(bench.send(1, 0, 19, ACK, ""), [segment(1, 0, 13, ACK, "")]);
    bench.harness.load("nf add n count-bytes\nchain add c n").expect("valid");
    assert_eq!(bench.send(0, 13, 0, ACK, "dark"), [segment(0, 19, 0, ACK, "dark")]);
    bench
        .harness
        .load("nf add n count-bytes\nnf add r substitute dark bright\nchain add c r then n")
        .expect("valid");
    assert_eq!(bench.send(0, 17, 0, ACK, "x"), [segment(0, 23, 0, ACK, "x")]);
    assert_eq!(bench.send(1, 0, 24, ACK, ""), [segment(1, 0, 18, ACK, "")]);
}

#[test]
fn bytes_that_are_held_back_go_on_when_their_function_leaves() {
    for (chain, lines) in [("n", "nf add n count-bytes"), ("r", "nf add r substitute dark bright")] {
        let mut bench = Bench::new(LONGER, "w");
        assert_eq!(bench.send(0, 0, 0, ACK, "an evil ev"), [segment(0, 0, 0, ACK, "an harmless ")]);
        bench.harness.load(&format!("{lines}\nchain add c {chain}")).expect("valid");
        // The reply brings nothing; the next segment brings what was held, in any order.
        let mut left = bench.send(0, 10, 0, ACK, "il!");
        left.sort();
        let bytes: String = left.iter().map(|(.., bytes)| bytes.as_str()).collect();
        assert_eq!((bytes.as_str(), left[0].1), ("evil!", 12), "{left:?}");
        assert_eq!(bench.send(1, 0, 17, ACK, ""), [segment(1, 0, 13, ACK, "")]);
    }
}

/// Bytes that a function holds back when it leaves do not pass by a function that stays.
#[test]
fn bytes_that_a_function_has_not_judged_do_not_go_on() {
    let lines = "nf add a substitute evil harmless\nnf add b substitute ev E\nnf add n count-bytes";
    let mut bench = Bench::new(lines, "a then b then n");
    assert_eq!(bench.send(0, 0, 0, ACK, "an ev"), [segment(0, 0, 0, ACK, "an ")]);
    assert_eq!(bench.send(1, 0, 3, ACK, "an ev"), [segment(1, 0, 3, ACK, "an E")]);
    // `b` has not seen the two bytes.
    bench.harness.load(&format!("{lines}\nchain add c b then n")).expect("valid");
    let mut left = bench.send(0, 3, 4, ACK, "ev");
    left.sort();
    assert_eq!(left, [segment(0, 3, 5, ACK | 4, ""), segment(1, 4, -1000, 4, "")]);
    assert!(bench.send(0, 3, 4, ACK, "evil").iter().all(|(.., bytes)| bytes.is_empty()));
    // `a` has seen what waits for `b`, and nothing waits for `a`.
    let mut bench = Bench::new(lines, "a then b then n");
    assert_eq!(bench.send(0, 0, 0, ACK, "no E"), [segment(0, 0, 0, ACK, "no E")]);
    let lines = "nf add a substitute evil harmless\nnf add b substitute dark bright\nnf add n count-bytes";
    let mut bench = Bench::new(lines, "a then b then n");
    assert_eq!(bench.send(0, 0, 0, ACK, "a dar"), [segment(0, 0, 0, ACK, "a ")]);
    bench.harness.load(&format!("{lines}\nchain add c a then n")).expect("valid");
    let mut left = bench.send(0, 5, 0, ACK, "k evil.");
    left.sort();
    let bytes: String = left.iter().map(|(.., bytes)| bytes.as_str()).collect();
    assert_eq!(bytes, "dark harmless.", "{left:?}");
}

/// Sends a frame, which goes on in its place.
fn one(bench: &mut Bench, frame: &[u8]) -> Vec<u8> {
    let sent = bench.harness.send("c", &[frame.to_vec()]).remove(0);
    assert_eq!((sent.verdict, sent.emitted.len()), (ChainVerdict::Pass, 0));
    mmb_nf::testing::assert_checksums(&sent.frame);
    sent.frame
}

/// RFC 2018: a sender may drop what is in a block. So no block tells of bytes whose edit the receiver lacks.
#[test]
fn selective_acknowledgements_promise_no_more_than_has_arrived() {
    let lines = "nf add w substitute evil harmless\nnf add r substitute gone";
    let mut bench = Bench::new(lines, "w then r");
    assert_eq!(bench.send(0, 0, 0, ACK, "an evil word"), [segment(0, 0, 0, ACK, "an harmless word")]);
    assert_eq!(bench.send(0, 12, 0, ACK, "gone, and on"), [segment(0, 16, 0, ACK, ", and on")]);
    // Around the longer word, within it, behind what was removed, and all.
    let blocks =
        [((11, 16), (7, 16)), ((5, 14), (7, 10)), ((1, 9), (1, 3)), ((16, 24), (16, 24)), ((1, 24), (1, 24))];
    let [initial, seq] = bench.initial;
    let option = |(from, to): (u32, u32)| {
        let number = |at: u32| initial.wrapping_add(at).to_be_bytes();
        [&[1, 1, 5, 10][..], &number(from), &number(to)].concat()
    };
    let mut told = |block| {
        let tcp = Tcp { seq, ack: initial, flags: ACK, window: 10_000, ..Tcp::new(80, 4000) };
        let frame = Frame::new(bench.net[1].clone(), Tcp { options: option(block), ..tcp }).build();
        one(&mut bench, &frame)[TCP + 20..TCP + 32].to_vec()
    };
    for (block, expected) in blocks {
        assert_eq!(told(block), option(expected), "{block:?}");
    }
    // Nothing is left of a block within the longer word.
    assert_eq!(told((4, 9)), [1; 12]);
}

/// RFC 9293, 3.8.6: the right edge of a window does not move back, also if bytes were inserted.
#[test]
fn the_right_edge_of_a_window_stays() {
    let mut bench = Bench::new("nf add w substitute evil harmless", "w");
    bench.send(0, 0, 0, ACK, "an evil word");
    let mut edge = 10_000;
    for (acked, window, told) in [(3, 9_997, 3), (16, 9_984, 12), (16, 9_984, 12), (16, 10_000, 12)] {
        bench.window = window;
        let frame = bench.frame(1, 0, acked, ACK, b"");
        let left = one(&mut bench, &frame);
        let word = |at: usize| i32::from(u16::from_be_bytes([left[TCP + at], left[TCP + at + 1]]));
        let number = u32::from_be_bytes(left[TCP + 8..TCP + 12].try_into().expect("four bytes"));
        assert_eq!(number, bench.initial[0] + told as u32);
        assert!(told + word(14) >= edge, "{acked}: {} in front of {edge}", told + word(14));
        edge = told + word(14);
    }
    // 10,016 of the receiver are 10,012 of the sender.
    assert_eq!(edge, 10_012);
}

/// RFC 3168, 6.1.2: one segment has CWR. RFC 9293, 3.8.6.2: PSH is behind the last byte. All parts have been
/// through the congestion that the codepoint of the packet tells of (RFC 3168, 5).
#[test]
fn flags_of_a_segment_that_is_split() {
    const PSH: u8 = 8;
    const ECE: u8 = 0x40;
    const CWR: u8 = 0x80;
    let mut bench = Bench::new("nf add w substitute evil harmless", "w");
    let text = format!("evil{}", "x".repeat(532));
    let left = bench.send(0, 0, 0, ACK | PSH | ECE | CWR, &text);
    let flags: Vec<_> = left.iter().map(|left| (left.3, left.4.len())).collect();
    assert_eq!(flags, [(ACK | ECE | CWR, 536), (ACK | ECE | PSH, 4)]);
    let mut marked = bench.frame(0, 536, 0, ACK, text.as_bytes());
    // Congestion experienced; the sum of the header changes by as much.
    marked[15] = 3;
    let sum = u16::from_be_bytes([marked[24], marked[25]]) - 3;
    marked[24..26].copy_from_slice(&sum.to_be_bytes());
    let sent = bench.harness.send("c", &[marked]);
    assert_eq!(bench.left(&sent).len(), 2);
    assert!(sent[0].emitted.iter().all(|(_, frame)| frame[15] == 3));
}

/// A connection that is edited has one path: RFC 8684 falls back to TCP without its option.
#[test]
fn multipath_is_not_negotiated() {
    let mut bench = Bench::new("nf add w substitute evil harmless", "w");
    let syn = multipath_syn(&bench, 0, b"");
    let left = one(&mut bench, &syn);
    assert_eq!(left[TCP + 20..TCP + 32], [2, 4, 5, 180, 1, 1, 1, 1, 3, 3, 7, 0]);
    assert_eq!(bench.counters(), [("options of several paths removed".to_owned(), 1)]);
}

/// A SYN or its answer on other ports, with MP_CAPABLE (RFC 8684, 3.1).
fn multipath_syn(bench: &Bench, direction: usize, data: &[u8]) -> Vec<u8> {
    let options = vec![2, 4, 5, 180, 30, 4, 1, 0, 3, 3, 7, 0];
    let ports = [(4001, 80), (80, 4001)][direction];
    let flags = [SYN, SYN | ACK][direction];
    let ack = [0, 1001][direction];
    let tcp = Tcp { seq: 1000, ack, flags, options, ..Tcp::new(ports.0, ports.1) };
    Frame::new(bench.net[direction].clone(), tcp).payload(data).build()
}

/// With `set stream-mptcp pass`, a connection whose ends both ask for several paths is not edited. If the
/// server does not, or the SYN has data, it is.
#[test]
fn connections_of_several_paths_pass_unedited_by_a_setting() {
    for (is_answered, data, is_edited) in [(true, "", false), (false, "", true), (true, "data", true)] {
        let mut bench = Bench::new("nf add w substitute evil harmless", "w");
        let streams = Policy { mptcp: OnMptcp::Pass, ..Policy::default() };
        let program = bench.harness.program().clone();
        bench
            .harness
            .runner()
            .set_program(&program, &SessionSettings { streams, ..SessionSettings::default() });
        let syn = multipath_syn(&bench, 0, data.as_bytes());
        let left = one(&mut bench, &syn);
        assert_eq!(left[TCP + 24] == 30, data.is_empty());
        let len = data.len() as u32;
        let mut answer = multipath_syn(&bench, 1, b"");
        if !is_answered || !data.is_empty() {
            // The server does not know several paths, or was not asked for them.
            let tcp = Tcp { seq: 1000, ack: 1001 + len, flags: SYN | ACK, ..Tcp::new(80, 4001) };
            answer = Frame::new(bench.net[1].clone(), tcp).build();
        }
        assert_eq!(one(&mut bench, &answer), answer);
        let tcp = Tcp { seq: 1001 + len, ack: 1001, flags: ACK, ..Tcp::new(4001, 80) };
        let word = Frame::new(bench.net[0].clone(), tcp).payload(b"an evil word".to_vec()).build();
        let sent = bench.harness.send("c", std::slice::from_ref(&word));
        let frames: Vec<_> = match sent[0].verdict {
            ChainVerdict::Pass => vec![&sent[0].frame],
            _ => sent[0].emitted.iter().map(|(_, frame)| frame).collect(),
        };
        let expected: &[u8] = if is_edited { b"an harmless word" } else { b"an evil word" };
        assert_eq!(frames.len(), 1);
        assert_eq!(&frames[0][TCP + 20..], expected, "{is_answered} {data}");
        let counted = bench.counters();
        let has = |name: &str| counted.iter().any(|(one, _)| one == name);
        assert_eq!(has("connections of several paths, not edited"), !is_edited);
        assert_eq!(has("options of several paths removed"), !data.is_empty());
        assert_eq!(has("edits refused: not-editable"), !is_edited);
        let state = bench.harness.describe(&word).expect("a session");
        assert_eq!(state[0].1.ends_with(", cannot be edited"), !is_edited, "{state:?}");
    }
}

#[test]
fn the_state_of_edits_is_shown() {
    let mut bench = Bench::new(LONGER, "w");
    assert_eq!(bench.send(0, 0, 0, ACK, "an evil ev").len(), 1);
    assert_eq!(bench.send(1, 0, 3, ACK, "evil").len(), 1);
    let shown = |bench: &mut Bench| {
        let described = bench.harness.describe(&bench.frame(0, 0, 0, ACK, b"")).expect("a session");
        described.into_iter().filter(|(name, _)| name == "(edits)").map(|(_, text)| text).collect::<Vec<_>>()
    };
    let forward = "offset +4, 1 edits in flight, 9 bytes not acknowledged, 2 bytes held back by functions";
    assert_eq!(
        shown(&mut bench),
        [format!("{forward} / offset +4, 1 edits in flight, 8 bytes not acknowledged")]
    );
    bench.harness.load("nf add n count-bytes\nchain add c n").expect("valid");
    assert_eq!(bench.send(0, 10, 8, ACK, "").len(), 2);
    let forward = "offset +4, 1 edits in flight, 11 bytes not acknowledged";
    assert_eq!(shown(&mut bench), [format!("{forward} / offset +4; the functions have left")]);
}

#[test]
fn a_session_without_a_chain_keeps_its_offsets() {
    for (word, has_offset) in [("evil", true), ("good", false)] {
        let mut bench = Bench::new(LONGER, "w");
        let len = if has_offset { 8 } else { 4 };
        assert_eq!(bench.send(0, 0, 0, ACK, word).len(), 1);
        assert_eq!(bench.send(1, 0, len, ACK, ""), [segment(1, 0, 4, ACK, "")]);
        let frame = bench.frame(0, 4, 0, ACK, b"evil");
        let sent = bench.harness.send_without_chain(&frame);
        assert_eq!(sent.is_some(), has_offset);
        if let Some(sent) = sent {
            assert_eq!(bench.left(&[sent]), [segment(0, 8, 0, ACK, "evil")]);
            let frame = bench.frame(1, 0, 12, ACK, b"");
            let sent = bench.harness.send_without_chain(&frame).expect("offsets");
            assert_eq!(bench.left(&[sent]), [segment(1, 0, 8, ACK, "")]);
        }
    }
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
