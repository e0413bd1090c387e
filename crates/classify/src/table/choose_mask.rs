//! The choice of the mask that a table hashes by.
//!
//! Theory of operation. A table for mask `T` accepts the entries whose cover has all bits of `T`, so `T` may
//! be any intersection of masks. A longer mask spreads its entries over more keys; a shorter one accepts more
//! entries. A table costs one probe for every packet, and a visit of the branch for packets whose key is
//! present. It saves comparing its entries one by one. The mask with the best ratio of cost to saving is
//! chosen first, then the next for the remaining entries ("set cover"), until a table costs more than it
//! saves.
//!
//! The keys of the entries stand for the traffic: most packets are assumed to arrive where many entries
//! are. A key of `n` bits is assumed to occur in at least one of 2ⁿ packets, so that masks of few bits are
//! not underestimated. Other packets are assumed to be near the entries: each of their words is that of
//! another entry. They find few keys of a mask with enough bits in several words. Costs are measured values
//! in clock ticks; see `docs/classifier.md`.
//!
//! Few packets match an entry with conditions on several chunks. With AVX-512, filters and guards exclude
//! nearly all of them from a table of such entries, and these cost less than the passes.

use std::collections::HashMap;

use bytemuck::cast;
use mmb_packet::window::CHUNKS;

use super::path::Path;
use crate::leaf::{Effort, FEW_VALUES, Leaf, capacity};
use crate::pattern::{Entry, MaskedKey, RuleEntry, Test};
use crate::vector::Simd;

/// Costs of the parts of a lookup, in clock ticks.
struct CostModel {
    /// A probe that finds nothing.
    probe: f32,
    /// Additional cost of a probe that finds a key, without comparing entries.
    visit: f32,
    /// Comparing one entry of a leaf that reads only the first chunk.
    compare: f32,
    /// Comparing all entries of a full leaf.
    full: f32,
}

/// Costs if entries are compared four at a time.
const COSTS_4: CostModel = CostModel { probe: 8.0, visit: 15.0, compare: 1.2, full: 38.0 };
/// Costs if entries are compared sixteen at a time: longer leaves and fewer tables are cheaper.
const COSTS_16: CostModel = CostModel { probe: 20.0, visit: 15.0, compare: 0.5, full: 38.0 };

/// The costs on this machine.
fn costs() -> &'static CostModel {
    if Simd::detect().has_avx512() { &COSTS_16 } else { &COSTS_4 }
}

/// Comparing one entry of a leaf that reads ranges of fields, or further chunks.
const COMPARE_RANGES: f32 = 2.0;
const COMPARE_FURTHER: f32 = 8.0;
/// Minimum number of leading bits that a range must imply for a table to hash by them.
const MIN_PREFIX: u32 = 8;
/// A probe of a table most of whose entries have conditions on several chunks, with AVX-512.
const SELECTIVE_PROBE: f32 = 10.0;
/// Share of the packets that are assumed to arrive near the entries, of such a table and of others.
const SELECTIVE_NEAR_SHARE: f32 = 0.2;
const NEAR_SHARE: f32 = 0.3;
/// Number of such packets that stand for them.
const NEAR_PACKETS: usize = 128;
/// Fixed cost of visiting bit vectors.
const BIT_VECTOR_VISIT: f32 = 130.0;
/// Additional cost for each entry, since rows become longer.
const BIT_VECTOR_ENTRY: f32 = 0.35;
/// Additional cost for each entry if most entries, and so their fields, are in bit vectors in any case. Rules
/// that differ in few fields cost 0.01 ticks, rules on many fields that packets differ in 0.1.
const SIMILAR_ENTRY: f32 = 0.1;
/// A share of all entries above this counts as nearly all of them.
const NEARLY_ALL: f32 = 0.75;
/// Maximum number of entries that are evaluated. It keeps the ratios accurate to a few percent.
const SAMPLE: usize = 2048;
/// Maximum number of masks that are intersected with each other: the most frequent ones.
const MAX_MASKS: usize = 40;

/// A mask of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaskChoice {
    pub chunk: usize,
    pub mask: u128,
}

/// A sample of entries, reduced to one chunk.
struct Sample {
    /// Mask, key and cost of a comparison for each entry.
    entries: Vec<(u128, u128, f32)>,
    /// Number of entries that each sampled entry stands for.
    share: f32,
    /// The bits that vary from packet to packet.
    free: u128,
    /// Packets near the entries.
    near: Vec<u128>,
    /// The cost of an entry in bit vectors, if many entries, which no mask distinguishes, are there in any
    /// case.
    bit_vector_entry: Option<f32>,
    /// Share of the comparison cost that is really paid without a table, since bit vectors limit it.
    rest: f32,
}

