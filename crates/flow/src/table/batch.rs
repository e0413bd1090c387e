//! The sessions of a whole vector of packets.
//!
//! Theory of operation. One lookup waits for memory twice: for the bucket and for the half. A vector's lookups wait
//! together: a first pass takes keys in; every [`STEP`] packets their hashes are made and their buckets asked for, while the tags
//! of those in front of them are compared and the halves asked for that these name. Memory that is far thus comes while packets
//! are parsed, and not all at once, which takes longer, and each loop is short enough for the registers. Then whoever looks at
//! the halves compares their keys ([`BatchLookup::is_match`]). What is rare (two equal tags in a bucket, a key outside of its
//! bucket) is left to [`Table::find`], a packet at a time. What happens to the table between the passes does no harm: a half that
//! is named is looked at.
//!
//! While the cache in front of the index is on ([`super::recall`]), its slots are asked for in the place of
//! buckets, and only packets without a slot of theirs go through the index, together as well. The halves of so few sessions
//! are in the second-level cache: to ask for them so early would but take the first-level one away from the packets.

use mmb_packet::{Kind, Meta, ParsedHeaders, flags, prefetch};

use super::Table;
use super::hash::Hash;
use super::recall::{Marker, Recall};
use crate::fcb::{Flow, FlowRef};
use crate::key::{Key, PackedKey, bytes, parse_key};

/// Packets in a vector, at most.
pub const VECTOR: usize = 256;

/// So many packets are gone on with at a time: more ask for more memory at once than a processor has in hand.
const STEP: usize = 8;
/// So many packets besides a step lie between request for a bucket and looking at it.
const LAG: usize = 8;
/// Sessions of which more than this are in no cache.
const FAR: u32 = 1 << 17;

/// BatchLookup of a vector of packets, in the packets' order: [`BatchLookup::fill`], then [`BatchLookup::run`], or its parts:
/// [`BatchLookup::find_candidates`], then for each packet [`BatchLookup::is_match`] or else [`BatchLookup::resolve`], then [`BatchLookup::update_cache`].
#[derive(Debug)]
pub struct BatchLookup {
    n: usize,
    heads: [[u64; 2]; VECTOR],
    /// Of IPv6 keys only; left over from others elsewhere.
    tails: [[u64; 3]; VECTOR],
    /// Whether some key of the vector may have a tail.
    tailed: bool,
    hashes: [Hash; VECTOR],
    /// The bucket of each hash.
    places: [u32; VECTOR],
    found: [FlowRef; VECTOR],
    pub(super) recall: Recall,
    /// Whether this vector is looked up by the cache.
    recalls: bool,
    markers: [Marker; VECTOR],
    /// So many packets, from the first one on, have got their marker, or their hash.
    marked: usize,
    /// Of those behind, a bit for each that has brought its marker along, from the lowest one on.
    brought: u32,
    /// So many packets, from the first one on, have been guessed about.
    guessed: usize,
    /// Packets without a slot of theirs, and how many they are; then those whose guess was wrong.
    missed: [u8; VECTOR],
    misses: usize,
    wrong: u32,
    /// How many packets have been taken in by [`BatchLookup::push`] and not been looked up, and which are the first and the last one.
    ahead: usize,
    ends: [usize; 2],
}

impl Default for BatchLookup {
    fn default() -> Self {
        BatchLookup {
            n: 0,
            heads: [[0; 2]; VECTOR],
            tails: [[0; 3]; VECTOR],
            tailed: false,
            hashes: [Hash::default(); VECTOR],
            places: [0; VECTOR],
            found: [FlowRef::NONE; VECTOR],
            recall: Recall::default(),
            recalls: false,
            markers: [Marker::default(); VECTOR],
            marked: 0,
            brought: 0,
            guessed: 0,
            missed: [0; VECTOR],
            misses: 0,
            wrong: 0,
            ahead: 0,
            ends: [0; 2],
        }
    }
}

