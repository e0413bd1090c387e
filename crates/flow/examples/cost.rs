//! The cost of the session table: ticks of the time-stamp counter per packet or session, in vectors of 256.
//!
//! `cargo run --release -p mmb-flow --example cost [SESSIONS …]`. Packets are in the cache, as the previous
//! nodes of a graph leave them, and belong to random sessions and directions. The capacity is the daemon's
//! default, or the number of sessions if that is larger. For each vector and step, the minimum of several
//! rounds counts. The last lines are about scratchpads that become larger while sessions are open.

use std::hint::black_box;
use std::time::{Duration, Instant};

use mmb_flow::{BatchLookup, FlowRef, Key, SessionId, Table, VECTOR, parse_key};
use mmb_packet::build::{Frame, Ip4, Ip6, Udp};
use mmb_packet::{Meta, parse};

const FRAME: usize = 62;
const ROUNDS: usize = 6;
const ROOM: u32 = 524_288;

fn main() {
    let sizes: Vec<u32> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let sizes = if sizes.is_empty() { vec![1_000, 64_000, 1_000_000] } else { sizes };
    println!(
        "{:>10} {:>3} {:>6} {:>6} {:>8} {:>6} {:>8} {:>8} {:>10}",
        "sessions", "ip", "fill", "run", "halves", "miss", "insert", "remove", "B/session"
    );
    for ip6 in [false, true] {
        for &sessions in &sizes {
            row(sessions, ip6);
        }
    }
    for &sessions in &sizes {
        for bytes in [32, 128] {
            enlarge(sessions, bytes);
        }
    }
}

/// Prints what it takes to give all sessions scratchpads of twice the size, and what one of them waits.
fn enlarge(sessions: u32, bytes: usize) {
    let mut table = Table::new(sessions, 2 * bytes, 0x5eed).expect("memory");
    let ids: Vec<SessionId> = (0..sessions)
        .filter_map(|n| {
            let key = parse_key(&frame(n, false), &meta(&frame(n, false))).expect("key");
            table.insert(&key, &key.reversed(), 0).ok()
        })
        .collect();
    for &id in &ids {
        table.reserve_scratch(id, bytes);
        table.scratch_mut(id).fill(1);
    }
    let mut waits: Vec<Duration> = ids
        .iter()
        .map(|&id| {
            let start = Instant::now();
            table.reserve_scratch(id, 2 * bytes);
            start.elapsed()
        })
        .filter(|wait| *wait > Duration::from_micros(1))
        .collect();
    waits.sort_unstable();
    let (all, median) = (waits.iter().sum::<Duration>(), waits.get(waits.len() / 2).copied());
    println!(
        "{sessions:>10} scratchpads from {bytes} to {} bytes: {all:.1?} in all; one packet {:.1?}, at most {:.1?}",
        2 * bytes,
        median.unwrap_or_default(),
        waits.last().copied().unwrap_or_default()
    );
}

fn row(sessions: u32, ip6: bool) {
    let mut table = Table::new(sessions.max(ROOM), 24, 0x5eed).expect("memory");
    let keys: Vec<Key> =
        (0..sessions).map(|n| parse_key(&frame(n, ip6), &meta(&frame(n, ip6))).expect("key")).collect();
    let vectors = keys.len().div_ceil(VECTOR);
    let mut times = vec![[Duration::MAX; 2]; vectors];
    for round in 0..ROUNDS as u32 {
        let now = round * 1_000_000;
        for (keys, [insert, _]) in keys.chunks(VECTOR).zip(&mut times) {
            *insert = fill(&mut table, keys, now).min(*insert);
        }
        for [_, remove] in &mut times {
            *remove = empty(&mut table, now + 500_000).min(*remove);
        }
    }
    for keys in keys.chunks(VECTOR) {
        fill(&mut table, keys, 0);
    }
    let hits = measure(&mut table, sessions, 0, ip6);
    let misses = measure(&mut table, sessions, sessions, ip6);
    let each = |step: usize| {
        let sum: Duration = times.iter().map(|time| time[step]).sum();
        sum.as_nanos() as f64 * ticks_per_ns() / f64::from(sessions)
    };
    println!(
        "{sessions:>10} {:>3} {:>6.1} {:>6.1} {:>8.1} {:>6.1} {:>8.0} {:>8.0} {:>10}",
        if ip6 { 6 } else { 4 },
        hits[0],
        hits[1],
        hits[2],
        misses[0] + misses[1],
        each(0),
        each(1),
        table.bytes() / sessions.max(ROOM) as usize
    );
}

