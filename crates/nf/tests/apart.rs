//! Stream functions that edit in a process, between two ends that repeat what is lost.

#![allow(clippy::unwrap_used)]

#[path = "common/memory.rs"]
mod memory;
#[path = "common/substitute.rs"]
mod substitute;

use std::collections::BTreeMap;
use std::sync::Arc;

use mmb_nf::harness::{Harness, Sent};
use mmb_nf::{ChainVerdict, DropReason, Registry};
use mmb_packet::build::{Frame, Ip4, Net, Tcp, Udp};
use proptest::prelude::*;

use memory::MemoryHost;
use substitute::Substitute;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
/// Offset of the TCP header of IPv4.
const TCP: usize = 34;
const INITIAL: [u32; 2] = [1000, 0xffff_fff0];

fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.add_stream::<Substitute>();
    registry
}

/// A segment that has left: distance of its numbers from the first bytes, flags and payload.
#[derive(Clone, Debug, PartialEq)]
struct Left {
    direction: usize,
    from: i32,
    acked: i32,
    flags: u8,
    bytes: Vec<u8>,
}

struct Bench {
    harness: Harness,
    host: Arc<MemoryHost>,
}

fn net(direction: usize) -> Net {
    let ends = [[10, 0, 0, 1], [10, 0, 0, 2]];
    Ip4::new(ends[direction], ends[1 - direction]).into()
}

fn frame(direction: usize, from: i32, acked: i32, flags: u8, bytes: &[u8]) -> Vec<u8> {
    let number = |direction: usize, at: i32| INITIAL[direction].wrapping_add(at as u32);
    let (seq, ack) = (number(direction, from), number(1 - direction, acked));
    let (sport, dport) = if direction == 0 { (4000, 80) } else { (80, 4000) };
    Frame::new(net(direction), Tcp { seq, ack, flags, ..Tcp::new(sport, dport) }).payload(bytes).build()
}

fn left(sent: &[Sent]) -> Vec<Left> {
    let mut all = Vec::new();
    for sent in sent {
        let passed = (sent.verdict == ChainVerdict::Pass).then_some(&sent.frame);
        for frame in sent.emitted.iter().map(|(_, frame)| frame).chain(passed) {
            mmb_nf::testing::assert_checksums(frame);
            let tcp = &frame[TCP..];
            let direction = usize::from(tcp[1] == 80);
            let number = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
            let len = usize::from(u16::from_be_bytes([frame[16], frame[17]])) + 14;
            all.push(Left {
                direction,
                from: number(4).wrapping_sub(INITIAL[direction]) as i32,
                acked: number(8).wrapping_sub(INITIAL[1 - direction]) as i32,
                flags: tcp[13],
                bytes: frame[TCP + usize::from(tcp[12] >> 4) * 4..len].to_vec(),
            });
        }
    }
    all
}

impl Bench {
    fn new(words: &str, domain: &str) -> Bench {
        let host = Arc::new(MemoryHost::new(registry));
        let lines =
            format!("domain add d private {domain}\nnf add w substitute {words} process d\nchain add c w");
        let harness = Harness::with_processes(registry(), &lines, host.clone()).unwrap();
        let mut bench = Bench { harness, host };
        bench.harness.released();
        for (direction, flags) in [(0, SYN), (1, SYN | ACK), (0, ACK)] {
            let from = if flags & SYN != 0 { -1 } else { 0 };
            let frame = frame(direction, from, 0, flags, b"");
            assert_eq!(left(&bench.send(std::slice::from_ref(&frame), 9)).len(), 1);
        }
        bench
    }

    /// Sends frames, and lets the process work on so many items. Returns what goes on.
    fn send(&mut self, frames: &[Vec<u8>], items: usize) -> Vec<Sent> {
        self.harness.runner().poll_processes();
        let mut sent = self.harness.send("c", frames);
        sent.retain(|one| one.verdict != ChainVerdict::Hold);
        sent.extend(self.work(items));
        sent
    }

    fn work(&mut self, items: usize) -> Vec<Sent> {
        self.host.with(|memory| memory.run(items));
        self.harness.released()
    }

    /// Sends a segment, which comes back from the process. Returns the payloads of what leaves.
    fn texts(&mut self, from: i32, flags: u8, bytes: &str) -> Vec<(i32, String)> {
        let sent = self.send(&[frame(0, from, 0, ACK | flags, bytes.as_bytes())], 9);
        let text = |one: &Left| (one.from, String::from_utf8_lossy(&one.bytes).into_owned());
        left(&sent).iter().filter(|one| one.direction == 0).map(text).collect()
    }
}

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

