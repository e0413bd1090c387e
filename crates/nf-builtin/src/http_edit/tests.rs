mod coded;

use std::cell::Cell;

use mmb_nf::{ChainVerdict, Harness};
use mmb_packet::build::{Frame, Ip4, Tcp};
use proptest::prelude::*;

const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;
/// Numbers of the first bytes of both ends.
const FIRST: [u32; 2] = [101, 501];

thread_local! {
    /// Bytes that readers were given, and that were passed over to find the place of a text.
    static READ: Cell<usize> = const { Cell::new(0) };
}

pub(super) fn note_read(bytes: usize) {
    READ.set(READ.get() + bytes);
}

/// A connection through a chain of the function.
struct Talk {
    harness: Harness,
    /// The port of the client.
    port: u16,
    /// Next sequence numbers of both ends.
    next: [u32; 2],
    /// What the ends get, by direction.
    passed: [Vec<u8>; 2],
    /// The last verdict.
    verdict: ChainVerdict,
}

impl Talk {
    fn new(arguments: &str) -> Talk {
        let lines = format!("nf add f http-edit {arguments}\nchain add c f");
        let harness = Harness::new(crate::registry(), &lines).unwrap();
        let (port, verdict) = (4000, ChainVerdict::Pass);
        let mut talk = Talk { harness, port, next: [100, 500], passed: Default::default(), verdict };
        talk.reopen(port);
        talk
    }

    /// Opens a connection from another port. The one before stays.
    fn reopen(&mut self, port: u16) {
        (self.port, self.next, self.passed) = (port, [100, 500], Default::default());
        self.segment(0, SYN, b"");
        self.segment(1, SYN | ACK, b"");
        self.segment(0, ACK, b"");
    }

    /// Returns the next segment of a direction.
    fn frame(&self, direction: usize, flags: u8, payload: &[u8]) -> Vec<u8> {
        let (ends, ports) = ([[10, 0, 0, 1], [10, 0, 0, 2]], [self.port, 80]);
        let other = 1 - direction;
        let ack = if flags == SYN { 0 } else { FIRST[other] + self.passed[other].len() as u32 };
        let tcp = Tcp { seq: self.next[direction], ack, flags, ..Tcp::new(ports[direction], ports[other]) };
        Frame::new(Ip4::new(ends[direction], ends[other]), tcp).payload(payload).build()
    }

    fn segment(&mut self, direction: usize, flags: u8, payload: &[u8]) {
        let frame = self.frame(direction, flags, payload);
        self.next[direction] += payload.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        for sent in self.harness.send("c", &[frame]) {
            self.verdict = sent.verdict;
            let passed = (sent.verdict == ChainVerdict::Pass).then_some(sent.frame);
            for frame in sent.emitted.into_iter().map(|(_, frame)| frame).chain(passed) {
                mmb_nf::testing::assert_checksums(&frame);
                let way = usize::from(frame[34..36] == 80_u16.to_be_bytes());
                let number = u32::from_be_bytes(frame[38..42].try_into().unwrap());
                let payload = &frame[34 + usize::from(frame[46] >> 4) * 4..];
                if frame[47] & (SYN | 4) == 0 && !payload.is_empty() {
                    assert_eq!(number as usize, FIRST[way] as usize + self.passed[way].len());
                    self.passed[way].extend_from_slice(payload);
                }
            }
        }
    }

    /// Sends a text in segments of some bytes.
    fn send(&mut self, direction: usize, text: &[u8], size: usize) {
        text.chunks(size).for_each(|piece| self.segment(direction, ACK, piece));
    }

    fn end(&mut self, direction: usize) {
        self.segment(direction, ACK | FIN, b"");
    }

    fn report(&self) -> String {
        let report = self.harness.program().instance("f").unwrap().report();
        report.into_iter().map(|(name, value)| format!("{name} {value}; ")).collect()
    }

    fn texts(&self) -> [String; 2] {
        [0, 1].map(|way| String::from_utf8_lossy(&self.passed[way]).into_owned())
    }
}

