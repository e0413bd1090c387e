//! Compiled patterns against a direct evaluation of the matches on the packet's bytes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use mmb_classify::{
    ByteSource, Entry, Pattern, Predicate, PredicateResults, PredicateSet, Relation, TruePredicates,
};
use mmb_lang::{Cond, FIELDS, FieldId, Match, MatchExpr, Rule, Value, ValueItem, ValueKind};
use mmb_packet::build::{Extension, Frame, Icmp, Ip4, Ip6, Net, Tcp, Transport, Udp};
use mmb_packet::{Kind, Loc, Meta, PayloadLayer, Window, fill_window, parse, payload, tcp_options};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// A packet with all fields that matches can refer to.
#[derive(Debug)]
struct Packet {
    frame: Vec<u8>,
    meta: Meta,
    window: Window,
}

fn options() -> impl Strategy<Value = Vec<u8>> {
    let one = prop_oneof![
        select(vec![1460u16, 1461, 536]).prop_map(|mss| vec![2, 4, (mss >> 8) as u8, mss as u8]),
        select(vec![0u8, 7]).prop_map(|shift| vec![3, 3, shift]),
        Just(vec![1]),
        Just(vec![4, 2]),
        select(vec![vec![5, 4, 1, 2], vec![5, 3, 1], vec![34, 5, 1, 2, 3], vec![30, 6, 3, 1, 2, 9]]),
        select(vec![vec![19, 4, 0, 0], vec![253, 2], vec![8, 10, 0, 0, 0, 1, 0, 0, 0, 2], vec![8, 2]]),
        select(vec![vec![0], vec![2, 3, 1], vec![9, 40, 1]]),
    ];
    vec(one, 0..5).prop_map(|options| {
        let mut bytes = options.concat();
        bytes.truncate(40);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    })
}

fn literal() -> impl Strategy<Value = Vec<u8>> {
    vec(select(vec![1u8, 2, 3]), 1..4)
}

fn packet() -> impl Strategy<Value = Packet> {
    let port = || select(vec![0u16, 53, 79, 80, 81, 443, 1023, 1024, 65535]);
    let address = || select(vec![0u8, 1, 2, 127, 128, 255]);
    let net = (address(), address(), any::<bool>(), select(vec![0u8, 1, 63, 64]), any::<bool>());
    let net = net.prop_map(|(a, b, six, ttl, extra)| -> Net {
        if six {
            let extension = Extension::Plain { number: 60, body: vec![0; 6] };
            let ip =
                Ip6 { hop_limit: ttl, ..Ip6::new([0x2001, 0, 0, 0, 0, 0, 0, a.into()], [u16::from(b); 8]) };
            ip.with(if extra { vec![extension] } else { vec![] }).into()
        } else {
            let options = if extra { vec![1; 4] } else { vec![] };
            let flags = u8::from(extra) << 1;
            Ip4 { ttl, options, flags, tos: b, ..Ip4::new([10, 0, 0, a], [192, 168, b, 1]) }.into()
        }
    });
    let transport = (port(), port(), 0..4u8, any::<u8>(), options());
    let transport = transport.prop_map(|(sport, dport, which, byte, options)| -> Transport {
        match which {
            0 => Udp::new(sport, dport).into(),
            1 => Icmp::new(byte).into(),
            _ => Tcp { flags: byte, window: dport, options, ..Tcp::new(sport, dport) }.into(),
        }
    });
    (net, transport, vec(select(vec![1u8, 2, 3]), 0..8)).prop_map(|(net, transport, payload)| {
        let frame = Frame::new(net, transport).payload(payload).build();
        let (mut meta, mut window) = (Meta::default(), Window::default());
        parse(&frame, frame.len(), &mut meta).expect("a good frame");
        fill_window(&frame, &meta, 7, 8, 0xff, &mut window);
        Packet { frame, meta, window }
    })
}

