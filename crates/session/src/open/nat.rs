//! The keys and rules of NAT mappings.

use std::io;

use mmb_flow::{Arena, Key, MAX_FORWARDS, MappingId};

use crate::rules::attached::{RuleLists, SessionRule};
use crate::rules::lists::{EMPTY, ListHint};

/// The rule that caused each mapping, by number of the mapping. Most mappings have the same rule, so that the
/// array takes memory only where another one is stored.
#[derive(Debug)]
pub(crate) struct MappingRules {
    /// 0: [`MappingRules::common`]. Otherwise the number of a list with the rule only, plus 1. The mapping
    /// refers to the list until another mapping gets its number.
    lists: Arena<u32>,
    /// Some number in `lists` is not 0.
    is_used: bool,
    /// The rule of most mappings: the first one that caused any.
    common: Option<SessionRule>,
    /// The rule of the last mapping with another rule, which is likely to cause the next.
    last: Option<(SessionRule, ListHint)>,
}

impl MappingRules {
    /// Reserves memory for the mappings of `sessions` sessions.
    ///
    /// # Errors
    /// The error of the system if there is not enough address space.
    pub fn new(sessions: usize) -> io::Result<MappingRules> {
        let lists = Arena::new(sessions + 1 + MAX_FORWARDS)?;
        Ok(MappingRules { lists, is_used: false, common: None, last: None })
    }

    /// Returns the rule that caused a mapping.
    pub fn get(&self, id: MappingId, lists: &RuleLists) -> Option<SessionRule> {
        let stored = if self.is_used { *self.lists.get().get(id.0 as usize)? } else { 0 };
        match stored.checked_sub(1) {
            Some(number) => lists.get(number).next(),
            None => self.common,
        }
    }

    /// Stores the rule that caused a mapping.
    #[inline]
    pub fn set(&mut self, id: MappingId, rule: Option<SessionRule>, lists: &mut RuleLists) {
        self.common = self.common.or(rule);
        let is_common = rule.is_some() && rule == self.common;
        if is_common && !self.is_used {
            return;
        }
        let stored = match is_common {
            true => 0,
            false => rule.map_or(EMPTY, |rule| self.acquire(rule, lists)) + 1,
        };
        self.store(id, stored, lists);
    }

    /// Stores a number of [`MappingRules::lists`], and releases the list of the number before.
    #[inline(never)]
    fn store(&mut self, id: MappingId, stored: u32, lists: &mut RuleLists) {
        self.is_used = true;
        self.lists.request_next(id.0 as usize);
        let Some(place) = self.lists.get_mut().get_mut(id.0 as usize) else { return };
        if let Some(old) = place.checked_sub(1) {
            lists.release(old);
        }
        // A write of zeros would take memory.
        if *place != stored {
            *place = stored;
        }
    }

    /// Begins anew, since there are no mappings.
    pub fn forget(&mut self) {
        self.common = None;
    }

    /// Adds a reference to the list with this rule only, and returns its number.
    #[inline]
    fn acquire(&mut self, rule: SessionRule, lists: &mut RuleLists) -> u32 {
        if let Some((last, hint)) = self.last
            && last == rule
            && let Some(number) = lists.acquire_by_hint(hint)
        {
            return number;
        }
        let number = lists.acquire(&[rule]);
        self.last = Some((rule, lists.hint(number)));
        number
    }
}

/// Returns the key by which a pool knows a session: with the destination after translation, which filtering
/// compares.
pub(crate) fn nat_key(key: &Key, to: &Key) -> Key {
    Key { destination: to.destination, destination_port: to.destination_port, ..*key }
}

#[cfg(test)]
mod tests {
    use mmb_policy::RuleId;

    use super::*;

    #[test]
    fn each_mapping_has_its_rule() {
        let (mut rules, mut lists) = (MappingRules::new(4).expect("memory"), RuleLists::new());
        let rule = |slot| Some(SessionRule { slot, id: RuleId(slot + 7), translates: true });
        let all = |rules: &MappingRules, lists: &RuleLists| {
            [0, 1, 2].map(|id| rules.get(MappingId(id), lists).map(|rule| rule.slot))
        };
        assert_eq!(all(&rules, &lists), [None; 3]);
        rules.set(MappingId(0), rule(3), &mut lists);
        rules.set(MappingId(1), rule(3), &mut lists);
        assert!(!rules.is_used, "the common rule takes no memory");
        rules.set(MappingId(2), rule(5), &mut lists);
        assert_eq!(all(&rules, &lists), [Some(3), Some(3), Some(5)]);
        rules.set(MappingId(1), None, &mut lists);
        assert_eq!(all(&rules, &lists), [Some(3), None, Some(5)]);
        rules.set(MappingId(1), rule(5), &mut lists);
        rules.set(MappingId(2), rule(3), &mut lists);
        rules.set(MappingId(0), rule(4), &mut lists);
        assert_eq!(all(&rules, &lists), [Some(4), Some(5), Some(3)]);
        rules.forget();
        rules.set(MappingId(1), rule(6), &mut lists);
        rules.set(MappingId(2), rule(5), &mut lists);
        assert_eq!(all(&rules, &lists), [Some(4), Some(6), Some(5)]);
    }

    #[test]
    fn lists_are_released_with_their_last_mapping() {
        let (mut rules, mut lists) = (MappingRules::new(4).expect("memory"), RuleLists::new());
        let rule = |slot| Some(SessionRule { slot, id: RuleId(slot), translates: true });
        rules.set(MappingId(0), rule(1), &mut lists);
        for id in [1, 2, 1, 2] {
            rules.set(MappingId(id), rule(2), &mut lists);
        }
        assert_eq!(lists.len(), 1);
        rules.set(MappingId(1), rule(1), &mut lists);
        assert_eq!(lists.len(), 1);
        rules.set(MappingId(2), None, &mut lists);
        assert_eq!(lists.len(), 0);
    }
}
