//! Lag of the mirror: for a million routes at its start, for a million routes that are added while it runs,
//! and for a single change among them.
//!
//! `cargo run --release -p mmb-router --example lag [ROUTES]`, as root. It works in a network namespace of
//! its own.

#![allow(clippy::unwrap_used)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use common::{FakeEngine, in_namespace, ip, ip_batch, ports};
use mmb_route::NextHopKind;
use mmb_router::Router;
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};

/// Number of single changes that are timed.
const CHANGES: usize = 200;

/// The prefix of route `n`: /24s and /22s, spread over the address space.
fn prefix(n: u32) -> (Ipv4Addr, u8) {
    let at = (n.wrapping_mul(0x9e37_79b1) >> 9) % 0x00b0_0000 + 0x000b_0000;
    if n.is_multiple_of(8) { (Ipv4Addr::from((at & !3) << 8), 22) } else { (Ipv4Addr::from(at << 8), 24) }
}

fn commands(routes: u32) -> String {
    let mut text = String::new();
    for n in 0..routes {
        let (address, length) = prefix(n);
        writeln!(text, "route add {address}/{length} via 10.255.0.{}", 10 + n % 16).unwrap();
    }
    text
}

/// A route to 203.0.113.0/24, as a message.
fn change(gateway: Ipv4Addr) -> Vec<u8> {
    let mut route = RouteMessage::default();
    route.header.address_family = (libc::AF_INET as u8).into();
    route.header.destination_prefix_length = 24;
    (route.header.table, route.header.protocol) = (254, RouteProtocol::Static);
    (route.header.scope, route.header.kind) = (RouteScope::Universe, RouteType::Unicast);
    let to = IpAddr::from([203, 0, 113, 0]);
    route.attributes =
        vec![RouteAttribute::Destination(to.into()), RouteAttribute::Gateway(IpAddr::from(gateway).into())];
    let mut message = NetlinkMessage::from(RouteNetlinkMessage::NewRoute(route));
    message.header.flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn one_route(fake: &FakeEngine) {
    let mut socket = Socket::new(NETLINK_ROUTE).unwrap();
    socket.bind_auto().unwrap();
    let mut times = Vec::new();
    for n in 0..CHANGES {
        let gateway = Ipv4Addr::new(10, 255, 0, 10 + n as u8 % 16);
        let start = Instant::now();
        socket.send(&change(gateway), 0).unwrap();
        fake.wait_for_hop("203.0.113.1", |hop| hop.gateway == Some(gateway.into()));
        times.push(milliseconds(start.elapsed()));
        let mut answer = Vec::with_capacity(4096);
        socket.recv(&mut answer, 0).unwrap();
    }
    times.sort_by(f64::total_cmp);
    let (median, worst) = (times[CHANGES / 2], times[CHANGES - 1]);
    println!(
        "one route: {median:.2} ms from the request to publication (median of {CHANGES}), {worst:.2} ms at most"
    );
}

fn main() {
    let routes = std::env::args().nth(1).map_or(1_000_000, |text| text.parse().unwrap());
    in_namespace(move || {
        ip("link add v0 type veth peer name v1");
        ip("link set v0 up");
        ip("link set v1 up");
        ip("addr add 10.255.0.1/24 dev v0");
        for last in 10..26 {
            ip(&format!("neigh add 10.255.0.{last} lladdr 02:00:00:00:00:{last:02x} dev v0"));
        }
        let start = Instant::now();
        ip_batch(&commands(routes));
        println!("the kernel has them after {:.2} s", start.elapsed().as_secs_f64());
        let fake = FakeEngine::new();
        let start = Instant::now();
        let router = Router::start(fake.clone(), None).unwrap();
        router.set_ports(ports(&["v0"]), Vec::new()).unwrap();
        let counters = router.counters();
        println!(
            "{} routes mirrored and published in {:.2} s",
            counters.routes4,
            start.elapsed().as_secs_f64()
        );
        one_route(&fake);
        ip_batch(&commands(routes).replace("route add", "route del"));
        fake.wait("all gone", |recorded| recorded.routes.tables[0].ip4.lookup(0x0b00_0001) == 0);
        let start = Instant::now();
        ip_batch(&commands(routes));
        let added = start.elapsed().as_secs_f64();
        let (last, _) = prefix(routes - 1);
        let last = (u32::from(last) + 1).into();
        let behind = fake.wait_for_hop(&Ipv4Addr::to_string(&last), |hop| hop.kind == NextHopKind::Forward);
        println!("added again within {added:.2} s; published {:.1} ms after the last", milliseconds(behind));
        one_route(&fake);
        println!("{:?}", router.counters());
    });
}
