//! Translation of packets: addresses, ports and other header fields.
//!
//! # Theory of operation
//!
//! A session has two keys, one per direction. A packet of one direction is translated from the key with which
//! it was received to the reverse of the other direction's key. Packets are edited in place. Checksums are
//! updated incrementally (RFC 1624): correct checksums stay correct, wrong ones stay wrong, and payloads are
//! never read.
//!
//! * [`translate_ip4`] is the fast path for IPv4 packets of which only addresses and ports change. The new
//!   values and the differences of both checksums are computed once per session and direction ([`Xlat4`]).
//! * [`translate`] covers all cases: IPv6, and the fields of a [`Mangle`].
//! * [`untranslate`] undoes either.
//! * [`parse_quote`] finds the packet that an ICMP error quotes, and [`translate_icmp_error`] translates
//!   both.
//!
//! Checksums follow the conventions of `mmb-rewrite`. A UDP checksum of zero means none, and stays. A
//! computed UDP checksum of zero is written as 0xffff (RFC 768). The checksum of an ICMP message of zeros is
//! 0xffff, since words that are all zero must sum up to that. If nothing changes, 0x0000 and 0xffff are never
//! exchanged. If an IPv6 routing header has segments left, the destination in the header is not the one in
//! the pseudo header (RFC 8200, 8.1). Of the other protocols, those with a checksum over a pseudo header are
//! known by number: DCCP and UDP-Lite.

mod delta;
mod error;
mod headers;
mod mangle;
mod offsets;
mod quote;
mod short;
#[cfg(test)]
mod tests;

pub use error::{translate_error_fragment, translate_icmp_error};
pub use mangle::Mangle;
pub use offsets::EditOffsets;
pub use quote::{QuotedPacket, parse_quote};
pub use short::{translate_ip4, translate_ip4_common};

use mmb_packet::{DropReason, Meta};

use crate::{Direction, Key, KeyError, parse_key};
use headers::Change;

/// Translates a packet of a session, IPv4 or IPv6, that is not an ICMP error.
///
/// `head` is what [`mmb_packet::parse`] read, and `meta` its result. `from` is the key of the packet as
/// received, and `to` the new key, of the same kind. `direction` is the packet's direction in the session;
/// the `mangle` depends on it. A later fragment gets the keys of its session: only its network header
/// changes.
///
/// # Errors
/// [`DropReason::NatFailed`], with the packet unchanged. The packet has no readable transport header (it is
/// truncated or malformed) although the protocol's checksum covers addresses or ports, or its headers are not
/// those of `from`.
pub fn translate(
    head: &mut [u8],
    meta: &Meta,
    from: &Key,
    to: &Key,
    mangle: Option<&Mangle>,
    direction: Direction,
) -> Result<(), DropReason> {
    rewrite(head, meta, from, &Change::along(from, to, mangle, direction))
}

/// Replaces nothing of a packet but the numbers of a `mangle`: the second half of [`translate`], for packets
/// whose addresses and ports were translated before, without a mangle.
///
/// # Errors
/// [`DropReason::NatFailed`], as for [`translate`].
pub fn translate_numbers(
    head: &mut [u8],
    meta: &Meta,
    mangle: &Mangle,
    direction: Direction,
) -> Result<(), DropReason> {
    let key = match parse_key(head, meta) {
        Ok(key) | Err(KeyError::FirstFragment(key)) => key,
        Err(_) => headers::network_key(head, meta).ok_or(DropReason::NatFailed)?,
    };
    translate(head, meta, &key, &key, Some(mangle), direction)
}

/// Edits the headers of a packet, if they match `from`.
fn rewrite(head: &mut [u8], meta: &Meta, from: &Key, change: &Change) -> Result<(), DropReason> {
    if !headers::are_inside(head, meta) || !headers::suits(meta, from) {
        return Err(DropReason::NatFailed);
    }
    headers::rewrite(head, meta, change);
    Ok(())
}

/// Undoes [`translate`] and [`translate_ip4`]. `from` is the key of the packet after translation, and `to`
/// the key with which it was received. All other arguments are those of the translation.
///
/// An IPv4 identification that was replaced by a fixed value is lost. A flow label becomes that of the
/// session's first packet.
///
/// # Errors
/// [`DropReason::NatFailed`], as for [`translate`].
pub fn untranslate(
    head: &mut [u8],
    meta: &Meta,
    from: &Key,
    to: &Key,
    mangle: Option<&Mangle>,
    direction: Direction,
) -> Result<(), DropReason> {
    rewrite(head, meta, from, &Change::undo(from, to, mangle, direction.opposite()))
}
