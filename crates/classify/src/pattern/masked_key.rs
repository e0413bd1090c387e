//! Masks and keys over the window.

use mmb_packet::window::{CHUNK, CHUNKS, IP6_EXTENSIONS, KIND, OPTIONS_PRESENT, OPTIONS_VALUED};
use mmb_packet::{Kind, Window};

/// Bits in a chunk.
const CHUNK_BITS: usize = CHUNK * 8;

/// A mask over the window and the required value of the masked bits. Chunks are native-endian over the
/// window's bytes, as in [`Window`]. Key bits outside the mask are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MaskedKey {
    mask: [u128; CHUNKS],
    key: [u128; CHUNKS],
}

impl MaskedKey {
    /// Matches every window.
    pub const ANY: MaskedKey = MaskedKey { mask: [0; CHUNKS], key: [0; CHUNKS] };

    /// Matches the windows of IPv4 and IPv6 packets: the bit that both values of [`Kind`]'s low nibble have
    /// in common.
    pub const IP: MaskedKey = {
        let mut ip = MaskedKey::ANY;
        let bit = ((Kind::IP4 & Kind::IP6) as u128) << (CHUNK_BITS - 8 - KIND * 8);
        ip.mask[0] = bit.to_be();
        ip.key[0] = bit.to_be();
        ip
    };

    /// Requires that bits `at..at + width` of the window equal the low `width` bits of `value`. Bit 0 is the
    /// most significant bit of byte 0. None if the bits are not all within one chunk.
    pub fn bits(at: usize, width: usize, value: u128) -> Option<MaskedKey> {
        let (chunk, first) = (at / CHUNK_BITS, at % CHUNK_BITS);
        if chunk >= CHUNKS || width == 0 || first + width > CHUNK_BITS {
            return None;
        }
        let ones = u128::MAX >> (CHUNK_BITS - width);
        let shift = CHUNK_BITS - first - width;
        let mut masked = MaskedKey::ANY;
        masked.mask[chunk] = (ones << shift).to_be();
        masked.key[chunk] = ((value & ones) << shift).to_be();
        Some(masked)
    }

    /// Bits of the window's [`KIND`] byte: `kind & mask == value`.
    pub fn kind((mask, value): (u8, u8)) -> MaskedKey {
        let byte = |b: u8| (u128::from(b) << (CHUNK_BITS - 8 - KIND * 8)).to_be();
        let mut masked = MaskedKey::ANY;
        masked.mask[0] = byte(mask);
        masked.key[0] = byte(value & mask);
        masked
    }

    /// Mask and key of the window's [`KIND`] byte.
    pub(crate) fn kind_bits(&self) -> (u8, u8) {
        let byte = |chunk: u128| chunk.to_ne_bytes()[KIND];
        (byte(self.mask[0]), byte(self.key[0]))
    }

    /// Bits of one byte of the window: `window[at] & mask == value`. None if there is no such byte.
    pub fn byte(at: usize, mask: u8, value: u8) -> Option<MaskedKey> {
        let of_byte = |bits: u8| MaskedKey::bits(at * 8, 8, bits.into());
        Some(MaskedKey { mask: of_byte(mask)?.key, key: of_byte(value & mask)?.key })
    }

    /// Adds the bits `mask` of a chunk, with the values of `key`.
    pub(crate) fn with(&self, chunk: usize, mask: u128, key: u128) -> MaskedKey {
        let mut both = *self;
        both.mask[chunk] |= mask;
        both.key[chunk] |= key & mask;
        both
    }

    /// Removes the bits `mask` of a chunk.
    pub(crate) fn without(&self, chunk: usize, mask: u128) -> MaskedKey {
        let mut rest = *self;
        rest.mask[chunk] &= !mask;
        rest.key[chunk] &= !mask;
        rest
    }

    /// The conjunction of both. None if no window satisfies both.
    pub fn and(&self, other: &MaskedKey) -> Option<MaskedKey> {
        let mut both = *self;
        for i in 0..CHUNKS {
            if (self.key[i] ^ other.key[i]) & self.mask[i] & other.mask[i] != 0 {
                return None;
            }
            both.mask[i] |= other.mask[i];
            both.key[i] |= other.key[i];
        }
        Some(both)
    }

