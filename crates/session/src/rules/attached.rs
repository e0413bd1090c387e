//! The stateful rules of sessions.
//!
//! Theory of operation. A session refers to a rule by slot and identity ([`mmb_policy::RuleId`]). A slot can
//! be reused for another rule, an identity cannot. The rules of a session are a list of such pairs in
//! ascending order of slots. Sessions with equal lists share one ([`InternedLists`]); a session stores its
//! number. A bit of the slot marks a rule that translates the session.

use mmb_policy::{Policy, RuleId};

use super::lists::{EMPTY, InternedLists, ListHint};

/// Marks the slot of a rule that translates the session. Slots are below it.
const TRANSLATES: u32 = 1 << 31;

/// A stateful rule of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionRule {
    pub slot: u32,
    pub id: RuleId,
    /// The rule translates the session, which ends with the rule.
    pub translates: bool,
}

impl SessionRule {
    /// Returns the rule in a slot.
    pub fn new(policy: &Policy, slot: u32, translates: bool) -> Option<SessionRule> {
        Some(SessionRule { slot, id: policy.rule_id(slot)?, translates })
    }

    /// Whether the rule still exists.
    pub fn is_alive(&self, policy: &Policy) -> bool {
        policy.rule_id(self.slot) == Some(self.id)
    }
}

/// The rule lists of all sessions.
#[derive(Debug)]
pub(crate) struct RuleLists {
    lists: InternedLists,
    /// Buffer for the words of a list.
    words: Vec<u32>,
}

impl RuleLists {
    pub fn new() -> RuleLists {
        RuleLists { lists: InternedLists::new(u32::MAX), words: Vec::new() }
    }

    /// Returns the number of lists.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.lists.len()
    }

    /// Returns the rules of a list, in ascending order of slots.
    pub fn get(&self, number: u32) -> impl Iterator<Item = SessionRule> + '_ {
        let (pairs, _) = self.lists.get(number).as_chunks::<2>();
        pairs.iter().map(|&[slot, id]| SessionRule {
            slot: slot & !TRANSLATES,
            id: RuleId(id),
            translates: slot & TRANSLATES != 0,
        })
    }

    /// Whether a list contains the rule in this slot.
    pub fn contains(&self, number: u32, slot: u32) -> bool {
        let (pairs, _) = self.lists.get(number).as_chunks::<2>();
        pairs.binary_search_by_key(&slot, |&[slot, _]| slot & !TRANSLATES).is_ok()
    }

    /// Adds a reference to a list of rules in ascending order of slots, and returns its number.
    pub fn acquire(&mut self, rules: &[SessionRule]) -> u32 {
        if rules.is_empty() {
            return EMPTY;
        }
        self.words.clear();
        for rule in rules {
            self.words.extend([rule.slot | if rule.translates { TRANSLATES } else { 0 }, rule.id.0]);
        }
        self.lists.acquire(0, &self.words).map_or(EMPTY, |acquired| acquired.number)
    }

    /// Returns a hint for a list, as [`InternedLists::hint`].
    pub fn hint(&self, number: u32) -> ListHint {
        self.lists.hint(number)
    }

    /// Adds a reference to the list of a hint, as [`InternedLists::acquire_by_hint`].
    #[inline]
    pub fn acquire_by_hint(&mut self, hint: ListHint) -> Option<u32> {
        self.lists.acquire_by_hint(hint)
    }

    /// Removes a reference to a list.
    pub fn release(&mut self, number: u32) {
        self.lists.release(number);
    }
}

/// Inserts a rule into a list in ascending order of slots. A rule with the same slot stays.
pub(crate) fn insert(rules: &mut Vec<SessionRule>, rule: SessionRule) {
    if let Err(at) = rules.binary_search_by_key(&rule.slot, |other| other.slot) {
        rules.insert(at, rule);
    }
}
