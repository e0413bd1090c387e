//! How the buckets of an index grow in number.
//!
//! # Theory of operation
//!
//! The number of buckets in use grows with the number of keys. So few keys stay in near caches, whatever the
//! capacity. The number doubles bucket by bucket (linear hashing; Litwin, "Linear hashing: a new tool for
//! file and table addressing", VLDB 1980). Each bucket gives the keys with a certain bit of their hash to a
//! new bucket. Each doubling uses another bit. Between two doublings all buckets are equally full. A doubling
//! that has begun advances with each insertion, because buckets that are not split yet fill up meanwhile. The
//! number does not shrink. New buckets lie behind the others.

use std::hint::select_unpredictable;

/// Keys of a bucket.
pub(crate) const LANES: usize = 8;
/// Maximum number of buckets in use initially: 64 KiB.
pub(crate) const FIRST: u32 = 1 << 10;
/// Number of keys per two buckets above which the number of buckets doubles.
pub(crate) const CROWD: u32 = 9;

/// Which buckets are in use, and so which bucket a key belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Number of buckets in use initially.
    first: u32,
    used: u32,
    /// Maximum of `used`.
    count: u32,
    /// Mask of the further bits of the hash, one per doubling that has begun.
    mask: u32,
    /// Number of buckets in use when the last doubling began.
    before: u32,
}

impl Shape {
    /// Buckets for `keys` keys, which then fill half of the lanes. Initially at most `first` buckets are in
    /// use, or more if the `bits` further bits of the hash do not suffice for so many doublings.
    pub fn new(keys: u32, first: u32, bits: u32) -> Shape {
        let count = keys.div_ceil(LANES as u32 / 2).max(1);
        let doublings = count.div_ceil(first).next_power_of_two().trailing_zeros().min(bits);
        let first = count.div_ceil(1 << doublings);
        Shape { first, used: first, count: first << doublings, mask: 0, before: 0 }
    }

    /// Number of buckets in use initially.
    #[inline(always)]
    pub fn first(&self) -> u32 {
        self.first
    }

    /// Number of buckets in use.
    #[inline(always)]
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Maximum number of buckets in use.
    #[inline(always)]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The bucket of a key. `one`: a number below [`Shape::first`], and `more`: further bits, of its hash.
    #[inline(always)]
    pub fn bucket(&self, one: u32, more: u32) -> usize {
        let at = one + self.first * (more & self.mask);
        // A bucket that does not exist yet has its keys in the bucket that will be split.
        select_unpredictable(at < self.used, at, at.wrapping_sub(self.before)) as usize
    }

    /// Whether no doubling is in progress.
    #[inline(always)]
    pub fn is_whole(&self) -> bool {
        self.used == self.first * (self.mask + 1)
    }

    /// Whether so many keys need more buckets.
    #[inline(always)]
    pub fn is_short(&self, keys: u32) -> bool {
        !self.is_whole() || keys * 2 > self.used * CROWD
    }

    /// The shape with one more bucket, and the bucket whose keys move there. None at the maximum.
    #[inline]
    pub fn grown(mut self) -> Option<(Shape, usize)> {
        if self.used == self.count {
            return None;
        }
        if self.is_whole() {
            (self.before, self.mask) = (self.used, self.mask << 1 | 1);
        }
        let from = self.used - self.before;
        self.used += 1;
        Some((self, from as usize))
    }
}

/// The positions of the set bits.
#[inline(always)]
pub(crate) fn lanes(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (lane < LANES).then_some(lane)
    })
}
