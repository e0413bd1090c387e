//! The bodies of messages: texts are replaced, and chunks are made anew.
//!
//! Theory of operation. The content that has come is looked at as one text, whatever its chunks are. What may
//! be the beginning of a text that is replaced waits for more. All that is decided leaves as one chunk, if
//! the message has chunks. The framing of the sender's chunks is removed, and their extensions with it
//! (RFC 9112, 7.1.1). Trailers stay.

use std::ops::Range;

use super::config::BodyEdits;
use super::plan::Plan;

/// Most replacements at a time: half of the changes that a packet may have. Chunks need others.
const MOST_FOUND: usize = 1 << 15;
/// More than the texts of a head.
const HEAD: usize = 16 << 10;
pub(super) const LAST_CHUNK: &[u8] = b"0\r\n";
/// The last chunk of a message without trailers.
pub(super) const END: &[u8] = b"0\r\n\r\n";

/// What becomes of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Treatment {
    /// It passes.
    #[default]
    Pass,
    /// Texts are replaced. The length is known already, or the connection ends behind it.
    Replace,
    /// It gets chunks.
    Chunk,
    /// It has chunks, and gets others.
    Rechunk,
}

impl Treatment {
    pub fn of(number: u8) -> Treatment {
        let all = [Treatment::Pass, Treatment::Replace, Treatment::Chunk, Treatment::Rechunk];
        all.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// Whether the body leaves in chunks of this program.
    pub fn has_chunks(self) -> bool {
        matches!(self, Treatment::Chunk | Treatment::Rechunk)
    }
}

/// Content that is being looked at. Buffers are used again.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// Where the content is in the bytes.
    pub(super) pieces: Vec<Range<usize>>,
    /// The content, if it is in several pieces or decoded.
    pub(super) joined: Vec<u8>,
    /// Decoded content with its edits.
    pub(super) output: Vec<u8>,
    /// Texts that are replaced, as ranges of the content.
    found: Vec<Range<usize>>,
    /// Position behind all that is planned, where the framing of the next chunk begins.
    pub(super) from: usize,
}

/// What becomes of content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Decided {
    /// Position from which on the bytes wait. None: none do.
    pub hold: Option<usize>,
    pub replaced: u64,
    /// Texts that were not replaced, since there are too many at a time.
    pub refused: u64,
}

impl Content {
    /// The content begins behind a position.
    pub fn begin(&mut self, at: usize) {
        self.pieces.clear();
        self.from = at;
    }

    pub fn push(&mut self, range: Range<usize>) {
        self.pieces.push(range);
    }

    /// Plans what becomes of the content up to a position. `is_last`: nothing follows it. `has_end`: the
    /// chunk of length 0 ends there.
    pub fn decide(
        &mut self,
        (bytes, to): (&[u8], usize),
        (edits, treatment): (&BodyEdits, Treatment),
        (is_last, has_end): (bool, bool),
        plan: &mut Plan,
    ) -> Decided {
        let Content { pieces, joined, found, from, .. } = self;
        let content = match &pieces[..] {
            [] => &[],
            [piece] => bytes.get(piece.clone()).unwrap_or(&[]),
            _ => {
                joined.clear();
                pieces.iter().for_each(|piece| joined.extend_from_slice(&bytes[piece.clone()]));
                joined.as_slice()
            }
        };
        found.clear();
        let (mut refused, mut old, mut new) = (0, 0, 0);
        let open = edits.literals.scan(content, is_last, |range| {
            let len = edits.text(&content[range.clone()]).len();
            if found.len() < MOST_FOUND && plan.has_room(new + len) {
                (old, new) = (old + range.len(), new + len);
                found.push(range);
            } else {
                refused += 1;
            }
        });
        let mut places = Places::new(pieces);
        let end = if open == 0 { *from } else { places.end(open) };
        let hold = (open < content.len()).then(|| places.start(open));
        let is_framed = treatment.has_chunks() && open + new - old != 0;
        let mut places = Places::new(pieces);
        let mut texts = found.iter().map(|range| {
            let text = edits.text(&content[range.clone()]);
            (places.start(range.start)..places.end(range.end), text)
        });
        let mut next = texts.next();
        let (mut gap, mut done) = (*from, *from);
        for (n, piece) in pieces.iter().enumerate().take_while(|(_, piece)| piece.start < end) {
            // Framing within a text goes with it.
            if treatment == Treatment::Rechunk && done <= gap {
                plan.remove(gap..piece.start);
            }
            if n == 0 && is_framed {
                plan.replace(piece.start..piece.start, |text| size_line(open + new - old, text));
            }
            while let Some((range, text)) = next.take_if(|(range, _)| range.start < piece.end) {
                plan.replace(range.clone(), |place| place.extend_from_slice(text));
                done = range.end;
                next = texts.next();
            }
            gap = piece.end;
        }
        if is_framed {
            plan.insert(end, b"\r\n");
        }
        if treatment == Treatment::Rechunk {
            let last = if has_end { LAST_CHUNK } else { b"" };
            plan.replace(end..hold.unwrap_or(to), |text| text.extend_from_slice(last));
        }
        let replaced = found.len() as u64;
        self.begin(to);
        Decided { hold, replaced, refused }
    }
}

