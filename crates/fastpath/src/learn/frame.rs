//! Parsing a frame to the key of its flow, as the XDP program does (bpf/fast_parse.h).

use std::net::IpAddr;

use mmb_dpdk::{FastGranularity, FastKey, FastPort};
use mmb_packet::checksum;

/// Offset of the network header: tagged frames are not eligible.
pub(super) const L3: usize = 14;
pub(super) const IP4: usize = 20;
const IP6: usize = 40;
pub(super) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
const ICMP6: u8 = 58;
/// TCP flags.
const FIN: u8 = 1;
const SYN: u8 = 1 << 1;
const RST: u8 = 1 << 2;
const ACK: u8 = 1 << 4;

/// The headers of an eligible packet.
#[derive(Clone, Copy)]
pub(super) struct Headers {
    pub is_ip4: bool,
    pub proto: u8,
    /// Offset of the transport header.
    pub l4: usize,
    /// Offset of the packet's end.
    pub end: usize,
}

impl Headers {
    /// Parses a whole packet without options and with a correct header checksum. Of the transport header,
    /// only the presence is checked.
    pub fn parse(frame: &[u8]) -> Option<Headers> {
        let ip = frame.get(L3..)?;
        let word = |at: usize| Some(usize::from(u16::from_be_bytes([*ip.get(at)?, *ip.get(at + 1)?])));
        let (is_ip4, proto, header, length) = match (frame.get(12..L3)?, ip.first()?) {
            ([8, 0], 0x45) => {
                let is_whole = word(6)? & 0xbfff == 0;
                let is_intact = checksum::fold(checksum::sum(ip.get(..IP4)?, 0)) == 0xffff;
                if !(is_whole && is_intact) {
                    return None;
                }
                (true, *ip.get(9)?, IP4, word(2)?)
            }
            ([0x86, 0xdd], first) if first >> 4 == 6 => (false, *ip.get(6)?, IP6, IP6 + word(4)?),
            _ => return None,
        };
        let least = match proto {
            TCP => 20,
            UDP => 8,
            ICMP if is_ip4 => 8,
            ICMP6 if !is_ip4 => 8,
            _ => return None,
        };
        (length >= header + least && length <= ip.len()).then_some(Headers {
            is_ip4,
            proto,
            l4: L3 + header,
            end: L3 + length,
        })
    }

    pub fn addresses(self, frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
        let ip = frame.get(L3..self.l4)?;
        if self.is_ip4 {
            let at = |at: usize| Some(IpAddr::from(*ip.get(at..)?.first_chunk::<4>()?));
            Some((at(12)?, at(16)?))
        } else {
            let at = |at: usize| Some(IpAddr::from(*ip.get(at..)?.first_chunk::<16>()?));
            Some((at(8)?, at(24)?))
        }
    }

    /// Offset of TTL or hop limit.
    pub fn ttl(self) -> usize {
        L3 + if self.is_ip4 { 8 } else { 7 }
    }

    /// Offset of the transport header's checksum.
    pub fn checksum(self) -> usize {
        self.l4
            + match self.proto {
                TCP => 16,
                UDP => 6,
                _ => 2,
            }
    }

    /// Offsets of both ports; for an echo, twice that of its identifier.
    pub fn ports(self) -> [usize; 2] {
        if matches!(self.proto, TCP | UDP) { [self.l4, self.l4 + 2] } else { [self.l4 + 4; 2] }
    }

    fn port(self, frame: &[u8], which: usize) -> Option<u16> {
        Some(u16::from_be_bytes(*frame.get(self.ports()[which]..)?.first_chunk()?))
    }
}

/// The flow of a frame from a port; None: the kernel cannot forward it.
pub(crate) fn parse_key(port: FastPort, frame: &[u8]) -> Option<FastKey> {
    let headers = Headers::parse(frame)?;
    let l4 = frame.get(headers.l4..headers.end)?;
    let is_valid = match headers.proto {
        TCP => {
            let offset = usize::from(l4[12] >> 4) * 4;
            offset >= 20 && offset <= l4.len()
        }
        UDP => {
            let length = usize::from(u16::from_be_bytes([l4[4], l4[5]]));
            length == l4.len() && (headers.is_ip4 || l4[6..8] != [0, 0])
        }
        _ => l4[1] == 0 && matches!((headers.proto, l4[0]), (ICMP, 0 | 8) | (ICMP6, 128 | 129)),
    };
    if !is_valid {
        return None;
    }
    let (source, destination) = headers.addresses(frame)?;
    let is_echo = !matches!(headers.proto, TCP | UDP);
    Some(FastKey {
        granularity: FastGranularity::Flow,
        port,
        proto: headers.proto,
        source,
        destination,
        source_port: headers.port(frame, 0)?,
        destination_port: if is_echo { u16::from(l4[0]) } else { headers.port(frame, 1)? },
    })
}

/// The role of a packet in its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketRole {
    /// More packets may follow.
    First,
    /// Packets came before.
    Later,
    /// It opens a session; packets follow if it is answered.
    Opening,
    /// No packet follows.
    Last,
}

/// The role of a frame in its flow. `needs_sessions`: packets open sessions.
pub(crate) fn packet_role(key: &FastKey, frame: &[u8], needs_sessions: bool) -> PacketRole {
    if key.proto != TCP {
        return PacketRole::First;
    }
    let l4 = if key.source.is_ipv4() { L3 + IP4 } else { L3 + IP6 };
    let flags = frame.get(l4 + 13).copied().unwrap_or(0);
    match flags & (SYN | ACK) {
        _ if flags & (FIN | RST) != 0 => PacketRole::Last,
        SYN if needs_sessions => PacketRole::Opening,
        0 | ACK => PacketRole::Later,
        _ => PacketRole::First,
    }
}

/// Whether a frame is a SYN or SYN-ACK. Functions may change its options, and those of no other segment.
pub(crate) fn has_syn(key: &FastKey, frame: &[u8]) -> bool {
    let role = packet_role(key, frame, true);
    key.proto == TCP && matches!(role, PacketRole::Opening | PacketRole::First)
}

/// Whether a frame is a SYN-ACK.
pub(crate) fn is_tcp_answer(key: &FastKey, frame: &[u8]) -> bool {
    key.proto == TCP && packet_role(key, frame, true) == PacketRole::First
}

#[cfg(test)]
mod tests;
