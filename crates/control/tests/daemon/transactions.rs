//! Sequences of commands and files: each has its whole effect or none.

use proptest::prelude::*;

use crate::harness::daemon;

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c", "nowhere"])
}

fn matching() -> impl Strategy<Value = String> {
    let fixed = [
        "all",
        "ip-df",
        "ip-proto udp",
        "! tcp-syn",
        "ip6-saddr 2001:db8::/32",
        "tcp-dport 70000",
        "bogus 1",
    ];
    prop_oneof![
        prop::sample::select(fixed.to_vec()).prop_map(str::to_owned),
        name().prop_map(|n| format!("in {n}")),
        (0u16..4).prop_map(|p| format!("udp-dport {p}")),
    ]
}

fn target() -> impl Strategy<Value = String> {
    let fixed = ["drop", "drop 12.5", "accept", "mod ip-ttl 7", "mod ip-checksum 1"];
    prop_oneof![
        prop::sample::select(fixed.to_vec()).prop_map(str::to_owned),
        name().prop_map(|n| format!("mod out {n}")),
    ]
}

/// A function type and its arguments.
fn function() -> impl Strategy<Value = String> {
    let fixed = ["probe", "probe takes ip-df", "probe takes \"ip-proto udp\"", "probe nonsense", "wide"];
    prop_oneof![
        prop::sample::select(fixed.to_vec()).prop_map(str::to_owned),
        name().prop_map(|n| format!("probe on {n}")),
        name().prop_map(|n| format!("probe pool {n}")),
    ]
}

fn rule() -> impl Strategy<Value = String> {
    (prop::collection::vec(matching(), 1..3), target()).prop_map(|(m, t)| format!("add {} {t}", m.join(" ")))
}

/// Lines that are accepted, and lines that are refused.
fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => rule(),
        2 => (0u32..8).prop_map(|i| format!("del {i}")),
        1 => Just("flush".to_owned()),
        3 => name().prop_map(|n| format!("interface add {n} null")),
        1 => name().prop_map(|n| format!("interface add {n} af-packet no-such-if0")),
        2 => name().prop_map(|n| format!("interface del {n}")),
        3 => (name(), name()).prop_map(|(a, b)| format!("wire {a} {b}")),
        2 => name().prop_map(|n| format!("wire del {n}")),
        2 => (name(), name()).prop_map(|(a, b)| format!("disable {a} {b}")),
        1 => name().prop_map(|n| format!("enable {n}")),
        1 => prop::sample::select(vec!["forward", "drop"]).prop_map(|what| format!("set on-error {what}")),
        1 => prop::sample::select(vec!["poll", "event", "adaptive"])
            .prop_map(|mode| format!("set worker-mode {mode}")),
        1 => (prop::sample::select(vec!["tcp-established", "icmp", "fragment"]), 0u32..4)
            .prop_map(|(name, seconds)| format!("set timeout {name} {seconds}")),
        1 => any::<bool>().prop_map(|on| format!("set tcp-pickup {}", if on { "on" } else { "off" })),
        2 => (name(), 0u8..6, 0u8..6).prop_map(|(n, a, b)| format!("nat pool add {n} 192.0.2.{a}-192.0.2.{b}")),
        1 => name().prop_map(|n| format!("nat pool del {n}")),
        1 => name().prop_map(|n| format!("add-stateful ip-proto tcp nat {n}")),
        2 => (name(), function()).prop_map(|(n, function)| format!("nf add {n} {function}")),
        1 => name().prop_map(|n| format!("nf del {n}")),
        3 => (prop::sample::select(vec!["add", "add", "set"]), name(), prop::collection::vec(name(), 1..3))
            .prop_map(|(how, n, body)| format!("chain {how} {n} {}", body.join(" then "))),
        1 => name().prop_map(|n| format!("chain del {n}")),
        2 => (matching(), name()).prop_map(|(m, n)| format!("add-stateful {m} chain {n}")),
        1 => (0u8..3, 0u16..3).prop_map(|(a, p)| format!("nat forward add tcp 192.0.2.{a} {p} to 10.0.0.{a} {p}")),
        1 => (0u8..3, 0u16..3).prop_map(|(a, p)| format!("nat forward del tcp 192.0.2.{a} {p}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_command_has_its_whole_effect_or_none(lines in prop::collection::vec(line(), 1..40)) {
        let daemon = daemon();
        for line in &lines {
            let before = daemon.state();
            if daemon.run(line).is_err() {
                prop_assert_eq!(daemon.state(), before, "{}", line);
            }
        }
        // Applying the text of the running configuration changes nothing but indexes.
        let text = daemon.control.config().config;
        let diff = daemon.control.diff(text.as_bytes()).unwrap();
        prop_assert!(diff.added.is_empty() && diff.removed.is_empty() && !diff.reordered, "{:?}", diff);
        let reply = daemon.control.apply(text.as_bytes()).unwrap();
        prop_assert_eq!((reply.added, reply.removed), (0, 0));
        prop_assert_eq!(daemon.control.config().config, text);
    }

    #[test]
    fn a_file_has_no_differences_after_it_is_applied(
        old in prop::collection::vec(rule(), 0..12),
        new in prop::collection::vec(rule(), 0..12),
        bad in any::<prop::sample::Index>(),
    ) {
        let daemon = daemon();
        for line in ["interface add a null", "interface add b null", "wire a b"] {
            daemon.run(line).unwrap();
        }
        for line in &old {
            let _ = daemon.run(line);
        }
        // Lines that are valid alone make a valid file.
        let good = |line: &&String| daemon.control.diff(line.as_bytes()).is_ok();
        let mut lines: Vec<&str> = new.iter().filter(good).map(String::as_str).collect();
        let text = lines.join("\n");
        let reply = daemon.control.apply_with(text.as_bytes(), true, None).unwrap();
        prop_assert_eq!(reply.rules as usize, lines.len());
        let diff = daemon.control.diff(text.as_bytes()).unwrap();
        prop_assert!(diff.added.is_empty() && diff.removed.is_empty() && !diff.reordered, "{:?}", diff);
        let indexes: Vec<_> = daemon.control.rules().rules.iter().map(|r| r.index as usize).collect();
        prop_assert_eq!(indexes, (1..=lines.len()).collect::<Vec<_>>());
        // With one wrong line, nothing changes.
        let before = daemon.state();
        lines.insert(bad.index(lines.len() + 1), "add tcp-dport 70000 drop");
        prop_assert!(daemon.control.apply(lines.join("\n").as_bytes()).is_err());
        prop_assert_eq!(daemon.state(), before);
    }
}

