//! Stream functions that join open connections: they begin at the next byte, and none is lost or passes by.

use mmb_stream::{OnPickup, Policy};

use crate::talk::{ACK, Bench, LINES, segment};

const FIN: u8 = 1;

/// A bench whose connections are read from their middle on.
fn inspect(chain: &str) -> Bench {
    let mut bench = Bench::new(chain);
    bench.set_policy(Policy { pickup: OnPickup::Inspect, ..Policy::default() });
    bench
}

/// A function that edits comes to one that reads. What it was not given passes as it was, also if it comes
/// again, alone or with bytes behind it, and is acknowledged as it was.
#[test]
fn a_function_that_edits_joins_one_that_reads() {
    for (reader, copy) in [("n", "an evXX"), ("g", "an evil")] {
        let mut bench = Bench::open(reader);
        bench.send(0, 0, 0, ACK, "an evil");
        bench.send(1, 0, 0, ACK, "evil");
        bench.set_chain(&format!("e | {reader}"));
        assert_eq!(bench.send(0, 7, 0, ACK, " evil word"), [segment(0, 7, 0, ACK, " harmless word")]);
        assert_eq!(bench.send(1, 4, 0, ACK, " evil"), [segment(1, 4, 0, ACK, " harmless")]);
        // Both segments are lost. With a function that reads content, no other bytes come in their place.
        assert_eq!(bench.send(0, 0, 0, ACK, "an evXX"), [segment(0, 0, 0, ACK, copy)]);
        assert_eq!(bench.send(0, 7, 0, ACK, " evXX word"), [segment(0, 7, 0, ACK, " harmless word")]);
        let mut left = bench.send(0, 3, 0, ACK, "evil evil wordevil");
        left.sort();
        let bytes: String = left.iter().map(|(.., bytes)| bytes.as_str()).collect();
        assert_eq!((left[0].1, bytes.as_str()), (3, "evil harmless wordharmless"), "{reader}: {left:?}");
        for (acked, told) in [(3, 3), (7, 7), (8, 8), (10, 8), (16, 12), (21, 17), (29, 21)] {
            assert_eq!(bench.send(1, 9, acked, ACK, ""), [segment(1, 13, told, ACK, "")], "{reader} {acked}");
        }
        // Acknowledged bytes do not leave again. Their number is one that the receiver has acknowledged.
        assert_eq!(bench.send(0, 0, 0, ACK, "an evil"), [segment(0, 8, 0, ACK, "")]);
        assert_eq!(bench.send(0, 21, 13, ACK | FIN, ""), [segment(0, 29, 9, ACK | FIN, "")]);
    }
}

/// The right edge of a window stays where the sender knows it (RFC 9293, 3.8.6), and bytes that are removed
/// whole are acknowledged with the window that the receiver has told.
#[test]
fn windows_are_known_from_the_beginning() {
    let mut bench = Bench::open("n");
    bench.set_chain("e | n");
    assert_eq!(bench.send(0, 0, 0, ACK, "evil"), [segment(0, 0, 0, ACK, "harmless")]);
    let lines = format!("{LINES}nf add r substitute evil\n");
    let mut bench = Bench::open("n");
    bench.harness.load(&format!("{lines}chain add c r | n")).expect("valid");
    assert_eq!(bench.send(0, 0, 0, ACK, "evil"), [segment(1, 0, 4, ACK, "")]);
    assert_eq!(bench.send(0, 4, 0, ACK, "good"), [segment(0, 0, 0, ACK, "good")]);
    assert_eq!(bench.send(1, 0, 4, ACK, ""), [segment(1, 0, 8, ACK, "")]);
}

/// What waits for bytes in front of it is edited behind them.
#[test]
fn segments_that_wait_go_on_first() {
    let mut bench = Bench::open("g");
    bench.send(0, 4, 0, ACK, "evil");
    bench.set_chain("e | g");
    // The sender is told that bytes are missing.
    assert!(bench.send(0, 8, 0, ACK, "evil").iter().all(|left| left.0 == 1));
    let left = bench.send(0, 0, 0, ACK, "evil");
    let bytes: String = left.iter().map(|(.., bytes)| bytes.as_str()).collect();
    assert_eq!(bytes, "evilevilevil");
    assert_eq!(bench.send(0, 12, 0, ACK, "evil"), [segment(0, 12, 0, ACK, "harmless")]);
    assert_eq!(bench.send(0, 16, 0, ACK, "a !").iter().filter(|left| left.3 & 4 != 0).count(), 2);
}

/// A function that reads content comes to one that does not. What has gone on before may come again until it
/// is acknowledged. What the function has read comes again as it was.
#[test]
fn a_function_that_reads_content_joins_one_that_does_not() {
    let mut bench = Bench::open("n");
    bench.send(0, 0, 0, ACK, "0123456789");
    bench.set_chain("g | n");
    assert_eq!(bench.send(0, 10, 0, ACK, "abcd"), [segment(0, 10, 0, ACK, "abcd")]);
    for (at, again, expected) in [
        (0, "0123456789", "0123456789"),
        (5, "56789aXcd", "56789abcd"),
        (12, "XX", "cd"),
        (8, "89abcdef", "89abcdef"),
    ] {
        assert_eq!(bench.send(0, at, 0, ACK, again), [segment(0, at, 0, ACK, expected)]);
    }
    bench.send(1, 0, 10, ACK, "");
    assert_eq!(bench.send(0, 10, 0, ACK, "XXXXXX"), [segment(0, 10, 0, ACK, "abcdef")]);
    let reset = bench.send(0, 16, 0, ACK, "a word!");
    assert_eq!(reset.iter().filter(|left| left.3 & 4 != 0).count(), 2, "{reset:?}");
}

