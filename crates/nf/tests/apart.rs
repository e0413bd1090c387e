//! A stream function that edits in a process, between two ends that repeat what is lost.

#![allow(clippy::unwrap_used)]

#[path = "common/apart.rs"]
mod common;
#[path = "common/memory.rs"]
mod memory;
#[path = "common/substitute.rs"]
mod substitute;

use std::sync::Arc;

use mmb_flow::{HeldLimits, SessionSettings};
use mmb_nf::harness::{Harness, Sent};
use mmb_nf::{ChainVerdict, DropReason};
use mmb_stream::{OnOverflow, Policy};
use proptest::prelude::*;

use common::{ACK, Bench, FIN, RST, SYN, datagram, frame, frame_of, left, registry, rounds, transfer};
use memory::MemoryHost;

fn at(from: i32, text: &str) -> (i32, String) {
    (from, text.to_owned())
}

#[test]
fn words_are_replaced_and_numbers_translated() {
    let mut bench = Bench::new("evil harmless", "");
    assert_eq!(bench.texts(0, 0, "an evil word"), [at(0, "an harmless word")]);
    // Repeated, and behind it.
    assert_eq!(bench.texts(4, 0, "vil w"), [at(3, "harmless w")]);
    assert_eq!(bench.texts(12, 0, "mord"), [at(16, "mord")]);
    // Acknowledgements come back as the sender counts.
    let sent = bench.send(&[frame(1, 0, 20, ACK, b"")], 9);
    assert_eq!(left(&sent)[0].acked, 16);
    // In two segments, and a beginning at the end.
    assert_eq!(bench.texts(16, 0, "an ev"), [at(20, "an ")]);
    assert_eq!(bench.texts(21, 0, "il ev"), [at(23, "harmless ")]);
    assert_eq!(bench.texts(26, FIN, ""), [at(32, "ev")]);
    assert_eq!(bench.host.with(|memory| memory.in_process()), 0);
}

/// What leaves has the order of the bytes, and acknowledgements do not wait for the other direction.
#[test]
fn later_packets_wait_behind_those_in_the_process() {
    let mut bench = Bench::new("evil harmless", "");
    let frames = [frame(0, 0, 0, ACK, b"evil"), frame(0, 4, 0, ACK, b""), frame(1, 0, 0, ACK, b"")];
    let sent = bench.send(&frames, 0);
    assert_eq!(left(&sent).iter().map(|one| one.direction).collect::<Vec<_>>(), [1]);
    let sent = left(&bench.work(9));
    let shown: Vec<_> = sent.iter().map(|one| (one.from, &one.bytes[..])).collect();
    assert_eq!(shown, [(0, &b"harmless"[..]), (8, b"")]);
}

/// More arrives while an acknowledgement without payload is on its way: its number is that of its own place.
#[test]
fn acknowledgements_keep_their_place() {
    let mut bench = Bench::new("evil harmless", "");
    let frames = [
        frame(0, 0, 0, ACK, b"an ev"),
        frame(0, 5, 0, ACK, b""),
        frame(0, 5, 0, ACK, b"il"),
        frame(0, 7, 0, ACK, b"!"),
    ];
    let sent = left(&bench.send(&frames, 9));
    let shown: Vec<_> = sent.iter().map(|one| (one.from, &one.bytes[..])).collect();
    assert_eq!(shown, [(0, &b"an "[..]), (3, b""), (3, b"harmless"), (11, b"!")]);
}

/// A full process drops a segment before anything is noted of it.
#[test]
fn what_has_no_room_is_edited_when_it_comes_again() {
    let mut bench = Bench::new("evil harmless", "");
    let segments: Vec<_> = (0..80).map(|n| frame(0, n * 4, 0, ACK, b"evil")).collect();
    let sent = bench.send(&segments, 200);
    let is_full = |one: &&Sent| one.verdict == ChainVerdict::Drop(DropReason::ProcessFull);
    let dropped = sent.iter().filter(is_full).count();
    assert!(dropped > 10, "{dropped}");
    let passed: Vec<u8> = left(&sent).iter().flat_map(|one| one.bytes.clone()).collect();
    assert!(passed == b"harmless".repeat(80 - dropped));
    let again = bench.send(&segments[80 - dropped..], 200);
    let passed: Vec<u8> = left(&again).iter().flat_map(|one| one.bytes.clone()).collect();
    assert!(passed == b"harmless".repeat(dropped));
}

