use mmb_nf::ChainVerdict;

use crate::shared::connection::{ACK, FIN, Talk, dropped};
use crate::shared::content_coding::tests::{br, gzip, raw, zlib, zstd};

const GET: &[u8] = b"GET /evil HTTP/1.1\r\nHost: evil\r\nX: evil\r\n\r\n";

fn talk(arguments: &str) -> Talk {
    Talk::of(&format!("nf add f match {arguments} http-body\nchain add c f"))
}

/// Sends bytes in segments of a size. Returns the last verdict.
fn send(talk: &mut Talk, direction: usize, bytes: &[u8], size: usize) -> ChainVerdict {
    let mut verdict = ChainVerdict::Pass;
    for piece in bytes.chunks(size) {
        verdict = talk.segment(direction, ACK, piece).0;
        if verdict != ChainVerdict::Pass {
            break;
        }
    }
    verdict
}

/// Returns how often a pattern is found in a response to a request.
fn found(arguments: &str, response: &[u8], size: usize) -> (usize, String) {
    let mut talk = talk(arguments);
    send(&mut talk, 0, GET, 1400);
    send(&mut talk, 1, response, size);
    talk.segment(1, ACK | FIN, "");
    let report = talk.report();
    let matches = report.split("; ").find_map(|one| one.strip_prefix("matches ")).unwrap();
    (matches.parse().unwrap(), report)
}

