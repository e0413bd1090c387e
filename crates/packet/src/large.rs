//! Large frames: one set of headers before the payload of several segments (segmentation offload).
//!
//! Theory of operation. A kernel passes large frames of TCP and UDP with the number of payload bytes of a
//! segment. The headers are those of all segments, but for lengths, the IPv4 identification, TCP's sequence
//! number and flags, and checksums. So what edits the headers of a large frame edits all of its segments. The
//! transport checksum of a large frame has no meaning: it is written when the frame is sent or segmented.
//!
//! Segments are those that Linux makes (`tcp_gso_segment`, `__udp_gso_segment`, `inet_gso_segment`).

mod merge;
mod tunnel;

use std::ops::Range;

use crate::checksum::{fold, pseudo4, pseudo6, sum, sum_pieces};
use crate::meta::{Kind, Meta, PacketFlags};
use crate::{bytes, parse};
pub use merge::{MergePackets, MergeRole, Merger, TcpSegment, Train};
use tunnel::Outer;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Offsets in the IPv4 header.
const IP4_LENGTH: usize = 2;
const IP4_ID: usize = 4;
const IP4_CHECKSUM: usize = 10;
/// Length of the fixed IPv6 header, and the offset of its length field.
const IP6: usize = 40;
const IP6_LENGTH: usize = 4;
/// Length of the TCP header without options, offsets in it, and flags at [`TCP_FLAGS`].
const TCP_HEADER: usize = 20;
const TCP_SEQUENCE: usize = 4;
const TCP_OFFSET: usize = 12;
const TCP_FLAGS: usize = 13;
const TCP_CHECKSUM: usize = 16;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;
/// Length of the UDP header, and offsets in it.
const UDP_HEADER: usize = 8;
const UDP_LENGTH: usize = 4;
const UDP_CHECKSUM: usize = 6;

/// The headers of a large frame. Offsets and lengths are in bytes; offsets count from the first byte of the
/// frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeFrame {
    network: Network,
    l4: usize,
    /// Where the payload begins: the length of the headers of each segment.
    payload: usize,
    /// Where the IP packet ends.
    end: usize,
    is_tcp: bool,
    /// What carries the tunnel that the rest is inside of, if it is.
    outer: Option<Outer>,
}

/// A network header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    l3: usize,
    is_ip4: bool,
}

/// Where a segment stands in its large frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentPlace {
    /// Number of the segment, from 0.
    pub number: usize,
    /// Its part of the payload, counted from the first byte of the payload.
    pub payload: Range<usize>,
    /// Whether it is the last one.
    pub is_last: bool,
}

impl LargeFrame {
    /// Finds the headers of a frame of `length` bytes that begins with `head`. `None` if the frame is not TCP
    /// or UDP over IP, if it is a fragment or has a routing header with segments left, or if `head` does not
    /// hold all headers.
    pub fn parse(head: &[u8], length: usize) -> Option<LargeFrame> {
        let (network, meta) = outermost(head, length)?;
        let is_tcp = match meta.kind.l4() {
            Kind::TCP => true,
            Kind::UDP => false,
            _ => return None,
        };
        // The length comes from the header because `meta.end` saturates.
        let Network { l3, is_ip4 } = network;
        let (at, base) = if is_ip4 { (l3 + IP4_LENGTH, l3) } else { (l3 + IP6_LENGTH, l3 + IP6) };
        let end = base + usize::from(u16::from_be_bytes(*bytes::at(head, at)?));
        LargeFrame::of(head, network, meta.l4_off.into(), end, is_tcp)
    }

    /// A frame with these headers, in no tunnel. `None` if `head` or the packet ends within them, or if TCP's
    /// data offset does.
    fn of(head: &[u8], network: Network, l4: usize, end: usize, is_tcp: bool) -> Option<LargeFrame> {
        let (least, header) = if is_tcp {
            (TCP_HEADER, usize::from(head.get(l4 + TCP_OFFSET)? >> 4) * 4)
        } else {
            (UDP_HEADER, UDP_HEADER)
        };
        let payload = l4 + header;
        let is_whole = header >= least && payload <= end && payload <= head.len();
        is_whole.then_some(LargeFrame { network, l4, payload, end, is_tcp, outer: None })
    }

    /// Whether the transport is TCP; otherwise it is UDP.
    pub fn is_tcp(&self) -> bool {
        self.is_tcp
    }

    /// Whether the network protocol is IPv4; otherwise it is IPv6.
    pub fn is_ip4(&self) -> bool {
        self.network.is_ip4
    }

    /// Length of the headers of each segment.
    pub fn header_len(&self) -> usize {
        self.payload
    }

    /// Length of the payload of all segments.
    pub fn payload_len(&self) -> usize {
        self.end - self.payload
    }

    /// Offset of the transport header.
    pub fn transport(&self) -> usize {
        self.l4
    }

    /// Offset of the checksum in the transport header.
    pub fn checksum_offset(&self) -> usize {
        if self.is_tcp { TCP_CHECKSUM } else { UDP_CHECKSUM }
    }

    /// Whether the first segment has TCP's flag CWR, which the others must not have.
    pub fn has_cwr(&self, head: &[u8]) -> bool {
        self.is_tcp && head.get(self.l4 + TCP_FLAGS).is_some_and(|flags| flags & CWR != 0)
    }

