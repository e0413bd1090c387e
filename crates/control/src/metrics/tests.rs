use crate::api::{CostEntry, InterfaceEntry, RoutingCounts, SessionCounts, StreamCounts};

use super::*;

#[test]
fn routing_metrics_exist_while_an_interface_is_routed() {
    assert!(!encode(Scrape::default()).unwrap().contains("router"));
    let routing = RoutingCounts {
        routes_ip4: 1_000_000,
        lag_last_us: 1_500,
        resyncs: 2,
        punted: 9,
        punted_by_class: PuntCounts { routing: 2, local: 7, ..PuntCounts::default() },
        ..RoutingCounts::default()
    };
    let drops = [("no-route".to_owned(), 4)].into_iter().collect();
    let lan = InterfaceEntry { name: "lan".into(), drops, ..InterfaceEntry::default() };
    let text = encode(Scrape {
        runtime: Runtime { routing: Some(routing), ..Runtime::default() },
        interfaces: InterfaceList { interfaces: vec![lan] },
        ..Scrape::default()
    })
    .unwrap();
    for line in [
        "mmb_router_lag_seconds 0.0015",
        "mmb_router_routes{family=\"ip4\"} 1000000",
        "mmb_router_resyncs_total 2",
        "mmb_punted_packets_total{class=\"local\"} 7",
        "mmb_interface_drops_total{interface=\"lan\",reason=\"no-route\"} 4",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
}

#[test]
fn counters_end_in_total_and_labels_are_escaped() {
    let scrape = Scrape {
        rules: vec![
            RuleEntry {
                index: 7,
                packets: 3,
                bytes: 180,
                decided: Some(2),
                text: "add in \"a\\b\" drop".into(),
                ..RuleEntry::default()
            },
            RuleEntry {
                index: 8,
                text: "add all drop name last".into(),
                name: Some("last".into()),
                ..RuleEntry::default()
            },
        ],
        rule_count: 1,
        runtime: Runtime {
            sessions: SessionCounts {
                sessions: 5,
                created: 9,
                refused: [("session-full".to_owned(), 2)].into_iter().collect(),
                ..SessionCounts::default()
            },
            ..Runtime::default()
        },
        drops: DropList {
            drops: [("rule".to_owned(), 3)].into_iter().collect(),
            unedited: [("option-mtu".to_owned(), 4)].into_iter().collect(),
        },
        ..Scrape::default()
    };
    let text = encode(scrape).unwrap();
    let has = |line: &str| assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    has(r#"mmb_rule_packets_total{index="7",rule="add in \"a\\b\" drop"} 3"#);
    has(r#"mmb_rule_packets_total{index="8",rule="add all drop name last",name="last"} 0"#);
    has(r#"mmb_rule_decided_total{index="7",rule="add in \"a\\b\" drop"} 2"#);
    has(r#"mmb_drops_total{reason="rule"} 3"#);
    has(r#"mmb_unedited_total{reason="option-mtu"} 4"#);
    has("# TYPE mmb_drops counter");
    has("# TYPE mmb_rule_bytes counter");
    has("# UNIT mmb_rule_bytes bytes");
    has(r#"mmb_rule_bytes_total{index="7",rule="add in \"a\\b\" drop"} 180"#);
    has("mmb_rules 1");
    has("mmb_sessions 5");
    has("mmb_sessions_created_total 9");
    has(r#"mmb_sessions_refused_total{reason="session-full"} 2"#);
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn counters_of_streams_have_a_label_for_each_reason() {
    let map = |name: &str, count| [(name.to_owned(), count)].into_iter().collect();
    let stream = StreamCounts { bytes: map("removed", 12), events: map("resets", 1), refused: map("mtu", 3) };
    let cost = CostEntry { name: "(stream)".to_owned(), ..CostEntry::default() };
    let context = FunctionEntry { stream: Some(stream), cost, ..FunctionEntry::default() };
    let other = FunctionEntry {
        cost: CostEntry { name: "words".to_owned(), ..CostEntry::default() },
        ..FunctionEntry::default()
    };
    let text = encode(Scrape { functions: vec![context, other], ..Scrape::default() }).unwrap();
    for line in [
        "mmb_stream_bytes_total{function=\"(stream)\",kind=\"removed\"} 12",
        "mmb_stream_events_total{function=\"(stream)\",event=\"resets\"} 1",
        "mmb_stream_refused_total{function=\"(stream)\",reason=\"mtu\"} 3",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
    let samples = text.lines().filter(|line| line.starts_with("mmb_stream_"));
    assert_eq!(samples.count(), 3, "{text}");
}
