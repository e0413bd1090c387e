//! Merges TCP segments into large frames, as generic receive offload (GRO) does.
//!
//! Theory of operation. The caller passes the packets of a vector in order. A segment that continues the one
//! before it in its flow joins its train; a train of several segments becomes one large frame, in the place
//! of the first one. Cutting that frame ([`LargeFrame::segments`]) gives the same segments again, byte for
//! byte: headers are equal but for what `finish_segment` computes, and all checksums are valid. What Linux
//! merges besides (`tcp_gro_receive`: fixed IPv4 identifications, IPv6 extension headers) is left alone.
//!
//! Packets of one flow keep their order: any packet that may be of a train's flow, and does not join it, ends
//! the train. Packets of other flows may come between the segments of a train.

use super::{
    FIN, IP4_CHECKSUM, IP4_ID, IP4_LENGTH, IP6, IP6_LENGTH, LargeFrame, Network, PSH, TCP, TCP_CHECKSUM,
    TCP_FLAGS, TCP_HEADER, TCP_OFFSET, TCP_SEQUENCE,
};
use crate::checksum::{fold, is_valid_in_pieces, sum};
use crate::{ETHERTYPE_IP4, ETHERTYPE_IP6, bytes, parse_l2};

/// Trains of different flows at a time, as Linux has in a bucket (`MAX_GRO_SKBS`).
const TRAINS: usize = 8;
/// Most bytes of headers: two VLAN tags, IPv6, and the longest TCP header.
const HEADERS: usize = 14 + 2 * 4 + IP6 + 60;
/// Most bytes of a large frame.
const LONGEST: usize = u16::MAX as usize;
/// Length of an IPv4 header without options.
const IP4: usize = 20;
const TCP_ACK: usize = 8;
const TCP_WINDOW: usize = 14;
const TCP_URGENT: usize = 18;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;
/// Everything of the IPv4 fragment field but "don't fragment".
const FRAGMENT: u8 = 0xbf;
/// A negative zero of a checksum, which no cut writes.
const NEGATIVE_ZERO: [u8; 2] = [0xff; 2];

/// What a packet may do to trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeRole {
    /// It belongs to no train.
    Unrelated,
    /// It may belong to the flow of any train, as fragments do.
    Unknown,
    /// It is of the TCP flow with this hash, and cannot be merged.
    Flow(u32),
    /// It can be merged if its checksum is valid.
    Segment(TcpSegment),
}

/// A TCP segment with payload that has no flags but ACK, PSH, FIN and ECE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSegment {
    frame: LargeFrame,
    flow: u32,
    sequence: u32,
    /// PSH and FIN, which end a train.
    last_flags: u8,
}

impl MergeRole {
    /// Parses a packet of `length` bytes that begins with `head`.
    #[inline]
    pub fn parse(head: &[u8], length: usize) -> MergeRole {
        let l2 = parse_l2(head);
        let l3 = usize::from(l2.l3_off);
        match l2.ethertype {
            ETHERTYPE_IP4 => parse_ip4(head, l3, length),
            ETHERTYPE_IP6 => parse_ip6(head, l3, length),
            0x0806 => MergeRole::Unrelated,
            _ => MergeRole::Unknown,
        }
    }

    /// Length of the headers of a segment that can be merged; 0 for other packets.
    pub fn header_len(&self) -> usize {
        match self {
            MergeRole::Segment(segment) => segment.frame.payload,
            _ => 0,
        }
    }
}

fn parse_ip4(head: &[u8], l3: usize, length: usize) -> MergeRole {
    let Some(ip) = bytes::at::<IP4>(head, l3) else { return MergeRole::Unknown };
    if ip[0] != 0x45 || ip[6] & FRAGMENT != 0 || ip[7] != 0 {
        return MergeRole::Unknown;
    }
    if ip[9] != TCP {
        return MergeRole::Unrelated;
    }
    let [_, _, _, source, destination]: [u32; 5] = bytemuck::cast(*ip);
    let addresses = u64::from(source) << 32 | u64::from(destination);
    let end = l3 + usize::from(bytes::be16(ip, IP4_LENGTH));
    let is_valid = ip[IP4_CHECKSUM..][..2] != NEGATIVE_ZERO && fold(sum(ip, 0)) == 0xffff;
    parse_tcp(head, Network { l3, is_ip4: true }, l3 + IP4, addresses, is_valid && end == length, length)
}

fn parse_ip6(head: &[u8], l3: usize, length: usize) -> MergeRole {
    let Some(ip) = bytes::at::<IP6>(head, l3) else { return MergeRole::Unknown };
    if ip[0] >> 4 != 6 {
        return MergeRole::Unknown;
    }
    match ip[6] {
        TCP => {}
        // UDP and ICMPv6.
        17 | 58 => return MergeRole::Unrelated,
        _ => return MergeRole::Unknown,
    }
    let [_, a, b, c, d]: [u64; 5] = bytemuck::cast(*ip);
    let addresses = mix(mix(mix(a) ^ b) ^ c) ^ d;
    let end = l3 + IP6 + usize::from(bytes::be16(ip, IP6_LENGTH));
    parse_tcp(head, Network { l3, is_ip4: false }, l3 + IP6, addresses, end == length, length)
}

