//! Bytes between two functions, and which bytes of the sender they stand for.

/// Some bytes of a rope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Bytes of the sender, at least one.
    pub input: u32,
    /// Bytes in their place.
    pub len: u32,
    /// The bytes are those of the sender.
    pub is_plain: bool,
}

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

/// A sequence of bytes, some of which were changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rope {
    /// The sender's number of the first byte.
    pub from: u32,
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
    /// Bytes at the beginning that the function has done with. They wait with the others of their piece.
    done: usize,
}

/// Bytes of a piece in a buffer.
const RECORD: usize = 9;

impl Rope {
    /// Removes all bytes. The next one has this number of the sender.
    pub fn clear(&mut self, from: u32) {
        self.from = from;
        self.bytes.clear();
        self.pieces.clear();
        self.done = 0;
    }

    /// Whether there are neither bytes nor removed ones.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns the number of bytes that the function has done with.
    pub fn done(&self) -> usize {
        self.done
    }

    /// Returns the sender's number behind the last byte.
    pub fn end(&self) -> u32 {
        self.pieces.iter().fold(self.from, |end, piece| end.wrapping_add(piece.input))
    }

    /// Whether the rope is `len` bytes of the sender from a number on.
    pub fn is_plain(&self, from: u32, len: u32) -> bool {
        let is_plain = |piece: &Piece| piece.is_plain && piece.len == len;
        self.from == from && self.pieces.len() == 1 && self.pieces.iter().all(is_plain)
    }

    /// Returns the bytes that the function has not done with.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(self.done..).unwrap_or(&[])
    }

    /// Iterates over the pieces with their bytes.
    pub fn pieces(&self) -> impl Iterator<Item = (Piece, &[u8])> {
        let mut at = 0;
        self.pieces.iter().map(move |&piece| {
            let bytes = self.bytes.get(at..at + piece.len as usize).unwrap_or(&[]);
            at += piece.len as usize;
            (piece, bytes)
        })
    }

    /// Appends bytes of the sender.
    pub fn push_plain(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.bytes.extend_from_slice(bytes);
        let len = bytes.len() as u32;
        match self.pieces.last_mut() {
            Some(last) if last.is_plain => (last.len, last.input) = (last.len + len, last.input + len),
            _ => self.pieces.push(Piece { input: len, len, is_plain: true }),
        }
    }

    fn push_edit(&mut self, input: u32, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.pieces.push(Piece { input, len: bytes.len() as u32, is_plain: false });
    }

    /// Appends another rope.
    pub fn append(&mut self, other: &Rope) {
        for (piece, bytes) in other.pieces() {
            match piece.is_plain {
                true => self.push_plain(bytes),
                false => self.push_edit(piece.input, bytes),
            }
        }
    }

    /// Writes the rope with changes to `out`. Positions of changes count from the first byte that the
    /// function has not done with. Changes are in order and do not overlap; their bytes are in `buffer`.
    pub fn apply(&self, changes: &[Change], buffer: &[u8], out: &mut Rope) {
        out.clear(self.from);
        let done = self.done;
        let changes = changes.iter().map(|change| Change {
            start: change.start + done,
            end: change.end + done,
            new: change.new,
        });
        let mut writer =
            Writer { out, changes: changes.peekable(), buffer, at: 0, open: None, is_inside: false };
        for (piece, bytes) in self.pieces() {
            match piece.is_plain {
                true => writer.plain(bytes),
                false => writer.edited(piece.input, bytes),
            }
        }
        writer.finish();
    }

    /// Moves what follows the first `at` bytes that the function has not done with to `tail`. Bytes of an
    /// edited piece stay together.
    pub fn split_off(&mut self, at: usize, tail: &mut Rope) {
        let at = self.done + at;
        tail.clear(self.from);
        let (mut start, mut from, mut n) = (0, self.from, 0);
        for piece in &self.pieces {
            let len = piece.len as usize;
            let is_in_front = start + len <= at;
            if !is_in_front {
                break;
            }
            (start, from, n) = (start + len, from.wrapping_add(piece.input), n + 1);
        }
        let within = at.saturating_sub(start);
        match self.pieces.get(n).copied() {
            Some(piece) if piece.is_plain => {
                tail.from = from.wrapping_add(within as u32);
                tail.bytes.extend_from_slice(self.bytes.get(at..).unwrap_or(&[]));
                let (front, rest) = (within as u32, piece.len - within as u32);
                tail.pieces.push(Piece { input: rest, len: rest, is_plain: true });
                tail.pieces.extend_from_slice(self.pieces.get(n + 1..).unwrap_or(&[]));
                self.pieces.truncate(n);
                if front != 0 {
                    self.pieces.push(Piece { input: front, len: front, is_plain: true });
                }
                self.bytes.truncate(at);
            }
            Some(_) => {
                (tail.from, tail.done) = (from, within);
                tail.bytes.extend_from_slice(self.bytes.get(start..).unwrap_or(&[]));
                tail.pieces.extend_from_slice(self.pieces.get(n..).unwrap_or(&[]));
                self.pieces.truncate(n);
                self.bytes.truncate(start);
            }
            None => {}
        }
        self.done = 0;
    }

    /// Appends the rope to a buffer.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.from.to_ne_bytes());
        out.extend_from_slice(&(self.done as u32).to_ne_bytes());
        for (piece, bytes) in self.pieces() {
            out.extend_from_slice(&piece.input.to_ne_bytes());
            out.extend_from_slice(&piece.len.to_ne_bytes());
            out.push(piece.is_plain.into());
            out.extend_from_slice(bytes);
        }
    }

    /// Reads a rope that [`Rope::write`] has written.
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

