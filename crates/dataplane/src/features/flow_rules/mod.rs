//! Static classification in hardware: packets that a port has marked need no session lookup.
//!
//! # Theory of operation
//! A policy with stateful rules leaves some traffic classes without sessions: they need the stateless rules
//! alone ([`classes`]). A port that can mark packets gets one flow rule (`rte_flow`, action MARK) for each
//! such class (Barbette et al., "Combined stateful classification and session splicing", II-F). `ip4-input`
//! and `ip6-input` send marked packets to `classify` instead of `flow-lookup`.
//!
//! A mark is valid for one policy, but a marked packet may have waited in a queue since the policy before. So
//! each publication uses a new mark, and packets with another mark are treated as unmarked ones. Marked
//! packets that are not whole TCP or UDP packets (fragments, ICMP errors) go to `flow-lookup`, too.
//!
//! Only the driver knows what a port supports. It is asked at each publication, for each port that takes
//! part. A port whose driver refuses works without flow rules.

mod classes;
pub(crate) mod mark;
mod packet_set;

use mmb_dpdk::{FlowAddresses, FlowError, FlowFate, FlowHandle, FlowPattern, FlowProto, FlowRule, Port};
use serde::Serialize;

use crate::engine::config::{Forwarding, PortId};
use crate::engine::control::Engine;

/// Number of different marks: network cards have room for 24 bits.
const MARKS: u32 = 1 << 20;

/// A capability of a port's device, for operators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capability {
    /// The capability.
    pub name: &'static str,
    /// Whether the device has it.
    pub supported: bool,
    /// The query, and the driver's answer.
    pub answer: String,
}

/// A port that may support flow rules.
pub(crate) trait FlowRulePort {
    /// An installed rule; dropping it removes the rule.
    type Rule;

    /// Checks whether the port supports a rule.
    fn validate(&self, rule: &FlowRule) -> Result<(), FlowError>;
    /// Installs a rule.
    fn create(&self, rule: &FlowRule) -> Result<Self::Rule, FlowError>;
}

impl FlowRulePort for Port {
    type Rule = FlowHandle;

    fn validate(&self, rule: &FlowRule) -> Result<(), FlowError> {
        self.validate_flow(rule)
    }

    fn create(&self, rule: &FlowRule) -> Result<FlowHandle, FlowError> {
        self.create_flow(rule)
    }
}

/// The flow rules of the policy in force.
pub(crate) struct InstalledRules<R> {
    last_mark: u32,
    rules: Vec<(PortId, R)>,
}

impl<R> Default for InstalledRules<R> {
    fn default() -> Self {
        InstalledRules { last_mark: 0, rules: Vec::new() }
    }
}

/// Flow rules to install once a snapshot is in force.
pub(crate) struct MarkPlan {
    /// The mark; 0: there are no rules.
    pub mark: u32,
    patterns: Vec<FlowPattern>,
}

impl<R> InstalledRules<R> {
    /// Removes the flow rules of the last policy and plans those of the next one, before that is published.
    pub fn replace<'a, P: FlowRulePort<Rule = R> + 'a>(
        &mut self,
        forwarding: &Forwarding,
        ports: impl Iterator<Item = &'a P>,
    ) -> MarkPlan {
        self.rules.clear();
        let needs_sessions = forwarding.needs_sessions();
        let mut plan = MarkPlan { mark: 0, patterns: Vec::new() };
        if needs_sessions && ports.into_iter().any(|port| port.validate(&probe()).is_ok()) {
            plan.patterns = classes::stateless(forwarding);
        }
        if !plan.patterns.is_empty() {
            self.last_mark = self.last_mark % (MARKS - 1) + 1;
            plan.mark = self.last_mark;
        }
        plan
    }

    /// Installs the planned rules on all ports that support them, once the policy is in force.
    pub fn install<'a, P: FlowRulePort<Rule = R> + 'a>(
        &mut self,
        plan: &MarkPlan,
        ports: impl Iterator<Item = (PortId, &'a P)>,
    ) {
        for (id, port) in ports {
            let rules = plan.patterns.iter().map(|&pattern| marking(pattern, plan.mark));
            self.rules.extend(rules.filter_map(|rule| Some((id, port.create(&rule).ok()?))));
        }
    }

    /// Removes the rules of a port, before it is closed.
    pub fn remove_port(&mut self, port: PortId) {
        self.rules.retain(|(id, _)| *id != port);
    }

    /// Number of rules installed on a port.
    pub fn count(&self, port: PortId) -> usize {
        self.rules.iter().filter(|(id, _)| *id == port).count()
    }
}

fn marking(pattern: FlowPattern, mark: u32) -> FlowRule {
    FlowRule { pattern, mark: Some(mark), counts: false, priority: 0, fate: FlowFate::Passthru }
}

/// The simplest rule that marks, to ask for the capability.
fn probe() -> FlowRule {
    let addresses = FlowAddresses::V4([(std::net::Ipv4Addr::UNSPECIFIED, 0); 2]);
    marking(FlowPattern { addresses, proto: FlowProto::Udp, ports: [(0, 0); 2] }, 1)
}

/// The capabilities of a port on which `rules` rules are installed.
fn capabilities(port: &Port, rules: usize) -> Vec<Capability> {
    let query = "rte_flow_validate(ingress, eth / ipv4 / udp, mark id 1 / passthru)";
    let answer = port.validate_flow(&probe());
    let answer_text = match &answer {
        Ok(()) => format!("{query}: supported; {rules} rules in force"),
        Err(error) => {
            let FlowError { errno, cause, reason, .. } = error;
            format!("{query}: {reason} (error {errno}, caused by {cause})")
        }
    };
    vec![Capability {
        name: "marks packets of stateless classes",
        supported: answer.is_ok(),
        answer: answer_text,
    }]
}

impl Engine {
    /// The capabilities of an open port. Asks the driver.
    pub fn port_capabilities(&self, id: PortId) -> Option<Vec<Capability>> {
        let port = self.open(id)?;
        Some(capabilities(port.device(), self.flow_rules(id)))
    }
}

#[cfg(test)]
mod tests;
