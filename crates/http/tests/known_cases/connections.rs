//! Persistent connections, pipelining, Upgrade and CONNECT.

use super::{check, check_requests};

#[test]
fn requests_follow_each_other() {
    check_requests(&[
        (
            "keep-alive is asked for",
            "PUT /u HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
            "PUT /u {Connection: keep-alive}.",
        ),
        (
            "another request behind keep-alive",
            "PUT /u HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n\
             PUT /v HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
            "PUT /u {Connection: keep-alive}. PUT /v {Connection: keep-alive}.",
        ),
        (
            "an empty line between requests",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nx=1\r\n\r\n\
             GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / 3 [x=1]. GET /.",
        ),
        (
            "three requests with content",
            "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx\
             PUT /b HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nyy\
             PATCH /c HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nzzz",
            "POST /a 1 [x]. PUT /b 2 [yy]. PATCH /c 3 [zzz].",
        ),
        (
            "the framing of a request is not that of the one before",
            "PUT /u HTTP/1.0\r\nContent-Length: 0\r\n\r\n\
             PUT /v HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            "PUT /u 0. PUT /v chunked!Truncated",
        ),
        ("close", "PUT /u HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "PUT /u {Connection: close}."),
        (
            "close and a tab",
            "PUT /u HTTP/1.1\r\nHost: a\r\nConnection: close\t\r\n\r\n",
            "PUT /u {Connection: close}.",
        ),
        (
            "several options",
            "PUT /u HTTP/1.1\r\nHost: a\r\nConnection: close, t, upgrade, t, keep-alive\r\n\r\n",
            "PUT /u {Connection: close, t, upgrade, t, keep-alive}.",
        ),
    ]);
}

/// RFC 9112, 9.3 and 9.6: the ends of a connection close it, and the server does not process what follows. A
/// middlebox does not decide that for them, and reads on. llhttp reports an error, unless it is lenient.
#[test]
fn requests_behind_the_last_one_are_read() {
    check_requests(&[
        (
            "HTTP/1.0 without keep-alive",
            "PUT /u HTTP/1.0\r\n\r\nPUT /v HTTP/1.1\r\nHost: a\r\n\r\n",
            "PUT /u. PUT /v.",
        ),
        (
            "close",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx\r\n\
             GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / 1 {Connection: close} [x]. GET /.",
        ),
        (
            "close and a tab",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nConnection: close\t\r\n\r\nx\r\n\
             GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / 1 {Connection: close} [x]. GET /.",
        ),
    ]);
}

/// RFC 9110, 7.8: the protocol is switched by status 101, behind the content of the request. llhttp stops at
/// the end of the request, and leaves the bytes behind it to its caller.
#[test]
fn upgrades_are_requests_until_they_are_answered() {
    let upgrade = "HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: w\r\n";
    let fields = "{Connection: Upgrade} {Upgrade: w}";
    for (name, text, expected) in [
        ("alone", format!("PUT /u {upgrade}\r\n"), format!("PUT /u {fields}.")),
        ("early bytes", format!("GET /u {upgrade}\r\nother bytes here"), format!("GET /u {fields}.!Version")),
        (
            "content and early bytes",
            format!("PUT /u {upgrade}Content-Length: 4\r\n\r\nabcdefgh"),
            format!("PUT /u 4 {fields} [abcd].!Truncated"),
        ),
        (
            "POST, content and early bytes",
            format!("POST /u {upgrade}Content-Length: 4\r\n\r\nabcdother bytes"),
            format!("POST /u 4 {fields} [abcd].!Truncated"),
        ),
        (
            "several options",
            "GET /u HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, upgrade\r\nUpgrade: w\r\n\r\n".to_owned(),
            "GET /u {Connection: keep-alive, upgrade} {Upgrade: w}.".to_owned(),
        ),
        // RFC 9112, 5.2: folded values are refused.
        (
            "folded options",
            "GET /u HTTP/1.1\r\nConnection: s,\r\n Upgrade, ,x\r\n\r\n".to_owned(),
            "!ObsFold".to_owned(),
        ),
        (
            "options behind a fold",
            "GET /u HTTP/1.1\r\nConnection: x, \r\n upgrade\r\n\r\n".to_owned(),
            "!ObsFold".to_owned(),
        ),
    ] {
        check(name, &[(0, &text)], &expected);
    }
}

#[test]
fn switched_protocols() {
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n";
    for (name, response, expected) in [
        (
            "a length in status 101",
            "HTTP/1.1 101 S\r\nContent-Length: 4\r\n\r\nbodyproto",
            "101 S switched ~bodyproto",
        ),
        (
            "chunks in status 101",
            "HTTP/1.1 101 S\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nb\r\n0\r\n\r\nproto",
            "101 S switched ~1\\r\\nb\\r\\n0\\r\\n\\r\\nproto",
        ),
        (
            "declined, no length",
            "HTTP/1.1 200 O\r\nUpgrade: h2c\r\n\r\nbody",
            "200 O until close {Upgrade: h2c} [body].",
        ),
        (
            "declined, a length",
            "HTTP/1.1 200 O\r\nUpgrade: h2c\r\nContent-Length: 4\r\n\r\nbody",
            "200 O 4 {Upgrade: h2c} [body].",
        ),
        (
            "declined, chunks",
            "HTTP/1.1 200 O\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n\
             2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n",
            "200 O chunked {Upgrade: h2c} [bo] [dy].",
        ),
    ] {
        check(name, &[(0, request), (1, response)], expected);
    }
}

#[test]
fn tunnels() {
    let connect = "CONNECT a-0.b:443 HTTP/1.0\r\nUser-Agent: m\r\nProxy-Authorization: basic eDp5\r\n";
    let fields = "{User-Agent: m} {Proxy-Authorization: basic eDp5}";
    let complete = format!("{connect}\r\n");
    check("no bytes behind", &[(0, &complete)], &format!("CONNECT a-0.b:443 {fields}."));
    check("capital letters", &[(0, "CONNECT A0.B:443 HTTP/1.0\r\n\r\n")], "CONNECT A0.B:443.");
    // RFC 9110, 9.3.6: the tunnel begins with the response. If it is refused, these bytes would be a request.
    let early = format!("{connect}\r\nsome data\r\nand more");
    check("early bytes", &[(0, &early)], &format!("CONNECT a-0.b:443 {fields}.!EarlyTunnel"));
    // RFC 9110, 9.3.6: CONNECT has no content. llhttp ignores the length.
    check("a length", &[(0, &format!("{connect}Content-Length: 10\r\n\r\n0123456789"))], "!ConnectBody");
    // RFC 9110, 7.2: Host is that of the target. h1spec (dropseed) takes another one.
    check("another Host", &[(0, "CONNECT b:443 HTTP/1.1\r\nHost: a\r\n\r\n")], "!HostMismatch");
    check("opened", &[(0, &complete), (1, "HTTP/1.0 200 O\r\n\r\ndata")], "200 O switched ~data");
}
