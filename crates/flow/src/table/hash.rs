//! The hash of a key.

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use crate::key::PackedKey;
use crate::shape::Shape;

/// The hash of a key. Its parts do not share bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hash(u64);

impl Hash {
    /// A number below `many`.
    #[inline(always)]
    pub fn one_of(self, many: u32) -> u32 {
        (((self.0 >> 32) * u64::from(many)) >> 32) as u32
    }

    /// The bucket of the key.
    #[inline(always)]
    pub fn bucket(self, shape: &Shape) -> usize {
        shape.bucket(self.one_of(shape.first()), u32::from((self.0 >> 16) as u16))
    }

    /// Number of the bits that choose one bucket of those that were one bucket initially.
    pub const MORE: u32 = u16::BITS;

    #[cfg(test)]
    pub fn of_parts(one: u32, more: u16, tag: u16) -> Hash {
        Hash(u64::from(one) << 32 | u64::from(more) << 16 | u64::from(tag))
    }

    /// The tag in the bucket. Never 0, which marks a free lane.
    #[inline(always)]
    pub fn tag(self) -> u16 {
        self.0 as u16 | 1
    }
}

/// A family of hash functions. The seed selects one.
///
/// Packets choose the keys, so an attacker may want many keys in one bucket. Pairs of words of the key, each
/// plus a secret, are multiplied to 128 bits and summed. This is NH (Black et al., "UMAC", CRYPTO 1999,
/// section 4): two given keys have the same sum with a probability of at most 2^-64 over the secrets. A
/// folded product with two further secrets reduces the sum to 64 bits. It leaves no linear trace of the first
/// secrets for an attacker who learns from timing that two keys collide.
#[derive(Clone, Debug)]
pub(crate) struct Hasher {
    head: [u64; 2],
    last: [u64; 2],
    tail: [u64; 4],
}

impl Hasher {
    pub fn new(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut next = || random.next_u64();
        Hasher { head: [next(), next()], last: [next(), next()], tail: [next(), next(), next(), next()] }
    }

    #[inline(always)]
    pub fn hash(&self, key: &PackedKey) -> Hash {
        if key.is_ip6() { self.ip6(key) } else { self.ip4(key.head) }
    }

    /// The hash of an IPv4 key.
    #[inline(always)]
    pub fn ip4(&self, head: [u64; 2]) -> Hash {
        self.fold(product(head, self.head))
    }

    /// The hash of an IPv6 key.
    #[inline(always)]
    pub fn ip6(&self, key: &PackedKey) -> Hash {
        let ([a, b, c], [k, l, m, n]) = (key.tail, self.tail);
        let tail = product([a, b], [k, l]).wrapping_add(product([c, 0], [m, n]));
        self.fold(product(key.head, self.head).wrapping_add(tail))
    }

    #[inline(always)]
    fn fold(&self, sum: u128) -> Hash {
        let wide = u128::from(sum as u64 ^ self.last[0]) * u128::from((sum >> 64) as u64 ^ self.last[1]);
        Hash(wide as u64 ^ (wide >> 64) as u64)
    }
}

#[inline(always)]
fn product([a, b]: [u64; 2], [k, l]: [u64; 2]) -> u128 {
    u128::from(a.wrapping_add(k)) * u128::from(b.wrapping_add(l))
}
