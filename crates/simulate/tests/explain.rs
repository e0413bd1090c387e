//! `mmb explain` against the oracle, and what it tells about sessions, edits and functions.

use std::sync::{Mutex, PoisonError};

use mmb_dataplane::{
    AddressChecks, DEFAULT_SCRATCHPAD, DEFAULT_SESSIONS, Forwarding, PacketTrace, Policy, PortConfig, PortId,
    TraceEnd,
};
use mmb_lang::{Action, Command, Rule, Target, parse_line};
use mmb_oracle::{Verdict, evaluate, generate};
use mmb_packet::DropReason;
use mmb_packet::build::{self, Ip4, Tcp, Udp};
use mmb_simulate::capture::{Frame, Writer};
use mmb_simulate::explain;
use mmb_simulate::replay::ReplayConfig;
use proptest::collection::vec;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

const LEFT: u16 = 0;
const RIGHT: u16 = 1;

/// DPDK runs once per process, and the tests of a file are threads of one process.
static ALONE: Mutex<()> = Mutex::new(());

/// A configuration with these rules between the ends of a wire.
fn forwarding(rules: &[Rule]) -> Forwarding {
    let mut policy = Policy::new();
    for rule in rules {
        policy.add(rule, &generate::port).expect("sound rules");
    }
    let wire = |id, peer| PortConfig::wire(PortId(id), PortId(peer));
    Forwarding { policy, ports: vec![wire(LEFT, RIGHT), wire(RIGHT, LEFT)], ..Forwarding::default() }
}

/// Explains frames that arrive at the left port, one millisecond apart.
fn explain(forwarding: Forwarding, frames: &[Vec<u8>], only: Option<u64>) -> Vec<PacketTrace> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().expect("tempdir");
    let input = dir.path().join("in.pcap");
    let mut writer = Writer::create(&input).expect("create");
    for (at, data) in frames.iter().enumerate() {
        let time_ns = 1_000_000 * (1 + at as u64);
        writer.write(&Frame { time_ns, data: data.clone(), missing: 0 }).expect("write");
    }
    writer.finish().expect("finish");
    let (sessions, scratchpad) = (DEFAULT_SESSIONS, DEFAULT_SCRATCHPAD);
    let config =
        ReplayConfig { forwarding, in_port: PortId(LEFT), interfaces: Vec::new(), sessions, scratchpad };
    let mut traces = Vec::new();
    let report = explain::run(&config, &input, only, |trace| {
        traces.push(trace);
        true
    });
    assert_eq!(report.expect("explain").damage, None);
    traces
}

fn rule(line: &str) -> Rule {
    match parse_line(line) {
        Ok(Some(Command::Add(rule))) => rule,
        other => panic!("{other:?}"),
    }
}

/// Compares rules that match, decider and end of each packet with the oracle.
fn check(rules: &[Rule], frames: &[Vec<u8>]) {
    // The oracle knows only rules.
    let address_checks = AddressChecks { martians: false, ..AddressChecks::default() };
    let traces = explain(Forwarding { address_checks, ..forwarding(rules) }, frames, None);
    assert_eq!(traces.len(), frames.len());
    let numbered = generate::numbered(rules);
    for (number, (frame, trace)) in (1..).zip(frames.iter().zip(&traces)) {
        assert_eq!(trace.number, number);
        assert_eq!(trace.steps[0].head, *frame, "the packet as it came in");
        let expected = evaluate(&numbered, &generate::port, LEFT, RIGHT, frame);
        let applied = trace.rules.clone().unwrap_or_default();
        let at = || format!("packet {number}: {frame:02x?}: {trace:?}");
        match (expected.verdict, trace.end) {
            // Without rules a wire forwards every frame.
            (Verdict::Drop(_), TraceEnd::Sent(_)) if rules.is_empty() => continue,
            (Verdict::Drop(reason), end) => assert_eq!(end, TraceEnd::Dropped(reason), "{}", at()),
            (Verdict::MayDrop, TraceEnd::Dropped(DropReason::Rule)) => {
                let decider = applied.decider.expect("the rule that drops");
                assert!(expected.matched.contains(&decider), "{}", at());
                continue;
            }
            (Verdict::Pass | Verdict::MayDrop, end) => {
                assert_eq!(end, TraceEnd::Sent(PortId(expected.out_port)), "{}", at());
            }
        }
        assert_eq!(applied.matched, expected.matched, "{}", at());
        assert_eq!(applied.decider, expected.decider, "{}", at());
    }
}

