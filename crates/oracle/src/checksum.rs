//! Checksums from scratch: what each must be after an edit.
//!
//! A checksum that was right before an edit is computed anew over everything it covers. One that was wrong, or that
//! covers bytes that are not in the frame (fragments), keeps its error: the sum of all 16-bit words including the
//! checksum, modulo 65,535, is what it was, so that a receiver finds the same fault it would have found without us.
//!
//! # Which values are equal
//! Modulo 65,535 the words 0x0000 and 0xffff are the same number, and RFC 1624 (section 3) shows two ways of updating
//! a checksum that differ in which of them comes out. A sender that computes a checksum from scratch writes 0xffff
//! only over a sum of zero, that is, if all covered words are zero. Hence:
//!
//! * IPv4 header, TCP, ICMPv6: the covered words are never all zero (version; protocol number). If the checksum was
//!   as a sender would have written it, so must it be afterwards: exact. If it was not, and the new value is zero
//!   modulo 65,535, either spelling carries the same error: both are taken.
//! * UDP: 0x0000 says "no checksum" (RFC 768) and stays; any other checksum that comes to zero is 0xffff: exact.
//! * ICMP: no pseudo header, and all words may be zero. Over all-zero words only 0xffff verifies (the sum of the words
//!   must come to 0xffff, not to 0); over others both spellings verify, and whoever updates without seeing the whole
//!   message cannot know which a sender would have used: both are taken.

use crate::headers::{Headers, Net, Transport};

/// What a checksum must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// This value.
    Exact(u16),
    /// 0x0000 or 0xffff.
    EitherZero,
}

/// Put right the IPv4 header checksum and the transport checksum of `after`, which differs from `before` in header
/// fields other than those, and perhaps in the length of its TCP header; `headers` are those of `before`. Gives the offsets of checksums where 0x0000 and 0xffff are both right (they read 0xffff).
pub(crate) fn settle(before: &[u8], after: &mut [u8], headers: &Headers) -> Vec<usize> {
    let mut either = Vec::new();
    let mut settle_one = |at: usize, wanted: Option<Wanted>, after: &mut [u8]| {
        let value = match wanted {
            None => return,
            Some(Wanted::Exact(value)) => value,
            Some(Wanted::EitherZero) => {
                either.push(at);
                0xffff
            }
        };
        after[at..at + 2].copy_from_slice(&value.to_be_bytes());
    };
    if headers.net == Net::Ip4 {
        let wanted = ip4_header(before, after, headers);
        settle_one(headers.net_at + 10, Some(wanted), after);
    }
    if let Some(at) = transport_checksum_at(headers) {
        let wanted = transport(before, after, headers, at);
        settle_one(at, wanted, after);
    }
    either
}

/// Offsets in the frame of the checksums that the packet has.
pub(crate) fn offsets(headers: &Headers) -> Vec<usize> {
    let ip4 = (headers.net == Net::Ip4).then_some(headers.net_at + 10);
    ip4.into_iter().chain(transport_checksum_at(headers)).collect()
}