    /// The segments of at most `size` bytes of payload, at least one. `size` is not 0.
    pub fn segments(&self, size: usize) -> impl Iterator<Item = SegmentPlace> + use<> {
        let (all, size) = (self.payload_len(), size.max(1));
        let last = all.saturating_sub(1) / size;
        (0..=last).map(move |number| SegmentPlace {
            number,
            payload: number * size..all.min((number + 1) * size),
            is_last: number == last,
        })
    }

    /// Turns the headers at the beginning of `head`, which are those of the large frame, into those of a
    /// segment. The segment's payload is the rest of `head`, and `rest`. False, and an undefined `head`, if
    /// they are too short.
    pub fn finish_segment(&self, head: &mut [u8], rest: &[&[u8]], place: &SegmentPlace) -> bool {
        if head.len() < self.payload {
            return false;
        }
        let length = self.payload + place.payload.len();
        self.network.finish(head, length, place.number);
        if self.is_tcp {
            let header = &mut head[self.l4..];
            let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
            let sequence = sequence.wrapping_add(place.payload.start as u32);
            header[TCP_SEQUENCE..TCP_SEQUENCE + 4].copy_from_slice(&sequence.to_be_bytes());
            header[TCP_FLAGS] &= if place.is_last { 0xff } else { !(FIN | PSH) };
            header[TCP_FLAGS] &= if place.number == 0 { 0xff } else { !CWR };
        } else {
            set(head, self.l4 + UDP_LENGTH, (length - self.l4) as u16);
        }
        self.network.write_checksum(head, rest, self.l4, self.is_tcp, length - self.l4)
            && self.finish_outer(head, rest, length, place.number)
    }

    /// Writes what a device expects in the checksum field of a large frame: the sum of the pseudo header.
    pub fn write_partial_checksum(&self, head: &mut [u8]) {
        if head.len() >= self.payload {
            let partial = self.network.pseudo_sum(head, self.is_tcp, self.end - self.l4);
            set(head, self.l4 + self.checksum_offset(), partial);
        }
    }
}

impl Network {
    /// Turns the header into that of the segment with that number, in a frame of `length` bytes.
    fn finish(self, head: &mut [u8], length: usize, number: usize) {
        let l3 = self.l3;
        if self.is_ip4 {
            let id = u16::from_be_bytes([head[l3 + IP4_ID], head[l3 + IP4_ID + 1]]);
            set(head, l3 + IP4_LENGTH, (length - l3) as u16);
            set(head, l3 + IP4_ID, id.wrapping_add(number as u16));
            set(head, l3 + IP4_CHECKSUM, 0);
            let header = &head[l3..][..usize::from(head[l3] & 0xf) * 4];
            set(head, l3 + IP4_CHECKSUM, !fold(sum(header, 0)));
        } else {
            set(head, l3 + IP6_LENGTH, (length - l3 - IP6) as u16);
        }
    }

    /// Writes the checksum of TCP, otherwise of UDP, at `l4`, over `covered` bytes from there on.
    fn write_checksum(
        self,
        head: &mut [u8],
        rest: &[&[u8]],
        l4: usize,
        is_tcp: bool,
        covered: usize,
    ) -> bool {
        let field = l4 + if is_tcp { TCP_CHECKSUM } else { UDP_CHECKSUM };
        set(head, field, self.pseudo_sum(head, is_tcp, covered));
        let Some(sum) = sum_pieces(&head[l4..], rest.iter().copied(), covered) else { return false };
        let checksum = match !fold(sum) {
            // UDP has no checksum then (RFC 768).
            0 if !is_tcp => 0xffff,
            checksum => checksum,
        };
        set(head, field, checksum);
        true
    }

    /// The folded sum of the pseudo header of TCP or UDP with `covered` bytes from the transport header on.
    fn pseudo_sum(self, head: &[u8], is_tcp: bool, covered: usize) -> u16 {
        let proto = if is_tcp { TCP } else { UDP };
        let sum = if self.is_ip4 {
            bytes::at::<20>(head, self.l3).map(|ip| {
                let [_, _, _, source, destination]: [[u8; 4]; 5] = bytemuck::cast(*ip);
                pseudo4(source, destination, proto, covered as u16)
            })
        } else {
            bytes::at::<40>(head, self.l3).map(|ip| {
                let (source, destination) = bytes::ip6_addresses(ip);
                pseudo6(&source, &destination, proto, covered as u32)
            })
        };
        fold(sum.unwrap_or(0))
    }
}

/// Parses a frame. `None` if it is none of IP, a fragment, or has a routing header with segments left.
fn outermost(head: &[u8], length: usize) -> Option<(Network, Meta)> {
    let mut meta = Meta::default();
    parse(head, length, &mut meta).ok()?;
    let network = Network { l3: meta.l3_off.into(), is_ip4: meta.kind.l3() == Kind::IP4 };
    let is_other = meta.flags.intersects(PacketFlags::FRAGMENT | PacketFlags::ROUTED);
    (!is_other).then_some((network, meta))
}

/// Writes a 16-bit number; the caller has checked the length.
fn set(head: &mut [u8], at: usize, value: u16) {
    head[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests;
