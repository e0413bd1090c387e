//! Checks of the addresses of packets as they come in: impossible addresses, the machine's own addresses as
//! sources, and the reverse path filter.
//!
//! Theory of operation. These checks come before rules, sessions and translation: NAT would give a packet
//! with an impossible source a valid one. The nodes test plain packets without branches, and pass the few
//! suspicious packets to [`address_fault`], which is exact. With a reverse path filter, all packets of the
//! port take that path.

use std::net::IpAddr;

use mmb_dpdk::Packet;
use mmb_packet::DropReason;
use mmb_route::{NextHop, NextHopKind, Routes};

use super::locals::LocalAddresses;
use super::version::IpVersion;
use crate::engine::snapshot::path;
use crate::features::route::martian::{
    is_impossible4, is_impossible6, is_link_local, is_link_query4, is_link_query6,
};
use crate::features::route::next_hop::table_of;

/// Returns why a packet is dropped for its addresses. `path`: bits of [`path`] of its input port.
pub(crate) fn address_fault<I: IpVersion>(
    packet: &Packet,
    path: u8,
    checks_martians: bool,
    (locals, routes): (&LocalAddresses, &Routes),
) -> Option<DropReason> {
    let (source, destination) = I::addresses(packet.data(), packet.meta().l3_off.into())?;
    let is_routed = path & path::ROUTED != 0;
    if checks_martians && path & path::RULES != 0 {
        let is_own = is_routed && locals.contains(packet.port(), Some(source));
        if is_own || is_martian(source, destination, is_routed) {
            return Some(DropReason::Martian);
        }
    }
    let is_strict = path & path::STRICT != 0;
    let is_confirmed =
        path & path::REVERSE_PATH == 0 || is_reachable(routes, packet.port(), source, is_strict);
    (!is_confirmed).then_some(DropReason::ReversePath)
}

/// Whether no packet may have these addresses. On a wire, hosts may still be without one.
fn is_martian(source: IpAddr, destination: IpAddr, is_routed: bool) -> bool {
    let (is_impossible, is_link_query) = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let is_impossible = is_impossible4(source.octets(), destination.octets());
            (is_impossible, is_link_query4(source.into(), destination.into()))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let (source, destination) = (source.into(), destination.into());
            (is_impossible6(source, destination), is_link_query6(source, destination))
        }
        _ => return true,
    };
    is_impossible && (is_routed || !is_link_query)
}

/// Whether the routes to a source confirm the port that its packet came in by.
///
/// Link-local and unspecified IPv6 sources are exempt: they belong to the link, and are never forwarded.
fn is_reachable(routes: &Routes, port: u16, source: IpAddr, is_strict: bool) -> bool {
    let Some(table) = table_of(routes, port) else { return true };
    let id = match source {
        IpAddr::V4(source) => table.ip4.lookup(source.into()),
        IpAddr::V6(source) if source.is_unspecified() || is_link_local(source.into()) => return true,
        IpAddr::V6(source) => table.ip6.lookup(source.into()),
    };
    let leads_back = |hop: &NextHop| match hop.kind {
        NextHopKind::Forward | NextHopKind::Resolve | NextHopKind::Failed => !is_strict || hop.port == port,
        // An interface that only the kernel has. Without one, it is an address of the machine.
        NextHopKind::Punt => !is_strict && hop.interface != 0,
        _ => false,
    };
    let hop = routes.hops.get(id);
    if hop.kind != NextHopKind::Group {
        return leads_back(hop);
    }
    let first = hop.first as usize;
    let members = routes.hops.members().get(first..first + usize::from(hop.members)).unwrap_or(&[]);
    members.iter().any(|id| leads_back(routes.hops.get(*id)))
}
