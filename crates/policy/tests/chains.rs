//! Rules with service chains: which one is effective, and how a chain's class restricts what a rule
//! matches.

use mmb_lang::{Command, Diagnostic, Match, Rule, parse_line, parse_matches};
use mmb_oracle::generate::{self, CHAINS, Frame};
use mmb_oracle::{broker, chain, matching_rules};
use mmb_packet::VecPacket;
use mmb_policy::{ChainClasses, Evaluator, PacketContext, Policy, RuleId, RuleScope, broker_port_name};
use proptest::prelude::*;

fn rule(line: &str) -> Rule {
    match parse_line(line) {
        Ok(Some(Command::Add(rule))) => rule,
        other => panic!("{other:?}"),
    }
}

/// Chains by name, with their classes.
struct NamedChains(Vec<Vec<Match>>);

impl NamedChains {
    fn class(&self, name: &str) -> Option<Vec<Match>> {
        CHAINS.iter().position(|known| *known == name).map(|at| self.0[at].clone())
    }

    fn as_classes(&self) -> Box<ChainClasses<'_>> {
        Box::new(|name| self.class(name))
    }
}

/// Policy and oracle find the same rules and the same chain.
fn agrees(policy: &Policy, rules: &[(u32, Rule)], known: &NamedChains, frames: &[Frame]) {
    let mut evaluator = Evaluator::new();
    let classes = |name: &str| known.class(name).unwrap_or_default();
    for (frame, position) in frames.iter().zip(0_u16..) {
        let (in_port, out_port) = (position % 4, position / 3 % 5);
        let expected = matching_rules(rules, &classes, &generate::port, (in_port, out_port), frame);
        let around = PacketContext::wire(in_port, out_port);
        let found = evaluator.evaluate(policy, &mut VecPacket::new(frame), around, || 0).matched;
        let indexes: Vec<u32> = expected.iter().map(|(index, _)| *index).collect();
        assert_eq!(found, indexes, "{frame:?}");

        let slots = || found.iter().filter_map(|index| Some(policy.rule(*index)?.slot));
        let heard = policy.chain_rule(slots());
        let named = heard.and_then(|slot| Some((policy.index(slot)?, policy.chain_name(slot)?)));
        assert_eq!(named, chain(&expected), "{frame:?}");
        assert_eq!(policy.decision(slots()).chain(), heard);

        let port = |slot| Some((policy.index(slot)?, policy.stateful(slot)?.broker?));
        let sent = slots().filter_map(port).max().filter(|_| heard.is_none());
        let port = |name| generate::port(&broker_port_name(name)).expect("a port of the broker");
        assert_eq!(sent, broker(&expected).map(|(index, name)| (index, port(name))), "{frame:?}");
    }
}

/// Adds the valid rules; the others cannot match.
fn added(rules: &[Rule], known: &NamedChains, frames: &[Frame]) -> (Policy, Vec<(u32, Rule)>) {
    let (mut policy, mut there) = (Policy::new(), Vec::new());
    let classes = |name: &str| known.class(name).unwrap_or_default();
    for rule in rules {
        match policy.add_with(rule, &generate::port, &*known.as_classes()) {
            Ok(index) => there.push((index, rule.clone())),
            Err(error) => {
                let alone = [(1, rule.clone())];
                for (frame, position) in frames.iter().zip(0_u16..) {
                    let ports = (position % 4, position / 3 % 5);
                    let matched = matching_rules(&alone, &classes, &generate::port, ports, frame);
                    assert!(matched.is_empty(), "`{rule}` is refused: {error}");
                }
            }
        }
    }
    (policy, there)
}

