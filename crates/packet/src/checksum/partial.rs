//! Completes checksums that a kernel left to hardware.
//!
//! Theory of operation. Linux computes the transport checksum of its own packets as late as it can. It
//! stores the folded sum of the pseudo header in the field (`CHECKSUM_PARTIAL`), and the network card adds
//! the rest. Between two veth ends, or on an AF_PACKET socket, there is no card. Such a packet is
//! recognized by its field. A complete packet has the same value only by chance (1 in 65,536); completing
//! it again leaves it unchanged.

use super::{fold, pseudo4, pseudo6, sum};
use crate::bytes;
use crate::meta::{Kind, Meta, PacketFlags};

/// Completes the checksum of a TCP or UDP packet whose checksum field is the folded sum of its pseudo
/// header. Returns whether it did.
///
/// `head` and `meta` are those of [`crate::parse`]; `rest` holds the packet's bytes behind `head` in order.
/// Bytes behind the end of the IP packet are ignored. The function returns `false` and changes nothing
///
/// * if the checksum is valid, or has some other invalid value;
/// * in fragments, which do not hold all covered bytes;
/// * with an IPv6 routing header that has segments left;
/// * if the UDP length differs from IP's;
/// * if `head` and `rest` are shorter than the packet.
#[inline]
pub fn complete_partial<'a>(head: &mut [u8], rest: impl IntoIterator<Item = &'a [u8]>, meta: &Meta) -> bool {
    let l4 = usize::from(meta.l4_off);
    match find_partial(head, l4, meta) {
        Some(partial) => complete(head, rest, l4, &partial),
        None => false,
    }
}

/// Whether the checksum of a TCP segment is valid. True as well where nothing can be told: in a fragment, and
/// behind an IPv6 routing header with segments left.
///
/// See [`complete_partial`] for the arguments. A partial checksum is not valid.
#[inline]
pub fn is_tcp_valid<'a>(head: &[u8], rest: impl IntoIterator<Item = &'a [u8]>, meta: &Meta) -> bool {
    let l4 = usize::from(meta.l4_off);
    covered_part(head, l4, meta, TCP)
        .is_none_or(|(covered, pseudo)| is_valid_in_pieces(head, rest, l4, (covered, fold(pseudo))))
}

/// Protocol numbers.
const TCP: u8 = 6;
const UDP: u8 = 17;

/// A checksum field that holds the sum of the pseudo header alone.
struct PartialChecksum {
    /// Offset of the field in the frame.
    field: usize,
    /// Number of bytes that the checksum covers, from the transport header on.
    covered: usize,
    /// Sum of the pseudo header.
    pseudo: u32,
    /// Value to write for a checksum of 0.
    zero: u16,
}

#[inline]
fn find_partial(head: &[u8], l4: usize, meta: &Meta) -> Option<PartialChecksum> {
    let (proto, field, zero) = match meta.kind.l4() {
        Kind::TCP => (TCP, l4 + 16, 0),
        Kind::UDP => (UDP, l4 + 6, 0xffff),
        _ => return None,
    };
    let (covered, pseudo) = covered_part(head, l4, meta, proto)?;
    let stored = u16::from_be_bytes(*bytes::at(head, field)?);
    let whole =
        proto == TCP || bytes::at(head, l4 + 4).is_some_and(|len| covered == u16::from_be_bytes(*len).into());
    (whole && stored == fold(pseudo)).then_some(PartialChecksum { field, covered, pseudo, zero })
}

