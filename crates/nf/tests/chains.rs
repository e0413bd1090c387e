//! Packets through chains, on ways that are known.

mod common;

use mmb_nf::harness::{FAR, NEAR};
use mmb_nf::{ChainVerdict, DropReason, Harness};

use common::{ENDS, packet, registry, udp};

fn harness(lines: &str) -> Harness {
    Harness::new(registry(), lines).expect("chains that can be")
}

/// What functions say when all sessions end: mark and packets seen, by mark.
fn ends(harness: &mut Harness) -> Vec<(u8, u32)> {
    endpoint_reports(harness.end_all())
}

fn endpoint_reports(frames: Vec<(u16, Vec<u8>)>) -> Vec<(u8, u32)> {
    let mut reports: Vec<_> = frames
        .into_iter()
        .filter(|(port, _)| *port == ENDS)
        .map(|(_, frame)| (frame[0], u32::from_be_bytes([frame[1], frame[2], frame[3], frame[4]])))
        .collect();
    reports.sort_unstable();
    reports
}

/// What stamps of functions that see their session's first packet make of the byte that was there.
fn stamped(marks: &[u8]) -> u8 {
    marks.iter().fold(7, |last: u8, mark| last.wrapping_mul(31).wrapping_add(*mark).wrapping_add(1))
}

fn last(sent: &mmb_nf::harness::Sent) -> u8 {
    sent.frame.last().copied().unwrap_or_default()
}

#[test]
fn the_reverse_path_is_the_mirror_image() {
    let mut h = harness("nf add a probe 1\nnf add b probe 2\nnf add c probe 3\nchain add x a | b | c");
    let there = h.send("x", &[udp(1)]);
    assert_eq!(last(&there[0]), stamped(&[1, 2, 3]));
    // As if each saw its first packet: counts are 2.
    let back = h.send("x", &[packet(false, 1, 1, true)]);
    let expected =
        [3u8, 2, 1].iter().fold(7u8, |last, mark| last.wrapping_mul(31).wrapping_add(*mark).wrapping_add(2));
    assert_eq!(last(&back[0]), expected);
    assert_eq!(ends(&mut h), [(1, 2), (2, 2), (3, 2)]);
}

/// A function with outputs is asked first in both directions; its arms are mirrored.
#[test]
fn outputs_in_both_directions() {
    let lines = "nf add a probe 1\nnf add s probe 2 split\nnf add b probe 3\nnf add c probe 4\n\
        nf add d probe 5\nnf add e probe 6\n\
        chain add x a | s [a: b | e, b: c] | d";
    let mut h = harness(lines);
    assert_eq!(last(&h.send("x", &[udp(2)])[0]), stamped(&[1, 3, 6, 5]));
    assert_eq!(last(&h.send("x", &[udp(3)])[0]), stamped(&[1, 4, 5]));
    let mut h = harness(lines);
    h.send("x", &[udp(2)]);
    let back = h.send("x", &[packet(false, 1, 2, true)]);
    let expected = [5u8, 6, 3, 1]
        .iter()
        .fold(7u8, |last, mark| last.wrapping_mul(31).wrapping_add(*mark).wrapping_add(2));
    assert_eq!(last(&back[0]), expected);
    assert_eq!(ends(&mut h), [(1, 2), (2, 2), (3, 2), (5, 2), (6, 2)], "`c` has not seen it");
}

/// One arm for all outputs that no other names: a session that changes between them stays in it.
#[test]
fn one_arm_takes_the_remaining_outputs() {
    let mut h = harness(
        "nf add m probe 1 mix\nnf add b probe 2\nnf add s probe 3 split\nnf add c probe 4\n\
        chain add x m [else: b]\nchain add y s [b: drop, else: c]",
    );
    h.send("x", &[udp(1), udp(1), udp(1), udp(1)]);
    assert_eq!(h.send("y", &[udp(2)])[0].verdict, ChainVerdict::Pass);
    assert_eq!(h.send("y", &[udp(3)])[0].verdict, ChainVerdict::Drop(DropReason::ChainClass));
    assert_eq!(ends(&mut h), [(1, 4), (2, 3), (3, 1), (3, 1), (4, 1)]);
}

