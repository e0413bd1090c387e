//! Lookup of a vector of packets.
//!
//! # Theory of operation
//!
//! A lookup waits for memory twice: for the bucket and for the flow. The lookups of a vector wait together.
//! The first pass stores the keys. Every [`STEP`] packets it hashes their keys and prefetches their buckets;
//! for the packets [`LAG`] before, it compares the tags and prefetches the flows of matching tags. So memory
//! arrives while packets are parsed, the number of outstanding loads stays small, and each loop fits the
//! registers. The pass that uses the flows compares their keys ([`BatchLookup::is_match`]). Rare cases (two
//! equal tags in a bucket, a key outside of its bucket) take [`Table::find`], one packet at a time. The table
//! may change between the passes, since a candidate is always compared.
//!
//! While the cache in front of the index is enabled (`recall`), the pass prefetches the slots of the cache
//! instead of buckets. Only packets that miss the cache use the index, again together. With so few sessions
//! the flows are in the L2 cache. An early prefetch of them would only evict the packets from the L1 cache.

use mmb_packet::{Kind, Meta, PacketFlags, PlainHeaders, prefetch};

use super::Table;
use super::hash::Hash;
use super::recall::{Marker, Recall};
use crate::fcb::{Flow, FlowRef};
use crate::key::{Key, PackedKey, bytes, parse_key};

/// Maximum number of packets in a vector.
pub const VECTOR: usize = 256;

/// Packets per step. More would exceed the number of outstanding loads of a processor.
const STEP: usize = 8;
/// Packets between the prefetch of a bucket and its use, in addition to a step.
const LAG: usize = 8;
/// Number of sessions above which their flows do not fit any cache.
const FAR: u32 = 1 << 17;

/// Lookup of the packets of a vector, in packet order.
///
/// Call [`BatchLookup::fill`], then [`BatchLookup::run`]. The parts of `run` can be called alone:
/// [`BatchLookup::find_candidates`]; for each packet [`BatchLookup::is_match`] and, if it is false,
/// [`BatchLookup::resolve`]; then [`BatchLookup::update_cache`].
#[derive(Debug)]
pub struct BatchLookup {
    n: usize,
    heads: [[u64; 2]; VECTOR],
    /// Tails of IPv6 keys. Other entries are stale.
    tails: [[u64; 3]; VECTOR],
    /// Whether a key of the vector may have a tail.
    tailed: bool,
    hashes: [Hash; VECTOR],
    /// Number of the bucket of each hash.
    buckets_of: [u32; VECTOR],
    found: [FlowRef; VECTOR],
    pub(super) recall: Recall,
    /// Whether the cache is used for this vector.
    uses_cache: bool,
    markers: [Marker; VECTOR],
    /// Number of packets, from the first, that have their marker or their hash.
    prepared: usize,
    /// For the packets after those, one bit each, lowest first: whether the packet already has a marker from
    /// the NIC's hash.
    given_markers: u32,
    /// Number of packets, from the first, that have a candidate.
    candidates_to: usize,
    /// Packets that miss the cache, and their number; then the number of packets with a wrong candidate.
    missed: [u8; VECTOR],
    misses: usize,
    wrong: u32,
}

impl Default for BatchLookup {
    fn default() -> Self {
        BatchLookup {
            n: 0,
            heads: [[0; 2]; VECTOR],
            tails: [[0; 3]; VECTOR],
            tailed: false,
            hashes: [Hash::default(); VECTOR],
            buckets_of: [0; VECTOR],
            found: [FlowRef::NONE; VECTOR],
            recall: Recall::default(),
            uses_cache: false,
            markers: [Marker::default(); VECTOR],
            prepared: 0,
            given_markers: 0,
            candidates_to: 0,
            missed: [0; VECTOR],
            misses: 0,
            wrong: 0,
        }
    }
}

impl BatchLookup {
    /// First pass: stores the keys of a vector of `n` packets. Packets after the 256th are ignored.
    ///
    /// `packet` returns the head and the metadata of a packet, as [`parse_key`] takes them. It is called once
    /// per packet, in order.
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

