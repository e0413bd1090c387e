//! The texts of a policy's rules, without what is compiled from them.

use mmb_classify::paged::{PagedVec, SortedPages};

use crate::RuleInfo;
use crate::policy::{Policy, Record, RuleView};
use crate::rule_info::text::RuleText;

/// The rules of a policy at one time. A copy shares its pages with the policy that it was taken from, so that
/// it takes microseconds. It keeps neither the classifier nor the effects of that policy.
#[derive(Clone, Debug, Default)]
pub struct RuleTexts {
    slots: SortedPages<(u32, u32), 2048>,
    records: PagedVec<Option<Record>, 64>,
}

impl RuleTexts {
    /// The texts of all rules, by ascending index.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.slots
            .iter()
            .filter_map(|&(_, slot)| Some(self.records.get(slot as usize)?.as_ref()?.text.whole()))
    }
}

impl PartialEq for RuleTexts {
    fn eq(&self, other: &RuleTexts) -> bool {
        self.slots.len() == other.slots.len() && self.iter().eq(other.iter())
    }
}

impl Policy {
    /// The texts of the rules.
    pub fn texts(&self) -> RuleTexts {
        RuleTexts { slots: self.slots.clone(), records: self.records.clone() }
    }

    /// The rules whose properties are of a kind, by ascending index. No text of the others is read.
    pub fn rules_of(&self, is_kind: impl Fn(&RuleInfo) -> bool) -> impl Iterator<Item = RuleView<'_>> {
        let found = self.slots.iter().filter(move |&&(_, slot)| is_kind(&self.rule_info(slot)));
        found.filter_map(|&entry| self.view(entry))
    }

    /// The index of the first other rule with the body of this one, among those of the first `most` slots.
    pub fn first_with_body_of(&self, rule: &RuleView<'_>, most: usize) -> Option<u32> {
        let hash = self.record(rule.slot)?.text.hash;
        let is_equal = |text: &RuleText| text.hash == hash && text.body() == rule.body;
        let found = self.records.iter().take(most).zip(0..).filter(|(record, slot)| {
            *slot != rule.slot && record.as_ref().is_some_and(|record| is_equal(&record.text))
        });
        found.filter_map(|(_, slot)| self.index(slot)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds a rule and returns its index.
    fn add(policy: &mut Policy, line: &str) -> u32 {
        let Ok(Some(mmb_lang::Command::Add(rule))) = mmb_lang::parse_line(line) else { panic!("{line}") };
        policy.add(&rule, &|_| None).unwrap()
    }

    #[test]
    fn the_first_rule_with_a_body_is_found_in_any_order_of_slots() {
        let mut policy = Policy::new();
        let gone = add(&mut policy, "add ip-ttl 7 drop");
        let first = add(&mut policy, "add udp-dport 53 drop name one");
        let other = add(&mut policy, "add udp-dport 54 drop");
        let slot = policy.del(gone).unwrap();
        policy.release(slot);
        // It gets the slot in front of the others.
        let second = add(&mut policy, "add udp-dport 53 drop comment 'again'");
        let third = add(&mut policy, "add udp-dport 53 drop");
        let found = |index: u32, most: usize| {
            let rule = policy.rule(index).unwrap();
            let naive = policy.rules().find(|one| one.index != index && one.body == rule.body);
            let found = policy.first_with_body_of(&rule, most);
            assert!(most < 4 || found == naive.map(|one| one.index), "{index}");
            found
        };
        assert_eq!(
            [first, second, third].map(|index| found(index, 4)),
            [Some(second), Some(first), Some(first)]
        );
        assert_eq!((found(other, 4), found(third, 1)), (None, Some(second)));
    }

    #[test]
    fn rules_of_a_kind_come_by_index() {
        let mut policy = Policy::new();
        let indexes = ["drop", "accept", "drop", "accept"]
            .map(|action| add(&mut policy, &format!("add udp-dport 53 {action}")));
        let accepting = policy.rules_of(|info| info.accepts).map(|rule| rule.index);
        assert_eq!(accepting.collect::<Vec<_>>(), [indexes[1], indexes[3]]);
    }

    #[test]
    fn texts_stay_as_they_were_taken() {
        let mut policy = Policy::new();
        add(&mut policy, "add ip-proto udp drop");
        let second = add(&mut policy, "add ip-proto tcp drop");
        let texts = policy.texts();
        let slot = policy.del(second).unwrap();
        policy.release(slot);
        add(&mut policy, "add ip-ttl 1 drop");
        assert_eq!(texts.iter().collect::<Vec<_>>(), ["add ip-proto udp drop", "add ip-proto tcp drop"]);
        assert_eq!(policy.texts().iter().collect::<Vec<_>>(), ["add ip-proto udp drop", "add ip-ttl 1 drop"]);
    }
}
