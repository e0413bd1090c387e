use std::io::Write;
use std::sync::Arc;
use std::time::SystemTime;

use mmb_nf::harness::Sent;
use mmb_nf::testing::{assert_checksums, key_of_frame, parsed};
use mmb_nf::{ChainVerdict, Harness};
use mmb_packet::build::{Frame, Ip4, Ip6, Net, Tcp, Udp};

use super::*;

const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 1;

fn harness(arguments: &str) -> Harness {
    let lines = format!("nf add m match {arguments}\nchain add c m");
    Harness::new(crate::registry(), &lines).unwrap()
}

fn refused(arguments: &str) -> String {
    let lines = format!("nf add m match {arguments}");
    Harness::new(crate::registry(), &lines).err().map(|error| error.to_string()).unwrap_or_default()
}

fn segment(net: &Net, port: u16, seq: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    Frame::new(net.clone(), Tcp { seq, ack: 7000, flags, ..Tcp::new(port, 80) }).payload(payload).build()
}

fn ip4() -> Net {
    Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]).into()
}

fn ip6() -> Net {
    Ip6::new([1u16; 8], [2u16; 8]).into()
}

/// The value of a line of `show functions`.
fn shown(harness: &Harness, name: &str) -> String {
    let report = harness.program().instance("m").unwrap().report();
    report.into_iter().find(|(one, _)| one == name).map(|(_, value)| value).unwrap_or_default()
}

/// Sends a stream with the bytes 1000 and further, in segments.
fn stream(harness: &mut Harness, net: &Net, port: u16, segments: &[(u32, &[u8])]) -> Vec<Sent> {
    let mut frames = vec![segment(net, port, 999, SYN, b"")];
    frames.extend(segments.iter().map(|(at, payload)| segment(net, port, 1000 + at, ACK, payload)));
    let mut sent = harness.send("c", &frames);
    sent.extend(harness.released());
    sent
}

#[test]
fn a_pattern_is_found_wherever_segments_are_cut() {
    for net in [ip4(), ip6()] {
        let mut harness = harness("\"evil word\" bad alert");
        let cut: [(u32, &[u8]); 4] = [(0, b"an ev"), (9, b"ord and b"), (5, b"il w"), (18, b"ad")];
        let sent = stream(&mut harness, &net, 4000, &cut);
        assert_eq!(sent.iter().filter(|one| one.verdict == ChainVerdict::Pass).count(), 5);
        // A retransmission is not searched again.
        stream(&mut harness, &net, 4000, &[(0, b"an evil word and bad")]);
        assert_eq!(shown(&harness, "matches"), "2");
        assert_eq!(shown(&harness, "pattern \"evil word\""), "1");
        assert_eq!(shown(&harness, "pattern \"bad\""), "1");
    }
}

#[test]
fn directions_are_streams_of_their_own() {
    let net = Ip4::new([10, 0, 0, 2], [10, 0, 0, 1]);
    let answer = |payload: &[u8]| Frame::new(net.clone(), Udp::new(53, 4000)).payload(payload).build();
    let query = |payload: &[u8]| Frame::new(ip4(), Udp::new(4000, 53)).payload(payload).build();
    for (arguments, matches) in [("alert", "2"), ("alert forward", "1"), ("alert reverse", "1")] {
        let mut harness = harness(&format!("word {arguments}"));
        harness.send("c", &[query(b"wo"), answer(b"wor"), query(b"rd"), answer(b"d")]);
        assert_eq!(shown(&harness, "matches"), matches, "{arguments}");
    }
}

/// A pattern counts if all of it is in the first bytes of its stream. Then the function does not read it.
#[test]
fn only_the_first_bytes_are_searched() {
    let is_read = |harness: &mut Harness| {
        let next = segment(&ip4(), 4000, 1012, ACK, b"");
        harness.send("c", std::slice::from_ref(&next));
        !harness.describe(&next).unwrap().iter().any(|(_, text)| text.contains("not read: detached"))
    };
    for (first, matches) in [(3, "0"), (4, "1"), (8, "1"), (9, "2"), (12, "2"), (13, "2")] {
        for cut in 1..9 {
            let mut harness = harness(&format!("word alert forward first {first}"));
            let text = b"word-word";
            let segments = [(0, &text[..cut]), (cut as u32, &text[cut..]), (9, b"...")];
            stream(&mut harness, &ip4(), 4000, &segments);
            assert_eq!(shown(&harness, "matches"), matches, "first {first}, cut {cut}");
            assert_eq!(is_read(&mut harness), first == 13, "first {first}, cut {cut}");
        }
    }
    let mut both = harness("word alert first 4");
    stream(&mut both, &ip4(), 4000, &[(0, b"words and"), (9, b" more")]);
    assert!(is_read(&mut both), "the server has not sent its first bytes");
    for wrong in ["first", "first 0", "first x", "first 2000000000"] {
        assert!(refused(&format!("word alert {wrong}")).contains("first"), "{wrong}");
    }
}