/// Returns the length of a whole body with its edits. None: not all of them have room.
pub(super) fn edited_len(edits: &BodyEdits, body: &[u8], plan: &Plan) -> Option<usize> {
    let (mut count, mut old, mut new) = (0, 0, 0);
    edits.literals.scan(body, true, |range| {
        let len = edits.text(&body[range.clone()]).len();
        (count, old, new) = (count + 1, old + range.len(), new + len);
    });
    (count <= MOST_FOUND && plan.has_room(new + HEAD)).then_some(body.len() + new - old)
}

pub(super) fn size_line(len: usize, text: &mut Vec<u8>) {
    let digits = (usize::BITS - len.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        text.push(b"0123456789abcdef"[len >> (4 * digit) & 15]);
    }
    text.extend_from_slice(b"\r\n");
}

/// Where content is. Positions are asked for in ascending order, so that all of them together take as many
/// steps as there are pieces.
struct Places<'a> {
    /// The piece of the last position, and those behind it.
    pieces: &'a [Range<usize>],
    /// Bytes of the content in front of these pieces.
    before: usize,
}

impl<'a> Places<'a> {
    fn new(pieces: &'a [Range<usize>]) -> Places<'a> {
        Places { pieces, before: 0 }
    }

    /// Returns the position of a byte of the content, or the position behind the last byte.
    fn start(&mut self, at: usize) -> usize {
        while let [piece, rest @ ..] = self.pieces {
            let offset = at.saturating_sub(self.before);
            if offset < piece.len() || rest.is_empty() {
                return piece.start + offset.min(piece.len());
            }
            #[cfg(test)]
            super::tests::note_read(piece.len());
            (self.pieces, self.before) = (rest, self.before + piece.len());
        }
        0
    }

    /// Returns the position behind the last of so many bytes of the content, at least one.
    fn end(&mut self, len: usize) -> usize {
        self.start(len.saturating_sub(1)) + 1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Places;

    proptest! {
        /// Positions in ascending order are those of a list of all bytes.
        #[test]
        fn places_of_bytes(
            lens in prop::collection::vec((0..4_usize, 1..5_usize), 1..20),
            mut asked in prop::collection::vec(0..80_usize, 0..40),
        ) {
            let (mut at, mut pieces, mut bytes) = (0, Vec::new(), Vec::new());
            for (gap, len) in lens {
                pieces.push(at + gap..at + gap + len);
                bytes.extend(at + gap..at + gap + len);
                at += gap + len;
            }
            asked.sort_unstable();
            let mut places = Places::new(&pieces);
            for byte in asked.into_iter().filter(|&byte| byte < bytes.len()) {
                prop_assert_eq!(places.start(byte), bytes[byte]);
                prop_assert_eq!(places.end(byte + 1), bytes[byte] + 1);
            }
            prop_assert_eq!(places.start(bytes.len()), at);
        }
    }
}
