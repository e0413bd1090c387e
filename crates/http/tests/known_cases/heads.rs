//! Request lines and headers of requests.

use super::check_requests;

#[test]
fn methods() {
    check_requests(&[
        ("a report of WebDAV", "REPORT /cal HTTP/1.1\r\nHost: a\r\n\r\n", "REPORT /cal."),
        (
            "a partial change",
            "PATCH /f HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nabcd",
            "PATCH /f 4 [abcd].",
        ),
        ("removal from a cache", "PURGE /f HTTP/1.1\r\nHost: a\r\n\r\n", "PURGE /f."),
        ("a search of WebDAV", "SEARCH / HTTP/1.1\r\nHost: a\r\n\r\n", "SEARCH /."),
        (
            "a link",
            "LINK /i HTTP/1.1\r\nHost: a\r\nLink: <b>\r\nLink: <c>\r\n\r\n",
            "LINK /i {Link: <b>} {Link: <c>}.",
        ),
        ("a link is removed", "UNLINK /i HTTP/1.1\r\nHost: a\r\nLink: <b>\r\n\r\n", "UNLINK /i {Link: <b>}."),
        ("the method of a sender of audio", "SOURCE /m HTTP/1.1\r\nHost: a\r\n\r\n", "SOURCE /m."),
        (
            "a query with content",
            "QUERY /q HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nx1",
            "QUERY /q 2 [x1].",
        ),
        ("the first letter is that of HTTP", "HEAD /h HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD /h."),
        ("options of a path", "OPTIONS /o HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS /o."),
        ("options of the whole server", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS *."),
        // RFC 9112, 3.2.4: the asterisk is the target of OPTIONS alone. llhttp lets other methods have it.
        ("discovery of SSDP", "M-SEARCH * HTTP/1.1\r\nHost: a:1900\r\nMAN: x\r\n\r\n", "!Target"),
        // RFC 9110, 9.1: any token is a method, known or not. llhttp knows a list.
        ("an unknown method", "MKCOLB / HTTP/1.1\r\nHost: a\r\n\r\n", "MKCOLB /."),
        ("a method of RTSP", "ANNOUNCE /m HTTP/1.0\r\nHost: a\r\n\r\n", "ANNOUNCE /m."),
        // RFC 9113, 3.4: the preface has version 2.0. With version 1.1 this is a request, without Host.
        ("the method of HTTP/2 with version 1.1", "PRI * HTTP/1.1\r\n\r\nSM\r\n\r\n", "!MissingHost"),
        (
            "the preface of HTTP/2",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "!Http2 ~2.0\\r\\n\\r\\nSM\\r\\n\\r\\n",
        ),
        ("other text in front of the method", "One moreGET / HTTP/1.1\r\nHost: a\r\n\r\n", "!Version"),
    ]);
}

#[test]
fn versions() {
    check_requests(&[
        ("an audio protocol, GET", "GET /m ICE/1.0\r\nHost: a\r\n\r\n", "!Version"),
        ("a letter in front of HTTP", "GET /m IHTTP/1.0\r\nHost: a\r\n\r\n", "!Version"),
        ("RTSP, PUT", "PUT /m RTSP/1.0\r\nHost: a\r\n\r\n", "!Version"),
        // RFC 9112, 2.3: the name of the protocol is HTTP. llhttp reads these two as well.
        ("an audio protocol, its method", "SOURCE /m ICE/1.0\r\nHost: a\r\n\r\n", "!Version"),
        ("RTSP, OPTIONS", "OPTIONS /m RTSP/1.0\r\nHost: a\r\n\r\n", "!Version"),
        ("RTSP, its method", "ANNOUNCE /m RTSP/1.0\r\nHost: a\r\n\r\n", "!Version"),
        ("version 5.6", "GET / HTTP/5.6\r\n\r\n", "!Version"),
        ("version 2.0", "GET / HTTP/2.0\r\nHost: a\r\n\r\n", "!Version"),
        ("version 9.9", "GET / HTTP/9.9\r\nHost: a\r\n\r\n", "!Version"),
        // RFC 9112, 3: a request line has a version. llhttp takes this for HTTP/0.9.
        ("no version", "GET /\r\n\r\n", "!Http09"),
        ("a space and no version", "GET / \r\n\r\n", "!BareCr"),
        ("version 1.0, without Host", "GET /t HTTP/1.0\r\nUser-Agent: b\r\n\r\n", "GET /t {User-Agent: b}."),
    ]);
}

#[test]
fn targets() {
    check_requests(&[
        // RFC 3986 has no quotes and bars. They are visible characters and separate nothing (RFC 9112, 3.2).
        ("quotes", "GET /a\"b\"?c=\"d\" HTTP/1.1\r\nHost: a\r\n\r\n", "GET /a\\\"b\\\"?c=\\\"d\\\"."),
        ("a bar", "GET /a?b=| HTTP/1.1\r\nHost: a\r\n\r\n", "GET /a?b=|."),
        ("two question marks", "GET /a?b=c?d HTTP/1.1\r\nHost: a\r\n\r\n", "GET /a?b=c?d."),
        (
            "a query behind the host",
            "GET http://a.b?q=1 HTTP/1.1\r\nHost: a.b\r\n\r\n",
            "GET http://a.b?q=1.",
        ),
        ("a query behind the port", "GET http://a:12?q HTTP/1.1\r\nHost: a:12\r\n\r\n", "GET http://a:12?q."),
        ("nothing behind the port", "GET http://a:12 HTTP/1.1\r\nHost: a:12\r\n\r\n", "GET http://a:12."),
        ("bytes above 127", "GET /\u{c3}\u{a9} HTTP/1.1\r\nHost: a\r\n\r\n", "!Target"),
        // RFC 9112, 3.2: no form of a target has a fragment. llhttp takes it.
        ("a fragment", "GET /a?b=1#c HTTP/1.1\r\nHost: a\r\n\r\n", "!Target"),
        (
            "an underscore in a host",
            "CONNECT a_0.b:443 HTTP/1.0\r\nX: 1\r\n\r\n",
            "CONNECT a_0.b:443 {X: 1}.",
        ),
        // RFC 9110, 4.2.4: a user in an http URI is to be treated as an error. llhttp takes it.
        ("a user", "GET http://u%12:p!&*$@a:12/t HTTP/1.1\r\nHost: a:12\r\n\r\n", "!Target"),
        ("a space", "GET /a b/ HTTP/1.1\r\nHost: a\r\n\r\n", "!Version"),
    ]);
}

#[test]
fn beginnings() {
    check_requests(&[
        ("an empty line in front", "\r\nGET /t HTTP/1.1\r\nHost: a\r\n\r\n", "GET /t."),
        (
            "an empty line in front, and headers",
            "\r\nGET /t HTTP/1.1\r\nHost: a\r\nX: 1\r\n\r\n",
            "GET /t {X: 1}.",
        ),
        ("CR instead of a line end", "GET / HTTP/1.1\rHost: a\r\n\r\n", "!BareCr"),
        (
            "LF instead of line ends",
            "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n0\n\n",
            "!BareLf",
        ),
        ("space in front of the first header", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", "!ObsFold"),
        ("space in front of the first header, another", "GET / HTTP/1.1\r\n X: 1\r\n\r\n", "!ObsFold"),
    ]);
}

/// A request that stops is waited for. That the connection then ends is an error in each of these cases.
#[test]
fn incomplete_heads() {
    let whole = "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (name, len) in [
        ("within the method", 1),
        ("behind the method", 4),
        ("within the target", 10),
        ("behind the target", 11),
        ("within the version", 15),
        ("behind the version", 19),
        ("within the end of the first line", 20),
        ("behind the first line", 21),
        ("within a name", 24),
        ("behind a colon", 26),
        ("behind the space in front of a value", 27),
        ("within a value", 36),
        ("within the end of a header", 37),
        ("behind a header", 38),
        ("within the empty line", 39),
    ] {
        super::check(name, &[(0, &whole[..len])], "!Truncated");
    }
    super::check("complete", &[(0, whole)], "GET /hello.");
}

/// Cases of headers have this in front.
fn check_fields(cases: &[super::Case]) {
    for &(name, lines, expected) in cases {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}");
        super::check(name, &[(0, &text)], expected);
    }
}

