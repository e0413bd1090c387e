//! Routed ports as the kernel has them: their faces, and which addresses are the kernel's.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use mmb_dataplane::{PortId, Steering};
use mmb_route::L3Interface;
use rustc_hash::FxHashMap;

use crate::event::Link;
use crate::model::Model;
use crate::router::RoutedPort;

/// The interface of a routed port, if there is one.
pub(crate) fn link_of<'a>(model: &'a Model, port: &RoutedPort) -> Option<&'a Link> {
    model.ways.links.values().find(|link| link.name == port.ifname)
}

/// Routed ports by the index of their interface.
pub(crate) fn by_interface(model: &Model, ports: &[RoutedPort]) -> FxHashMap<u32, u16> {
    ports.iter().filter_map(|port| Some((link_of(model, port)?.index, port.port.0))).collect()
}

/// The faces of the ports, by their ids.
pub(crate) fn faces(model: &Model, ports: &[RoutedPort]) -> Vec<Option<L3Interface>> {
    let mut faces = Vec::new();
    for port in ports {
        let place = usize::from(port.port.0);
        if faces.len() <= place {
            faces.resize(place + 1, None);
        }
        faces[place] = face(model, port);
    }
    faces
}

fn face(model: &Model, port: &RoutedPort) -> Option<L3Interface> {
    let link = link_of(model, port)?;
    let table = table_of(model, link);
    let source = |v6: bool| {
        // Any other one of the same table, where the interface has none (RFC 1812, section 4.3.2.4).
        best(model, v6, |other| other.index == link.index)
            .or_else(|| best(model, v6, |other| table_of(model, other) == table))
    };
    let ip4 = match source(false) {
        Some(IpAddr::V4(address)) => Some(address),
        _ => None,
    };
    let ip6 = match source(true) {
        Some(IpAddr::V6(address)) => Some(address),
        _ => None,
    };
    Some(L3Interface { table: u16::try_from(table).ok()?, mac: link.mac?, ip4, ip6 })
}

/// The place of the table that packets from an interface are routed by.
fn table_of(model: &Model, link: &Link) -> usize {
    let of = |link: &Link| model.tables.iter().position(|table| link.vrf.is_some() && *table == link.vrf);
    of(link).or_else(|| of(model.ways.links.get(&link.master)?)).unwrap_or(0)
}

/// The address of widest scope on the interfaces that `on` says.
fn best(model: &Model, v6: bool, on: impl Fn(&Link) -> bool) -> Option<IpAddr> {
    /// `RT_SCOPE_LINK`: no use as a source for others.
    const LINK: u8 = 253;
    let good = |address: &&crate::event::Address| {
        address.address.is_ipv6() == v6
            && address.primary
            && address.scope < LINK
            && model.ways.links.get(&address.interface).is_some_and(&on)
    };
    model.addresses.values().filter(good).min_by_key(|address| address.scope).map(|address| address.address)
}

/// Which frames are the kernel's, for each port.
pub(crate) fn steering(
    model: &Model,
    ports: &[RoutedPort],
    keep: &[RangeInclusive<IpAddr>],
) -> FxHashMap<PortId, Steering> {
    let of = |port: &RoutedPort| {
        let link = link_of(model, port)?;
        let table = table_of(model, link);
        let is_local = |address: &IpAddr, interface: u32| {
            let other = model.ways.links.get(&interface);
            other.is_some_and(|other| !other.loopback || !address.is_loopback())
                && other.is_some_and(|other| table_of(model, other) == table)
                && !keep.iter().any(|range| range.contains(address))
        };
        let all = model.addresses.values();
        let mut local: Vec<IpAddr> =
            all.filter(|a| is_local(&a.address, a.interface)).map(|a| a.address).collect();
        local.sort_unstable();
        local.dedup();
        Some((port.port, Steering { mac: link.mac?, local }))
    };
    ports.iter().filter_map(of).collect()
}
