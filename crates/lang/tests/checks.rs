//! The checks: accepted rules, and errors of rules built by hand.

use std::net::{IpAddr, Ipv4Addr};

use mmb_lang::{
    Action, Command, Cond, FIELDS, FieldId, Match, Rule, RuleKind, SourceSpan, Support, Target, Value,
    ValueItem, ValueKind, check, parse_line,
};

/// Rules whose matches look contradictory and are not.
#[test]
fn satisfiable_rules_are_accepted() {
    for line in [
        "add tcp-dport 80 tcp-dport 80 drop",
        "add ip-saddr 10.0.0.0/8 ip-saddr 10.1.0.0/16 drop",
        "add ip-saddr 10.0.0.0/8 ! ip-saddr 10.0.0.0/9 drop",
        "add ! ip-saddr 0.0.0.0/0 ip6-hop-limit 1 drop",
        "add ip-proto != udp ip-proto != tcp drop",
        "add ! ip-proto udp ! ip-proto tcp drop",
        "add ! ip-proto tcp tcp-dport 80 drop",
        "add ! ip-ttl 1 ip6-hop-limit 1 drop",
        "add ! ip-ver 4 ip6-ver 6 drop",
        "add ! tcp-syn tcp-ack drop",
        "add tcp-syn tcp-flags 18 drop",
        "add tcp-syn 0 tcp-flags 16 drop",
        "add ! tcp-dport udp-dport 53 drop",
        "add ip-df ip-flags 2 drop",
        "add ip-ce ip-ecn 3 ! ip-ect0 drop",
        "add in lan out lan in != wan drop",
        "add net-proto ip ip-ttl 1 drop",
        "add net-proto != ip ip6-hop-limit 1 drop",
        "add ip6-next 44 tcp-dport 80 drop",
        "add ip6-next != tcp tcp-dport 80 drop",
        "add ip-mf ip-frag-offset 0 tcp-dport 80 drop",
        "add ! ip-frag-offset 0 tcp-dport 80 drop",
        "add ip-proto icmp icmp-type 8 drop",
        "add ip6-next icmp6 icmp6-type 128 drop",
        "add ip-proto tcp mod tcp-dport 80",
        "add ! ip-proto tcp mod tcp-dport 80",
        "add ip6-next 0 mod udp-dport 80",
        "add udp-dport 53 mod ip-ttl 1 mod ip6-hop-limit 1 mod out wan",
        "add all mod ip-saddr 10.0.0.1 mod ip-df 0 mod ip-res 1 drop 0.5",
        "add-stateless all accept mod tcp-flags 2",
        "add ! tcp-opt-mss tcp-syn add tcp-opt-mss 1460",
        "add ! tcp-opt ! tcp-payload tcp-dport 80 drop",
        "add tcp-opt-mss ! tcp-opt-mss 0-65535 drop",
        "add tcp-opt 2 tcp-opt 3 tcp-opt != 4 ! tcp-opt 5-255 drop",
        "add tcp-opt {2,19} ! tcp-opt 19 tcp-opt-mss != 5 drop",
        "add ! tcp-opt != 2 tcp-opt 3 drop",
        "add ! ip6-eh-routing ip6-eh drop",
        "add ! ip6-eh ip6-next tcp tcp-syn drop",
        "add ! ip6-eh ip-ttl 1 drop",
        "add tcp-dport >= 1024 tcp-dport < 1025 drop",
        "add ip-saddr 10.0.0.0/8 ip-saddr > 10.255.255.254 drop",
        "add ! tcp-dport < 80 ! tcp-dport > 80 drop",
        "add ip-proto {tcp,udp} mod tcp-dport 80 mod udp-dport 80",
        "add ip-frag-offset 0-5 tcp-dport 80 drop",
        "add net-proto {ip,ip6} ip6-hop-limit 1 drop",
        "add ip-ecn {0,3} ip-ce drop",
        "add all strip tcp-opt-mss add tcp-opt-mss 1460 strip tcp-opt 19 mod tcp-opt-wscale 7",
        "add all strip ! tcp-opt-mss strip ! tcp-opt 3 add tcp-opt-sackp strip tcp-opt-sack",
        "add all add tcp-opt 254 \"123456789012345678901234567890\" add tcp-opt-mss 1 add tcp-opt-sackp",
    ] {
        let Ok(Some(Command::Add(rule))) = parse_line(line) else { panic!("{line}") };
        assert!(check(&rule).is_ok(), "{line}: {}", check(&rule).unwrap_err());
    }
}

/// Every field that can be matched or written is accepted, every other is rejected.
#[test]
fn the_field_table_determines_accepted_matches_and_targets() {
    for def in &FIELDS {
        let value = match def.kind {
            _ if def.id == FieldId::TcpOpt => "19",
            ValueKind::Ip4 => "192.0.2.1",
            ValueKind::Ip6 => "2001:db8::1",
            ValueKind::Interface => "lan",
            ValueKind::EtherType => "ip",
            ValueKind::Bytes { .. } => "0x00",
            _ => "1",
        };
        let passes = |line: String| match parse_line(&line) {
            Ok(Some(Command::Add(rule))) => check(&rule).is_ok(),
            _ => false,
        };
        let writes = passes(format!("add all mod {} {value}", def.name));
        assert_eq!(writes, def.modify == Support::Yes, "{}", def.name);
        let value = if def.id == FieldId::TcpOptSackp { "" } else { value };
        let adds = passes(format!("add all add {} {value}", def.name));
        let strips = passes(format!("add all strip {}", def.name));
        assert_eq!((adds, strips), (def.is_option(), def.is_option()), "{}", def.name);
        let own = matches!(def.id, FieldId::IpVer | FieldId::Ip6Ver);
        let value = if def.kind == ValueKind::Presence { "" } else { value };
        let matches = passes(format!("add {} {value} drop", def.name)) || own;
        assert_eq!(matches, def.match_ == Support::Yes, "{}", def.name);
    }
}

