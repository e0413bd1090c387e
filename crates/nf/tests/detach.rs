//! Stream functions that stop to read a session, between two ends that follow the numbers.

use std::sync::Mutex;

use mmb_nf::harness::{Harness, Sent};
use mmb_nf::{
    ArgError, ChainVerdict, Context, Direction, Registry, Setup, StreamData, StreamEdit, StreamFunction,
    StreamVerdict,
};
use mmb_packet::build::{Frame, Ip4, Tcp};

/// Records bytes until it gets a `!`. `|` stands for a restart. `first-edit` inserts its argument in front
/// of the client's first bytes.
struct First<const EDITS: bool> {
    read: Mutex<Vec<u8>>,
    prefix: Vec<u8>,
}

impl<const EDITS: bool> First<EDITS> {
    fn note(&self, bytes: &[u8]) -> StreamVerdict {
        self.read.lock().expect("no panic before").extend(bytes);
        if bytes.contains(&b'!') { StreamVerdict::Detach } else { StreamVerdict::Pass }
    }
}

impl<const EDITS: bool> StreamFunction for First<EDITS> {
    const TYPE: &'static str = if EDITS { "first-edit" } else { "first" };
    const USAGE: &'static str = "[PREFIX]";
    const HELP: &'static str = "records the beginning";
    const EDITS: bool = EDITS;
    type State = u32;
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let prefix = setup.args.first().map_or(Vec::new(), |prefix| prefix.as_bytes().to_vec());
        Ok(First { read: Mutex::default(), prefix })
    }

    fn data(&self, data: &StreamData<'_, '_>, _: &mut u32, _: &mut Context<'_, ()>) -> StreamVerdict {
        self.note(&data.bytes().collect::<Vec<_>>())
    }

    fn edit(&self, data: &mut StreamEdit<'_, '_>, count: &mut u32, _: &mut Context<'_, ()>) -> StreamVerdict {
        if data.direction() == Direction::Forward && *count == 0 {
            data.insert(0, &self.prefix).expect("an edited connection");
            *count = 1;
        }
        self.note(&data.bytes().collect::<Vec<_>>())
    }

    fn restart(&self, count: &mut u32, _: &mut Context<'_, ()>) {
        *count = 0;
        self.read.lock().expect("no panic before").push(b'|');
    }

    fn report(&self) -> Vec<(String, String)> {
        vec![(String::new(), String::from_utf8_lossy(&self.read.lock().expect("no panic before")).into())]
    }
}

const SYN: u8 = 2;
const ACK: u8 = 16;
/// Offset of the TCP header of IPv4.
const TCP: usize = 34;

struct Bench {
    harness: Harness,
    initial: [u32; 2],
}

/// A segment that has left: distances of its numbers from the first bytes, and payload.
type Left = (u32, u32, String);

impl Bench {
    fn new(lines: &str) -> Bench {
        let mut registry = Registry::default();
        registry.add_stream::<First<false>>().add_stream::<First<true>>();
        let mut bench =
            Bench { harness: Harness::new(registry, lines).expect("valid"), initial: [1000, 0xffff_fff0] };
        bench.open();
        bench
    }

    fn open(&mut self) {
        for (direction, flags) in [(0, SYN), (1, SYN | ACK), (0, ACK)] {
            let from = if flags & SYN != 0 { u32::MAX } else { 0 };
            let frame = self.frame(direction, (from, 0), flags, "");
            let sent = self.harness.send("c", &[frame]);
            assert_eq!(sent[0].verdict, ChainVerdict::Pass);
        }
    }

    fn frame(&self, direction: usize, (from, acked): (u32, u32), flags: u8, bytes: &str) -> Vec<u8> {
        let ends = [[10, 0, 0, 1], [10, 0, 0, 2]];
        let seq = self.initial[direction].wrapping_add(from);
        let ack = self.initial[1 - direction].wrapping_add(acked);
        let ports = [4000, 80];
        let tcp = Tcp { seq, ack, flags, ..Tcp::new(ports[direction], ports[1 - direction]) };
        Frame::new(Ip4::new(ends[direction], ends[1 - direction]), tcp).payload(bytes).build()
    }

    /// Sends one segment. Returns what leaves in its direction.
    fn send(&mut self, direction: usize, numbers: (u32, u32), bytes: &str) -> Vec<Left> {
        let frame = self.frame(direction, numbers, ACK, bytes);
        let sent = self.harness.send("c", &[frame]);
        sent.iter().flat_map(|sent| self.left(direction, sent)).collect()
    }

