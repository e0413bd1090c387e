//! Routed ports: `out` is the port by which a packet will leave, sessions do not care by which ports their
//! packets come and go, and routing decides where answers, errors and hairpins go.

mod common;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use common::*;
use mmb_flow::{SessionSettings, parse_key};
use mmb_packet::build::{Frame, Ip4, Transport, Udp};
use mmb_packet::{DropReason, Meta, parse};
use mmb_session_harness::{Outcome, RuleSet};

const CLIENT: End = ([10, 0, 0, 1], 40_000);
const OTHER: End = ([172, 16, 0, 2], 40_000);
const SERVER: End = ([192, 0, 2, 7], 80);
const NAT: [u8; 4] = [200, 0, 0, 1];
const DMZ: u16 = 3;
/// The other port towards the world.
const SECOND: u16 = 2;

const POOL: &str = "nat pool add p 200.0.0.1";
const USE: &str = "add-stateful ip-saddr {10.0.0.0/8,172.16.0.0/12} nat p";

/// 10/8 is inside, 172.16/12 the demilitarised zone, pools are nowhere, and the world is behind the port that
/// `route_port` names.
struct Routed {
    net: Net,
    route_port: Arc<AtomicU16>,
}

fn with_routes(rules: RuleSet, ports: &[u16], route_port: &Arc<AtomicU16>) -> RuleSet {
    let route_port = route_port.clone();
    rules.with_routing(ports, move |to| match to {
        IpAddr::V4(to) if to.octets()[0] == 10 => Some(IN),
        IpAddr::V4(to) if to.octets()[..2] == [172, 16] => Some(DMZ),
        IpAddr::V4(to) if to.octets()[0] == 200 => None,
        _ => Some(route_port.load(Ordering::Relaxed)),
    })
}

impl Routed {
    fn new(lines: &[&str]) -> Routed {
        Routed::of(lines, &[0, 1, 2, 3], 1)
    }

    fn of(lines: &[&str], ports: &[u16], workers: u16) -> Routed {
        let route_port = Arc::new(AtomicU16::new(OUT));
        Routed { net: Net::with(with_routes(rules(lines), ports, &route_port), workers, 100), route_port }
    }

    /// The route changes.
    fn by(&self, port: u16) {
        self.route_port.store(port, Ordering::Relaxed);
    }

    #[track_caller]
    fn becomes(&mut self, in_port: u16, frame: &Frame, out: u16, expected: &Frame) {
        let (outcome, bytes) = self.net.one(in_port, frame);
        assert_eq!(outcome, Outcome::Out(out));
        assert_eq!(bytes, expected.build());
    }

    #[track_caller]
    fn passes(&mut self, in_port: u16, frame: &Frame, out: u16) {
        self.becomes(in_port, frame, out, frame);
    }

    fn destination(&self, frame: &Frame) -> Option<IpAddr> {
        let bytes = frame.build();
        let mut meta = Meta::default();
        parse(&bytes, bytes.len(), &mut meta).expect("a sound packet");
        self.net.harness.workers()[0].effective_destination(self.net.harness.rules(), &bytes, &meta)
    }
}

fn with_ttl(from: End, to: End, ttl: u8) -> Frame {
    Frame::new(Ip4 { ttl, ..Ip4::new(from.0, to.0) }, Udp::new(from.1, to.1)).payload(b"payload".as_slice())
}

/// A settled session takes the port of its route, and a rule about that port holds from the next packet
/// on.
#[test]
fn a_rule_on_the_output_port_is_evaluated_for_each_packet() {
    for rule in ["add out port2 drop", "add ! out {port0,port1} drop", "add out != port1 drop"] {
        let mut routed = Routed::new(&["add-stateful udp-dport 80 ip-saddr 10.0.0.0/8 mod ip-ttl 9", rule]);
        for _ in 0..3 {
            routed.becomes(IN, &udp(CLIENT, SERVER), OUT, &with_ttl(CLIENT, SERVER, 9));
        }
        let answer = with_ttl(SERVER, CLIENT, 9);
        if rule == "add out != port1 drop" {
            routed.net.drops(OUT, &answer, DropReason::Rule);
        } else {
            routed.passes(OUT, &answer, IN);
        }
        routed.by(SECOND);
        for _ in 0..3 {
            routed.net.drops(IN, &udp(CLIENT, SERVER), DropReason::Rule);
        }
        routed.by(OUT);
        routed.becomes(IN, &udp(CLIENT, SERVER), OUT, &with_ttl(CLIENT, SERVER, 9));
        assert!(routed.net.matched(2) > 2);
    }
}

