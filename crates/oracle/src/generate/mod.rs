//! Random rules and frames for property tests and fuzz targets.
//!
//! [`rule`] and [`frame`] make a rule or a frame out of bytes ([`Dice`]). The strategies wrap them for proptest;
//! [`case`] wraps them for fuzz targets. Values come from small pools that rules and frames share.

mod dice;
mod frames;
mod options;
mod pools;
mod random;
mod rules;
mod targets;

use std::fmt;
use std::ops::Deref;

use mmb_lang::{Match, Rule};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any};

pub use dice::Dice;
pub use frames::{frame, sound_frame};
pub use pools::{CHAINS, IFACES, NAT_POOL, port};
pub use random::Random;
pub use rules::{any_rule, class, rule, stateful_rule};

/// Bytes that decide a rule, and a frame.
const RULE_BYTES: usize = 160;
const FRAME_BYTES: usize = 256;

/// A frame that shows itself in hexadecimal.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame(pub Vec<u8>);

impl Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A rule set of up to `most` stateless rules; interfaces are those of [`IFACES`].
pub fn rules(most: usize) -> impl Strategy<Value = Vec<Rule>> {
    vec(vec(any::<u8>(), 0..RULE_BYTES), 0..=most)
        .prop_map(|all| all.iter().filter_map(|bytes| rule(&mut Dice::new(bytes))).collect())
}

/// Up to `most` stateful rules, which the oracle does not evaluate; pools are [`NAT_POOL`], chains [`CHAINS`].
pub fn stateful_rules(most: usize) -> impl Strategy<Value = Vec<Rule>> {
    vec(vec(any::<u8>(), 0..RULE_BYTES), 0..=most)
        .prop_map(|all| all.iter().filter_map(|bytes| stateful_rule(&mut Dice::new(bytes))).collect())
}

/// What each of [`CHAINS`] takes: up to two matches, none for all traffic.
pub fn classes() -> impl Strategy<Value = Vec<Vec<Match>>> {
    vec(vec(any::<u8>(), 0..RULE_BYTES), CHAINS.len())
        .prop_map(|all| all.iter().map(|bytes| class(&mut Dice::new(bytes))).collect())
}

/// A rule that may contradict itself, so that [`mmb_lang::check`] may refuse it.
pub fn unchecked_rule() -> impl Strategy<Value = Rule> {
    vec(any::<u8>(), 0..RULE_BYTES).prop_map(|bytes| any_rule(&mut Dice::new(&bytes)))
}

/// One to `most` frames, as [`frame`] makes them.
pub fn frames(most: usize) -> impl Strategy<Value = Vec<Frame>> {
    vec(vec(any::<u8>(), 0..FRAME_BYTES), 1..=most)
        .prop_map(|all| all.iter().map(|bytes| Frame(frame(&mut Dice::new(bytes)))).collect())
}

/// Rules and frames out of one string of bytes, as a fuzzer gives it: up to 12 rules, then up to
/// 8 frames while bytes last.
pub fn case(bytes: &[u8]) -> (Vec<Rule>, Vec<Frame>) {
    let mut dice = Dice::new(bytes);
    let count = dice.below(13);
    let rules = (0..count).filter_map(|_| rule(&mut dice)).collect();
    let mut frames = Vec::new();
    while !dice.is_spent() && frames.len() < 8 {
        frames.push(Frame(frame(&mut dice)));
    }
    (rules, frames)
}

/// The rules with indexes 1, 2, …, as [`crate::evaluate`] takes them.
pub fn numbered(rules: &[Rule]) -> Vec<(u32, Rule)> {
    (1..).zip(rules.iter().cloned()).collect()
}
