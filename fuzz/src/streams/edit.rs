//! Properties of functions that edit streams, between two ends over a bad channel. The fuzz target `edit`
//! runs them on segments and losses from the fuzzer's bytes. A test of the crate runs them on the corpus and
//! on random bytes.
//!
//! * The receiver gets the edit applied to what was sent, with right checksums.
//! * No end gets an acknowledgement of what it has not sent, and no byte comes with two values.
//! * Selectively acknowledged bytes were sent, and are behind those that are acknowledged.
//! * When the ends have repeated what is not acknowledged, all is acknowledged.

use std::collections::{BTreeMap, BTreeSet};

use mmb_nf::harness::LargeFrames;
use mmb_nf::{
    ArgError, ChainVerdict, Context, Harness, Registry, Setup, StreamEdit, StreamFunction, StreamVerdict,
};
use mmb_packet::build::{Frame, Ip4, Tcp};

/// Most bytes of a stream.
const LEN: usize = 64;
/// Payload of repeated segments.
const MSS: usize = 9;
/// Rounds of repetitions in which all has to arrive.
const ROUNDS: usize = 1000;
const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;
/// Offset of the TCP header in a frame.
const TCP: usize = 34;
const PORTS: [u16; 2] = [4000, 80];

/// Texts and what takes their place. Each begins with a letter of its own.
const WORDS: [&[(&[u8], &[u8])]; 2] = [
    &[(b"evil", b"harmless"), (b"ll", b""), (b"vv", b"ww")],
    &[(b"sse", b"s"), (b"w", b"evil"), (b"le", b"")],
];

/// Replaces words. Returns the place from which more has to be seen.
fn edited(stage: usize, bytes: &[u8], can_wait: bool, mut replace: impl FnMut(usize, usize, &[u8])) -> usize {
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let whole = WORDS[stage].iter().find(|(word, _)| rest.starts_with(word));
        at += match whole {
            Some((word, new)) => {
                replace(at, at + word.len(), new);
                word.len()
            }
            None if can_wait && WORDS[stage].iter().any(|(word, _)| word.starts_with(rest)) => return at,
            None => 1,
        };
    }
    at
}

fn expected(bytes: &[u8], stages: impl Iterator<Item = usize>) -> Vec<u8> {
    stages.fold(bytes.to_vec(), |bytes, stage| {
        let (mut out, mut from) = (Vec::new(), 0);
        edited(stage, &bytes, false, |start, end, new| {
            out.extend_from_slice(&bytes[from..start]);
            out.extend_from_slice(new);
            from = end;
        });
        out.extend_from_slice(&bytes[from..]);
        out
    })
}

/// Replaces the words of a stage.
struct Substitute(usize);

impl StreamFunction for Substitute {
    const TYPE: &'static str = "substitute";
    const USAGE: &'static str = "0|1";
    const HELP: &'static str = "replaces words";
    const EDITS: bool = true;
    type State = u32;
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        Ok(Substitute(usize::from(setup.args == ["1"])))
    }

    fn edit(&self, data: &mut StreamEdit<'_, '_>, _: &mut u32, _: &mut Context<'_, ()>) -> StreamVerdict {
        let bytes: Vec<u8> = data.bytes().collect();
        let can_hold = data.can_hold();
        let hold = edited(self.0, &bytes, can_hold, |start, end, new| {
            data.replace(start..end, new).expect("edits in order");
        });
        assert!(hold == bytes.len() || data.hold_from(hold));
        StreamVerdict::Pass
    }
}

/// A segment, as its receiver sees it.
#[derive(Clone, Debug)]
struct Segment {
    seq: u32,
    ack: u32,
    window: u16,
    flags: u8,
    /// Selectively acknowledged bytes.
    blocks: Vec<(u32, u32)>,
    payload: Vec<u8>,
}

/// One end of a connection. Numbers count from its first byte; the FIN is one.
struct End {
    initial: u32,
    to_send: Vec<u8>,
    sent: usize,
    acked: usize,
    edge: usize,
    received: Vec<u8>,
    early: BTreeMap<usize, u8>,
    fin_at: Option<usize>,
    window: u16,
    /// Bytes that the other end has acknowledged selectively.
    selected: BTreeSet<usize>,
}

impl End {
    fn whole(&self) -> usize {
        self.to_send.len() + 1
    }

    /// The number of bytes received, and of the FIN.
    fn next(&self) -> u32 {
        (self.received.len() + usize::from(self.fin_at == Some(self.received.len()))) as u32
    }

    fn is_done(&self) -> bool {
        self.acked == self.whole() && self.fin_at == Some(self.received.len())
    }

