//! Decodes netlink messages.
//!
//! Attributes are decoded one by one, and unknown ones are skipped without looking at their contents. So an
//! attribute of a newer kernel cannot make a route invisible. Formats: rtnetlink(7), `linux/rtnetlink.h`,
//! `linux/if_link.h`, `linux/if_addr.h`, `linux/neighbour.h`, `linux/nexthop.h`, `linux/netconf.h`.
//!
//! Tests compare this decoder with the crate `netlink-packet-route`. It takes a seventh of the crate's time
//! per route, because it does not allocate a list of attributes (figures in `docs/routing.md`).

use std::net::IpAddr;

use libc::{
    RTM_DELADDR, RTM_DELLINK, RTM_DELNEIGH, RTM_DELROUTE, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWNEIGH,
    RTM_NEWROUTE,
};
use netlink_packet_core::{NLM_F_APPEND, NLM_F_REPLACE, NlaBuffer, NlasIterator};

use super::event::{
    Address, Event, InsertMode, Link, Neighbor, NextHopSpec, NextHopSpecs, NexthopObject, Route,
};

// Constants that `libc` lacks: linux/rtnetlink.h, linux/nexthop.h, linux/netconf.h, linux/neighbour.h.
pub(crate) const RTM_NEWNETCONF: u16 = 80;
pub(crate) const RTM_GETNETCONF: u16 = 82;
pub(crate) const RTM_NEWNEXTHOP: u16 = 104;
pub(crate) const RTM_DELNEXTHOP: u16 = 105;
pub(crate) const RTM_GETNEXTHOP: u16 = 106;
const RTA_VIA: u16 = 18;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_ENCAP: u16 = 22;
const RTA_NEWDST: u16 = 19;
const RTA_NH_ID: u16 = 30;
const RTAX_LOCK: u16 = 1;
const RTAX_MTU: u16 = 2;
const RTM_F_CLONED: u32 = 0x200;
const NTF_PROXY: u8 = 0x08;
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_BLACKHOLE: u16 = 4;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP: u16 = 8;
const NHA_FDB: u16 = 11;
const NETCONFA_IFINDEX: u16 = 1;
const NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN: u16 = 6;
const IFLA_VRF_TABLE: u16 = 1;

const V4: u8 = libc::AF_INET as u8;
const V6: u8 = libc::AF_INET6 as u8;

/// The event that a message reports. `Ok(None)` if it is irrelevant. `dump`: the message is part of a dump.
///
/// # Errors
/// The message is shorter than its type requires, or an address has an invalid length.
pub(crate) fn decode(kind: u16, flags: u16, body: &[u8], dump: bool) -> Result<Option<Event>, Malformed> {
    let mode = match flags {
        _ if dump => InsertMode::Dump,
        flags if flags & NLM_F_REPLACE != 0 => InsertMode::Replace,
        flags if flags & NLM_F_APPEND != 0 => InsertMode::Append,
        _ => InsertMode::Prepend,
    };
    Ok(match kind {
        RTM_NEWLINK => link(body)?.map(Event::Link),
        RTM_DELLINK => link(body)?.map(|link| Event::LinkGone(link.index)),
        RTM_NEWADDR => address(body)?.map(Event::Address),
        RTM_DELADDR => address(body)?.map(Event::AddressGone),
        RTM_NEWROUTE => route(body)?.map(|route| Event::Route(route, mode)),
        RTM_DELROUTE => route(body)?.map(Event::RouteGone),
        RTM_NEWNEIGH => neighbor(body)?.map(Event::Neighbor),
        RTM_DELNEIGH => neighbor(body)?.map(Event::NeighborGone),
        RTM_NEWNEXTHOP => object(body)?.map(|(id, object)| Event::Object(id, object)),
        RTM_DELNEXTHOP => object(body)?.map(|(id, _)| Event::ObjectGone(id)),
        RTM_NEWNETCONF => netconf(body)?,
        _ => None,
    })
}

/// The message is malformed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

type Attributes<'a> = NlasIterator<&'a [u8]>;

