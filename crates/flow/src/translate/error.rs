//! Translation of ICMP errors.

use mmb_packet::{DropReason, Kind, Meta};

use super::QuotedPacket;
use super::delta::Delta;
use super::headers::{Change, Zero, addresses4, rewrite, update_checksum};
use crate::{Direction, Key, Mangle};

/// Translates an ICMP error of a session and the packet that it quotes. The quoted packet becomes what its
/// sender sent.
///
/// `head` is what [`mmb_packet::parse`] read, `meta` its result, and `quote` the result of
/// [`super::parse_quote`]. `from` is the reverse of the key of the quoted packet. It identifies the session
/// and the `direction` in which the error travels. `to` is the key to which packets of this direction are
/// translated.
///
/// # Errors
/// [`DropReason::NatFailed`], with the packet unchanged: `from` is not the reverse of the quoted key, or `to`
/// is of another kind.
pub fn translate_icmp_error(
    head: &mut [u8],
    meta: &Meta,
    quote: &QuotedPacket,
    from: &Key,
    to: &Key,
    mangle: Option<&Mangle>,
    direction: Direction,
) -> Result<(), DropReason> {
    if quote.key.reversed() != *from || from.kind != to.kind {
        return Err(DropReason::NatFailed);
    }
    let sent = to.reversed();
    let quoted = rewrite(head, &quote.meta, &Change::undo(&quote.key, &sent, mangle, direction));
    let l3 = usize::from(meta.l3_off);
    let addresses = if meta.kind.l3() == Kind::IP4 {
        rewrite_ip4(head, l3, from, to);
        Delta::default()
    } else {
        rewrite_ip6(head, l3, from, to)
    };
    update_checksum(head, usize::from(meta.l4_off) + 2, quoted + addresses, Zero::Plain);
    Ok(())
}

/// Translates a later fragment of an ICMP error whose first fragment [`translate_icmp_error`] has translated.
/// `from` and `to` are as there. Only the addresses change: the first fragment has the checksum.
pub fn translate_error_fragment(head: &mut [u8], meta: &Meta, from: &Key, to: &Key) {
    let l3 = usize::from(meta.l3_off);
    if meta.kind.l3() == Kind::IP4 {
        rewrite_ip4(head, l3, from, to);
    } else {
        rewrite_ip6(head, l3, from, to);
    }
}

/// Edits the addresses of the error itself. Its destination is the endpoint of the session, as
/// [`super::parse_quote`] has checked. Its source may be a router, which must stay hidden where the endpoint
/// is hidden (RFC 5508, REQ-5 c).
fn rewrite_ip4(head: &mut [u8], l3: usize, from: &Key, to: &Key) {
    let mut addresses = addresses4(to);
    let Some(ip) = head.get_mut(l3..).and_then(<[u8]>::first_chunk_mut::<20>) else { return };
    if from.source == to.source {
        addresses[..4].copy_from_slice(&ip[12..16]);
    }
    let delta = Delta::put(ip, 12, addresses);
    update_checksum(ip, 10, delta, Zero::Plain);
}

/// Edits the IPv6 addresses of the error. Returns the difference of the pseudo header.
fn rewrite_ip6(head: &mut [u8], l3: usize, from: &Key, to: &Key) -> Delta {
    let mut delta = Delta::put(head, l3 + 24, to.destination);
    if from.source != to.source {
        delta += Delta::put(head, l3 + 8, to.source);
    }
    delta
}
