//! Frames: mostly sound, of every make that the engine reads, and now and then damaged.

use mmb_lang::FieldId;

use super::{Dice, options, pools};
use crate::{checksum, headers};

const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// ARP, MPLS, an 802.3 length, nothing, LLDP: not IP.
const OTHER_ETHERTYPES: [u16; 5] = [0x0806, 0x8847, 46, 0, 0x88cc];
/// Extension headers that are walked over.
const EXTENSIONS: [u8; 8] = [0, 60, 43, 44, 51, 135, 139, 140];
/// Protocols without a transport header that the engine reads: IPv6 in IPv4, ESP, none, SCTP, UDP-Lite, any.
const OTHER_PROTOCOLS: [u8; 6] = [41, 50, 59, 132, 136, 255];

/// Encapsulating security payload: the end of a chain of extension headers, and one of them.
const ESP: u8 = 50;

/// What a frame carries over IP.
#[derive(Clone, Copy)]
enum Payload {
    Tcp,
    Udp,
    /// ICMP over IPv4, ICMPv6 over IPv6.
    Icmp,
    /// The ICMP that belongs to the other IP, which is none.
    ForeignIcmp,
    Other(u8),
}

/// A frame. Two out of three are sound with right checksums; the others have wrong or unusual checksums, or are
/// truncated at any byte, or have bytes flipped or lengths changed. At most some 700 bytes.
pub fn frame(dice: &mut Dice<'_>) -> Vec<u8> {
    let mut frame = sound_frame(dice);
    match dice.below(9) {
        6 => spoil_checksums(dice, &mut frame),
        7 => frame.truncate(dice.below(frame.len() + 1)),
        8 => flip_bytes(dice, &mut frame),
        _ => {}
    }
    frame
}

/// A frame without damage. It may still be no IP, or IP without a transport header.
pub fn sound_frame(dice: &mut Dice<'_>) -> Vec<u8> {
    let mut frame = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1];
    for _ in 0..dice.pick(&[0, 0, 0, 1, 2, 4, 5]) {
        frame.extend_from_slice(&dice.pick(&TAGS).to_be_bytes());
        frame.extend_from_slice(&[0, dice.byte()]);
    }
    match dice.below(16) {
        0..8 => ip4(dice, &mut frame),
        8..15 => ip6(dice, &mut frame),
        _ => {
            frame.extend_from_slice(&dice.pick(&OTHER_ETHERTYPES).to_be_bytes());
            bytes(dice, 46, &mut frame);
            return frame;
        }
    }
    if dice.one_in(4) {
        bytes(dice, 10, &mut frame); // padding behind the packet
    }
    if let Ok(Some(headers)) = headers::read(&frame) {
        checksum::fill(&mut frame, &headers);
        if dice.one_in(8) {
            clear_udp_checksum(&mut frame, &headers);
        }
    }
    frame
}

fn ip4(dice: &mut Dice<'_>, frame: &mut Vec<u8>) {
    frame.extend_from_slice(&[0x08, 0x00]);
    let at = frame.len();
    let option_words = dice.pick(&[0, 0, 0, 1, 3, 10]);
    let payload = payload(dice);
    let protocol = match payload {
        Payload::Tcp => 6,
        Payload::Udp => 17,
        Payload::Icmp => 1,
        Payload::ForeignIcmp => 58,
        Payload::Other(protocol) => protocol,
    };
    let (offset, more) = fragment(dice);
    let flags = u16::from(dice.one_in(8)) << 15 | u16::from(dice.one_in(2)) << 14 | u16::from(more) << 13;
    frame.extend_from_slice(&[0x45 + option_words as u8, tos(dice), 0, 0]);
    frame.extend_from_slice(&(pools::number(dice, FieldId::IpId, 16) as u16).to_be_bytes());
    frame.extend_from_slice(&(flags | offset).to_be_bytes());
    frame.extend_from_slice(&[pools::number(dice, FieldId::IpTtl, 8) as u8, protocol, 0, 0]);
    frame.extend_from_slice(&pools::ip4(dice).octets());
    frame.extend_from_slice(&pools::ip4(dice).octets());
    bytes(dice, option_words * 4, frame);
    transport(dice, payload, frame);
    let total = (frame.len() - at) as u16;
    frame[at + 2..at + 4].copy_from_slice(&total.to_be_bytes());
}

