//! Wrong input over the socket is refused with one sentence and changes nothing.

use mmb_control::ClientError;
use mmb_control::api::Format;

use crate::harness::daemon;

const SETUP: [&str; 9] = [
    "interface add a null",
    "interface add b null",
    "interface add c null",
    "wire a b",
    "add in a ip-proto udp drop",
    "disable b",
    "nat pool add home 192.0.2.1-192.0.2.4",
    "add-stateful in a nat home",
    "nat forward add tcp 192.0.2.1 80 to 10.0.0.1 8080",
];

/// Lines that are refused, and words that message or help must have.
const BAD: [(&str, &[&str]); 52] = [
    ("add ip-prot udp drop", &["ip-prot"]),
    ("add tcp-dport htpt drop", &["htpt"]),
    ("add tcp-dport 70000 drop", &["70000", "65535"]),
    ("add ip-saddr 10.0.0.256 drop", &["10.0.0.256"]),
    ("add tcp-dport 80/8 drop", &["80/8"]),
    ("add ip-proto tcp udp-dport 53 drop", &["udp-dport"]),
    ("add ip-saddr 10.0.0.1 ip6-hop-limit 3 drop", &["ip6-hop-limit"]),
    ("add", &[]),
    ("add drop", &[]),
    ("add tcp-dport 80", &[]),
    ("add all drop accept", &[]),
    ("add all drop 0", &[]),
    ("add all drop 100.5", &[]),
    ("add in nowhere drop", &["nowhere"]),
    ("add all mod out nowhere", &["nowhere"]),
    ("add-stateful ip-proto tcp nat nowhere", &["nowhere", "home"]),
    ("add ip-proto tcp nat home", &["stateful"]),
    ("nat pool add home 192.0.2.9", &["`home`", "already"]),
    ("nat pool add other 192.0.2.2", &["home"]),
    ("nat pool add other 192.0.2.9-192.0.2.8", &[]),
    ("nat pool del nowhere", &["nowhere"]),
    ("nat pool del home", &["rule 2"]),
    ("nat forward add tcp 192.0.2.1 80 to 10.0.0.9 80", &["10.0.0.1 8080"]),
    ("nat forward del udp 192.0.2.1 80", &["not forwarded"]),
    ("set timeout tcp-established 0", &["0"]),
    ("set timeout forever 1", &["forever"]),
    ("show connections tcp-win 3", &["tcp-win"]),
    ("clear connections in nowhere", &["nowhere"]),
    ("interface add a null", &["`a`", "already"]),
    ("interface add", &[]),
    ("interface add d", &[]),
    ("interface add d frob eth0", &["frob"]),
    ("interface add d af-packet no-such-if0", &["no-such-if0"]),
    ("interface del d", &["`d`"]),
    ("interface del a", &["wired", "`b`"]),
    ("wire a c", &["wired to `b`"]),
    ("wire a nowhere", &["nowhere"]),
    ("wire c c", &["itself"]),
    ("wire del c", &["not wired"]),
    ("route a", &["wired to `b`", "wire del a"]),
    ("route c b", &["wired to `a`", "wire del b"]),
    ("route nowhere", &["nowhere"]),
    ("route", &[]),
    ("route del c", &["not routed"]),
    ("route del a b", &[]),
    ("show fib 192.0.2.0/33", &["33"]),
    ("show neighbors fe80::x", &["fe80::x"]),
    ("enable nowhere", &["nowhere"]),
    ("del 99", &["99"]),
    ("del 0", &["0"]),
    ("show nonsense", &["nonsense"]),
    ("frobnicate", &["frobnicate"]),
];

#[test]
fn bad_lines_are_refused_with_one_sentence_and_change_nothing() {
    let daemon = daemon();
    SETUP.iter().for_each(|line| drop(daemon.send(line)));
    let before = daemon.state();
    for (line, words) in BAD {
        let error = daemon.client().command(line, Format::Both).unwrap_err();
        let ClientError::Refused(reply) = &error else { panic!("{line}: {error}") };
        assert!(!reply.error.is_empty() && !reply.error.contains('\n'), "{line}: {reply:?}");
        for word in words {
            let help = reply.diagnostics.first().and_then(|d| d.help.clone()).unwrap_or_default();
            assert!(reply.error.contains(word) || help.contains(word), "{line}: no {word} in {reply:?}");
        }
        assert_eq!(daemon.state(), before, "{line}");
    }
}

#[test]
fn an_interface_that_a_rule_uses_cannot_be_deleted() {
    let daemon = daemon();
    daemon.send("interface add a null");
    daemon.send("add ip-proto udp mod out a");
    let error = daemon.run("interface del a").unwrap_err();
    assert!(error.contains("rule 1") && error.contains("mod out a"), "{error}");
    daemon.send("del 1");
    daemon.send("interface del a");
}

#[test]
fn a_line_of_ten_megabytes_and_binary_garbage_are_refused() {
    let daemon = daemon();
    daemon.send("add ip-df drop");
    let before = daemon.state();
    let long = format!("add tcp-dport 80 {} drop", "x".repeat(10 << 20));
    let refusal = daemon.control.execute(&long).unwrap_err();
    assert!(refusal.message.len() < 300 && refusal.diagnostics[0].column == 1, "{refusal:?}");
    let garbage: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for text in [long.into_bytes(), garbage] {
        let error = daemon.client().apply(text, false, None).unwrap_err();
        let ClientError::Refused(reply) = &error else { panic!("{error}") };
        assert!(reply.error.len() < 300 && !reply.diagnostics.is_empty(), "{reply:?}");
        assert_eq!(daemon.state(), before);
    }
}

#[test]
fn one_bad_line_among_a_hundred_thousand_is_found_and_nothing_is_applied() {
    let daemon = daemon();
    daemon.send("add ip-df drop");
    let before = daemon.state();
    for bad in ["add tcp-dport 99999 drop", "add in nowhere drop", "add ip-proto tcp udp-dport 1 drop"] {
        let mut text = String::new();
        for i in 0..100_000 {
            match i {
                70_000 => text.push_str(bad),
                _ => text.push_str(&format!("add ip-id {} tcp-dport {} drop", i % 65_536, i / 2)),
            }
            text.push('\n');
        }
        let error = daemon.client().apply(text.into_bytes(), false, None).unwrap_err();
        let ClientError::Refused(reply) = &error else { panic!("{error}") };
        assert_eq!(reply.diagnostics.len(), 1, "{reply:?}");
        assert_eq!(reply.diagnostics[0].line, 70_001);
        assert_eq!(daemon.state(), before);
    }
}
