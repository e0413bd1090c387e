//! The operations of `ip4-input` and `ip6-input` that depend on the IP version.

use std::net::IpAddr;

use mmb_packet::{
    DropReason, Kind, Meta, PacketFlags, ParsedHeaders, PlainHeaders, checksum, parse_ip4, parse_ip6,
    parse_plain_ip4, parse_plain_ip6,
};
use mmb_route::RouteTable;

use super::locals::{hash4, hash6};
use crate::engine::node::vector::ROUTED_L3 as L3;
use crate::features::route::martian::{is_impossible4, is_impossible6};

/// An IP version. All functions but the parsers are for packets of routed ports.
pub(crate) trait IpVersion {
    /// As [`Kind::l3`] returns it.
    const KIND: u8;

    /// The parsed headers of a plain packet.
    type Headers: PlainHeaders;

    /// Parses a plain packet whose network header begins at `l3`. Without a result, the packet may still be
    /// valid.
    fn parse_plain(head: &[u8], l3: usize, length: usize, meta: &mut Meta) -> Option<Self::Headers>;

    /// Whether a plain packet can be forwarded and neither address is in the filter of
    /// [`crate::features::ip::locals::LocalAddresses::bits`].
    fn is_forwarded(headers: &Self::Headers, locals: u64) -> bool;

    /// Whether a plain packet has addresses that hardly any packet may have. On any port.
    fn is_impossible(headers: &Self::Headers) -> bool;

    /// Source and destination, of the packet whose network header is at `l3`. On any port.
    fn addresses(head: &[u8], l3: usize) -> Option<(IpAddr, IpAddr)>;

    /// The hash of the packet's flow.
    fn flow_hash(headers: &Self::Headers) -> u32;

    /// Parses any packet.
    fn parse(head: &[u8], length: usize, meta: &mut Meta) -> Result<(), DropReason>;

    /// Parses the network header alone, of a packet that is only forwarded. Returns whether its header allows
    /// that; false is not final. The flow hash is 0 afterwards.
    fn parse_forwardable(head: &[u8], length: usize, meta: &mut Meta) -> bool;

    /// Prefetches what the route lookup reads first.
    fn prefetch_route(table: &RouteTable, head: &[u8]);

    /// Whether a header has no options, a right checksum if it has one, and a TTL above 1.
    fn is_forwardable(head: &[u8]) -> bool;

    /// The hash of the destination ([`hash4`], [`hash6`]).
    fn destination_hash(head: &[u8]) -> u32;

    /// The destination address.
    fn destination(head: &[u8]) -> Option<IpAddr>;
}

pub(crate) struct Ip4;
pub(crate) struct Ip6;

const LENGTH4: usize = 20;
const LENGTH6: usize = 40;

/// An Ethernet header and an IPv4 header without options.
type Head4 = [u8; L3 + LENGTH4];
/// An Ethernet header and an IPv6 header.
type Head6 = [u8; L3 + LENGTH6];

