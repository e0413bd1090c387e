//! Compiling matches from text to patterns.

use mmb_classify::{
    Batch, ByteSource, Classifier, Entry, MaskedKey, OptionKinds, Pattern, Predicate, Relation, Test,
};
use mmb_lang::{Command, Diagnostic, Rule, parse_line};
use mmb_packet::build::{Extension, Frame, Ip4, Ip6, Tcp};
use mmb_packet::{Kind, Loc, Meta, NamedOption, PayloadLayer, fill_window, parse};

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

/// The entries, as covers with the number of tested ranges of each.
fn entries(matches: &str) -> Vec<(MaskedKey, Vec<usize>)> {
    let ranges = |test: &Test| match test {
        Test::InRanges { ranges, .. } => Some(ranges.iter().count()),
        Test::Clause { .. } => None,
    };
    let pattern = compile(matches).expect("a good rule");
    let entry = |entry: &Entry| (entry.cover(), entry.tests.iter().filter_map(ranges).collect());
    pattern.entries().iter().map(entry).collect()
}

/// The cover of a rule that consists of a cover only.
fn cover(matches: &str) -> MaskedKey {
    match &entries(matches)[..] {
        [(cover, tests)] if tests.is_empty() => *cover,
        other => panic!("{other:?}"),
    }
}

fn kind(loc: Loc) -> MaskedKey {
    let (byte, mask, value) = loc.present();
    MaskedKey::byte(byte, mask, value)
        .and_then(|kind| kind.and(&MaskedKey::IP))
        .expect("a byte of the window")
}

#[test]
fn the_5_tuple_fits_one_chunk() {
    let pattern =
        cover("in lan ip-saddr 10.1.2.3 ip-daddr 198.18.0.1 ip-proto tcp tcp-sport 1025 tcp-dport 80");
    let mut key = [0u8; 16];
    key[..8].copy_from_slice(&[10, 1, 2, 3, 198, 18, 0, 1]);
    key[8..].copy_from_slice(&[4, 1, 0, 80, Kind::TCP | Kind::IP4, 6, 0, 7]);
    assert_eq!(pattern.key()[0].to_ne_bytes(), key);
    assert_eq!(pattern.mask()[0].to_ne_bytes(), [0xff; 16]);
    assert_eq!(pattern.chunks(), 1);
}

#[test]
fn all_and_network_protocols_read_only_the_kind() {
    assert_eq!(cover("all"), MaskedKey::IP);
    assert_eq!(cover("net-proto ip6"), MaskedKey::kind((Kind::L3_MASK, Kind::IP6)));
    assert_eq!(cover("net-proto {ip,ip6}"), MaskedKey::IP);
    assert_eq!(cover("ip-saddr 0.0.0.0/0"), cover("ip-ttl"));
    assert_eq!(entries("! tcp-dport 80"), [(MaskedKey::IP, vec![2])]);
}

#[test]
fn a_range_becomes_a_prefix_and_a_test_if_needed() {
    let ports = |len, value| kind(Loc::Tcp(0)).and(&MaskedKey::bits(80, len, value).unwrap()).unwrap();
    assert_eq!(entries("tcp-dport 1024-2047"), [(ports(6, 1), vec![])]);
    assert_eq!(entries("tcp-dport >= 1024 tcp-dport < 2048"), [(ports(6, 1), vec![])]);
    assert_eq!(entries("tcp-dport 1024-2000"), [(ports(6, 1), vec![1])]);
    assert_eq!(entries("tcp-dport 8-15 tcp-dport != 12"), [(ports(13, 1), vec![2])]);
    assert_eq!(entries("tcp-dport 12-40 ! tcp-dport > 12"), [(ports(16, 12), vec![])]);
}

#[test]
fn sets_are_split_where_it_pays() {
    let ports = |len, value| kind(Loc::Tcp(0)).and(&MaskedKey::bits(80, len, value).unwrap()).unwrap();
    assert_eq!(entries("tcp-dport {80,443}"), [(ports(16, 80), vec![]), (ports(16, 443), vec![])]);
    assert_eq!(entries("tcp-dport {80,81}"), [(ports(15, 40), vec![])]);
    assert_eq!(entries("tcp-dport 1022-1025"), [(ports(15, 511), vec![]), (ports(15, 512), vec![])]);
    assert_eq!(entries("tcp-dport != 80"), [(kind(Loc::Tcp(0)), vec![2])]);
    let odd = (0..20).map(|i| (2 * i + 1).to_string()).collect::<Vec<_>>().join(",");
    assert_eq!(entries(&format!("tcp-dport {{{odd}}}")).len(), 1);
    let both = entries("tcp-dport {80,443,8080} tcp-sport {1,1000,30000,50000}");
    assert_eq!(both.len(), 4, "12 would be too many");
}

