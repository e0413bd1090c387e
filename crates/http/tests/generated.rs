//! Messages that are made up are read as what they were made of, wherever they are cut.

use mmb_http::{Connection, Element, Event};
use proptest::prelude::*;

/// How a message ends.
#[derive(Clone, Debug)]
enum End {
    None,
    Length,
    Chunks(Vec<usize>),
}

#[derive(Clone, Debug)]
struct Message {
    method: String,
    target: String,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    end: End,
    status: u16,
    response: Vec<u8>,
}

fn message() -> impl Strategy<Value = Message> {
    let fields =
        prop::collection::vec(("X-[a-zA-Z0-9!#$&'*+.^_`|~-]{0,8}", "([!-~]([ \t!-~]{0,9}[!-~])?)?"), 0..5);
    let end = prop_oneof![
        Just(End::None),
        Just(End::Length),
        prop::collection::vec(1..9usize, 1..5).prop_map(End::Chunks),
    ];
    let status = prop::sample::select(vec![200u16, 204, 304, 404, 500, 999]);
    let method = prop::sample::select(vec!["GET", "HEAD", "POST", "X-YZ"]);
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    (method, "/[!\"$-~]{0,20}", fields, bytes(), end, status, bytes()).prop_map(
        |(method, target, fields, body, end, status, response)| Message {
            method: method.to_owned(),
            target,
            fields,
            body,
            end,
            status,
            response,
        },
    )
}

/// Appends the headers that say how a message ends, and its body.
fn append(text: &mut Vec<u8>, body: &[u8], end: &End) {
    match end {
        End::None => text.extend_from_slice(b"\r\n"),
        End::Length => {
            text.extend_from_slice(format!("content-length:{}\r\n\r\n", body.len()).as_bytes());
            text.extend_from_slice(body);
        }
        End::Chunks(sizes) => {
            text.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            let (mut rest, mut sizes) = (body, sizes.iter().cycle());
            while !rest.is_empty() {
                let (chunk, behind) = rest.split_at(rest.len().min(*sizes.next().unwrap_or(&1)));
                text.extend_from_slice(format!("{:x};e=1\r\n", chunk.len()).as_bytes());
                text.extend_from_slice(chunk);
                text.extend_from_slice(b"\r\n");
                rest = behind;
            }
            text.extend_from_slice(b"0\r\nX-Trailer: t\r\n\r\n");
        }
    }
}

impl Message {
    fn has_response_body(&self) -> bool {
        self.method != "HEAD" && ![204, 304].contains(&self.status)
    }

    fn request(&self) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\nHost: a\r\n", self.method, self.target).into_bytes();
        for (name, value) in &self.fields {
            text.extend_from_slice(format!("{name}: {value} \r\n").as_bytes());
        }
        append(&mut text, &self.body, &self.end);
        text
    }

    fn answer(&self) -> Vec<u8> {
        let mut text = format!("HTTP/1.1 {} Reason\r\n", self.status).into_bytes();
        match self.has_response_body() {
            true if matches!(self.end, End::Chunks(_)) => append(&mut text, &self.response, &self.end),
            true => append(&mut text, &self.response, &End::Length),
            // These have no body, whatever they say.
            false => text.extend_from_slice(b"Content-Length: 7\r\n\r\n"),
        }
        text
    }
}

/// A message as it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Read {
    method: Vec<u8>,
    target: Vec<u8>,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
    status: u16,
    is_in_name: bool,
}

fn read(connection: &mut Connection, direction: usize, text: &[u8], cuts: &[usize]) -> Vec<Read> {
    let (mut found, mut now, mut at, mut cuts) = (Vec::new(), Read::default(), 0, cuts.iter().cycle());
    while at < text.len() {
        let piece = &text[at..text.len().min(at + cuts.next().unwrap_or(&1))];
        let mut used = 0;
        loop {
            let (len, event) = connection.next(direction, &piece[used..]);
            used += len;
            match event {
                Event::More => break,
                Event::Bytes(Element::Method, part) => now.method.extend_from_slice(part),
                Event::Bytes(Element::Target, part) => now.target.extend_from_slice(part),
                Event::Bytes(Element::Name, part) => {
                    if !std::mem::replace(&mut now.is_in_name, true) {
                        now.fields.push(Default::default());
                    }
                    now.fields.last_mut().expect("a name").0.extend_from_slice(part);
                }
                Event::End(Element::Name) => now.is_in_name = false,
                Event::Bytes(Element::Value, part) => {
                    now.fields.last_mut().expect("a name").1.extend_from_slice(part)
                }
                Event::Bytes(Element::Body, part) => now.body.extend_from_slice(part),
                Event::Head(head) => now.status = head.status,
                Event::Done => found.push(std::mem::take(&mut now)),
                Event::Invalid(cause) => panic!("{cause:?} in {}", text.escape_ascii()),
                _ => {}
            }
        }
        assert_eq!(used, piece.len());
        at += used;
    }
    found
}

proptest! {
    #[test]
    fn messages_are_read(
        messages in prop::collection::vec(message(), 1..6),
        cuts in prop::collection::vec(1..30usize, 1..6),
    ) {
        let (requests, answers): (Vec<_>, Vec<_>) =
            messages.iter().map(|message| (message.request(), message.answer())).unzip();
        let mut connection = Connection::default();
        let read_requests = read(&mut connection, 0, &requests.concat(), &cuts);
        prop_assert_eq!(connection.unanswered(), messages.len());
        let read_answers = read(&mut connection, 1, &answers.concat(), &cuts);
        prop_assert_eq!(connection.unanswered(), 0);
        prop_assert_eq!([read_requests.len(), read_answers.len()], [messages.len(); 2]);
        for (message, (request, answer)) in messages.iter().zip(read_requests.iter().zip(&read_answers)) {
            prop_assert_eq!(&request.method, message.method.as_bytes());
            prop_assert_eq!(&request.target, message.target.as_bytes());
            let fields = request.fields.iter().filter(|(name, _)| name.starts_with(b"X-"));
            let fields: Vec<_> = fields.map(|(name, value)| (&name[..], value.trim_ascii_end())).collect();
            let expected: Vec<_> =
                message.fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
            prop_assert_eq!(fields, expected);
            let body: &[u8] = if matches!(message.end, End::None) { b"" } else { &message.body };
            prop_assert_eq!(&request.body[..], body);
            prop_assert_eq!(answer.status, message.status);
            let response: &[u8] = if message.has_response_body() { &message.response } else { b"" };
            prop_assert_eq!(&answer.body[..], response);
        }
    }
}
