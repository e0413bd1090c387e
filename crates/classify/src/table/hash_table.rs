//! One hash table of a node. It maps a masked chunk to the entries with this key.

use mmb_packet::window::CHUNKS;
use mmb_packet::{Kind, Window};

use super::branch::Branch;
use super::choose_mask::MaskChoice;
use super::extra_bits::ExtraBits;
use super::guard::{Guard, GuardReader, MAX_KEYS, WAYS};
use super::hash::{Hash, Seeds};
use super::page::Hashing;
use super::path::Path;
use super::store::Store;
use crate::leaf::FEW_VALUES;
use crate::pattern::{Entry, MaskedKey, RuleEntry, TruePredicates};
use crate::vector::{HitSink, KindSet, VectorSummary, kind_bit};

/// The kinds of packets that can satisfy `cover`.
fn kinds_of(cover: &MaskedKey) -> KindSet {
    let (mask, key) = cover.kind_bits();
    let layers4 = [Kind::L4_NONE, Kind::TCP, Kind::UDP, Kind::ICMP, Kind::ICMP6];
    let kinds = layers4.iter().flat_map(|l4| [l4 | Kind::IP4, l4 | Kind::IP6]);
    kinds.filter(|kind| kind & mask == key).fold(0, |kinds, kind| kinds | kind_bit(kind))
}

/// Reduces a mask and a key to the bits in which another key agrees.
fn shared((mask, key): (u128, u128), other: u128) -> (u128, u128) {
    let mask = mask & !(key ^ other);
    (mask, key & mask)
}

/// The bits among `varying` that all of some entries require with the same values; of the entries in up to
/// [`WAYS`] groups, as a guard divides them.
fn further_bits(items: &[RuleEntry], varying: &[u128; CHUNKS]) -> Vec<[u128; CHUNKS]> {
    let mut ways: Vec<MaskedKey> = Vec::new();
    for (_, entry) in items {
        if ways.len() < WAYS {
            ways.push(entry.cover());
            continue;
        }
        let bits = |way: &MaskedKey| way.mask().iter().map(|mask| mask.count_ones()).sum::<u32>();
        let best = ways.iter_mut().max_by_key(|way| bits(&way.shared(&entry.cover())));
        best.into_iter().for_each(|way| *way = way.shared(&entry.cover()));
    }
    ways.iter().map(|way| std::array::from_fn(|chunk| way.mask()[chunk] & varying[chunk])).collect()
}

/// The bits of which some entries require the value 0 and others the value 1.
fn varying_bits(items: &[RuleEntry]) -> [u128; CHUNKS] {
    let (mut ones, mut zeros) = ([0; CHUNKS], [0; CHUNKS]);
    for (_, entry) in items {
        for (chunk, (mask, key)) in entry.cover().mask().iter().zip(entry.cover().key()).enumerate() {
            ones[chunk] |= key;
            zeros[chunk] |= mask & !key;
        }
    }
    std::array::from_fn(|chunk| ones[chunk] & zeros[chunk])
}

/// A table; see the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub chunk: usize,
    pub mask: u128,
    /// The kinds of packets that entries can match. Removals do not clear bits.
    kinds: KindSet,
    /// Bits that all keys have in common, as mask and key. Removals do not extend it.
    common: (u128, u128),
    /// Number of entries.
    pub len: usize,
    pub store: Store<Branch>,
    /// Excludes packets whose key is present, if that pays.
    guard: Option<Guard>,
}

impl Table {
    /// An empty table.
    pub fn new(seeds: Seeds, MaskChoice { chunk, mask }: MaskChoice) -> Self {
        let store = Store::new(Hashing { seeds, extra: ExtraBits::default() }, 0);
        Table { chunk, mask, kinds: 0, common: (0, 0), len: 0, store, guard: None }
    }

    /// Whether the entry can be in this table.
    pub fn accepts(&self, entry: &Entry) -> bool {
        entry.mask(self.chunk) & self.mask == self.mask
    }