fn value(field: FieldId) -> BoxedStrategy<Value> {
    let def = field.def();
    match def.kind {
        ValueKind::Bytes { .. } => literal().prop_map(|bytes| Value::Bytes(bytes.into())).boxed(),
        ValueKind::Ip4 => {
            (select(vec![[10u8, 0], [192, 168]]), 0u8..3, select(vec![0u8, 1, 128, 255]), 0u8..=32)
                .prop_map(|([a, b], c, d, len)| subnet(IpAddr::from([a, b, c, d]), len))
                .boxed()
        }
        ValueKind::Ip6 => (select(vec![0u8, 1, 2, 127, 128, 255]), 0u8..=128)
            .prop_map(|(last, len)| subnet(IpAddr::from([0x2001, 0, 0, 0, 0, 0, 0, u16::from(last)]), len))
            .boxed(),
        ValueKind::EtherType => select(vec![0x0800u64, 0x86dd]).prop_map(Value::Int).boxed(),
        ValueKind::Interface => select(vec!["lan", "wan"]).prop_map(|name| Value::Iface(name.into())).boxed(),
        _ => {
            let max = def.max_int();
            let usual =
                [0, 1, 2, 4, 5, 6, 17, 30, 53, 63, 64, 79, 80, 81, 443, 1023, 1024, 1460, 65535, 1 << 32 | 2];
            let fits = usual.into_iter().filter(|n| *n <= max).chain([max]).collect::<Vec<_>>();
            select(fits).prop_map(Value::Int).boxed()
        }
    }
}

fn subnet(addr: IpAddr, len: u8) -> Value {
    let addr = match addr {
        IpAddr::V4(a) => IpAddr::from(
            (u32::from(a) & u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)).to_be_bytes(),
        ),
        IpAddr::V6(a) => IpAddr::from(
            (u128::from(a) & u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)).to_be_bytes(),
        ),
    };
    Value::Prefix { addr, len }
}

fn number(value: &Value) -> u128 {
    match value {
        Value::Int(n) => (*n).into(),
        Value::Prefix { addr: IpAddr::V4(a), .. } => u32::from(*a).into(),
        Value::Prefix { addr: IpAddr::V6(a), .. } => (*a).into(),
        Value::Iface(name) => {
            if &*name.text == "lan" {
                7
            } else {
                9
            }
        }
        _ => panic!("no number"),
    }
}

/// One value or range.
fn item(field: FieldId) -> BoxedStrategy<ValueItem> {
    let one = value(field).prop_map(ValueItem::Single);
    if matches!(field.def().kind, ValueKind::Bytes { .. } | ValueKind::Interface | ValueKind::EtherType) {
        return one.boxed();
    }
    let whole = |value| match value {
        Value::Prefix { addr, .. } => Value::address(addr),
        other => other,
    };
    let range = (value(field), value(field)).prop_map(move |(a, b)| {
        let (a, b) = (whole(a), whole(b));
        let (low, high) = if number(&a) <= number(&b) { (a, b) } else { (b, a) };
        ValueItem::Range(Box::new([low, high]))
    });
    prop_oneof![3 => one, 2 => range].boxed()
}

