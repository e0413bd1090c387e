//! Single cases of connection states and NAT, with the rules that they become.

use mmb_import::{Machine, Script, from_iptables, from_nft};
use serde_json::json;

fn converted(filter: &str, nat: &str) -> Script {
    let text = format!("*nat\n{nat}COMMIT\n*filter\n:FORWARD DROP [0:0]\n{filter}COMMIT\n");
    from_iptables(&text, None, &Machine::default()).expect("a file")
}

/// The rules, without the setting and the policy, and the reasons of the remarks.
fn parts(script: &Script) -> (Vec<String>, Vec<String>) {
    let text = script.text();
    let is_rule = |line: &&str| !line.starts_with('#') && !line.starts_with("set tcp-window-check");
    let rules = text.lines().filter(is_rule).filter(|line| *line != "add net-proto ip drop");
    let reasons = script.remarks().map(|remark| format!("{:?}: {}", remark.kind, remark.reason));
    (rules.map(str::to_owned).collect(), reasons.collect())
}

fn rules(filter: &str, nat: &str) -> Vec<String> {
    parts(&converted(filter, nat)).0
}

const ESTABLISHED: &str = "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n";

/// Accepts of one direction each are a stateful rule if both directions are there, and none if one is not.
#[test]
fn both_directions_must_be_accepted() {
    let out = "-A FORWARD -i lan -o wan -m state --state NEW,ESTABLISHED,RELATED -j ACCEPT\n";
    let back = "-A FORWARD -i wan -o lan -m state --state ESTABLISHED,RELATED -j ACCEPT\n";
    let stateful = ["add-stateful net-proto ip in lan out wan accept"];
    assert_eq!(rules(&format!("{out}{back}"), ""), stateful);
    // Without replies, the rule is stateless.
    let elsewhere = "-A FORWARD -i dmz -o lan -m state --state ESTABLISHED,RELATED -j ACCEPT\n";
    assert_eq!(rules(&format!("{out}{elsewhere}"), ""), ["add net-proto ip in lan out wan accept"]);
    // First packets alone are no rule.
    let (rules, reasons) = parts(&converted("-A FORWARD -i lan -m state --state NEW -j ACCEPT\n", ""));
    assert!(
        rules.is_empty() && reasons.iter().any(|reason| reason.starts_with("NotMapped: only first packets"))
    );
}

#[test]
fn errors_without_related_are_blocked() {
    let filter = "-A FORWARD -m state --state ESTABLISHED -j ACCEPT\n-A FORWARD -i lan -o wan -j ACCEPT\n";
    // The accept of all from inside lets errors from inside pass.
    assert_eq!(
        rules(filter, ""),
        [
            "add-stateful net-proto ip in lan out wan accept",
            "add in wan out lan ip-proto icmp icmp-type {3-5,11-12} block",
        ]
    );
}

/// Established packets pass, and errors about them do not: only those are blocked.
#[test]
fn a_drop_of_errors_blocks_errors_only() {
    let filter = "-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT\n-A FORWARD -i wan -j DROP\n\
                  -A FORWARD -j ACCEPT\n";
    assert_eq!(
        rules(filter, ""),
        [
            "add in wan ip-proto icmp icmp-type {3-5,11-12} block",
            "add net-proto ip in wan drop",
            "add-stateful net-proto ip ! in wan accept",
        ]
    );
}

/// A drop before the established packets beats sessions, and one behind them does not.
#[test]
fn the_place_of_a_drop_decides() {
    let drop = "-A FORWARD -s 192.0.2.0/24 -j DROP\n";
    let accept = "-A FORWARD -p tcp -m tcp --dport 80 -j ACCEPT\n";
    assert_eq!(
        rules(&format!("{drop}{ESTABLISHED}{accept}"), ""),
        ["add ip-saddr 192.0.2.0/24 block", "add-stateful ip-proto tcp tcp-dport 80 accept"]
    );
    assert_eq!(
        rules(&format!("{ESTABLISHED}{drop}{accept}"), ""),
        [
            "add ip-saddr 192.0.2.0/24 drop",
            "add-stateful ip-proto tcp tcp-dport 80 ! ip-saddr 192.0.2.0/24 accept",
        ]
    );
    // New packets only.
    let new = drop.replace("-j", "-m conntrack --ctstate NEW -j");
    assert_eq!(
        rules(&format!("{new}{ESTABLISHED}{accept}"), ""),
        [
            "add ip-saddr 192.0.2.0/24 drop",
            "add-stateful ip-proto tcp tcp-dport 80 ! ip-saddr 192.0.2.0/24 accept",
        ]
    );
}

#[test]
fn destinations_become_forwards_or_maps() {
    let to = "-j DNAT --to-destination 10.0.0.5:80\n";
    let one = format!("-A PREROUTING -d 203.0.113.1/32 -p tcp -m tcp --dport 8080 {to}");
    assert_eq!(rules("", &one), ["nat forward add tcp 203.0.113.1 8080 to 10.0.0.5 80"]);
    let any = format!("-A PREROUTING -i wan -p tcp -m tcp --dport 8080 {to}");
    let map = "add-stateful in wan ip-proto tcp tcp-dport 8080 map ip-daddr 10.0.0.5 map tcp-dport 80";
    assert_eq!(rules("", &any), [map]);
    // Packets to the address of a pool do not reach `map`.
    let (_, reasons) = parts(&converted("", &format!("{any}-A POSTROUTING -o wan -j MASQUERADE\n")));
    assert!(reasons.iter().any(|reason| reason.contains("need a forward")), "{reasons:?}");
    let refused = "-A PREROUTING -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 3128\n";
    assert!(parts(&converted("", refused)).1[0].starts_with("NotMapped: mmb has no equivalent"));
    // Rules before keep packets from the translation.
    let spared =
        "-A POSTROUTING -d 10.0.0.0/8 -j ACCEPT\n-A POSTROUTING -o wan -j SNAT --to-source 203.0.113.1\n";
    assert_eq!(
        rules("", spared)[..2],
        [
            "nat pool add snat-1 203.0.113.1",
            "add-stateful net-proto ip out wan ! ip-daddr 10.0.0.0/8 nat snat-1"
        ]
    );
}

