//! ICMP errors to senders, and fragmentation of forwarded packets.

use mmb_packet::build::{Extension, Frame, Icmp, Ip4, Ip6, Transport, Udp};
use mmb_packet::checksum::{fold, sum};

use crate::world::*;

#[test]
fn every_icmp_error_reaches_the_sender() {
    let mut world = world(forwarding(&[]));
    // Destinations, type and code over IPv4 (RFC 792, RFC 1812, 5.2.7) and IPv6 (RFC 4443), and the counter.
    // For routes of type unreachable and prohibit they are those of Linux.
    let cases = [
        (["203.0.114.1", "2001:db8:ffff::1"], [(3, 0), (1, 0)], "no-route"),
        (["203.0.113.17", "2001:db8:6::1"], [(3, 1), (1, 0)], "unreachable-route"),
        (["203.0.113.33", "2001:db8:7::1"], [(3, 13), (1, 1)], "prohibited-route"),
        (["192.0.2.9", "2001:db8:2::9"], [(3, 1), (1, 3)], "neighbor-failed"),
    ];
    for (n, ([to4, to6], [four, six], _)) in cases.iter().enumerate() {
        let packet = udp(ip4(to4), 600);
        assert_eq!(error_about(&world.send(&packet), &packet), (four.0, four.1, 0), "{n}");
        let packet = udp(ip6(to6), 1_300);
        assert_eq!(error_about(&world.send(&packet), &packet), (six.0, six.1, 0), "{n}");
    }
    for to in ["203.0.113.1", "198.51.100.1", "192.0.2.5"] {
        let packet = udp(Ip4 { ttl: 1, ..ip4(to) }, 1);
        match to {
            "203.0.113.1" => assert_eq!(world.send(&packet), []),
            _ => assert_eq!(error_about(&world.send(&packet), &packet), (11, 0, 0)),
        }
    }
    let packet = udp(Ip6 { hop_limit: 0, ..ip6("2001:db8:a::1") }, 1);
    assert_eq!(error_about(&world.send(&packet), &packet), (3, 0, 0));
    let mut expected: Vec<_> = cases.iter().map(|(_, _, reason)| (*reason, 2)).collect();
    expected.extend([("ttl-expired", 3), ("blackhole", 1)]);
    let mut drops = world.drops();
    expected.sort_unstable();
    drops.sort_unstable();
    assert_eq!((drops, world.lab.routing_counters().icmp_errors), (expected, 11));
}

/// RFC 1191, 4; RFC 4443, 3.2.
#[test]
fn packet_too_big_errors_have_the_mtu() {
    let mut world = world(forwarding(&[]));
    let whole = |payload| udp(Ip4 { flags: 2, ..ip4("100.64.0.1") }, payload);
    assert_eq!(world.send(&whole(1_000 - 28)).len(), 1);
    let packet = whole(1_000 - 27);
    assert_eq!(error_about(&world.send(&packet), &packet), (3, 4, 1_000));
    assert_eq!(world.send(&udp(ip6("2001:db8:9::1"), 1_000 - 48)).len(), 1);
    let packet = udp(ip6("2001:db8:9::1"), 1_000 - 47);
    assert_eq!(error_about(&world.send(&packet), &packet), (2, 0, 1_000));
    assert_eq!(world.drops(), [("frag-needed", 2)]);
    // The length of invalid packets is not checked.
    let packet = udp(Ip4 { ttl: 1, flags: 2, ..ip4("100.64.0.1") }, 1_400);
    assert_eq!(error_about(&world.send(&packet), &packet), (11, 0, 0));
}

/// Reassembles fragments to an IPv4 datagram (RFC 791, 3.2).
fn reassemble(fragments: &[Vec<u8>]) -> Vec<u8> {
    let mut data = vec![None; 65_536];
    let mut end = 0;
    for fragment in fragments {
        let ip = &fragment[14..];
        let header = usize::from(ip[0] & 15) * 4;
        assert_eq!(fold(sum(&ip[..header], 0)), 0xffff);
        assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len());
        let control = u16::from_be_bytes([ip[6], ip[7]]);
        let at = usize::from(control & 0x1fff) * 8;
        if control & 0x2000 == 0 {
            end = at + ip.len() - header;
        } else {
            assert_eq!((ip.len() - header) % 8, 0);
        }
        for (place, byte) in data[at..].iter_mut().zip(&ip[header..]) {
            assert_eq!(place.replace(*byte), None, "fragments do not overlap");
        }
    }
    data[..end].iter().map(|byte| byte.expect("no hole")).collect()
}

#[test]
fn packets_without_df_are_fragmented() {
    let mut world = world(forwarding(&[]));
    for (payload, pieces) in [(973, 2), (1_400, 2), (1_472, 2), (5_000, 6)] {
        for options in [vec![], vec![0x94, 4, 0, 0, 7, 7, 4, 0]] {
            let packet = udp(Ip4 { id: 77, ttl: 9, options, ..ip4("100.64.0.1") }, payload);
            let out = world.send(&packet);
            assert_eq!(out.len(), pieces, "{payload}");
            let frames: Vec<Vec<u8>> = out
                .into_iter()
                .map(|(port, frame)| {
                    assert!(port == WAN && frame.len() <= 14 + 1_000);
                    assert_eq!(frame[..12], [neighbor(hops::NARROW), WAN_MAC].concat());
                    assert_eq!(
                        (frame[22], &frame[18..20], &frame[26..34]),
                        (8, &packet[18..20], &packet[26..34])
                    );
                    frame
                })
                .collect();
            let header = usize::from(packet[14] & 15) * 4;
            assert_eq!(reassemble(&frames), packet[14 + header..], "{payload}");
        }
    }
    let counters = world.lab.routing_counters();
    assert_eq!((counters.fragmented, counters.fragments), (8, 24));
    assert_eq!(world.drops(), []);
}

