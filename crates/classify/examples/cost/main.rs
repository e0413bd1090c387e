//! The cost of a lookup in ticks of the time-stamp counter per packet, for vectors of 256 and rules of many
//! shapes.
//!
//! `cargo run --release -p mmb-classify --example cost -- [--seed N] [CASE ...]`
//!
//! A case is one of `exact`, `mixed`, `near`, `masks`, `near-masks`, `field-masks`, `ranges`, `questions`,
//! `questions6`, `options`, `sets`, `option-lines`, or a ClassBench file of rules, followed by `+` and the
//! file of its trace (`acl1.rules+acl1.trace`). Without a trace, packets are generated to match the rules.
//! With `RULES=N` in the environment, only cases with this many rules are measured.

#![forbid(unsafe_code)]

mod classbench;
mod field_masks;
mod near;
mod options;
mod questions;
mod rules;
mod sets;

use std::hint::black_box;
use std::time::{Duration, Instant};

use mmb_classify::{Batch, Classifier, Pattern, VECTOR};
use mmb_packet::window::KIND;
use mmb_packet::{Kind, Window};

use rules::Random;

/// Number of different windows: more than the caches next to the core hold.
const PACKETS: usize = 64 * VECTOR;

fn main() {
    let mut seed = 1;
    let mut cases = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match &arg[..] {
            "--seed" => seed = args.next().and_then(|s| s.parse().ok()).unwrap_or(seed),
            _ => cases.push(arg),
        }
    }
    if cases.is_empty() {
        cases = ["exact", "mixed", "masks", "ranges", "questions", "options"].map(String::from).to_vec();
    }
    println!(
        "{:<28} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9} {:>8}",
        "case",
        "rules",
        "ticks",
        "new port",
        "unknown",
        "hits",
        "build ms",
        "insert us",
        "remove us",
        "B/rule"
    );
    for case in &cases {
        run(case, seed);
    }
}

/// Runs one case.
fn run(case: &str, seed: u64) {
    let mut random = Random(seed);
    match case {
        "exact" => {
            for n in [10, 1000, 10_000, 100_000, 1_000_000] {
                report("exact, no hit", rules::exact(n, 11, &mut random), &misses(&mut random), seed);
            }
            let rules = rules::exact(100_000, 11, &mut random);
            let hits = rules::matching(&rules, PACKETS, &mut random);
            report("exact, all hit", rules, &hits, seed);
        }
        "mixed" => {
            for n in [1000, 10_000, 100_000] {
                report("mixed", rules::mixed(n, &mut random), &rules::packets(PACKETS, &mut random), seed);
            }
        }
        "near" => {
            for n in [1000, 10_000, 100_000] {
                let (rules, packets) = near::rules_and_packets(n, PACKETS, &mut random);
                report("mixed, few networks", rules, &packets, seed);
            }
        }
        "near-masks" => {
            for n in [1, 26, 100, 1000] {
                let (rules, packets) = near::masks_and_packets(n, PACKETS, &mut random);
                report("masks, few networks", rules, &packets, seed);
            }
        }
        "field-masks" => {
            for n in [1, 26, 100, 1000] {
                let (rules, packets) = near::field_masks_and_packets(n, PACKETS, &mut random);
                report("field masks", rules, &packets, seed);
            }
        }
        "masks" => {
            for n in [1, 26, 100, 1000] {
                report("prefix masks", rules::masks(n, &mut random), &misses(&mut random), seed);
            }
            for n in [1, 26, 100, 1000] {
                let rules = rules::subsets(n, &mut random);
                report("field masks", rules, &rules::packets(PACKETS, &mut random), seed);
            }
        }
        "ranges" => {
            for n in [10, 100, 1000, 10_000] {
                report("ranges", rules::ranges(n, &mut random), &rules::packets(PACKETS, &mut random), seed);
            }
        }
        "questions" | "questions6" => {
            let ip6 = case == "questions6";
            let packets = questions::packets(PACKETS, ip6, &mut random);
            for n in [1, 10, 100, 1000, 10_000] {
                report(case, questions::rules(n, ip6, &packets, &mut random), &packets, seed);
            }
        }
        "options" => {
            for n in [100, 10_000] {
                report(
                    "options",
                    rules::options(n, &mut random),
                    &rules::packets(PACKETS, &mut random),
                    seed,
                );
            }
        }
        "sets" => report_sets(&mut random, seed),
        "option-lines" => report_option_lines(&mut random, seed),
        files => report_files(files, &mut random, seed),
    }
}

