//! Reads windows into columns, and what they have in common, with AVX-512.

use std::arch::x86_64::*;

use bytemuck::cast;
use mmb_packet::Window;
use mmb_packet::window::CHUNKS;

use crate::lookup::columns::{ChunkColumns, Columns, LANES};
use crate::vector::{KindSet, VECTOR, VectorSummary};

/// Reads `chunks` (a bit set) of `n` windows, at least one, into columns. `eight` yields eight windows from a
/// packet on, the last one repeatedly behind it. Returns the windows' summary.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(crate) fn load<'a>(
    columns: &mut Columns,
    n: usize,
    eight: impl Fn(usize) -> [&'a Window; LANES],
    chunks: u8,
) -> VectorSummary {
    // Without the first chunk, packets may be of any kind, and none is taken to repeat the one before it.
    let mut summary = VectorSummary::UNKNOWN;
    (summary.kinds, summary.repeats) = (Some(KindSet::MAX), Some(0));
    if chunks & 1 != 0 {
        let (mut kinds, mut repeats) = (_mm512_setzero_si512(), 0);
        let mut before = [_mm512_setzero_si512(); 2];
        load_chunk(columns, 0, n, &eight, |first, halves| {
            kinds = _mm512_or_si512(kinds, kind_bits(halves[1]));
            // The first packet has none before it.
            let from = u32::from(first == 0);
            let equal = u32::from(equal_to_before(halves, before)) >> from;
            repeats += _bzhi_u32(equal, (n - first).min(LANES) as u32 - from).count_ones();
            before = halves;
        });
        summary.kinds = Some(_mm512_reduce_or_epi64(kinds) as KindSet);
        summary.repeats = Some(repeats as usize);
    }
    for chunk in (1..CHUNKS).filter(|chunk| chunks & 1 << chunk != 0) {
        let (mut all, mut any) = ([_mm512_set1_epi64(-1); 2], [_mm512_setzero_si512(); 2]);
        load_chunk(columns, chunk, n, &eight, |_, [lower, upper]| {
            all = [_mm512_and_si512(all[0], lower), _mm512_and_si512(all[1], upper)];
            any = [_mm512_or_si512(any[0], lower), _mm512_or_si512(any[1], upper)];
        });
        let all = [_mm512_reduce_and_epi64(all[0]), _mm512_reduce_and_epi64(all[1])];
        let any = [_mm512_reduce_or_epi64(any[0]), _mm512_reduce_or_epi64(any[1])];
        summary.set_bits(chunk, (cast(all), cast(any)));
    }
    summary
}

/// Reads one chunk, and calls `each` for each eight packets with the first of them and the halves.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
fn load_chunk<'a>(
    columns: &mut Columns,
    chunk: usize,
    n: usize,
    eight: impl Fn(usize) -> [&'a Window; LANES],
    mut each: impl FnMut(usize, [__m512i; 2]),
) {
    let ChunkColumns { lower, upper } = &mut columns.0[chunk % CHUNKS];
    let places = lower.as_chunks_mut::<LANES>().0.iter_mut().zip(upper.as_chunks_mut::<LANES>().0);
    for (first, (lower, upper)) in (0..n.min(VECTOR)).step_by(LANES).zip(places) {
        let windows = eight(first);
        let of = |packet: usize| cast(windows[packet].chunk[chunk % CHUNKS]);
        let even = four(of(0), of(2), of(4), of(6));
        let odd = four(of(1), of(3), of(5), of(7));
        let halves = [_mm512_unpacklo_epi64(even, odd), _mm512_unpackhi_epi64(even, odd)];
        (*lower, *upper) = (cast(halves[0]), cast(halves[1]));
        each(first, halves);
    }
}

/// Four chunks in one register.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
fn four(one: __m128i, two: __m128i, three: __m128i, four: __m128i) -> __m512i {
    let halves = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(one), two);
    _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(halves, three), four)
}

/// [`kind_bit`](crate::vector::kind_bit) of eight packets. The argument has the last words of their first
/// chunks, with the kind in byte 4.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
fn kind_bits(upper: __m512i) -> __m512i {
    let layer4 = _mm512_and_si512(_mm512_srli_epi64::<{ 32 + 3 }>(upper), _mm512_set1_epi64(0x1e));
    let layer3 = _mm512_and_si512(_mm512_srli_epi64::<{ 32 + 1 }>(upper), _mm512_set1_epi64(1));
    _mm512_sllv_epi64(_mm512_set1_epi64(1), _mm512_or_si512(layer4, layer3))
}

/// Which of eight packets are equal to the packet before them, as bits. `before` has the eight before.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
fn equal_to_before(own: [__m512i; 2], before: [__m512i; 2]) -> u8 {
    let other = |half: usize| _mm512_alignr_epi64::<7>(own[half], before[half]);
    _mm512_cmpeq_epi64_mask(own[0], other(0)) & _mm512_cmpeq_epi64_mask(own[1], other(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::vector::{Simd, kind_bit};

    proptest! {
        #[test]
        fn the_summary_is_that_without_avx512(
            windows in proptest::collection::vec(any::<[[u8; 2]; CHUNKS]>(), 1..=VECTOR),
            chunks: u8,
            repeats in proptest::collection::btree_set(1..VECTOR, 0..5),
        ) {
            let simd = Simd::detect();
            if !simd.has_avx512() {
                return Ok(());
            }
            let chunk = |[one, two]: [u8; 2]| cast([u64::from(one), u64::from(two & 0xf6) << 32]);
            let mut windows: Vec<Window> =
                windows.into_iter().map(|window| Window { chunk: window.map(chunk) }).collect();
            let n = windows.len();
            for at in repeats {
                windows[at % n].chunk[0] = windows[(at - 1) % n].chunk[0];
            }
            let mut columns = Columns::default();
            let summary = columns.load(&windows, chunks | 1, simd);
            let expected = VectorSummary::new(&windows, chunks);
            for chunk in 0..CHUNKS {
                prop_assert_eq!(summary.bits(chunk), expected.bits(chunk));
            }
            let kinds = windows.iter().fold(0, |kinds, window| kinds | kind_bit(window.bytes()[12]));
            let equal = windows.windows(2).filter(|pair| pair[0].chunk[0] == pair[1].chunk[0]).count();
            prop_assert_eq!((summary.kinds, summary.repeats), (Some(kinds), Some(equal)));
            let heads: Vec<u16> = (0..windows.len() as u16).rev().step_by(3).collect();
            columns.select(&heads, &windows, 1, simd);
            for (at, head) in heads.iter().enumerate() {
                let halves = [columns.chunk(0).lower[at], columns.chunk(0).upper[at]];
                prop_assert_eq!(cast::<[u64; 2], u128>(halves), windows[usize::from(*head)].chunk[0]);
            }
        }
    }
}