/// Text of a match of any field with its meaning; the parser of the language makes the rule.
fn one_match() -> impl Strategy<Value = Match> {
    let favourites = [
        FieldId::TcpDport,
        FieldId::TcpOpt,
        FieldId::TcpOptMss,
        FieldId::TcpPayload,
        FieldId::NetProto,
        FieldId::IpSaddr,
    ];
    let fields: Vec<FieldId> =
        FIELDS.iter().map(|def| def.id).chain(favourites.into_iter().cycle().take(60)).collect();
    (select(fields), any::<bool>()).prop_flat_map(|(field, negated)| {
        let kind = field.def().kind;
        let valueless = matches!(kind, ValueKind::Presence | ValueKind::Shorthand(_));
        let alone = !matches!(kind, ValueKind::Interface | ValueKind::EtherType);
        let negate = move |one: Match| if negated { one.negate() } else { one };
        let nothing = Just(MatchExpr::Field { field, arg: None }).prop_map(move |what| negate(what.into()));
        if valueless {
            return nothing.boxed();
        }
        let bytes = matches!(kind, ValueKind::Bytes { .. });
        let ordered = !bytes && alone;
        let mut conds = vec![Cond::Eq, Cond::Ne];
        if bytes {
            conds.push(Cond::Contains);
        }
        let set =
            (select(conds), vec(item(field), 1..4)).prop_map(move |(cond, items)| text(field, cond, &items));
        let orders = vec![Cond::Lt, Cond::Le, Cond::Gt, Cond::Ge];
        let order = (select(orders), value(field)).prop_map(move |(cond, value)| {
            let value = match value {
                Value::Prefix { addr, .. } => Value::address(addr),
                other => other,
            };
            text(field, cond, &[ValueItem::Single(value)])
        });
        let with = if ordered { prop_oneof![set, order].boxed() } else { set.boxed() };
        let with = with.prop_map(negate);
        if alone { prop_oneof![4 => with, 1 => nothing].boxed() } else { with.boxed() }
    })
}

/// Built independently of the parser.
fn text(field: FieldId, cond: Cond, items: &[ValueItem]) -> Match {
    let values = mmb_lang::ValueSet::new(items.to_vec()).expect("not empty");
    let arg = mmb_lang::Comparison { cond, values, span: Default::default() };
    MatchExpr::Field { field, arg: Some(arg) }.into()
}

/// Whether a match holds, by the language's definition.
fn holds(one: &Match, packet: &Packet) -> bool {
    let MatchExpr::Field { field, arg } = &one.what else { return !one.negated };
    let answer = match field.def().kind {
        ValueKind::Bytes { .. } => bytes_of(*field, packet).is_some_and(|bytes| match arg {
            None => true,
            Some(arg) => {
                let fits = |item: &ValueItem| match item {
                    ValueItem::Single(Value::Bytes(literal)) => match arg.cond {
                        Cond::Contains => bytes.windows(literal.len()).any(|part| part == &**literal),
                        _ if is_payload(*field) => bytes.starts_with(literal),
                        _ => bytes == **literal,
                    },
                    _ => false,
                };
                arg.values.iter().any(fits) != (arg.cond == Cond::Ne)
            }
        }),
        _ if *field == FieldId::TcpOpt => {
            let kinds: Vec<u128> = tcp_options(&packet.frame, &packet.meta).map(|o| o.kind.into()).collect();
            match arg {
                None => !kinds.is_empty(),
                Some(arg) if arg.cond == Cond::Ne => {
                    !kinds.is_empty() && kinds.iter().all(|kind| compare(Cond::Ne, &arg.values, *kind, 8))
                }
                Some(arg) => kinds.iter().any(|kind| compare(arg.cond, &arg.values, *kind, 8)),
            }
        }
        kind => match (arg, read(*field, packet, arg.is_some()), kind) {
            (_, None, _) => false,
            (Some(arg), Some(value), _) => {
                compare(arg.cond, &arg.values, value, field.def().width_bits.into())
            }
            (None, Some(value), ValueKind::Flag) => value == 1,
            (None, Some(value), ValueKind::Shorthand(codepoint)) => value == codepoint.into(),
            (None, Some(_), _) => true,
        },
    };
    answer != one.negated
}

fn is_payload(field: FieldId) -> bool {
    field.name().ends_with("-payload")
}

fn bytes_of(field: FieldId, packet: &Packet) -> Option<Vec<u8>> {
    let which = match field.name() {
        "ip-payload" => PayloadLayer::Ip,
        "ip6-payload" => PayloadLayer::Ip6,
        "icmp-payload" => PayloadLayer::Icmp,
        "icmp6-payload" => PayloadLayer::Icmp6,
        "udp-payload" => PayloadLayer::Udp,
        "tcp-payload" => PayloadLayer::Tcp,
        option => {
            let kind = match option {
                "tcp-opt-sack" => 5,
                "tcp-opt-fast-open" => 34,
                _ => 30,
            };
            let found = tcp_options(&packet.frame, &packet.meta).filter(|option| option.kind == kind).last();
            return found.map(|option| option.data.to_vec());
        }
    };
    payload(&packet.frame, &packet.meta, which).map(<[u8]>::to_vec)
}

