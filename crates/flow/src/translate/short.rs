//! The fast path: translation of IPv4 addresses and ports.

use std::hint::select_unpredictable;

use mmb_packet::{Kind, Meta, PacketFlags};

use super::delta::{Delta, updated};
use super::headers::{self, Zero, checks_pseudo_header, update_transport_checksum};
use crate::{Key, Xlat4};

/// Bytes of the fixed IPv4 header.
const IP4_LENGTH: usize = 20;

impl Xlat4 {
    /// The translation from the key `from` to the key `to`. `None` if they are not IPv4, or if packets with
    /// this key have no readable transport header although its checksum covers addresses: see
    /// [`super::translate`].
    pub fn between(from: &Key, to: &Key) -> Option<Xlat4> {
        Xlat4::of_ends(from, headers::addresses4(to), headers::ports(to))
    }

    /// The translation from the key `from` to these addresses and ports.
    #[inline(always)]
    fn of_ends(from: &Key, addresses: [u8; 8], ports: [u8; 4]) -> Option<Xlat4> {
        if !from.is_ip4() || !headers::is_translatable(from) {
            return None;
        }
        let (old_addresses, old_ports) = (headers::addresses4(from), headers::ports(from));
        let ip = Delta::of_words(bytemuck::cast(old_addresses), bytemuck::cast(addresses));
        let moved = Delta::of_words([bytemuck::cast(old_ports), 0], [bytemuck::cast(ports), 0]);
        let (ports, l4) = match from.kind & Kind::L4_MASK {
            Kind::TCP | Kind::UDP => (ports, ip + moved),
            Kind::ICMP => {
                // The type determines which port is the identifier. The other one does not change.
                let [high, low] = headers::identifier_change(old_ports, ports);
                ([high, low, 0, 0], moved)
            }
            _ if checks_pseudo_header(from.proto) => ([0; 4], ip),
            _ => ([0; 4], Delta::default()),
        };
        Some(Xlat4 { addresses, ports, ip_delta: ip.get(), l4_delta: l4.get() })
    }

    /// The translations of both directions of a session, from the keys of received packets. The checksum
    /// differences of one direction are the opposite of the other's.
    #[inline]
    pub fn pair(forward: &Key, reverse: &Key) -> Option<[Xlat4; 2]> {
        // A packet received with one key is sent with the reverse of the other key.
        let (addresses, ports) = (headers::addresses4(reverse), headers::ports(reverse));
        let there = Xlat4::of_ends(forward, turned(addresses), turned(ports))?;
        let (addresses, ports) = (headers::addresses4(forward), headers::ports(forward));
        let ports = match forward.kind & Kind::L4_MASK {
            Kind::TCP | Kind::UDP => turned(ports),
            // The difference of two identifiers is equal in both directions.
            _ => there.ports,
        };
        let back = |delta| Delta::of(delta).undone().get();
        let (ip_delta, l4_delta) = (back(there.ip_delta), back(there.l4_delta));
        Some([there, Xlat4 { addresses: turned(addresses), ports, ip_delta, l4_delta }])
    }
}

/// The array with its halves exchanged.
#[inline]
fn turned<const N: usize>(ends: [u8; N]) -> [u8; N] {
    // Not `rotate_left`: its call is not always inlined, and reading back what it stores stalls.
    std::array::from_fn(|i| ends[(i + N / 2) % N])
}

/// Translates an IPv4 packet that is not an ICMP error, with the `xlat` of its session and direction.
///
/// `head` is what [`mmb_packet::parse`] read, and `meta` its result: TCP, UDP, an ICMP query, another
/// protocol, or a fragment. Headers outside of `head` are skipped.
#[inline(always)]
pub fn translate_ip4(xlat: &Xlat4, head: &mut [u8], meta: &Meta) {
    let (l3, l4, transport) = (usize::from(meta.l3_off), usize::from(meta.l4_off), meta.kind.l4());
    if l4 == l3 + IP4_LENGTH
        && has_ports(transport)
        && let Some(both) = head.get_mut(l3..).and_then(<[u8]>::first_chunk_mut)
    {
        plain(xlat, both, transport == Kind::UDP);
    } else {
        parts(xlat, head, meta);
    }
}

