//! The messages of one direction.

mod body;
mod fields;
mod line;
mod state;

#[cfg(test)]
mod tests;

use bytemuck::{Pod, Zeroable};

use self::state::State;
use crate::table::{self, BLANK};
use crate::word::Word;
use crate::{Cause, Event, RequestClass};

/// Most bytes of a line of the head, or of a trailer.
pub const MOST_LINE: u32 = 8192;
/// Most bytes of a head, and of all trailers of a message.
pub const MOST_HEAD: u32 = 65_536;
/// Most headers and trailers of a message.
pub const MOST_FIELDS: u8 = 128;
/// Most bytes of the line of a chunk size.
pub const MOST_CHUNK_LINE: u32 = 256;

/// The messages of a direction, and how they end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    /// Responses. The next one answers this request.
    Response(Option<RequestClass>),
}

/// The state of a direction. Zeros at the beginning.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct Parser {
    /// In the head: the Content-Length. Then: the bytes of the body or chunk that are still to come.
    left: u64,
    /// Bytes of the line.
    line: u32,
    /// Bytes of the head or of the trailers.
    head: u32,
    /// The word that is compared: a method, the name of a header or a coding.
    word: Word,
    /// See [`has`].
    has: u16,
    status: u16,
    /// A [`State`].
    state: u8,
    /// Characters of a number or of a version so far, or where in an extension of a chunk.
    position: u8,
    /// Minor number of the version.
    minor: u8,
    /// Position of the method in [`METHODS`]; its number for others.
    method: u8,
    /// Position of the header in [`FIELDS`]; its number for others.
    field: u8,
    fields: u8,
    /// A [`Cause`]: what is wrong with the value of a header, then with the message.
    cause: u8,
    unused: u8,
}

/// What the head of a message has.
mod has {
    pub const LENGTH: u16 = 1 << 0;
    pub const CODING: u16 = 1 << 1;
    pub const HOST: u16 = 1 << 2;
    pub const UPGRADE: u16 = 1 << 3;
    /// Trailers are being read.
    pub const TRAILERS: u16 = 1 << 4;
}

/// Methods that change how messages end.
const METHODS: [&[u8]; 3] = [b"HEAD", b"CONNECT", b"PRI"];
const HEAD: u8 = 0;
const CONNECT: u8 = 1;
/// The method of the beginning of HTTP/2 (RFC 9113, 3.4).
const PRI: u8 = 2;

/// Headers that say where a message ends, and for whom it is.
const FIELDS: [&[u8]; 4] = [b"content-length", b"transfer-encoding", b"host", b"upgrade"];
const CONTENT_LENGTH: u8 = 0;
const TRANSFER_ENCODING: u8 = 1;
const HOST: u8 = 2;
const UPGRADE: u8 = 3;

/// What a part of the parser has done with the bytes.
enum Step<'b> {
    /// It has used some bytes, or has changed the state.
    Skip(usize),
    /// It has used some bytes, and reports an event.
    Report(usize, Event<'b>),
}

type Stepped<'b> = Result<Step<'b>, Cause>;