    /// Begins a vector whose packets are pushed one by one. Call [`BatchLookup::push`] for each packet, in
    /// order, then [`BatchLookup::end`].
    #[inline(always)]
    pub fn begin(&mut self) {
        (self.prepared, self.given_markers, self.candidates_to) = (0, 0, 0);
        (self.misses, self.wrong, self.tailed) = (0, 0, false);
        self.uses_cache = self.recall.is_on();
    }

    /// Adds a packet at a position.
    #[inline(always)]
    pub fn push(&mut self, table: &Table, at: usize, head: &[u8], meta: &Meta) {
        let at = at % VECTOR;
        self.put(at, head, meta);
        self.step(table, at);
    }

    /// Adds a packet whose headers are parsed. `nic_hash`: the RSS hash of the NIC, if there is one.
    #[inline(always)]
    pub fn push_parsed<H: PlainHeaders>(
        &mut self,
        table: &Table,
        at: usize,
        headers: &H,
        nic_hash: Option<u32>,
    ) {
        let at = at % VECTOR;
        let key = pack_headers(headers);
        self.heads[at] = key.head;
        if H::IP6 {
            self.tails[at] = key.tail;
            self.tailed = true;
        }
        if let Some(hash) = nic_hash {
            let is_higher = if H::IP6 { is_higher6(&key) } else { is_higher4(&key) };
            self.bring(at, Marker::of_hash(hash, is_higher));
        }
        self.step(table, at);
    }

    #[inline(always)]
    fn bring(&mut self, at: usize, marker: Marker) {
        self.markers[at] = marker;
        self.given_markers |= 1 << (at % STEP);
    }

    /// Ends the pushes of a vector of `n` packets.
    #[inline(always)]
    pub fn end(&mut self, n: usize) {
        self.n = n.min(VECTOR);
    }

    /// Processes the packets up to this one if they complete a step.
    #[inline(always)]
    fn step(&mut self, table: &Table, at: usize) {
        if at % STEP == STEP - 1 {
            self.advance(table, at + 1);
        }
    }

    #[inline(never)]
    fn advance(&mut self, table: &Table, end: usize) {
        let (from, end) = (self.prepared, end.min(VECTOR));
        match (self.uses_cache, self.tailed) {
            (true, false) => self.mark(from, end, |head, _| Marker::of4(head)),
            (true, true) => self.mark(from, end, Marker::of),
            (false, false) => self.hash(table, from, end, |head, _| table.hasher.ip4(*head)),
            (false, true) => self.hash(table, from, end, |head, tail| {
                table.hasher.hash(&PackedKey { head: *head, tail: *tail })
            }),
        }
        (self.prepared, self.given_markers) = (end, 0);
        self.find_candidates_to(table, from.saturating_sub(LAG));
    }

    /// Computes the markers of some packets and prefetches their slots.
    #[inline(always)]
    fn mark(&mut self, from: usize, end: usize, marker: impl Fn(&[u64; 2], &[u64; 3]) -> Marker) {
        let BatchLookup { heads, tails, markers, recall, given_markers, .. } = self;
        let given_markers = *given_markers;
        for i in from..end.min(VECTOR) {
            if given_markers == 0 || given_markers >> (i % STEP) & 1 == 0 {
                markers[i] = marker(&heads[i], &tails[i]);
            }
            prefetch::read(recall.slot(markers[i]));
        }
    }

    /// Computes the hashes of some packets and prefetches their buckets.
    #[inline(always)]
    fn hash(&mut self, table: &Table, from: usize, end: usize, hash: impl Fn(&[u64; 2], &[u64; 3]) -> Hash) {
        let BatchLookup { heads, tails, hashes, buckets_of, .. } = self;
        let buckets = table.index.buckets();
        for i in from..end.min(VECTOR) {
            hashes[i] = hash(&heads[i], &tails[i]);
            buckets_of[i] = buckets.place(hashes[i]);
            prefetch::read(buckets.at(buckets_of[i]));
        }
    }

