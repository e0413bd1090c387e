//! Connections whose functions have left them.

use crate::bench::{ACK, Bench, FIN, segment};

const LONGER: &str = "nf add w substitute evil harmless\nnf add n count-packets";

#[test]
fn offsets_outlive_the_functions() {
    for chain in ["n", "n then again", "again"] {
        let mut bench = Bench::new(LONGER, "w then n");
        assert_eq!(bench.send(0, 0, 0, ACK, "an evil word"), [segment(0, 0, 0, ACK, "an harmless word")]);
        assert_eq!(bench.send(1, 0, 16, ACK, "one evil"), [segment(1, 0, 12, ACK, "one harmless")]);
        let lines = format!("nf add n count-packets\nnf add again flow\nchain add c {chain}");
        bench.harness.load(&lines).expect("valid");
        // Further bytes are not edited, and the numbers of both ends stay.
        assert_eq!(bench.send(0, 12, 0, ACK, "evil"), [segment(0, 16, 0, ACK, "evil")]);
        assert_eq!(bench.send(1, 8, 20, ACK, "evil"), [segment(1, 12, 16, ACK, "evil")]);
        // What was edited and is not acknowledged is repeated as it was.
        assert_eq!(bench.send(1, 0, 20, ACK, "one evil"), [segment(1, 0, 16, ACK, "one harmless")]);
        assert_eq!(bench.send(0, 16, 16, ACK, ""), [segment(0, 20, 12, ACK, "")]);
        // The receiver answers what it has got.
        assert_eq!(bench.send(1, 0, 16, ACK, "one evil"), [segment(1, 4, 12, ACK, "")]);
        assert_eq!(bench.send(0, 16, 16, ACK | FIN, ""), [segment(0, 20, 12, ACK | FIN, "")]);
        assert_eq!(bench.send(1, 12, 21, ACK | FIN, ""), [segment(1, 16, 17, ACK | FIN, "")]);
        assert_eq!(bench.send(0, 17, 17, ACK, ""), [segment(0, 21, 13, ACK, "")]);
        bench.harness.end_all();
    }
}

#[test]
fn offsets_outlive_several_functions_and_new_edits_add_to_them() {
    let mut bench = Bench::new(LONGER, "w");
    assert_eq!(bench.send(0, 0, 0, ACK, "evil"), [segment(0, 0, 0, ACK, "harmless")]);
    assert_eq!(bench.send(1, 0, 8, ACK, ""), [segment(1, 0, 4, ACK, "")]);
    // Another function that edits takes the place of the first one, and has its numbers.
    bench.harness.load("nf add r substitute dark bright\nchain add c r").expect("valid");
    assert_eq!(bench.send(0, 4, 0, ACK, "evil dark"), [segment(0, 8, 0, ACK, "evil bright")]);
    assert_eq!(bench.send(1, 0, 19, ACK, ""), [segment(1, 0, 13, ACK, "")]);
    bench.harness.load("nf add n count-packets\nchain add c n").expect("valid");
    assert_eq!(bench.send(0, 13, 0, ACK, "dark"), [segment(0, 19, 0, ACK, "dark")]);
    bench
        .harness
        .load("nf add n count-packets\nnf add r substitute dark bright\nchain add c r then n")
        .expect("valid");
    assert_eq!(bench.send(0, 17, 0, ACK, "x"), [segment(0, 23, 0, ACK, "x")]);
    assert_eq!(bench.send(1, 0, 24, ACK, ""), [segment(1, 0, 18, ACK, "")]);
}

#[test]
fn bytes_that_are_held_back_go_on_when_their_function_leaves() {
    for (chain, lines) in [("n", "nf add n count-packets"), ("r", "nf add r substitute dark bright")] {
        let mut bench = Bench::new(LONGER, "w");
        assert_eq!(bench.send(0, 0, 0, ACK, "an evil ev"), [segment(0, 0, 0, ACK, "an harmless ")]);
        bench.harness.load(&format!("{lines}\nchain add c {chain}")).expect("valid");
        // The reply brings nothing; the next segment brings what was held, in any order.
        let mut left = bench.send(0, 10, 0, ACK, "il!");
        left.sort();
        let bytes: String = left.iter().map(|(.., bytes)| bytes.as_str()).collect();
        assert_eq!((bytes.as_str(), left[0].1), ("evil!", 12), "{left:?}");
        assert_eq!(bench.send(1, 0, 17, ACK, ""), [segment(1, 0, 13, ACK, "")]);
    }
}

