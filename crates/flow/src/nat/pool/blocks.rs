//! Blocks of ports.
//!
//! Theory of operation. A block is a number of consecutive ports of an address, for all protocols, that a host has for
//! itself as long as one of them is mapped. What is logged about who had which port is then one line for each block
//! rather than one for each mapping. Blocks of a host are a list, the one first in which something changed last; a port
//! is looked for in the first few of them, then the host gets another block. Blocks lie above port 1023 if the pool has
//! room for one there.

use crate::nat::config::PoolConfig;

/// A block that is not at the beginning or end of a list has neighbours; numbers are one more than the block's, so that
/// zeros are a block that nobody has.
const HOST: usize = 0;
const PORTS: usize = 1;
const BEFORE: usize = 2;
const BEHIND: usize = 3;

/// How many of its blocks are searched before a host gets another one.
const SEARCHED: usize = 16;

/// All blocks of a pool. A block's number is its address's times the blocks of an address, plus its number there.
#[derive(Debug)]
pub(super) struct Blocks {
    size: u32,
    base: u32,
    each: u32,
    /// Of each block: the host that has it, how many of its ports are mapped, and its neighbours in the host's list.
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

    /// Ports of a block.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// Blocks of an address.
    pub(super) fn each(&self) -> u32 {
        self.each
    }

    /// Blocks that hosts have.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// The block, in its address, that a port lies in.
    pub(super) fn around(&self, port: u32) -> Option<u32> {
        Some(port.checked_sub(self.base)? / self.size).filter(|&block| block < self.each)
    }

    /// First and last port of a block of any address.
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

    /// Whether the host has the block.
    pub(super) fn has(&self, host: u32, block: u32) -> bool {
        self.field(block, HOST) == host + 1
    }

    /// The blocks of the list that begins at `first` (number + 1) in which ports are looked for.
    pub(super) fn searched(&self, first: u32) -> impl Iterator<Item = u32> {
        let mut next = first;
        std::iter::from_fn(move || {
            let block = next.checked_sub(1)?;
            next = self.field(block, BEHIND);
            Some(block)
        })
        .take(SEARCHED)
    }

    /// Gives a block that nobody has to a host whose list begins at `first`.
    pub(super) fn take(&mut self, host: u32, block: u32, first: &mut u32) {
        self.set(block, HOST, host + 1);
        self.set(block, PORTS, 0);
        self.put_first(block, first);
        self.taken += 1;
    }

    /// A port of the block was mapped.
    pub(super) fn use_port(&mut self, block: u32) {
        self.set(block, PORTS, self.field(block, PORTS) + 1);
    }

    /// A port of the block is mapped no longer. True: it was the last, and the host has lost the block.
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
