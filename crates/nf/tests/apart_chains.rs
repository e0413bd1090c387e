//! Several functions of a chain in processes, of which some edit, between two ends that repeat what is lost.

#![allow(clippy::unwrap_used)]

#[path = "common/apart.rs"]
mod common;
#[path = "common/memory.rs"]
mod memory;
#[path = "common/substitute.rs"]
mod substitute;

use mmb_nf::harness::{Harness, Sent};
use mmb_nf::{ChainVerdict, DropReason};
use proptest::prelude::*;

use common::{ACK, Bench, FIN, RST, datagram, frame, left, registry, rounds, transfer};

/// The words of functions: what they replace, and what they put in its place.
const WORDS: [[&str; 2]; 4] = [["evil", "bad harm"], ["harm", "x"], ["ad x", "ood one, and ev"], ["one", ""]];

/// Lines of a chain of functions. Some: the function is in a process of this domain.
fn lines(places: &[Option<&str>], settings: &str) -> String {
    let domains = ["d", "e"].map(|name| format!("domain add {name} private {settings}\n")).concat();
    let functions = places.iter().zip(WORDS).enumerate().map(|(number, (place, words))| {
        let place = place.map_or(String::new(), |domain| format!(" process {domain}"));
        let words = words.map(|word| if word.is_empty() { String::new() } else { format!(" \"{word}\"") });
        format!("nf add f{number} substitute{}{place}\n", words.concat())
    });
    let names: Vec<_> = (0..places.len()).map(|number| format!("f{number}")).collect();
    format!("{domains}{}chain add c {}", functions.collect::<String>(), names.join(" | "))
}

fn edited(content: &str, functions: usize) -> String {
    WORDS[..functions].iter().fold(content.to_owned(), |content, [old, new]| content.replace(old, new))
}

fn at(from: i32, text: &str) -> (i32, String) {
    (from, text.to_owned())
}

#[test]
fn functions_read_what_those_in_front_have_left() {
    let mut bench = Bench::with(&lines(&[Some("d"), Some("e")], ""));
    assert_eq!(bench.texts(0, 0, "an evil word"), [at(0, "an bad x word")]);
    // A beginning at the end of a segment. What the first function makes of it begins a word of the second.
    assert_eq!(bench.texts(12, 0, "ev"), []);
    assert_eq!(bench.texts(14, 0, "il!"), [at(13, "bad x!")]);
    // Repeated bytes leave as before, and acknowledgements come back as the sender counts.
    assert_eq!(bench.texts(12, 0, "evil!"), [at(13, "bad x!")]);
    let sent = bench.send(&[frame(1, 0, 19, ACK, b"")], 9);
    assert_eq!(left(&sent)[0].acked, 17);
    assert_eq!(bench.texts(17, FIN, " har"), [at(19, " har")]);
    bench.host.each(|memory| assert_eq!(memory.in_process(), 0));
}

/// Local functions in front of those in processes, between them and behind them.
#[test]
fn functions_of_the_worker_stand_anywhere() {
    for bits in 0..16_u32 {
        for domains in [["d"; 4], ["d", "e", "d", "e"]] {
            let places: Vec<_> = (0..4).map(|n| (bits >> n & 1 != 0).then_some(domains[n])).collect();
            let mut bench = Bench::with(&lines(&places, ""));
            let sent = if bits == 0 {
                bench.harness.send("c", &[frame(0, 0, 0, ACK, b"an evil word.")])
            } else {
                bench.send(&[frame(0, 0, 0, ACK, b"an evil word.")], 9)
            };
            let passed: Vec<u8> = left(&sent).iter().flat_map(|one| one.bytes.clone()).collect();
            assert_eq!(String::from_utf8(passed).unwrap(), edited("an evil word.", 4), "{places:?}");
        }
    }
}

#[test]
fn a_segment_without_bytes_goes_through() {
    let mut bench = Bench::with(&lines(&[Some("d"), None, Some("e")], ""));
    let frames = [frame(0, 0, 0, ACK, b"ev"), frame(0, 2, 0, ACK, b""), frame(0, 2, 0, ACK | FIN, b"")];
    let sent = left(&bench.send(&frames, 9));
    let shown: Vec<_> = sent.iter().map(|one| (one.from, &one.bytes[..], one.flags & FIN != 0)).collect();
    assert_eq!(shown, [(0, &b""[..], false), (0, b"ev", true)]);
}

