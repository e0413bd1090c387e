//! Request line and status line (RFC 9112, 3 and 4).

use super::state::State;
use super::{Kind, METHODS, PRI, Parser, Step, Stepped, wrong};
use crate::table::{self, TARGET, TOKEN, VALUE};
use crate::word::Word;
use crate::{Cause, Element, Event};

/// Most bytes of empty lines in front of a message.
const MOST_EMPTY: u32 = 16;
/// The text in front of a version's numbers.
const HTTP: &[u8] = b"HTTP/";

impl Parser {
    /// The beginning of a message. Empty lines in front of it are left out (RFC 9112, 2.2).
    pub(super) fn start<'b>(&mut self, kind: Kind, rest: &'b [u8]) -> Stepped<'b> {
        let Some(&byte) = rest.first() else { return Ok(Step::Skip(0)) };
        if byte == b'\r' {
            self.line += 2;
            return if self.line > MOST_EMPTY {
                Err(Cause::StartLine)
            } else {
                Ok(self.go(State::StartLf, 1))
            };
        }
        let begins = match kind {
            Kind::Request => table::is(byte, TOKEN),
            Kind::Response(_) => byte == HTTP[0],
        };
        if !begins {
            return Err(wrong(byte, Cause::StartLine));
        }
        *self = Parser { method: METHODS.len() as u8, field: super::FIELDS.len() as u8, ..Parser::default() };
        self.word = Word::begin(&METHODS);
        let next = if kind == Kind::Request { State::Method } else { State::Version };
        Ok(self.go(next, 0))
    }

    pub(super) fn method<'b>(&mut self, rest: &'b [u8]) -> Stepped<'b> {
        let len = self.run(rest, TOKEN)?;
        if let Some(bytes) = rest.get(..len).filter(|bytes| !bytes.is_empty()) {
            self.word.push(&METHODS, bytes, |byte| byte);
            return Ok(Step::Report(len, Event::Bytes(Element::Method, bytes)));
        }
        match rest.first() {
            Some(b' ') => {
                self.method = self.word.end(&METHODS).unwrap_or(METHODS.len()) as u8;
                (self.state, self.position) = (State::Target as u8, 0);
                Ok(Step::Report(1, Event::End(Element::Method)))
            }
            Some(&byte) => Err(wrong(byte, Cause::StartLine)),
            None => Ok(Step::Skip(0)),
        }
    }

    pub(super) fn target<'b>(&mut self, rest: &'b [u8]) -> Stepped<'b> {
        let len = self.run(rest, TARGET)?;
        if let Some(bytes) = rest.get(..len).filter(|bytes| !bytes.is_empty()) {
            // The preface of HTTP/2 has this one target (RFC 9113, 3.4).
            if self.method == PRI && (self.position != 0 || bytes != b"*") {
                self.method = METHODS.len() as u8;
            }
            self.position = 1;
            return Ok(Step::Report(len, Event::Bytes(Element::Target, bytes)));
        }
        match rest.first() {
            Some(b' ') if self.position == 0 => Err(Cause::StartLine),
            Some(b' ') => {
                (self.state, self.position) = (State::Version as u8, 0);
                Ok(Step::Report(1, Event::End(Element::Target)))
            }
            Some(b'\r' | b'\n') => Err(Cause::Http09),
            Some(&byte) => Err(wrong(byte, Cause::Target)),
            None => Ok(Step::Skip(0)),
        }
    }

    /// A version, and the byte behind it. The position is that in `HTTP/1.1`.
    pub(super) fn version<'b>(&mut self, kind: Kind, rest: &'b [u8]) -> Stepped<'b> {
        let Some(&byte) = rest.first() else { return Ok(Step::Skip(0)) };
        self.count(1);
        self.position += 1;
        match self.position {
            at @ 1..=5 if HTTP.get(usize::from(at - 1)) == Some(&byte) => Ok(Step::Skip(1)),
            // A request line may end with another word than a version. That is no version either.
            1..=5 => Err(wrong(byte, Cause::Version)),
            6 if byte == b'1' => Ok(Step::Skip(1)),
            6 if byte == b'2' && self.method == PRI => {
                self.give_up();
                Ok(Step::Report(0, Event::Invalid(Cause::Http2)))
            }
            7 if byte == b'.' => Ok(Step::Skip(1)),
            8 if byte == b'0' || byte == b'1' => {
                self.minor = byte - b'0';
                Ok(Step::Skip(1))
            }
            6..=8 => Err(wrong(byte, Cause::Version)),
            _ => match (kind, byte) {
                (Kind::Request, b'\r') => Ok(self.go(State::LineLf, 1)),
                (Kind::Response(_), b' ') => {
                    self.position = 0;
                    Ok(self.go(State::Status, 1))
                }
                // More digits.
                (_, b'0'..=b'9') => Err(Cause::Version),
                _ => Err(wrong(byte, Cause::StartLine)),
            },
        }
    }

    /// Three digits. The reason may be missing, and the blank in front of it with it.
    pub(super) fn status<'b>(&mut self, rest: &'b [u8]) -> Stepped<'b> {
        let Some(&byte) = rest.first() else { return Ok(Step::Skip(0)) };
        self.count(1);
        match (self.position, byte) {
            (0, b'1'..=b'9') | (1..=2, b'0'..=b'9') => {
                self.position += 1;
                self.status = self.status * 10 + u16::from(byte - b'0');
                Ok(Step::Skip(1))
            }
            (3, b' ') => Ok(self.go(State::Reason, 1)),
            (3, b'\r') => {
                self.state = State::LineLf as u8;
                Ok(Step::Report(1, Event::End(Element::Reason)))
            }
            _ => Err(wrong(byte, Cause::Status)),
        }
    }

    pub(super) fn reason<'b>(&mut self, rest: &'b [u8]) -> Stepped<'b> {
        let len = self.run(rest, VALUE)?;
        if let Some(bytes) = rest.get(..len).filter(|bytes| !bytes.is_empty()) {
            return Ok(Step::Report(len, Event::Bytes(Element::Reason, bytes)));
        }
        match rest.first() {
            Some(b'\r') => {
                self.state = State::LineLf as u8;
                Ok(Step::Report(1, Event::End(Element::Reason)))
            }
            Some(&byte) => Err(wrong(byte, Cause::Status)),
            None => Ok(Step::Skip(0)),
        }
    }
}
