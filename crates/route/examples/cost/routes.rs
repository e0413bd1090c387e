//! Routing tables similar to the Internet's, and destinations for them.

use std::collections::HashSet;
use std::hash::Hash;

use rand::Rng;
use rand::rngs::SmallRng;

/// Selects a value with a probability proportional to its weight.
fn pick(rng: &mut SmallRng, weights: &[(u8, usize)]) -> u8 {
    let mut at = rng.random_range(0..weights.iter().map(|(_, weight)| weight).sum());
    for (value, weight) in weights {
        match at.checked_sub(*weight) {
            Some(rest) => at = rest,
            None => return *value,
        }
    }
    0
}

/// A prefix and its next hop.
#[derive(Clone, Copy)]
pub struct Route<A> {
    pub prefix: A,
    pub length: u8,
    pub hop: u32,
}

/// Number of next hops; routes select one at random.
const HOPS: usize = 16;

/// Approximate number of IPv4 routes of each prefix length, per thousand routes of the Internet.
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

/// Approximate number of IPv6 routes of each prefix length, per thousand routes of the Internet.
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
pub fn any4(rng: &mut SmallRng) -> u32 {
    rng.random_range(1 << 24..224 << 24)
}

/// Random IPv4 routes.
pub fn ip4(n: usize, rng: &mut SmallRng) -> Vec<Route<u32>> {
    collect(n, || {
        let length = pick(rng, &LENGTHS4);
        let prefix = any4(rng) & u32::MAX << (32 - length);
        Route { prefix, length, hop: 1 + rng.random_range(0..HOPS) as u32 }
    })
}

/// A random address of the registries' blocks, which have few different first 12 bits.
pub fn any6(rng: &mut SmallRng) -> u128 {
    const REGISTRIES: [u128; 12] =
        [0x200, 0x240, 0x241, 0x260, 0x261, 0x262, 0x263, 0x280, 0x2a0, 0x2a1, 0x2c0, 0x2a0];
    let rest = rng.random::<u128>();
    REGISTRIES[rng.random_range(0..REGISTRIES.len())] << 116 | rest >> 12
}

/// IPv6 routes; longer ones lie in networks of 32 bits, about ten in each.
pub fn ip6(n: usize, rng: &mut SmallRng) -> Vec<Route<u128>> {
    let networks: Vec<u128> = (0..n.div_ceil(10)).map(|_| any6(rng) >> 96 << 96).collect();
    collect(n, || {
        let length = pick(rng, &LENGTHS6);
        let rest = rng.random::<u128>();
        let prefix =
            (networks[rng.random_range(0..networks.len())] | rest >> 32) & u128::MAX << (128 - length);
        Route { prefix, length, hop: 1 + rng.random_range(0..HOPS) as u32 }
    })
}

/// Random addresses of random routes.
pub fn within<A: Inside>(routes: &[Route<A>], n: usize, rng: &mut SmallRng) -> Vec<A> {
    (0..n).map(|_| A::inside(&routes[rng.random_range(0..routes.len())], rng)).collect()
}

/// An address of either family.
pub trait Inside: Sized {
    /// A random address of a route.
    fn inside(route: &Route<Self>, rng: &mut SmallRng) -> Self;
}

impl Inside for u32 {
    fn inside(route: &Route<u32>, rng: &mut SmallRng) -> u32 {
        route.prefix | rng.random::<u32>().checked_shr(route.length.into()).unwrap_or(0)
    }
}

impl Inside for u128 {
    fn inside(route: &Route<u128>, rng: &mut SmallRng) -> u128 {
        route.prefix | rng.random::<u128>().checked_shr(route.length.into()).unwrap_or(0)
    }
}
