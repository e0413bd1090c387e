//! Converts ordered rules, of which the first match decides, to rules without order.
//!
//! Theory of operation. A chain is a list of steps. Packets pass the steps in order until one accepts or
//! drops them; a jump sends matching packets through another chain first. Rules of mmb have no order: one
//! matching `accept` beats all matching `drop`s. A walk over the chain tracks the packets that reach each
//! step, as filters: the conditions of jumps, minus what returned before. It yields the filters that accept
//! and drop, in order.
//!
//! A `drop` becomes a rule as it is: an `accept` before it beats it, as in the source. An `accept` must not
//! beat the drops before it, so their packets are subtracted from it ([`Filter::minus`]), which gives one or
//! more rules. If that takes too many rules, the accept is left out with a remark. Then a packet is dropped
//! that the source accepts, never the other way round. For the same reason, accepts behind a return are left
//! out if the packets that return cannot be subtracted.
//!
//! A step that logs becomes a rule of its own, minus the packets of the accepts and drops before it.
//!
//! Rules that overlap can take exponential work. A [`Budget`] bounds the work for each step and for all. An
//! accept that exceeds it is left out with a remark. A drop that exceeds it drops all packets that match it,
//! also those that do not reach it; so do the drops of a chain if a jump to it exceeds the budget.

mod budget;
mod returns;

use std::collections::{HashMap, HashSet};
use std::ptr;

use mmb_lang::{Action, MAX_LOG_PREFIX};

use self::budget::Budget;
use crate::filter::Filter;
use crate::matches::matches;
use crate::script::{Kind, Script};

/// Maximum number of filters of a step.
const MAX_FILTERS: usize = 64;
/// Work to write an interval, in units of [`Budget`].
const WRITE_COST: usize = 8;
/// Maximum number of filters of a step that logs: more would bury the rules that decide.
const MAX_LOG_FILTERS: usize = 8;
/// Maximum depth of jumps, which is the limit of the kernel.
const MAX_DEPTH: usize = 16;
/// Work to reach a step, in units of [`Budget`]: chains that jump to each other several times are walked
/// exponentially often.
const STEP_COST: usize = 80;

/// The remark on a drop that drops more packets than in the source.
const WIDENED: &str =
    "too many rules: all packets that match it are dropped, also those that do not reach it";

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
    /// None: the step is a remark on a rule.
    Remark(Kind, String),
}

