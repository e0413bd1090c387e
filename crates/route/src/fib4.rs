//! Longest-prefix match of IPv4.

use std::net::Ipv4Addr;

use crate::hop::NextHopId;
use crate::trie::Trie;

/// A table of prefixes. Cloning is cheap; a change copies what it touches.
#[derive(Clone, Debug, Default)]
pub struct Fib4 {
    trie: Trie<u32>,
}

impl Fib4 {
    /// Adds or replaces a prefix; `length` is at most 32, and bits of `prefix` behind it do not count. `hop` is below
    /// 2^31 - 2, as the numbers of a table of next hops are.
    pub fn insert(&mut self, prefix: Ipv4Addr, length: u8, hop: NextHopId) {
        self.trie.insert(u32::from(prefix), length, hop);
    }

    /// Removes a prefix.
    pub fn remove(&mut self, prefix: Ipv4Addr, length: u8) {
        self.trie.remove(u32::from(prefix), length);
    }

    /// What the longest prefix of an address leads to, 0 if there is none.
    #[inline]
    pub fn lookup(&self, address: u32) -> NextHopId {
        self.trie.lookup(address)
    }

    /// Asks for the memory that a lookup of this address reads first.
    #[inline(always)]
    pub fn prefetch(&self, address: u32) {
        self.trie.prefetch(address);
    }

    /// The same for many addresses: as many as `hops` has room for, at most. Fastest with 256.
    #[inline]
    pub fn lookup_batch(&self, addresses: &[u32], hops: &mut [NextHopId]) {
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
