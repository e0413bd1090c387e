//! Random frames: mostly valid, with all layouts that the engine reads, and sometimes damaged.

use mmb_lang::FieldId;

use super::{ByteChoices, options, pools};
use crate::{checksum, headers};

const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// ARP, MPLS, an 802.3 length, nothing, LLDP: not IP.
const OTHER_ETHERTYPES: [u16; 5] = [0x0806, 0x8847, 46, 0, 0x88cc];
/// Extension headers that the parser walks.
const EXTENSIONS: [u8; 8] = [0, 60, 43, 44, 51, 135, 139, 140];
/// Protocols without a transport header that the engine reads: IPv6 in IPv4, ESP, none, SCTP, UDP-Lite, any.
const OTHER_PROTOCOLS: [u8; 6] = [41, 50, 59, 132, 136, 255];

/// Encapsulating security payload: an extension header and the end of their chain.
const ESP: u8 = 50;

/// Payload of an IP packet.
#[derive(Clone, Copy)]
enum Payload {
    Tcp,
    Udp,
    /// ICMP over IPv4, ICMPv6 over IPv6.
    Icmp,
    /// The ICMP version of the other IP version, which is not readable.
    ForeignIcmp,
    Other(u8),
}

/// A frame of at most about 700 bytes. Two of three are valid with correct checksums. The others have
/// invalid or unusual checksums, are truncated, or have changed bytes or lengths.
pub fn frame(choices: &mut ByteChoices<'_>) -> Vec<u8> {
    let mut frame = sound_frame(choices);
    match choices.below(9) {
        6 => spoil_checksums(choices, &mut frame),
        7 => frame.truncate(choices.below(frame.len() + 1)),
        8 => flip_bytes(choices, &mut frame),
        _ => {}
    }
    frame
}

/// A frame without damage. It can still be other than IP, or IP without a transport header.
pub fn sound_frame(choices: &mut ByteChoices<'_>) -> Vec<u8> {
    let mut frame = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1];
    for _ in 0..choices.pick(&[0, 0, 0, 1, 2, 4, 5]) {
        frame.extend_from_slice(&choices.pick(&TAGS).to_be_bytes());
        frame.extend_from_slice(&[0, choices.byte()]);
    }
    match choices.below(16) {
        0..8 => ip4(choices, &mut frame),
        8..15 => ip6(choices, &mut frame),
        _ => {
            frame.extend_from_slice(&choices.pick(&OTHER_ETHERTYPES).to_be_bytes());
            bytes(choices, 46, &mut frame);
            return frame;
        }
    }
    if choices.one_in(4) {
        bytes(choices, 10, &mut frame); // padding behind the packet
    }
    if let Ok(Some(headers)) = headers::read(&frame) {
        checksum::fill(&mut frame, &headers);
        if choices.one_in(8) {
            clear_udp_checksum(&mut frame, &headers);
        }
    }
    frame
}

fn ip4(choices: &mut ByteChoices<'_>, frame: &mut Vec<u8>) {
    frame.extend_from_slice(&[0x08, 0x00]);
    let at = frame.len();
    let option_words = choices.pick(&[0, 0, 0, 1, 3, 10]);
    let payload = payload(choices);
    let protocol = match payload {
        Payload::Tcp => 6,
        Payload::Udp => 17,
        Payload::Icmp => 1,
        Payload::ForeignIcmp => 58,
        Payload::Other(protocol) => protocol,
    };
    let (offset, more) = fragment(choices);
    let flags =
        u16::from(choices.one_in(8)) << 15 | u16::from(choices.one_in(2)) << 14 | u16::from(more) << 13;
    frame.extend_from_slice(&[0x45 + option_words as u8, tos(choices), 0, 0]);
    frame.extend_from_slice(&(pools::number(choices, FieldId::IpId, 16) as u16).to_be_bytes());
    frame.extend_from_slice(&(flags | offset).to_be_bytes());
    frame.extend_from_slice(&[pools::number(choices, FieldId::IpTtl, 8) as u8, protocol, 0, 0]);
    frame.extend_from_slice(&pools::ip4(choices).octets());
    frame.extend_from_slice(&pools::ip4(choices).octets());
    bytes(choices, option_words * 4, frame);
    transport(choices, payload, frame);
    let total = (frame.len() - at) as u16;
    frame[at + 2..at + 4].copy_from_slice(&total.to_be_bytes());
}