fn text_of(sent: &[Sent]) -> Vec<String> {
    let frames = sent.iter().flat_map(|one| match one.verdict {
        ChainVerdict::Pass => vec![one.frame.clone()],
        _ => one.emitted.iter().map(|(_, frame)| frame.clone()).collect(),
    });
    frames.map(|frame| String::from_utf8_lossy(&frame[42..]).into_owned()).collect()
}

#[test]
fn datagrams_pass_several_processes() {
    for places in [[Some("d"), Some("d")], [None, Some("d")], [Some("e"), Some("d")], [Some("d"), None]] {
        let mut bench = Bench::with(&lines(&places, ""));
        let sent = bench.send(&["an evil one", "harm", "good", "evilevil"].map(datagram), 9);
        assert_eq!(text_of(&sent), ["an bad x one", "x", "good", "bad xbad x"]);
    }
}

/// A full process drops a segment before anything is noted of it, and no segment is lost between processes.
#[test]
fn room_is_kept_in_all_processes() {
    let mut bench = Bench::with(&lines(&[Some("d"), Some("e"), Some("d")], ""));
    let segments: Vec<_> = (0..200).map(|n| frame(0, n * 4, 0, ACK, b"evil")).collect();
    let (mut passed, mut from) = (Vec::new(), 0);
    while from < segments.len() {
        let sent = bench.send(&segments[from..(from + 100).min(segments.len())], 200);
        let held = sent.iter().filter(|one| matches!(one.verdict, ChainVerdict::Drop(_))).count();
        let all = left(&sent);
        assert!(all.iter().all(|one| one.flags & RST == 0), "{sent:?}");
        passed.extend(all.iter().flat_map(|one| one.bytes.clone()));
        from = (from + 100).min(segments.len()) - held;
    }
    let end = bench.texts(800, 0, ".").into_iter().map(|(_, text)| text);
    let all = String::from_utf8(passed).unwrap() + &end.collect::<String>();
    assert_eq!(all, edited(&("evil".repeat(200) + "."), 3));
}

/// Functions that read in processes beside those that edit read what these have left.
#[test]
fn readers_in_processes_stand_beside() {
    for (chain, forbidden) in
        [("r | w", "e"), ("w | r", "x"), ("l | r", "x"), ("l | r | w", "x"), ("w | r | v", "x")]
    {
        for byte in [forbidden, if forbidden == "e" { "x" } else { "e" }] {
            let mut bench = Bench::with(&format!(
                "domain add d private\nnf add w substitute evil xx process d\nnf add l substitute evil xx\n\
                 nf add v substitute none one process d\nnf add r forbid {byte} process d\nchain add c {chain}"
            ));
            let sent = left(&bench.send(&[frame(0, 0, 0, ACK, b"an evil word.")], 9));
            let is_reset = sent.iter().any(|one| one.flags & RST != 0);
            assert_eq!(is_reset, byte == forbidden, "{chain} {byte}: {sent:?}");
            let passed: Vec<u8> = sent.iter().flat_map(|one| one.bytes.clone()).collect();
            assert_eq!(passed, if is_reset { &b""[..] } else { b"an xx word." }, "{chain} {byte}");
        }
    }
}

#[test]
fn a_lost_process_resets_connections() {
    for which in 0..2 {
        let mut bench = Bench::with(&lines(&[Some("d"), Some("e")], ""));
        bench.send(&[frame(0, 0, 0, ACK, b"evil")], 0);
        if which == 1 {
            // The packet is in the second process.
            let mut number = 0;
            bench.host.each(|memory| {
                memory.run(if number == 0 { 9 } else { 0 });
                number += 1;
            });
            assert!(bench.harness.released().is_empty());
        }
        let mut number = 0;
        bench.host.each(|memory| {
            if number == which {
                memory.kill();
            }
            number += 1;
        });
        let sent = bench.harness.released();
        let resets = left(&sent).into_iter().filter(|one| one.flags & RST != 0).count();
        assert_eq!(resets, 2, "{sent:?}");
    }
}

/// More bytes than fit into a buffer.
#[test]
fn what_fits_into_no_buffer_resets_its_connection() {
    let new = "x".repeat(200);
    for (words, is_reset) in [(320, false), (340, true)] {
        let mut bench = Bench::with(&format!(
            "domain add d private\nnf add l substitute evil {new}\nnf add w substitute a b process d\nchain add c l | w"
        ));
        let sent = bench.send(&[frame(0, 0, 0, ACK, "evil".repeat(words).as_bytes())], 9);
        let has_reason = sent.iter().any(|one| one.verdict == ChainVerdict::End(DropReason::ProcessFull));
        let resets = left(&sent).iter().filter(|one| one.flags & RST != 0).count();
        assert_eq!((has_reason, resets), (is_reset, if is_reset { 2 } else { 0 }), "{sent:?}");
    }
}

