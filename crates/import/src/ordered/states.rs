//! Connection states in the outcomes of a walk.

use super::output::Output;
use super::step::{Outcome, Verdict};
use crate::filter::Filter;
use crate::script::Kind;
use crate::states::States;

/// The remark on a rule that drops invalid packets.
const INVALID: &str = "the tracker of mmb drops segments outside the window and forged ICMP errors; \
     other packets without connection (ICMP replies, resets) meet the rules for new packets";

/// The setting with which the tracker drops the segments that the kernel takes for invalid.
const WINDOW_CHECK: &str = "set tcp-window-check on";

/// The outcomes without the state `INVALID`, and remarks on rules with this state only.
pub(super) fn without_invalid<'a>(outcomes: Vec<Outcome<'a>>, output: &mut Output<'_>) -> Vec<Outcome<'a>> {
    let has_states = |outcome: &Outcome<'_>| match outcome {
        Outcome::Decision(_, filters) => filters.iter().any(|filter| filter.states() != States::ALL),
        Outcome::Remark(..) => false,
    };
    if outcomes.iter().any(has_states) {
        output.script.comment("segments outside the window of a TCP connection are invalid");
        output.script.setting(WINDOW_CHECK);
    }
    let valid = States::ALL.without(States::INVALID);
    let mut kept = Vec::with_capacity(outcomes.len());
    for outcome in outcomes {
        let Outcome::Decision(step, filters) = outcome else {
            kept.push(outcome);
            continue;
        };
        let filters: Vec<Filter> =
            filters.into_iter().filter_map(|filter| filter.and_states(valid)).collect();
        if !filters.is_empty() {
            kept.push(Outcome::Decision(step, filters));
            continue;
        }
        match step.verdict {
            Verdict::Drop | Verdict::Reject => output.remark(step, Kind::Differs, INVALID),
            _ => output.remark(step, Kind::NotMapped, "no rule of mmb matches invalid packets only"),
        }
    }
    kept
}

/// Whether a decision is about packets of connections and not about first packets, or the other way round.
pub(super) fn are_distinguished(outcomes: &[Outcome<'_>]) -> bool {
    outcomes.iter().any(|outcome| match outcome {
        Outcome::Decision(_, filters) => filters.iter().any(|filter| filter.states().distinguishes()),
        Outcome::Remark(..) => false,
    })
}
