//! Edges of edited connections, where implementations forget an offset or tell an end of other bytes.

use mmb_flow::SessionSettings;
use mmb_nf::harness::{Harness, Sent};
use mmb_nf::{ArgError, ChainVerdict, Context, Registry, Setup, StreamEdit, StreamFunction, StreamVerdict};
use mmb_packet::build::{Frame, Ip4, Tcp};
use mmb_stream::{OnPickup, Policy};

/// Replaces a word within a segment, and with `hold` in several: what may begin it is held back.
struct Replace(String, String, bool);

impl StreamFunction for Replace {
    const TYPE: &'static str = "replace";
    const USAGE: &'static str = "WORD [NEW [hold]]";
    const HELP: &'static str = "replaces a word";
    const EDITS: bool = true;
    type State = u32;
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let word = |at: usize| setup.args.get(at).map_or(String::new(), |word| (*word).to_owned());
        Ok(Replace(word(0), word(1), setup.args.len() > 2))
    }

    fn edit(&self, data: &mut StreamEdit<'_, '_>, _: &mut u32, _: &mut Context<'_, ()>) -> StreamVerdict {
        let text = String::from_utf8(data.bytes().collect()).expect("text");
        for (at, word) in text.match_indices(&self.0) {
            let result = data.replace(at..at + word.len(), self.1.as_bytes());
            assert_eq!(result.is_ok(), data.can_resize() || word.len() == self.1.len(), "{result:?}");
        }
        let begins = |&at: &usize| text.is_char_boundary(at) && self.0.starts_with(&text[at..]);
        if let Some(at) = (text.len().saturating_sub(self.0.len() - 1)..text.len()).find(begins)
            && self.2
        {
            data.hold_from(at);
        }
        StreamVerdict::Pass
    }
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;
const URG: u8 = 32;
const NUMBERS: [u32; 2] = [0xffff_fff0, 5000];
/// Offset of the TCP header.
const TCP: usize = 34;

/// A segment with numbers that count from the first byte of each direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Segment {
    direction: usize,
    seq: i32,
    ack: i32,
    flags: u8,
    options: Vec<u8>,
    text: String,
}

fn segment(direction: usize, (seq, ack): (i32, i32), flags: u8, text: &str) -> Segment {
    Segment { direction, seq, ack, flags, text: text.to_owned(), ..Segment::default() }
}

struct Bench {
    harness: Harness,
    urgent: u16,
    window: u16,
}

impl Bench {
    fn new(lines: &str) -> Bench {
        let mut registry = Registry::default();
        registry.add_stream::<Replace>();
        let harness = Harness::with_sessions(registry, lines, 70_000).expect("valid");
        Bench { harness, urgent: 0, window: 20_000 }
    }

    /// A bench with a connection.
    fn open(lines: &str) -> Bench {
        let mut bench = Bench::new(lines);
        for (direction, at, flags) in [(0, (-1, 0), SYN), (1, (-1, 0), SYN | ACK), (0, (0, 0), ACK)] {
            let one = segment(direction, at, flags, "");
            assert_eq!(bench.send(&one), [one]);
        }
        bench
    }

    fn frame(&self, segment: &Segment) -> Vec<u8> {
        let Segment { direction, seq, ack, flags, options, text } = segment;
        let ends = [[10, 0, 0, 1], [10, 0, 0, 2]];
        let ports = [4000, 80];
        let number = |direction: usize, at: i32| NUMBERS[direction].wrapping_add(at as u32);
        let tcp = Tcp {
            seq: number(*direction, *seq),
            ack: if flags & ACK != 0 { number(1 - direction, *ack) } else { 0 },
            flags: *flags,
            window: self.window,
            urgent: self.urgent,
            options: options.clone(),
            ..Tcp::new(ports[*direction], ports[1 - direction])
        };
        Frame::new(Ip4::new(ends[*direction], ends[1 - direction]), tcp).payload(text.as_bytes()).build()
    }

    /// Sends a segment. Returns what leaves to either end.
    fn send(&mut self, segment: &Segment) -> Vec<Segment> {
        let frame = self.frame(segment);
        let mut sent = self.harness.send("c", &[frame]);
        sent.extend(self.harness.released());
        sent.iter().flat_map(left).collect()
    }
}

