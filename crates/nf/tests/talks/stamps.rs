//! Timestamps of segments that waited (RFC 7323, 5.3): in the order in which they leave, they do not go back.

use crate::talk::{ACK, Bench};

/// Value and echo of a timestamp option, aligned.
fn option(value: u32) -> Vec<u8> {
    [&[1, 1, 8, 10][..], &value.to_be_bytes(), &7u32.to_be_bytes()].concat()
}

/// Sends segments of direction 0 with timestamps. Returns text and timestamp of what goes on.
fn leave(chain: &str, segments: &[(i32, &str, u32)]) -> Vec<(String, u32)> {
    let mut bench = Bench::open(chain);
    let mut sent = Vec::new();
    for &(from, bytes, stamp) in segments {
        bench.options = option(stamp);
        let frame = bench.frame(0, from, 0, ACK, bytes);
        sent.extend(bench.send_frames(&[frame]));
    }
    let stamps = sent.iter().map(|sent| {
        let passed = (sent.verdict == mmb_nf::ChainVerdict::Pass).then_some(&sent.frame);
        let frames = sent.emitted.iter().map(|(_, frame)| frame).chain(passed);
        let stamp = |frame: &Vec<u8>| {
            let value = frame.get(58..62).and_then(|value| value.try_into().ok());
            value.map_or(0, u32::from_be_bytes)
        };
        frames.map(stamp).collect::<Vec<_>>()
    });
    let stamps = stamps.flatten().collect::<Vec<_>>();
    let left = bench.left(&sent);
    let all = left.into_iter().zip(stamps);
    // Acknowledgements go to the sender, and a keepalive asks the receiver.
    all.filter(|(left, _)| left.0 == 0 && !left.4.is_empty()).map(|(left, stamp)| (left.4, stamp)).collect()
}

fn texts(expected: &[(&str, u32)]) -> Vec<(String, u32)> {
    expected.iter().map(|&(text, stamp)| (text.to_owned(), stamp)).collect()
}

#[test]
fn what_waited_has_the_timestamp_of_what_it_waited_for() {
    for chain in ["n", "g", "e"] {
        let word = if chain == "e" { "harmless" } else { "evil" };
        // The first segment was lost, and repeated 200 ms later.
        let segments = [(1, "evil", 100), (5, "evil", 101), (9, "a", 102), (0, "b", 300), (10, "c", 301)];
        let expected = [("b", 300), (word, 300), (word, 300), ("a", 300), ("c", 301)];
        assert_eq!(leave(chain, &segments), texts(&expected), "{chain}");
    }
}

/// The network has sent segments in another order than their sender. The receiver may know the timestamp of a
/// later one, with which it was asked for what it has.
#[test]
fn what_comes_late_has_the_latest_timestamp() {
    for chain in ["n", "g", "e"] {
        let segments = [(2, "c", 110), (1, "b", 105), (0, "a", 100), (3, "d", 120)];
        let expected = [("a", 110), ("b", 110), ("c", 110), ("d", 120)];
        assert_eq!(leave(chain, &segments), texts(&expected), "{chain}");
        // Where the values wrap.
        let segments = [(1, "b", 3), (0, "a", u32::MAX - 3)];
        assert_eq!(leave(chain, &segments), texts(&[("a", 3), ("b", 3)]), "{chain}");
    }
}
