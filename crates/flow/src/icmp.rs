//! ICMP errors that the engine sends.

use mmb_packet::{Kind, Meta, PacketBuf, PacketFlags, checksum, parse};

/// An ICMP error: type and code for IPv4 and for IPv6, and the word after the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpErrorKind {
    icmp: [u8; 2],
    icmp6: [u8; 2],
    word: u32,
}

impl IcmpErrorKind {
    /// Network unreachable; no route to destination (RFC 1812, 5.2.7.1; RFC 4443, 3.1).
    pub const NO_ROUTE: IcmpErrorKind = IcmpErrorKind::new([3, 0], [1, 0]);
    /// Host unreachable; no route to destination. Linux sends these for a route of type unreachable.
    pub const UNREACHABLE: IcmpErrorKind = IcmpErrorKind::new([3, 1], [1, 0]);
    /// Host unreachable; address unreachable: the next hop does not resolve (RFC 1812, 5.2.7.1; RFC 4443,
    /// 3.1).
    pub const NO_NEIGHBOR: IcmpErrorKind = IcmpErrorKind::new([3, 1], [1, 3]);
    /// Time to live, or hop limit, exceeded in transit (RFC 1812, 5.2.7.3; RFC 4443, 3.3).
    pub const TIME_EXCEEDED: IcmpErrorKind = IcmpErrorKind::new([11, 0], [3, 0]);
    /// Communication administratively prohibited (RFC 1812, 5.2.7.1; RFC 4443, 3.1). RFC 5508, REQ-8 requires
    /// it if no mapping can be created.
    pub const PROHIBITED: IcmpErrorKind = IcmpErrorKind::new([3, 13], [1, 1]);

    /// Fragmentation needed and DF set; packet too big. `mtu`: bytes of the largest packet that fits the path
    /// (RFC 1191, 4; RFC 4443, 3.2).
    pub const fn too_big(mtu: u32) -> IcmpErrorKind {
        IcmpErrorKind { word: mtu, ..IcmpErrorKind::new([3, 4], [2, 0]) }
    }

    const fn new(icmp: [u8; 2], icmp6: [u8; 2]) -> IcmpErrorKind {
        IcmpErrorKind { icmp, icmp6, word: 0 }
    }
}

/// Rate limit for ICMP errors: one per millisecond, bursts of 50 (RFC 1812, 4.3.2.8; RFC 4443, 2.4 f; the
/// values are those of Linux).
#[derive(Clone, Copy, Debug)]
pub struct ErrorBudget {
    left: u32,
    /// Time at which `left` was computed, in milliseconds.
    counted: u32,
}

impl ErrorBudget {
    const MOST: u32 = 50;

    /// A full budget at time `now`, in milliseconds.
    pub fn new(now: u32) -> Self {
        ErrorBudget { left: Self::MOST, counted: now }
    }

    /// Whether an error may be sent.
    pub fn has_some(&self, now: u32) -> bool {
        self.all(now) > 0
    }

    fn all(&self, now: u32) -> u32 {
        self.left.saturating_add(now.wrapping_sub(self.counted)).min(Self::MOST)
    }

    /// Takes one error from the budget. False if it is empty. `now` is in milliseconds and may wrap.
    pub fn take(&mut self, now: u32) -> bool {
        let all = self.all(now);
        (self.left, self.counted) = (all.saturating_sub(1), now);
        all > 0
    }
}

/// Bytes of an ICMP error header.
const ICMP_LENGTH: usize = 8;
const HOP_LIMIT: u8 = 64;
/// Internetwork control (RFC 1812, 4.3.2.5).
const CONTROL: u8 = 0xc0;

/// Rewrites a packet as an ICMP error to its sender. False if no error may be sent; the packet is then
/// unchanged.
///
/// `packet` is the packet as received and `meta` the result of [`parse`]. On success `meta` describes the
/// error, and the Ethernet addresses are swapped: the error goes back to where the packet came from. `source`
/// is the source address of the error (IPv4: the first four bytes). The error quotes the part of the packet
/// that lies in its head, up to 576 bytes in total for IPv4 (RFC 1812, 4.3.2.3) and 1280 for IPv6 (RFC 4443,
/// 2.4 c).
///
/// No error is sent about an ICMP error, an ICMPv6 redirect, a later fragment, a packet from or to a
/// multicast or broadcast address (Ethernet or IP), or a packet without a valid source (RFC 1812, 4.3.2.7;
/// RFC 4443, 2.4 e). The packet also needs 28 bytes of head room, or 48 for IPv6.
pub fn rewrite_as_icmp_error(
    packet: &mut impl PacketBuf,
    meta: &mut Meta,
    error_kind: IcmpErrorKind,
    source: [u8; 16],
) -> bool {
    let (header, most) = match meta.kind.l3() {
        Kind::IP4 => (20, 576),
        Kind::IP6 => (40, 1280),
        _ => return false,
    };
    let added = header + ICMP_LENGTH;
    let (l3, head) = (usize::from(meta.l3_off), packet.head());
    let Some(sender) = sender(head, meta) else { return false };
    let end = usize::from(meta.end).min(head.len()).min(l3 + most - added);
    let cut = packet.len() - end;
    if end < l3 + header
        || packet.head_room() < added
        || !packet.shrink_back(cut)
        || !packet.grow_front(added)
    {
        return false;
    }
    let (head, length) = (packet.head_mut(), end + added);
    head.copy_within(added..added + l3, 0);
    let (destination, rest) = head.split_at_mut(6);
    destination.swap_with_slice(&mut rest[..6]);
    let error = &mut head[l3..length];
    if meta.kind.l3() == Kind::IP4 {
        write4(error, error_kind, source, sender);
    } else {
        write6(error, error_kind, source, sender);
    }
    let length = packet.len();
    parse(packet.head(), length, meta).is_ok()
}

