//! The built-in functions that neither translate nor decide, in chains: what their place in the chain means.

use mmb_nf::harness::{FAR, Harness, Sent};
use mmb_nf::{ChainVerdict, DropReason};
use mmb_packet::build::{Frame, Ip4, Tcp, Udp};

fn harness(lines: &str) -> Harness {
    Harness::new(mmb_nf_builtin::registry(), lines).expect("lines that compile")
}

/// From host `source` (reply: to it), with this DSCP.
fn udp(source: u8, port: u16, is_reply: bool, dscp: u8, payload: usize) -> Vec<u8> {
    let (host, server) = ([10, 0, 0, source], [192, 0, 2, 1]);
    let (ip, udp) = if is_reply {
        (Ip4::new(server, host), Udp::new(53, port))
    } else {
        (Ip4::new(host, server), Udp::new(port, 53))
    };
    Frame::new(Ip4 { tos: dscp << 2, ..ip }, udp).payload(vec![0; payload]).build()
}

fn counted(harness: &Harness, instance: &str, name: &str) -> u64 {
    let report = harness.program().instance(instance).expect("an instance").report();
    let (_, n) =
        report.iter().find(|(is, _)| is == name).unwrap_or_else(|| panic!("no {name} in {report:?}"));
    n.parse().expect("a number")
}

/// A mirror copies what the functions before it have made of a packet: on the way back those are the ones
/// behind it.
#[test]
fn a_mirror_copies_packets_as_edited_before_it() {
    let mut harness = harness(
        "nf add a mark dscp 10\nnf add tap mirror far\nnf add b mark dscp 20\nchain add main a | tap | b",
    );
    let there = &harness.send("main", &[udp(1, 5000, false, 0, 9)])[0];
    let expected = Sent {
        verdict: ChainVerdict::Pass,
        is_answered: false,
        frame: udp(1, 5000, false, 20, 9),
        emitted: vec![(FAR, udp(1, 5000, false, 10, 9))],
    };
    assert_eq!(*there, expected);
    let back = &harness.send("main", &[udp(1, 5000, true, 0, 9)])[0];
    assert_eq!(back.frame, udp(1, 5000, true, 10, 9));
    assert_eq!(back.emitted, [(FAR, udp(1, 5000, true, 20, 9))]);
}

/// What a policer drops is neither counted nor copied behind it; on the way back they come first.
#[test]
fn dropped_packets_reach_no_later_function() {
    let mut harness = harness(
        "nf add p police 8kbit burst 1518\nnf add c count\nnf add tap mirror far\nchain add main p | c | tap",
    );
    let frames = vec![udp(1, 5000, false, 0, 1000); 3];
    let fates: Vec<_> =
        harness.send("main", &frames).into_iter().map(|sent| (sent.verdict, sent.emitted.len())).collect();
    let dropped = (ChainVerdict::Drop(DropReason::Police), 0);
    assert_eq!(fates, [(ChainVerdict::Pass, 1), dropped, dropped]);
    let back = harness.send("main", &[udp(1, 5000, true, 0, 1000)]);
    assert_eq!((back[0].verdict, back[0].emitted.len()), (ChainVerdict::Drop(DropReason::Police), 1));
    harness.end_all();
    assert_eq!((counted(&harness, "c", "packets"), counted(&harness, "c", "bytes")), (2, 2 * 1028));
    assert_eq!(counted(&harness, "p", "dropped packets"), 3);
}

/// Who shares a bucket: 4 sessions of 2 sources to one destination, each of which sends a burst.
#[test]
fn buckets_are_shared_by_their_key() {
    for (per, passing) in [("session", 4), ("source", 2), ("destination", 1), ("pair", 2), ("instance", 1)] {
        let mut harness = harness(&format!("nf add p police 8kbit burst 1518 per {per}\nchain add main p"));
        let frames: Vec<_> =
            [(1, 1), (1, 2), (2, 1), (2, 2)].map(|(host, port)| udp(host, port, false, 0, 1400)).to_vec();
        let passed =
            |sent: Vec<Sent>| sent.into_iter().filter(|sent| sent.verdict == ChainVerdict::Pass).count();
        assert_eq!(passed(harness.send("main", &frames)), passing, "per {per}");
        harness.wait(1_442);
        assert_eq!(passed(harness.send("main", &frames)), passing, "per {per}, filled again");
        // The bucket of a session ends with it. Others belong to addresses: a new session gets no burst.
        harness.end_all();
        let expected = if per == "session" { 4 } else { 0 };
        assert_eq!(passed(harness.send("main", &frames)), expected, "per {per}, new sessions");
    }
}

/// Functions that come and go around `count` do not touch what it knows.
#[test]
fn counters_survive_changes_around_them() {
    let functions =
        "nf add c count\nnf add m monitor\nnf add clamp mss-clamp 1200\nnf add l log\nchain add main ";
    let mut harness = harness(&format!("{functions}c"));
    let frame = udp(1, 5000, false, 0, 100);
    for body in ["m | c", "c | m | clamp", "m | clamp | c | l", "c"] {
        harness.send("main", std::slice::from_ref(&frame));
        harness.load(&format!("{functions}{body}")).expect("lines that compile");
    }
    harness.send("main", &[frame]);
    assert_eq!((counted(&harness, "c", "packets"), counted(&harness, "c", "records")), (5, 0), "it goes on");
    harness.end_all();
    assert_eq!(counted(&harness, "c", "records"), 1);
    assert_eq!((counted(&harness, "c", "packets"), counted(&harness, "c", "bytes")), (5, 5 * 128));
}

#[test]
fn a_clamp_in_a_chain_for_all_traffic() {
    let mut harness = harness("nf add clamp mss-clamp 1200\nnf add m monitor\nchain add main clamp | m");
    let syn = |flags, mss: u16| {
        let options = [[2, 4], mss.to_be_bytes()].concat();
        let ip = Ip4::new([10, 0, 0, 1], [192, 0, 2, 1]);
        Frame::new(ip, Tcp { flags, options, ..Tcp::new(1, 80) }).build()
    };
    let other = udp(1, 1, false, 0, 0);
    let sent = harness.send("main", &[syn(2, 1460), other.clone(), syn(2, 900), syn(0x10, 1460)]);
    let frames: Vec<_> = sent.into_iter().map(|sent| sent.frame).collect();
    assert_eq!(frames, [syn(2, 1200), other, syn(2, 900), syn(0x10, 1460)]);
    assert_eq!(counted(&harness, "clamp", "lowered SYNs"), 1);
}
