//! A bitmap of the numbers 0 to 65535 that are taken.
//!
//! # Theory of operation
//!
//! The bitmap has one bit per number, and two summary bits per word of 64 numbers: no even number is left, no
//! odd number is left. So a search for the next free number of either parity reads at most 18 words. A new
//! bitmap is all zeros: memory that has never been written.

use std::ops::Deref;

/// Words of a bitmap: the bits, then the summary for even numbers, then the summary for odd numbers.
pub(super) const WORDS: usize = 1024 + 32;

/// The even bits of a word.
const EVEN: u64 = 0x5555_5555_5555_5555;

fn parity_bits(odd: u32) -> u64 {
    EVEN << (odd & 1)
}

/// The bits `first` to `last` (0 to 63) of a word.
fn bits(first: u32, last: u32) -> u64 {
    (u64::MAX << (first & 63)) & (u64::MAX >> (63 - (last & 63)))
}

/// Taken numbers, read-only or mutable.
pub(super) struct PortBitmap<T>(pub(super) T);

fn word(words: &[u64], at: u32) -> u64 {
    words.get(at as usize).copied().unwrap_or(0)
}

fn set(words: &mut [u64], at: u32, value: u64) {
    if let Some(word) = words.get_mut(at as usize) {
        *word = value;
    }
}

/// Word and bit of the summary that says that word `at` has no even (odd: 1) number left.
fn mark(at: u32, odd: u32) -> (u32, u64) {
    (1024 + (odd & 1) * 16 + at / 64, 1 << (at % 64))
}

impl<T: Deref<Target = [u64]>> PortBitmap<T> {
    fn used(&self, at: u32) -> u64 {
        word(&self.0, at)
    }

    /// Whether a number is not taken.
    #[inline]
    pub(super) fn is_free(&self, number: u32) -> bool {
        self.used(number / 64) >> (number % 64) & 1 == 0
    }

    /// The first free number from `from` on with the parity of `like`, otherwise the first before `from`. All
    /// within `first` to `last`.
    pub(super) fn find(&self, (first, last): (u32, u32), from: u32, like: u32) -> Option<u32> {
        self.scan(from, last, like)
            .or_else(|| if from > first { self.scan(first, from - 1, like) } else { None })
    }

    /// The lowest free number from `first` to `last` with the parity of `like`.
    fn scan(&self, first: u32, last: u32, like: u32) -> Option<u32> {
        if first > last {
            return None;
        }
        let (mut at, end) = (first / 64, last / 64);
        let mut from = first % 64;
        loop {
            let to = if at == end { last % 64 } else { 63 };
            let free = !self.used(at) & parity_bits(like) & bits(from, to);
            if free != 0 {
                return Some(at * 64 + free.trailing_zeros());
            }
            at = self.next_word(at + 1, like).filter(|&next| next <= end)?;
            from = 0;
        }
    }

    /// The first word from `at` on that has a number of the parity left.
    fn next_word(&self, at: u32, like: u32) -> Option<u32> {
        let mut from = at % 64;
        for group in at / 64..16 {
            let place = mark(group * 64, like).0;
            let open = !self.used(place) & u64::MAX << from;
            if open != 0 {
                return Some(group * 64 + open.trailing_zeros());
            }
            from = 0;
        }
        None
    }
}

impl PortBitmap<&mut [u64]> {
    /// Takes a number.
    #[inline]
    pub(super) fn take(&mut self, number: u32) {
        let at = number / 64;
        let Some(taken) = self.0.get_mut(at as usize) else { return };
        *taken |= 1 << (number % 64);
        if *taken | !parity_bits(number) == u64::MAX {
            let (place, bit) = mark(at, number);
            set(self.0, place, word(self.0, place) | bit);
        }
    }

    /// Frees a number.
    #[inline]
    pub(super) fn release(&mut self, number: u32) {
        let at = number / 64;
        set(self.0, at, word(self.0, at) & !(1 << (number % 64)));
        let (place, bit) = mark(at, number);
        set(self.0, place, word(self.0, place) & !bit);
    }
}

#[cfg(test)]
mod tests;
