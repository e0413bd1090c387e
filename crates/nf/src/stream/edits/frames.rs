//! Segments that are built from the output of a connection.

use mmb_packet::Kind;
use mmb_packet::checksum::{fold, pseudo4, pseudo6, sum};
use mmb_stream::{OutputRange, Splices, TcpStream, View};

use super::EditMemory;
use crate::context::Emissions;
use crate::stream::StreamData;
use crate::tcp_segment::{
    ACK, FIN, FIXED, FLAGS, Options, OutgoingSegment, PSH, RST, SEQ, SYN, SegmentTo, segment,
};
use crate::{EmitTarget, Packet};

pub(super) const CWR: u8 = 0x80;
/// Offsets in a TCP header.
const CHECKSUM: usize = 16;
/// Bytes of the longest frame, and most segments of a large one.
const LONGEST_FRAME: u32 = 65_535;
const MOST_SEGMENTS: u32 = 1024;
/// Payload that each path carries, without TCP options (RFC 9293, 3.7.1).
pub(super) const LEAST4: u16 = 536;
pub(super) const LEAST6: u16 = 1220;

/// The packet in whose place, or because of which, segments are sent.
pub(super) struct Cause<'a, 'p> {
    pub packet: &'a Packet<'p>,
    /// Its position in the vector.
    pub at: usize,
    /// The number of its connection.
    pub number: u32,
}

/// Headers in front of a payload.
struct Headers<'a> {
    /// From the Ethernet header to the end of the TCP header.
    bytes: &'a [u8],
    l3: usize,
    l4: usize,
    is_ip4: bool,
}

/// The flags of a series of segments.
struct SeriesFlags {
    /// Those of the segments in the middle.
    flags: u8,
    /// Those that the first one has in addition, and the last one.
    first: u8,
    last: u8,
}

impl EditMemory {
    /// Sends ranges of the output of a packet's direction in its place. `last`: the flags that the last
    /// segment has in addition.
    pub(super) fn send_on(
        &mut self,
        cause: &Cause<'_, '_>,
        ranges: [OutputRange; 2],
        last: u8,
        emissions: &mut Emissions,
    ) {
        let packet = cause.packet;
        let Some(headers) = Headers::of(packet) else { return };
        let flags = packet.tcp_flags();
        let plain = flags & !(FIN | SYN | PSH | CWR);
        let mut series = SeriesFlags { flags: plain, first: flags & (SYN | CWR), last };
        let direction = packet.direction as usize;
        let joined = if ranges[0].to == ranges[1].from && !ranges[0].is_empty() && !ranges[0].has_fin {
            [OutputRange { from: ranges[0].from, ..ranges[1] }, OutputRange::default()]
        } else {
            ranges
        };
        for range in joined.into_iter().filter(|range| !range.is_empty()) {
            self.send_range((cause, direction), &headers, range, &series, (EmitTarget::Egress, emissions));
            series.first = 0;
        }
    }

    /// Sends bytes of the output of a packet's direction in front of it, or behind it. `last`: the flags that
    /// the last segment has in addition.
    pub(super) fn send_on_plain(
        &mut self,
        cause: &Cause<'_, '_>,
        range: OutputRange,
        last: u8,
        emissions: &mut Emissions,
    ) {
        let Some(headers) = Headers::of(cause.packet) else { return };
        let flags = cause.packet.tcp_flags() & !(FIN | SYN | RST | PSH | CWR);
        let series = SeriesFlags { flags, first: 0, last };
        let direction = cause.packet.direction as usize;
        self.send_range((cause, direction), &headers, range, &series, (EmitTarget::Egress, emissions));
    }

    /// Sends the first bytes of a packet's payload as they are, with other numbers.
    pub(super) fn send_front(&self, cause: &Cause<'_, '_>, range: OutputRange, emissions: &mut Emissions) {
        let Some(headers) = Headers::of(cause.packet).filter(|_| !range.is_empty()) else { return };
        let flags = cause.packet.tcp_flags() & !(FIN | SYN | RST | PSH | CWR);
        let (len, most) = (range.to.wrapping_sub(range.from) as usize, self.most_payload(cause) as usize);
        for (n, from) in (0..len).step_by(most).enumerate() {
            let view = View { skip: from as u16, len: most.min(len - from) as u16, ..View::NONE };
            let payload = StreamData::new(cause.packet, view);
            let place = (usize::from(view.len), 0);
            let frame = emissions.push_built(EmitTarget::Egress, cause.at, headers.bytes, place, |frame| {
                payload.chunks().for_each(|chunk| frame.extend_from_slice(chunk));
                true
            });
            let Some(frame) = frame else { return };
            headers.complete(frame, (range.from.wrapping_add(from as u32), flags), n as u16, 0);
        }
    }

