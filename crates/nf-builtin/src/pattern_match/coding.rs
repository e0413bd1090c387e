//! The content coding of a message, read from its headers as they come.

use bytemuck::{Pod, Zeroable};
use mmb_http::{Element, Event};

use crate::shared::content_coding::Coding;

const NAME: &[u8] = b"content-encoding";
/// The name is another one.
const OTHER_NAME: u8 = u8::MAX;
/// The codings so far are none, one of [`Coding::ALL`] by its position and one, or others.
const NONE: u8 = 0;
const OTHER: u8 = u8::MAX;

/// The state of a reader of the headers of a direction.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub(super) struct CodingReader {
    /// The beginning of the coding that is being read.
    word: [u8; 8],
    /// Bytes of it. A longer one is none that is known.
    len: u8,
    /// Bytes of a name that are those of Content-Encoding.
    name: u8,
    /// The codings so far.
    found: u8,
    /// The value that comes is that of Content-Encoding.
    is_value: u8,
}

impl CodingReader {
    /// Reads an event of a head.
    pub fn push(&mut self, event: &Event<'_>) {
        match event {
            Event::Bytes(Element::Name, bytes) => bytes.iter().for_each(|&byte| self.name(byte)),
            Event::End(Element::Name) => {
                self.is_value = u8::from(usize::from(self.name) == NAME.len());
                self.name = 0;
            }
            Event::Bytes(Element::Value, bytes) if self.is_value != 0 => {
                bytes.iter().for_each(|&byte| self.value(byte));
            }
            Event::End(Element::Value) => {
                self.end_word();
                self.is_value = 0;
            }
            _ => {}
        }
    }

    /// The headers are complete. Returns the coding of the body. An error: it is none that is decoded.
    pub fn end(&mut self) -> Result<Option<Coding>, ()> {
        match std::mem::take(self).found {
            NONE => Ok(None),
            found => Coding::ALL.get(usize::from(found) - 1).map(|&coding| Some(coding)).ok_or(()),
        }
    }

    fn name(&mut self, byte: u8) {
        let is_next = NAME.get(usize::from(self.name)) == Some(&byte.to_ascii_lowercase());
        self.name = if is_next { self.name + 1 } else { OTHER_NAME };
    }

    fn value(&mut self, byte: u8) {
        match byte {
            b',' => self.end_word(),
            b' ' | b'\t' => {}
            _ => {
                if let Some(place) = self.word.get_mut(usize::from(self.len)) {
                    *place = byte;
                }
                self.len = self.len.saturating_add(1);
            }
        }
    }

    fn end_word(&mut self) {
        let len = usize::from(std::mem::take(&mut self.len));
        let word = self.word.get(..len).unwrap_or(b"other");
        if word.is_empty() || word.eq_ignore_ascii_case(b"identity") {
            return;
        }
        self.found = match (self.found, Coding::of(word)) {
            (NONE, Some(coding)) => coding as u8 + 1,
            _ => OTHER,
        };
    }
}

#[cfg(test)]
mod tests;