fn left(sent: &Sent) -> Vec<Segment> {
    let passed = (sent.verdict == ChainVerdict::Pass).then_some(&sent.frame);
    let frames = sent.emitted.iter().map(|(_, frame)| frame).chain(passed);
    frames.map(|frame| read(frame)).collect()
}

fn read(frame: &[u8]) -> Segment {
    mmb_nf::testing::assert_checksums(frame);
    let tcp = &frame[TCP..];
    let direction = usize::from(tcp[1] == 80);
    let number = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().expect("four bytes"));
    let (header, end) =
        (usize::from(tcp[12] >> 4) * 4, usize::from(u16::from_be_bytes([frame[16], frame[17]])) - 20);
    assert_eq!(tcp[18..20], [0, 0], "an urgent pointer");
    Segment {
        direction,
        seq: number(4).wrapping_sub(NUMBERS[direction]) as i32,
        ack: if tcp[13] & ACK != 0 { number(8).wrapping_sub(NUMBERS[1 - direction]) as i32 } else { 0 },
        flags: tcp[13],
        options: tcp[20..header].to_vec(),
        text: String::from_utf8_lossy(&tcp[header..end]).into_owned(),
    }
}

const LONGER: &str = "nf add w replace evil harmless\nchain add c w";

/// RFC 2883: a block in front of the acknowledgement number tells of bytes that came twice. It does not tell
/// the sender of bytes that are not acknowledged, wherever its edges are in edited bytes.
#[test]
fn duplicate_selective_acknowledgements() {
    let lines = "nf add w replace evil harmless\nnf add r replace gone\nchain add c w then r";
    for acked in [2, 9, 16, 20, 25] {
        let mut bench = Bench::open(lines);
        // 12 bytes become 16, and then 8 become 4.
        bench.send(&segment(0, (0, 0), ACK, "an evil word"));
        bench.send(&segment(0, (12, 0), ACK, "gone and"));
        bench.send(&segment(0, (20, 0), ACK, " more"));
        for (from, to) in (0..acked).flat_map(|from| (from + 1..=acked).map(move |to| (from, to))) {
            let number = |at: i32| NUMBERS[0].wrapping_add(at as u32).to_be_bytes();
            let options = [&[1, 1, 5, 10][..], &number(from), &number(to)].concat();
            let told = bench.send(&Segment { options, ..segment(1, (0, acked), ACK, "") });
            let [Segment { ack, options, .. }] = &told[..] else { panic!("{told:?}") };
            if options == &[1; 12] {
                continue;
            }
            let edge = |at: usize| {
                let number = u32::from_be_bytes(options[at..at + 4].try_into().expect("four bytes"));
                number.wrapping_sub(NUMBERS[0]) as i32
            };
            assert!(edge(4) < edge(8) && edge(8) <= *ack, "{from} {to} of {acked}: {told:?}");
        }
    }
}

/// RFC 5681, 2: a sender counts acknowledgements with the same number and the same window. A window that
/// changes alone is told as such (RFC 9293, 3.8.6).
#[test]
fn duplicate_acknowledgements_and_window_updates_survive() {
    let mut bench = Bench::open(LONGER);
    // 12 bytes become 16.
    bench.send(&segment(0, (0, 0), ACK, "an evil word"));
    bench.send(&segment(0, (12, 0), ACK, " and more"));
    let mut told = |acked, window| {
        bench.window = window;
        let frame = bench.frame(&segment(1, (0, acked), ACK, ""));
        let sent = bench.harness.send("c", &[frame]);
        let [left] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!((left.verdict, left.emitted.len()), (ChainVerdict::Pass, 0));
        let word = u16::from_be_bytes([left.frame[TCP + 14], left.frame[TCP + 15]]);
        (read(&left.frame).ack, word)
    };
    // In front of the longer word, within it, at its end, and at the end of all.
    for (acked, expected) in [(2, 2), (7, 3), (11, 7), (16, 12), (25, 21)] {
        let first = told(acked, 20_000);
        assert_eq!(first.0, expected);
        for _ in 0..3 {
            assert_eq!(told(acked, 20_000), first, "a duplicate at {acked}");
        }
        let wider = told(acked, 20_100);
        assert!(wider.0 == expected && wider.1 > first.1, "a window update at {acked}: {wider:?}");
        assert_eq!(told(acked, 20_100), wider);
    }
}

