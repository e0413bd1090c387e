//! TCP options (RFC 9293, 3.2): the walk over them, and their index in the window.
//!
//! Theory of operation. The walk goes from behind the fixed header to the data offset. Kind 0 ends it; kind 1 is one
//! byte of padding; any other kind needs a length byte of at least 2 with the whole option inside the header, else the
//! walk ends there, and nothing in that rest is an option. The index holds what conditions ask of the named options:
//! which are there (any occurrence), and the number in the last occurrence that has the kind's defined length, which is
//! the one that Linux and BSD act on.
//!
//! Nearly all segments of a connection carry two bytes of padding and a timestamp, which RFC 7323 (appendix A)
//! recommends and every stack sends; the index takes these twelve bytes, when they are all, in one step. It is put
//! together in registers: bytes stored one by one and read back as words would stall on every packet.

use crate::bytes;
use crate::loc::{ANY_OPTION, NamedOption};
use crate::meta::{Kind, Meta};

/// Bytes of the fixed header.
const FIXED: usize = 20;
/// Byte with the data offset.
const OFFSET_AT: usize = 12;

/// An option of kind 2 or above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOption<'a> {
    /// Its kind.
    pub kind: u8,
    /// What follows kind and length.
    pub data: &'a [u8],
    /// Offset of the kind byte from behind the fixed header, in bytes.
    pub at: usize,
}

/// Iterates over the options of a TCP header, in order. See [`tcp_options`].
#[derive(Clone, Debug)]
pub struct TcpOptions<'a> {
    area: &'a [u8],
    at: usize,
}

/// The options of a packet; none if it has no readable TCP header.
///
/// `head` is what [`crate::parse`] saw, `meta` what it found.
#[inline]
pub fn tcp_options<'a>(head: &'a [u8], meta: &Meta) -> TcpOptions<'a> {
    TcpOptions { area: area(head, meta), at: 0 }
}

/// From behind the fixed header to the data offset.
#[inline]
fn area<'a>(head: &'a [u8], meta: &Meta) -> &'a [u8] {
    if meta.kind.l4() != Kind::TCP {
        return &[];
    }
    let l4 = usize::from(meta.l4_off);
    let Some(offset) = head.get(l4 + OFFSET_AT) else { return &[] };
    let end = l4 + usize::from(offset >> 4) * 4;
    head.get(l4 + FIXED..end).unwrap_or(&[])
}

impl<'a> TcpOptions<'a> {
    /// The options in the bytes behind a fixed header.
    pub fn new(area: &'a [u8]) -> Self {
        TcpOptions { area, at: 0 }
    }

    /// All bytes from behind the fixed header to the data offset.
    pub fn area(&self) -> &'a [u8] {
        self.area
    }

    /// Where the options that were iterated over end, in bytes from behind the fixed header. After the last one, only
    /// padding and what cannot be read is left from there on.
    pub fn position(&self) -> usize {
        self.at
    }
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = TcpOption<'a>;

    #[inline]
    fn next(&mut self) -> Option<TcpOption<'a>> {
        let mut at = self.at;
        while let Some([kind, rest @ ..]) = self.area.get(at..) {
            match kind {
                0 => return None,
                1 => at += 1,
                _ => {
                    let length = usize::from(*rest.first()?);
                    let data = rest.get(1..length.checked_sub(1)?)?;
                    self.at = at + length;
                    return Some(TcpOption { kind: *kind, data, at });
                }
            }
        }
        None
    }
}

/// How nearly all options begin: two bytes of padding, kind and length of a timestamp.
const TIMESTAMP_START: u32 = u32::from_ne_bytes([1, 1, 8, 10]);
/// Bytes of a header with these options only.
const USUAL_BYTES: usize = FIXED + 12;

/// What the window says of a packet's options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    /// The timestamp's eight bytes as they lie in the packet, read natively.
    timestamp: u64,
    /// The eight bytes behind it as a number, the first byte on top: the shifts say what is where.
    rest: u64,
}

