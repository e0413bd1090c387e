//! Named sets: a policy against the oracle while rules and elements change, and examples.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use mmb_flow::parse_key;
use mmb_lang::{Command, Rule, SetElement, SetKind, Subnet, parse_element, parse_line};
use mmb_oracle::{Settings, evaluate_with};
use mmb_packet::build::{Frame, Ip4, Ip6, Tcp, Udp};
use mmb_packet::{Meta, fill_window, parse};
use mmb_policy::{Batch, ElementInfo, Policy};
use proptest::collection::vec;
use proptest::prelude::*;

const SETS: [(&str, SetKind); 5] = [
    ("hosts", SetKind::Address),
    ("nets", SetKind::Prefix),
    ("ports", SetKind::Port),
    ("none", SetKind::Address),
    ("services", SetKind::AddressPort),
];

/// Matches on sets, alone and with others.
const MATCHES: [&str; 29] = [
    "ip-saddr @hosts",
    "ip-daddr @hosts",
    "ip-saddr != @hosts",
    "! ip-saddr @hosts",
    "! ip-saddr != @hosts",
    "ip-saddr @nets",
    "ip-daddr != @nets",
    "ip6-saddr @hosts",
    "! ip6-saddr != @nets",
    "ip6-daddr @nets tcp-dport @ports",
    "tcp-dport @ports",
    "! tcp-dport != @ports",
    "udp-sport != @ports",
    "ip-saddr @nets ip-daddr @nets tcp-dport 80",
    "ip-saddr @hosts tcp-dport != @ports",
    "ip-saddr @none",
    "ip-saddr != @none",
    "ip-daddr,tcp-dport @services",
    "ip-daddr,tcp-dport != @services",
    "! ip-daddr,tcp-dport @services",
    "! ip-daddr,tcp-dport != @services",
    "ip-saddr,udp-sport @services",
    "ip6-daddr,tcp-dport @services",
    "! ip6-saddr,udp-dport != @services",
    "ip-daddr,tcp-dport @services ip-saddr @hosts tcp-dport @ports",
    "ip-daddr,tcp-dport @services ip-daddr,tcp-sport != @services",
    "ip-saddr 10.0.0.0/30",
    "tcp-dport {80,443}",
    "all",
];

/// The elements of the test's own sets.
type Model = BTreeMap<&'static str, BTreeSet<SetElement>>;

fn rule(line: &str) -> Rule {
    match parse_line(line) {
        Ok(Some(Command::Add(rule))) => rule,
        other => panic!("{line}: {other:?}"),
    }
}

fn element(text: &str) -> SetElement {
    parse_element(text).expect("an element")
}

fn with_sets() -> Policy {
    let mut policy = Policy::new();
    SETS.iter().for_each(|(name, kind)| policy.define_set(name, *kind));
    policy
}

/// An element for one of the sets but `none`, from a small space, so that elements contain each other.
fn any_element() -> impl Strategy<Value = (&'static str, SetElement)> {
    let host = (0u8..12).prop_map(|n| ("hosts", element(&format!("10.0.0.{n}"))));
    let host6 = (0u8..12).prop_map(|n| ("hosts", element(&format!("2001:db8::{n:x}"))));
    let net = (0u8..16, 24u8..=32).prop_map(|(n, len)| ("nets", element(&format!("10.0.0.{n}/{len}"))));
    let net6 =
        (0u8..16, 120u8..=128).prop_map(|(n, len)| ("nets", element(&format!("2001:db8::{n:x}/{len}"))));
    let port = (78u16..84, 0u16..4)
        .prop_map(|(first, more)| ("ports", element(&format!("{first}-{}", first + more))));
    let pair = (0u8..16, prop_oneof![4 => Just(32u8), 1 => 28u8..32], 78u16..84, 0u16..3).prop_map(
        |(n, len, first, more)| ("services", element(&format!("10.0.0.{n}/{len}:{first}-{}", first + more))),
    );
    let pair6 = (0u8..16, prop_oneof![4 => Just(128u8), 1 => 124u8..128], 78u16..84, 0u16..3).prop_map(
        |(n, len, first, more)| {
            ("services", element(&format!("[2001:db8::{n:x}/{len}]:{first}-{}", first + more)))
        },
    );
    prop_oneof![1 => host, 1 => host6, 1 => net, 1 => net6, 1 => port, 2 => pair, 1 => pair6]
}

