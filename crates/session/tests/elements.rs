//! Changes of the elements of sets: sessions that they do not concern go on without asking the rules.

mod common;

use std::sync::Arc;

use common::*;
use mmb_flow::{NatConfig, SessionSettings};
use mmb_packet::DropReason;
use mmb_packet::build::Frame;
use mmb_policy::Policy;
use mmb_session_harness::{RuleSet, change_set};
use proptest::prelude::*;

const SETS: [&str; 3] = ["hosts", "nets", "ports"];
const DEFINITIONS: [&str; 3] = ["set add hosts address", "set add nets prefix", "set add ports port"];

/// The elements that come and go, with the number of their set.
const ELEMENTS: [(usize, &str); 9] = [
    (0, "10.0.0.1"),
    (0, "10.0.0.2"),
    (0, "192.0.2.1"),
    (0, "2001:db8::1"),
    (1, "10.0.0.0/24"),
    (1, "10.0.0.2/31"),
    (1, "192.0.2.0/30"),
    (2, "80"),
    (2, "1000-4001"),
];

const RULES: [&str; 10] = [
    "add-stateful in port0 accept",
    "add ip-saddr @hosts block",
    "add ip-daddr @hosts drop",
    "add-stateful ip-saddr @hosts drop",
    "add-stateful udp-dport @ports drop",
    "add ip-saddr @nets udp-dport != @ports drop",
    "add-stateful ip-saddr @nets accept",
    "add udp-sport @ports mod ip-dscp 10",
    "add-stateful in port0 ip-saddr != @nets accept",
    "add ip-daddr != @nets block",
];

/// A policy with sets and these rules.
fn policy(rules: u16) -> Policy {
    let mut policy = Policy::new();
    DEFINITIONS.iter().for_each(|line| change_set(&mut policy, line).expect("a set"));
    let lines: Vec<_> = (0..RULES.len()).filter(|bit| rules >> bit & 1 != 0).map(|bit| RULES[bit]).collect();
    rules_with(&lines, SessionSettings::default(), Some(&policy)).policy
}

fn rule_set(policy: Policy) -> RuleSet {
    RuleSet::new(policy, NatConfig::default(), SessionSettings::default())
}

/// Adds an element, or removes it.
fn change(policy: &mut Policy, (set, element): (usize, &str), is_there: bool) {
    let line = format!("set {} {} {element}", SETS[set], if is_there { "add" } else { "del" });
    change_set(policy, &line).expect("a change");
}

#[derive(Clone, Debug)]
enum Step {
    /// A datagram between a host and a server, whose ports are numbers of [`PORTS`].
    Packet { host: u8, server: u8, ports: [usize; 2], is_reply: bool },
    /// Elements of [`ELEMENTS`] come, or go.
    Change(Vec<(usize, bool)>),
}

const PORTS: [u16; 3] = [80, 4000, 9];

fn step() -> impl Strategy<Value = Step> {
    let changed = prop::collection::vec((0..ELEMENTS.len(), any::<bool>()), 1..4);
    prop_oneof![
        4 => (1..4u8, 1..3u8, [0..3usize, 0..3usize], any::<bool>())
            .prop_map(|(host, server, ports, is_reply)| Step::Packet { host, server, ports, is_reply }),
        1 => changed.prop_map(Step::Change),
    ]
}

fn datagram(host: u8, server: u8, ports: [usize; 2], is_reply: bool) -> (u16, Frame) {
    let (client, server) = (([10, 0, 0, host], PORTS[ports[0]]), ([192, 0, 2, server], PORTS[ports[1]]));
    if is_reply { (OUT, udp(server, client)) } else { (IN, udp(client, server)) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// It is the same as if all sessions were judged anew.
    #[test]
    fn sessions_that_are_not_concerned_match_the_same_rules(
        rules: u16,
        workers in 1..3u16,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut policy = policy(rules);
        let mut all = Net::with(rule_set(policy.clone()), workers, 100);
        let mut some = Net::with(rule_set(policy.clone()), workers, 100);
        for (at, step) in steps.iter().enumerate() {
            match step {
                &Step::Packet { host, server, ports, is_reply } => {
                    let (port, frame) = datagram(host, server, ports, is_reply);
                    prop_assert_eq!(some.one(port, &frame), all.one(port, &frame), "step {}", at);
                }
                Step::Change(changes) => {
                    changes.iter().for_each(|&(element, is)| change(&mut policy, ELEMENTS[element], is));
                    all.harness.replace_rules(rule_set(policy.clone()));
                    let changed = policy.take_element_change().expect("few elements");
                    some.harness.replace_elements(rule_set(policy.clone()), &Arc::new(changed));
                }
            }
        }
        let sessions = |net: &Net| {
            net.views().into_iter().map(|view| (view.packets, view.rules, view.state)).collect::<Vec<_>>()
        };
        prop_assert_eq!(sessions(&some), sessions(&all));
    }
}

/// Whatever the number of changes since a session's last packet: it stops if one of them concerns it.
#[test]
fn sessions_with_the_element_stop() {
    let mut policy = policy(0b11);
    let mut net = Net::with(rule_set(policy.clone()), 1, 100);
    let packets: Vec<_> = (1..4).map(|host| udp(([10, 0, 0, host], 4000), ([192, 0, 2, 1], 9))).collect();
    packets.iter().for_each(|packet| net.passes(IN, packet));
    for element in [(0, "10.0.0.2"), (0, "10.0.0.9"), (0, "10.0.0.8")] {
        change(&mut policy, element, true);
        let changed = Arc::new(policy.take_element_change().expect("few elements"));
        net.harness.replace_elements(rule_set(policy.clone()), &changed);
        net.passes(IN, &packets[0]);
        net.drops(IN, &packets[1], DropReason::Rule);
    }
    // The third session has seen three changes since its last packet.
    net.passes(IN, &packets[2]);
    change(&mut policy, (0, "10.0.0.2"), false);
    let changed = Arc::new(policy.take_element_change().expect("few elements"));
    net.harness.replace_elements(rule_set(policy.clone()), &changed);
    packets.iter().for_each(|packet| net.passes(IN, packet));
    // More elements than are noted concern all sessions.
    let mut many = policy.clone();
    for n in 0..5000 {
        change_set(&mut many, &format!("set hosts add 172.16.{}.{}", n >> 8, n & 255)).expect("a change");
    }
    assert!(many.take_element_change().is_none());
    assert_eq!(many.take_element_change().map(|change| change == Default::default()), Some(true));
}