impl Parser {
    /// Takes bytes up to the next event. Returns how many, and the event.
    pub fn next<'b>(&mut self, kind: Kind, bytes: &'b [u8]) -> (usize, Event<'b>) {
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or(&[]);
            let state = State::of(self.state);
            if rest.is_empty() && !state.needs_no_byte() {
                return (at, Event::More);
            }
            match self.step(state, kind, rest) {
                Ok(Step::Skip(len)) => at += len,
                Ok(Step::Report(len, event)) => return (at + len, event),
                Err(cause) => {
                    self.fail(cause);
                    return (at, Event::Invalid(cause));
                }
            }
        }
    }

    fn step<'b>(&mut self, state: State, kind: Kind, rest: &'b [u8]) -> Stepped<'b> {
        match state {
            State::Start => self.start(kind, rest),
            State::StartLf => self.line_feed(rest, State::Start),
            State::Method => self.method(rest),
            State::Target => self.target(rest),
            State::Version => self.version(kind, rest),
            State::Status => self.status(rest),
            State::Reason => self.reason(rest),
            State::LineLf => self.line_feed(rest, State::FieldStart),
            State::FieldStart => self.field_start(rest),
            State::Name => self.name(rest),
            State::ValueStart => self.value_start(rest),
            State::Value => self.value(rest),
            State::ValueLf => self.value_end(rest),
            State::HeadLf => self.head_end(kind, rest),
            State::Length => self.length(rest),
            State::UntilClose => Ok(Step::Report(rest.len(), Event::Bytes(crate::Element::Body, rest))),
            State::ChunkSize => self.chunk_size(rest),
            State::ChunkBlank => self.chunk_blank(rest),
            State::ChunkExtension => self.chunk_extension(rest),
            State::ChunkLf => self.chunk_line_end(rest),
            State::ChunkData => self.chunk_data(rest),
            State::ChunkCr => Self::expect(rest, b'\r').map(|()| self.go(State::ChunkDataLf, 1)),
            State::ChunkDataLf => Self::expect(rest, b'\n').map(|()| self.begin_chunk(1)),
            State::Finish => {
                *self = Parser { method: self.method, ..Parser::default() };
                Ok(Step::Report(0, Event::Done))
            }
            State::Wait => Err(Cause::EarlyTunnel),
            State::Opaque => Ok(Step::Report(rest.len(), Event::Opaque(rest))),
            State::Failed => Err(Cause::of(self.cause)),
        }
    }

    /// The connection has ended. Returns the last event, if there is one.
    pub fn finish(&mut self) -> Option<Event<'static>> {
        match State::of(self.state) {
            State::UntilClose => {
                *self = Parser::default();
                Some(Event::Done)
            }
            State::Start | State::StartLf | State::Opaque | State::Wait | State::Failed => None,
            _ => {
                self.fail(Cause::Truncated);
                Some(Event::Invalid(Cause::Truncated))
            }
        }
    }

    /// Whether no message has begun.
    pub fn is_idle(&self) -> bool {
        self.state == State::Start as u8
    }

    /// Whether the version of a request follows whose line begins like the preface of HTTP/2.
    pub fn is_in_preface(&self) -> bool {
        self.state == State::Version as u8 && self.method == PRI
    }

    /// Further bytes are not HTTP/1.x.
    pub fn give_up(&mut self) {
        *self = Parser { state: State::Opaque as u8, ..Parser::default() };
    }

    /// The message is not accepted.
    pub fn fail(&mut self, cause: Cause) {
        (self.state, self.cause) = (State::Failed as u8, cause as u8);
    }

    /// Further bytes are not accepted until [`Parser::proceed`].
    pub fn wait(&mut self) {
        self.state = State::Wait as u8;
    }

    /// Messages follow.
    pub fn proceed(&mut self) {
        if self.state == State::Wait as u8 {
            *self = Parser::default();
        }
    }

    /// Whether the method of the last request is CONNECT.
    pub fn is_connect(&self) -> bool {
        self.method == CONNECT
    }

    fn go<'b>(&mut self, state: State, len: usize) -> Step<'b> {
        self.state = state as u8;
        Step::Skip(len)
    }

    /// Returns the length of the run of a class at the beginning, within the limits of line and head.
    fn run(&mut self, bytes: &[u8], class: u8) -> Result<usize, Cause> {
        let len = table::run(bytes, class);
        if len == 0 {
            return Ok(0);
        }
        let room = (MOST_LINE - self.line.min(MOST_LINE)).min(MOST_HEAD - self.head.min(MOST_HEAD));
        if room == 0 {
            let is_line = self.line >= MOST_LINE;
            return Err(if is_line { Cause::LineTooLong } else { Cause::HeadTooLong });
        }
        let len = len.min(room as usize);
        self.count(len as u32);
        Ok(len)
    }

    fn count(&mut self, len: u32) {
        self.line = self.line.saturating_add(len);
        self.head = self.head.saturating_add(len);
    }

    /// The line ends with LF, behind CR.
    fn line_feed<'b>(&mut self, rest: &[u8], next: State) -> Stepped<'b> {
        match rest.first() {
            Some(b'\n') => Ok(self.go(next, 1)),
            _ => Err(Cause::BareCr),
        }
    }

    fn expect(rest: &[u8], byte: u8) -> Result<(), Cause> {
        if rest.first() == Some(&byte) { Ok(()) } else { Err(Cause::ChunkEnd) }
    }
}

/// Returns the cause for a byte that must not be there.
fn wrong(byte: u8, otherwise: Cause) -> Cause {
    match byte {
        b'\n' => Cause::BareLf,
        b'\r' => Cause::BareCr,
        0 => Cause::Nul,
        _ => otherwise,
    }
}

fn is_blank(byte: u8) -> bool {
    table::is(byte, BLANK)
}
