//! Queries the filter and the guard of a table for eight packets at a time, with AVX-512.

use std::arch::x86_64::*;

use bytemuck::cast;

use super::MASKED_XOR;
use super::gather::Words;
use crate::lookup::columns::{ChunkColumns, LANES};
use crate::lookup::passed_heads::PassedHeads;
use crate::table::{Group, GuardReader, Table};

/// `a | (b & c)`.
const JOINED: i32 = 0xf8;
/// `(a & !b) | c`.
const REPLACED: i32 = 0xba;

/// A table's masks and seeds, in registers.
#[derive(Clone, Copy)]
struct KeyHash {
    masks: [__m512i; 2],
    seeds: [__m512i; 2],
}

impl KeyHash {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    fn new(table: &Table) -> KeyHash {
        let splat = |word: u64| _mm512_set1_epi64(word as i64);
        let masks = [splat(table.mask as u64), splat((table.mask >> 64) as u64)];
        KeyHash { masks, seeds: table.store.hashing.seeds.words().map(splat) }
    }

    /// The hashes of eight packets' keys. The arguments are the lower and the upper words of their chunks.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    fn of(&self, lower: __m512i, upper: __m512i) -> __m512i {
        folded_product(
            _mm512_ternarylogic_epi64::<MASKED_XOR>(lower, self.masks[0], self.seeds[0]),
            _mm512_ternarylogic_epi64::<MASKED_XOR>(upper, self.masks[1], self.seeds[1]),
        )
    }
}

/// Writes the hashes of `n` packets' keys in a table, from the packet `first` on, and the values of the
/// table's extra bits. Those behind them are undefined.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(crate) fn hash_keys<'a>(
    table: &Table,
    columns: &'a ChunkColumns,
    (first, n): (usize, usize),
    (hashes, values): (&mut [u64], &mut [u16]),
) {
    let (keys, extra) = (KeyHash::new(table), table.store.hashing.extra.positions());
    let [a, b, c, d] = extra;
    let shift = |at: u8| (at / 64, _mm_cvtsi32_si128(i32::from(at % 64)));
    let shifts = [shift(a), shift(b), shift(c), shift(d)];
    let one = _mm512_set1_epi64(1);
    let from = |column: &'a [u64]| column.get(first..).unwrap_or_default().as_chunks::<LANES>().0;
    let columns = from(&columns.lower).iter().zip(from(&columns.upper)).take(n.div_ceil(LANES));
    let places = hashes.as_chunks_mut::<LANES>().0.iter_mut().zip(values.as_chunks_mut::<LANES>().0);
    for ((hashes, values), (lower, upper)) in places.zip(columns) {
        let (lower, upper) = (cast(*lower), cast(*upper));
        *hashes = cast(keys.of(lower, upper));
        let mut number = _mm512_setzero_si512();
        for (half, shift) in shifts {
            let bits = _mm512_srl_epi64(if half == 0 { lower } else { upper }, shift);
            number = _mm512_ternarylogic_epi64::<JOINED>(_mm512_add_epi64(number, number), bits, one);
        }
        *values = cast(_mm512_cvtepi64_epi16(_mm512_sllv_epi64(one, number)));
    }
}

/// Replaces `passed` by those of the first `n` packets whose key the table may have.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(crate) fn query_filter(table: &Table, columns: &ChunkColumns, n: usize, passed: &mut PassedHeads) {
    let splat = |word: u64| _mm512_set1_epi64(word as i64);
    let (keys, one) = (KeyHash::new(table), splat(1));
    let filter = table.store.filter.reader();
    let (words, shift) = (Words::new(filter.words()), _mm_cvtsi32_si128(filter.shift() as i32));
    let mut heads: __m512i = cast([0u64, 1, 2, 3, 4, 5, 6, 7]);
    let halves = columns.lower.as_chunks::<LANES>().0.iter().zip(columns.upper.as_chunks::<LANES>().0);
    let columns = (0..n).step_by(LANES).zip(halves);
    passed.clear();
    for (first, (lower, upper)) in columns {
        let hash = keys.of(cast(*lower), cast(*upper));
        let words = words.load(_mm512_srl_epi64(hash, shift));
        // The two bits of a key in its word. A rotation ignores the upper bits of its count.
        let bits = _mm512_or_si512(
            _mm512_rolv_epi64(one, hash),
            _mm512_rolv_epi64(one, _mm512_srli_epi64::<6>(hash)),
        );
        let present = _mm512_testn_epi64_mask(_mm512_andnot_si512(words, bits), bits);
        let keyed = _mm512_ternarylogic_epi64::<REPLACED>(hash, splat(PassedHeads::HEAD), heads);
        heads = _mm512_add_epi64(heads, splat(LANES as u64));
        let present = _bzhi_u32(present.into(), (n - first).min(LANES) as u32);
        let packed = _mm512_maskz_compress_epi64(present as u8, keyed);
        passed.push_first(&cast(packed), present.count_ones() as usize);
    }
}

/// The lanes of a group that hold a tag and accept a value of the extra bits, as bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(crate) fn find_lanes(group: &Group, tag: u16, value: u16) -> u8 {
    let (tags, accepted): (__m128i, __m128i) = (cast(*group.tags.tags()), cast(*group.accepted()));
    let accepts = _mm_test_epi16_mask(accepted, _mm_set1_epi16(value as i16));
    _mm_mask_cmpeq_epi16_mask(accepts, tags, _mm_set1_epi16(tag as i16))
}

