//! Rules, sessions and NAT on routed ports.

use std::sync::Arc;

use mmb_dataplane::Forwarding;
use mmb_flow::{NatConfig, PoolConfig};
use mmb_packet::build::{Extension, Frame, Ip4, Ip6, Transport, Udp};

use crate::world::*;

fn on(at: &[u8; 6], frame: &[u8]) -> Vec<u8> {
    [&at[..], &frame[6..]].concat()
}

fn plain(ip: Ip4, ports: (u16, u16)) -> Frame {
    Frame::new(ip, Udp::new(ports.0, ports.1)).macs(HOST_MAC, LAN_MAC).payload(*b"payload")
}

#[test]
fn rules_apply_before_routing() {
    let mut world = world(forwarding(&["add udp-dport 53 drop", "add udp-dport 54 mod ip-dscp 7"]));
    let to = |port, tos, ttl| plain(Ip4 { tos, ttl, ..ip4("198.51.100.7") }, (9, port)).build();
    assert_eq!(world.send(&to(53, 0, 9)), []);
    assert_eq!(world.send(&to(54, 0, 9)), [(WAN, behind(hops::FAR, &to(54, 7 << 2, 8)))]);
    assert_eq!(world.send(&to(55, 0, 9)), [(WAN, behind(hops::FAR, &to(55, 0, 8)))]);
    let six = |hop_limit| udp(Ip6 { hop_limit, ..ip6("2001:db8:a::7") }, 9);
    assert_eq!(world.send(&six(9)), [], "port 53, too");
    // Rules do not apply to local packets.
    let packet = to(53, 0, 1);
    assert_eq!(error_about(&world.send(&packet), &packet), (11, 0, 0));
    assert_eq!(world.drops(), [("rule", 2), ("ttl-expired", 1)]);
}

/// A packet that hides its ports is dropped where rules apply, and forwarded by a plain router.
#[test]
fn headers_cut_short_meet_no_rules() {
    let fragment = |flags, fragment_offset, ttl, length: usize| {
        let ip = Ip4 { flags, fragment_offset, ttl, ..ip4("198.51.100.7") };
        Frame::new(ip, Transport::Raw(6)).macs(HOST_MAC, LAN_MAC).payload(vec![0x50; length]).build()
    };
    let nested = |hop_limit| {
        let header = || Extension::Fragment { offset: 0, more: false, id: 1 };
        let ip = Ip6 { hop_limit, ..ip6("2001:db8:a::7") }.with([header(), header()]);
        Frame::new(ip, Udp::new(1, 2)).macs(HOST_MAC, LAN_MAC).build()
    };
    let frames: [&dyn Fn(u8) -> Vec<u8>; 5] = [
        &|ttl| fragment(1, 0, ttl, 16),
        &|ttl| fragment(1, 1, ttl, 8),
        &|ttl| fragment(0, 2, ttl, 8),
        &|ttl| fragment(0, 0, ttl, 19),
        &nested,
    ];
    let mut router = world(forwarding(&[]));
    for frame in frames {
        assert_eq!(router.send(&frame(9)), [(WAN, behind(hops::FAR, &frame(8)))]);
    }
    assert_eq!(router.drops(), []);
    drop(router);
    let mut firewall = world(forwarding(&["add udp-dport 53 drop"]));
    for frame in frames {
        assert_eq!(firewall.send(&frame(9)), []);
    }
    assert_eq!(firewall.drops(), [("l4-truncated", 1), ("l4-malformed", 1), ("tiny-fragment", 3)]);
    // Rules do not apply to local packets.
    firewall.lab.set_locals(LAN, &[ROUTER.into()], &[]);
    let own = Frame::new(ip4("10.0.0.1"), Transport::Raw(6)).macs(HOST_MAC, LAN_MAC).payload([0; 8]).build();
    assert_eq!(firewall.send(&own), [(TWIN, own)]);
}

#[test]
fn the_edited_destination_is_routed() {
    let mut world = world(forwarding(&["add ip-daddr 203.0.114.1 mod ip-daddr 198.51.100.7"]));
    let to = |address: &str, ttl| plain(Ip4 { ttl, ..ip4(address) }, (9, 9)).build();
    let expected = behind(hops::FAR, &to("198.51.100.7", 63));
    assert_eq!(world.send(&to("203.0.114.1", 64)), [(WAN, expected)]);
}

#[test]
fn an_edit_of_the_way_out_is_not_routed() {
    let mut world = world(forwarding(&["add udp-dport 9 mod out wan"]));
    let frame = plain(ip4("203.0.114.1"), (9, 9)).build();
    assert_eq!(world.send(&frame), [(WAN, frame)]);
}

