//! TCP segments that functions write: whole frames in answer to others, and edits of headers in place.

use mmb_flow::TcpSegment;
use mmb_packet::checksum::{fold, pseudo4, pseudo6, sum, update16};
use mmb_packet::{Kind, Meta, tcp_options};
use mmb_stream::Segment;

use crate::{EmitTarget, Packet};

/// TCP flags (RFC 9293, 3.1).
pub const FIN: u8 = 0x01;
/// See [`FIN`].
pub const SYN: u8 = 0x02;
/// See [`FIN`].
pub const RST: u8 = 0x04;
/// See [`FIN`].
pub const PSH: u8 = 0x08;
/// See [`FIN`].
pub const ACK: u8 = 0x10;

/// Offsets in a TCP header.
pub const SEQ: usize = 4;
/// See [`SEQ`].
pub const ACKNOWLEDGMENT: usize = 8;
/// See [`SEQ`].
pub const FLAGS: usize = 13;
/// See [`SEQ`].
pub const WINDOW: usize = 14;
const CHECKSUM: usize = 16;
/// Bytes of a TCP header without options.
pub const FIXED: usize = 20;

/// Hop limit of new packets (RFC 1122, 3.2.1.7).
const TTL: u8 = 64;

/// TCP options, padded with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    bytes: [u8; 40],
    len: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { bytes: [0; 40], len: 0 }
    }
}

impl Options {
    /// Appends an option. Without room for it, the option is left out.
    pub fn push(&mut self, option: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.len..self.len + option.len()) {
            place.copy_from_slice(option);
            self.len += option.len();
        }
    }

    /// Appends a timestamp (RFC 7323, 3.2), aligned to four bytes.
    pub fn push_timestamp(&mut self, value: u32, echo: u32) {
        self.push(&[1, 1, 8, 10]);
        self.push(&value.to_be_bytes());
        self.push(&echo.to_be_bytes());
    }

    /// Appends blocks of a selective acknowledgement (RFC 2018, 3), aligned to four bytes.
    pub fn push_sack(&mut self, blocks: &[(u32, u32)]) {
        let len = 2 + 8 * blocks.len();
        if !blocks.is_empty() && self.len + 2 + len <= self.bytes.len() {
            self.push(&[1, 1, 5, len as u8]);
            for edge in blocks.iter().flat_map(|&(from, to)| [from, to]) {
                self.push(&edge.to_be_bytes());
            }
        }
    }

    /// Returns all options, padded to a multiple of four bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len.next_multiple_of(4)]
    }
}

/// A segment to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutgoingSegment {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// The lower eight flags.
    pub flags: u8,
    /// The window, unscaled.
    pub window: u16,
    /// Options.
    pub options: Options,
}

/// Who gets a segment that is made for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentTo {
    /// The receiver of that packet.
    Receiver,
    /// The sender of that packet.
    Sender,
}

impl SegmentTo {
    /// Both ends of a connection.
    pub const BOTH: [SegmentTo; 2] = [SegmentTo::Sender, SegmentTo::Receiver];

    /// Returns where the segment is sent.
    pub fn target(self) -> EmitTarget {
        match self {
            SegmentTo::Receiver => EmitTarget::Egress,
            SegmentTo::Sender => EmitTarget::Ingress,
        }
    }
}

/// A frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    bytes: [u8; Self::MOST],
    len: usize,
}

impl Frame {
    /// Room for Ethernet with four tags, IPv6 and the longest TCP header.
    const MOST: usize = 160;

    /// Returns the bytes of the frame.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, bytes: &[u8]) -> Option<()> {
        self.bytes.get_mut(self.len..self.len + bytes.len())?.copy_from_slice(bytes);
        self.len += bytes.len();
        Some(())
    }
}

impl OutgoingSegment {
    /// Returns the segment as a frame of a TCP packet's connection. It has the packet's Ethernet addresses,
    /// tags, IP addresses and ports, swapped if the sender gets it. IP options and extension headers are left
    /// out. None: the packet is not TCP.
    pub fn frame(&self, head: &[u8], meta: &Meta, way: SegmentTo) -> Option<Frame> {
        self.frame_with(head, meta, way, b"")
    }

