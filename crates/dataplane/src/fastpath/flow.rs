//! Which packets are of a flow that the kernel could take over, and what has happened to one on its way through the engine.
//!
//! The XDP program looks at packets as [`key_of`] does. What it will do with them is not derived from rules, sessions and routes:
//! it is read off one packet, as it came and as it went, and believed only if doing just that to the packet as it came
//! gives the packet as it went, bit for bit.

use std::net::IpAddr;

use mmb_dpdk::{FastAction, FastGranularity, FastKey, FastMacs, FastPort, FastTranslation};
use mmb_packet::checksum;

use super::Refused;

/// Where the network header begins: frames with tags are not for the kernel.
const L3: usize = 14;
const IP4: usize = 20;
const IP6: usize = 40;
const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;
/// Flags of TCP.
const FIN: u8 = 1;
const SYN: u8 = 1 << 1;
const RST: u8 = 1 << 2;
const ACK: u8 = 1 << 4;

/// The headers of a packet that may be of a flow.
#[derive(Clone, Copy)]
struct Headers {
    is_ip4: bool,
    proto: u8,
    /// Where the transport header begins.
    l4: usize,
    /// Where the packet ends.
    end: usize,
}

impl Headers {
    /// Those of a whole packet without options, that has come undamaged; nothing is said of its transport header but that it is there.
    fn of(frame: &[u8]) -> Option<Headers> {
        let ip = frame.get(L3..)?;
        let word = |at: usize| Some(usize::from(u16::from_be_bytes([*ip.get(at)?, *ip.get(at + 1)?])));
        let (is_ip4, proto, header, length) = match (frame.get(12..L3)?, ip.first()?) {
            ([8, 0], 0x45) => {
                let whole = word(6)? & 0xbfff == 0;
                let sound = checksum::fold(checksum::sum(ip.get(..IP4)?, 0)) == 0xffff;
                if !(whole && sound) {
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

    fn addresses(self, frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
        let ip = frame.get(L3..self.l4)?;
        if self.is_ip4 {
            let at = |at: usize| Some(IpAddr::from(*ip.get(at..)?.first_chunk::<4>()?));
            Some((at(12)?, at(16)?))
        } else {
            let at = |at: usize| Some(IpAddr::from(*ip.get(at..)?.first_chunk::<16>()?));
            Some((at(8)?, at(24)?))
        }
    }

    /// Where the number is that is one less after a hop.
    fn ttl(self) -> usize {
        L3 + if self.is_ip4 { 8 } else { 7 }
    }

    /// Where the checksum of the transport header is.
    fn checksum(self) -> usize {
        self.l4
            + match self.proto {
                TCP => 16,
                UDP => 6,
                _ => 2,
            }
    }

    /// Where the two numbers are that packets of a flow have in common: both ports, or the identifier of an echo.
    fn ports(self) -> [usize; 2] {
        if matches!(self.proto, TCP | UDP) { [self.l4, self.l4 + 2] } else { [self.l4 + 4; 2] }
    }

    fn port(self, frame: &[u8], which: usize) -> Option<u16> {
        Some(u16::from_be_bytes(*frame.get(self.ports()[which]..)?.first_chunk()?))
    }
}

/// The flow of a frame that has come in by a port, if the kernel could take care of it.
pub(super) fn key_of(port: FastPort, frame: &[u8]) -> Option<FastKey> {
    let headers = Headers::of(frame)?;
    let l4 = frame.get(headers.l4..headers.end)?;
    let of_flow = match headers.proto {
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
    if !of_flow {
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

/// What a packet is to its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Others may follow.
    First,
    /// Others have come before.
    Later,
    /// It opens a session: it is for the answer to say whether others follow.
    Opening,
    /// None follows.
    Useless,
}

/// What a frame with a key is to its flow. `sessions`: packets open sessions.
pub(super) fn place(key: &FastKey, frame: &[u8], sessions: bool) -> Place {
    if key.proto != TCP {
        return Place::First;
    }
    let l4 = if key.source.is_ipv4() { L3 + IP4 } else { L3 + IP6 };
    let flags = frame.get(l4 + 13).copied().unwrap_or(0);
    match flags & (SYN | ACK) {
        _ if flags & (FIN | RST) != 0 => Place::Useless,
        SYN if sessions => Place::Opening,
        0 | ACK => Place::Later,
        _ => Place::First,
    }
}

/// Whether a frame with a key, which opens or resets nothing, is the answer of TCP to what opens a connection.
pub(super) fn is_answer(key: &FastKey, frame: &[u8]) -> bool {
    key.proto == TCP && place(key, frame, true) == Place::First
}

/// What has happened to a frame of a flow between coming in and going out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub macs: Option<FastMacs>,
    pub decrement_ttl: bool,
    pub translation: Option<FastTranslation>,
}

impl Done {
    /// As the kernel is to do it: out by `out`, where `max_len` is the longest that goes behind an Ethernet header.
    pub fn by(self, out: FastPort, max_len: u16) -> FastAction {
        let Done { macs, decrement_ttl, translation } = self;
        FastAction { macs, decrement_ttl, translation, ..FastAction::forward_unchanged(out, max_len) }
    }
}

/// Reads off what has happened to a frame that has come in by a port, and was `before` and is `after`. `is_routed`: whether it should
/// have gone a hop further, with other Ethernet addresses.
pub(super) fn compare(port: FastPort, is_routed: bool, before: &[u8], after: &[u8]) -> Result<Done, Refused> {
    let other = Refused::Otherwise;
    let headers = Headers::of(before).ok_or(other)?;
    let key = key_of(port, before).ok_or(other)?;
    let end = key_of(port, after).ok_or(other)?;
    let ttl = headers.ttl();
    let decrement_ttl = before[ttl].checked_sub(1) == after.get(ttl).copied();
    if decrement_ttl != is_routed {
        return Err(other);
    }
    let same = (end.source, end.destination, end.source_port, end.destination_port)
        == (key.source, key.destination, key.source_port, key.destination_port);
    let translation = (!same).then_some(FastTranslation {
        source: end.source,
        destination: end.destination,
        source_port: end.source_port,
        destination_port: end.destination_port,
    });
    let addresses = |frame: &[u8]| frame.first_chunk::<12>().copied();
    let [d0, d1, d2, d3, d4, d5, s @ ..] = addresses(after).ok_or(other)?;
    let macs = is_routed.then_some(FastMacs { destination: [d0, d1, d2, d3, d4, d5], source: s });
    let done = Done { macs, decrement_ttl, translation };
    let mut expected = before.to_vec();
    replay(&done, headers, &mut expected, after).ok_or(other)?;
    if expected == after { Ok(done) } else { Err(other) }
}

/// Does to a frame what has been read off. Its checksums are made from all that they cover; the transport header's is left alone
/// where it has not changed and nothing that it covers has.
fn replay(done: &Done, headers: Headers, frame: &mut [u8], after: &[u8]) -> Option<()> {
    if let Some(FastMacs { destination, source }) = &done.macs {
        frame.get_mut(..6)?.copy_from_slice(destination);
        frame.get_mut(6..12)?.copy_from_slice(source);
    }
    *frame.get_mut(headers.ttl())? -= u8::from(done.decrement_ttl);
    if let Some(to) = &done.translation {
        let source = if headers.is_ip4 { L3 + 12 } else { L3 + 8 };
        put_address(frame, source, to.source)?;
        put_address(frame, headers.l4 - if headers.is_ip4 { 4 } else { 16 }, to.destination)?;
        let [first, second] = headers.ports();
        if second != first {
            put(frame, second, to.destination_port)?;
        }
        put(frame, first, to.source_port)?;
    }
    if headers.is_ip4 {
        put(frame, L3 + 10, 0)?;
        let sum = !checksum::fold(checksum::sum(frame.get(L3..L3 + IP4)?, 0));
        put(frame, L3 + 10, sum)?;
    }
    let at = headers.checksum();
    let [old, new] = [&*frame, after].map(|frame| Some(*frame.get(at..)?.first_chunk::<2>()?));
    let (old, new) = (old?, new?);
    let is_none = headers.proto == UDP && headers.is_ip4 && old == [0, 0];
    if is_none || done.translation.is_none() && old == new {
        return Some(());
    }
    let sum = transport_checksum(frame, headers)?;
    put(frame, at, sum)
}

/// The checksum of the transport header, from all that it covers.
fn transport_checksum(frame: &mut [u8], headers: Headers) -> Option<u16> {
    put(frame, headers.checksum(), 0)?;
    let l4 = frame.get(headers.l4..headers.end)?;
    let pseudo = match headers.addresses(frame)? {
        (IpAddr::V4(_), IpAddr::V4(_)) if headers.proto == ICMP => 0,
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            checksum::pseudo4(source.octets(), destination.octets(), headers.proto, l4.len() as u16)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            checksum::pseudo6(&source.octets(), &destination.octets(), headers.proto, l4.len() as u32)
        }
        _ => return None,
    };
    match !checksum::fold(checksum::sum(l4, pseudo)) {
        0 if headers.proto == UDP => Some(0xffff),
        sum => Some(sum),
    }
}

fn put(frame: &mut [u8], at: usize, value: u16) -> Option<()> {
    frame.get_mut(at..at + 2)?.copy_from_slice(&value.to_be_bytes());
    Some(())
}

fn put_address(frame: &mut [u8], at: usize, address: IpAddr) -> Option<()> {
    match address {
        IpAddr::V4(address) => frame.get_mut(at..at + 4)?.copy_from_slice(&address.octets()),
        IpAddr::V6(address) => frame.get_mut(at..at + 16)?.copy_from_slice(&address.octets()),
    }
    Some(())
}

#[cfg(test)]
#[path = "flow_test.rs"]
mod tests;
