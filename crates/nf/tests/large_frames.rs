//! Stream functions and large frames: the payload of several segments, in several buffers.

use std::sync::Mutex;

use mmb_nf::harness::{Harness, LargeFrames, Sent};
use mmb_nf::{
    ArgError, ChainVerdict, Context, DropReason, Function, Packet, Properties, Registry, Setup, StreamData,
    StreamEdit, StreamFunction, StreamVerdict, Verdict,
};
use mmb_packet::build::{Frame, Ip4, Tcp};

const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 1;
const PSH: u8 = 8;
const CWR: u8 = 128;
/// Offset of the payload of IPv4 and TCP without options.
const PAYLOAD: usize = 54;
const MSS: u16 = 1460;
/// The payload of the longest frame that ports receive whole.
const LONGEST: usize = 65_535 - PAYLOAD;
/// The first number of the client, and that of the server.
const INITIAL: [u32; 2] = [u32::MAX - 40_000, 7_000];
/// Bytes that may wait of a session by default: those of 256 buffers.
const MOST_WAITING: usize = 256 * 2048;

/// Records the bytes of the client.
struct Record(Mutex<Vec<u8>>);

impl StreamFunction for Record {
    const TYPE: &'static str = "record";
    const USAGE: &'static str = "";
    const HELP: &'static str = "records bytes";
    type State = u32;
    type Local = ();

    fn new(_: &Setup<'_>) -> Result<Self, ArgError> {
        Ok(Record(Mutex::default()))
    }

    fn data(&self, data: &StreamData<'_, '_>, _: &mut u32, _: &mut Context<'_, ()>) -> StreamVerdict {
        self.0.lock().expect("no panic before").extend(data.bytes());
        StreamVerdict::Pass
    }

    fn report(&self) -> Vec<(String, String)> {
        let read = self.0.lock().expect("no panic before");
        vec![(String::new(), String::from_utf8_lossy(&read).into_owned())]
    }
}

/// Replaces each `a` by other bytes, and removes each `b` at the end of what it sees once more has come.
struct Letters(Vec<u8>);

impl StreamFunction for Letters {
    const TYPE: &'static str = "letters";
    const USAGE: &'static str = "[NEW]";
    const HELP: &'static str = "replaces letters";
    const EDITS: bool = true;
    type State = u32;
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        Ok(Letters(setup.args.first().map_or(Vec::new(), |new| new.as_bytes().to_vec())))
    }

    fn edit(&self, data: &mut StreamEdit<'_, '_>, _: &mut u32, _: &mut Context<'_, ()>) -> StreamVerdict {
        let bytes: Vec<u8> = data.bytes().collect();
        for at in (0..bytes.len()).filter(|&at| bytes[at] == b'a') {
            data.replace(at..at + 1, &self.0).expect("room for the edit");
        }
        if bytes.last() == Some(&b'b') {
            data.hold_from(bytes.len() - 1);
        }
        StreamVerdict::Pass
    }
}

/// Takes large frames if its argument says so.
struct Plain(bool);

impl Function for Plain {
    const TYPE: &'static str = "plain";
    const USAGE: &'static str = "[large]";
    const HELP: &'static str = "passes packets";
    type Pad = u32;
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        Ok(Plain(!setup.args.is_empty()))
    }

    fn properties(&self) -> Properties {
        Properties { takes_large_frames: self.0, ..Properties::default() }
    }

    fn packet(&self, _: &mut Packet<'_>, _: &mut u32, _: &mut Context<'_, ()>) -> Verdict {
        Verdict::Pass
    }
}

fn harness(lines: &str) -> Harness {
    let mut registry = Registry::default();
    registry.add_stream::<Record>().add_stream::<Letters>();
    registry.add::<Plain>();
    Harness::new(registry, lines).expect("a valid configuration")
}

/// A connection whose segments of more than an MSS are large frames.
struct Connection(Harness);

