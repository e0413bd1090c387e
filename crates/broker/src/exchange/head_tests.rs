use mmb_http::{Event, RequestClass, RequestReader, ResponseReader};
use proptest::{collection, prelude::*, sample};

use super::*;

fn read(next: impl for<'b> FnMut(&'b [u8]) -> (usize, Event<'b>), text: &str) -> (MessageHead, Head) {
    let (mut next, mut message, mut rest) = (next, MessageHead::default(), text.as_bytes());
    loop {
        let (len, event) = next(rest);
        message.push(&event);
        rest = &rest[len..];
        match event {
            Event::Head(head) => return (message, head),
            Event::Invalid(cause) => panic!("{cause:?}: {text}"),
            _ => {}
        }
    }
}

fn request(lines: &str) -> String {
    let mut reader = RequestReader::default();
    let (message, head) = read(|bytes| reader.next(bytes), &format!("{lines}\r\n"));
    let address = |text: &str| text.parse().unwrap();
    let peer = Peer { client: address("192.0.2.1:5"), broker: address("192.0.2.2:80") };
    let mut out = Vec::new();
    write_request(&message, (&head, &[]), &peer, address("10.0.0.1:80"), &mut out);
    String::from_utf8(out).unwrap()
}

const ADDED: &str = "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: http\r\nVia: 1.1 mmb\r\n";

#[test]
fn a_request_keeps_what_is_end_to_end() {
    let lines = "GET /a?b HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\n";
    assert_eq!(request(lines), format!("{lines}{ADDED}\r\n"));
}

#[test]
fn headers_of_one_connection_are_left_out() {
    let first = "GET / HTTP/1.1\r\nHost: a\r\n";
    for dropped in [
        "Connection: keep-alive\r\nKeep-Alive: 5\r\n",
        "Connection: close, X-Own\r\nX-Own: 1\r\n",
        "Connection: Host\r\n",
        "Proxy-Connection: close\r\nTE: trailers\r\n",
        "Connection: upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n",
        "Upgrade: websocket\r\n",
        "X-Forwarded-Proto: https\r\n",
    ] {
        assert_eq!(request(&format!("{first}{dropped}")), format!("{first}{ADDED}\r\n"), "{dropped}");
    }
}

#[test]
fn addresses_and_lengths_are_written() {
    let text = request(
        "POST / HTTP/1.0\r\nX-Forwarded-For: 1.2.3.4\r\nContent-Length: 007\r\nExpect: 100-continue\r\n",
    );
    let expected = "POST / HTTP/1.1\r\nHost: 10.0.0.1:80\r\nX-Forwarded-For: 1.2.3.4, 192.0.2.1\r\n\
                    X-Forwarded-Proto: http\r\nVia: 1.0 mmb\r\nContent-Length: 7\r\n\r\n";
    assert_eq!(text, expected);
    let text = request("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n");
    assert!(text.ends_with("mmb\r\nTransfer-Encoding: chunked\r\n\r\n"), "{text}");
    let text = request("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n");
    assert!(text.ends_with("mmb\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"), "{text}");
}

