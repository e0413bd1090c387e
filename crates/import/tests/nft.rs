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

/// iptables and ip6tables on nftables: tables of both families have chains of the same name.
#[test]
fn an_empty_chain_that_drops_is_not_forgotten() {
    let source = json!({"payload": {"protocol": "ip", "field": "saddr"}});
    let prefix = json!({"prefix": {"addr": "10.0.0.0", "len": 8}});
    let accept = json!([test("==", source, prefix), {"accept": null}]);
    let objects = [base_chain("ip", "drop", &[accept]), base_chain("ip6", "drop", &[])].concat();
    let script = converted(&objects, None);
    assert_eq!(rules(&script), ["add ip-saddr 10.0.0.0/8 accept", "add net-proto ip drop"]);
    assert!(
        script.failures().contains("rules: 0, policy drop")
            && script.failures().contains("--chain ip6/filter/FORWARD converts"),
        "{}",
        script.failures()
    );
    assert_eq!(script.summary(), "1 of 2 rules converted, 0 with a difference");
    for (chain, rules_of_chain) in [("ip6/filter/FORWARD", "ip6"), ("ip/filter/FORWARD", "ip")] {
        let script = converted(&objects, Some(chain));
        assert_eq!(rules(&script).last().unwrap(), &format!("add net-proto {rules_of_chain} drop"));
    }
    let missing =
        from_nft(&json!({"nftables": objects}).to_string(), Some("inet/filter/FORWARD"), &Machine::default());
    assert!(missing.is_err());
    // An empty chain that accepts decides nothing.
    let objects = [base_chain("ip", "drop", &[]), base_chain("ip6", "accept", &[])].concat();
    assert_eq!(converted(&objects, None).failures(), "");
}

/// The kernel drops the first packets of connections that no rule of such a chain accepts.
#[test]
fn a_chain_for_nat_that_drops_is_reported() {
    let mut chain = base_chain("ip", "drop", &[]).remove(0);
    chain["chain"]["name"] = json!("nat");
    chain["chain"]["type"] = json!("nat");
    chain["chain"]["hook"] = json!("prerouting");
    let objects = [base_chain("ip", "drop", &[]), vec![chain]].concat();
    let failures = converted(&objects, None).failures();
    assert!(failures.contains("ip filter nat: not mapped: policy drop"), "{failures}");
}

/// Both conversions can be loaded: the pools and forwards stand in that of IPv4 only.
#[test]
fn translations_are_converted_with_the_chain_for_ip4() {
    let mut nat = base_chain(
        "ip",
        "accept",
        &[json!([test("==", meta("oifname"), json!("wan")),
        {"masquerade": null}])],
    );
    for object in &mut nat {
        let key = if object.get("chain").is_some() { "chain" } else { "rule" };
        object[key]["table"] = json!("nat");
    }
    nat[0]["chain"]["type"] = json!("nat");
    nat[0]["chain"]["hook"] = json!("postrouting");
    let filters = [base_chain("ip", "drop", &[]), base_chain("ip6", "drop", &[])].concat();
    let pool = "nat pool add wan interface wan".to_owned();
    let with = |filters: &[Value], chain| rules(&converted(&[filters, &nat[..]].concat(), chain));
    assert!(with(&filters, Some("ip/filter/FORWARD")).contains(&pool));
    assert_eq!(with(&filters, Some("ip6/filter/FORWARD")), ["add net-proto ip6 drop"]);
    assert!(with(&filters[1..], None).contains(&pool), "there is no chain for IPv4");
}

/// The kernel knows the protocol of each fragment. A rule on a header field knows that of the first only.
#[test]
fn a_test_of_the_protocol_matches_fragments() {
    let udp = json!([test("==", meta("l4proto"), json!("udp")), {"accept": null}]);
    let (reason, both) =
        ("fragments of IPv6", ["add ip-proto udp accept", "add net-proto ip6 udp-sport accept"]);
    let stateless = converted(&base_chain("inet", "drop", std::slice::from_ref(&udp)), None);
    assert_eq!(rules(&stateless)[..2], both, "{}", stateless.text());
    assert!(stateless.failures().contains(reason), "{}", stateless.text());
    // The packets that do not return.
    let returned = json!([test("==", meta("l4proto"), json!("udp")), {"return": null}]);
    let script = converted(&base_chain("inet", "drop", &[returned, json!([{"accept": null}])]), None);
    assert_eq!(rules(&script)[..1], ["add ! ip-proto udp ! udp-sport accept"], "{}", script.text());
    assert!(script.failures().contains(reason), "{}", script.text());
    // Fragments of a session follow the first one, and a header field needs a header in the kernel, too.
    let states = json!({"match": {"op": "in", "left": {"ct": {"key": "state"}},
        "right": ["established", "related"]}});
    let known = json!([states, {"accept": null}]);
    let ports = json!([test("==", port("udp"), json!(53)), {"accept": null}]);
    for rules in [[known, udp.clone()], [ports.clone(), ports]] {
        let script = converted(&base_chain("inet", "drop", &rules), None);
        assert_eq!(script.failures(), "", "{}", script.text());
    }
}

/// Packets with the mark skip the accepts behind, so these accept others than the source.
#[test]
fn accepts_behind_a_lost_return_are_left_out() {
    let mark = || test("==", meta("mark"), json!(1));
    let map = |verdict: Value| json!([{"vmap": {"key": meta("mark"), "data": {"set": [[1, verdict]]}}}]);
    let accept = json!([test("==", port("tcp"), json!(22)), {"accept": null}]);
    let with = |lost: Value| {
        let script = converted(&base_chain("ip", "drop", &[lost, accept.clone()]), None);
        (rules(&script).len() - 1, script.failures().matches("not mapped").count())
    };
    assert_eq!(with(json!([mark(), {"return": null}])), (0, 2));
    assert_eq!(with(json!([mark(), {"goto": {"target": "other"}}])), (0, 2));
    assert_eq!(with(map(json!({"return": null}))), (0, 2));
    // These decide, or packets come back.
    assert_eq!(with(json!([mark(), {"drop": null}])), (1, 1));
    assert_eq!(with(map(json!({"jump": {"target": "other"}}))), (1, 1));
}
