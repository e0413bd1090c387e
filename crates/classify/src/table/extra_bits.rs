//! Bits beyond a table's mask, by which lanes exclude packets.
//!
//! Theory of operation. A key leads to entries most of which require more than the key. For each table four
//! further bits of its chunk are chosen. Each lane has a map of the sixteen values that its entries accept.
//! An entry that leaves some of the bits open accepts several. A lookup compares a lane's tag and looks up
//! the packet's value in the map at once, since both are in one cache line. So many keys are excluded before
//! their entries are read.

use mmb_packet::window::CHUNKS;

use crate::pattern::{Entry, RuleEntry};

/// Number of bits.
const BITS: usize = 4;

/// All values of the bits.
pub(crate) const ANY_VALUE: u16 = u16::MAX;

/// Maximum number of packets by which bits are chosen.
const SAMPLE: usize = 1 << 10;

/// Weight of an entry that a bit excludes, as a share of a packet that it excludes from a key.
const ENTRY_WEIGHT: f32 = 0.1;

/// The bits; see the module's documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExtraBits {
    chunk: u8,
    /// Positions of the bits in the chunk. They may be equal.
    at: [u8; BITS],
}

impl ExtraBits {
    /// The bits that exclude most of some packets from keys. `items` are in order of their keys, which are
    /// the bits of `mask` in the chunk.
    pub fn choose(
        items: &[RuleEntry],
        (chunk, mask): (usize, u128),
        packets: &[[u128; CHUNKS]],
    ) -> ExtraBits {
        let key_of = |item: &RuleEntry| item.1.key(chunk) & mask;
        // For each packet with a key the bits by which it differs from the entries there.
        let mut differ: Vec<Vec<u128>> = Vec::new();
        for packet in packets {
            let packet = packet[chunk];
            let own = &items[items.partition_point(|item| key_of(item) < packet & mask)..];
            let own = own.iter().take_while(|item| key_of(item) == packet & mask);
            let own = own.map(|(_, entry)| (packet ^ entry.key(chunk)) & entry.mask(chunk) & !mask);
            differ.push(own.collect());
        }
        let mut at = [0; BITS];
        for place in 0..BITS {
            let Some(best) = best_bit(&differ) else {
                let first = at[0];
                at[place..].fill(first);
                break;
            };
            at[place] = best;
            differ.iter_mut().for_each(|own| own.retain(|differ| differ >> best & 1 == 0));
        }
        ExtraBits { chunk: chunk as u8, at }
    }

    /// Some bits of the first chunk.
    #[cfg(test)]
    pub fn at(at: [u8; BITS]) -> ExtraBits {
        ExtraBits { chunk: 0, at: at.map(|at| at % 128) }
    }

    /// Positions of the bits in the chunk.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn positions(&self) -> [u8; BITS] {
        self.at
    }

    /// The value of the bits in a packet's chunk, as a map with this value only.
    #[inline(always)]
    pub fn value(&self, chunk: u128) -> u16 {
        let halves = [chunk as u64, (chunk >> 64) as u64];
        let bit = |at: u8| halves[usize::from(at / 64) % 2] >> (at % 64) & 1;
        let number = self.at.iter().fold(0, |number, at| number << 1 | bit(*at));
        1 << number
    }

    /// The values that an entry accepts.
    pub fn accepted(&self, entry: &Entry) -> u16 {
        let (mask, key) = (entry.mask(self.chunk.into()), entry.key(self.chunk.into()));
        let mut accepted = ANY_VALUE;
        for (place, at) in self.at.iter().rev().enumerate() {
            // The values in which the bit is set.
            let ones = [0xaaaa, 0xcccc, 0xf0f0, 0xff00][place];
            if mask >> at & 1 != 0 {
                accepted &= if key >> at & 1 != 0 { ones } else { !ones };
            }
        }
        accepted
    }
}

/// The bit that excludes most packets, whose differences to entries are in `differ`. None if no bit excludes
/// an entry.
fn best_bit(differ: &[Vec<u128>]) -> Option<u8> {
    let mut scores = [0.0f32; u128::BITS as usize];
    for own in differ {
        let weight = ENTRY_WEIGHT / own.len() as f32;
        for differ in own {
            for_each_bit(*differ, |bit| scores[bit] += weight);
        }
        let all = own.iter().fold(u128::MAX, |all, differ| all & differ);
        if !own.is_empty() {
            for_each_bit(all, |bit| scores[bit] += 1.0);
        }
    }
    let best = (0u8..).zip(scores).max_by(|a, b| a.1.total_cmp(&b.1))?;
    (best.1 > 0.0).then_some(best.0)
}

fn for_each_bit(mut bits: u128, mut visit: impl FnMut(usize)) {
    while bits != 0 {
        visit(bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}

/// Packets that match some of these entries each. Bits that an entry leaves open are random.
pub(crate) fn sample_packets(items: &[RuleEntry]) -> Vec<[u128; CHUNKS]> {
    let mut state = 1u128;
    let mut random = || {
        state = state.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(1);
        state ^ state >> 64
    };
    let step = items.len().div_ceil(SAMPLE).max(1);
    let packet = |(_, entry): &RuleEntry| {
        std::array::from_fn(|chunk| entry.key(chunk) | random() & !entry.mask(chunk))
    };
    items.iter().step_by(step).map(packet).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pattern::MaskedKey;

    proptest! {
        #[test]
        fn entries_accept_the_values_of_their_packets(
            at: [u8; BITS],
            first in 0..128usize,
            len in 1..=128usize,
            value: u128,
            packet: u128,
        ) {
            let extra = ExtraBits::at(at);
            let len = len.min(128 - first);
            let cover = MaskedKey::bits(first, len, value >> (128 - len));
            let Some(entry) = cover.and_then(|cover| Entry::new(&cover, [])) else { return Ok(()) };
            let (mask, key) = (entry.mask(0), entry.key(0));
            let chosen = extra.at.iter().fold(0u128, |all, at| all | 1 << at);
            let agrees = (packet ^ key) & mask & chosen == 0;
            prop_assert_eq!(extra.accepted(&entry) & extra.value(packet) != 0, agrees);
            prop_assert!(extra.accepted(&entry) & extra.value(key | packet & !mask) != 0);
        }
    }

    #[test]
    fn chooses_bits_that_exclude_packets() {
        let entry = |bits: u128| {
            let cover = MaskedKey::bits(0, 32, bits).unwrap();
            (0, std::sync::Arc::new(Entry::new(&cover, []).unwrap()))
        };
        let items: Vec<RuleEntry> = [1u128, 2, 4].map(entry).to_vec();
        let packets = sample_packets(&items);
        let extra = ExtraBits::choose(&items[..1], (0, 0), &packets);
        let accepts = |packet: &[u128; CHUNKS]| extra.accepted(&items[0].1) & extra.value(packet[0]) != 0;
        assert_eq!(packets.iter().map(accepts).collect::<Vec<_>>(), [true, false, false]);
    }
}