#[test]
fn a_dispatch_by_traffic_lasts_for_the_session() {
    let mut h = harness(
        "nf add t probe 1 tcp\nnf add u probe 2 udp\nnf add z probe 3\nchain add x [t, u] | z\nchain add y [t, else: drop]",
    );
    let sent =
        h.send("x", &[packet(true, 1, 1, false), packet(false, 1, 2, false), packet(true, 1, 1, true)]);
    assert_eq!(last(&sent[0]), stamped(&[1, 3]));
    assert_eq!(last(&sent[1]), stamped(&[2, 3]));
    assert!(sent.iter().all(|one| one.verdict == ChainVerdict::Pass));
    let sent = h.send("y", &[packet(false, 1, 3, false)]);
    assert_eq!(sent[0].verdict, ChainVerdict::Drop(DropReason::ChainClass), "`else` drops");
    assert_eq!(ends(&mut h), [(1, 2), (2, 1), (3, 1), (3, 2)]);
}

#[test]
fn traffic_that_no_branch_takes_opens_nothing() {
    let mut h = harness("nf add t probe 1 tcp\nchain add x [t]");
    // A chain of one branch takes what the branch takes; what comes past the rules all the same is dropped.
    assert_eq!(h.send("x", &[udp(1)])[0].verdict, ChainVerdict::Drop(DropReason::ChainClass));
    assert_eq!(h.sessions(), 0);
}

/// A function in an arm that is not for all the traffic there is passed by.
#[test]
fn functions_are_passed_by() {
    let mut h = harness(
        "nf add s probe 1 split\nnf add t probe 2 tcp\nnf add z probe 3\nchain add x s [a: t, b: pass] | z",
    );
    let sent = h.send("x", &[packet(true, 1, 2, false), packet(false, 1, 4, false)]);
    assert_eq!((last(&sent[0]), last(&sent[1])), (stamped(&[2, 3]), stamped(&[3])));
    assert_eq!(ends(&mut h), [(1, 1), (1, 1), (2, 1), (3, 1), (3, 1)]);
}

#[test]
fn drops_refusals_and_ends() {
    let mut h = harness(
        "nf add e probe 1 end 2\nnf add r probe 2 refuse 1\nnf add z probe 3\nchain add x e | z\nchain add y z | r",
    );
    let sent = h.send("x", &[udp(1), udp(1)]);
    assert_eq!(
        (sent[0].verdict, sent[1].verdict),
        (ChainVerdict::Pass, ChainVerdict::End(DropReason::BackendDown))
    );
    assert_eq!(h.sessions(), 0);
    assert_eq!(h.send("y", &[udp(2)])[0].verdict, ChainVerdict::Refuse(DropReason::Acl));
    let counts = h.runner().counters().to_vec();
    assert_eq!(
        counts.iter().map(|one| (one.packets, one.drops, one.refused)).collect::<Vec<_>>(),
        [(2, 1, 1), (1, 0, 0), (1, 0, 0), (1, 1, 1)]
    );
}

#[test]
fn coarse_keys_are_shared_and_counted() {
    let mut h = harness("nf add s probe 1 source\nnf add p probe 2\nchain add x s | p");
    let one = |host, port| packet(false, host, port, false);
    h.send("x", &[one(1, 1), one(1, 2), one(2, 1), one(1, 1)]);
    assert_eq!(h.program().bytes(), 8 + 4 + 16, "four bytes, and the function's");
    assert_eq!(ends(&mut h), [(1, 1), (1, 3), (2, 1), (2, 1), (2, 2)]);
}

#[test]
fn sessions_behind_flow_are_others() {
    let mut h = harness(
        "nf add f flow\nnf add a probe 1\nnf add b probe 2\nnf add t probe 3 tcp\nchain add x a | f | b | t\nchain add y f | b",
    );
    let sent = h.send("x", &[udp(1), packet(true, 1, 2, false), packet(false, 1, 1, true)]);
    assert_eq!(last(&sent[0]), stamped(&[1, 2]));
    assert_eq!(last(&sent[1]), stamped(&[1, 2, 3]), "its kind of traffic is asked anew");
    assert!(!h.runner().is_idle());
    assert_eq!(ends(&mut h), [(1, 1), (1, 2)], "those behind live on");
    h.wait(10_000_000);
    let now = 10_000_001;
    while h.runner().tick(now, 1000) {}
    let frames: Vec<_> =
        h.runner().emissions().iter().map(|one| (one.out_port, one.frame.to_vec())).collect();
    assert_eq!(endpoint_reports(frames), [(2, 1), (2, 2), (3, 1)]);
    assert!(h.runner().is_idle());
}

