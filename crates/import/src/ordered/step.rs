//! The steps of chains, and what a walk over them yields.

use std::collections::HashMap;

use mmb_lang::MAX_LOG_PREFIX;

use crate::filter::Filter;
use crate::nat::Translation;
use crate::script::Kind;

/// Maximum number of filters of a step that logs: more would bury the rules that decide.
pub(super) const MAX_LOG_FILTERS: usize = 8;
/// The remark on a drop that drops more packets than in the source.
pub(super) const WIDENED: &str =
    "too many rules: all packets that match it are dropped, also those that do not reach it";
/// The remark on an accept whose packets are all dropped before it.
pub(super) const NEVER_APPLIES: &str = "never applies: the drops before it match all its packets";
/// The remark on a step that no packet reaches.
pub(super) const NOT_REACHED: &str = "no matching packet reaches it";
/// The remark on an accept from which the drops before it cannot be subtracted.
pub(super) const OVERLAPS: &str = "too many rules: the drops before it overlap with it";
/// The remark on an accept whose rules are too many.
pub(super) const TOO_LARGE: &str = "the result is too large";
/// The remark on a rule that tests the protocol of IPv6, in a chain without states.
pub(super) const FRAGMENTS: &str = "no test of the protocol matches fragments of IPv6 other than the first";
/// The remark on a rejection whose answer is another one in the source.
pub const OTHER_ANSWER: &str =
    "mmb answers TCP with a reset, and all else with the ICMP error `administratively prohibited`";

/// The action of a step on matching packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packets pass.
    Accept,
    /// The packets are dropped.
    Drop,
    /// The packets are dropped, and their senders are told.
    Reject,
    /// The packets are logged, with this prefix, and go on.
    Log(Option<Box<str>>),
    /// The packets pass another chain, and go on after this step if that chain does not decide.
    Jump(String),
    /// The packets go on after the jump to this chain, or to the policy.
    Return,
    /// Unknown packets return: the rule is not converted, and its filters do not count.
    UnknownReturn,
    /// The connections of the packets are translated.
    Translate(Translation),
    /// None: the step is a remark on a rule.
    Remark(Kind, String),
}

impl Verdict {
    /// Returns the target of rules that drop. None: the verdict does not drop.
    pub(super) fn drop_target(&self) -> Option<&'static str> {
        match self {
            Verdict::Drop => Some("drop"),
            Verdict::Reject => Some("reject"),
            _ => None,
        }
    }
}

/// A rule of a chain.
#[derive(Clone, Debug)]
pub struct Step {
    /// The matching packets, as a union of filters, which may overlap.
    pub filters: Vec<Filter>,
    /// The action.
    pub verdict: Verdict,
    /// Place in the source.
    pub place: String,
    /// Text of the rule.
    pub source: String,
}

/// Chains by name.
pub type Chains = HashMap<String, Vec<Step>>;

/// A result of the walk.
pub(super) enum Outcome<'a> {
    /// A step that accepts or drops, and the packets that reach it.
    Decision(&'a Step, Vec<Filter>),
    /// A remark on a step.
    Remark(&'a Step, Kind, String),
}

/// The prefix of log lines, as rules can have it.
pub fn log_prefix(text: &str) -> Option<Box<str>> {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    let text = text.trim_end_matches([' ', ':']).trim_start();
    let end = text.floor_char_boundary(MAX_LOG_PREFIX);
    (end > 0).then(|| text[..end].into())
}
