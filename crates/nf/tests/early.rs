//! What the sender of segments that came too early is told, in front of functions that read and that edit.

use mmb_nf::harness::Harness;
use mmb_nf::{
    ArgError, ChainVerdict, Context, Registry, Setup, StreamData, StreamEdit, StreamFunction, StreamVerdict,
};
use mmb_packet::build::{Frame, Ip4, Tcp};

/// Reads bytes.
struct Read;

impl StreamFunction for Read {
    const TYPE: &'static str = "read";
    const USAGE: &'static str = "";
    const HELP: &'static str = "reads bytes";
    type State = u32;
    type Local = ();

    fn new(_: &Setup<'_>) -> Result<Self, ArgError> {
        Ok(Read)
    }

    fn data(&self, _: &StreamData<'_, '_>, _: &mut u32, _: &mut Context<'_, ()>) -> StreamVerdict {
        StreamVerdict::Pass
    }
}

/// Makes `harmless` of `evil`. What may begin the word is held back.
struct Replace;

impl StreamFunction for Replace {
    const TYPE: &'static str = "replace";
    const USAGE: &'static str = "";
    const HELP: &'static str = "replaces a word";
    const EDITS: bool = true;
    type State = u32;
    type Local = ();

    fn new(_: &Setup<'_>) -> Result<Self, ArgError> {
        Ok(Replace)
    }

    fn edit(&self, data: &mut StreamEdit<'_, '_>, _: &mut u32, _: &mut Context<'_, ()>) -> StreamVerdict {
        let text = String::from_utf8(data.bytes().collect()).expect("text");
        for (at, word) in text.match_indices("evil") {
            data.replace(at..at + word.len(), b"harmless").expect("edits in order");
        }
        if let Some(at) =
            (text.len().saturating_sub(3)..text.len()).find(|&at| "evil".starts_with(&text[at..]))
        {
            data.hold_from(at);
        }
        StreamVerdict::Pass
    }
}

const SYN: u8 = 2;
const ACK: u8 = 16;
const NUMBERS: [u32; 2] = [0xffff_fff6, 5000];
const READS: &str = "nf add f read\nchain add c f";
const EDITS: &str = "nf add f replace\nchain add c f";
/// Options of SYNs: window scale 3, and with it SACK permitted.
const SCALE: [u8; 4] = [1, 3, 3, 3];
const SACK: [u8; 8] = [1, 3, 3, 3, 1, 1, 4, 2];

/// A segment: direction, numbers from the first byte of each direction, window and payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Segment {
    direction: usize,
    seq: i32,
    ack: i32,
    window: u16,
    flags: u8,
    options: Vec<u8>,
    text: String,
}

/// A segment of the client.
fn data(seq: i32, text: &str) -> Segment {
    Segment { seq, window: 700, flags: ACK, text: text.to_owned(), ..Segment::default() }
}

/// An acknowledgement of the server.
fn ack(ack: i32) -> Segment {
    Segment { direction: 1, ack, window: 900, flags: ACK, ..Segment::default() }
}

/// The server's acknowledgement with these blocks.
fn sack(number: i32, blocks: &[(i32, i32)]) -> Segment {
    let edges = blocks.iter().flat_map(|&(from, to)| [from, to]);
    let edges = edges.flat_map(|at| NUMBERS[0].wrapping_add(at as u32).to_be_bytes());
    let head = [1, 1, 5, 2 + 8 * blocks.len() as u8];
    Segment { options: head.into_iter().chain(edges).collect(), ..ack(number) }
}

