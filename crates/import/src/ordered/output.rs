//! Writes filters as rules.

use super::budget::Budget;
use super::step::Step;
use super::subtract::distinct;
use crate::filter::Filter;
use crate::matches::matches;
use crate::nat::{Translations, as_received};
use crate::script::{Kind, Script};
use crate::states::States;

/// Work to write an interval, in units of [`Budget`].
const WRITE_COST: usize = 8;

/// The words of a rule around its matches.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuleText<'a> {
    /// `add` or `add-stateful`.
    pub keyword: &'a str,
    /// The target.
    pub target: &'a str,
}

impl RuleText<'static> {
    pub(super) const ACCEPT: Self = RuleText { keyword: "add", target: "accept" };
    pub(super) const DROP: Self = RuleText { keyword: "add", target: "drop" };
    pub(super) const BLOCK: Self = RuleText { keyword: "add", target: "block" };
    pub(super) const ACCEPT_SESSIONS: Self = RuleText { keyword: "add-stateful", target: "accept" };
}

/// Where rules and remarks go.
pub(super) struct Output<'a> {
    /// The result.
    pub script: &'a mut Script,
    /// The translations before and behind the chain.
    pub nat: &'a Translations,
    /// The work that is left.
    pub budget: &'a mut Budget,
}

impl Output<'_> {
    /// Writes a remark on a step.
    pub(super) fn remark(&mut self, step: &Step, kind: Kind, reason: &str) {
        self.script.remark(kind, &step.place, &step.source, reason);
    }

    /// Writes rules for filters. False, and nothing is written, if this takes too much work.
    pub(super) fn write(&mut self, filters: &[Filter], rule: RuleText<'_>, step: &Step) -> bool {
        self.budget.next_step();
        let cost = WRITE_COST * filters.iter().map(Filter::cost).sum::<usize>();
        let is_small = self.budget.spend(cost).is_some();
        if is_small {
            self.write_lines(filters, rule, step);
        }
        is_small
    }

    /// Writes rules for filters, after a comment with their source. Rules do not match states of
    /// connections.
    pub(super) fn write_lines(&mut self, filters: &[Filter], rule: RuleText<'_>, step: &Step) {
        let Step { place, source, .. } = step;
        self.script.comment(format!("{place}: {source}"));
        let is_drop = matches!(rule.target, "drop" | "reject" | "block");
        let Some(received) = as_received(filters, &self.nat.redirects, is_drop) else {
            return self.remark(step, Kind::NotMapped, "too many rules: translations overlap with it");
        };
        if received.is_empty() {
            let reason = "it needs a translated destination, and no rule that is converted translates one";
            return self.remark(step, Kind::Note, reason);
        }
        let all = received.into_iter().map(|filter| filter.with_states(States::ALL));
        let all: Vec<Filter> = match filters.len() {
            1 if self.nat.redirects.is_empty() => all.collect(),
            _ => {
                self.budget.next_step();
                let all: Vec<Filter> = all.collect();
                distinct(all.iter().cloned(), self.budget).unwrap_or(all)
            }
        };
        for filter in all {
            match matches(&filter) {
                Ok(lines) => {
                    for matches in lines {
                        self.script.rule(
                            &format!("{} {matches} {}", rule.keyword, rule.target),
                            place,
                            source,
                        );
                    }
                }
                Err(error) => self.remark(step, Kind::NotMapped, &error.to_string()),
            }
        }
    }
}
