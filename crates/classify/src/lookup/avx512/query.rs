//! Queries the filter of a table for eight packets at a time, with AVX-512.

use std::arch::x86_64::*;

use bytemuck::{cast, cast_mut};
use mmb_packet::Window;
use mmb_packet::window::CHUNKS;

use crate::lookup::walk::PassedHeads;
use crate::table::Table;
use crate::vector::VECTOR;

/// Number of packets that are handled together.
const LANES: usize = 8;

/// `(a & b) ^ c`.
const MASKED: i32 = 0x6a;
/// `a | (b & c)`.
const JOINED: i32 = 0xf8;

/// One chunk of all packets: the lower words, and the upper words.
pub(crate) struct ChunkColumns {
    chunk: usize,
    words: [[[u64; LANES]; VECTOR / LANES]; 2],
}

impl ChunkColumns {
    /// No chunk.
    pub const NONE: ChunkColumns =
        ChunkColumns { chunk: usize::MAX, words: [[[0; LANES]; VECTOR / LANES]; 2] };

    /// Reads the chunk of a table, unless it is here already.
    #[inline]
    pub fn load<'a>(&mut self, table: &Table, windows: impl Iterator<Item = &'a Window>) {
        if self.chunk == table.chunk {
            return;
        }
        self.chunk = table.chunk;
        let [lower, upper] = &mut self.words;
        let words = lower.as_flattened_mut().iter_mut().zip(upper.as_flattened_mut());
        for ((lower, upper), window) in words.zip(windows) {
            let chunk = window.chunk[table.chunk % CHUNKS];
            (*lower, *upper) = (chunk as u64, (chunk >> 64) as u64);
        }
    }
}

/// Sets `bit` for those of the first `n` packets whose key the table may have, and writes these packets to
/// `passed`. The bits of packets beyond the first `n` in `tables` are undefined.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,bmi2,popcnt")]
pub(crate) fn query_filter(
    table: &Table,
    columns: &ChunkColumns,
    (n, bit): (usize, u64),
    tables: &mut [u64; VECTOR],
    passed: &mut PassedHeads,
) {
    let splat = |word: u64| _mm512_set1_epi64(word as i64);
    let [seed, other_seed] = table.store.seeds.words().map(splat);
    let [mask, other_mask] = [table.mask as u64, (table.mask >> 64) as u64].map(splat);
    let (filter, bit, one) = (table.store.filter.reader(), splat(bit), splat(1));
    let [lower, upper] = &columns.words;
    let mut present = [0u8; VECTOR / LANES];
    let hashes = cast_mut::<_, [[u64; LANES]; VECTOR / LANES]>(&mut passed.hashes);
    let groups =
        cast_mut::<_, [[u64; LANES]; VECTOR / LANES]>(tables).iter_mut().zip(hashes).zip(&mut present);
    let columns = lower.iter().zip(upper);
    for ((lower, upper), ((tables, hashes), present)) in columns.zip(groups).take(n.div_ceil(LANES)) {
        let lower = _mm512_ternarylogic_epi64::<MASKED>(cast(*lower), mask, seed);
        let upper = _mm512_ternarylogic_epi64::<MASKED>(cast(*upper), other_mask, other_seed);
        let hash = folded_product(lower, upper);
        *hashes = cast(hash);
        let words: __m512i = cast(filter.words(hashes));
        // The two bits of a key in its word.
        let bits = _mm512_or_si512(
            _mm512_sllv_epi64(one, _mm512_and_si512(hash, splat(63))),
            _mm512_sllv_epi64(one, _mm512_and_si512(_mm512_srli_epi64::<6>(hash), splat(63))),
        );
        *present = _mm512_testn_epi64_mask(_mm512_andnot_si512(words, bits), bits);
        let old: __m512i = cast(*tables);
        *tables = cast(_mm512_mask_or_epi64(old, *present, old, bit));
    }
    passed.bits = cast(present);
    for (word, bits) in passed.bits.iter_mut().enumerate() {
        *bits &= u64::MAX.unbounded_shr((64 * (word + 1)).saturating_sub(n) as u32);
    }
}

/// Both halves of the products of 64-bit numbers, XORed: [`Seeds::hash`](crate::table::Seeds::hash).
#[inline]
#[target_feature(enable = "avx512f,avx512bw,bmi2,popcnt")]
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
    use proptest::prelude::*;

    use super::*;
    use crate::table::Seeds;
    use crate::vector::Avx512;

    proptest! {
        #[test]
        #[allow(unsafe_code)]
        fn the_product_is_the_hash(keys: [u128; LANES], seed: u64) {
            if Avx512::detect().is_none() {
                return Ok(());
            }
            let seeds = Seeds::from_seed(seed);
            let half = |shift: u32, seed: u64| keys.map(|key| (key >> shift) as u64 ^ seed);
            let [seed, other] = seeds.words();
            // SAFETY: the processor has the instructions.
            let products = unsafe { folded_product(cast(half(0, seed)), cast(half(64, other))) };
            prop_assert_eq!(cast::<_, [u64; LANES]>(products), keys.map(|key| seeds.hash(key).0));
        }
    }
}
