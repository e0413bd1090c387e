//! The properties that sessions rely on: scopes of rules, cached decisions, bindings of stateful rules.

use std::net::Ipv4Addr;

use mmb_lang::{Command, Rule, RuleKind, parse_line};
use mmb_oracle::{evaluate, generate};
use mmb_packet::{Kind, Meta, parse};
use mmb_policy::{
    Batch, Binding, Choice, Decision, Hit, Outcome, Policy, RuleInfo, RuleScope, Side, Verdict,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn rule(line: &str) -> Rule {
    match parse_line(line) {
        Ok(Some(Command::Add(rule))) => rule,
        other => panic!("{other:?}"),
    }
}

fn policy(lines: &[&str]) -> Policy {
    let mut policy = Policy::new();
    for line in lines {
        policy.add(&rule(line), &|_| Some(0)).unwrap_or_else(|error| panic!("{}", error.render(line)));
    }
    policy
}

/// All valid rules of a set, with their properties.
fn described(rules: Vec<Rule>) -> (Policy, Vec<(u32, Rule, RuleInfo)>) {
    let mut policy = Policy::new();
    let mut described = Vec::new();
    for rule in rules {
        if let Ok(index) = policy.add(&rule, &generate::port) {
            let slot = policy.rule(index).expect("just added").slot;
            assert_eq!(policy.index(slot), Some(index));
            described.push((index, rule, policy.rule_info(slot)));
        }
    }
    (policy, described)
}

/// The frame with other values in the fields that differ between packets of one direction. Checksums become
/// invalid: no rule of the session scope matches on them.
fn mate(frame: &[u8], noise: &[u8]) -> Option<Vec<u8>> {
    let mut meta = Meta::default();
    parse(frame, frame.len(), &mut meta).ok()?;
    let mut mate = frame.to_vec();
    let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
    let mut set = |at: usize, mask: u8, noise: u8| {
        if let Some(byte) = mate.get_mut(at) {
            *byte = (*byte & !mask) | (noise & mask);
        }
    };
    match meta.kind.l3() {
        // Type of service, identification, reserved and don't fragment, time to live.
        Kind::IP4 => [(1, 0xff), (4, 0xff), (5, 0xff), (6, 0xc0), (8, 0xff)]
            .iter()
            .zip(noise)
            .for_each(|((at, mask), noise)| set(l3 + at, *mask, *noise)),
        // Traffic class, flow label, hop limit.
        Kind::IP6 => [(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff)]
            .iter()
            .zip(noise)
            .for_each(|((at, mask), noise)| set(l3 + at, *mask, *noise)),
        _ => return None,
    }
    match meta.kind.l4() {
        // Sequence and acknowledgement number, reserved bits, flags, window, urgent pointer, options and
        // payload.
        Kind::TCP => (4..40)
            .zip(noise.iter().skip(5))
            .for_each(|(at, noise)| set(l4 + at, if at == 12 { 0x0f } else { 0xff }, *noise)),
        // The checksum, and the payload.
        Kind::UDP => {
            [6, 7, 8, 9, 10]
                .iter()
                .zip(noise.iter().skip(5))
                .for_each(|(at, noise)| set(l4 + at, 0xff, *noise));
        }
        // A sequence number, and the payload.
        Kind::ICMP | Kind::ICMP6 => {
            [2, 3, 6, 7, 8, 9]
                .iter()
                .zip(noise.iter().skip(5))
                .for_each(|(at, noise)| set(l4 + at, 0xff, *noise));
        }
        _ => return None,
    }
    let mut after = Meta::default();
    let whole = parse(&mate, mate.len(), &mut after).is_ok();
    (whole && after.kind == meta.kind && after.l4_off == l4 as u16).then_some(mate)
}

fn opens_or_closes(frame: &[u8]) -> bool {
    let mut meta = Meta::default();
    let read = parse(frame, frame.len(), &mut meta);
    read.is_ok() && meta.kind.l4() == Kind::TCP && frame[usize::from(meta.l4_off) + 13] & 0b111 != 0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// A match result of the session scope holds for all packets of one direction; one of the TCP control
    /// scope holds for no other packet.
    #[test]
    fn scopes_hold_for_all_their_packets(
        rules in generate::rules(30),
        frames in generate::frames(12),
        noise in vec(any::<u8>(), 41),
    ) {
        let (_, rules) = described(rules);
        let numbered: Vec<_> = rules.iter().map(|(index, rule, _)| (*index, rule.clone())).collect();
        for frame in &frames {
            let matched = |frame: &[u8]| evaluate(&numbered, &generate::port, 0, 1, frame).matched;
            let of_class = |frame: &[u8], class: RuleScope| {
                let mut matched = matched(frame);
                matched.retain(|index| rules.iter().any(|(i, _, traits)| i == index && traits.scope == class));
                matched
            };
            if !opens_or_closes(frame) {
                prop_assert_eq!(of_class(frame, RuleScope::TcpControl), [], "{:?}", frame);
            }
            let Some(mate) = mate(frame, &noise) else { continue };
            prop_assert_eq!(of_class(frame, RuleScope::Session), of_class(&mate, RuleScope::Session), "{:?}", frame);
        }
    }

    /// Deciding with some rules known before gives the same result as deciding at once.
    #[test]
    fn kept_decisions_change_nothing(
        rules in generate::rules(30),
        parts in vec(0..4_u8, 30),
        random in prop_oneof![Just(0), Just(u32::MAX)],
    ) {
        let (policy, rules) = described(rules);
        let slot = |index: u32| policy.rule(index).expect("it is there").slot;
        let part = |wanted: u8| {
            let all = rules.iter().zip(&parts).filter(move |(_, part)| **part & wanted != 0);
            all.map(|((index, ..), _)| slot(*index)).rev().collect::<Vec<u32>>()
        };
        let (known, more) = (part(1), part(2));
        let mut all: Vec<u32> = known.iter().chain(&more).copied().collect();
        all.sort();
        all.dedup();
        let mut batch = Batch::new();
        batch.len = 1;
        batch.hits = all.iter().map(|slot| Hit::new(0, *slot)).collect();
        let (mut at_once, mut outcome) = (Vec::new(), Outcome::default());
        let sink = &mut (|_, _| (), |verdict: Verdict| outcome = verdict.outcome);
        policy.decide(&batch, &mut at_once, || random, sink);

        let (mut edits, mut counted) = (vec![7], Vec::new());
        let decision = policy.decision(known.iter().copied());
        let combined =
            policy.decide_combined(&decision, more, &mut edits, &mut || random, &mut |slot| counted.push(slot));
        counted.sort();
        prop_assert_eq!((combined, &edits[1..], &counted), (outcome, &at_once[..], &all));

        let whole = policy.decision(all.iter().copied());
        prop_assert_eq!(whole.slots(), &all[..]);
        prop_assert_eq!(whole.decide(&mut || random), outcome);
        prop_assert!(whole.verdict().is_none_or(|known| known == outcome.drop));
        prop_assert!(whole.accepting().is_none_or(|slot| !outcome.drop && outcome.decider == Some(slot)));
        if !outcome.drop {
            prop_assert_eq!(whole.edits(), &at_once[..]);
        }
        prop_assert_eq!(whole, policy.decision(all.iter().rev().chain(&all).copied()));
    }

    /// The decision about a whole vector is that about each of its packets. It exists exactly if one rule
    /// alone matches all packets, edits nothing, and drops all of them or none.
    #[test]
    fn a_vector_of_one_rule_is_decided_at_once(
        rules in generate::rules(4),
        (main, other) in (any::<u32>(), any::<u32>()),
        packets in 1..9_u16,
        (odd, kind) in (0..9_u16, 0..4_u8),
    ) {
        let (policy, rules) = described(rules);
        let all: Vec<u32> = rules.iter().map(|(index, ..)| policy.rule(*index).expect("it is there").slot).collect();
        prop_assume!(!all.is_empty());
        let slot = |number: u32| all[number as usize % all.len()];
        let (main, other) = (slot(main), slot(other));
        let mut batch = Batch::new();
        batch.len = packets.into();
        for packet in 0..packets {
            match kind {
                0 if packet == odd => {}
                1 if packet == odd => batch.hits.push(Hit::new(packet, other)),
                2 if packet == odd && other != main => {
                    batch.hits.extend([main, other].map(|slot| Hit::new(packet, slot)));
                }
                _ => batch.hits.push(Hit::new(packet, main)),
            }
        }
        let (mut edits, mut outcomes) = (Vec::new(), Vec::new());
        let sink = &mut (|_, _| (), |verdict: Verdict| outcomes.push((verdict.outcome, verdict.edits_len)));
        policy.decide(&batch, &mut edits, || 0, sink);
        let decision = policy.decision([main]);
        let is_alike = batch.hits.iter().map(|hit| (hit.pkt, hit.slot)).eq((0..packets).map(|at| (at, main)))
            && decision.edits().is_empty()
            && decision.verdict().is_some();
        let alike = policy.decide_alike(&batch);
        prop_assert_eq!(alike.is_some(), is_alike);
        if let Some((slot, outcome)) = alike {
            prop_assert_eq!(slot, main);
            prop_assert_eq!(outcomes, vec![(outcome, 0); packets.into()]);
        }
    }

    /// Every valid rule compiles, and has bindings exactly if its targets say so.
    #[test]
    fn stateful_rules_compile(rules in generate::stateful_rules(20)) {
        let (policy, rules) = described(rules);
        prop_assert_eq!(policy.is_stateful(), !rules.is_empty());
        for (index, rule, traits) in rules {
            let view = policy.rule(index).expect("it is there");
            prop_assert_eq!(view.rule(), Ok(rule.clone()));
            prop_assert!(traits.stateful && rule.kind == RuleKind::Stateful);
            let bindings = &policy.stateful(view.slot).expect("it is stateful").bindings;
            prop_assert_eq!(traits.binds, !bindings.is_empty());
            let text = rule.to_string();
            let words = text.split(' ').filter(|word| matches!(*word, "map" | "shuffle" | "lb" | "nat")).count();
            prop_assert!(bindings.len() >= words && (traits.opens_sessions() || bindings.is_empty()), "{}", text);
        }
    }
}

fn bindings(line: &str) -> Vec<Binding> {
    let policy = policy(&[line]);
    policy.stateful(0).map(|stateful| stateful.bindings.to_vec()).unwrap_or_default()
}

fn choice(binding: &Binding) -> (&Choice, &[(u128, u128)]) {
    match binding {
        Binding::Address { choice, .. } | Binding::Port { choice, .. } => (choice, choice.values.ranges()),
        Binding::IpId(choice)
        | Binding::FlowLabel(choice)
        | Binding::SeqNum(choice)
        | Binding::AckNum(choice) => (choice, choice.values.ranges()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn bindings_of_the_papers_nat() {
    for line in [
        "add-stateful ip-saddr 10.0.0.0/24 ip-proto tcp tcp-syn shuffle tcp-sport mod ip-saddr 200.0.0.1",
        "add-stateful ip-saddr 10.0.0.0/24 ip-proto tcp map ip-saddr 200.0.0.1 shuffle tcp-sport",
    ] {
        let mut given = bindings(line);
        given.sort_by_key(|binding| matches!(binding, Binding::Port { .. }));
        let [address, port] = &given[..] else { panic!("{given:?}") };
        assert!(matches!(address, Binding::Address { side: Side::Source, ip4: true, .. }));
        let (source, value) = choice(address);
        assert_eq!((source.random, value), (false, &[(0xc800_0001, 0xc800_0001)][..]));
        assert!(matches!(port, Binding::Port { proto: 6, side: Side::Source, .. }));
        let (port, values) = choice(port);
        assert_eq!((port.random, values), (true, &[(1024, 65535)][..]));
        assert_eq!(policy(&[line]).decision([0]).edits(), [0_u32; 0], "nothing is edited packet by packet");
    }
}

#[test]
fn bindings_of_each_target() {
    let given = bindings(
        "add-stateful all map ip-daddr {10.0.0.9,10.0.1.0/30} map ip6-saddr 2001:db8::/127 mod udp-dport 53 \
         shuffle udp-sport 4000-4003 shuffle ip-id map ip6-flow-label 7 shuffle tcp-seq-num map tcp-ack-num {1,5}",
    );
    let seen: Vec<_> =
        given.iter().map(choice).map(|(choice, ranges)| (choice.random, ranges.to_vec())).collect();
    let net = 0x2001_0db8_u128 << 96;
    assert_eq!(
        seen,
        [
            (false, vec![(0x0a00_0009, 0x0a00_0009), (0x0a00_0100, 0x0a00_0103)]),
            (false, vec![(net, net + 1)]),
            (false, vec![(53, 53)]),
            (true, vec![(4000, 4003)]),
            (true, vec![(0, 0xffff)]),
            (false, vec![(7, 7)]),
            (true, vec![(0, 0xffff_ffff)]),
            (false, vec![(1, 1), (5, 5)]),
        ]
    );
    assert!(matches!(
        given[..],
        [
            Binding::Address { side: Side::Destination, ip4: true, .. },
            Binding::Address { side: Side::Source, ip4: false, .. },
            Binding::Port { proto: 17, side: Side::Destination, .. },
            Binding::Port { proto: 17, side: Side::Source, .. },
            Binding::IpId(_),
            Binding::FlowLabel(_),
            Binding::SeqNum(_),
            Binding::AckNum(_),
        ]
    ));
    let ip4 = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)].into();
    assert_eq!(
        bindings("add-stateful all lb 10.0.0.1 2001:db8::1 10.0.0.2 nat office accept"),
        [
            Binding::Balance { ip4, ip6: ["2001:db8::1".parse().unwrap()].into() },
            Binding::Nat { pool: "office".into() }
        ]
    );
}

#[test]
fn other_targets_edit_per_packet() {
    let policy = policy(&[
        "add-stateful tcp-dport 80 mod ip-ttl 3 mod tcp-dport 81 add tcp-opt-mss 1400 accept",
        "add-stateful tcp-dport 80 mod tcp-seq-num 3",
        "add tcp-dport 80 mod tcp-sport 3",
        "add-stateful tcp-dport 80 drop 50",
        "add-stateful tcp-dport 80 accept",
    ]);
    let all = policy.decision([4, 3, 2, 1, 0, 9]);
    assert_eq!(
        (all.slots(), all.edits(), all.verdict()),
        (&[0, 1, 2, 3, 4][..], &[0, 1, 2][..], Some(false))
    );
    assert_eq!(bindings("add-stateful tcp-dport 80 mod tcp-seq-num 3"), []);
    assert_eq!(policy.stateful(2), None);
    let opens: Vec<bool> = (0..5).map(|slot| policy.rule_info(slot).opens_sessions()).collect();
    assert_eq!(opens, [true, true, false, false, true]);
    let binds: Vec<bool> = (0..5).map(|slot| policy.rule_info(slot).binds).collect();
    assert_eq!(binds, [true, false, false, false, false]);
}

#[test]
fn deleted_rules_leave_nothing() {
    let mut policy =
        policy(&["add-stateful ip-ttl 3 map ip-saddr 10.0.0.1", "add ip-ttl 4 drop", "add all drop"]);
    let id = policy.rule_id(0);
    assert!(policy.is_stateful() && policy.per_packet().is_some() && id.is_some());
    policy.del(1);
    assert_eq!((policy.rule_id(0), policy.stateful(0), policy.index(0)), (None, None, None));
    assert_eq!((policy.rule_info(0), policy.decision([0])), (RuleInfo::default(), Decision::default()));
    assert!(!policy.is_stateful());
    policy.del(2);
    assert!(policy.per_packet().is_none());
    policy.release(0);
    policy.add(&rule("add-stateful ip-ttl 3 map ip-saddr 10.0.0.1"), &|_| None).unwrap();
    assert!(policy.rule_id(0).is_some() && policy.rule_id(0) != id, "the same text, and another rule");
    let (kept, others) = (policy.rule_id(0), policy.rule_id(2));
    let again = policy
        .replace(&[rule("add all drop"), rule("add-stateful ip-ttl 3 map ip-saddr 10.0.0.1")], &|_| None);
    let again = again.unwrap();
    assert_eq!((again.rule_id(0), again.rule_id(2), again.index(0)), (kept, others, Some(2)));
    assert_eq!(again.rebuilt().rule_id(0), kept);
    policy.flush();
    assert_eq!((policy.rule_id(0), policy.is_stateful(), policy.per_packet().is_none()), (None, false, true));
}
