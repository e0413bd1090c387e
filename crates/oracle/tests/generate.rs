//! The generators produce what they document, often enough to be useful.

use std::collections::BTreeSet;

use mmb_lang::{Action, ErrorPolicy, FIELDS, MatchExpr, Rule, Support, ValueItem, ValueKind};
use mmb_oracle::generate::{self, ByteChoices};
use mmb_oracle::{Settings, Verdict, evaluate, evaluate_with};
use mmb_packet::{DropReason, Kind, Meta, PacketFlags, Window, parse};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// Draws from a strategy with a fixed seed.
fn draws<T: std::fmt::Debug>(strategy: impl Strategy<Value = T>, n: usize) -> Vec<T> {
    let mut runner = TestRunner::deterministic();
    (0..n).map(|_| strategy.new_tree(&mut runner).expect("no strategy here rejects").current()).collect()
}

#[test]
fn rules_match_frames() {
    let (mut decided, mut edited, mut hits, mut total) = (0, 0, 0, 0);
    for (rules, frames) in draws((generate::rules(8), generate::frames(8)), 1_000) {
        for frame in &frames {
            let outcome = evaluate(&generate::numbered(&rules), &generate::port, 0, 1, frame);
            total += 1;
            hits += outcome.matched.len();
            decided += usize::from(outcome.verdict != Verdict::Pass);
            edited += usize::from(outcome.bytes != frame.0);
        }
    }
    assert!(
        hits * 2 > total && decided * 10 > total && edited * 10 > total,
        "{hits} {decided} {edited} {total}"
    );
}

/// Every target and every field of bindings occurs, and at least every second attempt succeeds.
#[test]
fn stateful_rules_of_every_kind() {
    let rules: Vec<Rule> = draws(generate::stateful_rules(20), 200).concat();
    assert!(rules.len() > 800, "{}", rules.len());
    let mut seen = BTreeSet::new();
    for action in rules.iter().flat_map(|rule| &rule.targets).map(|target| &target.action) {
        let line = action.to_string();
        let words = if matches!(action, Action::Map { .. } | Action::Shuffle { .. }) { 2 } else { 1 };
        seen.insert(line.split(' ').take(words).collect::<Vec<_>>().join(" "));
    }
    let given = FIELDS.iter().filter(|def| def.translate == Support::Yes);
    let mut expected: BTreeSet<String> =
        given.flat_map(|def| ["map", "shuffle"].map(|word| format!("{word} {}", def.name))).collect();
    let others =
        ["mod", "add", "strip", "drop", "accept", "block", "log", "reject", "lb", "nat", "chain", "broker"];
    expected.extend(others.map(str::to_owned));
    assert_eq!(seen, expected);
}

#[test]
fn most_rules_are_accepted() {
    let rules = draws(generate::unchecked_rule(), 2_000);
    let accepted = rules.iter().filter(|rule| mmb_lang::check(rule).is_ok()).count();
    assert!(accepted > 1_600, "{accepted} of 2000");
    let distinct: BTreeSet<_> = rules.iter().map(ToString::to_string).collect();
    assert!(distinct.len() > 1_500, "{} distinct of 2000", distinct.len());
}

