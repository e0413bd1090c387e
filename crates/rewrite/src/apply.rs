//! Applies edit programs to packets.

use mmb_packet::{DropReason, Kind, Meta, PacketBuf, PacketFlags};

use crate::options;
use crate::program::EditProgram;
use crate::words::{Delta, Part};

/// How to edit one transport protocol.
struct Transport {
    /// Part of a program with the protocol's words.
    part: Part,
    /// Length of the fixed header in bytes.
    length: usize,
    /// Offset of the checksum field in bytes.
    checksum_at: usize,
    /// Parts that the checksum covers, over IPv4 or IPv6.
    covers: u16,
    zero: Zero,
}

/// Meaning of a zero checksum field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Zero {
    /// An ordinary checksum.
    Plain,
    /// No checksum; a computed zero is written as 0xffff (RFC 768).
    None,
    /// Invalid if all covered words are zero, because they must sum up to 0xffff.
    WrongOverZeros,
}

const IP4: u16 = Part::Ip4.bit() | Part::Ip4Addresses.bit();
const IP6: u16 = Part::Ip6.bit() | PSEUDO6;
const PSEUDO6: u16 = Part::Ip6Source.bit() | Part::Ip6Destination.bit();
const PSEUDO: u16 = Part::Ip4Addresses.bit() | PSEUDO6;

static TCP: Transport = Transport {
    part: Part::Tcp,
    length: 20,
    checksum_at: 16,
    covers: PSEUDO | Part::Tcp.bit(),
    zero: Zero::Plain,
};
static UDP: Transport = Transport {
    part: Part::Udp,
    length: 8,
    checksum_at: 6,
    covers: PSEUDO | Part::Udp.bit(),
    zero: Zero::None,
};
static ICMP: Transport = Transport {
    part: Part::Icmp,
    length: 8,
    checksum_at: 2,
    covers: Part::Icmp.bit(),
    zero: Zero::WrongOverZeros,
};
static ICMP6: Transport = Transport {
    part: Part::Icmp6,
    length: 8,
    checksum_at: 2,
    covers: PSEUDO6 | Part::Icmp6.bit(),
    zero: Zero::Plain,
};

const IP4_LENGTH: usize = 20;
const IP4_CHECKSUM: usize = 10;
const IP6_LENGTH: usize = 40;

/// Limits for edits that lengthen a packet.
#[derive(Clone, Copy, Debug)]
pub struct EditLimits<F: Fn(u16) -> usize> {
    /// Maximum frame length in bytes, Ethernet header included, by output port (index of the dataplane's
    /// port table).
    pub frame_max: F,
}

/// Applies the programs of all matching rules to a packet, in rule order.
///
/// Edits header fields, TCP options, lengths and checksums of the packet and the output port in `meta`,
/// which is the result of [`mmb_packet::parse`]. All TCP options must lie in the packet's head, which
/// `parse` guarantees. The payload is not read. A packet grows or shrinks at its front, and `meta` is
/// updated. Edits of a header that `meta` places beyond the head are skipped.
///
/// # Errors
/// Packet and `meta` are unchanged after an error. Checked in this order:
/// * [`DropReason::OptionSpace`]: more than 40 bytes of TCP options, or a packet beyond IP's maximum
///   length;
/// * [`DropReason::OptionFragment`]: the edit would resize the options in the first fragment of a datagram,
///   so that the offsets of the other fragments would be wrong;
/// * [`DropReason::OptionMtu`]: the frame would exceed [`EditLimits::frame_max`] of its output port;
/// * [`DropReason::OptionRoom`]: the head room is too small.
#[inline]
pub fn apply_programs<'a>(
    programs: impl Iterator<Item = &'a EditProgram> + Clone,
    packet: &mut impl PacketBuf,
    meta: &mut Meta,
    limits: EditLimits<impl Fn(u16) -> usize>,
) -> Result<(), DropReason> {
    // A packet nearly always has one program; looking it up twice would cost as much as applying it.
    let mut each = programs.clone();
    if let (Some(only), None) = (each.next(), each.next())
        && !only.edits_options()
    {
        only.apply(packet.head_mut(), meta);
        return Ok(());
    }
    if meta.kind.l4() == Kind::TCP && programs.clone().any(EditProgram::edits_options) {
        options::edit(programs.clone(), packet, meta, &limits)?;
    }
    let head = packet.head_mut();
    for program in programs {
        program.apply(head, meta);
    }
    Ok(())
}