/// What a session was opened for stays, by whatever ports its packets come and go; and nobody asks again.
#[test]
fn the_output_port_selects_the_pool_of_new_sessions() {
    for workers in 1..4 {
        let lines = [
            POOL,
            "nat pool add q 200.0.0.2",
            "add-stateful out port1 nat p",
            "add-stateful out port2 nat q",
        ];
        let mut routed = Routed::of(&lines, &[0, 1, 2, 3], workers);
        assert!(routed.net.harness.rules().policy.per_packet().is_none());
        let (outcome, bytes) = routed.net.one(IN, &udp(CLIENT, SERVER));
        let shown = source(&bytes);
        assert_eq!((outcome, shown.0), (Outcome::Out(OUT), NAT));
        for route_port in [SECOND, OUT, SECOND] {
            routed.by(route_port);
            routed.becomes(IN, &udp(CLIENT, SERVER), route_port, &udp(shown, SERVER));
            // Replies take either port, whichever the packets take.
            for back in [OUT, SECOND] {
                routed.becomes(back, &udp(SERVER, shown), IN, &udp(SERVER, CLIENT));
            }
            // The client has two links as well.
            routed.becomes(DMZ, &udp(CLIENT, SERVER), route_port, &udp(shown, SERVER));
        }
        let new: End = (CLIENT.0, 7);
        let (outcome, bytes) = routed.net.one(IN, &udp(new, SERVER));
        assert_eq!((outcome, source(&bytes).0), (Outcome::Out(SECOND), [200, 0, 0, 2]));
    }
}

/// The route is that of the packet as it will be, though rules see it as it came in.
#[test]
fn the_output_port_is_that_of_the_translated_packet() {
    let lines = [
        &format!("{POOL} filtering endpoint-independent"),
        "nat forward add udp 200.0.0.9 53 to 172.16.0.2 5353",
        "add-stateful ip-saddr 10.0.0.0/8 ! ip-daddr 192.0.2.100 nat p",
        "add-stateful ip-daddr 192.0.2.100 lb 172.16.0.5",
        "add out port0 ip-daddr 200.0.0.1 mod ip-ttl 7",
        "add out port3 mod ip-ttl 8",
    ];
    let mut routed = Routed::new(&lines);
    let shown: End = (NAT, CLIENT.1);
    routed.becomes(IN, &udp(CLIENT, SERVER), OUT, &udp(shown, SERVER));
    // A session's; one that NAT lets in, and opens one for; a forward's.
    routed.becomes(OUT, &udp(SERVER, shown), IN, &with_ttl(SERVER, CLIENT, 7));
    let stranger: End = ([198, 51, 100, 3], 9);
    for _ in 0..3 {
        routed.becomes(OUT, &udp(stranger, shown), IN, &with_ttl(stranger, CLIENT, 7));
    }
    let server: End = ([172, 16, 0, 2], 5353);
    for _ in 0..3 {
        routed.becomes(OUT, &udp(stranger, ([200, 0, 0, 9], 53)), DMZ, &with_ttl(stranger, server, 8));
    }
    // What a rule is only about to decide is not known to rules.
    let (vip, real): (End, End) = (([192, 0, 2, 100], 80), ([172, 16, 0, 5], 80));
    routed.becomes(IN, &udp(CLIENT, vip), DMZ, &udp(CLIENT, real));
    routed.becomes(IN, &udp(CLIENT, vip), DMZ, &with_ttl(CLIENT, real, 8));
}