/// RFC 2385, RFC 5925 and RFC 8684: each segment, or each with data, has an option.
#[test]
fn connections_that_cannot_be_edited_stay_as_they_are() {
    let options = [vec![19, 18], vec![29, 16], vec![30, 20]];
    for (mut option, picks_up) in
        options.into_iter().flat_map(|option| [(option.clone(), true), (option, false)])
    {
        let len = usize::from(option[1]).next_multiple_of(4);
        option.resize(usize::from(option[1]), 0);
        option.resize(len, 1);
        let mut bench = if picks_up { inspect("e") } else { Bench::open("n") };
        if !picks_up {
            bench.set_chain("e | n");
        }
        bench.options = option;
        assert_eq!(bench.send(1, 0, 0, ACK, "evil"), [segment(1, 0, 0, ACK, "evil")]);
        for at in [0, 4, 0] {
            assert_eq!(bench.send(0, at, 4, ACK, "evil"), [segment(0, at, 4, ACK, "evil")]);
        }
    }
}

/// A connection that is read from its middle on. More may have gone on behind the first segment that is read,
/// which may be a late one. A receiver that has no more tells so.
#[test]
fn lengths_change_where_the_receiver_has_no_more() {
    let mut bench = inspect("e");
    bench.send(1, 0, 90, ACK, "x");
    assert_eq!(bench.send(0, 100, 1, ACK, "evil."), [segment(0, 100, 1, ACK, "evil.")]);
    bench.send(1, 1, 96, ACK, "");
    assert_eq!(bench.send(0, 105, 1, ACK, "evil."), [segment(0, 105, 1, ACK, "evil.")]);
    // It has bytes behind those that it acknowledges.
    bench.options = [&[1, 1, 5, 10][..], &1120u32.to_be_bytes(), &1130u32.to_be_bytes()].concat();
    bench.send(1, 1, 110, ACK, "");
    bench.options.clear();
    assert_eq!(bench.send(0, 110, 1, ACK, "evil."), [segment(0, 110, 1, ACK, "evil.")]);
    // It got some bytes twice (RFC 2883).
    bench.options = [&[1, 1, 5, 10][..], &1100u32.to_be_bytes(), &1105u32.to_be_bytes()].concat();
    bench.send(1, 1, 115, ACK, "");
    bench.options.clear();
    assert_eq!(bench.send(0, 115, 1, ACK, "evil."), [segment(0, 115, 1, ACK, "harmless.")]);
    assert_eq!(bench.send(0, 120, 1, ACK, "."), [segment(0, 124, 1, ACK, ".")]);
}

/// A possible word is held back, and what follows it is lost. Its sender repeats it before all else, so it is
/// told that it arrived, or nothing else would ever come.
#[test]
fn held_bytes_of_an_unsure_direction_are_acknowledged() {
    let mut bench = inspect("e");
    bench.send(1, 0, 90, ACK, "x");
    assert_eq!(bench.send(0, 100, 0, ACK, "an ev"), [segment(0, 100, 0, ACK, "an ")]);
    bench.send(0, 107, 0, ACK, "evil.");
    bench.options = [&[1, 1, 5, 10][..], &1120u32.to_be_bytes(), &1130u32.to_be_bytes()].concat();
    bench.send(1, 1, 103, ACK, "");
    bench.options.clear();
    let told = bench.send(0, 103, 0, ACK, "ev");
    assert!(told.iter().any(|left| (left.0, left.2) == (1, 105)), "{told:?}");
}

/// What the receiver of one direction may lack does not keep those from being edited that waited in the other
/// one.
#[test]
fn segments_that_waited_are_edited_beside_an_unsure_direction() {
    let mut bench = inspect("e");
    bench.send(1, 0, 90, ACK, "x");
    bench.send(0, 100, 0, ACK, "evil.");
    bench.send(1, 1, 105, ACK, "");
    assert_eq!(bench.send(0, 106, 0, ACK, "evil.").iter().filter(|left| left.0 == 0).count(), 0);
    let left = bench.send(0, 105, 0, ACK, ".");
    let bytes: String = left.iter().map(|(.., bytes)| bytes.as_str()).collect();
    assert_eq!((left[0].1, bytes.as_str()), (105, ".harmless."), "{left:?}");
}

/// Bytes in front of the first one that is read were sent before, and may be lost behind mmb: they pass
/// alone, and with others behind them.
#[test]
fn bytes_in_front_of_the_first_one_may_come_again() {
    for chain in ["e", "g", "n"] {
        let mut bench = inspect(chain);
        bench.send(1, 0, 90, ACK, "x");
        bench.send(0, 100, 1, ACK, "abcd");
        let again = bench.send(0, 90, 1, ACK, "0123456789");
        assert_eq!(again, [segment(0, 90, 1, ACK, "0123456789")], "{chain}");
        let left = bench.send(0, 94, 1, ACK, "456789abcdefgh");
        let bytes: String = left.iter().map(|(.., bytes)| bytes.as_str()).collect();
        assert_eq!((left[0].1, bytes.as_str()), (94, "456789abcdefgh"), "{chain}: {left:?}");
        bench.send(1, 1, 108, ACK, "");
        let edited = if chain == "e" { "harmless" } else { "evil" };
        assert_eq!(bench.send(0, 108, 1, ACK, "evil"), [segment(0, 108, 1, ACK, edited)], "{chain}");
    }
}