    /// The facts about packets that reach this table by `path` and have this key.
    pub fn path(&self, path: &Path, key: u128) -> Path {
        path.with(self.chunk, self.mask, key)
    }

    pub fn key_of(&self, entry: &Entry) -> u128 {
        entry.key(self.chunk) & self.mask
    }

    /// Adds an entry that the table [accepts](Table::accepts).
    pub fn insert(&mut self, item: RuleEntry, path: &Path) {
        let key = self.key_of(&item.1);
        let path = self.path(path, key);
        self.kinds |= kinds_of(&item.1.cover());
        self.common = if self.len == 0 { (self.mask, key) } else { shared(self.common, key) };
        self.len += 1;
        let seeds = self.store.hashing.seeds;
        self.add_to_guard(&item.1);
        self.store.change(key, |branch| branch.insert(item, &path, seeds));
    }

    /// Fills a new table with entries. `packets` stand for the traffic.
    pub fn fill(&mut self, mut items: Vec<RuleEntry>, path: &Path, packets: &[[u128; CHUNKS]]) {
        let seeds = self.store.hashing.seeds;
        self.len = items.len();
        self.kinds = items.iter().fold(0, |kinds, item| kinds | kinds_of(&item.1.cover()));
        let Table { chunk, mask, .. } = *self;
        let key_of = |item: &RuleEntry| item.1.key(chunk) & mask;
        items.sort_by_key(key_of);
        let keys = items.chunk_by(|a, b| key_of(a) == key_of(b)).count();
        let extra = ExtraBits::choose(&items, (chunk, mask), packets);
        self.store = Store::new(Hashing { seeds, extra }, keys);
        let first = items.first().map_or(0, key_of);
        self.common = items.iter().map(key_of).fold((mask, first), shared);
        if keys <= MAX_KEYS {
            let mut varying = varying_bits(&items);
            varying[0] &= !FEW_VALUES;
            varying[chunk] &= !mask;
            let groups = items.chunk_by(|a, b| key_of(a) == key_of(b));
            let further: Vec<_> = groups.flat_map(|items| further_bits(items, &varying)).collect();
            self.guard = Guard::new(keys, &further);
            items.iter().for_each(|item| self.add_to_guard(&item.1));
        }
        for group in items.chunk_by(|a, b| key_of(a) == key_of(b)) {
            let key = key_of(&group[0]);
            let path = self.path(path, key);
            self.store.change(key, |branch| *branch = Branch::of(group, &path, seeds));
        }
    }

    /// Adds an entry to the guard, before the entry is in the table.
    fn add_to_guard(&self, entry: &Entry) {
        if let Some(guard) = &self.guard {
            guard.add(self.store.hashing.hash(self.key_of(entry)), &entry.cover());
        }
    }

    /// Removes an entry. Returns false if it is not here.
    pub fn remove(&mut self, slot: u32, entry: &Entry, path: &Path) -> bool {
        let key = self.key_of(entry);
        let path = self.path(path, key);
        let removed = self.store.change(key, |branch| branch.remove(slot, entry, &path));
        self.len -= usize::from(removed);
        removed
    }

    /// Whether a packet of these kinds may match.
    #[inline]
    pub fn has_kinds(&self, kinds: KindSet) -> bool {
        self.kinds & kinds != 0
    }

    /// Whether no packet of a vector can match through the table. One query of the filter suffices if all
    /// packets have the same key.
    #[inline]
    pub fn is_excluded(&self, summary: &VectorSummary) -> bool {
        let (all, any) = summary.bits(self.chunk);
        let (mask, key) = self.common;
        key & !any | (mask & !key) & all != 0
            || self.store.spill().is_empty()
                && self.only_hash(summary).is_some_and(|hash| !self.store.filter.may_contain(hash))
    }

    /// The hash of the packets' key if all packets of a vector have the same.
    #[inline]
    pub fn only_hash(&self, summary: &VectorSummary) -> Option<Hash> {
        let (all, any) = summary.bits(self.chunk);
        (self.mask & (all ^ any) == 0).then(|| self.store.hashing.hash(all & self.mask))
    }

