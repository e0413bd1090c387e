//! A rule that covers another one matches all its packets.

use mmb_lang::{Action, Match, Rule, RuleKind, SourceSpan, covers};
use mmb_oracle::{Verdict, evaluate, generate};
use proptest::prelude::*;

/// Whether a packet matches.
fn holds(matches: &[Match], frame: &generate::Frame) -> bool {
    let (kind, span) = (RuleKind::Add, SourceSpan::default());
    let rule =
        Rule { kind, matches: matches.to_vec(), targets: vec![Action::Block.into()], label: None, span };
    matches!(evaluate(&[(1, rule)], &generate::port, 0, 1, frame).verdict, Verdict::Drop(_))
}

proptest! {
    #[test]
    fn covered_packets_match(rules in generate::rules(12), frames in generate::frames(12)) {
        // Rules that cover each other by chance are rare. Those with the matches of two are covered by each.
        let lists: Vec<&[Match]> = rules.iter().map(|rule| &*rule.matches).collect();
        let both: Vec<Vec<Match>> = lists.windows(2).map(|pair| pair.concat()).collect();
        for outer in &lists {
            for inner in lists.iter().copied().chain(both.iter().map(|list| &**list)) {
                if covers(outer, inner) {
                    for frame in &frames {
                        let (wide, narrow) = (holds(outer, frame), holds(inner, frame));
                        prop_assert!(wide || !narrow, "{outer:?} {inner:?}");
                    }
                }
            }
        }
        for (both, one) in both.iter().zip(&lists) {
            prop_assert!(covers(one, both));
        }
    }
}
