//! Headers and trailers (RFC 9112, 5), and what they say about the end of the message (6.3).

use super::state::State;
use super::{
    CONNECT, CONTENT_LENGTH, FIELDS, HEAD, HOST, Kind, MOST_FIELDS, MOST_LINE, Parser, Step, Stepped,
    TRANSFER_ENCODING, UPGRADE, has, is_blank, wrong,
};
use crate::table::{self, TOKEN, VALUE};
use crate::word::Word;
use crate::{Body, Cause, Element, Event, Head, RequestClass};

/// The only transfer coding that is accepted.
const CODINGS: [&[u8]; 1] = [b"chunked"];
/// Greatest length of a body or chunk. One more digit, decimal or hexadecimal, does not overflow.
pub(super) const MOST_LENGTH: u64 = (1 << 60) - 1;

impl Parser {
    fn is_trailer(&self) -> bool {
        self.has & has::TRAILERS != 0
    }

    pub(super) fn field_start<'b>(&mut self, rest: &'b [u8]) -> Stepped<'b> {
        let Some(&byte) = rest.first() else { return Ok(Step::Skip(0)) };
        self.line = 0;
        match byte {
            b'\r' => Ok(self.go(State::HeadLf, 1)),
            byte if is_blank(byte) => Err(Cause::ObsFold),
            byte if !table::is(byte, TOKEN) => Err(wrong(byte, Cause::Name)),
            _ if self.fields == MOST_FIELDS => Err(Cause::TooManyFields),
            _ => {
                self.fields += 1;
                self.word = Word::begin(&FIELDS);
                Ok(self.go(State::Name, 0))
            }
        }
    }

    pub(super) fn name<'b>(&mut self, rest: &'b [u8]) -> Stepped<'b> {
        let is_trailer = self.is_trailer();
        let element = if is_trailer { Element::TrailerName } else { Element::Name };
        let len = self.run(rest, TOKEN)?;
        if let Some(bytes) = rest.get(..len).filter(|bytes| !bytes.is_empty()) {
            self.word.push(&FIELDS, bytes, |byte| byte.to_ascii_lowercase());
            return Ok(Step::Report(len, Event::Bytes(element, bytes)));
        }
        match rest.first() {
            Some(b':') => {
                self.field = self.word.end(&FIELDS).unwrap_or(FIELDS.len()) as u8;
                self.begin_value();
                self.state = State::ValueStart as u8;
                Ok(Step::Report(1, Event::End(element)))
            }
            Some(&byte) if is_blank(byte) => Err(Cause::SpaceBeforeColon),
            Some(&byte) => Err(wrong(byte, Cause::Name)),
            None => Ok(Step::Skip(0)),
        }
    }

    /// Blanks count for the limit of the line.
    pub(super) fn value_start<'b>(&mut self, rest: &'b [u8]) -> Stepped<'b> {
        let len = self.run(rest, table::BLANK)?;
        if len != 0 {
            return Ok(Step::Skip(len));
        }
        Ok(self.go(State::Value, 0))
    }

    pub(super) fn value<'b>(&mut self, rest: &'b [u8]) -> Stepped<'b> {
        let len = self.run(rest, VALUE)?;
        if let Some(bytes) = rest.get(..len).filter(|bytes| !bytes.is_empty()) {
            self.read_value(bytes);
            let element = if self.is_trailer() { Element::TrailerValue } else { Element::Value };
            return Ok(Step::Report(len, Event::Bytes(element, bytes)));
        }
        match rest.first() {
            Some(b'\r') => Ok(self.go(State::ValueLf, 1)),
            Some(&byte) => Err(wrong(byte, Cause::Value)),
            None => Ok(Step::Skip(0)),
        }
    }

    pub(super) fn value_end<'b>(&mut self, rest: &'b [u8]) -> Stepped<'b> {
        if rest.first() != Some(&b'\n') {
            return Err(Cause::BareCr);
        }
        self.check_value()?;
        self.state = State::FieldStart as u8;
        let element = if self.is_trailer() { Element::TrailerValue } else { Element::Value };
        Ok(Step::Report(1, Event::End(element)))
    }

    /// A value begins. What is wrong with it is reported at its end, wherever the bytes are cut.
    fn begin_value(&mut self) {
        let (bit, twice) = match self.field {
            CONTENT_LENGTH => (has::LENGTH, Cause::TwoLengths),
            TRANSFER_ENCODING => (has::CODING, Cause::TransferEncoding),
            HOST => (has::HOST, Cause::TwoHosts),
            UPGRADE => (has::UPGRADE, Cause::None),
            _ => return,
        };
        if self.is_trailer() && self.field != UPGRADE {
            self.cause = Cause::TrailerField as u8;
        } else if self.has & bit != 0 {
            self.cause = twice as u8;
        }
        self.has |= bit;
        self.position = 0;
        self.word = Word::begin(&CODINGS);
    }

    fn read_value(&mut self, bytes: &[u8]) {
        match self.field {
            CONTENT_LENGTH if !self.is_trailer() => bytes.iter().for_each(|&byte| self.read_length(byte)),
            TRANSFER_ENCODING => self.word.push(&CODINGS, bytes, |byte| byte.to_ascii_lowercase()),
            _ => {}
        }
    }

    /// A byte of Content-Length: digits, then blanks. Position: 0 in front of digits, 1 among them, 2 behind.
    fn read_length(&mut self, byte: u8) {
        match byte {
            b'0'..=b'9' if self.position < 2 => {
                self.position = 1;
                self.left = self.left * 10 + u64::from(byte - b'0');
                if self.left > MOST_LENGTH {
                    self.left = 0;
                    self.flaw(Cause::LengthOverflow);
                }
            }
            byte if is_blank(byte) && self.position != 0 => self.position = 2,
            _ => self.flaw(Cause::Length),
        }
    }

    fn flaw(&mut self, cause: Cause) {
        if self.cause == 0 {
            self.cause = cause as u8;
        }
    }

    fn check_value(&mut self) -> Result<(), Cause> {
        match self.field {
            CONTENT_LENGTH if self.position == 0 => self.flaw(Cause::Length),
            TRANSFER_ENCODING if self.word.end(&CODINGS).is_none() => self.flaw(Cause::TransferEncoding),
            _ => {}
        }
        match Cause::of(self.cause) {
            Cause::None => Ok(()),
            cause => Err(cause),
        }
    }

    /// The empty line behind headers or trailers.
    pub(super) fn head_end<'b>(&mut self, kind: Kind, rest: &'b [u8]) -> Stepped<'b> {
        if rest.first() != Some(&b'\n') {
            return Err(Cause::BareCr);
        }
        if self.is_trailer() {
            return Ok(self.go(State::Finish, 1));
        }
        let (chunked, length) = (self.has & has::CODING != 0, self.has & has::LENGTH != 0);
        if chunked && length {
            return Err(Cause::LengthAndChunked);
        }
        if chunked && self.minor == 0 {
            return Err(Cause::ChunkedInHttp10);
        }
        let request = match kind {
            Kind::Request => Some(self.check_request()?),
            Kind::Response(request) => request,
        };
        let body = match kind {
            Kind::Response(request) => self.response_body(request),
            Kind::Request if chunked => Body::Chunked,
            Kind::Request if length => Body::Length(self.left),
            Kind::Request => Body::None,
        };
        let state = match body {
            Body::None | Body::Length(0) => State::Finish,
            Body::Length(_) => State::Length,
            Body::UntilClose => State::UntilClose,
            Body::Switched => State::Opaque,
            Body::Chunked => {
                self.begin_chunk(0);
                State::ChunkSize
            }
        };
        self.state = state as u8;
        let head = Head { status: self.status, minor: self.minor, body, request };
        Ok(Step::Report(1, Event::Head(head)))
    }

    fn check_request(&self) -> Result<RequestClass, Cause> {
        let is_connect = self.method == CONNECT;
        if self.minor == 1 && self.has & has::HOST == 0 {
            return Err(Cause::MissingHost);
        }
        if is_connect && self.has & (has::CODING | has::LENGTH) != 0 {
            return Err(Cause::ConnectBody);
        }
        let has_upgrade = self.has & has::UPGRADE != 0;
        Ok(RequestClass { is_head: self.method == HEAD, is_connect, has_upgrade })
    }

    /// RFC 9112, 6.3.
    fn response_body(&self, request: Option<RequestClass>) -> Body {
        let request = request.unwrap_or_default();
        match self.status {
            101 => Body::Switched,
            200..300 if request.is_connect => Body::Switched,
            100..200 | 204 | 304 => Body::None,
            _ if request.is_head => Body::None,
            _ if self.has & has::CODING != 0 => Body::Chunked,
            _ if self.has & has::LENGTH != 0 => Body::Length(self.left),
            _ => Body::UntilClose,
        }
    }
}

const _: () = assert!(MOST_LENGTH <= (u64::MAX - 15) / 16 && MOST_LINE < u32::MAX);
