//! Random routes with the prefix lengths of a full table. They are computed and not stored, so that choosing
//! a destination among a million of them touches no memory.
//!
//! Theory of operation. Candidate `i` of a seed is a prefix from a hash of both. The table has all candidates
//! up to the one that completes the requested number; duplicates are harmless. A destination is a random
//! address of a random candidate. Lengths resemble those of the Internet's tables: of IPv4, 60 % are /24; of
//! IPv6, 50 % are /48. One in a hundred is longer, like routes inside a network. Prefixes avoid the generated
//! sources, addresses that routers do not forward, and the benches' NAT pool.

use std::collections::HashSet;

/// Number of next hops of the prefixes.
pub const HOPS: u16 = 16;

/// Maximum number of prefixes.
pub const MAX_PREFIXES: usize = 4_000_000;

/// IPv4 prefix lengths and their number in ten thousand.
const LENGTHS4: [(u8, u16); 21] = [
    (24, 6_080),
    (22, 1_150),
    (23, 1_020),
    (21, 500),
    (20, 450),
    (19, 270),
    (18, 150),
    (16, 140),
    (17, 90),
    (15, 20),
    (14, 12),
    (13, 8),
    (12, 4),
    (11, 3),
    (10, 2),
    (8, 1),
    (32, 40),
    (30, 20),
    (28, 15),
    (26, 15),
    (25, 10),
];

/// IPv6 prefix lengths and their number in ten thousand.
const LENGTHS6: [(u8, u16); 19] = [
    (48, 4_900),
    (32, 1_250),
    (44, 1_000),
    (40, 900),
    (36, 500),
    (29, 420),
    (47, 200),
    (46, 200),
    (45, 150),
    (42, 130),
    (33, 60),
    (34, 60),
    (38, 50),
    (28, 40),
    (30, 30),
    (24, 10),
    (64, 60),
    (127, 10),
    (128, 30),
];

/// A table of random prefixes; see the module's theory of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefixes {
    seed: u64,
    candidates: u64,
    distinct: usize,
    ip6: bool,
}

/// An address with the length of its prefix; IPv4 addresses are the lowest 32 bits.
pub type Prefix = (u128, u8);

impl Prefixes {
    /// `n` different prefixes of IPv4 or IPv6; `n` is clamped to 1 to [`MAX_PREFIXES`].
    pub fn new(n: usize, ip6: bool, seed: u64) -> Prefixes {
        let n = n.clamp(1, MAX_PREFIXES);
        let mut prefixes = Prefixes { seed: mix(seed ^ 0x0072_6f75_7465), candidates: 0, distinct: n, ip6 };
        let mut seen = HashSet::with_capacity(n);
        while seen.len() < n {
            seen.insert(prefixes.candidate(prefixes.candidates));
            prefixes.candidates += 1;
        }
        prefixes
    }

    /// Number of different prefixes.
    pub fn count(&self) -> usize {
        self.distinct
    }

    /// Whether the prefixes are IPv6.
    pub fn ip6(&self) -> bool {
        self.ip6
    }

    /// All prefixes; bits behind the length are zero. Some are duplicates.
    pub fn each(&self) -> impl Iterator<Item = Prefix> + use<> {
        let all = *self;
        (0..all.candidates).map(move |i| all.candidate(i))
    }

    /// The address of a prefix that the number `random` selects.
    pub fn address(&self, random: u64) -> u128 {
        let random = mix(random);
        let at = (u128::from(random) * u128::from(self.candidates)) >> 64;
        let (network, length) = self.candidate(at as u64);
        let host = mix(random ^ 1);
        if self.ip6 {
            network | (((u128::from(mix(host)) << 64) | u128::from(host)) & !mask6(length))
        } else {
            network | u128::from(host as u32 & !mask4(length))
        }
    }

    /// The next hop of a prefix, among [`HOPS`].
    pub fn hop((network, length): Prefix) -> u16 {
        (mix(network as u64 ^ (network >> 64) as u64 ^ (u64::from(length) << 40)) % u64::from(HOPS)) as u16
    }

    fn candidate(&self, i: u64) -> Prefix {
        let random = mix(self.seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let lengths: &[(u8, u16)] = if self.ip6 { &LENGTHS6 } else { &LENGTHS4 };
        let mut share = (((random >> 48) * 10_000) >> 16) as u16;
        let mut length = 0;
        for &(of, shares) in lengths {
            length = of;
            if share < shares {
                break;
            }
            share -= shares;
        }
        if self.ip6 {
            // 2400::/8 to 2f00::/8, the blocks of the registries.
            let low = (u128::from(mix(random)) << 56) | u128::from(mix(random ^ 1) >> 8);
            let first = 0x24 + ((u128::from(random & 0xffff) * 12) >> 16);
            return (((first << 120) | low) & mask6(length), length);
        }
        // The first byte is not 0, 10 (sources), 127, 169, 203 (the benches' pool), or 224 and above.
        let mut first = 1 + ((((random >> 24) & 0xffff) * 219) >> 16) as u32;
        for taken in [10, 127, 169, 203] {
            first += u32::from(first >= taken);
        }
        (u128::from(((first << 24) | (random as u32 & 0xff_ffff)) & mask4(length)), length)
    }
}

fn mask4(length: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
}

fn mask6(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

/// A strong mix of 64 bits (the finaliser of SplitMix64).
pub(super) fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_ten_thousand() {
        assert_eq!(LENGTHS4.iter().map(|l| u32::from(l.1)).sum::<u32>(), 10_000);
        assert_eq!(LENGTHS6.iter().map(|l| u32::from(l.1)).sum::<u32>(), 10_000);
    }

    #[test]
    fn the_number_is_as_requested_and_the_seed_determines_them() {
        for ip6 in [false, true] {
            for n in [1, 10, 5_000, 200_000] {
                let prefixes = Prefixes::new(n, ip6, 1);
                assert_eq!(prefixes.each().collect::<HashSet<_>>().len(), n);
                assert_eq!(prefixes, Prefixes::new(n, ip6, 1));
            }
            let first = |seed| Prefixes::new(10, ip6, seed).each().collect::<Vec<_>>();
            assert_ne!(first(1), first(2));
        }
    }

    #[test]
    fn lengths_are_those_of_a_full_table() {
        let prefixes = Prefixes::new(100_000, false, 1);
        let share = |lengths: std::ops::RangeInclusive<u8>| {
            prefixes.each().filter(|p| lengths.contains(&p.1)).count() as f64 / prefixes.candidates as f64
        };
        assert!((0.58..0.64).contains(&share(24..=24)));
        assert!((0.35..0.40).contains(&share(16..=23)));
        assert!((0.001..0.02).contains(&share(8..=15)));
        assert!((0.005..0.02).contains(&share(25..=32)));
    }

    #[test]
    fn destinations_cover_all_prefixes() {
        for ip6 in [false, true] {
            let prefixes = Prefixes::new(100, ip6, 3);
            let mask = |length| if ip6 { mask6(length) } else { u128::from(mask4(length)) };
            let all: HashSet<Prefix> = prefixes.each().collect();
            let mut hit: HashSet<Prefix> = HashSet::new();
            for n in 0..10_000 {
                let address = prefixes.address(n);
                let within: Vec<_> = all.iter().filter(|(net, len)| address & mask(*len) == *net).collect();
                assert!(!within.is_empty(), "{address:x}");
                hit.extend(within);
                if !ip6 {
                    let first = address >> 24;
                    assert!((1..224).contains(&first) && ![10, 127, 169, 203].contains(&first));
                }
            }
            assert_eq!(hit.len(), all.len());
        }
    }
}