fn ip6(choices: &mut ByteChoices<'_>, frame: &mut Vec<u8>) {
    frame.extend_from_slice(&[0x86, 0xdd]);
    let at = frame.len();
    let payload = payload(choices);
    let last = match payload {
        Payload::Tcp => 6,
        Payload::Udp => 17,
        Payload::Icmp => 58,
        Payload::ForeignIcmp => 1,
        Payload::Other(protocol) => protocol,
    };
    let first_word = 0x6000_0000
        | u32::from(tos(choices)) << 20
        | pools::number(choices, FieldId::Ip6FlowLabel, 20) as u32;
    frame.extend_from_slice(&first_word.to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0, pools::number(choices, FieldId::Ip6HopLimit, 8) as u8]);
    frame.extend_from_slice(&pools::ip6(choices).octets());
    frame.extend_from_slice(&pools::ip6(choices).octets());
    let mut next_at = at + 6;
    for _ in 0..choices.pick(&[0, 0, 0, 1, 2, 4]) {
        let kind = choices.pick(&EXTENSIONS);
        frame[next_at] = kind;
        next_at = frame.len();
        extension(choices, kind, frame);
        // A header that extends beyond the packet.
        if choices.one_in(16) {
            frame[next_at + 1] = 200;
        }
    }
    let (payload, last) = if choices.one_in(10) { (Payload::Other(ESP), ESP) } else { (payload, last) };
    frame[next_at] = last;
    transport(choices, payload, frame);
    let length = (frame.len() - at - 40) as u16;
    frame[at + 4..at + 6].copy_from_slice(&length.to_be_bytes());
}

/// An extension header whose next-header byte, the first, is 0.
fn extension(choices: &mut ByteChoices<'_>, kind: u8, frame: &mut Vec<u8>) {
    match kind {
        44 => {
            let (offset, more) = fragment(choices);
            frame.extend_from_slice(&[0, 0]);
            frame.extend_from_slice(&(offset << 3 | u16::from(more)).to_be_bytes());
            bytes(choices, 4, frame);
        }
        43 => {
            let addresses = choices.below(3);
            let segments_left = choices.below(addresses + 1) as u8;
            frame.extend_from_slice(&[
                0,
                addresses as u8 * 2,
                choices.pick(&[0, 2, 4, 99]),
                segments_left,
                0,
                0,
                0,
                0,
            ]);
            for _ in 0..addresses {
                frame.extend_from_slice(&pools::ip6(choices).octets());
            }
        }
        51 => {
            let words = choices.below(4);
            frame.extend_from_slice(&[0, words as u8]);
            bytes(choices, 6 + words * 4, frame);
        }
        _ => {
            let blocks = choices.pick(&[0, 1, 3]);
            frame.extend_from_slice(&[0, blocks as u8]);
            bytes(choices, 6 + blocks * 8, frame);
        }
    }
}

fn payload(choices: &mut ByteChoices<'_>) -> Payload {
    match choices.below(16) {
        0..8 => Payload::Tcp,
        8..12 => Payload::Udp,
        12..14 => Payload::Icmp,
        14 => Payload::ForeignIcmp,
        _ => Payload::Other(choices.pick(&OTHER_PROTOCOLS)),
    }
}

/// Fragment offset in units of 8 bytes, and "more fragments"; mostly not a fragment.
fn fragment(choices: &mut ByteChoices<'_>) -> (u16, bool) {
    match choices.below(10) {
        7 => (0, true),
        8 => (pools::number(choices, FieldId::IpFragOffset, 13) as u16, true),
        9 => (pools::number(choices, FieldId::IpFragOffset, 13) as u16, false),
        _ => (0, false),
    }
}

/// Type of service or traffic class: one of several DSCPs, any ECN.
fn tos(choices: &mut ByteChoices<'_>) -> u8 {
    (pools::number(choices, FieldId::IpDscp, 6) as u8) << 2 | choices.below(4) as u8
}

