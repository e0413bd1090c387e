//! What the short way needs to know of a packet.

use std::hint::select_unpredictable;

use mmb_flow::TcpSegment;
use mmb_packet::{Kind, Meta, ParsedHeaders, flags};

/// What the short way needs to know of a packet, read while it is near.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gist {
    pub ack: u32,
    pub bytes: u32,
    pub in_port: u16,
    /// TCP's flags, below what else there is to say.
    pub says: u16,
    /// Where the transport header begins, if it is one of TCP or UDP behind an IPv4 header without options, and all of 20 bytes
    /// from there are in the head; or 0.
    pub l4: u16,
}

impl Gist {
    /// It is on its way back to the inside.
    pub const LOOPED: u16 = 1 << 8;
    /// It is TCP's, and its header is not to be read.
    const UNREAD: u16 = 1 << 9;
    /// What opens, closes or resets a connection, or may.
    pub const UNSTEADY: u16 = (TcpSegment::SYN | TcpSegment::FIN | TcpSegment::RST) as u16 | Gist::UNREAD;
    /// It is UDP's; said only with [`Gist::l4`].
    pub const UDP: u16 = 1 << 10;
    /// It is TCP's and acknowledges.
    pub const ACK: u16 = TcpSegment::ACK as u16;

    #[inline(always)]
    pub fn of(head: &[u8], meta: &Meta, in_port: u16, bytes: u32) -> Gist {
        let besides = if meta.flags & flags::LOOPED == 0 { 0 } else { Gist::LOOPED };
        let tcp = head.get(usize::from(meta.l4_off)..).and_then(<[u8]>::first_chunk::<{ FLAGS + 1 }>);
        let Some(tcp) = tcp else {
            return Gist { ack: 0, bytes, in_port, says: Gist::of_short(meta) | besides, l4: 0 };
        };
        // Without a branch between TCP and the others: traffic mixes them. Others have no flags.
        let mask = select_unpredictable(meta.kind.l4() == Kind::TCP, u8::MAX, 0);
        let ack = u32::from_be_bytes([tcp[ACK], tcp[ACK + 1], tcp[ACK + 2], tcp[ACK + 3]]);
        let mut gist = Gist::of_tcp(tcp[FLAGS] & mask, ack, in_port, bytes);
        gist.says |= besides;
        gist
    }

    /// Of a packet with these TCP flags; others have none.
    #[inline(always)]
    pub fn of_tcp(flags: u8, ack: u32, in_port: u16, bytes: u32) -> Gist {
        Gist { ack, bytes, in_port, says: u16::from(flags), l4: 0 }
    }

    #[inline(always)]
    pub fn of_common4(common: &ParsedHeaders<8>, in_port: u16, bytes: u32) -> Gist {
        let udp =
            (common.tag as u16 & u16::from(Kind::UDP)) << (Gist::UDP / u16::from(Kind::UDP)).trailing_zeros();
        let says = u16::from(common.tcp_flags) | udp;
        Gist { ack: common.tcp_ack, bytes, in_port, says, l4: common.l4 }
    }

    /// Of a packet that ends before a TCP header does: TCP's has one by its kind.
    #[cold]
    fn of_short(meta: &Meta) -> u16 {
        if meta.kind.l4() == Kind::TCP { Gist::UNREAD } else { 0 }
    }
}

/// Where acknowledgement number and flags stand in a TCP header, in bytes.
const ACK: usize = 8;
const FLAGS: usize = 13;

/// Whether a packet neither opens nor closes nor resets a connection, and what it acknowledges if that is TCP's.
#[inline(always)]
pub(crate) fn steady(head: &[u8], meta: &Meta) -> Option<Option<u32>> {
    if meta.kind.l4() != Kind::TCP {
        return Some(None);
    }
    let tcp: &[u8; FLAGS + 1] = head.get(usize::from(meta.l4_off)..)?.first_chunk()?;
    if tcp[FLAGS] & (TcpSegment::SYN | TcpSegment::FIN | TcpSegment::RST) != 0 {
        return None;
    }
    let ack = u32::from_be_bytes([tcp[ACK], tcp[ACK + 1], tcp[ACK + 2], tcp[ACK + 3]]);
    Some((tcp[FLAGS] & TcpSegment::ACK != 0).then_some(ack))
}