/// Whether a transport is TCP or UDP.
#[inline(always)]
fn has_ports(transport: u8) -> bool {
    // One comparison for both: no other transport has a number between them.
    transport.wrapping_sub(Kind::TCP) <= Kind::UDP - Kind::TCP
}

/// Translates the headers of a packet that are there, whatever they are.
#[inline(never)]
fn parts(xlat: &Xlat4, head: &mut [u8], meta: &Meta) {
    let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
    if let Some(ip) = head.get_mut(l3..).and_then(<[u8]>::first_chunk_mut::<IP4_LENGTH>) {
        let checksum = updated(u16::from_ne_bytes([ip[10], ip[11]]), xlat.ip_delta);
        ip[10..12].copy_from_slice(&checksum.to_ne_bytes());
        ip[12..20].copy_from_slice(&xlat.addresses);
    }
    let transport = meta.kind.l4();
    if has_ports(transport) {
        if let Some(header) = head.get_mut(l4..) {
            ports(xlat, header, transport == Kind::UDP);
        }
    } else {
        others(xlat, head, meta);
    }
}

/// Translates a plain packet ([`mmb_packet::parse_plain_ip4`]): TCP or UDP after an IPv4 header without
/// options. `l4` is the offset of the transport header. Does nothing if `head` has fewer than 20 bytes from
/// there.
#[inline(always)]
pub fn translate_ip4_common(xlat: &Xlat4, head: &mut [u8], l4: usize, is_udp: bool) {
    let both = head.get_mut(l4.wrapping_sub(IP4_LENGTH)..);
    if let Some(both) = both.and_then(<[u8]>::first_chunk_mut) {
        plain(xlat, both, is_udp);
    }
}

/// Translates an IPv4 header without options and the transport header behind it.
#[inline(always)]
fn plain(xlat: &Xlat4, both: &mut [u8; IP4_LENGTH + 20], is_udp: bool) {
    let checksum = updated(u16::from_ne_bytes([both[10], both[11]]), xlat.ip_delta);
    both[10..12].copy_from_slice(&checksum.to_ne_bytes());
    both[12..20].copy_from_slice(&xlat.addresses);
    ports(xlat, &mut both[IP4_LENGTH..], is_udp);
}

/// Writes ports and checksum of TCP and UDP without a branch on the protocol: traffic mixes both.
#[inline(always)]
fn ports(xlat: &Xlat4, header: &mut [u8], is_udp: bool) {
    let Some(ports) = header.first_chunk_mut::<4>() else { return };
    *ports = xlat.ports;
    let at = select_unpredictable(is_udp, 6, 16);
    let Some(field) = header.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<2>) else { return };
    let old = u16::from_ne_bytes(*field);
    let new = updated(old, xlat.l4_delta);
    let new = select_unpredictable(is_udp & (new == 0), 0xffff, new);
    let new = select_unpredictable(is_udp & (old == 0), 0, new);
    *field = new.to_ne_bytes();
}

/// ICMP queries, and protocols of which only the addresses change.
#[cold]
fn others(xlat: &Xlat4, head: &mut [u8], meta: &Meta) {
    let (l4, end) = (usize::from(meta.l4_off), usize::from(meta.end).min(head.len()));
    let Some(packet) = head.get_mut(..end) else { return };
    let delta = Delta::of(xlat.l4_delta);
    if meta.kind.l4() == Kind::ICMP {
        let [high, low, ..] = xlat.ports;
        headers::flip16(packet, l4 + 4, [high, low]);
        update_transport_checksum(packet, l4, 2, delta, Zero::WrongOverZeros);
    } else if checks_pseudo_header(meta.proto) && !meta.flags.contains(PacketFlags::LATER_FRAGMENT) {
        update_transport_checksum(packet, l4, 6, delta, headers::zero_of_others(meta.proto));
    }
}
