//! Longest-prefix match.

use crate::hop::NextHopId;
use crate::trie::Trie;

pub use crate::trie::Address;

/// IPv4 prefixes and their next hops.
pub type Fib4 = Fib<u32>;

/// IPv6 prefixes and their next hops.
pub type Fib6 = Fib<u128>;

/// Prefixes of one address family and their next hops. A clone shares all pages; a change copies a few.
///
/// Addresses to look up are in host byte order.
#[derive(Clone, Debug, Default)]
pub struct Fib<A: Address> {
    trie: Trie<A>,
}

impl<A: Address> Fib<A> {
    /// Adds or replaces a prefix.
    ///
    /// `length` is at most the address's length in bits; later bits of `prefix` are ignored. `hop` is less
    /// than 2^31 - 2.
    pub fn insert(&mut self, prefix: A::Ip, length: u8, hop: NextHopId) {
        self.trie.insert(prefix.into(), length, hop);
    }

    /// Removes a prefix.
    pub fn remove(&mut self, prefix: A::Ip, length: u8) {
        self.trie.remove(prefix.into(), length);
    }

    /// Returns the next hop of the longest matching prefix, or 0.
    #[inline]
    pub fn lookup(&self, address: A) -> NextHopId {
        self.trie.lookup(address)
    }

    /// Prefetches the memory that a lookup of this address reads first.
    #[inline(always)]
    pub fn prefetch(&self, address: A) {
        self.trie.prefetch(address);
    }

    /// Looks up many addresses, at most `hops.len()`. Batches of 256 are fastest.
    #[inline]
    pub fn lookup_batch(&self, addresses: &[A], hops: &mut [NextHopId]) {
        self.trie.lookup_batch(addresses, hops);
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.trie.len()
    }

    /// Whether there are no prefixes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory in bytes, shared pages included: read by lookups, and read by changes only.
    pub fn bytes(&self) -> (usize, usize) {
        self.trie.bytes()
    }
}
