//! Edits of the headers of a packet, or of a quoted packet.

use mmb_packet::{Kind, Meta, PacketFlags, TcpOptions};

use super::delta::{Delta, updated};
use super::mangle::{Id, Label, Numbers};
use crate::{Direction, Key, Mangle};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;
const DCCP: u8 = 33;
const UDP_LITE: u8 = 136;

const TCP_FIXED: usize = 20;
const TCP_ACK: u8 = 0x10;
/// TCP option (RFC 2018).
const SACK: u8 = 5;

/// What a checksum of zero means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Zero {
    /// A checksum like any other.
    Plain,
    /// No checksum. A computed checksum of zero is written as 0xffff (RFC 768).
    None,
    /// Wrong for words that are all zero: they must sum up to 0xffff.
    WrongOverZeros,
}

/// The edits of a packet.
pub(super) struct Change<'a> {
    to: &'a Key,
    /// Value that is XORed into an ICMP identifier.
    identifier: [u8; 2],
    numbers: Numbers,
}

impl<'a> Change<'a> {
    /// The edits of a packet of a session.
    pub fn along(from: &Key, to: &'a Key, mangle: Option<&Mangle>, direction: Direction) -> Self {
        let numbers = mangle.map_or(Numbers::default(), |mangle| mangle.along(direction));
        Change { to, identifier: identifier_change(ports(from), ports(to)), numbers }
    }

    /// The edits that undo the translation of a packet. `direction` is the opposite of the packet's
    /// direction.
    pub fn undo(from: &Key, to: &'a Key, mangle: Option<&Mangle>, direction: Direction) -> Self {
        let numbers = mangle.map_or(Numbers::default(), |mangle| mangle.undo(direction));
        Change { to, identifier: identifier_change(ports(from), ports(to)), numbers }
    }
}

/// IPv4 source and destination address.
pub(super) fn addresses4(key: &Key) -> [u8; 8] {
    let mut both = [0; 8];
    both[..4].copy_from_slice(&key.source[..4]);
    both[4..].copy_from_slice(&key.destination[..4]);
    both
}

/// Returns the key of a later fragment, which has addresses only. None: they do not lie in `head`.
pub(super) fn network_key(head: &[u8], meta: &Meta) -> Option<Key> {
    let (l3, is_ip4) = (usize::from(meta.l3_off), meta.kind.l3() == Kind::IP4);
    let (from, length) = if is_ip4 { (l3 + 12, 4) } else { (l3 + 8, 16) };
    let addresses = head.get(from..from + 2 * length)?;
    let mut key = Key { kind: meta.kind.0, proto: meta.proto, ..Key::default() };
    key.source[..length].copy_from_slice(&addresses[..length]);
    key.destination[..length].copy_from_slice(&addresses[length..]);
    Some(key)
}

/// Source and destination port.
pub(super) fn ports(key: &Key) -> [u8; 4] {
    let ([a, b], [c, d]) = (key.source_port, key.destination_port);
    [a, b, c, d]
}

/// The difference of the ICMP identifiers of two keys, to be XORed. The type determines which port is the
/// identifier. The other port holds the type and does not change.
pub(super) fn identifier_change([a, b, c, d]: [u8; 4], [e, f, g, h]: [u8; 4]) -> [u8; 2] {
    [a ^ c ^ e ^ g, b ^ d ^ f ^ h]
}

/// Whether packets with this key can be translated. Packets without the header that holds the checksum
/// cannot.
pub(super) fn is_translatable(key: &Key) -> bool {
    let icmp = if key.is_ip4() { ICMP } else { ICMP6 };
    key.kind & Kind::L4_MASK != Kind::L4_NONE || ![TCP, UDP, icmp].contains(&key.proto)
}

/// Whether a protocol unknown to [`Kind`] has a checksum over a pseudo header in bytes 6 and 7.
pub(super) fn checks_pseudo_header(proto: u8) -> bool {
    matches!(proto, DCCP | UDP_LITE)
}

/// Whether the headers that `meta` describes lie within `head`.
pub(super) fn are_inside(head: &[u8], meta: &Meta) -> bool {
    let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
    let network = if meta.kind.l3() == Kind::IP4 { 20 } else { 40 };
    let transport = match meta.kind.l4() {
        Kind::TCP => TCP_FIXED,
        Kind::L4_NONE => 0,
        _ => 8,
    };
    meta.kind.l3() != 0 && l3 + network <= l4 && l4 + transport <= head.len()
}