/// RFC 9293, 3.6: one end closes and the other one goes on, or both close at once. A FIN may come again.
#[test]
fn edited_connections_close_in_each_order() {
    for first in [0, 1] {
        let mut bench = Bench::open(LONGER);
        bench.send(&segment(0, (0, 0), ACK, "an evil word"));
        bench.send(&segment(1, (0, 16), ACK, "evil!"));
        let other = 1 - first;
        // The next numbers of both ends, and what they have become.
        let (mut at, mut there) = ([12, 5], [16, 9]);
        let mut passes = |from: usize, (seq, ack): (i32, i32), (to, told): (i32, i32), flags, text: &str| {
            let left = bench.send(&segment(from, (seq, ack), flags, text));
            assert_eq!(left, [segment(from, (to, told), flags, &text.replace("evil", "harmless"))]);
        };
        for _ in 0..2 {
            passes(first, (at[first], there[other]), (there[first], at[other]), ACK | FIN, "");
        }
        (at[first], there[first]) = (at[first] + 1, there[first] + 1);
        passes(other, (at[other], there[first]), (there[other], at[first]), ACK, "");
        for _ in 0..2 {
            passes(other, (at[other], there[first]), (there[other], at[first]), ACK, "evil.");
        }
        (at[other], there[other]) = (at[other] + 5, there[other] + 9);
        passes(first, (at[first], there[other]), (there[first], at[other]), ACK, "");
        for _ in 0..2 {
            passes(other, (at[other], there[first]), (there[other], at[first]), ACK | FIN, "");
        }
        passes(first, (at[first], there[other] + 1), (there[first], at[other] + 1), ACK, "");
    }
    let mut bench = Bench::open(LONGER);
    bench.send(&segment(0, (0, 0), ACK, "evil"));
    bench.send(&segment(1, (0, 0), ACK, "evil"));
    for (direction, at, there, flags) in [
        (0, (4, 8), (8, 4), ACK | FIN),
        (1, (4, 8), (8, 4), ACK | FIN),
        (0, (5, 9), (9, 5), ACK),
        (1, (5, 9), (9, 5), ACK),
    ] {
        let left = bench.send(&segment(direction, at, flags, ""));
        assert_eq!(left, [segment(direction, there, flags, "")]);
    }
}

/// A byte that is inserted into a segment of the greatest size, and into one of the size that the sender has
/// learned of its path, makes two. They come again as they were.
#[test]
fn one_byte_more_than_a_segment() {
    for len in [1000, 1460] {
        let mut bench = Bench::new("nf add w replace evil evils\nchain add c w");
        let mss = [2, 4, 5, 180];
        for (direction, at, flags) in [(0, (-1, 0), SYN), (1, (-1, 0), SYN | ACK), (0, (0, 0), ACK)] {
            let options = if flags & SYN != 0 { mss.to_vec() } else { Vec::new() };
            bench.send(&Segment { options, ..segment(direction, at, flags, "") });
        }
        let text = format!("evil{}", "x".repeat(len - 4));
        for _ in 0..2 {
            let left = bench.send(&segment(0, (0, 0), ACK, &text));
            let parts: Vec<_> = left.iter().map(|one| (one.seq, one.text.len())).collect();
            assert_eq!(parts, [(0, len), (len as i32, 1)]);
        }
        let len = len as i32;
        assert_eq!(bench.send(&segment(1, (0, len + 1), ACK, "")), [segment(1, (0, len), ACK, "")]);
        assert_eq!(bench.send(&segment(0, (len, 0), ACK, "on")), [segment(0, (len + 1, 0), ACK, "on")]);
    }
}

/// RFC 6093, 3.1: receivers take the byte at the urgent pointer out of the stream. So there is none behind
/// functions that judge bytes, also if a segment is split.
#[test]
fn a_segment_with_an_urgent_byte_is_split() {
    let mut bench = Bench::open(LONGER);
    bench.urgent = 300;
    let text = format!("evil{}", "x".repeat(532));
    let left = bench.send(&segment(0, (0, 0), ACK | URG, &text));
    let flags: Vec<_> = left.iter().map(|one| (one.seq, one.flags, one.text.len())).collect();
    assert_eq!(flags, [(0, ACK, 536), (536, ACK, 4)]);
}

