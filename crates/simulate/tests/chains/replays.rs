//! Chains in replays of captures.

use mmb_packet::build::{Frame, Ip4, Tcp};

use super::common::replay;
use super::world::*;

const MILLISECOND: u64 = 1_000_000;

#[test]
fn copies_have_the_time_of_their_packet() {
    let lines = ["nf add c copy side 2", "chain add copies c", "add-stateful udp-dport 53 chain copies"];
    // Three packets in one walk, one in the next, and one that no chain accepts.
    let mut frames: Vec<_> =
        [0, 1, 2, MILLISECOND].map(|time| (MILLISECOND + time, there(5_000 + time as u16, b"x"))).into();
    frames.push((3 * MILLISECOND, back(99, b"x")));
    let (report, out) = replay(forwarding(&lines, None), &frames);
    let expected: Vec<_> =
        frames[..4].iter().flat_map(|frame| [frame, frame, frame]).chain(&frames[4..]).collect();
    let out: Vec<_> = out.into_iter().map(|frame| (frame.time_ns, frame.data)).collect();
    assert_eq!(out.iter().collect::<Vec<_>>(), expected);
    assert_eq!((report.packets, report.forwarded, report.emitted, report.dropped), (5, 5, 8, 0));
}

#[test]
fn sessions_end_in_capture_time() {
    let lines = ["nf add c copy back", "chain add copies c", "add-stateful udp-dport 53 chain copies"];
    let late = 600_000 * MILLISECOND;
    let frames = [(0, there(5_000, b"x")), (late, back(99, b"x"))];
    let (report, out) = replay(forwarding(&lines, None), &frames);
    let times: Vec<_> = out.iter().map(|frame| (frame.time_ns, frame.data[0])).collect();
    assert_eq!(times, [(0, 2), (0, 2), (late, 2), (late, 0xfa)]);
    assert_eq!((report.forwarded, report.emitted), (2, 2));
}

/// ICMP errors and SYN cookies are emitted frames; the packets that they answer are dropped.
#[test]
fn answers_are_emitted_frames() {
    let syn =
        Frame::new(Ip4::new([10, 0, 0, 1], [192, 0, 2, 1]), Tcp { flags: 2, ..Tcp::new(5_000, 80) }).build();
    let lines = ["nf add shield synproxy", "chain add c shield", "add-stateful tcp-dport 80 chain c"];
    let (report, out) = replay(forwarding(&lines, None), &[(0, syn)]);
    assert_eq!((out.len(), report.forwarded, report.emitted, report.dropped), (1, 0, 1, 1));
    let lines = ["nat pool add p 203.0.113.1 ports 2000-2000", "add-stateful ip-proto udp nat p"];
    let frames = [there(5_000, b"x"), there(5_001, b"x")].map(|frame| (0, frame));
    let (report, out) = replay(forwarding(&lines, None), &frames);
    assert_eq!((out.len(), report.forwarded, report.emitted, report.dropped), (2, 1, 1, 1));
}

/// A segment whose word becomes longer leaves in another frame, and is no drop.
#[test]
fn segments_that_are_replaced_are_no_drops() {
    let segment = |(seq, ack), flags, payload: &[u8]| {
        let tcp = Tcp { seq, ack, flags, window: 1000, ..Tcp::new(5_000, 80) };
        Frame::new(Ip4::new([10, 0, 0, 1], [192, 0, 2, 1]), tcp).payload(payload).build()
    };
    let tcp = Tcp { seq: 99, ack: 2, flags: 18, window: 1000, ..Tcp::new(80, 5_000) };
    let answer = Frame::new(Ip4::new([192, 0, 2, 1], [10, 0, 0, 1]), tcp).build();
    let lines =
        ["nf add w match evil replace harmless", "chain add c w", "add-stateful tcp-dport 80 chain c"];
    let syn = segment((1, 0), 2, b"");
    let sent = |word: &[u8]| {
        let behind = 2 + word.len() as u32;
        [syn.clone(), answer.clone(), segment((2, 100), 16, word), segment((behind, 100), 16, b"and so on")]
    };
    let (report, out) = replay(forwarding(&lines, None), &sent(b"an evil word").map(|frame| (0, frame)));
    assert_eq!((report.packets, report.forwarded, report.consumed, report.emitted), (4, 3, 1, 1));
    assert_eq!((report.dropped, report.drops.len()), (0, 0));
    let out: Vec<_> = out.into_iter().map(|frame| frame.data).collect();
    assert_eq!(out, sent(b"an harmless word"));
}

#[test]
fn a_replay_is_deterministic() {
    let lines = [
        "nf add n number",
        "nf add c copy onward 3",
        "chain add both n | c",
        "add-stateful ip-proto udp chain both",
    ];
    let frames: Vec<_> =
        (0..500u64).map(|i| (i * MILLISECOND / 50, there(5_000 + (i * i % 37) as u16, b"x"))).collect();
    let run = || replay(forwarding(&lines, None), &frames);
    let ((first, frames_of_first), (second, frames_of_second)) = (run(), run());
    assert_eq!((first.forwarded, first.emitted), (500, 1_500));
    assert_eq!(
        (first.forwarded, first.emitted, first.drops),
        (second.forwarded, second.emitted, second.drops)
    );
    let plain = |frames: Vec<mmb_simulate::capture::Frame>| -> Vec<_> {
        frames.into_iter().map(|frame| (frame.time_ns, frame.data)).collect()
    };
    assert_eq!(plain(frames_of_first), plain(frames_of_second));
}
