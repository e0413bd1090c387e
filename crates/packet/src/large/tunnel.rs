//! Large frames inside a tunnel: the headers of the packet that carries the tunnel.
//!
//! Each segment has a packet of its own around it, as Linux makes them (`__skb_udp_tunnel_segment`,
//! `gre_gso_segment`, `inet_gso_segment`).

use super::{
    IP4_LENGTH, IP6, IP6_LENGTH, LargeFrame, Network, TCP, UDP, UDP_CHECKSUM, UDP_LENGTH, outermost, set,
};
use crate::bytes;
use crate::checksum::{fold, sum_pieces};

const GRE: u8 = 47;
/// The first byte of a GRE header says with this bit that there is a checksum (RFC 2784), at this offset.
const GRE_HAS_CHECKSUM: u8 = 0x80;
const GRE_CHECKSUM: usize = 4;
/// Offsets of the numbers of the next protocol.
const IP4_PROTOCOL: usize = 9;
const IP6_NEXT: usize = 6;

/// What carries the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outer {
    network: Network,
    /// Offset of the header behind the network header.
    l4: usize,
    protocol: u8,
}

impl LargeFrame {
    /// Finds the headers of a frame of `length` bytes that begins with `head`, whose segments are those of
    /// TCP or UDP inside a tunnel (VXLAN, Geneve, GRE, IP in IP). `transport`: the offset of that inner
    /// header. `None` if there are no such headers, or `head` does not hold all of them.
    pub fn parse_tunnel(head: &[u8], length: usize, transport: usize) -> Option<LargeFrame> {
        let (network, meta) = outermost(head, length)?;
        let outer = Outer { network, l4: meta.l4_off.into(), protocol: meta.proto };
        let (inner, protocol) =
            inner_network(head, length, transport).filter(|(inner, _)| inner.l3 >= outer.l4)?;
        let frame = LargeFrame::of(head, inner, transport, length, protocol == TCP)?;
        Some(LargeFrame { outer: Some(outer), ..frame })
    }

    /// Turns the headers around the tunnel into those of a segment, once what is inside is finished.
    pub(super) fn finish_outer(&self, head: &mut [u8], rest: &[&[u8]], length: usize, number: usize) -> bool {
        let Some(Outer { network, l4, protocol }) = self.outer else { return true };
        network.finish(head, length, number);
        let covered = length - l4;
        match protocol {
            UDP => {
                set(head, l4 + UDP_LENGTH, covered as u16);
                let has_checksum = head[l4 + UDP_CHECKSUM..][..2] != [0; 2];
                !has_checksum || network.write_checksum(head, rest, l4, false, covered)
            }
            GRE if head[l4] & GRE_HAS_CHECKSUM != 0 => {
                set(head, l4 + GRE_CHECKSUM, 0);
                let sum = sum_pieces(&head[l4..], rest.iter().copied(), covered);
                sum.map(|sum| set(head, l4 + GRE_CHECKSUM, !fold(sum))).is_some()
            }
            _ => true,
        }
    }
}

/// Finds the IP header that ends at `transport`, by its own length and that of the packet, and the number of
/// its protocol.
fn inner_network(head: &[u8], length: usize, transport: usize) -> Option<(Network, u8)> {
    let number = |at: usize| bytes::at(head, at).map(|word| usize::from(u16::from_be_bytes(*word)));
    let ip4 = (5..=15usize).filter_map(|words| {
        let l3 = transport.checked_sub(words * 4)?;
        let fits = *head.get(l3)? == 0x40 | words as u8 && l3 + number(l3 + IP4_LENGTH)? == length;
        fits.then_some((Network { l3, is_ip4: true }, *head.get(l3 + IP4_PROTOCOL)?))
    });
    let ip6 = transport.checked_sub(IP6).and_then(|l3| {
        let fits = head.get(l3)? >> 4 == 6 && transport + number(l3 + IP6_LENGTH)? == length;
        fits.then_some((Network { l3, is_ip4: false }, *head.get(l3 + IP6_NEXT)?))
    });
    ip4.chain(ip6).find(|(_, protocol)| [TCP, UDP].contains(protocol))
}
