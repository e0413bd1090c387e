//! The cases of the suites of llhttp (requests and responses) and of h1spec (by uNetworking, and the one by
//! dropseed), one by one, in our own words and bytes. The suites were the source of the list. What must
//! come of a case follows RFC 9110 and RFC 9112; a comment names the section where that is not what the
//! suite expects. The suites have many cases twice, with and without leniency, or with a pause at each
//! element: here they are one, since the parser has no leniency and each case is cut at every byte. Cases
//! of limits are in the tests of the parser.
//!
//! What comes of bytes is written as text. Each message has its first line without version, its end if it
//! has a body (a length, `chunked`, `until close`, `switched`), headers other than those of routing and
//! framing as `{name: value}`, the body as `[bytes]`, trailers as `name=value;`, and a period when it is
//! complete. `~` stands in front of bytes that are not read, `!` in front of a cause. Behind the last byte
//! the connection ends: a message that waits for more is `!Truncated`.

#[path = "known_cases/bodies.rs"]
mod bodies;
#[path = "known_cases/connections.rs"]
mod connections;
#[path = "known_cases/heads.rs"]
mod heads;
#[path = "known_cases/responses.rs"]
mod responses;

use mmb_http::{Body, Connection, Element, Event, Head, MessageHead, Target};

/// Name, bytes, and what must come of them. Characters stand for bytes: U+00FF for 255.
type Case = (&'static str, &'static str, &'static str);

/// Headers whose effect is in the end of a message.
const ROUTING_AND_FRAMING: [&str; 3] = ["host", "content-length", "transfer-encoding"];

/// The text of what comes of bytes.
#[derive(Default)]
struct Transcript {
    text: String,
    head: MessageHead,
    body: Vec<u8>,
    opaque: Vec<u8>,
}

impl Transcript {
    /// Takes an event. Returns false when nothing may follow it.
    fn push(&mut self, event: Event<'_>) -> bool {
        self.head.push(&event);
        match event {
            Event::Bytes(Element::Body, bytes) => self.body.extend_from_slice(bytes),
            Event::Opaque(bytes) => self.opaque.extend_from_slice(bytes),
            _ => self.flush(),
        }
        match event {
            Event::Bytes(Element::TrailerName | Element::TrailerValue, bytes) => {
                self.text += &bytes.escape_ascii().to_string();
            }
            Event::End(Element::TrailerName) => self.text.push('='),
            Event::End(Element::TrailerValue) => self.text.push(';'),
            Event::Head(head) => return self.push_head(head),
            Event::Done => self.text.push('.'),
            Event::Invalid(cause) => {
                self.text += &format!("!{cause:?}");
                return cause.is_opaque();
            }
            _ => {}
        }
        true
    }

    /// Bytes of a body are shown together, however they came.
    fn flush(&mut self) {
        if !self.body.is_empty() {
            self.text += &format!(" [{}]", std::mem::take(&mut self.body).escape_ascii());
        }
        if !self.opaque.is_empty() {
            self.text += &format!(" ~{}", std::mem::take(&mut self.opaque).escape_ascii());
        }
    }

    fn push_head(&mut self, head: Head) -> bool {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        if head.status == 0 {
            let (method, target) = (self.head.method(), self.head.target());
            let host = self.head.values(b"host").next();
            if let Err(cause) = Target::read(method, target, host) {
                self.text += &format!("!{cause:?}");
                return false;
            }
            self.text += &format!("{} {}", text(method), text(target));
        } else {
            self.text += &format!("{} {}", head.status, text(self.head.reason()));
        }
        self.text += &match head.body {
            Body::None => String::new(),
            Body::Length(len) => format!(" {len}"),
            Body::Chunked => " chunked".to_owned(),
            Body::UntilClose => " until close".to_owned(),
            Body::Switched => " switched".to_owned(),
        };
        for (name, value) in self.head.fields() {
            if !ROUTING_AND_FRAMING.iter().any(|one| name.eq_ignore_ascii_case(one.as_bytes())) {
                self.text += &format!(" {{{}: {}}}", text(name), text(value));
            }
        }
        self.head.clear(0);
        true
    }
}

/// Sends the bytes of a direction in pieces, then ends it if `is_last`. Returns what comes of them.
fn send(connection: &mut Connection, direction: usize, pieces: &[&[u8]], is_last: bool) -> String {
    let mut transcript = Transcript::default();
    for &piece in pieces {
        let mut rest = piece;
        loop {
            let (len, event) = connection.next(direction, rest);
            rest = &rest[len..];
            if event == Event::More {
                assert!(rest.is_empty());
                break;
            }
            if !transcript.push(event) {
                return transcript.text;
            }
        }
    }
    if is_last && let Some(event) = connection.end(direction) {
        transcript.push(event);
    }
    transcript.flush();
    transcript.text
}

fn bytes(text: &str) -> Vec<u8> {
    text.chars().map(|one| u8::try_from(u32::from(one)).expect("a byte")).collect()
}

/// Checks what comes of the bytes of the last of some steps: whole, cut in two at each place, byte by byte.
fn check(name: &str, steps: &[(usize, &str)], expected: &str) {
    let (last, earlier) = steps.split_last().expect("a step");
    let (direction, last) = (last.0, bytes(last.1));
    let run = |pieces: &[&[u8]]| {
        let mut connection = Connection::default();
        for &(direction, text) in earlier {
            let text = send(&mut connection, direction, &[&bytes(text)], false);
            assert!(!text.contains('!'), "{name}: {text}");
        }
        send(&mut connection, direction, pieces, true)
    };
    assert_eq!(run(&[&last]), expected, "{name}");
    for at in 1..last.len() {
        let (left, right) = last.split_at(at);
        assert_eq!(run(&[left, right]), expected, "{name}, cut at {at}");
    }
    assert_eq!(run(&last.chunks(1).collect::<Vec<_>>()), expected, "{name}, byte by byte");
}

fn check_requests(cases: &[Case]) {
    cases.iter().for_each(|&(name, text, expected)| check(name, &[(0, text)], expected));
}

/// Checks responses to a request, which the client has sent some times.
fn check_responses(request: &str, times: usize, cases: &[Case]) {
    let requests = request.repeat(times);
    cases.iter().for_each(|&(name, text, expected)| check(name, &[(0, &requests), (1, text)], expected));
}
