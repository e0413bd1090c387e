//! Ports of the addresses of a pool, and which of them are left.
//!
//! Theory of operation. Each address has a [`PortBitmap`] of ports for each protocol, and one of blocks if ports are given
//! out in blocks. How much is left is counted for each address and *lane*: each protocol's ports below 1024 and those
//! above, or blocks. A bit for each address says that a lane of it is empty, so that an address with something left is
//! found at once.

use mmb_packet::prefetch;

use super::bitmap::{PortBitmap, WORDS, bar, count_free};
use crate::nat::config::{PoolConfig, PortProto};

/// Ports below this one are a class of their own (RFC 4787 REQ-3 a).
const HIGH: u32 = 1024;
/// Identifiers below this one are not given to ICMP queries: in a key they could be mistaken for a type.
const ICMP_FIRST: u32 = 32;
/// Kinds of things that are counted apart.
const LANES: usize = 6;
/// Nothing is barred.
static OPEN: [u64; WORDS] = [0; WORDS];

/// A protocol's ports of a class, or the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lane(usize);

impl Lane {
    /// Blocks; where there are blocks, ports are not counted.
    pub(super) const BLOCKS: Lane = Lane(0);

    /// That of a port.
    pub(super) fn of(proto: PortProto, port: u32) -> Lane {
        Lane(proto as usize * 2 + usize::from(port >= HIGH))
    }

    /// The first of those that serve a host that sends from `port`.
    #[inline]
    pub(super) fn best(proto: PortProto, port: u32, only_low: bool) -> Lane {
        let high = port >= HIGH && (proto == PortProto::Icmp || !only_low);
        Lane(proto as usize * 2 + usize::from(high))
    }

    /// Those that serve a host that sends from `port`, best first.
    pub(super) fn serving(proto: PortProto, port: u32, only_low: bool) -> [Option<Lane>; 2] {
        let first = Lane::best(proto, port, only_low);
        // High ports are given low ones only where nobody minds, or if there is nothing else.
        let second = (port < HIGH || proto == PortProto::Icmp).then_some(Lane(first.0 ^ 1));
        [Some(first), second]
    }
}

/// The ports of all addresses of a pool.
#[derive(Debug)]
pub(super) struct Space {
    ports: (u32, u32),
    /// Sheets of an address stand in a row: ports of each protocol, and blocks if there are any.
    sheets: Vec<u64>,
    each: usize,
    /// What is never given out by this worker: of blocks if there are any, else of ports.
    barred: Vec<u64>,
    left: Vec<[u32; LANES]>,
    /// What an address has left when nothing is taken.
    whole: [u32; LANES],
    full: [Vec<u64>; LANES],
    addresses: u32,
}

impl Space {
    /// The space of no addresses yet; `mine` says of a range of consecutive ports, or of a block, whether they are this
    /// worker's. `blocks`: how many of them an address has.
    pub(super) fn new(
        config: &PoolConfig,
        blocks: Option<u32>,
        chunk: u32,
        mine: impl Fn(u32) -> bool,
    ) -> Space {
        let (low, high) = (u32::from(config.ports().0), u32::from(config.ports().1));
        let mut barred = vec![0; WORDS];
        let (first, count, width) = match blocks {
            Some(count) => (0, count, 1),
            None => (low, (high - low + 1).div_ceil(chunk), chunk),
        };
        (0..count)
            .filter(|&n| !mine(n))
            .for_each(|n| bar(&mut barred, first + n * width, (first + (n + 1) * width - 1).min(65535)));
        let mut space = Space {
            ports: (low, high),
            sheets: Vec::new(),
            each: PortProto::ALL.len() + usize::from(blocks.is_some()),
            barred,
            left: Vec::new(),
            whole: [0; LANES],
            full: Default::default(),
            addresses: 0,
        };
        match blocks {
            Some(count) => space.whole[0] = count_free(&space.barred, 0, count.saturating_sub(1)),
            None => {
                for proto in PortProto::ALL {
                    for port in [0, HIGH] {
                        let (first, last) = space.range(Lane::of(proto, port));
                        space.whole[Lane::of(proto, port).0] = count_free(&space.barred, first, last);
                    }
                }
            }
        }
        space
    }

    /// Adds addresses at the end until there are so many.
    pub(super) fn grow(&mut self, addresses: u32) {
        let words = addresses as usize * self.each * WORDS;
        // Zeroed memory costs nothing until it is touched.
        let old = std::mem::replace(&mut self.sheets, vec![0; words]);
        self.sheets.iter_mut().zip(&old).filter(|(_, old)| **old != 0).for_each(|(new, &old)| *new = old);
        self.left.resize(addresses as usize, self.whole);
        for (full, whole) in self.full.iter_mut().zip(self.whole) {
            full.resize(addresses.div_ceil(64) as usize, 0);
            if whole == 0 {
                full.fill(u64::MAX);
            }
        }
        self.addresses = addresses;
    }

    /// What one address has in a lane when nothing is taken.
    pub(super) fn whole(&self, lane: Lane) -> u32 {
        self.whole.get(lane.0).copied().unwrap_or(0)
    }