#[derive(Clone, Debug)]
enum Step {
    Insert(&'static str, SetElement),
    Remove(&'static str, SetElement),
    Expire(&'static str, SetElement),
    Flush(usize),
    Add(usize),
    Del(usize),
    Replace(Vec<usize>),
    Rebuild,
}

fn any_step() -> impl Strategy<Value = Step> {
    let matches = 0..MATCHES.len();
    prop_oneof![
        6 => any_element().prop_map(|(set, element)| Step::Insert(set, element)),
        3 => any_element().prop_map(|(set, element)| Step::Remove(set, element)),
        1 => any_element().prop_map(|(set, element)| Step::Expire(set, element)),
        1 => (0..SETS.len()).prop_map(Step::Flush),
        4 => matches.clone().prop_map(Step::Add),
        2 => (0usize..8).prop_map(Step::Del),
        1 => vec(matches, 0..6).prop_map(Step::Replace),
        1 => Just(Step::Rebuild),
    ]
}

/// A frame with addresses and ports from the space of [`any_element`].
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let ip6 = |n: u8| {
        let mut address = [0; 16];
        address[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
        address[15] = n;
        address
    };
    (any::<[bool; 2]>(), [0u8..16, 0u8..16], [78u16..90, 78u16..90]).prop_map(
        move |([v6, udp], [a, b], [s, d])| {
            let (from, to) = ([10, 0, 0, a], [10, 0, 0, b]);
            match (v6, udp) {
                (false, false) => Frame::new(Ip4::new(from, to), Tcp::new(s, d)).build(),
                (false, true) => Frame::new(Ip4::new(from, to), Udp::new(s, d)).build(),
                (true, false) => Frame::new(Ip6::new(ip6(a), ip6(b)), Tcp::new(s, d)).build(),
                (true, true) => Frame::new(Ip6::new(ip6(a), ip6(b)), Udp::new(s, d)).build(),
            }
        },
    )
}

/// Applies a step to the policy and to the model.
fn apply(step: &Step, policy: &mut Policy, model: &mut Model, rules: &mut Vec<(u32, Rule)>) {
    let new = |at: &usize| rule(&format!("add {} accept", MATCHES[*at]));
    let port = |_: &str| None;
    match step {
        Step::Insert(set, element) => {
            let added = policy.add_elements(set, [(*element, ElementInfo::default())]);
            assert_eq!(added == 1, model.entry(set).or_default().insert(*element));
        }
        Step::Remove(set, element) => {
            assert_eq!(
                policy.del_elements(set, &[*element]) == 1,
                model.entry(set).or_default().remove(element)
            );
        }
        Step::Expire(set, element) => {
            let info = ElementInfo { deadline: Some(5), ..ElementInfo::default() };
            policy.add_elements(set, [(*element, info)]);
            assert_eq!(policy.expire_elements(4), 0);
            assert_eq!(policy.expire_elements(5), 1);
            model.entry(set).or_default().remove(element);
        }
        Step::Flush(at) => {
            policy.remove_elements(SETS[*at].0, |_| true);
            model.remove(SETS[*at].0);
        }
        Step::Add(at) => rules.push((policy.add(&new(at), &port).expect("a rule"), new(at))),
        Step::Del(at) if *at < rules.len() => {
            let slot = policy.del(rules.remove(*at).0).expect("a slot");
            policy.release(slot);
        }
        Step::Del(_) => {}
        Step::Replace(all) => {
            let all: Vec<Rule> = all.iter().map(new).collect();
            *policy = policy.replace(&all, &port).expect("rules");
            *rules = (1..).zip(all).collect();
        }
        Step::Rebuild => *policy = policy.rebuilt(),
    }
}

/// Whether a value of a field of so many bits, or an address and a port, are in an element.
fn is_in(element: &SetElement, width: usize, value: u128, port: Option<u16>) -> bool {
    let within = |subnet: &Subnet| {
        let (bits, network) = match subnet.address {
            IpAddr::V4(address) => (32, u128::from(u32::from(address))),
            IpAddr::V6(address) => (128, u128::from(address)),
        };
        let free = bits - u32::from(subnet.len);
        width == bits as usize
            && value.checked_shr(free).unwrap_or(0) == network.checked_shr(free).unwrap_or(0)
    };
    match (element, port) {
        (SetElement::Prefix(subnet), None) => within(subnet),
        (SetElement::Ports(first, last), None) => width == 16 && (*first..=*last).contains(&(value as u16)),
        (SetElement::Pair(subnet, first, last), Some(port)) => {
            within(subnet) && (*first..=*last).contains(&port)
        }
        _ => false,
    }
}

/// The indexes of the rules that match each frame, looked up together.
fn matching(policy: &Policy, batch: &mut Batch, frames: &[Vec<u8>]) -> Vec<Vec<u32>> {
    batch.len = frames.len();
    for (frame, window) in frames.iter().zip(batch.windows.iter_mut()) {
        let mut meta = Meta::default();
        parse(frame, frame.len(), &mut meta).expect("a frame");
        fill_window(frame, &meta, 0, 1, policy.classifier().chunks(), window);
    }
    policy.classifier().classify(batch);
    let mut found = vec![Vec::new(); frames.len()];
    batch.hits.iter().for_each(|hit| found[usize::from(hit.pkt)].extend(policy.index(hit.slot)));
    found.iter_mut().for_each(|indexes| indexes.sort_unstable());
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn agrees_with_the_oracle(
        steps in vec((any_step(), vec(any_frame(), 1..24)), 1..40),
    ) {
        let (mut policy, mut model, mut rules) = (with_sets(), Model::new(), Vec::new());
        let mut batch = Batch::new();
        for (step, frames) in &steps {
            let before = policy.clone();
            apply(step, &mut policy, &mut model, &mut rules);
            drop(before);
            let in_set = |name: &str, width: usize, value: u128, port: Option<u16>| {
                let mut of = model.get(name).into_iter().flatten();
                of.any(|element| is_in(element, width, value, port))
            };
            let settings = Settings { in_set: &in_set, ..Settings::default() };
            let found = matching(&policy, &mut batch, frames);
            for (frame, found) in frames.iter().zip(found) {
                let expected = evaluate_with(&settings, &rules, &|_| None, 0, 1, frame);
                prop_assert_eq!(found, expected.matched, "{:?}", rules);
            }
        }
    }
}

proptest! {
    /// A packet that a change of elements does not concern matches the same rules as before, and one whose
    /// addresses and ports are in none of the changed elements is not concerned.
    #[test]
    fn a_change_concerns_all_packets_that_it_matters_to(
        rules in vec(0..MATCHES.len(), 1..8),
        known in vec(any_element(), 0..12),
        changes in vec((any_element(), any::<bool>()), 1..6),
        frames in vec(any_frame(), 1..24),
    ) {
        let mut policy = with_sets();
        for at in rules {
            policy.add(&rule(&format!("add {} accept", MATCHES[at])), &|_| None).unwrap();
        }
        for (set, element) in known {
            policy.add_elements(set, [(element, ElementInfo::default())]);
        }
        policy.take_element_change();
        let before = policy.clone();
        for ((set, element), is_there) in &changes {
            match is_there {
                true => policy.add_elements(set, [(*element, ElementInfo::default())]),
                false => policy.del_elements(set, &[*element]),
            };
        }
        let change = policy.take_element_change().expect("few elements");
        let mut batch = Batch::new();
        let [old, new] = [&before, &policy].map(|policy| matching(policy, &mut batch, &frames));
        for (frame, (old, new)) in frames.iter().zip(old.iter().zip(&new)) {
            let mut meta = Meta::default();
            parse(frame, frame.len(), &mut meta).unwrap();
            let key = parse_key(frame, &meta).unwrap();
            prop_assert!(change.concerns(&key) || old == new);
            let values = [key.source, key.destination].map(|address| match key.is_ip4() {
                true => (32, u128::from_be_bytes(address) >> 96),
                false => (128, u128::from_be_bytes(address)),
            });
            let ports = [key.source_port, key.destination_port].map(|port| (16, u16::from_be_bytes(port).into()));
            let is_in = |element: &SetElement| {
                let (first, last) = element.bounds();
                values.iter().chain(&ports).any(|&(width, value)| {
                    element.width() == width && (first..=last).contains(&value)
                })
            };
            prop_assert!(!change.concerns(&key) || changes.iter().any(|((_, element), _)| is_in(element)));
        }
    }
}

#[test]
fn a_change_of_elements_gives_stateful_rules_that_drop_another_identity() {
    let mut policy = with_sets();
    let with_set = policy.add(&rule("add-stateful ip-saddr @hosts block"), &|_| None).unwrap();
    let other = policy.add(&rule("add-stateful ip-daddr @hosts accept"), &|_| None).unwrap();
    let ids =
        |policy: &Policy| [with_set, other].map(|index| policy.rule_id(policy.rule(index).unwrap().slot));
    let before = ids(&policy);
    assert_eq!(policy.add_elements("hosts", [(element("192.0.2.1"), ElementInfo::default())]), 1);
    let after = ids(&policy);
    assert_ne!(before[0], after[0]);
    assert_eq!(before[1], after[1]);
    assert_eq!(policy.add_elements("hosts", [(element("192.0.2.1"), ElementInfo::default())]), 0);
    assert_eq!(after, ids(&policy), "known elements change nothing");
    assert_eq!(policy.rules_with_set("hosts").collect::<Vec<_>>(), [with_set, other]);
}

#[test]
fn rules_name_sets_that_exist_and_fit() {
    let mut policy = with_sets();
    let mut add = |line: &str| policy.add(&rule(line), &|_| None).map_err(|error| error.to_string());
    let unknown = add("add ip-saddr @hots drop").unwrap_err();
    assert!(unknown.contains("there is no set `hots`"), "{unknown}");
    let other = add("add tcp-dport @hosts drop").unwrap_err();
    assert!(other.contains("of kind address"), "{other}");
    let single = add("add ip-daddr @services drop").unwrap_err();
    assert!(single.contains("of kind address-port, and `ip-daddr` is not"), "{single}");
    assert!(single.contains("ip-daddr,tcp-dport @services"), "{single}");
    let pair = add("add ip-daddr,tcp-dport @hosts drop").unwrap_err();
    assert!(pair.contains("of kind address, and `ip-daddr,tcp-dport` is not"), "{pair}");
    assert!(add("add ip-saddr @hosts drop").is_ok());
}