impl EditProgram {
    /// Edits fixed-offset header fields, their checksums and the output port in `meta`; not TCP options.
    ///
    /// `head` is the contiguous beginning of the frame, `meta` the result of [`mmb_packet::parse`]. `head`
    /// may end behind the fixed transport header. Whatever `meta` contains, nothing outside `head` is
    /// written. If the transport header lies beyond `head`, the network header is skipped too: an address
    /// must not change without the checksum that covers it.
    #[inline]
    pub(crate) fn apply(&self, head: &mut [u8], meta: &mut Meta) {
        if let Some(port) = self.out_port {
            meta.out_port = port;
        }
        if !self.words.is_empty() {
            self.edit_headers(head, meta);
        }
    }

    fn edit_headers(&self, head: &mut [u8], meta: &Meta) {
        let transport = match meta.kind.l4() {
            Kind::TCP => Some(&TCP),
            Kind::UDP => Some(&UDP),
            Kind::ICMP => Some(&ICMP),
            Kind::ICMP6 => Some(&ICMP6),
            _ => None,
        };
        let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
        if transport.is_some_and(|transport| head.len() < l4 + transport.length) {
            return;
        }
        let pseudo = match meta.kind.l3() {
            Kind::IP4 if self.uses(IP4) => self.edit_ip4(head, l3),
            Kind::IP6 if self.uses(IP6) => self.edit_ip6(head, l3, meta.flags.contains(PacketFlags::ROUTED)),
            _ => Delta::default(),
        };
        if let Some(transport) = transport
            && self.uses(transport.covers)
        {
            self.edit_transport(transport, &mut head[l4..], pseudo);
        }
    }

    #[inline]
    fn uses(&self, parts: u16) -> bool {
        self.used & parts != 0
    }

    /// Returns the difference of the pseudo header; an empty one, without an edit, if the header is not
    /// inside `head`.
    #[inline]
    fn edit_ip4(&self, head: &mut [u8], at: usize) -> Delta {
        let Some(header) = head.get_mut(at..at + IP4_LENGTH) else { return Delta::default() };
        let addresses = Delta::default().apply(self.part(Part::Ip4Addresses), header);
        let all = addresses.apply(self.part(Part::Ip4), header);
        if let Some(checksum) = header.get_mut(IP4_CHECKSUM..).and_then(<[u8]>::first_chunk_mut::<2>)
            && let Some(new) = all.update(u16::from_ne_bytes(*checksum))
        {
            *checksum = new.to_ne_bytes();
        }
        addresses
    }

    #[inline]
    fn edit_ip6(&self, head: &mut [u8], at: usize, routed: bool) -> Delta {
        let Some(header) = head.get_mut(at..at + IP6_LENGTH) else { return Delta::default() };
        Delta::default().apply(self.part(Part::Ip6), header);
        let source = Delta::default().apply(self.part(Part::Ip6Source), header);
        let both = source.apply(self.part(Part::Ip6Destination), header);
        if routed { source } else { both }
    }

    /// `header` starts at the transport header and contains its whole fixed part.
    #[inline]
    fn edit_transport(&self, transport: &Transport, header: &mut [u8], pseudo: Delta) {
        let pseudo = if transport.covers & PSEUDO == 0 { Delta::default() } else { pseudo };
        let delta = pseudo.apply(self.part(transport.part), header);
        let is_zero = header.starts_with(&[0, 0]);
        let Some(checksum) = header.get_mut(transport.checksum_at..).and_then(<[u8]>::first_chunk_mut::<2>)
        else {
            return;
        };
        let old = u16::from_ne_bytes(*checksum);
        if old == 0 && transport.zero == Zero::None {
            return;
        }
        let Some(new) = delta.update(old) else { return };
        let write_ones = match transport.zero {
            Zero::Plain => false,
            Zero::None => true,
            Zero::WrongOverZeros => is_zero,
        };
        let new = if new == 0 && write_ones { 0xffff } else { new };
        *checksum = new.to_ne_bytes();
    }
}
