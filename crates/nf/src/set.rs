//! Sets of positions in a vector.

/// Most packets in a vector.
pub(crate) const VECTOR: usize = mmb_flow::VECTOR;

const _: () = assert!(VECTOR == 256, "positions are bytes");

/// Positions of packets in a vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set([u64; 4]);

impl Set {
    pub const EMPTY: Set = Set([0; 4]);

    /// Returns positions 0 to `n` - 1.
    #[inline]
    pub fn first(n: usize) -> Set {
        Set(std::array::from_fn(|word| match n.saturating_sub(word * 64) {
            0 => 0,
            n if n < 64 => (1 << n) - 1,
            _ => u64::MAX,
        }))
    }

    /// Returns the positions before `n` for which a predicate holds.
    #[inline(always)]
    pub fn of(n: usize, mut is: impl FnMut(usize) -> bool) -> Set {
        let mut words = [0; 4];
        for (n_word, word) in words.iter_mut().enumerate() {
            // The bits of a word stay in a register.
            let mut bits = 0;
            for at in n_word * 64..n.min(n_word * 64 + 64) {
                bits |= u64::from(is(at)) << (at % 64);
            }
            *word = bits;
        }
        Set(words)
    }

    /// Returns the set with one member.
    #[inline]
    pub fn one(at: usize) -> Set {
        let mut one = Set::EMPTY;
        one.insert(at);
        one
    }

    #[inline(always)]
    pub fn insert(&mut self, at: usize) {
        self.0[at / 64 % 4] |= 1 << (at % 64);
    }

    #[inline(always)]
    pub fn remove(&mut self, at: usize) {
        self.0[at / 64 % 4] &= !(1 << (at % 64));
    }

    #[inline(always)]
    pub fn contains(self, at: usize) -> bool {
        self.0[at / 64 % 4] >> (at % 64) & 1 != 0
    }

    #[inline(always)]
    pub fn insert_if(&mut self, at: usize, condition: bool) {
        self.0[at / 64 % 4] |= u64::from(condition) << (at % 64);
    }

    /// Returns the members for which a predicate holds.
    #[inline]
    pub fn filter(self, is: impl Fn(usize) -> bool) -> Set {
        let mut some = Set::EMPTY;
        self.for_each(|at| some.insert_if(at, is(at)));
        some
    }

    #[inline]
    pub fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    #[inline]
    pub fn len(self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    #[inline]
    pub fn union(self, other: Set) -> Set {
        Set(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    #[inline]
    pub fn and(self, other: Set) -> Set {
        Set(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    /// Returns the members that are not in the other set.
    #[inline]
    pub fn without(self, other: Set) -> Set {
        Set(std::array::from_fn(|word| self.0[word] & !other.0[word]))
    }

    /// Returns the lowest member.
    #[inline]
    pub fn lowest(self) -> Option<usize> {
        self.iter().next()
    }

    /// Returns the positions from `from` to `to` - 1.
    pub fn between(from: usize, to: usize) -> Set {
        Set::first(to).without(Set::first(from))
    }

    /// Iterates in ascending order.
    #[inline(always)]
    pub fn iter(self) -> Iter {
        let [word, ..] = self.0;
        Iter { words: self.0, word, n: 0 }
    }

    /// Calls a closure for each member in ascending order.
    #[inline(always)]
    pub fn for_each(self, mut f: impl FnMut(usize)) {
        for (n, &word) in self.0.iter().enumerate() {
            let mut word = word;
            while word != 0 {
                f(n * 64 + word.trailing_zeros() as usize);
                word &= word - 1;
            }
        }
    }
}

/// The members of a [`Set`].
#[derive(Clone, Debug)]
pub(crate) struct Iter {
    words: [u64; 4],
    /// Members of word `n` that are not returned yet.
    word: u64,
    n: usize,
}

impl Iterator for Iter {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        while self.word == 0 {
            self.n += 1;
            self.word = *self.words.get(self.n)?;
        }
        let at = self.n * 64 + self.word.trailing_zeros() as usize;
        self.word &= self.word - 1;
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_positions() {
        for n in 0..=VECTOR {
            assert_eq!(Set::first(n).iter().collect::<Vec<_>>(), (0..n).collect::<Vec<_>>());
            assert_eq!(Set::first(n).len(), n);
            let third = |at: usize| at % 3 == 1;
            assert_eq!(Set::of(n, third), Set::first(n).filter(third));
        }
    }

    #[test]
    fn set_operations() {
        let mut a = Set::EMPTY;
        [255, 3, 64, 3].into_iter().for_each(|at| a.insert(at));
        assert_eq!(a.iter().collect::<Vec<_>>(), [3, 64, 255]);
        assert_eq!(a.lowest(), Some(3));
        let rest = a.without(Set::first(64));
        assert_eq!(rest.iter().collect::<Vec<_>>(), [64, 255]);
        assert_eq!(rest.union(a), a);
        assert!(a.without(a).is_empty() && !a.is_empty());
    }
}
