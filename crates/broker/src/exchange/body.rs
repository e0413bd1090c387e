//! Bodies, framed anew.
//!
//! Theory of operation. The bytes of a body leave as they come. The trailer section waits until it is whole,
//! since one of its lines may be forbidden: the receiver gets either all of it or nothing. The parser limits
//! its length, as that of a head.

use std::io::Write;

use mmb_http::{Body, Element, Event};

/// How the receiver learns where a body ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is no body.
    #[default]
    None,
    /// By its length.
    Length,
    /// By chunks.
    Chunked,
    /// By the end of the connection.
    UntilClose,
}

impl Framing {
    /// Returns the framing for a receiver. `has_chunks`: it knows HTTP/1.1.
    pub fn of(body: Body, has_chunks: bool) -> Framing {
        match body {
            Body::None | Body::Switched => Framing::None,
            Body::Length(_) => Framing::Length,
            Body::Chunked | Body::UntilClose if has_chunks => Framing::Chunked,
            Body::Chunked | Body::UntilClose => Framing::UntilClose,
        }
    }
}

/// Writes a body for its receiver.
#[derive(Debug, Default)]
pub(crate) struct BodyWriter {
    pub framing: Framing,
    /// The lines of the trailer section so far.
    trailers: Vec<u8>,
}

impl BodyWriter {
    pub fn new(framing: Framing) -> BodyWriter {
        BodyWriter { framing, trailers: Vec::new() }
    }

    /// Writes what an event behind the head becomes. Returns the bytes of the body in it.
    pub fn write(&mut self, event: &Event<'_>, out: &mut Vec<u8>) -> u64 {
        let is_chunked = self.framing == Framing::Chunked;
        match *event {
            Event::Bytes(Element::Body, bytes) => {
                if is_chunked {
                    // Writing to memory does not fail.
                    let _ = write!(out, "{:x}\r\n", bytes.len());
                    out.extend_from_slice(bytes);
                    out.extend_from_slice(b"\r\n");
                } else {
                    out.extend_from_slice(bytes);
                }
                return bytes.len() as u64;
            }
            Event::Bytes(Element::TrailerName | Element::TrailerValue, bytes) if is_chunked => {
                self.trailers.extend_from_slice(bytes);
            }
            Event::End(Element::TrailerName) if is_chunked => self.trailers.extend_from_slice(b": "),
            Event::End(Element::TrailerValue) if is_chunked => self.trailers.extend_from_slice(b"\r\n"),
            _ => {}
        }
        0
    }

    /// Writes the end of a body, with its trailers.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        if self.framing == Framing::Chunked {
            out.extend_from_slice(b"0\r\n");
            out.append(&mut self.trailers);
            out.extend_from_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use mmb_http::{RequestClass, ResponseReader};

    use super::*;

    /// Writes the body of a response anew.
    fn framed(text: &str, has_chunks: bool, piece: usize) -> (Framing, String) {
        let (mut reader, mut writer) = (ResponseReader::default(), BodyWriter::default());
        let mut out = Vec::new();
        for mut bytes in text.as_bytes().chunks(piece) {
            loop {
                let (len, event) = reader.next(RequestClass::default(), bytes);
                bytes = &bytes[len..];
                match event {
                    Event::More => break,
                    Event::Head(head) => writer = BodyWriter::new(Framing::of(head.body, has_chunks)),
                    Event::Done => writer.end(&mut out),
                    Event::Invalid(_) => return (writer.framing, String::from_utf8(out).unwrap()),
                    event => {
                        writer.write(&event, &mut out);
                    }
                }
            }
        }
        if reader.end() == Some(Event::Done) {
            writer.end(&mut out);
        }
        (writer.framing, String::from_utf8(out).unwrap())
    }

    #[test]
    fn bodies_end_as_the_receiver_understands() {
        let chunked =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nX-T:  t \r\n\r\n";
        let until = "HTTP/1.1 200 OK\r\n\r\nabc";
        let length = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        for (text, has_chunks, framing, expected) in [
            (chunked, true, Framing::Chunked, "3\r\nabc\r\n0\r\nX-T: t \r\n\r\n"),
            (chunked, false, Framing::UntilClose, "abc"),
            (until, true, Framing::Chunked, "3\r\nabc\r\n0\r\n\r\n"),
            (until, false, Framing::UntilClose, "abc"),
            (length, true, Framing::Length, "abc"),
            (length, false, Framing::Length, "abc"),
        ] {
            assert_eq!(framed(text, has_chunks, text.len()), (framing, expected.to_owned()), "{text:?}");
        }
        let pieces = framed(chunked, true, 1).1;
        assert_eq!(pieces, "1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\nX-T: t \r\n\r\n");
    }

    /// A field that says where the message ends must not be among the trailers (RFC 9110, 6.5.1).
    #[test]
    fn nothing_of_a_trailer_section_with_a_forbidden_field_leaves() {
        let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n\
                    0\r\nX-T: t\r\nContent-Length: 3\r\n\r\n";
        for piece in 1..text.len() {
            let (_, written) = framed(text, true, piece);
            assert!(!written.contains("0\r\n") && !written.contains("X-T"), "{piece}: {written:?}");
        }
    }
}