/// Bytes that a function holds back when it leaves do not pass by a function that stays.
#[test]
fn bytes_that_a_function_has_not_judged_do_not_go_on() {
    let lines = "nf add a substitute evil harmless\nnf add b substitute ev E\nnf add n count-packets";
    let mut bench = Bench::new(lines, "a then b then n");
    assert_eq!(bench.send(0, 0, 0, ACK, "an ev"), [segment(0, 0, 0, ACK, "an ")]);
    assert_eq!(bench.send(1, 0, 3, ACK, "an ev"), [segment(1, 0, 3, ACK, "an E")]);
    // `b` has not seen the two bytes.
    bench.harness.load(&format!("{lines}\nchain add c b then n")).expect("valid");
    let mut left = bench.send(0, 3, 4, ACK, "ev");
    left.sort();
    assert_eq!(left, [segment(0, 3, 5, ACK | 4, ""), segment(1, 4, -1000, 4, "")]);
    assert!(bench.send(0, 3, 4, ACK, "evil").iter().all(|(.., bytes)| bytes.is_empty()));
    // `a` has seen what waits for `b`, and nothing waits for `a`.
    let mut bench = Bench::new(lines, "a then b then n");
    assert_eq!(bench.send(0, 0, 0, ACK, "no E"), [segment(0, 0, 0, ACK, "no E")]);
    let lines = "nf add a substitute evil harmless\nnf add b substitute dark bright\nnf add n count-packets";
    let mut bench = Bench::new(lines, "a then b then n");
    assert_eq!(bench.send(0, 0, 0, ACK, "a dar"), [segment(0, 0, 0, ACK, "a ")]);
    bench.harness.load(&format!("{lines}\nchain add c a then n")).expect("valid");
    let mut left = bench.send(0, 5, 0, ACK, "k evil.");
    left.sort();
    let bytes: String = left.iter().map(|(.., bytes)| bytes.as_str()).collect();
    assert_eq!(bytes, "dark harmless.", "{left:?}");
}

#[test]
fn the_state_of_edits_is_shown() {
    let mut bench = Bench::new(LONGER, "w");
    assert_eq!(bench.send(0, 0, 0, ACK, "an evil ev").len(), 1);
    assert_eq!(bench.send(1, 0, 3, ACK, "evil").len(), 1);
    let shown = |bench: &mut Bench| {
        let described = bench.harness.describe(&bench.frame(0, 0, 0, ACK, b"")).expect("a session");
        described.into_iter().filter(|(name, _)| name == "(edits)").map(|(_, text)| text).collect::<Vec<_>>()
    };
    let forward = "offset +4, 1 edits in flight, 9 bytes not acknowledged, 2 bytes held back by functions";
    assert_eq!(
        shown(&mut bench),
        [format!("{forward} / offset +4, 1 edits in flight, 8 bytes not acknowledged")]
    );
    bench.harness.load("nf add n count-packets\nchain add c n").expect("valid");
    assert_eq!(bench.send(0, 10, 8, ACK, "").len(), 2);
    let forward = "offset +4, 1 edits in flight, 11 bytes not acknowledged";
    assert_eq!(shown(&mut bench), [format!("{forward} / offset +4; the functions have left")]);
}

#[test]
fn a_session_without_a_chain_keeps_its_offsets() {
    for (word, has_offset) in [("evil", true), ("good", false)] {
        let mut bench = Bench::new(LONGER, "w");
        let len = if has_offset { 8 } else { 4 };
        assert_eq!(bench.send(0, 0, 0, ACK, word).len(), 1);
        assert_eq!(bench.send(1, 0, len, ACK, ""), [segment(1, 0, 4, ACK, "")]);
        let frame = bench.frame(0, 4, 0, ACK, b"evil");
        let sent = bench.harness.send_without_chain(&frame);
        assert_eq!(sent.is_some(), has_offset);
        if let Some(sent) = sent {
            assert_eq!(bench.left(&[sent]), [segment(0, 8, 0, ACK, "evil")]);
            let frame = bench.frame(1, 0, 12, ACK, b"");
            let sent = bench.harness.send_without_chain(&frame).expect("offsets");
            assert_eq!(bench.left(&[sent]), [segment(1, 0, 8, ACK, "")]);
        }
    }
}
