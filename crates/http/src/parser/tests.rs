use super::*;

/// Reads bytes in pieces, and merges the bytes of elements.
fn read(kind: Kind, text: &[u8], piece: usize) -> Vec<String> {
    let (mut parser, mut events, mut last) = (Parser::default(), Vec::<String>::new(), None);
    for mut bytes in text.chunks(piece) {
        loop {
            let (len, event) = parser.next(kind, bytes);
            bytes = &bytes[len..];
            match event {
                Event::More => break,
                Event::Bytes(element, part) => {
                    let part = part.escape_ascii().to_string();
                    match events.last_mut() {
                        Some(text) if last == Some(element) => text.push_str(&part),
                        _ => events.push(format!("{element:?} {part}")),
                    }
                    last = Some(element);
                    continue;
                }
                Event::Head(head) => {
                    events.push(format!("Head {} 1.{} {:?}", head.status, head.minor, head.body))
                }
                Event::Invalid(cause) => {
                    events.push(format!("Invalid {cause:?}"));
                    return events;
                }
                other => events.push(format!("{other:?}")),
            }
            last = None;
        }
    }
    events
}

/// Reads bytes cut at every place, and returns the events, which are always the same.
fn events(kind: Kind, text: &[u8]) -> Vec<String> {
    let whole = read(kind, text, text.len().max(1));
    for piece in 1..text.len().min(40) {
        assert_eq!(read(kind, text, piece), whole, "pieces of {piece}");
    }
    whole
}

fn request_cause(text: &str) -> Cause {
    cause(Kind::Request, text)
}

/// Returns what is wrong with a text. None: nothing.
fn cause(kind: Kind, text: &str) -> Cause {
    let last = events(kind, text.as_bytes()).pop().unwrap_or_default();
    Cause::ALL.into_iter().find(|cause| last == format!("Invalid {cause:?}")).unwrap_or(Cause::None)
}

const RESPONSE: Kind =
    Kind::Response(Some(RequestClass { is_head: false, is_connect: false, has_upgrade: false }));

#[test]
fn a_request_has_its_elements() {
    let text = b"\r\nPOST /a?b=c HTTP/1.1\r\nHost: a\r\nX-Empty:\r\nContent-Length: 3 \r\n\r\nabcGET / HTTP/1.0\r\n\r\n";
    let expected = [
        "Method POST",
        "End(Method)",
        "Target /a?b=c",
        "End(Target)",
        "Name Host",
        "End(Name)",
        "Value a",
        "End(Value)",
        "Name X-Empty",
        "End(Name)",
        "End(Value)",
        "Name Content-Length",
        "End(Name)",
        "Value 3 ",
        "End(Value)",
        "Head 0 1.1 Length(3)",
        "Body abc",
        "Done",
        "Method GET",
        "End(Method)",
        "Target /",
        "End(Target)",
        "Head 0 1.0 None",
        "Done",
    ];
    assert_eq!(events(Kind::Request, text), expected);
}

#[test]
fn a_chunked_response_has_its_elements() {
    let text = b"HTTP/1.1 200 All right\r\nTransfer-Encoding: Chunked\r\n\r\n\
                 3;a=\"b\"\r\nabc\r\n00A ;x\r\n0123456789\r\n0\r\nX: y\r\n\r\n";
    let expected = [
        "Reason All right",
        "End(Reason)",
        "Name Transfer-Encoding",
        "End(Name)",
        "Value Chunked",
        "End(Value)",
        "Head 200 1.1 Chunked",
        "Chunk(3)",
        "Body abc",
        "Chunk(10)",
        "Body 0123456789",
        "Chunk(0)",
        "TrailerName X",
        "End(TrailerName)",
        "TrailerValue y",
        "End(TrailerValue)",
        "Done",
    ];
    assert_eq!(events(RESPONSE, text), expected);
}

