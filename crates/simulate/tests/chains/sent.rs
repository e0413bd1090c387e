//! Frames that functions make.

use mmb_dataplane::PortId;
use mmb_nf::Emissions;

use super::functions::{FAREWELL, long_frame};
use super::world::*;

/// A chain of one `copy` with these arguments.
fn copying(arguments: &str) -> Vec<String> {
    let copy = format!("nf add c copy {arguments}");
    [&copy, "chain add copies c", "add-stateful udp-dport 53 chain copies"].map(str::to_owned).to_vec()
}

fn lines(lines: &[String]) -> Vec<&str> {
    lines.iter().map(String::as_str).collect()
}

#[test]
fn emissions_precede_their_packet() {
    for (to, there_to, back_to) in [("side", SIDE, SIDE), ("back", LEFT, RIGHT), ("onward", RIGHT, LEFT)] {
        let mut world = world(forwarding(&lines(&copying(to)), None));
        for _ in 0..2 {
            let (question, answer) = (there(5_000, b"question"), back(5_000, b"answer"));
            let out = world.send(LEFT, &question);
            assert_eq!(out, [(there_to, question.clone()), (RIGHT, question.clone())], "{to}");
            let out = world.send(RIGHT, &answer);
            assert_eq!(out, [(back_to, answer.clone()), (LEFT, answer.clone())], "{to}");
        }
        assert_eq!(world.drops(), []);
    }
}

#[test]
fn an_ending_session_may_emit_frames() {
    let mut world = world(forwarding(&lines(&copying("back")), None));
    assert_eq!(world.send(LEFT, &there(5_000, b"x")).len(), 2);
    assert_eq!(world.lab.run(600_000, vec![]), [(LEFT, FAREWELL.to_vec())]);
    assert_eq!(world.lab.run(1_200_000, vec![]), []);
}

#[test]
fn emissions_may_be_longer_than_a_buffer() {
    for (bytes, drops) in [(2_049, None), (9_000, None), (60_000, None), (700_000, Some(("no-buffer", 1)))] {
        let long = format!("nf add l long side {bytes}");
        let mut world =
            world(forwarding(&[&long, "chain add longs l", "add-stateful udp-dport 53 chain longs"], None));
        let question = there(5_000, b"question");
        let out = world.send(LEFT, &question);
        let made = drops.is_none().then(|| (SIDE, long_frame(bytes)));
        let expected: Vec<_> = made.into_iter().chain([(RIGHT, question)]).collect();
        assert!(
            out == expected,
            "{bytes} bytes: {:?}",
            out.iter().map(|(_, frame)| frame.len()).collect::<Vec<_>>()
        );
        assert_eq!(world.drops(), Vec::from_iter(drops));
    }
}

#[test]
fn emissions_of_a_vector_are_bounded() {
    let mut world = world(forwarding(&lines(&copying("side 8")), None));
    let frames = |n: u16| (0..n).map(|i| (LEFT, there(5_000 + i, b"x"))).collect::<Vec<_>>();
    let out = world.lab.run(0, frames(200));
    let copies = out.iter().filter(|(port, _)| *port == SIDE).count();
    assert_eq!((copies, out.len()), (Emissions::MAX_FRAMES, Emissions::MAX_FRAMES + 200));
    assert_eq!(world.drops(), [("no-buffer", 1_600 - Emissions::MAX_FRAMES as u64)]);
    let out = world.lab.run(0, frames(100));
    assert_eq!(out.len(), 900);
}

#[test]
fn emissions_are_routed_like_their_packet() {
    let mut world = world(routed(&lines(&copying("onward"))));
    let out = world.send(LEFT, &there(5_000, b"x"));
    let expected: (PortId, &[u8]) = (RIGHT, &[NEIGHBOR_MAC, RIGHT_MAC].concat());
    for (port, frame) in &out {
        assert_eq!(((*port, &frame[..12]), frame[22]), (expected, 63));
    }
    assert_eq!((out.len(), &out[0]), (2, &out[1]));
    assert_eq!(world.drops(), []);
}

#[test]
fn emissions_to_the_ingress_are_not_routed() {
    let mut world = world(routed(&lines(&copying("back"))));
    let question = there(5_000, b"x");
    let out = world.send(LEFT, &question);
    assert_eq!((&out[0], out[1].0), (&(LEFT, question), RIGHT));
    assert_eq!(world.drops(), []);
}

#[test]
fn emissions_without_a_route_are_counted() {
    let mut forwarding = forwarding(&lines(&copying("onward")), None);
    forwarding.ports.iter_mut().for_each(|port| port.peer = None);
    let mut world = world(forwarding);
    assert_eq!(world.send(LEFT, &there(5_000, b"x")), []);
    assert_eq!(world.drops(), [("unwired", 2)]);
}