/// Offsets count for ever.
#[test]
fn offsets_outlast_silence() {
    let mut bench = Bench::open(LONGER);
    let (mut at, mut there) = (0, 0);
    for minutes in [0, 1, 30, 24 * 60] {
        bench.harness.expire(minutes * 60_000);
        // A keepalive, and its answer.
        if minutes != 0 {
            let alive = bench.send(&segment(0, (at - 1, 0), ACK, ""));
            assert_eq!(alive, [segment(0, (there - 1, 0), ACK, "")]);
            let answer = bench.send(&segment(1, (0, there), ACK, ""));
            assert_eq!(answer, [segment(1, (0, at), ACK, "")]);
        }
        assert_eq!(bench.send(&segment(0, (at, 0), ACK, "evil")), [segment(0, (there, 0), ACK, "harmless")]);
        (at, there) = (at + 4, there + 8);
        assert_eq!(bench.send(&segment(1, (0, there), ACK, "")), [segment(1, (0, at), ACK, "")]);
    }
    let end = bench.send(&segment(0, (at, 0), ACK | FIN, ""));
    assert_eq!(end, [segment(0, (there, 0), ACK | FIN, "")]);
    assert_eq!(bench.send(&segment(1, (0, there + 1), ACK, "")), [segment(1, (0, at + 1), ACK, "")]);
}

/// RFC 7413: data on a SYN. The server takes it, or it comes again.
#[test]
fn fast_open_with_an_edit() {
    let cookie = vec![34, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1];
    for is_accepted in [true, false] {
        let mut bench = Bench::new(LONGER);
        let syn = Segment { options: cookie.clone(), ..segment(0, (-1, 0), SYN, "an evil word") };
        let edited = Segment { text: "an harmless word".to_owned(), ..syn.clone() };
        assert_eq!(bench.send(&syn), std::slice::from_ref(&edited));
        // It is lost, and comes again.
        assert_eq!(bench.send(&syn), [edited]);
        let taken = if is_accepted { (16, 12) } else { (0, 0) };
        let answer = bench.send(&segment(1, (-1, taken.0), SYN | ACK, ""));
        assert_eq!(answer, [segment(1, (-1, taken.1), SYN | ACK, "")]);
        if !is_accepted {
            let again = bench.send(&segment(0, (0, 0), ACK, "an evil word"));
            assert_eq!(again, [segment(0, (0, 0), ACK, "an harmless word")]);
        }
        assert_eq!(bench.send(&segment(0, (12, 0), ACK, ", evil")), [segment(0, (16, 0), ACK, ", harmless")]);
        assert_eq!(bench.send(&segment(1, (0, 26), ACK, "")), [segment(1, (0, 18), ACK, "")]);
    }
}