/// A burst of one session waits for the process, four times as many packets as functions hold.
#[test]
fn a_burst_of_a_session_waits() {
    let mut bench = Bench::new("evil harmless", "");
    let held = HeldLimits { session: 4, worker: 100 };
    let program = bench.harness.program().clone();
    bench.harness.runner().set_program(&program, &SessionSettings { held, ..SessionSettings::default() });
    let segments: Vec<_> = (0..20).map(|n| frame(0, n * 4, 0, ACK, b"evil")).collect();
    let sent = bench.send(&segments, 0);
    assert_eq!(sent.len(), 4);
    assert!(sent.iter().all(|one| one.verdict == ChainVerdict::Drop(DropReason::HeldFull)), "{sent:?}");
    let passed: Vec<u8> = left(&bench.work(200)).iter().flat_map(|one| one.bytes.clone()).collect();
    assert_eq!(passed, b"harmless".repeat(16));
}

/// Segments without bytes follow those with bytes into the process, and take no room that these were given.
#[test]
fn acknowledgements_need_room_as_well() {
    let mut bench = Bench::new("evil harmless", "");
    let frames: Vec<_> =
        (0..80).flat_map(|n| [frame(0, n * 4, 0, ACK, b"evil"), frame(0, n * 4 + 4, 0, ACK, b"")]).collect();
    let sent = bench.send(&frames, 200);
    let verdict = |one: &Sent| matches!(one.verdict, ChainVerdict::Drop(DropReason::ProcessFull));
    assert!(sent.iter().filter(|one| verdict(one)).count() > 50);
    assert!(left(&sent).iter().all(|one| one.flags & RST == 0), "{sent:?}");
}

/// Segments that wait for one in front of them do not take its room, and find room when they go on.
#[test]
fn early_segments_leave_room() {
    let mut bench = Bench::new("evil harmless", "");
    let early: Vec<_> = (1..100).map(|n| frame(0, n * 4, 0, ACK, b"evil")).collect();
    bench.send(&early, 200);
    let sent = bench.send(&[frame(0, 0, 0, ACK, b"evil")], 200);
    let mut passed: Vec<u8> = left(&sent).iter().flat_map(|one| one.bytes.clone()).collect();
    passed.extend(left(&bench.work(200)).iter().flat_map(|one| one.bytes.clone()));
    assert!(passed.len() > 8 * 20 && passed == b"harmless".repeat(passed.len() / 8), "{sent:?}");
}

/// The other direction takes no room of a segment that others wait for: its sender may repeat it seldom.
#[test]
fn awaited_segments_find_room() {
    let mut bench = Bench::new("evil harmless", "");
    let early: Vec<_> = (1..30).map(|n| frame(0, n * 4, 0, ACK, b"evil")).collect();
    bench.send(&early, 200);
    let replies: Vec<_> = (0..100).map(|n| frame(1, n * 4, 0, ACK, b"evil")).collect();
    bench.send(&replies, 0);
    let sent = bench.send(&[frame(0, 0, 0, ACK, b"evil")], 200);
    assert!(sent.iter().all(|one| !matches!(one.verdict, ChainVerdict::Drop(_))), "{sent:?}");
    let mut passed: Vec<u8> = Vec::new();
    for sent in [left(&sent), left(&bench.work(200))] {
        passed.extend(sent.iter().filter(|one| one.direction == 0).flat_map(|one| one.bytes.clone()));
    }
    assert!(passed.len() > 8 * 10 && passed == b"harmless".repeat(passed.len() / 8));
}

