//! Compiled matches of whole rules.

use super::entry::Entry;
use super::predicate::Predicate;

/// The compiled match of a rule. Predicate numbers are indexes in [`Pattern::predicates`] until a classifier
/// assigns its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    entries: Vec<Entry>,
    predicates: Vec<Predicate>,
}

impl Pattern {
    /// A rule that matches where one of `entries` holds. There must be at least one entry, with predicate
    /// numbers below `predicates.len()`, and at most one may hold for a packet. None if this is violated, as
    /// far as it can be checked.
    pub fn new(entries: Vec<Entry>, predicates: Vec<Predicate>) -> Option<Pattern> {
        let known = |entry: &Entry| entry.predicates().all(|id| (id as usize) < predicates.len());
        (!entries.is_empty() && entries.iter().all(known)).then_some(Pattern { entries, predicates })
    }

    /// The entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The predicates, indexed by number.
    pub fn predicates(&self) -> &[Predicate] {
        &self.predicates
    }
}
