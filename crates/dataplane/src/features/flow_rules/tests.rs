//! Tests of the parent module.

use std::cell::RefCell;
use std::rc::Rc;

use super::*;

type Log = Rc<RefCell<Vec<FlowRule>>>;

/// A port that supports some rules, or none.
struct Card {
    supports: fn(&FlowRule) -> bool,
    rules: Log,
}

struct Installed(FlowRule, Log);

impl Drop for Installed {
    fn drop(&mut self) {
        self.1.borrow_mut().retain(|rule| *rule != self.0);
    }
}

impl FlowRulePort for Card {
    type Rule = Installed;

    fn validate(&self, rule: &FlowRule) -> Result<(), FlowError> {
        let no = FlowError { port: "p".into(), call: "", errno: 95, cause: "", reason: String::new() };
        if (self.supports)(rule) { Ok(()) } else { Err(no) }
    }

    fn create(&self, rule: &FlowRule) -> Result<Installed, FlowError> {
        self.validate(rule)?;
        self.rules.borrow_mut().push(*rule);
        Ok(Installed(*rule, self.rules.clone()))
    }
}

fn card(supports: fn(&FlowRule) -> bool) -> Card {
    Card { supports, rules: Log::default() }
}

fn forwarding(lines: &[&str]) -> Forwarding {
    let mut forwarding = Forwarding::default();
    for line in lines {
        let Ok(Some(mmb_lang::Command::Add(rule))) = mmb_lang::parse_line(line) else { panic!("{line}") };
        forwarding.policy.add(&rule, &|_| Some(0)).unwrap();
    }
    forwarding
}

fn publish(installed: &mut InstalledRules<Installed>, lines: &[&str], cards: &[Card]) -> u32 {
    let plan = installed.replace(&forwarding(lines), cards.iter());
    assert!(cards.iter().all(|card| card.rules.borrow().is_empty()), "the last policy's rules are removed");
    installed.install(&plan, (0..).map(PortId).zip(cards));
    plan.mark
}

#[test]
fn supporting_ports_get_rules_and_lose_them_again() {
    let mut installed = InstalledRules::default();
    let udp = |rule: &FlowRule| rule.pattern.proto == FlowProto::Udp;
    let cards = [card(|_| false), card(udp), card(|_| true)];
    let tcp4 = ["add-stateful ip-proto tcp accept"];
    let first = publish(&mut installed, &tcp4, &cards);
    let counts = |installed: &InstalledRules<Installed>| [0, 1, 2].map(|id| installed.count(PortId(id)));
    assert_eq!(counts(&installed), [0, 2, 3]);
    let rules = cards[2].rules.borrow().clone();
    assert!(first != 0 && rules.iter().all(|rule| rule.mark == Some(first)));
    let second = publish(&mut installed, &tcp4, &cards);
    assert!(second != first && second != 0, "marks of the last policy are invalid");
    installed.remove_port(PortId(2));
    assert_eq!(counts(&installed), [0, 2, 0]);
    for nothing in [&["add-stateful all accept"][..], &["add ip-proto tcp accept"], &[]] {
        assert_eq!(publish(&mut installed, nothing, &cards), 0);
        assert_eq!(counts(&installed), [0; 3]);
    }
    assert_eq!(publish(&mut installed, &tcp4, &cards[..1]), 0, "no port supports marks");
}

#[test]
fn marks_wrap_and_are_never_zero() {
    let mut installed = InstalledRules::<Installed> { last_mark: MARKS - 2, rules: Vec::new() };
    let cards = [card(|_| true)];
    let marks = [(); 3].map(|()| publish(&mut installed, &["add-stateful ip-proto tcp accept"], &cards));
    assert_eq!(marks, [MARKS - 1, 1, 2]);
}
