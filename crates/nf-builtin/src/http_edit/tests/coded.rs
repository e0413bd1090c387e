//! Bodies with a content coding, ranges, and bodies that must not be transformed.

use std::io::Write;

use super::*;
use crate::shared::content_coding::MOST_DECODERS;
use crate::shared::content_coding::tests::{br, gzip, raw, zlib, zstd};

const EDIT: &str = "body replace evil good-natured";
const TEXT: &str = "an evil text, an eviil one, and at its end ev";
const NEW: &str = "an good-natured text, an eviil one, and at its end ev";

/// How the length of a message is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length,
    Chunks,
    Close,
}

/// Returns a response with a body.
fn response(headers: &str, body: &[u8], framing: Framing) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{headers}").into_bytes();
    match framing {
        Framing::Length => {
            text.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
            text.extend_from_slice(body);
        }
        Framing::Chunks => {
            text.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            for chunk in body.chunks(7) {
                text.extend_from_slice(format!("{:x};e\r\n", chunk.len()).as_bytes());
                text.extend_from_slice(chunk);
                text.extend_from_slice(b"\r\n");
            }
            text.extend_from_slice(b"0\r\n\r\n");
        }
        Framing::Close => {
            text.extend_from_slice(b"\r\n");
            text.extend_from_slice(body);
        }
    }
    text
}

/// Sends a request and a response in segments of some bytes, and ends the connection.
fn exchange(arguments: &str, request: &str, response: &[u8], size: usize) -> Talk {
    let mut talk = Talk::new(arguments);
    talk.send(0, request.as_bytes(), 1000);
    for piece in response.chunks(size) {
        talk.segment(1, ACK, piece);
        if let ChainVerdict::Refuse(_) = talk.verdict {
            return talk;
        }
    }
    talk.end(1);
    talk
}

fn is_reset(talk: &Talk, why: &str) -> bool {
    let is_refused = matches!(talk.verdict, ChainVerdict::Refuse(reason) if reason.name() == "http-unedited");
    is_refused && talk.report().contains(why)
}

/// Two bodies of one segment that are too large together: the second one goes on behind the first one, with
/// the next bytes or when the connection ends.
#[test]
fn a_body_that_is_too_large_behind_another_one_waits() {
    let text = "an evil text. ".repeat(50_000);
    let one = response("Content-Encoding: gzip\r\n", &gzip(text.as_bytes()), Framing::Length);
    for has_third in [false, true] {
        let mut talk = Talk::new(EDIT);
        (0..3).for_each(|_| talk.send(0, GET.as_bytes(), 1000));
        let acknowledge = |talk: &mut Talk| {
            let mut before = usize::MAX;
            while std::mem::replace(&mut before, talk.passed[1].len()) != talk.passed[1].len() {
                talk.segment(0, ACK, b"");
            }
        };
        talk.segment(1, ACK, &[&one[..], &one].concat());
        acknowledge(&mut talk);
        let count = |talk: &Talk| talk.texts()[1].matches("HTTP/1.1 200 OK").count();
        assert_eq!((count(&talk), talk.verdict), (1, ChainVerdict::Pass), "{}", talk.report());
        if has_third {
            talk.segment(1, ACK, &response("", b"evil", Framing::Length));
            acknowledge(&mut talk);
        }
        talk.end(1);
        acknowledge(&mut talk);
        assert_eq!(count(&talk), 2 + usize::from(has_third), "{}", talk.report());
        assert_eq!(talk.texts()[1].matches("good-natured text. ").count(), 2 * 50_000);
        assert!(talk.report().contains("bodies decoded 2; "), "{}", talk.report());
    }
}

#[test]
fn encoded_bodies_are_decoded_and_edited() {
    let headers = "ETag: \"1\"\r\nContent-MD5: x\r\nContent-Encoding: ";
    let two = [gzip(&TEXT.as_bytes()[..5]), gzip(&TEXT.as_bytes()[5..])].concat();
    for (coding, body) in [
        ("gzip", gzip(TEXT.as_bytes())),
        ("X-GZIP", two),
        ("deflate", zlib(TEXT.as_bytes())),
        ("identity, deflate", raw(TEXT.as_bytes())),
        ("br", br(TEXT.as_bytes())),
        ("zstd", zstd(TEXT.as_bytes())),
    ] {
        for framing in [Framing::Length, Framing::Chunks, Framing::Close] {
            let message = response(&format!("{headers}{coding}\r\n"), &body, framing);
            for size in (1..12).chain((12..message.len()).step_by(23)) {
                let talk = exchange(EDIT, GET, &message, size);
                let (head, content) = decoded(&talk.texts()[1]);
                assert_eq!(content, NEW, "{coding} {framing:?} in segments of {size}: {}", talk.report());
                let expected = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: W/\"1\"";
                let length = if framing == Framing::Close { "" } else { "\r\nTransfer-Encoding: chunked" };
                assert_eq!(head, format!("{expected}{length}"));
                assert!(talk.report().contains("bodies decoded 1; "), "{}", talk.report());
            }
        }
    }
}