#[test]
fn a_file_with_interfaces_is_the_whole_configuration() {
    let daemon = daemon();
    for line in ["interface add a null", "interface add b null", "wire a b", "add in a ip-df drop"] {
        daemon.run(line).unwrap();
    }
    let file = "\
# rules may come before the interfaces they name
add in c drop 50
interface add c null
interface add b null
wire b c
disable c
";
    let diff = daemon.control.diff(file.as_bytes()).unwrap();
    assert_eq!(diff.removed, ["interface add a null", "wire a b", "add in a ip-df drop"]);
    assert_eq!(diff.added, ["interface add c null", "wire c b", "disable c", "add in c drop 50"]);
    daemon.control.apply(file.as_bytes()).unwrap();
    let expected = "\
interface add c null
interface add b null
wire c b
disable c
# rules may come before the interfaces they name
add in c drop 50
";
    assert_eq!(daemon.control.config().config, expected);
}

#[test]
fn a_file_without_interfaces_keeps_the_interfaces() {
    let daemon = daemon();
    for line in ["interface add a null", "interface add b null", "wire a b", "add ip-df drop"] {
        daemon.run(line).unwrap();
    }
    daemon.control.apply(b"add in a ip-proto udp drop\ndisable b\n").unwrap();
    let config = daemon.control.config().config;
    assert!(config.contains("wire a b\n") && config.contains("disable b\n"), "{config}");
    assert_eq!(daemon.control.rules().rules.len(), 1);
}

#[test]
fn settings_are_part_of_the_configuration() {
    let daemon = daemon();
    for line in ["interface add a null", "interface add b null", "wire a b", "add ip-df drop"] {
        daemon.run(line).unwrap();
    }
    assert!(!daemon.control.config().config.contains("on-error"), "a default has no line");
    assert_eq!(daemon.run("set on-error drop").unwrap(), "packets that cannot be edited are dropped\n");
    let config = daemon.control.config().config;
    assert!(config.contains("set on-error drop\n"), "{config}");
    let diff = daemon.control.diff(config.as_bytes()).unwrap();
    assert!(diff.added.is_empty() && diff.removed.is_empty(), "{diff:?}");
    let diff = daemon.control.diff(b"add ip-df drop\n").unwrap();
    assert_eq!((diff.added, diff.removed), (vec![], vec!["set on-error drop".to_owned()]));
    daemon.control.apply(b"add ip-df drop\n").unwrap();
    assert!(!daemon.control.config().config.contains("on-error"));
    daemon.control.apply(b"set on-error drop\n").unwrap();
    assert!(daemon.control.config().config.contains("set on-error drop\n"));
    daemon.run("set on-error forward").unwrap();
    assert!(!daemon.control.config().config.contains("on-error"));
    assert!(daemon.run("set on-error panic").is_err());
}