#[test]
fn bodies_of_responses() {
    let class =
        |is_head, is_connect| Kind::Response(Some(RequestClass { is_head, is_connect, has_upgrade: false }));
    let (get, head, connect) = (class(false, false), class(true, false), class(false, true));
    for (kind, text, body) in [
        (get, "200 OK\r\n", "UntilClose"),
        (get, "200\r\nContent-Length: 0\r\n", "Length(0)"),
        (get, "204 No Content\r\nContent-Length: 5\r\n", "None"),
        (get, "304 \r\nContent-Length: 5\r\n", "None"),
        (get, "100 Continue\r\n", "None"),
        (get, "103 Early Hints\r\nContent-Length: 5\r\n", "None"),
        (get, "101 Switching\r\n", "Switched"),
        (head, "200 OK\r\nContent-Length: 5\r\n", "None"),
        (head, "200 OK\r\nTransfer-Encoding: chunked\r\n", "None"),
        (connect, "200 OK\r\nContent-Length: 5\r\n", "Switched"),
        (connect, "403 No\r\nContent-Length: 5\r\n", "Length(5)"),
        (Kind::Response(None), "408 Timeout\r\n", "UntilClose"),
    ] {
        let events = events(kind, format!("HTTP/1.1 {text}\r\n").as_bytes());
        let head = events.iter().find(|event| event.starts_with("Head")).unwrap();
        assert!(head.ends_with(body), "{text}: {head}");
        assert_eq!(events.last().unwrap() == "Done", ["None", "Length(0)"].contains(&body));
    }
}

/// The first line and a Host, then the lines that are given.
fn with(lines: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}")
}

#[test]
fn requests_that_may_be_smuggled() {
    for (lines, expected) in [
        ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", Cause::LengthAndChunked),
        ("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", Cause::LengthAndChunked),
        ("Content-Length: 1\r\nContent-Length: 2\r\n", Cause::TwoLengths),
        ("Content-Length: 1\r\ncontent-length: 1\r\n", Cause::TwoLengths),
        ("Content-Length: +5\r\n", Cause::Length),
        ("Content-Length: -5\r\n", Cause::Length),
        ("Content-Length: 0x5\r\n", Cause::Length),
        ("Content-Length: 5,5\r\n", Cause::Length),
        ("Content-Length: 5 5\r\n", Cause::Length),
        ("Content-Length:\r\n", Cause::Length),
        ("Content-Length: \t \r\n", Cause::Length),
        ("Content-Length: 5_0\r\n", Cause::Length),
        ("Content-Length: 18446744073709551617\r\n", Cause::LengthOverflow),
        ("Content-Length: 99999999999999999999999999999999999\r\n", Cause::LengthOverflow),
        ("Transfer-Encoding: chunked,\r\n", Cause::TransferEncoding),
        ("Transfer-Encoding: chunked\t\r\n", Cause::TransferEncoding),
        ("Transfer-Encoding: chunked \r\n", Cause::TransferEncoding),
        ("Transfer-Encoding: xchunked\r\n", Cause::TransferEncoding),
        ("Transfer-Encoding: chunkedx\r\n", Cause::TransferEncoding),
        ("Transfer-Encoding: identity, chunked\r\n", Cause::TransferEncoding),
        ("Transfer-Encoding: chunked, identity\r\n", Cause::TransferEncoding),
        ("Transfer-Encoding: identity\r\n", Cause::TransferEncoding),
        ("Transfer-Encoding: \"chunked\"\r\n", Cause::TransferEncoding),
        ("Transfer-Encoding:\r\n", Cause::TransferEncoding),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Cause::TransferEncoding),
        ("Transfer-Encoding:\x0bchunked\r\n", Cause::Value),
        ("Transfer-Encoding: chunked\r\n\r\n+5\r\n", Cause::ChunkSize),
        (" Folded: x\r\n", Cause::ObsFold),
        ("X: a\r\n\tb\r\n", Cause::ObsFold),
        ("X: a\rb\r\n", Cause::BareCr),
        ("X: a\r\r\n", Cause::BareCr),
        ("X: a\nY: b\r\n", Cause::BareLf),
        ("\n", Cause::BareLf),
        ("\rX: a\r\n", Cause::BareCr),
        ("Transfer-Encoding : chunked\r\n", Cause::SpaceBeforeColon),
        ("Transfer-Encoding\t: chunked\r\n", Cause::SpaceBeforeColon),
        (": x\r\n", Cause::Name),
        ("X(y): x\r\n", Cause::Name),
        ("X\r\n", Cause::BareCr),
        ("X\u{e9}: x\r\n", Cause::Name),
        ("X\0: x\r\n", Cause::Nul),
        ("X: a\0\r\n", Cause::Nul),
        ("X: a\x7f\r\n", Cause::Value),
        ("X: a\x1b[2J\r\n", Cause::Value),
        ("Host: a\r\n", Cause::TwoHosts),
    ] {
        assert_eq!(request_cause(&with(lines)), expected, "{lines:?}");
    }
}

