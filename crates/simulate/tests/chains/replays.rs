//! Chains in replays of captures.

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
