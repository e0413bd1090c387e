//! The kernel's interfaces of routed ports, and the traffic that belongs to the kernel.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

use mmb_route::L3Interface;
use rustc_hash::FxHashMap;

use super::state::Model;
use crate::netlink::Link;
use crate::plane::{LocalTraffic, PortNumber, RoutedPort};

/// The kernel's interface of a routed port, if it exists.
pub(crate) fn link_of<'a>(model: &'a Model, port: &RoutedPort) -> Option<&'a Link> {
    model.paths.links.values().find(|link| link.name == port.ifname)
}

/// The routed ports, indexed by the kernel's interface index.
pub(crate) fn by_interface(model: &Model, ports: &[RoutedPort]) -> FxHashMap<u32, u16> {
    ports.iter().filter_map(|port| Some((link_of(model, port)?.index, port.port))).collect()
}

/// The layer-3 interfaces of the ports, indexed by port number.
pub(crate) fn l3_interfaces(model: &Model, ports: &[RoutedPort]) -> Vec<Option<L3Interface>> {
    let mut interfaces = Vec::new();
    for port in ports {
        let slot = usize::from(port.port);
        if interfaces.len() <= slot {
            interfaces.resize(slot + 1, None);
        }
        interfaces[slot] = l3_interface(model, port);
    }
    interfaces
}

fn l3_interface(model: &Model, port: &RoutedPort) -> Option<L3Interface> {
    let link = link_of(model, port)?;
    let table = table_of(model, link);
    let source = |v6: bool| {
        // An interface without an address uses an address of another one in the same table (RFC 1812, section
        // 4.3.2.4).
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

/// Index of the table that routes packets from an interface.
fn table_of(model: &Model, link: &Link) -> usize {
    let of = |link: &Link| model.tables.iter().position(|table| link.vrf.is_some() && *table == link.vrf);
    of(link).or_else(|| of(model.paths.links.get(&link.master)?)).unwrap_or(0)
}

/// The address with the widest scope on the interfaces for which `on` is true.
fn best(model: &Model, v6: bool, on: impl Fn(&Link) -> bool) -> Option<IpAddr> {
    /// `RT_SCOPE_LINK`: such addresses are no valid source beyond the link.
    const LINK: u8 = 253;
    let good = |address: &&crate::netlink::Address| {
        address.address.is_ipv6() == v6
            && address.primary
            && address.scope < LINK
            && model.paths.links.get(&address.interface).is_some_and(&on)
    };
    model.addresses.values().filter(good).min_by_key(|address| address.scope).map(|address| address.address)
}

/// The IPv4 address with the widest scope on the interfaces for which `on` is true.
fn best4(model: &Model, on: impl Fn(&Link) -> bool) -> Option<Ipv4Addr> {
    match best(model, false, on) {
        Some(IpAddr::V4(address)) => Some(address),
        _ => None,
    }
}

/// For each port, the traffic that belongs to the kernel.
pub(crate) fn local_traffic(
    model: &Model,
    ports: &[RoutedPort],
    kept: &[RangeInclusive<IpAddr>],
) -> FxHashMap<PortNumber, LocalTraffic> {
    let of = |port: &RoutedPort| {
        let link = link_of(model, port)?;
        let table = table_of(model, link);
        let is_local = |address: &IpAddr, interface: u32| {
            let other = model.paths.links.get(&interface);
            other.is_some_and(|other| !other.loopback || !address.is_loopback())
                && other.is_some_and(|other| table_of(model, other) == table)
        };
        let all = model.addresses.values();
        let mut addresses: Vec<IpAddr> =
            all.filter(|a| is_local(&a.address, a.interface)).map(|a| a.address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let (shared, addresses) =
            addresses.into_iter().partition(|address| kept.iter().any(|range| range.contains(address)));
        let own = best4(model, |other| other.index == link.index);
        Some((port.port, LocalTraffic { mac: link.mac?, addresses, shared, own }))
    };
    ports.iter().filter_map(of).collect()
}