const MSS: u32 = 48;
const WSCALE: u32 = 40;
const PRESENT: u32 = 32;
const VALUED: u32 = 24;

/// Presence bits by kind.
static BITS: [u8; 256] = {
    let mut bits = [ANY_OPTION; 256];
    (bits[0], bits[1]) = (0, 0);
    let mut i = 0;
    while i < NamedOption::ALL.len() {
        bits[NamedOption::ALL[i].kind() as usize] |= NamedOption::ALL[i].bit();
        i += 1;
    }
    bits
};

/// A timestamp and nothing else.
const TIMESTAMP_ONLY: u64 = {
    let bit = NamedOption::Timestamp.bit();
    ((bit | ANY_OPTION) as u64) << PRESENT | (bit as u64) << VALUED
};

impl Index {
    /// The index of a packet's options. Whether there are none or the usual ones is found out without a branch, since
    /// segments and datagrams follow each other as they like.
    #[inline]
    pub fn of(head: &[u8], meta: &Meta) -> Index {
        let is_tcp = meta.kind.l4() == Kind::TCP;
        let l4 = usize::from(meta.l4_off);
        // Datagrams of least size end in the middle of where a segment's timestamp would be.
        let value_at = (l4 + FIXED + 4).min(head.len().saturating_sub(8));
        if let Some([offset, .., a, b, c, d]) = bytes::at::<12>(head, l4 + OFFSET_AT)
            && let Some(timestamp) = bytes::at::<8>(head, value_at)
        {
            let start = u32::from_ne_bytes([*a, *b, *c, *d]);
            let bytes = usize::from(offset >> 4) * 4;
            let is_usual =
                (bytes == USUAL_BYTES) & (start == TIMESTAMP_START) & (head.len() >= l4 + USUAL_BYTES);
            if !is_tcp | (bytes <= FIXED) | is_usual {
                let keep = 0u64.wrapping_sub((is_tcp & is_usual).into());
                return Index {
                    timestamp: u64::from_ne_bytes(*timestamp) & keep,
                    rest: TIMESTAMP_ONLY & keep,
                };
            }
        }
        Self::of_any(area(head, meta))
    }

    #[inline(never)]
    fn of_any(area: &[u8]) -> Index {
        let mut index = Index::default();
        for option in TcpOptions::new(area) {
            index.rest |= u64::from(BITS[usize::from(option.kind)]) << PRESENT;
            match (option.kind, option.data) {
                (2, &[high, low]) => {
                    index.set(NamedOption::Mss, MSS, u16::MAX.into(), u16::from_be_bytes([high, low]).into());
                }
                (3, &[shift]) => index.set(NamedOption::Wscale, WSCALE, u8::MAX.into(), shift.into()),
                (8, data) => {
                    if let Ok(data) = <[u8; 8]>::try_from(data) {
                        index.timestamp = u64::from_ne_bytes(data);
                        index.rest |= TIMESTAMP_ONLY;
                    }
                }
                _ => {}
            }
        }
        index
    }

    fn set(&mut self, option: NamedOption, shift: u32, ones: u64, value: u64) {
        self.rest = self.rest & !(ones << shift) | value << shift | u64::from(option.bit()) << VALUED;
    }

