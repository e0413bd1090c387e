//! Differences of ones'-complement sums (RFC 1071, RFC 1624).

use std::ops::{Add, AddAssign};

/// The difference of two ones'-complement sums of 16-bit words, in native byte order (RFC 1071, 2.B: the sums
/// do not depend on it). Never 0xffff, the second representation of zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Delta(u16);

impl Delta {
    /// The difference from replacing `old` with `new`, of equal even length and at an even offset.
    #[inline]
    pub fn between(old: &[u8], new: &[u8]) -> Delta {
        let words = |bytes: &[u8]| {
            let (words, _) = bytes.as_chunks::<2>();
            words.iter().map(|word| u32::from(u16::from_ne_bytes(*word))).sum::<u32>()
        };
        // Keys have at most 32 bytes: the sums cannot overflow.
        let (old, new) = (fold(words(old)), fold(words(new)));
        Delta::from_sum(u32::from(!old) + u32::from(new))
    }

    /// The difference from replacing words, as they lie in memory.
    #[inline]
    pub fn of_words(old: [u32; 2], new: [u32; 2]) -> Delta {
        // The complement of a word subtracts it.
        let sum = old.iter().map(|word| u64::from(!word)).sum::<u64>();
        let sum = new.iter().fold(sum, |sum, &word| sum + u64::from(word));
        Delta::from_sum(mmb_packet::checksum::fold_native_words(sum) as u32)
    }

    /// The opposite difference.
    #[inline]
    pub fn undone(self) -> Delta {
        Delta::from_sum(u32::from(!self.0))
    }

    #[inline]
    fn from_sum(sum: u32) -> Delta {
        let folded = fold(sum);
        Delta(if folded == 0xffff { 0 } else { folded })
    }

    /// The difference that [`Delta::get`] returned.
    #[inline]
    pub fn of(sum: u16) -> Delta {
        Delta::from_sum(u32::from(sum))
    }

    /// The difference if the field is at an odd offset.
    pub fn swapped(self) -> Delta {
        Delta(self.0.swap_bytes())
    }

    /// The value in native byte order, to be added to the complement of a checksum.
    #[inline]
    pub fn get(self) -> u16 {
        self.0
    }

    /// Writes `new` over `head[at..]` and returns the difference. Does nothing if it does not fit.
    pub fn put<const N: usize>(head: &mut [u8], at: usize, new: [u8; N]) -> Delta {
        let Some(place) = head.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<N>) else {
            return Delta::default();
        };
        let delta = Delta::between(place, &new);
        *place = new;
        delta
    }
}

impl Add for Delta {
    type Output = Delta;

    #[inline]
    fn add(self, other: Delta) -> Delta {
        Delta::from_sum(u32::from(self.0) + u32::from(other.0))
    }
}

impl AddAssign for Delta {
    fn add_assign(&mut self, other: Delta) {
        *self = *self + other;
    }
}

/// A checksum after a change of its sum by `delta`. Both are in native byte order, and `delta` is not 0xffff.
#[inline]
pub(super) fn updated(checksum: u16, delta: u16) -> u16 {
    let (sum, carry) = (!checksum).overflowing_add(delta);
    !(sum + u16::from(carry))
}

#[inline]
fn fold(sum: u32) -> u16 {
    mmb_packet::checksum::fold(sum)
}
