use mmb_nf::{ChainVerdict, Harness};
use mmb_packet::build::{Frame, Ip4, Tcp};

/// Sends segments of these bytes, and a FIN. Returns what the receiver gets.
fn received(arguments: &str, pieces: &[&str]) -> String {
    let lines = format!("nf add s match {arguments}\nchain add c s");
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
            assert_eq!(
                received("evil vile replace good", &pieces),
                text.replace("evil", "good").replace("vile", "good")
            );
            assert_eq!(received("evil mask", &pieces), text.replace("evil", "****"));
            assert_eq!(received("E remove nocase", &pieces), text.replace('e', ""));
        }
    }
}

#[test]
fn directions_are_distinguished() {
    assert_eq!(received("evil remove reverse", &["evil"]), "evil");
    assert_eq!(received("evil remove forward", &["evil"]), "");
}

#[test]
fn a_reload_takes_the_file_as_it_is_then() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("words.txt");
    std::fs::write(&path, "# words\nevil\n").unwrap();
    let lines =
        format!("nf add s match file {} remove\nnf add t match x mask\nchain add c s", path.display());
    let mut harness = Harness::new(crate::registry(), &lines).unwrap();
    let edited = |harness: &Harness| harness.program().instance("s").unwrap().report()[0].1.clone();
    assert_eq!(edited(&harness), "1");
    std::fs::write(&path, "evil\nvile\n").unwrap();
    harness.program().instance("s").unwrap().set(&["reload"]).unwrap();
    assert_eq!(edited(&harness), "2");
    std::fs::write(&path, "/regular/\n").unwrap();
    let error = harness.program().instance("s").unwrap().set(&["reload"]).unwrap_err().to_string();
    assert!(error.starts_with("line 1 of") && error.contains("literals"), "{error}");
    assert_eq!(edited(&harness), "2");
    assert!(harness.program().instance("t").unwrap().set(&["reload"]).is_err());
    harness.send("c", &[]);
}

#[test]
fn what_is_wrong_is_refused() {
    for arguments in
        ["mask", "a replace", "/a/ mask", "a mask log x", "a replace /b/", "file a b remove", "a mask x"]
    {
        assert!(
            Harness::new(crate::registry(), &format!("nf add s match {arguments}")).is_err(),
            "{arguments}"
        );
    }
}