/// `is_plain`: whether the network header allows a merge.
#[inline]
fn parse_tcp(
    head: &[u8],
    network: Network,
    l4: usize,
    addresses: u64,
    is_plain: bool,
    length: usize,
) -> MergeRole {
    let Some(tcp) = bytes::at::<TCP_HEADER>(head, l4) else { return MergeRole::Unknown };
    let ports = u32::from_ne_bytes([tcp[0], tcp[1], tcp[2], tcp[3]]);
    let flow = (mix(addresses ^ mix(ports.into())) >> 32) as u32;
    let flags = tcp[TCP_FLAGS];
    let header = usize::from(tcp[TCP_OFFSET] >> 4) * 4;
    let payload = l4 + header;
    let is_segment = is_plain
        && flags & !(PSH | FIN | ECE) == ACK
        && tcp[TCP_OFFSET] & 0x0f == 0
        && tcp[TCP_CHECKSUM..][..2] != NEGATIVE_ZERO
        && header >= TCP_HEADER
        && payload < length
        && payload <= head.len().min(HEADERS)
        && length <= LONGEST;
    if !is_segment {
        return MergeRole::Flow(flow);
    }
    let frame = LargeFrame { network, l4, payload, end: length, is_tcp: true, outer: None };
    let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    MergeRole::Segment(TcpSegment { frame, flow, sequence, last_flags: flags & (PSH | FIN) })
}

/// Spreads the bits of a number.
#[inline(always)]
fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    n ^ n >> 29
}

impl TcpSegment {
    /// Whether the TCP checksum is valid. `rest`: the packet's bytes behind `head`. What is longer than the
    /// segment is left out.
    pub fn is_intact(&self, head: &[u8], rest: &[&[u8]]) -> bool {
        let LargeFrame { network, l4, end, .. } = self.frame;
        let part = (end - l4, network.pseudo_sum(head, true, end - l4));
        is_valid_in_pieces(head, rest.iter().copied(), l4, part)
    }
}

/// Segments that continue each other.
#[derive(Clone, Copy, Debug)]
pub struct Train {
    /// The first segment; its end is that of the merged frame.
    frame: LargeFrame,
    flow: u32,
    /// Position of the first segment.
    at: usize,
    segments: u16,
    /// Bytes of payload of each segment but the last.
    size: u16,
    next_sequence: u32,
    last_flags: u8,
    /// Whether the first segment's checksum is known to be valid.
    is_intact: bool,
    /// Its headers.
    headers: [u8; HEADERS],
}

impl Train {
    /// Most segments.
    pub const MOST: usize = 64;

    fn new(segment: &TcpSegment, head: &[u8], at: usize) -> Train {
        let TcpSegment { frame, flow, sequence, last_flags } = *segment;
        let mut headers = [0; HEADERS];
        headers[..frame.payload].copy_from_slice(&head[..frame.payload]);
        let size = frame.payload_len() as u16;
        let next_sequence = sequence.wrapping_add(size.into());
        Train { frame, flow, at, segments: 1, size, next_sequence, last_flags, is_intact: false, headers }
    }

    /// Position of the first segment.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The first segment.
    pub fn first(&self) -> TcpSegment {
        let end = self.frame.payload + usize::from(self.size);
        let sequence = self.next_sequence.wrapping_sub((self.frame.end - self.frame.payload) as u32);
        TcpSegment { frame: LargeFrame { end, ..self.frame }, flow: self.flow, sequence, last_flags: 0 }
    }

    /// Bytes of payload of each segment but the last.
    pub fn segment_size(&self) -> u16 {
        self.size
    }

    /// Whether a segment, whose headers `head` begins with, can follow.
    fn is_continued_by(&self, segment: &TcpSegment, head: &[u8]) -> bool {
        let LargeFrame { network, l4, payload, end, .. } = self.frame;
        let next = &segment.frame;
        let length = next.payload_len();
        if (next.network, next.l4, next.payload) != (network, l4, payload)
            || segment.sequence != self.next_sequence
            || length > usize::from(self.size)
            || end + length > LONGEST
            || usize::from(self.segments) == Train::MOST
            || head.len() < payload
        {
            return false;
        }
        let own = &self.headers[..payload];
        let are_equal = |from: usize, to: usize| own[from..to] == head[from..to];
        let l3 = network.l3;
        let is_same_network = if network.is_ip4 {
            let id = |header: &[u8]| u16::from_be_bytes([header[l3 + IP4_ID], header[l3 + IP4_ID + 1]]);
            are_equal(0, l3 + IP4_LENGTH)
                && id(head) == id(own).wrapping_add(self.segments)
                && are_equal(l3 + IP4_ID + 2, l3 + IP4_CHECKSUM)
                && are_equal(l3 + IP4_CHECKSUM + 2, l4)
        } else {
            are_equal(0, l3 + IP6_LENGTH) && are_equal(l3 + IP6_LENGTH + 2, l4)
        };
        is_same_network
            && are_equal(l4, l4 + TCP_SEQUENCE)
            && are_equal(l4 + TCP_ACK, l4 + TCP_FLAGS)
            && (own[l4 + TCP_FLAGS] ^ head[l4 + TCP_FLAGS]) & !(PSH | FIN) == 0
            && are_equal(l4 + TCP_WINDOW, l4 + TCP_CHECKSUM)
            && are_equal(l4 + TCP_URGENT, payload)
    }