/// Properties of a rule that do not depend on its chain's class.
fn identities(policy: &Policy) -> Vec<(u32, u32, String, Option<RuleId>)> {
    policy
        .rules()
        .map(|view| (view.index, view.slot, view.text.to_owned(), policy.rule_id(view.slot)))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn classes_narrow_rules_and_the_last_chain_applies(
        rules in generate::stateful_rules(20),
        stateless in generate::rules(6),
        classes in generate::classes(),
        frames in generate::frames(12),
    ) {
        let known = NamedChains(classes);
        let rules: Vec<Rule> = rules.into_iter().chain(stateless).collect();
        let (policy, there) = added(&rules, &known, &frames);
        agrees(&policy, &there, &known, &frames);
        agrees(&policy.rebuilt(), &there, &known, &frames);
        let named: Vec<(u32, &str)> =
            there.iter().filter_map(|entry| chain(&[entry])).collect();
        prop_assert_eq!(policy.chains().collect::<Vec<_>>(), named);

        // The scope is that of the rule with the class's matches written out.
        for (index, rule) in &there {
            let slot = policy.rule(*index).expect("it is there").slot;
            let traits = policy.rule_info(slot);
            prop_assert_eq!(traits.chains, policy.chain_name(slot).is_some());
            let mut whole = rule.clone();
            whole.matches.extend(policy.chain_name(slot).and_then(|name| known.class(name)).unwrap_or_default());
            let mut other = Policy::new();
            if other.add(&whole, &generate::port).is_ok() {
                prop_assert_eq!(traits, other.rule_info(0), "{}", whole);
                prop_assert_eq!(policy.needs_out_port() || !other.needs_out_port(), true);
            }
        }
    }

    /// Changing a class changes what rules match and nothing else. If one rule contradicts it, nothing
    /// changes.
    /// at all.
    #[test]
    fn chains_take_other_traffic(
        rules in generate::stateful_rules(20),
        classes in generate::classes(),
        later in generate::classes(),
        frames in generate::frames(12),
    ) {
        let mut known = NamedChains(classes);
        let (before, there) = added(&rules, &known, &frames);
        let mut policy = before.clone();
        for (at, class) in later.into_iter().enumerate() {
            let number = policy.chains().filter(|(_, name)| *name == CHAINS[at]).count();
            match policy.set_chain_class(CHAINS[at], &class, &generate::port) {
                Ok(changed) => {
                    prop_assert_eq!(changed, number);
                    known.0[at] = class;
                }
                Err((index, _)) => {
                    let view = policy.rule(index).expect("it is there");
                    prop_assert_eq!(policy.chain_name(view.slot), Some(CHAINS[at]));
                    let one = [view.rule().expect("it parses")];
                    let mut narrower = NamedChains(known.0.clone());
                    narrower.0[at] = class;
                    prop_assert!(added(&one, &narrower, &frames).1.is_empty());
                }
            }
            prop_assert_eq!(identities(&policy), identities(&before));
            agrees(&policy, &there, &known, &frames);
        }

        // The same rules in another order, as from a file.
        let reversed: Vec<Rule> = there.iter().rev().map(|(_, rule)| rule.clone()).collect();
        let replaced = policy.replace_with(&reversed, &generate::port, &*known.as_classes()).expect("they are there");
        let numbered: Vec<(u32, Rule)> = (1..).zip(reversed).collect();
        agrees(&replaced, &numbered, &known, &frames);
        let mut ids = [&policy, &replaced].map(|policy| {
            identities(policy).into_iter().map(|(_, slot, text, id)| (slot, text, id)).collect::<Vec<_>>()
        });
        ids.iter_mut().for_each(|ids| ids.sort());
        prop_assert_eq!(&ids[0], &ids[1]);

        // Deleted rules no longer name their chains.
        let named: Vec<u32> = policy.chains().map(|(index, _)| index).collect();
        for index in named {
            policy.del(index);
            prop_assert!(policy.chains().all(|(other, _)| other != index));
        }
        prop_assert!(policy.rules().all(|view| policy.chain_name(view.slot).is_none()));
    }
}

fn tcp_only(name: &str) -> Option<Vec<Match>> {
    (name == "web").then(|| parse_matches("ip-proto tcp").expect("sound"))
}

