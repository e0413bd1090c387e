//! Fields of the window: where a value stands and which packets have it.

use mmb_packet::Window;
use mmb_packet::window::{CHUNK, CHUNKS};

use super::masked_key::MaskedKey;
use super::ranges::largest;

/// Position of a field's value in the window, and the condition for the field's presence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Field {
    /// Chunk of the value. The value is bits `shift..shift + width` of this chunk, read as a big-endian
    /// number. With width 0 the field has no value (it reads 0); it is only present or absent.
    pub chunk: u8,
    /// See [`Field::chunk`].
    pub shift: u8,
    /// See [`Field::chunk`].
    pub width: u8,
    /// The packet has the field if `window[byte] & mask == value`.
    pub present: Presence,
}

/// A condition on one byte of the window: `window[byte] & mask == value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Presence {
    /// Offset in the window.
    pub byte: u8,
    /// The bits that are compared. With no bits the condition always holds.
    pub mask: u8,
    /// The required value of these bits.
    pub value: u8,
}

impl Presence {
    /// Whether the condition holds.
    #[inline]
    pub fn holds(&self, window: &Window) -> bool {
        window.bytes().get(usize::from(self.byte)).is_some_and(|byte| byte & self.mask == self.value)
    }

    /// Whether the condition holds for all packets whose bits are between those of two windows. None if it
    /// depends on the packet.
    pub(crate) fn holds_between(&self, least: &Window, most: &Window) -> Option<bool> {
        let bits = |window: &Window| window.bytes().get(usize::from(self.byte)).map(|byte| byte & self.mask);
        (bits(least) == bits(most)).then(|| self.holds(least))
    }

    /// The condition as a mask and a key.
    pub fn masked(&self) -> MaskedKey {
        MaskedKey::byte(self.byte.into(), self.mask, self.value).unwrap_or(MaskedKey::ANY)
    }
}

/// Reads a field from eight bytes of the window: `bytes >> shift & mask`. It is faster than [`Field::value`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WordReader {
    /// Offset of the bytes in the window.
    at: u8,
    shift: u8,
    /// Number of bits of the eight bytes before the field.
    before: u8,
    mask: u64,
}

impl WordReader {
    /// Offset of the window's last eight bytes.
    const LAST: usize = size_of::<Window>() - 8;

    /// The reader of a field. None if the field has no value, or is not within eight bytes.
    pub fn of(field: &Field) -> Option<WordReader> {
        let first = usize::from(field.chunk) * 128
            + 128usize.saturating_sub(usize::from(field.shift) + usize::from(field.width));
        let at = (first / 8).min(WordReader::LAST);
        let shift = 64usize.checked_sub(first - at * 8 + usize::from(field.width))?;
        let (before, at, mask) = ((first - at * 8) as u8, at as u8, largest(field.width) as u64);
        let reader = WordReader { at, shift: shift as u8, before, mask };
        (field.width > 0).then_some(reader)
    }

    /// The chunk of the field.
    pub fn chunk(&self) -> usize {
        (usize::from(self.at) + 7 - usize::from(self.shift) / 8) / CHUNK
    }

    /// The field's bits, even if the packet does not have the field.
    #[inline(always)]
    pub fn read(&self, window: &Window) -> u64 {
        self.word(window) >> (self.shift & 63) & self.mask
    }

    /// The field's bits as the highest bits of a word. Any bits follow.
    #[inline(always)]
    pub fn read_leading(&self, window: &Window) -> u64 {
        self.word(window) << (self.before & 63)
    }

    #[inline(always)]
    fn word(&self, window: &Window) -> u64 {
        let at = usize::from(self.at).min(WordReader::LAST);
        u64::from_be_bytes(window.bytes()[at..].first_chunk().copied().unwrap_or_default())
    }
}

/// Number of leading bits (of `width`) that two values have in common.
pub(crate) fn common_bits(width: u8, (low, high): (u128, u128)) -> u8 {
    width - (128 - (low ^ high).leading_zeros() as u8).min(width)
}

impl Field {
    /// The leading bits of values that two of them have in common, as a mask over the values.
    pub(crate) fn common_mask(&self, ends: (u128, u128)) -> u128 {
        largest(self.width) & !largest(self.width - common_bits(self.width, ends))
    }

    /// A cover without bits of the field, given as a mask over its values.
    pub(crate) fn without(&self, cover: &MaskedKey, bits: u128) -> MaskedKey {
        cover.without(self.chunk.into(), (bits << self.shift).to_be())
    }

    /// Whether both are the same bits of the window.
    pub(crate) fn has_place_of(&self, other: &Field) -> bool {
        (self.chunk, self.shift, self.width) == (other.chunk, other.shift, other.width)
    }

    /// The field's value, if the packet has the field.
    #[inline]
    pub fn read(&self, window: &Window) -> Option<u128> {
        self.present.holds(window).then(|| self.value(window))
    }

    /// The field's bits, even if the packet does not have the field.
    #[inline]
    pub fn value(&self, window: &Window) -> u128 {
        self.bits_of(&window.chunk)
    }

    /// Mask and key over the field's value: the bits that `cover` fixes.
    pub(crate) fn fixed(&self, cover: &MaskedKey) -> (u128, u128) {
        (self.bits_of(cover.mask()), self.bits_of(cover.key()))
    }

    /// Extracts the field's bits from the chunks of a window.
    #[inline(always)]
    pub(crate) fn bits_of(&self, chunks: &[u128; CHUNKS]) -> u128 {
        self.bits_of_chunk(chunks.get(usize::from(self.chunk)).copied().unwrap_or(0))
    }

    /// Extracts the field's bits from its chunk.
    #[inline(always)]
    pub(crate) fn bits_of_chunk(&self, chunk: u128) -> u128 {
        chunk.to_be().checked_shr(self.shift.into()).unwrap_or(0) & largest(self.width)
    }

    /// The chunks of the window that are needed to read the field, as a bit set.
    pub fn chunks(&self) -> u8 {
        let value = if self.width == 0 { 0 } else { 1 << self.chunk };
        let present = if self.present.mask == 0 { 0 } else { 1 << (usize::from(self.present.byte) / CHUNK) };
        value | present
    }
}