/// Whether the sender of a packet may get an answer to it: one host has sent it to one host, and it is
/// neither an ICMP error nor a later fragment (RFC 1122, 3.2.2 and 4.2.3.10; RFC 1812, 4.3.2.7; RFC 4443,
/// 2.4 e).
pub fn may_answer(head: &[u8], meta: &Meta) -> bool {
    sender(head, meta).is_some()
}

/// The destination of an error about a packet, in the format of keys. None if no error may be sent.
fn sender(head: &[u8], meta: &Meta) -> Option<[u8; 16]> {
    let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
    let is_error = match (meta.kind.l4(), meta.proto) {
        (Kind::ICMP, _) => matches!(head.get(l4)?, 3 | 4 | 5 | 11 | 12),
        (Kind::ICMP6, _) => matches!(head.get(l4)?, ..128 | 137),
        // Truncated: its type is unknown.
        (_, 1 | 58) => true,
        _ => false,
    };
    if is_error || meta.flags.contains(PacketFlags::LATER_FRAGMENT) || l3 < 12 || head.first()? & 1 != 0 {
        return None;
    }
    if meta.kind.l3() == Kind::IP4 {
        let ip = head.get(l3..)?.first_chunk::<20>()?;
        let is_one = !matches!(ip[12], 0 | 127 | 224..) && ip[16] < 224;
        is_one.then(|| std::array::from_fn(|i| if i < 4 { ip[12 + i] } else { 0 }))
    } else {
        let ip = head.get(l3..)?.first_chunk::<40>()?;
        let source = ip[8..].first_chunk::<16>()?;
        let is_one = ip[8] != 0xff && ip[24] != 0xff && u128::from_be_bytes(*source) > 1;
        is_one.then_some(*source)
    }
}

/// Writes the headers of an IPv4 error before the quotation.
fn write4(error: &mut [u8], error_kind: IcmpErrorKind, source: [u8; 16], sender: [u8; 16]) {
    let length = (error.len() as u16).to_be_bytes();
    error[..20].fill(0);
    // An atomic datagram (RFC 6864, 4): its identification has no meaning.
    error[..10].copy_from_slice(&[0x45, CONTROL, length[0], length[1], 0, 0, 0x40, 0, HOP_LIMIT, 1]);
    error[12..16].copy_from_slice(&source[..4]);
    error[16..20].copy_from_slice(&sender[..4]);
    let ip = !checksum::fold(checksum::sum(&error[..20], 0));
    error[10..12].copy_from_slice(&ip.to_be_bytes());
    write_icmp(&mut error[20..], error_kind.icmp, error_kind.word, 0);
}

fn write6(error: &mut [u8], error_kind: IcmpErrorKind, source: [u8; 16], sender: [u8; 16]) {
    let length = (error.len() - 40) as u16;
    let [high, low] = length.to_be_bytes();
    error[..8].copy_from_slice(&[0x60 | CONTROL >> 4, 0, 0, 0, high, low, 58, HOP_LIMIT]);
    error[8..24].copy_from_slice(&source);
    error[24..40].copy_from_slice(&sender);
    let pseudo = checksum::pseudo6(&source, &sender, 58, length.into());
    write_icmp(&mut error[40..], error_kind.icmp6, error_kind.word, pseudo);
}

/// Writes the ICMP header. `pseudo`: sum of the pseudo header.
fn write_icmp(message: &mut [u8], [kind, code]: [u8; 2], word: u32, pseudo: u32) {
    message[..4].copy_from_slice(&[kind, code, 0, 0]);
    message[4..ICMP_LENGTH].copy_from_slice(&word.to_be_bytes());
    let sum = !checksum::fold(checksum::sum(message, pseudo));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests;
