//! The graph against the oracle: random rules and frames through files, sources, nodes and sinks.

mod common;

use std::collections::BTreeMap;

use common::{LEFT, RIGHT, forwarding};
use mmb_dataplane::{AddressChecks, Forwarding, Policy};
use mmb_lang::{Action, Command, ErrorPolicy, Rule, Target, parse_line};
use mmb_oracle::{Settings, Verdict, evaluate_with, generate};
use mmb_packet::build;
use mmb_simulate::capture::Frame;
use mmb_simulate::replay::ReplayReport;
use proptest::prelude::*;

fn replay(rules: &[Rule], on_error: ErrorPolicy, frames: &[Vec<u8>]) -> (ReplayReport, Vec<Frame>) {
    let frames: Vec<_> = (1_000..).zip(frames.iter().cloned()).collect();
    // The oracle knows only rules.
    let address_checks = AddressChecks { martians: false, ..AddressChecks::default() };
    common::replay(Forwarding { on_error, address_checks, ..forwarding(rules) }, &frames)
}

/// Compares the frames that left with the oracle; time stamps identify them.
fn check(rules: &[Rule], on_error: ErrorPolicy, frames: &[Vec<u8>]) {
    let (report, out) = replay(rules, on_error, frames);
    let settings = Settings { on_error, ..Settings::default() };
    let numbered = generate::numbered(rules);
    // Dropped by a rule with a probability, otherwise for this reason.
    let mut by_chance = Vec::new();
    let mut out = out.into_iter().peekable();
    let (mut drops, mut unedited): (BTreeMap<&str, u64>, BTreeMap<&str, u64>) = Default::default();
    for (i, frame) in frames.iter().enumerate() {
        let expected = evaluate_with(&settings, &numbered, &generate::port, LEFT, RIGHT, frame);
        let left = out.next_if(|frame| frame.time_ns == 1_000 + i as u64);
        match (expected.verdict, left) {
            // Without rules a wire forwards every frame.
            (Verdict::Drop(_), Some(left)) if rules.is_empty() => assert_eq!(left.data, *frame),
            (Verdict::Drop(reason), None) => *drops.entry(reason.name()).or_default() += 1,
            (Verdict::MayDrop, None) if on_error == ErrorPolicy::Drop && expected.refused.is_some() => {
                by_chance.extend(expected.refused);
            }
            (Verdict::MayDrop, None) => *drops.entry("rule").or_default() += 1,
            (Verdict::Pass | Verdict::MayDrop, Some(left)) => {
                if let Some(reason) = expected.refused {
                    assert_eq!(on_error, ErrorPolicy::Forward);
                    *unedited.entry(reason.name()).or_default() += 1;
                }
                expected
                    .check_bytes(&left.data)
                    .unwrap_or_else(|why| panic!("frame {i}: {why}: {frame:02x?}"));
            }
            (verdict, left) => panic!("frame {i}: {verdict:?}, but {left:?}: {frame:02x?}"),
        }
    }
    assert_eq!(out.next(), None, "more frames than came in, or out of order");
    for reason in by_chance {
        let spared = report.drops.get(reason.name()) > drops.get(reason.name());
        *drops.entry(if spared { reason.name() } else { "rule" }).or_default() += 1;
    }
    assert_eq!(report.drops, drops);
    assert_eq!(report.unedited, unedited);
    assert_eq!(report.packets, frames.len() as u64);
    assert_eq!(report.forwarded + report.dropped, report.packets);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_graph_agrees_with_the_oracle(
        rules in generate::rules(20),
        drop in any::<bool>(),
        frames in proptest::collection::vec(generate::frames(40), 12),
    ) {
        let frames: Vec<Vec<u8>> = frames.iter().flatten().map(|f| f.to_vec()).filter(|f| !f.is_empty()).collect();
        prop_assume!(!frames.is_empty());
        // The compiler finds contradictions that the language's check does not find. With a rule that
        // rejects or logs, fragments follow the first one of their datagram: the oracle takes each alone.
        let rules: Vec<Rule> = rules
            .into_iter()
            .filter(|rule| Policy::new().add(rule, &generate::port).is_ok())
            .filter(|rule| {
                let follows = |target: &Target| matches!(target.action, Action::Reject | Action::Log { .. });
                !rule.targets.iter().any(follows)
            })
            .collect();
        check(&rules, if drop { ErrorPolicy::Drop } else { ErrorPolicy::Forward }, &frames);
    }
}

fn rule(line: &str) -> Rule {
    match parse_line(line) {
        Ok(Some(Command::Add(rule))) => rule,
        other => panic!("{line}: {other:?}"),
    }
}

/// Long datagrams that end with `needle`.
fn long_frames() -> Vec<Vec<u8>> {
    let ends = |len: usize| {
        let payload: Vec<u8> = (0..len).map(|i| i as u8 % 97).chain(*b"needle").collect();
        build::Frame::new(build::Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), build::Udp::new(9, 53))
            .payload(payload)
            .build()
    };
    [100, 1_500, 2_040, 2_100, 9_000, 60_000].map(ends).into()
}

#[test]
fn frames_of_several_buffers_are_rewritten_and_kept_whole() {
    check(&[rule("add udp-dport 53 mod udp-dport 5353")], ErrorPolicy::Forward, &long_frames());
}

#[test]
fn bytes_are_found_in_any_buffer() {
    let rules =
        ["add udp-payload contains \"needle\" mod ip-ttl 7", "add udp-payload contains \"none\" drop"];
    let (report, _) = replay(&rules.map(rule), ErrorPolicy::Forward, &long_frames());
    assert_eq!(report.rules.iter().map(|(slot, count)| (*slot, count.packets)).collect::<Vec<_>>(), [(0, 6)]);
    check(&rules.map(rule), ErrorPolicy::Forward, &long_frames());
}

#[test]
fn edits_that_cannot_be_made_are_counted() {
    let options = [&[253, 36][..], &[0; 34]].concat();
    let tcp = build::Tcp { options, ..build::Tcp::new(9, 80) };
    let full = build::Frame::new(build::Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), tcp).build();
    let rules = [rule("add tcp-dport 80 mod ip-ttl 3 add tcp-opt-timestamp 5")];
    let frames = vec![full.clone(), full.clone()];
    let (report, out) = replay(&rules, ErrorPolicy::Forward, &frames);
    assert_eq!(
        (report.unedited.into_iter().collect::<Vec<_>>(), report.drops.len()),
        (vec![("option-space", 2)], 0)
    );
    assert!(out.iter().all(|frame| frame.data == full));
    let (report, out) = replay(&rules, ErrorPolicy::Drop, &frames);
    assert_eq!(
        (report.unedited.len(), report.drops.into_iter().collect::<Vec<_>>()),
        (0, vec![("option-space", 2)])
    );
    assert!(out.is_empty());
}
