//! Addresses that no packet may have, and sources that routes do not confirm.

use std::net::{Ipv4Addr, Ipv6Addr};

use mmb_dataplane::{AddressChecks, Forwarding, PortConfig};
use mmb_lang::ReversePathMode;
use mmb_packet::build::{Frame, Ip4, Ip6, Net, Udp};

use crate::world::*;

const RULE: &[&str] = &["add-stateful udp-dport 53 accept"];

fn four(source: &str, destination: &str) -> Vec<u8> {
    let [source, destination] = [source, destination].map(|a| a.parse::<Ipv4Addr>().expect("an address"));
    udp(Ip4::new(source, destination), 20)
}

fn six(source: &str, destination: &str) -> Vec<u8> {
    let [source, destination] = [source, destination].map(|a| a.parse::<Ipv6Addr>().expect("an address"));
    udp(Ip6::new(source, destination), 20)
}

/// Packets that nobody has sent, wherever they come in (RFC 1812, 5.3.7; RFC 4291, 2.5; land).
fn impossible() -> Vec<Vec<u8>> {
    let to4 = "198.51.100.7";
    let sources = ["127.0.0.1", "127.255.0.9", "0.1.2.3", "0.0.0.0", "224.0.0.9", "255.255.255.255", to4];
    let mut frames: Vec<_> = sources.into_iter().map(|source| four(source, to4)).collect();
    frames.extend(["127.0.0.1", "0.0.0.1"].map(|destination| four("10.0.0.5", destination)));
    let to6 = "2001:db8:a::7";
    frames.extend(["::", "::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.5", to6].map(|s| six(s, to6)));
    frames.extend(["::", "::1"].map(|destination| six("2001:db8:1::5", destination)));
    frames
}

fn with(checks: AddressChecks, rules: &[&str]) -> Forwarding {
    Forwarding { address_checks: checks, ..forwarding(rules) }
}

fn by_reverse_path(reverse_path: ReversePathMode) -> AddressChecks {
    AddressChecks { reverse_path, ..AddressChecks::default() }
}

#[test]
fn impossible_addresses_open_no_session() {
    let n = impossible().len() as u64;
    for rules in [RULE, &["add udp-dport 54 drop"], &[]] {
        let mut world = world(forwarding(rules));
        for frame in impossible() {
            assert_eq!(world.send(&frame), [], "{:?}", &frame[14..]);
        }
        assert_eq!(world.drops(), [("martian", n)]);
        assert_eq!(world.send(&four("10.0.0.5", "198.51.100.7")).len(), 1);
    }
}

/// On a wire, hosts without an address may ask for one, and check that it is free.
#[test]
fn hosts_without_an_address_can_get_one() {
    let wire = |martians| {
        let ports = vec![PortConfig::wire(LAN, WAN), PortConfig::wire(WAN, LAN)];
        let checks = AddressChecks { martians, ..AddressChecks::default() };
        Forwarding { ports, ..with(checks, RULE) }
    };
    let mut checked = world(wire(true));
    for frame in impossible() {
        assert_eq!(checked.send(&frame), []);
    }
    assert_eq!(checked.drops(), [("martian", impossible().len() as u64)]);
    // RFC 2131, 4.1; RFC 4541, 2.1.1; RFC 4862, 5.4.2; RFC 3590.
    for frame in [
        four("0.0.0.0", "255.255.255.255"),
        four("0.0.0.0", "224.0.0.1"),
        six("::", "ff02::1:ff00:7"),
        six("fe80::1", "ff02::16"),
        six("fe80::1", "fe80::2"),
        four("169.254.0.1", "169.254.0.2"),
    ] {
        assert_eq!(checked.send(&frame), [(WAN, frame)]);
    }
    drop(checked);
    let mut unchecked = world(wire(false));
    for frame in impossible() {
        assert_eq!(unchecked.send(&frame), [(WAN, frame)]);
    }
}

#[test]
fn own_addresses_are_no_sources() {
    let mut world = world(forwarding(RULE));
    world.lab.set_locals(LAN, &[ROUTER.into(), ROUTER6.into()], &[]);
    assert_eq!(world.send(&four("10.0.0.1", "198.51.100.7")), []);
    assert_eq!(world.send(&six("2001:db8:1::1", "2001:db8:a::7")), []);
    assert_eq!(world.drops(), [("martian", 2)]);
    let own = four("10.0.0.5", "10.0.0.1");
    assert_eq!(world.send(&own), [(TWIN, own)]);
}

