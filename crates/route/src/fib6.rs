//! Longest-prefix match of IPv6.

use std::net::Ipv6Addr;

use crate::hop::NextHopId;
use crate::trie::Trie;

/// A table of prefixes. Cloning is cheap; a change copies what it touches.
#[derive(Clone, Debug, Default)]
pub struct Fib6 {
    trie: Trie<u128>,
}

impl Fib6 {
    /// Adds or replaces a prefix; `length` is at most 128, and bits of `prefix` behind it do not count. `hop` is below
    /// 2^31 - 2, as the numbers of a table of next hops are.
    pub fn insert(&mut self, prefix: Ipv6Addr, length: u8, hop: NextHopId) {
        self.trie.insert(u128::from(prefix), length, hop);
    }

    /// Removes a prefix.
    pub fn remove(&mut self, prefix: Ipv6Addr, length: u8) {
        self.trie.remove(u128::from(prefix), length);
    }

    /// What the longest prefix of an address leads to, 0 if there is none.
    #[inline]
    pub fn lookup(&self, address: u128) -> NextHopId {
        self.trie.lookup(address)
    }

    /// Asks for the memory that a lookup of this address reads first.
    #[inline(always)]
    pub fn prefetch(&self, address: u128) {
        self.trie.prefetch(address);
    }

    /// The same for many addresses: as many as `hops` has room for, at most. Fastest with 256.
    #[inline]
    pub fn lookup_batch(&self, addresses: &[u128], hops: &mut [NextHopId]) {
        self.trie.lookup_batch(addresses, hops);
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.trie.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory, what clones share included: what lookups read, and what only changes do.
    pub fn bytes(&self) -> (usize, usize) {
        self.trie.bytes()
    }
}
