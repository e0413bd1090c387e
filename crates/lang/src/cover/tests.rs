use super::covers;
use crate::parse_matches;

fn covered(outer: &str, inner: &str) -> bool {
    covers(&parse_matches(outer).unwrap(), &parse_matches(inner).unwrap())
}

#[test]
fn matches_follow_from_narrower_ones() {
    for (outer, inner) in [
        ("all", "tcp-dport 80"),
        ("in left", "in left ip-saddr != 10.0.0.0/8"),
        ("ip-saddr 10.0.0.0/8", "ip-saddr 10.1.0.0/16 tcp-dport 80"),
        ("ip-saddr != 10.1.0.0/16", "ip-saddr != 10.0.0.0/8"),
        ("tcp-dport 1-1023", "tcp-dport {22,80,443}"),
        ("tcp-dport < 1024", "tcp-dport <= 1023"),
        ("tcp-dport", "tcp-dport != 80"),
        ("tcp-dport != {80,443}", "tcp-dport 81-442"),
        ("ip6-saddr 2001:db8::/32", "ip6-saddr 2001:db8:1::/48"),
        ("! ip-proto udp", "! ip-proto udp in left"),
    ] {
        assert!(covered(outer, inner), "{outer} covers {inner}");
    }
}

#[test]
fn other_matches_do_not_follow() {
    for (outer, inner) in [
        ("in left", "ip-proto udp"),
        ("in left", "in right"),
        ("ip-saddr 10.1.0.0/16", "ip-saddr 10.0.0.0/8"),
        ("tcp-dport 80", "tcp-sport 80"),
        ("tcp-dport 80", "! tcp-dport 80"),
        ("tcp-dport < 1024", "tcp-dport 1-1024"),
        ("tcp-dport != 80", "tcp-dport"),
    ] {
        assert!(!covered(outer, inner), "{outer} does not cover {inner}");
    }
}
