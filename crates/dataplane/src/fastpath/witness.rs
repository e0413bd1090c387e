//! The packets that are watched on their way through a walk, as they came.

use std::ops::Range;

use mmb_dpdk::{FastKey, Packet};

/// Packets that are watched in one walk, at most.
const MOST: usize = 32;
/// Bytes of them, at most, unless there is only one: what has to be compared has to be copied.
const BYTES: usize = 8192;

/// A packet that is watched.
pub(crate) struct SampledPacket {
    /// Where its buffer is.
    at: usize,
    pub(super) key: FastKey,
    /// Another worker has received it.
    pub(super) handed: bool,
    pub(super) port: u16,
    /// There have been several of its flow.
    pub(super) often: bool,
    /// Its place in the kernel is paid for.
    pub(super) paid: bool,
    /// Where its bytes are among those of all.
    bytes: Range<usize>,
}

/// Those of one walk.
#[derive(Default)]
pub(super) struct SampledPackets {
    list: Vec<SampledPacket>,
    bytes: Vec<u8>,
    /// A bit for each place where one is, and for some where none is: a look at most other packets ends there.
    places: u64,
}

/// Where a packet's buffer is.
fn place_of(packet: &Packet) -> usize {
    std::ptr::from_ref(packet).addr()
}

/// One of 64 bits for a place.
fn bit_of(place: usize) -> u64 {
    1 << ((place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
}

impl SampledPackets {
    /// Whether none is watched any more.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether a packet of so many bytes can be watched as well.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.list.len() < MOST && (self.bytes.is_empty() || self.bytes.len() + bytes <= BYTES)
    }

    /// Watches a packet of one buffer.
    pub fn watch(&mut self, packet: &Packet, (key, handed): (FastKey, bool), (often, paid): (bool, bool)) {
        let (at, first) = (place_of(packet), self.bytes.len());
        self.bytes.extend_from_slice(packet.data());
        self.places |= bit_of(at);
        let bytes = first..self.bytes.len();
        self.list.push(SampledPacket { at, key, handed, port: packet.port(), often, paid, bytes });
    }

    /// If a packet is watched: what is known of it, and no more watching.
    #[inline]
    pub fn take(&mut self, packet: &Packet) -> Option<SampledPacket> {
        let place = place_of(packet);
        if self.places & bit_of(place) == 0 {
            return None;
        }
        let found = self.list.iter().position(|witness| witness.at == place)?;
        Some(self.list.swap_remove(found))
    }

    /// A packet as it came.
    pub fn before(&self, witness: &SampledPacket) -> &[u8] {
        self.bytes.get(witness.bytes.clone()).unwrap_or_default()
    }

    /// One that has not turned up: its flow, and whether another worker had received it; to be asked for until there
    /// is none, when the next walk begins.
    pub fn missing(&mut self) -> Option<(FastKey, bool)> {
        let missing = self.list.pop();
        if missing.is_none() {
            self.bytes.clear();
            self.places = 0;
        }
        missing.map(|witness| (witness.key, witness.handed))
    }
}
