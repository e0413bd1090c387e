//! Conditions of a block's entries outside the compared chunk: further words of the window.

use bytemuck::cast_ref;
use mmb_packet::Window;
use mmb_packet::window::{CHUNK, CHUNKS};

use crate::pattern::MaskedKey;

/// Number of words in a chunk and in a window.
const CHUNK_WORDS: usize = CHUNK / 4;
const WORDS: usize = CHUNKS * CHUNK_WORDS;

/// A word of the window that some entries of a block have a condition on.
#[derive(Clone, Debug)]
pub(crate) struct FurtherWord<const N: usize> {
    /// Masks and keys by entry. Entries without a condition on the word have zeros.
    pub mask: [u32; N],
    pub key: [u32; N],
    /// Index of the word.
    at: u8,
}

impl<const N: usize> FurtherWord<N> {
    /// The word of a packet.
    #[inline(always)]
    pub fn of(&self, window: &Window) -> u32 {
        cast_ref::<_, [u32; WORDS]>(&window.chunk)[usize::from(self.at) % WORDS]
    }
}

/// The further words of a block. Most blocks have none.
#[derive(Clone, Debug)]
#[expect(clippy::box_collection, reason = "a thin pointer: a block of four fills three cache lines")]
pub(crate) struct FurtherWords<const N: usize>(Option<Box<Vec<FurtherWord<N>>>>);

impl<const N: usize> FurtherWords<N> {
    /// No words.
    pub const NONE: Self = FurtherWords(None);

    /// Adds the conditions of the entry in `lane` outside a chunk. The conditions that all IP packets satisfy
    /// are left out. Returns whether there are any.
    pub fn add(&mut self, lane: usize, cover: &MaskedKey, compared: usize) -> bool {
        let mask = std::array::from_fn(|chunk| {
            if chunk == compared { 0 } else { cover.mask()[chunk] & !MaskedKey::IP.mask()[chunk] }
        });
        let (masks, keys) = (cast_ref::<_, [u32; WORDS]>(&mask), cast_ref::<_, [u32; WORDS]>(cover.key()));
        for at in (0..WORDS).filter(|&at| masks[at] != 0) {
            let words = self.0.get_or_insert_default();
            let index = words.iter().position(|word| usize::from(word.at) == at).unwrap_or_else(|| {
                words.push(FurtherWord { mask: [0; N], key: [0; N], at: at as u8 });
                words.len() - 1
            });
            (words[index].mask[lane], words[index].key[lane]) = (masks[at], keys[at] & masks[at]);
        }
        mask != [0; CHUNKS]
    }

    #[inline(always)]
    pub fn all(&self) -> &[FurtherWord<N>] {
        self.0.as_deref().map_or(&[], |words| words)
    }

    /// The lanes that agree with a packet in all words, as bits.
    #[inline(always)]
    pub fn agreeing_lanes(&self, window: &Window) -> u32 {
        let mut differ = [0; N];
        for word in self.all() {
            let own = word.of(window);
            let lanes = word.mask.iter().zip(&word.key);
            differ.iter_mut().zip(lanes).for_each(|(differ, (mask, key))| *differ |= own & mask ^ key);
        }
        (0..N).fold(0, |lanes, lane| lanes | u32::from(differ[lane] == 0) << lane)
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        size_of_val(self.all())
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn words_are_all_conditions_outside_the_chunk(
            conditions in vec((0usize..4, 0..CHUNKS * CHUNK, 0u128..2), 1..12),
            compared in 0..CHUNKS,
            bytes in vec(0u8..2, CHUNKS * CHUNK),
        ) {
            let mut covers = [MaskedKey::IP; 4];
            for (lane, byte, value) in conditions {
                let condition = MaskedKey::bits(byte * 8, 8, value).expect("one byte");
                covers[lane] = covers[lane].and(&condition).unwrap_or(covers[lane]);
            }
            let mut window = Window::default();
            window.bytes_mut().copy_from_slice(&bytes);
            window.chunk[0] |= MaskedKey::IP.key()[0];
            let mut words = FurtherWords::<4>::NONE;
            let mut expected = 0;
            for (lane, cover) in covers.iter().enumerate() {
                let mut ip = window;
                ip.chunk[compared] = ip.chunk[compared] & !cover.mask()[compared] | cover.key()[compared];
                let any = words.add(lane, cover, compared);
                let others = cover.chunks() & !(1 << compared) & !1;
                let only_chunk_0 = others == 0 && (compared == 0 || cover.mask()[0] == MaskedKey::IP.mask()[0]);
                prop_assert_eq!(any, !only_chunk_0);
                expected |= u32::from(cover.holds(&ip)) << lane;
            }
            prop_assert_eq!(words.agreeing_lanes(&window), expected);
        }
    }
}
