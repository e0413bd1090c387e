//! The header bits that the matches of a rule determine.

/// 32-bit words of the longest header: IPv6.
const WORDS: usize = 10;

/// The determined bits of a header, and their values. Fields of up to 32 bits lie within one word; longer
/// fields start and end at word boundaries.
#[derive(Clone, Copy, Default)]
pub(super) struct Header {
    fixed: [u32; WORDS],
    value: [u32; WORDS],
}

impl Header {
    /// Sets the bits of `mask` in the field at `bit` to `key`. False if a bit is already set to the opposite.
    pub(super) fn fix(&mut self, bit: u16, mask: u128, key: u128, width: u16) -> bool {
        words(bit, mask, key, width).all(|(word, mask, key)| {
            let clash = self.fixed[word] & mask & (self.value[word] ^ key);
            self.fixed[word] |= mask;
            self.value[word] |= key & mask;
            clash == 0
        })
    }

    /// Whether all bits of `mask` are determined and equal `key`.
    pub(super) fn is_fixed_to(&self, bit: u16, mask: u128, key: u128, width: u16) -> bool {
        words(bit, mask, key, width)
            .all(|(word, mask, key)| self.fixed[word] & mask == mask && (self.value[word] ^ key) & mask == 0)
    }

    /// The value of a field of up to 32 bits, if all of its bits are determined.
    pub(super) fn get(&self, bit: u16, width: u16) -> Option<u32> {
        let word = usize::from(bit) / 32;
        let shift = 32 - bit % 32 - width;
        let all = u32::MAX >> (32 - width);
        (self.fixed[word] >> shift & all == all).then(|| self.value[word] >> shift & all)
    }
}

/// The words of a field, with the part of mask and key in each.
fn words(bit: u16, mask: u128, key: u128, width: u16) -> impl Iterator<Item = (usize, u32, u32)> {
    let first = usize::from(bit) / 32;
    let last = usize::from(bit + width - 1) / 32;
    let left = 31 - (bit + width - 1) % 32;
    (first..=last).map(move |word| {
        let right = 32 * (last - word);
        let part = |bits: u128| (bits << left >> right) as u32;
        (word, part(mask), part(key))
    })
}
