//! What functions have made of the bytes of a packet, and which bytes of the sender they stand for.
//!
//! Theory of operation. The bytes that a packet brings are the *body* of its rope. Those that no function has
//! changed are not copied: the rope notes that they are in the body, and readers of the rope bring the body
//! along. The rope has the bytes that are not in the body: new ones, and those of earlier packets that
//! functions have held back. It also has copies of short pieces of the body, so that readers do not get many
//! small slices.

mod read;
mod write;

pub use self::read::RopeReader;
use self::write::Writer;

/// Pieces of the body with fewer bytes are copied.
const LEAST_SHARED: usize = 128;

/// A change of bytes that a function has asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Position of the first byte that is replaced.
    pub start: usize,
    /// Position behind the last byte that is replaced.
    pub end: usize,
    /// The new bytes, as a range of a buffer.
    pub new: (usize, usize),
}

/// Where bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// They are those of the sender, in the body.
    Body,
    /// They are those of the sender, in the rope.
    Sender,
    /// They were edited, and are in the rope.
    Edit,
}

/// Some bytes of a rope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Bytes of the sender, at least one.
    pub input: u32,
    /// Bytes in their place.
    pub len: u32,
    source: Source,
}

impl Part {
    /// Whether the bytes are those of the sender.
    pub fn is_plain(self) -> bool {
        self.source != Source::Edit
    }

    /// Returns how many of the bytes are in the rope.
    fn copied(self) -> usize {
        if self.source == Source::Body { 0 } else { self.len as usize }
    }
}

/// A sequence of bytes, some of which were changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rope {
    /// The sender's number of the first byte.
    pub from: u32,
    /// The sender's number of the first byte of the body.
    body: u32,
    /// The bytes that are not in the body.
    bytes: Vec<u8>,
    parts: Vec<Part>,
    /// All bytes.
    len: usize,
    /// Bytes at the beginning that the function has done with. They wait with the others of their part.
    done: usize,
}

/// Bytes in front of a part in a buffer.
const RECORD: usize = 9;

impl Rope {
    /// Removes all bytes. The next one has this number of the sender.
    pub fn clear(&mut self, from: u32) {
        (self.from, self.body) = (from, from);
        self.bytes.clear();
        self.parts.clear();
        (self.len, self.done) = (0, 0);
    }

    /// Makes the rope that of a packet with `len` bytes which no function has changed.
    pub fn set_body(&mut self, from: u32, len: u32) {
        self.clear(from);
        if len != 0 {
            self.push(Part { input: len, len, source: Source::Body });
        }
    }

    /// Whether there are neither bytes nor removed ones.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of bytes that the function has done with.
    pub fn done(&self) -> usize {
        self.done
    }

    /// Returns the sender's number behind the last byte.
    pub fn end(&self) -> u32 {
        self.parts.iter().fold(self.from, |end, part| end.wrapping_add(part.input))
    }

    /// Whether the rope is `len` bytes of the sender from a number on.
    pub fn is_plain(&self, from: u32, len: u32) -> bool {
        self.from == from && self.len == len as usize && self.parts.iter().all(|part| part.is_plain())
    }

