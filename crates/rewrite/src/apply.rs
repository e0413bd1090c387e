//! A program at work on a packet.

use mmb_packet::{DropReason, Kind, Meta, PacketBuf, flags};

use crate::words::{Delta, Part};
use crate::{EditProgram, options};
/// A transport header.
struct Transport {
    /// Its part of a program.
    part: Part,
    /// Bytes of its fixed part.
    length: usize,
    /// Where its checksum is, in bytes.
    checksum_at: usize,
    /// The parts that its checksum covers, whether over IPv4 or IPv6.
    covers: u16,
    zero: Zero,
}

/// What a checksum of zero means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Zero {
    /// A checksum like any other.
    Plain,
    /// There is no checksum, so that one that comes to zero is 0xffff (RFC 768).
    None,
    /// Wrong over words that are all zero, for they must sum up to 0xffff.
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

/// What bounds edits that make a packet longer.
#[derive(Clone, Copy, Debug)]
pub struct EditLimits<F: Fn(u16) -> usize> {
    /// The longest frame, in bytes from the Ethernet header on, that goes out at a port (an index of the dataplane's
    /// port table).
    pub frame_max: F,
}

/// Edits a packet as the programs of all rules that match it say, in their order: header fields, TCP options, lengths
/// and checksums in the packet, and the output port in `meta`, which is what [`mmb_packet::parse`] made of it.
///
/// All TCP options must lie in the packet's head, as they do behind `parse`; the payload is not looked at. A packet
/// that gets longer or shorter does so at its front; `meta` fits it afterwards. A header that `meta` places beyond the
/// head is left out.
///
/// # Errors
/// Packet and `meta` are as they were then. In this order:
/// * [`DropReason::OptionSpace`]: more than 40 bytes of TCP options, or a packet longer than IP can count;
/// * [`DropReason::OptionFragment`]: the length of the options would change in the first fragment of a datagram, whose
///   other fragments would not follow;
/// * [`DropReason::OptionMtu`]: the frame would grow to more than [`EditLimits::frame_max`] of the port it goes out at;
/// * [`DropReason::OptionRoom`]: there is no room in front of the frame.
#[inline]
pub fn apply_programs<'a>(
    programs: impl Iterator<Item = &'a EditProgram> + Clone,
    packet: &mut impl PacketBuf,
    meta: &mut Meta,
    limits: EditLimits<impl Fn(u16) -> usize>,
) -> Result<(), DropReason> {
    // Nearly always there is one program; finding it twice would cost as much as applying it.
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
    /// Edits fixed header fields and their checksums in `head`, the contiguous beginning of the frame that
    /// [`mmb_packet::parse`] saw, and the output port in `meta`, which is what `parse` made of it; not TCP options.
    ///
    /// `head` may end behind the fixed transport header; the payload is not looked at. Whatever `meta` says, nothing
    /// outside of `head` is touched: a header that it places beyond `head` is left out, and if that is the transport
    /// header, so is the network header, for an address must not change without the checksum over it.
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
            Kind::IP6 if self.uses(IP6) => self.edit_ip6(head, l3, meta.flags & flags::ROUTED != 0),
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

    /// Gives the difference to the pseudo header. None and no edit if the header is not inside `head`.
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

    /// `header` starts at the transport header and holds all of its fixed part.
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
        let spell_out = match transport.zero {
            Zero::Plain => false,
            Zero::None => true,
            Zero::WrongOverZeros => is_zero,
        };
        let new = if new == 0 && spell_out { 0xffff } else { new };
        *checksum = new.to_ne_bytes();
    }
}