#[test]
fn functions_move_one_by_one() {
    let place = |apart: bool| apart.then_some("d");
    let mut bench = Bench::with(&lines(&[None, None, Some("d")], ""));
    let (mut from, mut to) = (0, 0);
    for bits in [0b001, 0b011, 0b111, 0b110, 0b100, 0b111_u32] {
        let places: Vec<_> = (0..3).map(|n| place(bits >> n & 1 != 0)).collect();
        bench.harness.load(&lines(&places, "")).unwrap();
        bench.hops = 3;
        bench.harness.released();
        let new = edited("an evil word.", 3);
        let sent = bench.send(&[frame(0, from, 0, ACK, b"an evil word.")], 9);
        let all: Vec<u8> =
            left(&sent).iter().filter(|one| one.direction == 0).flat_map(|one| one.bytes.clone()).collect();
        assert_eq!(String::from_utf8(all).unwrap(), new, "{places:?}");
        (from, to) = (from + 13, to + new.len() as i32);
        let sent = bench.send(&[frame(1, 0, to, ACK, b"")], 9);
        assert_eq!(left(&sent)[0].acked, from);
    }
}

/// What a function that leaves holds back would overtake packets in a process: the connection is reset.
#[test]
fn bytes_do_not_overtake_packets_in_processes() {
    let mut bench = Bench::with(&lines(&[Some("d"), Some("e")], ""));
    bench.hops = 0;
    bench.send(&[frame(0, 0, 0, ACK, b"a word, ev")], 0);
    bench.host.each(|memory| memory.run(2));
    assert!(bench.harness.released().is_empty());
    bench.harness.load(&lines(&[None, Some("e")], "")).unwrap();
    bench.hops = 2;
    let sent = bench.send(&[frame(0, 10, 0, ACK, b"il.")], 9);
    assert!(left(&sent).iter().any(|one| one.flags & RST != 0), "{sent:?}");
    assert!(left(&sent).iter().all(|one| !one.bytes.starts_with(b"ev")), "{sent:?}");
}

#[test]
fn at_most_eight_are_in_processes() {
    let chain = |count: usize| {
        let functions: String =
            (0..count).map(|n| format!("nf add w{n} substitute a b process d\n")).collect();
        let names: Vec<_> = (0..count).map(|n| format!("w{n}")).collect();
        let lines = format!("domain add d private\n{functions}chain add c {}", names.join(" | "));
        Harness::new(registry(), &lines).err().map(|error| error.to_string())
    };
    assert_eq!(chain(8), None);
    let error = chain(9).unwrap();
    assert!(error.contains("`w8` is one stream function in a process too many"), "{error}");
}

fn places() -> impl Strategy<Value = Vec<Option<&'static str>>> {
    let place = prop::sample::select(vec![None, Some("d"), Some("e")]);
    prop::collection::vec(place, 1..=4)
        .prop_filter("one is in a process", |all| all.iter().any(Option::is_some))
}

fn content() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec!["evil", "ev", "e", "il", "good ", "harm", "ha", "ad x", "one", "."]);
    prop::collection::vec(word, 1..150).prop_map(|words| words.concat() + ".")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn all_bytes_arrive_edited(content in content(), rounds in rounds(), places in places()) {
        prop_assume!(rounds.iter().any(|round| round.2 > 2) && rounds.iter().any(|round| round.3));
        prop_assume!(rounds.iter().any(|round| round.1.iter().any(|(_, arrives)| *arrives)));
        let mut bench = Bench::with(&lines(&places, ""));
        let ends = transfer(&mut bench, content.as_bytes(), &rounds, None);
        prop_assert!(!ends.is_reset);
        prop_assert_eq!(String::from_utf8_lossy(&ends.received), edited(&content, places.len()));
    }

    /// A process that ends: nothing arrives that some function has not edited.
    #[test]
    fn a_process_ends(content in content(), rounds in rounds(), kill in 0..60_usize, places in places()) {
        let mut bench = Bench::with(&lines(&places, ""));
        let ends = transfer(&mut bench, content.as_bytes(), &rounds, Some(kill));
        let received = String::from_utf8(ends.received.clone()).unwrap();
        let edited = edited(&content, places.len());
        prop_assert!(edited.starts_with(&received), "{received} of {edited}");
    }
}