impl Connection {
    fn open(function: &str) -> Connection {
        let mut harness = harness(&format!("nf add f {function}\nchain add c f"));
        harness.set_large(Some(LargeFrames { segment_size: MSS, buffer: 2048 }));
        let mut connection = Connection(harness);
        for (direction, flags) in [(0, SYN), (1, SYN | ACK), (0, ACK), (1, ACK)] {
            let from = if flags & SYN != 0 { -1 } else { 0 };
            connection.send(direction, from, 0, flags, b"");
        }
        connection
    }

    /// Sends a segment. Returns what became of it, and of those that it releases.
    fn send(&mut self, direction: usize, from: i64, acked: usize, flags: u8, bytes: &[u8]) -> Vec<Sent> {
        let frame = Connection::frame(direction, from, acked, (flags, 0), bytes);
        let mut sent = self.0.send("c", &[frame]);
        sent.extend(self.0.released());
        sent
    }

    /// Makes a segment. `tos`: the second byte of its IPv4 header.
    fn frame(direction: usize, from: i64, acked: usize, (flags, tos): (u8, u8), bytes: &[u8]) -> Vec<u8> {
        let seq = INITIAL[direction].wrapping_add(from as u32);
        let ack = INITIAL[1 - direction].wrapping_add(acked as u32);
        let (sport, dport) = if direction == 0 { (4000, 80) } else { (80, 4000) };
        // The SYN announces what fits a frame of 1500 bytes.
        let options = if flags & SYN == 0 { Vec::new() } else { vec![2, 4, 5, 0xb4, 1, 3, 3, 7] };
        let tcp = Tcp { seq, ack, flags, window: 60_000, options, ..Tcp::new(sport, dport) };
        let ends = [[10, 0, 0, 1], [10, 0, 0, 2]];
        let ip = Ip4 { tos, ..Ip4::new(ends[direction], ends[1 - direction]) };
        Frame::new(ip, tcp).payload(bytes).build()
    }

    fn recorded(&self) -> String {
        self.0.program().instance("f").expect("an instance").report().remove(0).1
    }
}

/// The bytes of frames to the server, which follow each other from a number on, and the flags of each frame.
fn output(sent: &[Sent], from: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut bytes, mut flags) = (Vec::new(), Vec::new());
    for frame in sent.iter().flat_map(|one| &one.emitted).map(|(_, frame)| frame) {
        if frame[34..36] != 4000u16.to_be_bytes() {
            continue;
        }
        mmb_nf::testing::assert_checksums(frame);
        assert!(frame.len() <= PAYLOAD + usize::from(MSS), "a segment of {} bytes", frame.len());
        let seq = u32::from_be_bytes(frame[38..42].try_into().expect("four"));
        assert_eq!(seq.wrapping_sub(INITIAL[0]) as usize, from + bytes.len());
        bytes.extend_from_slice(&frame[PAYLOAD..]);
        flags.push(frame[47]);
    }
    (bytes, flags)
}

fn letters(len: usize) -> Vec<u8> {
    (0..len).map(|at| b"cdefghijklmnopq"[at * at % 15]).collect()
}

#[test]
fn a_program_takes_large_frames_if_each_function_of_its_chains_does() {
    let takes = |lines: &str| harness(lines).program().takes_large_frames();
    assert!(takes("nf add r record\nnf add l letters\nnf add p plain large\nchain add c p | r | l"));
    assert!(!takes("nf add r record\nnf add p plain\nchain add c r | p"));
    assert!(takes("nf add r record\nnf add p plain\nchain add c r"), "one that no chain uses");
    assert!(!takes("nf add a plain large\nnf add p plain\nchain add c a\nchain add d p"));
}

#[test]
fn the_longest_frames_are_read_once_and_in_order() {
    let mut connection = Connection::open("record");
    let text = letters(3 * LONGEST);
    let part = |n: usize| &text[n * LONGEST..][..LONGEST];
    assert_eq!(connection.send(0, 0, 0, ACK, part(0))[0].verdict, ChainVerdict::Pass);
    // The third comes before the second.
    let early = connection.send(0, 2 * LONGEST as i64, 0, ACK | FIN, part(2));
    assert_eq!(early[0].verdict, ChainVerdict::Hold);
    let both = connection.send(0, LONGEST as i64, 0, ACK, part(1));
    assert_eq!(both.iter().map(|sent| sent.verdict).collect::<Vec<_>>(), [ChainVerdict::Pass; 2]);
    // Repeated with other borders.
    let again = connection.send(0, 40_000, 0, ACK, &text[40_000..100_000]);
    assert_eq!(again[0].verdict, ChainVerdict::Pass);
    assert!(connection.recorded().into_bytes() == text);
}