    /// As [`OutgoingSegment::frame`], for a payload. The frame ends in front of it.
    pub fn frame_with(&self, head: &[u8], meta: &Meta, way: SegmentTo, payload: &[u8]) -> Option<Frame> {
        if meta.kind.l4() != Kind::TCP {
            return None;
        }
        let mut frame = Frame { bytes: [0; Frame::MOST], len: 0 };
        let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
        let (to, rest) = head.get(..l3)?.split_first_chunk::<6>()?;
        let (from, tags) = rest.split_first_chunk::<6>()?;
        let [to, from] = ordered(to, from, way);
        frame.push(to)?;
        frame.push(from)?;
        frame.push(tags)?;
        let ports = head.get(l4..l4 + 4)?;
        let [source_port, destination_port] = ordered(&ports[..2], &ports[2..], way);
        let options = self.options.bytes();
        let len = FIXED + options.len();
        let is_ip4 = meta.kind.l3() == Kind::IP4;
        let pseudo = network(&mut frame, head.get(l3..)?, is_ip4, way, len + payload.len())?;
        let at = frame.len;
        for bytes in [
            source_port,
            destination_port,
            &self.seq.to_be_bytes(),
            &self.ack.to_be_bytes(),
            &[(len as u8 / 4) << 4, self.flags],
            &self.window.to_be_bytes(),
            &[0; 4],
            options,
        ] {
            frame.push(bytes)?;
        }
        let checksum = !fold(sum(payload, sum(&frame.bytes[at..frame.len], pseudo)));
        frame.bytes[at + CHECKSUM..at + CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
        Some(frame)
    }
}

fn ordered<T>(first: T, second: T, way: SegmentTo) -> [T; 2] {
    match way {
        SegmentTo::Receiver => [first, second],
        SegmentTo::Sender => [second, first],
    }
}

/// Writes the network header of a segment of `len` bytes with the addresses of the header at `ip`. Returns
/// the sum of the pseudo header.
fn network(frame: &mut Frame, ip: &[u8], is_ip4: bool, way: SegmentTo, len: usize) -> Option<u32> {
    let at = frame.len;
    if is_ip4 {
        let [source, destination] = addresses::<4>(ip.get(12..)?, way)?;
        let [high, low] = (20 + len as u16).to_be_bytes();
        // Don't fragment: an atomic datagram needs no identification (RFC 6864).
        frame.push(&[0x45, 0, high, low, 0, 0, 0x40, 0, TTL, 6, 0, 0])?;
        frame.push(&source)?;
        frame.push(&destination)?;
        let checksum = !fold(sum(&frame.bytes[at..frame.len], 0));
        frame.bytes[at + 10..at + 12].copy_from_slice(&checksum.to_be_bytes());
        return Some(pseudo4(source, destination, 6, len as u16));
    }
    let [source, destination] = addresses::<16>(ip.get(8..)?, way)?;
    let [high, low] = (len as u16).to_be_bytes();
    frame.push(&[0x60, 0, 0, 0, high, low, 6, TTL])?;
    frame.push(&source)?;
    frame.push(&destination)?;
    Some(pseudo6(&source, &destination, 6, len as u32))
}

fn addresses<const N: usize>(bytes: &[u8], way: SegmentTo) -> Option<[[u8; N]; 2]> {
    let (source, rest) = bytes.split_first_chunk()?;
    let destination = rest.first_chunk()?;
    Some(ordered(*source, *destination, way))
}

/// Returns a RST for one end of a connection (RFC 9293, 3.10.7.1). The sender of the segment gets the answer
/// of a closed port; the receiver gets a RST in the name of the sender. None if the packet is a RST or not
/// TCP.
pub fn reset(head: &[u8], meta: &Meta, way: SegmentTo) -> Option<Frame> {
    let segment = TcpSegment::read(head, meta)?;
    if segment.flags & RST != 0 {
        return None;
    }
    let takes = u32::from(segment.flags & SYN != 0) + u32::from(segment.flags & FIN != 0);
    let end = segment.seq.wrapping_add(segment.len).wrapping_add(takes);
    let (seq, ack, flags) = match way {
        SegmentTo::Receiver => (segment.seq, segment.ack, segment.flags & ACK | RST),
        SegmentTo::Sender if segment.flags & ACK != 0 => (segment.ack, 0, RST),
        SegmentTo::Sender => (0, end, RST | ACK),
    };
    OutgoingSegment { seq, ack, flags, ..OutgoingSegment::default() }.frame(head, meta, way)
}

/// Returns a FIN for one end of a connection, in the name of the other one (RFC 9293, 3.6). It has the place
/// of the segment's bytes from `skip` on; the sender's bytes are acknowledged. None if the segment is a RST,
/// has no acknowledgement, or is not TCP.
pub fn close(head: &[u8], meta: &Meta, skip: u32, way: SegmentTo) -> Option<Frame> {
    let segment = TcpSegment::read(head, meta)?;
    if segment.flags & (RST | ACK) != ACK {
        return None;
    }
    let first = segment.seq.wrapping_add(u32::from(segment.flags & SYN != 0));
    let end = first.wrapping_add(segment.len).wrapping_add(u32::from(segment.flags & FIN != 0));
    let mut options = Options::default();
    if let Some((_, value, echo)) = timestamp(head, meta) {
        // Without them, a receiver may drop the segment (RFC 7323, 3.2).
        let [first, second] = ordered(value, echo, way);
        options.push_timestamp(first, second);
    }
    let (seq, ack) = match way {
        SegmentTo::Receiver => (first.wrapping_add(skip), segment.ack),
        SegmentTo::Sender => (segment.ack, end),
    };
    OutgoingSegment { seq, ack, flags: FIN | ACK, window: segment.window, options }.frame(head, meta, way)
}

/// Returns the answer to a segment of a connection whose ends have got a FIN ([`close`]). A FIN is
/// acknowledged; the sender of further bytes gets a RST (RFC 9293, 3.10.7.1). None for other segments.
pub fn answer_closed(head: &[u8], meta: &Meta) -> Option<Frame> {
    let segment = TcpSegment::read(head, meta)?;
    if segment.flags & (RST | SYN | ACK) != ACK {
        return None;
    }
    if segment.flags & FIN == 0 {
        return reset(head, meta, SegmentTo::Sender).filter(|_| segment.len != 0);
    }
    let mut options = Options::default();
    if let Some((_, value, echo)) = timestamp(head, meta) {
        options.push_timestamp(echo, value);
    }
    let ack = segment.seq.wrapping_add(segment.len).wrapping_add(1);
    let (seq, window) = (segment.ack, segment.window);
    OutgoingSegment { seq, ack, flags: ACK, window, options }.frame(head, meta, SegmentTo::Sender)
}

/// Writes `new` into the TCP header at `l4`, from its byte `at` on, and updates the checksum (RFC 1624).
/// Changes nothing if the bytes are not all inside.
pub fn patch(head: &mut [u8], l4: usize, at: usize, new: &[u8]) {
    let Some(tcp) = head.get_mut(l4..) else { return };
    // The checksum is over 16-bit words.
    let (start, end) = (at & !1, (at + new.len()).next_multiple_of(2));
    let Some(words) = tcp.get_mut(start..end) else { return };
    let old = fold(sum(words, 0));
    words[at - start..at - start + new.len()].copy_from_slice(new);
    let new = fold(sum(words, 0));
    if let Some(field) = tcp.get_mut(CHECKSUM..CHECKSUM + 2) {
        let checksum = update16(u16::from_be_bytes([field[0], field[1]]), old, new);
        field.copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Returns the facts about a packet of TCP.
#[inline(always)]
pub(crate) fn segment(packet: &Packet<'_>) -> Option<Segment> {
    let TcpSegment { seq, ack, len, window, flags, scale } = TcpSegment::read(packet.head, packet.meta)?;
    let len = u16::try_from(len).unwrap_or(u16::MAX);
    let permits_sack = flags & Segment::SYN != 0 && permits_sack(packet.head, packet.meta);
    Some(Segment { seq, ack, len, window, flags, scale, permits_sack })
}

/// Whether a SYN permits selective acknowledgements (RFC 2018, 2).
pub fn permits_sack(head: &[u8], meta: &Meta) -> bool {
    tcp_options(head, meta).any(|option| option.kind == 4)
}

/// Returns offset in the TCP header, value and echo of the timestamp option (RFC 7323, 3.2).
#[inline]
pub fn timestamp(head: &[u8], meta: &Meta) -> Option<(usize, u32, u32)> {
    let mut options = tcp_options(head, meta);
    // Most hosts put it first, behind two bytes of padding (RFC 7323, appendix A).
    let (at, data) = match options.area() {
        [] => return None,
        [1, 1, 8, 10, data @ ..] => (2, data),
        _ => {
            let option = options.find(|option| option.kind == 8 && option.data.len() == 8)?;
            (option.at, option.data)
        }
    };
    let (value, echo) = data.split_first_chunk::<4>()?;
    let echo = echo.first_chunk()?;
    Some((FIXED + at, u32::from_be_bytes(*value), u32::from_be_bytes(*echo)))
}

/// Returns the value of the timestamp option.
#[inline]
pub fn timestamp_value(head: &[u8], meta: &Meta) -> Option<u32> {
    timestamp(head, meta).map(|(_, value, _)| value)
}

#[cfg(test)]
mod tests {
    use mmb_packet::build::{Frame as Built, Ip4, Ip6, Tcp};
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{assert_checksums, parsed};

    proptest! {
        /// After any write, the checksum is the one that a computation from scratch gives.
        #[test]
        fn patches_keep_the_checksum(
            at in 4..40usize,
            new in prop::collection::vec(any::<u8>(), 0..20),
            ip6: bool,
            payload: Vec<u8>,
        ) {
            let tcp = Tcp { options: vec![1; 40], seq: 7, ack: 9, ..Tcp::new(1, 2) };
            let net: mmb_packet::build::Net = match ip6 {
                true => Ip6::new([1u16; 8], [2u16; 8]).into(),
                false => Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]).into(),
            };
            let mut frame = Built::new(net, tcp).payload(payload).build();
            let (meta, before) = (parsed(&frame), frame.clone());
            let l4 = usize::from(meta.l4_off);
            // Neither the data offset, by which the options are found, nor the checksum itself.
            prop_assume!(at + new.len() <= 60 && (at + new.len() <= 12 || at >= 18));
            patch(&mut frame, l4, at, &new);
            assert_checksums(&frame);
            prop_assert_eq!(&frame[l4 + at..l4 + at + new.len()], &new[..]);
            let changed = |at: &usize| before[*at] != frame[*at];
            let touched = |i: usize| (l4 + at..l4 + at + new.len()).contains(&i) || (l4 + 16..l4 + 18).contains(&i);
            prop_assert!((0..frame.len()).filter(changed).all(touched));
        }

        #[test]
        fn nothing_is_written_outside(mut frame: Vec<u8>, l4 in 0..80usize, at in 0..80usize, new: [u8; 4]) {
            patch(&mut frame, l4, at, &new);
        }
    }

    #[test]
    fn options_are_omitted_where_there_is_no_room() {
        let mut options = Options::default();
        options.push(&[2, 4, 5]);
        assert_eq!(options.bytes(), [2, 4, 5, 0]);
        options.push(&[7; 38]);
        options.push(&[8; 37]);
        assert_eq!((options.bytes().len(), options.bytes()[39]), (40, 8));
    }

    proptest! {
        #[test]
        fn payloads_are_in_length_and_checksum(payload: Vec<u8>, ip6: bool) {
            let net: mmb_packet::build::Net = match ip6 {
                true => Ip6::new([1u16; 8], [2u16; 8]).into(),
                false => Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]).into(),
            };
            let to = Built::new(net, Tcp::new(1, 2)).build();
            let segment = OutgoingSegment { seq: 5, flags: ACK, ..OutgoingSegment::default() };
            let frame = segment.frame_with(&to, &parsed(&to), SegmentTo::Sender, &payload).expect("TCP");
            let frame = [frame.bytes(), &payload].concat();
            assert_checksums(&frame);
            let read = TcpSegment::read(&frame, &parsed(&frame)).expect("TCP");
            prop_assert_eq!((read.seq, read.len as usize), (5, payload.len()));
        }
    }

    #[test]
    fn timestamps_are_found_wherever_they_are() {
        let found = |options: &[u8]| {
            let net = Ip4::new([1; 4], [2; 4]);
            let frame = Built::new(net, Tcp { options: options.to_vec(), ..Tcp::new(1, 2) }).build();
            timestamp(&frame, &parsed(&frame))
        };
        let option = [8, 10, 0, 0, 1, 2, 0, 0, 3, 4];
        for front in [&[1, 1][..], &[1, 1, 1], &[], &[2, 4, 5, 180]] {
            let at = FIXED + front.len();
            assert_eq!(found(&[front, &option[..]].concat()), Some((at, 0x102, 0x304)), "{front:?}");
        }
        assert_eq!(found(&[1, 1, 8, 10, 0, 0, 1, 2]), None, "it is cut off");
        assert_eq!(found(&[1, 1, 8, 9, 0, 0, 1, 2, 0, 0, 3]), None, "it has another length");
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn only_tcp_is_answered() {
        let udp = Built::new(Ip4::new([1; 4], [2; 4]), mmb_packet::build::Udp::new(1, 2)).build();
        assert!(OutgoingSegment::default().frame(&udp, &parsed(&udp), SegmentTo::Receiver).is_none());
        assert!(reset(&udp, &parsed(&udp), SegmentTo::Sender).is_none());
    }
}
