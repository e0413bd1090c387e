//! A set of numbers, in which the next number after another is found quickly.
//!
//! # Theory of operation
//!
//! Each number has a bit, in words of 64. A level of further bits says which words are not zero, another one
//! which words of that level are not zero, and so on to a level of one word. A search goes up until a word
//! has a bit from the present place on, and down to the lowest number below that bit. It reads at most two
//! words of each level, and there are five levels for 2^29 numbers.

/// A set of numbers below a limit.
#[derive(Debug)]
pub(crate) struct NumberSet {
    /// From the numbers to the level of one word.
    levels: Vec<Box<[u64]>>,
    len: u32,
}

impl NumberSet {
    /// An empty set of numbers below `limit`.
    pub fn new(limit: usize) -> NumberSet {
        let words = std::iter::successors(Some(limit.div_ceil(64).max(1)), |&words| {
            (words > 1).then_some(words.div_ceil(64))
        });
        NumberSet { levels: words.map(|words| vec![0; words].into()).collect(), len: 0 }
    }

    /// How many numbers are in the set.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.levels.iter().map(|words| size_of_val(&**words)).sum()
    }

    /// Whether a number is in the set.
    #[inline]
    pub fn contains(&self, number: u32) -> bool {
        let word = self.levels[0].get(number as usize / 64);
        word.is_some_and(|word| word >> (number % 64) & 1 != 0)
    }

    /// Adds a number that is not in the set.
    #[inline]
    pub fn insert(&mut self, number: u32) {
        self.len += 1;
        let mut at = number as usize;
        for words in &mut self.levels {
            let word = &mut words[at / 64];
            let was_empty = *word == 0;
            *word |= 1 << (at % 64);
            if !was_empty {
                return;
            }
            at /= 64;
        }
    }

    /// Removes a number. False if it is not in the set.
    #[inline]
    pub fn remove(&mut self, number: u32) -> bool {
        if !self.contains(number) {
            return false;
        }
        self.len -= 1;
        let mut at = number as usize;
        for words in &mut self.levels {
            let word = &mut words[at / 64];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                break;
            }
            at /= 64;
        }
        true
    }

    /// The lowest number from `from` on.
    pub fn next(&self, from: u32) -> Option<u32> {
        let (mut level, mut at) = (0, from as usize);
        loop {
            let word = self.levels.get(level)?.get(at / 64).copied().unwrap_or(0) & u64::MAX << (at % 64);
            if word != 0 {
                at = at / 64 * 64 + word.trailing_zeros() as usize;
                break;
            }
            (level, at) = (level + 1, at / 64 + 1);
        }
        for words in self.levels[..level].iter().rev() {
            at = at * 64 + words[at].trailing_zeros() as usize;
        }
        Some(at as u32)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_an_ordered_set(
            limit in prop_oneof![1..200u32, 4_000..5_000u32, 262_100..300_000u32],
            steps in prop::collection::vec((any::<bool>(), any::<u32>()), 1..200),
        ) {
            let (mut numbers, mut model) = (NumberSet::new(limit as usize), BTreeSet::new());
            for (adds, number) in steps {
                // Some near the ends, some anywhere.
                let number = match number % 3 {
                    0 => number / 3 % limit.min(70),
                    1 => limit - 1 - number / 3 % limit.min(70),
                    _ => number / 3 % limit,
                };
                match adds {
                    true if model.insert(number) => numbers.insert(number),
                    true => {}
                    false => prop_assert_eq!(numbers.remove(number), model.remove(&number)),
                }
                prop_assert_eq!(numbers.len() as usize, model.len());
                for from in [0, number, number + 1, limit - 1, limit, limit + 5_000] {
                    prop_assert_eq!(numbers.next(from), model.range(from..).next().copied());
                    prop_assert_eq!(numbers.contains(from), model.contains(&from));
                }
            }
        }
    }
}