/// Whether a packet has the headers of this key, or is a later fragment of it, and can be translated.
pub(super) fn suits(meta: &Meta, key: &Key) -> bool {
    let network = meta.kind.l3() == key.kind & Kind::L3_MASK;
    let transport = meta.kind.0 == key.kind && meta.proto == key.proto && is_translatable(key);
    // The fragment header may name an extension header that only the first fragment has.
    network && (is_later_fragment(meta) || transport)
}

fn is_later_fragment(meta: &Meta) -> bool {
    meta.flags.contains(PacketFlags::LATER_FRAGMENT)
}

/// Applies the edits to the packet that `meta` describes, as far as it lies in `head`, and updates its
/// checksums. Returns the difference of a sum over the whole packet.
pub(super) fn rewrite(head: &mut [u8], meta: &Meta, change: &Change) -> Delta {
    let l3 = usize::from(meta.l3_off);
    let (network, pseudo) = if meta.kind.l3() == Kind::IP4 {
        rewrite_ip4(head, l3, change)
    } else {
        rewrite_ip6(head, l3, change, meta.flags.contains(PacketFlags::ROUTED))
    };
    let end = usize::from(meta.end).min(head.len());
    network
        + head
            .get_mut(..end)
            .map_or(Delta::default(), |packet| rewrite_transport(packet, meta, change, pseudo))
}

/// Edits an IPv4 header. Returns the differences of the header and of the pseudo header.
fn rewrite_ip4(head: &mut [u8], l3: usize, change: &Change) -> (Delta, Delta) {
    let addresses = Delta::put(head, l3 + 12, addresses4(change.to));
    let id = match change.numbers.id {
        Id::Add(n) => add16(head, l3 + 4, n),
        Id::Set(id) => Delta::put(head, l3 + 4, id.to_be_bytes()),
    };
    let all = addresses + id;
    (all + update_checksum(head, l3 + 10, all, Zero::Plain), addresses)
}

/// Edits an IPv6 header. Returns the differences of the header and of the pseudo header.
fn rewrite_ip6(head: &mut [u8], l3: usize, change: &Change, routed: bool) -> (Delta, Delta) {
    let label = change.numbers.label.map_or(Delta::default(), |label| relabel(head, l3, label));
    let source = Delta::put(head, l3 + 8, change.to.source);
    let destination = Delta::put(head, l3 + 24, change.to.destination);
    (label + source + destination, if routed { source } else { source + destination })
}

fn rewrite_transport(packet: &mut [u8], meta: &Meta, change: &Change, pseudo: Delta) -> Delta {
    let l4 = usize::from(meta.l4_off);
    let (own, pseudo, at, zero) = match meta.kind.l4() {
        Kind::TCP => {
            let ports = Delta::put(packet, l4, ports(change.to));
            (ports + rewrite_numbers(packet, l4, &change.numbers), pseudo, 16, Zero::Plain)
        }
        Kind::UDP => (Delta::put(packet, l4, ports(change.to)), pseudo, 6, Zero::None),
        Kind::ICMP => (flip16(packet, l4 + 4, change.identifier), Delta::default(), 2, Zero::WrongOverZeros),
        Kind::ICMP6 => (flip16(packet, l4 + 4, change.identifier), pseudo, 2, Zero::Plain),
        _ if checks_pseudo_header(meta.proto) && !is_later_fragment(meta) => {
            (Delta::default(), pseudo, 6, zero_of_others(meta.proto))
        }
        _ => return Delta::default(),
    };
    own + update_transport_checksum(packet, l4, at, own + pseudo, zero)
}

/// Edits TCP sequence and acknowledgment numbers and the edges of SACK blocks, as far as the packet has them.
fn rewrite_numbers(packet: &mut [u8], l4: usize, numbers: &Numbers) -> Delta {
    if (numbers.sequence, numbers.acknowledgment) == (0, 0) {
        return Delta::default();
    }
    let Some(header) = packet.get_mut(l4..) else { return Delta::default() };
    let sequence = add32(header, 4, numbers.sequence);
    if header.get(13).is_none_or(|flags| flags & TCP_ACK == 0) {
        return sequence;
    }
    let acknowledgment = add32(header, 8, numbers.acknowledgment);
    sequence + acknowledgment + move_sack_blocks(header, numbers.acknowledgment)
}