    fn left(&self, direction: usize, sent: &Sent) -> Vec<Left> {
        let passed = (sent.verdict == ChainVerdict::Pass).then_some(&sent.frame);
        let frames = sent.emitted.iter().map(|(_, frame)| frame).chain(passed);
        let forward = frames.filter(|frame| usize::from(frame[TCP + 1] == 80) == direction);
        let read = |frame: &Vec<u8>| {
            mmb_nf::testing::assert_checksums(frame);
            let number =
                |at: usize| u32::from_be_bytes(frame[TCP + at..TCP + at + 4].try_into().expect("four"));
            let payload = &frame[TCP + usize::from(frame[TCP + 12] >> 4) * 4..];
            let seq = number(4).wrapping_sub(self.initial[direction]);
            let ack = number(8).wrapping_sub(self.initial[1 - direction]);
            (seq, ack, String::from_utf8_lossy(payload).into_owned())
        };
        forward.map(read).collect()
    }

    fn read(&self, name: &str) -> String {
        self.harness.program().instance(name).expect("an instance").report()[0].1.clone()
    }

    /// What `show connections verbose` prints of the stream.
    fn state(&mut self) -> String {
        let frame = self.frame(0, (0, 0), ACK, "");
        self.harness
            .describe(&frame)
            .expect("a session")
            .iter()
            .map(|(_, text)| format!("{text}; "))
            .collect()
    }
}

fn one(seq: u32, ack: u32, bytes: &str) -> Vec<Left> {
    vec![(seq, ack, bytes.to_owned())]
}

#[test]
fn a_connection_that_nobody_reads_passes() {
    for kind in ["first", "first-edit"] {
        let mut bench = Bench::new(&format!("nf add a {kind}\nchain add c a"));
        assert_eq!(bench.send(0, (0, 0), "ab!"), one(0, 0, "ab!"), "{kind}");
        // Bytes in front of it are missing. It passes all the same.
        assert_eq!(bench.send(0, (10, 0), "late"), one(10, 0, "late"), "{kind}");
        assert_eq!(bench.send(1, (7, 3), "answer"), one(7, 3, "answer"), "{kind}");
        assert_eq!(bench.send(0, (3, 0), "unread"), one(3, 0, "unread"), "{kind}");
        assert_eq!((bench.read("a").as_str(), bench.state().contains("not read: detached")), ("ab!", true));
    }
}

#[test]
fn a_repeated_byte_stays_the_one_that_was_read() {
    for kind in ["first", "first-edit"] {
        let mut bench = Bench::new(&format!("nf add a {kind}\nchain add c a"));
        bench.send(0, (0, 0), "ab!");
        bench.send(0, (3, 0), "cd");
        assert_eq!(bench.send(0, (0, 0), "xyz"), one(0, 0, "ab!"), "{kind}");
        // Acknowledged in part, and then all.
        bench.send(1, (0, 2), "");
        assert_eq!(bench.send(0, (2, 0), "?").last().map(|left| left.2.clone()), Some("!".into()), "{kind}");
        bench.send(1, (0, 5), "");
        bench.send(1, (0, 5), "");
        assert_eq!(bench.send(0, (5, 0), "ef"), one(5, 0, "ef"), "{kind}");
        assert!(!bench.state().contains("offset"), "{kind}: {}", bench.state());
    }
}

#[test]
fn what_was_inserted_is_counted_for_ever() {
    let mut bench = Bench::new("nf add a first-edit 12345\nchain add c a");
    assert_eq!(bench.send(0, (0, 0), "ab!"), one(0, 0, "12345ab!"));
    assert_eq!(bench.send(0, (3, 0), "cd"), one(8, 0, "cd"));
    assert_eq!(bench.send(1, (0, 8), "ok"), one(0, 3, "ok"));
    assert_eq!(bench.send(1, (2, 10), ""), one(2, 5, ""));
    // Far out of order, both ways.
    assert_eq!(bench.send(0, (1000, 2), "late"), one(1005, 2, "late"));
    assert_eq!(bench.send(0, (5, 2), "ef"), one(10, 2, "ef"));
    assert_eq!(bench.send(1, (500, 12), "x"), one(500, 7, "x"));
    assert_eq!(bench.read("a"), "ab!");
    let state = bench.state();
    assert!(state.contains("offset +5") && state.contains("not read: detached"), "{state}");
}

