//! Responses.

use super::{Case, check_responses};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const HEAD: &str = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn status_lines() {
    check_responses(
        GET,
        1,
        &[
            ("no headers", "HTTP/1.1 404 No\r\n\r\n", "404 No until close."),
            ("no body at all", "HTTP/1.1 200 OK\r\n\r\n", "200 OK until close."),
            // RFC 9112, 4: a space has to be there. Nothing depends on it.
            ("no reason", "HTTP/1.1 301\r\n\r\n", "301  until close."),
            ("an empty reason", "HTTP/1.1 200 \r\n\r\n", "200  until close."),
            ("two spaces in front of the reason", "HTTP/1.1 200  OK\r\n\r\n", "200  OK until close."),
            (
                "bytes above 127",
                "HTTP/1.1 500 i\u{c3}\u{ab}n\r\nContent-Length: 0\r\n\r\n",
                "500 i\\xc3\\xabn 0.",
            ),
            (
                "an empty line in front",
                "\r\nHTTP/1.1 200 O\r\nB:\t 2\r\nContent-Length: 0\r\n\r\n",
                "200 O 0 {B: 2}.",
            ),
            ("a letter is missing", "HTP/1.1 200 OK\r\n\r\n", "!Version"),
            ("two letters more", "HTTPER/1.1 200 OK\r\n\r\n", "!Version"),
            // RFC 9112, 2.3: the name of the protocol is HTTP. llhttp reads these two as well.
            ("RTSP", "RTSP/1.1 200 OK\r\n\r\n", "!StartLine"),
            ("an audio protocol", "ICE/1.1 200 OK\r\n\r\n", "!StartLine"),
            ("0 in front of the version", "HTTP/01.1 200 OK\r\n\r\n", "!Version"),
            ("version 11.1", "HTTP/11.1 200 OK\r\n\r\n", "!Version"),
            ("version 1.01", "HTTP/1.01 200 OK\r\n\r\n", "!Version"),
            ("version 5.6", "HTTP/5.6 200 OK\r\n\r\n", "!Version"),
            // RFC 9112, 2.3 and appendix C: version 0.9 has no status line. llhttp reads it.
            ("version 0.9", "HTTP/0.9 200 OK\r\n\r\n", "!Version"),
            ("a tab behind the version", "HTTP/1.1\t200 OK\r\n\r\n", "!StartLine"),
            ("CR in front", "\rHTTP/1.1\t200 OK\r\n\r\n", "!BareCr"),
            ("two spaces in front of the status", "HTTP/1.1  200 OK\r\n\r\n", "!Status"),
            ("a status of one digit", "HTTP/1.1 2 OK\r\n\r\n", "!Status"),
            ("CR behind the line", "HTTP/1.1 200 OK\rContent-Length: 0\r\n\r\n", "!BareCr"),
            ("CR CR behind the line", "HTTP/1.1 200 OK\r\rContent-Length: 4\r\n\r\nabcd", "!BareCr"),
            ("LF, no body", "HTTP/1.1 200 OK\nContent-Length: 0\n\n", "!BareLf"),
            ("LF, a body", "HTTP/1.1 200 OK\nA: 1\nB: 2\n\nbody\n", "!BareLf"),
            ("LF, until close", "HTTP/1.1 200 OK\nA: 1\nConnection: close\n\nbody", "!BareLf"),
        ],
    );
}

