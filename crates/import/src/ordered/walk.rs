//! The walk over chains: which packets each step decides about.

use std::collections::HashSet;
use std::ptr;

use super::budget::Budget;
use super::step::{Chains, NOT_REACHED, Outcome, Step, Verdict, WIDENED};
use super::subtract::{all_minus, intersection};
use crate::filter::Filter;
use crate::script::Kind;

/// Work to reach a step, in units of [`Budget`]: chains that jump to each other several times are walked
/// exponentially often.
const STEP_COST: usize = 80;

/// Maximum depth of jumps, which is the limit of the kernel.
const MAX_DEPTH: usize = 16;

/// Walks a chain and the chains that it jumps to.
pub(super) fn walk<'a>(chains: &'a Chains, chain: &'a str, budget: &mut Budget) -> Vec<Outcome<'a>> {
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
    /// Whether there are no others: all returns are known and have been subtracted.
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
            match &step.verdict {
                Verdict::Remark(kind, reason) => {
                    self.remark(step, *kind, reason);
                    continue;
                }
                Verdict::UnknownReturn => {
                    within.is_exact = false;
                    continue;
                }
                _ => {}
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
                _ if filters.is_empty() => self.remark(step, Kind::Note, NOT_REACHED),
                Verdict::Accept | Verdict::Log(_) | Verdict::Translate(_) if !within.is_exact => {
                    self.remark(step, Kind::NotMapped, "the packets that return before it are not all known");
                }
                Verdict::Accept
                | Verdict::Drop
                | Verdict::Reject
                | Verdict::Log(_)
                | Verdict::Translate(_) => self.outcomes.push(Outcome::Decision(step, filters)),
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
                Verdict::Remark(..) | Verdict::UnknownReturn => {}
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