fn refused(line: &str, classes: &ChainClasses<'_>) -> String {
    let mut policy = Policy::new();
    let error: Diagnostic = policy.add_with(&rule(line), &generate::port, classes).expect_err(line);
    assert!(policy.is_empty() && policy.chains().next().is_none());
    error.render(line)
}

#[test]
fn contradictions_with_a_chain_are_reported() {
    assert_eq!(
        refused("add-stateful all chain wbe", &tcp_only),
        "error: there is no chain `wbe`\n  add-stateful all chain wbe\n                   ^^^^^^^^^\n  \
         help: `chain add` adds one; `show chains` lists all chains"
    );
    assert_eq!(
        refused("add-stateful udp-dport 53 chain web accept", &tcp_only),
        "error: the chain `web` accepts only `ip-proto tcp`, and no packet matches both `udp-dport 53` and \
         `ip-proto tcp`\n  add-stateful udp-dport 53 chain web accept\n                            ^^^^^^^^^\n  \
         help: `show chains` lists what each chain accepts"
    );
    // An interface that only the class names, and one that the rule names.
    let moon = |_: &str| parse_matches("in moon").ok();
    assert_eq!(
        refused("add-stateful all chain web", &moon).lines().take(3).collect::<Vec<_>>(),
        [
            r#"error: there is no interface "moon""#,
            "  add-stateful all chain web",
            "                   ^^^^^^^^^"
        ]
    );
    let shown = refused("add-stateful in sun chain web", &tcp_only);
    assert!(
        shown.contains(r#"no interface "sun""#) && shown.contains("\n                  ^^^\n"),
        "{shown}"
    );
    // The class may exclude all packets of an edit; the rule's other targets still apply.
    let mut policy = Policy::new();
    policy
        .add_with(&rule("add-stateful all mod ip6-hop-limit 9 chain web"), &generate::port, &tcp_only)
        .unwrap();
}

/// A rule that only names a chain does not apply to packets of open sessions.
#[test]
fn chains_apply_when_sessions_open() {
    for (line, class) in [
        ("add-stateful out wan chain web", RuleScope::Session),
        ("add-stateful out wan nat office chain web", RuleScope::Session),
        ("add-stateful out wan chain web accept", RuleScope::Packet),
        ("add-stateful ip-ttl 3 chain web", RuleScope::Packet),
        ("add-stateful tcp-syn chain web", RuleScope::TcpControl),
    ] {
        let mut policy = Policy::new();
        policy.add_with(&rule(line), &generate::port, &tcp_only).unwrap();
        let traits = policy.rule_info(0);
        assert_eq!(
            (traits.scope, traits.chains, traits.edits, traits.opens_sessions()),
            (class, true, false, true),
            "{line}"
        );
        assert_eq!(policy.chain_name(0), Some("web"));
        assert_eq!(policy.rule_info(0).binds, line.contains("nat"));
        assert_eq!(policy.stateful(0).and_then(|stateful| stateful.chain.as_deref()), Some("web"));
    }
}

#[test]
fn a_changed_class_changes_the_scope() {
    let mut policy = Policy::new();
    let line = "add-stateful tcp-dport 80 chain web accept";
    policy.add(&rule(line), &generate::port).unwrap();
    let seen =
        |policy: &Policy| (policy.rule_info(0).scope, policy.per_packet().is_some(), policy.needs_out_port());
    assert_eq!(seen(&policy), (RuleScope::Session, false, false));
    for (class, expected) in [
        ("ip-ttl > 1", (RuleScope::Packet, true, false)),
        ("out wan", (RuleScope::Packet, true, true)),
        ("tcp-syn", (RuleScope::TcpControl, false, false)),
        ("", (RuleScope::Session, false, false)),
    ] {
        assert_eq!(policy.set_chain_class("web", &parse_matches(class).unwrap(), &generate::port), Ok(1));
        assert_eq!(seen(&policy), expected, "{class}");
        assert_eq!(policy.rule(1).unwrap().text, line);
    }
    assert_eq!(policy.set_chain_class("dns", &[], &generate::port), Ok(0));
}