#[test]
fn the_decider_of_ten_thousand_packets_is_the_oracles() {
    let mut runner = TestRunner::deterministic();
    let case = (generate::rules(20), vec(generate::frames(40), 24));
    let mut packets = 0;
    while packets < 10_000 {
        let (rules, frames) = case.new_tree(&mut runner).expect("a case").current();
        // With a rule that rejects or logs, fragments wait for the first one of their datagram.
        let waits = |target: &Target| matches!(target.action, Action::Reject | Action::Log { .. });
        let sound =
            |rule: &Rule| Policy::new().add(rule, &generate::port).is_ok() && !rule.targets.iter().any(waits);
        let rules: Vec<Rule> = rules.into_iter().filter(sound).collect();
        let frames = frames.iter().flatten().map(|frame| frame.to_vec());
        let frames: Vec<Vec<u8>> = frames.filter(|frame| !frame.is_empty()).collect();
        check(&rules, &frames);
        packets += frames.len();
    }
}

fn udp(sport: u16) -> Vec<u8> {
    build::Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Udp::new(sport, 53)).payload(*b"evil").build()
}

fn nodes(trace: &PacketTrace) -> Vec<&'static str> {
    trace.steps.iter().map(|step| step.node).collect()
}

#[test]
fn sessions_are_opened_and_found() {
    let rules = [rule("add-stateful ip-proto udp accept"), rule("add all drop")];
    let traces = explain(forwarding(&rules), &[udp(1), udp(1), udp(2)], None);
    let news: Vec<_> = traces.iter().map(|trace| trace.session.as_ref().expect("a session").is_new).collect();
    assert_eq!(news, [true, false, true]);
    for trace in &traces {
        let session = trace.session.as_ref().expect("a session");
        assert_eq!(session.view.rules, [1]);
        let applied = trace.rules.as_ref().expect("rules");
        assert_eq!((applied.matched.as_slice(), applied.decider), (&[1, 2][..], Some(1)));
        assert_eq!(trace.end, TraceEnd::Sent(PortId(RIGHT)));
    }
    assert!(nodes(&traces[0]).contains(&"flow-track"));
    assert!(nodes(&traces[1]).contains(&"flow-lookup") && !nodes(&traces[1]).contains(&"flow-track"));
    let times: Vec<_> = traces.iter().map(|trace| trace.time_ns).collect();
    assert_eq!(times, [1_000_000, 2_000_000, 3_000_000]);
}

#[test]
fn packets_of_several_sessions_have_their_own() {
    let rules = [rule("add-stateful ip-proto udp accept"), rule("add all drop")];
    let frames: Vec<_> = [1, 2, 1, 2, 2, 3].map(udp).to_vec();
    let traces = explain(forwarding(&rules), &frames, None);
    let sessions: Vec<_> = traces.iter().map(|trace| trace.session.as_ref().expect("a session")).collect();
    let ports: Vec<_> = sessions.iter().map(|s| u16::from_be_bytes(s.view.original.source_port)).collect();
    assert_eq!(ports, [1, 2, 1, 2, 2, 3]);
    let news: Vec<_> = sessions.iter().map(|session| session.is_new).collect();
    assert_eq!(news, [true, true, false, false, false, true]);
}

#[test]
fn one_packet_is_explained_behind_those_before_it() {
    let rules = [rule("add-stateful ip-proto udp accept"), rule("add all drop")];
    let frames = [udp(1), udp(1), udp(2)];
    let traces = explain(forwarding(&rules), &frames, Some(2));
    assert_eq!(traces.len(), 1);
    assert_eq!(
        (traces[0].number, traces[0].session.as_ref().map(|session| session.is_new)),
        (2, Some(false))
    );
    assert!(explain(forwarding(&rules), &frames, Some(4)).is_empty());
}

#[test]
fn edits_and_drops_are_seen_where_they_happen() {
    let syn = |dport| build::Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Tcp::new(1, dport)).build();
    let rules = [rule("add tcp-dport 80 mod tcp-dport 8080"), rule("add tcp-dport 81 drop")];
    let traces = explain(forwarding(&rules), &[syn(80), syn(81), vec![0; 20]], None);
    let dport = |step: usize| traces[0].steps[step].head[36..38].to_vec();
    let rewrite = nodes(&traces[0]).iter().position(|node| *node == "rewrite").expect("rewrite");
    assert_eq!((dport(rewrite), dport(rewrite + 1)), (vec![0, 80], vec![0x1f, 0x90]));
    assert_eq!(traces[1].end, TraceEnd::Dropped(DropReason::Rule));
    assert_eq!(nodes(&traces[1]).last(), Some(&"drop"));
    assert_eq!((&traces[2].rules, traces[2].end), (&None, TraceEnd::Sent(PortId(RIGHT))));
}