/// Bit by bit from the window.
fn read(field: FieldId, packet: &Packet, valued: bool) -> Option<u128> {
    let def = field.def();
    if field == FieldId::NetProto {
        return Some(if packet.meta.kind.l3() == Kind::IP4 { 0x0800 } else { 0x86dd });
    }
    let loc: Loc = def.loc.expect("in the window");
    let (byte, mask, value) = if valued { loc.valued() } else { loc.present() };
    let bytes = packet.window.bytes();
    if bytes[byte] & mask != value {
        return None;
    }
    let bits = loc.window_bit()..loc.window_bit() + usize::from(def.width_bits);
    Some(bits.fold(0, |value, bit| value << 1 | u128::from(bytes[bit / 8] >> (7 - bit % 8) & 1)))
}

fn compare(cond: Cond, values: &[ValueItem], field: u128, width: u32) -> bool {
    let fits = |item: &ValueItem| match item {
        ValueItem::Single(value) => {
            let ignored = if let Value::Prefix { len, .. } = value { width - u32::from(*len) } else { 0 };
            (number(value) ^ field).checked_shr(ignored).unwrap_or(0) == 0
        }
        ValueItem::Range(ends) => (number(&ends[0])..=number(&ends[1])).contains(&field),
    };
    let one = || match &values[0] {
        ValueItem::Single(value) => number(value),
        ValueItem::Range(_) => panic!("an order condition has no range"),
    };
    match cond {
        Cond::Eq => values.iter().any(fits),
        Cond::Ne => !values.iter().any(fits),
        Cond::Lt => field < one(),
        Cond::Le => field <= one(),
        Cond::Gt => field > one(),
        Cond::Ge => field >= one(),
        Cond::Contains => panic!("numbers contain nothing"),
    }
}

fn rule(matches: Vec<Match>) -> Rule {
    Rule {
        kind: mmb_lang::RuleKind::Add,
        matches,
        targets: vec![mmb_lang::Action::Accept.into()],
        label: None,
        span: Default::default(),
    }
}

fn compile(matches: Vec<Match>) -> Option<Pattern> {
    let port = |name: &str| if name == "lan" { Some(7) } else { Some(9) };
    Pattern::compile(&rule(matches), &port).ok()
}

/// Whether a predicate is true, evaluated on the bytes.
fn is_true(ask: &Predicate, packet: &Packet) -> bool {
    match ask {
        Predicate::OptionKind(kinds) => {
            tcp_options(&packet.frame, &packet.meta).any(|o| kinds.contains(o.kind))
        }
        Predicate::Exists(which) => payload(&packet.frame, &packet.meta, *which).is_some(),
        Predicate::Bytes { source, relation, literals } => {
            let bytes = match source {
                ByteSource::Payload(which) => {
                    payload(&packet.frame, &packet.meta, *which).map(<[u8]>::to_vec)
                }
                ByteSource::Option(option) => tcp_options(&packet.frame, &packet.meta)
                    .filter(|o| o.kind == option.kind())
                    .last()
                    .map(|o| o.data.to_vec()),
            };
            bytes.is_some_and(|bytes| {
                literals.iter().any(|literal| match relation {
                    Relation::Starts => bytes.starts_with(literal),
                    Relation::Equals => bytes == **literal,
                    Relation::Contains => bytes.windows(literal.len()).any(|part| part == &**literal),
                })
            })
        }
        Predicate::Member { .. } | Predicate::Present(_) => panic!("no rule of these tests names a set"),
    }
}

