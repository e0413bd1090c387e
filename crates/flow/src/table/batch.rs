//! The sessions of a whole vector of packets.
//!
//! Theory of operation. One lookup waits for memory twice: for the bucket and for the half. A vector's lookups wait
//! together: a first pass makes keys and hashes and asks for the buckets, and, some packets behind, compares tags and asks for
//! the halves that they name; a second one compares keys. Memory that is far thus comes while packets are parsed, and not
//! all at once, which takes longer. What is rare (two equal tags in a bucket, a key outside of its bucket) is left to
//! [`Table::find`], a packet at a time. What happens to the table between the passes does no harm: a half that is named is looked at.
//!
//! While the cache in front of the index is on ([`super::recall`]), the first pass asks for its slots in the place of
//! buckets, and for the halves that they name, and only packets without a slot of theirs go through the index, together as
//! well.

use mmb_packet::{Common, Kind, Meta, flags, prefetch};

use super::Table;
use super::hash::Hash;
use super::recall::{Marker, Recall};
use crate::fcb::{Found, Half, half_flags};
use crate::key::{Key, Packed, bytes, key_of};

/// Packets in a vector, at most.
pub const VECTOR: usize = 256;

/// How many packets later the half is asked for than what names it.
const LAG: usize = 16;

/// Lookups of a vector of packets, in the packets' order: [`Lookups::fill`], then [`Lookups::run`].
#[derive(Debug)]
pub struct Lookups {
    n: usize,
    heads: [[u64; 2]; VECTOR],
    /// Of IPv6 keys only; left over from others elsewhere.
    tails: [[u64; 3]; VECTOR],
    hashes: [Hash; VECTOR],
    found: [Found; VECTOR],
    pub(super) recall: Recall,
    /// Whether this vector is looked up by the cache.
    recalls: bool,
    markers: [Marker; VECTOR],
    /// So many packets, from the first one on, have been guessed about.
    guessed: usize,
    /// Packets without a slot of theirs, and how many they are.
    missed: [u8; VECTOR],
    misses: usize,
    /// How many packets have been taken in by [`Lookups::take_in`] and not been looked up, and who they are.
    ahead: usize,
    who: [usize; VECTOR],
}

impl Default for Lookups {
    fn default() -> Self {
        Lookups {
            n: 0,
            heads: [[0; 2]; VECTOR],
            tails: [[0; 3]; VECTOR],
            hashes: [Hash::default(); VECTOR],
            found: [Found::NONE; VECTOR],
            recall: Recall::default(),
            recalls: false,
            markers: [Marker::default(); VECTOR],
            guessed: 0,
            missed: [0; VECTOR],
            misses: 0,
            ahead: 0,
            who: [0; VECTOR],
        }
    }
}

