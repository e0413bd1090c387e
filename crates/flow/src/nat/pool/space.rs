//! The ports of the addresses of a pool.
//!
//! # Theory of operation
//!
//! Each address has a [`PortBitmap`] for each protocol, and one for blocks if ports are allocated in blocks.
//! Free ports are counted per address and *lane*: the ports of a protocol below 1024, those from 1024 on, or
//! the blocks. One bit per address and lane says that the lane is exhausted. So an address with free ports is
//! found at once.

use mmb_packet::prefetch;

use super::bitmap::{PortBitmap, WORDS};
use crate::nat::config::{PoolConfig, PortProto};

/// Ports below this one are a class of their own (RFC 4787 REQ-3 a).
const HIGH: u32 = 1024;
/// ICMP queries get no identifiers below this one: in a key they could be confused with a type.
const ICMP_FIRST: u32 = 32;
/// Number of lanes.
const LANES: usize = 6;

/// The ports of a protocol in one class, or the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lane(usize);

impl Lane {
    /// The lane of blocks. In pools with blocks, ports are not counted.
    pub(super) const BLOCKS: Lane = Lane(0);

    /// The lane of a port.
    pub(super) fn of(proto: PortProto, port: u32) -> Lane {
        Lane(proto as usize * 2 + usize::from(port >= HIGH))
    }

    /// The best lane for a host with source port `port`.
    #[inline]
    pub(super) fn best(proto: PortProto, port: u32, only_low: bool) -> Lane {
        let high = port >= HIGH && (proto == PortProto::Icmp || !only_low);
        Lane(proto as usize * 2 + usize::from(high))
    }

    /// The lanes for a host with source port `port`, best first.
    pub(super) fn serving(proto: PortProto, port: u32, only_low: bool) -> [Option<Lane>; 2] {
        let first = Lane::best(proto, port, only_low);
        // A high port gets a low one only for ICMP, or if the pool has no others.
        let second = (port < HIGH || proto == PortProto::Icmp).then_some(Lane(first.0 ^ 1));
        [Some(first), second]
    }
}

/// The ports of all addresses of a pool.
#[derive(Debug)]
pub(super) struct Space {
    ports: (u32, u32),
    /// Bitmaps of all addresses: for each address one per protocol, and one for blocks if there are any.
    bitmaps: Vec<u64>,
    each: usize,
    left: Vec<[u32; LANES]>,
    /// Free entries per lane of an unused address.
    whole: [u32; LANES],
    full: [Vec<u64>; LANES],
    addresses: u32,
}

impl Space {
    /// A space without addresses. `blocks`: blocks per address.
    pub(super) fn new(config: &PoolConfig, blocks: Option<u32>) -> Space {
        let mut space = Space {
            ports: (config.ports().0.into(), config.ports().1.into()),
            bitmaps: Vec::new(),
            each: PortProto::ALL.len() + usize::from(blocks.is_some()),
            left: Vec::new(),
            whole: [0; LANES],
            full: Default::default(),
            addresses: 0,
        };
        space.whole = match blocks {
            Some(count) => [count, 0, 0, 0, 0, 0],
            None => std::array::from_fn(|lane| {
                let (first, last) = space.range(Lane(lane));
                (last + 1).saturating_sub(first)
            }),
        };
        space
    }

    /// Adds addresses at the end.
    pub(super) fn grow(&mut self, addresses: u32) {
        let words = addresses as usize * self.each * WORDS;
        // Zeroed memory costs nothing until it is written.
        let old = std::mem::replace(&mut self.bitmaps, vec![0; words]);
        self.bitmaps.iter_mut().zip(&old).filter(|(_, old)| **old != 0).for_each(|(new, &old)| *new = old);
        self.left.resize(addresses as usize, self.whole);
        for (full, whole) in self.full.iter_mut().zip(self.whole) {
            full.resize(addresses.div_ceil(64) as usize, 0);
            if whole == 0 {
                full.fill(u64::MAX);
            }
        }
        self.addresses = addresses;
    }

    /// Free entries of an unused address in a lane.
    pub(super) fn whole(&self, lane: Lane) -> u32 {
        self.whole.get(lane.0).copied().unwrap_or(0)
    }

