//! The mirror compared with the kernel, in network namespaces.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use common::{Fate, Kernel, compare, hops, in_namespace, index_of, ip, ip_batch, mirror, mirrored};
use mmb_route::NextHopKind;
use mmb_router::{FibQuery, FibSelect};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Two interfaces with 16 neighbours each; their peers are in the same namespace.
fn two_links() {
    for (name, net) in [("v0", 0), ("v1", 1)] {
        ip(&format!("link add {name} type veth peer name {name}x"));
        ip(&format!("link set {name} up"));
        ip(&format!("link set {name}x up"));
        ip(&format!("addr add 10.255.{net}.1/24 dev {name}"));
        ip(&format!("addr add 2001:db8:{net}::1/64 dev {name} nodad"));
        let mut neighbors = String::new();
        for last in 10..26 {
            let mac = format!("lladdr 02:00:00:00:0{net}:{last:02x} dev {name}");
            writeln!(neighbors, "neigh add 10.255.{net}.{last} {mac}").unwrap();
            writeln!(neighbors, "neigh add 2001:db8:{net}::{last:x} {mac}").unwrap();
        }
        ip_batch(&neighbors);
    }
}

fn next_hop(random: &mut SmallRng, v6: bool) -> String {
    let (net, last) = (random.random_range(0..2), random.random_range(10..26));
    match v6 {
        false => format!("via 10.255.{net}.{last} dev v{net}"),
        true => format!("via 2001:db8:{net}::{last:x} dev v{net}"),
    }
}

fn target(random: &mut SmallRng, v6: bool) -> String {
    match random.random_range(0..100) {
        0 => "blackhole".into(),
        1 => "unreachable".into(),
        2 => "prohibit".into(),
        3..8 => {
            let nets: BTreeSet<String> = (0..3).map(|_| next_hop(random, v6)).collect();
            let weight = random.random_range(1..9);
            nets.iter().map(|hop| format!("nexthop {hop} weight {weight} ")).collect()
        }
        _ => next_hop(random, v6),
    }
}

/// Random routes of many lengths, as commands of `ip route` with this verb.
fn table4(random: &mut SmallRng, count: usize) -> BTreeMap<(u32, u8), String> {
    let mut table = BTreeMap::new();
    while table.len() < count {
        let length = *[8, 12, 16, 19, 20, 21, 22, 22, 23, 23, 24, 24, 24, 24, 25, 28, 30, 32]
            .get(random.random_range(0..18usize))
            .unwrap();
        let bits = random.random_range(0x0b00_0000..0xdf00_0000u32) & u32::MAX << (32 - length);
        if bits >> 24 != 127 {
            table.entry((bits, length)).or_insert_with(|| target(random, false));
        }
    }
    table
}

fn command4(verb: &str, (bits, length): &(u32, u8), target: &str) -> String {
    let prefix = format!("{}/{length}", Ipv4Addr::from(*bits));
    match target.split(' ').next() {
        Some(kind @ ("blackhole" | "unreachable" | "prohibit")) => format!("route {verb} {kind} {prefix}\n"),
        _ => format!("route {verb} {prefix} {target}\n"),
    }
}

fn destinations4(random: &mut SmallRng, table: &BTreeMap<(u32, u8), String>, count: usize) -> Vec<IpAddr> {
    let prefixes: Vec<_> = table.keys().collect();
    let mut one = |inside: bool| {
        let any = random.random_range(0x0100_0000..0xe000_0000u32);
        let (bits, length) = prefixes[random.random_range(0..prefixes.len())];
        let host = if *length == 32 { 0 } else { u32::MAX >> length };
        if inside { bits | any & host } else { any }
    };
    (0..count)
        .map(|n| one(n % 2 == 0))
        .filter(|to| to >> 24 != 127)
        .map(|to| Ipv4Addr::from(to).into())
        .collect()
}

#[test]
fn a_full_table_of_ipv4() {
    in_namespace(|| {
        two_links();
        let random = &mut SmallRng::seed_from_u64(1);
        let table = table4(random, 120_000);
        let all: String = table.iter().map(|(prefix, target)| command4("add", prefix, target)).collect();
        ip_batch(&all);
        // State before the mirror starts.
        let (fake, router) = mirror(&["v0", "v1"]);
        assert!(router.counters().routes4 >= 119_000, "{:?}", router.counters());
        compare(&fake, destinations4(random, &table, 100_000));
        // Changes while it runs: other next hops, fewer routes, more specific ones, a default route.
        let mut changes = String::new();
        for prefix in table.keys() {
            match random.random_range(0..20) {
                0 => changes += &command4("replace", prefix, &target(random, false)),
                1 => changes += &format!("route del {}/{}\n", Ipv4Addr::from(prefix.0), prefix.1),
                _ => {}
            }
        }
        let more = table4(random, 5_000);
        more.iter().for_each(|(prefix, target)| changes += &command4("append", prefix, target));
        changes += "route add default via 10.255.0.10\nroute add 198.51.100.0/24 via 10.255.0.11 metric 7\n";
        ip_batch(&changes);
        let last = |recorded: &common::Recorded| {
            mirrored(&recorded.routes, "198.51.100.9".parse().unwrap())
                .contains(&Fate::Via(index_of("v0"), "10.255.0.11".parse().unwrap()))
        };
        fake.wait("the last change", last);
        compare(&fake, destinations4(random, &table, 50_000));
        compare(&fake, destinations4(random, &more, 50_000));
        let counters = router.counters();
        assert_eq!((counters.overruns, counters.malformed), (0, 0));
        drop(router);
    });
}

