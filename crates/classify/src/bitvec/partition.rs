//! A partition of a bit vector: up to [`LANES`] entries and their dimensions.

use std::sync::Arc;

use mmb_packet::{Kind, Window};

use super::accepted::{AcceptedValues, is_decided};
use super::choose::choose_dimensions;
use super::dimension::Dimension;
use super::lanes::{BLOCK, LANES, LaneBlock, LaneSet, for_each_lane};
use crate::pattern::{CompactKey, Entry, MaskedKey};
use crate::vector::LookupPacket;

/// Number of packets that go through the dimensions together.
pub(super) const STRIDE: usize = 16;

/// The numbers of all packets that go through the dimensions together.
const ALL: [u8; STRIDE] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// With fewer packets, the search for common values is skipped.
const MIN_SHARED: usize = 4;

#[derive(Clone, Debug, Default)]
pub(super) struct Partition {
    /// Slots by lane. Values of unused lanes are undefined.
    pub slots: Vec<u32>,
    pub lanes: Vec<Option<Arc<Entry>>>,
    pub used: LaneSet,
    pub len: usize,
    pub dims: Vec<Dimension>,
    /// The chunks that the dimensions read, as a bit set.
    chunks_read: u8,
    /// Conditions that all entries' covers share (or fewer), in two forms; the second is faster to compare.
    pub common: MaskedKey,
    common_test: CompactKey,
    /// The dimensions whose field every packet has that satisfies `common`, as a bit set.
    always_present: u32,
    /// Entries that `common` and the dimensions decide completely.
    decided: LaneSet,
}

/// Starting point for some packets: the remaining entries, and the dimensions that are already applied (a bit
/// set).
pub(super) struct SharedStart {
    pub lanes: LaneSet,
    done: u32,
}

impl Partition {
    /// An empty partition with dimensions for such entries.
    pub fn new(entries: &[(u32, Arc<Entry>)]) -> Partition {
        let sample: Vec<&Entry> = entries.iter().map(|(_, entry)| &**entry).collect();
        let fields = choose_dimensions(&sample);
        let chunks_read = fields.iter().fold(0, |chunks, field| chunks | field.chunks());
        Partition {
            dims: fields.into_iter().map(Dimension::new).collect(),
            chunks_read,
            ..Partition::default()
        }
    }

    pub fn has_room(&self, entry: &Entry) -> bool {
        self.len < LANES && self.dims.iter().all(|dim| dim.has_room(&AcceptedValues::of(entry, &dim.field)))
    }

    /// Whether all entries require the transport protocol that `entry` requires.
    pub fn is_about(&self, entry: &Entry) -> bool {
        protocol(&self.common) == protocol(&entry.cover())
    }

    pub fn insert(&mut self, slot: u32, entry: Arc<Entry>) {
        let Some(lane) = self.used.first_free() else { return };
        for dim in &mut self.dims {
            let accepted = AcceptedValues::of(&entry, &dim.field);
            dim.insert(lane, &accepted);
        }
        if lane >= self.lanes.len() {
            self.lanes.resize(lane + 1, None);
            self.slots.resize(lane + 1, 0);
        }
        self.slots[lane] = slot;
        self.lanes[lane] = Some(entry);
        self.used.set(lane, true);
        self.len += 1;
        self.decide(lane);
    }

    /// Updates whether the dimensions decide the entry in `lane`. If the entry reduces `common`, all entries
    /// are updated.
    fn decide(&mut self, lane: usize) {
        let mut lanes = lane..lane + 1;
        if let Some(Some(new)) = self.lanes.get(lane) {
            let common = if self.len == 1 { new.cover() } else { self.common.shared(&new.cover()) };
            if common != self.common {
                (self.common, self.common_test) = (common, CompactKey::new(&common));
                let is_present = |dim: &Dimension| common.and(&dim.field.present.masked()) == Some(common);
                self.always_present =
                    self.dims.iter().rev().fold(0, |bits, dim| bits << 1 | u32::from(is_present(dim)));
                lanes = 0..self.lanes.len();
            }
        }
        for lane in lanes {
            if let Some(Some(one)) = self.lanes.get(lane) {
                let fields = self.dims.iter().map(|dim| &dim.field);
                self.decided.set(lane, is_decided(one, fields, &self.common));
            }
        }
    }

    /// Chooses the dimensions again for the current entries.
    pub fn choose_dimensions_again(&mut self) {
        let lanes = self.slots.iter().zip(&self.lanes);
        let entry = |(slot, lane): (&u32, &Option<Arc<Entry>>)| Some((*slot, lane.clone()?));
        let entries: Vec<_> = lanes.filter_map(entry).collect();
        let mut partition = Partition::new(&entries);
        if partition.dims.iter().map(|dim| dim.field).eq(self.dims.iter().map(|dim| dim.field)) {
            return;
        }
        for (slot, entry) in entries {
            partition.insert(slot, entry);
        }
        *self = partition;
    }