/// Writes the checksums that a sender would have written; over a fragment, as if there were no other.
pub(crate) fn fill(frame: &mut [u8], headers: &Headers) {
    if headers.net == Net::Ip4 {
        let header = without_checksum(&frame[headers.net_at..headers.transport_at], 10);
        let at = headers.net_at + 10;
        frame[at..at + 2].copy_from_slice(&from_scratch(&header).to_be_bytes());
    }
    if let Some(at) = transport_checksum_at(headers) {
        let value = match from_scratch(&covered(frame, headers, at)) {
            0 if headers.transport == Transport::Udp => 0xffff,
            value => value,
        };
        frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
}

/// Offset in the frame of the transport checksum, if there is one inside the packet.
fn transport_checksum_at(headers: &Headers) -> Option<usize> {
    let offset = match headers.transport {
        Transport::None => return None,
        Transport::Tcp => 16,
        Transport::Udp => 6,
        Transport::Icmp | Transport::Icmp6 => 2,
    };
    Some(headers.transport_at + offset)
}

fn ip4_header(before: &[u8], after: &[u8], headers: &Headers) -> Wanted {
    let range = headers.net_at..headers.transport_at;
    let stored = word(before, headers.net_at + 10);
    let before = without_checksum(&before[range.clone()], 10);
    let after = without_checksum(&after[range], 10);
    if stored == from_scratch(&before) {
        Wanted::Exact(from_scratch(&after))
    } else {
        keep_error(stored, &before, &after)
    }
}

fn transport(before: &[u8], after: &[u8], headers: &Headers, at: usize) -> Option<Wanted> {
    let stored = word(before, at);
    let end = headers.end + after.len() - before.len();
    let before = covered(before, headers, at);
    let after = covered(after, &Headers { end, ..headers.clone() }, at);
    let kept = keep_error(stored, &before, &after);
    match headers.transport {
        Transport::Udp if stored == 0 => None,
        Transport::Udp => Some(match kept {
            Wanted::EitherZero => Wanted::Exact(0xffff),
            exact => exact,
        }),
        Transport::Icmp if kept == Wanted::EitherZero => {
            let all_zero = after != before && after.iter().all(|&byte| byte == 0);
            Some(if all_zero && !headers.fragment { Wanted::Exact(0xffff) } else { kept })
        }
        _ if !headers.fragment && stored == from_scratch(&before) => {
            Some(Wanted::Exact(from_scratch(&after)))
        }
        _ => Some(kept),
    }
}

/// The bytes that the transport checksum at `at` covers, itself as zero: pseudo header (RFC 9293, 3.1; RFC 768; RFC
/// 8200, 8.1), header, payload. Of a fragment, those in this fragment.
fn covered(frame: &[u8], headers: &Headers, at: usize) -> Vec<u8> {
    let available = headers.end - headers.transport_at;
    let length = match headers.transport {
        Transport::Udp => usize::from(word(frame, headers.transport_at + 4)),
        _ => available,
    };
    let protocol = match headers.transport {
        Transport::Tcp => 6,
        Transport::Udp => 17,
        _ => 58,
    };
    let net = &frame[headers.net_at..];
    let mut bytes = Vec::new();
    if headers.transport != Transport::Icmp {
        match headers.net {
            Net::Ip4 => bytes.extend_from_slice(&net[12..20]),
            Net::Ip6 => {
                bytes.extend_from_slice(&net[8..24]);
                match headers.routed {
                    false => bytes.extend_from_slice(&net[24..40]),
                    true => bytes.extend_from_slice(&headers.final_destination.unwrap_or_default()),
                }
            }
        }
        bytes.extend_from_slice(&(length as u32).to_be_bytes());
        bytes.extend_from_slice(&[0, 0, 0, protocol]);
    }
    let pseudo = bytes.len();
    let segment = headers.transport_at..headers.transport_at + length.min(available);
    bytes.extend_from_slice(&frame[segment]);
    without_checksum(&bytes, pseudo + at - headers.transport_at)
}

fn without_checksum(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + 2].fill(0);
    bytes
}

/// RFC 1071: the complement of the ones'-complement sum of the 16-bit words, the last one padded with a zero byte.
fn from_scratch(bytes: &[u8]) -> u16 {
    let mut sum = total(bytes);
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

/// The checksum over `after` that is as wrong as `stored` was over `before`.
fn keep_error(stored: u16, before: &[u8], after: &[u8]) -> Wanted {
    let modulus = 0xffff;
    let error = (u64::from(stored) + total(before)) % modulus;
    match (error + modulus - total(after) % modulus) % modulus {
        0 => Wanted::EitherZero,
        value => Wanted::Exact(value as u16),
    }
}

fn total(bytes: &[u8]) -> u64 {
    bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0))).sum()
}

fn word(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}
