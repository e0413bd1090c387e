//! Ports and routes of a bench in routed mode: random routes over [`HOPS`] resolved neighbours behind one
//! port, the sources' networks behind the other.

use std::net::{Ipv4Addr, Ipv6Addr};

use mmb_dataplane::{Forwarding, PortConfig, PortId};
use mmb_route::{L3Interface, NextHop, NextHopId, NextHopKind, RouteTable, Routes};

use super::prefixes::{HOPS, Prefixes};
use super::traffic::NEAR;
use super::wire::first_wire;

/// Ethernet address of the port where packets leave.
const FAR: [u8; 6] = [0x02, 0, 0, 0, 0, 3];
/// Maximum packet length of next hops; it fits all generated packets.
const MTU: u16 = 9_004;
/// Number of the next hop to the sources; the others follow.
const BACK: NextHopId = 1;

/// `forwarding` with two routed ports: its own, the ends of its first wire, or new ones. Returns the ports
/// where packets arrive and leave, too.
pub(super) fn ports(forwarding: &Forwarding) -> (Forwarding, PortId, PortId) {
    let mut forwarding = forwarding.clone();
    let mut ids: Vec<PortId> = forwarding.ports.iter().filter(|p| p.routed.is_some()).map(|p| p.id).collect();
    if ids.is_empty() {
        ids.extend(first_wire(&forwarding.ports).into_iter().flat_map(|(near, far)| [near, far]));
    }
    for id in [PortId(0), PortId(1)] {
        if ids.len() < 2 && !ids.contains(&id) {
            ids.push(id);
        }
    }
    let enabled = |id: PortId| forwarding.ports.iter().find(|p| p.id == id).is_none_or(|p| p.enabled);
    let routed = |id| PortConfig { enabled: enabled(id), ..PortConfig::routed(id, None) };
    forwarding.ports = ids.iter().map(|id| routed(*id)).collect();
    (forwarding, ids[0], ids[1])
}

/// The routes: `prefixes` by `far`, the sources' networks by `near`, and with `has_default` a default route
/// by `far`.
pub(super) fn routes(prefixes: Prefixes, has_default: bool, near: PortId, far: PortId) -> Routes {
    let mut routes = Routes::default();
    for (port, mac, ip4, ip6) in [
        (near, NEAR, Ipv4Addr::new(10, 0, 0, 1), Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1)),
        (far, FAR, Ipv4Addr::new(192, 0, 2, 1), Ipv6Addr::new(0x2001, 2, 0, 0x8000, 0, 0, 0, 1)),
    ] {
        let places = usize::from(port.0) + 1;
        if routes.interfaces.len() < places {
            routes.interfaces.resize(places, None);
        }
        routes.interfaces[places - 1] =
            Some(L3Interface { mac, ip4: Some(ip4), ip6: Some(ip6), ..L3Interface::default() });
    }
    routes.hops.set(BACK, hop([0x02, 0, 0, 0, 0, 1], NEAR, near));
    for n in 0..HOPS {
        routes.hops.set(number(n), hop([0x02, 0, 0, 0, 1, n as u8], FAR, far));
    }
    routes.tables.push(table(prefixes, has_default));
    routes
}

fn number(n: u16) -> NextHopId {
    BACK + 1 + NextHopId::from(n)
}

fn hop(to: [u8; 6], from: [u8; 6], port: PortId) -> NextHop {
    let mut hop = NextHop { kind: NextHopKind::Forward, port: port.0, mtu: MTU, ..NextHop::default() };
    hop.interface = u32::from(port.0) + 1;
    hop.header[..6].copy_from_slice(&to);
    hop.header[6..].copy_from_slice(&from);
    hop
}

fn table(prefixes: Prefixes, has_default: bool) -> RouteTable {
    let mut table = RouteTable::default();
    for prefix @ (network, length) in prefixes.each() {
        let hop = number(Prefixes::hop(prefix));
        if prefixes.ip6() {
            table.ip6.insert(Ipv6Addr::from(network), length, hop);
        } else {
            table.ip4.insert(Ipv4Addr::from(network as u32), length, hop);
        }
    }
    table.ip4.insert(Ipv4Addr::new(10, 0, 0, 0), 8, BACK);
    table.ip6.insert(Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 49, BACK);
    if has_default {
        table.ip4.insert(Ipv4Addr::UNSPECIFIED, 0, number(0));
        table.ip6.insert(Ipv6Addr::UNSPECIFIED, 0, number(0));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ports_are_routed_with_any_configuration() {
        let of = |ports: Vec<PortConfig>| {
            let (forwarding, near, far) = ports_of(ports);
            assert!(forwarding.ports.iter().all(|p| p.routed.is_some() && p.peer.is_none()));
            (near.0, far.0)
        };
        let id = PortId;
        assert_eq!(of(vec![]), (0, 1));
        assert_eq!(of(vec![PortConfig::wire(id(4), id(2)), PortConfig::wire(id(2), id(4))]), (4, 2));
        assert_eq!(of(vec![PortConfig::routed(id(0), None)]), (0, 1));
        let twin = PortConfig { enabled: false, ..PortConfig::wire(id(7), id(3)) };
        assert_eq!(
            of(vec![twin, PortConfig::routed(id(3), Some(id(7))), PortConfig::routed(id(5), None)]),
            (3, 5)
        );
    }

    fn ports_of(ports: Vec<PortConfig>) -> (Forwarding, PortId, PortId) {
        super::ports(&Forwarding { ports, ..Forwarding::default() })
    }

    #[test]
    fn every_destination_has_a_route() {
        for ip6 in [false, true] {
            let prefixes = Prefixes::new(1_000, ip6, 1);
            let routes = routes(prefixes, false, PortId(0), PortId(1));
            let table = routes.table_for_port(0).expect("a table");
            let lookup = |address: u128| match ip6 {
                true => table.ip6.lookup(address),
                false => table.ip4.lookup(address as u32),
            };
            for n in 0..1_000 {
                let hop = routes.hops.get(lookup(prefixes.address(n)));
                assert_eq!((hop.kind, hop.port), (NextHopKind::Forward, 1));
                assert_eq!(&hop.header[6..], routes.interface(1).expect("an interface").mac);
            }
            let source = if ip6 { (0x2001_0002 << 96) | 5 } else { 0x0a01_0203 };
            assert_eq!(routes.hops.get(lookup(source)).port, 0);
        }
    }
}
