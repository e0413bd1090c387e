//! Compares all packets of a vector with a block of few entries, and with the filter of a leaf, with AVX-512.
//!
//! Theory of operation. A comparison of one packet with sixteen entries wastes most lanes of a block that has
//! few. So eight packets are compared with one entry at once.

use std::arch::x86_64::*;

use bytemuck::cast;

use super::{ANY, MASKED_XOR};
use crate::leaf::{Block, PreFilter};
use crate::lookup::columns::{ChunkColumns, LANES};
use crate::vector::VECTOR;

/// The bits of the ports in the upper half of a first chunk.
const PORT_BITS: u64 = u32::MAX as u64;

/// Swaps the bytes of the ports in the upper half of a first chunk, and clears the rest.
const HOST_PORTS: [i8; 64] = {
    let mut bytes = [-1; 64];
    let mut lane = 0;
    while lane < LANES {
        let at = lane * 8;
        let first = (at % 16) as i8;
        (bytes[at], bytes[at + 1]) = (first + 1, first);
        (bytes[at + 2], bytes[at + 3]) = (first + 3, first + 2);
        lane += 1;
    }
    bytes
};

/// Writes the lanes of a block of which the compared chunk agrees with the first `n` packets, as bits.
/// `columns` has this chunk. Elements behind the last packet are undefined.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(crate) fn compare_few<const N: usize>(
    block: &Block<N>,
    columns: &ChunkColumns,
    n: usize,
    lanes: &mut [u16; VECTOR],
) {
    lanes[..n.next_multiple_of(LANES).min(VECTOR)].fill(0);
    for entry in 0..block.len() {
        let words = |of: &[[u32; N]; 4]| cast::<[u32; 4], [u64; 2]>([0, 1, 2, 3].map(|word| of[word][entry]));
        let (mut mask, mut key) = (words(&block.mask), words(&block.key));
        let (mut low, mut high) = (0, PORT_BITS);
        if block.is_about_first() {
            (low, high) = (mask[1] & PORT_BITS, key[1] & PORT_BITS);
            (mask[1], key[1]) = (mask[1] & !PORT_BITS, key[1] & !PORT_BITS);
        }
        if (low, high) == (0, PORT_BITS) {
            mark_agreeing(entry, (mask, key), columns, n, lanes, |_| _mm512_setzero_si512());
            continue;
        }
        let (low, high) = (_mm512_set1_epi64(low as i64), _mm512_set1_epi64(high as i64));
        mark_agreeing(entry, (mask, key), columns, n, lanes, |upper| {
            let ports = _mm512_shuffle_epi8(upper, cast(HOST_PORTS));
            _mm512_or_si512(_mm512_subs_epu16(low, ports), _mm512_subs_epu16(ports, high))
        });
    }
}

/// Sets the bit of an entry for the packets that agree with its mask and key, and in whose upper half
/// `outside` yields no bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
fn mark_agreeing(
    entry: usize,
    (mask, key): ([u64; 2], [u64; 2]),
    columns: &ChunkColumns,
    n: usize,
    lanes: &mut [u16; VECTOR],
    outside: impl Fn(__m512i) -> __m512i,
) {
    let splat = |half: u64| _mm512_set1_epi64(half as i64);
    let (masks, keys) = ([splat(mask[0]), splat(mask[1])], [splat(key[0]), splat(key[1])]);
    let bit = _mm_set1_epi16(1 << entry);
    let halves = columns.lower.as_chunks::<LANES>().0.iter().zip(columns.upper.as_chunks::<LANES>().0);
    let groups = lanes.as_chunks_mut::<LANES>().0.iter_mut().zip(halves);
    for (lanes, (lower, upper)) in groups.take(n.div_ceil(LANES)) {
        let (lower, upper) = (cast(*lower), cast(*upper));
        let differ = _mm512_ternarylogic_epi64::<ANY>(
            _mm512_ternarylogic_epi64::<MASKED_XOR>(lower, masks[0], keys[0]),
            _mm512_ternarylogic_epi64::<MASKED_XOR>(upper, masks[1], keys[1]),
            outside(upper),
        );
        let agrees = _mm512_testn_epi64_mask(differ, differ);
        *lanes = cast(_mm_or_si128(cast(*lanes), _mm_maskz_mov_epi16(agrees, bit)));
    }
}