#[test]
fn rules_match_the_routed_output_port() {
    for stateful in [false, true] {
        let mut lines = vec!["add out wan udp-dport 9 drop", "add out lan udp-dport 9 mod ip-dscp 1"];
        lines.extend(stateful.then_some("add-stateful udp-dport 10 accept"));
        let mut world = world(forwarding(&lines));
        let to = |address: &str, tos, ttl| plain(Ip4 { tos, ttl, ..ip4(address) }, (9, 9)).build();
        assert_eq!(world.send(&to("198.51.100.7", 0, 9)), []);
        assert_eq!(world.send(&to("192.0.2.5", 0, 9)), [], "out there, as soon as its address is known");
        assert_eq!(world.send(&to("198.18.0.1", 0, 9)), [], "by one of several");
        let expected = behind(hops::HOME, &to("10.0.0.9", 1 << 2, 8));
        assert_eq!(world.send(&to("10.0.0.9", 0, 9)), [(LAN, expected)]);
        // Packets to the kernel have no output port.
        let own = to("10.0.0.1", 0, 9);
        assert_eq!(world.send(&own), [(TWIN, own)]);
        let six = Frame::new(ip6("2001:db8:a::1"), Udp::new(9, 9)).macs(HOST_MAC, LAN_MAC).build();
        assert_eq!(world.send(&six), []);
        assert_eq!(world.drops(), [("rule", 4)]);
    }
}

/// A pool of one address, which the far end routes to this machine.
fn with_pool(lines: &[&str]) -> Forwarding {
    let pool = PoolConfig::new("pool", [192, 0, 2, 200].into(), [192, 0, 2, 200].into()).unwrap();
    let pool = pool.with_ports(5_000, 6_000).unwrap();
    Forwarding { nat: Arc::new(NatConfig::new(vec![pool], Vec::new()).unwrap()), ..forwarding(lines) }
}

const NAT: &str = "add-stateful in lan ip-saddr 10.0.0.0/24 nat pool";

/// The far end's answer to a frame that left by the WAN.
fn answer(out: &[u8], ttl: u8) -> Vec<u8> {
    let (mapped, port) = ([out[26], out[27], out[28], out[29]], u16::from_be_bytes([out[34], out[35]]));
    let frame = plain(Ip4 { ttl, ..Ip4::new([198, 51, 100, 7], mapped) }, (53, port)).build();
    on(&WAN_MAC, &frame)
}

#[test]
fn sources_are_translated_on_the_way_out_and_back() {
    let mut world = world(with_pool(&[NAT]));
    let frame = |ttl| plain(Ip4 { ttl, ..ip4("198.51.100.7") }, (5_000, 53)).build();
    for _ in 0..2 {
        let out = world.send(&frame(9));
        let [(WAN, out)] = &out[..] else { panic!("{out:?}") };
        let expected = plain(Ip4 { ttl: 8, ..Ip4::new([192, 0, 2, 200], [198, 51, 100, 7]) }, (5_000, 53));
        assert_eq!(*out, behind(hops::FAR, &expected.build()));
        let back = world.lab.run(0, vec![(WAN, answer(out, 9))]);
        let expected = plain(Ip4 { ttl: 8, ..Ip4::new([198, 51, 100, 7], HOST) }, (53, 5_000)).build();
        assert_eq!(back, [(LAN, behind(hops::HOME, &expected))]);
    }
    assert_eq!(world.drops(), []);
}

/// The sender does not know the translation; the ICMP error contains its own address.
#[test]
fn errors_about_translated_packets_are_in_the_senders_terms() {
    let mut world = world(with_pool(&[NAT]));
    let frame = |to: &str, payload: usize, ttl| {
        let ip = Ip4 { flags: 2, ttl, ..ip4(to) };
        Frame::new(ip, Udp::new(5_000, 53)).macs(HOST_MAC, LAN_MAC).payload(vec![7; payload]).build()
    };
    for _ in 0..2 {
        let long = frame("100.64.0.1", 1_200, 9);
        assert_eq!(error_about(&world.send(&long), &long), (3, 4, 1_000));
        let lost = frame("203.0.114.1", 20, 9);
        assert_eq!(error_about(&world.send(&lost), &lost), (3, 0, 0));
        let old = frame("198.51.100.7", 20, 1);
        assert_eq!(error_about(&world.send(&old), &old), (11, 0, 0));
    }
}

