//! Forwarded packets, packets for the kernel, and packets that are dropped.

use std::collections::BTreeMap;

use mmb_lang::PuntClass;
use mmb_packet::build::{Extension, Frame, Ip4, Ip6, Transport, Udp};
use mmb_route::{L3Interface, RouteTable, Routes};
use proptest::prelude::*;

use crate::world::*;

#[test]
fn a_packet_goes_to_its_next_hop_with_one_hop_less() {
    let mut world = world(forwarding(&[]));
    for (to, ttl) in [("198.51.100.7", 64), ("198.51.100.255", 2), ("255.1.2.3", 255)] {
        let sent = udp(Ip4 { ttl, ..ip4(to) }, 20);
        let expected = behind(hops::FAR, &udp(Ip4 { ttl: ttl - 1, ..ip4(to) }, 20));
        assert_eq!(world.send(&sent), [(WAN, expected)], "{to}");
    }
    for (to, hop_limit) in [("2001:db8:a::7", 64), ("2001:db8:b::", 2), ("2001:db8:a::1", 255)] {
        let sent = udp(Ip6 { hop_limit, ..ip6(to) }, 20);
        let expected = behind(hops::FAR, &udp(Ip6 { hop_limit: hop_limit - 1, ..ip6(to) }, 20));
        assert_eq!(world.send(&sent), [(WAN, expected)], "{to}");
    }
    assert_eq!(world.drops(), []);
}

#[test]
fn header_checksums_are_those_of_a_fresh_header() {
    let mut world = world(forwarding(&[]));
    let frame = |id, ttl| udp(Ip4 { id, ttl, ..ip4("198.51.100.7") }, 4);
    let frames = (0..=u16::MAX).map(|id| (LAN, frame(id, 9))).collect();
    let out = world.lab.run(0, frames);
    assert_eq!(out.len(), 65_536);
    for (id, (_, sent)) in (0..=u16::MAX).zip(out) {
        assert_eq!(sent[14..], frame(id, 8)[14..], "id {id}");
    }
}

#[test]
fn options_and_padding_go_along() {
    let mut world = world(forwarding(&[]));
    let ip = |ttl| Ip4 { ttl, options: vec![0x94, 4, 0, 0], ..ip4("198.51.100.7") };
    let expected = behind(hops::FAR, &udp(ip(9), 20));
    assert_eq!(world.send(&udp(ip(10), 20)), [(WAN, expected)]);
    let padded = |ttl| {
        Frame::new(Ip4 { ttl, ..ip4("198.51.100.7") }, Udp::new(1, 2)).macs(HOST_MAC, LAN_MAC).pad_to(60)
    };
    let expected = behind(hops::FAR, &padded(9).build());
    assert_eq!(world.send(&padded(10).build()), [(WAN, expected)]);
}

/// RFC 1812, 4.2.2.3, 4.2.2.6, 5.3.13: record route, a security label, and an unknown option.
#[test]
fn unknown_options_stay() {
    let mut world = world(forwarding(&[]));
    for options in [vec![7, 7, 4, 0, 0, 0, 0, 0], vec![130, 4, 1, 2], vec![0x5e, 3, 9, 0]] {
        for (tos, flags) in [(0xff, 4), (3, 6), (0xb8, 2)] {
            let ip = |ttl| Ip4 { ttl, tos, flags, options: options.clone(), ..ip4("198.51.100.7") };
            let expected = behind(hops::FAR, &udp(ip(9), 20));
            assert_eq!(world.send(&udp(ip(10), 20)), [(WAN, expected)]);
            let ip = |ttl| Ip4 { options: Vec::new(), ..ip(ttl) };
            let expected = behind(hops::FAR, &udp(ip(9), 20));
            assert_eq!(world.send(&udp(ip(10), 20)), [(WAN, expected)]);
        }
    }
}

/// RFC 8200, 4.
#[test]
fn extension_headers_go_along() {
    let mut world = world(forwarding(&[]));
    let all = [
        Extension::Plain { number: 0, body: vec![1, 4, 0, 0, 0, 0] },
        Extension::Plain { number: 60, body: vec![0x1e, 4, 7, 7, 7, 7] },
        Extension::Plain { number: 139, body: vec![9; 6] },
        Extension::Fragment { offset: 0, more: true, id: 7 },
    ];
    for extension in all {
        let ip = |hop_limit| Ip6 {
            hop_limit,
            traffic_class: 0xbb,
            flow_label: 0x12345,
            extensions: vec![extension.clone()],
            ..ip6("2001:db8:a::7")
        };
        let expected = behind(hops::FAR, &udp(ip(9), 16));
        assert_eq!(world.send(&udp(ip(10), 16)), [(WAN, expected)]);
    }
    // No next header, and an unknown one.
    for proto in [59, 253] {
        let frame = |hop_limit| {
            let ip = Ip6 { hop_limit, ..ip6("2001:db8:a::7") };
            Frame::new(ip, Transport::Raw(proto)).macs(HOST_MAC, LAN_MAC).payload(*b"text").build()
        };
        assert_eq!(world.send(&frame(10)), [(WAN, behind(hops::FAR, &frame(9)))]);
    }
}