#[test]
fn first_lines() {
    for (text, expected) in [
        ("GET / HTTP/1.1\r\n\r\n", Cause::MissingHost),
        ("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", Cause::ChunkedInHttp10),
        ("GET /\r\n", Cause::Http09),
        ("GET /\n", Cause::Http09),
        ("GET / \r\n", Cause::BareCr),
        ("GET  / HTTP/1.1\r\n", Cause::StartLine),
        (" GET / HTTP/1.1\r\n", Cause::StartLine),
        ("\n\nGET", Cause::BareLf),
        ("\rGET", Cause::BareCr),
        ("G\u{e9}T / HTTP/1.1\r\n", Cause::StartLine),
        ("GET\t/ HTTP/1.1\r\n", Cause::StartLine),
        ("GET /\t HTTP/1.1\r\n", Cause::Target),
        ("GET /\u{e9} HTTP/1.1\r\n", Cause::Target),
        ("GET /\0 HTTP/1.1\r\n", Cause::Nul),
        ("GET /a#b HTTP/1.1\r\n", Cause::Target),
        ("GET /a?b# HTTP/1.1\r\n", Cause::Target),
        ("GET # HTTP/1.1\r\n", Cause::Target),
        ("GET http://a/#b HTTP/1.1\r\n", Cause::Target),
        ("GET / HTTP/1.1 \r\n", Cause::StartLine),
        ("GET / HTTP/1.1\n", Cause::BareLf),
        ("GET / HTTP/1.10\r\n", Cause::Version),
        ("GET / HTTP/1.2\r\n", Cause::Version),
        ("GET / HTTP/2.0\r\n", Cause::Version),
        ("GET / http/1.1\r\n", Cause::Version),
        ("GET / HTTP/1,1\r\n", Cause::Version),
        ("GET / HTTP/1.1\r\r\n", Cause::BareCr),
        ("PRI * HTTP/2.0\r\n", Cause::Http2),
        ("PRI ** HTTP/2.0\r\n", Cause::Version),
        ("PRI /* HTTP/2.0\r\n", Cause::Version),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nContent-Length: 0\r\n\r\n", Cause::ConnectBody),
        ("\x16\x03\x01", Cause::StartLine),
    ] {
        assert_eq!(request_cause(text), expected, "{text:?}");
    }
    for (text, expected) in [
        ("ICY 200 OK\r\n", Cause::StartLine),
        ("HTTP/1.1  200 OK\r\n", Cause::Status),
        ("HTTP/1.1 20 OK\r\n", Cause::Status),
        ("HTTP/1.1 2000 OK\r\n", Cause::Status),
        ("HTTP/1.1 099 OK\r\n", Cause::Status),
        ("HTTP/1.1\r\n", Cause::BareCr),
        ("HTTP/1.1 200 OK\n", Cause::BareLf),
        ("HTTP/1.1 200 O\x01K\r\n", Cause::Status),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            Cause::LengthAndChunked,
        ),
    ] {
        assert_eq!(cause(RESPONSE, text), expected, "{text:?}");
    }
}