/// Bytes that functions have not read do not go on, wherever in the frame they are.
#[test]
fn a_retransmission_with_other_bytes_does_not_pass() {
    let mut connection = Connection::open("record");
    let text = letters(50_000);
    connection.send(0, 0, 0, ACK, &text);
    let (mut front, mut back) = (text.clone(), text.clone());
    (front[100], back[45_000]) = (b'X', b'X');
    let corrected = connection.send(0, 0, 0, ACK, &front);
    assert_eq!((corrected[0].verdict, &corrected[0].frame[PAYLOAD..]), (ChainVerdict::Pass, &text[..]));
    let dropped = connection.send(0, 0, 0, ACK, &back);
    assert_eq!(dropped[0].verdict, ChainVerdict::Drop(DropReason::StreamConflict));
    back.push(b'Y');
    let ended = connection.send(0, 0, 0, ACK, &back);
    assert_eq!(ended[0].verdict, ChainVerdict::End(DropReason::StreamReset));
    assert!(connection.recorded().into_bytes() == text);
}

/// Segments that wait have as much memory as ordinary ones.
#[test]
fn large_frames_that_wait_are_limited_by_their_bytes() {
    let mut connection = Connection::open("record");
    let text = letters(60_000);
    let mut waiting = 0;
    for n in 0..20 {
        let sent = connection.send(0, 1 + n * 60_000, 0, ACK, &text);
        match sent[0].verdict {
            ChainVerdict::Hold => waiting += text.len(),
            verdict => assert_eq!(verdict, ChainVerdict::Drop(DropReason::HeldFull)),
        }
    }
    assert_eq!(waiting, MOST_WAITING / text.len() * text.len());
    // What has gone on leaves its room to others.
    connection.send(0, 0, 0, ACK, b"x");
    connection.send(1, 0, 1 + waiting, ACK, b"");
    let next = connection.send(0, 2 + waiting as i64, 0, ACK, &text);
    assert_eq!(next[0].verdict, ChainVerdict::Hold);
}

/// An edit of each byte of the longest frame.
#[test]
fn each_byte_of_a_frame_may_be_edited() {
    let mut connection = Connection::open("letters xyz");
    let sent = connection.send(0, 0, 0, ACK | PSH, &[b'a'; LONGEST]);
    let (bytes, flags) = output(&sent, 0);
    assert_eq!(bytes.len(), 3 * LONGEST);
    assert!(bytes == b"xyz".repeat(LONGEST));
    assert_eq!(flags.len(), (3 * LONGEST).div_ceil(MSS.into()));
    let (last, others) = flags.split_last().expect("segments");
    assert!(*last == ACK | PSH && others.iter().all(|flags| *flags == ACK));
}

#[test]
fn bytes_that_wait_and_the_end_of_the_stream_are_in_the_next_frame() {
    let mut connection = Connection::open("letters xx");
    let mut text = letters(40_000);
    (text[2000], text[30_000], text[39_999]) = (b'a', b'a', b'b');
    let edited = String::from_utf8_lossy(&text).replace('a', "xx").into_bytes();
    let (first, rest) = edited.split_at(edited.len() - 1);
    let (bytes, flags) = output(&connection.send(0, 0, 0, ACK | CWR | PSH, &text), 0);
    assert!(bytes == first);
    assert!(flags[0] == ACK | CWR && flags[1..].iter().all(|flags| flags & CWR == 0));
    // The receiver lacks the last bytes, which come again with others, and the end.
    connection.send(1, 0, 1460, ACK, b"");
    let again = [&text[20_000..], &letters(30_000)].concat();
    let (bytes, flags) = output(&connection.send(0, 20_000, 0, ACK | FIN, &again), 20_001);
    let expected = [&first[20_001..], rest, &letters(30_000)].concat();
    assert!(bytes == expected, "{} bytes, not {}", bytes.len(), expected.len());
    let (last, others) = flags.split_last().expect("segments");
    assert!(*last == ACK | FIN && others.iter().all(|flags| *flags == ACK));
}

