//! A partition of a bit vector: up to [`LANES`] entries and their dimensions.

use std::sync::Arc;

use mmb_packet::{Kind, Window};

use super::accepted::{AcceptedValues, is_decided};
use super::choose::choose_dimensions;
use super::columns::{Compare, FieldColumns, GROUP, Narrow, Wide, portable};
use super::dimension::Dimension;
use super::lanes::{BLOCK, BLOCKS, LANES, LaneBlock, LaneSet, lanes_of};
use super::start::{SharedStart, common_bits};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::pattern::{CompactKey, Entry, MaskedKey};
use crate::vector::{Level, LookupPacket, Simd, VECTOR};

/// Number of packets that go through the dimensions together.
pub(super) const STRIDE: usize = 64;

/// The numbers of all packets that go through the dimensions together.
const ALL: [u8; STRIDE] = {
    let (mut all, mut at) = ([0; STRIDE], 0);
    while at < STRIDE {
        all[at] = at as u8;
        at += 1;
    }
    all
};

/// With fewer packets, the search for common values is skipped.
const MIN_SHARED: usize = 4;

/// Measured costs in clock ticks of a dimension for a packet if its interval is searched, and of each block
/// of the row.
const SEARCH: usize = 16;
const ROW_BLOCK: usize = 4;

#[derive(Clone, Debug, Default)]
pub(super) struct Partition {
    /// Slots by lane. Values of unused lanes are undefined.
    pub slots: Vec<u32>,
    pub lanes: Vec<Option<Arc<Entry>>>,
    pub used: LaneSet,
    pub len: usize,
    pub dims: Vec<Dimension>,
    /// Conditions that all entries' covers share (or fewer), in two forms; the second is faster to compare.
    pub common: MaskedKey,
    common_test: CompactKey,
    /// The common conditions as bits of the [`KIND`](mmb_packet::window::KIND) byte, if they are no more.
    common_kind: Option<(u8, u8)>,
    /// The dimensions whose field every packet has that satisfies `common`, as a bit set.
    always_present: u32,
    /// Entries that `common` and the dimensions decide completely.
    decided: LaneSet,
}

