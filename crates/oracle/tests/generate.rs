//! The generators make what they promise, often enough to be worth running.

use std::collections::BTreeSet;

use mmb_oracle::generate::{self, Dice};
use mmb_oracle::{Verdict, evaluate};
use mmb_packet::{Kind, Meta, flags, parse};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// Draws from a strategy, the same in every run.
fn draws<T: std::fmt::Debug>(strategy: impl Strategy<Value = T>, n: usize) -> Vec<T> {
    let mut runner = TestRunner::deterministic();
    (0..n).map(|_| strategy.new_tree(&mut runner).expect("no strategy here rejects").current()).collect()
}

#[test]
fn rules_hit() {
    let (mut decided, mut edited, mut hits, mut total) = (0, 0, 0, 0);
    for (rules, frames) in draws((generate::rules(8), generate::frames(8)), 1_000) {
        for frame in &frames {
            let outcome = evaluate(&generate::numbered(&rules), &generate::port, 0, 1, frame);
            total += 1;
            hits += outcome.matched.len();
            decided += usize::from(outcome.verdict != Verdict::Pass);
            edited += usize::from(outcome.bytes != frame.0);
        }
    }
    assert!(
        hits * 2 > total && decided * 10 > total && edited * 10 > total,
        "{hits} {decided} {edited} {total}"
    );
}

#[test]
fn most_rules_are_accepted() {
    let rules = draws(generate::unchecked_rule(), 2_000);
    let accepted = rules.iter().filter(|rule| mmb_lang::check(rule).is_ok()).count();
    assert!(accepted > 1_600, "{accepted} of 2000");
    let distinct: BTreeSet<_> = rules.iter().map(ToString::to_string).collect();
    assert!(distinct.len() > 1_500, "{} distinct of 2000", distinct.len());
}

/// Every combination of headers, every kind of fragment, every reason of the parser.
#[test]
fn frames_vary() {
    let (mut kinds, mut fragments, mut reasons) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for frame in draws(generate::frames(8), 2_000).iter().flatten() {
        let mut meta = Meta::default();
        match parse(frame, frame.len(), &mut meta) {
            Ok(()) => {
                kinds.insert(meta.kind.0);
                fragments.insert((
                    meta.kind.l3(),
                    meta.flags & (flags::FRAGMENT | flags::LATER_FRAGMENT | flags::ROUTED),
                ));
            }
            Err(reason) => {
                reasons.insert(reason.name());
            }
        }
    }
    use Kind as K;
    for kind in [K::IP4 | K::TCP, K::IP4 | K::UDP, K::IP4 | K::ICMP, K::IP4, K::IP6 | K::TCP, K::IP6 | K::UDP]
    {
        assert!(kinds.contains(&kind), "{kind:#x} in {kinds:x?}");
    }
    assert!(kinds.contains(&(K::IP6 | K::ICMP6)) && kinds.contains(&K::IP6) && kinds.contains(&0));
    // IPv4: none, first, later; IPv6: those with and without a routing header.
    assert_eq!(fragments.iter().filter(|(l3, _)| *l3 == K::IP4).count(), 3);
    assert_eq!(fragments.iter().filter(|(l3, _)| *l3 == K::IP6).count(), 6);
    let expected = ["ip4-malformed", "ip4-truncated", "ip6-malformed", "ip6-truncated"];
    assert_eq!(reasons, BTreeSet::from(expected));
}

#[test]
fn the_plainest_case_is_plain() {
    let (rules, frames) = generate::case(&[]);
    assert!(rules.is_empty() && frames.is_empty());
    let frame = generate::frame(&mut Dice::new(&[]));
    let mut meta = Meta::default();
    assert_eq!(parse(&frame, frame.len(), &mut meta), Ok(()));
    assert_eq!(meta.kind, Kind(Kind::IP4 | Kind::TCP));
    assert_eq!(frame.len(), 14 + 20 + 20);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// What [`mmb_lang::check`] calls a contradiction is one: no frame matches, or the edit never changes anything.
    #[test]
    fn refused_rules_do_nothing(rule in generate::unchecked_rule(), frames in generate::frames(12)) {
        if let Err(refusal) = mmb_lang::check(&rule) {
            for frame in &frames {
                let outcome = evaluate(&[(1, rule.clone())], &generate::port, 0, 1, frame);
                let matched = !outcome.matched.is_empty();
                let without_effect = refusal.message.contains("never applies");
                prop_assert!(!matched || without_effect, "{} matches although {}", rule, refusal.message);
            }
        }
    }

    /// Rules print as what they are read from.
    #[test]
    fn rules_are_text(rules in generate::rules(4)) {
        for rule in rules {
            let command = mmb_lang::parse_line(&rule.to_string());
            prop_assert_eq!(command, Ok(Some(mmb_lang::Command::Add(rule))));
        }
    }

    #[test]
    fn any_bytes_make_a_case(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        let (rules, frames) = generate::case(&bytes);
        let rules = generate::numbered(&rules);
        for frame in frames.iter().map(|frame| &**frame).chain([&bytes[..]]) {
            let outcome = evaluate(&rules, &generate::port, 0, 1, frame);
            prop_assert_eq!(outcome.bytes.len(), frame.len());
            prop_assert!(frame.len() < 1_500 || frame.len() == bytes.len());
        }
    }
}