#[test]
fn pools_and_session_settings_are_part_of_the_configuration() {
    let daemon = daemon();
    let file = "\
set timeout udp-unreplied 30
set tcp-pickup off
set tcp-window-check on
set martian-check off
set rpf loose
set fast-path auto
set log-format json
set log-to syslog
set worker-mode event
set gro off
nat pool add home 192.0.2.1-192.0.2.4 ports 2000-3999 block 100 limit 50 filtering endpoint-independent
nat pool add office 192.0.2.9
nat forward add udp 192.0.2.1 53 to 10.0.0.53 53
add-stateful ip-saddr 10.0.0.0/8 nat home
add-stateful ip-saddr 172.16.0.0/12 nat office
";
    // Rules may come before the pools that they use.
    let (settings, rules) = file.split_at(file.find("add-stateful").unwrap());
    daemon.control.apply(format!("{rules}{settings}").as_bytes()).unwrap();
    assert_eq!(daemon.control.config().config, file);
    for line in file.lines().filter(|line| !line.starts_with("add") && !line.contains("pool add")) {
        let fewer: String = file.lines().filter(|l| *l != line).map(|l| format!("{l}\n")).collect();
        let diff = daemon.control.diff(fewer.as_bytes()).unwrap();
        assert_eq!((diff.added.len(), diff.removed), (0, vec![line.to_owned()]));
    }
    let error = daemon.control.apply(file.replace("nat office", "nat cellar").as_bytes()).unwrap_err();
    assert_eq!((error.diagnostics[0].line, error.diagnostics[0].column), (15, 41), "{error:?}");
    let error = daemon.control.apply(file.replace("192.0.2.9", "192.0.2.4").as_bytes()).unwrap_err();
    assert_eq!(error.diagnostics[0].line, 12, "{error:?}");
    assert_eq!(daemon.control.config().config, file);
    let nat = daemon.run("show nat").unwrap();
    assert!(nat.contains("192.0.2.1-192.0.2.4") && nat.contains("10.0.0.53:53"), "{nat}");
    // Pools and settings that are not in a file are deleted.
    daemon.control.apply(b"add ip-df drop\n").unwrap();
    assert_eq!(daemon.control.config().config, "add ip-df drop\n");
    assert!(daemon.run("show nat").unwrap().starts_with("no NAT pools"));
}

#[test]
fn the_reverse_path_filter_of_an_interface_is_part_of_the_configuration() {
    let daemon = daemon();
    for line in ["interface add a null", "interface add b null", "wire a b", "set rpf loose"] {
        daemon.run(line).unwrap();
    }
    let before = daemon.control.config().config;
    daemon.run("set rpf strict a b").unwrap();
    daemon.run("set rpf off b").unwrap();
    let config = daemon.control.config().config;
    assert_eq!(config, format!("{before}set rpf strict a\nset rpf off b\n"));
    daemon.control.apply(config.as_bytes()).unwrap();
    assert_eq!(daemon.control.config().config, config);
    daemon.run("set rpf default a b").unwrap();
    assert_eq!(daemon.control.config().config, before);
    let error = daemon.run("set rpf strict a c").unwrap_err();
    assert!(error.contains("no interface `c`"), "{error}");
    assert!(daemon.run("set rpf default").is_err());
    // A file without interfaces has all settings.
    daemon.run("set rpf strict a").unwrap();
    daemon.control.apply(b"add ip-df drop\n").unwrap();
    assert!(!daemon.control.config().config.contains("rpf"));
}

#[test]
fn a_file_whose_interface_cannot_be_opened_changes_nothing() {
    let daemon = daemon();
    for line in ["interface add a null", "interface add b null", "wire a b", "add in a ip-df drop"] {
        daemon.run(line).unwrap();
    }
    let before = daemon.state();
    // `a` changes its kind, so its device is replaced before the failure.
    let file = "interface add a tap\ninterface add b null\ninterface add c af-packet no-such-if0\nwire a b\n";
    let error = daemon.control.apply(file.as_bytes()).unwrap_err();
    assert!(error.message.contains("interface `c`") || error.message.contains("interface `a`"), "{error}");
    assert_eq!(daemon.state(), before);
}

#[test]
fn inconsistent_files_are_refused() {
    let daemon = daemon();
    for (file, line, word) in [
        ("interface add a null\ninterface add a null\n", 2, "already"),
        ("interface add a null\nwire a b\n", 2, "`b`"),
        (
            "interface add a null\ninterface add b null\ninterface add c null\nwire a b\nwire b c\n",
            5,
            "wired to `a`",
        ),
        ("interface add a null\ninterface del a\n", 2, "interface"),
        ("add ip-df drop\n\nadd in a drop\n", 3, "`a`"),
        ("add ip-df drop\nlist\n", 2, "list"),
        ("add ip-df drop\nflush\n", 2, "flush"),
    ] {
        let error = daemon.control.apply(file.as_bytes()).unwrap_err();
        assert_eq!(error.diagnostics.len(), 1, "{file}: {error:?}");
        assert_eq!(error.diagnostics[0].line, line, "{file}: {error:?}");
        assert!(error.message.contains(word), "{file}: {error}");
    }
}

