//! Packets that are turned into other segments.

use mmb_flow::Key;
use mmb_nf::tcp_segment::{FIXED, OutgoingSegment};
use mmb_packet::checksum::{fold, pseudo4, pseudo6, sum, update16};
use mmb_packet::{Kind, Meta, PacketBuf, PacketFlags, parse};

/// Changes the length of a frame.
fn resize(packet: &mut dyn PacketBuf, len: usize) -> bool {
    match packet.len().checked_sub(len) {
        Some(excess) => packet.shrink_back(excess),
        None => packet.grow_back(len - packet.len()),
    }
}

/// Parses a packet again. Metadata that the parser does not set stays.
fn look_again(packet: &dyn PacketBuf, meta: &mut Meta) -> Option<()> {
    const PARSED: PacketFlags =
        PacketFlags::FRAGMENT.union(PacketFlags::LATER_FRAGMENT).union(PacketFlags::ROUTED);
    let kept = meta.flags & !PARSED;
    let parsed = parse(packet.head(), packet.len(), meta).is_ok();
    meta.flags = (meta.flags & PARSED) | kept;
    parsed.then_some(())
}

/// Replaces a packet by a frame that is the concatenation of parts. None: there is no room.
pub(crate) fn replace(packet: &mut dyn PacketBuf, meta: &mut Meta, parts: &[&[u8]]) -> Option<()> {
    let len = parts.iter().map(|part| part.len()).sum();
    if !resize(packet, len) {
        return None;
    }
    let mut room = packet.head_mut().get_mut(..len)?;
    for part in parts {
        let (place, rest) = room.split_at_mut_checked(part.len())?;
        place.copy_from_slice(part);
        room = rest;
    }
    look_again(packet, meta)
}

/// Replaces a packet's TCP header and everything behind it by a segment. The length in the network header is
/// updated. None: there is no room.
pub(super) fn become_segment(
    packet: &mut dyn PacketBuf,
    meta: &mut Meta,
    key: &Key,
    segment: &OutgoingSegment,
) -> Option<()> {
    let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
    let options = segment.options.bytes();
    let len = FIXED + options.len();
    if !resize(packet, l4 + len) {
        return None;
    }
    let head = packet.head_mut();
    let tcp = head.get_mut(l4..l4 + len)?;
    tcp[4..8].copy_from_slice(&segment.seq.to_be_bytes());
    tcp[8..12].copy_from_slice(&segment.ack.to_be_bytes());
    tcp[12..14].copy_from_slice(&[(len as u8 / 4) << 4, segment.flags]);
    tcp[14..16].copy_from_slice(&segment.window.to_be_bytes());
    tcp[16..20].fill(0);
    tcp[20..].copy_from_slice(options);
    let four = |address: [u8; 16]| -> [u8; 4] { std::array::from_fn(|byte| address[byte]) };
    let pseudo = match meta.kind.l3() {
        Kind::IP4 => pseudo4(four(key.source), four(key.destination), 6, len as u16),
        _ => pseudo6(&key.source, &key.destination, 6, len as u32),
    };
    let checksum = !fold(sum(tcp, pseudo));
    tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
    set_length(head.get_mut(l3..)?, meta.kind.l3() == Kind::IP4, l4 + len - l3)?;
    look_again(packet, meta)
}

/// Writes the length of an IP packet, and updates the IPv4 checksum.
fn set_length(ip: &mut [u8], is_ip4: bool, len: usize) -> Option<()> {
    if !is_ip4 {
        let len = u16::try_from(len.checked_sub(40)?).ok()?;
        ip.get_mut(4..6)?.copy_from_slice(&len.to_be_bytes());
        return Some(());
    }
    let len = u16::try_from(len).ok()?;
    let header = ip.first_chunk_mut::<20>()?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let checksum = update16(word(10), word(2), len);
    header[2..4].copy_from_slice(&len.to_be_bytes());
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    Some(())
}