/// RFC 1812, 4.3.2.7; RFC 4443, 2.4 e.
#[test]
fn packets_that_cause_no_error() {
    let mut world = world(forwarding(&[]));
    let icmp = |net: mmb_packet::build::Net, kind| {
        let transport = Transport::Icmp(Icmp::new(kind));
        Frame::new(net, transport).macs(HOST_MAC, LAN_MAC).payload([0; 40]).build()
    };
    let later = Frame::new(Ip4 { fragment_offset: 4, ..ip4("203.0.114.1") }, Transport::Raw(17));
    let later6 = Extension::Fragment { offset: 4, more: false, id: 1 };
    let silent = [
        icmp(ip4("203.0.114.1").into(), 3),
        icmp(ip4("203.0.114.1").into(), 11),
        icmp(ip6("2001:db8:ffff::1").into(), 1),
        icmp(ip6("2001:db8:ffff::1").into(), 137),
        later.macs(HOST_MAC, LAN_MAC).payload([0; 40]).build(),
        udp(Ip6 { extensions: vec![later6], ..ip6("2001:db8:ffff::1") }, 40),
        udp(ip4("224.0.0.9"), 40),
        udp(ip6("ff0e::9"), 40),
    ];
    for frame in &silent {
        assert_eq!(world.send(frame), [], "{frame:02x?}");
    }
    assert_eq!((world.drops(), world.lab.routing_counters().icmp_errors), (vec![("no-route", 8)], 0));
    // An echo request causes an error like any other packet.
    let echo = icmp(ip4("203.0.114.1").into(), 8);
    assert_eq!(error_about(&world.send(&echo), &echo), (3, 0, 0));
}

/// RFC 1812, 4.3.2.8; RFC 4443, 2.4 f.
#[test]
fn errors_are_limited_in_number() {
    let mut world = world(forwarding(&[]));
    let packet = udp(ip4("203.0.114.1"), 1);
    let flood = |n| vec![(LAN, packet.clone()); n];
    assert_eq!(world.lab.run(0, flood(1_000)).len(), 50);
    assert_eq!(world.lab.run(7, flood(1_000)).len(), 7, "one a millisecond");
    let counters = world.lab.routing_counters();
    assert_eq!((counters.icmp_errors, counters.icmp_suppressed), (57, 1_943));
    assert_eq!(world.drops(), [("no-route", 2_000)]);
}

#[test]
fn errors_are_routed_and_cause_no_errors() {
    let mut world = world(forwarding(&[]));
    // To a sender that is not where the packet came from.
    let packet = udp(Ip4 { src: [198, 51, 100, 9].into(), ..ip4("203.0.114.1") }, 1);
    let out = world.send(&packet);
    assert_eq!((out.len(), out[0].0, &out[0].1[30..34]), (1, WAN, &[198, 51, 100, 9][..]));
    assert_eq!(out[0].1[..6], neighbor(hops::FAR));
    // To a sender without a route.
    let packet = udp(Ip4 { src: [203, 0, 114, 9].into(), ..ip4("203.0.114.1") }, 1);
    assert_eq!(world.send(&packet), []);
    assert_eq!((world.drops(), world.lab.routing_counters().icmp_errors), (vec![("no-route", 3)], 2));
    // To a sender on the machine itself.
    let packet = udp(Ip4 { src: ROUTER, ..ip4("203.0.114.1") }, 1);
    assert_eq!(world.send(&packet)[0].0, TWIN);
}

/// RFC 1812, 4.3.2.4: errors of a port without an address have the address of another port.
#[test]
fn a_port_without_an_address_takes_another_ones() {
    let mut world = world(forwarding(&[]));
    let mut routes = routes();
    routes.interfaces[0].as_mut().unwrap().ip4 = None;
    world.lab.publish_routes(routes.clone());
    let out = world.send(&udp(ip4("203.0.114.1"), 1));
    assert_eq!(out[0].1[26..30], [192, 0, 2, 1]);
    routes.interfaces[1].as_mut().unwrap().ip4 = None;
    world.lab.publish_routes(routes);
    assert_eq!(world.send(&udp(ip4("203.0.114.1"), 1)), []);
}

/// Packets of several buffers are fragmented and quoted, too.
#[test]
fn errors_about_packets_of_several_buffers() {
    let mut world = world(forwarding(&[]));
    let packet = udp(Ip4 { flags: 2, ..ip4("198.51.100.1") }, 6_000);
    assert_eq!(error_about(&world.send(&packet), &packet), (3, 4, 1_500));
    let packet =
        Frame::new(ip6("2001:db8:a::1"), Udp::new(1, 2)).macs(HOST_MAC, LAN_MAC).payload([9; 6_000]).build();
    assert_eq!(error_about(&world.send(&packet), &packet), (2, 0, 1_500));
}
