//! What an edit changes in TCP headers: blocks, windows, flags and options.

use crate::bench::{ACK, Bench, SYN, segment};
use mmb_flow::SessionSettings;
use mmb_nf::ChainVerdict;
use mmb_packet::build::{Frame, Tcp};
use mmb_stream::{OnMptcp, Policy};

/// Offset of the TCP header of IPv4.
const TCP: usize = 34;

/// Sends a frame, which goes on in its place.
fn one(bench: &mut Bench, frame: &[u8]) -> Vec<u8> {
    let sent = bench.harness.send("c", &[frame.to_vec()]).remove(0);
    assert_eq!((sent.verdict, sent.emitted.len()), (ChainVerdict::Pass, 0));
    mmb_nf::testing::assert_checksums(&sent.frame);
    sent.frame
}

/// RFC 2018: a sender may drop what is in a block. So no block tells of bytes whose edit the receiver lacks.
#[test]
fn selective_acknowledgements_promise_no_more_than_has_arrived() {
    let lines = "nf add w substitute evil harmless\nnf add r substitute gone";
    let mut bench = Bench::new(lines, "w then r");
    assert_eq!(bench.send(0, 0, 0, ACK, "an evil word"), [segment(0, 0, 0, ACK, "an harmless word")]);
    assert_eq!(bench.send(0, 12, 0, ACK, "gone, and on"), [segment(0, 16, 0, ACK, ", and on")]);
    // Around the longer word, within it, behind what was removed, and all.
    let blocks =
        [((11, 16), (7, 16)), ((5, 14), (7, 10)), ((1, 9), (1, 3)), ((16, 24), (16, 24)), ((1, 24), (1, 24))];
    let [initial, seq] = bench.initial;
    let option = |(from, to): (u32, u32)| {
        let number = |at: u32| initial.wrapping_add(at).to_be_bytes();
        [&[1, 1, 5, 10][..], &number(from), &number(to)].concat()
    };
    let mut told = |block| {
        let tcp = Tcp { seq, ack: initial, flags: ACK, window: 10_000, ..Tcp::new(80, 4000) };
        let frame = Frame::new(bench.net[1].clone(), Tcp { options: option(block), ..tcp }).build();
        one(&mut bench, &frame)[TCP + 20..TCP + 32].to_vec()
    };
    for (block, expected) in blocks {
        assert_eq!(told(block), option(expected), "{block:?}");
    }
    // Nothing is left of a block within the longer word.
    assert_eq!(told((4, 9)), [1; 12]);
}

/// RFC 9293, 3.8.6: the right edge of a window does not move back, also if bytes were inserted.
#[test]
fn the_right_edge_of_a_window_stays() {
    let mut bench = Bench::new("nf add w substitute evil harmless", "w");
    bench.send(0, 0, 0, ACK, "an evil word");
    let mut edge = 10_000;
    for (acked, window, told) in [(3, 9_997, 3), (16, 9_984, 12), (16, 9_984, 12), (16, 10_000, 12)] {
        bench.window = window;
        let frame = bench.frame(1, 0, acked, ACK, b"");
        let left = one(&mut bench, &frame);
        let word = |at: usize| i32::from(u16::from_be_bytes([left[TCP + at], left[TCP + at + 1]]));
        let number = u32::from_be_bytes(left[TCP + 8..TCP + 12].try_into().expect("four bytes"));
        assert_eq!(number, bench.initial[0] + told as u32);
        assert!(told + word(14) >= edge, "{acked}: {} in front of {edge}", told + word(14));
        edge = told + word(14);
    }
    // 10,016 of the receiver are 10,012 of the sender.
    assert_eq!(edge, 10_012);
}

/// RFC 3168, 6.1.2: one segment has CWR. RFC 9293, 3.8.6.2: PSH is behind the last byte. All parts have been
/// through the congestion that the codepoint of the packet tells of (RFC 3168, 5).
#[test]
fn flags_of_a_segment_that_is_split() {
    const PSH: u8 = 8;
    const ECE: u8 = 0x40;
    const CWR: u8 = 0x80;
    let mut bench = Bench::new("nf add w substitute evil harmless", "w");
    let text = format!("evil{}", "x".repeat(532));
    let left = bench.send(0, 0, 0, ACK | PSH | ECE | CWR, &text);
    let flags: Vec<_> = left.iter().map(|left| (left.3, left.4.len())).collect();
    assert_eq!(flags, [(ACK | ECE | CWR, 536), (ACK | ECE | PSH, 4)]);
    let mut marked = bench.frame(0, 536, 0, ACK, text.as_bytes());
    // Congestion experienced; the sum of the header changes by as much.
    marked[15] = 3;
    let sum = u16::from_be_bytes([marked[24], marked[25]]) - 3;
    marked[24..26].copy_from_slice(&sum.to_be_bytes());
    let sent = bench.harness.send("c", &[marked]);
    assert_eq!(bench.left(&sent).len(), 2);
    assert!(sent[0].emitted.iter().all(|(_, frame)| frame[15] == 3));
}

