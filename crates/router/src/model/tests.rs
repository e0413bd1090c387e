//! The model alone: kernel messages in, treatment of packets out.

mod flows;

use std::net::IpAddr;

use mmb_route::{NextHop, NextHopKind, Routes};
use proptest::prelude::*;
use proptest::sample::select;
use rustc_hash::FxHashMap;

use super::interfaces;
use super::state::Model;
use crate::netlink::{
    Address, Event, InsertMode, Link, Neighbor, NextHopSpec, NextHopSpecs, NexthopObject, Route,
};
use crate::plane::{Device, RoutedPort};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// States of neighbours (`NUD_*` of Linux), which are none, usable, and unusable.
const NEIGHBOR_STATES: [u16; 5] =
    [0, libc::NUD_REACHABLE, libc::NUD_STALE, libc::NUD_FAILED, libc::NUD_INCOMPLETE];

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn link(index: u32) -> Link {
    let mac = Some([2, 0, 0, 0, 1, index as u8]);
    Link { index, name: format!("e{index}"), mac, mtu: 1500, up: true, carrier: true, ..Link::default() }
}

fn next_hop(interface: u32, gateway: &str) -> NextHopSpec {
    NextHopSpec {
        interface,
        gateway: (!gateway.is_empty()).then(|| ip(gateway)),
        weight: 1,
        kernel_only: false,
    }
}

fn route(table: u32, prefix: &str, next_hops: &[NextHopSpec]) -> Route {
    let (address, length) = prefix.split_once('/').expect("a prefix");
    Route {
        table,
        prefix: ip(address),
        length: length.parse().expect("a length"),
        metric: 0,
        kind: libc::RTN_UNICAST,
        protocol: 4,
        tos: 0,
        source_length: 0,
        mtu: 0,
        object: 0,
        next_hops: NextHopSpecs::from_slice(next_hops),
    }
}

fn neighbor(interface: u32, address: IpAddr, state: u16) -> Neighbor {
    Neighbor { interface, address, mac: Some(MAC), state }
}

/// A model with routed ports on these interfaces; port numbers equal interface indexes.
fn model(interfaces: &[u32]) -> Model {
    let mut model = Model::new();
    interfaces.iter().for_each(|index| model.apply(Event::Link(link(*index))));
    model.set_ports(interfaces.iter().map(|index| (*index, *index as u16)).collect());
    model
}

fn members(routes: &Routes, table: usize, to: IpAddr) -> Vec<NextHop> {
    let id = match to {
        IpAddr::V4(to) => routes.tables[table].ip4.lookup(to.into()),
        IpAddr::V6(to) => routes.tables[table].ip6.lookup(to.into()),
    };
    let hop = *routes.hops.get(id);
    if hop.kind != NextHopKind::Group {
        return vec![hop];
    }
    let slots = hop.first as usize..hop.first as usize + usize::from(hop.members);
    routes.hops.members()[slots].iter().map(|id| *routes.hops.get(*id)).collect()
}

fn kind(model: &Model, table: usize, to: &str) -> NextHopKind {
    members(&model.routes(&[]), table, ip(to))[0].kind
}

#[test]
fn a_vrf_has_a_table_of_its_own() {
    let mut model = model(&[1, 2]);
    let add = |model: &mut Model, table, prefix: &str, interface| {
        model.apply(Event::Route(route(table, prefix, &[next_hop(interface, "")]), InsertMode::Prepend));
    };
    add(&mut model, 100, "10.0.0.0/8", 2);
    assert!(!model.take_resync_request(), "nobody uses table 100");
    // The VRF is created, and the second interface becomes its member.
    model.apply(Event::Link(Link { vrf: Some(100), mac: None, ..link(9) }));
    assert!(model.take_resync_request(), "its routes have been passed over");
    model.apply(Event::Link(Link { master: 9, ..link(2) }));
    add(&mut model, 254, "10.0.0.0/8", 1);
    add(&mut model, 100, "10.0.0.0/8", 2);
    add(&mut model, 100, "2001:db8::/32", 2);
    let routes = model.routes(&[]);
    let out = |table: usize, to: &str| members(&routes, table, ip(to))[0].port;
    assert_eq!((out(0, "10.1.1.1"), out(1, "10.1.1.1"), out(1, "2001:db8::1")), (1, 2, 2));
    assert_eq!(kind(&model, 0, "2001:db8::1"), NextHopKind::NoRoute);
    assert_eq!(kind(&model, 1, "224.0.0.1"), NextHopKind::Punt);
    // An address in the VRF's table; the interface is routed by this table.
    let address = Address { interface: 2, address: ip("10.0.0.1"), length: 8, primary: true, scope: 0 };
    model.apply(Event::Address(address));
    let port =
        |id: u16| RoutedPort { port: id, name: String::new(), ifname: format!("e{id}"), device: Device::Xdp };
    let l3 = interfaces::l3_interfaces(&model, &[port(1), port(2)]);
    let table = |id: usize| l3[id].map(|one| (one.table, one.ip4.is_some()));
    assert_eq!((table(1), table(2)), (Some((0, false)), Some((1, true))));
    let local = interfaces::local_traffic(&model, &[port(1), port(2)], &[]);
    assert_eq!((local[&1].addresses.len(), local[&2].addresses.len()), (0, 1));
    assert_eq!((local[&1].own, local[&2].own.map(IpAddr::from)), (None, Some(ip("10.0.0.1"))));
    // The VRF is removed: its table is empty and can be reused.
    model.apply(Event::LinkGone(9));
    assert_eq!(kind(&model, 1, "10.1.1.1"), NextHopKind::NoRoute);
    model.apply(Event::Link(Link { vrf: Some(200), ..link(10) }));
    add(&mut model, 200, "10.0.0.0/8", 1);
    assert_eq!((kind(&model, 1, "10.1.1.1"), model.tables.len()), (NextHopKind::Resolve, 2));
}