#[test]
fn a_session_with_a_pattern_is_reset() {
    let mut harness = harness("word reset");
    let sent = stream(&mut harness, &ip4(), 4000, &[(0, b"a wo"), (4, b"rd b"), (8, b"ehind")]);
    let verdicts: Vec<_> = sent.iter().map(|one| one.verdict).collect();
    let refused = ChainVerdict::Refuse(DropReason::Match);
    assert_eq!(verdicts[..3], [ChainVerdict::Pass, ChainVerdict::Pass, refused]);
    // The rest of the vector goes nowhere either.
    assert_eq!((sent[2].emitted.len(), sent[3].verdict), (2, refused));
    assert_eq!(shown(&harness, "reset sessions"), "1");
}

/// RFC 9293, 3.6: each end gets a FIN with the next number that it expects.
#[test]
fn a_session_with_a_pattern_is_closed() {
    for net in [ip4(), ip6()] {
        let mut harness = harness("word close");
        stream(&mut harness, &net, 4000, &[(0, b"a w")]);
        // The segment repeats the last two bytes, and has a time stamp.
        let mut options = vec![1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 9];
        let tcp = Tcp {
            seq: 1001,
            ack: 7000,
            flags: ACK,
            options: std::mem::take(&mut options),
            ..Tcp::new(4000, 80)
        };
        let frame = Frame::new(net.clone(), tcp).payload(*b" word!").build();
        let sent = harness.send("c", &[frame]);
        let [(_, to_sender), (_, to_receiver)] = &sent[0].emitted[..] else {
            panic!("{:?}", sent[0].emitted)
        };
        for (frame, ports, seq, ack, stamps) in [
            (to_sender, [80, 4000u16], 7000u32, 1007u32, [9, 5u8]),
            (to_receiver, [4000, 80], 1003, 7000, [5, 9]),
        ] {
            assert_checksums(frame);
            let l4 = &frame[usize::from(parsed(frame).l4_off)..];
            assert_eq!(l4[..4], [ports[0].to_be_bytes(), ports[1].to_be_bytes()].concat());
            assert_eq!((&l4[4..8], &l4[8..12]), (&seq.to_be_bytes()[..], &ack.to_be_bytes()[..]));
            assert_eq!((l4[12] >> 4, l4[13]), (8, ACK | FIN));
            assert_eq!(l4[20..32], [1, 1, 8, 10, 0, 0, 0, stamps[0], 0, 0, 0, stamps[1]]);
        }
        assert_eq!(shown(&harness, "closed sessions"), "1");
        assert_eq!(sent[0].verdict, ChainVerdict::Drop(DropReason::Match));
    }
}

/// Sequence number, acknowledgement number and flags.
type Answer = (u32, u32, u8);

