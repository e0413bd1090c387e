//! Tests of the parent module.

use super::*;
use mmb_lang::{Command, parse_line};

fn scope_of(matches: &str) -> RuleScope {
    scope_of_rule(&format!("add {matches} drop"))
}

fn scope_of_rule(line: &str) -> RuleScope {
    let Ok(Some(Command::Add(rule))) = parse_line(line) else { panic!("{line}") };
    mmb_lang::check(&rule).unwrap_or_else(|error| panic!("{}", error.render(line)));
    scope(&rule)
}

#[test]
fn matches_of_the_session_scope() {
    for matches in [
        "all",
        "in lan ! in wan",
        "net-proto ip6 tcp-dport {80,443}",
        "ip-proto != udp ! ip-saddr 10.0.0.0/8 ip-daddr 10.0.0.1-10.0.0.9",
        "ip6-saddr 2001:db8::/32 udp-sport > 1023",
        "ip-ttl",
        "! ip6-hop-limit",
        "tcp-win",
        "icmp-type",
        "ip-ver 4",
    ] {
        assert_eq!(scope_of(matches), RuleScope::Session, "{matches}");
    }
}

#[test]
fn matches_of_the_tcp_control_scope() {
    for matches in [
        "tcp-syn",
        "tcp-syn 1 tcp-dport 80",
        "tcp-rst != 0 tcp-seq-num 7",
        "tcp-fin tcp-opt-mss",
        "tcp-flags 2",
        "tcp-flags {2,18,20}",
        "tcp-syn out wan",
    ] {
        assert_eq!(scope_of(matches), RuleScope::TcpControl, "{matches}");
    }
}

/// Bindings of a session do not change with its route.
#[test]
fn rules_with_bindings_only_are_of_the_session_scope() {
    for (line, class) in [
        ("add-stateful out wan nat office", RuleScope::Session),
        ("add-stateful ! out lan shuffle tcp-sport mod ip-saddr 192.0.2.1", RuleScope::Session),
        ("add-stateful out wan tcp-syn nat office", RuleScope::TcpControl),
        ("add-stateful out wan ip-ttl 1 nat office", RuleScope::Packet),
        ("add-stateful out wan nat office accept", RuleScope::Packet),
        ("add-stateful out wan nat office mod ip-ttl 9", RuleScope::Packet),
        ("add-stateful out wan accept", RuleScope::Packet),
        ("add out wan mod ip-saddr 192.0.2.1", RuleScope::Packet),
    ] {
        assert_eq!(scope_of_rule(line), class, "{line}");
    }
}

#[test]
fn matches_of_the_packet_scope() {
    for matches in [
        "! tcp-syn",
        "tcp-syn 0",
        "tcp-ack",
        "tcp-flags 16",
        "tcp-flags {2,16}",
        "tcp-flags != 16",
        "! tcp-flags 16",
        "tcp-flags 2-18",
        "ip-ttl 1 ip-saddr 10.0.0.1",
        "ip-ce",
        "ip-df",
        "tcp-opt-mss",
        "! tcp-opt-mss",
        "ip6-eh",
        "ip6-next tcp",
        "tcp-payload",
        "icmp-type 8",
        "ip-id 7",
        "in lan out wan",
        "! out {lan,wan} tcp-dport 80",
        "out != lan ip-ttl 1",
    ] {
        assert_eq!(scope_of(matches), RuleScope::Packet, "{matches}");
    }
}
