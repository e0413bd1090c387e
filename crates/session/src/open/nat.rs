//! The keys and rules of NAT mappings.

use std::io;

use mmb_flow::{Arena, Key, MAX_FORWARDS, MappingId};

use crate::rules::attached::{RuleLists, SessionRule};
use crate::rules::lists::{EMPTY, ListHint};

/// How long a redirect is kept after its last packet, in milliseconds.
pub(crate) const REDIRECT_TIMEOUT: u32 = 120_000;

/// The rule that caused each mapping, by number of the mapping: the number of a list with this rule only. It
/// refers to the list until another mapping gets its number.
#[derive(Debug)]
pub(crate) struct MappingRules {
    lists: Arena<u32>,
    /// The rule of the last mapping, which is likely to cause the next.
    last: Option<(SessionRule, ListHint)>,
}

impl MappingRules {
    /// Reserves memory for the mappings of `sessions` sessions.
    ///
    /// # Errors
    /// The error of the system if there is not enough address space.
    pub fn new(sessions: usize) -> io::Result<MappingRules> {
        Ok(MappingRules { lists: Arena::new(sessions + 1 + MAX_FORWARDS)?, last: None })
    }

    /// Returns the rule that caused a mapping.
    pub fn get(&self, id: MappingId, lists: &RuleLists) -> Option<SessionRule> {
        lists.get(*self.lists.get().get(id.0 as usize)?).next()
    }

    /// Stores the rule that caused a mapping.
    #[inline]
    pub fn set(&mut self, id: MappingId, rule: Option<SessionRule>, lists: &mut RuleLists) {
        let number = rule.map_or(EMPTY, |rule| self.acquire(rule, lists));
        self.lists.request_next(id.0 as usize);
        if let Some(place) = self.lists.get_mut().get_mut(id.0 as usize) {
            lists.release(std::mem::replace(place, number));
        }
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