/// A new connection in the place of one with packets in the process: these are dropped.
#[test]
fn a_new_connection_gets_nothing_of_the_one_before() {
    let mut bench = Bench::new("evil harmless", "");
    bench.send(&[frame(0, 0, 0, ACK, b"an ev"), frame(0, 5, 0, ACK | FIN, b"")], 9);
    bench.send(&[frame(1, 0, 6, ACK | FIN, b"")], 9);
    bench.send(&[frame(0, 6, 1, ACK, b"")], 9);
    bench.harness.wait(130_000);
    let again = 100_000;
    let frames = [frame(0, again - 1, 0, SYN, b""), frame(1, -1, again, SYN | ACK, b"")];
    for one in frames {
        bench.send(&[one], 9);
    }
    assert_eq!(bench.texts(again, 0, "il evil"), [at(again, "il harmless")]);
}

#[test]
fn a_lost_process_resets_connections() {
    let mut bench = Bench::new("evil harmless", "");
    bench.send(&[frame(0, 0, 0, ACK, b"an evil"), frame(0, 7, 0, ACK, b" one")], 0);
    bench.host.with(|memory| memory.kill());
    let sent = bench.work(0);
    assert!(sent.iter().all(|one| one.verdict != ChainVerdict::Pass), "{sent:?}");
    let resets: Vec<_> = left(&sent).into_iter().filter(|one| one.flags & RST != 0).collect();
    assert_eq!(resets.iter().map(|one| (one.direction, one.from)).collect::<Vec<_>>(), [(1, 0), (0, 0)]);
}

#[test]
fn a_lost_process_lets_bytes_out_with_on_failure_pass() {
    let mut bench = Bench::new("evil harmless", "on-failure pass");
    assert_eq!(bench.texts(0, 0, "evil ev"), [at(0, "harmless ")]);
    bench.send(&[frame(0, 7, 0, ACK, b"il "), frame(0, 10, 0, ACK, b"evil")], 0);
    bench.host.with(|memory| memory.kill());
    let sent = left(&bench.work(0));
    let bytes: Vec<u8> = sent.iter().flat_map(|one| one.bytes.clone()).collect();
    assert_eq!((sent[0].from, String::from_utf8(bytes).unwrap()), (9, "evil evil".to_owned()));
    // The function reads no more of the connection, and its numbers stay.
    assert_eq!(bench.texts(14, 0, "evil"), [at(18, "evil")]);
    let sent = bench.send(&[frame(1, 0, 22, ACK, b"")], 9);
    assert_eq!(left(&sent)[0].acked, 18);
}

#[test]
fn without_a_process_segments_come_again_or_pass() {
    let mut bench = Bench::new("evil harmless", "");
    bench.host.with(|memory| memory.stop());
    bench.harness.released();
    let sent = bench.send(&[frame(0, 0, 0, ACK, b"evil")], 0);
    assert_eq!(sent[0].verdict, ChainVerdict::Drop(DropReason::ProcessFailed));
    let mut bench = Bench::new("evil harmless", "on-failure pass");
    bench.texts(0, 0, "evil ev");
    bench.host.with(|memory| memory.stop());
    bench.harness.released();
    assert_eq!(bench.texts(7, 0, "il"), [at(9, "evil")]);
    assert_eq!(bench.texts(9, 0, "evil"), [at(13, "evil")]);
}