fn rule(matches: Vec<Match>, actions: Vec<Action>) -> Rule {
    let targets = actions.into_iter().map(Target::from).collect();
    Rule { kind: RuleKind::Add, matches, targets, label: None, span: SourceSpan::default() }
}

fn message_of(rule: &Rule, message: &str) {
    assert_eq!(check(rule).map_err(|error| error.message), Err(message.to_owned()));
}

#[test]
fn rules_built_by_hand() {
    let compare = |field, value| rule(vec![Match::compare(field, Cond::Eq, value)], vec![Action::Accept]);
    message_of(&rule(vec![], vec![Action::Accept]), "the rule has no match");
    message_of(&rule(vec![Match::all()], vec![]), "the rule has no target");
    message_of(
        &rule(vec![Match::field(FieldId::In)], vec![Action::Accept]),
        "malformed rule: `in` needs a value",
    );
    message_of(
        &compare(FieldId::TcpDport, Value::Int(65_536)),
        "malformed rule: the value does not fit: `tcp-dport` takes 0 to 65535 or a service name",
    );
    message_of(
        &compare(FieldId::IpSaddr, Value::Int(1)),
        "malformed rule: the value does not fit: `ip-saddr` takes an IPv4 address or subnet",
    );
    let host_bits = Value::Prefix { addr: IpAddr::from(Ipv4Addr::new(10, 0, 0, 1)), len: 24 };
    message_of(
        &compare(FieldId::IpSaddr, host_bits.clone()),
        "malformed rule: the value does not fit: `ip-saddr` takes an IPv4 address or subnet",
    );
    message_of(
        &compare(FieldId::Out, Value::Iface("not a name".into())),
        "malformed rule: the value does not fit: `out` takes the name of an interface",
    );
    message_of(&compare(FieldId::IpCe, Value::Int(1)), "malformed rule: `ip-ce` takes no value");
    let order = Match::compare(FieldId::In, Cond::Lt, Value::Iface("lan".into()));
    message_of(
        &rule(vec![order], vec![Action::Accept]),
        "malformed rule: `in` cannot be compared so with `<`",
    );
    let backwards = ValueItem::Range(Box::new([Value::Int(2), Value::Int(1)]));
    let ports = Action::Map { field: FieldId::TcpSport, values: backwards.clone().into() };
    let random = Action::Shuffle { field: FieldId::TcpSport, values: Some(backwards.into()) };
    for action in [ports, random] {
        let rule = Rule { kind: RuleKind::Stateful, ..rule(vec![Match::all()], vec![action]) };
        message_of(&rule, "malformed rule: the range of `tcp-sport` ends before it starts");
    }
    for (action, message) in [
        (Action::Drop { ten_thousandths: 0 }, "`drop` takes 0.01 to 100 percent in steps of 0.01"),
        (
            Action::Mod { field: FieldId::IpSaddr, value: host_bits },
            "`ip-saddr` takes a whole address, not a subnet",
        ),
        (Action::Lb { addresses: vec![] }, "the address behind `lb` is missing"),
        (
            Action::Add { field: FieldId::IpTtl, value: None },
            "`add` is for TCP options, and `ip-ttl` is not one",
        ),
        (Action::Add { field: FieldId::TcpOptMss, value: None }, "the value of `tcp-opt-mss` is missing"),
        (
            Action::Strip { keep: false, field: FieldId::TcpOptMss, kind: Some(2) },
            "`tcp-opt-mss` has its kind in its name",
        ),
        (
            Action::Mod { field: FieldId::TcpOpt, value: Value::Int(2) },
            "`tcp-opt` is written as a kind and bytes",
        ),
        (Action::Chain { name: "drop".into() }, "invalid name of a chain"),
        (Action::Broker { name: "then".into() }, "invalid name of a broker"),
        (Action::Nat { pool: "nat".into() }, "invalid name of a pool"),
    ] {
        message_of(&rule(vec![Match::all()], vec![action]), &format!("malformed rule: {message}"));
    }
}

/// The time to check a rule of maximum length is linear in its length.
#[test]
fn long_rules_are_quick() {
    let start = std::time::Instant::now();
    for (one, last) in [
        ("! tcp-dport 80 ", "tcp-dport 80"),
        ("ip-saddr != 10.0.0.1 ", "udp-len 8"),
        ("tcp-syn ", "tcp-syn 0"),
    ] {
        let line = format!("add {}{last} drop", one.repeat(40_000));
        let Ok(Some(Command::Add(rule))) = parse_line(&line) else { panic!("{last}") };
        let _ = check(&rule);
        assert_eq!(rule.to_string().len(), line.len());
    }
    let ports: String = (0..50_000).map(|port| format!("tcp-dport != {port} ")).collect();
    let kinds: String = (0..60_000).map(|n| format!("tcp-opt {} ", n % 250 + 2)).collect();
    let set: Vec<String> = (0..100_000).map(|port| (port % 65_536).to_string()).collect();
    for (line, passes) in [
        (format!("add {ports}tcp-dport >= 50000 drop"), true),
        (format!("add {ports}tcp-dport < 50000 drop"), false),
        (format!("add {kinds}tcp-opt != 255 drop"), true),
        (format!("add {kinds}tcp-opt != 251 drop"), false),
        (format!("add tcp-dport != {{{}}} drop", set.join(",")), false),
    ] {
        let Ok(Some(Command::Add(rule))) = parse_line(&line) else { panic!("{}", &line[line.len() - 40..]) };
        assert_eq!(check(&rule).is_ok(), passes, "{}", &line[line.len() - 40..]);
    }
    assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
}
