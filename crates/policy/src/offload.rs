//! Whether what a policy does to one packet of a flow is what it does to all of them: then somebody who has seen it done once may
//! go on in the engine's place.
//!
//! A flow is what comes in by one port between the same addresses and ports; fragments, packets with IP options or extension
//! headers and ICMP errors are nobody's flow.

use mmb_lang::{Action, FieldId, Match, MatchExpr, Rule};

use crate::decide::flags;
use crate::scope::{is_constant, is_out};
use crate::{Policy, PortDependence};

impl Policy {
    /// A rule for which what becomes of a packet depends on more than its flow, or is more than other addresses and ports: its
    /// index, and the words that make it so. None: there is no such rule.
    pub fn offload_obstacle(&self) -> Option<(u32, String)> {
        if self.not_offloadable == 0 {
            return None;
        }
        let is_one =
            |slot| self.effect(slot).is_some_and(|effect| effect.flags & flags::NOT_OFFLOADABLE != 0);
        let view = self.rules().find(|view| is_one(view.slot))?;
        // A chain's class may be what it is about, which is not in the rule's own words.
        let words = view.rule().ok().and_then(|rule| obstacle(&rule)).unwrap_or_else(|| view.text.to_owned());
        Some((view.index, words))
    }

    /// Where ports do not count. None: sessions do, for rules that are stateful.
    pub fn port_dependence(&self) -> Option<&PortDependence> {
        (!self.is_stateful()).then_some(&self.port_dependence)
    }
}

/// What of a rule makes a difference between packets of one flow, or is more than a rewrite of addresses and ports.
pub(crate) fn obstacle(rule: &Rule) -> Option<String> {
    let varies = |one: &&Match| !is_constant(one) && !is_out(one);
    let more = |action: &&Action| !is_plain(action);
    let matched = rule.matches.iter().find(varies).map(field_name);
    matched.or_else(|| rule.targets.iter().map(|target| &target.action).find(more).map(target_name))
}

/// Whether a target does the same to all packets of a flow, and nothing but to send them elsewhere.
fn is_plain(action: &Action) -> bool {
    match action {
        Action::Accept | Action::Nat { .. } | Action::Lb { .. } => true,
        Action::Drop { ten_thousandths } => *ten_thousandths >= 10_000,
        Action::Mod { field, .. } => *field == FieldId::Out || is_end(*field),
        Action::Map { field, .. } | Action::Shuffle { field, .. } => is_end(*field),
        Action::Add { .. } | Action::Strip { .. } | Action::StripAll | Action::Chain { .. } => false,
    }
}

/// Whether it is an address or a port of one of a flow's ends.
fn is_end(field: FieldId) -> bool {
    use FieldId::*;
    matches!(field, IpSaddr | IpDaddr | Ip6Saddr | Ip6Daddr | TcpSport | TcpDport | UdpSport | UdpDport)
}

fn field_name(one: &Match) -> String {
    match &one.what {
        MatchExpr::All => "all".to_owned(),
        MatchExpr::Field { field, .. } => field.def().name.to_owned(),
    }
}

fn target_name(action: &Action) -> String {
    match action {
        Action::Mod { field, .. } => format!("mod {}", field.def().name),
        Action::Map { field, .. } => format!("map {}", field.def().name),
        Action::Shuffle { field, .. } => format!("shuffle {}", field.def().name),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use mmb_lang::{Command, parse_line};

    use super::*;

    fn policy(lines: &[&str]) -> Policy {
        let mut policy = Policy::new();
        for line in lines {
            let Ok(Some(Command::Add(rule))) = parse_line(line) else { panic!("{line}") };
            policy.add(&rule, &|_| Some(0)).unwrap_or_else(|error| panic!("{}", error.render(line)));
        }
        policy
    }

    #[test]
    fn what_is_the_same_for_all_of_a_flow() {
        let steady = policy(&[
            "add all accept",
            "add in lan ! out wan ip-saddr 10.0.0.0/8 drop",
            "add tcp-dport {80,443} ip6-saddr 2001:db8::/32 mod tcp-dport 8080",
            "add ip-proto udp mod ip-daddr 192.0.2.1 mod out wan",
            "add-stateful in lan nat office",
            "add-stateful tcp-dport 80 lb 192.0.2.1 192.0.2.2",
            "add-stateful in lan shuffle tcp-sport accept",
            "add ip-ttl icmp-type drop",
        ]);
        assert_eq!(steady.offload_obstacle(), None);
    }

    #[test]
    fn what_is_not_is_named_with_its_rule() {
        for (line, words) in [
            ("add ip-ttl 1 drop", "ip-ttl"),
            ("add tcp-syn drop", "tcp-syn"),
            ("add tcp-payload contains \"a\" drop", "tcp-payload"),
            ("add all drop 50%", "drop 50"),
            ("add ip-proto tcp mod ip-ttl 9", "mod ip-ttl"),
            ("add ip-proto tcp mod tcp-seq-num 9", "mod tcp-seq-num"),
            ("add ip-proto tcp strip tcp-opt-mss", "strip tcp-opt-mss"),
            ("add-stateful ip-proto tcp shuffle tcp-seq-num", "shuffle tcp-seq-num"),
            ("add-stateful ip-proto tcp chain inspect", "chain inspect"),
            ("add icmp-type 8 drop", "icmp-type"),
        ] {
            assert_eq!(
                policy(&["add all accept", line]).offload_obstacle(),
                Some((2, words.to_owned())),
                "{line}"
            );
        }
    }

    #[test]
    fn rules_that_go_count_no_more() {
        let mut rules = policy(&["add ip-ttl 1 drop", "add ip-ttl 2 drop"]);
        rules.del(1);
        assert_eq!(rules.offload_obstacle(), Some((2, "ip-ttl".to_owned())));
        assert!(rules.rebuilt().offload_obstacle().is_some());
        rules.del(2);
        assert_eq!(rules.offload_obstacle(), None);
        let mut rules = policy(&["add ip-ttl 1 drop"]);
        rules.flush();
        assert_eq!(rules.offload_obstacle(), None);
    }
}