/// RFC 3704, 2.2 and 2.4. The source of the test's packets is reached by the LAN.
#[test]
fn routes_confirm_sources() {
    let to = ["198.51.100.8", "2001:db8:a::8"];
    // Behind the LAN, behind the WAN by one or several next hops, resolved or not, and without a route.
    let confirmed = ["10.0.0.5", "2001:db8:1::5"];
    let elsewhere =
        ["198.51.100.7", "198.18.0.1", "192.0.2.5", "192.0.2.9", "2001:db8:a::7", "2001:db8:8::1"];
    let nowhere = ["203.0.113.1", "203.0.113.17", "9.9.9.9", "10.0.0.1", "2001:db8:5::1", "2001:db8:f::1"];
    let frame = |source: &str| match source.contains(':') {
        true => six(source, to[1]),
        false => four(source, to[0]),
    };
    for (mode, passed, dropped) in [
        (ReversePathMode::Off, &[&confirmed[..], &elsewhere, &nowhere][..], &[][..]),
        (ReversePathMode::Loose, &[&confirmed, &elsewhere], &[&nowhere[..]]),
        (ReversePathMode::Strict, &[&confirmed], &[&elsewhere, &nowhere]),
    ] {
        for rules in [RULE, &["add udp-dport 54 drop"], &[]] {
            let mut world = world(with(by_reverse_path(mode), rules));
            for source in passed.concat() {
                assert_eq!(world.send(&frame(source)).len(), 1, "{source} {mode:?}");
            }
            assert_eq!(world.drops(), []);
            for source in dropped.concat() {
                assert_eq!(world.send(&frame(source)), [], "{source} {mode:?}");
            }
            let n = dropped.concat().len() as u64;
            assert_eq!(world.drops(), if n > 0 { vec![("reverse-path", n)] } else { vec![] });
        }
    }
}

/// A port may have a filter of its own, whatever others have.
#[test]
fn a_port_has_its_own_reverse_path_filter() {
    let (from_lan, from_wan) = (four("10.0.0.5", "198.51.100.8"), four("198.51.100.8", "10.0.0.5"));
    let to_wan = [&WAN_MAC[..], &from_lan[6..]].concat();
    let passes = |others, lan, wan| {
        [RULE, &[]].map(|rules| {
            let mut forwarding = with(by_reverse_path(others), rules);
            for port in &mut forwarding.ports {
                let own = if port.id == LAN { lan } else { wan };
                port.reverse_path = own;
            }
            let mut world = world(forwarding);
            // Both frames come in by the port to which their source does not lead.
            let wrong = [(LAN, from_wan.clone()), (WAN, to_wan.clone())];
            let dropped = wrong.map(|packet| {
                let before = world.drops();
                world.lab.run(0, vec![packet]);
                world.drops() != before
            });
            assert_eq!(world.send(&from_lan).len(), 1);
            dropped
        })
    };
    let (off, strict) = (ReversePathMode::Off, ReversePathMode::Strict);
    assert_eq!(passes(off, None, None), [[false, false]; 2]);
    assert_eq!(passes(off, None, Some(strict)), [[false, true]; 2]);
    assert_eq!(passes(strict, Some(off), None), [[false, true]; 2]);
    assert_eq!(passes(strict, None, Some(ReversePathMode::Loose)), [[true, false]; 2]);
}

/// Link-local sources are for the link only: neighbour discovery must work.
#[test]
fn link_local_sources_need_no_route() {
    let mut world = world(with(by_reverse_path(ReversePathMode::Strict), RULE));
    let solicitation = six("fe80::5", "fe80::1");
    assert_eq!(world.send(&solicitation), [(TWIN, solicitation)]);
}

/// Packets that the kernel sends by a twin are not checked.
#[test]
fn the_kernel_may_send_what_it_wants() {
    let mut world = world(with(by_reverse_path(ReversePathMode::Strict), RULE));
    let net: Net = Ip4::new([127, 0, 0, 1], [127, 0, 0, 1]).into();
    let frame = Frame::new(net, Udp::new(1, 2)).build();
    assert_eq!(world.lab.run(0, vec![(TWIN, frame.clone())]), [(LAN, frame)]);
}