impl Lookups {
    /// The first pass: takes in a vector of `n` packets in the place of the last one; those behind the 256th are left out.
    /// `packet` answers the packet at a position, with what its parse found, as [`key_of`] wants them; it is asked for each
    /// position once, in order.
    #[inline(always)]
    pub fn fill<'p>(
        &mut self,
        table: &Table,
        n: usize,
        mut packet: impl FnMut(usize) -> (&'p [u8], &'p Meta),
    ) {
        self.begin();
        self.n = n.min(VECTOR);
        // Two loops, since the compiler makes no two of one that asks within.
        if self.recalls {
            for at in 0..self.n.min(VECTOR) {
                let (head, meta) = packet(at);
                self.put_recalling(table, at, head, meta);
            }
        } else {
            for at in 0..self.n.min(VECTOR) {
                let (head, meta) = packet(at);
                self.put(table, at, head, meta);
            }
        }
        self.guessed = self.n.saturating_sub(LAG);
    }

    /// The same in parts, for whoever has the packets in hand before their session is wanted: this, then
    /// [`Lookups::take_in`] for each packet, then [`Lookups::are_in`].
    #[inline(always)]
    pub fn begin(&mut self) {
        (self.ahead, self.guessed, self.misses) = (0, 0, 0);
        self.recalls = self.recall.is_on();
    }

    /// Takes in the packet at a position.
    #[inline(always)]
    pub fn take_in(&mut self, table: &Table, at: usize, head: &[u8], meta: &Meta) {
        let at = at % VECTOR;
        if self.recalls {
            self.put_recalling(table, at, head, meta);
        } else {
            self.put(table, at, head, meta);
        }
    }

    /// The same of a packet of which this is in hand; `brought`: the hash that it brings along from its network card.
    #[inline(always)]
    pub fn take_in4(&mut self, table: &Table, at: usize, common: &Common<8>, brought: Option<u32>) {
        let at = at % VECTOR;
        let key = Packed::ip4(common.addresses, common.ports, common.tag.to_le_bytes());
        self.heads[at] = key.head;
        match (self.recalls, brought) {
            (true, None) => self.recall_later(table, at, Marker::of(&key)),
            (true, Some(hash)) => self.recall_later(table, at, Marker::of_hash(hash, is_higher4(&key))),
            (false, _) => self.find_later(table, at, table.hasher.ip4(key.head)),
        }
    }

    /// The same of IPv6.
    #[inline(always)]
    pub fn take_in6(&mut self, table: &Table, at: usize, common: &Common<32>, brought: Option<u32>) {
        let at = at % VECTOR;
        let key = Packed::ip6(&common.addresses, common.ports, common.tag.to_le_bytes());
        (self.heads[at], self.tails[at]) = (key.head, key.tail);
        match (self.recalls, brought) {
            (true, None) => self.recall_later(table, at, Marker::of(&key)),
            (true, Some(hash)) => self.recall_later(table, at, Marker::of_hash(hash, is_higher6(&key))),
            (false, _) => self.find_later(table, at, table.hasher.ip6(&key)),
        }
    }

    /// All packets of a vector are in: these, in order.
    #[inline(always)]
    pub fn are_in(&mut self, who: impl Iterator<Item = usize>) {
        let mut n = 0usize;
        for (known, who) in self.who.iter_mut().zip(who) {
            *known = who;
            n += 1;
        }
        (self.ahead, self.n, self.guessed) = (n, n, n.saturating_sub(LAG));
    }

    /// Whether the packets that are in and have not been looked up are these `n`. They are not in any more then.
    #[inline(always)]
    pub fn were_in(&mut self, n: usize, who: impl Fn(usize) -> usize) -> bool {
        let ahead = std::mem::take(&mut self.ahead);
        ahead == n
            && self.who[..n.min(VECTOR)]
                .iter()
                .enumerate()
                .fold(true, |same, (at, known)| same & (*known == who(at)))
    }

    #[inline(always)]
    fn put_recalling(&mut self, table: &Table, at: usize, head: &[u8], meta: &Meta) {
        let marker = self.take(at, head, meta, Marker::of, Marker::of);
        self.recall_later(table, at, marker);
    }

    #[inline(always)]
    fn put(&mut self, table: &Table, at: usize, head: &[u8], meta: &Meta) {
        let hasher = &table.hasher;
        let hash = self.take(at, head, meta, |key| hasher.ip4(key.head), |key| hasher.ip6(key));
        self.find_later(table, at, hash);
    }

    #[inline(always)]
    fn recall_later(&mut self, table: &Table, at: usize, marker: Marker) {
        self.markers[at] = marker;
        prefetch::read(self.recall.slot(marker));
        if at >= LAG {
            self.guess_by_recall(table, at - LAG);
        }
    }

    #[inline(always)]
    fn find_later(&mut self, table: &Table, at: usize, hash: Hash) {
        self.hashes[at] = hash;
        prefetch::read(table.index.buckets().of(hash));
        if at >= LAG {
            self.guess(table, at - LAG);
        }
    }

    /// Finds out which half is a packet's by all appearances, and asks for it.
    #[inline(always)]
    fn guess(&mut self, table: &Table, i: usize) {
        self.found[i] = table.index.buckets().of(self.hashes[i]).guess(self.hashes[i]);
        if let Some(half) = table.halves.get().get(self.found[i].0 as usize) {
            prefetch::read(half);
        }
    }

    /// The same with the cache in front of the index.
    #[inline(always)]
    fn guess_by_recall(&mut self, table: &Table, i: usize) {
        let (guess, hit) = self.recall.guess(self.markers[i]);
        self.found[i] = guess;
        if let Some(half) = table.halves.get().get(guess.0 as usize) {
            prefetch::read(half);
        }
        self.missed[self.misses & (VECTOR - 1)] = i as u8;
        self.misses += usize::from(!hit);
    }

    /// Keeps the key of a packet, and answers what is made of it: by the one for keys without tail or the one for the others.
    #[inline(always)]
    fn take<T>(
        &mut self,
        at: usize,
        head: &[u8],
        meta: &Meta,
        short: impl Fn(&Packed) -> T,
        long: impl Fn(&Packed) -> T,
    ) -> T {
        let common = meta.flags & flags::FRAGMENT == 0;
        let (ip4, ip6) =
            (is_ports_of(meta.kind, Kind::IP4) & common, is_ports_of(meta.kind, Kind::IP6) & common);
        let tag = [meta.kind.0, meta.proto, 0, 0];
        if ip4
            && let Some(addresses) = bytes(head, meta.l3_off.wrapping_add(12))
            && let Some(ports) = bytes(head, meta.l4_off)
        {
            let key = Packed::ip4(addresses, ports, tag);
            self.heads[at] = key.head;
            short(&key)
        } else if ip6
            && let Some(addresses) = bytes(head, meta.l3_off.wrapping_add(8))
            && let Some(ports) = bytes(head, meta.l4_off)
        {
            let key = Packed::ip6(&addresses, ports, tag);
            (self.heads[at], self.tails[at]) = (key.head, key.tail);
            long(&key)
        } else {
            let key = any_key(head, meta);
            (self.heads[at], self.tails[at]) = (key.head, key.tail);
            if key.is_ip6() { long(&key) } else { short(&key) }
        }
    }

    /// The end of the first pass and the second one. That does nothing but compare: so short a loop waits for many halves at once.
    #[inline]
    pub fn run(&mut self, table: &Table) {
        if self.recalls {
            return self.run_recalling(table);
        }
        let (halves, n) = (table.halves.get(), self.n.min(VECTOR));
        for i in self.guessed..n {
            self.guess(table, i);
        }
        for i in 0..n {
            let (found, half) = (self.found[i], halves.get(self.found[i].0 as usize));
            if !half.is_some_and(|half| is_listed(half, &self.heads[i], &self.tails[i])) && found.is_some() {
                self.correct(table, i);
            }
        }
        self.recall.count(self.n as u32, 0);
    }

    /// The same with the cache in front of the index.
    #[inline]
    fn run_recalling(&mut self, table: &Table) {
        let halves = table.halves.get();
        // Loops over indexes that are below VECTOR for all to see: no check, and no iterator over five arrays.
        let n = self.n.min(VECTOR);
        for i in self.guessed..n {
            self.guess_by_recall(table, i);
        }
        let missed = self.misses.min(VECTOR);
        if missed > 0 {
            self.look_up_missed(table, missed);
        }
        let mut wrong = 0;
        for i in 0..n {
            let found = self.found[i];
            let half = halves.get(found.0 as usize);
            if !half.is_some_and(|half| is_listed(half, &self.heads[i], &self.tails[i])) && found.is_some() {
                self.correct(table, i);
                self.recall.keep(self.markers[i], self.found[i]);
                wrong += 1;
            }
        }
        for &i in &self.missed[..missed] {
            let i = usize::from(i);
            self.recall.keep(self.markers[i], self.found[i]);
        }
        self.recall.count(n as u32, missed as u32 + wrong);
    }

    /// Looks one up whose guess was wrong.
    #[cold]
    fn correct(&mut self, table: &Table, i: usize) {
        let key = Packed { head: self.heads[i], tail: self.tails[i] };
        self.found[i] = table.find_hashed(&key, table.hasher.hash(&key));
    }

    /// Looks those up together that have no slot.
    fn look_up_missed(&mut self, table: &Table, missed: usize) {
        let (buckets, halves) = (table.index.buckets(), table.halves.get());
        for at in 0..missed {
            let i = usize::from(self.missed[at]);
            self.hashes[i] = table.hasher.hash(&Packed { head: self.heads[i], tail: self.tails[i] });
            prefetch::read(buckets.of(self.hashes[i]));
        }
        for at in 0..missed {
            let i = usize::from(self.missed[at]);
            self.found[i] = buckets.of(self.hashes[i]).guess(self.hashes[i]);
            if let Some(half) = halves.get(self.found[i].0 as usize) {
                prefetch::read(half);
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
        self.packed(packet).unpack()
    }

    /// The same as the table keeps it.
    #[inline(always)]
    pub(super) fn packed(&self, packet: usize) -> Packed {
        let ip6 = Packed { head: self.heads[packet], tail: [0; 3] }.is_ip6();
        Packed { head: self.heads[packet], tail: if ip6 { self.tails[packet] } else { [0; 3] } }
    }
}

/// Whether this half has that key and is to be found by it.
#[inline(always)]
fn is_listed(half: &Half, head: &[u64; 2], tail: &[u64; 3]) -> bool {
    (half.flags & half_flags::UNLISTED == 0) & half.is(head, tail)
}

/// 1 if the source of a key without tail is the higher address, or the same, and 0 if the destination is. Any order of
/// addresses would do.
#[inline(always)]
fn is_higher4(key: &Packed) -> u32 {
    u32::from(key.head[0] as u32 >= (key.head[0] >> 32) as u32)
}

/// The same of a key with tail.
#[inline(always)]
fn is_higher6(key: &Packed) -> u32 {
    let [b, c, d] = key.tail;
    u32::from((key.head[0], b) >= (c, d))
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
