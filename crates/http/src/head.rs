//! Parts of a head in one piece.

use crate::word::Word;
use crate::{Element, Event};

/// Most values that are kept.
const MOST_SPANS: usize = 32;

/// What a kept piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Method,
    Target,
    /// The value of the header at this position of the caller's names.
    Field(u8),
}

#[derive(Clone, Copy, Debug)]
struct Span {
    part: Part,
    from: u16,
    to: u16,
}

/// Method, target, and the values of some headers of a message, wherever its bytes are cut. `N` bytes, at
/// most 65,535, are reserved for them.
#[derive(Clone, Debug)]
pub struct HeadBuffer<const N: usize> {
    bytes: [u8; N],
    spans: [Span; MOST_SPANS],
    len: u16,
    count: u8,
    word: Word,
    /// The name whose value comes.
    field: Option<u8>,
    is_truncated: bool,
}

impl<const N: usize> Default for HeadBuffer<N> {
    fn default() -> Self {
        HeadBuffer {
            bytes: [0; N],
            spans: [Span { part: Part::Method, from: 0, to: 0 }; MOST_SPANS],
            len: 0,
            count: 0,
            word: Word::default(),
            field: None,
            is_truncated: false,
        }
    }
}

impl<const N: usize> HeadBuffer<N> {
    /// Forgets everything. The memory is not written.
    pub fn clear(&mut self) {
        (self.len, self.count, self.field, self.is_truncated) = (0, 0, None, false);
        self.word = Word::default();
    }

    /// Takes an event of a message. `names` are the headers to keep: lower case, at most 16, the same in each
    /// call.
    pub fn push(&mut self, names: &[&[u8]], event: &Event<'_>) {
        match *event {
            Event::Bytes(Element::Method, bytes) => self.add(Part::Method, bytes),
            Event::Bytes(Element::Target, bytes) => self.add(Part::Target, bytes),
            Event::Bytes(Element::Name, bytes) => {
                if self.word == Word::default() {
                    self.word = Word::begin(names);
                }
                self.word.push(names, bytes, |byte| byte.to_ascii_lowercase());
            }
            Event::End(Element::Name) => {
                self.field = self.word.end(names).map(|at| at as u8);
                self.word = Word::default();
                if let Some(field) = self.field {
                    self.begin(Part::Field(field));
                }
            }
            Event::Bytes(Element::Value, bytes) => {
                if let Some(field) = self.field {
                    self.add(Part::Field(field), bytes);
                }
            }
            Event::End(Element::Value) => self.field = None,
            _ => {}
        }
    }

    fn begin(&mut self, part: Part) {
        match self.spans.get_mut(usize::from(self.count)) {
            Some(span) => {
                *span = Span { part, from: self.len, to: self.len };
                self.count += 1;
            }
            None => self.is_truncated = true,
        }
    }

    /// Adds bytes to the last piece. Method and target begin with their first bytes.
    fn add(&mut self, part: Part, bytes: &[u8]) {
        if !self.last().is_some_and(|last| last.part == part) {
            self.begin(part);
        }
        let from = usize::from(self.len);
        let len = bytes.len().min(N.min(usize::from(u16::MAX)).saturating_sub(from));
        let is_last = self.last().is_some_and(|last| last.part == part);
        self.is_truncated |= len < bytes.len() || !is_last;
        if let (true, Some(place), Some(bytes)) =
            (is_last, self.bytes.get_mut(from..from + len), bytes.get(..len))
        {
            place.copy_from_slice(bytes);
            self.len += len as u16;
            let (count, end) = (usize::from(self.count), self.len);
            if let Some(span) = self.spans.get_mut(count.wrapping_sub(1)) {
                span.to = end;
            }
        }
    }

    fn last(&self) -> Option<&Span> {
        self.spans.get(usize::from(self.count).checked_sub(1)?)
    }

    fn of(&self, part: Part) -> impl Iterator<Item = &[u8]> {
        let spans = self.spans.iter().take(self.count.into()).filter(move |span| span.part == part);
        spans.filter_map(|span| self.bytes.get(usize::from(span.from)..usize::from(span.to)))
    }

    /// Returns the method. Empty: there is none.
    pub fn method(&self) -> &[u8] {
        self.of(Part::Method).next().unwrap_or_default()
    }

    /// Returns the target. Empty: there is none.
    pub fn target(&self) -> &[u8] {
        self.of(Part::Target).next().unwrap_or_default()
    }

    /// Iterates over the values of a header by its position among the names, without white space around them.
    pub fn values(&self, field: usize) -> impl Iterator<Item = &[u8]> {
        self.of(Part::Field(field as u8)).map(<[u8]>::trim_ascii)
    }

    /// Whether some of what was to be kept did not fit.
    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&[u8]; 2] = [b"host", b"x-a"];

    fn read<const N: usize>(text: &[u8], piece: usize) -> HeadBuffer<N> {
        let (mut connection, mut head) = (crate::Connection::default(), HeadBuffer::default());
        for mut bytes in text.chunks(piece) {
            loop {
                let (len, event) = connection.next(0, bytes);
                head.push(&NAMES, &event);
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
        let text = b"GET /a?b HTTP/1.1\r\nHOST:\t a.b \t\r\nY: n\r\nX-A: 1\r\nx-a:\r\nX-a: 3\r\n\r\n";
        for piece in 1..=text.len() {
            let head = read::<100>(text, piece);
            assert_eq!((head.method(), head.target()), (&b"GET"[..], &b"/a?b"[..]));
            assert_eq!(head.values(0).collect::<Vec<_>>(), [b"a.b"]);
            assert_eq!(head.values(1).collect::<Vec<_>>(), [&b"1"[..], b"", b"3"]);
            assert!(!head.is_truncated() && read::<12>(text, piece).is_truncated());
            assert_eq!(read::<12>(text, piece).values(0).collect::<Vec<_>>(), [b"a.b"]);
        }
    }

    #[test]
    fn too_many_values_are_noticed() {
        let text = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x-a: 1\r\n".repeat(70));
        let head = read::<1000>(text.as_bytes(), 7);
        assert!(head.is_truncated() && head.values(1).count() == MOST_SPANS - 3);
        let mut head = head;
        head.clear();
        assert!(head.method().is_empty() && head.target().is_empty() && !head.is_truncated());
    }
}