#[test]
fn chunks_and_trailers() {
    for (chunks, expected) in [
        ("\r\n", Cause::BareCr),
        ("x\r\n", Cause::ChunkSize),
        ("5\n", Cause::BareLf),
        ("5\rx", Cause::BareCr),
        ("5 \r\n", Cause::BareCr),
        ("5 5\r\n", Cause::ChunkSize),
        ("5;a\nb\r\n", Cause::BareLf),
        ("5;a=\"\nb\"\r\n", Cause::BareLf),
        ("5;a=\"\r\nb\"\r\n", Cause::ChunkExtension),
        ("5;a=\"b\\\"\r\n", Cause::ChunkExtension),
        ("5;a=\"b\\\r\n", Cause::ChunkExtension),
        ("5;a=\"b\"c\r\n", Cause::ChunkExtension),
        ("5;a=b\"c\"\r\n", Cause::ChunkExtension),
        ("5;a=\r\n", Cause::ChunkExtension),
        ("5;=b\r\n", Cause::ChunkExtension),
        ("5;a=b=c\r\n", Cause::ChunkExtension),
        ("5;;a\r\n", Cause::ChunkExtension),
        ("5;a b\r\n", Cause::ChunkExtension),
        ("5;a=b c\r\n", Cause::ChunkExtension),
        ("5;a \r\n", Cause::ChunkExtension),
        ("5;\u{e9}\r\n", Cause::ChunkExtension),
        ("5 \t; \ta \t= \t\"\\\"\t\u{e9};\" \t; b=c;d\r\n", Cause::None),
        ("5;a\0\r\n", Cause::Nul),
        ("0x5\r\n", Cause::ChunkSize),
        ("fffffffffffffffff\r\n", Cause::ChunkSizeOverflow),
        ("1000000000000001\r\n", Cause::ChunkSizeOverflow),
        // The next digit would make 2^64, which is 0 in 64 bits: the size of the last chunk.
        ("10000000000000000\r\n\r\n", Cause::ChunkSizeOverflow),
        ("1\r\nab\r\n", Cause::ChunkEnd),
        ("1\r\na\n", Cause::ChunkEnd),
        ("1\r\na\rx", Cause::ChunkEnd),
        ("0\r\nContent-Length: 1\r\n", Cause::TrailerField),
        ("0\r\nTransfer-Encoding: chunked\r\n", Cause::TrailerField),
        ("0\r\nHost: b\r\n", Cause::TrailerField),
        ("0\r\nX : b\r\n", Cause::SpaceBeforeColon),
        ("0\r\n\r\n", Cause::None),
    ] {
        let text = with(&format!("Transfer-Encoding: chunked\r\n\r\n{chunks}"));
        assert_eq!(request_cause(&text), expected, "{chunks:?}");
    }
}

#[test]
fn limits() {
    let chunked = |line: String| with(&format!("Transfer-Encoding: chunked\r\n\r\n{line}"));
    let long = "a".repeat(MOST_LINE as usize);
    for (text, expected) in [
        (format!("GET /{long}"), Cause::LineTooLong),
        (with(&format!("X: {long}")), Cause::LineTooLong),
        (with(&format!("{long}b")), Cause::LineTooLong),
        (with(&format!("X: a\r\n{}", format!("X: {}\r\n", &long[..8000]).repeat(9))), Cause::HeadTooLong),
        (with(&"X: a\r\n".repeat(127)), Cause::None),
        (with(&"X: a\r\n".repeat(128)), Cause::TooManyFields),
        (chunked("0".repeat(257)), Cause::ChunkLine),
        (chunked(format!("1;{}", "a".repeat(256))), Cause::ChunkLine),
        (chunked(format!("1{}", " ".repeat(256))), Cause::ChunkLine),
        ("\r\n".repeat(9), Cause::StartLine),
    ] {
        assert_eq!(request_cause(&text), expected, "{}", &text[..text.len().min(60)]);
    }
}

#[test]
fn the_end_of_a_connection() {
    let finish = |kind, text: &[u8]| {
        let mut parser = Parser::default();
        let mut rest = text;
        while let (len, event) = parser.next(kind, rest)
            && event != Event::More
        {
            rest = &rest[len..];
        }
        parser.finish()
    };
    assert_eq!(finish(RESPONSE, b"HTTP/1.0 200 OK\r\n\r\nabc"), Some(Event::Done));
    let truncated = Some(Event::Invalid(Cause::Truncated));
    assert_eq!(finish(RESPONSE, b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nabc"), truncated);
    assert_eq!(finish(RESPONSE, b"HTTP/1.0 200 OK\r\n"), truncated);
    assert_eq!(finish(Kind::Request, b"GE"), truncated);
    assert_eq!(finish(Kind::Request, b""), None);
    assert_eq!(finish(Kind::Request, b"GET / HTTP/1.0\r\n\r\n\r\n"), None);
    assert_eq!(size_of::<Parser>(), 32);
}
