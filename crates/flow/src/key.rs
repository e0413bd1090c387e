//! Session keys.
//!
//! # Theory of operation
//!
//! A [`Key`] has the fields that the table compares in packed form ([`PackedKey`]). The first 16 bytes of the
//! packed form hold a whole IPv4 key. For both versions, byte 12 holds the [`Kind`]. So a comparison of these
//! 16 bytes never confuses the versions. An IPv6 key has 24 more bytes.

use bytemuck::{Pod, Zeroable};
use mmb_packet::{Kind, Meta, PacketFlags};

/// The key of one direction of a session: addresses, ports, protocol. 40 bytes without padding; equal keys
/// have equal bytes.
///
/// IPv4 addresses use the first four bytes of their field; the rest is zero. Ports are in network byte order.
/// [`crate::parse_key`] describes the ports of ICMP. Protocols without ports have zeros: the address pair is
/// the session.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct Key {
    /// Source address, in network byte order.
    pub source: [u8; 16],
    /// Destination address, in network byte order.
    pub destination: [u8; 16],
    /// Source port, in network byte order.
    pub source_port: [u8; 2],
    /// Destination port, in network byte order.
    pub destination_port: [u8; 2],
    /// The headers of the packet, as [`Kind`].
    pub kind: u8,
    /// IP protocol number.
    pub proto: u8,
    /// For ICMP queries and replies, which side asks: [`Key::BY_SOURCE`] or [`Key::BY_DESTINATION`]. The
    /// ports alone do not tell, since an identifier may equal the number of a type. Otherwise zero.
    pub asks: [u8; 2],
}

const _: () = assert!(size_of::<Key>() == 40);

impl Key {
    /// The source asks: the packet is an ICMP query.
    pub const BY_SOURCE: [u8; 2] = [1, 0];
    /// The destination has asked: the packet is the reply to an ICMP query.
    pub const BY_DESTINATION: [u8; 2] = [0, 1];

    /// The key of the opposite direction.
    #[inline]
    pub fn reversed(&self) -> Key {
        // In whole words: a load waits for stores of its parts.
        let [s0, s1, d0, d1, ends]: [u64; 5] = bytemuck::cast(*self);
        let [s, d, kind, asks]: [u16; 4] = bytemuck::cast(ends);
        let ends = bytemuck::cast([d, s, kind, asks.swap_bytes()]);
        bytemuck::cast([d0, d1, s0, s1, ends])
    }

    /// Whether the key is the other key in the opposite direction.
    #[inline]
    pub fn is_reversed(&self, other: &Key) -> bool {
        if !self.is_ip4() {
            return *self == other.reversed();
        }
        // Not the zeros after an address: a load of both waits for the stores of both.
        let address =
            |address: &[u8; 16]| u32::from_ne_bytes([address[0], address[1], address[2], address[3]]);
        address(&self.source) == address(&other.destination)
            && address(&self.destination) == address(&other.source)
            && self.source_port == other.destination_port
            && self.destination_port == other.source_port
            && (self.kind, self.proto, self.asks) == (other.kind, other.proto, [other.asks[1], other.asks[0]])
    }

    /// The key with another IPv4 destination, in network byte order.
    #[inline]
    pub fn with_destination4(&self, address: [u8; 4], port: [u8; 2]) -> Key {
        let [s0, s1, _, _, ends]: [u64; 5] = bytemuck::cast(*self);
        let [s, _, kind, asks]: [[u8; 2]; 4] = bytemuck::cast(ends);
        bytemuck::cast([s0, s1, bytemuck::cast([address, [0; 4]]), 0, bytemuck::cast([s, port, kind, asks])])
    }

    /// Whether the addresses are IPv4.
    pub fn is_ip4(&self) -> bool {
        Kind(self.kind).l3() == Kind::IP4
    }

    /// Whether a packet could have the key: it is IPv4 or IPv6, and unused bytes are zero.
    pub fn is_canonical(&self) -> bool {
        matches!(Kind(self.kind).l3(), Kind::IP4 | Kind::IP6) && self.pack().unpack() == *self
    }

