//! Stateful rules for a chain that distinguishes connection states.
//!
//! Theory of operation. The outcomes of the walk give, for each state, the packets that are accepted and
//! dropped first. mmb has no states to match, but sessions: `add-stateful … accept` accepts a connection
//! with its replies and the ICMP errors about it. So an accept of new packets becomes a stateful rule, as far
//! as the chain also accepts the later packets of such connections in both directions ([`covered`]). The
//! accepts of established packets need no rules then. If replies are not accepted, the rule stays stateless;
//! if only the first packets are accepted, mmb has no equal rule.
//!
//! A drop of new packets is a `drop` and is subtracted from the accepts behind it, as in a chain without
//! states. A drop that stands before an accept of established packets and also drops those is a `block`,
//! which beats the sessions' accept. ICMP errors about sessions that the chain does not accept are blocked,
//! too.

use super::output::{Output, RuleText};
use super::step::{
    MAX_LOG_FILTERS, NEVER_APPLIES, NOT_REACHED, OVERLAPS, Outcome, Step, TOO_LARGE, Verdict, WIDENED,
};
use super::subtract::all_minus;
use crate::filter::Filter;
use crate::script::Kind;
use crate::states::States;
use covered::{Accepted, errors, replied};

mod covered;

/// The decisions so far, while the outcomes are written.
struct Sessions<'a> {
    /// The accepts of later packets, with the number of their outcome.
    known: Vec<(usize, Filter)>,
    /// Their packets, as parts of sessions.
    accepted: Accepted,
    /// New packets that are dropped.
    drops: Vec<Filter>,
    /// New packets that are accepted.
    accepts: Vec<Filter>,
    /// All packets that are decided about.
    decided: Vec<Filter>,
    /// Errors about sessions that are not accepted.
    errors: Vec<Filter>,
    /// The end of the chain.
    end: &'a Step,
}

/// Writes the rules for outcomes that distinguish states. `end`: the policy, as a step.
pub(super) fn convert<'a>(mut outcomes: Vec<Outcome<'a>>, end: &'a Step, output: &mut Output<'_>) {
    let valid = States::ALL.without(States::INVALID);
    if end.verdict == Verdict::Accept {
        let all = end.filters.iter().cloned().map(|filter| filter.with_states(valid)).collect();
        outcomes.push(Outcome::Decision(end, all));
    }
    let known = known_accepts(&outcomes);
    let accepted = Accepted::new(known.iter().map(|(_, filter)| filter));
    let (drops, accepts, decided, errors) = Default::default();
    let mut sessions = Sessions { known, accepted, drops, accepts, decided, errors, end };
    for (number, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Outcome::Remark(step, kind, reason) => output.remark(step, kind, &reason),
            Outcome::Decision(step, filters) => {
                match &step.verdict {
                    Verdict::Log(_) => sessions.log(&filters, step, output),
                    verdict => match verdict.drop_target() {
                        Some(target) => sessions.drop(number, &filters, target, step, output),
                        None => sessions.accept(&filters, step, output),
                    },
                }
                if !matches!(step.verdict, Verdict::Log(_)) {
                    sessions.decided.extend(filters);
                }
            }
        }
    }
    sessions.finish(output);
}

