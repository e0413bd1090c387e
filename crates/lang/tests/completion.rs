//! Candidates of the completion.

use mmb_lang::{Names, SetKind, complete};

/// The candidates at the end of a line, and where they start.
fn offered(line: &str) -> (usize, Vec<String>) {
    let interfaces = ["lan", "wan", "not a name", "drop"].map(str::to_owned);
    let pools = ["office", "nat"].map(str::to_owned);
    let instances = ["acl1", "nat", "then", "no name"].map(str::to_owned);
    let chains = ["web", "drop"].map(str::to_owned);
    let brokers = ["shop", "no name"].map(str::to_owned);
    let sets = [
        ("blocked", SetKind::Address),
        ("ports", SetKind::Port),
        ("services", SetKind::AddressPort),
        ("no name", SetKind::Port),
    ]
    .map(|(name, kind)| (name.to_owned(), kind));
    let types = [("acl", "lets sessions pass or not"), ("count", "counts")]
        .map(|(a, b)| (a.to_owned(), b.to_owned()));
    let rules =
        [("web".to_owned(), "add all drop name web".to_owned()), ("1".to_owned(), "the same".to_owned())];
    let domains = ["tenant1".to_owned()];
    let names = Names {
        domains: &domains,
        interfaces: &interfaces,
        pools: &pools,
        instances: &instances,
        chains: &chains,
        brokers: &brokers,
        sets: &sets,
        types: &types,
        rules: &rules,
    };
    let found = complete(line, line.len(), &names);
    (found.start, found.candidates.into_iter().map(|candidate| candidate.text).collect())
}

#[test]
fn the_grammar_step_by_step() {
    let (start, all) = offered("");
    assert_eq!(start, 0);
    assert!(all.starts_with(&["add".into(), "add-stateless".into(), "add-stateful".into()]));
    assert_eq!(offered("mmb add-s"), (4, vec!["add-stateless".into(), "add-stateful".into()]));
    assert_eq!(offered("show r"), (5, vec!["runtime".into()]));
    assert_eq!(offered("show runtime "), (13, vec!["verbose".into()]));
    assert_eq!(offered("enable "), (7, vec!["lan".into(), "wan".into()]));
    assert_eq!(offered("enable lan w"), (11, vec!["wan".into()]));
    assert_eq!(offered("wire "), (5, vec!["del".into(), "lan".into(), "wan".into()]));
    assert_eq!(offered("route "), (6, vec!["del".into(), "lan".into(), "wan".into()]));
    assert_eq!(offered("route lan w"), (10, vec!["wan".into()]));
    assert_eq!(offered("route del "), (10, vec!["lan".into(), "wan".into()]));
    assert_eq!(offered("show fi"), (5, vec!["fields".into(), "fib".into()]));
    assert_eq!(offered("show neigh"), (5, vec!["neighbors".into()]));
    assert_eq!(offered("sh neigh"), (3, vec!["neighbors".into()]));
    assert_eq!(offered("show fib "), (9, vec![]));
    assert_eq!(offered("interface "), (10, vec!["add".into(), "del".into()]));
    assert_eq!(offered("interface add "), (14, vec![]));
    assert_eq!(offered("interface add x af"), (16, vec!["af-xdp".into(), "af-packet".into()]));
    assert_eq!(offered("list tcp-dp"), (5, vec!["tcp-dport".into()]));
    assert_eq!(offered("del "), (4, vec!["web".into(), "1".into()]));
    assert_eq!(offered("add all accept na"), (15, vec!["name".into()]));
    assert_eq!(offered("add all accept name x "), (22, vec!["comment".into()]));
    assert_eq!(offered("add all accept comment x name x "), (32, vec![]));
    assert_eq!(offered("add all add tcp-opt-fast-open co").1, ["comment"]);
    assert_eq!(
        offered("set ").1,
        [
            "add",
            "del",
            "blocked",
            "ports",
            "services",
            "on-error",
            "timeout",
            "tcp-pickup",
            "tcp-window-check",
            "punt-limit",
            "session-limit",
            "held-packets",
            "stream-pickup",
            "stream-overflow",
            "stream-mptcp",
            "stream-hold-time",
            "martian-check",
            "rpf",
            "fast-path",
            "log-format",
            "log-to",
            "worker-mode",
            "gro"
        ]
    );
    assert_eq!(offered("set punt-limit ").1, ["neighbor", "routing", "local", "other"]);
    assert_eq!(offered("set punt-limit local ").1, ["off"]);
    assert_eq!(offered("set session-limit source ").1, ["default", "off"]);
    assert_eq!(offered("set rpf ").1, ["strict", "loose", "off", "default"]);
    assert_eq!(offered("set timeout tcp-h").1, ["tcp-handshake", "tcp-half-closed"]);
    assert_eq!(offered("set tcp-pickup ").1, ["on", "off"]);
    assert_eq!(offered("set worker-mode ").1, ["poll", "event", "adaptive"]);
    assert_eq!(offered("set gro ").1, ["on", "off"]);
    assert_eq!(offered("set stream-pickup ").1, ["pass", "inspect", "reset"]);
    assert_eq!(offered("set stream-overflow ").1, ["drop", "pass", "reset"]);
    assert_eq!(offered("set stream-mptcp ").1, ["strip", "pass"]);
    assert_eq!(offered("set on-error "), (13, vec!["forward".into(), "drop".into()]));
}