/// The worker has no room for what functions in processes hold back: tails of five blocks, of a function for
/// each direction, fill the 16,384 blocks. With `pass`, they go on, and the process gets no more of them.
#[test]
fn bytes_that_are_held_back_without_room() {
    const LEN: usize = 9000;
    let words = ["x", "y"].map(|letter| letter.repeat(LEN + 1));
    let lines = format!(
        "domain add d private\nnf add w substitute {} process d\nnf add v substitute {} process d\nchain add c w then v",
        words[0], words[1]
    );
    for overflow in [OnOverflow::Drop, OnOverflow::Reset, OnOverflow::Pass] {
        let mut bench = Bench::with(&lines);
        let streams = Policy { overflow, ..Policy::default() };
        let settings = SessionSettings { streams, ..SessionSettings::default() };
        let program = bench.harness.program().clone();
        bench.harness.runner().set_program(&program, &settings);
        let mut fill = |port: u16| {
            let opened = [(0, -1, SYN), (1, -1, SYN | ACK), (0, 0, ACK)]
                .map(|(direction, from, flags)| frame_of(port, direction, (from, 0), flags, b""));
            assert_eq!(left(&bench.send(&opened, 9)).len(), 3);
            let data = [0, 1].map(|at| frame_of(port, at, (0, 0), ACK, &words[at].as_bytes()[..LEN]));
            data.map(|frame| bench.send(&[frame], 9).swap_remove(0))
        };
        let first = 5000..;
        let is_held = |sent: &[Sent; 2]| sent.iter().all(|sent| sent.verdict == ChainVerdict::Consume);
        let (port, [sent, _]) =
            first.map(|port| (port, fill(port))).find(|(_, sent)| !is_held(sent)).unwrap();
        assert_eq!(port - 5000, 16_384 / 10);
        let more = bench.send(&[frame_of(port, 0, (LEN as i32, 0), ACK, b"xx")], 9);
        let gone = left(std::slice::from_ref(&sent));
        match overflow {
            OnOverflow::Drop => {
                assert_eq!((sent.verdict, gone.len()), (ChainVerdict::Refuse(DropReason::StreamRoom), 0))
            }
            OnOverflow::Reset => {
                let flags: Vec<_> = gone.iter().map(|one| (one.direction, one.flags & RST)).collect();
                assert_eq!(flags, [(1, RST), (0, RST)]);
            }
            OnOverflow::Pass => {
                assert_eq!((gone.len(), gone[0].bytes.len()), (1, LEN));
                let more = left(&more);
                assert_eq!((more.len(), more[0].from, &more[0].bytes[..]), (1, LEN as i32, &b"xx"[..]));
            }
        }
    }
}

#[test]
fn a_packet_that_is_away_for_too_long_is_lost() {
    let mut bench = Bench::new("evil harmless", "");
    bench.send(&[frame(0, 0, 0, ACK, b"evil")], 0);
    bench.harness.expire(1_000_000);
    let sent = bench.harness.released();
    assert_eq!(left(&sent).iter().filter(|one| one.flags & RST != 0).count(), 2, "{sent:?}");
    assert!(left(&bench.work(9)).is_empty());
}

/// The process runs when the program comes into force, so no packet is dropped as if it did not.
#[test]
fn the_first_vector_finds_the_process() {
    let lines = "domain add d private\nnf add w substitute evil harmless process d\nchain add c w";
    let host = Arc::new(MemoryHost::new(registry));
    let mut harness = Harness::with_processes(registry(), lines, host).unwrap();
    assert_eq!(harness.send("c", &[datagram("evil")])[0].verdict, ChainVerdict::Hold);
}

#[test]
fn large_frames_are_for_processes_of_chains_that_edit_nothing() {
    let takes = |functions: &str, chain: &str| {
        let lines = format!("domain add d private\n{functions}\nchain add c {chain}");
        Bench::with(&lines).harness.program().takes_large_frames()
    };
    assert!(takes("nf add f forbid X process d", "f"));
    assert!(takes("nf add w substitute evil good", "w"));
    assert!(!takes("nf add w substitute evil good process d", "w"));
    assert!(!takes("nf add w substitute evil good\nnf add f forbid X process d", "w | f"));
}

#[test]
fn functions_that_edit_move() {
    let apart = "domain add d private\nnf add w substitute evil harmless process d\nchain add c w";
    let local = "domain add d private\nnf add w substitute evil harmless\nchain add c w";
    let mut bench = Bench::new("evil harmless", "");
    bench.harness.load(apart).unwrap();
    let (mut from, mut to) = (0, 0);
    for lines in [local, apart, local, apart] {
        assert_eq!(bench.texts(from, 0, "evil ev"), [at(to, "harmless ")]);
        bench.harness.load(lines).unwrap();
        bench.harness.released();
        // What is held back goes on, and the function begins anew.
        assert_eq!(bench.texts(from + 7, 0, "il."), [at(to + 9, "evil.")]);
        (from, to) = (from + 10, to + 14);
    }
}