    /// Whether every window that satisfies it satisfies `other`, too.
    pub(crate) fn implies(&self, other: &MaskedKey) -> bool {
        self.and(other) == Some(*self)
    }

    /// Requires the bits of `other` as well. True if it has changed. None if no window satisfies both; the
    /// value has no meaning then.
    pub(crate) fn restrict(&mut self, other: &MaskedKey) -> Option<bool> {
        let mut added = 0;
        for i in 0..CHUNKS {
            if (self.key[i] ^ other.key[i]) & self.mask[i] & other.mask[i] != 0 {
                return None;
            }
            added |= other.mask[i] & !self.mask[i];
            self.mask[i] |= other.mask[i];
            self.key[i] |= other.key[i];
        }
        Some(added != 0)
    }

    /// The bits that every window satisfying either of the two has in common.
    pub(crate) fn shared(&self, other: &MaskedKey) -> MaskedKey {
        let mut shared = MaskedKey::ANY;
        for i in 0..CHUNKS {
            shared.mask[i] = self.mask[i] & other.mask[i] & !(self.key[i] ^ other.key[i]);
            shared.key[i] = self.key[i] & shared.mask[i];
        }
        shared
    }

    /// Whether the window satisfies it.
    #[inline]
    pub fn holds(&self, window: &Window) -> bool {
        let differ = |i: usize| (window.chunk[i] & self.mask[i]) ^ self.key[i];
        (0..CHUNKS).fold(0, |acc, i| acc | differ(i)) == 0
    }

    /// The chunks with masked bits, as a bit set.
    pub fn chunks(&self) -> u8 {
        (0..CHUNKS).fold(0, |chunks, i| chunks | u8::from(self.mask[i] != 0) << i)
    }

    /// Removes conditions that the rest implies: only TCP segments have TCP options, and only IPv6 packets
    /// have extension headers. A key that requires an option, and of the first chunk only that protocol, then
    /// reads one chunk alone.
    pub(crate) fn without_implied(&self) -> MaskedKey {
        let kind_only = |bits: u8| (u128::from(bits) << (CHUNK_BITS - 8 - KIND * 8)).to_be();
        let index = self.key[CHUNKS - 1].to_ne_bytes();
        let (options, extensions) = (OPTIONS_PRESENT % CHUNK, IP6_EXTENSIONS % CHUNK);
        let tcp = if index[options] | index[OPTIONS_VALUED % CHUNK] != 0 { Kind::L4_MASK } else { 0 };
        let ip6 = if index[extensions] | index[extensions + 1] != 0 { Kind::L3_MASK } else { 0 };
        let [known, wanted] = [MaskedKey::kind((tcp | ip6, Kind::TCP & tcp | Kind::IP6 & ip6)), *self];
        let rest = self.mask[0] & !kind_only(tcp | ip6) & !MaskedKey::IP.mask[0];
        if rest != 0 || known.and(&wanted).is_none() {
            return *self;
        }
        let mut short = *self;
        (short.mask[0], short.key[0]) = (MaskedKey::IP.mask[0], MaskedKey::IP.key[0]);
        short
    }

    /// The mask, chunk by chunk.
    pub fn mask(&self) -> &[u128; CHUNKS] {
        &self.mask
    }

    /// The key, chunk by chunk.
    pub fn key(&self) -> &[u128; CHUNKS] {
        &self.key
    }
}

/// A [`MaskedKey`] in less memory: the first chunk, and others that it reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CompactKey {
    mask: u128,
    key: u128,
    others: Box<[MaskedChunk]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MaskedChunk {
    chunk: u8,
    mask: u128,
    key: u128,
}

impl CompactKey {
    pub fn new(masked: &MaskedKey) -> CompactKey {
        let used = (1..CHUNKS).filter(|&i| masked.mask[i] != 0);
        let chunk = |i: usize| MaskedChunk { chunk: i as u8, mask: masked.mask[i], key: masked.key[i] };
        CompactKey { mask: masked.mask[0], key: masked.key[0], others: used.map(chunk).collect() }
    }

    /// The masked key.
    pub fn expand(&self) -> MaskedKey {
        let first = MaskedKey::ANY.with(0, self.mask, self.key);
        self.others.iter().fold(first, |all, own| all.with(own.chunk.into(), own.mask, own.key))
    }