/// Measures source addresses as rules and as elements of a set.
fn report_sets(random: &mut Random, seed: u64) {
    for n in [1000, 100_000] {
        let (rules, addresses) = sets::rules(n, random);
        let misses = questions::packets(PACKETS, false, random);
        let hits = sets::packets_from(&addresses, &misses, random);
        report("sources, no hit", rules.clone(), &misses, seed);
        sets::report("set of sources, no hit", &addresses, &misses, seed);
        report("sources, all hit", rules, &hits, seed);
        sets::report("set of sources, all hit", &addresses, &hits, seed);
    }
}

/// Measures rules on options in the rule language, with frames instead of windows.
fn report_option_lines(random: &mut Random, seed: u64) {
    for n in [1, 10, 100, 1000, 10_000] {
        let mut classifier = Classifier::with_seed(seed);
        classifier.extend((0..).zip(options::rules(n, &mut Random(seed))));
        let frames = options::frames(PACKETS, random);
        let (hits, before, search) = options::measure(&classifier, &frames);
        let (before, search) = (before * ticks_per_ns(), search * ticks_per_ns());
        println!("option lines {n:>24} {search:>8.1} hits {hits:.2}, windows and bytes {before:.1}");
        describe(&classifier);
    }
}

/// Measures a ClassBench file of rules with its trace.
fn report_files(files: &str, random: &mut Random, seed: u64) {
    let (rules, trace) = files.split_once('+').unwrap_or((files, ""));
    let name = rules.rsplit('/').next().unwrap_or(rules);
    let patterns = classbench::rules(rules);
    let packets = match trace {
        "" => rules::matching(&patterns, PACKETS, random),
        trace => classbench::trace(trace),
    };
    report(name, patterns, &packets, seed);
}

/// Packets like those of exact rules that match no such rule.
fn misses(random: &mut Random) -> Vec<Window> {
    let rules = rules::exact(PACKETS, 10, random);
    rules.iter().map(|pattern| Window { chunk: *pattern.entries()[0].cover().key() }).collect()
}

/// Measures one case and prints a line.
fn report(name: &str, rules: Vec<Pattern>, packets: &[Window], seed: u64) {
    let n = rules.len();
    if std::env::var("RULES").is_ok_and(|only| only != n.to_string()) {
        return;
    }
    let probe: Vec<Pattern> = rules.iter().step_by((n / 1000).max(1)).cloned().collect();
    let mut classifier = Classifier::with_seed(seed);
    let start = Instant::now();
    classifier.extend((0..).zip(rules));
    let build = start.elapsed();
    let (hits, unknown) = measure(&classifier, packets, KnownFlows::Nothing, &probe[0]);
    // Only this measurement, for profiles.
    let [ns, port] = match std::env::var_os("NEW") {
        Some(_) => [0.0; 2],
        None => [KnownFlows::Flow, KnownFlows::Hosts]
            .map(|known| measure(&classifier, packets, known, &probe[0]).1),
    };
    let (insert, remove) = update_cost(&classifier, &probe);
    println!(
        "{name:<28} {n:>8} {:>8.1} {:>8.1} {:>8.1} {hits:>8.2} {:>9.1} {insert:>9.1} {remove:>9.1} {:>8.0}",
        ns * ticks_per_ns(),
        port * ticks_per_ns(),
        unknown * ticks_per_ns(),
        build.as_secs_f64() * 1e3,
        classifier.bytes() as f64 / n as f64
    );
    describe(&classifier);
}

