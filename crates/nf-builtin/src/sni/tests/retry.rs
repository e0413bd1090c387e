//! A second ClientHello, behind a HelloRetryRequest.

use mmb_nf::ChainVerdict;
use mmb_tls::retry::RETRY_RANDOM;

use super::{ALERT, DATA, HELLO, hello, talk};
use crate::shared::connection::{ACK, FIN, RST, Talk, dropped};

const CHANGE: &[u8] = &[20, 3, 3, 0, 1, 1];
/// The first bytes that OpenSSL sends to `example.com` with TLS 1.2.
const HELLO12: &[u8] = include_bytes!("../../../../tls/src/parse/openssl12.bin");

/// A record with a ServerHello (RFC 8446, 4.1.3).
pub(super) fn server_hello(random: [u8; 32]) -> Vec<u8> {
    [&[22, 3, 3, 0, 44, 2, 0, 0, 40, 3, 3][..], &random, &[0, 0x13, 1, 0, 0, 0]].concat()
}

fn retry_request() -> Vec<u8> {
    [&server_hello(RETRY_RANDOM), CHANGE].concat()
}

/// The message with the extension early_data (RFC 8446, 4.2.10).
fn early_hello(name: &str) -> Vec<u8> {
    let mut hello = [&hello(name)[..], &[0, 42, 0, 0]].concat();
    let mut add = |at: usize, by: u16| {
        let len = u16::from_be_bytes([hello[at], hello[at + 1]]) + by;
        hello[at..at + 2].copy_from_slice(&len.to_be_bytes());
    };
    add(3, 4);
    add(7, 4);
    // The session id, the ciphers, the compressions; then the extensions.
    let ciphers = 44 + usize::from(HELLO[43]);
    let compressions = ciphers + 2 + usize::from(u16::from_be_bytes([HELLO[ciphers], HELLO[ciphers + 1]]));
    add(compressions + 1 + usize::from(HELLO[compressions]), 4);
    hello
}

/// Whether no function reads the connection any more. The next packet notices it.
fn is_detached(talk: &mut Talk) -> bool {
    talk.segment(1, ACK, "");
    let report = talk.harness.program().instance("(stream)").unwrap().report();
    report.contains(&("detached".to_owned(), "1".to_owned()))
}

#[test]
fn a_connection_is_left_when_its_server_takes_the_hello() {
    for (client, server) in [(HELLO, server_hello([7; 32])), (HELLO12, vec![])] {
        let mut talk = talk("deny example.org");
        talk.segment(0, ACK, client);
        if !server.is_empty() {
            assert!(!is_detached(&mut talk));
            talk.segment(1, ACK, server);
        }
        assert!(is_detached(&mut talk), "{}", client.len());
    }
    // The server is not seen, and the client goes on: with TLS 1.3, or with a ClientKeyExchange of TLS 1.2.
    for more in [[CHANGE, DATA].concat(), vec![22, 3, 3, 0, 4, 16, 0, 0, 0]] {
        let mut talk = talk("deny example.org");
        talk.segment(0, ACK, HELLO);
        talk.segment(0, ACK, &more);
        assert!(is_detached(&mut talk));
        assert_eq!(talk.passed, [HELLO, &more].concat());
    }
}

/// The part of a record of the client waits while the server takes the ClientHello.
#[test]
fn what_waits_goes_on_when_the_server_has_answered() {
    let mut talk = talk("deny example.org");
    talk.segment(0, ACK, HELLO);
    talk.segment(0, ACK, &CHANGE[..3]);
    assert_eq!(talk.passed, HELLO);
    talk.segment(1, ACK, server_hello([7; 32]));
    talk.segment(0, ACK, &CHANGE[3..]);
    talk.segment(0, ACK, DATA);
    assert_eq!(talk.passed, [HELLO, CHANGE, DATA].concat());
    assert!(is_detached(&mut talk));
}