/// Every field is matched and, if possible, written; all comparisons, ranges, sets and targets occur.
#[test]
fn the_whole_language_is_used() {
    let (mut asked, mut written, mut shapes) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for rule in draws(generate::rules(8), 2_000).iter().flatten() {
        for one in &rule.matches {
            let MatchExpr::Field { field, arg } = &one.what else { continue };
            asked.insert(*field);
            let Some(arg) = arg else { continue };
            let many = if arg.values.len() > 1 { "set" } else { "one" };
            let range = arg.values.iter().any(|item| matches!(item, ValueItem::Range(_)));
            let bytes = matches!(field.def().kind, ValueKind::Bytes { .. });
            shapes.insert(format!("{} {many} {range} {bytes}", arg.cond));
        }
        for target in &rule.targets {
            let shape = match &target.action {
                Action::Mod { field, .. } => {
                    written.insert(*field);
                    continue;
                }
                Action::Add { field, .. } => format!("add {field}"),
                Action::Strip { keep, field, kind } => format!("strip {keep} {field} {}", kind.is_some()),
                Action::Drop { ten_thousandths } => format!("drop {}", *ten_thousandths == 10_000),
                other => other.to_string(),
            };
            shapes.insert(shape);
        }
    }
    for def in &FIELDS {
        assert!(asked.contains(&def.id), "{} is never matched", def.name);
        let writes = def.modify == Support::Yes && !matches!(def.kind, ValueKind::Shorthand(_));
        assert_eq!(written.contains(&def.id), writes, "{}", def.name);
        for shape in ["add", "strip true", "strip false"].into_iter().filter(|_| def.is_option()) {
            let used = shapes.iter().any(|used| used.starts_with(&format!("{shape} {}", def.name)));
            assert!(used, "{shape} {}", def.name);
        }
    }
    for shape in ["< one false false", ">= one false false", "== one true false", "!= set true false"]
        .into_iter()
        .chain([
            "== set false true",
            "contains one false true",
            "contains set false true",
            "!= one false true",
        ])
        .chain([
            "strip all",
            "strip true tcp-opt true",
            "strip false tcp-opt false",
            "accept",
            "block",
            "drop false",
        ])
    {
        assert!(shapes.contains(shape), "{shape} in {shapes:?}");
    }
}

/// Options that do not fit, grow a fragment, or make a frame too long occur; valid option edits are far
/// more frequent.
#[test]
fn edits_of_options_fail_and_succeed() {
    let frame_max = |port| 120 - usize::from(port);
    let settings = Settings { on_error: ErrorPolicy::Drop, frame_max: &frame_max, ..Settings::default() };
    let (mut refused, mut resized, mut rewritten, mut dropped) = (BTreeSet::new(), 0, 0, 0);
    for (rules, frames) in draws((generate::rules(8), generate::frames(8)), 4_000) {
        for frame in &frames {
            let rules = generate::numbered(&rules);
            let outcome = evaluate_with(&settings, &rules, &generate::port, 0, 1, frame);
            refused.extend(outcome.refused);
            dropped += usize::from(outcome.refused.is_some_and(|why| outcome.verdict == Verdict::Drop(why)));
            resized += usize::from(outcome.bytes.len() != frame.len());
            let area = |bytes: &[u8]| {
                let mut meta = Meta::default();
                parse(bytes, bytes.len(), &mut meta).ok()?;
                Some(mmb_packet::tcp_options(bytes, &meta).area().to_vec())
            };
            rewritten += usize::from(area(&outcome.bytes) != area(frame));
        }
    }
    let all = [DropReason::OptionSpace, DropReason::OptionMtu, DropReason::OptionFragment];
    assert_eq!(refused, BTreeSet::from(all));
    assert!(resized > 400 && rewritten > resized + 50 && dropped > 100, "{resized} {rewritten} {dropped}");
}

/// Valid and invalid options and extension headers occur, and payloads.
#[test]
fn parts_vary() {
    let (mut kinds, mut headers) = (BTreeSet::new(), 0);
    let (mut twice, mut cut, mut literals, mut tcp) = (0, 0, 0, 0);
    for frame in draws(generate::frames(8), 2_000).iter().flatten() {
        let (mut meta, mut window) = (Meta::default(), Window::default());
        if parse(frame, frame.len(), &mut meta).is_err() {
            continue;
        }
        mmb_packet::fill_window(frame, &meta, 0, 1, 0xff, &mut window);
        let w = window.bytes();
        headers |= u16::from_be_bytes([w[94], w[95]]);
        let mut options = mmb_packet::tcp_options(frame, &meta);
        let seen: Vec<u8> = options.by_ref().map(|option| option.kind).collect();
        tcp += usize::from(meta.kind.l4() == Kind::TCP);
        twice += usize::from(seen.len() > seen.iter().collect::<BTreeSet<_>>().len());
        let rest = &options.area()[options.position()..];
        cut += usize::from(rest.iter().any(|&byte| byte > 1));
        kinds.extend(seen);
        let payload = mmb_packet::payload(frame, &meta, mmb_packet::PayloadLayer::Tcp);
        literals += usize::from(payload.is_some_and(|payload| payload.starts_with(b"G")));
    }
    assert!(kinds.is_superset(&BTreeSet::from([2, 3, 4, 5, 8, 19, 30, 34, 254])), "{kinds:?}");
    assert_eq!(headers, 0xffc0, "{headers:#x}");
    assert!(twice * 20 > tcp && cut * 20 > tcp && literals * 20 > tcp, "{twice} {cut} {literals} {tcp}");
}