/// Removes the packets that the guard excludes from `passed`, which has the bytes that the guard compares.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(crate) fn query_guard(guard: &GuardReader<'_>, passed: &mut PassedHeads) {
    let (ways, shift) = (Words::new(guard.ways()), _mm_cvtsi32_si128(guard.shift() as i32));
    let one = _mm512_set1_epi64(1);
    let differs = |way: __m512i, own: __m512i| {
        // The key is in the lower half, the mask in the upper one.
        let way = _mm512_xor_si512(way, own);
        _mm512_test_epi64_mask(way, _mm512_srli_epi64::<32>(way))
    };
    let n = passed.len();
    passed.clear();
    for first in (0..n).step_by(LANES) {
        let (keyed, own) = (cast(passed.eight(first)), cast(passed.eight_compared(first)));
        let slot = _mm512_srl_epi64(keyed, shift);
        let way = _mm512_add_epi64(slot, slot);
        let differ = differs(ways.load(way), own) & differs(ways.load(_mm512_or_si512(way, one)), own);
        let passes = _bzhi_u32((!differ).into(), (n - first).min(LANES) as u32);
        let packed = _mm512_maskz_compress_epi64(passes as u8, keyed);
        passed.push_first(&cast(packed), passes.count_ones() as usize);
    }
}

/// Both halves of the products of 64-bit numbers, XORed: [`Seeds::hash`](crate::table::Seeds::hash).
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
fn folded_product(a: __m512i, b: __m512i) -> __m512i {
    let low_half = _mm512_set1_epi64(0xffff_ffff);
    let (a_high, b_high) = (_mm512_srli_epi64::<32>(a), _mm512_srli_epi64::<32>(b));
    // Each product is of the lower 32 bits of both.
    let lowest = _mm512_mul_epu32(a, b);
    let middle = _mm512_add_epi64(_mm512_mul_epu32(a, b_high), _mm512_srli_epi64::<32>(lowest));
    let other = _mm512_add_epi64(_mm512_mul_epu32(a_high, b), _mm512_and_si512(middle, low_half));
    let carries = _mm512_add_epi64(_mm512_srli_epi64::<32>(middle), _mm512_srli_epi64::<32>(other));
    let high = _mm512_add_epi64(_mm512_mul_epu32(a_high, b_high), carries);
    let low = _mm512_ternarylogic_epi64::<JOINED>(_mm512_slli_epi64::<32>(other), lowest, low_half);
    _mm512_xor_si512(low, high)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mmb_packet::Window;
    use mmb_packet::window::CHUNKS;
    use proptest::prelude::*;

    use super::*;
    use crate::lookup::Columns;
    use crate::pattern::{Entry, MaskedKey};
    use crate::table::{Branch, ExtraBits, Hashing, MaskChoice, Page, Seeds};
    use crate::vector::Simd;

    proptest! {
        #[test]
        #[allow(unsafe_code)]
        fn lanes_are_those_without_avx512(
            keys in proptest::collection::vec((0..9u128, any::<u8>()), 1..9),
            key in 0..9u128,
            packet: u128,
        ) {
            if !Simd::detect().has_avx512() {
                return Ok(());
            }
            let (seeds, extra) = (Seeds::from_seed(1), ExtraBits::at([0, 1, 2, 3]));
            let mut page = Page::new(0, 1);
            for (key, bits) in keys {
                let cover = MaskedKey::ANY.with(0, 0xf, u128::from(bits & 0xf));
                let row = Entry::new(&cover, []).map(|entry| (0, Arc::new(entry))).into_iter().collect();
                page.place(&Hashing { seeds, extra }, key, Branch::Leaf(row));
            }
            let (hash, value) = (seeds.hash(key), extra.value(packet));
            let group = page.group(hash);
            // SAFETY: the processor has the instructions.
            let lanes = unsafe { find_lanes(group, hash.tag(), value) };
            prop_assert_eq!(lanes, group.find(hash.tag(), value).bits());
        }

        #[test]
        #[allow(unsafe_code)]
        fn the_product_is_the_hash(keys: [u128; LANES], seed: u64) {
            if !Simd::detect().has_avx512() {
                return Ok(());
            }
            let seeds = Seeds::from_seed(seed);
            let half = |shift: u32, seed: u64| keys.map(|key| (key >> shift) as u64 ^ seed);
            let [seed, other] = seeds.words();
            // SAFETY: the processor has the instructions.
            let products = unsafe { folded_product(cast(half(0, seed)), cast(half(64, other))) };
            prop_assert_eq!(cast::<_, [u64; LANES]>(products), keys.map(|key| seeds.hash(key).0));
        }

        #[test]
        #[allow(unsafe_code)]
        fn hashes_and_values_are_those_without_avx512(
            chunks in proptest::collection::vec(proptest::num::u128::ANY, 1..40),
            mask: u128,
            at: [u8; 4],
            first: usize,
        ) {
            if !Simd::detect().has_avx512() {
                return Ok(());
            }
            let mut table = Table::new(Seeds::from_seed(1), MaskChoice { chunk: 0, mask });
            table.store.hashing.extra = ExtraBits::at(at);
            let windows: Vec<_> = chunks.iter().map(|chunk| Window { chunk: [*chunk; CHUNKS] }).collect();
            let (mut columns, mut hashes, mut values) = (Columns::default(), [0; 40], [0; 40]);
            columns.load(&windows, 1, Simd::detect());
            let others = &windows[first % windows.len()..];
            let range = (windows.len() - others.len(), others.len());
            // SAFETY: the processor has the instructions.
            unsafe { hash_keys(&table, columns.chunk(0), range, (&mut hashes, &mut values)) };
            for ((window, hash), value) in others.iter().zip(hashes).zip(values) {
                prop_assert_eq!(hash, table.store.hashing.hash(table.key(window)).0);
                prop_assert_eq!(value, table.extra_value(window));
            }
        }
    }
}
