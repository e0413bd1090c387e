//! TCP options (RFC 9293, 3.2): the walk over them, and their index in the window.
//!
//! Theory of operation. The walk covers the bytes from the end of the fixed header to the data offset. Kind
//! 0 ends it; kind 1 is one byte of padding. Any other kind needs a length byte of at least 2, with the
//! whole option inside the header. Otherwise the walk ends there and the remaining bytes are not options.
//!
//! The index holds what rules match on: which named options are present (any occurrence), whether there are
//! others, and the value of the last occurrence with the kind's defined length. Linux and BSD act on that
//! one.
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
    TcpOptions { area: area(head, meta.l4_off.into(), meta.kind.l4() == Kind::TCP), at: 0 }
}

/// The bytes from the end of the fixed header to the data offset.
#[inline]
fn area(head: &[u8], l4: usize, is_tcp: bool) -> &[u8] {
    if !is_tcp {
        return &[];
    }
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
const UNNAMED: u32 = 16;

/// What each option kind adds to [`OptionIndex::rest`].
static BITS: [u64; 256] = {
    let mut bits = [(ANY_OPTION as u64) << PRESENT | (ANY_OPTION as u64) << UNNAMED; 256];
    (bits[0], bits[1]) = (0, 0);
    let mut i = 0;
    while i < NamedOption::ALL.len() {
        let option = NamedOption::ALL[i];
        bits[option.kind() as usize] = ((ANY_OPTION | option.bit()) as u64) << PRESENT;
        i += 1;
    }
    bits
};

/// OptionIndex bits of a lone timestamp.
const TIMESTAMP_ONLY: u64 = {
    let bit = NamedOption::Timestamp.bit();
    ((bit | ANY_OPTION) as u64) << PRESENT | (bit as u64) << VALUED
};

/// The bit of the window's last chunk that is set if a packet has an option of this kind, or of another kind
/// without a name. Zero for kinds below 2.
pub fn option_bit(kind: u8) -> u128 {
    let rest = BITS[usize::from(kind)] & !(u64::from(ANY_OPTION) << PRESENT);
    OptionIndex { timestamp: 0, rest }.chunk(0)
}

impl OptionIndex {
    /// Builds the index of a packet's options.
    #[inline]
    pub fn of(head: &[u8], meta: &Meta) -> OptionIndex {
        OptionIndex::of_transport(head, meta.l4_off.into(), meta.kind.l4() == Kind::TCP)
    }

    /// As [`OptionIndex::of`], for a transport header at `l4`. The cases "none" and "timestamp only" share
    /// one branch, because their order in traffic is not predictable.
    #[inline(always)]
    pub fn of_transport(head: &[u8], l4: usize, is_tcp: bool) -> OptionIndex {
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
        Self::walk(area(head, l4, is_tcp))
    }

    #[inline(never)]
    fn walk(area: &[u8]) -> OptionIndex {
        let mut index = OptionIndex::default();
        for option in TcpOptions::new(area) {
            index.rest |= BITS[usize::from(option.kind)];
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

/// Returns the field of a window after a left shift by `bits`, or a right shift if they are negative (window
/// scale, RFC 7323, 2). A window that becomes too large is the largest one.
#[inline]
pub fn shift_window(window: u16, bits: i8) -> u16 {
    let (wide, by) = (u32::from(window), u32::from(bits.unsigned_abs()).min(16));
    let wide = if bits < 0 { wide >> by } else { wide << by };
    u16::try_from(wide).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests;
