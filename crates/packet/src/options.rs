//! TCP options (RFC 9293, 3.2): the walk over them, and their index in the window.
//!
//! Theory of operation. The walk covers the bytes from the end of the fixed header to the data offset. Kind
//! 0 ends it; kind 1 is one byte of padding. Any other kind needs a length byte of at least 2, with the
//! whole option inside the header. Otherwise the walk ends there and the remaining bytes are not options.
//!
//! The index holds what rules match on: which named options are present (any occurrence), and the value of
//! the last occurrence with the kind's defined length. Linux and BSD act on that one.
//!
//! Nearly all segments of a connection carry two bytes of padding and a timestamp (RFC 7323, appendix A).
//! The index takes these twelve bytes in one step. It is built in registers, because bytes stored one by
//! one and read back as words would stall on store forwarding.

use crate::bytes;
use crate::loc::{ANY_OPTION, NamedOption};
use crate::meta::{Kind, Meta};

/// Bytes of the fixed header.
const FIXED: usize = 20;
/// Offset of the byte with the data offset.
const OFFSET_AT: usize = 12;

/// A TCP option of kind 2 or above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOption<'a> {
    /// Option kind.
    pub kind: u8,
    /// Bytes behind kind and length.
    pub data: &'a [u8],
    /// Offset of the kind byte from the end of the fixed header, in bytes.
    pub at: usize,
}

/// Iterator over the options of a TCP header, in order. See [`tcp_options`].
#[derive(Clone, Debug)]
pub struct TcpOptions<'a> {
    area: &'a [u8],
    at: usize,
}

/// Returns the options of a packet; none if it has no readable TCP header.
///
/// `head` and `meta` are those of [`crate::parse`].
#[inline]
pub fn tcp_options<'a>(head: &'a [u8], meta: &Meta) -> TcpOptions<'a> {
    TcpOptions { area: area(head, meta), at: 0 }
}

/// The bytes from the end of the fixed header to the data offset.
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
    /// Iterates over the options in the bytes behind a fixed header.
    pub fn new(area: &'a [u8]) -> Self {
        TcpOptions { area, at: 0 }
    }

    /// All bytes from the end of the fixed header to the data offset.
    pub fn area(&self) -> &'a [u8] {
        self.area
    }

    /// Offset behind the last option returned, from the end of the fixed header. Once the iterator has
    /// ended, only padding and unreadable bytes follow it.
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

/// The usual first four option bytes: two of padding, kind and length of a timestamp.
const TIMESTAMP_START: u32 = u32::from_ne_bytes([1, 1, 8, 10]);
/// Bytes of a header that has only these options.
const USUAL_BYTES: usize = FIXED + 12;

/// The window's index of a packet's options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OptionIndex {
    /// The timestamp's eight bytes, in native byte order.
    timestamp: u64,
    /// The eight window bytes behind the timestamp, as a big-endian number; the shift constants give the
    /// positions.
    rest: u64,
}

const MSS: u32 = 48;
const WSCALE: u32 = 40;
const PRESENT: u32 = 32;
const VALUED: u32 = 24;

/// Presence bits by option kind.
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

/// OptionIndex bits of a lone timestamp.
const TIMESTAMP_ONLY: u64 = {
    let bit = NamedOption::Timestamp.bit();
    ((bit | ANY_OPTION) as u64) << PRESENT | (bit as u64) << VALUED
};

