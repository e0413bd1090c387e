//! Single cases of `nft -j list ruleset`. The statements are in the form in which nftables 1.0.6 prints them.

use mmb_import::{Machine, Script, from_nft};
use serde_json::{Value, json};

/// A table with one base chain, which has some rules.
fn base_chain(family: &str, policy: &str, rules: &[Value]) -> Vec<Value> {
    let chain = json!({"chain": {"family": family, "table": "filter", "name": "FORWARD", "handle": 1,
        "type": "filter", "hook": "forward", "prio": 0, "policy": policy}});
    let rule = |(handle, expr): (usize, &Value)| {
        json!({"rule": {"family": family, "table": "filter", "chain": "FORWARD", "handle": handle,
            "expr": expr}})
    };
    std::iter::once(chain).chain((2..).zip(rules).map(rule)).collect()
}

fn converted(objects: &[Value], chain: Option<&str>) -> Script {
    let document = json!({"nftables": objects}).to_string();
    from_nft(&document, chain, &Machine::default()).expect("a ruleset")
}

/// The lines that are not comments.
fn rules(script: &Script) -> Vec<String> {
    script.text().lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

fn test(op: &str, left: Value, right: Value) -> Value {
    json!({"match": {"op": op, "left": left, "right": right}})
}

fn meta(key: &str) -> Value {
    json!({"meta": {"key": key}})
}

fn port(protocol: &str) -> Value {
    json!({"payload": {"protocol": protocol, "field": "dport"}})
}

/// Rules see IP packets only: all but IPv4 is IPv6.
#[test]
fn negated_ip_versions_name_the_other_version() {
    let accept = json!({"accept": null});
    let statements = [
        json!([test("!=", meta("nfproto"), json!("ipv4")), accept]),
        json!([test("!=", meta("protocol"), json!("ip6")), test("==", port("tcp"), json!(22)), accept]),
        json!([test("!=", meta("nfproto"), json!("ipv6")), {"drop": null}]),
        json!([test("!=", meta("protocol"), json!({"set": ["ip", "ip6"]})), accept]),
    ];
    let script = converted(&base_chain("inet", "drop", &statements), None);
    let expected = [
        "add net-proto ip6 accept",
        "add ip-proto tcp tcp-dport 22 accept",
        "add net-proto ip drop",
        "add all drop",
    ];
    assert_eq!(rules(&script), expected, "{}", script.text());
    assert!(script.text().contains("no packet of mmb"), "{}", script.text());
}
