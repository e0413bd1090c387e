//! Translation of packets: addresses, ports, and what else a session replaces in its packets.
//!
//! Theory of operation. A session is found by two keys, one for each direction, and a packet of one direction is
//! translated from the key by which it came in to the reverse of the other direction's key. All changes are made in
//! place, and every checksum that covers them follows by the difference (RFC 1624): what was right stays right, what was
//! wrong stays wrong, and payloads are never read.
//!
//! * [`translate_ip4`] is the short way, for IPv4 packets whose addresses and ports are all that changes: what there is to
//!   write, and what it does to both checksums, is computed once for a session and direction ([`Xlat4`]).
//! * [`translate`] does everything: IPv6, and the numbers of a [`Mangle`].
//! * [`untranslate`] undoes either.
//! * [`quote`] finds the packet that an ICMP error quotes, and [`translate_icmp_error`] translates both.
//!
//! Checksums keep the conventions of `mmb-rewrite`: a UDP checksum of zero says that there is none and stays; one that
//! comes to zero is written as 0xffff (RFC 768); the checksum of an ICMP message of zeros is 0xffff, for words that are
//! all zero must sum up to that; and one is never respelled (0x0000 for 0xffff) where nothing changed. With an IPv6
//! routing header that has segments left, the destination in the header is not the pseudo header's (RFC 8200, 8.1).
//! Of other protocols, those whose checksum covers a pseudo header are known by number: DCCP and UDP-Lite.

mod delta;
mod error;
mod headers;
mod mangle;
mod quote;
mod short;
#[cfg(test)]
mod tests;

pub use error::translate_icmp_error;
pub use mangle::Mangle;
pub use quote::{QuotedPacket, parse_quote};
pub use short::{translate_ip4, translate_ip4_common};

use mmb_packet::{DropReason, Meta};

use crate::{Direction, Key};
use headers::Change;

/// Translates a packet of a session, IPv4 or IPv6, that is not an ICMP error.
///
/// `head` is what [`mmb_packet::parse`] saw, and `meta` what it found. `from` is the key of the packet as it came in
/// and `to` the key it shall have, of the same kind; `direction` says which of the session's the packet travels in, for
/// the `mangle`. A fragment other than the first is given its session's keys: what lies behind its network header stays.
///
/// # Errors
/// [`DropReason::NatFailed`], and nothing was changed: the packet has no readable transport header (it is cut short, or
/// malformed) though its protocol's checksum covers addresses or ports, or its headers are not those of `from`.
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

/// Changes the headers of a packet, if they are those of `from`.
fn rewrite(head: &mut [u8], meta: &Meta, from: &Key, change: &Change) -> Result<(), DropReason> {
    if !headers::are_inside(head, meta) || !headers::suits(meta, from) {
        return Err(DropReason::NatFailed);
    }
    headers::rewrite(head, meta, change);
    Ok(())
}

/// Undoes [`translate`] (and so [`translate_ip4`]): `from` is the key that the packet has been given and `to` the one by which it
/// came in; everything else is as it was for the translation. An IPv4 identification that was replaced by a fixed one
/// is lost, and a flow label becomes that of the session's first packet.
///
/// # Errors
/// As [`translate`].
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
