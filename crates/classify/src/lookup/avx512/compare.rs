//! Compares packets with blocks of entries, with AVX-512.

use std::arch::x86_64::*;

use bytemuck::{cast, cast_mut, cast_ref};
use mmb_packet::Window;

use super::few::compare_few;
use super::{ANY, MASKED_XOR};
use crate::leaf::{Block4, Block8, Block16, Further, PORTS, first_chunk_words};
use crate::lookup::columns::ChunkColumns;
use crate::lookup::head_hits::HitWriter;
use crate::vector::VECTOR;

/// Blocks of sixteen with at most this many entries are compared entry by entry.
const FEW: usize = 8;

/// `a | (b ^ c)`.
const ANY_DIFFER: i32 = 0xf6;

/// A chunk of a packet in the form that blocks of eight need: each vector has eight copies of two words.
#[derive(Clone, Copy)]
pub(crate) struct Eight([__m512i; 2]);

/// Permutations that replicate each of two words eight times, in the lane order of [`Block8`].
const EIGHT_TIMES: [[u32; 16]; 2] =
    [[0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1], [2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3]];

/// The lanes of the second vector of [`Block8`]'s words that have the ports.
const PORT_LANES_8: u16 = 0xff;

impl Eight {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    fn new(words: [u32; 4]) -> Eight {
        let words = _mm512_broadcast_i32x4(cast(words));
        Eight(EIGHT_TIMES.map(|order| _mm512_permutexvar_epi32(cast(order), words)))
    }

    /// The first chunk of a window.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    pub fn first(window: &Window) -> Eight {
        Eight::new(first_chunk_words(window.chunk[0]))
    }
}

/// The lanes of a block of eight whose compared chunk agrees with a window, as bits. `first` is the window's
/// first chunk.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(crate) fn compare8(block: &Block8, first: &Eight, window: &Window) -> u32 {
    let (mask, key): ([__m512i; 2], [__m512i; 2]) = (cast(block.mask), cast(block.key));
    let differ = |words: &Eight, half: usize| {
        _mm512_ternarylogic_epi32::<MASKED_XOR>(words.0[half], mask[half], key[half])
    };
    if block.is_about_first() {
        let ports = first.0[1];
        let (below, above) = (_mm512_subs_epu16(mask[1], ports), _mm512_subs_epu16(ports, key[1]));
        let second = _mm512_mask_or_epi32(differ(first, 1), PORT_LANES_8, below, above);
        lanes_of_8(_mm512_or_epi32(differ(first, 0), second))
    } else {
        let words = Eight::new(cast(window.chunk[block.chunk()]));
        lanes_of_8(_mm512_or_epi32(differ(&words, 0), differ(&words, 1)))
    }
}

/// The lanes of a block of eight that differ in no word.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
fn lanes_of_8(differ: __m512i) -> u32 {
    let any = _mm256_or_si256(_mm512_castsi512_si256(differ), _mm512_extracti64x4_epi64::<1>(differ));
    _mm256_testn_epi32_mask(any, any).into()
}

/// The lanes of a block of sixteen that agree with a window, as bits. `first` is the window's first chunk.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(crate) fn compare16(block: &Block16, first: &Sixteen, window: &Window) -> u32 {
    let keys = Keys16::new(block);
    let lanes = if block.is_about_first() {
        keys.agreeing_first(first)
    } else {
        keys.agreeing(&Sixteen::new(cast(window.chunk[block.chunk()])))
    };
    let lanes = lanes.into();
    if block.has_further(lanes) { lanes & compare_further16(&block.further, window) } else { lanes }
}

/// The agreeing lanes of a block of four for the first `n` of some packets; see [`mark_all`]. `columns` has
/// the chunk that the block compares.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(crate) fn compare4_with_all<'a>(
    block: &Block4,
    columns: &ChunkColumns,
    (n, window): (usize, impl Fn(usize) -> &'a Window),
    (agreeing, any, bit): (&mut [u16; VECTOR], &mut [u16; VECTOR], u16),
) {
    compare_few(block, columns, n, agreeing);
    let further = |packet| compare_further4(&block.further, window(packet));
    mark_all(n, (block.partial_lanes(), further), (agreeing, any, bit));
}

