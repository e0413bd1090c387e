//! Policy against oracle for as long as one likes: random histories of random rule sets of the whole language, each policy
//! on the way against random frames. Prints how much was compared; stops at the first disagreement.
//!
//! `cargo run --release -p mmb-policy --example long_run -- [SECONDS [SEED]]`

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use mmb_oracle::generate::{self, Dice, Random};

#[expect(dead_code, reason = "the fuzz target's way in")]
#[path = "../../../fuzz/src/policy.rs"]
mod policy;

/// Most rules in one history, and in one of the long ones; frames that its policies are held against, bytes that decide one rule or one frame.
const RULES: u64 = 40;
const MANY_RULES: u64 = 800;
const FRAMES: u64 = 256;
const BYTES: u64 = 256;

/// Up to `most` bytes.
fn bytes(random: &mut Random, most: u64) -> Vec<u8> {
    let n = random.number() % (most + 1);
    (0..n).map(|_| random.number() as u8).collect()
}

fn argument(position: usize, default: u64) -> u64 {
    std::env::args().nth(position).and_then(|word| word.parse().ok()).unwrap_or(default)
}

/// Tells which history it was, should it end in a panic.
struct Running(u64);

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was history {0}; `long_run 0 {0}` repeats it", self.0);
        }
    }
}

/// What was compared so far.
#[derive(Default)]
struct Sums {
    histories: u64,
    rules: u64,
    packets: u64,
    pairs: u64,
    matches: u64,
}

impl Sums {
    /// Runs the history that this number stands for.
    fn history(&mut self, number: u64) {
        let running = Running(number);
        let mut random = Random(number.wrapping_mul(0x2545_f491_4f6c_dd1d));
        // Few rules most of the time, sometimes so many that every structure of the classifier comes to be used.
        let many = number.is_multiple_of(32);
        let count = 1 + random.number() % if many { MANY_RULES } else { RULES };
        let rule = |random: &mut Random| generate::rule(&mut Dice::new(&bytes(random, BYTES)));
        let rules: Vec<_> = (0..count).filter_map(|_| rule(&mut random)).collect();
        let choices = bytes(&mut random, 2 * RULES);
        let late = if many { rules.len().saturating_sub(choices.len()) } else { 0 };
        let choices = [vec![0; late], choices].concat();
        let frames: Vec<_> =
            (0..FRAMES).map(|_| generate::frame(&mut Dice::new(&bytes(&mut random, BYTES)))).collect();
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