#[test]
fn ipv6_siblings_are_merged_and_removed_one_by_one() {
    let mut model = model(&[1, 2]);
    let (a, b) = (next_hop(1, "fe80::a"), next_hop(2, "fe80::b"));
    let with = |next_hops: &[NextHopSpec]| route(254, "2001:db8::/32", next_hops);
    let gateways = |model: &Model| -> Vec<IpAddr> {
        members(&model.routes(&[]), 0, ip("2001:db8::1")).iter().filter_map(|hop| hop.gateway).collect()
    };
    // Old kernels report one next hop at a time, new ones all of them.
    model.apply(Event::Route(with(&[a]), InsertMode::Prepend));
    model.apply(Event::Route(with(&[b]), InsertMode::Append));
    model.apply(Event::Route(with(&[a, b]), InsertMode::Append));
    assert_eq!(gateways(&model), [ip("fe80::a"), ip("fe80::b")]);
    model.apply(Event::RouteGone(with(&[a])));
    assert_eq!(gateways(&model), [ip("fe80::b")]);
    model.apply(Event::Route(with(&[a]), InsertMode::Replace));
    assert_eq!(gateways(&model), [ip("fe80::a")]);
    model.apply(Event::RouteGone(with(&[a, b])));
    assert_eq!((kind(&model, 0, "2001:db8::1"), model.v6.count()), (NextHopKind::NoRoute, 0));
}

#[test]
fn many_routes_follow_one_object() {
    let mut model = model(&[1, 2]);
    model.apply(Event::Object(1, NexthopObject::Single(next_hop(1, "10.0.0.1"))));
    model.apply(Event::Object(2, NexthopObject::Single(next_hop(2, "10.0.0.2"))));
    model.apply(Event::Object(3, NexthopObject::Group(vec![(1, 1), (2, 2)])));
    for n in 0..100 {
        let prefix = format!("10.1.{n}.0/24");
        model.apply(Event::Route(Route { object: 3, ..route(254, &prefix, &[]) }, InsertMode::Prepend));
    }
    let ports = |model: &Model| -> Vec<u16> {
        members(&model.routes(&[]), 0, ip("10.1.50.1")).iter().map(|hop| hop.port).collect()
    };
    assert_eq!(ports(&model), [1, 2, 2]);
    assert!(model.paths.count() <= 4, "{}", model.paths.count());
    model.apply(Event::Object(3, NexthopObject::Group(vec![(2, 1)])));
    assert_eq!(ports(&model), [2]);
    // The last object is removed with its link, then the group, then the routes.
    model.apply(Event::Link(Link { up: false, ..link(2) }));
    assert_eq!((kind(&model, 0, "10.1.50.1"), model.v4.count()), (NextHopKind::NoRoute, 0));
    assert!(model.take_resync_request());
}