fn stamps(value: u32, echo: u32) -> Vec<u8> {
    [&[1, 1, 8, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat()
}

struct Bench {
    harness: Harness,
}

impl Bench {
    /// A bench with a connection, whose SYNs have these options.
    fn open(lines: &str, options: [&[u8]; 2]) -> Bench {
        let mut registry = Registry::default();
        registry.add_stream::<Read>().add_stream::<Replace>();
        let mut bench = Bench { harness: Harness::new(registry, lines).expect("valid") };
        let syn = Segment { seq: -1, flags: SYN, options: options[0].to_vec(), ..data(0, "") };
        let answer = Segment { seq: -1, ack: 0, flags: SYN | ACK, options: options[1].to_vec(), ..ack(0) };
        for one in [syn, answer, data(0, "")] {
            let (to_server, to_client) = bench.send(std::slice::from_ref(&one));
            assert_eq!([to_server, to_client].concat(), [one]);
        }
        bench
    }

    /// Sends segments in one vector. Returns what goes to the server, and what goes to the client.
    fn send(&mut self, segments: &[Segment]) -> (Vec<Segment>, Vec<Segment>) {
        let frames: Vec<_> = segments.iter().map(frame).collect();
        let mut sent = self.harness.send("c", &frames);
        sent.extend(self.harness.released());
        let frames = sent.iter().flat_map(|one| {
            let passed = (one.verdict == ChainVerdict::Pass).then_some(&one.frame);
            one.emitted.iter().map(|(_, frame)| frame).chain(passed)
        });
        frames.map(|frame| read(frame)).partition(|one| one.direction == 0)
    }

    /// Sends a segment. Returns what goes to the client.
    fn told(&mut self, segment: Segment) -> Vec<Segment> {
        self.send(&[segment]).1
    }
}

fn frame(segment: &Segment) -> Vec<u8> {
    let Segment { direction, seq, ack, window, flags, ref options, ref text } = *segment;
    let (ends, ports) = ([[10, 0, 0, 1], [10, 0, 0, 2]], [4000, 80]);
    let number = |direction: usize, at: i32| NUMBERS[direction].wrapping_add(at as u32);
    let tcp = Tcp {
        seq: number(direction, seq),
        ack: if flags & ACK != 0 { number(1 - direction, ack) } else { 0 },
        flags,
        window,
        options: options.clone(),
        ..Tcp::new(ports[direction], ports[1 - direction])
    };
    Frame::new(Ip4::new(ends[direction], ends[1 - direction]), tcp).payload(text.as_bytes()).build()
}

fn read(frame: &[u8]) -> Segment {
    mmb_nf::testing::assert_checksums(frame);
    let end = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let tcp = &frame[34..end];
    let (direction, header) = (usize::from(tcp[1] == 80), usize::from(tcp[12] >> 4) * 4);
    let number = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().expect("four bytes"));
    Segment {
        direction,
        seq: number(4).wrapping_sub(NUMBERS[direction]) as i32,
        ack: if tcp[13] & ACK != 0 { number(8).wrapping_sub(NUMBERS[1 - direction]) as i32 } else { 0 },
        window: u16::from_be_bytes([tcp[14], tcp[15]]),
        flags: tcp[13],
        options: tcp[20..header].to_vec(),
        text: String::from_utf8_lossy(&tcp[header..]).into_owned(),
    }
}

/// RFC 2018, 4: the first block is the one of the newest segment. All numbers are the sender's.
#[test]
fn what_waits_is_acknowledged_selectively() {
    for (lines, there) in [(READS, 4), (EDITS, 8)] {
        let mut bench = Bench::open(lines, [&SACK, &SACK]);
        bench.send(&[data(0, "evil")]);
        // It is not known whether the receiver has got what went on. It is asked, once.
        let asked = Segment { seq: there - 1, ..data(0, "") };
        assert_eq!(bench.send(&[data(8, "ijkl")]), (vec![asked], vec![]));
        assert_eq!(sorted(bench.told(ack(there))), [ack(4), sack(4, &[(8, 12)])]);
        for (early, blocks) in [
            (data(12, "mnop"), &[(8, 16)][..]),
            (data(20, "uv"), &[(20, 22), (8, 16)]),
            // A copy of bytes that wait is reported (RFC 2883, 4).
            (data(10, "k"), &[(10, 11), (8, 16), (20, 22)]),
            (data(6, "gh"), &[(6, 16), (20, 22)]),
            (data(30, "0"), &[(30, 31), (20, 22), (6, 16)]),
            (data(40, "0"), &[(40, 41), (30, 31), (20, 22), (6, 16)]),
            // A fifth block has no room.
            (data(50, "0"), &[(50, 51), (40, 41), (30, 31), (20, 22)]),
            // Copies of whole segments.
            (data(6, "gh"), &[(6, 8), (6, 16), (50, 51), (40, 41)]),
            (data(50, "0"), &[(50, 51), (50, 51), (40, 41), (30, 31)]),
        ] {
            assert_eq!(bench.told(early), [sack(4, blocks)], "{lines}");
        }
        // The gap closes: nothing is told, and the receiver's answer is followed by what waits still.
        let (passed, told) = bench.send(&[data(4, "ef")]);
        assert_eq!(passed.iter().map(|one| &*one.text).collect::<String>(), "efghijklmnop", "{lines}");
        assert_eq!(told, []);
    }
}

/// The answer to the SYN has acknowledged all that went on.
#[test]
fn the_first_segment_may_be_lost() {
    for lines in [READS, EDITS] {
        let mut bench = Bench::open(lines, [&SACK, &SACK]);
        let told = bench.told(data(4, "x"));
        let [Segment { ack: 0, window: 112 | 113, options, .. }] = &told[..] else {
            panic!("{lines}: {told:?}")
        };
        assert_eq!(*options, sack(0, &[(4, 5)]).options, "{lines}");
    }
}

/// The receiver's acknowledgement is followed by all that waits, once.
#[test]
fn an_acknowledgement_of_all_that_went_on_is_followed_by_what_waits() {
    for (lines, there) in [(READS, 4), (EDITS, 8)] {
        let mut bench = Bench::open(lines, [&SACK, &SACK]);
        // In the same vector, the bytes in front have not even gone on.
        let early: Vec<_> = (1..7).map(|n| data(4 + 4 * n, "x")).collect();
        let (passed, told) = bench.send(&[&[data(0, "evil")], &early[..]].concat());
        let asked = passed.iter().filter(|one| one.text.is_empty()).count();
        assert_eq!((passed.len(), asked, told), (2, 1, vec![]));
        assert_eq!(bench.told(ack(2)).len(), 1, "the receiver's own");
        let told = bench.told(ack(there));
        let blocks: Vec<_> = (1..7).rev().map(|n| (4 + 4 * n, 5 + 4 * n)).collect();
        let expected = [sack(4, &blocks[..4]), sack(4, &blocks[4..]), ack(4)];
        assert_eq!(sorted(told), sorted(expected.to_vec()), "{lines}");
        // A window update, and a duplicate of the receiver.
        let update = Segment { window: 1000, ..ack(there) };
        assert_eq!(bench.told(update).len(), 1);
    }
}

fn sorted(mut segments: Vec<Segment>) -> Vec<Segment> {
    segments.sort_by(|one, other| one.options.cmp(&other.options));
    segments
}

/// RFC 5681, 3.2: three duplicates, of the same number and window, let a sender repeat bytes.
#[test]
fn without_selective_acknowledgements_there_are_duplicates() {
    for (lines, there) in [(READS, 4), (EDITS, 8)] {
        for options in [[&SCALE[..], &SACK], [&SACK, &SCALE], [&SCALE, &SCALE]] {
            let mut bench = Bench::open(lines, options);
            bench.send(&[data(0, "evil")]);
            for n in 0..5 {
                assert_eq!(bench.told(data(8 + n, "x")), [] as [Segment; 0]);
            }
            assert_eq!(bench.told(ack(there)), vec![ack(4); 4], "the receiver's, and three");
            assert_eq!(bench.told(data(13, "y")), [ack(4)]);
            assert_eq!(bench.told(data(13, "y")), [ack(4)], "a copy");
        }
    }
}

/// RFC 7323, 5: an acknowledgement with an older timestamp is dropped.
#[test]
fn duplicates_have_timestamps() {
    for lines in [READS, EDITS] {
        let both = |value| [&SACK[..], &stamps(value, 0)].concat();
        let mut bench = Bench::open(lines, [&both(100), &both(900)]);
        let stamped = |segment: Segment, value, echo| Segment { options: stamps(value, echo), ..segment };
        bench.send(&[stamped(data(0, "abcd"), 101, 900)]);
        bench.send(&[stamped(ack(4), 901, 101)]);
        for n in 0..4 {
            let told = bench.told(stamped(data(8 + 2 * n, "x"), 102, 901));
            let [Segment { options, .. }] = &told[..] else { panic!("{told:?}") };
            assert_eq!(options[..12], stamps(901, 102), "{lines}");
            // Three blocks have room behind them.
            assert_eq!(options.len(), 16 + 8 * (n as usize + 1).min(3));
        }
    }
}

/// The receiver has sent more, with later timestamps than the early segment echoes: earlier ones would be
/// ignored (RFC 7323, 5.3). That of a segment at a number which nobody expects may be anybody's.
#[test]
fn duplicates_have_the_last_timestamp_of_the_receiver() {
    for lines in [READS, EDITS] {
        let syns = [&[1, 1, 4, 2][..], &stamps(1, 0)].concat();
        let answer = [&[1, 1, 4, 2][..], &stamps(2000, 1)].concat();
        let mut bench = Bench::open(lines, [&syns, &answer]);
        let reply = |seq, value, text: &str| Segment {
            direction: 1,
            seq,
            window: 900,
            flags: ACK,
            options: stamps(value, 1),
            text: text.to_owned(),
            ..Segment::default()
        };
        let mut told = |value: u32, reply: Segment, seq: i32| {
            bench.send(&[reply]);
            let early = bench.told(Segment { options: stamps(2, 2000), ..data(seq, "xy") });
            let found: Vec<_> = early.iter().map(|one| one.options[4..8].to_vec()).collect();
            assert_eq!(found, [value.to_be_bytes().to_vec()], "{lines} {seq}");
        };
        told(2005, reply(0, 2005, "new"), 10);
        told(2007, reply(0, 2007, "new"), 20);
        told(2007, reply(90_000, 900_000, ""), 30);
        told(2009, reply(3, 2009, ""), 40);
    }
}

/// A function holds back what may begin its word. The sender repeats that, and what is missing.
#[test]
fn bytes_that_functions_hold_back_are_told_as_missing() {
    let mut bench = Bench::open(EDITS, [&SACK, &SACK]);
    assert_eq!(bench.send(&[data(0, "an ev")]).0.len(), 1);
    bench.send(&[ack(3)]);
    assert_eq!(bench.told(data(9, "or d")), [sack(3, &[(9, 13)])]);
    let (passed, _) = bench.send(&[data(3, "evil w")]);
    assert_eq!(passed.iter().map(|one| &*one.text).collect::<String>(), "harmless wor d");
}
