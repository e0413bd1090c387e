//! What a lookup costs: nanoseconds per packet, vectors of 256, for growing numbers of 5-tuple rules.
//!
//! `cargo run --release -p mmb-classify --example cost [SEED]`

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use mmb_classify::{Batch, Classifier, Masked, Occupancy, Pattern, VECTOR};
use mmb_packet::build::{Frame, Ip4, Tcp};
use mmb_packet::{Kind, Loc, Meta, Window, fill_window, parse};

/// Different windows that the batches take turns with: more than the caches next to the core hold.
const PACKETS: usize = 64 * VECTOR;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn at(loc: Loc, width: usize, value: u64) -> Masked {
    Masked::bits(loc.window_bit(), width, value.into()).expect("inside one chunk")
}

fn both(a: Masked, b: Masked) -> Masked {
    a.and(&b).expect("no contradiction")
}

/// An IPv4 5-tuple. Sources of rules and of packets that match nothing are from different blocks.
fn five_tuple(source_block: u64, random: &mut Random) -> Masked {
    let (addresses, ports) = (random.next(), random.next());
    let (kind, sport, dport) = match ports >> 63 {
        0 => (Kind::TCP, Loc::Tcp(0), Loc::Tcp(16)),
        _ => (Kind::UDP, Loc::Udp(0), Loc::Udp(16)),
    };
    let proto = if kind == Kind::TCP { 6 } else { 17 };
    [
        Masked::kind((0xff, kind | Kind::IP4)),
        at(Loc::Ip4(72), 8, proto),
        at(Loc::Ip4(96), 32, source_block << 24 | addresses & 0xff_ffff),
        at(Loc::Ip4(128), 32, addresses >> 32),
        at(sport, 16, ports & 0xffff),
        at(dport, 16, ports >> 16 & 0xffff),
    ]
    .into_iter()
    .fold(Masked::ANY, both)
}

fn window(masked: &Masked) -> Window {
    Window { chunk: *masked.key() }
}

/// Frames with their metadata, to fill windows from: TCP from 10.0.0.0/8, 64 bytes.
fn frames(random: &mut Random) -> Vec<(Vec<u8>, Meta)> {
    let frame = |_| {
        let (addresses, ports) = (random.next(), random.next());
        let source = Ipv4Addr::from(0x0a00_0000 | addresses as u32 >> 8);
        let ip = Ip4::new(source, Ipv4Addr::from((addresses >> 32) as u32));
        let bytes = Frame::new(ip, Tcp::new(ports as u16, (ports >> 16) as u16)).pad_to(64).build();
        let mut meta = Meta::default();
        parse(&bytes, bytes.len(), &mut meta).expect("well formed");
        (bytes, meta)
    };
    (0..PACKETS).map(frame).collect()
}

/// Nanoseconds per packet to classify vectors of `windows`: of many runs over all of them, the one that a hundredth
/// of the runs were faster than, so that other work on the machine hardly counts.
fn measure(classifier: &Classifier, windows: &[Window]) -> f64 {
    best(classifier, windows.len() / VECTOR, |vector, batch| {
        batch.windows.copy_from_slice(&windows[vector * VECTOR..][..VECTOR]);
        Instant::now()
    })
}

/// The same, with filling the windows from `frames`.
fn measure_filled(classifier: &Classifier, frames: &[(Vec<u8>, Meta)]) -> f64 {
    best(classifier, frames.len() / VECTOR, |vector, batch| {
        let frames = &frames[vector * VECTOR..][..VECTOR];
        // Packets are in the caches when the dataplane comes to this.
        for (bytes, meta) in frames {
            black_box((bytes[14], bytes[40], meta.kind));
        }
        let start = Instant::now();
        for ((bytes, meta), window) in frames.iter().zip(batch.windows.iter_mut()) {
            fill_window(bytes, meta, 0, 1, classifier.chunks(), window);
        }
        start
    })
}