/// Sends a request and its response, in segments of some bytes. Returns what the ends get.
fn talk(arguments: &str, [request, response]: [&str; 2], size: usize) -> [String; 2] {
    let mut talk = Talk::new(arguments);
    talk.send(0, request.as_bytes(), size);
    talk.send(1, response.as_bytes(), size);
    talk.end(1);
    assert!(!matches!(talk.verdict, ChainVerdict::Refuse(_)), "{}", talk.report());
    talk.texts()
}

/// Checks what becomes of a message, wherever segments end.
fn becomes(arguments: &str, [request, response]: [&str; 2], expected: [&str; 2]) {
    let whole = request.len().max(response.len()).max(1);
    for size in 1..=whole {
        let found = talk(arguments, [request, response], size);
        assert_eq!(found, expected.map(str::to_owned), "segments of {size}");
    }
}

/// Returns the head of a message, and its content without chunks.
fn decoded(message: &str) -> (String, String) {
    let (head, mut body) = message.split_once("\r\n\r\n").unwrap();
    if !head.contains("Transfer-Encoding: chunked") {
        return (head.to_owned(), body.to_owned());
    }
    let mut content = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            assert_eq!(rest, "\r\n");
            return (head.to_owned(), content);
        }
        content.push_str(&rest[..size]);
        body = rest[size..].strip_prefix("\r\n").unwrap();
    }
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

#[test]
fn headers_are_edited_wherever_segments_end() {
    let edits = "request header set X-Forwarded-For client-address request header del x-debug \
                 request header set Host b response header add X-Box mmb response header del SERVER \
                 response header add X-To server-address";
    becomes(
        edits,
        [
            "GET / HTTP/1.1\r\nX-Forwarded-For: 1.1.1.1\r\nX-Debug:\r\nHost: a\r\nx-forwarded-for: 2\r\nX-Debugger: 1\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Length: 2\r\n\r\nhi",
        ],
        [
            "GET / HTTP/1.1\r\nX-Debugger: 1\r\nX-Forwarded-For: 10.0.0.1\r\nHost: b\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Box: mmb\r\nX-To: 10.0.0.2\r\n\r\nhi",
        ],
    );
}

#[test]
fn pipelined_requests_and_all_kinds_of_responses_are_edited() {
    let request = "HEAD /old/x HTTP/1.1\r\nHost: a\r\n\r\nGET http://a/old/y?z HTTP/1.1\r\nHost: a\r\n\r\n\
                   POST /z HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-D: 1\r\nX-T: 2\r\n\r\n";
    let response = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nHTTP/1.1 304 Not Modified\r\n\r\nHTTP/1.0 200 OK\r\n\r\nrest";
    becomes(
        "request path replace ^/old/(.*) /new/$1 request header del X-D response header add V 1",
        [request, response],
        [
            &request.replace("/old/", "/new/").replace("X-D: 1\r\n", ""),
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nV: 1\r\n\r\nHTTP/1.1 304 Not Modified\r\nV: 1\r\n\r\nHTTP/1.0 200 OK\r\nV: 1\r\n\r\nrest",
        ],
    );
}

/// RFC 9110, 10.2.2: Location is an address, or a part of one, with a fragment or without. The first
/// expression that matches counts. It is no header of requests.
#[test]
fn addresses_of_redirects_are_rewritten() {
    let edits = "response location replace ^http://inner:8080/ https://b.example/ \
                 response location replace ^/app/(.*) /$1 response location replace ^/gone()$ $1";
    let moved = |value: &str| {
        format!("HTTP/1.1 302 Found\r\nX-Location: /app/x\r\nLocation: {value}\r\nContent-Length: 0\r\n\r\n")
    };
    let request = GET.replace("\r\n\r\n", "\r\nLocation: /app/x\r\n\r\n");
    for (value, expected) in [
        ("http://inner:8080/app/a?b#c", "https://b.example/app/a?b#c"),
        ("/app/a", "/a"),
        ("/app/a \t", "/a \t"),
        ("other/app/a", "other/app/a"),
        ("", ""),
        // Nothing would be left.
        ("/gone", "/gone"),
    ] {
        let response = moved(value);
        becomes(edits, [&request, &response], [&request, &moved(expected)]);
    }
    let mut counted = Talk::new(edits);
    counted.send(0, GET.repeat(2).as_bytes(), 999);
    counted.send(1, (moved("/app/a") + &moved("/gone")).as_bytes(), 999);
    let report = counted.report();
    assert!(
        report.contains("locations rewritten 1; ")
            && report.contains("locations not rewritten: the new one is invalid 1;"),
        "{report}"
    );
    // With a body that is edited, and without the header.
    let body = "HTTP/1.1 201 Created\r\nLocation: /app/a\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\nevil";
    let both = "response location replace /app /b body replace evil good";
    let [_, found] = talk(both, [GET, body], 999);
    assert_eq!(found, body.replace("/app", "/b").replace("evil", "good"));
    let [_, found] = talk("response location replace a b response header del location", [GET, body], 999);
    assert_eq!(found, body.replace("Location: /app/a\r\n", ""));
}