#[test]
fn a_connection_goes_on_behind_an_encoded_body() {
    let encoded = response("Content-Encoding: gzip\r\n", &gzip(TEXT.as_bytes()), Framing::Length);
    let chunked = response("Content-Encoding: gzip\r\n", &gzip(TEXT.as_bytes()), Framing::Chunks);
    let plain = response("", TEXT.as_bytes(), Framing::Chunks);
    let all = [encoded.clone(), chunked, plain, encoded].concat().repeat(MOST_DECODERS);
    for size in [100, 1400] {
        let mut talk = Talk::new(EDIT);
        for part in all.chunks(all.len() / MOST_DECODERS) {
            talk.send(0, GET.repeat(4).as_bytes(), 1400);
            talk.send(1, part, size);
        }
        let answered = &talk.texts()[1];
        let messages: Vec<&str> = answered.split_inclusive("\r\n0\r\n\r\n").collect();
        assert_eq!(messages.len(), 4 * MOST_DECODERS, "{}", talk.report());
        messages.iter().for_each(|message| assert_eq!(decoded(message).1, NEW));
    }
}

#[test]
fn bodies_that_cannot_be_decoded_reset_the_connection() {
    let whole = gzip(TEXT.as_bytes());
    let (mut bad, end) = (whole.clone(), whole.len() - 5);
    bad[end] ^= 1;
    let spaces = vec![b' '; 3 << 20];
    let (bomb, br_bomb, zstd_bomb) = (gzip(&spaces), br(&spaces), zstd(&spaces));
    let (br, zstd) = (br(TEXT.as_bytes()), zstd(TEXT.as_bytes()));
    for (coding, body, why) in [
        ("gzip", &whole[..whole.len() - 1], "has no end 1"),
        ("gzip", &whole[..15], "has no end 1"),
        ("gzip", &bad, "corrupt 1"),
        ("gzip", &b"<html> no gzip"[..], "corrupt 1"),
        ("gzip", &bomb, "grows too much when it is decoded 1"),
        ("br", &br[..br.len() - 1], "has no end 1"),
        ("br", b"\xff no brotli", "corrupt 1"),
        ("br", &br_bomb, "grows too much when it is decoded 1"),
        ("zstd", &zstd[..zstd.len() - 1], "has no end 1"),
        ("zstd", b"<html> no zstd", "corrupt 1"),
        ("zstd", &zstd_bomb, "grows too much when it is decoded 1"),
    ] {
        for framing in [Framing::Length, Framing::Chunks, Framing::Close] {
            for size in [1, 20, 1400] {
                if size == 1 && body.len() > 1000 {
                    continue;
                }
                let message = response(&format!("Content-Encoding: {coding}\r\n"), body, framing);
                let talk = exchange(EDIT, GET, &message, size);
                assert!(
                    is_reset(&talk, why),
                    "{coding} {framing:?} {size}: {:?} {}",
                    talk.verdict,
                    talk.report()
                );
                // The client does not take what it has for the whole body.
                assert!(!talk.texts()[1].ends_with("0\r\n\r\n"));
            }
        }
    }
}

#[test]
fn bytes_behind_encoded_data_are_left_out() {
    let body = [gzip(TEXT.as_bytes()), b"\0\0 evil".to_vec()].concat();
    for framing in [Framing::Length, Framing::Chunks, Framing::Close] {
        for size in [1, 11, 1400] {
            let message = response("Content-Encoding: gzip\r\n", &body, framing);
            let talk = exchange(EDIT, GET, &message, size);
            assert_eq!(decoded(&talk.texts()[1]).1, NEW, "{framing:?} {size}");
            assert!(talk.report().contains("ignored bytes behind the encoded data 1"), "{}", talk.report());
        }
    }
}

