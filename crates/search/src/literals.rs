//! Literals in bytes that can wait: which ones are there, and from where on more bytes are needed.
//!
//! Theory of operation. A function that replaces literals gets the bytes of a stream from the first one that
//! is not decided. Of overlapping literals, the one that begins first is taken, and of those that begin
//! together, the longest. A literal is decided if no later byte can change that: what begins with it, or in
//! front of it, is not the beginning of a longer literal that the bytes end in.

use std::cmp::Ordering;
use std::ops::Range;

use aho_corasick::{AhoCorasick, Input, MatchKind};

use crate::{Expression, Pattern, SearchError};

/// A set of literals.
#[derive(Debug)]
pub struct Literals {
    automaton: AhoCorasick,
    /// The literals in ascending order, in lower case if the case is ignored.
    sorted: Vec<Box<[u8]>>,
    /// Whether a literal begins with a byte.
    begins: Box<[bool; 256]>,
    longest: usize,
    ignores_case: bool,
}

impl Literals {
    /// Compiles literals. The case is ignored if the patterns say so, all or none.
    ///
    /// # Errors
    /// There are none, there are too many, or one is a regular expression or treats the case otherwise.
    pub fn new(patterns: &[Pattern]) -> Result<Literals, SearchError> {
        Pattern::check_number(patterns)?;
        let ignores_case = patterns.iter().any(|pattern| pattern.ignores_case);
        let literal = |(index, pattern): (usize, &'_ Pattern)| match &pattern.expression {
            Expression::Literal(bytes) if pattern.ignores_case == ignores_case => Ok(bytes.clone()),
            _ => Err(SearchError::Pattern {
                index,
                text: pattern.text.to_string(),
                message: "edits replace literals, not regular expressions".to_owned(),
            }),
        };
        let mut sorted = patterns.iter().enumerate().map(literal).collect::<Result<Vec<_>, _>>()?;
        let mut builder = AhoCorasick::builder();
        builder.match_kind(MatchKind::LeftmostLongest).ascii_case_insensitive(ignores_case);
        let automaton = builder.build(&sorted).map_err(|error| SearchError::Compile(error.to_string()))?;
        if ignores_case {
            sorted.iter_mut().for_each(|literal| literal.make_ascii_lowercase());
        }
        sorted.sort_unstable();
        sorted.dedup();
        let mut begins = Box::new([false; 256]);
        for byte in sorted.iter().filter_map(|literal| literal.first()) {
            begins[usize::from(*byte)] = true;
        }
        let longest = sorted.iter().map(|literal| literal.len()).max().unwrap_or(0);
        Ok(Literals { automaton, sorted, begins, longest, ignores_case })
    }

    /// Returns the number of different literals.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Always false.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Returns the length of the longest literal.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Calls a closure with each decided occurrence, in order. Occurrences do not overlap. Returns the
    /// position from which on more bytes are needed; the length if none are. `is_last`: there are no more.
    pub fn scan(&self, bytes: &[u8], is_last: bool, mut found: impl FnMut(Range<usize>)) -> usize {
        let mut at = 0;
        let mut open = self.undecided(bytes, at, is_last);
        while let Some(one) = self.automaton.find(Input::new(bytes).range(at..)) {
            if one.start() >= open {
                break;
            }
            found(one.range());
            at = one.end();
            if at > open {
                open = self.undecided(bytes, at, is_last);
            }
        }
        open
    }

    /// Returns the first position, not in front of `from`, whose bytes up to the end may be the beginning of
    /// a literal; the length if there is none.
    pub fn beginning(&self, bytes: &[u8], from: usize) -> usize {
        self.undecided(bytes, from, false)
    }

    /// Returns the first position, not in front of `from`, whose bytes up to the end are the beginning of a
    /// longer literal.
    fn undecided(&self, bytes: &[u8], from: usize, is_last: bool) -> usize {
        if is_last {
            return bytes.len();
        }
        let first = from.max((bytes.len() + 1).saturating_sub(self.longest));
        let is_open = |&at: &usize| bytes.get(at..).is_some_and(|rest| self.is_beginning(rest));
        (first..bytes.len()).find(is_open).unwrap_or(bytes.len())
    }

    /// Whether some literal begins with these bytes, and is longer.
    fn is_beginning(&self, rest: &[u8]) -> bool {
        if !rest.first().is_some_and(|&byte| self.begins[usize::from(self.fold(byte))]) {
            return false;
        }
        let folded = || rest.iter().map(|&byte| self.fold(byte));
        // The literals behind these bytes in the order begin with those that are longer.
        let next =
            self.sorted.partition_point(|literal| literal.iter().copied().cmp(folded()) != Ordering::Greater);
        self.sorted.get(next).is_some_and(|literal| {
            literal.len() > rest.len() && literal.iter().copied().zip(folded()).all(|(a, b)| a == b)
        })
    }

    fn fold(&self, byte: u8) -> u8 {
        if self.ignores_case { byte.to_ascii_lowercase() } else { byte }
    }
}

#[cfg(test)]
mod tests;