#[test]
fn the_effective_destination_is_where_packets_go() {
    let lines = [
        POOL,
        "nat forward add udp 200.0.0.9 53 to 172.16.0.2 5353",
        "add-stateful ip-saddr 10.0.0.0/8 nat p",
        "add-stateful ip-daddr 192.0.2.100 lb 172.16.0.5",
    ];
    let mut routed = Routed::new(&lines);
    let address = |[a, b, c, d]: [u8; 4]| Some(IpAddr::from(Ipv4Addr::new(a, b, c, d)));
    let (shown, vip): (End, End) = ((NAT, CLIENT.1), ([192, 0, 2, 100], 80));
    let stranger: End = ([198, 51, 100, 3], 9);
    for untouched in [udp(CLIENT, SERVER), udp(SERVER, shown), udp(SERVER, vip)] {
        let own = destination(&untouched.build()).0;
        assert_eq!(routed.destination(&untouched), address(own));
    }
    routed.net.run(IN, &udp(CLIENT, SERVER));
    routed.net.run(OUT, &udp(stranger, vip));
    assert_eq!(routed.destination(&udp(CLIENT, SERVER)), address(SERVER.0));
    assert_eq!(routed.destination(&udp(SERVER, shown)), address(CLIENT.0));
    assert_eq!(routed.destination(&udp(stranger, vip)), address([172, 16, 0, 5]));
    assert_eq!(routed.destination(&udp(([172, 16, 0, 5], 80), stranger)), address(stranger.0));
    // Filtering lets nobody else in to the mapping; a forward stands open.
    assert_eq!(routed.destination(&udp(stranger, shown)), address(NAT));
    assert_eq!(routed.destination(&udp(stranger, ([200, 0, 0, 9], 53))), address([172, 16, 0, 2]));
    assert_eq!(routed.destination(&udp(stranger, ([200, 0, 0, 9], 54))), address([200, 0, 0, 9]));
    // Errors go where the packet came from that they quote.
    let about = error(3, 4, [192, 0, 2, 254], NAT, &udp(shown, SERVER));
    assert_eq!(routed.destination(&about), address(CLIENT.0));
    assert_eq!(routed.destination(&error(3, 4, [192, 0, 2, 254], NAT, &udp((NAT, 1), SERVER))), None);
    // Fragments behind the first follow it.
    let piece = |offset, from: End, to: End| {
        let ip = Ip4 { id: 5, flags: 1, fragment_offset: offset, ..Ip4::new(from.0, to.0) };
        let transport = if offset == 0 { Udp::new(from.1, to.1).into() } else { Transport::Raw(17) };
        Frame::new(ip, transport).payload([0; 16])
    };
    assert_eq!(routed.destination(&piece(0, SERVER, shown)), address(CLIENT.0));
    assert_eq!(routed.destination(&piece(3, SERVER, shown)), None);
    routed.net.run(OUT, &piece(0, SERVER, shown));
    assert_eq!(routed.destination(&piece(3, SERVER, shown)), address(CLIENT.0));
    assert_eq!(routed.destination(&Frame::ethernet(0x0806).payload([0; 46])), None);
    // Nothing of all that has opened anything.
    assert_eq!(routed.net.views().len(), 2);
}

/// Inside hosts reach each other by their external ends, and frames keep their Ethernet addresses until they
/// are routed.
#[test]
fn hairpins_are_routed() {
    for workers in 1..4 {
        let lines = [
            &format!("{POOL} filtering endpoint-independent"),
            USE,
            "nat forward add udp 200.0.0.1 53 to 172.16.0.9 5353",
        ];
        let mut routed = Routed::of(&lines, &[0, 1, 2, 3], workers);
        let one = source(&routed.net.one(IN, &udp(CLIENT, SERVER)).1);
        let two = source(&routed.net.one(DMZ, &udp(OTHER, SERVER)).1);
        for _ in 0..3 {
            routed.becomes(IN, &udp(CLIENT, two), DMZ, &udp(one, OTHER));
            routed.becomes(DMZ, &udp(OTHER, one), IN, &udp(two, CLIENT));
        }
        routed.becomes(
            DMZ,
            &error(3, 3, OTHER.0, one.0, &udp(one, OTHER)),
            IN,
            &error(3, 3, two.0, CLIENT.0, &udp(CLIENT, two)),
        );
        // A forward's host, which nobody has seen yet.
        let (port_forward, server): (End, End) = ((NAT, 53), ([172, 16, 0, 9], 5353));
        for _ in 0..2 {
            routed.becomes(IN, &udp(CLIENT, port_forward), DMZ, &udp(one, server));
            routed.becomes(DMZ, &udp(server, one), IN, &udp(port_forward, CLIENT));
        }
    }
}

