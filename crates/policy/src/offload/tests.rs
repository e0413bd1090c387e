//! Tests of the parent module.

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
fn rules_without_an_obstacle() {
    let steady = policy(&[
        "add all accept",
        "add in lan ! out wan ip-saddr 10.0.0.0/8 drop",
        "add tcp-dport {80,443} ip6-saddr 2001:db8::/32 mod tcp-dport 8080",
        "add ip-proto udp mod ip-daddr 192.0.2.1 mod out wan",
        "add-stateful in lan nat office",
        "add-stateful ip-proto tcp chain inspect",
        "add-stateful tcp-dport 80 lb 192.0.2.1 192.0.2.2",
        "add-stateful in lan shuffle tcp-sport accept",
        "add ip-ttl icmp-type drop",
    ]);
    assert_eq!(steady.offload_obstacle(), None);
}

#[test]
fn obstacles_are_named_with_their_rule() {
    for (line, words) in [
        ("add ip-ttl 1 drop", "ip-ttl"),
        ("add tcp-syn drop", "tcp-syn"),
        ("add tcp-payload contains \"a\" drop", "tcp-payload"),
        ("add all drop 50%", "drop 50"),
        ("add ip-proto tcp mod ip-ttl 9", "mod ip-ttl"),
        ("add ip-proto tcp mod tcp-seq-num 9", "mod tcp-seq-num"),
        ("add ip-proto tcp strip tcp-opt-mss", "strip tcp-opt-mss"),
        ("add-stateful ip-proto tcp shuffle tcp-seq-num", "shuffle tcp-seq-num"),
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
fn deleted_rules_are_no_obstacle() {
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