/// The fixed header of a message and the attributes behind it.
fn split<const HEAD: usize>(body: &[u8]) -> Result<(&[u8; HEAD], Attributes<'_>), Malformed> {
    let (head, rest) = body.split_first_chunk::<HEAD>().ok_or(Malformed)?;
    Ok((head, NlasIterator::new(rest)))
}

fn each<'a>(
    attributes: Attributes<'a>,
    mut f: impl FnMut(u16, &'a [u8]) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    for attribute in attributes {
        let attribute: NlaBuffer<&'a [u8]> = attribute.map_err(|_| Malformed)?;
        let (kind, length) = (attribute.kind(), usize::from(attribute.length()));
        f(kind, attribute.into_inner().get(4..length).ok_or(Malformed)?)?;
    }
    Ok(())
}

fn u16_of(bytes: &[u8]) -> Result<u16, Malformed> {
    bytes.first_chunk().map(|b| u16::from_ne_bytes(*b)).ok_or(Malformed)
}

fn u32_of(bytes: &[u8]) -> Result<u32, Malformed> {
    bytes.first_chunk().map(|b| u32::from_ne_bytes(*b)).ok_or(Malformed)
}

fn address_of(bytes: &[u8]) -> Result<IpAddr, Malformed> {
    match bytes.len() {
        4 => bytes.first_chunk::<4>().map(|b| IpAddr::from(*b)),
        16 => bytes.first_chunk::<16>().map(|b| IpAddr::from(*b)),
        _ => None,
    }
    .ok_or(Malformed)
}

fn mac_of(bytes: &[u8]) -> Option<[u8; 6]> {
    bytes.try_into().ok()
}

