//! One table of a node: the entries whose cover has a mask's bits, by what the mask leaves of a chunk.

use mmb_packet::window::{CHUNKS, KIND};
use mmb_packet::{Kind, Window};

use crate::choose::Choice;
use crate::hash::Seeds;
use crate::leaf::Item;
use crate::masked::Masked;
use crate::node::Path;
use crate::owner::Owner;
use crate::pattern::{Entry, Facts};
use crate::sink::Sink;
use crate::store::Store;

/// The kinds of packets that an entry, or a batch, is about: bit `kind_bit(kind)` for each.
pub(crate) type Kinds = u32;

/// The bit in [`Kinds`] for a window's [`KIND`] byte: all that [`Kind`] defines have one of their own.
#[inline(always)]
pub(crate) fn kind_bit(kind: u8) -> Kinds {
    1 << ((kind >> 3 & 0x1e) | (kind >> 1 & 1))
}

/// The kinds of packets that can satisfy `cover`.
fn kinds_of(cover: &Masked) -> Kinds {
    let byte = |chunks: &[u128; CHUNKS]| chunks[0].to_ne_bytes()[KIND];
    let (mask, key) = (byte(cover.mask()), byte(cover.key()));
    let layers4 = [Kind::L4_NONE, Kind::TCP, Kind::UDP, Kind::ICMP, Kind::ICMP6];
    let kinds = layers4.iter().flat_map(|l4| [l4 | Kind::IP4, l4 | Kind::IP6]);
    kinds.filter(|kind| kind & mask == key).fold(0, |kinds, kind| kinds | kind_bit(kind))
}

/// What a mask and a key have in common with another key.
fn shared((mask, key): (u128, u128), other: u128) -> (u128, u128) {
    let mask = mask & !(key ^ other);
    (mask, key & mask)
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub chunk: usize,
    pub mask: u128,
    /// Kinds of packets that some entry is about, or was since the table was made.
    kinds: Kinds,
    /// What all keys have in common, or had: in `mask`, `key`.
    common: (u128, u128),
    /// Entries.
    pub len: usize,
    pub store: Store,
}

impl Table {
    /// An empty table.
    pub fn new(seeds: Seeds, Choice { chunk, mask }: Choice) -> Self {
        Table { chunk, mask, kinds: 0, common: (0, 0), len: 0, store: Store::new(seeds, 0) }
    }

    /// Whether the entry belongs here if it does not belong to a table before.
    pub fn takes(&self, entry: &Entry) -> bool {
        entry.cover.mask()[self.chunk] & self.mask == self.mask
    }

    /// What is known of packets that come by `path` and have this key.
    pub fn path(&self, path: &Path, key: u128) -> Path {
        path.with(self.chunk, self.mask, key)
    }

    pub fn key_of(&self, entry: &Entry) -> u128 {
        entry.cover.key()[self.chunk] & self.mask
    }

    /// Adds an entry that [`Table::takes`].
    pub fn insert(&mut self, item: Item, path: &Path) {
        let key = self.key_of(&item.1);
        let path = self.path(path, key);
        self.kinds |= kinds_of(&item.1.cover);
        self.common = if self.len == 0 { (self.mask, key) } else { shared(self.common, key) };
        self.len += 1;
        let seeds = self.store.seeds;
        self.store.change(key, |owner| owner.insert(item, &path, seeds));
    }

    /// Adds entries to a new table.
    pub fn fill(&mut self, mut items: Vec<Item>, path: &Path) {
        let seeds = self.store.seeds;
        self.len = items.len();
        self.kinds = items.iter().fold(0, |kinds, item| kinds | kinds_of(&item.1.cover));
        let Table { chunk, mask, .. } = *self;
        let key_of = |item: &Item| item.1.cover.key()[chunk] & mask;
        items.sort_by_key(key_of);
        self.store = Store::new(seeds, items.chunk_by(|a, b| key_of(a) == key_of(b)).count());
        let first = items.first().map_or(0, key_of);
        self.common = items.iter().map(key_of).fold((mask, first), shared);
        for group in items.chunk_by(|a, b| key_of(a) == key_of(b)) {
            let key = key_of(&group[0]);
            let path = self.path(path, key);
            self.store.change(key, |owner| *owner = Owner::of(group, &path, seeds));
        }
    }