#[test]
fn bytes_of_another_protocol_pass() {
    let request = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\n";
    let mut talk = Talk::new("request header del A response header set B 1");
    talk.send(0, request.as_bytes(), 7);
    talk.send(1, b"HTTP/1.1 101 Switching\r\nUpgrade: echo\r\n\r\nB: 2\r\n", 7);
    talk.send(0, b"A: 1\r\n\r\n", 3);
    let [to_server, to_client] = talk.texts();
    assert_eq!(to_server, format!("{request}A: 1\r\n\r\n"));
    assert_eq!(to_client, "HTTP/1.1 101 Switching\r\nUpgrade: echo\r\nB: 1\r\n\r\nB: 2\r\n");
    let mut tunnel = Talk::new("request header del A");
    tunnel.send(0, b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nA: 1\r\n\r\n", 9);
    tunnel.send(1, b"HTTP/1.1 200 OK\r\n\r\n", 9);
    tunnel.send(0, b"A: 1\r\n", 9);
    assert_eq!(tunnel.texts()[0], "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\nA: 1\r\n");
}

#[test]
fn a_body_with_a_length_gets_chunks() {
    let banner = "body replace </body> <p>ad</p></body>";
    let body = "<html><body>text</body></html>";
    let response = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=x\r\nContent-Length: {}\r\nETag: \"1\"\r\nAccept-Ranges: bytes\r\n\r\n{body}",
        body.len()
    );
    let new = body.replace("</body>", "<p>ad</p></body>");
    let request = "GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n";
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=x\r\n";
    for size in 1..response.len() {
        let [asked, answered] = talk(banner, [request, &response], size);
        assert_eq!(asked, "GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: identity\r\n\r\n");
        let (found, content) = decoded(&answered);
        assert_eq!(content, new, "segments of {size}");
        // With the last segment of the head may come the whole body.
        if !found.contains("Content-Length") {
            assert_eq!(found, format!("{head}ETag: W/\"1\"\r\nTransfer-Encoding: chunked"));
        }
    }
    // The whole message is there: its length is known.
    let [_, answered] = talk(banner, [request, &response], 4096);
    let head = format!("{head}Content-Length: {}\r\nETag: W/\"1\"", new.len());
    assert_eq!(answered, format!("{head}\r\n\r\n{new}"));
    // The response to HEAD has no length, since that of the body is not known.
    let (before, _) = response.split_once("\r\n\r\n").unwrap();
    let [_, answered] =
        talk(banner, ["HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", &format!("{before}\r\n\r\n")], 50);
    assert_eq!(answered, "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=x\r\nETag: W/\"1\"\r\n\r\n");
}

#[test]
fn chunks_are_made_anew() {
    let response = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n\
                    2;x=\"y\"\r\nab\r\n1\r\ne\r\n00003\r\nvil\r\n2\r\n e\r\n1 ;a\r\nv\r\n0\r\nX-Trailer: evil\r\n\r\n";
    for size in 1..response.len() {
        let [_, answered] = talk("body replace evil GOOD! type text/*", [GET, response], size);
        let answered = answered.replace("X-Trailer: evil\r\n", "");
        assert_eq!(decoded(&answered).1, "abGOOD! ev", "segments of {size}: {answered}");
        // A chunk of no bytes would be the end.
        let all = "body remove a body remove b body remove evil body remove \" ev\"";
        let [_, answered] = talk(all, [GET, response], size);
        assert!(answered.ends_with("\r\n\r\n0\r\nX-Trailer: evil\r\n\r\n"), "segments of {size}: {answered}");
    }
}

