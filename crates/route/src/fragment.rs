//! Fragmentation of IPv4 packets (RFC 791, 3.2; RFC 1812, 4.2.2.7).
//!
//! A packet becomes an iterator over [`Fragment`]s: a header each, and a range of the packet's data. The
//! caller copies them into buffers. All fragments but the last are as long as the MTU allows, in multiples
//! of eight bytes. The first fragment has the packet's header. Later ones have only the options with a set
//! copied flag, so they can hold more data. If the packet is a fragment itself, offsets continue from its
//! own, and the last fragment keeps its "more fragments" flag.

use std::ops::Range;

use mmb_packet::checksum::{fold, sum};

/// Length of a header without options.
const FIXED: usize = 20;
/// Maximum length of a header.
const LONGEST: usize = 60;
const DONT_FRAGMENT: u16 = 0x4000;
const MORE: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;
/// Copied flag of an option.
const COPIED: u8 = 0x80;

/// Why a packet cannot be fragmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FragmentError {
    /// The sender forbids it and expects an ICMP error with the MTU (RFC 1191, 4).
    #[error("the packet has the flag \"don't fragment\"")]
    DontFragment,
    /// The MTU does not fit the header and eight bytes of data.
    #[error("the MTU is too small for the header and eight bytes")]
    SmallMtu,
    /// The header's lengths are inconsistent, or fragments would end beyond the maximum packet length.
    #[error("the lengths in the header are inconsistent")]
    Malformed,
}

/// One fragment of a packet.
#[derive(Clone, Debug)]
pub struct Fragment {
    bytes: [u8; LONGEST],
    length: usize,
    /// The fragment's data, as a range of the packet from the IPv4 header on.
    pub data: Range<usize>,
}

impl Fragment {
    /// The fragment's IPv4 header, checksum included.
    pub fn header(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The fragments of a packet, in order. See [`fragment_ip4`].
#[derive(Clone, Debug)]
pub struct Fragments {
    /// Header of the next fragment; total length, offset, flags and checksum are still missing.
    next: Fragment,
    /// Header of later fragments, with the copied options only.
    later: Fragment,
    /// End of the packet.
    end: usize,
    mtu: usize,
    /// The packet's own "more fragments" flag and reserved bit.
    flags: u16,
    /// Offset of the next fragment in units of eight bytes.
    offset: usize,
    /// The last fragment has been returned.
    over: bool,
}

/// Splits the IPv4 packet at the start of `packet` into fragments of at most `mtu` bytes.
///
/// `packet` contains the whole header and any contiguous part of the data. A packet that fits is its only
/// fragment.
///
/// # Errors
/// See [`FragmentError`].
pub fn fragment_ip4(packet: &[u8], mtu: usize) -> Result<Fragments, FragmentError> {
    let fixed: &[u8; FIXED] = packet.first_chunk().ok_or(FragmentError::Malformed)?;
    let word = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    let (length, end, control) = (usize::from(fixed[0] & 15) * 4, usize::from(word(2)), word(6));
    if fixed[0] >> 4 != 4 || length < FIXED || end < length {
        return Err(FragmentError::Malformed);
    }
    let header = packet.get(..length).ok_or(FragmentError::Malformed)?;
    if end > mtu {
        if control & DONT_FRAGMENT != 0 {
            return Err(FragmentError::DontFragment);
        }
        if mtu < length + 8 {
            return Err(FragmentError::SmallMtu);
        }
    }
    let offset = usize::from(control & OFFSET);
    if offset * 8 + (end - length) > usize::from(u16::MAX) {
        return Err(FragmentError::Malformed);
    }
    let mut next = Fragment { bytes: [0; LONGEST], length, data: length..length };
    next.bytes[..length].copy_from_slice(header);
    let mut later = next.clone();
    later.bytes[FIXED..].fill(0);
    later.length = FIXED + copy_options(&header[FIXED..], &mut later.bytes[FIXED..]);
    later.bytes[0] = 0x40 | (later.length / 4) as u8;
    Ok(Fragments { next, later, end, mtu, flags: control & !OFFSET, offset, over: false })
}

/// Writes the options with a set copied flag, padded with zeros to a multiple of four bytes; returns their
/// length.
fn copy_options(options: &[u8], to: &mut [u8]) -> usize {
    let (mut at, mut length) = (0, 0);
    to.fill(0);
    while let Some([kind, rest @ ..]) = options.get(at..) {
        let size = match (kind, rest) {
            (0, _) => break,
            (1, _) => 1,
            (_, [size, ..]) if *size >= 2 => usize::from(*size),
            _ => break,
        };
        let Some(option) = options.get(at..at + size) else { break };
        if kind & COPIED != 0 {
            to[length..length + size].copy_from_slice(option);
            length += size;
        }
        at += size;
    }
    length.next_multiple_of(4)
}

impl Iterator for Fragments {
    type Item = Fragment;

    fn next(&mut self) -> Option<Fragment> {
        if self.over {
            return None;
        }
        let mut fragment = self.next.clone();
        let start = fragment.data.end;
        let room = self.mtu.saturating_sub(fragment.length);
        self.over = self.end - start <= room;
        // The size is never 0: an MTU without room for eight bytes has been rejected.
        let size = if self.over { self.end - start } else { (room & !7).max(8) };
        let more = if self.over { self.flags } else { self.flags | MORE };
        fragment.data = start..start + size;
        fragment.complete(self.offset as u16 | more);
        self.offset += size / 8;
        self.next = Fragment { data: start..start + size, ..self.later };
        Some(fragment)
    }
}

impl Fragment {
    /// Writes total length, offset, flags and checksum.
    fn complete(&mut self, control: u16) {
        let total = (self.length + self.data.len()) as u16;
        self.bytes[2..4].copy_from_slice(&total.to_be_bytes());
        self.bytes[6..8].copy_from_slice(&control.to_be_bytes());
        self.bytes[10..12].fill(0);
        let csum = !fold(sum(&self.bytes[..self.length], 0));
        self.bytes[10..12].copy_from_slice(&csum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
