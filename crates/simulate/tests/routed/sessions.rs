//! Cached next hops of sessions: packets go where packets without sessions go, whatever routes change.

use mmb_dataplane::PortId;
use mmb_packet::build::{Frame, Ip4, Ip6, Udp};
use mmb_route::{NextHop, NextHopKind, Routes};
use proptest::prelude::*;

use crate::world::*;

/// Next hops that routes change to.
const OTHERS: [u32; 8] = [
    hops::FAR,
    hops::HOME,
    hops::NARROW,
    hops::GROUP,
    hops::BLACKHOLE,
    hops::UNREACHABLE,
    hops::PUNT,
    hops::MEMBERS[1],
];

#[derive(Clone, Debug)]
enum Step {
    /// Datagrams of the host: index in [`WAYS`], source port, length in bytes; IPv6 if the length is odd.
    Send(Vec<(usize, u16, usize)>),
    /// A route changes.
    Route(usize, usize),
    /// A neighbour becomes unknown, stale, or known again.
    Neighbor(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let packet = (0..WAYS.len(), 0..3u16, prop_oneof![Just(20), Just(21), Just(1_100)]);
    let step = prop_oneof![
        6 => prop::collection::vec(packet, 1..40).prop_map(|packets| Step::Send(queueable(packets))),
        2 => (0..WAYS.len(), 0..OTHERS.len()).prop_map(|(way, hop)| Step::Route(way, hop)),
        1 => (0..3u8).prop_map(Step::Neighbor),
    ];
    prop::collection::vec(step, 1..20)
}

/// Removes packets that do not fit the queue of an unknown neighbour. Packets of different sessions may
/// overtake each other, so it is not certain which one does not fit.
fn queueable(mut packets: Vec<(usize, u16, usize)>) -> Vec<(usize, u16, usize)> {
    let mut waiting = 0;
    packets.retain(|&(way, ..)| {
        let must_wait = WAYS[way].2 == hops::GATEWAY;
        waiting += usize::from(must_wait);
        !must_wait || waiting <= 8
    });
    packets
}

fn frame((way, sport, payload): (usize, u16, usize)) -> Vec<u8> {
    let (four, six, _) = WAYS[way];
    let within = |prefix: &str| prefix.split_once('/').map(|(address, _)| address.to_owned()).unwrap();
    let udp = Udp::new(5_000 + sport, 53);
    let frame = match payload % 2 {
        0 => Frame::new(Ip4 { flags: 2, ..ip4(&within(four)) }, udp),
        _ => Frame::new(ip6(&within(six)), udp),
    };
    frame.macs(HOST_MAC, LAN_MAC).payload(vec![7; payload]).build()
}

fn change(routes: &mut Routes, step: &Step) {
    match step {
        Step::Send(_) => {}
        Step::Route(way, hop) => {
            let (four, six, _) = WAYS[*way];
            insert(&mut routes.tables[0], four, OTHERS[*hop]);
            insert(&mut routes.tables[0], six, OTHERS[*hop]);
        }
        Step::Neighbor(how) => {
            let far = *routes.hops.get(hops::FAR);
            let kind = if *how == 0 { NextHopKind::Failed } else { NextHopKind::Forward };
            routes.hops.set(hops::FAR, NextHop { kind, neighbor_stale: *how == 1, ..far });
        }
    }
}

/// The frames that leave at each step, in any order, and the dropped packets.
type Outcome = (Vec<Vec<(PortId, Vec<u8>)>>, Vec<(&'static str, u64)>);

fn outcome(rules: &[&str], steps: &[Step]) -> Outcome {
    let (mut world, mut routes) = (world(forwarding(rules)), routes());
    let mut all = Vec::new();
    for (now, step) in steps.iter().enumerate() {
        let Step::Send(packets) = step else {
            change(&mut routes, step);
            world.lab.publish_routes(routes.clone());
            continue;
        };
        // Time passes, so that the limit of ICMP errors is not reached.
        let mut out =
            world.lab.run(10_000 * now as u32, packets.iter().map(|one| (LAN, frame(*one))).collect());
        out.sort();
        all.push(out);
    }
    (all, world.drops())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Rules that accept everything have the same effect on sessions as no rules.
    #[test]
    fn sessions_change_nothing_about_routing(steps in steps()) {
        prop_assert_eq!(outcome(&["add-stateful all accept"], &steps), outcome(&[], &steps));
    }
}

/// Packets of one session that arrive at different ports use these ports' tables.
#[test]
fn each_port_has_its_own_way_for_a_session() {
    let mut world = world(forwarding(&["add-stateful all accept"]));
    let mut routes = routes();
    let mut other = routes.tables[0].clone();
    insert(&mut other, "198.51.100.0/24", hops::NARROW);
    insert(&mut other, "2001:db8:a::/48", hops::NARROW);
    routes.tables.push(other);
    routes.interfaces[usize::from(WAN.0)].as_mut().unwrap().table = 1;
    world.lab.publish_routes(routes);
    let frame = |is_ip6: bool, ttl| {
        let frame = match is_ip6 {
            true => Frame::new(Ip6 { hop_limit: ttl, ..ip6("2001:db8:a::7") }, Udp::new(1, 2)),
            false => Frame::new(Ip4 { ttl, ..ip4("198.51.100.7") }, Udp::new(1, 2)),
        };
        frame.macs(HOST_MAC, LAN_MAC).build()
    };
    // Sessions cache routes once these have been stable for some time.
    for (n, is_ip6) in [false, true].repeat(10).into_iter().enumerate() {
        let by_wan = [&WAN_MAC[..], &frame(is_ip6, 9)[6..]].concat();
        for (port, sent, hop) in [(LAN, frame(is_ip6, 9), hops::FAR), (WAN, by_wan, hops::NARROW)] {
            for repeat in 0..3 {
                let out = world.lab.run(200 * n as u32 + repeat, vec![(port, sent.clone())]);
                assert_eq!(out, [(WAN, behind(hop, &frame(is_ip6, 8)))]);
            }
        }
    }
}

/// A translated packet is routed by its new destination.
#[test]
fn translated_packets_are_routed_by_their_new_destination() {
    let mut world = world(forwarding(&["add-stateful ip-daddr 198.51.100.7 map ip-daddr 100.64.0.9"]));
    let send = |to: &str, ttl, payload: usize| {
        let ip = Ip4 { ttl, flags: 2, ..ip4(to) };
        Frame::new(ip, Udp::new(1, 2)).macs(HOST_MAC, LAN_MAC).payload(vec![7; payload]).build()
    };
    let (mut routes, mut now) = (routes(), 0);
    let (short, long) = (send("198.51.100.7", 9, 20), send("198.51.100.7", 9, 1_200));
    for hop in [hops::NARROW, hops::HOME, hops::MEMBERS[2], hops::NARROW] {
        insert(&mut routes.tables[0], "100.64.0.0/10", hop);
        world.lab.publish_routes(routes.clone());
        let port = if hop == hops::HOME { LAN } else { WAN };
        for _ in 0..4 {
            now += 200;
            let out = world.lab.run(now, vec![(LAN, short.clone())]);
            assert_eq!(out, [(port, behind(hop, &send("100.64.0.9", 8, 20)))]);
            let out = world.lab.run(now, vec![(LAN, long.clone())]);
            if hop == hops::NARROW {
                assert_eq!(error_about(&out, &long), (3, 4, 1_000));
            } else {
                assert_eq!(out, [(port, behind(hop, &send("100.64.0.9", 8, 1_200)))]);
            }
        }
    }
}