/// The best mask to hash the `items` of a node by. `path` leads to it. None if comparing the
/// entries one by one is cheaper, or if no mask distinguishes them.
pub(crate) fn choose_mask(items: &[RuleEntry], path: &Path) -> Option<MaskChoice> {
    let mut best: Option<(f32, MaskChoice)> = None;
    let known = path.known.mask();
    let step = sample_step(items.len());
    let sampled = items.iter().step_by(step);
    let priced: Vec<_> =
        sampled.clone().map(|(_, entry)| (selective_cover(entry), compare_price(entry))).collect();
    let indistinct = sampled.zip(&priced).filter(|(_, (cover, _))| !is_distinguished(cover, known));
    let indistinct: Vec<&RuleEntry> = indistinct.map(|(item, _)| item).collect();
    let entry = if indistinct.len() * 2 > priced.len() { SIMILAR_ENTRY } else { BIT_VECTOR_ENTRY };
    let has_bit_vectors = indistinct.len() * step > capacity()
        || indistinct.into_iter().cloned().collect::<Leaf>().is_full(path.is_root());
    let bit_vector_entry = has_bit_vectors.then_some(entry);
    for (chunk, known) in known.iter().enumerate() {
        let sample = Sample::new(
            priced.iter().map(|(cover, price)| (cover, *price)),
            chunk,
            *known,
            (items.len(), bit_vector_entry),
        );
        if let Some((price, mask)) = sample.best(*known)
            && price < best.map_or(1.0, |(price, _)| price)
        {
            best = Some((price, MaskChoice { chunk, mask }));
        }
    }
    best.map(|(_, choice)| choice)
}

/// Of so many entries, one stands for itself and those behind it in the sample.
fn sample_step(entries: usize) -> usize {
    entries.div_ceil(SAMPLE).max(1)
}

impl Sample {
    fn new<'a>(
        priced: impl Iterator<Item = (&'a MaskedKey, f32)>,
        chunk: usize,
        path: u128,
        (all, bit_vector_entry): (usize, Option<f32>),
    ) -> Sample {
        let entry = |(cover, price): (&MaskedKey, f32)| (cover.mask()[chunk], cover.key()[chunk], price);
        let entries: Vec<_> = priced.map(entry).collect();
        let share = sample_step(all) as f32;
        let price = entries.iter().map(|e| e.2).sum::<f32>() * share;
        let free = !path & if chunk == 0 { !FEW_VALUES } else { u128::MAX };
        let near = near_packets(&entries);
        let rest = capped_by_bit_vectors(price, all as f32) / price;
        Sample { entries, share, free, near, bit_vector_entry, rest }
    }

    /// The mask with the lowest cost per saved tick, and this cost.
    fn best(&self, path: u128) -> Option<(f32, u128)> {
        let mut count: HashMap<u128, usize> = HashMap::new();
        for (mask, ..) in &self.entries {
            *count.entry(*mask).or_default() += 1;
        }
        let mut masks: Vec<_> = count.into_iter().filter(|(mask, _)| mask & !path != 0).collect();
        masks.sort_unstable_by_key(|&(mask, n)| (std::cmp::Reverse(n), mask));
        masks.truncate(MAX_MASKS);
        let mut candidates: Vec<u128> = Vec::new();
        for (i, (a, _)) in masks.iter().enumerate() {
            candidates.extend(masks[..=i].iter().map(|(b, _)| a & b).filter(|both| both & !path != 0));
        }
        candidates.sort_unstable();
        candidates.dedup();
        let mut scratch = Vec::with_capacity(self.entries.len());
        let mut best = (f32::MAX, 0);
        for mask in candidates {
            let price = self.price(mask, &mut scratch);
            if price < best.0 {
                best = (price, mask);
            }
        }
        // Shorten the mask further as long as that helps.
        loop {
            let before = best.1;
            for (mask, _) in &masks {
                let both = before & mask;
                if both & !path != 0 && both != best.1 {
                    let price = self.price(both, &mut scratch);
                    if price < best.0 {
                        best = (price, both);
                    }
                }
            }
            if best.1 == before {
                return (best.0 < f32::MAX).then_some(best);
            }
        }
    }

    /// What a table saves that takes `n` of the sampled entries, whose comparison one by one costs `price`.
    fn saving(&self, price: f32, n: f32) -> f32 {
        if let Some(entry) = self.bit_vector_entry {
            // They remain, and become cheaper by little.
            return price.min(n * self.share * entry);
        }
        price * self.rest
    }

