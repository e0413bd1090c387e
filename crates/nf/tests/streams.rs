//! Stream functions in chains, and the context in front of them.

use std::sync::Mutex;

use mmb_nf::harness::{Harness, Sent};
use mmb_nf::{
    ArgError, ChainVerdict, Context, Direction, DropReason, Function, Packet, Registry, Setup, StreamData,
    StreamFunction, StreamVerdict, Verdict,
};
use mmb_packet::build::{Frame, Ip4, Ip6, Net, Tcp};
use proptest::prelude::*;

/// Records the bytes of both directions. `.` stands for an end, `|` for a restart. With a word: it resets
/// sessions that have the word in one packet, or blocks them if another argument follows.
struct Record {
    read: Mutex<[Vec<u8>; 2]>,
    word: Option<String>,
    blocks: bool,
}

impl StreamFunction for Record {
    const TYPE: &'static str = "record";
    const USAGE: &'static str = "[WORD [block]]";
    const HELP: &'static str = "records bytes";
    type State = [u32; 2];
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let word = setup.args.first().map(|word| (*word).to_owned());
        Ok(Record { read: Mutex::default(), word, blocks: setup.args.len() > 1 })
    }

    fn data(
        &self,
        data: &StreamData<'_, '_>,
        state: &mut [u32; 2],
        _: &mut Context<'_, ()>,
    ) -> StreamVerdict {
        let (direction, bytes) = (data.direction() as usize, data.bytes().collect::<Vec<_>>());
        assert!(bytes.len() == data.len() && data.chunks().flatten().eq(&bytes) && !bytes.is_empty());
        state[direction] += bytes.len() as u32;
        self.read.lock().expect("no panic before")[direction].extend(&bytes);
        match &self.word {
            Some(word) if bytes.windows(word.len()).any(|part| part == word.as_bytes()) => {
                match self.blocks {
                    true => StreamVerdict::Block(DropReason::Acl),
                    false => StreamVerdict::Reset(DropReason::Acl),
                }
            }
            _ => StreamVerdict::Pass,
        }
    }

    fn end(&self, direction: Direction, _: &mut [u32; 2], _: &mut Context<'_, ()>) -> StreamVerdict {
        self.read.lock().expect("no panic before")[direction as usize].push(b'.');
        StreamVerdict::Pass
    }

    fn restart(&self, state: &mut [u32; 2], _: &mut Context<'_, ()>) {
        *state = [0; 2];
        self.read.lock().expect("no panic before").iter_mut().for_each(|read| read.push(b'|'));
    }

    fn describe(&self, state: &[u32; 2]) -> Option<String> {
        Some(format!("{state:?}"))
    }

    fn report(&self) -> Vec<(String, String)> {
        let read = self.read.lock().expect("no panic before");
        read.iter().map(|read| (String::new(), String::from_utf8_lossy(read).into_owned())).collect()
    }
}

/// Passes packets.
struct Plain;

impl Function for Plain {
    const TYPE: &'static str = "plain";
    const USAGE: &'static str = "";
    const HELP: &'static str = "passes packets";
    type Pad = u32;
    type Local = ();

    fn new(_: &Setup<'_>) -> Result<Self, ArgError> {
        Ok(Plain)
    }

    fn packet(&self, _: &mut Packet<'_>, _: &mut u32, _: &mut Context<'_, ()>) -> Verdict {
        Verdict::Pass
    }
}

struct Bench {
    harness: Harness,
    net: [Net; 2],
    /// Next numbers.
    initial: [u32; 2],
}

const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 1;
const LINES: &str = "nf add a record\nnf add p plain\nnf add b record\nchain add c a | b";

impl Bench {
    fn new(lines: &str) -> Bench {
        let mut registry = Registry::default();
        registry.add_stream::<Record>().add_stream::<Record>();
        registry.add::<Plain>();
        let harness = Harness::new(registry, lines).expect("a valid configuration");
        let ends = [[10, 0, 0, 1], [10, 0, 0, 2]];
        let net = [Ip4::new(ends[0], ends[1]).into(), Ip4::new(ends[1], ends[0]).into()];
        Bench { harness, net, initial: [1000, 0xffff_fff0] }
    }