#[test]
fn a_body_up_to_the_end_of_the_connection_is_edited() {
    for (request, head, kept) in [
        (GET, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n", true),
        (
            "GET / HTTP/1.0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: 9\r\n",
            false,
        ),
        (GET, "HTTP/1.0 200 OK\r\nContent-Type: text/html\r\nContent-Length: 9\r\n", false),
    ] {
        let response = format!("{head}\r\nan evil e");
        for size in [1, 5] {
            let [_, answered] = talk("body replace evil good. body replace ev x", [request, &response], size);
            let head = if kept { head.to_owned() } else { head.replace("Content-Length: 9\r\n", "") };
            assert_eq!(answered, format!("{head}\r\nan good. e"));
        }
    }
    // Here the connection stays open.
    let response = "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\nevil";
    let mut open = Talk::new("body replace evil good.");
    open.send(0, GET.as_bytes(), 100);
    open.send(1, response.as_bytes(), 1);
    assert_eq!(open.texts()[1], response);
    assert!(open.report().contains("HTTP/1.0 without end of the connection 1"), "{}", open.report());
}

#[test]
fn bodies_that_cannot_be_edited_pass() {
    for (head, why) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: compress\r\nContent-Length: 4\r\n\r\n",
            "Content-Encoding 1",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip, br\r\nContent-Length: 4\r\n\r\n",
            "Content-Encoding 1",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n",
            "Content-Encoding 1",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nCache-Control: public, No-Transform\r\nContent-Length: 4\r\n\r\n",
            "no-transform 1",
        ),
        ("HTTP/1.1 206 Partial\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n", "partial content 1"),
        ("HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: 4\r\n\r\n", "bodies edited 0"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", "bodies edited 0"),
    ] {
        let response = format!("{head}evil");
        let mut talk = Talk::new("body replace evil good.");
        talk.send(0, GET.as_bytes(), 100);
        talk.send(1, response.as_bytes(), 30);
        assert_eq!(talk.texts()[1], response);
        assert!(talk.report().contains(why), "{}", talk.report());
    }
}

#[test]
fn bodies_of_requests_are_edited() {
    let edit = "request body replace evil good.";
    let request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n1 evil2";
    becomes(edit, [request, OK], ["POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n1 good.2", OK]);
    // The client waits for 100 Continue, and so the head cannot wait for the body.
    let request = request.replace("Host: a", "Host: a\r\nExpect: 100-continue");
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut talk = Talk::new(edit);
    talk.send(0, format!("{head}\r\n\r\n").as_bytes(), 100);
    assert!(talk.texts()[0].ends_with("Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"));
    talk.send(1, b"HTTP/1.1 100 Continue\r\n\r\n", 100);
    talk.send(0, body.as_bytes(), 4);
    assert_eq!(decoded(&talk.texts()[0]).1, "1 good.2");
}

#[test]
fn replacements_that_have_no_room_are_counted() {
    let request =
        format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40000\r\n\r\n{}", "a".repeat(40_000));
    let mut talk = Talk::new("request body replace a b");
    talk.send(0, request.as_bytes(), 41_000);
    assert_eq!(decoded(&talk.texts()[0]).1, "b".repeat(1 << 15) + &"a".repeat(40_000 - (1 << 15)));
    let report = talk.report();
    assert!(
        report.contains(&format!("texts not replaced: too many at a time {}", 40_000 - (1 << 15))),
        "{report}"
    );
}