/// [`compare4_with_all`] for a block of sixteen.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(crate) fn compare16_with_all<'a>(
    block: &Block16,
    columns: &ChunkColumns,
    (n, window): (usize, impl Fn(usize) -> &'a Window),
    (agreeing, any, bit): (&mut [u16; VECTOR], &mut [u16; VECTOR], u16),
) {
    if block.len() <= FEW {
        compare_few(block, columns, n, agreeing);
    } else {
        let keys = Keys16::new(block);
        for (packet, lanes) in agreeing[..n].iter_mut().enumerate() {
            let chunk = window(packet).chunk[block.chunk()];
            *lanes = if block.is_about_first() {
                keys.agreeing_first(&Sixteen::new(first_chunk_words(chunk)))
            } else {
                keys.agreeing(&Sixteen::new(cast(chunk)))
            };
        }
    }
    let further = |packet| compare_further16(&block.further, window(packet));
    mark_all(n, (block.partial_lanes(), further), (agreeing, any, bit));
}

/// Removes lanes of the first `n` packets whose further conditions a packet does not satisfy, and sets `bit`
/// in the elements of `any` for packets with lanes left. `agreeing` has the lanes that agree in the compared
/// chunk: it was compared for all packets first, without branches, since it is hard to predict which agree.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
fn mark_all(
    n: usize,
    (partial, compare_further): (u16, impl Fn(usize) -> u32),
    (agreeing, any, bit): (&mut [u16; VECTOR], &mut [u16; VECTOR], u16),
) {
    // The rest of the last group has lanes of an earlier vector.
    agreeing[n..].iter_mut().take(31).for_each(|lanes| *lanes = 0);
    let (partial, bit) = (_mm512_set1_epi16(partial as i16), _mm512_set1_epi16(bit as i16));
    let groups = cast_mut::<_, [[u16; 32]; VECTOR / 32]>(agreeing).iter_mut();
    let any = cast_mut::<_, [[u16; 32]; VECTOR / 32]>(any);
    for (group, (lanes, any)) in groups.zip(any).take(n.div_ceil(32)).enumerate() {
        let mut further = _mm512_test_epi16_mask(cast(*lanes), partial);
        while further != 0 {
            let at = further.trailing_zeros() as usize;
            lanes[at % 32] &= compare_further(group * 32 + at) as u16;
            further &= further - 1;
        }
        let some: __m512i = cast(*lanes);
        let some = _mm512_maskz_mov_epi16(_mm512_test_epi16_mask(some, some), bit);
        *any = cast(_mm512_or_si512(cast(*any), some));
    }
}

/// Collects the first `n` packets with a bit in `tables` or in `lanes`; returns their number.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(crate) fn collect_nonzero(
    n: usize,
    (tables, lanes): (&[u64; VECTOR], &[u16; VECTOR]),
    packets: &mut [u16; VECTOR],
) -> usize {
    let mut found = 0;
    let tables = cast_ref::<_, [[[u64; 8]; 4]; VECTOR / 32]>(tables).iter();
    for (first, (tables, lanes)) in (0..n as u32).step_by(32).zip(tables.zip(group_by_32(lanes))) {
        let lanes: __m512i = cast(*lanes);
        let mut bits = _mm512_test_epi16_mask(lanes, lanes);
        for (place, tables) in tables.iter().enumerate() {
            let tables: __m512i = cast(*tables);
            bits |= u32::from(_mm512_test_epi64_mask(tables, tables)) << (8 * place);
        }
        bits = _bzhi_u32(bits, (n as u32 - first).min(32));
        while bits != 0 {
            packets[found % VECTOR] = (first + bits.trailing_zeros()) as u16;
            found += 1;
            bits &= bits - 1;
        }
    }
    found
}

fn group_by_32(lanes: &[u16; VECTOR]) -> &[[u16; 32]; VECTOR / 32] {
    cast_ref(lanes)
}

/// A chunk of a packet in the form that blocks of sixteen need: for each word a vector with sixteen copies.
#[derive(Clone, Copy)]
pub(crate) struct Sixteen([__m512i; 4]);

impl Sixteen {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    fn new(words: [u32; 4]) -> Sixteen {
        Sixteen(words.map(|word| _mm512_set1_epi32(word as i32)))
    }