/// Runs over `vectors` vectors again and again; `prepare` makes the windows and says when the clock started.
fn best(
    classifier: &Classifier,
    vectors: usize,
    mut prepare: impl FnMut(usize, &mut Batch) -> Instant,
) -> f64 {
    let mut batch = Batch::new();
    batch.n = VECTOR;
    let mut runs = Vec::new();
    let end = Instant::now() + Duration::from_millis(700);
    while Instant::now() < end {
        let mut spent = Duration::ZERO;
        for vector in 0..vectors {
            let start = prepare(vector, &mut batch);
            classifier.classify(&mut batch);
            spent += start.elapsed();
            black_box(&batch.hits);
        }
        runs.push(spent.as_nanos() as f64 / (vectors * VECTOR) as f64);
    }
    runs.sort_by(f64::total_cmp);
    runs[runs.len() / 100]
}

fn main() {
    let seed = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(1);
    let mut random = Random(seed);
    let misses: Vec<Window> = (0..PACKETS).map(|_| window(&five_tuple(10, &mut random))).collect();
    let frames = frames(&mut random);
    println!("ns per packet, vectors of {VECTOR}; update: one rule more in a clone, the older value kept");
    println!(
        "{:>9} {:>8} {:>8} {:>8} {:>9} {:>10} {:>9} {:>6} {:>6}",
        "rules", "no hit", "+ fill", "all hit", "insert ns", "update us", "drop us", "B/rule", "load"
    );
    for n in [10, 1_000, 10_000, 100_000, 1_000_000] {
        let rules: Vec<Masked> = (0..n).map(|_| five_tuple(11, &mut random)).collect();
        let patterns: Vec<Pattern> = rules.iter().filter_map(|must| Pattern::new(must, None)).collect();
        let mut classifier = Classifier::with_seed(seed);
        let start = Instant::now();
        for (slot, pattern) in patterns.iter().enumerate() {
            classifier.insert(slot as u32, pattern);
        }
        let insert = start.elapsed().as_nanos() as f64 / n as f64;
        let hits: Vec<Window> =
            (0..PACKETS).map(|_| window(&rules[random.next() as usize % rules.len()])).collect();
        let (update, free) = update_cost(&classifier, &mut random);
        let Occupancy { keys, lanes, bytes, .. } = classifier.tables().next().expect("one mask").occupancy;
        println!(
            "{n:>9} {:>8.2} {:>8.2} {:>8.2} {insert:>9.0} {update:>10.1} {free:>9.1} {:>6} {:>5.0}%",
            measure(&classifier, &misses),
            measure_filled(&classifier, &frames),
            measure(&classifier, &hits),
            bytes / n,
            100.0 * keys as f64 / lanes as f64
        );
    }
    many_masks(&mut random);
}

/// Microseconds to clone, insert and to drop the older value: means over 1,000 updates.
fn update_cost(classifier: &Classifier, random: &mut Random) -> (f64, f64) {
    const UPDATES: usize = 1000;
    let mut current = classifier.clone();
    let (mut update, mut free) = (Duration::ZERO, Duration::ZERO);
    for i in 0..UPDATES {
        let pattern = Pattern::new(&five_tuple(12, random), None).expect("about IP");
        let start = Instant::now();
        let mut next = current.clone();
        next.insert(2_000_000 + i as u32, &pattern);
        update += start.elapsed();
        let start = Instant::now();
        current = next;
        free += start.elapsed();
    }
    let micros = |time: Duration| time.as_nanos() as f64 / UPDATES as f64 / 1000.0;
    (micros(update), micros(free))
}

/// One rule each on many masks: pairs of prefix lengths.
fn many_masks(random: &mut Random) {
    println!("\nns per packet, one rule on each of that many masks, no hit");
    let misses: Vec<Window> = (0..PACKETS).map(|_| window(&five_tuple(10, random))).collect();
    for n in [1, 26, 100, 1000] {
        let mut classifier = Classifier::with_seed(random.next());
        let prefixes = (0..n).map(|i| (8 + i % 24, i / 24));
        for (slot, (source, destination)) in prefixes.enumerate() {
            let mut must =
                at(Loc::Ip4(96), source, 11 << (source - 8) | random.next() & ((1 << (source - 8)) - 1));
            if destination > 0 {
                must = both(must, at(Loc::Ip4(128), destination.min(32), random.next()));
            }
            if destination > 32 {
                must = both(must, at(Loc::Ip4(64), destination - 32, 0));
            }
            classifier
                .insert(slot as u32, &Pattern::new(&both(must, Masked::kind((15, 4))), None).expect("IP"));
        }
        println!("{n:>9} {:>8.2}  ({} tables)", measure(&classifier, &misses), classifier.tables().count());
    }
}
