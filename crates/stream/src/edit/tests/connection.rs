//! Two ends of a connection, a channel that loses, repeats and reorders, and edits between them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::TestRng;

use crate::{
    BuiltSegments, Change, Departure, HeldRange, Leaving, NextHeld, Outcome, OutputRange, Policy, Rope,
    Segment, Splices, TcpStream, Translated, View, is_after,
};

const SYN: u8 = Segment::SYN;
const FIN: u8 = Segment::FIN;
const ACK: u8 = Segment::ACK;

/// Patterns that a function replaces. None begins inside of another one.
const PATTERNS: [&[(&[u8], &[u8])]; 2] =
    [&[(b"ab", b"XYZ"), (b"ac", b""), (b"d", b"dQ")], &[(b"Xe", b""), (b"Z", b"12345"), (b"cc", b"c")]];

/// Replaces patterns. Returns the changes, and the place from which it has to see more.
fn scan(stage: usize, bytes: &[u8], is_final: bool) -> (Vec<Change>, Vec<u8>, usize) {
    let (mut changes, mut buffer, mut at) = (Vec::new(), Vec::new(), 0);
    'next: while at < bytes.len() {
        for (pattern, new) in PATTERNS[stage] {
            if bytes[at..].starts_with(pattern) {
                let from = buffer.len();
                buffer.extend_from_slice(new);
                // An insertion is asked for as such.
                let start = if new.starts_with(pattern) { at + pattern.len() } else { at };
                let new = (if start == at { from } else { from + pattern.len() }, buffer.len());
                changes.push(Change { start, end: at + pattern.len(), new });
                at += pattern.len();
                continue 'next;
            }
        }
        let may_begin = PATTERNS[stage].iter().any(|(pattern, _)| pattern.starts_with(&bytes[at..]));
        if may_begin && !is_final {
            return (changes, buffer, at);
        }
        at += 1;
    }
    (changes, buffer, at)
}

fn edited(bytes: &[u8], stages: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for stage in 0..stages {
        let (changes, buffer, _) = scan(stage, &bytes, true);
        let (mut rope, mut out) = (Rope::default(), Rope::default());
        rope.push_plain(&bytes);
        out.apply((&Rope::default(), &rope), std::iter::empty(), &changes, &buffer);
        bytes = out.bytes().to_vec();
    }
    bytes
}

#[derive(Clone, Debug)]
struct Packet {
    seq: u32,
    ack: u32,
    window: u16,
    flags: u8,
    bytes: Vec<u8>,
}

impl Packet {
    fn segment(&self) -> Segment {
        let len = self.bytes.len() as u16;
        let (seq, ack, window, flags) = (self.seq, self.ack, self.window, self.flags);
        Segment { seq, ack, len, window, flags, ..Segment::default() }
    }
}

/// One end. It does what RFC 9293 asks of a sender and of a receiver, without timers.
struct End {
    initial: u32,
    to_send: Vec<u8>,
    /// Bytes of the stream that were sent, and acknowledged; the FIN counts as one.
    sent: u32,
    una: u32,
    edge: u32,
    peer: Option<u32>,
    received: Vec<u8>,
    early: BTreeMap<u32, Vec<u8>>,
    fin_at: Option<u32>,
    window: u16,
}

impl End {
    fn seq(&self, at: u32) -> u32 {
        self.initial.wrapping_add(1).wrapping_add(at)
    }

    fn is_done(&self) -> bool {
        self.una == self.to_send.len() as u32 + 1 && self.fin_at == Some(self.received.len() as u32)
    }

    /// The next byte of the other end; the FIN counts as one.
    fn expected(&self) -> u32 {
        let received = self.received.len() as u32;
        received + u32::from(self.fin_at == Some(received))
    }

    fn packet(&self, from: u32, to: u32) -> Packet {
        let end = self.to_send.len() as u32;
        let bytes = self.to_send[from.min(end) as usize..to.min(end) as usize].to_vec();
        let fin = if from <= end && to > end { FIN } else { 0 };
        let ack = self.peer.map_or(0, |peer| peer.wrapping_add(1).wrapping_add(self.expected()));
        Packet { seq: self.seq(from), ack, window: self.window, flags: ACK | fin, bytes }
    }