/// Sessions that get no more packets keep the program, but not the tables of its deleted instances.
#[test]
fn a_deleted_flow_gives_back_its_sessions() {
    let mut h = harness("nf add f flow\nnf add a probe 1\nnf add b probe 2\nchain add x b | f | a");
    h.send("x", &[udp(1), udp(2), udp(3)]);
    h.load("nf add b probe 2\nchain add x b").unwrap();
    assert!(!h.runner().is_idle());
    assert!(h.runner().tick(1, 2), "two of three are ended, and there is more to do");
    assert!(!h.runner().tick(1, 1000));
    let frames: Vec<_> =
        h.runner().emissions().iter().map(|one| (one.out_port, one.frame.to_vec())).collect();
    assert_eq!(endpoint_reports(frames), [(1, 1); 3], "`a` lets go of the sessions behind `f`");
    h.runner().emissions().clear();
    assert!(h.runner().is_idle());
    assert_eq!(h.runner().programs(), 2, "the outer sessions wait for their next packets");
    let sent = h.send("x", &[udp(1), udp(2), udp(3)]);
    assert!(sent.iter().all(|sent| sent.verdict == ChainVerdict::Pass));
    h.runner().tick(1, 1000);
    assert_eq!((h.runner().programs(), endpoint_reports(h.end_all())), (1, vec![(2, 2); 3]));
}

#[test]
fn a_deleted_function_with_a_key_gives_back_its_scratchpads() {
    let mut h = harness("nf add k probe 3 source\nnf add b probe 2\nchain add x b | k");
    h.send("x", &[udp(1), udp(2), udp(3)]);
    h.load("nf add b probe 2\nchain add x b").unwrap();
    h.runner().tick(1, 1000);
    let frames: Vec<_> =
        h.runner().emissions().iter().map(|one| (one.out_port, one.frame.to_vec())).collect();
    assert_eq!(endpoint_reports(frames), [(3, 3)], "one source address, three packets");
    h.runner().emissions().clear();
    assert_eq!(endpoint_reports(h.end_all()), [(2, 1); 3], "nothing is released twice");
}

#[test]
fn refusals_and_ends_behind_flow() {
    let mut h = harness(
        "nf add f flow\nnf add r probe 1 refuse 2\nnf add e probe 2 end 2\nchain add x f | r\nchain add y f | e",
    );
    let fates = |h: &mut Harness, chain, n| {
        h.send(chain, &vec![udp(n); 4]).iter().map(|one| one.verdict).collect::<Vec<_>>()
    };
    let drop = |reason| ChainVerdict::Drop(reason);
    let first: Vec<_> = fates(&mut h, "x", 1);
    assert_eq!(first[..2], [ChainVerdict::Pass, drop(DropReason::Acl)]);
    assert_eq!(fates(&mut h, "x", 1), [drop(DropReason::Acl); 4], "by `flow` itself");
    let ended = fates(&mut h, "y", 2);
    assert_eq!(ended[..2], [ChainVerdict::Pass, drop(DropReason::BackendDown)]);
    assert_eq!(fates(&mut h, "y", 2)[0], ChainVerdict::Pass, "a new session");
}

/// A table that is too small ends what is half open.
#[test]
fn a_full_table_behind_flow() {
    let mut h = harness("nf add f flow 4\nnf add a probe 1\nchain add x f | a");
    for port in 0..20 {
        assert_eq!(last(&h.send("x", &[udp(port)])[0]), stamped(&[1]));
    }
}