#[test]
fn a_packet_may_go_back_where_it_came_from() {
    let mut world = world(forwarding(&[]));
    let expected = behind(hops::HOME, &udp(Ip4 { ttl: 63, ..ip4("10.0.0.6") }, 3));
    assert_eq!(world.send(&udp(ip4("10.0.0.6"), 3)), [(LAN, expected)]);
}

#[test]
fn flows_spread_over_next_hops_and_stay_together() {
    let mut world = world(forwarding(&[]));
    for six in [false, true] {
        let frame = |sport| match six {
            false => Frame::new(ip4("198.18.0.1"), Udp::new(sport, 53)).macs(HOST_MAC, LAN_MAC).build(),
            true => Frame::new(ip6("2001:db8:8::1"), Udp::new(sport, 53)).macs(HOST_MAC, LAN_MAC).build(),
        };
        let mut flows: BTreeMap<[u8; 6], usize> = BTreeMap::new();
        for sport in 1_000..4_000 {
            let out = world.lab.run(0, vec![(LAN, frame(sport)), (LAN, frame(sport))]);
            let macs: Vec<[u8; 6]> = out.iter().map(|(_, frame)| frame[..6].try_into().unwrap()).collect();
            assert_eq!((macs.len(), macs[0]), (2, macs[1]), "a flow has one way");
            *flows.entry(macs[0]).or_default() += 1;
        }
        let expected: Vec<_> = hops::MEMBERS.map(neighbor).into();
        assert_eq!(flows.keys().copied().collect::<Vec<_>>(), expected);
        assert!(flows.values().all(|n| (900..1_100).contains(n)), "{flows:?}");
    }
}

#[test]
fn local_packets_reach_the_kernel() {
    let mut world = world(forwarding(&[]));
    let arp = Frame::ethernet(0x0806).macs(HOST_MAC, [0xff; 6]).payload([7; 28]).build();
    let answer = Frame::ethernet(0x0806).macs(HOST_MAC, LAN_MAC).payload([7; 28]).build();
    let tagged = Frame::new(ip4("198.51.100.7"), Udp::new(1, 2)).macs(HOST_MAC, LAN_MAC).vlan(5).build();
    let group = Frame::new(ip4("224.0.0.5"), Udp::new(1, 2)).macs(HOST_MAC, [1, 0, 0x5e, 0, 0, 5]).build();
    let solicitation = Frame::new(ip6("ff02::1:ff00:1"), Udp::new(1, 2)).macs(HOST_MAC, [0x33; 6]).build();
    let own =
        [udp(Ip4 { ttl: 1, ..ip4("10.0.0.1") }, 9), udp(Ip6 { hop_limit: 1, ..ip6("2001:db8:1::1") }, 9)];
    let link_local = udp(Ip6::new([0xfe80, 0, 0, 0, 0, 0, 0, 5], [0xfe80, 0, 0, 0, 0, 0, 0, 1]), 9);
    let runt = vec![0xff; 13];
    let frames = [arp, answer, tagged, group, solicitation, link_local, runt].into_iter().chain(own);
    let mut n = 0;
    for frame in frames {
        n += 1;
        assert_eq!(world.send(&frame), [(TWIN, frame)]);
    }
    let punted = world.lab.routing_counters().punted;
    // Neighbours, routing protocols, unicast packets, others.
    assert_eq!((world.drops(), punted, punted.iter().sum()), (vec![], [2, 0, 4, 3], n));
}

