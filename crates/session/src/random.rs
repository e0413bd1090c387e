//! Numbers that nobody foresees for long, and choices that all workers make alike.

/// A small, fast generator (xorshift64*). Not for secrets.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(mix(seed, 1) | 1)
    }

    #[inline]
    pub fn next(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// A number below `end`, which is at least 1, without a division.
    pub fn below(&mut self, end: u32) -> u32 {
        ((u64::from(self.next()) * u64::from(end)) >> 32) as u32
    }
}

/// Two numbers made into one that depends on all of their bits.
#[inline]
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let wide = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xe703_7ed1_a0b4_28db);
    let folded = wide as u64 ^ (wide >> 64) as u64;
    (folded ^ folded >> 29).wrapping_mul(0xff51_afd7_ed55_8ccd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_below_the_end_and_reach_all() {
        let mut random = Random::new(7);
        let mut seen = [0; 5];
        (0..5000).for_each(|_| seen[random.below(5) as usize] += 1);
        assert!(seen.iter().all(|n| (800..1200).contains(n)), "{seen:?}");
        assert_eq!(random.below(1), 0);
    }

    #[test]
    fn mixing_is_not_symmetric_and_spreads() {
        assert_ne!(mix(1, 2), mix(2, 1));
        let high = (0..1000u64).map(|n| mix(n, 9) >> 61).fold([0; 8], |mut seen, n| {
            seen[n as usize] += 1;
            seen
        });
        assert!(high.iter().all(|n| (80..180).contains(n)), "{high:?}");
    }
}
