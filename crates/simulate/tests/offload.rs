//! Packets with marks, as ports with hardware flow rules deliver them.

#![allow(clippy::unwrap_used)]

// This test replays no capture.
#[allow(dead_code)]
mod common;

use common::{LEFT, RIGHT, alone, forwarding};
use mmb_dataplane::{Forwarding, PortId};
use mmb_lang::{Command, Rule, parse_line};
use mmb_packet::build::{Frame, Icmp, Ip4, Udp};
use mmb_simulate::FrameSimulator;

const MARK: u32 = 77;
const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [198, 51, 100, 2];

/// Sessions of port 53 get another TTL in both directions, packets to port 55 one by one; packets to port
/// 54 are dropped.
fn rules() -> Forwarding {
    let rule = |line: &&str| match parse_line(line) {
        Ok(Some(Command::Add(rule))) => rule,
        other => panic!("{line}: {other:?}"),
    };
    let lines = [
        "add-stateful ip-proto udp udp-dport 53 mod ip-ttl 9",
        "add ip-proto udp udp-dport 54 drop",
        "add ip-proto udp udp-dport 55 mod ip-ttl 7",
    ];
    forwarding(&lines.iter().map(rule).collect::<Vec<Rule>>())
}

fn udp(from: ([u8; 4], u16), to: ([u8; 4], u16), flags: u8) -> Vec<u8> {
    Frame::new(Ip4 { flags, ..Ip4::new(from.0, to.0) }, Udp::new(from.1, to.1)).payload([7; 40]).build()
}

fn ask(port: u16) -> Vec<u8> {
    udp((A, 5_000), (B, port), 0)
}

fn answer(port: u16, flags: u8) -> Vec<u8> {
    udp((B, port), (A, 5_000), flags)
}

/// The TTL of the frame that leaves.
fn ttl(gone: &[(PortId, Vec<u8>)]) -> Option<u8> {
    assert!(gone.len() < 2);
    gone.first().map(|(_, frame)| frame[22])
}

#[test]
fn a_mark_leads_around_the_flow_manager() {
    let _alone = alone();
    let mut lab = FrameSimulator::new(Forwarding::default(), Default::default(), 100).unwrap();
    // The rules stay the same, so sessions live on.
    let rules = rules();
    lab.publish_marked(rules.clone(), MARK);
    let (left, right) = (PortId(LEFT), PortId(RIGHT));
    let plain = ttl(&lab.run(0, vec![(left, ask(56))])).unwrap();
    assert_eq!(ttl(&lab.run(0, vec![(left, ask(53))])), Some(9));
    assert_eq!(ttl(&lab.run(0, vec![(right, answer(53, 0))])), Some(9));

    // Stateless rules apply.
    for (port, expected) in [(54, None), (55, Some(7)), (56, Some(plain))] {
        assert_eq!(ttl(&lab.run(1, vec![(left, ask(port))])), expected, "{port}");
        assert_eq!(ttl(&lab.run_marked(1, MARK, vec![(left, ask(port))])), expected, "{port}, marked");
    }
    // A wrong mark shows that the session was not looked up.
    assert_eq!(ttl(&lab.run_marked(2, MARK, vec![(right, answer(53, 0))])), Some(plain));
    // Marks of other policies have no effect, nor have marks of packets that can belong to a session.
    assert_eq!(ttl(&lab.run_marked(2, MARK - 1, vec![(right, answer(53, 0))])), Some(9));
    assert_eq!(ttl(&lab.run_marked(2, MARK, vec![(right, answer(53, 1))])), Some(9), "a fragment");
    lab.publish(rules.clone());
    assert_eq!(ttl(&lab.run_marked(3, MARK, vec![(right, answer(53, 0))])), Some(9), "no marks are in force");
    lab.publish_marked(rules, MARK + 1);
    assert_eq!(ttl(&lab.run_marked(4, MARK, vec![(right, answer(53, 0))])), Some(9), "the last policy's");
    assert_eq!(ttl(&lab.run_marked(4, MARK + 1, vec![(right, answer(53, 0))])), Some(plain));
}

/// An ICMP error about a session is treated like the session's packets, with or without a mark.
#[test]
fn errors_go_to_the_flow_manager() {
    let _alone = alone();
    let mut lab = FrameSimulator::new(Forwarding::default(), Default::default(), 100).unwrap();
    lab.publish_marked(rules(), MARK);
    let gone = lab.run(0, vec![(PortId(LEFT), ask(53))]);
    let quoted = &gone[0].1[14..];
    let error = Frame::new(Ip4::new(B, A), Icmp { code: 3, ..Icmp::new(3) }).payload(quoted.to_vec()).build();
    let unmarked = lab.run(1, vec![(PortId(RIGHT), error.clone())]);
    assert_eq!(lab.run_marked(2, MARK, vec![(PortId(RIGHT), error)]), unmarked);
}