    /// The packet's masked chunk.
    #[inline(always)]
    pub fn key(&self, window: &Window) -> u128 {
        window.chunk[self.chunk % CHUNKS] & self.mask
    }

    /// The value of the table's extra bits in a packet.
    #[inline(always)]
    pub fn extra_value(&self, window: &Window) -> u16 {
        self.store.hashing.extra.value(window.chunk[self.chunk % CHUNKS])
    }

    /// The guard, for loops over many packets.
    #[inline(always)]
    pub fn guard_reader(&self) -> Option<GuardReader<'_>> {
        self.guard.as_ref().map(Guard::reader)
    }

    /// Bytes of the guard's memory.
    pub fn guard_bytes(&self) -> usize {
        self.guard.as_ref().map_or(0, Guard::bytes)
    }

    /// A function that queries the filter and the guard; for loops over many packets. False is certain.
    #[inline(always)]
    pub fn filter_reader(&self) -> impl Fn(&Window) -> bool + use<'_> {
        let (chunk, mask, seeds) = (self.chunk % CHUNKS, self.mask, self.store.hashing.seeds);
        let (filter, guard) = (self.store.filter.reader(), self.guard_reader());
        move |window| {
            let hash = seeds.hash(window.chunk[chunk] & mask);
            filter.may_contain(hash) && guard.is_none_or(|guard| guard.may_match(hash, window))
        }
    }

    /// Adds the rules that match a packet to `sink`.
    #[inline]
    pub fn visit(&self, window: &Window, facts: TruePredicates<'_>, sink: &mut HitSink<'_>) {
        self.visit_lanes(0, window, facts, sink);
        self.visit_spill(window, facts, sink);
    }

    /// Adds the rules of those lanes whose tag agrees with the packet's key and that accept its extra bits,
    /// without the first `skip` of them. It is not inlined, so that loops over packets of which few come here
    /// stay small.
    #[inline(never)]
    pub fn visit_lanes(
        &self,
        skip: usize,
        window: &Window,
        facts: TruePredicates<'_>,
        sink: &mut HitSink<'_>,
    ) {
        let packet = self.key(window);
        let hash = self.store.hashing.hash(packet);
        if !self.store.filter.may_contain(hash)
            || self.guard_reader().is_some_and(|guard| !guard.may_match(hash, window))
        {
            return;
        }
        let page = self.store.page(hash);
        for at in page.accepting(hash, || self.extra_value(window)).skip(skip) {
            let is_key = *page.body.key(at) == packet;
            match page.value(at) {
                Ok(slot) if is_key => sink.push(*slot),
                Ok(_) => {}
                Err(branch) => branch.visit(is_key, window, facts, sink),
            }
        }
    }

    /// Adds the rules of matching keys that are outside the pages.
    #[inline]
    pub fn visit_spill(&self, window: &Window, facts: TruePredicates<'_>, sink: &mut HitSink<'_>) {
        let packet = self.key(window);
        for (_, branch) in self.store.spill().iter().filter(|(key, _)| *key == packet) {
            branch.visit(true, window, facts, sink);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_sets_follow_from_covers() {
        let tcp4 = kind_bit(Kind::TCP | Kind::IP4);
        let udp6 = kind_bit(Kind::UDP | Kind::IP6);
        let none4 = kind_bit(Kind::IP4);
        let tcp = kinds_of(&MaskedKey::kind((Kind::L4_MASK, Kind::TCP)));
        assert!(tcp & tcp4 != 0 && tcp & udp6 == 0 && tcp & none4 == 0);
        let ip6 = kinds_of(&MaskedKey::kind((Kind::L3_MASK, Kind::IP6)));
        assert!(ip6 & udp6 != 0 && ip6 & tcp4 == 0);
        assert_eq!(kinds_of(&MaskedKey::IP).count_ones(), 10);
    }
}