fn link(body: &[u8]) -> Result<Option<Link>, Malformed> {
    // struct ifinfomsg: family, pad, type (2), index (4), flags (4), change (4).
    let (head, attributes) = split::<16>(body)?;
    if head[0] != 0 {
        // Messages of bridges about their ports.
        return Ok(None);
    }
    let flags = u32_of(&head[8..])?.cast_signed();
    let mut link = Link {
        index: u32_of(&head[4..])?,
        up: flags & libc::IFF_UP != 0,
        carrier: flags & (libc::IFF_RUNNING | libc::IFF_LOWER_UP) != 0,
        loopback: flags & libc::IFF_LOOPBACK != 0,
        ..Link::default()
    };
    each(attributes, |kind, value| {
        match kind {
            libc::IFLA_IFNAME => {
                let text = value.split(|b| *b == 0).next().unwrap_or_default();
                link.name = String::from_utf8_lossy(text).into_owned();
            }
            libc::IFLA_ADDRESS => link.mac = mac_of(value),
            libc::IFLA_MTU => link.mtu = u32_of(value)?,
            libc::IFLA_MASTER => link.master = u32_of(value)?,
            libc::IFLA_LINKINFO => link.vrf = vrf_table(value)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(Some(link))
}

fn vrf_table(info: &[u8]) -> Result<Option<u32>, Malformed> {
    let (mut vrf, mut data) = (false, None);
    each(NlasIterator::new(info), |kind, value| {
        match kind {
            libc::IFLA_INFO_KIND => vrf = value.strip_suffix(b"\0").unwrap_or(value) == b"vrf",
            libc::IFLA_INFO_DATA => data = Some(value),
            _ => {}
        }
        Ok(())
    })?;
    let (true, Some(data)) = (vrf, data) else { return Ok(None) };
    let mut table = None;
    each(NlasIterator::new(data), |kind, value| {
        if kind == IFLA_VRF_TABLE {
            table = Some(u32_of(value)?);
        }
        Ok(())
    })?;
    Ok(table)
}

fn address(body: &[u8]) -> Result<Option<Address>, Malformed> {
    // struct ifaddrmsg: family, prefix length, flags, scope, index (4).
    let (head, attributes) = split::<8>(body)?;
    if head[0] != V4 && head[0] != V6 {
        return Ok(None);
    }
    let mut flags = u32::from(head[2]);
    let (mut address, mut local) = (None, None);
    each(attributes, |kind, value| {
        match kind {
            libc::IFA_ADDRESS => address = Some(address_of(value)?),
            libc::IFA_LOCAL => local = Some(address_of(value)?),
            libc::IFA_FLAGS => flags = u32_of(value)?,
            _ => {}
        }
        Ok(())
    })?;
    let poor = libc::IFA_F_SECONDARY | libc::IFA_F_DADFAILED | libc::IFA_F_DEPRECATED | libc::IFA_F_TENTATIVE;
    // On a point-to-point link, IFA_ADDRESS is the peer's address.
    Ok(local.or(address).map(|address| Address {
        interface: u32::from_ne_bytes([head[4], head[5], head[6], head[7]]),
        address,
        length: head[1],
        primary: flags & poor == 0,
        scope: head[3],
    }))
}

fn route(body: &[u8]) -> Result<Option<Route>, Malformed> {
    // struct rtmsg: family, dst length, src length, tos, table, protocol, scope, type, flags (4).
    let (head, attributes) = split::<12>(body)?;
    let v6 = match head[0] {
        V4 => false,
        V6 => true,
        _ => return Ok(None),
    };
    if u32_of(&head[8..])? & RTM_F_CLONED != 0 {
        return Ok(None);
    }
    let nowhere = if v6 { IpAddr::from([0u8; 16]) } else { IpAddr::from([0u8; 4]) };
    let mut route = Route {
        table: u32::from(head[4]),
        prefix: nowhere,
        length: head[1],
        metric: 0,
        kind: head[7],
        protocol: head[5],
        tos: head[3],
        source_length: head[2],
        mtu: 0,
        object: 0,
        next_hops: NextHopSpecs::new(),
    };
    let mut next_hop = NextHopSpec { interface: 0, gateway: None, weight: 1, kernel_only: false };
    each(attributes, |kind, value| {
        match kind {
            libc::RTA_DST => route.prefix = address_of(value)?,
            libc::RTA_PRIORITY => route.metric = u32_of(value)?,
            libc::RTA_TABLE => route.table = u32_of(value)?,
            libc::RTA_METRICS => route.mtu = route_mtu(value, v6)?,
            libc::RTA_MULTIPATH => route.next_hops = next_hops(value)?,
            RTA_NH_ID => route.object = u32_of(value)?,
            _ => next_hop_attribute(&mut next_hop, kind, value)?,
        }
        Ok(())
    })?;
    if route.next_hops.is_empty() && next_hop.interface != 0 {
        route.next_hops.push(next_hop);
    }
    let bits = if v6 { 128 } else { 32 };
    if route.length > bits || route.prefix.is_ipv6() != v6 {
        return Err(Malformed);
    }
    Ok(Some(route))
}

fn next_hop_attribute(next_hop: &mut NextHopSpec, kind: u16, value: &[u8]) -> Result<(), Malformed> {
    match kind {
        libc::RTA_OIF => next_hop.interface = u32_of(value)?,
        libc::RTA_GATEWAY => next_hop.gateway = Some(address_of(value)?),
        // struct rtvia: family (2), address.
        RTA_VIA => next_hop.gateway = Some(address_of(value.get(2..).ok_or(Malformed)?)?),
        RTA_ENCAP | RTA_ENCAP_TYPE | RTA_NEWDST => next_hop.kernel_only = true,
        _ => {}
    }
    Ok(())
}

/// The next hops in RTA_MULTIPATH.
fn next_hops(mut bytes: &[u8]) -> Result<NextHopSpecs, Malformed> {
    let mut next_hops = NextHopSpecs::new();
    while !bytes.is_empty() {
        // struct rtnexthop: length (2), flags, hops, interface (4), attributes.
        let length = usize::from(u16_of(bytes)?);
        let whole = bytes.get(..length).ok_or(Malformed)?;
        let (head, attributes) = split::<8>(whole)?;
        let interface = u32_of(&head[4..])?;
        let mut next_hop =
            NextHopSpec { interface, gateway: None, weight: u16::from(head[3]) + 1, kernel_only: false };
        each(attributes, |kind, value| next_hop_attribute(&mut next_hop, kind, value))?;
        next_hops.push(next_hop);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(next_hops)
}

/// The MTU that the kernel applies to forwarded packets. For IPv4 this is any MTU of the route (since Linux
/// 5.11), for IPv6 only a locked one.
fn route_mtu(metrics: &[u8], v6: bool) -> Result<u16, Malformed> {
    let (mut lock, mut mtu) = (0, 0);
    each(NlasIterator::new(metrics), |kind, value| {
        match kind {
            RTAX_LOCK => lock = u32_of(value)?,
            RTAX_MTU => mtu = u32_of(value)?,
            _ => {}
        }
        Ok(())
    })?;
    let counts = !v6 || lock & (1 << RTAX_MTU) != 0;
    Ok(if counts { u16::try_from(mtu).unwrap_or(u16::MAX) } else { 0 })
}

fn neighbor(body: &[u8]) -> Result<Option<Neighbor>, Malformed> {
    // struct ndmsg: family, pads (3), interface (4), state (2), flags, type.
    let (head, attributes) = split::<12>(body)?;
    if head[0] != V4 && head[0] != V6 || head[10] & NTF_PROXY != 0 {
        return Ok(None);
    }
    let (mut address, mut mac) = (None, None);
    each(attributes, |kind, value| {
        match kind {
            libc::NDA_DST => address = Some(address_of(value)?),
            libc::NDA_LLADDR => mac = mac_of(value),
            _ => {}
        }
        Ok(())
    })?;
    let (interface, state) = (u32_of(&head[4..])?, u16_of(&head[8..])?);
    Ok(address.map(|address| Neighbor { interface, address, mac, state }))
}

fn object(body: &[u8]) -> Result<Option<(u32, NexthopObject)>, Malformed> {
    // struct nhmsg: family, scope, protocol, reserved, flags (4).
    let (_, attributes) = split::<8>(body)?;
    let (mut id, mut group, mut blackhole, mut fdb) = (0, None, false, false);
    let mut next_hop = NextHopSpec { interface: 0, gateway: None, weight: 1, kernel_only: false };
    each(attributes, |kind, value| {
        match kind {
            NHA_ID => id = u32_of(value)?,
            NHA_GROUP => group = Some(members(value)?),
            NHA_BLACKHOLE => blackhole = true,
            NHA_OIF => next_hop.interface = u32_of(value)?,
            NHA_GATEWAY => next_hop.gateway = Some(address_of(value)?),
            NHA_ENCAP => next_hop.kernel_only = true,
            NHA_FDB => fdb = true,
            _ => {}
        }
        Ok(())
    })?;
    if id == 0 || fdb {
        // Objects for forwarding databases of bridges.
        return Ok(None);
    }
    let object = match group {
        Some(members) => NexthopObject::Group(members),
        None if blackhole => NexthopObject::Blackhole,
        None => NexthopObject::Single(next_hop),
    };
    Ok(Some((id, object)))
}

/// struct nexthop_grp: id (4), weight minus one, its upper byte (0 before Linux 6.12), reserved (2).
fn members(bytes: &[u8]) -> Result<Vec<(u32, u16)>, Malformed> {
    let (members, rest) = bytes.as_chunks::<8>();
    let member = |m: &[u8; 8]| Ok((u32_of(m)?, u16::from_le_bytes([m[4], m[5]]).saturating_add(1)));
    if rest.is_empty() { members.iter().map(member).collect() } else { Err(Malformed) }
}

fn netconf(body: &[u8]) -> Result<Option<Event>, Malformed> {
    // struct netconfmsg: family, and padding.
    let (head, attributes) = split::<4>(body)?;
    let (mut interface, mut ignores) = (0, None);
    each(attributes, |kind, value| {
        match kind {
            NETCONFA_IFINDEX => interface = u32_of(value)?,
            NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN => ignores = Some(u32_of(value)? != 0),
            _ => {}
        }
        Ok(())
    })?;
    let v6 = head[0] == V6;
    let known = (v6 || head[0] == V4) && interface.cast_signed() > 0;
    Ok(ignores.filter(|_| known).map(|ignores| Event::IgnoresDown { interface, v6, ignores }))
}

#[cfg(test)]
mod tests;