/// Packets are in the process when their function leaves: the connection is reset, since their bytes cannot
/// be edited any more.
#[test]
fn nothing_passes_unedited_when_a_function_moves() {
    let local = "domain add d private\nnf add w substitute evil harmless\nchain add c w";
    let mut bench = Bench::new("evil harmless", "");
    bench.send(&[frame(0, 0, 0, ACK, b"evil")], 0);
    bench.harness.load(local).unwrap();
    let sent = bench.send(&[frame(0, 0, 0, ACK, b"evil")], 9);
    assert!(left(&sent).iter().all(|one| one.bytes != b"evil"), "{sent:?}");
    assert!(left(&sent).iter().any(|one| one.flags & RST != 0), "{sent:?}");
}

#[test]
fn datagrams_are_edited() {
    let mut bench = Bench::new("evil harmless", "");
    let datagrams = ["an evil one", "evil", "good", "evilevil"].map(datagram);
    let sent = bench.send(&datagrams, 9);
    let frames = sent.iter().flat_map(|one| match one.verdict {
        ChainVerdict::Pass => vec![one.frame.clone()],
        _ => one.emitted.iter().map(|(_, frame)| frame.clone()).collect(),
    });
    let texts: Vec<_> = frames.map(|frame| String::from_utf8_lossy(&frame[42..]).into_owned()).collect();
    assert_eq!(texts, ["an harmless one", "harmless", "good", "harmlessharmless"]);
    bench.harness.set_mtu(36);
    let sent = bench.send(&["evil", "evil1"].map(datagram), 9);
    assert_eq!(sent.iter().filter(|one| one.verdict == ChainVerdict::Pass).count(), 1, "the MTU");
}

fn content() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec!["evil", "ev", "e", "il", "good ", "evevil", "."]);
    prop::collection::vec(word, 1..150).prop_map(|words| words.concat() + ".")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn all_bytes_arrive_edited(
        content in content(), rounds in rounds(), new in prop::sample::select(vec!["harmless", "good", "x", ""]),
    ) {
        prop_assume!(rounds.iter().any(|round| round.2 > 2) && rounds.iter().any(|round| round.3));
        prop_assume!(rounds.iter().any(|round| round.1.iter().any(|(_, arrives)| *arrives)));
        let mut bench = Bench::new(&format!("evil {new}"), "");
        let ends = transfer(&mut bench, content.as_bytes(), &rounds, None);
        prop_assert!(!ends.is_reset);
        prop_assert_eq!(String::from_utf8_lossy(&ends.received), content.replace("evil", new));
    }

    /// A process that ends: nothing unedited arrives, or the bytes in front of some place are edited.
    #[test]
    fn a_process_ends(content in content(), rounds in rounds(), kill in 0..60_usize, passes: bool) {
        let domain = if passes { "on-failure pass" } else { "" };
        let mut bench = Bench::new("evil harmless", domain);
        let ends = transfer(&mut bench, content.as_bytes(), &rounds, Some(kill));
        let received = String::from_utf8(ends.received.clone()).unwrap();
        let edited = content.replace("evil", "harmless");
        if passes {
            prop_assert!(!ends.is_reset);
            let is_cut = |at: usize| {
                let all = content[..at].replace("evil", "harmless") + &content[at..];
                all.starts_with(&received) && (ends.acked < content.len() || all == received)
            };
            prop_assert!((0..=content.len()).any(is_cut), "{received}");
        } else {
            prop_assert!(edited.starts_with(&received), "{received} of {edited}");
        }
    }

    /// A process without scruples: its connection may break, and the others go on.
    #[test]
    fn forged_results_do_no_harm(
        forged in prop::collection::vec(prop::collection::vec(prop_oneof![0..20_u8, any::<u8>()], 0..40), 1..20),
        content in content(), rounds in rounds(),
    ) {
        let mut bench = Bench::new("evil harmless", "");
        bench.host.with(|memory| memory.forged = forged.into());
        transfer(&mut bench, content.as_bytes(), &rounds, None);
        bench.host.with(|memory| memory.forged.clear());
        bench.send(&[], 1000);
        let sent = bench.send(&[datagram("evil")], 1000);
        prop_assert!(sent.iter().any(|one| one.emitted.iter().any(|(_, frame)| frame.ends_with(b"harmless"))));
    }
}