    /// Takes an entry out; false: it is not here.
    pub fn remove(&mut self, slot: u32, entry: &Entry, path: &Path) -> bool {
        let key = self.key_of(entry);
        let path = self.path(path, key);
        let removed = self.store.change(key, |owner| owner.remove(slot, entry, &path));
        self.len -= usize::from(removed);
        removed
    }

    /// Whether some packet of these kinds may match.
    #[inline]
    pub fn concerns(&self, kinds: Kinds) -> bool {
        self.kinds & kinds != 0
    }

    /// Whether none of some packets can match: `all` are the bits that every packet has in the table's chunk, `any` those
    /// that some packet has.
    #[inline]
    pub fn is_out_of_question(&self, all: u128, any: u128) -> bool {
        let (mask, key) = self.common;
        key & !any | (mask & !key) & all != 0
    }

    /// What the mask leaves of a packet.
    #[inline(always)]
    pub fn key(&self, window: &Window) -> u128 {
        window.chunk[self.chunk % CHUNKS] & self.mask
    }

    /// Asks the filter about the keys of many packets.
    #[inline(always)]
    pub fn look(&self) -> impl Fn(&Window) -> bool + use<'_> {
        let (chunk, mask, seeds) = (self.chunk % CHUNKS, self.mask, self.store.seeds);
        let filter = self.store.filter.look();
        move |window| filter.may_have(seeds.hash(window.chunk[chunk] & mask))
    }

    /// Gives `sink` what matches a packet.
    #[inline]
    pub fn visit(&self, window: &Window, facts: Facts<'_>, sink: &mut Sink<'_>) {
        self.visit_lanes(0, window, facts, sink);
        self.visit_spill(window, facts, sink);
    }

    /// Gives `sink` what matches a packet in the lanes of its group that agree with the hash of its key, without the
    /// first `skip` of them.
    #[inline]
    pub fn visit_lanes(&self, skip: usize, window: &Window, facts: Facts<'_>, sink: &mut Sink<'_>) {
        let packet = self.key(window);
        let hash = self.store.seeds.hash(packet);
        if !self.store.filter.may_have(hash) {
            return;
        }
        let page = self.store.page(hash);
        for at in page.candidates(hash).skip(skip) {
            let is_key = page.body.key(at) == packet;
            match page.body.value(at) {
                Ok(slot) if is_key => sink.one(*slot),
                Ok(_) => {}
                Err(owner) => owner.visit(is_key, window, facts, sink),
            }
        }
    }

    /// Gives `sink` what stands outside the pages and matches a packet.
    #[inline]
    pub fn visit_spill(&self, window: &Window, facts: Facts<'_>, sink: &mut Sink<'_>) {
        let packet = self.key(window);
        for (_, owner) in self.store.spill().iter().filter(|(key, _)| *key == packet) {
            owner.visit(true, window, facts, sink);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_tell_what_can_match() {
        let tcp4 = kind_bit(Kind::TCP | Kind::IP4);
        let udp6 = kind_bit(Kind::UDP | Kind::IP6);
        let none4 = kind_bit(Kind::IP4);
        let tcp = kinds_of(&Masked::kind((Kind::L4_MASK, Kind::TCP)));
        assert!(tcp & tcp4 != 0 && tcp & udp6 == 0 && tcp & none4 == 0);
        let ip6 = kinds_of(&Masked::kind((Kind::L3_MASK, Kind::IP6)));
        assert!(ip6 & udp6 != 0 && ip6 & tcp4 == 0);
        assert_eq!(kinds_of(&Masked::IP).count_ones(), 10);
    }
}