/// Prints the upper parts of the tree, on request.
fn describe(classifier: &Classifier) {
    if std::env::var_os("TABLES").is_some() {
        for info in classifier.tables().filter(|info| info.depth < 2) {
            println!("{info:?}");
        }
    }
}

/// The rate of the time-stamp counter, as reported by the kernel.
fn ticks_per_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("bogomips"));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    value.map_or(1.0, |bogomips| bogomips / 2000.0)
}

/// What the match cache knows of the packets.
#[derive(Clone, Copy, PartialEq)]
enum KnownFlows {
    /// All packets are known.
    Flow,
    /// Only source ports are new.
    Hosts,
    /// Nothing: a rule was added and removed, which invalidates the cache.
    Nothing,
}

/// Hits per packet, and nanoseconds per packet to classify vectors of consecutive `windows`. Each round has
/// every window at most once, in vectors that begin elsewhere: a cache must not know packets of the same
/// round, and a processor would learn the branches of vectors that recur. It is the median of all vectors, so
/// that other load on the machine hardly matters. `other` is any rule.
fn measure(classifier: &Classifier, windows: &[Window], known: KnownFlows, other: &Pattern) -> (f64, f64) {
    let mut batch = Batch::new();
    batch.len = VECTOR;
    let mut classifier = classifier.clone();
    let free = classifier.len() as u32;
    let (mut times, mut hits, mut random) = (Vec::new(), 0, Random(1));
    let end = Instant::now() + Duration::from_millis(400);
    for round in 0u16.. {
        if round >= 5 && Instant::now() > end {
            break;
        }
        if known == KnownFlows::Nothing {
            classifier.insert(free, other);
            classifier.remove(free);
        }
        let shifted = &windows[random.below(VECTOR as u64) as usize..];
        let mut vectors: Vec<_> = shifted.as_chunks::<VECTOR>().0.iter().collect();
        let first = random.below(vectors.len() as u64) as usize;
        vectors.rotate_left(first);
        for vector in vectors {
            *batch.windows = *vector;
            if known == KnownFlows::Hosts {
                let ports = batch.windows.iter_mut().filter(|w| has_ports(w.bytes()[KIND]));
                ports.for_each(|w| w.bytes_mut()[8..10].copy_from_slice(&ephemeral(round)));
            }
            let start = Instant::now();
            classifier.classify(&mut batch);
            times.push(start.elapsed());
            hits += black_box(&batch.hits).len();
        }
    }
    let packets = (times.len() * VECTOR) as f64;
    times.sort_unstable();
    (hits as f64 / packets, times[times.len() / 2].as_nanos() as f64 / VECTOR as f64)
}

/// Whether packets of a kind have ports.
fn has_ports(kind: u8) -> bool {
    matches!(kind & Kind::L4_MASK, Kind::TCP | Kind::UDP)
}

/// An ephemeral port of Linux, a different one in each round.
fn ephemeral(round: u16) -> [u8; 2] {
    (32_768 + round % 28_000).to_be_bytes()
}

/// Mean time in microseconds to insert one more rule, and to remove it, in a clone while the older value is
/// kept.
fn update_cost(classifier: &Classifier, rules: &[Pattern]) -> (f64, f64) {
    let (mut insert, mut remove) = (Duration::ZERO, Duration::ZERO);
    let free = classifier.len() as u32;
    for pattern in rules {
        let mut next = classifier.clone();
        let start = Instant::now();
        next.insert(free, pattern);
        insert += start.elapsed();
        let mut after = next.clone();
        let start = Instant::now();
        after.remove(free);
        remove += start.elapsed();
    }
    let micros = |time: Duration| time.as_nanos() as f64 / rules.len() as f64 / 1000.0;
    (micros(insert), micros(remove))
}