/// A packet to a pool's address is forwarded, even if the address is local.
#[test]
fn a_packet_to_a_pool_ends_where_others_do() {
    let mut world = world(with_pool(&[NAT]));
    let mut routes = routes();
    insert(&mut routes.tables[0], "192.0.2.200/32", hops::PUNT);
    world.lab.publish_routes(routes);
    let out = world.send(&plain(ip4("198.51.100.7"), (5_000, 53)).build());
    let old = answer(&out[0].1, 1);
    let told = world.lab.run(0, vec![(WAN, old.clone())]);
    let [(WAN, told)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((&told[30..34], told[34], told[35]), (&[198, 51, 100, 7][..], 11, 0));
    assert_eq!(told[42..], old[14..], "as it came in");
    // A packet without a mapping is local.
    let own = on(&WAN_MAC, &plain(Ip4::new([198, 51, 100, 7], [192, 0, 2, 200]), (53, 22)).build());
    assert_eq!(world.lab.run(0, vec![(WAN, own.clone())]), [(TWIN, own)]);
    assert_eq!(world.drops(), [("ttl-expired", 1)]);
}

#[test]
fn a_reflexive_rule_holds_across_the_router() {
    let mut world = world(forwarding(&["add-stateful in lan accept", "add all drop"]));
    let there = |ttl| plain(Ip4 { ttl, ..ip4("198.51.100.7") }, (9, 53)).build();
    let back = |ttl| plain(Ip4 { ttl, ..Ip4::new([198, 51, 100, 7], HOST) }, (53, 9)).build();
    assert_eq!(world.lab.run(0, vec![(WAN, on(&WAN_MAC, &back(9)))]), []);
    assert_eq!(world.send(&there(9)), [(WAN, behind(hops::FAR, &there(8)))]);
    let answered = world.lab.run(0, vec![(WAN, on(&WAN_MAC, &back(9)))]);
    assert_eq!(answered, [(LAN, behind(hops::HOME, &back(8)))]);
}

/// As with a device that strips them.
#[test]
fn rules_do_not_apply_to_local_packets() {
    let mut world = world(with_pool(&["add all drop", NAT]));
    let own = [udp(ip4("10.0.0.1"), 9), udp(ip6("2001:db8:1::1"), 9)];
    assert_eq!(own.iter().map(|frame| world.send(frame).len()).sum::<usize>(), 0);
    world.lab.set_locals(LAN, &[ROUTER.into(), ROUTER6.into()], &[]);
    for frame in own {
        assert_eq!(world.send(&frame), [(TWIN, frame)]);
    }
    assert_eq!(world.send(&udp(ip4("10.0.0.2"), 9)), []);
    world.lab.set_locals(LAN, &[], &[]);
    assert_eq!(world.send(&udp(ip4("10.0.0.1"), 9)), []);
    assert_eq!(world.drops(), [("rule", 4)]);
}

/// A rule that names an address of the machine gets its packets. The machine gets all others, whatever rules
/// drop.
#[test]
fn virtual_addresses_are_shared_with_the_machine() {
    let lb = "add-stateful ip-daddr {10.0.0.1,10.0.0.0/24} udp-dport 53 lb 198.51.100.7 accept";
    let mut world =
        world(with_pool(&["add all drop", lb, "add-stateful udp-dport 54 lb 198.51.100.7 accept"]));
    world.lab.set_locals(LAN, &[], &[ROUTER.into(), ROUTER6.into()]);
    let to = |port| plain(Ip4 { ttl: 9, ..ip4("10.0.0.1") }, (9, port)).build();
    // Port 54: the rule does not name the address.
    for frame in [to(80), to(54), udp(ip6("2001:db8:1::1"), 9)] {
        assert_eq!(world.send(&frame), [(TWIN, frame)]);
    }
    let part = |flags, fragment_offset| {
        let ip = Ip4 { ttl: 9, id: 7, flags, fragment_offset, ..ip4("10.0.0.1") };
        let transport = if fragment_offset == 0 { Udp::new(9, 80).into() } else { Transport::Raw(17) };
        Frame::new(ip, transport).macs(HOST_MAC, LAN_MAC).payload([0; 16]).build()
    };
    for frame in [part(1, 0), part(0, 3)] {
        assert_eq!(world.send(&frame), [(TWIN, frame)]);
    }
    for _ in 0..2 {
        let sent = world.send(&to(53));
        let [(port, frame)] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!((*port, &frame[30..34]), (WAN, &[198, 51, 100, 7][..]));
    }
    assert_eq!(world.drops(), []);
}