    /// Returns the bytes that the function has not done with. The rope has no body.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(self.done..).unwrap_or(&[])
    }

    /// Returns a reader of all bytes.
    pub fn reader(&self) -> RopeReader<'_> {
        RopeReader::at(self, (0, 0), self.from)
    }

    /// Iterates over the parts with their bytes. One in the body may come in several slices.
    pub(super) fn iter<'a>(
        &'a self,
        mut body: impl Iterator<Item = &'a [u8]>,
    ) -> impl Iterator<Item = (Part, &'a [u8])> {
        let mut reader = self.reader();
        std::iter::from_fn(move || reader.next_part(&mut body))
    }

    /// Appends a part, whose bytes are in their place.
    fn push(&mut self, part: Part) {
        self.len += part.len as usize;
        match self.parts.last_mut() {
            Some(last) if last.source == part.source && part.is_plain() => {
                (last.len, last.input) = (last.len + part.len, last.input + part.input);
            }
            _ => self.parts.push(part),
        }
    }

    /// Appends bytes of the sender.
    pub fn push_plain(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.bytes.extend_from_slice(bytes);
            let len = bytes.len() as u32;
            self.push(Part { input: len, len, source: Source::Sender });
        }
    }

    /// Appends bytes that stand for so many bytes of the sender.
    pub fn push_edit(&mut self, input: u32, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.push(Part { input, len: bytes.len() as u32, source: Source::Edit });
    }

    fn push_copy(&mut self, part: Part, bytes: &[u8]) {
        match part.is_plain() {
            true => self.push_plain(bytes),
            false => self.push_edit(part.input, bytes),
        }
    }

    /// Appends another rope, which has no body.
    pub fn append(&mut self, other: &Rope) {
        other.iter(std::iter::empty()).for_each(|(part, bytes)| self.push_copy(part, bytes));
    }

    /// Makes the rope what changes make of a tail, and of the rope of a packet behind it. `body`: the bytes
    /// of the packet. Positions of changes count from the first byte that the function has not done with.
    /// Changes are in order and do not overlap; their bytes are in `buffer`.
    pub fn apply<'a>(
        &mut self,
        (tail, rope): (&'a Rope, &'a Rope),
        body: impl Iterator<Item = &'a [u8]>,
        changes: &[Change],
        buffer: &[u8],
    ) {
        self.clear(if tail.is_empty() { rope.from } else { tail.from });
        self.body = rope.body;
        let mut writer = Writer::new(self, changes, buffer, tail.done);
        for (part, bytes) in tail.iter(std::iter::empty()).chain(rope.iter(body)) {
            match part.source {
                Source::Edit => writer.edited(part.input, bytes),
                source => writer.plain(bytes, source == Source::Body),
            }
        }
        writer.finish();
    }

    /// Moves what follows the first `at` bytes to `tail`, which has no body. Bytes of an edited part stay
    /// together.
    pub fn split_off<'a>(&mut self, at: usize, mut body: impl Iterator<Item = &'a [u8]>, tail: &mut Rope) {
        let (mut len, mut copied, mut from, mut n) = (0, 0, self.from, 0);
        for part in &self.parts {
            let is_in_front = len + part.len as usize <= at;
            if !is_in_front {
                break;
            }
            (len, copied) = (len + part.len as usize, copied + part.copied());
            (from, n) = (from.wrapping_add(part.input), n + 1);
        }
        let Some(&cut) = self.parts.get(n) else { return tail.clear(from) };
        let within = at.saturating_sub(len);
        let stays = if cut.is_plain() { within } else { 0 };
        tail.clear(from.wrapping_add(stays as u32));
        tail.done = within - stays;
        let mut reader = RopeReader::at(self, (n, copied), from);
        let mut skip = stays;
        while let Some((part, bytes)) = reader.next_part(&mut body) {
            let skipped = skip.min(bytes.len());
            skip -= skipped;
            tail.push_copy(part, &bytes[skipped..]);
        }
        self.parts.truncate(n);
        self.bytes.truncate(copied + if cut.source == Source::Body { 0 } else { stays });
        self.len = len;
        if stays != 0 {
            self.push(Part { input: stays as u32, len: stays as u32, ..cut });
        }
    }

    /// Appends the rope to a buffer, with the bytes of its body.
    pub fn write<'a>(&'a self, body: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.from.to_ne_bytes());
        out.extend_from_slice(&(self.done as u32).to_ne_bytes());
        for (part, bytes) in self.iter(body) {
            out.extend_from_slice(&part.input.to_ne_bytes());
            out.extend_from_slice(&part.len.to_ne_bytes());
            out.push(part.is_plain().into());
            out.extend_from_slice(bytes);
        }
    }

    /// Reads a rope that [`Rope::write`] has written. It has no body.
    pub fn read(&mut self, bytes: &[u8]) {
        let number = |bytes: &[u8], at: usize| {
            bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |&number| u32::from_ne_bytes(number))
        };
        self.clear(number(bytes, 0));
        let done = number(bytes, 4) as usize;
        let mut rest = bytes.get(8..).unwrap_or(&[]);
        while rest.len() >= RECORD {
            let (input, len, is_plain) = (number(rest, 0), number(rest, 4), rest[8] != 0);
            let Some((bytes, behind)) = rest[RECORD..].split_at_checked(len as usize) else { break };
            match is_plain {
                true => self.push_plain(bytes),
                false => self.push_edit(input, bytes),
            }
            rest = behind;
        }
        self.done = done;
    }
}