#[test]
fn fields() {
    check_fields(&[
        ("none but Host", "\r\n", "GET /."),
        ("one", "Accept: */*\r\n\r\n", "GET / {Accept: */*}."),
        ("space and tab in front of a value", "A: 1\r\nB:\t 2\r\n\r\n", "GET / {A: 1} {B: 2}."),
        ("no space in front of a value", "aaaa:++++\r\n\r\n", "GET / {aaaa: ++++}."),
        ("an empty value", "A:\r\nB: \r\n\r\n", "GET / {A: } {B: }."),
        ("bytes of UTF-8", "A: \u{c3}\u{bc}\r\n\r\n", "GET / {A: \\xc3\\xbc}."),
        ("byte 255", "A: \u{ff}b\r\n\r\n", "GET / {A: \\xffb}."),
        (
            "a browser",
            "User-Agent: m/5.0 (X; U)\r\nAccept: a/b,*/*;q=0.8\r\n\
             Keep-Alive: 9\r\nConnection: keep-alive\r\n\r\n",
            "GET / {User-Agent: m/5.0 (X; U)} {Accept: a/b,*/*;q=0.8} {Keep-Alive: 9} \
             {Connection: keep-alive}.",
        ),
        ("a command line client", "User-Agent: c/7 l/7 (x)\r\n\r\n", "GET / {User-Agent: c/7 l/7 (x)}."),
        ("Expect", "Expect: 100-continue\r\n\r\n", "GET / {Expect: 100-continue}."),
        ("a token with a period and an underscore", "._b: 1\r\n\r\n", "GET / {._b: 1}."),
        ("at sign in a name", "Fo@: 1\r\n\r\n", "!Name"),
        ("brackets in a name", "X[]: 1\r\n\r\n", "!Name"),
        ("byte 1 in a name", "Fo\u{1}o: 1\r\n\r\n", "!Name"),
        ("no name", ": 1\r\n\r\n", "!Name"),
        ("form feed in a value", "A: b\u{c}c\r\n\r\n", "!Value"),
        ("form feed alone", "A: \u{c}\r\n\r\n", "!Value"),
        (
            "form feed in the second request",
            "\r\nGET / HTTP/1.1\r\nHost: a\r\nA: \u{c}\r\n\r\n",
            "GET /.!Value",
        ),
        ("bell in a value", "A: b\u{7}\r\n\r\n", "!Value"),
        ("CR and control characters in a name", "Connection\r\u{1b}\u{d5}eep: 1\r\n\r\n", "!BareCr"),
        ("the same in another name", "X-A\r\u{1b}\u{d5}eep: 1\r\n\r\n", "!BareCr"),
        ("CR between headers", "A: 1\rB: 2\r\n\r\n", "!BareCr"),
        ("CR within a value", "Connection: keep\ralive\r\n\r\n", "!BareCr"),
        (
            "CR between headers, no value",
            "A:\rTransfer-Encoding: chunked\r\n\r\n1\r\nA\r\n0\r\n\r\n",
            "!BareCr",
        ),
        ("LF between headers", "A:b\nTransfer-Encoding: chunked\r\n\r\n1\r\nA\r\n0\r\n\r\n", "!BareLf"),
        (
            "LF between headers, no value",
            "A:\nTransfer-Encoding: chunked\r\n\r\n1\r\nA\r\n0\r\n\r\n",
            "!BareLf",
        ),
        ("LF in front of a length", "A: b\nContent-Length: 23\r\n\r\nGET / HTTP/1.1\r\n\r\n", "!BareLf"),
        ("CR in front of a name", "\rA: 1\r\n\r\n", "!BareCr"),
        ("CR instead of the empty line", "\rZGET /b: HTTP/1.1\r\nHost: a\r\n\r\n", "!BareCr"),
        ("LF at the ends of folded lines", "A:  b\n\tc\n d\nB:\n e\n\n", "!BareLf"),
        // RFC 9112, 5.2: to be refused, or replaced by spaces. llhttp takes these when it is lenient.
        ("folded values", "A:  b\r\n\tc\r\n d\r\nB:\r\n e\r\nC: \r\n \r\n\r\n", "!ObsFold"),
        (
            "a certificate in folded lines",
            "X-Cert:  -----B\r\n\tMII\r\n\tRA==\r\n\t-----E\r\n\r\n",
            "!ObsFold",
        ),
        ("a folded length", "A: b\r\n Content-Length: 38\r\n\r\nGET /c HTTP/1.1\r\n\r\n", "!ObsFold"),
        ("a name without colon, then a folded line", "name\r\n : 1\r\n\r\n", "!BareCr"),
        // RFC 9112, 5.1: to be refused with status 400. llhttp takes them when it is lenient.
        ("space behind Connection", "Connection : upgrade\r\nUpgrade: w\r\n\r\n", "!SpaceBeforeColon"),
        ("space behind Content-Length", "Upgrade: w\r\nContent-Length : 4\r\n\r\nabcd", "!SpaceBeforeColon"),
    ]);
}

/// RFC 9110, 7.2, and RFC 9112, 3.2.
#[test]
fn hosts() {
    check_requests(&[
        (
            "a tab, and letters of both cases",
            "GET / HTTP/1.1\r\nhoSt:\ta.b\r\nempty:\r\n\r\n",
            "GET / {empty: }.",
        ),
        ("two", "GET / HTTP/1.1\r\nHost: a.b\r\nHost: a.c\r\n\r\n", "!TwoHosts"),
        ("a space within", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "!Host"),
        ("byte 0 within", "GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", "!Nul"),
        ("a space behind the name", "GET / HTTP/1.1\r\nHost : a\r\n\r\n", "!SpaceBeforeColon"),
        ("none, but a length", "GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n", "!MissingHost"),
        // llhttp does not ask for Host. Its cases have one here where it is not their subject.
        ("none", "GET /hello HTTP/1.1\r\n\r\n", "!MissingHost"),
        // An equals sign is a character of names (RFC 3986, 3.2.2).
        ("an equals sign", "GET /t HTTP/1.1\r\nHost: 0.0.0.0=5000\r\n\r\n", "GET /t."),
    ]);
}