/// Writes a rope with changes.
struct Writer<'a, I: Iterator<Item = Change>> {
    out: &'a mut Rope,
    changes: std::iter::Peekable<I>,
    buffer: &'a [u8],
    /// Position in the rope that is read.
    at: usize,
    /// Bytes of the sender of the edited piece that is being written, and where its bytes begin.
    open: Option<(u32, usize)>,
    /// The first byte of the next change was read.
    is_inside: bool,
}

impl<I: Iterator<Item = Change>> Writer<'_, I> {
    fn close(&mut self) {
        if let Some((input, start)) = self.open.take() {
            let len = (self.out.bytes.len() - start) as u32;
            self.out.pieces.push(Piece { input, len, is_plain: false });
        }
    }

    /// Begins an edited piece, or goes on with one.
    fn open(&mut self, input: u32) {
        let start = self.out.bytes.len();
        let (before, start) = self.open.unwrap_or((0, start));
        self.open = Some((before + input, start));
    }

    /// Writes the new bytes of the next change if it begins here. Returns the end of the change.
    fn begin(&mut self) -> Option<usize> {
        let change = *self.changes.peek().filter(|change| change.start <= self.at)?;
        if !self.is_inside {
            let (from, to) = change.new;
            self.out.bytes.extend_from_slice(self.buffer.get(from..to).unwrap_or(&[]));
            self.is_inside = true;
        }
        Some(change.end)
    }

    fn end(&mut self, end: usize) {
        if self.at >= end {
            self.changes.next();
            self.is_inside = false;
        }
    }

    fn plain(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let mut is_attached = false;
            if self.changes.peek().is_some_and(|change| change.start <= self.at) {
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
            let n = match self.changes.peek() {
                _ if is_attached && has_no_input => 1,
                Some(change) => (change.start - self.at).min(bytes.len()),
                None => bytes.len(),
            };
            let (now, rest) = bytes.split_at(n);
            if is_attached && has_no_input {
                self.open(1);
                self.out.bytes.extend_from_slice(now);
            } else {
                self.close();
                self.out.push_plain(now);
            }
            (bytes, self.at) = (rest, self.at + n);
        }
    }

    fn edited(&mut self, input: u32, mut bytes: &[u8]) {
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
            let n =
                self.changes.peek().map_or(bytes.len(), |change| (change.start - self.at).min(bytes.len()));
            let (now, rest) = bytes.split_at(n);
            self.out.bytes.extend_from_slice(now);
            (bytes, self.at) = (rest, self.at + n);
            if bytes.is_empty() {
                return;
            }
        }
    }

    /// Writes what is inserted behind the last byte: it belongs to that byte.
    fn finish(mut self) {
        self.close();
        let Writer { out, changes, buffer, is_inside, .. } = self;
        for (n, change) in changes.enumerate() {
            if n == 0 && is_inside {
                continue;
            }
            let new = buffer.get(change.new.0..change.new.1).unwrap_or(&[]);
            let Some(last) = out.pieces.last_mut() else { return };
            if last.is_plain && last.len > 1 {
                (last.len, last.input) = (last.len - 1, last.input - 1);
                out.pieces.push(Piece { input: 1, len: 1, is_plain: false });
            }
            if let Some(last) = out.pieces.last_mut() {
                (last.is_plain, last.len) = (false, last.len + new.len() as u32);
            }
            out.bytes.extend_from_slice(new);
        }
    }
}
