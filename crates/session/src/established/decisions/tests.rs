use super::*;
use crate::testing::CountingRules;

/// The generation has 16 bits. A decision of an old generation is invalid after the number wraps.
#[test]
fn generations_wrap() {
    let (mut decisions, rules) = (Decisions::new(), CountingRules::default());
    let stamp = decisions.stamp(7);
    let number = decisions.acquire(&rules.policy, stamp, &[3]);
    assert!(decisions.is_current(number, decisions.stamp(7)));
    assert!(!decisions.is_current(number, decisions.stamp(8)));
    for _ in 0..2 * 65_536 {
        decisions.renew();
        assert!(!decisions.is_current(number, decisions.stamp(7)));
        assert!(!decisions.is_current(EMPTY, decisions.stamp(0)), "no decision");
    }
    decisions.release(number, &rules);
    assert_eq!(decisions.len(), 0);
}

/// Counts are added to the rules once: by a flush, or by the release of the last reference.
#[test]
fn counts_are_added_once() {
    let (mut decisions, rules) = (Decisions::new(), CountingRules::default());
    let stamp = decisions.stamp(0);
    let numbers = [&[3][..], &[3, 5]].map(|slots| decisions.acquire(&rules.policy, stamp, slots));
    for number in numbers {
        (0..3)
            .for_each(|_| assert_eq!(decisions.count(number, stamp, (1, 100)), Some(DecisionFlags::empty())));
    }
    assert!(decisions.has_counts() && decisions.flush(&rules, 1), "one is left");
    assert_eq!(rules.counts(3), (3, 300));
    decisions.release(numbers[1], &rules);
    assert!(!decisions.flush(&rules, 10) && !decisions.has_counts());
    // The policy has no such rules. The second decision, which asks the policy, therefore stands for none.
    assert_eq!((rules.counts(3), rules.counts(5)), ((3, 300), (0, 0)));
    assert_eq!(decisions.count(numbers[0], stamp + 1, (1, 100)), None);
}
