//! Compares packets with blocks of entries, with AVX-512.

use std::arch::x86_64::*;

use bytemuck::{cast, cast_mut};
use mmb_packet::Window;

use super::few::compare_few;
use super::{ANY, MASKED_XOR};
use crate::leaf::{Block4, Block8, Block16, Further, PORTS, first_chunk_words};
use crate::lookup::columns::ChunkColumns;
use crate::lookup::head_hits::HeadHits;
use crate::vector::VECTOR;

/// Blocks of sixteen with at most this many entries are compared entry by entry.
const FEW: usize = 8;

/// `a | (b ^ c)`.
const ANY_DIFFER: i32 = 0xf6;

/// Permutations that replicate each of two words eight times, in the lane order of [`Block8`].
const EIGHT_TIMES: [[u32; 16]; 2] =
    [[0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1], [2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3]];

/// The lanes of the second vector of [`Block8`]'s words that have the ports.
const PORT_LANES_8: u16 = 0xff;

/// Two words of a chunk in each vector, eight times each.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
fn eight_times(words: [u32; 4]) -> [__m512i; 2] {
    let words = _mm512_castsi128_si512(cast(words));
    EIGHT_TIMES.map(|order| _mm512_permutexvar_epi32(cast(order), words))
}

/// The lanes of a block of eight about the first chunk that agree with its words, as bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(crate) fn compare8_first(block: &Block8, words: &[u32; 4]) -> u32 {
    let (mask, key): ([__m512i; 2], [__m512i; 2]) = (cast(block.mask), cast(block.key));
    let words = eight_times(*words);
    let (below, above) = (_mm512_subs_epu16(mask[1], words[1]), _mm512_subs_epu16(words[1], key[1]));
    let one = _mm512_ternarylogic_epi32::<MASKED_XOR>(words[0], mask[0], key[0]);
    let two = _mm512_ternarylogic_epi32::<MASKED_XOR>(words[1], mask[1], key[1]);
    lanes_of_8(_mm512_or_epi32(one, _mm512_mask_or_epi32(two, PORT_LANES_8, below, above)))
}

/// The lanes of a block of eight about another chunk that agree with a window, as bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(crate) fn compare8_chunk(block: &Block8, window: &Window) -> u32 {
    let (mask, key): ([__m512i; 2], [__m512i; 2]) = (cast(block.mask), cast(block.key));
    let words = eight_times(cast(window.chunk[block.chunk()]));
    let one = _mm512_ternarylogic_epi32::<MASKED_XOR>(words[0], mask[0], key[0]);
    let two = _mm512_ternarylogic_epi32::<MASKED_XOR>(words[1], mask[1], key[1]);
    lanes_of_8(_mm512_or_epi32(one, two))
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
    agreeing: &mut [u16; VECTOR],
) {
    compare_few(block, columns, n, agreeing);
    let further = |packet| compare_further4(&block.further, window(packet));
    confirm_further(n, (block.partial_lanes(), further), agreeing);
}

/// [`compare4_with_all`] for a block of sixteen. `first` has the words of the packets' first chunks if they
/// have been read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(crate) fn compare16_with_all<'a>(
    block: &Block16,
    (columns, first): (&ChunkColumns, Option<&[[u32; 4]; VECTOR]>),
    (n, window): (usize, impl Fn(usize) -> &'a Window),
    agreeing: &mut [u16; VECTOR],
) {
    let keys = Keys16::new(block);
    let lanes = agreeing[..n].iter_mut();
    match first {
        _ if block.len() <= FEW => compare_few(block, columns, n, agreeing),
        Some(first) if block.is_about_first() => {
            lanes.zip(first).for_each(|(lanes, words)| *lanes = keys.agreeing_first(&Sixteen::new(*words)));
        }
        _ if block.is_about_first() => {
            for (packet, lanes) in lanes.enumerate() {
                *lanes = keys.agreeing_first(&Sixteen::first(window(packet)));
            }
        }
        _ => {
            for (packet, lanes) in lanes.enumerate() {
                *lanes = keys.agreeing(&Sixteen::new(cast(window(packet).chunk[block.chunk()])));
            }
        }
    }
    let further = |packet| compare_further16(&block.further, window(packet));
    confirm_further(n, (block.partial_lanes(), further), agreeing);
}

/// Removes lanes of the first `n` packets whose further conditions a packet does not satisfy, and all lanes
/// of other packets. `agreeing` has the lanes that agree in the compared chunk: it was compared for all
/// packets first, without branches, since it is hard to predict which agree.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
fn confirm_further(
    n: usize,
    (partial, compare_further): (u16, impl Fn(usize) -> u32),
    agreeing: &mut [u16; VECTOR],
) {
    // Behind the packets are lanes of an earlier block.
    agreeing[n..].fill(0);
    if partial == 0 {
        return;
    }
    let partial = _mm512_set1_epi16(partial as i16);
    let groups = cast_mut::<_, [[u16; 32]; VECTOR / 32]>(agreeing).iter_mut();
    for (group, lanes) in groups.take(n.div_ceil(32)).enumerate() {
        let mut further = _mm512_test_epi16_mask(cast(*lanes), partial);
        while further != 0 {
            let at = further.trailing_zeros() as usize;
            lanes[at % 32] &= compare_further(group * 32 + at) as u16;
            further &= further - 1;
        }
    }
}

/// Collects the packets with bits in `lanes`; returns their number.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(crate) fn collect_nonzero(lanes: &[u16; VECTOR], packets: &mut [u16; VECTOR]) -> usize {
    collect(lanes.as_chunks().0, packets, |lanes: &[u16; 16]| {
        let lanes = cast(*lanes);
        _mm256_test_epi16_mask(lanes, lanes)
    })
}