#[test]
fn a_full_table_of_ipv6() {
    in_namespace(|| {
        two_links();
        let (fake, router) = mirror(&["v0", "v1"]);
        let random = &mut SmallRng::seed_from_u64(2);
        let mut table = BTreeMap::new();
        while table.len() < 30_000 {
            let length = *[20u8, 28, 29, 32, 36, 40, 44, 47, 48, 48, 56, 64, 128]
                .get(random.random_range(0..13usize))
                .unwrap();
            let bits = (random.random::<u128>() >> 3 | 1 << 125) & u128::MAX << (128 - length);
            table.insert((bits, length), target(random, true));
        }
        let command = |verb: &str, (bits, length): &(u128, u8), target: &str| {
            let prefix = format!("{}/{length}", Ipv6Addr::from(*bits));
            match target.split(' ').next() {
                Some(kind @ ("blackhole" | "unreachable" | "prohibit")) => {
                    format!("-6 route {verb} {kind} {prefix}\n")
                }
                _ => format!("-6 route {verb} {prefix} {target}\n"),
            }
        };
        let mut commands: String =
            table.iter().map(|(prefix, target)| command("add", prefix, target)).collect();
        for prefix in table.keys() {
            match random.random_range(0..10) {
                0 => commands += &command("replace", prefix, &target(random, true)),
                1 => commands += &command("append", prefix, &next_hop(random, true)),
                2 => commands += &command("del", prefix, ""),
                _ => {}
            }
        }
        let batch: String =
            commands.lines().map(|line| format!("{}\n", line.trim_start_matches("-6 "))).collect();
        common::ip6_batch(&format!("{batch}route add 2001:db8:ffff::/48 via 2001:db8:1::b\n"));
        fake.wait_for_hop("2001:db8:ffff::1", |hop| hop.kind == NextHopKind::Forward);
        let prefixes: Vec<_> = table.keys().collect();
        let mut one = |inside: bool| {
            let any = random.random::<u128>() >> 3 | 1 << 125;
            let (bits, length) = prefixes[random.random_range(0..prefixes.len())];
            let host = u128::MAX.checked_shr(u32::from(*length)).unwrap_or(0);
            IpAddr::from(Ipv6Addr::from(if inside { bits | any & host } else { any }))
        };
        let destinations: Vec<_> = (0..60_000).map(|n| one(n % 8 != 0)).collect();
        compare(&fake, destinations);
        drop(router);
    });
}

