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
//! out if the packets that return cannot be subtracted, or are not known because its match has no equal.
//!
//! If the rules distinguish connection states, [`sessions`] makes stateful rules of the outcomes.
//!
//! A step that logs becomes a rule of its own, minus the packets of the accepts and drops before it.
//!
//! Rules that overlap can take exponential work. A [`Budget`] bounds the work for each step and for all. An
//! accept that exceeds it is left out with a remark. A drop that exceeds it drops all packets that match it,
//! also those that do not reach it; so do the drops of a chain if a jump to it exceeds the budget.

mod budget;
mod output;
mod returns;
mod sessions;
mod states;
mod step;
mod subtract;
mod walk;

use std::collections::HashSet;
use std::ptr;

use mmb_lang::Action;

use self::budget::Budget;
use self::output::{Output, RuleText};
use self::step::{
    FRAGMENTS, MAX_LOG_FILTERS, NEVER_APPLIES, NOT_REACHED, OVERLAPS, Outcome, TOO_LARGE, WIDENED,
};
use self::subtract::all_minus;
use self::walk::walk;
use crate::filter::Filter;
use crate::matches::misses_fragments;
use crate::nat::Translations;
use crate::script::{Kind, Script};

pub use self::step::{Chains, OTHER_ANSWER, Step, Verdict, log_prefix};

/// The packets that reach the end of a chain.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The packets of the family.
    pub filter: Filter,
    /// Whether they are dropped.
    pub drops: bool,
}

/// Writes the rules of a chain and of the chains that it jumps to. `nat`: the translations
/// before and behind.
pub fn convert(chains: &Chains, chain: &str, policy: &Policy, nat: &Translations, script: &mut Script) {
    convert_within(&mut Budget::default(), chains, chain, policy, nat, script);
}

/// Converts like [`convert`], with the work that a budget allows.
fn convert_within(
    budget: &mut Budget,
    chains: &Chains,
    chain: &str,
    policy: &Policy,
    nat: &Translations,
    script: &mut Script,
) {
    let chains = &returns::join(chains);
    let outcomes = walk(chains, chain, budget);
    let end = Step {
        filters: vec![policy.filter.clone()],
        verdict: if policy.drops { Verdict::Drop } else { Verdict::Accept },
        place: format!("chain {chain}"),
        source: format!("policy {}", if policy.drops { "drop" } else { "accept" }),
    };
    let mut output = Output { script, nat, budget };
    let outcomes = states::without_invalid(outcomes, &mut output);
    // Without a session, replies would get a translated source.
    if nat.has_sources || states::are_distinguished(&outcomes) {
        return sessions::convert(outcomes, &end, &mut output);
    }
    let (mut drops, mut decided): (Vec<Filter>, Vec<Filter>) = Default::default();
    let mut widened = HashSet::new();
    for outcome in outcomes {
        // Fragments of a session follow the first one.
        if let Outcome::Decision(step, filters) = &outcome
            && filters.iter().any(misses_fragments)
        {
            output.remark(step, Kind::Differs, FRAGMENTS);
        }
        match outcome {
            Outcome::Remark(step, kind, reason) => output.remark(step, kind, &reason),
            Outcome::Decision(step, filters) if matches!(step.verdict, Verdict::Log(_)) => {
                log(&mut output, filters, &decided, step);
            }
            Outcome::Decision(step, filters) => match step.verdict.drop_target() {
                Some(target) => {
                    let rule = RuleText { keyword: "add", target };
                    if !output.write(&filters, rule, step) && widened.insert(ptr::from_ref(step)) {
                        output.remark(step, Kind::Differs, WIDENED);
                        output.write_lines(&step.filters, rule, step);
                    }
                    decided.extend(filters.iter().cloned());
                    drops.extend(filters);
                }
                None => {
                    decided.extend(filters.iter().cloned());
                    accept(&mut output, filters, &drops, step);
                }
            },
        }
    }
    if policy.drops {
        output.write_lines(&end.filters, RuleText::DROP, &end);
    }
}

/// Returns the packets that each accept or translation of a chain decides about, and writes the remarks.
pub fn exact_decisions(chains: &Chains, chain: &str, script: &mut Script) -> Vec<(Step, Vec<Filter>)> {
    let budget = &mut Budget::default();
    let chains = &returns::join(chains);
    let outcomes = walk(chains, chain, budget);
    let nat = Translations::default();
    let mut output = Output { script, nat: &nat, budget };
    let (mut exact, mut decided): (Vec<(Step, Vec<Filter>)>, Vec<Filter>) = Default::default();
    for outcome in outcomes {
        match outcome {
            Outcome::Remark(step, kind, reason) => output.remark(step, kind, &reason),
            Outcome::Decision(step, filters) => {
                output.budget.next_step();
                match all_minus(filters.clone(), &decided, output.budget) {
                    Some(left) if left.is_empty() => output.remark(step, Kind::Note, NOT_REACHED),
                    Some(left) => exact.push((step.clone(), left)),
                    None => output.remark(
                        step,
                        Kind::NotMapped,
                        "too many rules: those before it overlap with it",
                    ),
                }
                decided.extend(filters);
            }
        }
    }
    exact
}

/// Number of rules in chains and in those that they jump to.
pub fn count_rules(chains: &Chains, from: &[&str]) -> usize {
    let (mut seen, mut places) = (HashSet::new(), HashSet::new());
    let mut next: Vec<&str> = from.to_vec();
    while let Some(name) = next.pop() {
        let Some((name, steps)) = chains.get_key_value(name).filter(|(name, _)| seen.insert(*name)) else {
            continue;
        };
        places.extend(steps.iter().map(|step| (name, &step.place)));
        next.extend(steps.iter().filter_map(|step| match &step.verdict {
            Verdict::Jump(target) => Some(target.as_str()),
            _ => None,
        }));
    }
    places.len()
}

/// Writes the rules of a step that accepts after `drops`.
fn accept(output: &mut Output<'_>, filters: Vec<Filter>, drops: &[Filter], step: &Step) {
    output.budget.next_step();
    match all_minus(filters, drops, output.budget) {
        Some(left) if left.is_empty() => output.remark(step, Kind::Note, NEVER_APPLIES),
        Some(left) => {
            if !output.write(&left, RuleText::ACCEPT, step) {
                output.remark(step, Kind::NotMapped, TOO_LARGE);
            }
        }
        None => output.remark(step, Kind::NotMapped, OVERLAPS),
    }
}

/// Writes the rules of a step that logs after steps that decide about `decided`.
fn log(output: &mut Output<'_>, filters: Vec<Filter>, decided: &[Filter], step: &Step) {
    let Verdict::Log(prefix) = &step.verdict else { return };
    let target = Action::Log { prefix: prefix.clone() }.to_string();
    output.budget.next_step();
    let is_written = match all_minus(filters, decided, output.budget) {
        Some(left) if left.is_empty() => {
            output.remark(step, Kind::Note, NOT_REACHED);
            true
        }
        Some(left) if left.len() <= MAX_LOG_FILTERS => {
            output.write(&left, RuleText { keyword: "add", target: &target }, step)
        }
        _ => false,
    };
    if !is_written {
        let reason = "too many rules: the accepts and drops before it overlap with it";
        output.remark(step, Kind::NotMapped, reason);
    }
}

#[cfg(test)]
mod tests;