    fn ip6(mut self) -> Bench {
        self.net = [Ip6::new([1u16; 8], [2u16; 8]).into(), Ip6::new([2u16; 8], [1u16; 8]).into()];
        self
    }

    /// A frame with the bytes behind the initial number.
    fn frame(&self, direction: usize, from: i64, flags: u8, bytes: &[u8]) -> Vec<u8> {
        let seq = self.initial[direction].wrapping_add(from as u32);
        let ack = self.initial[1 - direction];
        let (sport, dport) = if direction == 0 { (4000, 80) } else { (80, 4000) };
        let tcp = Tcp { seq, ack, flags, ..Tcp::new(sport, dport) };
        Frame::new(self.net[direction].clone(), tcp).payload(bytes).build()
    }

    fn open(&mut self) {
        let frames =
            [self.frame(0, -1, SYN, b""), self.frame(1, -1, SYN | ACK, b""), self.frame(0, 0, ACK, b"")];
        assert!(self.send(&frames).iter().all(|sent| sent.verdict == ChainVerdict::Pass));
    }

    /// Sends frames in one vector, and then what was released.
    fn send(&mut self, frames: &[Vec<u8>]) -> Vec<Sent> {
        let mut sent = self.harness.send("c", frames);
        sent.extend(self.harness.released());
        sent
    }

    /// What an instance has read.
    fn read(&self, name: &str) -> [String; 2] {
        let report = self.harness.program().instance(name).expect("an instance").report();
        [report[0].1.clone(), report[1].1.clone()]
    }

    fn count(&self, what: &str) -> String {
        let report = self.harness.program().instance("(stream)").expect("a context").report();
        report.into_iter().find(|(name, _)| name == what).map_or_else(|| "-".to_owned(), |(_, count)| count)
    }
}

/// What has gone on, without what was held.
fn passed(sent: &[Sent]) -> Vec<Vec<u8>> {
    let passed = sent.iter().filter(|sent| sent.verdict == ChainVerdict::Pass);
    passed.map(|sent| sent.frame.clone()).collect()
}

#[test]
fn functions_read_both_directions_in_order() {
    for ip6 in [false, true] {
        let mut bench = Bench::new(LINES);
        bench = if ip6 { bench.ip6() } else { bench };
        bench.open();
        let frames = [
            bench.frame(0, 4, ACK, b"efg"),
            bench.frame(1, 0, ACK, b"0123456789abcdefghij"),
            bench.frame(0, 0, ACK, b"abcd"),
            bench.frame(1, 20, ACK | FIN, b"."),
            bench.frame(0, 7, ACK, b"h"),
        ];
        let sent = bench.send(&frames);
        // The first waits for the third, and the fifth follows it.
        let order = [&frames[1], &frames[2], &frames[3], &frames[0], &frames[4]];
        assert_eq!(passed(&sent).iter().collect::<Vec<_>>(), order);
        let read = ["abcdefgh", "0123456789abcdefghij.."].map(str::to_owned);
        assert_eq!([bench.read("a"), bench.read("b")], [read.clone(), read]);
        assert_eq!(bench.count("early segments"), "1");
        assert_eq!(bench.count("bytes"), "29");
    }
}

#[test]
fn one_context_serves_adjacent_functions() {
    let names = |bench: &Bench| {
        let instances = bench.harness.program().instances().iter();
        instances.map(|instance| instance.name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&Bench::new(LINES)), ["a", "p", "b", "(stream)"]);
    let apart = LINES.replace("a | b", "a | p | b");
    let mut bench = Bench::new(&apart);
    assert_eq!(names(&bench), ["a", "p", "b", "(stream)", "(stream 2)"]);
    bench.open();
    let frames =
        [bench.frame(0, 2, ACK, b"cd"), bench.frame(0, 0, ACK, b"ab"), bench.frame(1, 0, ACK, b"xy")];
    bench.send(&frames);
    assert_eq!(
        [bench.read("a"), bench.read("b")],
        [["abcd", "xy"], ["abcd", "xy"]].map(|r| r.map(str::to_owned))
    );
    // A chain without stream functions has no context.
    assert_eq!(names(&Bench::new("nf add p plain\nchain add c p")), ["p"]);
}

