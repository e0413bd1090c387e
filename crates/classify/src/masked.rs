//! Masks and keys over the window.

use mmb_packet::window::{CHUNK, CHUNKS, IP6_EXTENSIONS, KIND, OPTIONS_PRESENT, OPTIONS_VALUED};
use mmb_packet::{Kind, Window};

/// Bits in a chunk.
const CHUNK_BITS: usize = CHUNK * 8;

/// A mask over the window and the value of the masked bits. Chunks are native-endian over the window's bytes, as in
/// [`Window`]; key bits outside the mask are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Masked {
    mask: [u128; CHUNKS],
    key: [u128; CHUNKS],
}

impl Masked {
    /// Every window.
    pub const ANY: Masked = Masked { mask: [0; CHUNKS], key: [0; CHUNKS] };

    /// The windows of IPv4 and IPv6 packets: the bit that the two values of [`Kind`]'s low nibble have in common.
    pub const IP: Masked = {
        let mut ip = Masked::ANY;
        let bit = ((Kind::IP4 & Kind::IP6) as u128) << (CHUNK_BITS - 8 - KIND * 8);
        ip.mask[0] = bit.to_be();
        ip.key[0] = bit.to_be();
        ip
    };

    /// Bits `at..at + width` of the window equal the low `width` bits of `value`. Bit 0 is the most significant bit of
    /// byte 0. None: the bits are not all inside one chunk.
    pub fn bits(at: usize, width: usize, value: u128) -> Option<Masked> {
        let (chunk, first) = (at / CHUNK_BITS, at % CHUNK_BITS);
        if chunk >= CHUNKS || width == 0 || first + width > CHUNK_BITS {
            return None;
        }
        let ones = u128::MAX >> (CHUNK_BITS - width);
        let shift = CHUNK_BITS - first - width;
        let mut masked = Masked::ANY;
        masked.mask[chunk] = (ones << shift).to_be();
        masked.key[chunk] = ((value & ones) << shift).to_be();
        Some(masked)
    }

    /// Bits of the window's [`KIND`] byte: `kind & mask == value`.
    pub fn kind((mask, value): (u8, u8)) -> Masked {
        let byte = |b: u8| (u128::from(b) << (CHUNK_BITS - 8 - KIND * 8)).to_be();
        let mut masked = Masked::ANY;
        masked.mask[0] = byte(mask);
        masked.key[0] = byte(value & mask);
        masked
    }

    /// Bits of one byte of the window: `window[at] & mask == value`. None: there is no such byte.
    pub fn byte(at: usize, mask: u8, value: u8) -> Option<Masked> {
        let of_byte = |bits: u8| Masked::bits(at * 8, 8, bits.into());
        Some(Masked { mask: of_byte(mask)?.key, key: of_byte(value & mask)?.key })
    }

    /// With the bits `mask` of a chunk known to be those of `key`.
    pub(crate) fn with(&self, chunk: usize, mask: u128, key: u128) -> Masked {
        let mut both = *self;
        both.mask[chunk] |= mask;
        both.key[chunk] |= key & mask;
        both
    }

