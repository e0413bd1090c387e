//! Compares packets with blocks of entries, with AVX-512.

use std::arch::x86_64::*;

use bytemuck::cast;
use mmb_packet::Window;

use crate::leaf::{ActiveBlocks, Block4, Block16, Further, PORTS, first_chunk_words};
use crate::lookup::head_hits::HeadHits;

/// A chunk of a packet in the form that comparisons need.
#[derive(Clone, Copy)]
pub(crate) struct Chunk {
    /// Each word, four times.
    four: __m512i,
    /// For each word a vector with sixteen copies.
    sixteen: [__m512i; 4],
}

/// Permutation that replicates each word four times, in the lane order of [`Block4`].
const FOUR_TIMES: [u32; 16] = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3];

/// The lanes of [`Block4`]'s word with the ports.
const PORT_LANES: u16 = 0xf << (4 * PORTS);

/// `(a & b) ^ c`.
const DIFFER: i32 = 0x6a;
/// `a | (b ^ c)`.
const ANY_DIFFER: i32 = 0xf6;
/// `a | b | c`.
const ANY: i32 = 0xfe;

impl Chunk {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,bmi2,popcnt")]
    fn new(words: [u32; 4]) -> Chunk {
        let all = _mm512_broadcast_i32x4(cast(words));
        Chunk {
            four: _mm512_permutexvar_epi32(cast(FOUR_TIMES), all),
            sixteen: words.map(|word| _mm512_set1_epi32(word as i32)),
        }
    }

    /// The first chunk of a window.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,bmi2,popcnt")]
    pub fn first(window: &Window) -> Chunk {
        Chunk::new(first_chunk_words(window.chunk[0]))
    }
}

/// The lanes of a block of four that agree with a window, as bits. `first` is the window's first chunk.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,bmi2,popcnt")]
pub(crate) fn compare4(block: &Block4, first: &Chunk, window: &Window) -> u32 {
    let (mask, key): (__m512i, __m512i) = (cast(block.mask), cast(block.key));
    let differ = if block.is_about_first() {
        let differ = _mm512_ternarylogic_epi32::<DIFFER>(first.four, mask, key);
        let (below, above) = (_mm512_subs_epu16(mask, first.four), _mm512_subs_epu16(first.four, key));
        _mm512_mask_or_epi32(differ, PORT_LANES, below, above)
    } else {
        let chunk = Chunk::new(cast(window.chunk[block.chunk()]));
        _mm512_ternarylogic_epi32::<DIFFER>(chunk.four, mask, key)
    };
    let words = u32::from(_mm512_test_epi32_mask(differ, differ));
    let words = words | words >> 8;
    let lanes = !(words | words >> 4) & 0xf;
    if block.has_further(lanes) { lanes & compare_further4(&block.further, window) } else { lanes }
}

/// The lanes of a block of sixteen that agree with a window, as bits. `first` is the window's first chunk.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,bmi2,popcnt")]
pub(crate) fn compare16(block: &Block16, first: &Chunk, window: &Window) -> u32 {
    let (mask, key) = (block.mask.map(cast::<[u32; 16], __m512i>), block.key.map(cast::<[u32; 16], __m512i>));
    let any = |chunk: &Chunk, third: __m512i| {
        let differ =
            |word: usize| _mm512_ternarylogic_epi32::<DIFFER>(chunk.sixteen[word], mask[word], key[word]);
        let any = _mm512_or_epi32(_mm512_ternarylogic_epi32::<ANY>(differ(0), differ(1), differ(3)), third);
        _mm512_testn_epi32_mask(any, any)
    };
    let lanes = if block.is_about_first() {
        let ports = first.sixteen[PORTS];
        let (below, above) = (_mm512_subs_epu16(mask[PORTS], ports), _mm512_subs_epu16(ports, key[PORTS]));
        any(first, _mm512_or_epi32(below, above)).into()
    } else {
        let chunk = Chunk::new(cast(window.chunk[block.chunk()]));
        let ports = _mm512_ternarylogic_epi32::<DIFFER>(chunk.sixteen[PORTS], mask[PORTS], key[PORTS]);
        any(&chunk, ports).into()
    };
    if block.has_further(lanes) { lanes & compare_further16(&block.further, window) } else { lanes }
}

/// Nonzero if a window agrees with an entry of some blocks: [`ActiveBlocks::agreeing_lanes`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,bmi2,popcnt")]
pub(crate) fn compare_all(blocks: &ActiveBlocks<'_>, window: &Window) -> u32 {
    let first = Chunk::first(window);
    let narrow = blocks.narrow.map_or(0, |block| compare4(block, &first, window));
    blocks.wide().iter().fold(narrow, |any, block| any | compare16(block, &first, window))
}

/// The lanes whose further conditions a window satisfies, as bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,bmi2,popcnt")]
fn compare_further16(further: &Further<16>, window: &Window) -> u32 {
    let mut any = _mm512_setzero_si512();
    for word in further.words() {
        let own = _mm512_set1_epi32(word.of(window) as i32);
        any = _mm512_or_epi32(any, _mm512_ternarylogic_epi32::<DIFFER>(own, cast(word.mask), cast(word.key)));
    }
    for range in further.ranges() {
        let (low, span): (__m512i, __m512i) = (cast(range.low), cast(range.span));
        let distance = _mm512_sub_epi32(_mm512_set1_epi32(range.of(window) as i32), low);
        any = _mm512_ternarylogic_epi32::<ANY_DIFFER>(any, _mm512_max_epu32(distance, span), span);
    }
    _mm512_testn_epi32_mask(any, any).into()
}

/// As [`compare_further16`], for four lanes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,bmi2,popcnt")]
fn compare_further4(further: &Further<4>, window: &Window) -> u32 {
    let mut any = _mm_setzero_si128();
    for word in further.words() {
        let own = _mm_set1_epi32(word.of(window) as i32);
        any = _mm_or_si128(any, _mm_xor_si128(_mm_and_si128(own, cast(word.mask)), cast(word.key)));
    }
    for range in further.ranges() {
        let (low, span): (__m128i, __m128i) = (cast(range.low), cast(range.span));
        let distance = _mm_sub_epi32(_mm_set1_epi32(range.of(window) as i32), low);
        any = _mm_or_si128(any, _mm_xor_si128(_mm_max_epu32(distance, span), span));
    }
    _mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(any, _mm_setzero_si128()))) as u32
}

/// Adds those of sixteen slots whose bit is set in `lanes` to `hits`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,bmi2,popcnt")]
pub(crate) fn push_matches(hits: &mut HeadHits, lanes: u32, slots: &[u32; 16]) {
    let packed = _mm512_maskz_compress_epi32(lanes as u16, cast(*slots));
    hits.push_first(&cast(packed), lanes.count_ones() as usize);
}