#[test]
fn one_segment_may_mean_many() {
    let text = "an evil text ".repeat(60_000);
    let body = gzip(text.as_bytes());
    assert!(body.len() < 3000);
    let mut talk = Talk::new("body replace evil good");
    talk.send(0, GET.as_bytes(), 1000);
    talk.send(1, &response("Content-Encoding: gzip\r\n", &body, Framing::Length), 1400);
    // What the window of the client has no room for waits.
    for _ in 0..100 {
        talk.segment(0, ACK, b"");
    }
    assert_eq!(decoded(&talk.texts()[1]).1, text.replace("evil", "good"));
    assert!(talk.report().contains("texts replaced 60000"), "{}", talk.report());
}

#[test]
fn responses_without_a_body_say_what_the_body_would_be() {
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\nContent-Length: 90\r\n\r\n";
    let talk =
        exchange("body replace evil good", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", head.as_bytes(), 1400);
    assert_eq!(talk.texts()[1], "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n");
    let head = "HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n";
    let talk = exchange(EDIT, GET, head.as_bytes(), 1400);
    assert_eq!(talk.texts()[1], head.replace("\"1\"", "W/\"1\""));
}

/// A server that sends a part, and the next one when the client has asked for it.
#[test]
fn a_part_that_is_flushed_leaves_at_once() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    let mut talk = Talk::new(EDIT);
    talk.send(0, GET.as_bytes(), 1000);
    talk.send(1, b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\n\r\n", 1000);
    let mut expected = String::new();
    for n in 0..5 {
        encoder.write_all(format!("{n} is evil.").as_bytes()).unwrap();
        encoder.flush().unwrap();
        talk.send(1, &std::mem::take(encoder.get_mut()), 1000);
        expected.push_str(&format!("{n} is good-natured."));
        assert_eq!(decoded(&talk.texts()[1]).1, expected);
    }
}

/// The rest of a body would have another framing, or be encoded.
#[test]
fn a_connection_does_not_go_on_without_the_function_inside_of_a_body() {
    let (coded, plain) = (gzip(TEXT.as_bytes()), TEXT.as_bytes());
    for (message, is_reset) in [
        (response("Content-Encoding: gzip\r\n", &coded, Framing::Length), true),
        (response("Content-Encoding: gzip\r\n", &coded, Framing::Close), true),
        (response("", plain, Framing::Chunks), true),
        (response("", plain, Framing::Length), true),
        (response("", plain, Framing::Close), false),
    ] {
        let mut talk = Talk::new(EDIT);
        talk.send(0, GET.as_bytes(), 1000);
        talk.send(1, &message[..message.len() - 20], 40);
        let frame = talk.frame(1, ACK, &message[message.len() - 20..]);
        let verdict = talk.harness.send_without_chain(&frame).unwrap().verdict;
        assert_eq!(matches!(verdict, ChainVerdict::Refuse(_)), is_reset, "{verdict:?}");
    }
}

#[test]
fn responses_around_edited_bodies_are_told_apart() {
    let request = format!("{}HEAD / HTTP/1.1\r\nHost: a\r\n\r\n{GET}", GET.repeat(2));
    let response = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nETag: \"1\"\r\n\r\n\
                    HTTP/1.1 304 Not Modified\r\nETag: \"2\"\r\n\r\n\
                    HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: W/\"3\"\r\nContent-Length: 9\r\n\r\n\
                    HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n\
                    HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nETag: \"4\"\r\nContent-Length: 4\r\n\r\nevil";
    let asked = request.replace("\r\n\r\n", "\r\nAccept-Encoding: identity\r\n\r\n");
    let answered = response.replace("\"2\"", "W/\"2\"").replace("Content-Length: 9\r\n", "");
    becomes(EDIT, [&request, response], [&asked, &answered]);
}

#[test]
fn an_encoded_body_passes_if_its_end_could_not_be_told() {
    let request = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    let body = gzip(TEXT.as_bytes());
    let message = response("Content-Encoding: gzip\r\n", &body, Framing::Length);
    let mut talk = Talk::new(EDIT);
    talk.send(0, request.as_bytes(), 1000);
    talk.send(1, &message, 20);
    assert_eq!(talk.passed[1], message);
    let message = response("Connection: close\r\nContent-Encoding: gzip\r\n", &body, Framing::Length);
    let talk = exchange(EDIT, request, &message, 20);
    let expected = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n";
    assert_eq!(talk.texts()[1], format!("{expected}{NEW}"));
}

#[test]
fn encoded_bodies_of_requests_are_decoded() {
    let body = gzip(TEXT.as_bytes());
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let request = [head.as_bytes(), &body].concat();
    for size in [1, 50, 1400] {
        let mut talk = Talk::new("request body replace evil good-natured");
        talk.send(0, &request, size);
        let (head, content) = decoded(&talk.texts()[0]);
        assert_eq!(
            (head.as_str(), content.as_str()),
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked", NEW)
        );
    }
}

#[test]
fn a_body_for_which_there_is_no_decoder_passes() {
    let message = response("Content-Encoding: gzip\r\n", &gzip(TEXT.as_bytes()), Framing::Length);
    let (begin, rest) = message.split_at(message.len() - 3);
    let mut talk = Talk::new(EDIT);
    let open = |talk: &mut Talk| {
        talk.reopen(talk.port + 1);
        talk.send(0, GET.as_bytes(), 1000);
        talk.send(1, begin, 1400);
    };
    (0..MOST_DECODERS).for_each(|_| open(&mut talk));
    assert!(talk.report().contains("bodies decoded 8; ") && !talk.report().contains("too many"));
    open(&mut talk);
    talk.send(1, rest, 1400);
    assert_eq!(talk.passed[1], message);
    assert!(talk.report().contains("too many are decoded 1; "), "{}", talk.report());
    // Sessions that end give their decoders back.
    talk.harness.end_all();
    (0..MOST_DECODERS).for_each(|_| open(&mut talk));
    assert!(talk.report().contains("bodies decoded 16; "), "{}", talk.report());
}

#[test]
fn what_must_not_be_transformed_passes() {
    let text = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n";
    for (line, is_fixed) in [
        ("Cache-Control: no-transform", true),
        ("cache-control: max-age=5,NO-TRANSFORM ", true),
        ("Cache-Control: private=\"a, no-transform, b\"", false),
        ("Cache-Control: no-transform-x", false),
        ("X: no-transform", false),
    ] {
        let response = format!("{text}{line}\r\n\r\nevil");
        let talk = exchange("body replace evil good", GET, response.as_bytes(), 30);
        assert_eq!(talk.texts()[1].ends_with("evil"), is_fixed, "{line}");
        assert_eq!(talk.report().contains("not edited: no-transform 1"), is_fixed, "{line}");
        let talk = exchange("no-transform ignore body replace evil good", GET, response.as_bytes(), 30);
        assert!(talk.texts()[1].ends_with("good"), "{line}");
    }
    let request =
        "POST / HTTP/1.1\r\nHost: a\r\nCache-Control: no-transform\r\nContent-Length: 4\r\n\r\nevil";
    let mut talk = Talk::new("request body replace evil good");
    talk.send(0, request.as_bytes(), 30);
    assert_eq!(talk.texts()[0], request);
}

#[test]
fn requests_for_a_part_ask_for_the_whole() {
    let request = "GET / HTTP/1.1\r\nHost: a\r\nRange: bytes=0-9\r\nX-Range: 1\r\nIf-Range: \"1\"\r\n\r\n";
    let whole = "GET / HTTP/1.1\r\nHost: a\r\nX-Range: 1\r\nAccept-Encoding: identity\r\n\r\n";
    becomes(EDIT, [request, OK], [whole, OK]);
    let kept = request.replace("\r\n\r\n", "\r\nAccept-Encoding: identity\r\n\r\n");
    becomes(&format!("ranges pass {EDIT}"), [request, OK], [&kept, OK]);
    // Bodies of responses are not edited.
    becomes("request body replace evil good", [request, OK], [request, OK]);
    // A part of a body that a request has (RFC 9110, 14.5).
    let part = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Range: bytes 0-3/9\r\nContent-Length: 4\r\n\r\nevil";
    becomes("request body replace evil good-natured", [part, OK], [part, OK]);
}

#[test]
fn digests_in_trailers_are_removed() {
    let text =
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nevil\r\n0\r\n";
    let response = format!("{text}Content-Digest: sha-256=:x:\r\nX-T: 1\r\n\r\n");
    for size in 1..response.len() {
        let talk = exchange("body replace evil good", GET, response.as_bytes(), size);
        assert!(talk.texts()[1].ends_with("\r\n0\r\nX-T: 1\r\n\r\n"), "{}", talk.texts()[1]);
    }
}
