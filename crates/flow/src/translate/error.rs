//! Translation of ICMP errors.

use mmb_packet::{DropReason, Kind, Meta};

use super::QuotedPacket;
use super::delta::Delta;
use super::headers::{Change, Zero, addresses4, rewrite, update_checksum};
use crate::{Direction, Key, Mangle};

/// Translates an ICMP error of a session, with the packet that it quotes, which becomes what its sender sent.
///
/// `head` is what [`mmb_packet::parse`] saw, `meta` what it found, and `quote` what [`super::parse_quote`] found. The session
/// and the `direction` that the error travels in are those that the reverse of the quotation's key found; `from` is this
/// key, and `to` the one that packets of this direction are translated to.
///
/// # Errors
/// [`DropReason::NatFailed`], and nothing was changed: `from` is not the reverse of the quotation's key, or `to` is of
/// another kind.
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

/// The addresses of the error itself. Its destination is the session's end: [`super::parse_quote`] has seen to that. Its source
/// may be a router on the way, which must not be seen either where the end's address is not (RFC 5508, REQ-5 c).
fn rewrite_ip4(head: &mut [u8], l3: usize, from: &Key, to: &Key) {
    let mut addresses = addresses4(to);
    let Some(ip) = head.get_mut(l3..).and_then(<[u8]>::first_chunk_mut::<20>) else { return };
    if from.source == to.source {
        addresses[..4].copy_from_slice(&ip[12..16]);
    }
    let delta = Delta::put(ip, 12, addresses);
    update_checksum(ip, 10, delta, Zero::Plain);
}

/// The same. Gives the change of the pseudo header.
fn rewrite_ip6(head: &mut [u8], l3: usize, from: &Key, to: &Key) -> Delta {
    let mut delta = Delta::put(head, l3 + 24, to.destination);
    if from.source != to.source {
        delta += Delta::put(head, l3 + 8, to.source);
    }
    delta
}