    /// The ports of a lane: first and last; the first is above the last if there are none.
    fn range(&self, lane: Lane) -> (u32, u32) {
        let least = if lane.0 / 2 == PortProto::Icmp as usize { ICMP_FIRST } else { 0 };
        match lane.0 % 2 {
            0 => (self.ports.0.max(least), self.ports.1.min(HIGH - 1)),
            _ => (self.ports.0.max(HIGH), self.ports.1),
        }
    }

    /// How many addresses there are.
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

    /// The sheet of a protocol's ports.
    fn sheet(&self, address: u32, proto: PortProto) -> PortBitmap<'_, &[u64]> {
        let at = (address as usize * self.each + proto as usize) * WORDS;
        let barred = if self.has_blocks() { &OPEN } else { self.barred.as_slice() };
        PortBitmap { taken: self.sheets.get(at..at + WORDS).unwrap_or_default(), barred }
    }

    /// The same, to be changed.
    fn sheet_mut(&mut self, address: u32, proto: PortProto) -> PortBitmap<'_, &mut [u64]> {
        let at = (address as usize * self.each + proto as usize) * WORDS;
        let barred = if self.has_blocks() { &OPEN } else { self.barred.as_slice() };
        PortBitmap { taken: self.sheets.get_mut(at..at + WORDS).unwrap_or_default(), barred }
    }

    /// Asks for the memory that says whether a port is taken.
    pub(super) fn prefetch(&self, address: u32, proto: PortProto, port: u32) {
        let sheet = (address as usize * self.each + proto as usize) * WORDS;
        if let Some(word) = self.sheets.get(sheet + port as usize / 64) {
            prefetch::read(word);
        }
    }

    /// The sheet of an address's blocks.
    fn blocks(&mut self, address: u32) -> PortBitmap<'_, &mut [u64]> {
        let at = (address as usize * self.each + PortProto::ALL.len()) * WORDS;
        PortBitmap { taken: self.sheets.get_mut(at..at + WORDS).unwrap_or_default(), barred: &self.barred }
    }

    /// Whether a port is the pool's and this worker's, can be given out for this protocol, and nobody has it.
    pub(super) fn is_free(&self, address: u32, proto: PortProto, port: u32) -> bool {
        let (low, high) = self.ports;
        (low..=high).contains(&port)
            && (proto != PortProto::Icmp || port >= ICMP_FIRST)
            && self.sheet(address, proto).is_free(port)
    }

    /// Whether a port is the pool's, and this worker may give it out.
    pub(super) fn has(&self, port: u32) -> bool {
        let (low, high) = self.ports;
        (low..=high).contains(&port) && (self.has_blocks() || count_free(&self.barred, port, port) == 1)
    }

    /// A free port from `first` to `last`, at or behind `from` if possible, even or odd as `like` if possible.
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
        let sheet = self.sheet(address, proto);
        let from = from.max(range.0);
        sheet.find(range, from, like).or_else(|| sheet.find(range, from, like + 1))
    }

    /// A free port of a lane; which one, `random` says.
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
        self.sheet_mut(address, proto).take(port);
        if !self.has_blocks() {
            self.count(address, Lane::of(proto, port), true);
        }
    }

    /// Gives a port back.
    pub(super) fn give(&mut self, address: u32, proto: PortProto, port: u32) {
        self.sheet_mut(address, proto).give(port);
        if !self.has_blocks() {
            self.count(address, Lane::of(proto, port), false);
        }
    }

    /// A free block of an address: `wanted` if it is, else at random.
    pub(super) fn find_block(
        &mut self,
        address: u32,
        count: u32,
        wanted: Option<u32>,
        random: u64,
    ) -> Option<u32> {
        let sheet = self.blocks(address);
        if let Some(block) = wanted.filter(|&block| block < count && sheet.is_free(block)) {
            return Some(block);
        }
        let (range, like) = ((0, count.checked_sub(1)?), (random >> 40) as u32);
        let from = within(range, random);
        sheet.find(range, from, like).or_else(|| sheet.find(range, from, like + 1))
    }

    /// Takes a free block, or gives it back.
    pub(super) fn set_block(&mut self, address: u32, block: u32, taken: bool) {
        let mut sheet = self.blocks(address);
        if taken {
            sheet.take(block);
        } else {
            sheet.give(block);
        }
        self.count(address, Lane::BLOCKS, taken);
    }

    /// Whether an address has something left in a lane.
    #[inline]
    pub(super) fn is_open(&self, address: u32, lane: Lane) -> bool {
        self.left.get(address as usize).and_then(|lanes| lanes.get(lane.0)).is_some_and(|&left| left > 0)
    }

    /// The first address from `start` on, and around, that has something left in a lane.
    pub(super) fn open_address(&self, lane: Lane, start: u32) -> Option<u32> {
        let full = self.full.get(lane.0)?;
        let words = full.len() as u32;
        // The word of the start comes first with what lies behind it, and last as a whole.
        (0..=words).find_map(|n| {
            let word = (start / 64 + n) % words;
            let mask = if n == 0 { u64::MAX << (start % 64) } else { u64::MAX };
            let open = !full.get(word as usize)? & mask;
            let found = word * 64 + open.trailing_zeros();
            (open != 0 && found < self.addresses).then_some(found)
        })
    }

    /// Counts one more or one less that is taken.
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
