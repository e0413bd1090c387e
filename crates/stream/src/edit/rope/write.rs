//! Writing a rope with changes.

use std::slice::Iter;

use super::{Change, LEAST_SHARED, Part, Rope, Source};

/// Writes a rope, byte by byte of what a function got.
pub(super) struct Writer<'a> {
    out: &'a mut Rope,
    /// The changes that are not complete, and how much greater their positions are here.
    changes: Iter<'a, Change>,
    shift: usize,
    buffer: &'a [u8],
    /// Position in what the function got.
    at: usize,
    /// Bytes of the sender of the edited part that is being written, and where its bytes begin.
    open: Option<(u32, usize)>,
    /// The first byte of the next change was read.
    is_inside: bool,
    /// The last byte in the body that was written.
    last: u8,
}

impl<'a> Writer<'a> {
    /// `done`: bytes in front of the positions of changes.
    pub fn new(out: &'a mut Rope, changes: &'a [Change], buffer: &'a [u8], done: usize) -> Writer<'a> {
        let changes = changes.iter();
        Writer { out, changes, shift: done, buffer, at: 0, open: None, is_inside: false, last: 0 }
    }

    /// Returns where the next change begins.
    fn next_start(&self) -> Option<usize> {
        self.changes.as_slice().first().map(|change| change.start + self.shift)
    }

    fn close(&mut self) {
        if let Some((input, start)) = self.open.take() {
            let len = (self.out.bytes.len() - start) as u32;
            self.out.push(Part { input, len, source: Source::Edit });
        }
    }

    /// Begins an edited part, or goes on with one.
    fn open(&mut self, input: u32) {
        let start = self.out.bytes.len();
        let (before, start) = self.open.unwrap_or((0, start));
        self.open = Some((before + input, start));
    }

    /// Writes the new bytes of the next change if it begins here. Returns the end of the change.
    fn begin(&mut self) -> Option<usize> {
        let change =
            *self.changes.as_slice().first().filter(|change| change.start + self.shift <= self.at)?;
        if !self.is_inside {
            self.out.bytes.extend_from_slice(new_bytes(self.buffer, &change));
            self.is_inside = true;
        }
        Some(change.end + self.shift)
    }

    fn end(&mut self, end: usize) {
        if self.at >= end {
            self.changes.next();
            self.is_inside = false;
        }
    }

    /// Writes bytes of the sender.
    pub fn plain(&mut self, mut bytes: &[u8], is_body: bool) {
        while !bytes.is_empty() {
            let mut is_attached = false;
            if self.next_start().is_some_and(|start| start <= self.at) {
                if !self.is_inside {
                    self.close();
                }
                self.open(0);
            }
            while let Some(end) = self.begin() {
                is_attached = true;
                let n = end.saturating_sub(self.at).min(bytes.len());
                self.open(n as u32);
                (bytes, self.at) = (&bytes[n..], self.at + n);
                let is_insertion = n == 0;
                self.end(end);
                if bytes.is_empty() && !is_insertion {
                    return;
                }
            }
            // An insertion belongs to the byte behind it.
            let has_no_input = matches!(self.open, Some((0, _)));
            let n = match self.next_start() {
                _ if is_attached && has_no_input => 1,
                Some(start) => (start - self.at).min(bytes.len()),
                None => bytes.len(),
            };
            let (now, rest) = bytes.split_at(n);
            if is_attached && has_no_input {
                self.open(1);
                self.out.bytes.extend_from_slice(now);
            } else {
                self.close();
                self.unchanged(now, is_body);
            }
            (bytes, self.at) = (rest, self.at + n);
        }
    }

    /// Writes bytes of the sender that do not change. Those in the body stay there.
    fn unchanged(&mut self, bytes: &[u8], is_body: bool) {
        if !is_body || bytes.len() < LEAST_SHARED {
            return self.out.push_plain(bytes);
        }
        let len = bytes.len() as u32;
        self.out.push(Part { input: len, len, source: Source::Body });
        self.last = bytes.last().copied().unwrap_or(0);
    }

    /// Writes bytes that were edited before, in the place of `input` bytes of the sender.
    pub fn edited(&mut self, input: u32, mut bytes: &[u8]) {
        if !self.is_inside {
            self.close();
        }
        self.open(input);
        loop {
            while let Some(end) = self.begin() {
                let n = end.saturating_sub(self.at).min(bytes.len());
                (bytes, self.at) = (&bytes[n..], self.at + n);
                self.end(end);
                if self.is_inside {
                    return;
                }
            }
            if bytes.is_empty() {
                return;
            }
            let n = self.next_start().map_or(bytes.len(), |start| (start - self.at).min(bytes.len()));
            let (now, rest) = bytes.split_at(n);
            self.out.bytes.extend_from_slice(now);
            (bytes, self.at) = (rest, self.at + n);
            if bytes.is_empty() {
                return;
            }
        }
    }

    /// Writes what is inserted behind the last byte: it belongs to that byte.
    pub fn finish(mut self) {
        self.close();
        if self.is_inside {
            self.changes.next();
        }
        for change in self.changes {
            self.out.extend_last(self.last, new_bytes(self.buffer, change));
        }
    }
}

fn new_bytes<'a>(buffer: &'a [u8], change: &Change) -> &'a [u8] {
    buffer.get(change.new.0..change.new.1).unwrap_or(&[])
}

impl Rope {
    /// Inserts bytes behind the last byte, which becomes an edited part unless it is in one. `last`: its
    /// value, if it is in the body.
    fn extend_last(&mut self, last: u8, new: &[u8]) {
        if let Some(part) = self.parts.last_mut().filter(|part| part.is_plain()) {
            if part.source == Source::Body {
                self.bytes.push(last);
            }
            (part.len, part.input) = (part.len - 1, part.input - 1);
            if part.len == 0 {
                self.parts.pop();
            }
            self.parts.push(Part { input: 1, len: 1, source: Source::Edit });
        }
        if let Some(part) = self.parts.last_mut() {
            part.len += new.len() as u32;
            self.len += new.len();
            self.bytes.extend_from_slice(new);
        }
    }
}