#[test]
fn fields() {
    check_responses(
        GET,
        1,
        &[
            (
                "some",
                "HTTP/1.1 200 O\r\nA: 1\r\nB:\t 2\r\nContent-Length: 0\r\n\r\n",
                "200 O 0 {A: 1} {B: 2}.",
            ),
            (
                "an underscore in a name",
                "HTTP/1.1 200 O\r\nD_i: 7;x;~o=\r\nContent-Length: 0\r\n\r\n",
                "200 O 0 {D_i: 7;x;~o=}.",
            ),
            (
                "an empty value",
                "HTTP/1.0 301 M\r\nPragma: \r\nContent-Length: 0\r\n\r\n",
                "301 M 0 {Pragma: }.",
            ),
            (
                "a long value with spaces",
                "HTTP/1.1 301 M\r\nP: a=\"b/c.xml\",D=\"E F G \"\r\n\
                 Transfer-Encoding: chunked\r\n\r\n1\r\n\n\r\n0\r\n\r\n",
                "301 M chunked {P: a=\\\"b/c.xml\\\",D=\\\"E F G \\\"} [\\n].",
            ),
            (
                "names that were changed",
                "HTTP/1.1 200 O\r\n.et-C: 1\r\n_onn: k\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                "200 O chunked {.et-C: 1} {_onn: k}.",
            ),
            ("a space in a name", "HTTP/1.1 200 O\r\nen Content-Type: a/b\r\n\r\n", "!SpaceBeforeColon"),
            ("space in front of the first header", "HTTP/1.1 200 O\r\n Host: a\r\n\r\n", "!ObsFold"),
            ("CR between headers", "HTTP/1.1 200 O\r\nA: 1\rB: 2\r\n\r\n", "!BareCr"),
        ],
    );
}

#[test]
fn lengths() {
    check_responses(
        GET,
        3,
        &[
            ("a length", "HTTP/1.1 200 O\r\nContent-Length: 3\r\n\r\nabc", "200 O 3 [abc]."),
            ("spaces around", "HTTP/1.1 301 M\r\nContent-Length:  3  \r\n\r\n<H>", "301 M 3 [<H>]."),
            ("tabs around", "HTTP/1.1 200 O\r\nContent-Length:\t3\t\r\n\r\nabc", "200 O 3 [abc]."),
            (
                "a name that begins like it",
                "HTTP/1.1 200 O\r\nContent-Length-X: 0\r\n\
                 Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
                "200 O chunked {Content-Length-X: 0} [ab].",
            ),
            ("none", "HTTP/1.1 200 O\r\nX: 1\r\n\r\nhello you", "200 O until close {X: 1} [hello you]."),
            (
                "none, several lines, close",
                "HTTP/1.1 200 O\r\nConnection: close\r\n\r\n<a>\n <b/>\n</a>",
                "200 O until close {Connection: close} [<a>\\n <b/>\\n</a>].",
            ),
            (
                "none, keep-alive in HTTP/1.0",
                "HTTP/1.0 200 O\r\nConnection: keep-alive\r\n\r\nHTTP/1.0 200 O",
                "200 O until close {Connection: keep-alive} [HTTP/1.0 200 O].",
            ),
            ("none, HTTP/1.1", "HTTP/1.1 200 O\r\n\r\nHTTP/1.1 200 O", "200 O until close [HTTP/1.1 200 O]."),
            (
                "an option of proxies",
                "HTTP/1.1 200 O\r\nContent-Length: 2\r\nProxy-Connection: close\r\n\r\nhi",
                "200 O 2 {Proxy-Connection: close} [hi].",
            ),
            (
                "three responses",
                "HTTP/1.1 200 O\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 201 C\r\nContent-Length: 2\r\n\r\nyy\
                 HTTP/1.1 202 A\r\nContent-Length: 3\r\n\r\nzzz",
                "200 O 1 [x]. 201 C 2 [yy]. 202 A 3 [zzz].",
            ),
        ],
    );
}

