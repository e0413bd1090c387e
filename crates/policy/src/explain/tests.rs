use mmb_lang::{Command, FIELDS, FieldDef, FieldId, Rule, ValueKind, field, parse_line};
use mmb_packet::build::{Frame, Ip4, Ip6, Tcp, Udp};

use super::{FieldChange, HeaderFields, differences, explain_matches};
use crate::Policy;

const NONE: &dyn Fn(u16) -> Option<String> = &|_| None;

fn rule(line: &str) -> Rule {
    match parse_line(line) {
        Ok(Some(Command::Add(rule))) => rule,
        other => panic!("{other:?}"),
    }
}

fn fields(frame: &[u8]) -> HeaderFields<'_> {
    HeaderFields::parse(frame, frame.len(), [0, 1]).unwrap()
}

fn tcp(dport: u16) -> Vec<u8> {
    Frame::new(Ip4::new([10, 0, 0, 1], [192, 0, 2, 7]), Tcp::new(1025, dport)).payload(*b"GET /").build()
}

fn text(frame: &[u8], name: &str) -> Option<String> {
    fields(frame).text(field(name).unwrap().id, NONE)
}

#[test]
fn values_have_the_syntax_of_rules() {
    let frame = tcp(80);
    let value = |name| text(&frame, name);
    assert_eq!(value("ip-saddr").as_deref(), Some("10.0.0.1"));
    assert_eq!(value("ip-proto").as_deref(), Some("tcp"));
    assert_eq!(value("net-proto").as_deref(), Some("ip"));
    assert_eq!(value("tcp-dport").as_deref(), Some("80"));
    assert_eq!(value("tcp-payload").as_deref(), Some("\"GET /\""));
    assert_eq!((value("udp-dport"), value("ip6-saddr"), value("tcp-opt-mss")), (None, None, None));
    let names = |port| (port == 1).then(|| "wan".to_owned());
    assert_eq!(fields(&frame).text(FieldId::Out, &names).as_deref(), Some("wan"));
    assert_eq!(fields(&frame).text(FieldId::In, &names).as_deref(), Some("none"));
    let frame = Frame::new(Ip6::new([1; 16], [2; 16]), Udp::new(7, 9)).payload([0; 100]).build();
    assert_eq!(text(&frame, "ip6-saddr").as_deref(), Some("101:101:101:101:101:101:101:101"));
    assert!(text(&frame, "udp-payload").unwrap().ends_with("(100 bytes)"));
}

#[test]
fn a_value_as_a_match_holds() {
    let frame = tcp(80);
    let has_number = |def: &&FieldDef| def.in_header() && !matches!(def.kind, ValueKind::Shorthand(_));
    for def in FIELDS.iter().filter(has_number) {
        let Some(value) = fields(&frame).text(def.id, &|port| Some(format!("p{port}"))) else { continue };
        let Ok(Some(Command::Add(rule))) = parse_line(&format!("add {} {value} drop", def.name)) else {
            panic!("`{} {value}` is no match", def.name)
        };
        let ifaces = |name: &str| name.strip_prefix('p')?.parse().ok();
        let outcomes = explain_matches(&rule, &Policy::new(), &fields(&frame), &ifaces, NONE).unwrap();
        assert!(outcomes[0].holds, "{outcomes:?}");
    }
}

#[test]
fn the_match_that_fails_is_named_with_the_value_of_the_packet() {
    let rule = rule("add ip-saddr 10.0.0.0/8 ! tcp-dport {443,8443} tcp-dport >= 1024 drop");
    let outcomes = explain_matches(&rule, &Policy::new(), &fields(&tcp(80)), &|_| None, NONE).unwrap();
    let shown: Vec<_> = outcomes.iter().map(|o| (o.text.as_str(), o.holds, o.value.as_deref())).collect();
    assert_eq!(
        shown,
        [
            ("ip-saddr 10.0.0.0/8", true, Some("10.0.0.1")),
            ("! tcp-dport {443,8443}", true, Some("80")),
            ("tcp-dport >= 1024", false, Some("80")),
        ]
    );
}

#[test]
fn differences_are_told_by_field() {
    let (before, after) = (tcp(80), tcp(8080));
    let mut changes = differences(&fields(&before), &fields(&after));
    let checksum = changes.pop().unwrap();
    assert_eq!(checksum.field, "tcp-checksum");
    let change = |field: &str, before: &str, after: &str| FieldChange {
        field: field.to_owned(),
        before: Some(before.to_owned()),
        after: Some(after.to_owned()),
    };
    assert_eq!(changes, [change("tcp-dport", "80", "8080")]);
    let mut masked = before.clone();
    let at = masked.len() - 5;
    masked[at..at + 3].copy_from_slice(b"***");
    let changes = differences(&fields(&before), &fields(&masked));
    assert_eq!(changes, [change("tcp-payload at byte 0", "\"GET\"", "\"***\"")]);
    assert_eq!(differences(&fields(&before), &fields(&before)), []);
}