#[test]
fn a_packet_that_is_away_for_too_long_is_lost() {
    let mut bench = Bench::new("evil harmless", "");
    bench.send(&[frame(0, 0, 0, ACK, b"evil")], 0);
    bench.harness.expire(1_000_000);
    let sent = bench.harness.released();
    assert_eq!(left(&sent).iter().filter(|one| one.flags & RST != 0).count(), 2, "{sent:?}");
    assert!(left(&bench.work(9)).is_empty());
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

fn datagram(bytes: &str) -> Vec<u8> {
    Frame::new(net(0), Udp::new(5000, 53)).payload(bytes.as_bytes()).build()
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

#[test]
fn refused_chains() {
    let refused = |chain: &str| {
        let lines = format!(
            "domain add d private\nnf add w substitute a b process d\nnf add v substitute a b process d\n\
             nf add l substitute a b\nchain add c {chain}"
        );
        Harness::new(registry(), &lines).err().map(|error| error.to_string())
    };
    assert_eq!(refused("w"), None);
    for chain in ["w | v", "w | l", "l | w"] {
        let error = refused(chain).unwrap();
        assert!(error.contains("edits the same streams"), "{error}");
    }
}

/// The sender's bytes, and what its receiver has.
struct Ends {
    content: Vec<u8>,
    acked: usize,
    received: Vec<u8>,
    early: BTreeMap<usize, Vec<u8>>,
    is_reset: bool,
}

impl Ends {
    fn take(&mut self, all: &[Left]) {
        for one in all {
            self.is_reset |= one.flags & RST != 0;
            match one.direction {
                0 => {
                    let (from, bytes) = (one.from as usize, &one.bytes);
                    let known = self.early.entry(from).or_default();
                    if bytes.len() > known.len() {
                        known.clone_from(bytes);
                    }
                }
                _ if one.flags & ACK != 0 => self.acked = self.acked.max(one.acked.max(0) as usize),
                _ => {}
            }
        }
        while let Some((&from, _)) =
            self.early.first_key_value().filter(|(from, _)| **from <= self.received.len())
        {
            let bytes = self.early.remove(&from).unwrap_or_default();
            let new = bytes.get(self.received.len() - from..).unwrap_or_default();
            self.received.extend_from_slice(new);
        }
    }
}

/// What happens in each round: bytes to skip in front of what is sent, sizes of segments, lost ones, items
/// that the process works on.
type Round = (u8, Vec<(u8, bool)>, u8, bool);

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let segments = prop::collection::vec((1..40_u8, prop::bool::weighted(0.8)), 0..6);
    prop::collection::vec((0..30_u8, segments, 0..12_u8, prop::bool::weighted(0.7)), 40)
}

/// Transfers content through a chain. `kill`: the process ends in front of this round.
fn transfer(bench: &mut Bench, content: &[u8], rounds: &[Round], kill: Option<usize>) -> Ends {
    let mut ends = Ends {
        content: content.to_vec(),
        acked: 0,
        received: Vec::new(),
        early: BTreeMap::new(),
        is_reset: false,
    };
    for (number, (skip, sizes, items, is_acked)) in rounds.iter().cycle().take(4000).enumerate() {
        if ends.acked >= content.len() || ends.is_reset {
            break;
        }
        if kill == Some(number) {
            bench.host.with(|memory| memory.kill());
        }
        let mut from = ends.acked + usize::from(*skip) * usize::from(number % 3 == 0);
        let mut frames = Vec::new();
        for &(size, arrives) in sizes {
            let to = (from + usize::from(size)).min(ends.content.len());
            if from < to && arrives {
                frames.push(frame(0, from as i32, 0, ACK, &ends.content[from..to]));
            }
            from = to;
        }
        let sent = left(&bench.send(&frames, (*items).into()));
        // Some of what leaves is lost as well.
        let kept: Vec<_> = sent.into_iter().enumerate().filter(|(n, _)| (n + number) % 5 != 0).collect();
        ends.take(&kept.into_iter().map(|(_, one)| one).collect::<Vec<_>>());
        if *is_acked {
            let sent = bench.send(&[frame(1, 0, ends.received.len() as i32, ACK, b"")], (*items).into());
            ends.take(&left(&sent));
        }
    }
    ends
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
