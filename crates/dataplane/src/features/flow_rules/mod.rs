//! Static classification by the ports themselves: packets that a port has marked need no flow manager.
//!
//! Theory of operation. Of a policy with stateful rules it can be said beforehand of some packets that no session will ever
//! be about them ([`classes`]): they need the stateless rules and nothing else. A port that can mark packets by flow rules
//! gets one for each such class (Barbette et al., "Combined stateful classification and session splicing", II-F), and
//! `ip4-input` and `ip6-input` send what carries the mark to `classify` in the place of `flow-lookup`.
//!
//! A mark is a promise about one policy, but the packet that carries it may have waited in a queue since the last one. So each
//! publication has a number of its own for its marks, and a mark with another number says nothing: rules that are still
//! there, or not there yet, make no difference but in speed. Even a marked packet is looked at before it is believed: whatever is not
//! a whole TCP or UDP packet (a fragment, an ICMP error, …) goes to the flow manager.
//!
//! What a port can do, only its driver knows, which is asked when it is needed: for each port that takes part, whenever a
//! policy is published. Where it says no, nothing else happens.

mod classes;
mod space;

use mmb_dpdk::{
    FlowAddresses, FlowError, FlowFate, FlowHandle, FlowPattern, FlowProto, FlowRule, Packet, Port,
};
use mmb_packet::{Kind, flags};
use serde::Serialize;

use crate::engine::config::{Forwarding, PortId};
use crate::engine::control::Engine;

/// Numbers of marks: what has room beside a packet in the cards of today, less than 24 bits.
const NUMBERS: u32 = 1 << 20;

/// What a port can do by itself, or why not, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capability {
    /// What.
    pub name: &'static str,
    /// Whether.
    pub yes: bool,
    /// The exact question and the driver's answer.
    pub answer: String,
}

/// Whether a packet needs no flow manager, because a port has said so with `mark`.
#[inline]
pub(crate) fn is_free(packet: &Packet, mark: u32) -> bool {
    let meta = packet.meta();
    let whole = meta.flags & flags::FRAGMENT == 0 && matches!(meta.kind.l4(), Kind::TCP | Kind::UDP);
    packet.mark() == Some(mark) && whole
}

/// A port as far as flow rules are concerned.
pub(crate) trait Marks {
    /// A rule in force; over when dropped.
    type Rule;

    fn validate(&self, rule: &FlowRule) -> Result<(), FlowError>;
    fn create(&self, rule: &FlowRule) -> Result<Self::Rule, FlowError>;
}

impl Marks for Port {
    type Rule = FlowHandle;

    fn validate(&self, rule: &FlowRule) -> Result<(), FlowError> {
        self.validate_flow(rule)
    }

    fn create(&self, rule: &FlowRule) -> Result<FlowHandle, FlowError> {
        self.create_flow(rule)
    }
}

/// The flow rules of the policy that is in force.
pub(crate) struct Offload<R> {
    number: u32,
    rules: Vec<(PortId, R)>,
}

impl<R> Default for Offload<R> {
    fn default() -> Self {
        Offload { number: 0, rules: Vec::new() }
    }
}

/// Flow rules to be made once a snapshot is in force.
pub(crate) struct Plan {
    /// What they mark packets with; 0: there is none.
    pub mark: u32,
    patterns: Vec<FlowPattern>,
}

impl<R> Offload<R> {
    /// Before a policy is published: takes the flow rules of the last one away, and says which there will be.
    pub fn begin<'a, P: Marks<Rule = R> + 'a>(
        &mut self,
        forwarding: &Forwarding,
        ports: impl Iterator<Item = &'a P>,
    ) -> Plan {
        self.rules.clear();
        let sessions = forwarding.policy.is_stateful() || !forwarding.nat.is_empty();
        let mut plan = Plan { mark: 0, patterns: Vec::new() };
        if sessions && ports.into_iter().any(|port| port.validate(&probe()).is_ok()) {
            plan.patterns = classes::stateless(forwarding);
        }
        if !plan.patterns.is_empty() {
            self.number = self.number % (NUMBERS - 1) + 1;
            plan.mark = self.number;
        }
        plan
    }