    pub(crate) fn pack(&self) -> PackedKey {
        let tag = [self.kind | asks_bits(self.asks), self.proto, 0, 0];
        let ports = [self.source_port, self.destination_port];
        if self.is_ip4() {
            let [source, ..]: [[u8; 4]; 4] = bytemuck::cast(self.source);
            let [destination, ..]: [[u8; 4]; 4] = bytemuck::cast(self.destination);
            return PackedKey::ip4(bytemuck::cast([source, destination]), bytemuck::cast(ports), tag);
        }
        PackedKey::ip6(&bytemuck::cast([self.source, self.destination]), bytemuck::cast(ports), tag)
    }
}

/// A key in the form that the table stores: five words in memory order.
///
/// Two bits of the kind's byte that no [`Kind`] uses encode [`Key::asks`]. So the last two bytes of the head
/// are zero, and [`crate::Flow`] can use them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackedKey {
    /// IPv4: source, destination, ports, kind with `asks`, protocol. IPv6: the first half of the source
    /// instead of the addresses.
    pub(crate) head: [u64; 2],
    /// IPv6: second half of the source, then the destination. IPv4: zeros.
    pub(crate) tail: [u64; 3],
}

impl PackedKey {
    /// An IPv4 key. `addresses`: source and destination. `tag`: kind, protocol and two zeros.
    #[inline(always)]
    pub(crate) fn ip4(addresses: [u8; 8], ports: [u8; 4], tag: [u8; 4]) -> PackedKey {
        PackedKey { head: [bytemuck::cast(addresses), bytemuck::cast([ports, tag])], tail: [0; 3] }
    }

    /// An IPv6 key. `addresses`: source and destination. `tag`: kind, protocol and two zeros.
    #[inline(always)]
    pub(crate) fn ip6(addresses: &[u8; 32], ports: [u8; 4], tag: [u8; 4]) -> PackedKey {
        let [first, tail @ ..]: [u64; 4] = bytemuck::cast(*addresses);
        PackedKey { head: [first, bytemuck::cast([ports, tag])], tail }
    }

    /// Whether the key is IPv6 and has a tail.
    #[inline(always)]
    pub(crate) fn is_ip6(&self) -> bool {
        has_tail(&self.head)
    }

    /// Whether the key is of IPv4. A packet without key is not.
    #[inline(always)]
    pub fn is_ip4(&self) -> bool {
        let [_, [tag, ..]]: [[u8; 4]; 2] = bytemuck::cast(self.head[1]);
        Kind(tag & !ASKS).l3() == Kind::IP4
    }

    /// The source address, as in [`Key::source`].
    #[inline(always)]
    pub fn source(&self) -> [u8; 16] {
        match self.is_ip6() {
            true => bytemuck::cast([self.head[0], self.tail[0]]),
            false => widen(bytemuck::cast::<u64, [[u8; 4]; 2]>(self.head[0])[0]),
        }
    }

    /// The key as fields.
    pub(crate) fn unpack(&self) -> Key {
        let [ports, [tag, proto, ..]]: [[u8; 4]; 2] = bytemuck::cast(self.head[1]);
        let (kind, asks) = (tag & !ASKS, asks(tag));
        let [source_port, destination_port]: [[u8; 2]; 2] = bytemuck::cast(ports);
        let (source, destination) = if self.is_ip6() {
            let [t0, t1, t2] = self.tail;
            (bytemuck::cast([self.head[0], t0]), bytemuck::cast([t1, t2]))
        } else {
            let [source, destination]: [[u8; 4]; 2] = bytemuck::cast(self.head[0]);
            (widen(source), widen(destination))
        };
        Key { source, destination, source_port, destination_port, kind, proto, asks }
    }
}

/// Whether a key with this head has a tail, which means that it is IPv6.
#[inline(always)]
pub(crate) fn has_tail(head: &[u64; 2]) -> bool {
    let [_, [tag, ..]]: [[u8; 4]; 2] = bytemuck::cast(head[1]);
    tag & VERSION == VERSION & Kind::IP6
}

