//! Deriving what the engine has done to a packet.
//!
//! The action of a flow is not computed from rules, sessions and routes: it is derived from one packet as it
//! was received and as it is sent. Only what is added to numbers is known from the session: a segment does
//! not show all of it, such as the shift of its window. The action is accepted only if, applied to the
//! received packet, it yields the sent one bit for bit.

use std::net::IpAddr;

use mmb_dpdk::{FastAction, FastMacs, FastNumbers, FastPort, FastTranslation};
use mmb_packet::{checksum, shift_window};

use super::frame::{Headers, ICMP, IP4, L3, UDP, parse_key};
use crate::refusal::RefusalReason;

/// The changes of a packet between ingress and egress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rewrite {
    pub macs: Option<FastMacs>,
    pub decrement_ttl: bool,
    pub translation: Option<FastTranslation>,
    pub numbers: Option<FastNumbers>,
}

/// Offsets of the numbers in a TCP header.
const SEQUENCE: usize = 4;
const ACKNOWLEDGMENT: usize = 8;
const WINDOW: usize = 14;
/// Offset of the options, if they are timestamps only (RFC 7323, appendix A), and how they begin.
const OPTIONS: usize = 20;
const STAMPS: [u8; 4] = [1, 1, 8, 10];

impl Rewrite {
    /// The action that applies these changes and sends to `out` frames of at most `max_len` bytes behind the
    /// Ethernet header.
    pub fn into_action(self, out: FastPort, max_len: u16) -> FastAction {
        let Rewrite { macs, decrement_ttl, translation, numbers } = self;
        FastAction {
            macs,
            decrement_ttl,
            translation,
            numbers,
            ..FastAction::forward_unchanged(out, max_len)
        }
    }
}

/// Derives the changes that turn a received frame into the sent one. `is_routed`: the engine has decremented
/// the TTL and replaced the Ethernet addresses. `numbers`: what the session has added to numbers.
///
/// # Errors
/// The frame was changed otherwise, or it is a segment whose options are changed with the numbers.
pub(crate) fn derive_rewrite(
    port: FastPort,
    is_routed: bool,
    numbers: Option<FastNumbers>,
    received: &[u8],
    sent: &[u8],
) -> Result<Rewrite, RefusalReason> {
    let other = RefusalReason::Otherwise;
    let headers = Headers::parse(received).ok_or(other)?;
    let key = parse_key(port, received).ok_or(other)?;
    let new = parse_key(port, sent).ok_or(other)?;
    let ttl = headers.ttl();
    let decrement_ttl = received[ttl].checked_sub(1) == sent.get(ttl).copied();
    if decrement_ttl != is_routed {
        return Err(other);
    }
    let is_same = (new.source, new.destination, new.source_port, new.destination_port)
        == (key.source, key.destination, key.source_port, key.destination_port);
    let translation = (!is_same).then_some(FastTranslation {
        source: new.source,
        destination: new.destination,
        source_port: new.source_port,
        destination_port: new.destination_port,
    });
    let addresses = |frame: &[u8]| frame.first_chunk::<12>().copied();
    let [d0, d1, d2, d3, d4, d5, s @ ..] = addresses(sent).ok_or(other)?;
    let macs = is_routed.then_some(FastMacs { destination: [d0, d1, d2, d3, d4, d5], source: s });
    if numbers.is_some_and(|numbers| !has_plain_options(headers, received, &numbers)) {
        return Err(RefusalReason::Session);
    }
    let rewrite = Rewrite { macs, decrement_ttl, translation, numbers };
    let mut expected = received.to_vec();
    apply(&rewrite, headers, &mut expected, sent).ok_or(other)?;
    if expected == sent { Ok(rewrite) } else { Err(other) }
}

/// Whether the kernel forwards a segment to whose numbers something is added: its options are timestamps, or
/// there are none and timestamps are not changed.
fn has_plain_options(headers: Headers, frame: &[u8], numbers: &FastNumbers) -> bool {
    let l4 = frame.get(headers.l4..headers.end).unwrap_or_default();
    match l4.get(12).map(|offset| offset >> 4) {
        Some(5) => !numbers.has_timestamps(),
        Some(8) => l4.get(OPTIONS..OPTIONS + STAMPS.len()) == Some(&STAMPS),
        _ => false,
    }
}

fn number(frame: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*frame.get(at..)?.first_chunk()?))
}

fn add(frame: &mut [u8], at: usize, added: u32) -> Option<()> {
    let new = number(frame, at)?.wrapping_add(added);
    frame.get_mut(at..at + 4)?.copy_from_slice(&new.to_be_bytes());
    Some(())
}

/// Applies changes to a frame. Checksums are computed from all bytes that they cover. The transport checksum
/// stays where neither it nor what it covers has changed.
fn apply(rewrite: &Rewrite, headers: Headers, frame: &mut [u8], sent: &[u8]) -> Option<()> {
    if let Some(FastMacs { destination, source }) = &rewrite.macs {
        frame.get_mut(..6)?.copy_from_slice(destination);
        frame.get_mut(6..12)?.copy_from_slice(source);
    }
    *frame.get_mut(headers.ttl())? -= u8::from(rewrite.decrement_ttl);
    if let Some(to) = &rewrite.translation {
        let source = if headers.is_ip4 { L3 + 12 } else { L3 + 8 };
        put_address(frame, source, to.source)?;
        put_address(frame, headers.l4 - if headers.is_ip4 { 4 } else { 16 }, to.destination)?;
        let [first, second] = headers.ports();
        if second != first {
            put(frame, second, to.destination_port)?;
        }
        put(frame, first, to.source_port)?;
    }
    if let Some(numbers) = rewrite.numbers {
        add(frame, headers.l4 + SEQUENCE, numbers.sequence)?;
        add(frame, headers.l4 + ACKNOWLEDGMENT, numbers.acknowledgment)?;
        let at = headers.l4 + WINDOW;
        let window = u16::from_be_bytes(*frame.get(at..)?.first_chunk()?);
        put(frame, at, shift_window(window, numbers.window_shift))?;
        if numbers.has_timestamps() {
            add(frame, headers.l4 + OPTIONS + 4, numbers.timestamp)?;
            add(frame, headers.l4 + OPTIONS + 8, numbers.echo)?;
        }
    }
    if headers.is_ip4 {
        put(frame, L3 + 10, 0)?;
        let sum = !checksum::fold(checksum::sum(frame.get(L3..L3 + IP4)?, 0));
        put(frame, L3 + 10, sum)?;
    }
    let at = headers.checksum();
    let [old, new] = [&*frame, sent].map(|frame| Some(*frame.get(at..)?.first_chunk::<2>()?));
    let (old, new) = (old?, new?);
    let is_absent = headers.proto == UDP && headers.is_ip4 && old == [0, 0];
    let is_covered = rewrite.translation.is_some() || rewrite.numbers.is_some();
    if is_absent || !is_covered && old == new {
        return Some(());
    }
    let sum = transport_checksum(frame, headers)?;
    put(frame, at, sum)
}

/// Computes the transport checksum from all bytes that it covers.
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
mod tests;
