//! The heads that pass a table's filter.

use crate::table::Hash;
use crate::vector::VECTOR;

/// Number of heads that are written to [`PassedHeads`] at once.
const STEP: usize = 8;

/// The heads that passed a table's filter, in order.
#[derive(Clone, Debug)]
pub(crate) struct PassedHeads {
    /// The hash of a head's key, whose lowest byte is replaced by the head's number. Neither filters nor
    /// guards select words by these bits.
    keyed: [u64; VECTOR + STEP],
    len: usize,
    /// For each of these heads the bytes that a guard compares.
    #[cfg(target_arch = "x86_64")]
    compared: [u64; VECTOR],
}

impl Default for PassedHeads {
    fn default() -> Self {
        PassedHeads {
            keyed: [0; VECTOR + STEP],
            len: 0,
            #[cfg(target_arch = "x86_64")]
            compared: [0; VECTOR],
        }
    }
}

impl PassedHeads {
    /// The bits with the number of a head.
    pub const HEAD: u64 = VECTOR as u64 - 1;

    /// A head and the hash of its key, in one number.
    #[inline(always)]
    pub fn keyed(&self, at: usize) -> u64 {
        self.keyed[at]
    }

    /// Number of heads.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Removes all heads.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The heads.
    #[inline(always)]
    pub fn heads(&self) -> impl Iterator<Item = u8> {
        self.keyed[..self.len.min(VECTOR)].iter().map(|keyed| *keyed as u8)
    }

    /// Sets the bytes that a guard compares of each head.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn set_compared(&mut self, compared: impl Fn(u8) -> u32) {
        for (place, keyed) in self.compared.iter_mut().zip(&self.keyed[..self.len.min(VECTOR)]) {
            *place = compared(*keyed as u8).into();
        }
    }

    /// Eight elements of [`PassedHeads::set_compared`] from this one on.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn eight_compared(&self, first: usize) -> [u64; STEP] {
        self.compared[first.min(VECTOR)..].first_chunk().copied().unwrap_or_default()
    }

    /// Eight heads from this one on, with their hashes.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn eight(&self, first: usize) -> [u64; STEP] {
        self.keyed[first.min(VECTOR)..].first_chunk().copied().unwrap_or_default()
    }

    /// Adds the first `n` of eight heads with their hashes. It writes all of them, in order not to branch.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn push_first(&mut self, eight: &[u64; STEP], n: usize) {
        if let Some(place) = self.keyed[self.len.min(VECTOR)..].first_chunk_mut() {
            *place = *eight;
            self.len += n;
        }
    }

    /// Replaces all heads by the first `n`, whose keys have the same hash.
    #[inline(always)]
    pub fn set_all(&mut self, n: usize, hash: Hash) {
        self.keyed.iter_mut().zip(0..n as u64).for_each(|(keyed, head)| *keyed = hash.0 & !Self::HEAD | head);
        self.len = n;
    }

    /// Adds a head and the hash of its key if `is_passed`, without a branch.
    #[inline(always)]
    pub fn push_if(&mut self, is_passed: bool, head: usize, hash: Hash) {
        self.keyed[self.len % VECTOR] = hash.0 & !Self::HEAD | head as u64 & Self::HEAD;
        self.len += usize::from(is_passed);
    }
}