    /// First and last port of a lane. The first exceeds the last if the lane is empty.
    fn range(&self, lane: Lane) -> (u32, u32) {
        let least = if lane.0 / 2 == PortProto::Icmp as usize { ICMP_FIRST } else { 0 };
        match lane.0 % 2 {
            0 => (self.ports.0.max(least), self.ports.1.min(HIGH - 1)),
            _ => (self.ports.0.max(HIGH), self.ports.1),
        }
    }

    /// Number of addresses.
    pub(super) fn addresses(&self) -> u32 {
        self.addresses
    }

    /// Whether the pool has no ports from 1024 on.
    pub(super) fn only_low(&self) -> bool {
        self.ports.1 < HIGH
    }

    fn has_blocks(&self) -> bool {
        self.each > PortProto::ALL.len()
    }

    /// The bitmap of a protocol's ports.
    fn bitmap(&self, address: u32, proto: PortProto) -> PortBitmap<&[u64]> {
        let at = (address as usize * self.each + proto as usize) * WORDS;
        PortBitmap(self.bitmaps.get(at..at + WORDS).unwrap_or_default())
    }

    /// The bitmap of a protocol's ports, mutable.
    fn bitmap_mut(&mut self, address: u32, proto: PortProto) -> PortBitmap<&mut [u64]> {
        let at = (address as usize * self.each + proto as usize) * WORDS;
        PortBitmap(self.bitmaps.get_mut(at..at + WORDS).unwrap_or_default())
    }

    /// Prefetches the bit of a port.
    pub(super) fn prefetch(&self, address: u32, proto: PortProto, port: u32) {
        let bitmap = (address as usize * self.each + proto as usize) * WORDS;
        if let Some(word) = self.bitmaps.get(bitmap + port as usize / 64) {
            prefetch::read(word);
        }
    }

    /// The bitmap of an address's blocks.
    fn blocks(&mut self, address: u32) -> PortBitmap<&mut [u64]> {
        let at = (address as usize * self.each + PortProto::ALL.len()) * WORDS;
        PortBitmap(self.bitmaps.get_mut(at..at + WORDS).unwrap_or_default())
    }

    /// Whether a block is taken.
    pub(super) fn is_block_taken(&mut self, address: u32, block: u32) -> bool {
        !self.blocks(address).is_free(block)
    }

    /// Whether a port may be allocated for this protocol, and is not taken.
    pub(super) fn is_free(&self, address: u32, proto: PortProto, port: u32) -> bool {
        let (low, high) = self.ports;
        (low..=high).contains(&port)
            && (proto != PortProto::Icmp || port >= ICMP_FIRST)
            && self.bitmap(address, proto).is_free(port)
    }

    /// Whether a port is in the pool.
    pub(super) fn has(&self, port: u32) -> bool {
        (self.ports.0..=self.ports.1).contains(&port)
    }

    /// Whether a port is in the pool and taken.
    pub(super) fn is_taken(&self, address: u32, proto: PortProto, port: u32) -> bool {
        self.has(port) && !self.bitmap(address, proto).is_free(port)
    }

    /// The ports that may be allocated for a protocol.
    pub(super) fn ports_of(&self, proto: PortProto) -> std::ops::RangeInclusive<u32> {
        let least = if proto == PortProto::Icmp { ICMP_FIRST } else { 0 };
        self.ports.0.max(least)..=self.ports.1
    }

    /// A free port from `range`, preferably from `from` on, preferably with the parity of `like`.
    pub(super) fn find(
        &self,
        address: u32,
        proto: PortProto,
        range: (u32, u32),
        from: u32,
        like: u32,
    ) -> Option<u32> {
        let least = if proto == PortProto::Icmp { ICMP_FIRST } else { 0 };
        let range = (range.0.max(least), range.1);
        if range.0 > range.1 {
            return None;
        }
        let bitmap = self.bitmap(address, proto);
        let from = from.max(range.0);
        bitmap.find(range, from, like).or_else(|| bitmap.find(range, from, like + 1))
    }

