//! One table per mask, whatever the number of chunks it uses.

use mmb_packet::window::{CHUNKS, KIND};
use mmb_packet::{Kind, Window};

use crate::batch::Hit;
use crate::hash::Seeds;
use crate::masked::Masked;
use crate::rules::Nots;
use crate::store::{Occupancy, Store};

/// The kinds of packets that a key, or a batch, is about: bit `kind_bit(kind)` for each.
pub(crate) type Kinds = u32;

/// The bit in [`Kinds`] for a window's [`KIND`] byte: all that [`Kind`] defines have one of their own.
#[inline(always)]
pub(crate) fn kind_bit(kind: u8) -> Kinds {
    1 << ((kind >> 3 & 0x1e) | (kind >> 1 & 1))
}

/// The kinds of packets that can satisfy `must`.
fn kinds_of(must: &Masked) -> Kinds {
    let byte = |chunks: &[u128; CHUNKS]| chunks[0].to_ne_bytes()[KIND];
    let (mask, key) = (byte(must.mask()), byte(must.key()));
    let layers4 = [Kind::L4_NONE, Kind::TCP, Kind::UDP, Kind::ICMP, Kind::ICMP6];
    let kinds = layers4.iter().flat_map(|l4| [l4 | Kind::IP4, l4 | Kind::IP6]);
    kinds.filter(|kind| kind & mask == key).fold(0, |kinds, kind| kinds | kind_bit(kind))
}

/// A store for each number of chunks: one, the commonest, has code of its own that way.
#[derive(Clone, Debug)]
enum Stores {
    One(Store<1>),
    Two(Store<2>),
    Three(Store<3>),
    Four(Store<4>),
    Five(Store<5>),
}

macro_rules! with_store {
    ($stores:expr, $store:ident => $do:expr) => {
        match $stores {
            Stores::One($store) => $do,
            Stores::Two($store) => $do,
            Stores::Three($store) => $do,
            Stores::Four($store) => $do,
            Stores::Five($store) => $do,
        }
    };
}

/// The rules of one mask.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    mask: [u128; CHUNKS],
    /// Kinds of packets that some key is about, or was since the table was last empty.
    kinds: Kinds,
    stores: Stores,
}

impl Table {
    /// An empty table; the mask uses chunk 0, as all do that ask for IP.
    pub fn new(seeds: Seeds, mask: &[u128; CHUNKS]) -> Self {
        let mut used = (0..CHUNKS).filter(|&i| i == 0 || mask[i] != 0);
        let n = used.clone().count();
        let mut next = || used.next().unwrap_or(0);
        let stores = match n {
            1 => Stores::One(Store::new(seeds, [next()], mask)),
            2 => Stores::Two(Store::new(seeds, [next(), next()], mask)),
            3 => Stores::Three(Store::new(seeds, [next(), next(), next()], mask)),
            4 => Stores::Four(Store::new(seeds, [next(), next(), next(), next()], mask)),
            _ => Stores::Five(Store::new(seeds, [next(), next(), next(), next(), next()], mask)),
        };
        Table { mask: *mask, kinds: 0, stores }
    }

    /// The mask, chunk by chunk.
    pub fn mask(&self) -> &[u128; CHUNKS] {
        &self.mask
    }

    /// Adds a rule; returns its key's hash.
    pub fn insert(&mut self, must: &Masked, slot: u32, nots: Option<&Nots>) -> u64 {
        self.kinds |= kinds_of(must);
        with_store!(&mut self.stores, store => store.insert(must.key(), slot, nots))
    }

    /// Takes out a rule whose key has this hash. None: it is not here; otherwise the chunks that its residual
    /// constraints read, as bits.
    pub fn remove(&mut self, hash: u64, slot: u32) -> Option<u8> {
        with_store!(&mut self.stores, store => store.remove(hash, slot))
    }

    pub fn is_empty(&self) -> bool {
        with_store!(&self.stores, store => store.is_empty())
    }

    pub fn occupancy(&self) -> Occupancy {
        with_store!(&self.stores, store => store.occupancy())
    }

    /// Whether some packet of these kinds may match.
    #[inline]
    pub fn concerns(&self, kinds: Kinds) -> bool {
        self.kinds & kinds != 0
    }

    /// Appends a hit for each rule that matches each of the windows, in ascending order of packets.
    pub fn classify(&self, windows: &[Window], hits: &mut Vec<Hit>) {
        with_store!(&self.stores, store => store.classify(windows, hits));
    }
}

/// The chunks that a mask uses, as bits.
pub(crate) fn chunks_of(mask: &[u128; CHUNKS]) -> u8 {
    (0..CHUNKS).fold(0, |chunks, i| chunks | u8::from(mask[i] != 0) << i)
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