    /// Both at once; None: no window satisfies both.
    pub fn and(&self, other: &Masked) -> Option<Masked> {
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

    /// What every window that satisfies either has in common.
    pub(crate) fn shared(&self, other: &Masked) -> Masked {
        let mut shared = Masked::ANY;
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

    /// The chunks that it looks at, as bits.
    pub fn chunks(&self) -> u8 {
        (0..CHUNKS).fold(0, |chunks, i| chunks | u8::from(self.mask[i] != 0) << i)
    }

    /// Without what follows from the rest: only TCP segments have TCP options, and only IPv6 packets extension headers, so
    /// that what asks for one of those, and of the first chunk for nothing but such a packet, asks of one chunk alone.
    pub(crate) fn without_implied(&self) -> Masked {
        let kind_only = |bits: u8| (u128::from(bits) << (CHUNK_BITS - 8 - KIND * 8)).to_be();
        let index = self.key[CHUNKS - 1].to_ne_bytes();
        let (options, extensions) = (OPTIONS_PRESENT % CHUNK, IP6_EXTENSIONS % CHUNK);
        let tcp = if index[options] | index[OPTIONS_VALUED % CHUNK] != 0 { Kind::L4_MASK } else { 0 };
        let ip6 = if index[extensions] | index[extensions + 1] != 0 { Kind::L3_MASK } else { 0 };
        let [known, wanted] = [Masked::kind((tcp | ip6, Kind::TCP & tcp | Kind::IP6 & ip6)), *self];
        let rest = self.mask[0] & !kind_only(tcp | ip6) & !Masked::IP.mask[0];
        if rest != 0 || known.and(&wanted).is_none() {
            return *self;
        }
        let mut short = *self;
        (short.mask[0], short.key[0]) = (Masked::IP.mask[0], Masked::IP.key[0]);
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

/// A [`Masked`] without the chunks that it does not look at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Test(Box<[Term]>);

#[derive(Clone, Copy, Debug)]
struct Term {
    chunk: u8,
    mask: u128,
    key: u128,
}

impl Test {
    pub fn new(masked: &Masked) -> Test {
        let used = (0..CHUNKS).filter(|&i| masked.mask[i] != 0);
        Test(used.map(|i| Term { chunk: i as u8, mask: masked.mask[i], key: masked.key[i] }).collect())
    }

    pub fn holds(&self, window: &Window) -> bool {
        self.0.iter().all(|t| window.chunk[usize::from(t.chunk) % CHUNKS] & t.mask == t.key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_bit_is_the_most_significant_of_the_first_byte() {
        let masked = Masked::bits(16 * 8 + 4, 12, 0xabc).unwrap();
        let mut window = Window::default();
        window.bytes_mut()[16..18].copy_from_slice(&[0x5a, 0xbc]);
        assert!(masked.holds(&window));
        window.bytes_mut()[16] = 0x5b;
        assert!(!masked.holds(&window));
    }

    #[test]
    fn refuses_bits_outside_one_chunk() {
        assert!(Masked::bits(120, 9, 0).is_none());
        assert!(Masked::bits(CHUNKS * CHUNK_BITS, 1, 0).is_none());
        assert!(Masked::bits(0, 0, 0).is_none());
        assert!(Masked::bits(128, 128, u128::MAX).is_some());
    }

    #[test]
    fn ip_is_ip4_or_ip6() {
        let with_kind = |kind: u8| {
            let mut window = Window::default();
            window.bytes_mut()[KIND] = kind;
            window
        };
        assert!(
            Masked::IP.holds(&with_kind(Kind::IP4 | Kind::TCP)) && Masked::IP.holds(&with_kind(Kind::IP6))
        );
        assert!(!Masked::IP.holds(&with_kind(0)));
        assert!(Masked::kind((Kind::L4_MASK, Kind::UDP)).holds(&with_kind(Kind::IP6 | Kind::UDP)));
        assert!(!Masked::kind((Kind::L4_MASK, Kind::UDP)).holds(&with_kind(Kind::IP6 | Kind::TCP)));
    }

    proptest! {
        #[test]
        fn and_is_conjunction(a in 0usize..600, b in 0usize..16, wa in 1usize..40, wb in 1usize..40,
                              va: u128, vb: u128, bytes: [[u8; 24]; 4]) {
            let (Some(x), Some(y)) = (Masked::bits(a, wa, va), Masked::bits((a + b) % 768, wb, vb)) else {
                return Ok(());
            };
            let mut window = Window::default();
            window.bytes_mut().copy_from_slice(bytes.as_flattened());
            for window in [window, Window { chunk: *x.key() }, Window { chunk: *y.key() }] {
                let both = x.and(&y);
                prop_assert_eq!(both.is_some_and(|m| m.holds(&window)), x.holds(&window) && y.holds(&window));
                prop_assert_eq!(Test::new(&x).holds(&window), x.holds(&window));
            }
            if let Some(both) = x.and(&y) {
                let own = Window { chunk: *both.key() };
                prop_assert!(both.holds(&own));
            }
        }
    }
}