    /// A free port of a lane, chosen by `random`.
    pub(super) fn find_in(&self, address: u32, lane: Lane, random: u64, like: u32) -> Option<u32> {
        let proto = *PortProto::ALL.get(lane.0 / 2)?;
        let left = self.left.get(address as usize)?.get(lane.0)?;
        let range = self.range(lane);
        if *left == 0 || range.0 > range.1 {
            return None;
        }
        self.find(address, proto, range, within(range, random), like)
    }

    /// Takes a port, which must be free.
    pub(super) fn take(&mut self, address: u32, proto: PortProto, port: u32) {
        self.bitmap_mut(address, proto).take(port);
        if !self.has_blocks() {
            self.count(address, Lane::of(proto, port), true);
        }
    }

    /// Frees a port.
    pub(super) fn release(&mut self, address: u32, proto: PortProto, port: u32) {
        self.bitmap_mut(address, proto).release(port);
        if !self.has_blocks() {
            self.count(address, Lane::of(proto, port), false);
        }
    }

    /// A free block of an address: `wanted` if it is free, otherwise a random one.
    pub(super) fn find_block(
        &mut self,
        address: u32,
        count: u32,
        wanted: Option<u32>,
        random: u64,
    ) -> Option<u32> {
        let bitmap = self.blocks(address);
        if let Some(block) = wanted.filter(|&block| block < count && bitmap.is_free(block)) {
            return Some(block);
        }
        let (range, like) = ((0, count.checked_sub(1)?), (random >> 40) as u32);
        let from = within(range, random);
        bitmap.find(range, from, like).or_else(|| bitmap.find(range, from, like + 1))
    }

    /// The first free block of an address from `from` on.
    pub(super) fn find_block_from(&mut self, address: u32, count: u32, from: u32) -> Option<u32> {
        let range = (from, count.checked_sub(1)?);
        let bitmap = self.blocks(address);
        [0, 1].into_iter().filter_map(|like| bitmap.find(range, from, like)).min()
    }

    /// Takes a free block, or frees it.
    pub(super) fn set_block(&mut self, address: u32, block: u32, taken: bool) {
        let mut bitmap = self.blocks(address);
        if taken {
            bitmap.take(block);
        } else {
            bitmap.release(block);
        }
        self.count(address, Lane::BLOCKS, taken);
    }

    /// Whether an address has something left in a lane.
    #[inline]
    pub(super) fn is_open(&self, address: u32, lane: Lane) -> bool {
        self.left.get(address as usize).and_then(|lanes| lanes.get(lane.0)).is_some_and(|&left| left > 0)
    }

    /// The first address from `start` on, with wrap-around, that has something left in a lane.
    pub(super) fn open_address(&self, lane: Lane, start: u32) -> Option<u32> {
        let full = self.full.get(lane.0)?;
        let words = full.len() as u32;
        // The word of `start` comes first, from `start` on, and last as a whole.
        (0..=words).find_map(|n| {
            let word = (start / 64 + n) % words;
            let mask = if n == 0 { u64::MAX << (start % 64) } else { u64::MAX };
            let open = !full.get(word as usize)? & mask;
            let found = word * 64 + open.trailing_zeros();
            (open != 0 && found < self.addresses).then_some(found)
        })
    }

    /// Counts one entry more or less that is taken.
    fn count(&mut self, address: u32, lane: Lane, taken: bool) {
        let Some(left) = self.left.get_mut(address as usize).and_then(|lanes| lanes.get_mut(lane.0)) else {
            return;
        };
        let before = *left;
        *left = if taken { left.saturating_sub(1) } else { *left + 1 };
        let none = *left == 0;
        if none == (before == 0) {
            return;
        }
        if let Some(word) = self.full.get_mut(lane.0).and_then(|full| full.get_mut(address as usize / 64)) {
            *word = *word & !(1 << (address % 64)) | u64::from(none) << (address % 64);
        }
    }
}

/// A number from `first` to `last`.
pub(super) fn within((first, last): (u32, u32), random: u64) -> u32 {
    first + (((random & 0xffff_ffff) * u64::from(last - first + 1)) >> 32) as u32
}
