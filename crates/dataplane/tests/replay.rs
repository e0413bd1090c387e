//! The graph against the oracle: random rules and frames, through files, sources, nodes and sinks.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use mmb_dataplane::replay::capture::{End, Frame, Reader, Writer};
use mmb_dataplane::replay::{ReplayConfig, ReplayReport, run};
use mmb_dataplane::{Forwarding, Policy, PortConfig, PortId};
use mmb_lang::{Command, Rule, parse_line};
use mmb_oracle::{Verdict, evaluate, generate};
use mmb_packet::build;
use proptest::prelude::*;

const LEFT: u16 = 0;
const RIGHT: u16 = 1;

fn forwarding(rules: &[Rule]) -> Forwarding {
    let mut policy = Policy::new();
    for rule in rules {
        policy.add(rule, &generate::port).expect("generated rules are sound");
    }
    let wire = |id, peer| PortConfig { id: PortId(id), peer: Some(PortId(peer)), enabled: true };
    Forwarding { policy, ports: vec![wire(LEFT, RIGHT), wire(RIGHT, LEFT)] }
}

/// DPDK starts once per process, and the tests of this file are threads of one.
static ALONE: Mutex<()> = Mutex::new(());

fn replay(rules: &[Rule], frames: &[Vec<u8>]) -> (ReplayReport, Vec<Frame>) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().expect("tempdir");
    let (input, output) = (dir.path().join("in.pcap"), dir.path().join("out.pcap"));
    let mut writer = Writer::create(&input).expect("create");
    for (i, frame) in frames.iter().enumerate() {
        writer.write(&Frame { time_ns: 1_000 + i as u64, data: frame.clone(), missing: 0 }).expect("write");
    }
    writer.finish().expect("finish");
    let config = ReplayConfig { forwarding: forwarding(rules), in_port: PortId(LEFT) };
    let report = run(&config, &input, Some(&output)).expect("replay");
    (report, read(&output))
}

fn read(path: &Path) -> Vec<Frame> {
    let mut reader = Reader::open(path).expect("open");
    let mut frames = Vec::new();
    loop {
        match reader.next_frame() {
            Ok(frame) => frames.push(frame),
            Err(End::Clean) => return frames,
            Err(End::Damaged(why)) => panic!("{why}"),
        }
    }
}

/// Holds what left against the oracle, frame by frame: time stamps tell which is which.
fn check(rules: &[Rule], frames: &[Vec<u8>]) {
    let (report, out) = replay(rules, frames);
    let numbered = generate::numbered(rules);
    let mut out = out.into_iter().peekable();
    let mut drops: BTreeMap<&str, u64> = BTreeMap::new();
    for (i, frame) in frames.iter().enumerate() {
        let expected = evaluate(&numbered, &generate::port, LEFT, RIGHT, frame);
        let left = out.next_if(|frame| frame.time_ns == 1_000 + i as u64);
        match (expected.verdict, left) {
            // Without rules a wire is a wire: it does not look.
            (Verdict::Drop(_), Some(left)) if rules.is_empty() => assert_eq!(left.data, *frame),
            (Verdict::Drop(reason), None) => *drops.entry(reason.name()).or_default() += 1,
            (Verdict::MayDrop, None) => *drops.entry("rule").or_default() += 1,
            (Verdict::Pass | Verdict::MayDrop, Some(left)) => {
                expected
                    .check_bytes(&left.data)
                    .unwrap_or_else(|why| panic!("frame {i}: {why}: {frame:02x?}"));
            }
            (verdict, left) => panic!("frame {i}: {verdict:?}, but {left:?}: {frame:02x?}"),
        }
    }
    assert_eq!(out.next(), None, "more frames than came in, or out of order");
    assert_eq!(report.drops, drops);
    assert_eq!(report.packets, frames.len() as u64);
    assert_eq!(report.forwarded + report.dropped, report.packets);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_graph_does_what_the_oracle_says(
        rules in generate::rules(20),
        frames in proptest::collection::vec(generate::frames(40), 12),
    ) {
        let frames: Vec<Vec<u8>> = frames.iter().flatten().map(|f| f.to_vec()).filter(|f| !f.is_empty()).collect();
        prop_assume!(!frames.is_empty());
        check(&rules, &frames);
    }
}

#[test]
fn frames_of_several_buffers_are_rewritten_and_kept_whole() {
    let Ok(Some(Command::Add(rule))) = parse_line("add udp-dport 53 mod udp-dport 5353") else {
        panic!("that is a rule");
    };
    let frames: Vec<Vec<u8>> = [100, 1_500, 2_040, 2_100, 9_000, 60_000]
        .iter()
        .map(|&len| {
            let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
            build::Frame::new(build::Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), build::Udp::new(9, 53))
                .payload(payload)
                .build()
        })
        .collect();
    check(&[rule], &frames);
}
