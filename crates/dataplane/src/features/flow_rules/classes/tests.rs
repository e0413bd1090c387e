//! Tests of the parent module.

use std::sync::Arc;

use mmb_dpdk::{FlowAddresses, FlowProto};
use mmb_flow::{ForwardConfig, NatConfig, PoolConfig, PortProto};
use proptest::prelude::*;

use super::*;

fn policy(lines: &[&str]) -> Policy {
    let mut policy = Policy::new();
    for line in lines {
        let Ok(Some(mmb_lang::Command::Add(rule))) = mmb_lang::parse_line(line) else { panic!("{line}") };
        policy.add(&rule, &|_| Some(0)).unwrap();
    }
    policy
}

fn of(lines: &[&str], nat: NatConfig) -> Vec<FlowPattern> {
    stateless(&Forwarding { policy: policy(lines), nat: Arc::new(nat), ..Forwarding::default() })
}

fn pool() -> PoolConfig {
    PoolConfig::new("wan", [192, 0, 2, 1].into(), [192, 0, 2, 1].into()).unwrap()
}

fn protos(patterns: &[FlowPattern]) -> Vec<(bool, FlowProto)> {
    patterns.iter().map(|p| (matches!(p.addresses, FlowAddresses::V4(_)), p.proto)).collect()
}

#[test]
fn protocols_without_stateful_rules_are_classes() {
    let tcp = of(&["add-stateful ip-proto tcp accept", "add udp-dport 53 drop"], NatConfig::default());
    assert_eq!(
        protos(&tcp),
        [(false, FlowProto::Tcp), (true, FlowProto::Udp), (false, FlowProto::Udp)],
        "all but TCP over IPv4"
    );
    assert_eq!(of(&["add-stateful all accept", "add udp-dport 53 drop"], NatConfig::default()), []);
    assert_eq!(protos(&of(&["add-stateful tcp-syn accept"], NatConfig::default())).len(), 2);
}

/// A stateless rule's packets are a class where the whole protocol is not; answers of sessions are
/// excluded.
#[test]
fn classes_of_stateless_rules() {
    let stateful = "add-stateful ip-saddr 10.0.0.0/8 udp-dport 5000-5999 accept";
    let classes = |rule| {
        let all = of(&[stateful, rule], NatConfig::default());
        all.iter().filter(|p| protos(&[**p]) == [(true, FlowProto::Udp)]).count()
    };
    assert_eq!(classes("add ip-saddr 11.0.0.0/8 ip-daddr 11.0.0.0/8 udp-dport 53 drop"), 1);
    assert_eq!(classes("add udp-dport 53 drop"), 0, "10.0.0.1:5000 answers 53");
    assert_eq!(classes("add udp-dport 53 udp-sport 53 drop"), 1);
    assert_eq!(classes("add udp-dport 53 udp-sport 53 reject"), 0, "its sender gets an answer");
    assert_eq!(classes("add udp-dport 53 udp-sport 53 log drop"), 0, "its packets are logged");
    assert_eq!(classes("add ip-daddr 10.1.0.0/16 udp-sport 5000 drop"), 0, "an answer");
    assert_eq!(classes("add ip-daddr 10.1.0.0/16 udp-sport 4999 udp-dport 7 drop"), 1);
    assert_eq!(classes("add tcp-dport 53 drop"), 0, "the whole protocol is a class");
}

#[test]
fn rules_that_change_addresses_leave_no_class() {
    for target in ["map ip-daddr 10.0.0.1", "shuffle udp-sport", "lb 10.0.0.1", "mod udp-dport 1"] {
        let rule = format!("add-stateful ip-saddr 10.0.0.0/8 udp-dport 53 {target}");
        assert_eq!(of(&[&rule], NatConfig::default()), [], "{target}");
    }
    let rule = "add-stateful tcp-dport 80 shuffle tcp-seq-num";
    assert_eq!(protos(&of(&[rule], NatConfig::default())).len(), 2);
    assert_eq!(
        of(&["add-stateful tcp-dport 80 chain web"], NatConfig::default()).len(),
        0,
        "an unknown chain"
    );
}