/// The bit that differs between the versions.
const VERSION: u8 = Kind::IP4 ^ Kind::IP6;
/// The bits of a tag that encode [`Key::asks`].
const BY_SOURCE: u8 = 1 << 0;
const BY_DESTINATION: u8 = 1 << 3;
const ASKS: u8 = BY_SOURCE | BY_DESTINATION;

const _: () = {
    let kinds = Kind::IP4 | Kind::IP6 | Kind::TCP | Kind::UDP | Kind::ICMP | Kind::ICMP6;
    assert!(kinds & ASKS == 0, "no kind has the bits");
};

fn asks_bits(asks: [u8; 2]) -> u8 {
    match asks {
        Key::BY_SOURCE => BY_SOURCE,
        Key::BY_DESTINATION => BY_DESTINATION,
        _ => 0,
    }
}

/// Decodes [`Key::asks`] from the first byte of a tag.
pub(crate) fn asks(tag: u8) -> [u8; 2] {
    match tag & ASKS {
        BY_SOURCE => Key::BY_SOURCE,
        BY_DESTINATION => Key::BY_DESTINATION,
        _ => [0; 2],
    }
}

/// The first byte of the tag of the opposite direction.
#[inline(always)]
pub(crate) fn reversed_tag(tag: u8) -> u8 {
    let turned = (tag & BY_SOURCE) << 3 | (tag & BY_DESTINATION) >> 3;
    tag & !ASKS | turned
}

fn widen(address: [u8; 4]) -> [u8; 16] {
    bytemuck::cast([address, [0; 4], [0; 4], [0; 4]])
}

/// Why a packet has no key of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The packet is not IP, or shorter than its metadata says.
    NotIp,
    /// An ICMP error (RFC 792: types 3, 4, 5, 11, 12; RFC 4443: types 1 to 4). It belongs to the session of
    /// the packet that it quotes.
    IcmpError,
    /// The first fragment of a datagram, with the key of the datagram.
    FirstFragment(Key),
    /// A later fragment, which has no ports.
    LaterFragment,
}

const TCP4: u8 = Kind::IP4 | Kind::TCP;
const UDP4: u8 = Kind::IP4 | Kind::UDP;

/// Returns the key of a packet, for the direction in which the packet travels.
///
/// `head` is the contiguous beginning of the packet and `meta` its parsed metadata. For ICMP queries and
/// their replies (RFC 792: types 8/0, 13/14, 15/16, 17/18; RFC 4443: 128/129; RFC 8335: 42/43 and 160/161),
/// the port of the asking side is the identifier. The port of the other side is the type of the request, as a
/// 16-bit number in network byte order. So the key of a reply is the reverse of the key of its request. Other
/// ICMP, other protocols and packets with a truncated transport header have no ports.
///
/// # Errors
/// [`KeyError`].
#[inline(always)]
pub fn parse_key(head: &[u8], meta: &Meta) -> Result<Key, KeyError> {
    match common_key(head, meta) {
        Some(key) => Ok(key),
        None => parse_any(head, meta),
    }
}

/// As [`parse_key`], for packets of any kind.
#[inline(never)]
fn parse_any(head: &[u8], meta: &Meta) -> Result<Key, KeyError> {
    if meta.flags.contains(PacketFlags::LATER_FRAGMENT) {
        return Err(KeyError::LaterFragment);
    }
    let mut key = addresses(head, meta).ok_or(KeyError::NotIp)?;
    let (ports, asks) = match meta.kind.l4() {
        Kind::TCP | Kind::UDP => (bytes::<4>(head, meta.l4_off).ok_or(KeyError::NotIp)?, [0; 2]),
        Kind::ICMP => icmp_ports(head, meta, &ICMP4)?,
        Kind::ICMP6 => icmp_ports(head, meta, &ICMP6)?,
        _ => ([0; 4], [0; 2]),
    };
    key.asks = asks;
    [key.source_port, key.destination_port] = bytemuck::cast(ports);
    if meta.flags.contains(PacketFlags::FRAGMENT) { Err(KeyError::FirstFragment(key)) } else { Ok(key) }
}