/// What a checksum of zero means for protocols with [`checks_pseudo_header`].
pub(super) fn zero_of_others(proto: u8) -> Zero {
    // RFC 3828, 3.1; RFC 4340, 9.
    if proto == UDP_LITE { Zero::None } else { Zero::Plain }
}

/// Adds `n` to the edges of all SACK blocks that lie in the TCP header. Truncated options and incomplete
/// blocks are skipped, as receivers ignore them.
fn move_sack_blocks(header: &mut [u8], n: u32) -> Delta {
    let length = header.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4).min(header.len());
    let mut area = [0; 40];
    let Some(options) = header.get(TCP_FIXED..length) else { return Delta::default() };
    let Some(copy) = area.get_mut(..options.len()) else { return Delta::default() };
    copy.copy_from_slice(options);
    let mut all = Delta::default();
    for option in TcpOptions::new(copy).filter(|option| option.kind == SACK && option.data.len() % 8 == 0) {
        let first = TCP_FIXED + option.at + 2;
        for edge in (first..first + option.data.len()).step_by(4) {
            let delta = add32(header, edge, n);
            all += if edge % 2 == 0 { delta } else { delta.swapped() };
        }
    }
    all
}

/// Updates the checksum at `at` of the transport header at `l4`, as [`update_checksum`] does.
pub(super) fn update_transport_checksum(
    packet: &mut [u8],
    l4: usize,
    at: usize,
    delta: Delta,
    zero: Zero,
) -> Delta {
    // An ICMP message can be all zeros only if type, code, identifier and sequence number are.
    let zeros = zero == Zero::WrongOverZeros
        && packet
            .get(l4..)
            .and_then(<[u8]>::first_chunk::<8>)
            .is_some_and(|b| [b[0], b[1], b[4], b[5], b[6], b[7]] == [0; 6]);
    let zero = if zero == Zero::WrongOverZeros && !zeros { Zero::Plain } else { zero };
    update_checksum(packet, l4 + at, delta, zero)
}

/// Updates the checksum at `at` if it lies in the packet. Returns the difference of the field.
pub(super) fn update_checksum(head: &mut [u8], at: usize, delta: Delta, zero: Zero) -> Delta {
    let Some(field) = head.get(at..).and_then(<[u8]>::first_chunk::<2>) else { return Delta::default() };
    let old = u16::from_ne_bytes(*field);
    if delta == Delta::default() || (old == 0 && zero == Zero::None) {
        return Delta::default();
    }
    let new = updated(old, delta.get());
    let new = if new == 0 && zero != Zero::Plain { 0xffff } else { new };
    Delta::put(head, at, new.to_ne_bytes())
}

/// Adds to a big-endian number.
fn add32(head: &mut [u8], at: usize, n: u32) -> Delta {
    match head.get(at..).and_then(<[u8]>::first_chunk::<4>) {
        Some(old) => Delta::put(head, at, u32::from_be_bytes(*old).wrapping_add(n).to_be_bytes()),
        None => Delta::default(),
    }
}

fn add16(head: &mut [u8], at: usize, n: u16) -> Delta {
    match head.get(at..).and_then(<[u8]>::first_chunk::<2>) {
        Some(old) => Delta::put(head, at, u16::from_be_bytes(*old).wrapping_add(n).to_be_bytes()),
        None => Delta::default(),
    }
}

/// XORs two bytes.
pub(super) fn flip16(head: &mut [u8], at: usize, [high, low]: [u8; 2]) -> Delta {
    match head.get(at..).and_then(<[u8]>::first_chunk::<2>) {
        Some(&[a, b]) => Delta::put(head, at, [a ^ high, b ^ low]),
        None => Delta::default(),
    }
}

/// Replaces the flow label of the IPv6 header at `at`.
fn relabel(head: &mut [u8], at: usize, label: Label) -> Delta {
    const MASK: u32 = 0xf_ffff;
    let Some(word) = head.get(at..).and_then(<[u8]>::first_chunk::<4>) else { return Delta::default() };
    let old = u32::from_be_bytes(*word);
    if label.only.is_some_and(|only| only & MASK != old & MASK) {
        return Delta::default();
    }
    Delta::put(head, at, (old & !MASK | label.new & MASK).to_be_bytes())
}
