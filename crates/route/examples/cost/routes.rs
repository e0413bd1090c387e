//! Tables like those of the Internet, and destinations for them.

use std::collections::HashSet;
use std::hash::Hash;

/// Numbers that are the same in every run: xorshift64*.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    fn pick(&mut self, weights: &[(u8, usize)]) -> u8 {
        let mut at = self.below(weights.iter().map(|(_, weight)| weight).sum());
        for (value, weight) in weights {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return *value,
            }
        }
        0
    }
}

/// A prefix and its next hop.
#[derive(Clone, Copy)]
pub struct Route<A> {
    pub prefix: A,
    pub length: u8,
    pub hop: u32,
}

/// Next hops that routes are dealt out to.
const HOPS: usize = 16;

/// How many of a thousand IPv4 routes of the Internet have which length, by and large.
const LENGTHS4: [(u8, usize); 15] = [
    (24, 600),
    (23, 97),
    (22, 112),
    (21, 50),
    (20, 43),
    (19, 25),
    (18, 14),
    (17, 9),
    (16, 14),
    (15, 2),
    (14, 2),
    (13, 1),
    (12, 1),
    (28, 10),
    (32, 20),
];

/// The same of IPv6.
const LENGTHS6: [(u8, usize); 14] = [
    (48, 470),
    (32, 130),
    (44, 100),
    (40, 95),
    (36, 40),
    (46, 35),
    (29, 30),
    (47, 25),
    (45, 20),
    (42, 20),
    (33, 15),
    (64, 10),
    (128, 5),
    (28, 5),
];

fn collect<A: Copy + Eq + Hash>(n: usize, mut next: impl FnMut() -> Route<A>) -> Vec<Route<A>> {
    let (mut seen, mut routes) = (HashSet::new(), Vec::with_capacity(n));
    while routes.len() < n {
        let route = next();
        if seen.insert((route.prefix, route.length)) {
            routes.push(route);
        }
    }
    routes
}

/// A random unicast address.
pub fn any4(random: &mut Random) -> u32 {
    (1 << 24) + random.below(223 << 24) as u32
}

/// IPv4 routes.
pub fn ip4(n: usize, random: &mut Random) -> Vec<Route<u32>> {
    collect(n, || {
        let length = random.pick(&LENGTHS4);
        let prefix = any4(random) & u32::MAX << (32 - length);
        Route { prefix, length, hop: 1 + random.below(HOPS) as u32 }
    })
}

/// A random address of what the registries have given out: the first 12 bits are of few kinds.
pub fn any6(random: &mut Random) -> u128 {
    const REGISTRIES: [u128; 12] =
        [0x200, 0x240, 0x241, 0x260, 0x261, 0x262, 0x263, 0x280, 0x2a0, 0x2a1, 0x2c0, 0x2a0];
    let rest = u128::from(random.next()) << 64 | u128::from(random.next());
    REGISTRIES[random.below(REGISTRIES.len())] << 116 | rest >> 12
}

/// IPv6 routes: longer ones lie in networks of 32 bits, some ten in each.
pub fn ip6(n: usize, random: &mut Random) -> Vec<Route<u128>> {
    let networks: Vec<u128> = (0..n.div_ceil(10)).map(|_| any6(random) >> 96 << 96).collect();
    collect(n, || {
        let length = random.pick(&LENGTHS6);
        let rest = u128::from(random.next()) << 64 | u128::from(random.next());
        let prefix = (networks[random.below(networks.len())] | rest >> 32) & u128::MAX << (128 - length);
        Route { prefix, length, hop: 1 + random.below(HOPS) as u32 }
    })
}

/// Random addresses of random routes.
pub fn within<A: Inside>(routes: &[Route<A>], n: usize, random: &mut Random) -> Vec<A> {
    (0..n).map(|_| A::inside(&routes[random.below(routes.len())], random)).collect()
}

/// An address of either family.
pub trait Inside: Sized {
    /// A random address of a route.
    fn inside(route: &Route<Self>, random: &mut Random) -> Self;
}

impl Inside for u32 {
    fn inside(route: &Route<u32>, random: &mut Random) -> u32 {
        route.prefix | (random.next() as u32).checked_shr(route.length.into()).unwrap_or(0)
    }
}

impl Inside for u128 {
    fn inside(route: &Route<u128>, random: &mut Random) -> u128 {
        let rest = u128::from(random.next()) << 64 | u128::from(random.next());
        route.prefix | rest.checked_shr(route.length.into()).unwrap_or(0)
    }
}