#[test]
fn rules() {
    assert_eq!(offered("add tcp-dp"), (4, vec!["tcp-dport".into()]));
    assert_eq!(offered("add !tcp-dp").0, 5);
    assert!(offered("add tcp-opt-m").1 == ["tcp-opt-mss", "tcp-opt-mptcp"]);
    assert!(!offered("add ").1.contains(&"drop".into()));
    let after = offered("add tcp-dport 80 ").1;
    assert!(
        ["drop", "accept", "mod", "!", "tcp-sport"].iter().all(|word| after.contains(&(*word).to_owned()))
    );
    assert!(
        !after.contains(&"==".into()) && after.contains(&"strip".into()) && !after.contains(&"map".into())
    );
    assert!(offered("add tcp-dport ").1.starts_with(&["==".into(), "!=".into()]));
    assert_eq!(offered("add tcp-dport htt").1, ["http", "https", "http-alt"]);
    assert_eq!(offered("add ip-proto != sc"), (16, vec!["sctp".into()]));
    assert_eq!(offered("add in {lan,"), (12, vec!["lan".into(), "wan".into()]));
    assert_eq!(offered("add net-proto "), (14, vec!["ip".into(), "ip6".into(), "==".into(), "!=".into()]));
    assert_eq!(offered("add all mod ip-m"), (12, vec![]));
    assert_eq!(offered("add all mod out "), (16, vec!["lan".into(), "wan".into()]));
    assert_eq!(
        offered("add all drop "),
        (
            13,
            ["mod", "add", "strip", "drop", "accept", "block", "reject", "log", "broker", "name", "comment"]
                .map(str::to_owned)
                .to_vec()
        )
    );
}

#[test]
fn sessions() {
    let all = offered("add-stateful tcp-dport 80 ").1;
    assert!(["map", "shuffle", "lb", "nat", "drop"].iter().all(|word| all.contains(&(*word).to_owned())));
    assert!(all.contains(&"chain".into()) && !offered("add tcp-dport 80 ").1.contains(&"chain".into()));
    assert_eq!(offered("add-stateful all chain "), (23, vec!["web".into()]));
    assert_eq!(
        offered("add-stateful all map ip").1,
        ["ip-id", "ip-saddr", "ip-daddr", "ip6-flow-label", "ip6-saddr", "ip6-daddr"]
    );
    assert_eq!(offered("add-stateful all shuffle udp-").1, ["udp-sport", "udp-dport"]);
    assert_eq!(offered("add-stateful all nat ").1, ["office"]);
    assert_eq!(offered("nat ").1, ["pool", "forward"]);
    assert_eq!(offered("nat pool del ").1, ["office"]);
    assert_eq!(offered("nat pool add x 192.0.2.1 ").1, ["ports", "block", "limit", "filtering"]);
    assert_eq!(offered("nat pool add x ").1, ["interface"]);
    assert_eq!(offered("nat pool add x 192.0.2.1 filtering address-").1.len(), 2);
    assert_eq!(offered("nat forward add ").1, ["tcp", "udp"]);
    assert_eq!(offered("nat forward add tcp 192.0.2.1 80 ").1, ["to"]);
    assert_eq!(offered("show con").1, ["config", "connections"]);
    assert_eq!(offered("clear ").1, ["connections"]);
    assert_eq!(offered("show connections v").1, ["verbose"]);
    assert_eq!(offered("show connections verbose tcp-dp").1, ["tcp-dport"]);
    assert_eq!(offered("clear connections tcp-dport 80 ! ip-sad").1, ["ip-saddr"]);
    assert_eq!(offered("trace tcp-dport 80 co").1, ["count"]);
    assert_eq!(offered("capture drops se").1, ["session", "seconds"]);
}

