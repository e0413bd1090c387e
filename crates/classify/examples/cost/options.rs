//! Rules on random values of random TCP options in the rule language, and frames whose only option is a
//! timestamp. This corresponds to `mmb bench --case options`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use mmb_classify::{Batch, Classifier, Pattern, VECTOR};
use mmb_lang::Command;
use mmb_packet::build::{Frame, Ip4, Tcp, Udp};
use mmb_packet::{Meta, fill_window, parse};

use crate::rules::Random;

/// A random number below `n`, drawn as in `mmb bench`.
fn below(random: &mut Random, n: u64) -> u64 {
    ((u128::from(random.next()) * u128::from(n)) >> 64) as u64
}

fn line(random: &mut Random) -> String {
    let bytes = |random: &mut Random, n: u64| {
        (0..n).map(|_| format!("{:02x}", below(random, 256))).collect::<String>()
    };
    let question = match below(random, 7) {
        0 => format!("tcp-opt-mss {}", below(random, 0x1_0000)),
        1 => format!("tcp-opt-wscale {}", below(random, 0x100)),
        2 => format!("tcp-opt-timestamp {}", random.next()),
        3 => format!("tcp-opt-sack 0x{}", bytes(random, 8)),
        4 => format!("tcp-opt-fast-open 0x{}", bytes(random, 8)),
        5 => format!("tcp-opt-mptcp 0x{}", bytes(random, 10)),
        _ => format!("tcp-opt {}", 2 + below(random, 254)),
    };
    format!("add {question} drop")
}

/// Some rules.
pub fn rules(n: usize, random: &mut Random) -> Vec<Pattern> {
    let compile = |line: String| match mmb_lang::parse_line(&line) {
        Ok(Some(Command::Add(rule))) => Pattern::compile(&rule, &|_| None).expect("can match"),
        _ => panic!("{line}: not a rule"),
    };
    (0..n).map(|_| compile(line(random))).collect()
}

/// Frames of both protocols.
pub fn frames(n: usize, random: &mut Random) -> Vec<(Vec<u8>, Meta)> {
    let mut frame = || {
        let (a, b, time) = (random.next(), random.next(), random.next().to_be_bytes());
        let ip = Ip4::new((a as u32 | 10 << 24).to_be_bytes(), (b as u32).to_be_bytes());
        let ports = ((a >> 32) as u16, (b >> 32) as u16);
        let bytes = if a >> 63 == 0 {
            let options = [&[1, 1, 8, 10], &time[..]].concat();
            Frame::new(ip, Tcp { options, ..Tcp::new(ports.0, ports.1) }).build()
        } else {
            Frame::new(ip, Udp::new(ports.0, ports.1)).payload([0; 22]).build()
        };
        let mut meta = Meta::default();
        parse(&bytes, bytes.len(), &mut meta).expect("well-formed");
        (bytes, meta)
    };
    (0..n).map(|_| frame()).collect()
}

/// Hits per packet, and nanoseconds per packet for windows, predicates and the lookup.
pub fn measure(classifier: &Classifier, frames: &[(Vec<u8>, Meta)]) -> (f64, f64, f64) {
    let mut batch = Batch::new();
    batch.len = VECTOR;
    let mut times = vec![(Duration::MAX, Duration::MAX); frames.len() / VECTOR];
    let (mut hits, end) = (0, Instant::now() + Duration::from_millis(400));
    while Instant::now() < end {
        hits = 0;
        for (frames, times) in frames.chunks_exact(VECTOR).zip(&mut times) {
            let start = Instant::now();
            let chunks = classifier.chunks();
            for (window, (bytes, meta)) in batch.windows.iter_mut().zip(frames) {
                fill_window(bytes, meta, 1, 2, chunks, window);
            }
            if classifier.needs_bytes() {
                let (mut asked, mut n) = ([0; VECTOR], 0);
                for (pkt, window) in batch.windows.iter().enumerate() {
                    asked[n % VECTOR] = pkt;
                    n += usize::from(classifier.needs_inspection(window));
                }
                for &pkt in &asked[..n] {
                    let (bytes, meta) = &frames[pkt];
                    classifier.inspect(&mut batch, pkt, bytes, meta);
                }
            }
            let middle = Instant::now();
            classifier.classify(&mut batch);
            let end = Instant::now();
            *times = ((middle - start).min(times.0), (end - middle).min(times.1));
            hits += black_box(&batch.hits).len();
        }
    }
    let per_packet = |time: u128| time as f64 / (times.len() * VECTOR) as f64;
    let before = times.iter().map(|time| time.0.as_nanos()).sum();
    let search = times.iter().map(|time| time.1.as_nanos()).sum();
    (per_packet(hits as u128), per_packet(before), per_packet(search))
}
