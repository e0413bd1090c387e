//! The head of a message as a whole, for programs that end connections themselves.

use std::ops::Range;

use crate::{Element, Event};

/// A header: where its name and its value are.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: Range<usize>,
    value: Range<usize>,
}

/// First line and headers of a message. The parser bounds their bytes and their number.
///
/// Changes append the new bytes; those that were there before stay in memory until [`MessageHead::clear`].
#[derive(Clone, Debug, Default)]
pub struct MessageHead {
    bytes: Vec<u8>,
    method: Range<usize>,
    target: Range<usize>,
    reason: Range<usize>,
    /// The name whose value comes.
    name: Range<usize>,
    /// Where the element begins that is being read.
    start: usize,
    fields: Vec<Field>,
}

impl MessageHead {
    /// Forgets the message. Memory beyond `most` bytes is given back.
    pub fn clear(&mut self, most: usize) {
        let MessageHead { mut bytes, mut fields, .. } = std::mem::take(self);
        bytes.clear();
        fields.clear();
        bytes.shrink_to(most);
        fields.shrink_to(most / size_of::<Field>());
        (self.bytes, self.fields) = (bytes, fields);
    }

    /// Takes an event of the head of a message.
    pub fn push(&mut self, event: &Event<'_>) {
        match *event {
            Event::Bytes(
                Element::Method | Element::Target | Element::Reason | Element::Name | Element::Value,
                bytes,
            ) => self.bytes.extend_from_slice(bytes),
            Event::End(element) => {
                let range = self.start..self.bytes.len();
                match element {
                    Element::Method => self.method = range,
                    Element::Target => self.target = range,
                    Element::Reason => self.reason = range,
                    Element::Name => self.name = range,
                    Element::Value => {
                        let len = self.get(range.clone()).trim_ascii_end().len();
                        let value = range.start..range.start + len;
                        self.fields.push(Field { name: self.name.clone(), value });
                    }
                    Element::Body | Element::TrailerName | Element::TrailerValue => {}
                }
                self.start = self.bytes.len();
            }
            _ => {}
        }
    }

    fn get(&self, range: Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or_default()
    }

    fn append(&mut self, bytes: &[u8]) -> Range<usize> {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.start = self.bytes.len();
        from..self.bytes.len()
    }

    /// Returns the method. Empty: the message is a response.
    pub fn method(&self) -> &[u8] {
        self.get(self.method.clone())
    }

    /// Returns the target of a request.
    pub fn target(&self) -> &[u8] {
        self.get(self.target.clone())
    }

    /// Returns the reason phrase of a response.
    pub fn reason(&self) -> &[u8] {
        self.get(self.reason.clone())
    }

    /// Iterates over names and values, in their order. Values have no white space around them.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|field| (self.get(field.name.clone()), self.get(field.value.clone())))
    }

    /// Iterates over the values of a header.
    pub fn values<'h>(&'h self, name: &'h [u8]) -> impl Iterator<Item = &'h [u8]> {
        self.fields().filter(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Whether a comma-separated list of a header has a word, in any case (RFC 9110, 5.6.1).
    pub fn lists(&self, name: &[u8], word: &[u8]) -> bool {
        self.values(name).any(|value| {
            value.split(|&byte| byte == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(word))
        })
    }

    /// Replaces the target.
    pub fn set_target(&mut self, target: &[u8]) {
        self.target = self.append(target);
    }

    /// Adds a header behind all others.
    pub fn add(&mut self, name: &[u8], value: &[u8]) {
        let (name, value) = (self.append(name), self.append(value));
        self.fields.push(Field { name, value });
    }

    /// Removes all headers with a name, in any case. Returns how many there were.
    pub fn remove(&mut self, name: &[u8]) -> usize {
        let (before, bytes) = (self.fields.len(), &self.bytes);
        self.fields
            .retain(|field| !bytes.get(field.name.clone()).unwrap_or_default().eq_ignore_ascii_case(name));
        before - self.fields.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RequestReader;

    fn read(text: &[u8], piece: usize) -> MessageHead {
        let (mut reader, mut head) = (RequestReader::default(), MessageHead::default());
        for mut bytes in text.chunks(piece) {
            loop {
                let (len, event) = reader.next(bytes);
                head.push(&event);
                bytes = &bytes[len..];
                if event == Event::More {
                    break;
                }
            }
        }
        head
    }

    #[test]
    fn pieces_are_put_together() {
        let text = b"POST /a?b HTTP/1.1\r\nHost: \ta \t\r\nX:\r\nx: 2, Close \r\nContent-Length: 1\r\n\r\nz";
        for piece in 1..=text.len() {
            let head = read(text, piece);
            assert_eq!((head.method(), head.target()), (&b"POST"[..], &b"/a?b"[..]));
            let fields: Vec<_> = head.fields().collect();
            assert_eq!(fields[..2], [(&b"Host"[..], &b"a"[..]), (b"X", b"")]);
            assert_eq!(head.values(b"X").collect::<Vec<_>>(), [&b""[..], b"2, Close"]);
            assert!(head.lists(b"x", b"close") && !head.lists(b"x", b"clos"));
        }
    }

    #[test]
    fn changes_keep_what_is_not_changed() {
        let mut head = read(b"GET /a HTTP/1.1\r\nHost: a\r\nX: 1\r\nx: 2\r\n\r\n", 7);
        head.set_target(b"/longer");
        head.add(b"Y", b"3");
        assert_eq!((head.remove(b"X"), head.remove(b"none")), (2, 0));
        assert_eq!((head.method(), head.target()), (&b"GET"[..], &b"/longer"[..]));
        let fields: Vec<_> = head.fields().collect();
        assert_eq!(fields, [(&b"Host"[..], &b"a"[..]), (b"Y", b"3")]);
        head.clear(16);
        assert_eq!((head.target(), head.fields().count()), (&b""[..], 0));
    }
}
