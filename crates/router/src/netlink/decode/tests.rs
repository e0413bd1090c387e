//! The decoder compared with the crate `netlink-packet-route`: results, and cost.

use std::net::Ipv4Addr;
use std::time::Instant;

use netlink_packet_core::{Emitable, Parseable};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};

use super::*;

/// Bodies of the messages of a dump, one behind the other, and their ends.
struct SyntheticDump {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl SyntheticDump {
    /// IPv4 routes as the kernel dumps them: table, destination, metric, gateway, interface.
    fn new(routes: u32) -> SyntheticDump {
        let mut dump = SyntheticDump { bytes: Vec::new(), ends: Vec::new() };
        for n in 0..routes {
            let mut message = RouteMessage::default();
            message.header.address_family = V4.into();
            message.header.destination_prefix_length = 24;
            message.header.table = libc::RT_TABLE_MAIN;
            message.header.protocol = RouteProtocol::Bgp;
            message.header.scope = RouteScope::Universe;
            message.header.kind = RouteType::Unicast;
            message.attributes = vec![
                RouteAttribute::Table(libc::RT_TABLE_MAIN.into()),
                RouteAttribute::Destination(RouteAddress::Inet(Ipv4Addr::from(n << 8))),
                RouteAttribute::Priority(n % 4),
                RouteAttribute::Gateway(RouteAddress::Inet(Ipv4Addr::new(10, 255, 0, 10 + n as u8 % 16))),
                RouteAttribute::Oif(2 + n % 2),
            ];
            let from = dump.bytes.len();
            dump.bytes.resize(from + message.buffer_len(), 0);
            message.emit(&mut dump.bytes[from..]);
            dump.ends.push(dump.bytes.len());
        }
        dump
    }

    fn bodies(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(from, to)| &self.bytes[from..*to])
    }
}

/// A route as our decoder yields it.
fn decode_here(body: &[u8]) -> Route {
    match decode(RTM_NEWROUTE, 0, body, true) {
        Ok(Some(Event::Route(route, InsertMode::Dump))) => route,
        other => panic!("{other:?}"),
    }
}

/// Decodes the route with `netlink-packet-route`.
fn decode_by_crate(body: &[u8]) -> Route {
    let message = RouteMessage::parse(body).expect("a route message");
    let mut route = Route {
        table: message.header.table.into(),
        prefix: IpAddr::from([0u8; 4]),
        length: message.header.destination_prefix_length,
        metric: 0,
        kind: message.header.kind.into(),
        protocol: message.header.protocol.into(),
        tos: message.header.tos,
        source_length: message.header.source_prefix_length,
        mtu: 0,
        object: 0,
        next_hops: NextHopSpecs::new(),
    };
    let mut next_hop = NextHopSpec { interface: 0, gateway: None, weight: 1, kernel_only: false };
    for attribute in message.attributes {
        match attribute {
            RouteAttribute::Table(table) => route.table = table,
            RouteAttribute::Destination(RouteAddress::Inet(address)) => route.prefix = address.into(),
            RouteAttribute::Priority(metric) => route.metric = metric,
            RouteAttribute::Gateway(RouteAddress::Inet(address)) => next_hop.gateway = Some(address.into()),
            RouteAttribute::Oif(index) => next_hop.interface = index,
            _ => {}
        }
    }
    route.next_hops.push(next_hop);
    route
}

#[test]
fn both_decoders_agree() {
    for body in SyntheticDump::new(1_000).bodies() {
        assert_eq!(decode_here(body), decode_by_crate(body));
    }
}

/// Prints nanoseconds per message; the least of five rounds.
#[test]
#[ignore = "a measurement; run with --release -- --ignored --nocapture"]
fn cost_of_a_million_routes() {
    let dump = SyntheticDump::new(1_000_000);
    let measure = |decode: fn(&[u8]) -> Route| {
        let round = || {
            let start = Instant::now();
            let metrics: u64 = dump.bodies().map(|body| u64::from(decode(body).metric)).sum();
            assert_eq!(metrics, 1_500_000);
            start.elapsed().as_nanos() as f64 / 1e6
        };
        (0..5).map(|_| round()).fold(f64::MAX, f64::min)
    };
    let (here, by_crate) = (measure(decode_here), measure(decode_by_crate));
    println!("this decoder {here:.0} ns, netlink-packet-route {by_crate:.0} ns per message");
}
