//! Commands on named sets, and matches with them.

use mmb_lang::{Command, check, parse_element, parse_line, parse_matches};

#[test]
fn commands_have_one_canonical_text() {
    for (line, text) in [
        ("set add blocked address", "set add blocked address"),
        ("set add b prefix file a.csv timeout 3600", "set add b prefix timeout 1h file a.csv"),
        ("set add b port comment x timeout 90", "set add b port timeout 90s comment \"x\""),
        ("set b add 10.1.2.3/8 ::1/128 timeout 1440m", "set b add 10.0.0.0/8 ::1 timeout 1d"),
        ("set b add http 1-9 comment \"a \\\"b\\\"\"", "set b add 80 1-9 comment \"a \\\"b\\\"\""),
        ("set b del 192.0.2.1 192.0.2.2", "set b del 192.0.2.1 192.0.2.2"),
        ("set timeout add 1", "set timeout add 1"),
        ("set b flush", "set b flush"),
        ("set del b", "set del b"),
        ("show set b", "show set b"),
        ("show sets", "show sets"),
        ("add ip-saddr @a tcp-dport != @b drop", "add ip-saddr @a tcp-dport != @b drop"),
        ("add ! ip6-daddr @a drop", "add ! ip6-daddr @a drop"),
    ] {
        let command = parse_line(line).unwrap().unwrap();
        assert_eq!(command.to_string(), text);
        assert_eq!(parse_line(text).unwrap().unwrap().to_string(), text);
    }
    assert!(matches!(parse_line("set timeout icmp 30"), Ok(Some(Command::SetTimeout { .. }))));
}

#[test]
fn errors_name_the_word() {
    for (line, words) in [
        ("set b", "the action on the set is missing"),
        ("set b lower", "unknown setting `b`"),
        ("set add b hosts", "unknown kind of set `hosts`"),
        ("set add b port timeout 1w", "invalid time `1w`"),
        ("set add b port timeout 366d", "invalid time `366d`"),
        ("set add b port timeout 1h timeout 2h", "`timeout` twice"),
        ("set add drop port", "cannot name a set"),
        ("set b add", "an element is missing"),
        ("set b add eth0", "`eth0` cannot be in a set"),
        ("set b add 9-1", "ends before it starts"),
        ("set b add 10.0.0.0/33", "out of range"),
        ("add ip-saddr @ drop", "is not the name of a set"),
        ("add ip-ttl @b drop", "`ip-ttl` cannot be compared with a set"),
        ("add tcp-dport > @b drop", "not with a set"),
        ("add ip-saddr {@b,10.0.0.1} drop", "is not an IPv4 address"),
        ("add all mod ip-saddr @b", "not a set"),
    ] {
        let error = parse_line(line).unwrap_err();
        assert!(error.message.contains(words), "{line}: {}", error.message);
    }
    assert!(parse_element("192.0.2.1 ").is_err());
}

#[test]
fn a_set_contradicts_nothing() {
    assert!(
        parse_matches("ip-saddr @a ip-saddr != @a ip-saddr 10.0.0.1 ip-saddr {10.0.0.1,10.0.0.2}").is_ok()
    );
    assert!(parse_matches("ip-saddr @a ip6-saddr @a").is_err(), "no packet has both headers");
    let Ok(Some(Command::Add(rule))) = parse_line("add-stateful all map ip-saddr @a") else {
        panic!("parses")
    };
    assert!(check(&rule).is_err());
}

#[test]
fn sets_cover_only_themselves() {
    let covers = |outer: &str, inner: &str| {
        mmb_lang::covers(&parse_matches(outer).unwrap(), &parse_matches(inner).unwrap())
    };
    assert!(covers("ip-saddr @a", "ip-saddr @a tcp-dport 80"));
    assert!(covers("ip-saddr", "ip-saddr @a"));
    assert!(!covers("ip-saddr @a", "ip-saddr @b"));
    assert!(!covers("ip-saddr 10.0.0.0/8", "ip-saddr @a"));
    assert!(!covers("ip-saddr @a", "ip-saddr 10.0.0.1"));
}