fn facts(pattern: &Pattern, packet: &Packet) -> Vec<u32> {
    (0..).zip(pattern.predicates()).filter(|(_, ask)| is_true(ask, packet)).map(|(id, _)| id).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Exactly one entry holds if all matches do, and none otherwise. A rule that is refused matches no
    /// packet.
    #[test]
    fn entries_hold_where_the_matches_do(matches in vec(one_match(), 1..5), packets in vec(packet(), 1..16)) {
        let compiled = compile(matches.clone());
        for packet in &packets {
            let expected = matches.iter().all(|one| holds(one, packet));
            let Some(pattern) = &compiled else {
                prop_assert!(!expected, "refused");
                continue;
            };
            let facts = facts(pattern, packet);
            let found = pattern.entries().iter().filter(|e| e.holds(&packet.window, TruePredicates::new(&facts)));
            prop_assert_eq!(found.count(), usize::from(expected), "{:?}", pattern);
        }
    }

    /// A single match is never refused without reason, and its negation is its complement.
    #[test]
    fn a_match_or_its_negation(one in one_match(), packets in vec(packet(), 1..16)) {
        let patterns = [compile(vec![one.clone()]), compile(vec![one.negate()])];
        for packet in &packets {
            let found = |pattern: &Option<Pattern>| pattern.as_ref().map_or(0, |pattern| {
                let facts = facts(pattern, packet);
                pattern.entries().iter().filter(|e| e.holds(&packet.window, TruePredicates::new(&facts))).count()
            });
            prop_assert_eq!(patterns.iter().map(found).sum::<usize>(), 1);
        }
    }

    /// Interned predicates are found by inspection exactly where they are true, after any insertions and
    /// removals.
    #[test]
    fn predicates_are_found(steps in vec((vec(one_match(), 1..4), any::<bool>(), any::<u16>(), 0u8..16), 1..40),
                            packets in vec(packet(), 1..8)) {
        let mut predicates = PredicateSet::default();
        let mut model: BTreeMap<usize, (Pattern, Vec<Entry>)> = BTreeMap::new();
        let mut past = Vec::new();
        for (n, (matches, remove, choice, what)) in steps.into_iter().enumerate() {
            if what == 0 {
                past.push((predicates.clone(), model.clone()));
            }
            if what == 1 {
                predicates = predicates.rebuilt();
            }
            if remove && !model.is_empty() {
                let victim = *model.keys().nth(usize::from(choice) % model.len()).unwrap();
                let (pattern, entries) = model.remove(&victim).unwrap();
                prop_assert_eq!(&predicates.known(&pattern), &entries);
                predicates.release(entries.iter().flat_map(Entry::predicates));
            } else if let Some(pattern) = compile(matches) {
                let entries = predicates.intern(&pattern);
                model.insert(n, (pattern, entries));
            }
        }
        past.push((predicates, model));
        let mut results = PredicateResults::default();
        for (predicates, model) in past {
            let mut asked: Vec<u32> = model.values().flat_map(|(_, e)| e.iter().flat_map(Entry::predicates)).collect();
            asked.sort();
            asked.dedup();
            prop_assert_eq!(predicates.len(), asked.len());
            prop_assert_eq!(predicates.needs_bytes(), !asked.is_empty());
            results.clear();
            for (pkt, packet) in packets.iter().enumerate() {
                predicates.inspect(pkt, &packet.frame, &packet.meta, &mut results);
            }
            for (pkt, packet) in packets.iter().enumerate() {
                let expected: Vec<u32> =
                    asked.iter().copied().filter(|id| is_true(predicates.predicate(*id).unwrap(), packet)).collect();
                prop_assert!(expected.is_empty() || predicates.needs_inspection(&packet.window));
                prop_assert_eq!(results.of_packet(pkt).iter().collect::<Vec<_>>(), expected);
                for (pattern, entries) in model.values() {
                    let own = facts(pattern, packet);
                    for (local, global) in pattern.entries().iter().zip(entries) {
                        let global_holds = global.holds(&packet.window, results.of_packet(pkt));
                        prop_assert_eq!(local.holds(&packet.window, TruePredicates::new(&own)), global_holds);
                    }
                }
            }
        }
    }
}