impl BatchLookup {
    /// The first pass: takes in a vector of `n` packets in the place of the last one; those behind the 256th are left out.
    /// `packet` answers the packet at a position, with what its parse found, as [`parse_key`] wants them; it is asked for each
    /// position once, in order.
    #[inline(always)]
    pub fn fill<'p>(
        &mut self,
        table: &Table,
        n: usize,
        mut packet: impl FnMut(usize) -> (&'p [u8], &'p Meta),
    ) {
        self.begin();
        for at in 0..n.min(VECTOR) {
            let (head, meta) = packet(at);
            self.push(table, at, head, meta);
        }
        self.n = n.min(VECTOR);
    }

    /// The same in parts, for whoever has the packets in hand before their session is wanted: this, then
    /// [`BatchLookup::push`] for each packet, in order, then [`BatchLookup::set_prefetched`].
    #[inline(always)]
    pub fn begin(&mut self) {
        (self.ahead, self.marked, self.brought, self.guessed) = (0, 0, 0, 0);
        (self.misses, self.wrong, self.tailed) = (0, 0, false);
        self.recalls = self.recall.is_on();
    }

    /// Takes in the packet at a position.
    #[inline(always)]
    pub fn push(&mut self, table: &Table, at: usize, head: &[u8], meta: &Meta) {
        let at = at % VECTOR;
        self.put(at, head, meta);
        self.step(table, at);
    }

    /// The same of a packet of which this is in hand; `brought`: the hash that it brings along from its network card.
    #[inline(always)]
    pub fn push_ip4(&mut self, table: &Table, at: usize, common: &ParsedHeaders<8>, brought: Option<u32>) {
        let at = at % VECTOR;
        let key = PackedKey::ip4(common.addresses, common.ports, common.tag.to_le_bytes());
        self.heads[at] = key.head;
        if let Some(hash) = brought {
            self.bring(at, Marker::of_hash(hash, is_higher4(&key)));
        }
        self.step(table, at);
    }

    /// The same of IPv6.
    #[inline(always)]
    pub fn push_ip6(&mut self, table: &Table, at: usize, common: &ParsedHeaders<32>, brought: Option<u32>) {
        let at = at % VECTOR;
        let key = PackedKey::ip6(&common.addresses, common.ports, common.tag.to_le_bytes());
        (self.heads[at], self.tails[at]) = (key.head, key.tail);
        self.tailed = true;
        if let Some(hash) = brought {
            self.bring(at, Marker::of_hash(hash, is_higher6(&key)));
        }
        self.step(table, at);
    }

    #[inline(always)]
    fn bring(&mut self, at: usize, marker: Marker) {
        self.markers[at] = marker;
        self.brought |= 1 << (at % STEP);
    }

    /// All packets of a vector are in: so many, of which these are the first and the last one.
    #[inline(always)]
    pub fn set_prefetched(&mut self, n: usize, ends: [usize; 2]) {
        (self.ahead, self.n, self.ends) = (n, n.min(VECTOR), ends);
    }

    /// Whether the packets that are in and have not been looked up are these `n`, as far as that can be seen from their number and
    /// their ends. They are not in any more then.
    #[inline(always)]
    pub fn take_prefetched(&mut self, n: usize, ends: [usize; 2]) -> bool {
        std::mem::take(&mut self.ahead) == n && self.ends == ends
    }

    /// Goes on with the packets up to this one, if they are a step.
    #[inline(always)]
    fn step(&mut self, table: &Table, at: usize) {
        if at % STEP == STEP - 1 {
            self.go_on(table, at + 1);
        }
    }

    #[inline(never)]
    fn go_on(&mut self, table: &Table, end: usize) {
        let (from, end) = (self.marked, end.min(VECTOR));
        match (self.recalls, self.tailed) {
            (true, false) => self.mark(from, end, |head, _| Marker::of4(head)),
            (true, true) => self.mark(from, end, Marker::of),
            (false, false) => self.hash(table, from, end, |head, _| table.hasher.ip4(*head)),
            (false, true) => self.hash(table, from, end, |head, tail| {
                table.hasher.hash(&PackedKey { head: *head, tail: *tail })
            }),
        }
        (self.marked, self.brought) = (end, 0);
        self.guess_to(table, from.saturating_sub(LAG));
    }

    /// Makes the markers of some packets, and asks for their slots.
    #[inline(always)]
    fn mark(&mut self, from: usize, end: usize, marker: impl Fn(&[u64; 2], &[u64; 3]) -> Marker) {
        let BatchLookup { heads, tails, markers, recall, brought, .. } = self;
        let brought = *brought;
        for i in from..end.min(VECTOR) {
            if brought == 0 || brought >> (i % STEP) & 1 == 0 {
                markers[i] = marker(&heads[i], &tails[i]);
            }
            prefetch::read(recall.slot(markers[i]));
        }
    }

    /// Makes the hashes of some packets, and asks for their buckets.
    #[inline(always)]
    fn hash(&mut self, table: &Table, from: usize, end: usize, hash: impl Fn(&[u64; 2], &[u64; 3]) -> Hash) {
        let BatchLookup { heads, tails, hashes, places, .. } = self;
        let buckets = table.index.buckets();
        for i in from..end.min(VECTOR) {
            hashes[i] = hash(&heads[i], &tails[i]);
            places[i] = buckets.place(hashes[i]);
            prefetch::read(buckets.at(places[i]));
        }
    }

    /// Finds out which halves are packets' by all appearances, up to this one, and asks for them.
    #[inline(always)]
    fn guess_to(&mut self, table: &Table, end: usize) {
        let (from, end) = (self.guessed, end.min(VECTOR));
        let BatchLookup { hashes, places, found, recall, markers, missed, .. } = self;
        if self.recalls {
            let mut misses = self.misses;
            for i in from..end {
                let (guess, hit) = recall.guess(markers[i]);
                found[i] = guess;
                missed[misses % VECTOR] = i as u8;
                misses += usize::from(!hit);
            }
            self.misses = misses;
        } else {
            let (buckets, halves) = (table.index.buckets(), table.halves.get());
            for i in from..end {
                found[i] = buckets.at(places[i]).guess(hashes[i]);
                if let Some(half) = halves.get(found[i].0 as usize) {
                    prefetch::read(half);
                }
            }
        }
        self.guessed = end;
    }

    /// Finds out which halves are the packets' by all appearances, of all packets that are in.
    pub fn find_candidates(&mut self, table: &Table) {
        let n = self.n;
        if self.marked < n {
            self.go_on(table, n);
        }
        self.guess_to(table, n);
        if self.misses > 0 {
            self.look_up_missed(table, self.misses.min(VECTOR));
        }
    }

    /// Waits for all halves that were guessed at once, if they are in memory that is far: a loop that does nothing else waits for
    /// many of them together, one that has more to do with each for a few.
    #[inline]
    pub fn wait_for_flows(&self, table: &Table) {
        if table.len() < FAR {
            return;
        }
        let halves = table.halves.get();
        let words = self.found[..self.n.min(VECTOR)].iter().filter_map(|found| halves.get(found.0 as usize));
        std::hint::black_box(words.fold(0, |all, half| all | half.last_seen));
    }

    /// Whether the half that was guessed is that of the packet. `TAILED`: as [`BatchLookup::has_ip6_keys`], or true.
    #[inline(always)]
    pub fn is_match<const TAILED: bool>(&self, packet: usize, half: &Flow) -> bool {
        let packet = packet % VECTOR;
        let head = &self.heads[packet];
        half.is_listed() & half.has_head(head) && (!TAILED || half.has_tail_of(head, &self.tails[packet]))
    }

    /// The half of a packet by all appearances.
    #[inline(always)]
    pub fn candidate(&self, packet: usize) -> FlowRef {
        self.found[packet % VECTOR]
    }

    /// Whether keys of the vector may be other than IPv4's.
    #[inline]
    pub fn has_ip6_keys(&self) -> bool {
        self.tailed
    }

    /// Looks a packet up whose guess was wrong, if there was one.
    #[cold]
    pub fn resolve(&mut self, table: &Table, packet: usize) -> FlowRef {
        let i = packet % VECTOR;
        let key = PackedKey { head: self.heads[i], tail: self.tails[i] };
        self.found[i] = table.find_hashed(&key, table.hasher.hash(&key));
        if self.recalls {
            self.recall.keep(self.markers[i], self.found[i]);
        }
        self.wrong += 1;
        self.found[i]
    }

    /// The cache learns from what was found: to be called when all guesses are right, or corrected.
    #[inline]
    pub fn update_cache(&mut self) {
        let missed = if self.recalls { self.misses.min(VECTOR) } else { 0 };
        for &i in &self.missed[..missed] {
            let i = usize::from(i);
            self.recall.keep(self.markers[i], self.found[i]);
        }
        self.recall.count(self.n as u32, missed as u32 + if self.recalls { self.wrong } else { 0 });
    }

    /// All that follows the first pass.
    pub fn run(&mut self, table: &Table) {
        self.find_candidates(table);
        let halves = table.halves.get();
        for i in 0..self.n {
            let found = self.found[i];
            let right = halves.get(found.0 as usize).is_some_and(|half| self.is_match::<true>(i, half));
            if !right && found.is_some() {
                self.resolve(table, i);
            }
        }
        self.update_cache();
    }

    /// Keeps the key of a packet.
    #[inline(always)]
    fn put(&mut self, at: usize, head: &[u8], meta: &Meta) {
        let common = meta.flags & flags::FRAGMENT == 0;
        let (ip4, ip6) =
            (is_ports_of(meta.kind, Kind::IP4) & common, is_ports_of(meta.kind, Kind::IP6) & common);
        let tag = [meta.kind.0, meta.proto, 0, 0];
        if ip4
            && let Some(addresses) = bytes(head, meta.l3_off.wrapping_add(12))
            && let Some(ports) = bytes(head, meta.l4_off)
        {
            self.heads[at] = PackedKey::ip4(addresses, ports, tag).head;
        } else if ip6
            && let Some(addresses) = bytes(head, meta.l3_off.wrapping_add(8))
            && let Some(ports) = bytes(head, meta.l4_off)
        {
            let key = PackedKey::ip6(&addresses, ports, tag);
            (self.heads[at], self.tails[at], self.tailed) = (key.head, key.tail, true);
        } else {
            let key = any_key(head, meta);
            (self.heads[at], self.tails[at]) = (key.head, key.tail);
            self.tailed |= key.is_ip6();
        }
    }

    /// Looks those up together that have no slot.
    fn look_up_missed(&mut self, table: &Table, missed: usize) {
        let (buckets, halves) = (table.index.buckets(), table.halves.get());
        for at in 0..missed {
            let i = usize::from(self.missed[at]);
            self.hashes[i] = table.hasher.hash(&PackedKey { head: self.heads[i], tail: self.tails[i] });
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

    /// What was found, by packet. [`FlowRef::NONE`] for those without session and those without key.
    #[inline]
    pub fn results(&self) -> &[FlowRef] {
        &self.found[..self.n]
    }

    /// The key of a packet of the vector; that of no session (all zeros) if it has none of its own.
    pub fn key(&self, packet: usize) -> Key {
        self.packed(packet).unpack()
    }

    /// The same as the table keeps it.
    #[inline(always)]
    pub(super) fn packed(&self, packet: usize) -> PackedKey {
        let ip6 = PackedKey { head: self.heads[packet], tail: [0; 3] }.is_ip6();
        PackedKey { head: self.heads[packet], tail: if ip6 { self.tails[packet] } else { [0; 3] } }
    }
}

/// 1 if the source of a key without tail is the higher address, or the same, and 0 if the destination is. Any order of
/// addresses would do.
#[inline(always)]
fn is_higher4(key: &PackedKey) -> u32 {
    u32::from(key.head[0] as u32 >= (key.head[0] >> 32) as u32)
}

/// The same of a key with tail.
#[inline(always)]
fn is_higher6(key: &PackedKey) -> u32 {
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
fn any_key(head: &[u8], meta: &Meta) -> PackedKey {
    parse_key(head, meta).map_or_else(|_| PackedKey::default(), |key| key.pack())
}
