//! Port blocks.
//!
//! # Theory of operation
//!
//! A block is a range of consecutive ports of an address, for all protocols. It belongs to one host as long
//! as one of its ports is mapped. So the log needs one line per block instead of one per mapping. The blocks
//! of a host form a list, most recently changed first. A port is searched in the first few blocks of the
//! list; then the host gets another block. Blocks lie above port 1023 if the pool has room for one there.

use crate::nat::config::PoolConfig;

/// Fields of a block. Links are block numbers plus one, so a block without a host is all zeros.
const HOST: usize = 0;
const PORTS: usize = 1;
const BEFORE: usize = 2;
const BEHIND: usize = 3;

/// Number of blocks that are searched before a host gets another one.
const SEARCHED: usize = 16;

/// All blocks of a pool. The number of a block is the index of its address times the blocks per address, plus
/// its index there.
#[derive(Debug)]
pub(super) struct Blocks {
    size: u32,
    base: u32,
    each: u32,
    /// For each block: its host, the number of mapped ports, and its neighbours in the host's list.
    list: Vec<[u32; 4]>,
    taken: u64,
}

impl Blocks {
    pub(super) fn new(config: &PoolConfig, size: u16) -> Blocks {
        let (size, base) = (u32::from(size), config.base());
        let each = (u32::from(config.ports().1) + 1 - base) / size;
        Blocks { size, base, each, list: Vec::new(), taken: 0 }
    }

    pub(super) fn grow(&mut self, addresses: u32) {
        let old = std::mem::replace(&mut self.list, vec![[0; 4]; addresses as usize * self.each as usize]);
        self.list.iter_mut().zip(&old).filter(|(_, old)| **old != [0; 4]).for_each(|(new, &old)| *new = old);
    }

    /// Ports per block.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// Blocks per address.
    pub(super) fn each(&self) -> u32 {
        self.each
    }

    /// Number of blocks that hosts have.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// The block of an address that contains a port.
    pub(super) fn around(&self, port: u32) -> Option<u32> {
        Some(port.checked_sub(self.base)? / self.size).filter(|&block| block < self.each)
    }

    /// First and last port of a block.
    pub(super) fn ports(&self, block: u32) -> (u32, u32) {
        let first = self.base + block % self.each.max(1) * self.size;
        (first, first + self.size - 1)
    }

    /// The number of a block of an address.
    pub(super) fn number(&self, address: u32, block: u32) -> u32 {
        address * self.each + block
    }

    fn field(&self, block: u32, field: usize) -> u32 {
        self.list.get(block as usize).and_then(|entry| entry.get(field)).copied().unwrap_or(0)
    }

    fn set(&mut self, block: u32, field: usize, value: u32) {
        if let Some(place) = self.list.get_mut(block as usize).and_then(|entry| entry.get_mut(field)) {
            *place = value;
        }
    }

    /// Whether the block belongs to the host.
    pub(super) fn has(&self, host: u32, block: u32) -> bool {
        self.field(block, HOST) == host + 1
    }

    /// The blocks in which a port is searched. `first`: first block of the host's list, plus one.
    pub(super) fn searched(&self, first: u32) -> impl Iterator<Item = u32> {
        let mut next = first;
        std::iter::from_fn(move || {
            let block = next.checked_sub(1)?;
            next = self.field(block, BEHIND);
            Some(block)
        })
        .take(SEARCHED)
    }

    /// Assigns a free block to a host. `first`: first block of the host's list, plus one.
    pub(super) fn take(&mut self, host: u32, block: u32, first: &mut u32) {
        self.set(block, HOST, host + 1);
        self.set(block, PORTS, 0);
        self.put_first(block, first);
        self.taken += 1;
    }

    /// Counts a mapped port of the block.
    pub(super) fn use_port(&mut self, block: u32) {
        self.set(block, PORTS, self.field(block, PORTS) + 1);
    }

    /// Counts a port of the block that is no longer mapped. True if it was the last: the host has lost the
    /// block.
    pub(super) fn unuse_port(&mut self, block: u32, first: &mut u32) -> bool {
        let ports = self.field(block, PORTS).saturating_sub(1);
        self.set(block, PORTS, ports);
        self.unlink(block, first);
        if ports == 0 {
            self.set(block, HOST, 0);
            self.taken -= 1;
        } else {
            self.put_first(block, first);
        }
        ports == 0
    }

    fn put_first(&mut self, block: u32, first: &mut u32) {
        self.set(block, BEFORE, 0);
        self.set(block, BEHIND, *first);
        if let Some(second) = first.checked_sub(1) {
            self.set(second, BEFORE, block + 1);
        }
        *first = block + 1;
    }

    fn unlink(&mut self, block: u32, first: &mut u32) {
        let (before, behind) = (self.field(block, BEFORE), self.field(block, BEHIND));
        match before.checked_sub(1) {
            Some(before) => self.set(before, BEHIND, behind),
            None => *first = behind,
        }
        if let Some(behind) = behind.checked_sub(1) {
            self.set(behind, BEFORE, before);
        }
    }
}
