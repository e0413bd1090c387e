//! Interaction of the mirror with the kernel: neighbour requests, twins, lost messages.

#![allow(clippy::unwrap_used)]

mod common;

use std::fmt::Write;
use std::io::Read;
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Instant;

use common::{FakeEngine, compare, hops, in_namespace, index_of, ip, ip_batch, mirror, ports, read_sysctl};
use mmb_route::NextHopKind;
use mmb_router::{Device, FibQuery, FibSelect, NeighborRequest, PortState, RoutedPort, Router};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// A second namespace with the peer of `v0`; removed on drop.
struct PeerNamespace(String);

impl PeerNamespace {
    fn new() -> PeerNamespace {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("mmbr-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        ip(&format!("netns add {name}"));
        ip(&format!("link add v0 type veth peer name far netns {name}"));
        let far = PeerNamespace(name);
        ip("link set v0 up");
        ip("addr add 10.255.0.1/24 dev v0");
        ip("addr add 2001:db8::1/64 dev v0 nodad");
        far.ip("link set far address 02:00:00:00:00:77");
        far.ip("link set far up");
        far.ip("addr add 10.255.0.77/24 dev far");
        far.ip("addr add 2001:db8::77/64 dev far nodad");
        far
    }

    fn ip(&self, arguments: &str) {
        ip(&format!("-n {} {arguments}", self.0));
    }
}

impl Drop for PeerNamespace {
    fn drop(&mut self) {
        ip(&format!("netns del {}", self.0));
    }
}

#[test]
fn neighbors_are_resolved_on_request() {
    in_namespace(|| {
        let far = PeerNamespace::new();
        common::sysctl("ipv4/neigh/v0/retrans_time_ms", "50");
        common::sysctl("ipv4/neigh/v0/delay_first_probe_time", "0");
        let (fake, router) = mirror(&["v0"]);
        let v0 = index_of("v0");
        ip("route add 192.0.2.0/24 via 10.255.0.77");
        ip("-6 route add 2001:db8:f::/48 via 2001:db8::77");
        fake.wait_for_hop("2001:db8:f::1", |hop| hop.kind == NextHopKind::Resolve);
        fake.wait_for_hop("192.0.2.1", |hop| hop.kind == NextHopKind::Resolve);
        let mac = [2, 0, 0, 0, 0, 0x77];
        for (gateway, behind) in [("10.255.0.77", "192.0.2.1"), ("2001:db8::77", "2001:db8:f::1")] {
            fake.request_neighbor(v0, gateway);
            for to in [gateway, behind] {
                fake.wait_for_hop(to, |hop| {
                    hop.kind == NextHopKind::Forward && hop.header[..6] == mac && !hop.neighbor_stale
                });
            }
        }
        let known = router.neighbors(Some(("10.255.0.0".parse().unwrap(), 24)));
        assert_eq!((known.len(), known[0].mac, known[0].port), (1, Some(mac), Some(0)));
        assert_eq!(router.counters().requests, 2);
        // There is no such host.
        fake.request_neighbor(v0, "10.255.0.200");
        fake.wait_for_hop("10.255.0.200", |hop| hop.kind == NextHopKind::Failed && hop.gateway.is_some());
        // The neighbour gets another Ethernet address.
        ip("neigh replace 10.255.0.77 lladdr 02:00:00:00:00:78 dev v0 nud reachable");
        fake.wait_for_hop("192.0.2.1", |hop| hop.header[5] == 0x78);
        // The neighbour is stale: a request makes the kernel confirm it.
        ip("neigh replace 10.255.0.77 lladdr 02:00:00:00:00:77 dev v0 nud stale");
        fake.wait_for_hop("192.0.2.1", |hop| hop.neighbor_stale && hop.kind == NextHopKind::Forward);
        fake.request_neighbor(v0, "10.255.0.77");
        fake.wait_for_hop("192.0.2.1", |hop| hop.header[..6] == mac && !hop.neighbor_stale);
        // No host has this address: the neighbour fails, and is resolved again on request.
        ip("neigh replace 10.255.0.77 lladdr 02:00:00:00:00:78 dev v0 nud stale");
        fake.wait_for_hop("192.0.2.1", |hop| hop.neighbor_stale);
        fake.request_neighbor(v0, "10.255.0.77");
        fake.wait_for_hop("192.0.2.1", |hop| hop.kind == NextHopKind::Failed);
        fake.request_neighbor(v0, "10.255.0.77");
        fake.wait_for_hop("192.0.2.1", |hop| hop.header[..6] == mac);
        ip("neigh del 10.255.0.77 dev v0");
        fake.wait_for_hop("192.0.2.1", |hop| hop.kind == NextHopKind::Resolve);
        fake.wait_for_hop("10.255.0.77", |hop| hop.kind == NextHopKind::Resolve && hop.gateway.is_none());
        // A more specific route replaces the neighbour's entry, and is removed again.
        fake.request_neighbor(v0, "10.255.0.77");
        fake.wait_for_hop("10.255.0.77", |hop| hop.kind == NextHopKind::Forward);
        ip("route add blackhole 10.255.0.64/27");
        fake.wait_for_hop("10.255.0.77", |hop| hop.kind == NextHopKind::Blackhole);
        ip("route del blackhole 10.255.0.64/27");
        fake.wait_for_hop("10.255.0.77", |hop| hop.kind == NextHopKind::Forward);
        drop((router, far));
    });
}

/// Waits until the kernel has a neighbour of `v0` in a state.
fn wait_for_kernel(address: &str, state: &str) {
    let start = Instant::now();
    loop {
        let shown = Command::new("ip").args(["neigh", "show", address, "dev", "v0"]).output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        if shown.contains(state) {
            return;
        }
        assert!(start.elapsed() < common::TIMEOUT, "{address} is not {state}: {shown}");
    }
}

#[test]
fn a_neighbor_that_answers_while_routes_are_published_is_known() {
    in_namespace(|| {
        let far = PeerNamespace::new();
        common::sysctl("ipv4/neigh/v0/retrans_time_ms", "50");
        common::sysctl("ipv4/neigh/v0/mcast_solicit", "1000");
        let (fake, router) = mirror(&["v0"]);
        far.ip("link set far arp off");
        let gateway = "10.255.0.77";
        let request = NeighborRequest { interface: index_of("v0"), address: gateway.parse().unwrap() };
        fake.request_neighbor_with(request, || ip(&format!("route add 192.0.2.0/24 via {gateway}")));
        wait_for_kernel(gateway, "INCOMPLETE");
        far.ip("link set far arp on");
        wait_for_kernel(gateway, "REACHABLE");
        fake.release_publications();
        fake.wait_for_hop("192.0.2.1", |hop| hop.kind == NextHopKind::Forward && hop.header[5] == 0x77);
        drop((router, far));
    });
}

/// Sends a message about a neighbour of `v0` to all who listen, as the kernel does.
fn send_neighbor_message(kind: u16, state: u16, address: [u8; 4], mac: Option<[u8; 6]>) {
    // struct ndmsg: family, pads (3), interface (4), state (2), flags, type.
    let mut message = vec![libc::AF_INET as u8, 0, 0, 0];
    message.extend(index_of("v0").to_ne_bytes());
    message.extend(state.to_ne_bytes());
    message.extend([0, libc::RTN_UNICAST]);
    let mut attribute = |kind: u16, value: &[u8]| {
        message.extend((4 + value.len() as u16).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(value);
        message.resize(message.len().next_multiple_of(4), 0);
    };
    attribute(libc::NDA_DST, &address);
    if let Some(mac) = mac {
        attribute(libc::NDA_LLADDR, &mac);
    }
    // struct nlmsghdr: length (4), type (2), flags (2), sequence (4), port (4).
    let mut datagram = (16 + message.len() as u32).to_ne_bytes().to_vec();
    datagram.extend(kind.to_ne_bytes());
    datagram.extend([0; 10]);
    datagram.extend(message);
    let socket = Socket::new(NETLINK_ROUTE).unwrap();
    let group = 1 << (libc::RTNLGRP_NEIGH - 1);
    socket.send_to(&datagram, &SocketAddr::new(0, group), 0).unwrap();
}

#[test]
fn messages_about_neighbors_may_come_in_any_order() {
    in_namespace(|| {
        let far = PeerNamespace::new();
        let (fake, router) = mirror(&["v0"]);
        ip("route add 192.0.2.0/24 via 10.255.0.77");
        ip("neigh replace 10.255.0.77 lladdr 02:00:00:00:00:77 dev v0 nud reachable");
        fake.wait_for_hop("192.0.2.1", |hop| hop.kind == NextHopKind::Forward);
        let (new, gone) = (libc::RTM_NEWNEIGH, libc::RTM_DELNEIGH);
        let late = [
            (new, libc::NUD_INCOMPLETE, 77, None),
            (new, libc::NUD_FAILED, 77, None),
            (new, libc::NUD_REACHABLE, 77, Some([2, 0, 0, 0, 0, 0x78])),
            (gone, libc::NUD_FAILED, 77, None),
            (new, libc::NUD_REACHABLE, 200, Some([2, 0, 0, 0, 0, 0x78])),
        ];
        for (number, (kind, state, host, mac)) in late.into_iter().enumerate() {
            send_neighbor_message(kind, state, [10, 255, 0, host], mac);
            // Messages of the kernel come behind it.
            let marker = format!("198.51.100.{number}");
            ip(&format!("route add blackhole {marker}"));
            fake.wait_for_hop(&marker, |hop| hop.kind == NextHopKind::Blackhole);
            let hop = |to: &str| hops(&fake.routes(), 0, to.parse().unwrap())[0];
            let (known, unknown) = (hop("192.0.2.1"), hop("10.255.0.200"));
            assert_eq!((known.kind, known.header[5]), (NextHopKind::Forward, 0x77), "message {number}");
            assert_eq!(unknown.kind, NextHopKind::Resolve, "message {number}");
        }
        assert_eq!(router.neighbors(None).iter().filter(|one| one.address.is_ipv4()).count(), 1);
        drop((router, far));
    });
}

#[test]
fn lost_messages_cause_a_resync() {
    in_namespace(|| {
        let _far = PeerNamespace::new();
        let fake = FakeEngine::new();
        let router = Router::start_with_buffer(fake.clone(), 64 << 10).unwrap();
        router.set_ports(ports(&["v0"]), Vec::new()).unwrap();
        ip("route add 192.0.2.0/24 via 10.255.0.77");
        ip("route add 198.51.100.0/24 via 10.255.0.77");
        fake.wait_for_hop("198.51.100.1", |hop| hop.kind == NextHopKind::Resolve);
        let steady: IpAddr = "192.0.2.1".parse().unwrap();
        let prefix = |n: u32| IpAddr::from((0x0b00_0000 + (n << 8)).to_be_bytes());
        fake.recorded(|recorded| {
            recorded.watched = Some(steady);
            // The mirror cannot publish while this is held, and messages overflow.
            let mut commands = String::new();
            for n in 0..20_000 {
                writeln!(commands, "route add {}/24 via 10.255.0.{}", prefix(n), 2 + n % 100).unwrap();
            }
            commands += "route del 198.51.100.0/24\n";
            ip_batch(&commands);
        });
        fake.wait("the routes that were lost", |recorded| {
            let of = |to: IpAddr| hops(&recorded.routes, 0, to)[0].kind;
            (0..20_000).all(|n| of(prefix(n)) == NextHopKind::Resolve)
                && of("198.51.100.1".parse().unwrap()) == NextHopKind::NoRoute
        });
        let counters = router.counters();
        assert!(counters.overruns > 0 && counters.resyncs > 0, "{counters:?}");
        assert_eq!(
            fake.recorded(|recorded| recorded.interruptions),
            0,
            "what had not changed was there all the time"
        );
        let some = (0..20_000).step_by(7).map(prefix);
        compare(&fake, some.chain([steady, "198.51.100.1".parse().unwrap()]));
        let all = Command::new("ip").args("-4 route show table all".split(' ')).output().unwrap();
        assert_eq!(counters.routes4, String::from_utf8(all.stdout).unwrap().lines().count() as u64);
    });
}

/// A program that holds a TAP open, as the engine does. Without one, a TAP has no carrier.
struct Owner(Child);

impl Owner {
    fn of(tap: &str) -> Owner {
        // TUNSETIFF with IFF_TAP | IFF_NO_PI (linux/if_tun.h).
        let program = format!(
            "import fcntl, struct, sys\n\
             tap = open('/dev/net/tun', 'r+b', buffering=0)\n\
             fcntl.ioctl(tap, 0x400454ca, struct.pack('16sH22x', b'{tap}', 0x1002))\n\
             print(flush=True)\n\
             sys.stdin.read()"
        );
        let mut python = Command::new("python3");
        let child = python.args(["-c", &program]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("python3 is installed");
        let mut line = [0];
        child.stdout.take().unwrap().read_exact(&mut line).expect("the TAP is open");
        Owner(child)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

#[test]
fn twins_follow_their_ports() {
    in_namespace(|| {
        ip("link add v0 type veth peer name v0x");
        ip("tuntap add dev t0 mode tap");
        let _owner = Owner::of("t0");
        ip("link set t0 up");
        let quiet = ["ipv4/conf/v0/forwarding", "ipv4/conf/v0/arp_ignore", "ipv6/conf/v0/disable_ipv6"];
        let before = quiet.map(read_sysctl);
        let fake = FakeEngine::new();
        let state = PortState { mac: [2, 0, 0, 0, 0, 0x44], mtu: 1400, up: true };
        fake.recorded(|recorded| recorded.state = Some(state));
        let router = Router::start(fake.clone(), None).unwrap();
        let port = |real: &str| RoutedPort {
            port: 5,
            name: "wan".into(),
            ifname: "t0".into(),
            device: Device::Twin { real: Some(real.into()) },
        };
        router.set_ports(vec![port("v0")], Vec::new()).unwrap();
        assert_eq!(quiet.map(read_sysctl), ["0", "8", "1"]);
        let face = |recorded: &common::Recorded| recorded.routes.interfaces.get(5).copied().flatten();
        assert_eq!(
            fake.recorded(|recorded| face(recorded)).unwrap().mac,
            state.mac,
            "set and known when the ports are"
        );
        ip("addr add 10.0.0.1/24 dev t0");
        fake.wait_for_hop("10.0.0.9", |hop| {
            hop.kind == NextHopKind::Resolve && (hop.mtu, hop.port) == (1400, 5)
        });
        // The carrier is lost.
        common::sysctl("ipv4/conf/t0/ignore_routes_with_linkdown", "1");
        fake.recorded(|recorded| recorded.state = Some(PortState { up: false, ..state }));
        fake.wait_for_hop("10.0.0.9", |hop| hop.kind == NextHopKind::NoRoute);
        fake.recorded(|recorded| recorded.state = Some(PortState { up: true, mtu: 1500, ..state }));
        fake.wait_for_hop("10.0.0.9", |hop| hop.mtu == 1500);
        // The port is no longer routed, routed again, and the mirror ends.
        router.set_ports(Vec::new(), Vec::new()).unwrap();
        assert_eq!(quiet.map(read_sysctl), before);
        assert!(fake.recorded(|recorded| face(recorded)).is_none());
        router.set_ports(vec![port("v0")], Vec::new()).unwrap();
        assert_eq!(quiet.map(read_sysctl), ["0", "8", "1"]);
        let error = router.set_ports(vec![port("v7")], Vec::new()).unwrap_err().to_string();
        assert!(error.contains("no interface v7"), "{error}");
        assert_eq!(quiet.map(read_sysctl), before);
        router.set_ports(vec![port("v0")], Vec::new()).unwrap();
        drop(router);
        assert_eq!(quiet.map(read_sysctl), before);
        assert!(fake.recorded(|recorded| recorded.local.last().unwrap().1.is_none()));
    });
}

#[test]
fn ports_whose_interface_is_created_later() {
    in_namespace(|| {
        let fake = FakeEngine::new();
        let router = Router::start(fake.clone(), None).unwrap();
        let error = router.set_ports(ports(&["v0"]), Vec::new()).unwrap_err().to_string();
        assert!(error.contains("no interface v0"), "{error}");
        ip("link add v0 type veth peer name v0x");
        ip("addr add 10.0.0.1/24 dev v0");
        ip("addr add 10.0.0.2/24 dev v0");
        ip("link set v0 up");
        ip("link set v0x up");
        fake.wait_for_hop("10.0.0.9", |hop| hop.kind == NextHopKind::Resolve);
        let local = |recorded: &common::Recorded| {
            recorded.local.last().and_then(|last| last.1.clone()).map(|s| s.addresses)
        };
        fake.wait("both addresses", |recorded| local(recorded).is_some_and(|all| all.len() >= 2));
        let kept: IpAddr = "10.0.0.2".parse().unwrap();
        router.set_ports(ports(&["v0"]), vec![kept..=kept]).unwrap();
        assert!(!fake.recorded(|recorded| local(recorded)).unwrap().contains(&kept));
        // The pages of a listing together equal the whole listing.
        let all = router.fib(&FibQuery::default(), usize::MAX);
        assert!(all.next.is_none() && all.entries.len() > 5);
        let mut paged = Vec::new();
        let mut query = FibQuery::default();
        loop {
            let page = router.fib(&query, 2);
            paged.extend(page.entries);
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
        assert_eq!(paged, all.entries);
        let within =
            FibQuery { select: FibSelect::Subnet("10.0.0.0".parse().unwrap(), 25), ..FibQuery::default() };
        let inside: Vec<_> =
            router.fib(&within, 100).entries.iter().map(|e| e.key.prefix.to_string()).collect();
        assert_eq!(inside, ["10.0.0.1", "10.0.0.2"]);
    });
}
