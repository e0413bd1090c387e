use mmb_nf::{ChainVerdict, Harness};
use mmb_packet::build::{Frame, Ip4, Tcp};

/// Sends segments of these bytes, and a FIN. Returns what the receiver gets.
fn received(word: &str, pieces: &[&str]) -> String {
    let lines = format!("nf add s substitute {word}\nchain add c s");
    let mut harness = Harness::new(crate::registry(), &lines).unwrap();
    let frame = |seq: u32, flags: u8, bytes: &str| {
        let tcp = Tcp { seq, ack: 1, flags, ..Tcp::new(1000, 80) };
        Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), tcp).payload(bytes).build()
    };
    let mut seq = 1;
    let mut frames = vec![frame(0, 2, "")];
    for piece in pieces {
        frames.push(frame(seq, 16, piece));
        seq += piece.len() as u32;
    }
    frames.push(frame(seq, 17, ""));
    let (mut next, mut bytes) = (1, Vec::new());
    for frame in frames {
        for sent in harness.send("c", &[frame]) {
            let passed = (sent.verdict == ChainVerdict::Pass).then_some(sent.frame);
            for frame in sent.emitted.into_iter().map(|(_, frame)| frame).chain(passed) {
                let number = u32::from_be_bytes(frame[38..42].try_into().unwrap());
                if frame[47] & 2 == 0 && frame[23] == 6 && frame[34..36] == 1000_u16.to_be_bytes() {
                    assert_eq!(number, next, "{}", String::from_utf8_lossy(&frame[54..]));
                    next += frame.len() as u32 - 54;
                    bytes.extend_from_slice(&frame[54..]);
                }
            }
        }
    }
    String::from_utf8(bytes).unwrap()
}

#[test]
fn words_are_replaced_wherever_segments_end() {
    let text = "evil words, vile words and an evevil one: ev";
    for cut in 1..text.len() {
        let (front, rest) = text.split_at(cut);
        for pieces in [vec![front, rest], text.split_inclusive(|_| true).collect()] {
            assert_eq!(received("evil good", &pieces), text.replace("evil", "good"));
            assert_eq!(received("evil", &pieces), text.replace("evil", ""));
            assert_eq!(received("e [e]", &pieces), text.replace('e', "[e]"));
        }
    }
}

#[test]
fn a_word_is_needed() {
    for line in ["nf add s substitute", "nf add s substitute a b c"] {
        assert!(Harness::new(crate::registry(), line).is_err(), "{line}");
    }
}
