//! The stateful rules that a session has.
//!
//! Theory of operation. A rule stays with a session by slot and identity ([`mmb_policy::RuleId`]): the slot may be given
//! to another rule, the identity may not. The rules of a session are a list of such pairs in ascending order of slots,
//! which many sessions share ([`Lists`]); the session keeps its number. In a pair, the slot has a mark if the session is
//! translated because of the rule.

use mmb_policy::{Policy, RuleId};

use crate::lists::{Again, EMPTY, Lists};

/// Marks a slot whose rule translates the session; slots are below it.
const TRANSLATES: u32 = 1 << 31;

/// A rule of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Attached {
    pub slot: u32,
    pub id: RuleId,
    /// The session is translated because of it, and ends with it.
    pub translates: bool,
}

impl Attached {
    /// The rule in a slot; none if there is none.
    pub fn of(policy: &Policy, slot: u32, translates: bool) -> Option<Attached> {
        Some(Attached { slot, id: policy.rule_id(slot)?, translates })
    }

    /// Whether the rule is still there.
    pub fn is_alive(&self, policy: &Policy) -> bool {
        policy.rule_id(self.slot) == Some(self.id)
    }
}

/// The lists of rules that sessions have.
#[derive(Debug)]
pub(crate) struct RuleLists {
    lists: Lists,
    words: Vec<u32>,
}

impl RuleLists {
    pub fn new() -> RuleLists {
        RuleLists { lists: Lists::new(u32::MAX), words: Vec::new() }
    }

    /// The rules of a list, in ascending order of slots.
    pub fn get(&self, number: u32) -> impl Iterator<Item = Attached> + '_ {
        let (pairs, _) = self.lists.get(number).as_chunks::<2>();
        pairs.iter().map(|&[slot, id]| Attached {
            slot: slot & !TRANSLATES,
            id: RuleId(id),
            translates: slot & TRANSLATES != 0,
        })
    }

    /// Whether a list has the rule in this slot.
    pub fn has(&self, number: u32, slot: u32) -> bool {
        let (pairs, _) = self.lists.get(number).as_chunks::<2>();
        pairs.binary_search_by_key(&slot, |&[slot, _]| slot & !TRANSLATES).is_ok()
    }

    /// The number of a list of rules in ascending order of slots, each once; the caller has it until
    /// [`RuleLists::give_back`].
    pub fn take(&mut self, rules: &[Attached]) -> u32 {
        if rules.is_empty() {
            return EMPTY;
        }
        self.words.clear();
        for rule in rules {
            self.words.extend([rule.slot | if rule.translates { TRANSLATES } else { 0 }, rule.id.0]);
        }
        self.lists.take(0, &self.words).map_or(EMPTY, |taken| taken.number)
    }

    /// As [`Lists::again`].
    pub fn again(&self, number: u32) -> Again {
        self.lists.again(number)
    }

    /// As [`Lists::take_again`].
    #[inline]
    pub fn take_again(&mut self, again: Again) -> Option<u32> {
        self.lists.take_again(again)
    }

    pub fn give_back(&mut self, number: u32) {
        self.lists.give_back(number);
    }
}

/// Puts a rule into a list in ascending order of slots, unless it is there.
pub(crate) fn insert(rules: &mut Vec<Attached>, rule: Attached) {
    if let Err(at) = rules.binary_search_by_key(&rule.slot, |other| other.slot) {
        rules.insert(at, rule);
    }
}
