//! Eight tags of keys, compared at once.

use wide::u16x8;

/// Number of lanes in a group.
pub(crate) const LANES: usize = 8;

/// Eight 16-bit tags in 16 bytes that never straddle a cache line; 0 marks a free lane.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TagGroup([u16; LANES]);

impl TagGroup {
    /// A group without used lanes.
    pub const EMPTY: TagGroup = TagGroup([0; LANES]);

    /// The tags.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn tags(&self) -> &[u16; LANES] {
        &self.0
    }

    /// The lanes that hold `tag`.
    #[inline(always)]
    pub fn find(&self, tag: u16) -> LaneBits {
        LaneBits(u16x8::new(self.0).simd_eq(u16x8::splat(tag)).to_bitmask())
    }

    /// The lanes that hold `tag`, and whose element of `maps` has the bit of `value`.
    #[inline(always)]
    pub fn find_accepting(&self, tag: u16, maps: &[u16; LANES], value: u16) -> LaneBits {
        let value = u16x8::splat(value);
        let accepts = (u16x8::new(*maps) & value).simd_eq(value);
        LaneBits((u16x8::new(self.0).simd_eq(u16x8::splat(tag)) & accepts).to_bitmask())
    }

    /// The first free lane.
    pub fn first_free(&self) -> Option<usize> {
        self.find(0).next()
    }

    /// Sets a lane's tag. Tag 0 frees the lane.
    pub fn set(&mut self, lane: usize, tag: u16) {
        self.0[lane % LANES] = tag;
    }

    /// The lanes in use.
    pub fn used(&self) -> LaneBits {
        LaneBits(self.find(0).0 ^ 0xff)
    }
}

/// A set of lanes of a group: bit `i` stands for lane `i`. Iterates in ascending order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneBits(u32);

impl LaneBits {
    /// The lanes as bits.
    #[inline(always)]
    pub fn bits(self) -> u8 {
        self.0 as u8
    }

    /// Whether there are no lanes.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Iterator for LaneBits {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let lane = self.0.trailing_zeros();
        self.0 &= self.0 - 1;
        Some(lane as usize)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn finds_the_lanes_that_hold_the_tag(tags: [u8; LANES], tag: u8) {
            // Few values, so that several lanes are equal; high bits set, so that signed comparison would
            // fail.
            let wide = |t: u8| u16::from(t & 3) * 0x5555;
            let group = TagGroup(tags.map(wide));
            let naive = |tag: u16| (0..LANES).filter(|&i| wide(tags[i]) == tag).collect::<Vec<_>>();
            prop_assert_eq!(group.find(wide(tag)).collect::<Vec<_>>(), naive(wide(tag)));
            prop_assert_eq!(group.find(wide(tag)).is_empty(), naive(wide(tag)).is_empty());
            let maps = tags.map(|tag| u16::from(tag) >> 2);
            let accepting = |lane: &usize| maps[*lane] & 4 != 0;
            let expected: Vec<_> = naive(wide(tag)).into_iter().filter(accepting).collect();
            prop_assert_eq!(group.find_accepting(wide(tag), &maps, 4).collect::<Vec<_>>(), expected);
            prop_assert_eq!(group.first_free(), naive(0).first().copied());
            prop_assert_eq!(group.used().count() + naive(0).len(), LANES);
        }
    }
}
