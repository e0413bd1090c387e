//! The parts of a packet that the tracker reads.

use mmb_packet::{Kind, Meta, tcp_options};

/// A packet as the tracker sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackInput {
    /// A TCP segment.
    Tcp(TcpSegment),
    /// A UDP datagram.
    Udp,
    /// An ICMP or ICMPv6 query or its reply.
    Icmp,
    /// Other protocols, later fragments, truncated transport headers.
    Other,
}

/// The fields of a TCP segment that the tracker reads, in host byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSegment {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number. Valid only with [`TcpSegment::ACK`].
    pub ack: u32,
    /// Length of the payload in bytes.
    pub len: u32,
    /// Window as in the header, unscaled.
    pub window: u16,
    /// The lower eight flags as in the header.
    pub flags: u8,
    /// The window scale option of a SYN.
    pub scale: Option<u8>,
}

/// Offsets in the TCP header, in bytes (RFC 9293, 3.1).
const SEQ: usize = 4;
const ACKNOWLEDGEMENT: usize = 8;
const DATA_OFFSET: usize = 12;
const FLAGS: usize = 13;
const WINDOW: usize = 14;
/// Bytes of the header that are read, and bytes of the header without options.
const READ: usize = 16;
const FIXED: usize = 20;
/// Option kind of the window scale (RFC 7323, 2.2).
const WSCALE: u8 = 3;
/// Maximum shift; larger shifts count as this (RFC 7323, 2.3).
pub(super) const MOST_SCALE: u8 = 14;

/// Whether an ICMP type is a query or a reply (RFC 792, RFC 950, RFC 8335; ICMPv6: RFC 4443).
fn is_query(kind: Kind, icmp_type: u8) -> bool {
    match kind.l4() {
        Kind::ICMP => matches!(icmp_type, 0 | 8 | 13..=18 | 42 | 43),
        Kind::ICMP6 => matches!(icmp_type, 128 | 129 | 160 | 161),
        _ => false,
    }
}

impl TrackInput {
    /// Classifies a parsed packet. `head` and `meta` are those of [`mmb_packet::parse`].
    pub fn of(head: &[u8], meta: &Meta) -> TrackInput {
        match meta.kind.l4() {
            Kind::TCP => TcpSegment::read(head, meta).map_or(TrackInput::Other, TrackInput::Tcp),
            Kind::UDP => TrackInput::Udp,
            Kind::ICMP | Kind::ICMP6 => match head.get(usize::from(meta.l4_off)) {
                Some(&icmp_type) if is_query(meta.kind, icmp_type) => TrackInput::Icmp,
                _ => TrackInput::Other,
            },
            _ => TrackInput::Other,
        }
    }
}

impl TcpSegment {
    /// Flag FIN.
    pub const FIN: u8 = 0x01;
    /// Flag SYN.
    pub const SYN: u8 = 0x02;
    /// Flag RST.
    pub const RST: u8 = 0x04;
    /// Flag ACK.
    pub const ACK: u8 = 0x10;

    /// Reads the segment of a parsed packet; none if it has no readable TCP header.
    #[inline]
    pub fn read(head: &[u8], meta: &Meta) -> Option<TcpSegment> {
        if meta.kind.l4() != Kind::TCP {
            return None;
        }
        let l4 = usize::from(meta.l4_off);
        let tcp: &[u8; READ] = head.get(l4..)?.first_chunk()?;
        let long = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
        let flags = tcp[FLAGS];
        let header = usize::from(tcp[DATA_OFFSET] >> 4) * 4;
        let len = usize::from(meta.end).saturating_sub(l4 + header);
        let has_scale = flags & Self::SYN != 0 && header > FIXED;
        Some(TcpSegment {
            seq: long(SEQ),
            ack: long(ACKNOWLEDGEMENT),
            len: u32::try_from(len).unwrap_or(u32::MAX),
            window: u16::from_be_bytes([tcp[WINDOW], tcp[WINDOW + 1]]),
            flags,
            scale: if has_scale { scale(head, meta) } else { None },
        })
    }

    /// Whether a flag is set.
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether exactly these of SYN, ACK, FIN and RST are set.
    pub(super) fn is(&self, flags: u8) -> bool {
        self.flags & (Self::SYN | Self::ACK | Self::FIN | Self::RST) == flags
    }

    /// The sequence number after the last byte of payload. A SYN takes one number.
    pub fn data_end(&self) -> u32 {
        self.seq.wrapping_add(self.len).wrapping_add(u32::from(self.has(Self::SYN)))
    }

    /// The sequence number after the segment. A FIN takes one number too.
    pub(super) fn end(&self) -> u32 {
        self.data_end().wrapping_add(u32::from(self.has(Self::FIN)))
    }
}

/// The shift of the window scale option: the last option with the right length.
fn scale(head: &[u8], meta: &Meta) -> Option<u8> {
    let shift = |option: mmb_packet::TcpOption<'_>| match (option.kind, option.data) {
        (WSCALE, &[shift]) => Some(shift.min(MOST_SCALE)),
        _ => None,
    };
    tcp_options(head, meta).filter_map(shift).last()
}