#[test]
fn a_dump_removes_unreported_state_unless_it_is_newer() {
    let mut model = model(&[1]);
    let of = |prefix: &str| route(254, prefix, &[next_hop(1, "10.0.0.1")]);
    let add = |prefix: &str| Event::Route(of(prefix), InsertMode::Prepend);
    for prefix in ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16"] {
        model.apply(add(prefix));
    }
    model.begin_dump();
    let dumped = |prefix: &str| Event::Route(of(prefix), InsertMode::Dump);
    model.confirm(Event::Link(link(1)));
    model.confirm(dumped("10.1.0.0/16"));
    // A part of the dump that is older than the change.
    model.apply(Event::RouteGone(of("10.2.0.0/16")));
    model.confirm(dumped("10.2.0.0/16"));
    let other = route(254, "10.3.0.0/16", &[next_hop(1, "10.0.0.9")]);
    model.apply(Event::Route(other, InsertMode::Replace));
    model.confirm(dumped("10.3.0.0/16"));
    model.apply(add("10.5.0.0/16"));
    assert_eq!(kind(&model, 0, "10.4.0.1"), NextHopKind::Resolve, "as long as the dump goes on");
    model.end_dump(|_| true);
    let there = |n: u8| kind(&model, 0, &format!("10.{n}.0.1")) == NextHopKind::Resolve;
    assert_eq!([1, 2, 3, 4, 5].map(there), [true, false, true, false, true]);
    assert_eq!(members(&model.routes(&[]), 0, ip("10.3.0.1"))[0].gateway, Some(ip("10.0.0.9")));
    assert_eq!(model.v4.count(), 3);
}

/// The kernel's state, looked up the way the kernel does it.
#[derive(Default)]
struct Naive {
    routes: Vec<Route>,
    down: Vec<u32>,
    neighbors: FxHashMap<(u32, IpAddr), u16>,
}

impl Naive {
    fn add(&mut self, route: Route, how: InsertMode) {
        let like = |other: &Route| {
            (other.table, other.prefix, other.length, other.metric)
                == (route.table, route.prefix, route.length, route.metric)
        };
        if how == InsertMode::Replace
            && let Some(first) = self.routes.iter().position(like)
        {
            let same = self.routes.iter().position(|other| *other == route);
            self.routes[first] = route.clone();
            if let Some(same) = same.filter(|same| *same != first) {
                self.routes.remove(same);
            }
        } else if !self.routes.contains(&route) {
            match (how, self.routes.iter().position(like)) {
                (InsertMode::Prepend, Some(first)) => self.routes.insert(first, route),
                _ => self.routes.push(route),
            }
        }
    }

    fn alive(&self, route: &Route) -> bool {
        route.kind != libc::RTN_UNICAST
            || route.next_hops.iter().any(|next_hop| !self.down.contains(&next_hop.interface))
    }

    /// The kind of hop, and the interface.
    fn state(&self, to: IpAddr) -> (NextHopKind, u32) {
        let stages: &[&[u32]] = if to.is_ipv4() { &[&[255, 254], &[253]] } else { &[&[255], &[254], &[253]] };
        for stage in stages {
            let covers = |route: &&Route| {
                stage.contains(&route.table) && contains(route.prefix, route.length, to) && self.alive(route)
            };
            let rank = |table| stage.iter().position(|other| *other == table);
            let Some(best) = self
                .routes
                .iter()
                .filter(covers)
                .min_by_key(|route| (u8::MAX - route.length, rank(route.table), route.metric))
            else {
                continue;
            };
            match best.kind {
                libc::RTN_THROW => continue,
                libc::RTN_BLACKHOLE => return (NextHopKind::Blackhole, 0),
                libc::RTN_LOCAL => return (NextHopKind::Punt, 0),
                _ => {}
            }
            let next_hop = best.next_hops[0];
            let neighbor = self.neighbors.get(&(next_hop.interface, next_hop.gateway.unwrap_or(to)));
            let kind = match neighbor {
                Some(&libc::NUD_FAILED) => NextHopKind::Failed,
                Some(&(libc::NUD_REACHABLE | libc::NUD_STALE)) => NextHopKind::Forward,
                _ => NextHopKind::Resolve,
            };
            return (kind, next_hop.interface);
        }
        (NextHopKind::NoRoute, 0)
    }
}

fn contains(prefix: IpAddr, length: u8, to: IpAddr) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(u32::from(address)) << 96,
        IpAddr::V6(address) => address.into(),
    };
    prefix.is_ipv4() == to.is_ipv4()
        && (length == 0 || (bits(prefix) ^ bits(to)) >> (128 - u32::from(length)) == 0)
}

/// An address from a small set of neighbouring addresses.
fn address(v6: bool) -> impl Strategy<Value = IpAddr> {
    (0..4u8, 0..4u8).prop_map(move |(a, b)| {
        let low = a << 6 | b;
        if v6 {
            IpAddr::from([0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, low])
        } else {
            IpAddr::from([10, 0, 0, low])
        }
    })
}

#[derive(Clone, Debug)]
enum Step {
    Add(Route, InsertMode),
    Remove(usize),
    Carrier(u32, bool),
    Neighbor(u32, IpAddr, u16),
}

