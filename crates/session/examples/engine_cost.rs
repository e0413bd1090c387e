//! What the engine costs: ticks of the time-stamp counter per packet, vectors of 256.
//!
//! `cargo run --release -p mmb-session --example engine_cost [SESSIONS …]`. Packets lie in the cache, as a
//! graph's earlier nodes have left them, and belong to sessions and directions at random. Of each vector and
//! each step the shortest time of several rounds counts. Columns: the short way of established TCP sessions
//! under one rule, under one rule each (above 100,000 sessions, one for sixteen), translated out of a pool,
//! the same under one rule each; under one rule, and through a chain of one function that monitors (24
//! bytes), and of five, and translated by a chain that counts as well; classifying and opening a session,
//! without and with a pool.

use std::time::{Duration, Instant};

use mmb_flow::{SessionSettings, Timeouts};
use mmb_packet::build::{Frame, Ip4, Tcp};
use mmb_packet::{Meta, PacketBuf, VecPacket, fill_window, parse};
use mmb_policy::{Batch, Hit, VECTOR};
use mmb_session::{ChainBatch, Environment, Next, Packets, SessionConfig, Sessions, chain_packet};
use mmb_session_harness::RuleSet;

const ROUNDS: usize = 6;
const SERVER: [u8; 4] = [192, 0, 2, 1];

fn main() {
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let sizes = if sizes.is_empty() { vec![1_000, 64_000, 1_000_000] } else { sizes };
    println!(
        "{:>10} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>16} {:>16}",
        "sessions", "one", "each", "nat", "nat+", "mon", "mon 5", "nat mon", "new", "new nat"
    );
    for sessions in sizes {
        let figures = [(false, false), (false, true), (true, false), (true, true)]
            .map(|(nat, each)| established(sessions, rules(sessions, nat, each)));
        let chained = [&["m0"][..], &["m0", "m1", "m2", "m3", "m4"], &["nat", "m0"]]
            .map(|body| established(sessions, chain(body)));
        let new = [false, true].map(|nat| fresh(sessions, rules(sessions, nat, false)));
        println!(
            "{sessions:>10} {:>7.1} {:>7.1} {:>7.1} {:>7.1} {:>7.1} {:>7.1} {:>7.1} {:>7.0} + {:>6.0} {:>7.0} + {:>6.0}",
            figures[0],
            figures[1],
            figures[2],
            figures[3],
            chained[0],
            chained[1],
            chained[2],
            new[0][0],
            new[0][1],
            new[1][0],
            new[1][1]
        );
    }
}

fn rules(sessions: usize, nat: bool, each: bool) -> RuleSet {
    let mut lines = Vec::new();
    if nat {
        lines.push("nat pool add p 200.0.0.0-200.0.0.63".to_owned());
        lines.push("add-stateful ip-saddr 10.0.0.0/8 nat p".to_owned());
    }
    if each {
        let all = sessions <= 100_000;
        let rule = |n: usize| {
            let ([a, b, c, d], port) = host(n);
            let from =
                if all { format!("{a}.{b}.{c}.{d} tcp-sport {port}") } else { format!("{a}.{b}.{c}.{d}/30") };
            format!("add-stateful ip-proto tcp ip-saddr {from} ip-daddr 192.0.2.1 accept")
        };
        lines.extend((0..sessions).step_by(if all { 1 } else { 16 }).map(rule));
    } else {
        lines.push("add-stateful ip-saddr 10.0.0.0/8 accept".to_owned());
    }
    let timeouts = Timeouts { tcp_handshake: 1000, ..Timeouts::default() };
    RuleSet::parse(&lines, SessionSettings { timeouts, ..SessionSettings::default() }, None)
        .expect("good lines")
}

/// One rule, and a chain of these functions.
fn chain(body: &[&str]) -> RuleSet {
    let mut lines = vec!["nat pool add p 200.0.0.0-200.0.0.63".to_owned(), "nf add nat nat p".to_owned()];
    lines.extend((0..5).map(|n| format!("nf add m{n} monitor")));
    lines.push(format!("chain add c {}", body.join(" | ")));
    lines.push("add-stateful ip-saddr 10.0.0.0/8 chain c".to_owned());
    let timeouts = Timeouts { tcp_handshake: 1000, ..Timeouts::default() };
    let settings = SessionSettings { timeouts, ..SessionSettings::default() };
    RuleSet::parse_with(&lines, settings, None, &mmb_nf_builtin::registry(), 1).expect("good lines")
}