#[test]
fn malformed_messages_reset_the_connection_or_pass() {
    let request = "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\nX : 2\r\n\r\n";
    let mut strict = Talk::new("request header del X");
    strict.send(0, request.as_bytes(), 100);
    assert!(matches!(strict.verdict, ChainVerdict::Refuse(reason) if reason.name() == "http-unedited"));
    assert_eq!(strict.texts()[0], "");
    let mut loose = Talk::new("errors pass request header del X");
    loose.send(0, request.as_bytes(), 100);
    assert_eq!(loose.texts()[0], request.replacen("X: 1\r\n", "", 1));
    assert!(loose.report().contains("not read: space before the colon 1"), "{}", loose.report());
}

#[test]
fn bytes_that_cannot_wait_go_on() {
    let mut talk = Talk::new("request header del Xyz request header add B 1");
    talk.send(0, b"GET / HTTP/1.1\r\nHost: a\r\nXy", 100);
    assert_eq!(talk.texts()[0], "GET / HTTP/1.1\r\nHost: a\r\n");
    talk.end(0);
    assert_eq!(talk.texts()[0], "GET / HTTP/1.1\r\nHost: a\r\nXy");
}

#[test]
fn what_is_wrong_is_refused() {
    for (arguments, part) in [
        ("", "needs an edit"),
        ("x", "unknown argument"),
        ("request header del Content-Length", "tells where a message"),
        ("response header set transfer-encoding x", "tells where a message"),
        ("request header add Connection close", "tells where a message"),
        ("request header add Host b", "second Host"),
        ("request header del host", "cannot lose its Host"),
        ("request header add A: b", "invalid header"),
        ("request header add A", "needs `set"),
        ("request header set A \" b\"", "invalid value"),
        ("request header set A \"b\\r\\nC: d\"", "invalid value"),
        ("request header set A 1 request header set a 2", "added twice"),
        ("response path replace a b", "needs `header`, `location` or `body`"),
        ("request location replace a b", "needs `header`, `path` or `body`"),
        ("response location set a b", "needs `replace REGEX TEXT`"),
        ("response location replace a $1", "no group 1"),
        ("request path replace ( b", "invalid expression"),
        ("request path replace a $1", "no group 1"),
        ("body replace /a/ b", "regular expression"),
        ("body replace a file", "needs `replace"),
        ("body replace a file /no/such/file", "/no/such/file"),
        ("errors x", "needs `reject`"),
        ("ranges x", "needs `remove`"),
        ("no-transform", "needs `honor`"),
    ] {
        let made = Harness::new(crate::registry(), &format!("nf add f http-edit {arguments}"));
        let error = made.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(part), "{arguments}: {error}");
    }
    let long = "x".repeat(2048);
    assert!(
        Harness::new(crate::registry(), &format!("nf add f http-edit request header add A {long}")).is_err()
    );
}

/// Returns a body of parts of a text that is replaced.
fn body() -> impl Strategy<Value = String> {
    let part = prop_oneof!["evil", "ev", "il", "e", "[a-z <>]{0,20}"];
    prop::collection::vec(part, 0..30).prop_map(|parts| parts.concat())
}

proptest! {
    /// Segments and chunks do not change what the client gets.
    #[test]
    fn bodies_are_edited_wherever_segments_and_chunks_end(
        body in body(),
        edit in prop::sample::select(vec!["remove evil", "replace evil good", "replace evil longer-than-before"]),
        chunks in prop::collection::vec(1..9_usize, 1..5),
        sizes in prop::collection::vec(1..60_usize, 1..5),
        has_chunks in any::<bool>(),
    ) {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n";
        let message = if has_chunks {
            let mut text = format!("{head}Transfer-Encoding: chunked\r\n\r\n");
            let (mut rest, mut chunks) = (body.as_str(), chunks.iter().cycle());
            while !rest.is_empty() {
                let (chunk, behind) = rest.split_at((*chunks.next().unwrap()).min(rest.len()));
                text.push_str(&format!("{:x};e\r\n{chunk}\r\n", chunk.len()));
                rest = behind;
            }
            text + "0\r\n\r\n"
        } else {
            format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())
        };
        let mut talk = Talk::new(&format!("body {edit}"));
        // Two responses on one connection.
        talk.send(0, GET.repeat(2).as_bytes(), 1000);
        let (stream, mut sizes, mut at) = (message.repeat(2), sizes.iter().cycle(), 0);
        while at < stream.len() {
            let to = (at + sizes.next().unwrap()).min(stream.len());
            talk.segment(1, ACK, &stream.as_bytes()[at..to]);
            at = to;
        }
        let [_, answered] = talk.texts();
        let (first, second) = answered.split_at(answered[1..].find("HTTP/1.1").unwrap() + 1);
        let expected = body.replace("evil", edit.split(' ').nth(2).unwrap_or_default());
        for message in [first, second] {
            let (head, content) = decoded(message);
            prop_assert_eq!(&content, &expected);
            if let Some((_, length)) = head.split_once("Content-Length: ") {
                prop_assert_eq!(length, expected.len().to_string());
            }
        }
    }
}