/// Many forwards that overlap with rules take bounded work, and no accept is lost without a word.
#[test]
fn many_forwards_are_converted_in_bounded_time() {
    let nat: String = (0..400)
        .map(|n| {
            let matches =
                format!("-d 203.0.113.{}/32 -i w{} -p udp -m udp --dport {}", n % 7, n % 5, 1000 + n);
            format!("-A PREROUTING {matches} -j DNAT --to-destination 10.0.0.{}:80\n", n % 200)
        })
        .collect();
    let accept = "-A FORWARD -p udp -m udp --dport 900:1500 -j ACCEPT\n";
    let (rules, reasons) = parts(&converted(accept, &nat));
    assert_eq!(rules.iter().filter(|rule| rule.starts_with("nat forward add udp")).count(), 400);
    assert!(
        reasons.iter().any(|reason| reason.contains("too many rules: translations overlap")),
        "{reasons:?}"
    );
}

#[test]
fn odd_states_are_refused() {
    for states in ["NEW,DNAT", "SNAT", "! --ctstate DNAT"] {
        let filter = match states.strip_prefix("! ") {
            Some(option) => format!("-A FORWARD -m conntrack ! {option} -j DROP\n"),
            None => format!("-A FORWARD -m conntrack --ctstate {states} -j DROP\n"),
        };
        let (_, reasons) = parts(&converted(&filter, ""));
        assert!(reasons.iter().any(|reason| reason.starts_with("NotMapped")), "{states}: {reasons:?}");
    }
    let untracked = converted("-A FORWARD -m conntrack --ctstate UNTRACKED -j ACCEPT\n", "");
    assert_eq!(untracked.summary(), "1 of 1 rules converted, 0 with a difference");
}

/// Of several chains with a hook, the first one that translates a packet decides.
#[test]
fn chains_for_nat_stand_in_order() {
    let base = |name: &str, priority: i32| {
        json!({"chain": {"family": "ip", "table": "t", "name": name, "type": "nat", "hook": "postrouting",
            "prio": priority, "policy": "accept"}})
    };
    let rule = |chain: &str, handle: u32, address: &str| {
        let wan = json!({"match": {"op": "==", "left": {"meta": {"key": "oifname"}}, "right": "wan"}});
        let expr = json!([wan, {"snat": {"addr": address}}]);
        json!({"rule": {"family": "ip", "table": "t", "chain": chain, "handle": handle, "expr": expr}})
    };
    let document = json!({"nftables": [
        base("late", 110),
        base("early", 90),
        rule("late", 1, "203.0.113.9"),
        rule("early", 2, "203.0.113.1"),
    ]});
    let script = from_nft(&document.to_string(), None, &Machine::default()).expect("a ruleset");
    let (rules, reasons) = parts(&script);
    assert_eq!(
        rules[..2],
        ["nat pool add snat-1 203.0.113.1", "add-stateful net-proto ip out wan nat snat-1"]
    );
    assert!(reasons[0].starts_with("Note: the translations before it"), "{reasons:?}");
    assert_eq!(script.summary(), "2 of 2 rules converted, 0 with a difference");
}

/// Packets do not come back from `goto`, and translations that mmb does not have are refused.
#[test]
fn statements_of_nft() {
    let chain = |name: &str| json!({"chain": {"family": "ip", "table": "t", "name": name}});
    let rule = |chain: &str, handle: u32, expr| json!({"rule": {"family": "ip", "table": "t", "chain": chain, "handle": handle, "expr": expr}});
    let tcp = |port: u16| {
        let left = json!({"payload": {"protocol": "tcp", "field": "dport"}});
        json!({"match": {"op": "==", "left": left, "right": port}})
    };
    let mut forward = chain("forward");
    for (key, value) in [("type", json!("filter")), ("hook", json!("forward")), ("policy", json!("drop"))] {
        forward["chain"][key] = value;
    }
    let document = json!({"nftables": [
        forward,
        chain("web"),
        rule("forward", 1, json!([tcp(80), {"goto": {"target": "web"}}])),
        rule("forward", 2, json!([{"accept": null}])),
        rule("forward", 3, json!([{"redirect": {"port": 3128}}])),
        rule("web", 4, json!([{"limit": {"rate": 5, "per": "second"}}, {"accept": null}])),
    ]});
    let script = from_nft(&document.to_string(), None, &Machine::default()).expect("a ruleset");
    let (rules, reasons) = parts(&script);
    assert_eq!(rules, ["add net-proto ip ! tcp-dport 80 accept"]);
    assert_eq!(reasons.iter().filter(|reason| reason.starts_with("NotMapped")).count(), 2, "{reasons:?}");
    assert_eq!(script.summary(), "2 of 4 rules converted, 0 with a difference");
}
