//! Tests of the parent module.

use mmb_oracle::generate::{frames, numbered, port, rules};
use proptest::prelude::*;

use super::*;
use mmb_nf::testing::{key_of_frame, parsed};

fn clauses(texts: &[&str]) -> Result<Clauses, String> {
    let texts: Vec<_> = texts.iter().map(|text| text.to_string()).collect();
    Clauses::new(&texts, &port).map_err(|error| error.to_string())
}

#[test]
fn fields_that_vary_within_a_session_are_refused() {
    for (text, named) in [
        ("tcp-syn", "`tcp-syn` asks about single packets"),
        ("tcp-dport 80 ip-ttl > 3", "asks about single packets"),
        ("out wan", "asks about single packets"),
        ("tcp-payload contains 0x41", "asks about single packets"),
        ("tcp-dprot 80", "did you mean `tcp-dport`"),
        ("tcp-dport 80 udp-dport 53", "`tcp-dport 80 udp-dport 53`"),
        ("tcp-dport 80 accept", "leave its targets out"),
        ("tcp-dport 80 ;", "`tcp-dport 80 ;`"),
        ("in nowhere", "nowhere"),
    ] {
        let error = clauses(&["all", text]).unwrap_err();
        assert!(error.contains(named), "{text}: {error}");
    }
}

fn texts(rules: &[mmb_lang::Rule]) -> Vec<String> {
    let join =
        |rule: &mmb_lang::Rule| rule.matches.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    rules.iter().map(join).collect()
}

proptest! {
    /// The clause is the first rule that the oracle finds, among rules that all packets of a session
    /// match alike.
    #[test]
    fn the_first_matching_clause_counts(rules in rules(30), frames in frames(12), in_port in 0..4u16) {
        let empty = |_: &str| Vec::new();
        let constant: Vec<_> = rules
            .into_iter()
            .filter(|rule| Clauses::new(&texts(std::slice::from_ref(rule)), &port).is_ok())
            .collect();
        let clauses = Clauses::new(&texts(&constant), &port);
        let (clauses, numbered) = (clauses.unwrap(), numbered(&constant));
        let mut batch = Batch::default();
        for frame in &frames {
            let Some(key) = whole(frame) else { continue };
            let matching = mmb_oracle::matching_rules(&numbered, &empty, &port, (in_port, 0), frame);
            let first = matching.first().map(|(index, _)| *index as usize - 1);
            prop_assert_eq!(clauses.first(&key, in_port, &mut batch), first, "{:?}", frame);
        }
    }
}

/// Returns the key of a packet, if it has one.
fn whole(frame: &[u8]) -> Option<Key> {
    let mut meta = Meta::default();
    mmb_packet::parse(frame, frame.len(), &mut meta).ok()?;
    mmb_flow::parse_key(frame, &meta).ok()
}

#[test]
fn headers_have_the_key_that_they_are_made_of() {
    use mmb_packet::build::{Frame, Icmp, Ip4, Ip6, Tcp, Transport, Udp};
    let (a, b) = ([192, 0, 2, 1], [198, 51, 100, 2]);
    let (a6, b6) = ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2]);
    let transports: [Transport; 4] =
        [Tcp::new(1, 80).into(), Udp::new(2, 53).into(), Icmp::new(8).into(), Transport::Raw(47)];
    for transport in transports {
        let four = Frame::new(Ip4::new(a, b), transport.clone()).build();
        let six = Frame::new(Ip6::new(a6, b6), transport).build();
        for frame in [four, six] {
            let (key, meta) = (key_of_frame(&frame), parsed(&frame));
            let (_, made) = headers(&key);
            assert_eq!((made.kind, made.proto, made.l4_off), (meta.kind, meta.proto, meta.l4_off));
            assert_eq!(made.ethertype, meta.ethertype);
        }
    }
}