    /// Whether a segment at position `at`, whose headers `head` begins with, joins the train.
    fn is_joined_by(
        &mut self,
        segment: &TcpSegment,
        head: &[u8],
        at: usize,
        packets: &impl MergePackets,
    ) -> bool {
        let joins = self.is_continued_by(segment, head) && packets.is_intact(at, segment);
        self.is_intact = self.is_intact || joins && packets.is_intact(self.at, &self.first());
        joins && self.is_intact
    }

    /// Appends a segment that can follow. Returns whether it is the last one.
    fn append(&mut self, segment: &TcpSegment) -> bool {
        let length = segment.frame.payload_len();
        self.frame.end += length;
        self.segments += 1;
        self.next_sequence = self.next_sequence.wrapping_add(length as u32);
        self.last_flags |= segment.last_flags;
        segment.last_flags != 0 || length < usize::from(self.size)
    }

    /// Turns the first segment's headers, with which `head` begins, into those of the large frame.
    pub fn write_headers(&self, head: &mut [u8]) {
        let LargeFrame { network, l4, payload, end, .. } = self.frame;
        if head.len() >= payload {
            network.finish(head, end, 0);
            head[l4 + TCP_FLAGS] |= self.last_flags;
        }
    }
}

/// The packets of a vector, at positions that count those that have joined no other one.
pub trait MergePackets {
    /// Whether the TCP checksum of the packet at a position is valid. Its first bytes, as many as the segment
    /// has, are the packet.
    fn is_intact(&self, at: usize, segment: &TcpSegment) -> bool;

    /// Makes the first packet of a train, to which the payload of the others was appended, a large frame.
    fn finish(&mut self, train: &Train);
}

/// The trains of a vector.
#[derive(Debug, Default)]
pub struct Merger {
    trains: [Option<Train>; TRAINS],
    open: usize,
    /// The entry that is replaced next if there are no free ones.
    oldest: usize,
}

impl Merger {
    /// Takes the next packet, which begins with `head` and is at position `at`. Returns the position of the
    /// packet that it joins, to which the caller appends its payload.
    #[inline]
    pub fn take(
        &mut self,
        role: &MergeRole,
        head: &[u8],
        at: usize,
        packets: &mut impl MergePackets,
    ) -> Option<usize> {
        let (flow, segment) = match role {
            MergeRole::Unrelated => return None,
            MergeRole::Unknown => {
                self.finish(packets);
                return None;
            }
            MergeRole::Flow(flow) => (*flow, None),
            MergeRole::Segment(segment) => (segment.flow, Some(segment)),
        };
        if let Some(place) = self.place_of(flow) {
            if let (Some(train), Some(segment)) = (&mut self.trains[place], segment)
                && train.is_joined_by(segment, head, at, packets)
            {
                let first = train.at;
                if train.append(segment) {
                    self.end(place, packets);
                }
                return Some(first);
            }
            self.end(place, packets);
        }
        if let Some(segment) = segment.filter(|segment| segment.last_flags == 0) {
            self.begin(Train::new(segment, head, at), packets);
        }
        None
    }

    fn place_of(&self, flow: u32) -> Option<usize> {
        let is_of_flow = |train: &Option<Train>| train.as_ref().is_some_and(|train| train.flow == flow);
        if self.open == 0 { None } else { self.trains.iter().position(is_of_flow) }
    }

    fn begin(&mut self, train: Train, packets: &mut impl MergePackets) {
        let free = self.trains.iter().position(Option::is_none);
        let place = free.unwrap_or(self.oldest);
        if free.is_none() {
            self.end(place, packets);
            self.oldest = (self.oldest + 1) % TRAINS;
        }
        self.trains[place] = Some(train);
        self.open += 1;
    }

    fn end(&mut self, place: usize, packets: &mut impl MergePackets) {
        if let Some(train) = self.trains[place].take() {
            self.open -= 1;
            if train.segments > 1 {
                packets.finish(&train);
            }
        }
    }

    /// Ends all trains.
    pub fn finish(&mut self, packets: &mut impl MergePackets) {
        if self.open > 0 {
            (0..TRAINS).for_each(|place| self.end(place, packets));
        }
    }
}

#[cfg(test)]
mod tests;
