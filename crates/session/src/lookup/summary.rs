//! Packet summaries: what the established path needs of a packet, read while its headers are in the cache.

use std::hint::select_unpredictable;

use mmb_flow::TcpSegment;
use mmb_packet::{Kind, Meta, PacketFlags, PlainHeaders};

/// What the established path needs of a packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PacketSummary {
    /// Acknowledgement number of TCP; meaningful with [`PacketSummary::ACK`].
    pub ack: u32,
    /// Length of the frame.
    pub bytes: u32,
    pub in_port: u16,
    /// The flags of TCP in the lower 8 bits, flags of the summary above.
    pub flags: u16,
    /// Offset of the transport header if that is TCP or UDP after an IPv4 header without options and 20 bytes
    /// from there are in the head; else 0.
    pub l4: u16,
}

/// Offset of the acknowledgement number in a TCP header.
const TCP_ACK: usize = 8;
/// Offset of the flags in a TCP header.
const TCP_FLAGS: usize = 13;

impl PacketSummary {
    /// The packet is on its way back to a host inside.
    pub const LOOPED: u16 = 1 << 8;
    /// The packet is TCP, and its header cannot be read.
    const UNREADABLE: u16 = 1 << 9;
    /// The packet may open, close or reset a connection.
    pub const UNSTEADY: u16 =
        (TcpSegment::SYN | TcpSegment::FIN | TcpSegment::RST) as u16 | PacketSummary::UNREADABLE;
    /// The packet is more than a further packet of an open session.
    pub const NOT_PLAIN: u16 = PacketSummary::UNSTEADY | PacketSummary::LOOPED;
    /// The packet is UDP; set only if [`PacketSummary::l4`] is.
    pub const UDP: u16 = 1 << 10;
    /// The packet is TCP and has an acknowledgement number.
    pub const ACK: u16 = TcpSegment::ACK as u16;

    /// Reads the summary of a packet of any kind.
    #[inline(always)]
    pub fn of(head: &[u8], meta: &Meta, in_port: u16, bytes: u32) -> PacketSummary {
        let looped = if !meta.flags.contains(PacketFlags::LOOPED) { 0 } else { PacketSummary::LOOPED };
        let tcp = head.get(usize::from(meta.l4_off)..).and_then(<[u8]>::first_chunk::<{ TCP_FLAGS + 1 }>);
        let Some(tcp) = tcp else {
            let flags = PacketSummary::flags_of_short(meta) | looped;
            return PacketSummary { ack: 0, bytes, in_port, flags, l4: 0 };
        };
        // No branch on the protocol: traffic mixes TCP and others. Others have no flags.
        let mask = select_unpredictable(meta.kind.l4() == Kind::TCP, u8::MAX, 0);
        let flags = u16::from(tcp[TCP_FLAGS] & mask) | looped;
        PacketSummary { ack: ack_of(tcp), bytes, in_port, flags, l4: 0 }
    }

    /// Reads the summary of a packet with parsed headers.
    #[inline(always)]
    pub fn of_parsed<H: PlainHeaders>(headers: &H, in_port: u16, bytes: u32) -> PacketSummary {
        let (ack, flags) = (headers.tcp_ack(), u16::from(headers.tcp_flags()));
        if H::IP6 {
            return PacketSummary { ack, bytes, in_port, flags, l4: 0 };
        }
        let udp = (headers.tag() as u16 & u16::from(Kind::UDP))
            << (PacketSummary::UDP / u16::from(Kind::UDP)).trailing_zeros();
        PacketSummary { ack, bytes, in_port, flags: flags | udp, l4: headers.l4_off() }
    }

    /// Flags of a packet that ends before the end of a TCP header.
    #[cold]
    fn flags_of_short(meta: &Meta) -> u16 {
        if meta.kind.l4() == Kind::TCP { PacketSummary::UNREADABLE } else { 0 }
    }
}

/// Reads the acknowledgement number of a TCP header.
#[inline(always)]
fn ack_of(tcp: &[u8; TCP_FLAGS + 1]) -> u32 {
    u32::from_be_bytes([tcp[TCP_ACK], tcp[TCP_ACK + 1], tcp[TCP_ACK + 2], tcp[TCP_ACK + 3]])
}

/// Returns `None` if a packet may open, close or reset a connection; else its acknowledgement number, if it
/// is TCP and has one.
#[inline(always)]
pub(crate) fn steady_ack(head: &[u8], meta: &Meta) -> Option<Option<u32>> {
    if meta.kind.l4() != Kind::TCP {
        return Some(None);
    }
    let tcp: &[u8; TCP_FLAGS + 1] = head.get(usize::from(meta.l4_off)..)?.first_chunk()?;
    if tcp[TCP_FLAGS] & (TcpSegment::SYN | TcpSegment::FIN | TcpSegment::RST) != 0 {
        return None;
    }
    Some((tcp[TCP_FLAGS] & TcpSegment::ACK != 0).then(|| ack_of(tcp)))
}