fn ip6(dice: &mut Dice<'_>, frame: &mut Vec<u8>) {
    frame.extend_from_slice(&[0x86, 0xdd]);
    let at = frame.len();
    let payload = payload(dice);
    let last = match payload {
        Payload::Tcp => 6,
        Payload::Udp => 17,
        Payload::Icmp => 58,
        Payload::ForeignIcmp => 1,
        Payload::Other(protocol) => protocol,
    };
    let first_word =
        0x6000_0000 | u32::from(tos(dice)) << 20 | pools::number(dice, FieldId::Ip6FlowLabel, 20) as u32;
    frame.extend_from_slice(&first_word.to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0, pools::number(dice, FieldId::Ip6HopLimit, 8) as u8]);
    frame.extend_from_slice(&pools::ip6(dice).octets());
    frame.extend_from_slice(&pools::ip6(dice).octets());
    let mut next_at = at + 6;
    for _ in 0..dice.pick(&[0, 0, 0, 1, 2, 4]) {
        let kind = dice.pick(&EXTENSIONS);
        frame[next_at] = kind;
        next_at = frame.len();
        extension(dice, kind, frame);
        // A header that leads out of the packet.
        if dice.one_in(16) {
            frame[next_at + 1] = 200;
        }
    }
    let (payload, last) = if dice.one_in(10) { (Payload::Other(ESP), ESP) } else { (payload, last) };
    frame[next_at] = last;
    transport(dice, payload, frame);
    let length = (frame.len() - at - 40) as u16;
    frame[at + 4..at + 6].copy_from_slice(&length.to_be_bytes());
}

/// An extension header; its next-header byte, the first, is left 0.
fn extension(dice: &mut Dice<'_>, kind: u8, frame: &mut Vec<u8>) {
    match kind {
        44 => {
            let (offset, more) = fragment(dice);
            frame.extend_from_slice(&[0, 0]);
            frame.extend_from_slice(&(offset << 3 | u16::from(more)).to_be_bytes());
            bytes(dice, 4, frame);
        }
        43 => {
            let addresses = dice.below(3);
            let segments_left = dice.below(addresses + 1) as u8;
            frame.extend_from_slice(&[
                0,
                addresses as u8 * 2,
                dice.pick(&[0, 2, 4, 99]),
                segments_left,
                0,
                0,
                0,
                0,
            ]);
            for _ in 0..addresses {
                frame.extend_from_slice(&pools::ip6(dice).octets());
            }
        }
        51 => {
            let words = dice.below(4);
            frame.extend_from_slice(&[0, words as u8]);
            bytes(dice, 6 + words * 4, frame);
        }
        _ => {
            let blocks = dice.pick(&[0, 1, 3]);
            frame.extend_from_slice(&[0, blocks as u8]);
            bytes(dice, 6 + blocks * 8, frame);
        }
    }
}

fn payload(dice: &mut Dice<'_>) -> Payload {
    match dice.below(16) {
        0..8 => Payload::Tcp,
        8..12 => Payload::Udp,
        12..14 => Payload::Icmp,
        14 => Payload::ForeignIcmp,
        _ => Payload::Other(dice.pick(&OTHER_PROTOCOLS)),
    }
}

/// Offset in units of 8 bytes, and "more fragments"; mostly no fragment.
fn fragment(dice: &mut Dice<'_>) -> (u16, bool) {
    match dice.below(10) {
        7 => (0, true),
        8 => (pools::number(dice, FieldId::IpFragOffset, 13) as u16, true),
        9 => (pools::number(dice, FieldId::IpFragOffset, 13) as u16, false),
        _ => (0, false),
    }
}

/// Type of service, traffic class: any DSCP of a few, any ECN.
fn tos(dice: &mut Dice<'_>) -> u8 {
    (pools::number(dice, FieldId::IpDscp, 6) as u8) << 2 | dice.below(4) as u8
}

