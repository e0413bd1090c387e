//! Random rules and frames for property tests and fuzz targets.
//!
//! [`rule`] and [`frame`] make a rule or a frame from bytes ([`ByteChoices`]). The strategies wrap them for
//! proptest, [`case`] for fuzz targets. Rules and frames take their values from the same small pools.

mod byte_choices;
mod frames;
mod options;
mod pools;
mod rules;
mod targets;

use std::fmt;
use std::ops::Deref;

use mmb_lang::{Match, Rule};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any};

pub use byte_choices::ByteChoices;
pub use frames::{frame, sound_frame};
pub use pools::{BROKERS, CHAINS, IFACES, NAT_POOL, port};
pub use rules::{any_rule, class, rule, stateful_rule};

/// Number of bytes that determine a rule or a frame.
const RULE_BYTES: usize = 160;
const FRAME_BYTES: usize = 256;

/// A frame that prints as hexadecimal digits.
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

/// A rule set of up to `most` stateless rules with the interfaces [`IFACES`].
pub fn rules(most: usize) -> impl Strategy<Value = Vec<Rule>> {
    vec(vec(any::<u8>(), 0..RULE_BYTES), 0..=most)
        .prop_map(|all| all.iter().filter_map(|bytes| rule(&mut ByteChoices::new(bytes))).collect())
}

/// Up to `most` stateful rules, which the oracle does not evaluate, with the pool [`NAT_POOL`] and the
/// chains [`CHAINS`].
pub fn stateful_rules(most: usize) -> impl Strategy<Value = Vec<Rule>> {
    vec(vec(any::<u8>(), 0..RULE_BYTES), 0..=most)
        .prop_map(|all| all.iter().filter_map(|bytes| stateful_rule(&mut ByteChoices::new(bytes))).collect())
}

/// A traffic class for each of [`CHAINS`]: up to two matches, none for all traffic.
pub fn classes() -> impl Strategy<Value = Vec<Vec<Match>>> {
    vec(vec(any::<u8>(), 0..RULE_BYTES), CHAINS.len())
        .prop_map(|all| all.iter().map(|bytes| class(&mut ByteChoices::new(bytes))).collect())
}

/// A rule that can contradict itself, so that [`mmb_lang::check`] can reject it.
pub fn unchecked_rule() -> impl Strategy<Value = Rule> {
    vec(any::<u8>(), 0..RULE_BYTES).prop_map(|bytes| any_rule(&mut ByteChoices::new(&bytes)))
}

/// One to `most` frames from [`frame`].
pub fn frames(most: usize) -> impl Strategy<Value = Vec<Frame>> {
    vec(vec(any::<u8>(), 0..FRAME_BYTES), 1..=most)
        .prop_map(|all| all.iter().map(|bytes| Frame(frame(&mut ByteChoices::new(bytes)))).collect())
}

/// Rules and frames from a fuzzer's bytes: up to 12 rules, then up to 8 frames while bytes last.
pub fn case(bytes: &[u8]) -> (Vec<Rule>, Vec<Frame>) {
    let mut choices = ByteChoices::new(bytes);
    let count = choices.below(13);
    let rules = (0..count).filter_map(|_| rule(&mut choices)).collect();
    let mut frames = Vec::new();
    while !choices.is_spent() && frames.len() < 8 {
        frames.push(Frame(frame(&mut choices)));
    }
    (rules, frames)
}

/// The rules with indexes 1, 2, …, for [`crate::evaluate`].
pub fn numbered(rules: &[Rule]) -> Vec<(u32, Rule)> {
    (1..).zip(rules.iter().cloned()).collect()
}