    /// Finds the candidates of the packets before `end` and prefetches their flows.
    #[inline(always)]
    fn find_candidates_to(&mut self, table: &Table, end: usize) {
        let (from, end) = (self.candidates_to, end.min(VECTOR));
        let BatchLookup { hashes, buckets_of, found, recall, markers, missed, .. } = self;
        if self.uses_cache {
            let mut misses = self.misses;
            for i in from..end {
                let (guess, hit) = recall.guess(markers[i]);
                found[i] = guess;
                missed[misses % VECTOR] = i as u8;
                misses += usize::from(!hit);
            }
            self.misses = misses;
        } else {
            let (buckets, flows) = (table.index.buckets(), table.flows.get());
            for i in from..end {
                found[i] = buckets.at(buckets_of[i]).guess(hashes[i]);
                if let Some(flow) = flows.get(found[i].0 as usize) {
                    prefetch::read(flow);
                }
            }
        }
        self.candidates_to = end;
    }

    /// Finds the candidates of all packets.
    pub fn find_candidates(&mut self, table: &Table) {
        let n = self.n;
        if self.prepared < n {
            self.advance(table, n);
        }
        self.find_candidates_to(table, n);
        if self.misses > 0 {
            self.look_up_missed(table, self.misses.min(VECTOR));
        }
    }

    /// Loads all candidates at once if they are not in a cache. A loop that does nothing else has many loads
    /// outstanding; a loop with more work per flow has few.
    #[inline]
    pub fn wait_for_flows(&self, table: &Table) {
        if table.len() < FAR {
            return;
        }
        let flows = table.flows.get();
        let words = self.found[..self.n.min(VECTOR)].iter().filter_map(|found| flows.get(found.0 as usize));
        std::hint::black_box(words.fold(0, |all, flow| all | flow.last_seen));
    }

    /// Whether the candidate is the flow of the packet. `TAILED`: [`BatchLookup::has_ip6_keys`], or true.
    #[inline(always)]
    pub fn is_match<const TAILED: bool>(&self, packet: usize, flow: &Flow) -> bool {
        let packet = packet % VECTOR;
        let head = &self.heads[packet];
        flow.is_listed() & flow.has_head(head) && (!TAILED || flow.has_tail_of(head, &self.tails[packet]))
    }

    /// Whether two packets have the same key and the same candidate. `TAILED`: as for
    /// [`BatchLookup::is_match`].
    #[inline(always)]
    pub fn is_repeated<const TAILED: bool>(&self, one: usize, other: usize) -> bool {
        let (one, other) = (one % VECTOR, other % VECTOR);
        self.found[one] == self.found[other]
            && self.heads[one] == self.heads[other]
            && (!TAILED || self.tails[one] == self.tails[other])
    }

    /// The candidate flow of a packet.
    #[inline(always)]
    pub fn candidate(&self, packet: usize) -> FlowRef {
        self.found[packet % VECTOR]
    }

    /// Whether the vector may have keys other than IPv4.
    #[inline]
    pub fn has_ip6_keys(&self) -> bool {
        self.tailed
    }

    /// Looks up a packet whose candidate was wrong.
    #[cold]
    pub fn resolve(&mut self, table: &Table, packet: usize) -> FlowRef {
        let i = packet % VECTOR;
        let key = PackedKey { head: self.heads[i], tail: self.tails[i] };
        self.found[i] = table.find_hashed(&key, table.hasher.hash(&key));
        if self.uses_cache {
            self.recall.keep(self.markers[i], self.found[i]);
        }
        self.wrong += 1;
        self.found[i]
    }

    /// Updates the cache. Call this after all candidates are confirmed or resolved.
    #[inline]
    pub fn update_cache(&mut self) {
        let missed = if self.uses_cache { self.misses.min(VECTOR) } else { 0 };
        for &i in &self.missed[..missed] {
            let i = usize::from(i);
            self.recall.keep(self.markers[i], self.found[i]);
        }
        self.recall.count(self.n as u32, missed as u32 + if self.uses_cache { self.wrong } else { 0 });
    }