    /// Returns the most payload of a segment with the headers of a packet.
    pub(super) fn most_payload(&self, cause: &Cause<'_, '_>) -> u32 {
        let packet = cause.packet;
        let options = packet.l4_header_len().saturating_sub(FIXED);
        let least = if packet.meta.kind.l3() == Kind::IP4 { LEAST4 } else { LEAST6 };
        self.splices.most_payload(cause.number, packet.direction as usize, options, least) as u32
    }

    /// Sends a range of the output of the other direction to the sender of a packet.
    pub(super) fn send_back(&mut self, cause: &Cause<'_, '_>, range: OutputRange, emissions: &mut Emissions) {
        if range.is_empty() {
            return;
        }
        let direction = 1 - cause.packet.direction as usize;
        let (ack, _) = self.splices.carried(cause.number, direction);
        let Some(frame) = self.template(cause, (range.from, ack)) else { return };
        let packet = cause.packet;
        let (l3, is_ip4) = (usize::from(packet.meta.l3_off), packet.meta.kind.l3() == Kind::IP4);
        let l4 = l3 + if is_ip4 { 20 } else { 40 };
        let headers = Headers { bytes: frame.bytes(), l3, l4, is_ip4 };
        let series = SeriesFlags { flags: ACK, first: 0, last: PSH };
        self.send_range((cause, direction), &headers, range, &series, (EmitTarget::Ingress, emissions));
    }

    /// Sends an acknowledgement to the sender of a packet whose bytes were removed.
    pub(super) fn acknowledge(&mut self, cause: &Cause<'_, '_>, emissions: &mut Emissions) {
        let (end, _) = self.splices.ends(cause.number, cause.packet.direction as usize);
        let (ack, ..) =
            self.splices.pre_acknowledge(cause.number, cause.packet.direction as usize, end, None);
        self.tell(cause, ack, emissions);
    }

    /// Sends an acknowledgement with this number to the sender of a packet.
    pub(super) fn tell(&mut self, cause: &Cause<'_, '_>, ack: u32, emissions: &mut Emissions) {
        let seq = self.splices.next(cause.number, 1 - cause.packet.direction as usize);
        if let Some(frame) = self.template(cause, (seq, ack)) {
            emissions.push_in_order(EmitTarget::Ingress, cause.at, &[frame.bytes()]);
        }
    }

    /// Sends the acknowledgement of a packet without its payload.
    pub(super) fn send_bare(&mut self, cause: &Cause<'_, '_>, seq: u32, emissions: &mut Emissions) {
        let range = OutputRange { from: seq, to: seq, has_fin: false };
        let packet = cause.packet;
        let Some(headers) = Headers::of(packet) else { return };
        let flags = packet.tcp_flags() & !(FIN | PSH);
        let series = SeriesFlags { flags, first: 0, last: 0 };
        let direction = packet.direction as usize;
        self.send_range((cause, direction), &headers, range, &series, (EmitTarget::Egress, emissions));
    }

    /// Returns a segment without payload for the sender of a packet.
    fn template(&self, cause: &Cause<'_, '_>, (seq, ack): (u32, u32)) -> Option<crate::tcp_segment::Frame> {
        let Cause { packet, number, .. } = *cause;
        let own = packet.direction as usize;
        let mut options = Options::default();
        if let (Some(value), Some(echo)) =
            (self.splices.stamp(number, 1 - own), self.splices.stamp(number, own))
        {
            options.push_timestamp(value, echo);
        }
        let (_, window) = self.splices.carried(number, 1 - own);
        OutgoingSegment { seq, ack, flags: ACK, window, options }.frame(
            packet.head,
            packet.meta,
            SegmentTo::Sender,
        )
    }