/// The accepts of established and related packets, with the numbers of their outcomes.
fn known_accepts(outcomes: &[Outcome<'_>]) -> Vec<(usize, Filter)> {
    let mut known = Vec::new();
    for (number, outcome) in outcomes.iter().enumerate() {
        if let Outcome::Decision(step, filters) = outcome
            && step.verdict == Verdict::Accept
        {
            known.extend(in_states(filters, States::KNOWN).into_iter().map(|filter| (number, filter)));
        }
    }
    known
}

/// The part of filters with some states.
fn in_states(filters: &[Filter], states: States) -> Vec<Filter> {
    filters.iter().filter_map(|filter| filter.clone().and_states(states)).collect()
}

/// The filters with other states.
fn with_states(filters: &[Filter], states: States) -> Vec<Filter> {
    filters.iter().map(|filter| filter.clone().with_states(states)).collect()
}

impl Sessions<'_> {
    fn accept(&mut self, filters: &[Filter], step: &Step, output: &mut Output<'_>) {
        let new = in_states(filters, States::NEW);
        if new.is_empty() {
            return output.remark(
                step,
                Kind::Note,
                "no rule is needed: `add-stateful` accepts whole sessions",
            );
        }
        self.accepts.extend(new.iter().cloned());
        output.budget.next_step();
        let Some(left) = all_minus(new, &self.drops, output.budget) else {
            return output.remark(step, Kind::NotMapped, OVERLAPS);
        };
        if left.is_empty() {
            return output.remark(step, Kind::Note, NEVER_APPLIES);
        }
        let (mut stateful, mut stateless, mut lost) = (Vec::new(), Vec::new(), false);
        for filter in left {
            let forward = self.accepted.forward(&filter);
            let sessions = replied(&forward, &self.accepted);
            let is_whole = sessions.iter().any(|session| filter.is_within(session));
            self.errors.extend(sessions.iter().flat_map(errors));
            stateful.extend(sessions);
            if is_whole {
                continue;
            }
            // Later packets in the direction of the first one match the rule itself.
            let later = filter.clone().with_states(States::ESTABLISHED);
            match in_states(filters, States::ESTABLISHED).iter().any(|accepted| later.is_within(accepted)) {
                true => stateless.push(filter),
                false => lost = true,
            }
        }
        if lost {
            let reason = match stateful.is_empty() && stateless.is_empty() {
                true => "only first packets of connections are accepted, and no rule of mmb does that",
                false => "connections are accepted only as far as their later packets are accepted, too",
            };
            let kind = if stateful.is_empty() { Kind::NotMapped } else { Kind::Differs };
            output.remark(step, kind, reason);
        }
        for (filters, rule) in [(stateful, RuleText::ACCEPT_SESSIONS), (stateless, RuleText::ACCEPT)] {
            if !filters.is_empty() && !output.write(&filters, rule, step) {
                output.remark(step, Kind::NotMapped, TOO_LARGE);
            }
        }
    }

    fn drop(
        &mut self,
        number: usize,
        filters: &[Filter],
        target: &str,
        step: &Step,
        output: &mut Output<'_>,
    ) {
        let new = in_states(filters, States::NEW);
        let blocked = self.blocked(number, filters, step, output);
        let is_blocked = |filter: &Filter| {
            let packets = filter.clone().with_states(States::KNOWN);
            blocked.iter().any(|block| packets.is_within(&block.clone().with_states(States::KNOWN)))
        };
        if !blocked.is_empty() {
            self.remark_block(&blocked, &new, target, step, output);
            let both = mirrored_too(&blocked, step, output);
            output.write_lines(&both, RuleText::BLOCK, step);
        }
        if new.iter().all(is_blocked) {
            if blocked.is_empty() {
                output.remark(step, Kind::Note, "no rule is needed: no session has such packets");
            }
            return;
        }
        let rule = RuleText { keyword: "add", target };
        if !output.write(&new, rule, step) {
            output.remark(step, Kind::Differs, WIDENED);
            output.write_lines(&step.filters, rule, step);
        }
        self.drops.extend(new);
    }

    /// The packets of sessions that a drop drops although an accept behind it accepts others like them.
    fn blocked(
        &self,
        number: usize,
        filters: &[Filter],
        step: &Step,
        output: &mut Output<'_>,
    ) -> Vec<Filter> {
        let known = in_states(filters, States::KNOWN);
        let before: Vec<Filter> =
            self.known.iter().filter(|(at, _)| *at < number).map(|(_, filter)| filter.clone()).collect();
        output.budget.next_step();
        let mut left = all_minus(known.clone(), &before, output.budget).unwrap_or_else(|| {
            output.remark(step, Kind::Differs, WIDENED);
            known
        });
        let behind = |filter: &Filter| {
            self.known.iter().any(|(at, accept)| *at > number && accept.intersection(filter).is_some())
        };
        left.retain(behind);
        left.into_iter().flat_map(covered::only_errors).collect()
    }

    /// Says how the rules with `block` for a drop differ from it.
    fn remark_block(
        &self,
        blocked: &[Filter],
        new: &[Filter],
        target: &str,
        step: &Step,
        output: &mut Output<'_>,
    ) {
        let first = with_states(blocked, States::NEW);
        let dropped = [new, &self.drops].concat();
        let is_dropped = |filter: &Filter| dropped.iter().any(|drop| filter.is_within(drop));
        let is_accepted =
            |filter: &Filter| self.accepts.iter().any(|accept| accept.intersection(filter).is_some());
        if first.iter().any(|filter| !is_dropped(filter) || is_accepted(filter)) {
            output.remark(step, Kind::Differs, "`block` drops the first packets of such connections, too");
        }
        if target == "reject" {
            output.remark(step, Kind::Note, "`block` sends no answer");
        }
    }

    fn log(&mut self, filters: &[Filter], step: &Step, output: &mut Output<'_>) {
        let known = in_states(filters, States::KNOWN);
        output.budget.next_step();
        let left = all_minus(filters.to_vec(), &self.decided, output.budget);
        let left = left.map(|left| in_states(&left, States::NEW.or(States::KNOWN)));
        let is_written = match left {
            Some(left) if left.is_empty() => {
                return output.remark(step, Kind::Note, NOT_REACHED);
            }
            Some(left) if left.len() <= MAX_LOG_FILTERS => {
                let Verdict::Log(prefix) = &step.verdict else { return };
                let target = mmb_lang::Action::Log { prefix: prefix.clone() }.to_string();
                if known.is_empty() || in_states(&left, States::KNOWN).is_empty() {
                    output.remark(
                        step,
                        Kind::Differs,
                        "packets of sessions that match are logged, too, and take the slow path",
                    );
                }
                output.write(&left, RuleText { keyword: "add", target: &target }, step)
            }
            _ => false,
        };
        if !is_written {
            let reason = "too many rules: the accepts and drops before it overlap with it";
            output.remark(step, Kind::NotMapped, reason);
        }
    }

    /// Writes the rules for errors and the policy.
    fn finish(self, output: &mut Output<'_>) {
        output.budget.next_step();
        let related = self.accepted.related();
        let rest = all_minus(self.errors.clone(), related, output.budget).unwrap_or(self.errors);
        if !rest.is_empty() {
            let step = Step {
                filters: Vec::new(),
                verdict: Verdict::Drop,
                place: self.end.place.clone(),
                source: "ICMP errors about sessions that are not accepted".into(),
            };
            output.write_lines(&rest, RuleText::BLOCK, &step);
        }
        if self.end.verdict == Verdict::Drop {
            output.write_lines(&self.end.filters, RuleText::DROP, self.end);
        }
    }
}

/// Blocked packets, and with translated sources also the other direction of those whose destination is
/// tested: replies come to the translated address, so the rules do not see the one that is tested.
fn mirrored_too(blocked: &[Filter], step: &Step, output: &mut Output<'_>) -> Vec<Filter> {
    let mut all = blocked.to_vec();
    if output.nat.has_sources {
        let mirrored: Vec<Filter> =
            blocked.iter().filter(|filter| covered::tests_destination(filter)).map(covered::mirror).collect();
        if !mirrored.is_empty() {
            let reason =
                "replies come to translated addresses: connections are blocked by their first packets";
            output.remark(step, Kind::Differs, reason);
        }
        all.extend(mirrored);
    }
    all
}
