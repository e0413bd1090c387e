//! A bitmap of the numbers 0 to 65535 that are taken.
//!
//! # Theory of operation
//!
//! The bitmap has one bit per number, and two summary bits per word of 64 numbers: no even number is left, no
//! odd number is left. So a search for the next free number of either parity reads at most 18 words. Numbers
//! that can never be taken (ports outside of the pool, or of another worker) are in a second bitmap that many
//! share. So a new bitmap is all zeros: memory that has never been written.

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

/// Taken numbers, and numbers that are permanently excluded.
pub(super) struct PortBitmap<'a, T> {
    /// Read-only or mutable.
    pub(super) taken: T,
    pub(super) barred: &'a [u64],
}

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

/// Excludes the numbers `first` to `last`.
pub(super) fn bar(bitmap: &mut [u64], first: u32, last: u32) {
    for at in first / 64..=last / 64 {
        let from = if at == first / 64 { first % 64 } else { 0 };
        let to = if at == last / 64 { last % 64 } else { 63 };
        let value = word(bitmap, at) | bits(from, to);
        set(bitmap, at, value);
        for odd in 0..2 {
            if value | !parity_bits(odd) == u64::MAX {
                let (place, bit) = mark(at, odd);
                set(bitmap, place, word(bitmap, place) | bit);
            }
        }
    }
}

/// Number of numbers from `first` to `last` that are not excluded.
pub(super) fn count_free(bitmap: &[u64], first: u32, last: u32) -> u32 {
    (first..=last).filter(|n| word(bitmap, n / 64) >> (n % 64) & 1 == 0).count() as u32
}

impl<T: Deref<Target = [u64]>> PortBitmap<'_, T> {
    fn used(&self, at: u32) -> u64 {
        word(&self.taken, at) | word(self.barred, at)
    }

    /// Whether a number is neither taken nor excluded.
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

impl PortBitmap<'_, &mut [u64]> {
    /// Takes a number.
    #[inline]
    pub(super) fn take(&mut self, number: u32) {
        let at = number / 64;
        let Some(taken) = self.taken.get_mut(at as usize) else { return };
        *taken |= 1 << (number % 64);
        if *taken | word(self.barred, at) | !parity_bits(number) == u64::MAX {
            let (place, bit) = mark(at, number);
            set(self.taken, place, word(self.taken, place) | bit);
        }
    }

    /// Frees a number.
    #[inline]
    pub(super) fn release(&mut self, number: u32) {
        let at = number / 64;
        set(self.taken, at, word(self.taken, at) & !(1 << (number % 64)));
        let (place, bit) = mark(at, number);
        set(self.taken, place, word(self.taken, place) & !bit);
    }
}

#[cfg(test)]
mod tests;