/// Collects the heads with bits in `tables`; returns their number. Heads behind the last multiple of sixteen
/// are looked at one by one.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(crate) fn collect_heads(tables: &[u64], heads: &mut [u16; VECTOR]) -> usize {
    let (groups, rest) = tables.as_chunks();
    let mut found = collect(groups, heads, |tables: &[u64; 16]| {
        let [one, two]: [__m512i; 2] = cast(*tables);
        let [one, two] = [_mm512_test_epi64_mask(one, one), _mm512_test_epi64_mask(two, two)];
        u16::from(one) | u16::from(two) << 8
    });
    for (at, tables) in rest.iter().enumerate() {
        heads[found % VECTOR] = (groups.len() * 16 + at) as u16;
        found += usize::from(*tables != 0);
    }
    found
}

/// Collects the numbers of the elements that `select` yields as bits for groups of sixteen; returns how many
/// they are.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
fn collect<T>(groups: &[T], numbers: &mut [u16; VECTOR], select: impl Fn(&T) -> u16) -> usize {
    let mut found = 0;
    let numbers_of_16 = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    for (first, group) in (0..).step_by(16).zip(groups) {
        let some = select(group);
        // Often there are none in the whole vector.
        if some == 0 {
            continue;
        }
        let own = _mm512_add_epi32(numbers_of_16, _mm512_set1_epi32(first));
        let packed: [u16; 16] = cast(_mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(some, own)));
        // Sixteen are written at once, as long as there is room.
        match numbers.get_mut(found..).and_then(|rest| rest.first_chunk_mut::<16>()) {
            Some(place) => *place = packed,
            None => numbers.iter_mut().skip(found).zip(packed).for_each(|(place, number)| *place = number),
        }
        found += some.count_ones() as usize;
    }
    found
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
pub(crate) fn push_matches8(hits: &mut HeadHits, head: u16, lanes: u32, slots: &[u32; 8]) {
    let Some((place, len)) = hits.room(head) else { return hits.push_lanes(head, lanes, slots) };
    let packed = _mm256_maskz_compress_epi32(lanes as u8, cast(*slots));
    *place = cast::<_, [u32; 8]>(packed);
    *len += lanes.count_ones() as u16;
}

/// Adds those of sixteen slots whose bit is set in `lanes` to `hits`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(crate) fn push_matches16(hits: &mut HeadHits, head: u16, lanes: u32, slots: &[u32; 16]) {
    let Some((place, len)) = hits.room(head) else { return hits.push_lanes(head, lanes, slots) };
    let packed = _mm512_maskz_compress_epi32(lanes as u16, cast(*slots));
    *place = cast::<_, [u32; 16]>(packed);
    *len += lanes.count_ones() as u16;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::leaf::{Row, first_words};
    use crate::pattern::{Entry, Field, MaskedKey, Presence, Ranges, Test};
    use crate::vector::Simd;

    /// The lanes of a block of eight that agree in its chunk.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    fn compare8(block: &Block8, window: &Window) -> u32 {
        if block.is_about_first() {
            compare8_first(block, &first_chunk_words(window.chunk[0]))
        } else {
            compare8_chunk(block, window)
        }
    }

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
                        (compare8(block, &window), compare_further8(&block.further, &window))
                    };
                    prop_assert_eq!(lanes, block.agreeing_chunk(&words, &window));
                    prop_assert_eq!(further, block.further.agreeing_lanes(&window));
                }
            }
        }

        #[test]
        #[allow(unsafe_code)]
        fn collects_packets_with_bits(
            n in 0..=VECTOR,
            some in proptest::collection::btree_map(0..VECTOR, (0..3u64, 0..2u16), 0..VECTOR),
        ) {
            if !Simd::detect().has_avx512() {
                return Ok(());
            }
            let (mut tables, mut lanes, mut packets) = ([0; VECTOR], [0; VECTOR], [[0; VECTOR]; 2]);
            some.iter().for_each(|(at, (table, lane))| (tables[*at], lanes[*at]) = (table << 40, lane << 15));
            // SAFETY: the processor has the instructions.
            let found = unsafe {
                [collect_nonzero(&lanes, &mut packets[0]), collect_heads(&tables[..n], &mut packets[1])]
            };
            let of = |n: usize, is_it: &dyn Fn(usize) -> bool| -> Vec<u16> {
                (0..n).filter(|packet| is_it(*packet)).map(|packet| packet as u16).collect()
            };
            prop_assert_eq!(&packets[0][..found[0]], &of(VECTOR, &|packet| lanes[packet] != 0)[..]);
            prop_assert_eq!(&packets[1][..found[1]], &of(n, &|packet| tables[packet] != 0)[..]);
        }

        #[test]
        #[allow(unsafe_code)]
        fn confirms_the_first_packets(n in 0..=VECTOR, stale: u16, own: u16, partial: u16) {
            if !Simd::detect().has_avx512() {
                return Ok(());
            }
            let mut lanes = [stale; VECTOR];
            lanes[..n].fill(own);
            let further = |packet: usize| {
                assert!(packet < n, "there is no packet {packet}");
                u32::from(!partial | 0xff)
            };
            // SAFETY: the processor has the instructions.
            unsafe { confirm_further(n, (partial, further), &mut lanes) };
            let agreeing = own & (!partial | 0xff);
            prop_assert!(lanes[..n].iter().all(|lanes| *lanes == agreeing));
            prop_assert!(lanes[n..].iter().all(|lanes| *lanes == 0));
        }
    }
}