/// A connection that is edited has one path: RFC 8684 falls back to TCP without its option.
#[test]
fn multipath_is_not_negotiated() {
    let mut bench = Bench::new("nf add w substitute evil harmless", "w");
    let syn = multipath_syn(&bench, 0, b"");
    let left = one(&mut bench, &syn);
    assert_eq!(left[TCP + 20..TCP + 32], [2, 4, 5, 180, 1, 1, 1, 1, 3, 3, 7, 0]);
    assert_eq!(bench.counters(), [("options of several paths removed".to_owned(), 1)]);
}

/// A SYN or its answer on other ports, with MP_CAPABLE (RFC 8684, 3.1).
fn multipath_syn(bench: &Bench, direction: usize, data: &[u8]) -> Vec<u8> {
    let options = vec![2, 4, 5, 180, 30, 4, 1, 0, 3, 3, 7, 0];
    let ports = [(4001, 80), (80, 4001)][direction];
    let flags = [SYN, SYN | ACK][direction];
    let ack = [0, 1001][direction];
    let tcp = Tcp { seq: 1000, ack, flags, options, ..Tcp::new(ports.0, ports.1) };
    Frame::new(bench.net[direction].clone(), tcp).payload(data).build()
}

/// With `set stream-mptcp pass`, a connection whose ends both ask for several paths is not edited. If the
/// server does not, or the SYN has data, it is.
#[test]
fn connections_of_several_paths_pass_unedited_by_a_setting() {
    for (is_answered, data, is_edited) in [(true, "", false), (false, "", true), (true, "data", true)] {
        let mut bench = Bench::new("nf add w substitute evil harmless", "w");
        let streams = Policy { mptcp: OnMptcp::Pass, ..Policy::default() };
        let program = bench.harness.program().clone();
        bench
            .harness
            .runner()
            .set_program(&program, &SessionSettings { streams, ..SessionSettings::default() });
        let syn = multipath_syn(&bench, 0, data.as_bytes());
        let left = one(&mut bench, &syn);
        assert_eq!(left[TCP + 24] == 30, data.is_empty());
        let len = data.len() as u32;
        let mut answer = multipath_syn(&bench, 1, b"");
        if !is_answered || !data.is_empty() {
            // The server does not know several paths, or was not asked for them.
            let tcp = Tcp { seq: 1000, ack: 1001 + len, flags: SYN | ACK, ..Tcp::new(80, 4001) };
            answer = Frame::new(bench.net[1].clone(), tcp).build();
        }
        assert_eq!(one(&mut bench, &answer), answer);
        let tcp = Tcp { seq: 1001 + len, ack: 1001, flags: ACK, ..Tcp::new(4001, 80) };
        let word = Frame::new(bench.net[0].clone(), tcp).payload(b"an evil word".to_vec()).build();
        let sent = bench.harness.send("c", std::slice::from_ref(&word));
        let frames: Vec<_> = match sent[0].verdict {
            ChainVerdict::Pass => vec![&sent[0].frame],
            _ => sent[0].emitted.iter().map(|(_, frame)| frame).collect(),
        };
        let expected: &[u8] = if is_edited { b"an harmless word" } else { b"an evil word" };
        assert_eq!(frames.len(), 1);
        assert_eq!(&frames[0][TCP + 20..], expected, "{is_answered} {data}");
        let counted = bench.counters();
        let has = |name: &str| counted.iter().any(|(one, _)| one == name);
        assert_eq!(has("connections of several paths, not edited"), !is_edited);
        assert_eq!(has("options of several paths removed"), !data.is_empty());
        assert_eq!(has("edits refused: not-editable"), !is_edited);
        let state = bench.harness.describe(&word).expect("a session");
        assert_eq!(state[0].1.ends_with(", cannot be edited"), !is_edited, "{state:?}");
    }
}