impl OptionIndex {
    /// Builds the index of a packet's options. The cases "none" and "timestamp only" share one branch,
    /// because their order in traffic is not predictable.
    #[inline]
    pub fn of(head: &[u8], meta: &Meta) -> OptionIndex {
        let is_tcp = meta.kind.l4() == Kind::TCP;
        let l4 = usize::from(meta.l4_off);
        // Minimum-size datagrams end inside the range where a segment has its timestamp.
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
                return OptionIndex {
                    timestamp: u64::from_ne_bytes(*timestamp) & keep,
                    rest: TIMESTAMP_ONLY & keep,
                };
            }
        }
        Self::walk(area(head, meta))
    }

    #[inline(never)]
    fn walk(area: &[u8]) -> OptionIndex {
        let mut index = OptionIndex::default();
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

    /// The window's last chunk, combined with the bits of the extension headers.
    #[inline]
    pub fn chunk(self, extensions: u16) -> u128 {
        bytemuck::cast([self.timestamp, (self.rest | u64::from(extensions)).to_be()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kind, data and offset.
    type OptionAt<'a> = (u8, &'a [u8], usize);

    fn walked(area: &[u8]) -> (Vec<OptionAt<'_>>, usize) {
        let mut options = TcpOptions::new(area);
        let found = options.by_ref().map(|o| (o.kind, o.data, o.at)).collect();
        (found, options.position())
    }

    /// Timestamp, MSS, window scale, presence bits, value bits.
    fn index(area: &[u8]) -> (u64, u16, u8, u8, u8) {
        let OptionIndex { timestamp, rest } = OptionIndex::walk(area);
        let byte = |shift| (rest >> shift) as u8;
        (u64::from_be(timestamp), (rest >> MSS) as u16, byte(WSCALE), byte(PRESENT), byte(VALUED))
    }

    #[test]
    fn padding_is_skipped_and_zero_ends_the_walk() {
        assert_eq!(walked(&[]), (vec![], 0));
        assert_eq!(walked(&[1, 1, 1, 1]), (vec![], 0));
        let mss: &[u8] = &[5, 180];
        assert_eq!(walked(&[1, 2, 4, 5, 180, 1, 4, 2]), (vec![(2, mss, 1), (4, &[], 6)], 8));
        assert_eq!(walked(&[2, 4, 5, 180, 1, 0, 4, 2]), (vec![(2, mss, 0)], 4));
    }

    #[test]
    fn unreadable_bytes_end_the_walk() {
        let sackp: OptionAt<'_> = (4, &[], 0);
        for rest in [&[2, 0][..], &[2, 1], &[2, 5, 5, 180], &[2], &[19, 255, 0, 0]] {
            let area = [&[4, 2][..], rest].concat();
            assert_eq!(walked(&area), (vec![sackp], 2), "{rest:?}");
            assert_eq!(index(&area), (0, 0, 0, 0x21, 0));
        }
    }

    #[test]
    fn the_last_option_of_valid_length_gives_the_value() {
        assert_eq!(index(&[2, 4, 5, 180, 2, 4, 2, 24]), (0, 536, 0, 0x81, 0x80));
        assert_eq!(index(&[2, 4, 5, 180, 2, 3, 9, 0]), (0, 1460, 0, 0x81, 0x80));
        assert_eq!(index(&[3, 3, 255, 3, 3, 7]), (0, 0, 7, 0x41, 0x40));
        let without_value = [2, 6, 5, 180, 0, 0, 3, 2, 8, 6, 1, 2, 3, 4];
        assert_eq!(index(&without_value), (0, 0, 0, 0x80 | 0x40 | 0x08 | 0x01, 0));
        let twice = [8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 8, 10, 0, 0, 0, 3, 0, 0, 0, 4, 34, 2, 5, 2, 30, 2];
        assert_eq!(index(&twice), (3 << 32 | 4, 0, 0, 0x1f, 0x08));
    }

    /// Headers cut at any length, and other protocols.
    #[test]
    fn the_index_equals_that_of_the_walk() {
        for words in 4..=8u8 {
            let usual =
                [&[0; OFFSET_AT][..], &[words << 4, 0, 0, 0, 0, 0, 0, 0, 1, 1, 8, 10], &[7; 12]].concat();
            for (head, l4_off) in
                (0..=usual.len()).flat_map(|len| [0, 3].map(|l4_off| (&usual[..len], l4_off)))
            {
                for l4 in [Kind::L4_NONE, Kind::TCP, Kind::UDP] {
                    let meta = Meta { kind: Kind(Kind::IP4 | l4), l4_off, ..Meta::default() };
                    assert_eq!(
                        OptionIndex::of(head, &meta),
                        OptionIndex::walk(area(head, &meta)),
                        "{words} {} {l4}",
                        head.len()
                    );
                }
            }
        }
    }

    /// RFC 7323, appendix A, with and without options behind it.
    #[test]
    fn the_usual_layout_equals_the_walk() {
        let usual = [1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 7];
        let sack = [1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        let newer = [8, 10, 0, 0, 0, 10, 0, 0, 0, 8, 0, 0];
        for rest in [&[][..], &sack, &newer, &[0; 4], &[8, 200, 0, 0], &[1, 1, 1, 1]] {
            let area = [&usual[..], rest].concat();
            let mut header = vec![0; FIXED];
            header[OFFSET_AT] = ((FIXED + area.len()) / 4) as u8 * 16;
            header.extend(&area);
            let meta = Meta { kind: Kind(Kind::IP4 | Kind::TCP), ..Meta::default() };
            assert_eq!(OptionIndex::of(&header, &meta), OptionIndex::walk(&area), "{rest:?}");
        }
    }
}
