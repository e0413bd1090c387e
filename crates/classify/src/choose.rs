//! Which mask to hash by.
//!
//! Theory of operation. A table for mask `T` takes the entries whose cover has all bits of `T`, so `T` may be any
//! intersection of masks. A longer one spreads its entries over more keys, a shorter one takes more of them. The price
//! of a table is one probe for every packet and, for those whose key is there, a visit of what the key leads to; what it
//! saves is comparing its entries one by one. The mask with the best ratio is taken first, then the next for what is
//! left ("set cover"), until a table costs more than it saves. The entries' own keys stand for the traffic: where many
//! entries crowd, packets are taken to come; but no key of `n` bits is taken to be rarer than one packet in 2ⁿ, so that
//! masks of few bits, whose keys most packets have, look as dear as they are. Prices are in ticks as measured; see
//! `docs/classifier.md`.

use std::collections::HashMap;

use mmb_packet::window::CHUNKS;

use crate::block::is_guarded;
use crate::leaf::Item;
use crate::wide::Wide512;

/// What the parts of a lookup cost.
struct Prices {
    /// A probe that finds nothing.
    probe: f32,
    /// What a probe that finds something costs more, without comparing entries.
    visit: f32,
    /// Comparing one of a leaf's entries that asks for the first chunk alone.
    compare: f32,
    /// What comparing the entries of a full leaf costs.
    full: f32,
}

/// Where entries are compared four at a time …
const BY_FOUR: Prices = Prices { probe: 8.0, visit: 15.0, compare: 1.2, full: 38.0 };
/// … and sixteen: longer leaves and fewer tables are cheaper.
const BY_SIXTEEN: Prices = Prices { probe: 20.0, visit: 15.0, compare: 0.6, full: 38.0 };

/// The prices on this machine.
fn prices() -> &'static Prices {
    if Wide512::detect().is_some() { &BY_SIXTEEN } else { &BY_FOUR }
}

/// Comparing one of a leaf's entries that asks for more than the first chunk.
const COMPARE_GUARDED: f32 = 8.0;
/// A visit of bit vectors …
const BITS: f32 = 130.0;
/// … of which each entry makes the rows longer.
const BIT: f32 = 0.35;
/// More than this part of all entries is most of them.
const MOST: f32 = 0.75;
/// How many entries are looked at: enough for the ratios to be right within a few percent.
const SAMPLE: usize = 2048;
/// How many masks are intersected with each other: the most frequent.
const MASKS: usize = 40;

/// The bits of the first chunk that have few values in a packet's life: kind, protocol, input port.
pub(crate) const FEW_VALUES: u128 =
    u128::from_ne_bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);

/// A mask of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub chunk: usize,
    pub mask: u128,
}

/// The entries of a sample, in one chunk.
struct Sample {
    /// Mask, key and price of a comparison.
    entries: Vec<(u128, u128, f32)>,
    /// How many entries each stands for.
    share: f32,
    /// The bits that may differ from packet to packet as if by chance.
    free: u128,
    /// The part of its price that an entry really costs if nothing is done: many are not compared one by one.
    rest: f32,
}

/// The best mask to hash `items` by, beyond the bits `path` that are known of every packet that comes here; None: it is
/// cheaper to compare them one by one, or no mask tells them apart.
pub(crate) fn choose(items: &[Item], path: &[u128; CHUNKS]) -> Option<Choice> {
    let mut best: Option<(f32, Choice)> = None;
    for (chunk, path) in path.iter().enumerate() {
        let sample = Sample::new(items, chunk, *path);
        if let Some((price, mask)) = sample.best(*path)
            && price < best.map_or(1.0, |(price, _)| price)
        {
            best = Some((price, Choice { chunk, mask }));
        }
    }
    best.map(|(_, choice)| choice)
}

impl Sample {
    fn new(items: &[Item], chunk: usize, path: u128) -> Sample {
        let step = items.len().div_ceil(SAMPLE).max(1);
        let compare = prices().compare;
        let entry = |(_, entry): &Item| {
            let guarded = entry.cover.chunks() & !1 != 0 || is_guarded(entry);
            let price = if guarded { COMPARE_GUARDED } else { compare };
            (entry.cover.mask()[chunk], entry.cover.key()[chunk], price)
        };
        let entries: Vec<_> = items.iter().step_by(step).map(entry).collect();
        let share = step as f32;
        let price = entries.iter().map(|e| e.2).sum::<f32>() * share;
        let free = !path & if chunk == 0 { !FEW_VALUES } else { u128::MAX };
        Sample { entries, share, free, rest: at_most_bits(price, items.len() as f32) / price }
    }

    /// The best mask, and what it costs per tick that it saves.
    fn best(&self, path: u128) -> Option<(f32, u128)> {
        let mut count: HashMap<u128, usize> = HashMap::new();
        for (mask, ..) in &self.entries {
            *count.entry(*mask).or_default() += 1;
        }
        let mut masks: Vec<_> = count.into_iter().filter(|(mask, _)| mask & !path != 0).collect();
        masks.sort_unstable_by_key(|&(mask, n)| (std::cmp::Reverse(n), mask));
        masks.truncate(MASKS);
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
        // Shortened further, as long as that helps.
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

    /// What a table for this mask costs per tick that it saves.
    fn price(&self, mask: u128, keys: &mut Vec<(u128, f32)>) -> f32 {
        keys.clear();
        let fitting = self.entries.iter().filter(|(m, ..)| m & mask == mask);
        keys.extend(fitting.map(|(_, key, price)| (key & mask, *price)));
        if keys.is_empty() {
            return f32::MAX;
        }
        keys.sort_unstable_by_key(|(key, _)| *key);
        if keys.len() == self.entries.len() && keys.first().map(|e| e.0) == keys.last().map(|e| e.0) {
            // It tells nothing apart.
            return f32::MAX;
        }
        let rarest = (-((mask & self.free).count_ones() as f32)).exp2();
        let (mut saved, mut visits, mut packets) = (0.0, 0.0, 0.0);
        for group in keys.chunk_by(|a, b| a.0 == b.0) {
            let price: f32 = group.iter().map(|(_, price)| price).sum();
            let n = group.len() as f32;
            let often = rarest.max(n / self.entries.len() as f32);
            saved += price;
            let (cost, entries) = (price * self.share, n * self.share);
            // What nearly all share is no easier to tell apart than all.
            let is_most = n > MOST * self.entries.len() as f32;
            visits += often
                * if is_most { prices().visit + at_most_bits(cost, entries) } else { visit(cost, entries) };
            packets += often;
        }
        // A packet has one key.
        visits /= f32::max(packets, 1.0);
        (prices().probe + visits) / (saved * self.share * self.rest)
    }
}

/// What it costs to visit `n` entries that cost `price` to compare one by one.
fn visit(price: f32, n: f32) -> f32 {
    let Prices { probe, visit, full, .. } = *prices();
    let divided = full + (visit + probe) * (price / full).max(1.0).log2();
    visit + if price <= full { price } else { at_most_bits(divided, n) }
}

/// A price, or that of bit vectors for `n` entries if they are cheaper.
fn at_most_bits(price: f32, n: f32) -> f32 {
    price.min(BITS + BIT * n)
}
