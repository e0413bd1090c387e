//! Reading a rope together with its body.

use super::{Part, Rope, Source};

/// A place in a rope and in its body.
#[derive(Debug)]
pub struct RopeReader<'a> {
    /// The parts that are not read yet, and their bytes.
    parts: std::slice::Iter<'a, Part>,
    bytes: &'a [u8],
    /// Bytes of a part in the body that are not read yet.
    left: usize,
    /// The sender's number of the next byte.
    number: u32,
    /// A slice of the body, and the sender's number of its first byte.
    slice: &'a [u8],
    slice_number: u32,
}

impl<'a> RopeReader<'a> {
    /// Begins behind so many parts and bytes of the rope. `number`: the sender's number of the next byte.
    pub(super) fn at(rope: &'a Rope, (parts, bytes): (usize, usize), number: u32) -> RopeReader<'a> {
        RopeReader {
            parts: rope.parts.get(parts..).unwrap_or(&[]).iter(),
            bytes: rope.bytes.get(bytes..).unwrap_or(&[]),
            left: 0,
            number,
            slice: &[],
            slice_number: rope.body,
        }
    }

    /// Returns the next part, or the next slice of one in the body.
    pub(super) fn next_part<'b: 'a>(
        &mut self,
        body: &mut impl Iterator<Item = &'b [u8]>,
    ) -> Option<(Part, &'a [u8])> {
        if self.left == 0 {
            let part = *self.parts.next()?;
            if part.source != Source::Body {
                self.number = self.number.wrapping_add(part.input);
                return Some((part, self.bytes.split_off(..part.len as usize)?));
            }
            self.left = part.len as usize;
        }
        let bytes = self.next_slice(body)?;
        let len = bytes.len() as u32;
        Some((Part { input: len, len, source: Source::Body }, bytes))
    }

    /// Returns the next bytes, as many as follow each other in memory, or None behind the last ones. `body`:
    /// the bytes of the rope's body, as in the calls before.
    pub fn next_chunk<'b: 'a>(&mut self, body: &mut impl Iterator<Item = &'b [u8]>) -> Option<&'a [u8]> {
        if self.left == 0 {
            let (mut len, mut next) = (0, None);
            for part in self.parts.by_ref() {
                if part.source == Source::Body {
                    next = Some(part.len as usize);
                    break;
                }
                len += part.len as usize;
                self.number = self.number.wrapping_add(part.input);
            }
            self.left = next.unwrap_or(0);
            if len != 0 {
                return self.bytes.split_off(..len);
            }
            next?;
        }
        self.next_slice(body)
    }

    /// Returns bytes of the part in the body that is being read.
    fn next_slice<'b: 'a>(&mut self, body: &mut impl Iterator<Item = &'b [u8]>) -> Option<&'a [u8]> {
        loop {
            let skip = self.number.wrapping_sub(self.slice_number) as usize;
            if let Some(bytes) = self.slice.get(skip..).filter(|bytes| !bytes.is_empty()) {
                let bytes = bytes.get(..self.left).unwrap_or(bytes);
                self.left -= bytes.len();
                self.number = self.number.wrapping_add(bytes.len() as u32);
                return Some(bytes);
            }
            self.slice_number = self.slice_number.wrapping_add(self.slice.len() as u32);
            self.slice = body.next()?;
        }
    }
}