/// A priority tag (VLAN 0) is no VLAN (IEEE 802.1Q, 6.9). Linux accepts any number of them and routes the
/// packet, so that it would pass no rule if the kernel got it.
#[test]
fn priority_tags_are_removed() {
    let plain = udp(ip4("198.51.100.7"), 9);
    let tagged = |tags: &[[u8; 4]]| [&plain[..12], &tags.concat(), &plain[12..]].concat();
    let zero = [0x81, 0, 0xe0, 0];
    for rules in [&[][..], &["add udp-dport 54 drop"], &["add-stateful udp-dport 53 accept"]] {
        let mut world = world(forwarding(rules));
        let expected = world.send(&plain);
        assert!(expected.iter().all(|(port, _)| *port == WAN) && expected.len() == 1, "{expected:?}");
        for tags in [&[zero][..], &[zero, zero], &[[0x88, 0xa8, 0, 0]]] {
            assert_eq!(world.send(&tagged(tags)), expected, "{tags:?}");
        }
        // What is behind belongs to a VLAN: the kernel's.
        let vlan = [0x81, 0, 0, 5];
        assert_eq!(world.send(&tagged(&[zero, vlan])), [(TWIN, tagged(&[vlan]))]);
        assert_eq!(world.drops(), []);
    }
    let mut world = world(forwarding(&["add ip-proto udp drop"]));
    assert_eq!(world.send(&tagged(&[zero])), []);
    assert_eq!(world.send(&tagged(&[zero; 4])), []);
    assert_eq!(world.drops(), [("rule", 2)]);
    // A frame full of tags takes no more work than one with four.
    assert_eq!(world.send(&tagged(&[zero; 300])), []);
    assert!(world.drops().contains(&("vlan-depth", 1)), "{:?}", world.drops());
    let runt = [&plain[..12], &zero[..], &zero[..3]].concat();
    assert_eq!(world.send(&runt).len(), 1, "the kernel gets it");
}

#[test]
fn a_flood_of_the_machine_itself_is_limited() {
    let mut forwarding = forwarding(&[]);
    forwarding.punt_limits.set(PuntClass::Local, Some(1_000));
    let mut world = world(forwarding);
    let own = udp(ip4("10.0.0.1"), 9);
    let frames = |n: usize| vec![(LAN, own.clone()); n];
    assert_eq!(world.lab.run(0, frames(150)).len(), 100, "the packets of a tenth of a second");
    assert_eq!(world.drops(), [("punt-limit-local", 50)]);
    // Other classes, and packets that are forwarded, are not touched.
    let arp = Frame::ethernet(0x0806).macs(HOST_MAC, [0xff; 6]).build();
    assert_eq!(world.send(&arp), [(TWIN, arp)]);
    assert_eq!(world.send(&udp(ip4("198.51.100.7"), 9)).len(), 1);
    assert_eq!(world.lab.run(20, frames(150)).len(), 20, "20 ms later");
}

#[test]
fn packets_of_the_kernel_are_sent_unchanged() {
    let mut world = world(forwarding(&["add all drop"]));
    for frame in [
        udp(Ip4 { ttl: 1, ..ip4("198.51.100.7") }, 9),
        udp(ip6("fe80::5"), 9),
        Frame::ethernet(0x0806).payload([7; 28]).build(),
    ] {
        assert_eq!(world.lab.run(0, vec![(TWIN, frame.clone())]), [(LAN, frame)]);
    }
}

#[test]
fn without_a_way_to_the_kernel_its_packets_are_dropped() {
    let mut forwarding = forwarding(&[]);
    forwarding.ports.iter_mut().for_each(|port| port.routed = port.routed.map(|_| Default::default()));
    let mut world = world(forwarding);
    assert_eq!(world.send(&udp(ip4("10.0.0.1"), 9)), []);
    assert_eq!(world.send(&Frame::ethernet(0x0806).macs(HOST_MAC, [0xff; 6]).build()), []);
    assert_eq!(world.drops(), [("punt-none", 2)]);
    let drops: Vec<_> = world.lab.port_drops(LAN).into_iter().map(|(reason, n)| (reason.name(), n)).collect();
    assert_eq!((drops, world.lab.port_drops(WAN)), (vec![("punt-none", 2)], vec![]));
}

#[test]
fn frames_for_others_are_not_routed() {
    let mut world = world(forwarding(&[]));
    let stray = Frame::new(ip4("198.51.100.7"), Udp::new(1, 2)).macs(HOST_MAC, WAN_MAC).build();
    assert_eq!(world.send(&stray), []);
    assert_eq!(world.drops(), [("other-host", 1)]);
    // The port's Ethernet address is not known yet.
    world.lab.publish_routes(Routes::default());
    assert_eq!(world.send(&stray), [(TWIN, stray)]);
}

/// RFC 1812, 5.3.7; RFC 4291, 2.5.2, 2.5.3, 2.5.6, 2.7.
#[test]
fn addresses_that_must_not_be_forwarded() {
    let mut world = world(forwarding(&[]));
    let sources =
        ["0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"];
    let mut martians: Vec<Vec<u8>> = Vec::new();
    for source in sources {
        martians.push(udp(Ip4 { src: source.parse().unwrap(), ..ip4("198.51.100.7") }, 9));
    }
    martians.extend(["0.0.0.0", "0.9.9.9", "127.0.0.1", "127.255.0.1"].map(|to| udp(ip4(to), 9)));
    for source in ["::", "::1", "ff02::1", "ff0e::1", "fe80::5", "febf::5"] {
        martians.push(udp(Ip6 { src: source.parse().unwrap(), ..ip6("2001:db8:a::7") }, 9));
    }
    martians.extend(["::", "::1"].map(|to| udp(ip6(to), 9)));
    let n = martians.len() as u64;
    for martian in martians {
        assert_eq!(world.send(&martian), [], "{martian:02x?}");
    }
    assert_eq!((world.drops(), world.lab.routing_counters().icmp_errors), (vec![("martian", n)], 0));
}