/// Collects those of the first `n` packets that may match an entry of the filter's leaf; returns their
/// number.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(crate) fn query_pre_filter(
    filter: &PreFilter,
    columns: &ChunkColumns,
    n: usize,
    packets: &mut [u16; VECTOR],
) -> usize {
    let masks: [u64; 2] = cast(filter.mask());
    let [lower_mask, upper_mask] = masks.map(|half| _mm512_set1_epi64(half as i64));
    let [a, b, c, d] = PreFilter::FACTORS.map(|factor| _mm512_set1_epi64(factor.into()));
    let map: [__m512i; 2] = cast(*filter.map());
    let (one, six_bits) = (_mm512_set1_epi64(1), _mm512_set1_epi64(63));
    let mut found = 0;
    let halves = columns.lower.as_chunks::<LANES>().0.iter().zip(columns.upper.as_chunks::<LANES>().0);
    for (first, (lower, upper)) in (0..n).step_by(LANES).zip(halves) {
        let (lower, upper) =
            (_mm512_and_si512(cast(*lower), lower_mask), _mm512_and_si512(cast(*upper), upper_mask));
        let sum = |half, one, two| {
            _mm512_add_epi64(
                _mm512_mul_epu32(half, one),
                _mm512_mul_epu32(_mm512_srli_epi64::<32>(half), two),
            )
        };
        let sum = _mm512_add_epi64(sum(lower, a, b), sum(upper, c, d));
        let at = _mm512_srli_epi64::<{ PreFilter::SHIFT }>(_mm512_slli_epi64::<32>(sum));
        let words = _mm512_permutex2var_epi64(map[0], _mm512_srli_epi64::<6>(at), map[1]);
        let bits = _mm512_sllv_epi64(one, _mm512_and_si512(at, six_bits));
        let mut bits = _bzhi_u32(_mm512_test_epi64_mask(words, bits).into(), (n - first).min(LANES) as u32);
        while bits != 0 {
            packets[found % VECTOR] = first as u16 + bits.trailing_zeros() as u16;
            found += 1;
            bits &= bits - 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use mmb_packet::Window;
    use proptest::prelude::*;

    use super::*;
    use crate::leaf::{Row, first_words};
    use crate::lookup::Columns;
    use crate::pattern::{Entry, MaskedKey, RuleEntry};
    use crate::vector::Simd;

    /// A packet and an entry differ in few bits, which are in all words.
    fn chunk() -> impl Strategy<Value = u128> {
        any::<[u8; 4]>().prop_map(|bytes| cast(bytes.map(|byte| u32::from(byte & 0x11) << 12)))
    }

    proptest! {
        #[test]
        #[allow(unsafe_code)]
        fn few_entries_agree_as_without_avx512(
            entries in proptest::collection::vec((chunk(), any::<u128>(), 0..3usize), 1..12),
            windows in proptest::collection::vec([chunk(), chunk()], 1..40),
        ) {
            let simd = Simd::detect();
            if !simd.has_avx512() {
                return Ok(());
            }
            let entry = |(key, mask, chunk): &(u128, u128, usize)| {
                let cover = MaskedKey::ANY.with(chunk % 2, *mask, *key);
                Entry::new(&cover, []).map(|entry| (0, entry.into()))
            };
            let row: Row<16> = entries.iter().filter_map(entry).collect();
            let windows: Vec<Window> =
                windows.iter().map(|[one, two]| Window { chunk: [*one, *two, 0, 0, 0, 0] }).collect();
            let mut columns = Columns::default();
            columns.load(&windows, 3, simd);
            for block in row.blocks() {
                let mut lanes = [u16::MAX; VECTOR];
                // SAFETY: the processor has the instructions.
                unsafe { compare_few(block, columns.chunk(block.chunk()), windows.len(), &mut lanes) };
                for (window, lanes) in windows.iter().zip(lanes) {
                    let first = first_words(window.chunk[0]);
                    prop_assert_eq!(u32::from(lanes), block.agreeing_chunk(&first, window));
                }
            }
        }

        #[test]
        #[allow(unsafe_code)]
        fn pre_filters_exclude_the_same_packets(
            keys in proptest::collection::vec(any::<u32>(), 6..40),
            packets in proptest::collection::vec((any::<prop::sample::Index>(), 0..3u32), 1..=VECTOR),
        ) {
            let simd = Simd::detect();
            if !simd.has_avx512() {
                return Ok(());
            }
            let cover = |key: &u32| MaskedKey::bits(0, 32, (*key).into());
            let covers = keys.iter().filter_map(cover);
            let items = covers.filter_map(|cover| Some((0, Entry::new(&cover, [])?.into())));
            let leaf = items.collect::<Vec<RuleEntry>>().into_iter().collect();
            let Some(filter) = PreFilter::new(&leaf) else { return Ok(()) };
            let near = |(of, by): &(prop::sample::Index, u32)| {
                let key = cover(&keys[of.index(keys.len())].wrapping_add(*by)).unwrap_or_default();
                Window { chunk: *key.key() }
            };
            let windows: Vec<Window> = packets.iter().map(near).collect();
            let (mut columns, mut passed) = (Columns::default(), [0; VECTOR]);
            columns.load(&windows, 1, simd);
            let n = columns.query_pre_filter(&filter, windows.len(), simd, &mut passed);
            let passes = |packet: &u16| filter.can_match(windows[usize::from(*packet)].chunk[0]);
            let expected: Vec<u16> = (0..windows.len() as u16).filter(passes).collect();
            prop_assert_eq!(&passed[..n], &expected[..]);
        }
    }
}