#[test]
fn packets_of_pools_and_forwards_are_no_class() {
    let nat = NatConfig::new(vec![pool()], vec![]).unwrap();
    let stateful = "add-stateful ip-saddr 10.0.0.0/8 tcp-dport 80 nat wan";
    let classes = |rule: &str| of(&[stateful, rule], nat.clone()).len();
    let none = classes("add icmp-type 8 drop");
    assert_eq!(none, 2, "IPv6");
    assert_eq!(classes("add ip-saddr 10.1.0.0/16 udp-dport 53 drop"), none, "of a hidden host");
    assert_eq!(classes("add ip-saddr 11.0.0.0/8 udp-dport 53 drop"), none, "may be for the pool");
    assert_eq!(classes("add ip-saddr 11.0.0.0/8 ip-daddr 12.0.0.0/8 udp-dport 53 drop"), none + 1);
    assert_eq!(classes("add ip-saddr 11.0.0.0/8 ip-daddr 192.0.2.0/24 udp-dport 53 drop"), none);
    let forward =
        ForwardConfig::new(PortProto::Udp, ([192, 0, 2, 1].into(), 53), ([11, 1, 1, 1].into(), 53)).unwrap();
    let nat = NatConfig::new(vec![pool()], vec![forward]).unwrap();
    let rule = "add ip-saddr 11.0.0.0/8 ip-daddr 12.0.0.0/8 udp-dport 53 drop";
    assert_eq!(of(&[stateful, rule], nat.clone()).len(), none, "11.1.1.1 has a forward");
    let rule = "add ip-saddr 11.2.0.0/16 ip-daddr 12.0.0.0/8 udp-dport 53 drop";
    assert_eq!(of(&[stateful, rule], nat).len(), none + 1);
}

/// Address and port of a generated packet.
fn end() -> impl Strategy<Value = (u8, u16)> {
    (0..4u8, 0..6u16)
}

fn matches() -> impl Strategy<Value = String> {
    let address = |name: &'static str| {
        prop::option::of((0..4u8, prop_oneof![Just(30), Just(31), Just(32)]))
            .prop_map(move |net| net.map_or(String::new(), |(a, len)| format!("{name} 10.0.0.{a}/{len} ")))
    };
    let port = |name: &'static str| {
        prop::option::of((0..6u16, 0..3u16))
            .prop_map(move |range| range.map_or(String::new(), |(p, n)| format!("{name} {p}-{} ", p + n)))
    };
    (address("ip-saddr"), address("ip-daddr"), port("udp-sport"), port("udp-dport"))
        .prop_map(|(a, b, c, d)| format!("ip-proto udp {a}{b}{c}{d}"))
}

fn fits(pattern: &FlowPattern, ends: [(u8, u16); 2]) -> bool {
    let FlowAddresses::V4(nets) = pattern.addresses else { return false };
    let addresses = nets.iter().zip(ends).all(|((net, bits), (address, _))| {
        let differ = net.to_bits() ^ (0x0a00_0000 | u32::from(address));
        differ.checked_shr(32 - u32::from(*bits)).unwrap_or(0) == 0
    });
    let ports = pattern.ports.iter().zip(ends).all(|((value, mask), (_, port))| value & mask == port & mask);
    addresses && ports && pattern.proto == FlowProto::Udp
}

proptest! {
    /// No packet of a class, and no answer to it, is one that a stateful rule matches.
    #[test]
    fn classes_contain_no_stateful_packet(
        stateful in prop::collection::vec(matches(), 1..3),
        stateless in prop::collection::vec(matches(), 0..6),
        packets in prop::collection::vec([end(), end()], 64),
    ) {
        let mut lines: Vec<String> = stateful.iter().map(|m| format!("add-stateful {m}accept")).collect();
        lines.extend(stateless.iter().map(|m| format!("add {m}drop")));
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let patterns = of(&lines, NatConfig::default());
        let opens = policy(&lines[..stateful.len()]);
        let mut evaluator = mmb_policy::Evaluator::new();
        for ends in packets.into_iter().filter(|ends| patterns.iter().any(|p| fits(p, *ends))) {
            let [(a, p), (b, q)] = ends;
            for ((a, p), (b, q)) in [((a, p), (b, q)), ((b, q), (a, p))] {
                let ip = mmb_packet::build::Ip4::new([10, 0, 0, a], [10, 0, 0, b]);
                let frame = mmb_packet::build::Frame::new(ip, mmb_packet::build::Udp::new(p, q)).build();
                let mut packet = mmb_packet::VecPacket::new(&frame);
                let around = mmb_policy::PacketContext::wire(0, 1);
                let matched = evaluator.evaluate(&opens, &mut packet, around, || 0).matched;
                prop_assert!(matched.is_empty(), "{ends:?} of {patterns:?}");
            }
        }
    }
}