fn some_route(v6: bool) -> impl Strategy<Value = Route> {
    let kinds = prop_oneof![
        12 => Just(libc::RTN_UNICAST), 1 => Just(libc::RTN_BLACKHOLE),
        1 => Just(libc::RTN_LOCAL), 2 => Just(libc::RTN_THROW)
    ];
    let lengths = prop_oneof![Just(0u8), 24..=32u8];
    let gateway = proptest::option::of(address(v6));
    (253..=255u32, address(v6), lengths, 0..3u32, kinds, 1..3u32, gateway).prop_map(
        move |(table, prefix, length, metric, kind, interface, gateway)| {
            let length = if v6 && length > 0 { length + 96 } else { length };
            let prefix = match prefix {
                IpAddr::V4(bits) => IpAddr::V4(
                    (u32::from(bits) & u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)).into(),
                ),
                IpAddr::V6(bits) => IpAddr::V6(
                    (u128::from(bits) & u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)).into(),
                ),
            };
            // For IPv6 this model has one route for each metric; siblings are tested above.
            let next_hop = NextHopSpec { interface, gateway, weight: 1, kernel_only: false };
            let next_hops = if kind == libc::RTN_UNICAST {
                NextHopSpecs::from_elem(next_hop, 1)
            } else {
                NextHopSpecs::new()
            };
            Route { table, prefix, length, metric, kind, next_hops, ..route(254, "::/0", &[]) }
        },
    )
}

fn step(v6: bool) -> impl Strategy<Value = Step> {
    let how = if v6 {
        Just(InsertMode::Replace).boxed()
    } else {
        prop_oneof![Just(InsertMode::Prepend), Just(InsertMode::Append), Just(InsertMode::Replace)].boxed()
    };
    prop_oneof![
        6 => (some_route(v6), how).prop_map(|(route, how)| Step::Add(route, how)),
        4 => any::<usize>().prop_map(Step::Remove),
        1 => (1..3u32, any::<bool>()).prop_map(|(link, carrier)| Step::Carrier(link, carrier)),
        3 => (1..3u32, address(v6), select(&NEIGHBOR_STATES[..]))
            .prop_map(|(link, address, state)| Step::Neighbor(link, address, state)),
    ]
}

fn holds(v6: bool, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let (mut model, mut naive) = (model(&[1, 2]), Naive::default());
    for interface in [1, 2] {
        model.apply(Event::IgnoresDown { interface, v6, ignores: true });
    }
    for step in steps {
        let before = model.routes(&[]);
        match step {
            Step::Add(route, how) => {
                naive.add(route.clone(), how);
                model.apply(Event::Route(route, how));
            }
            Step::Remove(_) if naive.routes.is_empty() => {}
            Step::Remove(at) => {
                let at = at % naive.routes.len();
                model.apply(Event::RouteGone(naive.routes.remove(at)));
            }
            Step::Carrier(index, carrier) => {
                naive.down.retain(|other| *other != index);
                if !carrier {
                    naive.down.push(index);
                }
                model.apply(Event::Link(Link { carrier, ..link(index) }));
            }
            Step::Neighbor(interface, address, 0) => {
                naive.neighbors.remove(&(interface, address));
                model.apply(Event::NeighborGone(neighbor(interface, address, 0)));
            }
            Step::Neighbor(interface, address, state) => {
                naive.neighbors.insert((interface, address), state);
                model.apply(Event::Neighbor(neighbor(interface, address, state)));
            }
        }
        let routes = model.routes(&[]);
        for low in (0..=255).step_by(3).chain([64, 65, 128, 129, 193, 194, 195]) {
            let to = if v6 {
                IpAddr::from([0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, low])
            } else {
                [10, 0, 0, low].into()
            };
            let hop = members(&routes, 0, to)[0];
            prop_assert_eq!((hop.kind, hop.interface), naive.state(to), "{}", to);
            if routes.keeps_flows_of(&before) {
                flows::check_kept_flows(&before, &routes, to)?;
            }
        }
    }
    let count = if v6 { model.v6.count() } else { model.v4.count() };
    prop_assert_eq!(count, naive.routes.len());
    for route in naive.routes {
        model.apply(Event::RouteGone(route));
    }
    prop_assert!(model.paths.count() <= 2, "paths are left: {}", model.paths.count());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn the_model_equals_a_naive_kernel_v4(steps in prop::collection::vec(step(false), 1..60)) {
        holds(false, steps)?;
    }

    #[test]
    fn the_model_equals_a_naive_kernel_v6(steps in prop::collection::vec(step(true), 1..60)) {
        holds(true, steps)?;
    }

    #[test]
    fn malformed_messages_do_not_panic(kind in 0u16..120, body in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut model = model(&[1]);
        if let Ok(Some(event)) = crate::netlink::decode(kind, 0, &body, false) {
            model.apply(event);
        }
    }
}
