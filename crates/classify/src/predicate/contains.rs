//! Finds which of many literals occur anywhere in some bytes.
//!
//! Theory of operation. An Aho-Corasick automaton finds all its literals in one pass, but it cannot be
//! changed. Therefore there are several automata, as in a log-structured store. A new literal becomes an
//! automaton of its own. It is merged with the automata before it while those are no larger and all together
//! are small ([`MAX_MERGED_BYTES`]). [`Contains::rebuilt`] builds a single automaton in the background. A
//! literal that no predicate uses any more stays in its automaton until then and has no effect.

use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use super::results::{Ids, Scan};
use super::trie::Trie;
use crate::paged::PagedVec;

/// Automata with more literal bytes than this are not merged on insertion. Building one of this size takes
/// well under a millisecond.
const MAX_MERGED_BYTES: usize = 2048;

/// With more automata than this, a rebuild pays.
const MAX_AUTOMATA: usize = 4;

/// Literals, each with the predicates that it makes true. Clones share memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Contains {
    /// The number of each literal.
    numbers: Trie<u32>,
    literals: PagedVec<Literal, 64>,
    /// Literals from this number on are in no automaton yet.
    covered: usize,
    /// Number of literals that no predicate uses any more.
    dead: usize,
    automata: Arc<Vec<Arc<Automaton>>>,
}

#[derive(Clone, Debug)]
struct Literal {
    bytes: Arc<[u8]>,
    ids: Ids,
}

#[derive(Debug)]
struct Automaton {
    search: AhoCorasick,
    /// The literals' numbers, in the order of the automaton's patterns.
    numbers: Vec<u32>,
    bytes: usize,
}

impl Contains {
    pub fn is_empty(&self) -> bool {
        self.literals.len() == self.dead
    }

    /// Makes predicate `id` true where a literal occurs. Takes effect with the next [`Contains::settle`].
    pub fn insert(&mut self, bytes: &[u8], id: u32) {
        let next = self.literals.len() as u32;
        let number = self.numbers.change(bytes, |number| *number.get_or_insert(next));
        if number == next {
            self.literals.push(Literal { bytes: bytes.into(), ids: Ids::default() });
            self.dead += 1;
        }
        if let Some(literal) = self.literals.get_mut(number as usize) {
            self.dead -= usize::from(literal.ids.is_empty());
            literal.ids.insert(id);
        }
    }

    /// Removes what [`Contains::insert`] added.
    pub fn remove(&mut self, bytes: &[u8], id: u32) {
        let Some(&number) = self.numbers.get(bytes) else { return };
        let Some(literal) = self.literals.get_mut(number as usize) else { return };
        if literal.ids.remove(id).is_some() && literal.ids.is_empty() {
            self.dead += 1;
        }
        if self.is_empty() {
            *self = Contains::default();
        }
    }

    /// Whether literals wait for [`Contains::settle`].
    pub fn is_unsettled(&self) -> bool {
        self.covered < self.literals.len()
    }

    /// Builds automata of the literals that are in none.
    pub fn settle(&mut self) {
        let mut numbers: Vec<u32> = (self.covered as u32..self.literals.len() as u32).collect();
        if numbers.is_empty() {
            return;
        }
        self.covered = self.literals.len();
        let mut bytes = self.bytes_of(&numbers);
        let automata = Arc::make_mut(&mut self.automata);
        while let Some(last) = automata.last()
            && last.bytes <= bytes
            && last.bytes + bytes <= MAX_MERGED_BYTES
        {
            bytes += last.bytes;
            numbers.extend(&last.numbers);
            automata.pop();
        }
        self.build(numbers);
    }

    fn bytes_of(&self, numbers: &[u32]) -> usize {
        let literals = numbers.iter().filter_map(|number| self.literals.get(*number as usize));
        literals.map(|literal| literal.bytes.len()).sum()
    }

    /// Adds an automaton of these literals, or several if one would have too many states.
    fn build(&mut self, numbers: Vec<u32>) {
        let of = |number: &u32| self.literals.get(*number as usize).map(|literal| &literal.bytes[..]);
        let literals: Vec<&[u8]> = numbers.iter().filter_map(of).collect();
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(&literals);
        match search {
            Ok(search) => {
                let bytes = self.bytes_of(&numbers);
                Arc::make_mut(&mut self.automata).push(Arc::new(Automaton { search, numbers, bytes }));
            }
            Err(_) if numbers.len() > 1 => {
                let (low, high) = numbers.split_at(numbers.len() / 2);
                self.build(low.to_vec());
                self.build(high.to_vec());
            }
            // A single literal has as many states as bytes: a few thousand.
            Err(_) => {}
        }
    }

    /// Returns one automaton with the literals that are in use.
    pub fn rebuilt(&self) -> Contains {
        let mut new = Contains::default();
        for literal in self.literals.iter() {
            for id in literal.ids.iter() {
                new.insert(&literal.bytes, *id);
            }
        }
        new.settle();
        new
    }

    /// Whether [`Contains::rebuilt`] would be faster to search.
    pub fn is_stale(&self) -> bool {
        self.automata.len() > MAX_AUTOMATA || self.dead > 64 + self.literals.len() / 2
    }

    /// Adds the predicates that are true for `text` to `scan`.
    pub fn search(&self, text: &[u8], scan: &mut Scan<'_>) {
        scan.start_text();
        for automaton in self.automata.iter() {
            // An error would mean that the automaton has another match kind than it was built with.
            let Ok(found) = automaton.search.try_find_overlapping_iter(text) else { continue };
            for found in found {
                let Some(&number) = automaton.numbers.get(found.pattern().as_usize()) else { continue };
                if scan.is_first(number)
                    && let Some(literal) = self.literals.get(number as usize)
                {
                    scan.add(&literal.ids);
                }
            }
        }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        let automata = self.automata.iter().map(|one| one.search.memory_usage() + 4 * one.numbers.len());
        let literals = self.literals.iter().map(|literal| literal.bytes.len() + literal.ids.bytes());
        self.literals.bytes() + automata.sum::<usize>() + literals.sum::<usize>()
    }
}