#[test]
fn other_functions_read_on() {
    let mut bench = Bench::new("nf add a first\nnf add b first-edit XY\nchain add c a then b");
    bench.send(0, (0, 0), "ab!");
    bench.send(0, (3, 0), "cd");
    // Both are detached by now.
    assert_eq!((bench.read("a"), bench.read("b")), ("ab!".into(), "ab!".into()));
    let mut bench = Bench::new("nf add a first\nnf add b first-edit XY\nchain add c b then a");
    bench.send(1, (0, 0), "reply");
    bench.send(0, (0, 5), "ab");
    bench.send(1, (5, 4), "!");
    assert_eq!((bench.read("a"), bench.read("b")), ("replyXYab!".into(), "replyab!".into()));
    let mut bench = Bench::new("nf add a first\nnf add b first\nchain add c a then b");
    bench.send(0, (0, 0), "ab");
    bench
        .harness
        .load("nf add a first\nnf add b first\nnf add d first\nchain add c a then b then d")
        .unwrap();
    bench.send(0, (2, 0), "c!");
    assert_eq!(["a", "b", "d"].map(|name| bench.read(name)), ["abc!", "abc!", "c!"]);
}

#[test]
fn a_detached_function_stays_detached_while_others_read() {
    let lines = "nf add a first\nnf add b first-edit\nchain add c a then b";
    let mut bench = Bench::new(lines);
    bench.send(0, (0, 0), "ab!");
    // A function joins: the session was not read meanwhile, and it was not seen from its beginning.
    bench.send(0, (3, 0), "cd");
    bench.send(1, (0, 5), "");
    bench.harness.load(&format!("{}\nnf add d first\nchain add e d then a", lines)).unwrap();
    bench.send(0, (5, 0), "ef");
    assert_eq!(["a", "b", "d"].map(|name| bench.read(name)), ["ab!", "ab!", ""]);
    assert!(bench.state().contains("not read: detached"));
    bench.harness.load(&format!("{lines} then d\nnf add d first")).unwrap();
    assert_eq!(bench.send(0, (7, 0), "gh"), one(7, 0, "gh"));
    assert!(bench.state().contains("not read: no SYN seen"), "{}", bench.state());
    assert_eq!(["a", "b", "d"].map(|name| bench.read(name)), ["ab!", "ab!", ""]);
}

#[test]
fn the_offset_stays_when_functions_join_and_leave() {
    let lines = "nf add a first-edit 12345\nchain add c a";
    for then in
        ["nf add a first-edit 12345\nnf add b first\nchain add c a then b", "nf add b first\nchain add c b"]
    {
        let mut bench = Bench::new(lines);
        bench.send(0, (0, 0), "ab!");
        bench.send(0, (3, 0), "cd");
        bench.send(1, (0, 10), "");
        bench.harness.load(then).unwrap();
        assert_eq!(bench.send(0, (5, 0), "ef"), one(10, 0, "ef"), "{then}");
        assert_eq!(bench.send(1, (0, 12), "ok"), one(0, 7, "ok"), "{then}");
        assert_eq!(bench.send(0, (7, 2), "gh"), one(12, 2, "gh"), "{then}");
    }
}

#[test]
fn the_next_connection_is_read_again() {
    for kind in ["first", "first-edit 123"] {
        let mut bench = Bench::new(&format!("nf add a {kind}\nchain add c a"));
        bench.send(0, (0, 0), "ab!");
        bench.send(0, (3, 0), "cd");
        bench.send(1, (0, 8), "");
        bench.initial = [900_000, 77];
        bench.open();
        bench.send(0, (0, 0), "new!");
        bench.send(0, (4, 0), "more");
        assert_eq!(bench.read("a"), "ab!|new!", "{kind}");
    }
}

/// Those that waited when the functions left go on.
#[test]
fn segments_that_wait_go_on() {
    let mut bench = Bench::new("nf add a first\nchain add c a");
    assert_eq!(bench.send(0, (3, 0), "cd"), []);
    let frames = [bench.frame(1, (0, 0), ACK, "!"), bench.frame(0, (0, 1), ACK, "")];
    bench.harness.send("c", &frames[..1]);
    bench.harness.send("c", &frames[1..]);
    let released = bench.harness.released();
    let left: Vec<_> = released.iter().flat_map(|sent| bench.left(0, sent)).collect();
    assert_eq!(left, [one(3, 0, "cd"), one(0, 1, "")].concat());
}
