//! The content of messages (RFC 9112, 6 and 7).

use super::fields::MOST_LENGTH;
use super::state::State;
use super::{MOST_CHUNK_LINE, Parser, Step, Stepped, has, is_blank, wrong};
use crate::table::{self, TOKEN};
use crate::{Cause, Element, Event};

/// Where in an extension of a chunk the parser is.
mod extension {
    /// Behind the semicolon.
    pub const START: u8 = 0;
    pub const NAME: u8 = 1;
    /// Blanks behind the name.
    pub const NAME_BLANK: u8 = 2;
    /// Behind the equals sign.
    pub const VALUE_START: u8 = 3;
    pub const VALUE: u8 = 4;
    pub const QUOTED: u8 = 5;
    /// Behind a backslash.
    pub const ESCAPED: u8 = 6;
    pub const QUOTED_END: u8 = 7;
    /// Blanks behind the value.
    pub const VALUE_BLANK: u8 = 8;
}

/// Returns where the parser is behind a byte of an extension (RFC 9112, 7.1.1). None: it must not be there.
fn next_in_extension(at: u8, byte: u8) -> Option<u8> {
    use extension::*;
    let is_token = table::is(byte, TOKEN);
    match (at, byte) {
        (QUOTED, b'"') => Some(QUOTED_END),
        (QUOTED, b'\\') => Some(ESCAPED),
        (QUOTED | ESCAPED, _) => table::is(byte, table::VALUE).then_some(QUOTED),
        (START | VALUE_START | NAME_BLANK | VALUE_BLANK, _) if is_blank(byte) => Some(at),
        (NAME, _) if is_blank(byte) => Some(NAME_BLANK),
        (VALUE | QUOTED_END, _) if is_blank(byte) => Some(VALUE_BLANK),
        (START | NAME, _) if is_token => Some(NAME),
        (VALUE_START | VALUE, _) if is_token => Some(VALUE),
        (VALUE_START, b'"') => Some(QUOTED),
        (NAME | NAME_BLANK, b'=') => Some(VALUE_START),
        (NAME | NAME_BLANK | VALUE | QUOTED_END | VALUE_BLANK, b';') => Some(START),
        _ => None,
    }
}

impl Parser {
    /// Takes bytes of a body or chunk.
    fn take<'b>(&mut self, rest: &'b [u8], next: State) -> Step<'b> {
        let len = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest.len());
        let (bytes, _) = rest.split_at(len);
        self.left -= len as u64;
        if self.left == 0 {
            self.state = next as u8;
        }
        Step::Report(len, Event::Bytes(Element::Body, bytes))
    }

    pub(super) fn length<'b>(&mut self, rest: &'b [u8]) -> Stepped<'b> {
        Ok(self.take(rest, State::Finish))
    }

    pub(super) fn chunk_data<'b>(&mut self, rest: &'b [u8]) -> Stepped<'b> {
        Ok(self.take(rest, State::ChunkCr))
    }

    /// The line of a chunk size follows. `len` bytes are used.
    pub(super) fn begin_chunk<'b>(&mut self, len: usize) -> Step<'b> {
        (self.left, self.position, self.line, self.head) = (0, 0, 0, 0);
        self.go(State::ChunkSize, len)
    }

    fn count_chunk_line(&mut self) -> Result<(), Cause> {
        self.line += 1;
        if self.line > MOST_CHUNK_LINE { Err(Cause::ChunkLine) } else { Ok(()) }
    }

    pub(super) fn chunk_size<'b>(&mut self, rest: &'b [u8]) -> Stepped<'b> {
        let Some(&byte) = rest.first() else { return Ok(Step::Skip(0)) };
        self.count_chunk_line()?;
        if let Some(digit) = char::from(byte).to_digit(16) {
            self.position = 1;
            self.left = self.left * 16 + u64::from(digit);
            return if self.left > MOST_LENGTH { Err(Cause::ChunkSizeOverflow) } else { Ok(Step::Skip(1)) };
        }
        match byte {
            _ if self.position == 0 => Err(wrong(byte, Cause::ChunkSize)),
            b'\r' => Ok(self.go(State::ChunkLf, 1)),
            b';' => Ok(self.begin_extension()),
            byte if is_blank(byte) => Ok(self.go(State::ChunkBlank, 1)),
            _ => Err(wrong(byte, Cause::ChunkSize)),
        }
    }

    /// Blanks may stand in front of an extension, and not at the end of the line.
    pub(super) fn chunk_blank<'b>(&mut self, rest: &'b [u8]) -> Stepped<'b> {
        let Some(&byte) = rest.first() else { return Ok(Step::Skip(0)) };
        self.count_chunk_line()?;
        match byte {
            b';' => Ok(self.begin_extension()),
            byte if is_blank(byte) => Ok(Step::Skip(1)),
            _ => Err(wrong(byte, Cause::ChunkSize)),
        }
    }

    fn begin_extension<'b>(&mut self) -> Step<'b> {
        self.position = extension::START;
        self.go(State::ChunkExtension, 1)
    }

    /// Extensions are checked, since some recipients look for the end of the line behind a quoted value only.
    pub(super) fn chunk_extension<'b>(&mut self, rest: &'b [u8]) -> Stepped<'b> {
        let Some(&byte) = rest.first() else { return Ok(Step::Skip(0)) };
        self.count_chunk_line()?;
        if byte == b'\r' {
            let is_complete =
                matches!(self.position, extension::NAME | extension::VALUE | extension::QUOTED_END);
            return if is_complete { Ok(self.go(State::ChunkLf, 1)) } else { Err(Cause::ChunkExtension) };
        }
        self.position =
            next_in_extension(self.position, byte).ok_or_else(|| wrong(byte, Cause::ChunkExtension))?;
        Ok(Step::Skip(1))
    }

    pub(super) fn chunk_line_end<'b>(&mut self, rest: &'b [u8]) -> Stepped<'b> {
        if rest.first() != Some(&b'\n') {
            return Err(Cause::BareCr);
        }
        if self.left == 0 {
            self.has |= has::TRAILERS;
            self.state = State::FieldStart as u8;
        } else {
            self.state = State::ChunkData as u8;
        }
        Ok(Step::Report(1, Event::Chunk(self.left)))
    }
}
