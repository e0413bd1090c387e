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
        ("set add b address-port timeout 60", "set add b address-port timeout 1m"),
        ("set b add 192.0.2.1:https [2001:db8::1]:9-9", "set b add 192.0.2.1:443 [2001:db8::1]:9"),
        (
            "set b add 10.1.2.3/8:1-9 [2001:DB8::1/32]:80 comment x",
            "set b add 10.0.0.0/8:1-9 [2001:db8::/32]:80 comment \"x\"",
        ),
        ("set b del [192.0.2.1/32]:443", "set b del 192.0.2.1:443"),
        ("add ip-daddr,tcp-dport @b accept", "add ip-daddr,tcp-dport @b accept"),
        ("add ip6-saddr , udp-sport == @b accept", "add ip6-saddr,udp-sport @b accept"),
        ("add ! ip-saddr,tcp-dport ne @b drop", "add ! ip-saddr,tcp-dport != @b drop"),
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
        ("set b add 192.0.2.1:x", "`x` is neither a port"),
        ("set b add 192.0.2.1:", "`` is neither a port"),
        ("set b add 192.0.2.1:9-1", "ends before it starts"),
        ("set b add [2001:db8::1]", "is not an IP address"),
        ("set b add 192.0.2.1/40:80", "out of range"),
        ("add ip-daddr,tcp-dport accept", "expected the name of a set"),
        ("add ip-daddr,tcp-dport", "the name of a set is missing"),
        ("add ip-daddr,tcp-dport 80 accept", "expected the name of a set, found `80`"),
        ("add ip-daddr,tcp-dport < @b accept", "compares with one value, not with a set"),
        ("add ip-daddr,ip-saddr @b accept", "`ip-saddr` cannot be the second field of a pair"),
        ("add ip-daddr, @b accept", "`@b` cannot be the second field of a pair"),
        ("add tcp-dport,ip-daddr @b accept", "`tcp-dport` cannot be the first field of a pair"),
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
    assert!(parse_matches("ip-saddr,tcp-dport @a ip-saddr,tcp-dport != @a").is_ok());
    assert!(parse_matches("ip-saddr,tcp-dport @a udp-dport 5").is_err(), "no packet has both headers");
    assert!(parse_matches("! ip-saddr,tcp-dport @a udp-dport 5").is_ok());
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
    assert!(covers("ip-saddr", "ip-saddr,tcp-dport @a"));
    assert!(covers("ip-saddr,tcp-dport @a", "ip-saddr,tcp-dport @a ip-ttl 1"));
    assert!(!covers("ip-saddr,tcp-dport @a", "ip-saddr,udp-dport @a"));
    assert!(!covers("ip-saddr @a", "ip-saddr,tcp-dport @a"));
    assert!(!covers("ip-saddr @a", "ip-saddr @b"));
    assert!(!covers("ip-saddr 10.0.0.0/8", "ip-saddr @a"));
    assert!(!covers("ip-saddr @a", "ip-saddr 10.0.0.1"));
}