/// Behind `flow`, scratchpads move while packets of their sessions are inside: each packet meets its own.
#[test]
fn scratchpads_behind_flow_grow() {
    let functions = "nf add f flow\nnf add a probe 1\nnf add b probe 2\nnf add c probe 3\nnf add d probe 4\n";
    let mut h = harness(&format!("{functions}chain add x f | a"));
    let frames: Vec<_> = (1..20).flat_map(|port| [udp(port), udp(port)]).collect();
    h.send("x", &frames);
    h.load(&format!("{functions}chain add x f | b | a | c | d")).unwrap();
    let sent = h.send("x", &frames);
    // Marks, each with the packets that the probe has counted: `a` counts on.
    let stamp = |counted: [(u8, u8); 4]| {
        counted.iter().fold(7, |last: u8, (mark, count)| last.wrapping_mul(31).wrapping_add(mark + count))
    };
    let expected = [stamp([(2, 1), (1, 3), (3, 1), (4, 1)]), stamp([(2, 2), (1, 4), (3, 2), (4, 2)])];
    for two in sent.chunks(2) {
        assert_eq!([last(&two[0]), last(&two[1])], expected);
    }
}

#[test]
fn a_running_chain_gets_and_loses_functions() {
    let three = "nf add a probe 1\nnf add b probe 2\nnf add c probe 3\n";
    let mut h = harness(&format!("{three}chain add x a | b"));
    h.send("x", &[udp(1), udp(1), udp(2)]);
    h.load(&format!("{three}chain add x c | a")).unwrap();
    assert_eq!(h.runner().programs(), 2, "sessions still hold the old one");
    let sent = h.send("x", &[udp(1)]);
    assert_eq!(endpoint_reports(sent[0].emitted.clone()), [(2, 2)], "`b` lets go of the session");
    assert_eq!(h.runner().counters()[1].packets, 4, "`a` counts on");
    h.send("x", &[udp(2)]);
    h.runner().tick(5, 100);
    assert_eq!(h.runner().programs(), 1);
    assert_eq!(ends(&mut h), [(1, 2), (1, 3), (3, 1), (3, 1)]);
}

#[test]
fn arms_and_shared_entries_survive_a_change() {
    let lines = "nf add s probe 1 split\nnf add k probe 2 source\nnf add b probe 3\nnf add t probe 4 tcp\nnf add n probe 5\n";
    let mut h = harness(&format!("{lines}chain add x s [a: k | b, b: pass]\nchain add y [t, else: b]"));
    h.send("x", &[udp(2), udp(2), udp(4), udp(3)]);
    h.send("y", &[packet(true, 1, 1, false)]);
    h.load(
        &format!("{lines}chain add x n | s [a: b | k, b: n]\nchain add y [t | n, else: b]")
            .replace("b: n]", "b: pass]"),
    )
    .unwrap();
    h.send("x", &[udp(2), udp(3), udp(4)]);
    h.send("y", &[packet(true, 1, 1, true)]);
    assert_eq!(
        ends(&mut h),
        [(1, 2), (1, 2), (1, 3), (2, 5), (3, 2), (3, 3), (4, 2), (5, 1), (5, 1), (5, 1), (5, 1)]
    );
}

#[test]
fn an_instance_with_other_words_is_another() {
    let mut h = harness("nf add a probe 1\nchain add x a");
    h.send("x", &[udp(1)]);
    let before = h.program().instance("a").unwrap().clone();
    h.load("nf add a probe 1\nchain add x a").unwrap();
    assert!(std::sync::Arc::ptr_eq(&before, h.program().instance("a").unwrap()));
    h.load("nf add a probe 2\nchain add x a").unwrap();
    assert_eq!(endpoint_reports(h.send("x", &[udp(1)])[0].emitted.clone()), [(1, 1)]);
    assert_eq!(ends(&mut h), [(2, 1)]);
}

#[test]
fn emitted_frames_follow_their_packets() {
    let mut h = harness("nf add a probe 1 emit\nchain add x a");
    let sent = h.send("x", &[udp(1), packet(false, 1, 1, true)]);
    assert_eq!(sent[0].emitted, [(FAR, sent[0].frame.clone())]);
    assert_eq!(sent[1].emitted, [(NEAR, sent[1].frame.clone())]);
    assert!(h.runner().emissions().is_empty());
}

/// Vectors of all sizes, of one session and of many, come out in order and whole.
#[test]
fn vectors_of_any_size() {
    let mut h = harness("nf add a probe 1\nnf add d probe 1 drop\nchain add x a | d");
    for size in [1, 2, 63, 64, 65, 255, 256, 300] {
        let frames: Vec<_> = (0..size).map(|n| udp((n % 200) as u8)).collect();
        assert_eq!(h.send("x", &frames).len(), size);
    }
}