/// Returns the number of bytes that a transport checksum covers, from the transport header on, and the sum of
/// the pseudo header. `None` in fragments, and behind an IPv6 routing header with segments left.
#[inline]
fn covered_part(head: &[u8], l4: usize, meta: &Meta, proto: u8) -> Option<(usize, u32)> {
    if meta.flags.intersects(PacketFlags::FRAGMENT | PacketFlags::ROUTED) {
        return None;
    }
    let l3 = usize::from(meta.l3_off);
    // The length comes from the header because `meta.end` saturates.
    Some(if meta.kind.l3() == Kind::IP4 {
        let ip = bytes::at::<20>(head, l3)?;
        let covered = (l3 + usize::from(bytes::be16(ip, 2))).checked_sub(l4)?;
        let [_, _, _, src, dst]: [[u8; 4]; 5] = bytemuck::cast(*ip);
        (covered, pseudo4(src, dst, proto, covered as u16))
    } else {
        let ip = bytes::at::<40>(head, l3)?;
        let covered = (l3 + 40 + usize::from(bytes::be16(ip, 4))).checked_sub(l4)?;
        let (src, dst) = bytes::ip6_addresses(ip);
        (covered, pseudo6(&src, &dst, proto, covered as u32))
    })
}

fn complete<'a>(
    head: &mut [u8],
    rest: impl IntoIterator<Item = &'a [u8]>,
    l4: usize,
    p: &PartialChecksum,
) -> bool {
    let Some(data) = head.get(l4..).and_then(|first| sum_pieces(first, rest, p.covered)) else {
        return false;
    };
    // The field holds the pseudo header's sum, so `data` is the complete sum. Adding the pseudo header once
    // more gives what a receiver checks.
    let (all, received) = (fold(data), fold(u32::from(fold(data)) + u32::from(fold(p.pseudo))));
    let csum = if all == 0xffff { p.zero } else { !all };
    match head.get_mut(p.field..p.field + 2) {
        Some(field) if received != 0xffff => {
            field.copy_from_slice(&csum.to_be_bytes());
            true
        }
        _ => false,
    }
}

/// Completes a checksum of TCP or UDP at `field` that covers the packet from `start` to its end, wherever it
/// is, as a network card does: the field holds the sum of the pseudo header. `head` has the field; `rest`
/// holds the bytes behind `head`, in order. Changes nothing if `head` is too short.
pub fn complete_from(head: &mut [u8], rest: &[&[u8]], start: usize, field: usize) {
    let length = head.len() + rest.iter().map(|piece| piece.len()).sum::<usize>();
    let covered = length.saturating_sub(start);
    let Some(data) = head.get(start..).and_then(|first| sum_pieces(first, rest.iter().copied(), covered))
    else {
        return;
    };
    if let Some(field) = head.get_mut(field..field + 2) {
        // UDP has no checksum if the field is 0 (RFC 768). For TCP, both values are the same.
        let checksum = if fold(data) == 0xffff { 0xffff } else { !fold(data) };
        field.copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Whether a transport checksum is valid that covers `covered` bytes of a packet from `l4` on. `pseudo`: the
/// folded sum of the pseudo header. False if the packet is shorter.
#[inline]
pub(crate) fn is_valid_in_pieces<'a>(
    head: &[u8],
    rest: impl IntoIterator<Item = &'a [u8]>,
    l4: usize,
    (covered, pseudo): (usize, u16),
) -> bool {
    let data = head.get(l4..).and_then(|first| sum_pieces(first, rest, covered));
    data.is_some_and(|data| fold(data + u32::from(pseudo)) == 0xffff)
}

/// Sum of the first `length` bytes of `first` and `rest`, pieces of any length; `None` if they are shorter.
#[inline]
pub(crate) fn sum_pieces<'a>(
    first: &[u8],
    rest: impl IntoIterator<Item = &'a [u8]>,
    length: usize,
) -> Option<u32> {
    let (mut done, mut total) = (0, 0);
    // The pieces behind the first one may live longer.
    let rest = rest.into_iter().map(|piece| -> &[u8] { piece });
    for piece in std::iter::once(first).chain(rest) {
        let piece = &piece[..piece.len().min(length - done)];
        let part = fold(sum(piece, 0));
        // A piece at an odd offset contributes its bytes to the other halves of the words (RFC 1071, 2.B).
        total += u32::from(if done % 2 == 0 { part } else { part.swap_bytes() });
        done += piece.len();
        if done == length {
            return Some(u32::from(fold(total)));
        }
        total = u32::from(fold(total));
    }
    None
}

#[cfg(test)]
mod tests;