fn with_length(headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn in_chunks(headers: &str, body: &[u8], size: usize) -> Vec<u8> {
    let mut message = format!("HTTP/1.1 200 OK\r\n{headers}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    for chunk in body.chunks(size) {
        message.extend_from_slice(format!("{:x};evil\r\n", chunk.len()).as_bytes());
        message.extend_from_slice(chunk);
        message.extend_from_slice(b"\r\n");
    }
    message.extend_from_slice(b"0\r\nX: evil\r\n\r\n");
    message
}

#[test]
fn patterns_are_found_in_bodies_only() {
    let body = b"an evil text, evil at last: evi";
    let plain = [with_length("X: evil\r\n", body), in_chunks("", body, 3)];
    let coded = [
        ("gzip", gzip(body)),
        ("x-gzip", gzip(body)),
        ("deflate", zlib(body)),
        ("deflate", raw(body)),
        ("br", br(body)),
        ("zstd", zstd(body)),
    ]
    .map(|(coding, body)| (format!("Content-Encoding: {coding}\r\n"), body))
    .map(|(header, body)| [with_length(&header, &body), in_chunks(&header, &body, 5)]);
    for message in plain.iter().chain(coded.iter().flatten()) {
        for size in [1, 2, 3, 10, 33, 1400] {
            let (matches, report) = found("evil alert", message, size);
            assert_eq!(matches, 2, "{size}: {report} {}", message.escape_ascii());
        }
    }
    // Up to the end of the connection.
    let message = [b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", gzip(body).as_slice()].concat();
    assert_eq!(found("evil alert", &message, 9).0, 2);
}

#[test]
fn each_body_is_a_stream() {
    let mut talk = talk("evil /^b/ /d$/ alert");
    send(&mut talk, 0, &GET.repeat(3), 1400);
    let first = in_chunks("", b"b abd ev", 4);
    let second = with_length("Content-Encoding: gzip\r\n", &gzip(b"il b d"));
    let third = with_length("", b"b evil d");
    send(&mut talk, 1, &[first, second, third].concat(), 11);
    let report = talk.report();
    for part in ["matches 5;", "\"evil\" 1;", "\"/^b/\" 2;", "\"/d$/\" 2;", "bodies 3;", "bodies decoded 1;"]
    {
        assert!(report.contains(part), "{part} {report}");
    }
}

#[test]
fn bodies_of_requests_are_searched() {
    let body = gzip(b"an evil text");
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let request = [head.as_bytes(), &body].concat();
    for (which, matches) in [("", "matches 1"), ("forward", "matches 1"), ("reverse", "matches 0")] {
        let mut talk = talk(&format!("evil alert {which}"));
        send(&mut talk, 0, &request, 10);
        assert!(talk.report().contains(matches), "{which}: {}", talk.report());
    }
}

#[test]
fn a_body_with_a_pattern_ends_the_connection() {
    let message = with_length("Content-Encoding: gzip\r\n", &gzip(b"an evil text"));
    for action in ["close", "reset"] {
        let mut talk = talk(&format!("evil {action}"));
        send(&mut talk, 0, GET, 1400);
        dropped(send(&mut talk, 1, &message, 10), "match");
        assert!(talk.report().contains("matches 1;"), "{}", talk.report());
    }
}

#[test]
fn what_cannot_be_read_is_searched_as_it_comes() {
    // Not HTTP, another protocol behind a switch, and a message with an error.
    let tunnel: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n";
    let switched: &[u8] = b"HTTP/1.1 101 S\r\nUpgrade: x\r\n\r\nan evil";
    let malformed: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nContent-Length: 9\r\n\r\nan evil";
    for (request, response) in
        [(&b"SSH-2.0-x\r\n"[..], &b"SSH-2.0-evil\r\n"[..]), (tunnel, switched), (GET, malformed)]
    {
        for size in [1, 4, 1400] {
            let mut talk = talk("evil alert reverse");
            send(&mut talk, 0, request, size);
            send(&mut talk, 1, response, size);
            let report = talk.report();
            assert!(report.contains("matches 1;") && report.contains("not read: "), "{size} {report}");
        }
    }
    // Bodies that are not of their coding, or of one that is not known.
    let (mut bad, text) = (gzip(b"an evil text"), b"no gzip, and evil");
    let last = bad.len() - 1;
    bad[last] ^= 1;
    for (coding, body, why) in [
        ("gzip", &text[..], "not decoded: corrupt data 1"),
        ("br", b"\xff no brotli, and evil", "not decoded: corrupt data 1"),
        ("zstd", text, "not decoded: corrupt data 1"),
        ("compress", text, "not decoded: Content-Encoding 1"),
        ("gzip", &bad, "not decoded: corrupt data 1"),
        ("gzip", &bad[..last - 3], "not decoded: corrupt data 1"),
    ] {
        for size in [1, 1400] {
            let message = with_length(&format!("Content-Encoding: {coding}\r\n"), body);
            let (matches, report) = found("evil alert", &message, size);
            assert!(matches == 1 && report.contains(why), "{why} {report}");
        }
    }
}

#[test]
fn what_grows_too_much_is_not_searched_to_its_end() {
    let body = [&vec![b' '; 3 << 20], &b"evil"[..]].concat();
    for (coding, body) in [("gzip", gzip(&body)), ("br", br(&body)), ("zstd", zstd(&body))] {
        let message = with_length(&format!("Content-Encoding: {coding}\r\n"), &body);
        let (matches, report) = found("evil alert", &message, 1400);
        assert!(matches == 0 && report.contains("they grow too much 1"), "{report}");
        let mut talk = talk("evil reset");
        send(&mut talk, 0, GET, 1400);
        dropped(send(&mut talk, 1, &message, 1400), "stream-room");
    }
}

#[test]
fn arguments() {
    let refused = |arguments: &str| {
        let made = mmb_nf::Harness::new(crate::registry(), &format!("nf add f match {arguments}"));
        made.err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(refused("evil mask http-body").contains("`http-edit` edits the bodies"));
    assert!(refused("evil alert http-body streams").contains("needs a number"));
    // As a pattern it is one.
    let mut talk = Talk::of("nf add f match http-body alert\nchain add c f");
    send(&mut talk, 0, b"an http-body", 1400);
    assert!(talk.report().contains("matches 1;"), "{}", talk.report());
}