#[test]
fn the_second_hello_is_decided() {
    for answer in [retry_request(), retry_request()[..20].to_vec(), vec![]] {
        for piece in [1, 7, 100, 1000] {
            let mut talk = talk("deny example.com");
            let second = [CHANGE, &hello("example.net")].concat();
            talk.segment(0, ACK, hello("example.org"));
            talk.segment(1, ACK, &answer);
            second.chunks(piece).for_each(|part| drop(talk.segment(0, ACK, part)));
            assert_eq!(talk.passed, [&hello("example.org"), &second[..]].concat());
            assert!(is_detached(&mut talk));
            talk.segment(0, ACK, DATA);
            assert!(talk.passed.ends_with(DATA) && talk.report().starts_with("allowed 1; denied 0; "));
        }
        for piece in [1, 7, 100, 1000] {
            let mut talk = talk("deny example.com");
            talk.segment(0, ACK, hello("example.org"));
            talk.segment(1, ACK, &answer);
            let mut answers = Vec::new();
            for part in [CHANGE, HELLO].concat().chunks(piece) {
                answers.extend(talk.segment(0, ACK, part).1);
            }
            let [reset, alert] = &answers[..] else { panic!("{answers:?}") };
            assert!(reset.to_server && reset.flags & RST != 0);
            assert_eq!((&*alert.payload, alert.seq), (ALERT, 501 + answer.len() as u32));
            // The server gets no byte of the second one.
            let passed = [&hello("example.org"), CHANGE].concat();
            assert!(passed.starts_with(&talk.passed) && talk.passed.len() >= HELLO.len());
            assert!(talk.report().starts_with("allowed 1; denied 1; "));
            dropped(talk.segment(0, ACK, "").0, "sni-denied");
        }
    }
}

/// A client can have the second one ready. With early data, the server passes over records in front of it.
#[test]
fn nothing_hides_the_second_hello() {
    let data = [&[23, 3, 3, 0, 200][..], &HELLO[..200]].concat();
    let alert = [21, 3, 3, 0, 2, 1, 90];
    let early = [&early_hello("example.org")[..], &data, &alert, CHANGE, &data].concat();
    for first in [hello("example.org"), early] {
        for piece in [1, 7, 100, 3000] {
            for is_denied in [false, true] {
                let mut talk = talk("deny example.com");
                let sent =
                    [&first[..], &hello(if is_denied { "example.com" } else { "example.net" })].concat();
                for (n, part) in sent.chunks(piece).enumerate() {
                    talk.segment(0, ACK, part);
                    if n == 400 {
                        talk.segment(1, ACK, retry_request());
                    }
                }
                let expected = if is_denied && piece == 3000 {
                    0
                } else if is_denied {
                    first.len()
                } else {
                    sent.len()
                };
                assert!(talk.passed.len() <= expected, "{piece}");
                assert!(is_denied || talk.passed == sent);
                assert_eq!(talk.report().contains("; denied 1; "), is_denied, "{}", talk.report());
            }
        }
    }
}

#[test]
fn the_second_hello_keeps_the_output() {
    let arms = "nf add o count\nnf add r count\nchain add c f [org: o, rest: r]";
    for (second, is_allowed) in [("x.examp.org", true), ("example.com", false)] {
        let mut talk = Talk::of(&format!("nf add f sni org: *.org\n{arms}"));
        talk.segment(0, ACK, hello("example.org"));
        talk.segment(1, ACK, retry_request());
        let (verdict, _) = talk.segment(0, ACK, hello(second));
        assert_eq!(verdict == ChainVerdict::Pass, is_allowed);
    }
}

#[test]
fn what_is_neither_is_an_error() {
    let two = [HELLO, HELLO].concat();
    let one_record =
        [&[22, 3, 1][..], &((two.len() - 10) as u16).to_be_bytes(), &HELLO[5..], &HELLO[5..]].concat();
    for (first, second) in [
        (HELLO, &b"GET / HTTP/1.1\r\n"[..]),
        // Two messages in a record, and an empty record.
        (&one_record, &[]),
        (HELLO, &[22, 3, 3, 0, 0]),
    ] {
        for passes in [false, true] {
            let mut talk = talk(if passes { "errors pass deny example.org" } else { "deny example.org" });
            let mut verdict = talk.segment(0, ACK, first).0;
            if !second.is_empty() {
                talk.segment(1, ACK, retry_request());
                verdict = talk.segment(0, ACK, second).0;
            }
            assert!(talk.report().contains("not TLS, or malformed 1; "), "{}", talk.report());
            if passes {
                assert_eq!(talk.passed, [first, second].concat());
            } else {
                dropped(verdict, "sni-invalid");
            }
        }
    }
    // The end of the connection within the second one.
    let mut talk = talk("deny example.org");
    talk.segment(0, ACK, HELLO);
    talk.segment(1, ACK, retry_request());
    talk.segment(0, ACK, &HELLO[..100]);
    dropped(talk.segment(0, ACK | FIN, "").0, "sni-invalid");
    assert!(talk.report().contains("ClientHello incomplete 1; ") && talk.passed == HELLO);
}