/// A box with a wire and routed ports: hosts on either reach each other by their external ends.
#[test]
fn hairpins_between_a_wire_and_routed_ports() {
    let lines = [&format!("{POOL} filtering endpoint-independent"), USE];
    let mut routed = Routed::of(&lines, &[SECOND, DMZ], 1);
    let (client, router, other) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 0xff], [2, 0, 0, 0, 0, 2]);
    routed.net.run(IN, &udp(CLIENT, SERVER).macs(client, router));
    let two = source(&routed.net.one(DMZ, &udp(OTHER, SERVER).macs(other, router)).1);
    let one: End = (NAT, CLIENT.1);
    for _ in 0..2 {
        let there = udp(CLIENT, two).macs(client, router);
        routed.becomes(IN, &there, DMZ, &udp(one, OTHER).macs(client, router));
        let back = udp(OTHER, one).macs(other, router);
        routed.becomes(DMZ, &back, IN, &udp(two, CLIENT).macs(router, client));
    }
}

/// Errors from outside find the inside by its route, by whatever port they come in.
#[test]
fn errors_are_routed() {
    let mut routed = Routed::new(&[POOL, USE]);
    let shown: End = (NAT, CLIENT.1);
    routed.becomes(IN, &udp(CLIENT, SERVER), OUT, &udp(shown, SERVER));
    let router = [192, 0, 2, 254];
    for port in [OUT, SECOND] {
        routed.becomes(
            port,
            &error(3, 4, router, NAT, &udp(shown, SERVER)),
            IN,
            &error(3, 4, router, CLIENT.0, &udp(CLIENT, SERVER)),
        );
    }
    routed.becomes(OUT, &udp(SERVER, shown), IN, &udp(SERVER, CLIENT));
    routed.by(SECOND);
    routed.becomes(
        IN,
        &error(3, 3, CLIENT.0, SERVER.0, &udp(SERVER, CLIENT)),
        SECOND,
        &error(3, 3, NAT, SERVER.0, &udp(SERVER, shown)),
    );
}

/// Who cannot be translated is told so by the port that he came in by, whatever his route.
#[test]
fn answers_leave_by_the_ingress_port() {
    let mut routed = Routed::new(&["nat pool add p 200.0.0.1 ports 2000-2003 limit 1", USE]);
    routed.net.run(DMZ, &udp(CLIENT, SERVER));
    let (outcome, _) = routed.net.one(DMZ, &udp((CLIENT.0, 1), SERVER));
    assert_eq!(outcome, Outcome::Answered(DMZ, DropReason::NatLimit));
}

/// Fragments in any order.
#[test]
fn fragments_are_routed() {
    let mut routed = Routed::new(&[POOL, USE, "add out port2 drop"]);
    let shown: End = (NAT, CLIENT.1);
    let piece = |offset: u16, from: End| {
        let ip =
            Ip4 { id: 5, flags: u8::from(offset < 6), fragment_offset: offset, ..Ip4::new(from.0, SERVER.0) };
        let transport = if offset == 0 { Udp::new(from.1, SERVER.1).into() } else { Transport::Raw(17) };
        Frame::new(ip, transport).payload([7; 16]).build()
    };
    let run = |routed: &mut Routed, offset| {
        let packet = mmb_packet::VecPacket::new(&piece(offset, CLIENT));
        routed.net.harness.process(IN, packet)
    };
    assert_eq!(run(&mut routed, 3), [], "it waits");
    let sent = run(&mut routed, 0);
    assert_eq!(sent.len(), 2);
    // Of the later one only the addresses change.
    let mut later = piece(3, shown);
    later.truncate(34 + 16);
    for (sent, expected) in sent.iter().zip([piece(0, shown), later]) {
        assert_eq!(sent.outcome, Outcome::Out(OUT));
        assert_eq!(mmb_packet::PacketBuf::head(&sent.packet)[..34], expected[..34]);
    }
    routed.by(SECOND);
    assert_eq!(run(&mut routed, 6)[0].outcome, Outcome::Dropped(DropReason::Rule));
}