    /// Once it is in force: has the ports that can mark its classes. What a port refuses is left to the software.
    pub fn finish<'a, P: Marks<Rule = R> + 'a>(
        &mut self,
        plan: &Plan,
        ports: impl Iterator<Item = (PortId, &'a P)>,
    ) {
        for (id, port) in ports {
            let rules = plan.patterns.iter().map(|&pattern| marking(pattern, plan.mark));
            self.rules.extend(rules.filter_map(|rule| Some((id, port.create(&rule).ok()?))));
        }
    }

    /// Before a port is closed: takes its flow rules away.
    pub fn forget(&mut self, port: PortId) {
        self.rules.retain(|(id, _)| *id != port);
    }

    /// Flow rules of a port that are in force.
    pub fn count(&self, port: PortId) -> usize {
        self.rules.iter().filter(|(id, _)| *id == port).count()
    }
}

fn marking(pattern: FlowPattern, mark: u32) -> FlowRule {
    FlowRule { pattern, mark: Some(mark), counts: false, priority: 0, fate: FlowFate::Passthru }
}

/// The simplest rule that marks.
fn probe() -> FlowRule {
    let addresses = FlowAddresses::V4([(std::net::Ipv4Addr::UNSPECIFIED, 0); 2]);
    marking(FlowPattern { addresses, proto: FlowProto::Udp, ports: [(0, 0); 2] }, 1)
}

/// What a port can do by itself: `rules` flow rules are in force.
fn capabilities(port: &Port, rules: usize) -> Vec<Capability> {
    let question = "rte_flow_validate(ingress, eth / ipv4 / udp, mark id 1 / passthru)";
    let answer = port.validate_flow(&probe());
    let said = match &answer {
        Ok(()) => format!("{question} says yes; {rules} rules in force"),
        Err(error) => {
            let FlowError { errno, cause, reason, .. } = error;
            format!("{question} says: {reason} (error {errno}, caused by {cause})")
        }
    };
    vec![Capability { name: "marks packets of stateless classes", yes: answer.is_ok(), answer: said }]
}

impl Engine {
    /// What an open port can do by itself. The driver is asked.
    pub fn port_capabilities(&self, id: PortId) -> Option<Vec<Capability>> {
        let port = self.open(id)?;
        Some(capabilities(port.device(), self.flow_rules(id)))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    type Log = Rc<RefCell<Vec<FlowRule>>>;

    /// A port that can mark some packets, or none.
    struct Card {
        can: fn(&FlowRule) -> bool,
        rules: Log,
    }

    struct InForce(FlowRule, Log);

    impl Drop for InForce {
        fn drop(&mut self) {
            self.1.borrow_mut().retain(|rule| *rule != self.0);
        }
    }

    impl Marks for Card {
        type Rule = InForce;

        fn validate(&self, rule: &FlowRule) -> Result<(), FlowError> {
            let no = FlowError { port: "p".into(), call: "", errno: 95, cause: "", reason: String::new() };
            if (self.can)(rule) { Ok(()) } else { Err(no) }
        }

        fn create(&self, rule: &FlowRule) -> Result<InForce, FlowError> {
            self.validate(rule)?;
            self.rules.borrow_mut().push(*rule);
            Ok(InForce(*rule, self.rules.clone()))
        }
    }

    fn card(can: fn(&FlowRule) -> bool) -> Card {
        Card { can, rules: Log::default() }
    }

    fn forwarding(lines: &[&str]) -> Forwarding {
        let mut forwarding = Forwarding::default();
        for line in lines {
            let Ok(Some(mmb_lang::Command::Add(rule))) = mmb_lang::parse_line(line) else { panic!("{line}") };
            forwarding.policy.add(&rule, &|_| Some(0)).unwrap();
        }
        forwarding
    }

    fn publish(offload: &mut Offload<InForce>, lines: &[&str], cards: &[Card]) -> u32 {
        let plan = offload.begin(&forwarding(lines), cards.iter());
        assert!(cards.iter().all(|card| card.rules.borrow().is_empty()), "the last policy's are gone");
        offload.finish(&plan, (0..).map(PortId).zip(cards));
        plan.mark
    }

    #[test]
    fn ports_that_can_get_rules_and_lose_them_again() {
        let mut offload = Offload::default();
        let udp = |rule: &FlowRule| rule.pattern.proto == FlowProto::Udp;
        let cards = [card(|_| false), card(udp), card(|_| true)];
        let tcp4 = ["add-stateful ip-proto tcp accept"];
        let first = publish(&mut offload, &tcp4, &cards);
        let counts = |offload: &Offload<InForce>| [0, 1, 2].map(|id| offload.count(PortId(id)));
        assert_eq!(counts(&offload), [0, 2, 3]);
        let rules = cards[2].rules.borrow().clone();
        assert!(first != 0 && rules.iter().all(|rule| rule.mark == Some(first)));
        let second = publish(&mut offload, &tcp4, &cards);
        assert!(second != first && second != 0, "marks of the last policy say nothing any more");
        offload.forget(PortId(2));
        assert_eq!(counts(&offload), [0, 2, 0]);
        for nothing in [&["add-stateful all accept"][..], &["add ip-proto tcp accept"], &[]] {
            assert_eq!(publish(&mut offload, nothing, &cards), 0);
            assert_eq!(counts(&offload), [0; 3]);
        }
        assert_eq!(publish(&mut offload, &tcp4, &cards[..1]), 0, "no port can");
    }

    #[test]
    fn numbers_begin_again_and_are_never_none() {
        let mut offload = Offload::<InForce> { number: NUMBERS - 2, rules: Vec::new() };
        let cards = [card(|_| true)];
        let marks = [(); 3].map(|()| publish(&mut offload, &["add-stateful ip-proto tcp accept"], &cards));
        assert_eq!(marks, [NUMBERS - 1, 1, 2]);
    }
}