    /// The first chunk of a window.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    pub fn first(window: &Window) -> Sixteen {
        Sixteen::new(first_chunk_words(window.chunk[0]))
    }
}

/// The masks and keys of a block of sixteen by word, in registers.
#[derive(Clone, Copy)]
struct Keys16 {
    mask: [__m512i; 4],
    key: [__m512i; 4],
}

impl Keys16 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    fn new(block: &Block16) -> Keys16 {
        Keys16 { mask: block.mask.map(cast), key: block.key.map(cast) }
    }

    /// The lanes that agree with the words of a chunk.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    fn agreeing(&self, words: &Sixteen) -> u16 {
        self.agreeing_with(words, self.differ(words, PORTS))
    }

    /// The lanes that agree with the words of a first chunk.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    fn agreeing_first(&self, words: &Sixteen) -> u16 {
        let (below, above) = (
            _mm512_subs_epu16(self.mask[PORTS], words.0[PORTS]),
            _mm512_subs_epu16(words.0[PORTS], self.key[PORTS]),
        );
        self.agreeing_with(words, _mm512_or_epi32(below, above))
    }

    /// The lanes that agree, if `ports` has the bits by which the word [`PORTS`] differs.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    fn agreeing_with(&self, words: &Sixteen, ports: __m512i) -> u16 {
        let [one, two, three] = [0, 1, 3].map(|word| self.differ(words, word));
        let any = _mm512_or_epi32(_mm512_ternarylogic_epi32::<ANY>(one, two, three), ports);
        _mm512_testn_epi32_mask(any, any)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    fn differ(&self, words: &Sixteen, word: usize) -> __m512i {
        _mm512_ternarylogic_epi32::<MASKED_XOR>(words.0[word], self.mask[word], self.key[word])
    }
}

/// The lanes whose further conditions a window satisfies, as bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
fn compare_further16(further: &Further<16>, window: &Window) -> u32 {
    let mut any = _mm512_setzero_si512();
    for word in further.words() {
        let own = _mm512_set1_epi32(word.of(window) as i32);
        any = _mm512_or_epi32(
            any,
            _mm512_ternarylogic_epi32::<MASKED_XOR>(own, cast(word.mask), cast(word.key)),
        );
    }
    for range in further.ranges() {
        let (low, span): (__m512i, __m512i) = (cast(range.low), cast(range.span));
        let distance = _mm512_sub_epi32(_mm512_set1_epi32(range.of(window) as i32), low);
        any = _mm512_ternarylogic_epi32::<ANY_DIFFER>(any, _mm512_max_epu32(distance, span), span);
    }
    _mm512_testn_epi32_mask(any, any).into()
}

/// As [`compare_further16`], for eight lanes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(crate) fn compare_further8(further: &Further<8>, window: &Window) -> u32 {
    let mut any = _mm256_setzero_si256();
    for word in further.words() {
        let own = _mm256_set1_epi32(word.of(window) as i32);
        let differ = _mm256_xor_si256(_mm256_and_si256(own, cast(word.mask)), cast(word.key));
        any = _mm256_or_si256(any, differ);
    }
    for range in further.ranges() {
        let (low, span): (__m256i, __m256i) = (cast(range.low), cast(range.span));
        let distance = _mm256_sub_epi32(_mm256_set1_epi32(range.of(window) as i32), low);
        any = _mm256_or_si256(any, _mm256_xor_si256(_mm256_max_epu32(distance, span), span));
    }
    _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(any, _mm256_setzero_si256()))) as u32
}

/// As [`compare_further16`], for four lanes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
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

/// Adds those of eight slots whose bit is set in `lanes` to `hits`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(crate) fn push_matches8(hits: &mut HitWriter<'_>, lanes: u32, slots: &[u32; 8]) {
    let packed = _mm256_maskz_compress_epi32(lanes as u8, cast(*slots));
    hits.push_first(&cast::<_, [u32; 8]>(packed), lanes.count_ones() as usize);
}