#[test]
fn a_frame_without_edits_leaves_as_it_is() {
    let mut connection = Connection::open("letters xx");
    let text = letters(LONGEST);
    let sent = connection.send(0, 0, 0, ACK, &text);
    assert_eq!((sent[0].verdict, sent[0].emitted.len()), (ChainVerdict::Pass, 0));
    assert!(sent[0].frame[PAYLOAD..] == text);
}

/// The client's frames of a vector: the flags, the second byte of the IPv4 header, and the bytes of each.
fn vector(frames: &[(u8, u8, &[u8])]) -> Vec<Sent> {
    let mut from = 0;
    let frames: Vec<_> = frames
        .iter()
        .map(|(flags, tos, bytes)| {
            let frame = Connection::frame(0, from, 0, (*flags, *tos), bytes);
            from += bytes.len() as i64;
            frame
        })
        .collect();
    Connection::open("letters xx").0.send("c", &frames)
}

const ECT: u8 = 2;
const CE: u8 = 3;

#[test]
fn what_a_vector_brings_of_a_connection_leaves_as_one_frame() {
    let text = [b"a".as_slice(), &letters(4000)].concat();
    let edited = [b"xx".as_slice(), &letters(4000)].concat();
    let sent = vector(&[(ACK, ECT, &text), (ACK | PSH, ECT, &text), (ACK, ECT, &text)]);
    assert!(sent[0].emitted.is_empty() && sent[1].emitted.is_empty());
    let (bytes, flags) = output(&sent, 0);
    assert!(bytes == edited.repeat(3));
    let (last, others) = flags.split_last().expect("segments");
    assert!(*last == ACK | PSH && others.iter().all(|flags| *flags == ACK));
    // The frame numbers its segments.
    let id = |(_, frame): &(u16, Vec<u8>)| u16::from_be_bytes([frame[18], frame[19]]);
    assert!(sent[2].emitted.iter().map(id).eq(0..flags.len() as u16));
}

/// A large frame has one set of headers for all of its segments.
#[test]
fn marks_of_congestion_stay_at_their_bytes() {
    let text = [b"a".as_slice(), &letters(4000)].concat();
    let edited = [b"xx".as_slice(), &letters(4000)].concat();
    let sent = vector(&[(ACK, ECT, &text), (ACK, CE, &text), (ACK, ECT, &text), (ACK | CWR, ECT, &text)]);
    let (bytes, flags) = output(&sent, 0);
    assert!(bytes == edited.repeat(4));
    let payload_with = |mark: u8| {
        let frames = sent.iter().flat_map(|one| &one.emitted).filter(|(_, frame)| frame[15] == mark);
        frames.map(|(_, frame)| frame.len() - PAYLOAD).sum::<usize>()
    };
    assert!(edited.len() - payload_with(CE) < MSS.into() && payload_with(CE) <= edited.len());
    assert_eq!(payload_with(ECT) + payload_with(CE), bytes.len());
    assert_eq!(flags.iter().filter(|flags| **flags & CWR != 0).count(), 1);
}

#[test]
fn a_vector_with_more_than_a_frame_can_be_leaves_in_the_longest_ones() {
    let text = [b"a".as_slice(), &letters(39_999)].concat();
    let edited = [b"xx".as_slice(), &letters(39_999)].concat();
    let sent = vector(&[(ACK, 0, &text), (ACK, 0, &text), (ACK, 0, &text)]);
    let emitted = |at: usize| sent[at].emitted.iter().map(|(_, frame)| frame.len() - PAYLOAD).sum::<usize>();
    let longest = LONGEST / usize::from(MSS) * usize::from(MSS);
    assert_eq!([emitted(0), emitted(1), emitted(2)], [0, longest, 3 * edited.len() - longest]);
    assert!(output(&sent, 0).0 == edited.repeat(3));
}
