//! Ports and routes of a bench in routed mode: random routes over [`HOPS`] resolved neighbours behind the one port, the
//! sources' own behind the other.

use std::net::{Ipv4Addr, Ipv6Addr};

use mmb_route::{L3Interface, NextHop, NextHopId, NextHopKind, RouteTable, Routes};

use super::first_wire;
use super::prefixes::{HOPS, Prefixes};
use super::traffic::NEAR;
use crate::engine::config::{Forwarding, PortConfig, PortId};

/// The Ethernet address of the port that packets leave by.
const FAR: [u8; 6] = [0x02, 0, 0, 0, 0, 3];
/// Bytes of the largest packet that a next hop takes: any that is made.
const MTU: u16 = 9_004;
/// The next hop to the sources; those behind it are the others.
const BACK: NextHopId = 1;

/// `forwarding` with two routed ports, and by which one packets come and go: its own routed ports, or the ends of its
/// first wire, or made-up ones.
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

/// The routes: `prefixes` by `far`, the sources' networks by `near`, and, if `everything`, a default route by `far`.
pub(super) fn routes(prefixes: Prefixes, everything: bool, near: PortId, far: PortId) -> Routes {
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
    routes.tables.push(table(prefixes, everything));
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

fn table(prefixes: Prefixes, everything: bool) -> RouteTable {
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
    if everything {
        table.ip4.insert(Ipv4Addr::UNSPECIFIED, 0, number(0));
        table.ip6.insert(Ipv6Addr::UNSPECIFIED, 0, number(0));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ports_are_routed_whatever_the_configuration_has() {
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
    fn every_destination_has_a_way() {
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
                assert_eq!(&hop.header[6..], routes.interface(1).expect("a face").mac);
            }
            let source = if ip6 { (0x2001_0002 << 96) | 5 } else { 0x0a01_0203 };
            assert_eq!(routes.hops.get(lookup(source)).port, 0);
        }
    }
}
