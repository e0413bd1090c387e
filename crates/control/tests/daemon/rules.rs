//! Rules: indexes, slots of counters, large numbers.

use std::time::{Duration, Instant};

use mmb_control::api::RuleList;

use crate::harness::{Daemon, daemon};

#[test]
fn indexes_do_not_change_and_start_again_after_flush() {
    let daemon = daemon();
    for rule in ["add ip-proto udp drop", "add ip-proto tcp drop", "add ip-df accept"] {
        daemon.send(rule);
    }
    daemon.send("del 2");
    daemon.send("add ip-ttl 1 drop");
    let list: RuleList = daemon.client().get("/v1/rules").unwrap();
    let indexes: Vec<_> = list.rules.iter().map(|r| r.index).collect();
    assert_eq!(indexes, [1, 3, 4]);
    let text = daemon.send("list").text.unwrap();
    assert_eq!(text.lines().next(), Some("index  packets  bytes  decided  rule"));
    assert_eq!(text.lines().last(), Some("    4        0      0        0  add ip-ttl 1 drop"));
    daemon.send("flush");
    assert_eq!(daemon.send("list").text.unwrap(), "no rules\n");
    let reply = daemon.send("add all accept");
    assert!(reply.json.unwrap().get().contains(r#""index":1"#));
}

#[test]
fn names_and_comments_are_kept_everywhere() {
    let daemon = daemon();
    daemon.send(r#"add tcp-dport 80 accept comment "the web, \"for all\"" name web"#);
    daemon.send("add ip-proto udp drop");
    let lines =
        "add tcp-dport 80 accept name web comment \"the web, \\\"for all\\\"\"\nadd ip-proto udp drop\n";
    assert_eq!(daemon.send("show config").text.unwrap(), lines);
    let list: RuleList = daemon.client().get("/v1/rules").unwrap();
    assert_eq!(list.rules[0].name.as_deref(), Some("web"));
    assert_eq!(list.rules[0].comment.as_deref(), Some("the web, \"for all\""));
    assert_eq!(list.rules[1].name.as_ref().or(list.rules[1].comment.as_ref()), None);
    let taken = daemon.run("add ip-ttl 1 drop name web").unwrap_err();
    assert!(taken.contains("rule 1 has the name `web` already"), "{taken}");
    // A file with another comment keeps the rule.
    let file = "add tcp-dport 80 accept name www\nadd ip-proto udp drop\n";
    let reply = daemon.client().apply(file.into(), false, None).unwrap();
    assert_eq!((reply.kept, reply.added, reply.removed), (2, 0, 0));
    assert_eq!(daemon.send("show config").text.unwrap(), file);
    let missing = daemon.run("del web").unwrap_err();
    assert!(missing.contains("there is no rule web"), "{missing}");
    assert_eq!(daemon.http("DELETE", "/v1/rules/www", "text/plain", b"").status, 200);
    assert_eq!(daemon.http("DELETE", "/v1/rules/www", "text/plain", b"").status, 404);
    assert_eq!(daemon.http("DELETE", "/v1/rules/0", "text/plain", b"").status, 400);
    daemon.send("del 2");
    assert_eq!(daemon.send("list").text.unwrap(), "no rules\n");
}

#[test]
fn a_list_can_be_of_the_rules_that_match_a_packet() {
    let daemon = daemon();
    for rule in [
        "add tcp-dport 80 drop",
        "add tcp-dport 1-79 drop",
        "add ip-saddr 10.0.0.0/8 tcp-syn accept",
        "add udp-dport 80 drop",
        "add all mod ip-ttl 3",
        "add ! tcp-dport 80 accept",
    ] {
        daemon.send(rule);
    }
    let listed = |matches: &str| {
        let text = daemon.send(&format!("list {matches}")).text.unwrap();
        text.lines()
            .skip(1)
            .map(|line| line.split_whitespace().next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(listed(""), ["1", "2", "3", "4", "5", "6"]);
    assert_eq!(listed("tcp-dport 80"), ["1", "3", "5"]);
    assert_eq!(listed("tcp-dport 80 ip-saddr 192.0.2.0/24"), ["1", "5"]);
    assert_eq!(listed("ip-proto udp"), ["4", "5", "6"]);
    assert_eq!(daemon.send("list ip6-saddr 2001:db8::1 udp-dport 9").text.unwrap().lines().count(), 3);
    let list: RuleList = daemon.client().get("/v1/rules?match=tcp-dport%2080").unwrap();
    assert_eq!(
        list.rules.iter().map(|rule| (rule.index, rule.decided)).collect::<Vec<_>>(),
        [(1, Some(0)), (3, Some(0)), (5, None)]
    );
    assert!(daemon.run("list in nowhere").unwrap_err().contains("nowhere"));
    assert!(daemon.run("list tcp-syn udp-dport 80").is_err());
    assert!(daemon.run("list tcp-syn drop").is_err());
}

/// `n` distinct 5-tuple rules.
fn many(n: u32) -> String {
    let rule = |i: u32| {
        let (a, b, c) = (i >> 16 & 255, i >> 8 & 255, i & 255);
        format!(
            "add ip-proto tcp ip-saddr 10.{a}.{b}.{c} ip-daddr 198.18.{c}.{b} tcp-sport {} tcp-dport 80 drop\n",
            1024 + i % 50_000
        )
    };
    (0..n).map(rule).collect()
}

/// Asserts a time limit in optimised builds.
fn assert_faster(what: &str, took: Duration, limit: Duration) {
    println!("{what}: {took:?}");
    assert!(cfg!(debug_assertions) || took < limit, "{what} took {took:?}, more than {limit:?}");
}

/// Adds a rule to `n` and deletes it, many times.
fn add_and_delete_one(daemon: &Daemon, n: u32, limit: Duration) {
    const TIMES: u32 = 200;
    let (mut add, mut del) = (Duration::ZERO, Duration::ZERO);
    for i in 1..=TIMES {
        let start = Instant::now();
        daemon.run(&format!("add ip-proto udp ip-saddr 10.1.2.3 udp-dport {i} drop")).unwrap();
        add += start.elapsed();
        let start = Instant::now();
        daemon.run(&format!("del {}", n + i)).unwrap();
        del += start.elapsed();
    }
    assert_faster(&format!("adding one rule to {n}"), add / TIMES, limit);
    assert_faster(&format!("deleting one rule of {n}"), del / TIMES, limit);
}

#[test]
fn a_hundred_thousand_rules_load_in_two_seconds_and_one_more_in_a_millisecond() {
    let daemon = daemon();
    let text = many(100_000);
    let start = Instant::now();
    let reply = daemon.client().apply(text.clone().into_bytes(), false, None).unwrap();
    assert_faster("100,000 rules applied", start.elapsed(), Duration::from_secs(2));
    assert_eq!((reply.rules, reply.added, reply.kept), (100_000, 100_000, 0));

    add_and_delete_one(&daemon, 100_000, Duration::from_millis(1));

    let start = Instant::now();
    let reply = daemon.client().apply(text.into_bytes(), false, None).unwrap();
    assert_faster("the same rules again", start.elapsed(), Duration::from_secs(2));
    assert_eq!((reply.added, reply.removed, reply.kept), (0, 0, 100_000));

    let start = Instant::now();
    let list: RuleList = daemon.client().get("/v1/rules").unwrap();
    assert_faster("list as JSON", start.elapsed(), Duration::from_secs(2));
    assert_eq!(list.rules.len(), 100_000);
    assert_eq!(daemon.send("list").text.unwrap().lines().count(), 100_001);
    daemon.run("flush").unwrap();
    assert!(daemon.control.rules().rules.is_empty());
}

#[test]
#[ignore = "takes minutes without optimisation; run with --release -- --ignored"]
fn a_million_rules_load() {
    let daemon = daemon();
    let text = many(1_000_000).into_bytes();
    let start = Instant::now();
    let reply = daemon.client().apply(text, false, None).unwrap();
    println!("1,000,000 rules applied: {:?}", start.elapsed());
    assert_eq!(reply.rules, 1_000_000);
    add_and_delete_one(&daemon, 1_000_000, Duration::from_millis(5));
    let list: RuleList = daemon.client().get("/v1/rules").unwrap();
    assert_eq!(list.rules.len(), 1_000_000);
}

#[test]
fn the_classifier_is_rebuilt_after_many_single_changes() {
    let daemon = daemon();
    let rule = |i: u32| match i % 3 {
        0 => format!("add ip-saddr 10.{i}.0.0/{} drop", 16 + i % 17),
        1 => format!("add tcp-dport {}-{} accept", i, 3 * i + 7),
        _ => format!("add tcp-payload contains \"word{i}\" drop"),
    };
    (0..250).for_each(|i| drop(daemon.run(&rule(i)).unwrap()));
    let before = daemon.state();
    let deadline = Instant::now() + Duration::from_secs(30);
    while daemon.control.tables().stale {
        assert!(Instant::now() < deadline, "the classifier was not rebuilt");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(daemon.state(), before);
    // Rules keep their indexes and can be deleted.
    assert_eq!(daemon.run("del 7").unwrap(), "rule 7 deleted\n");
    daemon.run(&rule(251)).unwrap();
    assert_eq!(daemon.control.rules().rules.len(), 250);
    let text = daemon.run("show tables verbose").unwrap();
    assert!(text.contains("structure") && text.contains("predicate") && text.contains("ip-saddr"), "{text}");
    assert_eq!(daemon.run("flush").unwrap(), "250 rules deleted\n");
}