    /// Sends bytes of any place. New ones must be inside of the window.
    fn send(&mut self, from: u32, len: u32) -> Option<Packet> {
        let most = (self.to_send.len() as u32 + 1).min(self.edge.wrapping_sub(self.seq(0)));
        let from = from.clamp(self.una, self.sent);
        let to = (from + len).min(most).max(from);
        self.peer?;
        self.sent = self.sent.max(to);
        Some(self.packet(from, to))
    }

    fn receive(&mut self, packet: &Packet) -> Option<Packet> {
        let peer = *self.peer.get_or_insert(packet.seq);
        if packet.flags & SYN != 0 {
            return Some(self.packet(self.sent, self.sent));
        }
        // A segment without bytes counts from the next number to the end of the window (RFC 9293, 3.10.7.4).
        let from = packet.seq.wrapping_sub(peer.wrapping_add(1));
        let limit = self.received.len() as u32 + u32::from(self.window);
        let is_empty = packet.bytes.is_empty() && packet.flags & FIN == 0;
        if is_empty && (from as i32) < self.expected() as i32 {
            return None;
        }
        // A probe of a closed window is a byte behind it, and so is the number of its sender from then on.
        assert!(from <= limit + 1 || from > 1 << 30, "number {from} is behind the window, up to {limit}");
        let ack = packet.ack.wrapping_sub(self.seq(0));
        if ack <= self.to_send.len() as u32 + 1 {
            assert!(ack <= self.sent, "acknowledges {ack} of {}", self.sent);
            self.una = self.una.max(ack);
            let edge = packet.ack.wrapping_add(packet.window.into());
            if is_after(edge, self.edge) {
                self.edge = edge;
            }
        }
        if is_empty {
            return None;
        }
        if packet.flags & FIN != 0 && from < 1 << 30 {
            self.fin_at = Some(from + packet.bytes.len() as u32);
        }
        for (n, byte) in packet.bytes.iter().enumerate() {
            let at = from.wrapping_add(n as u32);
            // A byte in front of the first one, or outside of the window.
            if at < limit {
                self.early.entry(at).or_insert_with(|| vec![*byte]);
            }
        }
        while let Some(bytes) = self.early.remove(&(self.received.len() as u32)) {
            self.received.extend(bytes);
        }
        let next = self.received.len() as u32;
        self.early.retain(|&at, _| at >= next);
        Some(self.packet(self.sent, self.sent))
    }
}

struct Middlebox {
    stream: TcpStream,
    splices: Splices,
    number: u32,
    held: [Vec<(HeldRange, Packet)>; 2],
    tails: [[Rope; 2]; 2],
    stages: usize,
    mss: usize,
}

impl Middlebox {
    fn new(stages: usize, mss: usize) -> Middlebox {
        let mut splices = Splices::new(1 << 20, 1);
        let number = splices.insert().unwrap();
        let (stream, held, tails) = (TcpStream::default(), Default::default(), Default::default());
        Middlebox { stream, splices, number, held, tails, stages, mss }
    }

    /// Returns what leaves, with its direction.
    fn process(&mut self, direction: usize, mut packet: Packet) -> Vec<(usize, Packet)> {
        let mut out = Vec::new();
        if packet.flags & ACK != 0 {
            let (other, carried) = (1 - direction, (packet.ack, (packet.window, Some(0))));
            let mut apart = self.splices.clone();
            let Translated { ack, window, pending, .. } =
                self.splices.translate(self.number, other, carried.0, carried.1);
            let told = apart.acknowledge(self.number, other, carried.0, carried.1);
            assert_eq!((told, apart.take_pending(self.number, other)), ((ack, window), pending));
            (packet.ack, packet.window) = (ack, window);
            self.build(other, pending, &mut out);
        }
        let next = self.stream.next(direction);
        let repeats = (packet.seq, packet.seq.wrapping_add(packet.bytes.len() as u32));
        match self.stream.segment(direction, &packet.segment(), &Policy::default()) {
            Outcome::Pass(view, _) => self.leave(direction, packet, view, &mut out),
            Outcome::Hold(range) => {
                let held = &mut self.held[direction];
                let at = held.partition_point(|(other, _)| !is_after(other.from, range.from));
                held.insert(at, (range, packet));
                self.stream.note_held(direction);
            }
            outcome => assert!(matches!(outcome, Outcome::Drop(_)), "{outcome:?}"),
        }
        while let Some(&(range, _)) = self.held[direction].first() {
            match self.stream.next_held(direction, range) {
                NextHeld::Wait => break,
                NextHeld::Pass(view) => {
                    let (_, packet) = self.held[direction].remove(0);
                    self.leave(direction, packet, view, &mut out);
                }
                NextHeld::Drop => drop(self.held[direction].remove(0)),
            }
        }
        if next == self.stream.next(direction) && !self.stream.is_ended(direction) {
            self.pre_acknowledge(direction, repeats, &mut out);
        }
        out
    }