    /// Sends a range of a direction's output behind these headers, in segments that the path carries. Those
    /// that follow each other are one large frame.
    fn send_range(
        &mut self,
        (cause, direction): (&Cause<'_, '_>, usize),
        headers: &Headers<'_>,
        range: OutputRange,
        series: &SeriesFlags,
        (target, emissions): (EmitTarget, &mut Emissions),
    ) {
        let options = headers.bytes.len().saturating_sub(headers.l4 + FIXED);
        let least = if headers.is_ip4 { LEAST4 } else { LEAST6 };
        let most = self.splices.most_payload(cause.number, direction, options, least) as u32;
        let most_of_frame = most_of_large(headers.bytes.len(), most);
        let (mut from, mut n) = (range.from, 0u32);
        loop {
            let left = range.to.wrapping_sub(from);
            let is_syn = n == 0 && series.first & SYN != 0;
            // Segments of a large frame have the same flags, but for FIN, PSH and CWR.
            let len = left.min(if is_syn { most } else { most_of_frame });
            let to = from.wrapping_add(len);
            let is_last = to == range.to;
            let mut flags = series.flags | if n == 0 { series.first } else { 0 };
            if is_last {
                flags |= series.last | if range.has_fin { FIN } else { 0 };
            }
            let segment_size = if len > most { most as u16 } else { 0 };
            let (splices, number) = (&self.splices, cause.number);
            let place = (len as usize, segment_size);
            let frame = emissions.push_built(target, cause.at, headers.bytes, place, |frame| {
                splices.read(number, direction, (from, to), frame)
            });
            let Some(frame) = frame else { return };
            headers.complete(frame, (from.wrapping_sub(u32::from(is_syn)), flags), n as u16, segment_size);
            if is_last {
                return;
            }
            (from, n) = (to, n + len.div_ceil(most));
        }
    }
}

/// Returns the most payload of a large frame with the headers of a packet. `most`: that of a segment.
pub(super) fn most_of_frame(packet: &Packet<'_>, most: u32) -> u32 {
    most_of_large(usize::from(packet.meta.l4_off) + packet.l4_header_len(), most)
}

/// Returns the most payload of a large frame behind so many bytes of headers.
fn most_of_large(headers: usize, most: u32) -> u32 {
    let segments = LONGEST_FRAME.saturating_sub(headers as u32) / most;
    segments.clamp(1, MOST_SEGMENTS) * most
}

impl<'a> Headers<'a> {
    /// Returns the headers of a packet of TCP.
    fn of(packet: &'a Packet<'_>) -> Option<Headers<'a>> {
        let (l3, l4) = (usize::from(packet.meta.l3_off), usize::from(packet.meta.l4_off));
        let bytes = packet.head.get(..l4 + packet.l4_header_len())?;
        Some(Headers { bytes, l3, l4, is_ip4: packet.meta.kind.l3() == Kind::IP4 })
    }

    /// Writes numbers, lengths and checksums of a frame with these headers and a payload. `n`: how many
    /// segments with the headers came before. The checksum of a large frame is left to what sends it.
    fn complete(&self, frame: &mut [u8], (seq, flags): (u32, u8), n: u16, segment_size: u16) {
        let (Some((ip, tcp)), true) = (frame.split_at_mut_checked(self.l4), self.l3 < self.l4) else {
            return;
        };
        let Some(ip) = ip.get_mut(self.l3..) else { return };
        let len = tcp.len();
        if let Some(header) = tcp.first_chunk_mut::<FIXED>() {
            header[SEQ..SEQ + 4].copy_from_slice(&seq.to_be_bytes());
            header[FLAGS] = flags;
            header[CHECKSUM..CHECKSUM + 2].fill(0);
        }
        let pseudo = if self.is_ip4 { ip4(ip, len, n) } else { ip6(ip, len) };
        if segment_size != 0 {
            return;
        }
        let checksum = !fold(sum(tcp, pseudo));
        if let Some(field) = tcp.get_mut(CHECKSUM..CHECKSUM + 2) {
            field.copy_from_slice(&checksum.to_be_bytes());
        }
    }
}