/// The transport header with its payload; checksums zero.
fn transport(dice: &mut Dice<'_>, payload: Payload, frame: &mut Vec<u8>) {
    let data = data(dice);
    match payload {
        Payload::Tcp => {
            let options = options::area(dice);
            ports(dice, FieldId::TcpSport, frame);
            for field in [FieldId::TcpSeqNum, FieldId::TcpAckNum] {
                frame.extend_from_slice(&(pools::number(dice, field, 32) as u32).to_be_bytes());
            }
            let reserved = if dice.one_in(8) { dice.byte() & 15 } else { 0 };
            let flags = pools::number(dice, FieldId::TcpFlags, 8) as u8;
            frame.extend_from_slice(&[(5 + options.len() as u8 / 4) << 4 | reserved, flags]);
            frame.extend_from_slice(&(pools::number(dice, FieldId::TcpWin, 16) as u16).to_be_bytes());
            frame.extend_from_slice(&[0, 0]);
            frame.extend_from_slice(&(pools::number(dice, FieldId::TcpUrgPtr, 16) as u16).to_be_bytes());
            frame.extend_from_slice(&options);
        }
        Payload::Udp => {
            ports(dice, FieldId::UdpSport, frame);
            let length =
                if dice.one_in(16) { dice.pick(&[0, 7, 8, 10, 0xffff]) } else { 8 + data.len() as u16 };
            frame.extend_from_slice(&length.to_be_bytes());
            frame.extend_from_slice(&[0, 0]);
        }
        Payload::Icmp | Payload::ForeignIcmp => {
            let kind = pools::number(dice, FieldId::IcmpType, 8) as u8;
            frame.extend_from_slice(&[kind, pools::number(dice, FieldId::IcmpCode, 8) as u8, 0, 0]);
            bytes(dice, 4, frame);
        }
        Payload::Other(_) => {}
    }
    frame.extend_from_slice(&data);
}

/// Bytes behind a transport header: none, a few, or some of the strings that rules look for.
fn data(dice: &mut Dice<'_>) -> Vec<u8> {
    let mut data = Vec::new();
    match dice.below(8) {
        0 | 1 => bytes(dice, 0, &mut data),
        2 => {
            let length = dice.pick(&[1, 8, 3, 40]);
            bytes(dice, length, &mut data);
        }
        _ => {
            for _ in 0..1 + dice.below(3) {
                data.extend_from_slice(pools::literal(dice));
                // Between two strings, or behind them: something that may hide where one starts.
                data.extend((0..dice.pick(&[0, 0, 1, 5])).map(|_| b'a'));
            }
            // A string that the end of the packet cuts short.
            if dice.one_in(6) {
                data.pop();
            }
        }
    }
    data
}

fn ports(dice: &mut Dice<'_>, field: FieldId, frame: &mut Vec<u8>) {
    for _ in 0..2 {
        frame.extend_from_slice(&(pools::number(dice, field, 16) as u16).to_be_bytes());
    }
}

/// `n` bytes: zeros, ones, counted up, or any.
fn bytes(dice: &mut Dice<'_>, n: usize, frame: &mut Vec<u8>) {
    match dice.below(4) {
        0 => frame.extend(std::iter::repeat_n(0, n)),
        1 => frame.extend(std::iter::repeat_n(0xff, n)),
        2 => frame.extend((0..n).map(|i| i as u8)),
        _ => frame.extend((0..n).map(|_| dice.byte())),
    }
}

/// No checksum (RFC 768).
fn clear_udp_checksum(frame: &mut [u8], headers: &headers::Headers) {
    if headers.transport == headers::Transport::Udp {
        let at = headers.transport_at + 6;
        frame[at..at + 2].fill(0);
    }
}

/// Checksums that are wrong, or spelled the other way.
fn spoil_checksums(dice: &mut Dice<'_>, frame: &mut [u8]) {
    if let Ok(Some(headers)) = headers::read(frame) {
        for at in checksum::offsets(&headers) {
            let value = dice.pick(&[0, 0xffff, 0x1234, 1]);
            if !dice.one_in(4) {
                frame[at..at + 2].copy_from_slice(&u16::to_be_bytes(value));
            }
        }
    }
}

/// One to four bytes changed, near the front more often than not, so that lengths, versions and types are hit.
fn flip_bytes(dice: &mut Dice<'_>, frame: &mut [u8]) {
    for _ in 0..1 + dice.below(4) {
        let reach = if dice.one_in(3) { frame.len() } else { frame.len().min(80) };
        if reach > 0 {
            frame[dice.below(reach)] ^= dice.byte();
        }
    }
}