#[test]
fn a_context_survives_a_change_of_its_chain() {
    let mut bench = Bench::new(LINES);
    bench.open();
    let frame = bench.frame(0, 3, ACK, b"def");
    bench.send(&[frame]);
    bench.harness.load(&LINES.replace("a | b", "p | b | a")).unwrap();
    let frame = bench.frame(0, 0, ACK, b"abc");
    let sent = bench.send(&[frame]);
    assert_eq!(passed(&sent).len(), 2);
    assert_eq!(bench.read("a")[0], "abcdef");
}

#[test]
fn a_session_can_be_reset_or_blocked() {
    for (word, emitted) in [("evil", 2), ("evil block", 0)] {
        let mut bench = Bench::new(&LINES.replace("add a record", &format!("add a record {word}")));
        bench.open();
        let frame = bench.frame(0, 0, ACK, b"an evil word");
        let sent = bench.send(&[frame]);
        assert_eq!(sent[0].verdict, ChainVerdict::Refuse(DropReason::Acl));
        assert_eq!(sent[0].emitted.len(), emitted);
        assert_eq!(bench.read("b")[0], "", "functions behind it do not get the packet");
        for (port, frame) in &sent[0].emitted {
            mmb_nf::testing::assert_checksums(frame);
            assert_eq!((frame[47], *port < 2), (4 | if *port == 1 { 16 } else { 0 }, true), "RST");
        }
    }
}

/// Also what is behind the word in the same vector, with and without bytes.
#[test]
fn nothing_of_a_refused_session_goes_on() {
    for arguments in ["evil", "evil block"] {
        let mut bench = Bench::new(&format!("nf add a record {arguments}\nchain add c a"));
        bench.open();
        let frames = [
            bench.frame(0, 0, ACK, b"good"),
            bench.frame(0, 4, ACK, b"evil"),
            bench.frame(0, 8, ACK, b"more"),
            bench.frame(0, 12, ACK, b""),
        ];
        let sent = bench.send(&frames);
        let verdicts: Vec<bool> = sent.iter().map(|sent| sent.verdict == ChainVerdict::Pass).collect();
        assert_eq!(verdicts, [true, false, false, false], "{arguments}");
    }
}

/// A segment that came too early goes on once the one in front of it has come, unless that ends the session.
#[test]
fn nothing_early_of_a_refused_session_goes_on() {
    for (arguments, is_one_vector) in
        [("evil", true), ("evil", false), ("evil block", true), ("evil block", false)]
    {
        let mut bench = Bench::new(&format!("nf add a record {arguments}\nchain add c a"));
        bench.open();
        let frames = [
            bench.frame(0, 8, ACK, b"last"),
            bench.frame(0, 4, ACK, b"more"),
            bench.frame(0, 0, ACK, b"evil"),
        ];
        let sent: Vec<_> = match is_one_vector {
            true => bench.send(&frames),
            false => frames.chunks(1).flat_map(|frame| bench.send(frame)).collect(),
        };
        assert_eq!(passed(&sent), Vec::<Vec<u8>>::new(), "{arguments}");
        let dropped = |sent: &&Sent| sent.verdict == ChainVerdict::Drop(DropReason::HeldEnded);
        assert_eq!(sent.iter().filter(dropped).count(), 2, "{arguments}");
        assert_eq!(bench.read("a")[0], "evil");
    }
}

#[test]
fn connections_without_a_syn_pass() {
    let mut bench = Bench::new(LINES);
    let frames = [bench.frame(0, 50, ACK, b"abc"), bench.frame(0, 0, ACK, b"abc")];
    assert_eq!(passed(&bench.send(&frames)), frames);
    assert_eq!((bench.read("a")[0].as_str(), bench.count("no SYN seen").as_str()), ("", "1"));
}

#[test]
fn a_new_connection_in_the_same_session_is_read_from_its_beginning() {
    let mut bench = Bench::new(LINES);
    bench.open();
    let (a, b) = (bench.frame(0, 0, ACK | FIN, b"a"), bench.frame(1, 0, ACK | FIN, b"b"));
    bench.send(&[a, b]);
    bench.initial = [77_000, 99_000];
    bench.open();
    let frame = bench.frame(0, 0, ACK, b"c");
    bench.send(&[frame]);
    assert_eq!(bench.read("b"), ["a.|c", "b.|"]);
}