    pub fn find(&self, slot: u32) -> Option<usize> {
        self.slots.iter().zip(&self.lanes).position(|(other, lane)| *other == slot && lane.is_some())
    }

    pub fn remove(&mut self, lane: usize) -> Option<Arc<Entry>> {
        let entry = self.lanes.get_mut(lane)?.take()?;
        for dim in &mut self.dims {
            let accepted = AcceptedValues::of(&entry, &dim.field);
            dim.remove(lane, &accepted);
        }
        self.used.set(lane, false);
        self.len -= 1;
        Some(entry)
    }

    /// Number of blocks in use.
    fn blocks(&self) -> usize {
        self.lanes.len().div_ceil(BLOCK)
    }

    /// Starting point with every entry and no dimension applied.
    pub fn all(&self) -> SharedStart {
        SharedStart { lanes: self.used.clone(), done: 0 }
    }

    /// Whether a packet satisfies the common conditions.
    #[inline(always)]
    pub fn accepts(&self, packet: &LookupPacket<'_>) -> bool {
        self.common_test.holds(packet.window)
    }

    /// Copies the packets that satisfy the common conditions to `out`, which has room for all; returns their
    /// number.
    #[inline(always)]
    pub fn select<'a, const N: usize>(
        &self,
        packets: &[LookupPacket<'a>],
        out: &mut [LookupPacket<'a>; N],
    ) -> usize {
        let mut n = 0;
        for packet in packets {
            out[n % N] = *packet;
            n += usize::from(self.accepts(packet));
        }
        n
    }

    /// Applies those dimensions once in which the packets do not differ. Many fields (TTL, traffic class,
    /// length) are equal in most packets of a vector. None if there is no packet, or no entry remains.
    pub fn shared_start(&self, packets: &[LookupPacket<'_>]) -> Option<SharedStart> {
        let mut start = self.all();
        if packets.len() < MIN_SHARED {
            return (!packets.is_empty()).then_some(start);
        }
        let differ = differ(packets, self.chunks_read);
        let blocks = self.blocks();
        for (at, dim) in self.dims.iter().enumerate() {
            if !dim.can_distinguish(&differ) {
                let (mut which, mut interval) = ([0], [0]);
                dim.find_intervals::<false>(packets, &which, &mut interval);
                start.done |= 1 << at;
                if dim.filter::<false>(&interval, &mut which, start.lanes.blocks_mut(), blocks) == 0 {
                    return None;
                }
            }
        }
        Some(start)
    }

    /// See [`BitVector::classify`](super::BitVector::classify). Takes up to [`STRIDE`] packets, which satisfy
    /// the common conditions, and memory for their candidates.
    #[inline(always)]
    pub fn classify(
        &self,
        packets: &[LookupPacket<'_>],
        start: &SharedStart,
        candidates: &mut [LaneBlock],
        hit: &mut impl FnMut(u16, u32),
    ) {
        let blocks = self.blocks();
        let used = &start.lanes.blocks()[..blocks];
        let (mut which, mut intervals) = (ALL, [0; STRIDE]);
        let mut n = packets.len().min(STRIDE);
        for candidates in candidates.chunks_exact_mut(blocks).take(n) {
            candidates.copy_from_slice(used);
        }
        for (at, dim) in self.dims.iter().enumerate() {
            if n == 0 {
                return;
            }
            if start.done >> at & 1 == 1 {
                continue;
            }
            let (which, intervals) = (&mut which[..n], &mut intervals[..n]);
            n = if self.always_present >> at & 1 == 1 {
                dim.find_intervals::<true>(packets, which, intervals);
                dim.filter::<true>(intervals, which, candidates, blocks)
            } else {
                dim.find_intervals::<false>(packets, which, intervals);
                dim.filter::<false>(intervals, which, candidates, blocks)
            };
        }
        for at in which[..n].iter().map(|at| usize::from(*at)) {
            let LookupPacket { window, facts, head } = packets[at];
            for_each_lane(&candidates[at * blocks..][..blocks], |lane| {
                let holds = |found: &Entry| found.covers(window) && found.passes(window, facts);
                if self.decided.contains(lane) || self.lanes[lane].as_deref().is_some_and(holds) {
                    hit(head, self.slots[lane]);
                }
            });
        }
    }
}

/// The bits of some chunks (a bit set) in which packets differ from the first packet.
fn differ(packets: &[LookupPacket<'_>], chunks: u8) -> Window {
    let mut differ = Window::default();
    let Some(LookupPacket { window: first, .. }) = packets.first() else { return differ };
    for (chunk, differ) in differ.chunk.iter_mut().enumerate().filter(|(chunk, _)| chunks & 1 << chunk != 0) {
        *differ = packets.iter().fold(0, |any, packet| any | packet.window.chunk[chunk] ^ first.chunk[chunk]);
    }
    differ
}

/// The bits of a cover that require a transport protocol, as mask and key.
pub(super) fn protocol(cover: &MaskedKey) -> (u8, u8) {
    let (mask, key) = cover.kind_bits();
    (mask & Kind::L4_MASK, key & Kind::L4_MASK)
}
