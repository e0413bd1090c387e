mod datagrams;

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
    let tcp = Tcp { seq: 0, ack: 1, flags: 18, ..Tcp::new(80, 1000) };
    let answer = Frame::new(Ip4::new([10, 0, 0, 2], [10, 0, 0, 1]), tcp).build();
    let mut seq = 1;
    let mut frames = vec![frame(0, 2, ""), answer];
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

/// An occurrence counts if all of it is in the first bytes, wherever segments end.
#[test]
fn only_the_first_bytes_are_searched() {
    let text = "evil evil evil and so on";
    for first in 1..=text.len() {
        let expected = match first {
            ..4 => text.to_owned(),
            4..9 => text.replacen("evil", "good one", 1),
            9..14 => text.replacen("evil", "good one", 2),
            _ => text.replace("evil", "good one"),
        };
        for cut in [1, 3, 4, 5, 7, 8, 9, 12, 14] {
            let (front, rest) = text.split_at(cut);
            for pieces in [vec![front, rest], text.split_inclusive(|_| true).collect()] {
                for direction in ["", "forward"] {
                    let arguments = format!("evil replace \"good one\" {direction} first {first}");
                    assert_eq!(received(&arguments, &pieces), expected, "{arguments}, {pieces:?}");
                }
            }
        }
    }
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

/// RFC 5961, 3.2: a reset has the number that its receiver expects, also behind others of the same vector.
#[test]
fn a_reset_follows_the_bytes_in_front_of_it() {
    let lines = "nf add w match evil replace harmless\nnf add s match stop reset\nchain add c w then s";
    let mut harness = mmb_nf::Harness::new(crate::registry(), lines).unwrap();
    let frame = |direction: usize, (seq, ack): (u32, u32), flags, payload: &str| {
        let (ends, ports) = ([[10, 0, 0, 1], [10, 0, 0, 2]], [4000, 80]);
        let tcp = Tcp { seq, ack, flags, ..Tcp::new(ports[direction], ports[1 - direction]) };
        let net = Ip4::new(ends[direction], ends[1 - direction]);
        Frame::new(net, tcp).payload(payload.as_bytes().to_vec()).build()
    };
    let open = [frame(0, (99, 0), 2, ""), frame(1, (499, 100), 18, ""), frame(0, (100, 500), 16, "")];
    open.iter().for_each(|one| drop(harness.send("c", std::slice::from_ref(one))));
    let frames = [frame(0, (100, 500), 16, "evil."), frame(0, (105, 500), 16, "stop")];
    let sent = harness.send("c", &frames);
    let resets: Vec<_> =
        sent[1].emitted.iter().map(|(port, frame)| (*port, frame[38..42].to_vec())).collect();
    // `evil.` has left as `harmless.`.
    let [near, far] = [mmb_nf::harness::NEAR, mmb_nf::harness::FAR];
    assert_eq!(resets, [(near, 500u32.to_be_bytes().to_vec()), (far, 109u32.to_be_bytes().to_vec())]);
    sent[1].emitted.iter().for_each(|(_, frame)| mmb_nf::testing::assert_checksums(frame));
}