#[test]
fn an_empty_file_removes_nothing_unless_it_is_allowed() {
    let daemon = daemon();
    daemon
        .control
        .apply(b"nat pool add p 192.0.2.1\nset timeout udp-replied 60\nadd ip-proto udp drop\n")
        .unwrap();
    let before = daemon.state();
    for text in ["", "\n", "# a comment\n\n  # another one\n"] {
        let error = daemon.client().apply(text.into(), false, None).unwrap_err().to_string();
        assert!(error.contains("1 rule and 2 other lines") && error.contains("--allow-empty"), "{error}");
        assert_eq!(daemon.state(), before);
    }
    let reply = daemon.client().apply(b"# nothing\n".to_vec(), true, None).unwrap();
    let removed = ["set timeout udp-replied 60", "nat pool add p 192.0.2.1", "add ip-proto udp drop"];
    assert_eq!(reply.removed_lines, removed);
    assert!(daemon.control.rules().rules.is_empty());
}

#[test]
fn the_reply_to_apply_names_what_was_removed() {
    let daemon = daemon();
    let rules: String = (1..=30).map(|port| format!("add tcp-dport {port} drop\n")).collect();
    daemon.control.apply(format!("nat pool add p 192.0.2.1\n{rules}").as_bytes()).unwrap();
    let reply = daemon.control.apply(b"add tcp-dport 3 drop\n").unwrap();
    assert_eq!((reply.removed, reply.kept), (29, 1));
    assert_eq!(reply.removed_lines.len(), 21);
    assert_eq!(
        reply.removed_lines[..3],
        ["nat pool add p 192.0.2.1", "add tcp-dport 1 drop", "add tcp-dport 2 drop"]
    );
    let text = mmb_control::render::applied(&reply);
    assert!(text.ends_with("- add tcp-dport 21 drop\n# and 9 rules more\n"), "{text}");
}

#[test]
fn a_drop_that_never_drops_has_a_warning() {
    let daemon = daemon();
    daemon.run("interface add a null").unwrap();
    daemon.run("interface add b null").unwrap();
    daemon.run("add ip-proto udp drop").unwrap();
    daemon.run("add in a ip-saddr != 10.0.0.0/8 drop").unwrap();
    let text = daemon.run("add-stateful in a accept").unwrap();
    let warning = "rule 2 (`add in a ip-saddr != 10.0.0.0/8 drop`) never drops: rule 3 (`add-stateful in a accept`) \
                   accepts the same packets; `block` beats `accept`";
    assert_eq!(text, format!("rule 3 added\nwarning: {warning}\n"));
    assert_eq!(daemon.run("add in a udp-dport 9 block").unwrap(), "rule 4 added\n");
    assert!(daemon.run("add in a udp-dport 9 drop").unwrap().contains("warning: rule 5"));
    assert_eq!(daemon.run("add in b udp-dport 9 drop").unwrap(), "rule 6 added\n");
    let file = "interface add a null\nadd in a ip-df drop\nadd all accept\n";
    let check = daemon.client().check(file.into()).unwrap();
    let reply = daemon.control.apply(b"add in a ip-df drop\nadd all accept\n").unwrap();
    assert_eq!((check.warnings.len(), reply.warnings.len()), (1, 1));
    assert!(reply.warnings[0].starts_with("rule 1 (`add in a ip-df drop`)"), "{:?}", reply.warnings);
}

#[test]
fn a_rule_that_is_already_there_has_a_warning() {
    let daemon = daemon();
    daemon.run("add tcp-dport 80 accept").unwrap();
    daemon.run("add tcp-dport 81 accept").unwrap();
    let text = daemon.run("add  tcp-dport   80 accept").unwrap();
    let warning = "rule 3 (`add tcp-dport 80 accept`) repeats rule 1; `del 3` removes it";
    assert_eq!(text, format!("rule 3 added\nwarning: {warning}\n"));
    assert_eq!(daemon.run("add-stateful tcp-dport 80 accept").unwrap(), "rule 4 added\n");
    let file = "add ip-df mod 0\nadd tcp-syn accept\nadd ip-df mod 0\nadd ip-df mod 0\n";
    let check = daemon.client().check(file.into()).unwrap();
    let reply = daemon.control.apply(file.as_bytes()).unwrap();
    let repeated =
        [3, 4].map(|n| format!("rule {n} (`add ip-df mod ip-df 0`) repeats rule 1; `del {n}` removes it"));
    assert_eq!((check.warnings.as_slice(), reply.warnings.as_slice()), (&repeated[..], &repeated[..]));
    assert_eq!(reply.rules, 4);
}