/// RFC 7323, section 5: a receiver drops segments whose timestamp is older than the last one.
#[test]
fn segments_of_mmb_have_timestamps_that_receivers_take() {
    let stamp =
        |value: u32, echo: u32| [&[1, 1, 8, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat();
    let mut bench = Bench::new("nf add w replace evil harmless\nnf add r replace gone\nchain add c w then r");
    for (direction, at, flags, options) in [
        (0, (-1, 0), SYN, stamp(100, 0)),
        (1, (-1, 0), SYN | ACK, stamp(900, 100)),
        (0, (0, 0), ACK, stamp(101, 900)),
    ] {
        bench.send(&Segment { options, ..segment(direction, at, flags, "") });
    }
    // Both parts of a segment that is split have its timestamp.
    let text = format!("evil{}", "x".repeat(520));
    let parts = bench.send(&Segment { options: stamp(102, 900), ..segment(0, (0, 0), ACK, &text) });
    assert_eq!(parts.iter().map(|one| one.text.len()).collect::<Vec<_>>(), [524, 4]);
    assert!(parts.iter().all(|one| one.options == stamp(102, 900)), "{parts:?}");
    bench.send(&Segment { options: stamp(905, 102), ..segment(1, (0, 528), ACK, "") });
    // The acknowledgement of bytes of which nothing is left has the last timestamp of the other end.
    let told = bench.send(&Segment { options: stamp(110, 905), ..segment(0, (524, 0), ACK, "gone") });
    let [acknowledgement] = &told[..] else { panic!("{told:?}") };
    assert_eq!((acknowledgement.direction, acknowledgement.ack), (1, 528));
    assert_eq!(acknowledgement.options, stamp(905, 110));
}

/// A connection of which no SYN was seen is not edited, and takes no room from those that are.
#[test]
fn connections_without_a_syn_keep_no_room() {
    let mut bench = Bench::new(LONGER);
    let stray = |n: u32| {
        let tcp = Tcp { seq: 7, ack: 9, flags: ACK, ..Tcp::new(1000 + (n & 0x3fff) as u16, 80) };
        Frame::new(Ip4::new([10, 1, (n >> 14) as u8, 1], [10, 0, 0, 2]), tcp).payload("evil").build()
    };
    for first in (0..65_600).step_by(200) {
        let frames: Vec<_> = (first..first + 200).map(stray).collect();
        let sent = bench.harness.send("c", &frames);
        assert!(sent.iter().zip(&frames).all(|(one, frame)| one.frame == *frame));
        assert!(sent.iter().all(|one| one.verdict == ChainVerdict::Pass));
    }
    let (syn, word) = (segment(0, (-1, 0), SYN, ""), segment(0, (0, 0), ACK, "evil"));
    assert_eq!(bench.send(&syn), [syn]);
    bench.send(&segment(1, (-1, 0), SYN | ACK, ""));
    assert_eq!(bench.send(&word), [segment(0, (0, 0), ACK, "harmless")]);
}

const MASK: &str = "nf add w replace evil ****\nchain add c w";

/// Acknowledgements that take another way are not translated, so that numbers must not change. Bytes can be
/// overwritten.
#[test]
fn connections_of_which_one_direction_is_seen_keep_their_numbers() {
    for (lines, new) in [(LONGER, "evil"), ("nf add w replace evil\nchain add c w", "evil"), (MASK, "****")] {
        for direction in [0, 1] {
            let mut bench = Bench::new(lines);
            let syn = if direction == 0 { SYN } else { SYN | ACK };
            let opening = segment(direction, (-1, 0), syn, "");
            assert_eq!(bench.send(&opening), [opening]);
            for (at, flags) in [(0, ACK), (8, ACK), (0, ACK), (16, ACK | FIN)] {
                let left = bench.send(&segment(direction, (at, 0), flags, "an evil!"));
                assert_eq!(left, [segment(direction, (at, 0), flags, &format!("an {new}!"))], "{lines}");
            }
            let report = bench.harness.program().instance("(stream)").expect("a context").report();
            let refused = report.iter().find(|(name, _)| name == "edits refused: one-way");
            let expected = (new == "evil").then_some("3");
            assert_eq!(refused.map(|(_, count)| count.as_str()), expected, "{report:?}");
        }
    }
}

/// A sender that gets no answer of mmb repeats what waits, and gets it through behind the hold time.
#[test]
fn bytes_of_one_direction_wait_for_the_rest_of_a_word_and_not_longer() {
    let mut bench = Bench::new("nf add w replace evil **** hold\nchain add c w");
    bench.send(&segment(0, (-1, 0), SYN, ""));
    assert_eq!(bench.send(&segment(0, (0, 0), ACK, "an ev")), [segment(0, (0, 0), ACK, "an ")]);
    assert_eq!(bench.send(&segment(0, (5, 0), ACK, "il now")), [segment(0, (3, 0), ACK, "**** now")]);
    assert_eq!(bench.send(&segment(0, (11, 0), ACK, " ev")), [segment(0, (11, 0), ACK, " ")]);
    let again = segment(0, (12, 0), ACK, "ev");
    assert!(bench.send(&again).iter().all(|one| one.text.is_empty() && one.direction == 0));
    bench.harness.wait(300);
    assert_eq!(bench.send(&again), [segment(0, (12, 0), ACK, "ev")]);
}

/// Nobody tells what the receiver has. The connection does not stop when the memory for bytes that are not
/// acknowledged is full.
#[test]
fn one_direction_carries_any_number_of_bytes() {
    let mut bench = Bench::new(MASK);
    bench.send(&segment(0, (-1, 0), SYN, ""));
    let text = format!("evil{}", "x".repeat(29_996));
    let mut last = Segment::default();
    for at in (0..30_000_000).step_by(30_000) {
        last = segment(0, (at, 0), ACK, &text.replace("evil", "****"));
        let left = bench.send(&segment(0, (at, 0), ACK, &text));
        assert!(left == [last.clone()], "at {at}");
    }
    let again = bench.send(&Segment { text, ..last.clone() });
    assert!(again == [last], "the same bytes come again");
}

/// A receiver takes no bytes before it has answered. Those that are sent all the same, to have functions read
/// them while they cannot edit, are read again behind the answer.
#[test]
fn bytes_in_front_of_the_answer_hide_nothing() {
    let word = segment(0, (0, 0), ACK, "an evil word");
    let edited = segment(0, (0, 0), ACK, "an harmless word");
    let early = |at, flags, text: &str| segment(0, (at, 77), flags, text);
    for earlier in [
        vec![early(0, ACK, "an evil word")],
        vec![early(0, ACK, "an good word"), early(12, ACK | FIN, "!")],
        vec![early(5, ACK, "il word"), early(0, ACK, "an ev")],
        vec![early(0, ACK | FIN, ""), early(0, ACK, "evil")],
    ] {
        let mut bench = Bench::new(LONGER);
        let syn = segment(0, (-1, 0), SYN, "");
        assert_eq!(bench.send(&syn), std::slice::from_ref(&syn));
        for one in earlier {
            let left = bench.send(&one);
            assert!(left.iter().all(|left| left.seq >= 0 && !left.text.contains("harmless")), "{left:?}");
        }
        let answer = segment(1, (-1, 0), SYN | ACK, "");
        assert_eq!(bench.send(&answer), [answer]);
        assert_eq!(bench.send(&word), std::slice::from_ref(&edited));
        assert_eq!(bench.send(&word), std::slice::from_ref(&edited));
        assert_eq!(bench.send(&segment(1, (0, 16), ACK, "")), [segment(1, (0, 12), ACK, "")]);
        assert_eq!(bench.send(&segment(0, (12, 0), ACK, "evil")), [segment(0, (16, 0), ACK, "harmless")]);
    }
    // A server that sends in front of the client's SYN.
    let mut bench = Bench::new(LONGER);
    bench.send(&segment(1, (-1, 0), SYN | ACK, ""));
    assert_eq!(bench.send(&segment(1, (0, 0), ACK, "evil")), [segment(1, (0, 0), ACK, "evil")]);
    for (direction, at, flags) in [(0, (-1, 0), SYN), (1, (-1, 0), SYN | ACK), (0, (0, 0), ACK)] {
        let one = segment(direction, at, flags, "");
        assert_eq!(bench.send(&one), [one]);
    }
    assert_eq!(bench.send(&segment(1, (0, 0), ACK, "evil")), [segment(1, (0, 0), ACK, "harmless")]);
}

/// RFC 7413, 4.2.1: behind the data of a SYN, a client sends no more before the answer. If it does all the
/// same, the data counts as not taken, and an answer that takes it does not go on.
#[test]
fn bytes_behind_fast_open_data_hide_nothing() {
    let mut bench = Bench::new(LONGER);
    let syn = segment(0, (-1, 0), SYN, "an evil word");
    assert_eq!(bench.send(&syn), [segment(0, (-1, 0), SYN, "an harmless word")]);
    let early = bench.send(&segment(0, (12, 77), ACK, "evil"));
    assert_eq!(early, [segment(0, (16, 77), ACK, "evil")]);
    assert_eq!(bench.send(&segment(1, (-1, 16), SYN | ACK, "")), []);
    let answer = segment(1, (-1, 0), SYN | ACK, "");
    assert_eq!(bench.send(&answer), [answer]);
    let word = bench.send(&segment(0, (0, 0), ACK, "an evil word"));
    assert_eq!(word, [segment(0, (0, 0), ACK, "an harmless word")]);
    assert_eq!(bench.send(&segment(0, (12, 0), ACK, "evil")), [segment(0, (16, 0), ACK, "harmless")]);
}

/// A connection without a SYN is edited when a segment acknowledges what was seen of the other direction.
#[test]
fn connections_that_are_picked_up_are_edited_when_both_directions_were_seen() {
    let mut bench = Bench::new(LONGER);
    let streams = Policy { pickup: OnPickup::Inspect, ..Policy::default() };
    let program = bench.harness.program().clone();
    bench.harness.runner().set_program(&program, &SessionSettings { streams, ..SessionSettings::default() });
    let word = |at, text: &str| segment(0, (at, 0), ACK, text);
    for at in [100, 104] {
        assert_eq!(bench.send(&word(at, "evil")), [word(at, "evil")]);
    }
    // What it acknowledges has not gone on.
    bench.send(&segment(1, (0, 500), ACK, ""));
    assert_eq!(bench.send(&word(108, "evil")), [word(108, "evil")]);
    let answer = segment(1, (0, 112), ACK, "");
    assert_eq!(bench.send(&answer), [answer]);
    assert_eq!(bench.send(&word(112, "evil")), [word(112, "harmless")]);
    assert_eq!(bench.send(&word(116, "evil")), [word(120, "harmless")]);
}

/// RFC 9293, 3.5 (figure 7): both ends send a SYN, and both answer. The connection is edited in both
/// directions.
#[test]
fn connections_that_both_ends_open_are_edited() {
    let mut bench = Bench::new(LONGER);
    let handshake = [(0, (-1, 0), SYN), (1, (-1, 0), SYN), (0, (-1, 0), SYN | ACK), (1, (-1, 0), SYN | ACK)];
    for (direction, at, flags) in handshake {
        let one = segment(direction, at, flags, "");
        assert_eq!(bench.send(&one), [one]);
    }
    for (direction, at, told) in [
        (0, (0, 0), (0, 0)),
        (1, (0, 8), (0, 4)),
        (1, (4, 8), (8, 4)),
        (0, (4, 16), (8, 8)),
        (1, (8, 16), (16, 8)),
    ] {
        let word = bench.send(&segment(direction, at, ACK, "evil"));
        assert_eq!(word, [segment(direction, told, ACK, "harmless")]);
    }
}

/// RFC 9293, 3.6.1, and RFC 6191: a connection with the ports of the one before begins without its offsets.
/// A late segment of that one does not change it.
#[test]
fn offsets_end_with_their_connection() {
    let mut bench = Bench::open(LONGER);
    bench.send(&segment(0, (0, 0), ACK, "an evil word"));
    bench.send(&segment(1, (0, 16), ACK | FIN, "evil"));
    bench.send(&segment(0, (12, 9), ACK | FIN, ""));
    bench.send(&segment(1, (5, 17), ACK, ""));
    // Numbers behind those of the first connection.
    let later = 1_000_000;
    for (direction, at, flags) in
        [(0, (later - 1, 0), SYN), (1, (later - 1, later), SYN | ACK), (0, (later, later), ACK)]
    {
        let one = segment(direction, at, flags, "");
        assert_eq!(bench.send(&one), [one]);
    }
    let word = bench.send(&segment(0, (later, later), ACK, "evil"));
    assert_eq!(word, [segment(0, (later, later), ACK, "harmless")]);
    // The end of the connection before, repeated.
    bench.send(&segment(0, (12, 9), ACK | FIN, ""));
    assert_eq!(
        bench.send(&segment(1, (later, later + 8), ACK, "")),
        [segment(1, (later, later + 4), ACK, "")]
    );
    let word = bench.send(&segment(0, (later + 4, later), ACK, "evil"));
    assert_eq!(word, [segment(0, (later + 8, later), ACK, "harmless")]);
}

/// Links carry frames of 9,000 bytes.
#[test]
fn jumbo_frames_are_edited() {
    let mss = [2, 4, 0x23, 0x04];
    let mut bench = Bench::new("nf add w replace evil harmless hold\nchain add c w");
    for (direction, at, flags) in [(0, (-1, 0), SYN), (1, (-1, 0), SYN | ACK), (0, (0, 0), ACK)] {
        let options = if flags & SYN != 0 { mss.to_vec() } else { Vec::new() };
        bench.send(&Segment { options, ..segment(direction, at, flags, "") });
    }
    let text: String = (0..27_000).map(|at| if at % 1000 == 0 { "evil" } else { "x" }).collect();
    // The third cut is in a word. Each segment comes twice.
    let cuts = [0, 8964, 17_928, 18_056, 27_020, text.len()];
    let (mut received, mut acked) = (vec![None; 40_000], 0);
    for pair in cuts.windows(2) {
        let one = segment(0, (pair[0] as i32, 0), ACK, &text[pair[0]..pair[1]]);
        for _ in 0..2 {
            let told = segment(1, (0, acked as i32), ACK, "");
            let both = [bench.send(&one), bench.send(&told)].concat();
            for left in both.into_iter().filter(|left| left.direction == 0) {
                assert!(left.text.len() <= 8964, "{}", left.text.len());
                for (place, byte) in received[left.seq as usize..].iter_mut().zip(left.text.bytes()) {
                    assert!(place.is_none_or(|before| before == byte));
                    *place = Some(byte);
                }
            }
            acked = received.iter().take_while(|byte| byte.is_some()).count();
        }
    }
    let received: Vec<u8> = received.into_iter().map_while(|byte| byte).collect();
    assert!(received == text.replace("evil", "harmless").into_bytes());
}