/// Completes an IPv4 header in front of `len` bytes. Returns the sum of the pseudo header.
fn ip4(ip: &mut [u8], len: usize, n: u16) -> u32 {
    let total = (ip.len() + len) as u16;
    let header = ip.len();
    let Some(fixed) = ip.first_chunk_mut::<20>() else { return 0 };
    fixed[2..4].copy_from_slice(&total.to_be_bytes());
    let id = u16::from_be_bytes([fixed[4], fixed[5]]).wrapping_add(n);
    fixed[4..6].copy_from_slice(&id.to_be_bytes());
    fixed[10..12].fill(0);
    let (source, destination) =
        ([fixed[12], fixed[13], fixed[14], fixed[15]], [fixed[16], fixed[17], fixed[18], fixed[19]]);
    let checksum = !fold(sum(ip, 0));
    if let Some(field) = ip.get_mut(10..12).filter(|_| header >= 20) {
        field.copy_from_slice(&checksum.to_be_bytes());
    }
    pseudo4(source, destination, 6, len as u16)
}

/// Completes an IPv6 header and its extension headers in front of `len` bytes. Returns the sum of the pseudo
/// header.
fn ip6(ip: &mut [u8], len: usize) -> u32 {
    let payload = (ip.len().saturating_sub(40) + len) as u16;
    let Some(fixed) = ip.first_chunk_mut::<40>() else { return 0 };
    fixed[4..6].copy_from_slice(&payload.to_be_bytes());
    let (mut source, mut destination) = ([0; 16], [0; 16]);
    source.copy_from_slice(&fixed[8..24]);
    destination.copy_from_slice(&fixed[24..40]);
    pseudo6(&source, &destination, 6, len as u32)
}

/// The numbers that both ends of an edited connection expect.
#[derive(Clone, Copy, Debug)]
pub(in crate::stream) struct ExpectedNumbers {
    /// Of the packet's receiver, and of its sender.
    to_receiver: u32,
    to_sender: u32,
}

impl ExpectedNumbers {
    /// Returns the numbers for a packet of a direction. None: the connection is not edited.
    pub fn of(splices: &Splices, number: u32, direction: usize) -> Option<ExpectedNumbers> {
        let next = |direction| splices.next(number, direction);
        let to_sender = splices.acknowledged(number, 1 - direction).unwrap_or_else(|| next(1 - direction));
        let is_begun = splices.has_begun(number, direction);
        is_begun.then(|| ExpectedNumbers { to_receiver: next(direction), to_sender })
    }

    /// Returns the numbers for a packet of a connection that is read, and not edited. None: it is not read.
    pub fn of_stream(stream: &TcpStream, direction: usize) -> Option<ExpectedNumbers> {
        let to_sender = stream.acknowledged(1 - direction).or(stream.end(1 - direction))?;
        Some(ExpectedNumbers { to_receiver: stream.end(direction)?, to_sender })
    }

    /// Returns a reset for the receiver of a packet. None: the packet is one.
    #[cold]
    pub fn reset_receiver(self, packet: &Packet<'_>) -> Option<crate::tcp_segment::Frame> {
        let segment = segment(packet).filter(|segment| segment.flags & RST == 0)?;
        let flags = segment.flags & ACK | RST;
        let reset =
            OutgoingSegment { seq: self.to_receiver, ack: segment.ack, flags, ..OutgoingSegment::default() };
        reset.frame(packet.head, packet.meta, SegmentTo::Receiver)
    }

    /// Sends a reset to both ends (RFC 9293, 3.10.7.1).
    #[cold]
    pub fn reset(self, (packet, at): (&Packet<'_>, usize), emissions: &mut Emissions) {
        let Some(segment) = segment(packet).filter(|segment| segment.flags & RST == 0) else { return };
        let forward = OutgoingSegment {
            seq: self.to_receiver,
            ack: segment.ack,
            flags: segment.flags & ACK | RST,
            ..OutgoingSegment::default()
        };
        let back = OutgoingSegment { seq: self.to_sender, flags: RST, ..OutgoingSegment::default() };
        for (reset, to) in [back, forward].into_iter().zip(SegmentTo::BOTH) {
            if let Some(frame) = reset.frame(packet.head, packet.meta, to) {
                emissions.push_in_order(to.target(), at, &[frame.bytes()]);
            }
        }
    }
}