    /// Mask and key of a chunk.
    pub fn chunk(&self, chunk: usize) -> (u128, u128) {
        if chunk == 0 {
            return (self.mask, self.key);
        }
        let own = self.others.iter().find(|own| usize::from(own.chunk) == chunk);
        own.map_or((0, 0), |own| (own.mask, own.key))
    }

    /// Whether the window satisfies it.
    pub fn holds(&self, window: &Window) -> bool {
        window.chunk[0] & self.mask == self.key
            && self
                .others
                .iter()
                .all(|own| window.chunk[usize::from(own.chunk) % CHUNKS] & own.mask == own.key)
    }

    /// Bits by which the window does not satisfy it. 0 if it does. Unlike [`CompactKey::holds`], no branch
    /// depends on the first chunk.
    #[inline(always)]
    pub fn differing_bits(&self, window: &Window) -> u128 {
        let of_chunk = |own: &MaskedChunk| window.chunk[usize::from(own.chunk) % CHUNKS] & own.mask ^ own.key;
        let first = window.chunk[0] & self.mask ^ self.key;
        self.others.iter().fold(first, |bits, own| bits | of_chunk(own))
    }

    /// Bytes of memory behind it.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.others)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_bit_is_the_most_significant_of_the_first_byte() {
        let masked = MaskedKey::bits(16 * 8 + 4, 12, 0xabc).unwrap();
        let mut window = Window::default();
        window.bytes_mut()[16..18].copy_from_slice(&[0x5a, 0xbc]);
        assert!(masked.holds(&window));
        window.bytes_mut()[16] = 0x5b;
        assert!(!masked.holds(&window));
    }

    #[test]
    fn refuses_bits_outside_one_chunk() {
        assert!(MaskedKey::bits(120, 9, 0).is_none());
        assert!(MaskedKey::bits(CHUNKS * CHUNK_BITS, 1, 0).is_none());
        assert!(MaskedKey::bits(0, 0, 0).is_none());
        assert!(MaskedKey::bits(128, 128, u128::MAX).is_some());
    }

    #[test]
    fn ip_is_ip4_or_ip6() {
        let with_kind = |kind: u8| {
            let mut window = Window::default();
            window.bytes_mut()[KIND] = kind;
            window
        };
        assert!(
            MaskedKey::IP.holds(&with_kind(Kind::IP4 | Kind::TCP))
                && MaskedKey::IP.holds(&with_kind(Kind::IP6))
        );
        assert!(!MaskedKey::IP.holds(&with_kind(0)));
        assert!(MaskedKey::kind((Kind::L4_MASK, Kind::UDP)).holds(&with_kind(Kind::IP6 | Kind::UDP)));
        assert!(!MaskedKey::kind((Kind::L4_MASK, Kind::UDP)).holds(&with_kind(Kind::IP6 | Kind::TCP)));
    }

    proptest! {
        #[test]
        fn and_is_conjunction(a in 0usize..600, b in 0usize..16, wa in 1usize..40, wb in 1usize..40,
                              va: u128, vb: u128, bytes: [[u8; 24]; 4]) {
            let (Some(x), Some(y)) = (MaskedKey::bits(a, wa, va), MaskedKey::bits((a + b) % 768, wb, vb)) else {
                return Ok(());
            };
            let mut window = Window::default();
            window.bytes_mut().copy_from_slice(bytes.as_flattened());
            for window in [window, Window { chunk: *x.key() }, Window { chunk: *y.key() }] {
                let both = x.and(&y);
                prop_assert_eq!(both.is_some_and(|m| m.holds(&window)), x.holds(&window) && y.holds(&window));
                prop_assert_eq!(CompactKey::new(&x).holds(&window), x.holds(&window));
            }
            let mut restricted = x;
            prop_assert_eq!(restricted.restrict(&y), x.and(&y).map(|both| both != x));
            if let Some(both) = x.and(&y) {
                let compact = CompactKey::new(&both);
                prop_assert_eq!(compact.expand(), both);
                let chunks = (0..CHUNKS).map(|chunk| compact.chunk(chunk));
                prop_assert!(chunks.eq(both.mask.into_iter().zip(both.key)));
                prop_assert_eq!(restricted, both);
                let own = Window { chunk: *both.key() };
                prop_assert!(both.holds(&own));
            }
        }
    }
}