#[test]
fn a_negation_uses_presence_that_other_matches_imply() {
    assert_eq!(cover("ip-ttl ! ip-proto != udp"), cover("ip-proto udp"));
    assert_eq!(cover("tcp-dport 80 ! udp-dport 53"), cover("tcp-dport 80"));
    assert_eq!(entries("ip-proto != udp ip-proto != tcp"), [(kind(Loc::Ip4(0)), vec![3])]);
    assert_eq!(entries("! ip-proto != udp"), [(MaskedKey::IP, vec![1])]);
    assert_eq!(cover("! net-proto ip6 ! ip-ttl != 3"), cover("ip-ttl 3"));
    assert_eq!(cover("! ip-ttl"), cover("net-proto ip6"));
    assert_eq!(cover("tcp-syn ! tcp-ack ! tcp-rst"), cover("tcp-syn tcp-ack 0 tcp-rst 0"));
}

#[test]
fn options_and_extension_headers_imply_their_header() {
    let mss = cover("tcp-opt-mss 1460");
    for implied in ["tcp-opt-mss", "tcp-opt"] {
        assert_eq!(mss.and(&cover(implied)), Some(mss), "{implied}");
    }
    assert_eq!(
        cover("tcp-opt-mss 1460 tcp-dport"),
        mss,
        "which kinds of packets have options is no question"
    );
    assert_eq!(mss.mask()[0], MaskedKey::IP.mask()[0]);
    assert_eq!(cover("ip6-eh-routing ip6-ver"), cover("ip6-eh-routing"));
    assert!(compile("tcp-opt-mss udp-dport").is_err() && compile("ip6-eh ip-ttl").is_err());
    assert_eq!(cover("tcp-opt 2"), cover("tcp-opt-mss"));
    assert_eq!(cover("tcp-opt >= 2"), cover("tcp-opt"));
    assert_eq!(cover("ip6-eh-routing").and(&cover("ip6-eh")), Some(cover("ip6-eh-routing")));
    assert_eq!(compile("tcp-opt 2").unwrap().predicates(), []);
    assert_eq!(entries("! tcp-opt-mss > 1460"), [(MaskedKey::IP, vec![1])]);
}

#[test]
fn bytes_are_matched_by_predicates() {
    let asks = |matches: &str| compile(matches).unwrap().predicates().to_vec();
    let get = |how| {
        let source = ByteSource::Payload(PayloadLayer::Tcp);
        Predicate::bytes(source, how, vec![(*b"GET").into()]).unwrap()
    };
    assert_eq!(asks(r#"tcp-payload "GET""#), [get(Relation::Starts)]);
    assert_eq!(asks(r#"tcp-payload contains {"GET","GET"}"#), [get(Relation::Contains)]);
    assert_eq!(
        asks(r#"tcp-payload != "GET""#),
        [get(Relation::Starts), Predicate::Exists(PayloadLayer::Tcp)]
    );
    let fast_open = ByteSource::Option(NamedOption::FastOpen);
    let cookie = Predicate::bytes(fast_open, Relation::Equals, vec![[1, 2].into()]).unwrap();
    assert_eq!(asks("tcp-opt-fast-open 0x0102"), [cookie]);
    assert_eq!(asks("tcp-opt {19,20}"), [Predicate::OptionKind(OptionKinds::new([19, 20]))]);

    let pattern =
        compile(r#"tcp-opt {19,20} tcp-payload contains "abcdef" tcp-payload "a" tcp-dport 80"#).unwrap();
    let [entry] = pattern.entries() else { panic!("{pattern:?}") };
    let pivot = &pattern.predicates()[entry.pivot.unwrap() as usize];
    assert!(
        matches!(pivot, Predicate::Bytes { relation: Relation::Contains, .. }),
        "the longest literal says most: {pivot:?}"
    );
    assert_eq!(entry.tests.len(), 2);
    assert_eq!(compile("! tcp-payload \"x\"").unwrap().entries()[0].pivot, None);
}

#[test]
fn errors_mark_the_words() {
    let marked = |matches: &str| {
        let error = compile(matches).unwrap_err();
        let line = format!("add {matches} drop");
        (line[error.span.start..error.span.end].to_owned(), error.message)
    };
    assert_eq!(marked("ip-ttl 3 in nowhere"), ("nowhere".into(), "there is no interface \"nowhere\"".into()));
    for (matches, offending) in [
        ("tcp-flags 2 tcp-ack", "tcp-ack"),
        ("tcp-dport > 80 tcp-dport {1-80}", "tcp-dport {1-80}"),
        ("tcp-dport 80 ! tcp-sport < 3 ! tcp-dport 3-90", "! tcp-dport 3-90"),
        ("tcp-opt-mss 3 ! tcp-opt", "! tcp-opt"),
        ("ip-ttl 3 ip6-eh", "ip6-eh"),
        ("tcp-flags > 250 tcp-cwr 0", "tcp-cwr 0"),
    ] {
        let (words, message) = marked(matches);
        assert_eq!(words, offending);
        assert!(message.starts_with("no packet can match"), "{message}");
    }
}

/// Ports are at the same place of the window whatever headers precede them.
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
    batch.len = frames.len();
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