    /// The window's chunk, with the bits of the extension headers.
    #[inline]
    pub fn chunk(self, extensions: u16) -> u128 {
        bytemuck::cast([self.timestamp, (self.rest | u64::from(extensions)).to_be()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kind, data and place.
    type Found<'a> = (u8, &'a [u8], usize);

    fn walked(area: &[u8]) -> (Vec<Found<'_>>, usize) {
        let mut options = TcpOptions::new(area);
        let found = options.by_ref().map(|o| (o.kind, o.data, o.at)).collect();
        (found, options.position())
    }

    /// Timestamp, mss, window scale, presence bits, bits of values.
    fn index(area: &[u8]) -> (u64, u16, u8, u8, u8) {
        let Index { timestamp, rest } = Index::of_any(area);
        let byte = |shift| (rest >> shift) as u8;
        (u64::from_be(timestamp), (rest >> MSS) as u16, byte(WSCALE), byte(PRESENT), byte(VALUED))
    }

    #[test]
    fn padding_is_no_option_and_zero_ends() {
        assert_eq!(walked(&[]), (vec![], 0));
        assert_eq!(walked(&[1, 1, 1, 1]), (vec![], 0));
        let mss: &[u8] = &[5, 180];
        assert_eq!(walked(&[1, 2, 4, 5, 180, 1, 4, 2]), (vec![(2, mss, 1), (4, &[], 6)], 8));
        assert_eq!(walked(&[2, 4, 5, 180, 1, 0, 4, 2]), (vec![(2, mss, 0)], 4));
    }

    #[test]
    fn what_cannot_be_read_ends_the_walk() {
        let sackp: Found<'_> = (4, &[], 0);
        for rest in [&[2, 0][..], &[2, 1], &[2, 5, 5, 180], &[2], &[19, 255, 0, 0]] {
            let area = [&[4, 2][..], rest].concat();
            assert_eq!(walked(&area), (vec![sackp], 2), "{rest:?}");
            assert_eq!(index(&area), (0, 0, 0, 0x21, 0));
        }
    }

    #[test]
    fn the_last_option_of_the_right_length_has_the_value() {
        assert_eq!(index(&[2, 4, 5, 180, 2, 4, 2, 24]), (0, 536, 0, 0x81, 0x80));
        assert_eq!(index(&[2, 4, 5, 180, 2, 3, 9, 0]), (0, 1460, 0, 0x81, 0x80));
        assert_eq!(index(&[3, 3, 255, 3, 3, 7]), (0, 0, 7, 0x41, 0x40));
        let without_value = [2, 6, 5, 180, 0, 0, 3, 2, 8, 6, 1, 2, 3, 4];
        assert_eq!(index(&without_value), (0, 0, 0, 0x80 | 0x40 | 0x08 | 0x01, 0));
        let twice = [8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 8, 10, 0, 0, 0, 3, 0, 0, 0, 4, 34, 2, 5, 2, 30, 2];
        assert_eq!(index(&twice), (3 << 32 | 4, 0, 0, 0x1f, 0x08));
    }

    /// Cut short at any place, and not TCP at all.
    #[test]
    fn the_index_is_that_of_the_walk_whatever_is_there() {
        for words in 4..=8u8 {
            let usual =
                [&[0; OFFSET_AT][..], &[words << 4, 0, 0, 0, 0, 0, 0, 0, 1, 1, 8, 10], &[7; 12]].concat();
            for (head, l4_off) in
                (0..=usual.len()).flat_map(|len| [0, 3].map(|l4_off| (&usual[..len], l4_off)))
            {
                for l4 in [Kind::L4_NONE, Kind::TCP, Kind::UDP] {
                    let meta = Meta { kind: Kind(Kind::IP4 | l4), l4_off, ..Meta::default() };
                    assert_eq!(
                        Index::of(head, &meta),
                        Index::of_any(area(head, &meta)),
                        "{words} {} {l4}",
                        head.len()
                    );
                }
            }
        }
    }

    /// RFC 7323, appendix A, with and without something behind it.
    #[test]
    fn the_usual_layout_takes_the_short_way() {
        let usual = [1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 7];
        let sack = [1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        let newer = [8, 10, 0, 0, 0, 10, 0, 0, 0, 8, 0, 0];
        for rest in [&[][..], &sack, &newer, &[0; 4], &[8, 200, 0, 0], &[1, 1, 1, 1]] {
            let area = [&usual[..], rest].concat();
            let mut header = vec![0; FIXED];
            header[OFFSET_AT] = ((FIXED + area.len()) / 4) as u8 * 16;
            header.extend(&area);
            let meta = Meta { kind: Kind(Kind::IP4 | Kind::TCP), ..Meta::default() };
            assert_eq!(Index::of(&header, &meta), Index::of_any(&area), "{rest:?}");
        }
    }
}