#[test]
fn held_segments_are_bounded() {
    let mut bench = Bench::new(LINES);
    bench.open();
    // 256 packets of a session are the default limit.
    let frames: Vec<_> = (1..=300).map(|n| bench.frame(0, n, ACK, b"x")).collect();
    let sent = bench.send(&frames);
    let dropped = |sent: &Sent| sent.verdict == ChainVerdict::Drop(DropReason::HeldFull);
    assert_eq!(sent.iter().filter(|sent| dropped(sent)).count(), 44);
    let copy = bench.frame(0, 1, ACK, b"y");
    assert_eq!(bench.send(&[copy])[0].verdict, ChainVerdict::Drop(DropReason::StreamDuplicate));
    // The missing byte passes, and what waits follows.
    let first = bench.frame(0, 0, ACK, b"x");
    assert_eq!(passed(&bench.send(&[first])).len(), 257);
    assert_eq!(bench.read("b")[0].len(), 257);
    // What was dropped comes again.
    bench.send(&frames[200..]);
    assert_eq!(bench.read("b")[0].len(), 301);
}

#[test]
fn held_segments_that_time_out_come_again() {
    let mut bench = Bench::new(LINES);
    bench.open();
    let late = bench.frame(0, 1, ACK, b"bc");
    bench.send(std::slice::from_ref(&late));
    bench.harness.expire(20_000);
    assert_eq!(bench.harness.released()[0].verdict, ChainVerdict::Drop(DropReason::HeldTimeout));
    let first = bench.frame(0, 0, ACK, b"a");
    bench.send(&[first, late]);
    assert_eq!(bench.read("a")[0], "abc");
}

/// The payload of a frame with IPv4.
fn payload(frame: &[u8]) -> &[u8] {
    mmb_nf::testing::assert_checksums(frame);
    &frame[54..]
}

/// The first bytes that go on win, and copies that go on later are overwritten.
#[test]
fn what_goes_on_agrees_with_what_was_read() {
    let mut bench = Bench::new(LINES);
    bench.open();
    let frames = [
        bench.frame(0, 0, ACK, b"abcdef"),
        bench.frame(0, 0, ACK, b"aXcdeX"),
        bench.frame(0, 1, ACK, b"XX"),
        bench.frame(0, 5, ACK, b"Xghi"),
        bench.frame(0, 7, ACK, b"hi"),
    ];
    let gone = passed(&bench.send(&frames));
    let payloads: Vec<_> = gone.iter().map(|frame| payload(frame)).collect();
    assert_eq!(payloads, [&b"abcdef"[..], b"abcdef", b"bc", b"fghi", b"hi"]);
    assert_eq!(bench.count("retransmissions with other bytes"), "3");
    // The other order: the copy that waits was first, but the one that closes the gap goes on first.
    let frames =
        [bench.frame(1, 3, ACK, b"DEF"), bench.frame(1, 0, ACK, b"abcd"), bench.frame(1, 2, ACK, b"CDEX")];
    let gone = passed(&bench.send(&frames));
    let payloads: Vec<_> = gone.iter().map(|frame| payload(frame)).collect();
    assert_eq!(payloads, [&b"abcd"[..], b"dEF", b"cdEF"]);
    assert_eq!(
        [bench.read("a"), bench.read("b")],
        [["abcdefghi", "abcdEF"]; 2].map(|read| read.map(str::to_owned))
    );
}

/// RFC 9293, 3.8.4: a keepalive may have a byte of garbage. The receiver has acknowledged its number.
#[test]
fn acknowledged_bytes_are_not_overwritten() {
    let mut bench = Bench::new(LINES);
    bench.open();
    let data = bench.frame(0, 0, ACK, b"abc");
    bench.send(&[data]);
    bench.initial[0] += 3;
    let (ack, keepalive) = (bench.frame(1, 0, ACK, b""), bench.frame(0, -1, ACK, b"?"));
    assert_eq!(passed(&bench.send(&[ack, keepalive.clone()]))[1], keepalive);
}

/// The bytes of all frames of a direction that went on, in order: the receiver's view.
fn received(frames: &[Vec<u8>], initial: u32, len: usize) -> Vec<Option<u8>> {
    let mut bytes = vec![None; len];
    for frame in frames {
        let seq = u32::from_be_bytes(frame[38..42].try_into().expect("four bytes"));
        let end = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
        for (n, byte) in frame[54..end].iter().enumerate() {
            let at = seq.wrapping_add(n as u32).wrapping_sub(initial) as usize;
            bytes[at].get_or_insert(*byte);
        }
    }
    bytes
}

