mod outputs;
mod quic;
mod retry;

use mmb_nf::{ChainVerdict, Harness};

use super::ALERT;
use crate::shared::connection::{ACK, FIN, RST, Talk, dropped};

/// The first bytes that OpenSSL sends to `example.com`.
const HELLO: &[u8] = include_bytes!("../../../tls/src/parse/openssl13.bin");

/// A record of the client that is encrypted with the keys of the handshake.
const DATA: &[u8] = &[23, 3, 3, 0, 1, 0];

fn talk(arguments: &str) -> Talk {
    Talk::of(&format!("nf add f sni {arguments}\nchain add c f"))
}

/// The message for another name of the same length.
fn hello(name: &str) -> Vec<u8> {
    let at = HELLO.windows(11).position(|part| part == b"example.com").unwrap();
    let mut hello = HELLO.to_vec();
    hello[at..at + 11].copy_from_slice(name.as_bytes());
    hello
}

/// Whether the server gets a ClientHello.
fn passes(arguments: &str, hello: &[u8]) -> bool {
    let mut talk = talk(arguments);
    let (_, made) = talk.segment(0, ACK, hello);
    assert!(made.is_empty() || talk.passed.is_empty());
    talk.passed == hello
}

#[test]
fn names_decide() {
    for (arguments, name, expected) in [
        ("deny example.com", "example.com", false),
        ("deny EXAMPLE.com", "eXample.cOm", false),
        ("deny example.com", "example.org", true),
        ("deny *.com", "example.com", false),
        ("deny *.example.com", "example.com", true),
        ("deny *.a.b.example", "x.a.b.examp", true),
        ("deny a b *.b.examp", "x.a.b.examp", false),
        ("deny ex*e.c*", "example.com", false),
        ("allow example.com", "example.com", true),
        ("reset allow example.com", "example.org", false),
        ("allow *.org *.com", "example.com", true),
    ] {
        assert_eq!(passes(arguments, &hello(name)), expected, "{arguments} {name}");
    }
}

#[test]
fn a_client_without_a_name() {
    // The extension has another type.
    let mut none = HELLO.to_vec();
    let at = none.windows(11).position(|part| part == b"example.com").unwrap();
    none[at - 9..at - 7].copy_from_slice(&[0x0a, 0x0a]);
    let expected = [
        ("deny a", true),
        ("allow a", false),
        ("no-name deny deny a", false),
        ("no-name allow allow a", true),
    ];
    for (arguments, expected) in expected {
        assert_eq!(passes(arguments, &none), expected, "{arguments}");
    }
}

#[test]
fn the_server_gets_no_byte_of_a_refused_hello() {
    for piece in [1, 7, 100, HELLO.len()] {
        let mut talk = talk("deny example.com");
        let mut answers = Vec::new();
        for part in HELLO.chunks(piece) {
            answers.extend(talk.segment(0, ACK, part).1);
        }
        let [reset, answer] = &answers[..] else { panic!("{answers:?}") };
        assert!(reset.to_server && reset.flags & RST != 0 && talk.passed.is_empty());
        assert_eq!((&*answer.payload, answer.seq, answer.ack), (ALERT, 501, 101));
        // The alert is lost.
        talk.next[0] = 101;
        let (verdict, made) = talk.segment(0, ACK, HELLO);
        dropped(verdict, "sni-denied");
        assert_eq!(made, std::slice::from_ref(answer));
        talk.acked[0] = 501 + ALERT.len() as u32 + 1;
        talk.segment(0, ACK, "");
        assert!(matches!(talk.segment(0, ACK | FIN, "").0, ChainVerdict::End(_)));
        assert!(talk.report().starts_with("allowed 0; denied 1; "));
    }
}

#[test]
fn an_allowed_hello_arrives_wherever_segments_end() {
    for piece in [1, 7, 100] {
        let mut talk = talk("allow example.com");
        HELLO.chunks(piece).for_each(|part| drop(talk.segment(0, ACK, part)));
        assert_eq!(talk.passed, HELLO);
        talk.segment(0, ACK, DATA);
        assert_eq!(talk.passed, [HELLO, DATA].concat());
    }
}

#[test]
fn what_is_not_tls_is_reset() {
    for (arguments, expected) in [("deny a", false), ("errors pass deny a", true)] {
        assert_eq!(passes(arguments, b"GET / HTTP/1.1\r\n"), expected);
        let mut talk = talk(arguments);
        talk.segment(0, ACK, &HELLO[..100]);
        assert!(talk.passed.is_empty());
        let (verdict, _) = talk.segment(0, ACK | FIN, "");
        if expected {
            assert_eq!(talk.passed, HELLO[..100]);
        } else {
            dropped(verdict, "sni-invalid");
            assert!(talk.passed.is_empty());
        }
        assert!(talk.report().contains("ClientHello incomplete 1; "));
    }
}

#[test]
fn names_are_read_again() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "# names\n*.example.org # all\n\nexample.com\n").unwrap();
    let mut talk = talk(&format!("deny file {}", file.path().display()));
    let set = |talk: &Talk, words: &[&str]| talk.harness.program().instance("f").unwrap().set(words);
    std::fs::write(file.path(), "a b\n").unwrap();
    assert!(set(&talk, &["reload"]).unwrap_err().to_string().contains("line 1 of"));
    std::fs::write(file.path(), "example.org\n").unwrap();
    set(&talk, &["reload"]).unwrap();
    talk.segment(0, ACK, HELLO);
    assert_eq!(talk.passed, HELLO);
}

#[test]
fn arguments() {
    for (arguments, expected) in [
        ("", "needs `allow`, `deny` or a label"),
        ("video:", "`video:` needs a name"),
        ("deny a video: else:", "`video:` needs a name"),
        ("video: a rest: b", "`rest:` needs no names"),
        ("else: b", "`else:` needs no names"),
        ("video: a b/c", "invalid name `b/c`"),
        ("deny", "needs a name"),
        ("deny a b/c", "invalid name `b/c`"),
        ("deny file", "`file` needs a path"),
        ("errors deny a", "`errors` needs"),
        ("no-name deny", "needs `allow`, `deny` or a label"),
        ("close deny a", "unknown argument `close`"),
    ] {
        let error =
            Harness::new(crate::registry(), &format!("nf add f sni {arguments}")).err().unwrap().to_string();
        assert!(error.contains(expected), "{arguments}: {error}");
    }
}
