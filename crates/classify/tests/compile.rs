//! From text to patterns.

use mmb_classify::{Batch, Classifier, Exclusion, Masked, Pattern};
use mmb_lang::{Command, Diagnostic, Rule, parse_line};
use mmb_packet::build::{Extension, Frame, Ip4, Ip6, Tcp};
use mmb_packet::{Kind, Loc, Meta, fill_window, parse};

fn rule(matches: &str) -> Rule {
    match parse_line(&format!("add {matches} drop")) {
        Ok(Some(Command::Add(rule))) => rule,
        other => panic!("{other:?}"),
    }
}

fn ifaces(name: &str) -> Option<u16> {
    ["lan", "wan"].iter().position(|iface| *iface == name).map(|port| port as u16 + 7)
}

fn compile(matches: &str) -> Result<Pattern, Diagnostic> {
    Pattern::compile(&rule(matches), &ifaces)
}

fn must(matches: &str) -> Masked {
    *compile(matches).expect("a good rule").must()
}

#[test]
fn the_5_tuple_fits_one_chunk() {
    let pattern =
        must("in lan ip-saddr 10.1.2.3 ip-daddr 198.18.0.1 ip-proto tcp tcp-sport 1025 tcp-dport 80");
    let mut key = [0u8; 16];
    key[..8].copy_from_slice(&[10, 1, 2, 3, 198, 18, 0, 1]);
    key[8..].copy_from_slice(&[4, 1, 0, 80, Kind::TCP | Kind::IP4, 6, 0, 7]);
    assert_eq!(pattern.key()[0].to_ne_bytes(), key);
    assert_eq!(pattern.mask()[0].to_ne_bytes(), [0xff; 16]);
    assert_eq!(pattern.mask()[1..], [0; 4]);
}

#[test]
fn all_and_network_protocols_look_at_the_kind_only() {
    assert_eq!(must("all"), Masked::IP);
    assert_eq!(must("net-proto ip6"), Masked::kind((Kind::L3_MASK, Kind::IP6)));
    assert_eq!(must("ip-saddr 0.0.0.0/0"), must("ip-ttl"));
    assert_eq!(must("! tcp-dport 80"), Masked::IP);
}

#[test]
fn exclusions_that_cannot_hold_are_left_out() {
    assert_eq!(compile("tcp-dport 80 ! udp-dport 53").unwrap().not(), []);
    assert_eq!(compile("ip-proto != udp ip-proto != tcp").unwrap().not().len(), 2);
}

#[test]
fn a_negated_inequality_excludes_what_is_present_and_different() {
    let not = compile("! ip-proto != udp").unwrap().not().to_vec();
    let ip4 = Masked::kind(Loc::Ip4(0).kind_test());
    let udp = Masked::bits(Loc::Ip4(72).window_bit(), 8, 17).and_then(|proto| proto.and(&ip4));
    assert_eq!(not, [Exclusion { what: ip4, unless: udp }]);
}

#[test]
fn errors_mark_the_words() {
    let marked = |matches: &str| {
        let error = compile(matches).unwrap_err();
        let line = format!("add {matches} drop");
        (line[error.span.start..error.span.end].to_owned(), error.message)
    };
    assert_eq!(marked("ip-ttl 3 in nowhere"), ("nowhere".into(), "there is no interface \"nowhere\"".into()));
    let (words, message) = marked("tcp-flags 2 tcp-ack");
    assert_eq!(words, "tcp-ack");
    assert!(message.starts_with("no packet can match"), "{message}");
    for matches in ["tcp-dport > 80", "tcp-dport {80,443}", "tcp-dport 80-90", "tcp-opt-mss 1460"] {
        assert_eq!(marked(matches).0, matches);
    }
}

/// Ports stand in one place of the window whatever is in front of them in the packet.
#[test]
fn options_extension_headers_and_tags_do_not_move_a_field() {
    let plain = Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]);
    let with_options = Ip4 { options: vec![1; 8], ..plain.clone() };
    let ip6 = Ip6::new([1; 8], [2; 8]);
    let extended = ip6.clone().with([Extension::Plain { number: 60, body: vec![0; 14] }]);
    let frames = [
        Frame::new(plain, Tcp::new(1025, 80)),
        Frame::new(with_options, Tcp::new(1025, 80)).vlan(3).vlan(4),
        Frame::new(ip6, Tcp::new(1025, 80)),
        Frame::new(extended, Tcp::new(1025, 80)).vlan(3),
    ];
    let mut classifier = Classifier::with_seed(1);
    let matches =
        ["tcp-dport 80", "in wan", "tcp-dport 80 ! ip-saddr 10.0.0.0/8", "ip6-daddr 2::/15", "udp-dport 80"];
    for (slot, matches) in (0..).zip(matches) {
        classifier.insert(slot, &compile(matches).unwrap());
    }
    let mut batch = Batch::new();
    batch.n = frames.len();
    for (frame, window) in frames.iter().zip(batch.windows.iter_mut()) {
        let (frame, mut meta) = (frame.build(), Meta::default());
        parse(&frame, frame.len(), &mut meta).unwrap();
        fill_window(&frame, &meta, 8, 0, classifier.chunks(), window);
    }
    classifier.classify(&mut batch);
    let found = |pkt| {
        let mut slots: Vec<u32> =
            batch.hits.iter().filter(|hit| hit.pkt == pkt).map(|hit| hit.slot).collect();
        slots.sort();
        slots
    };
    assert_eq!([0, 1, 2, 3].map(found), [vec![0, 1], vec![0, 1], vec![0, 1, 2, 3], vec![0, 1, 2, 3]]);
}