impl Verdict {
    /// Returns the target of rules that drop. None: the verdict does not drop.
    fn drop_target(&self) -> Option<&'static str> {
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
enum Outcome<'a> {
    /// A step that accepts or drops, and the packets that reach it.
    Decision(&'a Step, Vec<Filter>),
    /// A remark on a step.
    Remark(&'a Step, Kind, String),
}

/// Writes the rules of a chain and of the chains that it jumps to. `rest` has the packets that the policy
/// drops, if it drops.
pub fn convert(chains: &Chains, chain: &str, rest: Option<&Filter>, script: &mut Script) {
    convert_within(&mut Budget::default(), chains, chain, rest, script);
}

/// Converts like [`convert`], with the work that a budget allows.
fn convert_within(
    budget: &mut Budget,
    chains: &Chains,
    chain: &str,
    rest: Option<&Filter>,
    script: &mut Script,
) {
    let chains = &returns::join(chains);
    let outcomes = walk(chains, chain, budget);
    let (mut drops, mut decided): (Vec<Filter>, Vec<Filter>) = Default::default();
    let mut widened = HashSet::new();
    for outcome in outcomes {
        match outcome {
            Outcome::Remark(step, kind, reason) => script.remark(kind, &step.place, &step.source, reason),
            Outcome::Decision(step, filters) if matches!(step.verdict, Verdict::Log(_)) => {
                log(script, filters, &decided, step, budget);
            }
            Outcome::Decision(step, filters) => match step.verdict.drop_target() {
                Some(target) => {
                    if !write(script, &filters, target, step, budget) && widened.insert(ptr::from_ref(step)) {
                        script.remark(Kind::Differs, &step.place, &step.source, WIDENED);
                        write_lines(script, &step.filters, target, step);
                    }
                    decided.extend(filters.iter().cloned());
                    drops.extend(filters);
                }
                None => {
                    decided.extend(filters.iter().cloned());
                    accept(script, filters, &drops, step, budget);
                }
            },
        }
    }
    if let Some(rest) = rest {
        let policy = Step {
            filters: Vec::new(),
            verdict: Verdict::Drop,
            place: format!("chain {chain}"),
            source: "policy drop".into(),
        };
        write_lines(script, std::slice::from_ref(rest), "drop", &policy);
    }
}

/// Writes the rules of a step that accepts after `drops`.
fn accept(script: &mut Script, filters: Vec<Filter>, drops: &[Filter], step: &Step, budget: &mut Budget) {
    let mut remark = |kind, reason: &str| script.remark(kind, &step.place, &step.source, reason);
    budget.next_step();
    match all_minus(filters, drops, budget) {
        Some(left) if left.is_empty() => {
            remark(Kind::Note, "never applies: the drops before it match all its packets")
        }
        Some(left) => {
            if !write(script, &left, "accept", step, budget) {
                script.remark(Kind::NotMapped, &step.place, &step.source, "the result is too large");
            }
        }
        None => remark(Kind::NotMapped, "too many rules: the drops before it overlap with it"),
    }
}

/// Writes the rules of a step that logs after steps that decide about `decided`.
fn log(script: &mut Script, filters: Vec<Filter>, decided: &[Filter], step: &Step, budget: &mut Budget) {
    let Verdict::Log(prefix) = &step.verdict else { return };
    let target = Action::Log { prefix: prefix.clone() }.to_string();
    budget.next_step();
    let is_written = match all_minus(filters, decided, budget) {
        Some(left) if left.is_empty() => {
            script.remark(Kind::Note, &step.place, &step.source, "no matching packet reaches it");
            true
        }
        Some(left) if left.len() <= MAX_LOG_FILTERS => write(script, &left, &target, step, budget),
        _ => false,
    };
    if !is_written {
        let reason = "too many rules: the accepts and drops before it overlap with it";
        script.remark(Kind::NotMapped, &step.place, &step.source, reason);
    }
}

/// The prefix of log lines, as rules can have it.
pub fn log_prefix(text: &str) -> Option<Box<str>> {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    let text = text.trim_end_matches([' ', ':']).trim_start();
    let end = text.floor_char_boundary(MAX_LOG_PREFIX);
    (end > 0).then(|| text[..end].into())
}

/// The packets of `filters` that are in none of `drops`. None if this takes too many filters or too much
/// work.
fn all_minus(mut filters: Vec<Filter>, drops: &[Filter], budget: &mut Budget) -> Option<Vec<Filter>> {
    for drop in drops {
        budget.spend(filters.len())?;
        if filters.iter().all(|filter| filter.is_disjoint(drop)) {
            continue;
        }
        budget.spend(filters.iter().map(|filter| filter.cost() + drop.cost()).sum())?;
        filters = distinct(filters.iter().flat_map(|filter| filter.minus(drop)), budget)?;
        if filters.len() > MAX_FILTERS {
            return None;
        }
    }
    Some(filters)
}

/// The filters without those that are subsets of another. None if this takes too much work.
fn distinct(filters: impl Iterator<Item = Filter>, budget: &mut Budget) -> Option<Vec<Filter>> {
    let mut kept: Vec<Filter> = Vec::new();
    for filter in filters {
        budget.spend(kept.len() * filter.cost())?;
        if !kept.iter().any(|other| filter.is_within(other)) {
            kept.retain(|other| !other.is_within(&filter));
            kept.push(filter);
        }
    }
    Some(kept)
}

/// Writes rules for filters. False, and nothing is written, if this takes too much work.
fn write(script: &mut Script, filters: &[Filter], target: &str, step: &Step, budget: &mut Budget) -> bool {
    budget.next_step();
    let is_small = budget.spend(WRITE_COST * filters.iter().map(Filter::cost).sum::<usize>()).is_some();
    if is_small {
        write_lines(script, filters, target, step);
    }
    is_small
}

/// Writes rules for filters, after a comment with their source.
fn write_lines(script: &mut Script, filters: &[Filter], target: &str, step: &Step) {
    let Step { place, source, .. } = step;
    script.comment(format!("{place}: {source}"));
    for filter in filters {
        match matches(filter) {
            Ok(lines) => {
                for matches in lines {
                    script.rule(&format!("add {matches} {target}"), place, source);
                }
            }
            Err(error) => script.remark(Kind::NotMapped, place, source, error.to_string()),
        }
    }
}

/// Walks a chain and the chains that it jumps to.
fn walk<'a>(chains: &'a Chains, chain: &'a str, budget: &mut Budget) -> Vec<Outcome<'a>> {
    let mut walk = Walk {
        chains,
        budget,
        outcomes: Vec::new(),
        path: Vec::new(),
        widened: HashSet::new(),
        widened_chains: HashSet::new(),
    };
    walk.chain(chain, Reach { filters: vec![Filter::default()], is_exact: true }, 0);
    walk.outcomes
}

/// The packets that reach a step.
struct Reach {
    /// The packets, as a union of filters.
    filters: Vec<Filter>,
    /// Whether there are no others: returns have been subtracted.
    is_exact: bool,
}

/// A walk over chains.
struct Walk<'a, 'b> {
    chains: &'a Chains,
    budget: &'b mut Budget,
    outcomes: Vec<Outcome<'a>>,
    /// The chains from the first one to the current one.
    path: Vec<&'a str>,
    /// Steps that drop all packets that match them.
    widened: HashSet<*const Step>,
    /// Chains whose drops are such steps.
    widened_chains: HashSet<&'a str>,
}

impl<'a> Walk<'a, '_> {
    /// Sends the packets of `within` through a chain.
    fn chain(&mut self, name: &'a str, within: Reach, depth: usize) {
        self.path.push(name);
        self.steps(name, within, depth);
        self.path.pop();
    }

    fn steps(&mut self, name: &str, mut within: Reach, depth: usize) {
        let chains = self.chains;
        for step in chains.get(name).map_or(&[][..], Vec::as_slice) {
            if let Verdict::Remark(kind, reason) = &step.verdict {
                self.remark(step, *kind, reason);
                continue;
            }
            self.budget.next_step();
            let reached = self.budget.spend(STEP_COST);
            let filters = reached.and_then(|()| intersection(&within.filters, &step.filters, self.budget));
            let Some(filters) = filters else {
                within.is_exact &= step.verdict != Verdict::Return;
                self.widen(step);
                continue;
            };
            match &step.verdict {
                _ if filters.is_empty() => self.remark(step, Kind::Note, "no matching packet reaches it"),
                Verdict::Accept | Verdict::Log(_) if !within.is_exact => {
                    self.remark(step, Kind::NotMapped, "too many rules: the packets that return before it");
                }
                Verdict::Accept | Verdict::Drop | Verdict::Reject | Verdict::Log(_) => {
                    self.outcomes.push(Outcome::Decision(step, filters))
                }
                Verdict::Jump(target) if depth >= MAX_DEPTH => {
                    self.remark(step, Kind::NotMapped, "the jumps are too deep");
                    self.widen_chain(target);
                }
                Verdict::Jump(target) if !chains.contains_key(target) => {
                    self.remark(step, Kind::NotMapped, &format!("there is no chain `{target}`"));
                }
                Verdict::Jump(target) if self.path.contains(&target.as_str()) => {
                    self.remark(step, Kind::NotMapped, "the jump is a loop, which the kernel refuses");
                }
                Verdict::Jump(target) => {
                    self.chain(target, Reach { filters, is_exact: within.is_exact }, depth + 1);
                }
                Verdict::Return => match all_minus(within.filters.clone(), &step.filters, self.budget) {
                    Some(left) => within.filters = left,
                    None => {
                        within.is_exact = false;
                        self.remark(step, Kind::NotMapped, "too many rules: the packets that return here");
                    }
                },
                Verdict::Remark(..) => {}
            }
        }
    }

    /// Handles a step of which it would take too much work to tell the packets that reach it.
    fn widen(&mut self, step: &'a Step) {
        match &step.verdict {
            Verdict::Drop | Verdict::Reject => {
                if self.widened.insert(ptr::from_ref(step)) {
                    self.remark(step, Kind::Differs, WIDENED);
                    self.outcomes.push(Outcome::Decision(step, step.filters.clone()));
                }
            }
            verdict => {
                let reason = "too many rules: the jumps to it and the returns before it";
                self.remark(step, Kind::NotMapped, reason);
                if let Verdict::Jump(target) = verdict {
                    self.widen_chain(target);
                }
            }
        }
    }

    /// Widens the drops of a chain and of the chains that it jumps to.
    fn widen_chain(&mut self, target: &'a str) {
        let mut targets = vec![target];
        while let Some(target) = targets.pop() {
            if !self.widened_chains.insert(target) {
                continue;
            }
            for step in self.chains.get(target).map_or(&[][..], Vec::as_slice) {
                match &step.verdict {
                    Verdict::Drop | Verdict::Reject => self.widen(step),
                    Verdict::Jump(next) => targets.push(next),
                    _ => {}
                }
            }
        }
    }

    fn remark(&mut self, step: &'a Step, kind: Kind, reason: &str) {
        self.outcomes.push(Outcome::Remark(step, kind, reason.to_owned()));
    }
}

/// The intersection of two unions of filters. None if it has too many filters or takes too much work.
fn intersection(a: &[Filter], b: &[Filter], budget: &mut Budget) -> Option<Vec<Filter>> {
    budget.spend(a.len() * b.len())?;
    let pairs = || a.iter().flat_map(|a| b.iter().map(move |b| (a, b))).filter(|(a, b)| !a.is_disjoint(b));
    budget.spend(pairs().map(|(a, b)| a.cost() + b.cost()).sum())?;
    let all = distinct(pairs().filter_map(|(a, b)| a.intersection(b)), budget)?;
    (all.len() <= MAX_FILTERS).then_some(all)
}

#[cfg(test)]
mod tests;