/// RFC 9293, 3.10.7.1: so neither end repeats its FIN or its bytes until it gives up.
#[test]
fn segments_of_a_closed_session_are_answered() {
    let mut harness = harness("word close");
    let word = stream(&mut harness, &ip4(), 4000, &[(0, b"word"), (4, b"in the same vector")]);
    assert_eq!(word[2].verdict, ChainVerdict::Drop(DropReason::Match));
    let reply = |flags, payload: &[u8]| {
        let tcp = Tcp { seq: 7000, ack: 1001, flags, ..Tcp::new(80, 4000) };
        Frame::new(Ip4::new([10, 0, 0, 2], [10, 0, 0, 1]), tcp).payload(payload).build()
    };
    let at = |seq, flags, payload| segment(&ip4(), 4000, seq, flags, payload);
    let cases: [(Vec<u8>, Option<Answer>); 7] = [
        (at(1004, ACK, b""), None),
        (at(1004, ACK | FIN, b""), Some((7000, 1005, ACK))),
        (at(1004, ACK | FIN, b"more"), Some((7000, 1009, ACK))),
        (at(1004, ACK, b"more"), Some((7000, 0, 4))),
        (at(1004, 4, b""), None),
        (reply(ACK | FIN, b""), Some((1001, 7001, ACK))),
        (reply(ACK, b"answer"), Some((1001, 0, 4))),
    ];
    for (frame, answer) in cases {
        let sent = harness.send("c", std::slice::from_ref(&frame));
        assert_eq!(sent[0].verdict, ChainVerdict::Drop(DropReason::Match));
        let emitted = sent[0].emitted.iter().map(|(port, frame)| {
            assert_checksums(frame);
            let number = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().expect("four"));
            (*port, (number(38), number(42), frame[47]))
        });
        let port = u16::from(frame[34..36] == [0, 80]);
        assert_eq!(
            emitted.collect::<Vec<_>>(),
            answer.map(|answer| (port, answer)).into_iter().collect::<Vec<_>>()
        );
    }
    assert_eq!(shown(&harness, "closed sessions"), "1");
    // The next session of the same number is another one.
    harness.end_all();
    assert_eq!(stream(&mut harness, &ip4(), 4001, &[(0, b"fine")])[1].verdict, ChainVerdict::Pass);
}

#[test]
fn the_end_of_a_stream_is_searched() {
    let mut harness = harness("/word$/ /^start/ alert");
    let sent = [(999, SYN, &b""[..]), (1000, ACK, b"word start word"), (1015, ACK | FIN, b"")];
    harness.send("c", &sent.map(|(seq, flags, payload)| segment(&ip4(), 4000, seq, flags, payload)));
    assert_eq!(shown(&harness, "matches"), "1");
    assert_eq!(shown(&harness, "pattern \"/word$/\""), "1");
}

#[test]
fn streams_end_with_their_sessions() {
    let mut harness = harness("word alert streams 2");
    for round in 0..5 {
        for port in 0..3 {
            stream(&mut harness, &ip4(), 4000 + port, &[(0, b"word")]);
        }
        harness.end_all();
        assert_eq!(shown(&harness, "streams without room"), (round + 1).to_string());
        assert_eq!(shown(&harness, "matches"), (2 * (round + 1)).to_string());
    }
}

/// Those who only observe do not interfere. The default of `stream-overflow` is `drop`.
#[test]
fn a_stream_without_room_is_not_let_through_unread() {
    for (action, verdict) in
        [("alert", ChainVerdict::Pass), ("reset", ChainVerdict::Refuse(DropReason::StreamRoom))]
    {
        let mut harness = harness(&format!("word {action} streams 1"));
        stream(&mut harness, &ip4(), 4000, &[(0, b"other")]);
        let sent = stream(&mut harness, &ip4(), 4001, &[(0, b"word")]);
        assert_eq!(sent[1].verdict, verdict, "{action}");
        assert_eq!(shown(&harness, "matches"), "0");
    }
}

#[test]
fn lines_are_limited() {
    let mut harness = harness("a alert");
    stream(&mut harness, &ip4(), 4000, &[(0, &[b'a'; 150])]);
    assert_eq!(
        (shown(&harness, "matches"), shown(&harness, "matches without a line")),
        ("150".into(), "50".into())
    );
    harness.wait(1000);
    stream(&mut harness, &ip4(), 4001, &[(0, b"aa")]);
    assert_eq!(
        (shown(&harness, "matches"), shown(&harness, "matches without a line")),
        ("152".into(), "50".into())
    );
}

fn file(content: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file
}

#[test]
fn patterns_are_reloaded() {
    let file = file("one\ntwo\n");
    let path = file.path().display();
    let mut harness = harness(&format!("file {path} alert"));
    stream(&mut harness, &ip4(), 4000, &[(0, b"one tw")]);
    let instance = harness.program().instance("m").unwrap().clone();
    std::fs::write(file.path(), "one\nthree\n").unwrap();
    instance.set(&["reload"]).unwrap();
    // What had begun is forgotten, counts of patterns that stay go on, and positions too.
    harness.send("c", &[segment(&ip4(), 4000, 1006, ACK, b"o three one")]);
    let counts = ["matches", "pattern \"one\"", "pattern \"two\"", "pattern \"three\""]
        .map(|name| shown(&harness, name));
    assert_eq!(counts, ["3", "2", "", "1"]);
    // With an error, nothing changes.
    std::fs::write(file.path(), "one\n\n/(/\n").unwrap();
    let error = instance.set(&["reload"]).unwrap_err().to_string();
    assert!(error.starts_with(&format!("line 3 of `{path}`: invalid pattern `/(/`: ")), "{error}");
    harness.send("c", &[segment(&ip4(), 4000, 1017, ACK, b"three")]);
    assert_eq!(shown(&harness, "pattern \"three\""), "2");
    harness.end_all();
}

