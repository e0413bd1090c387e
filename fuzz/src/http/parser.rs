//! Properties of the parser of HTTP/1.x for any bytes. The fuzz target `http` runs them on the fuzzer's
//! bytes. A test of the crate runs them on the corpus and on random bytes.
//!
//! * The events are the same wherever the bytes are cut, and all bytes are used.
//! * A head that is accepted is one for httparse, with the same method, target, status, version and headers.
//!   The reverse is not true: this parser refuses more.
//! * A path has a normal form, and the form of it is the same.

use mmb_http::{Cause, Connection, Element, Event, HeadBuffer, Target, normalize_path};

/// A byte that stands for the end of a piece for the other direction.
const TURN: u8 = 0xff;
/// Most headers that httparse is given room for.
const FIELDS: usize = 200;

/// Runs the input `bytes`. Panics if a property does not hold.
pub fn check(bytes: &[u8]) {
    let Some((&cut, bytes)) = bytes.split_first() else { return };
    let whole = events(bytes, usize::MAX);
    for piece in [1, usize::from(cut) + 2] {
        assert_eq!(events(bytes, piece), whole, "pieces of {piece}");
    }
    compare(bytes);
    let mut out = vec![0; bytes.len() + 1];
    if let Some(path) = normalize_path(bytes, &mut out) {
        assert!(path.len() <= bytes.len());
    }
}

/// Returns the events of both directions, with the bytes of each element in one.
fn events(bytes: &[u8], piece: usize) -> Vec<(usize, String, Vec<u8>)> {
    let (mut connection, mut found) = (Connection::default(), Vec::<(usize, String, Vec<u8>)>::new());
    let mut head = HeadBuffer::<300>::default();
    for (turn, part) in bytes.split(|&byte| byte == TURN).enumerate() {
        let direction = turn & 1;
        for mut bytes in part.chunks(piece) {
            loop {
                let (len, event) = connection.next(direction, bytes);
                bytes = &bytes[len..];
                if direction == 0 {
                    head.push(&[b"host", b"x"], &event);
                }
                let (name, content) = match event {
                    Event::More => break assert!(bytes.is_empty()),
                    Event::Invalid(cause) if cause != Cause::Http2 => {
                        found.push((direction, format!("{cause:?}"), Vec::new()));
                        return found;
                    }
                    Event::Bytes(element, content) => (format!("{element:?}"), content),
                    Event::Opaque(content) => ("Opaque".to_owned(), content),
                    other => (format!("{other:?}"), &b""[..]),
                };
                match found.last_mut() {
                    Some(last) if !content.is_empty() && (last.0, &last.1) == (direction, &name) => {
                        last.2.extend_from_slice(content);
                    }
                    _ => found.push((direction, name, content.to_vec())),
                }
                if let Event::Head(_) = event
                    && direction == 0
                {
                    let (host, mut form) = (head.values(0).next(), [0; 301]);
                    if let Ok(target) = Target::read(head.method(), head.target(), host) {
                        normalize_path(target.path, &mut form);
                    }
                    head.clear();
                }
            }
        }
    }
    found
}

/// A head as both parsers understand it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parsed {
    first: [Vec<u8>; 2],
    status: u16,
    minor: u8,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Compares the first head of requests, and of responses, with what httparse reads.
fn compare(bytes: &[u8]) {
    for direction in [0, 1] {
        let mut ours = Parsed::default();
        let (mut connection, mut rest, mut is_in_name) = (Connection::default(), bytes, false);
        let head = loop {
            let (len, event) = connection.next(direction, rest);
            rest = &rest[len..];
            match event {
                Event::Bytes(Element::Method, part) => ours.first[0].extend_from_slice(part),
                Event::Bytes(Element::Target | Element::Reason, part) => {
                    ours.first[1].extend_from_slice(part)
                }
                Event::Bytes(Element::Name, part) => {
                    if !std::mem::replace(&mut is_in_name, true) {
                        ours.fields.push((Vec::new(), Vec::new()));
                    }
                    ours.fields.last_mut().expect("a name").0.extend_from_slice(part);
                }
                Event::End(Element::Name) => is_in_name = false,
                Event::Bytes(Element::Value, part) => {
                    ours.fields.last_mut().expect("a name").1.extend_from_slice(part);
                }
                Event::Head(head) => break head,
                Event::More | Event::Invalid(_) | Event::Opaque(_) => return,
                _ => {}
            }
        };
        (ours.status, ours.minor) = (head.status, head.minor);
        ours.fields.iter_mut().for_each(|(_, value)| *value = value.trim_ascii_end().to_vec());
        let text = &bytes[..bytes.len() - rest.len()];
        assert_eq!(ours, theirs(direction, text), "{}", text.escape_ascii());
    }
}

fn theirs(direction: usize, text: &[u8]) -> Parsed {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let own = |text: Option<&str>| text.unwrap_or_default().as_bytes().to_vec();
    let (mut parsed, fields) = if direction == 0 {
        let mut request = httparse::Request::new(&mut fields);
        assert_eq!(
            request.parse(text),
            Ok(httparse::Status::Complete(text.len())),
            "{}",
            text.escape_ascii()
        );
        let first = [own(request.method), own(request.path)];
        (Parsed { first, minor: request.version.unwrap_or(9), ..Parsed::default() }, request.headers)
    } else {
        let mut response = httparse::Response::new(&mut fields);
        assert_eq!(
            response.parse(text),
            Ok(httparse::Status::Complete(text.len())),
            "{}",
            text.escape_ascii()
        );
        let first = [Vec::new(), own(response.reason)];
        let (status, minor) = (response.code.unwrap_or(0), response.version.unwrap_or(9));
        (Parsed { first, status, minor, ..Parsed::default() }, response.headers)
    };
    parsed.fields = fields.iter().map(|one| (one.name.as_bytes().to_vec(), one.value.to_vec())).collect();
    parsed
}