/// Fast path for TCP and UDP over IPv4. None: the packet needs the general path.
#[inline(always)]
fn common_key(head: &[u8], meta: &Meta) -> Option<Key> {
    let is_common = matches!(meta.kind.0, TCP4 | UDP4) && !meta.flags.contains(PacketFlags::FRAGMENT);
    if !is_common {
        return None;
    }
    let addresses = bytes::<8>(head, meta.l3_off.checked_add(12)?)?;
    let ports = bytes::<4>(head, meta.l4_off)?;
    let [source, destination]: [u32; 2] = bytemuck::cast(addresses);
    let (ports, tag): (u32, u32) = (bytemuck::cast(ports), bytemuck::cast([meta.kind.0, meta.proto, 0, 0]));
    // Written in whole words: the caller reads words next, and a store in pieces would delay the load.
    let words: [u64; 5] =
        [bytemuck::cast([source, 0]), 0, bytemuck::cast([destination, 0]), 0, bytemuck::cast([ports, tag])];
    Some(bytemuck::cast(words))
}

fn addresses(head: &[u8], meta: &Meta) -> Option<Key> {
    let (source, destination) = match meta.kind.l3() {
        Kind::IP4 => {
            let [source, destination]: [[u8; 4]; 2] =
                bytemuck::cast(bytes::<8>(head, meta.l3_off.checked_add(12)?)?);
            (widen(source), widen(destination))
        }
        Kind::IP6 => {
            let [source, destination]: [[u8; 16]; 2] =
                bytemuck::cast(bytes::<32>(head, meta.l3_off.checked_add(8)?)?);
            (source, destination)
        }
        _ => return None,
    };
    Some(Key { source, destination, kind: meta.kind.0, proto: meta.proto, ..Key::default() })
}

/// What an ICMP type means for the key.
#[derive(Clone, Copy)]
enum Icmp {
    Request,
    /// The reply to a request of this type.
    Reply(u8),
    Error,
    Other,
}

const ICMP4: [Icmp; 256] = {
    let mut types = [Icmp::Other; 256];
    (types[8], types[0]) = (Icmp::Request, Icmp::Reply(8));
    (types[13], types[14]) = (Icmp::Request, Icmp::Reply(13));
    (types[15], types[16]) = (Icmp::Request, Icmp::Reply(15));
    (types[17], types[18]) = (Icmp::Request, Icmp::Reply(17));
    (types[42], types[43]) = (Icmp::Request, Icmp::Reply(42));
    (types[3], types[4], types[5]) = (Icmp::Error, Icmp::Error, Icmp::Error);
    (types[11], types[12]) = (Icmp::Error, Icmp::Error);
    types
};

const ICMP6: [Icmp; 256] = {
    let mut types = [Icmp::Other; 256];
    (types[128], types[129]) = (Icmp::Request, Icmp::Reply(128));
    (types[160], types[161]) = (Icmp::Request, Icmp::Reply(160));
    (types[1], types[2], types[3], types[4]) = (Icmp::Error, Icmp::Error, Icmp::Error, Icmp::Error);
    types
};

/// The values in place of ports, and which side asks.
fn icmp_ports(head: &[u8], meta: &Meta, types: &[Icmp; 256]) -> Result<([u8; 4], [u8; 2]), KeyError> {
    let [kind, _, _, _, id @ .., _, _] = bytes::<8>(head, meta.l4_off).ok_or(KeyError::NotIp)?;
    match types[usize::from(kind)] {
        Icmp::Request => Ok(([id[0], id[1], 0, kind], Key::BY_SOURCE)),
        Icmp::Reply(request) => Ok(([0, request, id[0], id[1]], Key::BY_DESTINATION)),
        Icmp::Error => Err(KeyError::IcmpError),
        Icmp::Other => Ok(([0; 4], [0; 2])),
    }
}

#[inline(always)]
pub(crate) fn bytes<const N: usize>(head: &[u8], at: u16) -> Option<[u8; N]> {
    head.get(usize::from(at)..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests;