    /// Takes a segment. Returns whether it asks for an acknowledgement.
    fn receive(&mut self, segment: &Segment, peer: u32) -> bool {
        let acked = segment.ack.wrapping_sub(self.initial) as usize;
        assert!(acked <= self.sent, "acknowledges {acked} of {}", self.sent);
        for &(from, to) in &segment.blocks {
            let [from, to] = [from, to].map(|edge| edge.wrapping_sub(self.initial) as usize);
            assert!(
                acked < from && from < to && to <= self.sent,
                "{from} to {to} of {} behind {acked}",
                self.sent
            );
            self.selected.extend(from..to);
        }
        self.acked = self.acked.max(acked);
        self.edge = self.edge.max(acked + usize::from(segment.window));
        let from = segment.seq.wrapping_sub(peer) as usize;
        let limit = self.received.len() + usize::from(self.window);
        let window = self.received.len()..limit;
        for (n, byte) in segment.payload.iter().enumerate() {
            let at = from.wrapping_add(n);
            if window.contains(&at) {
                let known = *self.early.entry(at).or_insert(*byte);
                assert_eq!(known, *byte, "a repeated byte is the one of the first time");
            }
        }
        if segment.flags & FIN != 0 && from < 1 << 30 {
            let at = from + segment.payload.len();
            assert!(self.fin_at.is_none_or(|known| known == at), "one end of the stream");
            self.fin_at = Some(at);
        }
        while let Some(byte) = self.early.remove(&self.received.len()) {
            self.received.push(byte);
        }
        let next = self.received.len();
        self.early.retain(|&at, _| at >= next);
        !segment.payload.is_empty() || segment.flags & FIN != 0
    }
}

struct Run {
    harness: Harness,
    ends: [End; 2],
    /// Segments under way to the receiver of each direction.
    under_way: [Vec<Segment>; 2],
    /// Frames that come in one vector, and how many these are.
    vector: Vec<Vec<u8>>,
    most: usize,
    /// Options of SYNs.
    options: Vec<u8>,
}

/// The blocks of a selective acknowledgement among options that mmb has written.
fn blocks(options: &[u8]) -> Vec<(u32, u32)> {
    let [1, 1, 5, _, edges @ ..] = options else { return Vec::new() };
    let edge = |at: &[u8]| u32::from_be_bytes([at[0], at[1], at[2], at[3]]);
    edges.chunks(8).map(|block| (edge(block), edge(&block[4..]))).collect()
}

/// Runs the input `bytes`. Panics if a property does not hold.
pub fn check(bytes: &[u8]) {
    let Some((&[a, b, c, d], rest)) = bytes.split_first_chunk() else { return };
    let stages = usize::from(c & 3).min(2);
    let (streams, mut steps) = rest.split_at(rest.len().min(usize::from(d) % LEN));
    let mut registry = Registry::default();
    registry.add_stream::<Substitute>();
    let chain = ["a", "a", "a then b"][stages];
    let lines = format!("nf add a substitute 0\nnf add b substitute 1\nchain add c {chain}");
    let mut harness = Harness::new(registry, &lines).expect("a valid configuration");
    // Segments of more than MSS bytes are large frames, whose payload is in several buffers.
    let large = LargeFrames { segment_size: MSS as u16, buffer: TCP + 20 + usize::from(b & 7) };
    harness.set_large((c & 64 != 0).then_some(large));
    let letter = |byte: &u8| b"evilwhs."[usize::from(byte & 7)];
    let end = |initial: u32, shift: u8, window: u8| End {
        initial,
        to_send: streams.iter().map(|byte| letter(&(byte >> shift))).collect(),
        sent: 0,
        acked: 0,
        edge: 0,
        received: Vec::new(),
        early: BTreeMap::new(),
        fin_at: None,
        window: 64 + u16::from(window),
        selected: BTreeSet::new(),
    };
    let ends = [end(u32::from(a) << 24 | 0x00ff_ffe0, 0, a), end(u32::MAX - u32::from(b), 4, b)];
    // A small segment size (RFC 9293, 3.7.1), so that segments which grow are split.
    let mut options = if c & 4 == 0 { Vec::new() } else { vec![2, 4, 0, MSS as u8] };
    options.extend_from_slice(if c & 32 == 0 { &[] } else { &[1, 1, 4, 2] });
    let (under_way, vector, most) = (Default::default(), Vec::new(), 1 + usize::from(c >> 3 & 3));
    let mut run = Run { harness, ends, under_way, vector, most, options };
    run.open();
    while let Some((&[what, from, len], rest)) = steps.split_first_chunk() {
        steps = rest;
        let direction = usize::from(what >> 7);
        let (at, len) = (usize::from(from), usize::from(len & 31));
        match what & 7 {
            0 | 1 => run.send(direction, run.ends[direction].sent, len),
            2 => run.send(direction, run.ends[direction].acked + at, len),
            // Also bytes that were acknowledged.
            3 => run.send(direction, run.ends[direction].acked.saturating_sub(at & 7), len),
            4 | 5 => run.deliver(direction, at & 7),
            6 if at < run.under_way[direction].len() => drop(run.under_way[direction].remove(at)),
            _ => run.under_way[direction].extend_from_within(..run.under_way[direction].len().min(1)),
        }
    }
    run.finish();
    let stages = 0..stages.max(1);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let [near, far] = &run.ends;
    assert_eq!(text(&far.received), text(&expected(&near.to_send, stages.clone())));
    // Replies meet the functions in reverse order.
    assert_eq!(text(&near.received), text(&expected(&far.to_send, stages.rev())));
}