#[test]
fn responses_without_content() {
    let cases: &[Case] = &[
        (
            "204 in HTTP/1.0",
            "HTTP/1.0 204 N\r\nConnection: keep-alive\r\n\r\nHTTP/1.0 200 O\r\n\r\n",
            "204 N {Connection: keep-alive}. 200 O until close.",
        ),
        ("204", "HTTP/1.1 204 N\r\n\r\nHTTP/1.1 200 O\r\n\r\n", "204 N. 200 O until close."),
        (
            "304 with a length, and an empty line behind it",
            "HTTP/1.1 304 N\r\nContent-Length: 10\r\n\r\n\r\nHTTP/1.1 200 O\r\nContent-Length: 2\r\n\r\nhi",
            "304 N. 200 O 2 [hi].",
        ),
        (
            "304 with chunked",
            "HTTP/1.1 304 N\r\nTransfer-Encoding: chunked\r\n\r\n\
             HTTP/1.1 200 O\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            "304 N. 200 O chunked [hi].",
        ),
        (
            "100, an empty line, then the response",
            "HTTP/1.1 100 C\r\n\r\n\r\nHTTP/1.1 404 N\r\nX: 1\r\nContent-Length: 3\r\n\r\n404",
            "100 C. 404 N 3 {X: 1} [404].",
        ),
        (
            "103, then the response",
            "HTTP/1.1 103 E\r\nLink: <s>; rel=p\r\n\r\nHTTP/1.1 200 O\r\nContent-Length: 2\r\n\r\nhi",
            "103 E {Link: <s>; rel=p}. 200 O 2 [hi].",
        ),
    ];
    check_responses(GET, 3, cases);
    check_responses(
        HEAD,
        2,
        &[(
            "lengths of responses to HEAD",
            "HTTP/1.1 200 O\r\nContent-Length: 123\r\n\r\nHTTP/1.1 200 O\r\nContent-Length: 456\r\n\r\n",
            "200 O. 200 O.",
        )],
    );
}

/// RFC 9112, 9.6: the client closes the connection behind such a response. A middlebox reads on, and sees
/// whether a response follows. llhttp reports an error, or ignores the bytes when it is lenient.
#[test]
fn bytes_behind_the_last_response() {
    check_responses(
        GET,
        2,
        &[
            (
                "204",
                "HTTP/1.1 204 N\r\nConnection: close\r\n\r\nHTTP/1.1 200 O\r\n\r\n",
                "204 N {Connection: close}. 200 O until close.",
            ),
            (
                "more bytes than the length",
                "HTTP/1.1 200 O\r\nContent-Length: 5\r\nConnection: close\r\n\r\n2ad73-dc",
                "200 O 5 {Connection: close} [2ad73].!StartLine",
            ),
        ],
    );
}

#[test]
fn transfer_encodings() {
    // RFC 9112, 6.3: without chunked at the end, the content ends with the connection; so llhttp reads it.
    // Some clients see chunks, and so other messages: it is refused.
    for value in ["chunked, deflate", "chunked\r\nTransfer-Encoding: identity", "chunkedchunked"] {
        let text = format!("HTTP/1.1 200 O\r\nTransfer-Encoding: {value}\r\n\r\nabc");
        super::check(value, &[(0, GET), (1, &text)], "!TransferEncoding");
    }
    // RFC 9112, 5.2: a folded value is refused, or replaced by spaces.
    let folded = "HTTP/1.1 200 O\r\nTransfer-Encoding: chunked\r\n  abc\r\n\r\n0\r\n\r\n";
    super::check("a folded coding", &[(0, GET), (1, folded)], "!ObsFold");
}

#[test]
fn chunks() {
    for (name, text, expected) in [
        ("one", "a\r\n0123456789\r\n0\r\n\r\n", " [0123456789]."),
        ("one with an extension", "a;foo=bar\r\n0123456789\r\n0\r\n\r\n", " [0123456789]."),
        ("none", "0\r\n\r\n", "."),
        // RFC 9112, 7.1: the size ends with the line, or with an extension.
        ("spaces behind the size", "3  \r\nabc\r\n0  \r\n\r\n", "!BareCr"),
        ("extensions", "2;a;b=c\r\nxy\r\n3;d;e\r\n zz\r\n0\r\n\r\n", " [xy] [ zz]."),
        ("no semicolon", "2 abc\r\nxy\r\n0 d\r\n\r\n", "!ChunkSize"),
        ("no name behind the semicolon", "2;\r\nxy\r\n0\r\n\r\n", "!ChunkExtension"),
        ("quoted values", "2;a=\"b; c\";d=\"e\";f;g=h\r\nxy\r\n0\r\n\r\n", " [xy]."),
        ("a quote that is not closed", "2;a=\"b\";c=\"d; e\r\nxy\r\n0\r\n\r\n", "!ChunkExtension"),
    ] {
        let text = format!("HTTP/1.1 200 O\r\nTransfer-Encoding: chunked\r\n\r\n{text}");
        super::check(name, &[(0, GET), (1, &text)], &format!("200 O chunked{expected}"));
    }
}