/// Every combination of headers, every kind of fragment and every drop reason of the parser occurs.
#[test]
fn frames_vary() {
    let (mut kinds, mut fragments, mut reasons) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for frame in draws(generate::frames(8), 2_000).iter().flatten() {
        let mut meta = Meta::default();
        match parse(frame, frame.len(), &mut meta) {
            Ok(()) => {
                kinds.insert(meta.kind.0);
                fragments.insert((
                    meta.kind.l3(),
                    (meta.flags
                        & (PacketFlags::FRAGMENT | PacketFlags::LATER_FRAGMENT | PacketFlags::ROUTED))
                        .bits(),
                ));
            }
            Err(reason) => {
                reasons.insert(reason.name());
            }
        }
    }
    use Kind as K;
    for kind in [K::IP4 | K::TCP, K::IP4 | K::UDP, K::IP4 | K::ICMP, K::IP4, K::IP6 | K::TCP, K::IP6 | K::UDP]
    {
        assert!(kinds.contains(&kind), "{kind:#x} in {kinds:x?}");
    }
    assert!(kinds.contains(&(K::IP6 | K::ICMP6)) && kinds.contains(&K::IP6) && kinds.contains(&0));
    // IPv4: none, first, later; IPv6: those with and without a routing header.
    assert_eq!(fragments.iter().filter(|(l3, _)| *l3 == K::IP4).count(), 3);
    assert_eq!(fragments.iter().filter(|(l3, _)| *l3 == K::IP6).count(), 6);
    let network = ["ip4-malformed", "ip4-truncated", "ip6-malformed", "ip6-truncated"];
    let transport = ["l4-malformed", "l4-truncated", "tiny-fragment", "vlan-depth"];
    assert_eq!(reasons, network.into_iter().chain(transport).collect());
}

#[test]
fn empty_bytes_give_the_simplest_case() {
    let (rules, frames) = generate::case(&[]);
    assert!(rules.is_empty() && frames.is_empty());
    let frame = generate::frame(&mut ByteChoices::new(&[]));
    let mut meta = Meta::default();
    assert_eq!(parse(&frame, frame.len(), &mut meta), Ok(()));
    assert_eq!(meta.kind, Kind(Kind::IP4 | Kind::TCP));
    assert_eq!(frame.len(), 14 + 20 + 20);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// No frame matches a rule that [`mmb_lang::check`] calls a contradiction.
    #[test]
    fn refused_rules_do_nothing(rule in generate::unchecked_rule(), frames in generate::frames(12)) {
        if let Err(refusal) = mmb_lang::check(&rule) {
            let impossible =
                refusal.message.starts_with("no packet matches") || refusal.message.ends_with("never holds");
            for frame in frames.iter().filter(|_| impossible) {
                let outcome = evaluate(&[(1, rule.clone())], &generate::port, 0, 1, frame);
                prop_assert!(outcome.matched.is_empty(), "{} matches although {}", rule, refusal.message);
            }
        }
    }

    /// The text of a rule parses to the same rule.
    #[test]
    fn rules_are_text(rules in generate::rules(4)) {
        for rule in rules {
            let command = mmb_lang::parse_line(&rule.to_string());
            prop_assert_eq!(command, Ok(Some(mmb_lang::Command::Add(rule))));
        }
    }

    #[test]
    fn any_bytes_make_a_case(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        let (rules, frames) = generate::case(&bytes);
        let rules = generate::numbered(&rules);
        for frame in frames.iter().map(|frame| &**frame).chain([&bytes[..]]) {
            let outcome = evaluate(&rules, &generate::port, 0, 1, frame);
            prop_assert!(outcome.bytes.len().abs_diff(frame.len()) <= 40);
            prop_assert_eq!(outcome.bytes.len() % 4, frame.len() % 4);
            let readable = |frame: &[u8]| parse(frame, frame.len(), &mut Meta::default());
            prop_assert_eq!(readable(&outcome.bytes), readable(frame));
            prop_assert!(frame.len() < 1_500 || frame.len() == bytes.len());
        }
    }
}