proptest! {
    /// Segments in any order and with any borders, in vectors of any size: both functions read all bytes
    /// once and in order, no packet is lost or changed, and packets leave in order.
    #[test]
    fn all_is_read_and_nothing_lost(
        segments in prop::collection::vec((0usize..2, 0usize..60, 1usize..25), 1..80),
        sizes in prop::collection::vec(1usize..20, 1..10),
        initial in prop_oneof![Just(1000u32), (u32::MAX - 50)..u32::MAX],
    ) {
        let mut bench = Bench::new(LINES);
        bench.initial = [initial, 7];
        bench.open();
        let text: Vec<u8> = (b'0'..b'0' + 60).collect();
        // All bytes come at least once.
        let all = segments.into_iter().chain([(0, 0, 60), (1, 0, 60)]);
        let frames: Vec<_> = all
            .map(|(direction, from, len)| {
                let part = &text[from..(from + len).min(60)];
                (direction, bench.frame(direction, from as i64, ACK, part))
            })
            .collect();
        let (mut rest, mut gone, mut dropped) = (&frames[..], Vec::new(), 0);
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (some, others) = rest.split_at(rest.len().min(*size));
            rest = others;
            let some: Vec<_> = some.iter().map(|(_, frame)| frame.clone()).collect();
            let sent = bench.send(&some);
            dropped += sent.iter().filter(|sent| matches!(sent.verdict, ChainVerdict::Drop(_))).count();
            gone.extend(passed(&sent));
        }
        let text = String::from_utf8(text).unwrap();
        for name in ["a", "b"] {
            prop_assert_eq!(bench.read(name), [text.clone(), text.clone()]);
        }
        prop_assert_eq!(gone.len() + dropped, frames.len());
        let forward: Vec<_> = gone.iter().filter(|frame| frame[34..36] == 4000u16.to_be_bytes()).cloned().collect();
        prop_assert!(received(&forward, initial, 60).into_iter().map(Option::unwrap).eq(text.bytes()));
        // What goes on begins at a byte whose predecessors have all gone on.
        let mut end = 0;
        for frame in &forward {
            let from = u32::from_be_bytes(frame[38..42].try_into().expect("four bytes")).wrapping_sub(initial);
            let len = u32::from(u16::from_be_bytes([frame[16], frame[17]])) - 40;
            prop_assert!(from <= end);
            end = end.max(from + len);
        }
    }
}

/// Without room for a copy, bytes go on once: others could come in their place.
#[test]
fn bytes_that_are_not_kept_do_not_go_on_again() {
    const LEN: i64 = 1460;
    // A direction may have 8 MiB.
    const ROOM: i64 = (8 << 20) / LEN;
    let mut bench = Bench::new(LINES);
    bench.open();
    let send = |bench: &mut Bench, n: i64, byte: u8| {
        let frame = bench.frame(0, n * LEN, ACK, &[byte; LEN as usize]);
        let sent = bench.send(&[frame]);
        passed(&sent).first().map(|frame| payload(frame)[0]).ok_or(sent[0].verdict)
    };
    assert!((0..ROOM).all(|n| send(&mut bench, n, b'a') == Ok(b'a')));
    // The first copy stays, wherever it is.
    for n in [0, ROOM / 2, ROOM - 1] {
        assert_eq!(send(&mut bench, n, b'X'), Ok(b'a'), "{n}");
    }
    assert!((ROOM..ROOM + 9).all(|n| send(&mut bench, n, b'a') == Ok(b'a')));
    assert_eq!(bench.read("a")[0].len() as i64, (ROOM + 9) * LEN);
    // Acknowledged bytes may come again, since the receiver does not take them.
    bench.initial[0] = bench.initial[0].wrapping_add(LEN as u32);
    let ack = bench.frame(1, 0, ACK, b"");
    bench.send(&[ack]);
    assert_eq!(send(&mut bench, -1, b'X'), Ok(b'X'));
    assert_eq!(send(&mut bench, 0, b'X'), Err(ChainVerdict::End(DropReason::StreamReset)));
}
