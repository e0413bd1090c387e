//! Next hops whose Ethernet address is not known.

use std::net::IpAddr;

use mmb_dataplane::{NeighborRequest, PortId};
use mmb_packet::build::{Ip4, Ip6};
use mmb_route::{NextHop, NextHopKind, Routes};

use crate::world::*;

const FOUND: u32 = 30;
const SECOND: u32 = 1_000;

fn want(address: &str) -> NeighborRequest {
    NeighborRequest { interface: WAN_INTERFACE, address: address.parse().expect("an address") }
}

/// Routes with the kernel's result for a neighbour: an address, or a failure.
fn answered(neighbor: &str, kind: NextHopKind) -> Routes {
    let mut routes = routes();
    let far = *routes.hops.get(hops::FAR);
    let hop =
        if kind == NextHopKind::Forward { far } else { NextHop { kind, ..*routes.hops.get(hops::NEAR) } };
    routes.hops.set(FOUND, hop);
    let length = if neighbor.contains(':') { 128 } else { 32 };
    insert(&mut routes.tables[0], &format!("{neighbor}/{length}"), FOUND);
    routes
}

fn frame(to: &str, id: u16) -> Vec<u8> {
    if to.contains(':') {
        udp(Ip6 { flow_label: id.into(), ..ip6(to) }, 9)
    } else {
        udp(Ip4 { id, ..ip4(to) }, 9)
    }
}

fn sent_on(to: &str, id: u16) -> (PortId, Vec<u8>) {
    let frame = match to.contains(':') {
        true => udp(Ip6 { flow_label: id.into(), hop_limit: 63, ..ip6(to) }, 9),
        false => udp(Ip4 { id, ttl: 63, ..ip4(to) }, 9),
    };
    (WAN, behind(hops::FAR, &frame))
}

#[test]
fn packets_wait_for_the_address_and_go_on_in_order() {
    for to in ["192.0.2.5", "2001:db8:2::5"] {
        let mut world = world(forwarding(&[]));
        let frames = (0..3).map(|id| (LAN, frame(to, id))).collect();
        assert_eq!(world.lab.run(0, frames), []);
        assert_eq!(world.lab.neighbor_requests(), [want(to)]);
        assert_eq!(world.lab.routing_counters().waiting, 3);
        // Other changes have no effect.
        world.lab.publish_routes(answered("192.0.2.77", NextHopKind::Forward));
        assert_eq!(world.lab.run(5, vec![]), []);
        world.lab.publish_routes(answered(to, NextHopKind::Forward));
        assert_eq!(world.lab.run(10, vec![]), [0, 1, 2].map(|id| sent_on(to, id)));
        let counters = world.lab.routing_counters();
        assert_eq!((world.drops(), counters.queued, counters.waiting), (vec![], 3, 0));
        assert_eq!(world.lab.run(20, vec![(LAN, frame(to, 3))]), [sent_on(to, 3)]);
    }
}

#[test]
fn the_gateway_is_resolved_instead_of_the_destination() {
    let mut world = world(forwarding(&[]));
    let frames = ["172.16.0.1", "172.17.0.1"].map(|to| (LAN, frame(to, 1)));
    assert_eq!(world.lab.run(0, frames.to_vec()), []);
    assert_eq!(world.lab.neighbor_requests(), [want("192.0.2.254")]);
}

#[test]
fn unresolved_neighbours_cause_icmp_errors() {
    for (to, complaint) in [("192.0.2.5", (3, 1, 0)), ("2001:db8:2::5", (1, 3, 0))] {
        let mut world = world(forwarding(&[]));
        let packet = frame(to, 1);
        assert_eq!(world.send(&packet), []);
        world.lab.publish_routes(answered(to, NextHopKind::Failed));
        assert_eq!(error_about(&world.lab.run(10, vec![]), &packet), complaint);
        // From now on immediately; the kernel is asked again at a limited rate.
        assert_eq!(world.lab.neighbor_requests(), [want(to)]);
        assert_eq!(error_about(&world.lab.run(20, vec![(LAN, packet.clone())]), &packet), complaint);
        assert_eq!(world.lab.neighbor_requests(), []);
        assert_eq!(error_about(&world.lab.run(SECOND, vec![(LAN, packet.clone())]), &packet), complaint);
        assert_eq!(world.lab.neighbor_requests(), [want(to)]);
        assert_eq!(world.drops(), [("neighbor-failed", 3)]);
    }
}