    /// Acknowledges bytes that functions hold back, but for the last one, if the sender repeats them.
    fn pre_acknowledge(&mut self, direction: usize, (from, to): (u32, u32), out: &mut Vec<(usize, Packet)>) {
        let (end, _) = self.splices.ends(self.number, direction);
        let Some(next) = self.stream.next(direction).filter(|&next| is_after(next, end)) else { return };
        let ack = next.wrapping_sub(u32::from(self.held[direction].is_empty()));
        let is_repeated = is_after(to, end) && is_after(ack, from);
        if is_repeated && self.splices.is_acknowledged(self.number, direction) {
            let (ack, window, _) = self.splices.pre_acknowledge(self.number, direction, ack, Some(0));
            let seq = self.splices.next(self.number, 1 - direction);
            out.push((1 - direction, Packet { seq, ack, window, flags: ACK, bytes: Vec::new() }));
        }
    }

    fn build(&mut self, direction: usize, range: OutputRange, out: &mut Vec<(usize, Packet)>) {
        if range.is_empty() {
            return;
        }
        let (ack, window) = self.splices.carried(self.number, direction);
        let mut from = range.from;
        loop {
            let to = if range.to.wrapping_sub(from) > self.mss as u32 {
                from.wrapping_add(self.mss as u32)
            } else {
                range.to
            };
            let mut bytes = Vec::new();
            assert!(self.splices.read(self.number, direction, (from, to), &mut bytes));
            let fin = if to == range.to && range.has_fin { FIN } else { 0 };
            out.push((direction, Packet { seq: from, ack, window, flags: ACK | fin, bytes }));
            from = to;
            if from == range.to {
                return;
            }
        }
    }

    fn leave(&mut self, direction: usize, packet: Packet, view: View, out: &mut Vec<(usize, Packet)>) {
        let is_syn = packet.flags & SYN != 0;
        let start = packet.seq.wrapping_add(is_syn.into());
        if is_syn || view.len != 0 {
            self.splices.begin(self.number, direction, start, !is_syn);
        }
        let (end, before) = self.splices.ends(self.number, direction);
        let (first, body) = (start.wrapping_add(view.skip.into()), &packet.bytes[view.skip.into()..]);
        let body = || std::iter::once(&body[..view.len.into()]);
        let mut rope = Rope::default();
        rope.set_body(first, view.len.into());
        let stages = if view.is_none() { 0 } else { self.stages };
        for stage in 0..stages {
            let tail = &mut self.tails[direction][stage];
            let mut bytes = tail.bytes().to_vec();
            let (mut reader, mut slices) = (rope.reader(), body());
            while let Some(chunk) = reader.next_chunk(&mut slices) {
                bytes.extend_from_slice(chunk);
            }
            let (changes, buffer, hold) = scan(stage, &bytes, view.is_end);
            let mut changed = Rope::default();
            let growth: usize = changes.iter().map(|one| one.new.1 - one.new.0).sum();
            let removed: usize = changes.iter().map(|one| one.end - one.start).sum();
            changed.apply((tail, &rope), body(), &changes, &buffer);
            let mut rest = Rope::default();
            changed.split_off(tail.done() + hold + growth - removed, body(), &mut rest);
            (*tail, rope) = (rest, changed);
        }
        let is_plain = rope.is_plain(first, view.len.into()) || rope.is_empty() && view.len == 0;
        let is_unchanged = is_plain && (rope.is_empty() || rope.from == end);
        if !rope.is_empty() {
            assert_eq!(rope.from, end, "the output has no gap");
        }
        let taken = self.take_next(direction, &packet, (view, is_plain));
        assert!(self.splices.append_rope(self.number, direction, &rope, body()));
        let next = self.stream.next(direction).unwrap_or(start);
        let leaving = Leaving {
            seq: packet.seq,
            len: packet.bytes.len() as u32,
            flags: packet.flags,
            view,
            is_unchanged,
            before,
            has_moved: self.splices.ends(self.number, direction).0 != end,
            next,
            carries: (packet.ack, packet.window),
        };
        let departure = self.splices.depart(self.number, direction, &leaving);
        if let Some((seq, splices)) = taken {
            let places = |splices: &Splices| {
                (splices.report(self.number, direction), splices.next(self.number, direction))
            };
            assert_eq!((departure, places(&self.splices)), (Departure::InPlace(seq), places(&splices)));
            self.splices = splices;
        }
        self.send(direction, packet, departure, out);
    }