/// Inserts the sessions of a vector with prefetch, and arms their timers.
fn fill(table: &mut Table, keys: &[Key], now: u32) -> Duration {
    let start = Instant::now();
    for key in keys {
        table.prefetch(key);
        table.prefetch(&key.reversed());
    }
    for key in keys {
        if let Ok(id) = table.insert(key, &key.reversed(), now) {
            table.arm_timer(id, now + 300_000);
        }
    }
    start.elapsed()
}

/// Removes a vector of sessions whose timers have expired.
fn empty(table: &mut Table, now: u32) -> Duration {
    let start = Instant::now();
    let mut budget = 2 * VECTOR as u32;
    let mut ended = Vec::with_capacity(VECTOR);
    while ended.len() < VECTOR
        && let Some(id) = table.next_expired(now, &mut budget)
    {
        ended.push(id);
    }
    ended.iter().for_each(|&id| table.prefetch_keys(id));
    for id in ended {
        table.remove(id);
    }
    start.elapsed()
}

/// Ticks per packet to fill, to run, and to count on the flows.
fn measure(table: &mut Table, flows: u32, first: u32, ip6: bool) -> [f64; 3] {
    let mut lookups = Box::new(BatchLookup::default());
    let vectors = (flows as usize / VECTOR).clamp(64, 4096);
    let mut times = vec![[Duration::MAX; 3]; vectors];
    for _ in 0..ROUNDS {
        // The same packets in each round.
        let mut random = 1u64;
        for time in &mut times {
            let packets: Vec<([u8; FRAME], Meta)> = (0..VECTOR)
                .map(|_| {
                    random = random.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
                    let flow = first + (((random >> 32) * u64::from(flows)) >> 32) as u32;
                    packet(&frame(flow, ip6), random >> 20 & 1 != 0, ip6)
                })
                .collect();
            let now = vector(table, &mut lookups, &packets);
            (0..3).for_each(|step| time[step] = time[step].min(now[step]));
        }
    }
    let packets = (vectors * VECTOR) as f64;
    let sum = |step| times.iter().map(|time| time[step]).sum::<Duration>().as_nanos() as f64;
    [0, 1, 2].map(|step| sum(step) * ticks_per_ns() / packets)
}

fn vector(table: &mut Table, lookups: &mut BatchLookup, packets: &[([u8; FRAME], Meta)]) -> [Duration; 3] {
    let start = Instant::now();
    lookups.fill(table, packets.len(), |at| {
        let (head, meta) = &packets[at];
        (head, meta)
    });
    let filled = Instant::now();
    lookups.run(table);
    let run = Instant::now();
    let halves = table.flows_mut();
    for &found in black_box(lookups.results()) {
        if found != FlowRef::NONE {
            halves[found.0 as usize].count(1, FRAME as u32);
        }
    }
    [filled - start, run - filled, run.elapsed()]
}

fn frame(n: u32, ip6: bool) -> Vec<u8> {
    let [a, b, c, d] = n.to_be_bytes();
    let udp = Udp::new(1024 + (n % 60_000) as u16, 53);
    let frame = if ip6 {
        let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        Frame::new(Ip6::new([0x2001, 0xdb8, 0, 0, 0, 0, high, low], [0x2001, 0xdb8, 1, 0, 0, 0, 0, 1]), udp)
    } else {
        Frame::new(Ip4::new([10, b, c, d], [198, 18 + a, 0, 1]), udp)
    };
    frame.pad_to(FRAME).build()
}

fn meta(frame: &[u8]) -> Meta {
    let mut meta = Meta::default();
    parse(frame, frame.len(), &mut meta).expect("a sound frame");
    meta
}

/// A packet of a flow, or of its replies.
fn packet(frame: &[u8], reply: bool, ip6: bool) -> ([u8; FRAME], Meta) {
    let mut bytes = [0; FRAME];
    bytes.copy_from_slice(frame);
    if reply {
        let (addresses, ports, len) = if ip6 { (22, 54, 16) } else { (26, 34, 4) };
        (0..len).for_each(|i| bytes.swap(addresses + i, addresses + len + i));
        (0..2).for_each(|i| bytes.swap(ports + i, ports + 2 + i));
    }
    (bytes, meta(&bytes))
}

/// The rate of the time-stamp counter, if the kernel reports it.
fn ticks_per_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("bogomips"));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    value.map_or(1.0, |bogomips| bogomips / 2000.0)
}