#[test]
fn kinds_of_routes() {
    in_namespace(|| {
        two_links();
        let (fake, router) = mirror(&["v0", "v1"]);
        for command in [
            "route add 192.0.2.0/24 via 10.255.0.10",
            "route add blackhole 192.0.2.0/25",
            "route add unreachable 192.0.2.128/26",
            "route add prohibit 192.0.2.192/27",
            "route add 192.0.2.240/29 nexthop via 10.255.0.10 nexthop via 10.255.1.10 weight 3 nexthop via 10.255.1.11",
            "route add 198.18.0.0/15 dev v1",
            "route add 198.19.0.0/16 via inet6 2001:db8:1::c dev v1",
            "route add 203.0.113.0/24 dev lo",
            "route add 203.0.113.128/25 via 10.255.0.12 onlink dev v0 mtu 1300",
            "route add 192.0.2.8 via 10.255.0.10 metric 20",
            "route add 192.0.2.8 via 10.255.1.10 metric 10",
            "-6 route add 2001:db8:ff::/48 via 2001:db8:0::a mtu lock 1400",
        ] {
            ip(command);
        }
        fake.wait_for_hop("2001:db8:ff::1", |hop| hop.mtu == 1400);
        let addresses = [
            "192.0.2.1",
            "192.0.2.130",
            "192.0.2.200",
            "192.0.2.230",
            "192.0.2.241",
            "198.18.0.1",
            "198.19.0.1",
            "10.255.0.1",
            "10.255.0.255",
            "10.255.0.10",
            "10.255.1.77",
            "203.0.113.129",
            "192.0.2.8",
            "8.8.8.8",
            "2001:db8::1",
            "2001:db8::a",
            "2001:db8:1::77",
            "2001:db8:ff::9",
            "2001:db8:fe::9",
        ];
        compare(&fake, addresses.iter().map(|text| text.parse().unwrap()));
        let routes = fake.routes();
        let at = |to: &str| hops(&routes, 0, to.parse().unwrap());
        // Weights 1, 3, 1.
        assert_eq!(at("192.0.2.241").len(), 5);
        assert_eq!(at("203.0.113.129")[0].mtu, 1300);
        // The loopback interface is not a port.
        assert_eq!(at("203.0.113.1")[0].kind, NextHopKind::Punt);
        for kernels in ["224.0.0.5", "239.1.1.1", "255.255.255.255", "ff02::1", "fe80::1", "127.0.0.1"] {
            assert_eq!(at(kernels)[0].kind, NextHopKind::Punt, "{kernels}");
        }
        let entry = |to: &str| {
            let query = FibQuery { select: FibSelect::Address(to.parse().unwrap()), ..FibQuery::default() };
            router.fib(&query, 10).entries.pop().unwrap()
        };
        assert_eq!((entry("192.0.2.8").metric, entry("192.0.2.1").kind), (10, "blackhole"));
        assert_eq!((entry("10.255.0.10").kind, entry("10.255.0.1").kind), ("neighbor", "local"));
        let weights: Vec<u16> = entry("192.0.2.241").hops.iter().map(|hop| hop.weight).collect();
        assert_eq!(weights.iter().sum::<u16>(), 5);
    });
}

#[test]
fn objects_and_groups() {
    in_namespace(|| {
        two_links();
        ip("nexthop add id 1 via 10.255.0.10 dev v0");
        ip("nexthop add id 2 via 10.255.1.10 dev v1");
        ip("nexthop add id 3 group 1/2,3");
        ip("route add 192.0.2.0/24 nhid 3");
        let (fake, _router) = mirror(&["v0", "v1"]);
        let to: IpAddr = "192.0.2.1".parse().unwrap();
        let ways = |recorded: &common::Recorded| -> Vec<IpAddr> {
            hops(&recorded.routes, 0, to).iter().filter_map(|hop| hop.gateway).collect()
        };
        let gateway = |net: u8, last: u8| IpAddr::from([10, 255, net, last]);
        let both = |recorded: &common::Recorded| {
            let ways = ways(recorded);
            ways.contains(&gateway(0, 10)) && ways.contains(&gateway(1, 10))
        };
        fake.wait("both", both);
        ip("nexthop replace id 1 via 10.255.0.11 dev v0");
        fake.wait("another object", |recorded| ways(recorded).contains(&gateway(0, 11)));
        ip("nexthop add id 4 blackhole");
        ip("route replace 192.0.2.0/24 nhid 4");
        fake.wait_for_hop("192.0.2.1", |hop| hop.kind == NextHopKind::Blackhole);
        ip("route replace 192.0.2.0/24 nhid 3");
        fake.wait("both again", |recorded| ways(recorded).contains(&gateway(1, 10)));
        // The kernel removes the object without a message.
        ip("link set v1 down");
        fake.wait("one is left", |recorded| ways(recorded) == [gateway(0, 11)]);
        compare(&fake, [to]);
        ip("nexthop del id 1");
        fake.wait_for_hop("192.0.2.1", |hop| hop.kind == NextHopKind::NoRoute);
        compare(&fake, [to]);
    });
}