/// Sessions live on when rules change, and their rules about the output port are those in force.
#[test]
fn sessions_survive_changes_of_other_rules() {
    let mut routed = Routed::new(&[POOL, USE]);
    let shown: End = (NAT, CLIENT.1);
    routed.becomes(IN, &udp(CLIENT, SERVER), OUT, &udp(shown, SERVER));
    let before = &routed.net.harness.rules().policy;
    let more = rules_with(&[POOL, USE, "add out port0 drop"], SessionSettings::default(), Some(before));
    assert!(!before.needs_out_port() && more.policy.needs_out_port());
    let more = with_routes(more, &[0, 1, 2, 3], &routed.route_port);
    routed.net.harness.replace_rules(more);
    routed.net.drops(OUT, &udp(SERVER, shown), DropReason::Rule);
    routed.becomes(IN, &udp(CLIENT, SERVER), OUT, &udp(shown, SERVER));
    let bytes = udp(CLIENT, SERVER).build();
    let mut meta = Meta::default();
    parse(&bytes, bytes.len(), &mut meta).expect("a sound packet");
    let key = parse_key(&bytes, &meta).expect("a packet with ports");
    assert_eq!(routed.net.view().original, key);
}

/// A pool may have the machine's own address: what comes there for nobody inside is said to be so and left as
/// it came, for the machine to have it.
#[test]
fn local_packets_are_not_changed() {
    for workers in 1..4 {
        let settings = SessionSettings { tcp_pickup: false, ..SessionSettings::default() };
        let mut routed = Routed::of(&[], &[0, 1, 2, 3], workers);
        let more = rules_with(&[&format!("{POOL} ports 2000-60000"), USE], settings, None);
        routed.net.harness.replace_rules(with_routes(more, &[0, 1, 2, 3], &routed.route_port));
        let own: End = (NAT, 22);
        let first = Ip4 { id: 5, flags: 1, ..Ip4::new(SERVER.0, NAT) };
        let later = Ip4 { id: 5, fragment_offset: 3, ..Ip4::new(SERVER.0, NAT) };
        for (port, frame, reason) in [
            (OUT, tcp(SERVER, own, SYN, 1, 0), DropReason::NatUnmapped),
            (OUT, tcp(SERVER, own, SYN | ACK, 1, 1), DropReason::NatUnmapped),
            (OUT, ping(SERVER.0, NAT, 3), DropReason::NatUnmapped),
            (OUT, pong(SERVER.0, NAT, 3), DropReason::NatUnmapped),
            (OUT, Frame::new(first, Udp::new(53, 53)).payload([0; 16]), DropReason::NatUnmapped),
            (OUT, Frame::new(later, Transport::Raw(17)).payload([0; 16]), DropReason::NatUnmapped),
            (OUT, error(3, 4, SERVER.0, NAT, &udp(own, SERVER)), DropReason::IcmpQuote),
            (IN, tcp(CLIENT, own, SYN, 1, 0), DropReason::NatUnmapped),
            (IN, ping(CLIENT.0, NAT, 3), DropReason::NatUnmapped),
        ] {
            let (outcome, bytes) = routed.net.one(port, &frame);
            assert_eq!((outcome, &bytes), (Outcome::Dropped(reason), &frame.build()));
        }
        assert_eq!(routed.net.views(), []);
    }
}