    /// Returns the number of a packet that simply goes on, and the connection behind it.
    fn take_next(
        &self,
        direction: usize,
        packet: &Packet,
        (view, is_plain): (View, bool),
    ) -> Option<(u32, Splices)> {
        let is_new = view.skip == 0 && usize::from(view.len) == packet.bytes.len();
        if !is_new || !is_plain || packet.flags & (SYN | FIN) != 0 {
            return None;
        }
        let mut splices = self.splices.clone();
        let segment = (packet.seq, (packet.ack, packet.window));
        let seq = splices.take_next((self.number, direction), segment, &packet.bytes, 0)?;
        Some((seq, splices))
    }

    fn send(
        &mut self,
        direction: usize,
        mut packet: Packet,
        departure: Departure,
        out: &mut Vec<(usize, Packet)>,
    ) {
        match departure {
            Departure::InPlace(seq) => {
                packet.seq = seq;
                out.push((direction, packet));
            }
            Departure::Built(BuiltSegments { front, ranges, acknowledgement, answers_sender }) => {
                assert!(front.is_empty(), "the output begins with the stream");
                ranges.into_iter().for_each(|range| self.build(direction, range, out));
                if let Some(seq) = acknowledgement {
                    let (bytes, flags) = (Vec::new(), ACK);
                    let Packet { ack, window, .. } = packet;
                    out.push((direction, Packet { seq, ack, window, flags, bytes }));
                }
                if answers_sender {
                    let end = self.splices.ends(self.number, direction).0;
                    let (ack, window, _) = self.splices.pre_acknowledge(self.number, direction, end, None);
                    let seq = self.splices.next(self.number, 1 - direction);
                    let (bytes, flags) = (Vec::new(), ACK);
                    out.push((1 - direction, Packet { seq, ack, window, flags, bytes }));
                }
            }
        }
    }
}

struct World {
    ends: [End; 2],
    middle: Middlebox,
    /// Packets under way: to the middlebox from each end, and from it in each direction.
    up: [Vec<Packet>; 2],
    down: [Vec<Packet>; 2],
}

impl World {
    fn new(streams: [Vec<u8>; 2], initial: [u32; 2], windows: [u16; 2], stages: usize, mss: usize) -> World {
        let end = |n: usize| End {
            initial: initial[n],
            to_send: streams[n].clone(),
            sent: 0,
            una: 0,
            edge: initial[n].wrapping_add(1),
            peer: None,
            received: Vec::new(),
            early: BTreeMap::new(),
            fin_at: None,
            window: windows[n],
        };
        let ends = [end(0), end(1)];
        let middle = Middlebox::new(stages, mss);
        let mut world = World { ends, middle, up: Default::default(), down: Default::default() };
        let syn = |n: usize, ack: u32, flags| Packet {
            seq: initial[n],
            ack,
            window: windows[n],
            flags,
            bytes: Vec::new(),
        };
        world.up[0].push(syn(0, 0, SYN));
        world.settle();
        world.up[1].push(syn(1, initial[0].wrapping_add(1), SYN | ACK));
        world.settle();
        world
    }

