//! Which of the numbers from 0 to 65535 are taken.
//!
//! Theory of operation. A bit for each number, and two for each 64 of them: no even one is left, no odd one is left. So
//! the next free number of either parity is found by looking at 18 words at most, however few are left. What can never
//! be taken (ports that are no pool's, or another worker's) is in a second sheet that many share: zeros in a sheet are
//! then all it takes for a new one, and memory that nobody has touched.

use std::ops::Deref;

/// Words of a sheet: the bits, then the marks of full words for even, then for odd numbers.
pub(super) const WORDS: usize = 1024 + 32;

/// The even bits of a word.
const EVEN: u64 = 0x5555_5555_5555_5555;

fn parity_bits(odd: u32) -> u64 {
    EVEN << (odd & 1)
}

/// Bits `first` to `last`, 0 to 63, of a word.
fn bits(first: u32, last: u32) -> u64 {
    (u64::MAX << (first & 63)) & (u64::MAX >> (63 - (last & 63)))
}

/// Numbers that are taken, and those that are barred for good.
pub(super) struct PortBitmap<'a, T> {
    /// To be read or to be changed.
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

/// Place of the mark that word `at` has no even (odd: 1) number left.
fn mark(at: u32, odd: u32) -> (u32, u64) {
    (1024 + (odd & 1) * 16 + at / 64, 1 << (at % 64))
}

/// Bars the numbers of a sheet from `first` to `last`.
pub(super) fn bar(sheet: &mut [u64], first: u32, last: u32) {
    for at in first / 64..=last / 64 {
        let from = if at == first / 64 { first % 64 } else { 0 };
        let to = if at == last / 64 { last % 64 } else { 63 };
        let value = word(sheet, at) | bits(from, to);
        set(sheet, at, value);
        for odd in 0..2 {
            if value | !parity_bits(odd) == u64::MAX {
                let (place, bit) = mark(at, odd);
                set(sheet, place, word(sheet, place) | bit);
            }
        }
    }
}

/// How many numbers from `first` to `last` are not barred by a sheet.
pub(super) fn count_free(sheet: &[u64], first: u32, last: u32) -> u32 {
    (first..=last).filter(|n| word(sheet, n / 64) >> (n % 64) & 1 == 0).count() as u32
}

impl<T: Deref<Target = [u64]>> PortBitmap<'_, T> {
    fn used(&self, at: u32) -> u64 {
        word(&self.taken, at) | word(self.barred, at)
    }

    /// Whether a number is neither taken nor barred.
    #[inline]
    pub(super) fn is_free(&self, number: u32) -> bool {
        self.used(number / 64) >> (number % 64) & 1 == 0
    }

    /// The first free number at or behind `from` that has the parity of `like`, else the first in front of it; all within
    /// `first` to `last`.
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

    /// The first word at or behind `at` with a number of that parity left.
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

    /// Gives a number back.
    #[inline]
    pub(super) fn give(&mut self, number: u32) {
        let at = number / 64;
        set(self.taken, at, word(self.taken, at) & !(1 << (number % 64)));
        let (place, bit) = mark(at, number);
        set(self.taken, place, word(self.taken, place) & !bit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Beside a plain set of the numbers that are left.
        #[test]
        fn a_sheet_is_a_set(
            barred in prop::collection::vec((0u32..65536, 0u32..3000), 0..60),
            window in (0u32..65536, 0u32..65536),
            ops in prop::collection::vec((any::<u32>(), 0u32..2, 0u32..4), 1..300),
        ) {
            let (mut taken, mut bars) = (vec![0; WORDS], vec![0; WORDS]);
            let mut left: BTreeSet<u32> = (0..65536).collect();
            for (first, length) in barred {
                let last = (first + length).min(65535);
                bar(&mut bars, first, last);
                left.retain(|n| !(first..=last).contains(n));
            }
            let (first, last) = (window.0.min(window.1), window.0.max(window.1));
            prop_assert_eq!(count_free(&bars, first, last), left.range(first..=last).count() as u32);
            let mut sheet = PortBitmap { taken: taken.as_mut_slice(), barred: &bars };
            let mut mine = vec![];
            for (random, odd, what) in ops {
                let from = first + random % (last - first + 1);
                if what == 0 && !mine.is_empty() {
                    let number = mine.swap_remove(random as usize % mine.len());
                    sheet.give(number);
                    left.insert(number);
                }
                let behind = left.range(from..=last).find(|n| *n % 2 == odd);
                let expected = behind.or_else(|| left.range(first..from).find(|n| *n % 2 == odd)).copied();
                let found = sheet.find((first, last), from, odd);
                prop_assert_eq!(found, expected);
                if let Some(number) = found {
                    prop_assert!(sheet.is_free(number));
                    sheet.take(number);
                    prop_assert!(!sheet.is_free(number));
                    left.remove(&number);
                    mine.push(number);
                }
            }
        }
    }

    /// The last number left is found from anywhere, and given back it can be found again.
    #[test]
    fn full_but_for_one() {
        let (mut taken, bars) = (vec![0; WORDS], vec![0; WORDS]);
        let mut sheet = PortBitmap { taken: taken.as_mut_slice(), barred: &bars };
        (0..65536).for_each(|n| sheet.take(n));
        for odd in 0..2 {
            assert_eq!(sheet.find((0, 65535), 77, odd), None);
        }
        for last in [0, 1, 63, 64, 4095, 4096, 32768, 65534, 65535] {
            sheet.give(last);
            for from in [0, 63, 64, 40_000, 65535] {
                assert_eq!(sheet.find((0, 65535), from, last), Some(last));
                assert_eq!(sheet.find((0, 65535), from, last + 1), None);
            }
            sheet.take(last);
        }
    }
}