impl Partition {
    /// An empty partition with dimensions for such entries.
    pub fn new(entries: &[(u32, Arc<Entry>)]) -> Partition {
        let sample: Vec<&Entry> = entries.iter().map(|(_, entry)| &**entry).collect();
        let fields = choose_dimensions(&sample);
        Partition { dims: fields.into_iter().map(Dimension::new).collect(), ..Partition::default() }
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
                let kind = common.kind_bits();
                self.common_kind = (MaskedKey::kind(kind) == common).then_some(kind);
                let is_present = |dim: &Dimension| common.implies(&dim.field.present.masked());
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

    /// Whether a packet satisfies the common conditions.
    #[inline(always)]
    pub fn accepts(&self, packet: &LookupPacket<'_>) -> bool {
        self.common_test.holds(packet.window)
    }

    /// Writes the indexes of the packets that satisfy the common conditions; returns their number. Packets of
    /// different protocols alternate without order, so no branch depends on one.
    #[inline(always)]
    fn select(&self, packets: &[LookupPacket<'_>], kinds: &[u8; VECTOR], own: &mut [u8; VECTOR]) -> usize {
        let mut n = 0;
        if let Some((mask, value)) = self.common_kind {
            for (at, kind) in kinds.iter().enumerate().take(packets.len()) {
                own[n % VECTOR] = at as u8;
                n += usize::from(kind & mask == value);
            }
            return n;
        }
        for (at, packet) in packets.iter().enumerate() {
            own[n % VECTOR] = at as u8;
            n += usize::from(self.common_test.differing_bits(packet.window) == 0);
        }
        n
    }

    /// Starting point with every entry and no dimension applied.
    fn all(&self) -> SharedStart {
        let dims = (1 << self.dims.len()) - 1;
        SharedStart { lanes: self.used.clone(), dims, present: self.always_present }
    }

    /// Calls `hit` with the head of each packet (at most [`VECTOR`]) and the slot of each entry that matches
    /// it. Pivots are not checked. `kinds` has the [`KIND`](mmb_packet::window::KIND) bytes of the packets.
    #[allow(unsafe_code)]
    #[inline]
    pub fn classify(
        &self,
        packets: &[LookupPacket<'_>],
        kinds: &[u8; VECTOR],
        (columns, simd): (&mut FieldColumns, Simd),
        hit: &mut impl FnMut(u16, u32),
    ) {
        #[cfg(target_arch = "x86_64")]
        match simd.level() {
            // SAFETY: the level says that the processor has the instructions.
            Level::Avx512 => return unsafe { self.classify_avx512(packets, kinds, columns, hit) },
            // SAFETY: as above.
            Level::Avx2 => return unsafe { self.classify_avx2(packets, kinds, columns, hit) },
            Level::Portable => {}
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = simd;
        self.classify_with(packets, kinds, (columns, &portable()), hit);
    }

    /// [`Partition::classify`] with AVX-512; the caller has the level for it.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    fn classify_avx512(
        &self,
        packets: &[LookupPacket<'_>],
        kinds: &[u8; VECTOR],
        columns: &mut FieldColumns,
        hit: &mut impl FnMut(u16, u32),
    ) {
        let compare = (
            |words: &Narrow, condition| avx512::compare_narrow(words, condition),
            |words: &Wide, condition| avx512::compare_wide(words, condition),
            avx512::TICKS,
        );
        self.classify_with(packets, kinds, (columns, &compare), hit);
    }

    /// [`Partition::classify`] with AVX2; the caller has the level for it.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn classify_avx2(
        &self,
        packets: &[LookupPacket<'_>],
        kinds: &[u8; VECTOR],
        columns: &mut FieldColumns,
        hit: &mut impl FnMut(u16, u32),
    ) {
        let compare = (
            |words: &Narrow, condition| avx2::compare_narrow(words, condition),
            |words: &Wide, condition| avx2::compare_wide(words, condition),
            avx2::TICKS,
        );
        self.classify_with(packets, kinds, (columns, &compare), hit);
    }

    #[inline(always)]
    fn classify_with(
        &self,
        packets: &[LookupPacket<'_>],
        kinds: &[u8; VECTOR],
        (columns, compare): (&mut FieldColumns, &impl Compare),
        hit: &mut impl FnMut(u16, u32),
    ) {
        let mut own = [0; VECTOR];
        let n = self.select(packets, kinds, &mut own);
        let own = &own[..n];
        let mut start = self.all();
        if n >= MIN_SHARED {
            let mut windows = [packets[0].window; VECTOR];
            let (least, most) = common_bits(packets, own, &mut windows);
            let windows = &windows[..n];
            if !start.apply(&self.dims, (&least, &most), self.blocks()) {
                return;
            }
            if self.should_compare(&start, n, compare.ticks()) {
                self.compare(windows, &start, (columns, compare));
                return self.collect((packets, own), &start, columns, hit);
            }
        }
        let mut candidates = [LaneBlock::EMPTY; BLOCKS * STRIDE];
        for own in own.chunks(STRIDE) {
            let mut group = [packets[0]; STRIDE];
            group.iter_mut().zip(own).for_each(|(packet, at)| *packet = packets[usize::from(*at)]);
            self.intersect(&group[..own.len()], &start, &mut candidates, hit);
        }
    }

    /// [`Partition::classify`] for one packet.
    pub fn classify_one(&self, packet: &LookupPacket<'_>, hit: &mut impl FnMut(u16, u32)) {
        if self.accepts(packet) {
            let mut candidates = [LaneBlock::EMPTY; BLOCKS];
            self.intersect(std::slice::from_ref(packet), &self.all(), &mut candidates, hit);
        }
    }

    /// The dimensions that are left, with their numbers.
    fn left<'a>(&'a self, start: &'a SharedStart) -> impl Iterator<Item = (usize, &'a Dimension)> {
        self.dims.iter().enumerate().filter(|(at, _)| start.dims >> at & 1 == 1)
    }

    /// Whether comparing the entries that remain with `n` packets costs less than finding the intervals of
    /// each packet. `ticks` is the cost of a condition for [`GROUP`] packets.
    fn should_compare(&self, start: &SharedStart, n: usize, ticks: usize) -> bool {
        let lanes = &start.lanes.blocks()[..self.blocks()];
        let search = n * start.dims.count_ones() as usize * (SEARCH + ROW_BLOCK * self.blocks());
        let words = self.left(start).try_fold(0, |words, (at, dim)| {
            let is_present = start.present >> at & 1 == 1;
            Some(words + dim.words_to_compare(lanes).filter(|_| is_present)?)
        });
        words.is_some_and(|words| n.div_ceil(GROUP) * words * ticks <= search)
    }

    /// Compares the entries that remain with all packets by the dimensions that are left. All packets have
    /// their fields.
    #[inline(always)]
    fn compare(
        &self,
        windows: &[&Window],
        start: &SharedStart,
        (columns, compare): (&mut FieldColumns, &impl Compare),
    ) {
        let lanes = &start.lanes.blocks()[..self.blocks()];
        columns.start(lanes.iter().map(|lanes| lanes.len() as usize).sum(), windows.len());
        for (_, dim) in self.left(start) {
            dim.apply_to_columns(columns, lanes, windows, compare);
        }
    }

    /// Calls `hit` for the packets, those with indexes `own`, that remain for an entry in columns.
    #[inline(always)]
    fn collect(
        &self,
        (packets, own): (&[LookupPacket<'_>], &[u8]),
        start: &SharedStart,
        columns: &FieldColumns,
        hit: &mut impl FnMut(u16, u32),
    ) {
        for (lane, set) in lanes_of(&start.lanes.blocks()[..self.blocks()]).zip(columns.sets()) {
            if set.is_empty() {
                continue;
            }
            let Some(entry) = &self.lanes[lane] else { continue };
            for packet in set.packets().map(|at| &packets[usize::from(own[at])]) {
                if self.decided.contains(lane) || self.holds(entry, packet) {
                    hit(packet.head, self.slots[lane]);
                }
            }
        }
    }

    /// Whether a packet matches an entry, apart from the pivot.
    fn holds(&self, entry: &Entry, packet: &LookupPacket<'_>) -> bool {
        entry.covers(packet.window) && entry.passes(packet.window, packet.facts)
    }

    /// Intersects the rows of up to [`STRIDE`] packets, which satisfy the common conditions. `candidates` is
    /// memory for the entries that remain for them.
    #[inline(always)]
    fn intersect(
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
        for (at, dim) in self.left(start) {
            if n == 0 {
                return;
            }
            let (which, intervals) = (&mut which[..n], &mut intervals[..n]);
            n = if start.present >> at & 1 == 1 {
                dim.find_intervals::<true>(packets, which, intervals);
                dim.filter::<true>(intervals, which, candidates, blocks)
            } else {
                dim.find_intervals::<false>(packets, which, intervals);
                dim.filter::<false>(intervals, which, candidates, blocks)
            };
        }
        for at in which[..n].iter().map(|at| usize::from(*at)) {
            let packet = &packets[at];
            for lane in lanes_of(&candidates[at * blocks..][..blocks]) {
                let holds = |entry: &Arc<Entry>| self.holds(entry, packet);
                if self.decided.contains(lane) || self.lanes[lane].as_ref().is_some_and(holds) {
                    hit(packet.head, self.slots[lane]);
                }
            }
        }
    }
}

/// The bits of a cover that require a transport protocol, as mask and key.
pub(super) fn protocol(cover: &MaskedKey) -> (u8, u8) {
    let (mask, key) = cover.kind_bits();
    (mask & Kind::L4_MASK, key & Kind::L4_MASK)
}