fn host(n: usize) -> ([u8; 4], u16) {
    let [.., b, c, d] = (n / 4).to_be_bytes();
    ([10, b, c, d], 2000 + (n % 4) as u16 * 999)
}

/// A vector of small packets in one piece of memory.
struct Vector {
    packets: Vec<(VecPacket, Meta, u16)>,
}

impl Packets for Vector {
    fn len(&self) -> usize {
        self.packets.len()
    }
    fn head(&self, at: usize) -> &[u8] {
        self.packets[at].0.head()
    }
    fn meta(&self, at: usize) -> &Meta {
        &self.packets[at].1
    }
    fn head_and_meta(&mut self, at: usize) -> (&mut [u8], &mut Meta) {
        let (packet, meta, _) = &mut self.packets[at];
        (packet.head_mut(), meta)
    }
    fn in_port(&self, at: usize) -> u16 {
        self.packets[at].2
    }
    fn bytes(&self, at: usize) -> u32 {
        self.packets[at].0.len() as u32
    }
}

impl Vector {
    fn new() -> Vector {
        Vector { packets: Vec::with_capacity(VECTOR) }
    }

    fn push(&mut self, frame: &[u8], in_port: u16) {
        let mut meta = Meta::default();
        parse(frame, frame.len(), &mut meta).expect("a sound frame");
        self.packets.push((VecPacket::with_room(frame, 0), meta, in_port));
    }
}

fn there(n: usize, flags: u8) -> Vec<u8> {
    let (from, port) = host(n);
    let tcp = Tcp { flags, seq: 1, ack: if flags & 16 == 0 { 0 } else { 1 }, ..Tcp::new(port, 80) };
    Frame::new(Ip4::new(from, SERVER), tcp).pad_to(60).build()
}

/// A reply to a frame as it left.
fn back(frame: &[u8], flags: u8) -> Vec<u8> {
    let end = |at: usize, port: usize| {
        let address: [u8; 4] = frame[at..at + 4].try_into().expect("four");
        (address, u16::from_be_bytes([frame[port], frame[port + 1]]))
    };
    let ((from, sport), (to, dport)) = (end(30, 36), end(26, 34));
    let ack = u32::from_be_bytes(frame[38..42].try_into().expect("four")).wrapping_add(1);
    let tcp = Tcp { flags, seq: 0, ack, ..Tcp::new(sport, dport) };
    Frame::new(Ip4::new(from, to), tcp).pad_to(60).build()
}

struct Box256 {
    sessions: Sessions,
    rules: RuleSet,
    batch: Batch,
    edits: Vec<u32>,
    next: [Next; VECTOR],
}

impl Box256 {
    fn new(sessions: usize, rules: RuleSet) -> Box256 {
        let config =
            SessionConfig { sessions: sessions + 256, worker: 0, workers: 1, seed: 7, scratchpad: 256 };
        let mut sessions = Sessions::new(config).expect("memory");
        sessions.adopt(&rules, &rules);
        Box256 { sessions, rules, batch: Batch::new(), edits: Vec::new(), next: [Next::Pass; VECTOR] }
    }

    /// Everything that becomes of a vector. Times of the short way with chains, of classifying, of the long
    /// way.
    fn run(&mut self, now: u32, vector: &mut Vector) -> [Duration; 3] {
        let Box256 { sessions, rules, batch, edits, next } = self;
        edits.clear();
        let start = Instant::now();
        sessions.lookup(None, now, rules, vector, edits, next);
        let mut looked = start.elapsed();
        looked += chained(sessions, now, rules, vector, next);
        let start = Instant::now();
        let slow: Vec<usize> = (0..vector.len()).filter(|&at| next[at] == Next::SlowPath).collect();
        if slow.is_empty() {
            return [looked, Duration::ZERO, Duration::ZERO];
        }
        for (&at, window) in slow.iter().zip(batch.windows.iter_mut()) {
            let (packet, meta, in_port) = &vector.packets[at];
            fill_window(
                packet.head(),
                meta,
                *in_port,
                rules.out_port(*in_port),
                rules.policy.classifier().chunks(),
                window,
            );
        }
        batch.len = slow.len();
        rules.policy.classifier().classify(batch);
        let classified = start.elapsed();
        let start = Instant::now();
        let mut rest: &[Hit] = &batch.hits;
        for (n, &at) in slow.iter().enumerate() {
            let end = rest.iter().position(|hit| usize::from(hit.pkt) != n).unwrap_or(rest.len());
            let (hits, others) = rest.split_at(end);
            rest = others;
            let (packet, meta, in_port) = &mut vector.packets[at];
            next[at] = sessions.process_slow_path(now, rules, packet, meta, *in_port, hits, edits);
            assert!(matches!(next[at], Next::Pass | Next::Chain));
        }
        let opened = start.elapsed();
        chained(sessions, now, rules, vector, next);
        [looked, classified, opened]
    }
}