    fn cross(&mut self, from: usize, at: usize) {
        if at < self.up[from].len() {
            let packet = self.up[from].remove(at);
            for (direction, packet) in self.middle.process(from, packet) {
                self.down[direction].push(packet);
            }
        }
    }

    fn deliver(&mut self, direction: usize, at: usize) {
        if at < self.down[direction].len() {
            let packet = self.down[direction].remove(at);
            let to = 1 - direction;
            if packet.flags & SYN != 0 && packet.flags & ACK != 0 {
                self.ends[to].edge = packet.ack.wrapping_add(packet.window.into());
            }
            let answer = self.ends[to].receive(&packet);
            self.up[to].extend(answer.filter(|_| packet.flags & (SYN | ACK) != SYN));
        }
    }

    /// Everything under way arrives.
    fn settle(&mut self) {
        for _ in 0..1000 {
            if self.up.iter().chain(&self.down).all(Vec::is_empty) {
                return;
            }
            for n in [0, 1] {
                self.cross(n, 0);
                self.deliver(n, 0);
            }
        }
        panic!("packets without end: {:?} {:?}", self.up, self.down);
    }
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(b"abcdeX".to_vec()), 0..60)
}

fn initial() -> impl Strategy<Value = u32> {
    prop_oneof![any::<u32>(), (u32::MAX - 60)..u32::MAX]
}

proptest! {
    /// The receiver gets the edit applied to what was sent, and both ends get all acknowledged.
    #[test]
    fn a_connection_over_a_bad_channel_ends_with_the_edited_bytes(
        streams in [text(), text()],
        initial in [initial(), initial()],
        windows in [4u16..40, 4u16..40],
        stages in 0usize..=2,
        mss in 1usize..20,
        seed: [u8; 32],
        steps in 0usize..120,
    ) {
        // A function that waits for more than the window has room for would wait for ever.
        let windows = if stages == 2 { windows.map(|window| window + 60) } else { windows };
        let mut world = World::new(streams.clone(), initial, windows, stages, mss);
        let mut rng = TestRng::from_seed(prop::test_runner::RngAlgorithm::ChaCha, &seed);
        for _ in 0..steps {
            let (what, n, at, len) =
                (rng.random_range(0..12), rng.random_range(0..2usize), rng.random_range(0..4), rng.random_range(0..12));
            match what {
                0..=2 => {
                    let (from, packets) = (world.ends[n].sent, &mut world.up[n]);
                    packets.extend(world.ends[n].send(from, len));
                }
                3 => {
                    let from = world.ends[n].una + at as u32;
                    let packet = world.ends[n].send(from, len);
                    world.up[n].extend(packet);
                }
                4..=6 => world.cross(n, at),
                7..=9 => world.deliver(n, at),
                10 if at < world.up[n].len() => drop(world.up[n].remove(at)),
                11 if at < world.down[n].len() => drop(world.down[n].remove(at)),
                10 => world.up[n].extend(world.up[n].first().cloned()),
                _ => world.down[n].extend(world.down[n].first().cloned()),
            }
        }
        world.settle();
        for round in 0.. {
            if world.ends.iter().all(End::is_done) {
                break;
            }
            prop_assert!(round < 400, "stalls: {:?}", world.ends.each_ref().map(|end| (end.una, end.sent,
                end.to_send.len(), end.received.len(), end.fin_at, end.edge.wrapping_sub(end.seq(0)))));
            for n in [0, 1] {
                // The timer expires.
                let una = world.ends[n].una;
                let packet = world.ends[n].send(una, 7);
                world.up[n].extend(packet);
                let sent = world.ends[n].sent;
                let packet = world.ends[n].send(sent, 7);
                world.up[n].extend(packet);
                // A probe of a closed window.
                if world.ends[n].una == world.ends[n].sent && una <= streams[n].len() as u32 {
                    let probe = world.ends[n].packet(una, una + 1);
                    world.ends[n].sent = world.ends[n].sent.max(una + 1);
                    world.up[n].push(probe);
                }
                world.settle();
            }
        }
        for n in [0, 1] {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            prop_assert_eq!(text(&world.ends[1 - n].received), text(&edited(&streams[n], stages)));
        }
    }
}