    /// The cost of a table for this mask per tick that it saves.
    fn price(&self, mask: u128, keys: &mut Vec<(u128, f32)>) -> f32 {
        keys.clear();
        let fitting = self.entries.iter().filter(|(m, ..)| m & mask == mask);
        keys.extend(fitting.map(|(_, key, price)| (key & mask, *price)));
        if keys.is_empty() {
            return f32::MAX;
        }
        keys.sort_unstable_by_key(|(key, _)| *key);
        if keys.len() == self.entries.len() && keys.first().map(|e| e.0) == keys.last().map(|e| e.0) {
            // The mask distinguishes nothing.
            return f32::MAX;
        }
        let (probe, near_share) = probe_costs(keys);
        let rarest = (-((mask & self.free).count_ones() as f32)).exp2();
        let (mut saved, mut visits, mut packets, mut near_visits) = (0.0, 0.0, 0.0, 0.0);
        let mut near: Vec<u128> = self.near.iter().map(|packet| packet & mask).collect();
        near.sort_unstable();
        for group in keys.chunk_by(|a, b| a.0 == b.0) {
            let price: f32 = group.iter().map(|(_, price)| price).sum();
            let n = group.len() as f32;
            let often = rarest.max(n / self.entries.len() as f32);
            saved += price;
            let (cost, entries) = (price * self.share, n * self.share);
            // A key that nearly all entries share leaves them as hard to distinguish as before.
            let is_most = n > NEARLY_ALL * self.entries.len() as f32;
            if mask & self.free == 0 && cost > costs().full {
                // Bit vectors distinguish the few kinds of packets at a lower cost than a node for each.
                return f32::MAX;
            }
            let visit = if is_most {
                costs().visit + capped_by_bit_vectors(cost, entries)
            } else {
                visit(cost, entries)
            };
            visits += often * visit;
            packets += often;
            let key = group[0].0;
            let before = near.partition_point(|other| *other < key);
            near_visits += visit * near[before..].iter().take_while(|other| **other == key).count() as f32;
        }
        // A packet has only one key.
        visits /= f32::max(packets, 1.0);
        near_visits /= NEAR_PACKETS as f32;
        visits += (near_visits - visits) * near_share;
        (probe + visits) / self.saving(saved * self.share, keys.len() as f32)
    }
}

/// The cover without the bits of short prefixes that follow from ranges. Packets hardly differ in them.
fn selective_cover(entry: &Entry) -> MaskedKey {
    let mut cover = entry.cover();
    for test in &entry.tests {
        if let Test::InRanges { field, ranges, .. } = test
            && let Some(ends) = ranges.ends()
        {
            let common = field.common_mask(ends);
            if common.count_ones() < MIN_PREFIX {
                cover = field.without(&cover, common);
            }
        }
    }
    cover
}

/// Whether a mask may distinguish an entry: it has conditions on bits that vary and that `path` leaves open.
fn is_distinguished(cover: &MaskedKey, path: &[u128; CHUNKS]) -> bool {
    let own = cover.mask().iter().zip(path).map(|(mask, path)| mask & !path);
    own.enumerate().any(|(chunk, own)| if chunk == 0 { own & !FEW_VALUES } else { own } != 0)
}

/// The cost of comparing an entry.
fn compare_price(entry: &Entry) -> f32 {
    match Effort::of(entry) {
        Effort::FirstChunk => costs().compare,
        Effort::Ranges => COMPARE_RANGES,
        Effort::FurtherChunks => COMPARE_FURTHER,
    }
}

/// Packets whose words are those of different entries. Bits that an entry leaves open are random.
fn near_packets(entries: &[(u128, u128, f32)]) -> Vec<u128> {
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 32) as u32
    };
    let mut packet = || {
        let words: [u32; 4] = std::array::from_fn(|at| {
            let entry = random() as usize % entries.len().max(1);
            let (mask, key) = entries.get(entry).map_or((0, 0), |(mask, key, _)| (*mask, *key));
            let [mask, key] = [mask, key].map(|chunk| cast::<u128, [u32; 4]>(chunk)[at]);
            key | random() & !mask
        });
        cast(words)
    };
    (0..NEAR_PACKETS).map(|_| packet()).collect()
}

/// The cost of a probe of a table with these entries, and the share of the packets that arrive near them. The
/// second of each pair is the cost of a comparison.
fn probe_costs(entries: &[(u128, f32)]) -> (f32, f32) {
    let selective = entries.iter().filter(|(_, price)| *price == COMPARE_FURTHER).count();
    if Simd::detect().has_avx512() && selective * 2 >= entries.len() {
        (SELECTIVE_PROBE, SELECTIVE_NEAR_SHARE)
    } else {
        (costs().probe, NEAR_SHARE)
    }
}

/// The cost of visiting `n` entries whose comparison one by one costs `price`.
fn visit(price: f32, n: f32) -> f32 {
    let CostModel { probe, visit, full, .. } = *costs();
    let divided = full + (visit + probe) * (price / full).max(1.0).log2();
    visit + if price <= full { price } else { capped_by_bit_vectors(divided, n) }
}

/// The lower one of `price` and the cost of bit vectors for `n` entries.
fn capped_by_bit_vectors(price: f32, n: f32) -> f32 {
    price.min(BIT_VECTOR_VISIT + BIT_VECTOR_ENTRY * n)
}