#[test]
fn chains() {
    assert_eq!(offered("n").1, ["nat", "nf"]);
    assert_eq!(offered("nf ").1, ["add", "del", "set"]);
    assert_eq!(offered("nf add ").1, [""; 0]);
    assert_eq!(offered("nf add x ").1, ["acl", "count"]);
    assert_eq!(offered("nf add x c"), (9, vec!["count".into()]));
    assert_eq!(offered("nf add x acl ").1, [""; 0]);
    assert_eq!(offered("nf add x acl process ").1, ["tenant1"]);
    assert_eq!(offered("nf add x acl process tenant1 ").1, ["poll", "event", "adaptive", "cpu"]);
    assert_eq!(offered("nf add x acl process tenant1 event ").1, ["cpu"]);
    assert!(offered("nf add x acl process tenant1 cpu ").1.is_empty());
    assert!(offered("nf add x acl process no=name ").1.is_empty());
    assert_eq!(offered("nf del ").1, ["acl1", "nat"]);
    assert_eq!(offered("nf set a").1, ["acl1"]);
    assert_eq!(offered("mmb chain ").1, ["add", "set", "del"]);
    assert_eq!(offered("chain add ").1, [""; 0]);
    assert_eq!(offered("chain set ").1, ["web"]);
    assert_eq!(offered("chain del w").1, ["web"]);
    assert_eq!(offered("show f").1, ["fields", "functions", "fast-path", "fib"]);
    assert_eq!(offered("chain add web ").1, ["acl1", "nat", "["]);
    assert_eq!(offered("chain add web ac"), (14, vec!["acl1".into()]));
    assert_eq!(offered("chain add web acl1 ").1, ["[", "|"]);
    assert_eq!(offered("mmb chain add web acl1|n"), (23, vec!["nat".into()]));
    assert_eq!(offered("chain add web acl1 then ").1, ["acl1", "nat", "["]);
    assert_eq!(offered("chain add web [").1, ["else:", "drop", "pass", "acl1", "nat", "["]);
    assert_eq!(offered("chain add web acl1 [").1, ["else:"]);
    assert_eq!(offered("chain add web [nat,el"), (19, vec!["else:".into()]));
    assert_eq!(offered("chain add web [nat, else:").1, ["drop", "pass", "acl1", "nat", "["]);
    assert_eq!(offered("chain add web acl1[allow:na"), (25, vec!["nat".into()]));
    assert_eq!(offered("chain add web acl1 [allow: nat ").1, ["[", "|", ",", "]"]);
    assert_eq!(offered("chain add web acl1 [allow: pass] ").1, ["|"]);
}

#[test]
fn brokers() {
    assert_eq!(offered("br").1, ["broker"]);
    assert_eq!(offered("broker ").1, ["add", "del"]);
    assert_eq!(offered("broker del ").1, ["shop"]);
    assert_eq!(offered("show b").1, ["brokers"]);
    assert_eq!(offered("broker add x ").1, ["listen", "transparent"]);
    assert_eq!(offered("broker add x listen 192.0.2.1:80 ").1, ["transparent", "chain"]);
    assert_eq!(offered("broker add x transparent ").1, ["chain", "keep-source"]);
    assert_eq!(offered("broker add x transparent keep-source ").1, ["chain"]);
    assert_eq!(offered("add tcp-dport 80 br").1, ["broker"]);
    assert_eq!(offered("add-stateful tcp-dport 80 br").1, ["broker"]);
    assert_eq!(offered("add-stateless tcp-dport 80 br").1, [""; 0]);
    assert_eq!(offered("add tcp-dport 80 broker ").1, ["shop"]);
    assert_eq!(offered("broker add x listen [::]:80 chain w").1, ["web"]);
    let line = "broker add x listen [::]:80 chain web body-limit 9 h";
    assert_eq!(offered(line).1, ["header-timeout"]);
}

#[test]
fn named_sets() {
    assert_eq!(offered("add ip-saddr @").1, ["@blocked"]);
    assert_eq!(offered("add ip-saddr != @").1, ["@blocked"]);
    assert_eq!(offered("add ip-daddr,tcp-d"), (13, vec!["tcp-dport".into()]));
    assert_eq!(offered("add ip-daddr,").1, ["udp-sport", "udp-dport", "tcp-sport", "tcp-dport"]);
    assert_eq!(offered("add ip-daddr,tcp-dport @").1, ["@services"]);
    assert_eq!(offered("add ! ip-daddr,tcp-dport != ").1, ["@services"]);
    assert_eq!(offered("add ip-ttl,").1, [""; 0]);
    assert_eq!(offered("add ip-ttl @").1, [""; 0]);
    assert_eq!(offered("add all mod ip-saddr @").1, [""; 0]);
    assert_eq!(offered("set ports ").1, ["add", "del", "flush"]);
    assert_eq!(offered("set del ").1, ["blocked", "ports", "services"]);
    assert_eq!(offered("set add x ").1, ["address", "prefix", "port", "address-port"]);
    assert_eq!(offered("set add x port ").1, ["timeout", "file", "comment"]);
    assert_eq!(offered("set blocked add 192.0.2.1 ").1, ["timeout", "comment"]);
    assert_eq!(offered("show set b").1, ["blocked"]);
    assert_eq!(offered("show set").1, ["sets", "set"]);
}

#[test]
fn nothing_is_offered_after_an_error() {
    for line in [
        "add tcp-dprot 80 ",
        "add all drop # ",
        "# a",
        "add tcp-payload \"a ",
        "add tcp-payload \"a\"",
        "add-stateful all log prefix a\"b lb ::",
        "list\0",
        "interface add x memif /ta",
        "chain add web a [x: b, x: ",
        "chain add web a [x: b, x: d",
    ] {
        assert_eq!(offered(line).1, [""; 0], "{line}");
    }
    assert_eq!(complete("add all drop", 5, &Names::default()).candidates[0].text, "all");
    assert_eq!(complete("é", 1, &Names::default()).start, 0);
    assert_eq!(complete("add", 99, &Names::default()).start, 0);
}