fn response(lines: &str, class: RequestClass, minor: u8, keeps_open: bool) -> String {
    let mut reader = ResponseReader::default();
    let (message, head) = read(|bytes| reader.next(class, bytes), &format!("{lines}\r\n"));
    let framing = Framing::of(head.body, minor == 1);
    let mut out = Vec::new();
    write_response(&message, &head, Delivery { framing, keeps_open, minor }, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_response_is_framed_for_its_client() {
    let get = RequestClass::default();
    let head = RequestClass { is_head: true, ..get };
    for (lines, class, minor, keeps_open, expected) in [
        ("200 OK\r\nContent-Length: 2\r\nX: y\r\n", get, 1, true, "200 OK\r\nX: y\r\nContent-Length: 2\r\n"),
        ("200 \r\n", get, 1, true, "200 \r\nTransfer-Encoding: chunked\r\n"),
        ("200 \r\nKeep-Alive: 1\r\n", get, 0, false, "200 \r\nConnection: close\r\n"),
        ("200 OK\r\nContent-Length: 9\r\n", head, 1, true, "200 OK\r\nContent-Length: 9\r\n"),
        (
            "304 Not\r\nContent-Length: 9\r\n",
            get,
            1,
            false,
            "304 Not\r\nContent-Length: 9\r\nConnection: close\r\n",
        ),
        ("204 No\r\nContent-Length: 0\r\n", get, 1, true, "204 No\r\n"),
        (
            "200 OK\r\nContent-Length: 0\r\n",
            get,
            0,
            true,
            "200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n",
        ),
        ("103 Hints\r\nLink: a\r\n", get, 1, true, "103 Hints\r\nLink: a\r\n"),
        (
            "200 OK\r\nConnection: X\r\nX: 1\r\nContent-Length: 0\r\n",
            get,
            1,
            true,
            "200 OK\r\nContent-Length: 0\r\n",
        ),
        (
            "101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
            RequestClass { has_upgrade: true, ..get },
            1,
            true,
            "101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n",
        ),
    ] {
        let text = response(&format!("HTTP/1.1 {lines}"), class, minor, keeps_open);
        assert_eq!(text, format!("HTTP/1.1 {expected}\r\n"), "{lines}");
    }
}

/// Headers that proxies have taken for others, and ordinary ones.
fn field() -> impl Strategy<Value = (String, String)> {
    let names =
        ["Connection", "X-A", "x-b", "Keep-Alive", "TE", "Upgrade", "X-Forwarded-For", "Via", "Trailer"];
    let values = ["", "a", "x-a", "X-B, close", "upgrade", "websocket", "h2c", "keep-alive, te", "host, x-a"];
    (sample::select(names.to_vec()), sample::select(values.to_vec()))
        .prop_map(|(name, value)| (name.into(), value.into()))
}

proptest! {
    /// What a server gets is one request with the same first line, each end-to-end header once and in order,
    /// and one length.
    #[test]
    fn a_request_written_anew_is_the_same_request(
        fields in collection::vec(field(), 0..8),
        body in sample::select(vec!["", "Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n"]),
    ) {
        let lines: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let text = request(&format!("PUT /a?b HTTP/1.1\r\n{body}Host: h\r\n{lines}"));
        let mut reader = RequestReader::default();
        let (message, head) = read(|bytes| reader.next(bytes), &text);
        let first = (message.method(), message.target(), message.values(b"host").collect::<Vec<_>>());
        prop_assert_eq!(first, (&b"PUT"[..], &b"/a?b"[..], vec![&b"h"[..]]));
        let length = match body.split_once(':') {
            None => Body::None,
            Some(("Content-Length", _)) => Body::Length(3),
            Some(_) => Body::Chunked,
        };
        prop_assert_eq!(head.body, length);
        // Said with strings: a header goes on unless it is of one connection, or Connection names it.
        let own: Vec<String> = fields.iter().filter(|(name, _)| name == "Connection")
            .flat_map(|(_, value)| value.split(',').map(|word| word.trim().to_lowercase())).collect();
        let goes_on = |name: &str| {
            let name = name.to_lowercase();
            !["connection", "keep-alive", "te", "upgrade", "x-forwarded-for"].contains(&&*name) && !own.contains(&name)
        };
        let expected: Vec<_> = fields.iter().filter(|(name, _)| goes_on(name)).cloned().collect();
        let text_of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let got: Vec<_> = message.fields().map(|(name, value)| (text_of(name), text_of(value)))
            .filter(|(name, value)| goes_on(name) && value != "1.1 mmb" && value != "http")
            .filter(|(name, _)| !["Host", "Content-Length", "Transfer-Encoding"].contains(&&**name)).collect();
        prop_assert_eq!(got, expected);
        let last = message.values(b"x-forwarded-for").last().map(text_of);
        prop_assert!(last.is_some_and(|last| last.ends_with("192.0.2.1")));
    }
}