/// RFC 1812, 5.2.2.
#[test]
fn damaged_headers_cause_no_error() {
    let mut world = world(forwarding(&[]));
    let good = udp(ip4("198.51.100.7"), 30);
    let with = |at: usize, value: u8| {
        let mut frame = good.clone();
        frame[at] = value;
        frame
    };
    let mut with_options = udp(Ip4 { options: vec![1; 4], ..ip4("198.51.100.7") }, 9);
    with_options[35] = 0;
    for frame in [with(14, 0x55), with(14, 0x44), with(17, 5), with(24, good[24] ^ 1), with_options] {
        assert_eq!(world.send(&frame), []);
    }
    assert_eq!(world.send(&good[..40]), []);
    assert_eq!(world.send(&udp(ip6("2001:db8:a::7"), 30)[..60]), []);
    let expected = [("ip4-malformed", 3), ("ip4-truncated", 1), ("ip6-truncated", 1), ("ip4-checksum", 2)];
    assert_eq!(world.drops(), expected);
}

#[test]
fn each_port_has_its_table() {
    let mut world = world(forwarding(&[]));
    let mut routes = routes();
    let mut other = RouteTable::default();
    insert(&mut other, "198.51.100.0/24", hops::HOME);
    insert(&mut other, "2001:db8:a::/48", hops::HOME);
    routes.tables.push(other);
    routes.interfaces[1] = routes.interfaces[1].map(|face| L3Interface { table: 1, ..face });
    world.lab.publish_routes(routes);
    for (frame, same) in [
        (udp(ip4("198.51.100.7"), 9), udp(Ip4 { ttl: 63, ..ip4("198.51.100.7") }, 9)),
        (udp(ip6("2001:db8:a::7"), 9), udp(Ip6 { hop_limit: 63, ..ip6("2001:db8:a::7") }, 9)),
    ] {
        let at_wan = [&WAN_MAC[..], &frame[6..]].concat();
        let frames = vec![(LAN, frame.clone()), (WAN, at_wan.clone()), (WAN, at_wan), (LAN, frame)];
        let out = world.lab.run(0, frames);
        let (far, home) = ((WAN, behind(hops::FAR, &same)), (LAN, behind(hops::HOME, &same)));
        assert_eq!(out, [far.clone(), home.clone(), home, far]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Every packet leaves or is dropped for a reason, including packets that waited for a neighbour or for
    /// a first fragment. No frame exceeds the MTU.
    #[test]
    fn malformed_packets_do_not_panic(
        hits in prop::collection::vec(prop::collection::vec((0..70usize, any::<u8>()), 0..5), 64),
        cuts in prop::collection::vec(prop::option::of(0..70usize), 64),
        rules: bool,
    ) {
        let lines = ["add udp-dport 1 drop", "add-stateful in lan ip-ttl 7 accept"];
        let mut world = world(forwarding(if rules { &lines } else { &[] }));
        let kinds = [
            udp(ip4("198.51.100.7"), 30),
            udp(Ip4 { options: vec![7, 7, 4, 0, 0, 0, 0, 0], ..ip4("100.64.0.1") }, 1_200),
            udp(ip6("2001:db8:a::7"), 30),
            udp(ip4("192.0.2.5"), 30),
        ];
        let mut frames: Vec<Vec<u8>> = (0..64).map(|i| kinds[i % kinds.len()].clone()).collect();
        for ((frame, hits), cut) in frames.iter_mut().zip(hits).zip(cuts) {
            hits.into_iter().for_each(|(at, byte)| frame[at] = byte);
            frame.truncate(cut.unwrap_or(frame.len()));
        }
        let mut out = world.lab.run(0, frames.into_iter().map(|frame| (LAN, frame)).collect());
        for second in 1..=60 {
            out.extend(world.lab.run(second * 1_000, Vec::new()));
        }
        let counters = world.lab.routing_counters();
        let dropped: u64 = world.drops().iter().map(|(_, n)| n).sum();
        let made = counters.icmp_errors + counters.fragments;
        prop_assert_eq!(counters.waiting, 0);
        prop_assert_eq!(64 + made, out.len() as u64 + dropped + counters.fragmented);
        prop_assert!(out.iter().all(|(port, frame)| *port == TWIN || frame.len() <= 14 + 1_500));
    }
}