#[inline(always)]
fn is_forwardable4(head: &Head4) -> bool {
    let long =
        |at: usize| u64::from(u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
    let sum = long(L3) + long(L3 + 4) + long(L3 + 8) + long(L3 + 12) + long(L3 + 16);
    (head[L3] == 0x45) & checksum::is_valid(sum) & (head[L3 + 8] > 1)
}

/// Writes what [`IpVersion::parse_forwardable`] finds; the packet ends at `end`.
#[inline(always)]
fn describe(meta: &mut Meta, ip: u8, proto: u8, l4: usize, end: usize) {
    meta.flow_hash = 0;
    meta.l4_off = l4 as u16;
    meta.end = end.min(usize::from(u16::MAX)) as u16;
    meta.kind = Kind(ip);
    meta.proto = proto;
    meta.flags = PacketFlags::empty();
}

impl IpVersion for Ip4 {
    const KIND: u8 = Kind::IP4;
    type Headers = ParsedHeaders<8>;

    #[inline(always)]
    fn parse_plain(head: &[u8], l3: usize, length: usize, meta: &mut Meta) -> Option<ParsedHeaders<8>> {
        parse_plain_ip4(head, l3, length, meta)
    }

    #[inline(always)]
    fn is_forwarded(headers: &ParsedHeaders<8>, locals: u64) -> bool {
        let [source, destination] = headers.octets();
        let is_local = locals >> hash4(destination) | locals >> hash4(source);
        headers.is_forwardable() & (is_local & 1 == 0)
    }

    #[inline(always)]
    fn is_impossible(headers: &ParsedHeaders<8>) -> bool {
        let [source, destination] = headers.octets();
        is_impossible4(source, destination)
    }

    fn addresses(head: &[u8], l3: usize) -> Option<(IpAddr, IpAddr)> {
        let [source, destination]: [[u8; 4]; 2] = *head.get(l3 + 12..)?.as_chunks().0.first_chunk()?;
        Some((source.into(), destination.into()))
    }

    #[inline(always)]
    fn flow_hash(headers: &ParsedHeaders<8>) -> u32 {
        headers.flow_hash()
    }

    fn parse(head: &[u8], length: usize, meta: &mut Meta) -> Result<(), DropReason> {
        parse_ip4(head, length, meta)
    }

    #[inline(always)]
    fn parse_forwardable(head: &[u8], length: usize, meta: &mut Meta) -> bool {
        let Some(head): Option<&Head4> = head.first_chunk() else { return false };
        let total = usize::from(u16::from_be_bytes([head[L3 + 2], head[L3 + 3]]));
        if !(is_forwardable4(head) & (total >= LENGTH4) & (L3 + total <= length)) {
            return false;
        }
        describe(meta, Kind::IP4, head[L3 + 9], L3 + LENGTH4, L3 + total);
        true
    }

    #[inline(always)]
    fn prefetch_route(table: &RouteTable, head: &[u8]) {
        if let Some(to) = head.get(L3 + 16..).and_then(|to| to.first_chunk()) {
            table.ip4.prefetch(u32::from_be_bytes(*to));
        }
    }

    #[inline(always)]
    fn is_forwardable(head: &[u8]) -> bool {
        head.first_chunk().is_some_and(is_forwardable4)
    }

    #[inline(always)]
    fn destination_hash(head: &[u8]) -> u32 {
        let to = head.get(L3 + 16..).and_then(|to| to.first_chunk());
        to.map_or(0, |to| hash4(*to))
    }

    fn destination(head: &[u8]) -> Option<IpAddr> {
        let to: &[u8; 4] = head.get(L3 + 16..)?.first_chunk()?;
        Some(IpAddr::from(*to))
    }
}

impl IpVersion for Ip6 {
    const KIND: u8 = Kind::IP6;
    type Headers = ParsedHeaders<32>;

    #[inline(always)]
    fn parse_plain(head: &[u8], l3: usize, length: usize, meta: &mut Meta) -> Option<ParsedHeaders<32>> {
        parse_plain_ip6(head, l3, length, meta)
    }

    #[inline(always)]
    fn is_forwarded(headers: &ParsedHeaders<32>, locals: u64) -> bool {
        let is_local = locals >> hash6(headers.destination()) | locals >> hash6(headers.source());
        headers.is_forwardable() & (is_local & 1 == 0)
    }

    #[inline(always)]
    fn is_impossible(headers: &ParsedHeaders<32>) -> bool {
        is_impossible6(headers.source(), headers.destination())
    }

    fn addresses(head: &[u8], l3: usize) -> Option<(IpAddr, IpAddr)> {
        let [source, destination]: [[u8; 16]; 2] = *head.get(l3 + 8..)?.as_chunks().0.first_chunk()?;
        Some((source.into(), destination.into()))
    }

    #[inline(always)]
    fn flow_hash(headers: &ParsedHeaders<32>) -> u32 {
        headers.flow_hash()
    }

    fn parse(head: &[u8], length: usize, meta: &mut Meta) -> Result<(), DropReason> {
        parse_ip6(head, length, meta)
    }

    #[inline(always)]
    fn parse_forwardable(head: &[u8], length: usize, meta: &mut Meta) -> bool {
        let Some(head): Option<&Head6> = head.first_chunk() else { return false };
        let payload = usize::from(u16::from_be_bytes([head[L3 + 4], head[L3 + 5]]));
        let end = L3 + LENGTH6 + payload;
        // A payload length of 0 may be that of a jumbogram.
        if !((head[L3] >> 4 == 6) & (payload > 0) & (head[L3 + 7] > 1) & (end <= length)) {
            return false;
        }
        describe(meta, Kind::IP6, head[L3 + 6], L3 + LENGTH6, end);
        true
    }

    #[inline(always)]
    fn prefetch_route(table: &RouteTable, head: &[u8]) {
        if let Some(to) = head.get(L3 + 24..).and_then(|to| to.first_chunk()) {
            table.ip6.prefetch(u128::from_be_bytes(*to));
        }
    }

    #[inline(always)]
    fn is_forwardable(head: &[u8]) -> bool {
        head.get(L3 + 7).is_some_and(|hops| *hops > 1)
    }

    #[inline(always)]
    fn destination_hash(head: &[u8]) -> u32 {
        let to = head.get(L3 + 24..).and_then(|to| to.first_chunk());
        to.map_or(0, |to| hash6(u128::from_be_bytes(*to)))
    }

    fn destination(head: &[u8]) -> Option<IpAddr> {
        let to: &[u8; 16] = head.get(L3 + 24..)?.first_chunk()?;
        Some(IpAddr::from(*to))
    }
}

#[cfg(test)]
mod tests {
    use mmb_packet::build::{self, Frame, Udp};
    use mmb_packet::checksum::{fold, sum};
    use proptest::prelude::*;

    use super::*;

    /// What both parsers find.
    fn network(meta: &Meta) -> (u8, u8, u16, u16) {
        (meta.kind.l3(), meta.proto, meta.l4_off, meta.end)
    }

    proptest! {
        /// The short parser accepts only packets whose IP header the full parser accepts, and both find the
        /// same. A cut L4 header is no error for it: only rules and sessions need that header.
        #[test]
        fn short_and_full_parser_agree(
            four: bool,
            hits in prop::collection::vec((14..54usize, any::<u8>()), 0..4),
            mend: bool,
            cut in 0..80usize,
        ) {
            let mut frame = match four {
                true => Frame::new(build::Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Udp::new(1, 2)),
                false => Frame::new(build::Ip6::new([1; 16], [2; 16]), Udp::new(1, 2)),
            }
            .payload([5; 20]).build();
            for (at, byte) in hits {
                frame[at] = byte;
            }
            if mend {
                frame[24..26].fill(0);
                let csum = !fold(sum(&frame[14..34], 0));
                frame[24..26].copy_from_slice(&csum.to_be_bytes());
            }
            frame.truncate(cut.max(14));
            let start = Meta { l3_off: 14, ethertype: if four { 0x0800 } else { 0x86dd }, ..Meta::default() };
            let (mut short, mut whole) = (start, start);
            let (looked, parsed) = match four {
                true => (Ip4::parse_forwardable(&frame, frame.len(), &mut short), Ip4::parse(&frame, frame.len(), &mut whole)),
                false => (Ip6::parse_forwardable(&frame, frame.len(), &mut short), Ip6::parse(&frame, frame.len(), &mut whole)),
            };
            if looked && four {
                let valid_network = parsed.is_ok() || parsed.is_err_and(DropReason::is_transport_error);
                prop_assert!(valid_network, "{:?}", parsed);
                prop_assert_eq!(network(&short), network(&whole));
                prop_assert_eq!(fold(sum(&frame[14..34], 0)), 0xffff);
                prop_assert!(frame[22] > 1);
            } else if looked && parsed.is_ok() {
                prop_assert_eq!((short.kind.l3(), short.end), (whole.kind.l3(), whole.end));
                prop_assert!(frame[21] > 1);
            }
            if four && frame.len() >= 34 {
                let right = fold(sum(&frame[14..34], 0)) == 0xffff;
                prop_assert_eq!(Ip4::is_forwardable(&frame), right && frame[14] == 0x45 && frame[22] > 1);
            }
        }
    }
}
