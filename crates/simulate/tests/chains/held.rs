//! Packets that functions hold, in the daemon's graph.

use mmb_dataplane::{Forwarding, PortId};
use mmb_flow::HeldLimits;

use super::common::replay;
use super::world::*;

const HOLD: [&str; 4] =
    ["nf add h hold", "nf add t trace", "chain add c h | t", "add-stateful udp-dport 53 chain c"];

/// Payloads of frames, with their ports.
fn payloads(frames: &[(PortId, Vec<u8>)]) -> Vec<(PortId, String)> {
    frames.iter().map(|(port, frame)| (*port, text(frame))).collect()
}

fn text(frame: &[u8]) -> String {
    String::from_utf8_lossy(&frame[42..]).into_owned()
}

fn out(port: PortId, payloads: &[&str]) -> Vec<(PortId, String)> {
    payloads.iter().map(|payload| (port, (*payload).to_owned())).collect()
}

/// What the function `t` has seen.
fn seen(forwarding: &Forwarding) -> String {
    forwarding.chains.instance("t").unwrap().report()[0].1.clone()
}

#[test]
fn released_packets_leave_before_later_ones() {
    for routes in [false, true] {
        let forwarding = if routes { routed(&HOLD) } else { forwarding(&HOLD, None) };
        let mut world = world(forwarding.clone());
        assert_eq!(world.send(LEFT, &there(5_000, b"H1")), []);
        let frames = ["H2", "x", "R", "y", "H3", "A", "z"].map(|text| (LEFT, there(5_000, text.as_bytes())));
        let sent = world.lab.run(0, frames.to_vec());
        assert_eq!(payloads(&sent), out(RIGHT, &["x", "*1", "*2", "R", "y", "A", "*3", "z"]));
        assert_eq!(seen(&forwarding), "x *1 *2 R y A *3 z");
        assert_eq!(world.send(RIGHT, &back(5_000, b"H4")), []);
        let frames = ["R", "w"].map(|text| (RIGHT, back(5_000, text.as_bytes())));
        assert_eq!(payloads(&world.lab.run(0, frames.to_vec())), out(LEFT, &["*4", "R", "w"]));
        assert_eq!(world.drops(), []);
    }
}

/// More sessions than a vector has packets, of several workers, in vectors of all of them.
#[test]
fn many_sessions_keep_their_order() {
    for workers in [1, 2] {
        let mut world = world_of(workers, forwarding(&HOLD, None));
        let ports = 5_000..5_300;
        let frames = |payload: &'static [u8]| ports.clone().map(move |port| (LEFT, there(port, payload)));
        let all: Vec<_> =
            frames(b"H1").chain(frames(b"H2")).chain(frames(b"R")).chain(frames(b"x")).collect();
        let sent = world.lab.run(0, all);
        assert_eq!(sent.len(), 1200);
        for port in ports {
            let of_session = sent.iter().filter(|(_, frame)| frame[34..36] == port.to_be_bytes()[..]);
            let payloads: Vec<_> = of_session.map(|(_, frame)| text(frame)).collect();
            assert_eq!(payloads, ["*1", "*2", "R", "x"], "{port}");
        }
        assert_eq!(world.drops(), []);
    }
}

#[test]
fn held_packets_are_bounded_and_have_a_time() {
    let mut settings = forwarding(&HOLD, None);
    settings.settings.held = HeldLimits { session: 3, worker: 4 };
    let mut world = world(settings);
    let hold = |port: u16, n: usize| vec![(LEFT, there(port, b"H")); n];
    assert_eq!(world.lab.run(0, hold(5_000, 5)), []);
    assert_eq!(world.lab.run(0, hold(5_001, 2)), []);
    assert_eq!(world.drops(), [("held-full", 3)]);
    assert_eq!(world.lab.run(10_000, vec![]), []);
    assert_eq!(world.lab.run(10_000, vec![]), []);
    assert_eq!(world.drops(), [("held-full", 3), ("held-timeout", 4)]);
}

/// Rules and chains go while packets are held.
#[test]
fn held_packets_of_removed_chains_are_dropped() {
    let mut world = world(forwarding(&HOLD, None));
    assert_eq!(world.send(LEFT, &there(5_000, b"H1")), []);
    world.lab.publish(forwarding(&[], None));
    assert_eq!(payloads(&world.send(LEFT, &there(5_000, b"x"))), out(RIGHT, &["x"]));
    assert_eq!(world.send(LEFT, &there(5_001, b"y")).len(), 1);
    assert_eq!(world.drops(), [("held-ended", 1)]);
}

const MILLISECOND: u64 = 1_000_000;

#[test]
fn a_replay_writes_released_packets_in_their_order() {
    let packets = [
        (0, "H1"),
        (0, "H2"),
        (1, "x"),
        (2, "R"),
        (2, "y"),
        (2, "7"),
        (3, "3"),
        (4, "B"),
        (5, "R"),
        (6, "H9"),
        (6, "z"),
    ];
    let frames = packets.map(|(time, text)| (time * MILLISECOND, there(5_000, text.as_bytes())));
    let (report, out) = replay(forwarding(&HOLD, None), &frames);
    let out: Vec<_> = out.iter().map(|frame| (frame.time_ns / MILLISECOND, text(&frame.data))).collect();
    let expected = [
        (1, "x"),
        (2, "*1"),
        (2, "*2"),
        (2, "R"),
        (2, "y"),
        (4, "B"),
        (4, "*"),
        (5, "*"),
        (5, "R"),
        (6, "z"),
    ];
    assert_eq!(out, expected.map(|(time, text)| (time, text.to_owned())));
    assert_eq!((report.packets, report.forwarded, report.dropped), (11, 10, 1));
    assert_eq!(report.drops.into_iter().collect::<Vec<_>>(), [("held-timeout", 1)]);
}
