//! The sessions of a whole vector of packets.
//!
//! Theory of operation. One lookup waits for memory twice: for the bucket and for the half. A vector's lookups wait
//! together: a first pass makes keys and hashes and asks for the buckets, a second one compares tags and asks for the
//! halves that they name, a third one compares keys. What is rare (two equal tags in a bucket, a key outside of its
//! bucket) is left to [`Table::find`], a packet at a time.

use mmb_packet::{Kind, Meta, flags, prefetch};

use super::Table;
use super::hash::{Hash, Hasher};
use super::index::Buckets;
use crate::fcb::Found;
use crate::key::{Key, Packed, bytes, key_of};

/// Packets in a vector, at most.
pub const VECTOR: usize = 256;

/// Lookups of a vector of packets, in the packets' order: [`Lookups::clear`], one [`Lookups::push`] each, and
/// [`Lookups::run`].
#[derive(Debug)]
pub struct Lookups {
    n: usize,
    heads: [[u64; 2]; VECTOR],
    /// Of IPv6 keys only; left over from others elsewhere.
    tails: [[u64; 3]; VECTOR],
    hashes: [Hash; VECTOR],
    found: [Found; VECTOR],
}

/// What the first pass reads of a table, the same for the whole vector.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    hasher: &'a Hasher,
    buckets: Buckets<'a>,
}

impl Table {
    /// For [`Lookups::push`].
    #[inline]
    pub fn view(&self) -> View<'_> {
        View { hasher: &self.hasher, buckets: self.index.buckets() }
    }
}

impl Default for Lookups {
    fn default() -> Self {
        Lookups {
            n: 0,
            heads: [[0; 2]; VECTOR],
            tails: [[0; 3]; VECTOR],
            hashes: [Hash::default(); VECTOR],
            found: [Found::NONE; VECTOR],
        }
    }
}

impl Lookups {
    /// Forgets the last vector.
    #[inline]
    pub fn clear(&mut self) {
        self.n = 0;
    }

    /// The first pass, for the vector's next packet; see [`key_of`] for the arguments. Packets behind the 256th are not
    /// taken in.
    #[inline(always)]
    pub fn push(&mut self, view: &View<'_>, head: &[u8], meta: &Meta) {
        let n = self.n;
        if n >= VECTOR {
            return;
        }
        let common = meta.flags & flags::FRAGMENT == 0;
        let (ip4, ip6) =
            (is_ports_of(meta.kind, Kind::IP4) & common, is_ports_of(meta.kind, Kind::IP6) & common);
        let tag = [meta.kind.0, meta.proto, 0, 0];
        let hash = if ip4
            && let Some(addresses) = bytes(head, meta.l3_off.wrapping_add(12))
            && let Some(ports) = bytes(head, meta.l4_off)
        {
            let key = Packed::ip4(addresses, ports, tag);
            self.heads[n] = key.head;
            view.hasher.ip4(key.head)
        } else if ip6
            && let Some(addresses) = bytes(head, meta.l3_off.wrapping_add(8))
            && let Some(ports) = bytes(head, meta.l4_off)
        {
            let key = Packed::ip6(&addresses, ports, tag);
            (self.heads[n], self.tails[n]) = (key.head, key.tail);
            view.hasher.ip6(&key)
        } else {
            let key = any_key(head, meta);
            (self.heads[n], self.tails[n]) = (key.head, key.tail);
            view.hasher.hash(&key)
        };
        self.hashes[n] = hash;
        prefetch::read(view.buckets.of(hash));
        self.n = n + 1;
    }

    /// The second and the third pass.
    #[inline]
    pub fn run(&mut self, table: &Table) {
        let (buckets, halves) = (table.index.buckets(), table.halves.get());
        let found = &mut self.found[..self.n];
        for (found, &hash) in found.iter_mut().zip(&self.hashes) {
            *found = buckets.of(hash).guess(hash);
            if let Some(half) = halves.get(found.0 as usize) {
                prefetch::read(half);
            }
        }
        for (i, found) in found.iter_mut().enumerate() {
            let half = halves.get(found.0 as usize);
            if !half.is_some_and(|half| half.is(&self.heads[i], &self.tails[i])) && found.is_some() {
                *found = find_again(table, self.heads[i], self.tails[i], self.hashes[i]);
            }
        }
    }

    /// What was found, by packet. [`Found::NONE`] for those without session and those without key.
    #[inline]
    pub fn found(&self) -> &[Found] {
        &self.found[..self.n]
    }

    /// The key of a packet of the vector; that of no session (all zeros) if it has none of its own.
    pub fn key(&self, packet: usize) -> Key {
        let ip6 = Packed { head: self.heads[packet], tail: [0; 3] }.is_ip6();
        Packed { head: self.heads[packet], tail: if ip6 { self.tails[packet] } else { [0; 3] } }.unpack()
    }
}

/// The answer where the guess was wrong or there was none.
#[cold]
fn find_again(table: &Table, head: [u64; 2], tail: [u64; 3], hash: Hash) -> Found {
    table.find_hashed(&Packed { head, tail }, hash)
}

/// Whether a packet is TCP's or UDP's over that version of IP.
#[inline(always)]
fn is_ports_of(kind: Kind, version: u8) -> bool {
    (kind.0 == version | Kind::TCP) | (kind.0 == version | Kind::UDP)
}

/// The key of a packet of any kind; that of no session, all zeros, if it has none.
#[inline(never)]
fn any_key(head: &[u8], meta: &Meta) -> Packed {
    key_of(head, meta).map_or_else(|_| Packed::default(), |key| key.pack())
}
