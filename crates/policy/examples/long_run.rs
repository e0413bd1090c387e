//! Compares policy and oracle on random histories of random rule sets; each policy of a history processes
//! random frames. Prints the number of comparisons and stops at the first difference.
//!
//! `cargo run --release -p mmb-policy --example long_run -- [SECONDS [SEED]]`

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use mmb_oracle::generate::{self, ByteChoices};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

#[expect(dead_code, reason = "the fuzz target's way in")]
#[path = "../../../fuzz/src/policy.rs"]
mod policy;

/// Maximum number of rules in an ordinary and in a long history; frames per policy; bytes that determine
/// one rule or one frame.
const RULES: u64 = 40;
const MANY_RULES: u64 = 800;
const FRAMES: u64 = 256;
const BYTES: u64 = 256;

/// Up to `most` random bytes.
fn bytes(random: &mut SmallRng, most: u64) -> Vec<u8> {
    let n = random.random_range(0..=most);
    (0..n).map(|_| random.random()).collect()
}

fn argument(position: usize, default: u64) -> u64 {
    std::env::args().nth(position).and_then(|word| word.parse().ok()).unwrap_or(default)
}

/// Prints the number of the history on a panic.
struct Running(u64);

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was history {0}; `long_run 0 {0}` repeats it", self.0);
        }
    }
}

/// Numbers of comparisons.
#[derive(Default)]
struct Sums {
    histories: u64,
    rules: u64,
    packets: u64,
    pairs: u64,
    matches: u64,
}

impl Sums {
    /// Runs the history with this number.
    fn history(&mut self, number: u64) {
        let running = Running(number);
        let mut random = SmallRng::seed_from_u64(number);
        // Mostly few rules; sometimes enough to use every structure of the classifier.
        let many = number.is_multiple_of(32);
        let count = random.random_range(1..=if many { MANY_RULES } else { RULES });
        let rule = |random: &mut SmallRng| generate::rule(&mut ByteChoices::new(&bytes(random, BYTES)));
        let rules: Vec<_> = (0..count).filter_map(|_| rule(&mut random)).collect();
        let choices = bytes(&mut random, 2 * RULES);
        let late = if many { rules.len().saturating_sub(choices.len()) } else { 0 };
        let choices = [vec![0; late], choices].concat();
        let frames: Vec<_> =
            (0..FRAMES).map(|_| generate::frame(&mut ByteChoices::new(&bytes(&mut random, BYTES)))).collect();
        let slices: Vec<&[u8]> = frames.iter().map(|frame| &**frame).collect();
        let (pairs, matches) = policy::history(&rules, &choices, &slices);
        self.histories += 1;
        self.rules += rules.len() as u64;
        self.packets += FRAMES;
        self.pairs += pairs;
        self.matches += matches;
        drop(running);
    }
}

fn main() {
    let (time, seed) = (Duration::from_secs(argument(1, 60)), argument(2, 1));
    let start = Instant::now();
    let mut sums = Sums::default();
    loop {
        sums.history(seed.wrapping_add(sums.histories));
        if start.elapsed() >= time {
            break;
        }
    }
    let Sums { histories, rules, packets, pairs, matches } = sums;
    println!(
        "{pairs} pairs of a policy and a packet ({histories} histories, {rules} rules, {packets} packets, {matches} \
         matches) in {:.1} s, from history {seed} on: no disagreement",
        start.elapsed().as_secs_f64()
    );
}