/// Takes those packets through their chains that have one. The time of that.
fn chained(
    sessions: &mut Sessions,
    now: u32,
    rules: &RuleSet,
    vector: &mut Vector,
    next: &mut [Next; VECTOR],
) -> Duration {
    let some = vector.packets.iter_mut().zip(&*next).filter(|(_, next)| **next == Next::Chain);
    let mut some: ChainBatch<'_> = some
        .map(|((packet, meta, in_port), _)| {
            let bytes = packet.len() as u32;
            chain_packet(packet.head_mut(), meta, bytes, *in_port)
        })
        .collect();
    if some.is_empty() {
        return Duration::ZERO;
    }
    let start = Instant::now();
    let tally = sessions.process_chain(now, rules, &mut some, &mut [Next::Chain; VECTOR]);
    let time = start.elapsed();
    assert!(tally.is_only(Next::Send));
    time
}

/// Ticks per packet of sessions that are open.
fn established(sessions: usize, rules: RuleSet) -> f64 {
    let mut world = Box256::new(sessions, rules);
    let mut replies = Vec::with_capacity(sessions);
    for first in (0..sessions).step_by(VECTOR) {
        let all = first..(first + VECTOR).min(sessions);
        let mut vector = Vector::new();
        all.clone().for_each(|n| vector.push(&there(n, 2), 0));
        world.run(0, &mut vector);
        let mut answers = Vector::new();
        vector.packets.iter().for_each(|(packet, ..)| answers.push(&back(packet.head(), 18), 1));
        replies.extend(vector.packets.iter().map(|(packet, ..)| back(packet.head(), 16)));
        world.run(0, &mut answers);
        for flags in [16, 16] {
            let mut vector = Vector::new();
            all.clone().for_each(|n| vector.push(&there(n, flags), 0));
            world.run(0, &mut vector);
        }
        let mut vector = Vector::new();
        all.for_each(|n| vector.push(&replies[n], 1));
        world.run(0, &mut vector);
    }
    let vectors = (sessions / VECTOR).clamp(64, 2048);
    let mut times = vec![Duration::MAX; vectors];
    let frames: Vec<Vec<u8>> = (0..sessions).map(|n| there(n, 16)).collect();
    for _ in 0..ROUNDS {
        let mut random = 1u64;
        for time in &mut times {
            let mut vector = Vector::new();
            for _ in 0..VECTOR {
                random = random.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
                let n = (((random >> 32) * sessions as u64) >> 32) as usize;
                let reply = random >> 20 & 1;
                vector.push(if reply == 1 { &replies[n] } else { &frames[n] }, reply as u16);
            }
            let [short, classified, _] = world.run(1, &mut vector);
            assert_eq!(classified, Duration::ZERO, "all are established");
            *time = short.min(*time);
            world.sessions.tick(1, &world.rules, 64);
        }
    }
    ticks(times.iter().sum(), vectors * VECTOR)
}

/// Ticks to classify and to open a session: lookup and classifier, the engine.
fn fresh(sessions: usize, rules: RuleSet) -> [f64; 2] {
    let mut world = Box256::new(sessions, rules);
    let vectors = sessions / VECTOR;
    let mut times = vec![[Duration::MAX; 2]; vectors];
    let mut now = 0;
    for _ in 0..ROUNDS {
        for (number, time) in times.iter_mut().enumerate() {
            let mut vector = Vector::new();
            (0..VECTOR).for_each(|n| vector.push(&there(number * VECTOR + n, 2), 0));
            let [short, classified, long] = world.run(now, &mut vector);
            *time = [time[0].min(short + classified), time[1].min(long)];
        }
        now += 2_000;
        while world.sessions.tick(now, &world.rules, 10_000) {}
        assert_eq!(world.sessions.counters().sessions, 0);
    }
    [0, 1].map(|step| ticks(times.iter().map(|time| time[step]).sum(), vectors * VECTOR))
}

fn ticks(time: Duration, packets: usize) -> f64 {
    time.as_nanos() as f64 * ticks_per_ns() / packets as f64
}

/// The rate of the time-stamp counter, as far as the kernel tells it.
fn ticks_per_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("bogomips"));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    value.map_or(1.0, |bogomips| bogomips / 2000.0)
}