    /// Runs all passes after the first.
    pub fn run(&mut self, table: &Table) {
        self.find_candidates(table);
        let flows = table.flows.get();
        for i in 0..self.n {
            let found = self.found[i];
            let right = flows.get(found.0 as usize).is_some_and(|flow| self.is_match::<true>(i, flow));
            if !right && found.is_some() {
                self.resolve(table, i);
            }
        }
        self.update_cache();
    }

    /// Stores the key of a packet.
    #[inline(always)]
    fn put(&mut self, at: usize, head: &[u8], meta: &Meta) {
        let common = !meta.flags.contains(PacketFlags::FRAGMENT);
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

    /// Looks up the packets that miss the cache, together.
    fn look_up_missed(&mut self, table: &Table, missed: usize) {
        let (buckets, flows) = (table.index.buckets(), table.flows.get());
        for at in 0..missed {
            let i = usize::from(self.missed[at]);
            self.hashes[i] = table.hasher.hash(&PackedKey { head: self.heads[i], tail: self.tails[i] });
            prefetch::read(buckets.of(self.hashes[i]));
        }
        for at in 0..missed {
            let i = usize::from(self.missed[at]);
            self.found[i] = buckets.of(self.hashes[i]).guess(self.hashes[i]);
            if let Some(flow) = flows.get(self.found[i].0 as usize) {
                prefetch::read(flow);
            }
        }
    }

    /// The flow of each packet. [`FlowRef::NONE`] for packets without a session or without a key.
    #[inline]
    pub fn results(&self) -> &[FlowRef] {
        &self.found[..self.n]
    }

    /// The key of a packet of the vector; all zeros if it has none.
    pub fn key(&self, packet: usize) -> Key {
        self.packed(packet).unpack()
    }

    /// The packed key of a packet of the vector.
    #[inline(always)]
    pub fn packed(&self, packet: usize) -> PackedKey {
        let ip6 = PackedKey { head: self.heads[packet], tail: [0; 3] }.is_ip6();
        PackedKey { head: self.heads[packet], tail: if ip6 { self.tails[packet] } else { [0; 3] } }
    }
}

/// Packs the key of a packet with parsed headers.
#[inline(always)]
fn pack_headers<H: PlainHeaders>(headers: &H) -> PackedKey {
    let (ports, tag) = (headers.ports(), headers.tag().to_le_bytes());
    let key = match H::IP6 {
        true => headers.addresses().first_chunk().map(|both| PackedKey::ip6(both, ports, tag)),
        false => headers.addresses().first_chunk().map(|both| PackedKey::ip4(*both, ports, tag)),
    };
    key.unwrap_or_default()
}

/// 1 if the source address of an IPv4 key is not lower than the destination address, otherwise 0. The order
/// of addresses is arbitrary.
#[inline(always)]
fn is_higher4(key: &PackedKey) -> u32 {
    u32::from(key.head[0] as u32 >= (key.head[0] >> 32) as u32)
}

/// 1 if the source address of an IPv6 key is not lower than the destination address, otherwise 0.
#[inline(always)]
fn is_higher6(key: &PackedKey) -> u32 {
    let [b, c, d] = key.tail;
    u32::from((key.head[0], b) >= (c, d))
}

/// Whether a packet is TCP or UDP over this IP version.
#[inline(always)]
fn is_ports_of(kind: Kind, version: u8) -> bool {
    (kind.0 == version | Kind::TCP) | (kind.0 == version | Kind::UDP)
}

/// The key of a packet of any kind; all zeros if it has none.
#[inline(never)]
fn any_key(head: &[u8], meta: &Meta) -> PackedKey {
    parse_key(head, meta).map_or_else(|_| PackedKey::default(), |key| key.pack())
}

#[cfg(test)]
mod tests;