/// A head that comes byte by byte costs as much as one that comes at once, and not its square.
#[test]
fn heads_that_wait_are_not_read_for_each_byte() {
    let long = "a".repeat(3000);
    let lines: String = (0..30).map(|n| format!("X-{n}: {}\r\n", &long[..100])).collect();
    let with_line = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Long: {long}\r\n\r\n");
    let with_lines = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let with_body = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000\r\n\r\n{long}");
    for (arguments, request) in [
        ("request header set X-A b", &with_line),
        ("request header set X-A b", &with_lines),
        ("request body replace aaaa b", &with_lines),
        ("request body replace aaaab b", &with_body),
    ] {
        let mut talk = Talk::new(arguments);
        READ.set(0);
        talk.send(0, request.as_bytes(), 1);
        // Once as it comes, and once as a whole.
        assert!(READ.get() <= 3 * request.len(), "{arguments}: {} of {}", READ.get(), request.len());
        assert!(talk.texts()[0].starts_with(&request[..10]));
    }
}

/// A sender that makes a chunk of each byte does not make the texts in them expensive.
#[test]
fn texts_in_small_chunks_are_found_in_one_pass() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunks = 10_000;
    let response = format!("{head}{}0\r\n\r\n", "1\r\ne\r\n".repeat(chunks));
    let mut talk = Talk::new("body replace e E");
    talk.send(0, GET.as_bytes(), 1000);
    READ.set(0);
    talk.segment(1, ACK, response.as_bytes());
    assert!(READ.get() <= response.len() + 2 * chunks, "{} of {}", READ.get(), response.len());
    let [_, response] = talk.texts();
    assert!(decoded(&response).1 == "E".repeat(chunks), "{}", talk.report());
}

/// Behind a switch to another protocol nothing waits or is kept.
#[test]
fn a_connection_that_is_switched_is_left() {
    let mut talk = Talk::new("request header set X-A b");
    talk.send(0, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 1000);
    let switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    talk.send(1, switch, 1000);
    talk.send(0, b"\x81\x05hello", 3);
    talk.send(1, b"\x81\x05HELLO", 3);
    assert!(talk.texts()[0].ends_with("hello") && talk.texts()[1].ends_with("HELLO"));
    let context = talk.harness.program().instance("(stream)").unwrap().report();
    assert!(context.contains(&("detached".to_owned(), "1".to_owned())), "{context:?}");
}

/// While only one direction was seen, its numbers must stay. A client that sends in front of the answer does
/// not keep the function from editing what the server takes.
#[test]
fn a_connection_is_edited_when_its_answer_was_seen() {
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for early in 0..3 {
        let mut talk = Talk::new("request header set X-A b");
        (talk.port, talk.next, talk.passed) = (4001, [100, 500], Default::default());
        talk.segment(0, SYN, b"");
        (0..early).for_each(|_| talk.segment(0, ACK, request.as_bytes()));
        assert_eq!(talk.texts()[0], request.repeat(early));
        (talk.next[0], talk.passed) = (101, Default::default());
        talk.segment(1, SYN | ACK, b"");
        talk.segment(0, ACK, request.as_bytes());
        assert!(talk.texts()[0].contains("\r\nX-A: b\r\n"), "{early}: {:?}", talk.texts());
    }
}
