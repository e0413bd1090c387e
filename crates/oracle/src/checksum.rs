//! Checksums from scratch: the required values after an edit.
//!
//! A checksum that was valid before an edit is computed again over everything it covers. One that was
//! invalid, or that covers bytes outside the frame (fragments), keeps its error: the sum of all 16-bit
//! words including the checksum stays the same modulo 65,535. The receiver thus detects the same error.
//!
//! # Equal values
//! Modulo 65,535 the words 0x0000 and 0xffff are the same number. RFC 1624 (section 3) shows two update
//! methods that differ in which of them results. A sender that computes a checksum from scratch writes
//! 0xffff only if all covered words are zero. Hence:
//!
//! * IPv4 header, TCP, ICMPv6: the covered words are never all zero (version; protocol number). If the
//!   checksum was as a sender writes it, the result must be exact. Otherwise both representations of zero
//!   carry the same error and are accepted.
//! * UDP: 0x0000 means "no checksum" (RFC 768) and stays. Any other checksum that becomes zero is 0xffff.
//!   The result must be exact.
//! * ICMP: no pseudo header, so all words can be zero. Over all-zero words only 0xffff is valid. Over
//!   others both are valid, and an incremental update cannot know which one a sender would have written:
//!   both are accepted.

use crate::headers::{Headers, Net, Transport};

/// Required value of a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Exactly this value.
    Exact(u16),
    /// 0x0000 or 0xffff.
    EitherZero,
}

/// Corrects the IPv4 header checksum and the transport checksum of `after`.
///
/// `after` differs from `before` in other header fields and possibly in the length of its TCP header;
/// `headers` are those of `before`. Returns the offsets of checksums for which 0x0000 and 0xffff are both
/// correct; they are 0xffff.
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

/// Offsets of the packet's checksums in the frame.
pub(crate) fn offsets(headers: &Headers) -> Vec<usize> {
    let ip4 = (headers.net == Net::Ip4).then_some(headers.net_at + 10);
    ip4.into_iter().chain(transport_checksum_at(headers)).collect()
}

/// Writes the checksums that a sender writes; over a fragment, as if it were the whole packet.
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

/// Offset of the transport checksum in the frame, if the packet contains it.
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

/// The bytes that the transport checksum at `at` covers, with the checksum as zero: pseudo header (RFC
/// 9293, 3.1; RFC 768; RFC 8200, 8.1), header, payload. For a fragment, those in this fragment.
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

/// RFC 1071: the complement of the ones'-complement sum of the 16-bit words; an odd last byte is padded
/// with zero.
fn from_scratch(bytes: &[u8]) -> u16 {
    let mut sum = total(bytes);
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

/// The checksum over `after` with the same error as `stored` over `before`.
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