impl Run {
    /// Sends a frame through the chain. What leaves is under way.
    fn pass(&mut self, direction: usize, segment: &Segment) {
        let addresses = [[10, 0, 0, 1], [10, 0, 0, 2]];
        let Segment { seq, ack, window, flags, .. } = *segment;
        let options = if flags & SYN == 0 { Vec::new() } else { self.options.clone() };
        let ports = (PORTS[direction], PORTS[1 - direction]);
        let tcp = Tcp { seq, ack, window, flags, options, ..Tcp::new(ports.0, ports.1) };
        let net = Ip4::new(addresses[direction], addresses[1 - direction]);
        let frame = Frame::new(net, tcp).payload(&segment.payload[..]).build();
        self.vector.push(frame);
        if self.vector.len() >= self.most || flags & SYN != 0 {
            self.flush();
        }
    }

    /// Sends the frames of a vector.
    fn flush(&mut self) {
        let mut sent = self.harness.send("c", &std::mem::take(&mut self.vector));
        sent.extend(self.harness.released());
        for one in sent {
            let passed = (one.verdict == ChainVerdict::Pass).then_some(one.frame);
            for frame in one.emitted.into_iter().map(|(_, frame)| frame).chain(passed) {
                self.note(&frame);
            }
        }
    }

    fn note(&mut self, frame: &[u8]) {
        mmb_nf::testing::assert_checksums(frame);
        let tcp = &frame[TCP..14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]))];
        let direction = usize::from(tcp[..2] != PORTS[0].to_be_bytes());
        let number = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
        assert_eq!(tcp[13] & 4, 0, "no reset");
        let header = usize::from(tcp[12] >> 4) * 4;
        self.under_way[direction].push(Segment {
            blocks: blocks(&tcp[20..header]),
            seq: number(4),
            ack: number(8),
            window: u16::from_be_bytes([tcp[14], tcp[15]]),
            flags: tcp[13],
            payload: tcp[header..].to_vec(),
        });
    }

    fn open(&mut self) {
        for (direction, flags) in [(0, SYN), (1, SYN | ACK), (0, ACK)] {
            let seq = self.ends[direction].initial.wrapping_sub(u32::from(flags & SYN != 0));
            let ack = if flags & ACK == 0 { 0 } else { self.ends[1 - direction].initial };
            let window = self.ends[direction].window;
            self.pass(
                direction,
                &Segment { seq, ack, window, flags, blocks: Vec::new(), payload: Vec::new() },
            );
            self.ends[1 - direction].edge = window.into();
            self.under_way = Default::default();
        }
    }

    /// Sends bytes of a stream from one that was sent, or from the next one, inside of the window.
    fn send(&mut self, direction: usize, from: usize, len: usize) {
        let ack = self.ends[1 - direction].initial.wrapping_add(self.ends[direction].next());
        let end = &mut self.ends[direction];
        let from = from.min(end.sent);
        let to = (from + len).min(end.whole()).min(end.edge).max(from);
        end.sent = end.sent.max(to);
        let flags = if from < to && to == end.whole() { ACK | FIN } else { ACK };
        let last = end.to_send.len();
        let payload = end.to_send[from.min(last)..to.min(last)].to_vec();
        let seq = end.initial.wrapping_add(from as u32);
        let segment = Segment { seq, ack, window: end.window, flags, blocks: Vec::new(), payload };
        self.pass(direction, &segment);
    }

    fn deliver(&mut self, direction: usize, at: usize) {
        if at >= self.under_way[direction].len() {
            return;
        }
        let segment = self.under_way[direction].remove(at);
        let peer = self.ends[direction].initial;
        if self.ends[1 - direction].receive(&segment, peer) {
            self.send(1 - direction, usize::MAX, 0);
        }
    }

    /// The ends repeat what is not acknowledged, until all is.
    fn finish(&mut self) {
        for round in 0.. {
            self.flush();
            let mut left = ROUNDS;
            while self.under_way.iter().any(|segments| !segments.is_empty()) {
                self.deliver(0, 0);
                self.deliver(1, 0);
                self.flush();
                left -= 1;
                assert_ne!(left, 0, "segments without end");
            }
            if self.ends.iter().all(End::is_done) {
                return;
            }
            let state =
                self.ends.each_ref().map(|end| (end.acked, end.sent, end.whole(), end.received.len()));
            assert!(round < ROUNDS, "the connection stalls: {state:?}");
            for direction in [0, 1] {
                let end = &mut self.ends[direction];
                if end.acked == end.sent {
                    // A probe of a closed window (RFC 9293, 3.8.6.1).
                    end.edge = end.edge.max(end.sent + 1);
                }
                // Each second time, the sender does not repeat what is acknowledged selectively. Then its
                // timer goes off, and it repeats all (RFC 2018, 8).
                if round % 2 != 0 {
                    self.ends[direction].selected.clear();
                }
                let end = &self.ends[direction];
                let first = (end.acked..).find(|at| !end.selected.contains(at));
                self.send(direction, first.unwrap_or(end.acked), MSS);
                self.send(direction, self.ends[direction].sent, MSS);
            }
        }
    }
}