/// Adds those of sixteen slots whose bit is set in `lanes` to `hits`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(crate) fn push_matches16(hits: &mut HitWriter<'_>, lanes: u32, slots: &[u32; 16]) {
    let packed = _mm512_maskz_compress_epi32(lanes as u16, cast(*slots));
    hits.push_first(&cast::<_, [u32; 16]>(packed), lanes.count_ones() as usize);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::leaf::{Row, first_words};
    use crate::pattern::{Entry, Field, MaskedKey, Presence, Ranges, Test};
    use crate::vector::Simd;

    /// An entry for bits of a chunk, and for a range of a field of the second chunk if `ends` are in order.
    fn entry(chunk: usize, (first, len, value): (usize, usize, u8), ends: (u8, u8)) -> Option<Entry> {
        let cover = MaskedKey::bits(chunk * 128 + first * 32, len, u128::from(value) << (len / 2))?;
        let present = Presence { byte: 0, mask: 0, value: 0 };
        let field = Field { chunk: 1, shift: 96, width: 32, present };
        let ranges = Ranges::new([(ends.0.into(), ends.1.into())]);
        let test = Test::InRanges { field, ranges, absent: false };
        Entry::new(&cover, (ends.0 <= ends.1).then_some(test))
    }

    proptest! {
        #[test]
        #[allow(unsafe_code)]
        fn eight_entries_agree_as_without_avx512(
            entries in proptest::collection::vec(
                (0..3usize, (0..4usize, 1..=32usize, 0..3u8), (0..4u8, 0..4u8)), 1..20),
            windows in proptest::collection::vec(proptest::array::uniform24(0..3u32), 1..8),
        ) {
            if !Simd::detect().has_avx512() {
                return Ok(());
            }
            let entries = entries.into_iter().filter_map(|(chunk, bits, ends)| entry(chunk, bits, ends));
            let row: Row<8> = entries.map(|entry| (0, entry.into())).collect();
            for chunk in windows.iter().map(|words| cast::<[u32; 24], [u128; 6]>(words.map(u32::to_be))) {
                let window = Window { chunk };
                let words = first_words(window.chunk[0]);
                for block in row.blocks() {
                    // SAFETY: the processor has the instructions.
                    let (lanes, further) = unsafe {
                        (compare8(block, &Eight::first(&window), &window), compare_further8(&block.further, &window))
                    };
                    prop_assert_eq!(lanes, block.agreeing_chunk(&words, &window));
                    prop_assert_eq!(further, block.further.agreeing_lanes(&window));
                }
            }
        }

        #[test]
        #[allow(unsafe_code)]
        fn collects_the_first_packets_with_bits(
            n in 0..=VECTOR,
            some in proptest::collection::btree_map(0..VECTOR, (0..3u64, 0..2u16), 0..40),
        ) {
            if !Simd::detect().has_avx512() {
                return Ok(());
            }
            let (mut tables, mut lanes, mut packets) = ([0; VECTOR], [0; VECTOR], [0; VECTOR]);
            some.iter().for_each(|(at, (table, lane))| (tables[*at], lanes[*at]) = (table << 40, lane << 15));
            // SAFETY: the processor has the instructions.
            let found = unsafe { collect_nonzero(n, (&tables, &lanes), &mut packets) };
            let is_it = |packet: &u16| tables[usize::from(*packet)] != 0 || lanes[usize::from(*packet)] != 0;
            let expected: Vec<u16> = (0..n as u16).filter(is_it).collect();
            prop_assert_eq!(&packets[..found], &expected[..]);
        }

        #[test]
        #[allow(unsafe_code)]
        fn marks_the_first_packets(n in 0..=VECTOR, stale: u16, own: u16, partial: u16) {
            if !Simd::detect().has_avx512() {
                return Ok(());
            }
            let (mut lanes, mut any) = ([stale; VECTOR], [0; VECTOR]);
            lanes[..n].fill(own);
            let further = |packet: usize| {
                assert!(packet < n, "there is no packet {packet}");
                u32::from(!partial | 0xff)
            };
            // SAFETY: the processor has the instructions.
            unsafe { mark_all(n, (partial, further), (&mut lanes, &mut any, 4)) };
            let agreeing = own & (!partial | 0xff);
            let bit = 4 * u16::from(agreeing != 0);
            prop_assert!(lanes[..n].iter().all(|lanes| *lanes == agreeing));
            prop_assert!(any[..n].iter().all(|bits| *bits == bit));
        }
    }
}