/// The transport header and its payload, with zero checksums.
fn transport(choices: &mut ByteChoices<'_>, payload: Payload, frame: &mut Vec<u8>) {
    let data = data(choices);
    match payload {
        Payload::Tcp => {
            let options = options::area(choices);
            ports(choices, FieldId::TcpSport, frame);
            for field in [FieldId::TcpSeqNum, FieldId::TcpAckNum] {
                frame.extend_from_slice(&(pools::number(choices, field, 32) as u32).to_be_bytes());
            }
            let reserved = if choices.one_in(8) { choices.byte() & 15 } else { 0 };
            let flags = pools::number(choices, FieldId::TcpFlags, 8) as u8;
            frame.extend_from_slice(&[(5 + options.len() as u8 / 4) << 4 | reserved, flags]);
            frame.extend_from_slice(&(pools::number(choices, FieldId::TcpWin, 16) as u16).to_be_bytes());
            frame.extend_from_slice(&[0, 0]);
            frame.extend_from_slice(&(pools::number(choices, FieldId::TcpUrgPtr, 16) as u16).to_be_bytes());
            frame.extend_from_slice(&options);
        }
        Payload::Udp => {
            ports(choices, FieldId::UdpSport, frame);
            let length =
                if choices.one_in(16) { choices.pick(&[0, 7, 8, 10, 0xffff]) } else { 8 + data.len() as u16 };
            frame.extend_from_slice(&length.to_be_bytes());
            frame.extend_from_slice(&[0, 0]);
        }
        Payload::Icmp | Payload::ForeignIcmp => {
            let kind = pools::number(choices, FieldId::IcmpType, 8) as u8;
            frame.extend_from_slice(&[kind, pools::number(choices, FieldId::IcmpCode, 8) as u8, 0, 0]);
            bytes(choices, 4, frame);
        }
        Payload::Other(_) => {}
    }
    frame.extend_from_slice(&data);
}

/// Payload behind a transport header: none, a few bytes, or strings that rules match on.
fn data(choices: &mut ByteChoices<'_>) -> Vec<u8> {
    let mut data = Vec::new();
    match choices.below(8) {
        0 | 1 => bytes(choices, 0, &mut data),
        2 => {
            let length = choices.pick(&[1, 8, 3, 40]);
            bytes(choices, length, &mut data);
        }
        _ => {
            for _ in 0..1 + choices.below(3) {
                data.extend_from_slice(pools::literal(choices));
                // Bytes between or behind strings, which can overlap the start of a string.
                data.extend((0..choices.pick(&[0, 0, 1, 5])).map(|_| b'a'));
            }
            // A string that the end of the packet truncates.
            if choices.one_in(6) {
                data.pop();
            }
        }
    }
    data
}

fn ports(choices: &mut ByteChoices<'_>, field: FieldId, frame: &mut Vec<u8>) {
    for _ in 0..2 {
        frame.extend_from_slice(&(pools::number(choices, field, 16) as u16).to_be_bytes());
    }
}

/// `n` bytes: zeros, ones, ascending, or random.
fn bytes(choices: &mut ByteChoices<'_>, n: usize, frame: &mut Vec<u8>) {
    match choices.below(4) {
        0 => frame.extend(std::iter::repeat_n(0, n)),
        1 => frame.extend(std::iter::repeat_n(0xff, n)),
        2 => frame.extend((0..n).map(|i| i as u8)),
        _ => frame.extend((0..n).map(|_| choices.byte())),
    }
}

/// Removes the checksum (RFC 768).
fn clear_udp_checksum(frame: &mut [u8], headers: &headers::Headers) {
    if headers.transport == headers::Transport::Udp {
        let at = headers.transport_at + 6;
        frame[at..at + 2].fill(0);
    }
}

/// Makes checksums invalid, or exchanges the representations of zero.
fn spoil_checksums(choices: &mut ByteChoices<'_>, frame: &mut [u8]) {
    if let Ok(Some(headers)) = headers::read(frame) {
        for at in checksum::offsets(&headers) {
            let value = choices.pick(&[0, 0xffff, 0x1234, 1]);
            if !choices.one_in(4) {
                frame[at..at + 2].copy_from_slice(&u16::to_be_bytes(value));
            }
        }
    }
}

/// Changes one to four bytes, mostly near the front, where lengths, versions and types are.
fn flip_bytes(choices: &mut ByteChoices<'_>, frame: &mut [u8]) {
    for _ in 0..1 + choices.below(4) {
        let reach = if choices.one_in(3) { frame.len() } else { frame.len().min(80) };
        if reach > 0 {
            frame[choices.below(reach)] ^= choices.byte();
        }
    }
}
