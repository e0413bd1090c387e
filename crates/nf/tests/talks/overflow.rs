//! What becomes of segments for which there is no room, with each value of the setting `stream-overflow`.

use mmb_nf::{ChainVerdict, DropReason};
use mmb_stream::{OnOverflow, Policy};

use crate::talk::{ACK, Bench, Left, segment};

const RST: u8 = 4;
/// Segments of a session that may wait, as the settings are by default.
const MOST: i32 = 256;

/// A bench with a connection.
fn open(chain: &str, overflow: OnOverflow) -> Bench {
    let mut bench = Bench::open(chain);
    bench.set_policy(Policy { overflow, ..Policy::default() });
    bench
}

/// Whether both ends get a reset with the number that they expect (RFC 5961, 3.2), and nothing else leaves.
fn are_reset(left: &[Left], numbers: [i32; 2]) -> bool {
    let mut ends: Vec<_> = left.iter().map(|left| (left.0, left.1, left.3 & RST != 0)).collect();
    ends.sort();
    ends == [(0, numbers[0], true), (1, numbers[1], true)] && left.iter().all(|left| left.4.is_empty())
}

/// One more segment comes too early than may wait. Returns what leaves. With `pass`, it goes on behind those
/// that waited.
fn fill(bench: &mut Bench, first: i32, acked: i32) -> Vec<Left> {
    let early = |bench: &Bench, n: i32| bench.frame(0, first + 4 * n, acked, ACK, "evil");
    let frames: Vec<_> = (1..=MOST).map(|n| early(bench, n)).collect();
    let sent = bench.send_frames(&frames);
    assert!(
        sent.iter().all(|sent| matches!(sent.verdict, ChainVerdict::Hold | ChainVerdict::Consume)),
        "{sent:?}"
    );
    let last = early(bench, MOST + 1);
    let sent = bench.send_frames(&[last]);
    bench.left(&sent)
}

/// Functions that read. `!` resets a connection that is read.
#[test]
fn early_segments_without_room_in_front_of_functions_that_read() {
    let mut bench = open("g", OnOverflow::Drop);
    assert!(fill(&mut bench, 0, 0).iter().all(|left| left.0 == 1));
    assert_eq!(bench.send(0, 0, 0, ACK, "!").iter().filter(|left| left.3 & RST != 0).count(), 2);

    let mut bench = open("g", OnOverflow::Reset);
    assert!(are_reset(&fill(&mut bench, 0, 0), [0, 0]));

    let mut bench = open("g", OnOverflow::Pass);
    let left = fill(&mut bench, 0, 0);
    let mut numbers: Vec<_> = left.iter().map(|left| left.1).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq((1..=MOST + 1).map(|n| 4 * n)));
    assert_eq!(bench.send(0, 0, 0, ACK, "evi!"), [segment(0, 0, 0, ACK, "evi!")]);
}

/// Functions that edit. A connection that passes keeps its offsets.
#[test]
fn early_segments_without_room_in_front_of_functions_that_edit() {
    let begin = |overflow| {
        let mut bench = open("e", overflow);
        assert_eq!(bench.send(0, 0, 0, ACK, "evil"), [segment(0, 0, 0, ACK, "harmless")]);
        assert_eq!(bench.send(1, 0, 8, ACK, ""), [segment(1, 0, 4, ACK, "")]);
        bench
    };
    let mut bench = begin(OnOverflow::Drop);
    assert!(fill(&mut bench, 4, 0).iter().all(|left| left.0 == 1));
    let words: String = bench.send(0, 4, 0, ACK, "evil").into_iter().map(|left| left.4).collect();
    assert_eq!(words, "harmless".repeat(MOST as usize + 1));

    let mut bench = begin(OnOverflow::Reset);
    assert!(are_reset(&fill(&mut bench, 4, 0), [8, 0]));

    let mut bench = begin(OnOverflow::Pass);
    let left = fill(&mut bench, 4, 0);
    let mut numbers: Vec<_> = left.iter().map(|left| left.1).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq((1..=MOST + 1).map(|n| 8 + 4 * n)));
    assert!(left.iter().all(|left| left.4 == "evil"));
    assert_eq!(bench.send(0, 4, 0, ACK, "evil"), [segment(0, 8, 0, ACK, "evil")]);
    assert_eq!(bench.send(1, 0, 12, ACK, ""), [segment(1, 0, 8, ACK, "")]);
    assert_eq!(bench.send(0, 0, 0, ACK, "evil"), [segment(0, 4, 0, ACK, "")]);
}

/// Opens connections that have each sent the first byte of a word, until no more is held back. Returns how
/// many there are.
fn hold_all(bench: &mut Bench) -> u16 {
    let first = bench.port;
    while bench.send(0, 0, 0, ACK, "an e") == [segment(0, 0, 0, ACK, "an ")] {
        bench.port += 1;
        bench.connect();
    }
    bench.port - first
}

fn count(bench: &Bench, name: &str) -> u64 {
    let counters = bench.harness.program().instances().iter().flat_map(|one| one.stream_counters());
    counters.filter(|(counter, _)| counter.name == name).map(|(_, count)| count).sum()
}

/// Bytes that a function holds back. 32 MiB of a worker have room for the tails of 16,384 connections.
#[test]
fn bytes_that_are_held_back_without_room() {
    let mut bench = open("e", OnOverflow::Drop);
    let held = hold_all(&mut bench);
    assert!((16_000..16_385).contains(&held), "{held}");
    let send = |bench: &mut Bench, from, bytes: &str| {
        let frame = bench.frame(0, from, 0, ACK, bytes);
        bench.send_frames(&[frame]).swap_remove(0)
    };
    let next = |bench: &mut Bench, overflow| {
        bench.set_policy(Policy { overflow, ..Policy::default() });
        bench.port += 1;
        bench.connect();
    };

    next(&mut bench, OnOverflow::Drop);
    let sent = send(&mut bench, 0, "an e");
    assert_eq!(sent.verdict, ChainVerdict::Refuse(DropReason::StreamRoom));
    assert!(sent.emitted.is_empty());

    next(&mut bench, OnOverflow::Reset);
    let sent = send(&mut bench, 0, "an e");
    assert_eq!(sent.verdict, ChainVerdict::Refuse(DropReason::StreamReset));
    assert!(are_reset(&bench.left(&[sent]), [0, 0]));

    next(&mut bench, OnOverflow::Pass);
    assert_eq!(bench.send(0, 0, 0, ACK, "an e"), [segment(0, 0, 0, ACK, "an e")]);
    assert_eq!(bench.send(0, 4, 0, ACK, "vil"), [segment(0, 4, 0, ACK, "vil")]);
    assert_eq!(count(&bench, "no-room-to-hold"), 4);

    // Others go on, and what they no longer hold back leaves room.
    let last = std::mem::replace(&mut bench.port, 4000);
    assert_eq!(bench.send(0, 4, 0, ACK, "vil"), [segment(0, 3, 0, ACK, "harmless")]);
    bench.port = last;
    next(&mut bench, OnOverflow::Drop);
    assert_eq!(bench.send(0, 0, 0, ACK, "an e"), [segment(0, 0, 0, ACK, "an ")]);
    assert_eq!(bench.send(0, 4, 0, ACK, "vil"), [segment(0, 3, 0, ACK, "harmless")]);
}