/// After a hundred reloads there is the set in force, and no other.
#[test]
fn reloads_leave_nothing() {
    let file = file("word\n");
    let source =
        Source::File { path: file.path().display().to_string(), files: Arc::default(), ignores_case: false };
    let patterns = Patterns::new(&source, Room { workers: 1, streams: 10 }).unwrap();
    let mut sets = Vec::new();
    for _ in 0..100 {
        let part = patterns.take(0).unwrap();
        assert!(patterns.take(0).is_none());
        sets.push(Arc::downgrade(&part.compiled));
        patterns.reload(&source).unwrap();
        drop(part);
    }
    assert_eq!(sets.iter().filter(|set| set.upgrade().is_some()).count(), 0);
    // A scanner that is given back can be taken again.
    let part = patterns.take(0).unwrap();
    assert_eq!(part.generation, 101);
    drop(part);
    assert!(patterns.take(0).is_some());
}

#[test]
fn arguments() {
    for (arguments, expected) in [
        ("", "needs an action"),
        ("word", "needs an action"),
        ("alert", "needs a pattern"),
        ("file alert", "needs one path"),
        ("file a b alert", "needs one path"),
        ("word alert sideways", "unknown word `sideways`"),
        ("word alert log", "needs a path"),
        ("word alert streams 0", "must be a number from 1"),
        ("word alert streams", "needs a number"),
        ("// alert", "a pattern has no bytes"),
        ("/etc/passwd alert", "invalid pattern `/etc/passwd`: `/` begins a regular expression"),
        ("/a*/ alert", "invalid pattern `/a*/`: "),
        ("file /nowhere/x alert", "/nowhere/x"),
    ] {
        let error = refused(arguments);
        assert!(error.contains(expected), "{arguments}: {error}");
    }
    assert_eq!(refused("\"|41 42|\" \"two words\" \\x61lert close nocase forward streams 5"), "");
    let wrong = file("ok\n# comment\n\\q\n");
    let error = refused(&format!("file {} alert", wrong.path().display()));
    assert!(error.contains("line 3 of"), "{error}");
    let empty = file("# none\n");
    let error = refused(&format!("file {} alert", empty.path().display()));
    assert!(error.contains("there are no patterns"), "{error}");
    let harness = harness("word alert");
    let set = |words: &[&str]| harness.program().instance("m").unwrap().set(words).unwrap_err().to_string();
    assert_eq!(set(&["reload"]), "the patterns are not from a file");
    assert!(set(&["faster"]).contains("`reload`"));
}

#[test]
fn lines() {
    let source = Source::Arguments(vec![mmb_search::Pattern::parse("evil \\x22word", false).unwrap()]);
    let patterns = Patterns::new(&source, Room { workers: 1, streams: 1 }).unwrap();
    let key = Some(key_of_frame(&segment(&ip4(), 4000, 1, ACK, b"")));
    let mut found = Occurrence {
        compiled: patterns.current(),
        pattern: 0,
        key,
        direction: Direction::Forward,
        end: 12,
        is_in_body: false,
        at: 0,
    };
    let mut text = String::new();
    line(&mut text, SystemTime::UNIX_EPOCH, &found, Action::Reset);
    (found.key, found.direction) = (None, Direction::Reverse);
    line(&mut text, SystemTime::UNIX_EPOCH, &found, Action::Alert);
    let begin = "1970-01-01T00:00:00.000Z match: \"evil \\\\x22word\" ends at byte 12 of";
    let expected =
        format!("{begin} tcp 10.0.0.1:4000 -> 10.0.0.2:80 forward reset\n{begin} a fragment reverse\n");
    assert_eq!(text, expected);
}
