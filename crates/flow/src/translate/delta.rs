//! Changes of ones'-complement sums (RFC 1071, RFC 1624).

use std::ops::{Add, AddAssign};

/// By how much a ones'-complement sum of 16-bit words changes, in native byte order, which such sums do not depend on
/// (RFC 1071, 2.B). Never 0xffff, which would be another way to say zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Delta(u16);

impl Delta {
    /// What replacing `old` with `new`, of the same even length and at an even offset, changes.
    #[inline]
    pub fn between(old: &[u8], new: &[u8]) -> Delta {
        let words = |bytes: &[u8]| {
            let (words, _) = bytes.as_chunks::<2>();
            words.iter().map(|word| u32::from(u16::from_ne_bytes(*word))).sum::<u32>()
        };
        // Keys are of at most 32 bytes: far from overflowing.
        let (old, new) = (fold(words(old)), fold(words(new)));
        Delta::from_sum(u32::from(!old) + u32::from(new))
    }

    /// The same of what is at hand in whole words, as they lie in memory.
    #[inline]
    pub fn of_words(old: [u32; 2], new: [u32; 2]) -> Delta {
        // The complement of a word is what takes it off.
        let sum = old.iter().map(|word| u64::from(!word)).sum::<u64>();
        let sum = new.iter().fold(sum, |sum, &word| sum + u64::from(word));
        Delta::from_sum(mmb_packet::checksum::fold_native_words(sum) as u32)
    }

    /// The change that takes this one back.
    #[inline]
    pub fn undone(self) -> Delta {
        Delta::from_sum(u32::from(!self.0))
    }

    #[inline]
    fn from_sum(sum: u32) -> Delta {
        let folded = fold(sum);
        Delta(if folded == 0xffff { 0 } else { folded })
    }

    /// A change that [`Delta::get`] gave.
    #[inline]
    pub fn of(sum: u16) -> Delta {
        Delta::from_sum(u32::from(sum))
    }

    /// The same change at an odd offset.
    pub fn swapped(self) -> Delta {
        Delta(self.0.swap_bytes())
    }

    /// In native byte order, to be added to the complement of a checksum.
    #[inline]
    pub fn get(self) -> u16 {
        self.0
    }

    /// Writes `new` over `head[at..]`, and says what that changes. Nothing and none if it is not all inside.
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

/// The checksum after the sum that it complements changed by `delta`; both in native byte order, `delta` not 0xffff.
#[inline]
pub(super) fn updated(checksum: u16, delta: u16) -> u16 {
    let (sum, carry) = (!checksum).overflowing_add(delta);
    !(sum + u16::from(carry))
}

#[inline]
fn fold(sum: u32) -> u16 {
    mmb_packet::checksum::fold(sum)
}
