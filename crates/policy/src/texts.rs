//! The texts of a policy's rules, without what is compiled from them.

use mmb_classify::paged::{PagedVec, SortedPages};

use crate::policy::{Policy, Record};

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
        self.slots.iter().filter_map(|&(_, slot)| Some(&*self.records.get(slot as usize)?.as_ref()?.text))
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stay_as_they_were_taken() {
        let mut policy = Policy::new();
        let add = |policy: &mut Policy, line: &str| {
            let Ok(Some(mmb_lang::Command::Add(rule))) = mmb_lang::parse_line(line) else { panic!("{line}") };
            policy.add(&rule, &|_| None).unwrap()
        };
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