#[test]
fn packets_wait_at_most_three_seconds() {
    let mut world = world(forwarding(&[]));
    let packet = frame("192.0.2.5", 1);
    assert_eq!((world.lab.next_timer(), world.send(&packet)), (None, vec![]));
    assert_eq!(world.lab.next_timer(), Some(3 * SECOND));
    assert_eq!(world.lab.run(3 * SECOND - 1, vec![]), []);
    assert_eq!(world.lab.next_timer(), Some(1));
    assert_eq!(error_about(&world.lab.run(3 * SECOND, vec![]), &packet), (3, 1, 0));
    assert_eq!((world.lab.next_timer(), world.drops()), (None, vec![("neighbor-failed", 1)]));
}

/// RFC 1122, 2.3.2.2: the latest packet is kept.
#[test]
fn the_queue_is_bounded_for_each_neighbour_and_in_all() {
    let mut world = world(forwarding(&[]));
    let to = |last: u16| format!("192.0.2.{last}");
    let frames_to = |last: u16, n: u16| (0..n).map(move |id| (LAN, frame(&to(last), id))).collect::<Vec<_>>();
    assert_eq!(world.lab.run(0, frames_to(1, 140)), []);
    assert_eq!(world.drops(), [("neighbor-queue", 12)]);
    // Three more neighbours that do not answer take all room.
    (2..=4).for_each(|last| assert_eq!(world.lab.run(0, frames_to(last, 128)), []));
    assert_eq!((world.lab.routing_counters().waiting, world.drops()), (512, vec![("neighbor-queue", 12)]));
    // The next one gets as much as they have, from each in turn.
    assert_eq!(world.lab.run(0, frames_to(5, 120)), []);
    assert_eq!(world.lab.routing_counters().waiting, 512);
    world.lab.publish_routes(answered(&to(5), NextHopKind::Forward));
    let out = world.lab.run(1, vec![]);
    assert!(out.len() >= 512 / 5, "{}", out.len());
    let newest = 120 - out.len() as u16..120;
    assert_eq!(out, newest.map(|id| sent_on(&to(5), id)).collect::<Vec<_>>());
}

/// A scan of a connected network replaces the oldest packets, which are its own.
#[test]
fn a_scan_leaves_room_for_packets_to_new_neighbours() {
    let mut world = world(forwarding(&[]));
    let scan: Vec<_> = (0..600).map(|n| (LAN, frame(&format!("2001:db8:2::1:{n:x}"), 0))).collect();
    scan.chunks(200).for_each(|some| assert_eq!(world.lab.run(0, some.to_vec()), []));
    assert_eq!(world.lab.routing_counters().waiting, 512);
    assert_eq!(world.drops(), [("neighbor-queue", 88)]);
    let burst: Vec<_> = (0..32).map(|id| (LAN, frame("192.0.2.5", id))).collect();
    assert_eq!(world.lab.run(0, burst), []);
    world.lab.publish_routes(answered("192.0.2.5", NextHopKind::Forward));
    assert_eq!(world.lab.run(1, vec![]), (0..32).map(|id| sent_on("192.0.2.5", id)).collect::<Vec<_>>());
}

#[test]
fn a_deleted_route_fails_waiting_packets() {
    let mut world = world(forwarding(&[]));
    let packet = frame("192.0.2.5", 1);
    assert_eq!(world.send(&packet), []);
    let mut routes = routes();
    routes.tables[0].ip4.remove([192, 0, 2, 0].into(), 24);
    world.lab.publish_routes(routes);
    assert_eq!(error_about(&world.lab.run(1, vec![]), &packet), (3, 0, 0));
}

#[test]
fn a_used_stale_neighbour_is_probed_once_a_second() {
    let mut world = world(forwarding(&[]));
    let mut asked = Vec::new();
    for now in (0..3 * SECOND).step_by(100) {
        assert_eq!(world.lab.run(now, vec![(LAN, frame("203.0.113.49", 1)); 3]).len(), 3);
        asked.extend(world.lab.neighbor_requests().into_iter().map(|want| (now, want.address)));
    }
    let address: IpAddr = [203, 0, 113, 49].into();
    assert_eq!(asked, [0, SECOND, 2 * SECOND].map(|now| (now, address)));
}