#[test]
fn links_go_down_and_up() {
    in_namespace(|| {
        two_links();
        ip("route add 192.0.2.0/24 via 10.255.1.10");
        ip("route add 192.0.2.0/25 nexthop via 10.255.0.10 nexthop via 10.255.1.10");
        ip("route add 192.0.0.0/16 via 10.255.0.11");
        ip("-6 route add 2001:db8:f::/48 via 2001:db8:1::a");
        let (fake, router) = mirror(&["v0", "v1"]);
        let addresses = || {
            [
                "192.0.2.200",
                "192.0.2.1",
                "10.255.1.77",
                "10.255.1.10",
                "10.255.1.1",
                "2001:db8:f::1",
                "2001:db8:1::a",
            ]
            .map(|text| text.parse::<IpAddr>().unwrap())
        };
        compare(&fake, addresses());
        ip("link set v1 down");
        let v0 = index_of("v0");
        fake.wait_for_hop("192.0.2.200", |hop| hop.interface == v0);
        fake.wait("the member is out", |recorded| {
            hops(&recorded.routes, 0, "192.0.2.1".parse().unwrap()).iter().all(|hop| hop.interface == v0)
        });
        fake.wait_for_hop("2001:db8:f::1", |hop| hop.kind == NextHopKind::NoRoute);
        fake.wait_for_hop("10.255.1.77", |hop| hop.kind == NextHopKind::NoRoute);
        compare(&fake, addresses());
        ip("link set v1 up");
        fake.wait_for_hop("10.255.1.77", |hop| hop.kind == NextHopKind::Resolve);
        // The static route of the link that was down does not return.
        fake.wait("the member is back", |recorded| {
            hops(&recorded.routes, 0, "192.0.2.1".parse().unwrap()).iter().any(|hop| hop.interface != v0)
        });
        compare(&fake, ["192.0.2.200", "192.0.2.1", "10.255.1.77"].map(|text| text.parse().unwrap()));
        // Without carrier, routes stay unless a setting says otherwise.
        common::sysctl("ipv4/conf/v1/ignore_routes_with_linkdown", "1");
        ip("link set v1x down");
        fake.wait("the member is out again", |recorded| {
            hops(&recorded.routes, 0, "192.0.2.1".parse().unwrap()).iter().all(|hop| hop.interface == v0)
        });
        compare(&fake, ["192.0.2.1", "10.255.1.77"].map(|text| text.parse().unwrap()));
        ip("link del v1");
        // The kernel removes the whole route with one of its links.
        fake.wait_for_hop("192.0.2.1", |hop| hop.gateway == Some([10, 255, 0, 11].into()));
        fake.wait_for_hop("10.255.1.1", |hop| hop.kind == NextHopKind::NoRoute);
        compare(&fake, addresses());
        assert_eq!(router.counters().malformed, 0);
    });
}

#[test]
fn addresses_are_added_and_removed() {
    in_namespace(|| {
        two_links();
        let (fake, _router) = mirror(&["v0", "v1"]);
        ip("addr add 172.16.0.1/16 dev v0");
        fake.wait_for_hop("172.16.5.5", |hop| hop.kind == NextHopKind::Resolve);
        fake.wait_for_hop("172.16.0.1", |hop| hop.kind == NextHopKind::Punt);
        fake.wait("the kernel keeps it", |recorded| {
            let (_, last) = recorded.local.iter().rfind(|(port, _)| *port == 1).unwrap();
            last.as_ref().unwrap().addresses.contains(&"172.16.0.1".parse().unwrap())
        });
        let face = fake.routes().interfaces[1].unwrap();
        assert_eq!(
            (face.ip4, face.ip6),
            (Some([10, 255, 1, 1].into()), Some("2001:db8:1::1".parse().unwrap()))
        );
        ip("route add 192.0.2.0/24 via 10.255.0.10 src 172.16.0.1");
        fake.wait_for_hop("192.0.2.1", |hop| hop.kind == NextHopKind::Forward);
        ip("addr del 172.16.0.1/16 dev v0");
        fake.wait_for_hop("172.16.5.5", |hop| hop.kind == NextHopKind::NoRoute);
        // A route whose source address is removed is removed, too; older kernels send no message.
        fake.wait_for_hop("192.0.2.1", |hop| hop.kind == NextHopKind::NoRoute);
        ip("link set v1 address 02:00:00:00:00:99");
        fake.wait("the face has it", |recorded| {
            recorded.routes.interfaces[1].unwrap().mac == [2, 0, 0, 0, 0, 0x99]
        });
        // The kernel has removed the neighbours there.
        ip("neigh add 10.255.1.10 lladdr 02:00:00:00:01:0a dev v1");
        fake.wait_for_hop("10.255.1.10", |hop| hop.header[6..] == [2, 0, 0, 0, 0, 0x99]);
    });
}

#[test]
fn one_table_with_the_kernels_own() {
    in_namespace(|| {
        two_links();
        let (fake, _router) = mirror(&["v0", "v1"]);
        for command in [
            "route add 100.64.0.0/10 via 10.255.0.10 table default",
            "route add 100.64.1.0/24 via 10.255.1.10",
            "-6 route add local 2001:db8:a::/48 dev lo",
            "-6 route add 2001:db8:a:1::/64 via 2001:db8:1::a",
            "-6 route add 2001:db8:a:2::/64 via 2001:db8:1::a table 77",
        ] {
            ip(command);
        }
        ip("route add 198.51.100.0/24 via 10.255.0.10");
        fake.wait_for_hop("198.51.100.1", |hop| hop.kind == NextHopKind::Forward);
        let addresses = ["100.64.1.1", "100.65.0.1", "2001:db8:a:1::5", "2001:db8:a:2::5"];
        fake.wait_for_hop(addresses[2], |hop| hop.kind == NextHopKind::Punt);
        compare(&fake, addresses.map(|text| text.parse().unwrap()));
        let kernel = Kernel::new();
        assert_eq!(kernel.fate(addresses[2].parse().unwrap()), Fate::Kernel, "the local table comes first");
    });
}
