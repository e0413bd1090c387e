//! `http-edit`: changes headers, addresses and bodies of HTTP messages.
//!
//! Theory of operation. The bytes of a direction are read up to the last line that is complete; the rest of
//! them waits, and is read again with those that follow ([`message`]). So the state of a connection is that
//! of the parser in front of what waits, and no byte is kept here. A message whose body may be edited waits
//! for the end of its head, since that decides about its length.
//!
//! A body leaves in chunks (RFC 9112, 7.1) if its length is not known when its head leaves ([`body`]).
//! Changes are planned first ([`plan`]), and made when all of them are known. A change that cannot be made
//! would leave a wrong length behind: the connection is reset.

mod body;
mod config;
mod decoded;
mod header;
mod message;
pub(crate) mod path;
mod plan;
mod treatment;

use bytemuck::{Pod, Zeroable};
use mmb_http::{Cause, Connection, Event};

use self::body::Treatment;
use self::config::Config;
pub(crate) use self::config::{header_name, header_value};
use self::message::{MOST_WAITING, ReadError, Reader, Scratch};
use crate::shared::content_coding::DecodeError;
use crate::shared::http::{CauseCounters, forward_key, has_joined};
use mmb_nf::{
    ArgError, Context, Direction, DropReason, SessionInfo, Setup, StreamEdit, StreamFunction, StreamVerdict,
    WorkerCounters,
};

/// What the parser reads of the preface of HTTP/2.
const HTTP2: &[u8] = b"PRI * HTTP/2";

/// Counters of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Count {
    Requests,
    Responses,
    Added,
    Removed,
    Paths,
    Locations,
    Bodies,
    Replaced,
    NotReplaced,
    RefusedPaths,
    RefusedLocations,
    Decoded,
    Encoded,
    NoTransform,
    NoDecoder,
    Partial,
    NoChunks,
    CutHeads,
    CutLines,
    NotEditable,
    Garbage,
    Corrupt,
    Truncated,
    TooLarge,
    Memory,
    Lost,
}

/// Names, and whether `show functions` prints them without an occurrence.
const COUNTS: [(&str, bool); 26] = [
    ("requests", true),
    ("responses", true),
    ("headers added", true),
    ("headers removed", true),
    ("paths rewritten", true),
    ("locations rewritten", false),
    ("bodies edited", true),
    ("texts replaced", true),
    ("texts not replaced: too many at a time", false),
    ("paths not rewritten: the new one is invalid", false),
    ("locations not rewritten: the new one is invalid", false),
    ("bodies decoded", false),
    ("bodies not edited: Content-Encoding", false),
    ("bodies not edited: no-transform", false),
    ("bodies not edited: too many are decoded", false),
    ("bodies not edited: partial content", false),
    ("bodies not edited: HTTP/1.0 without end of the connection", false),
    ("bodies not edited: the head did not wait", false),
    ("headers not edited: the line did not wait", false),
    ("connections not edited", false),
    ("bodies with ignored bytes behind the encoded data", false),
    ("connections reset: the encoded data of a body is corrupt", false),
    ("connections reset: the encoded data of a body has no end", false),
    ("connections reset: a body grows too much when it is decoded", false),
    ("connections reset: bodies need too much memory when they are decoded", false),
    ("connections reset", false),
];

/// Counts of some bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts([u64; COUNTS.len()]);

impl Counts {
    fn add(&mut self, which: Count, is: bool) {
        self.count(which, is.into());
    }

    fn count(&mut self, which: Count, number: u64) {
        if let Some(count) = self.0.get_mut(which as usize) {
            *count += number;
        }
    }
}

/// See the module's documentation.
pub(crate) struct HttpEdit {
    config: Config,
    totals: WorkerCounters<{ COUNTS.len() }>,
    causes: CauseCounters,
    refused: DropReason,
}

/// A direction of a session.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
struct Side {
    /// Bytes that wait.
    held: u32,
    /// The [`Treatment`] of the body that is being read.
    treatment: u8,
    /// What has happened to the message: see [`mark`].
    marks: u8,
    /// With [`mark::DECODES`], the number of a decoder. Else what the bytes wait for: [`wait`], or how many
    /// bytes there have to be.
    word: u16,
}

/// Bits of [`Side::marks`].
mod mark {
    /// A body is being read, and neither a head nor trailers.
    pub const IN_BODY: u8 = 1 << 0;
    /// A part of the line has gone on.
    pub const LINE_CUT: u8 = 1 << 1;
    /// A part of the head has gone on.
    pub const HEAD_CUT: u8 = 1 << 2;
    /// The first byte of a body that waits was decoded.
    pub const IS_DECODED: u8 = 1 << 3;
    /// The body that is being read has a decoder.
    pub const DECODES: u8 = 1 << 4;
}

/// What bytes wait for.
mod wait {
    /// Bytes are read as they come.
    pub const ANY: u16 = 0;
    /// The end of a line.
    pub const LINE: u16 = 1;
    /// The end of a head: an empty line.
    pub const HEAD: u16 = 2;
}

impl Side {
    fn has(self, mark: u8) -> bool {
        self.marks & mark != 0
    }

    fn set(&mut self, mark: u8, is: bool) {
        self.marks = self.marks & !mark | if is { mark } else { 0 };
    }

    /// Returns what the bytes wait for.
    fn until(self) -> u16 {
        if self.has(mark::DECODES) { wait::ANY } else { self.word }
    }

    /// Notes what the bytes wait for. Encoded bytes wait for any others.
    fn set_until(&mut self, until: u16) {
        if !self.has(mark::DECODES) {
            self.word = until;
        }
    }

    /// Returns the decoder of the body that is being read. 0: none.
    fn decoder(self) -> u16 {
        if self.has(mark::DECODES) { self.word } else { 0 }
    }

    /// Notes the decoder of the body. 0: it has none.
    fn set_decoder(&mut self, number: u16) {
        self.set(mark::DECODES, number != 0);
        self.word = number;
    }

    /// Forgets the decoder. Returns its number. 0: there was none.
    fn take_decoder(&mut self) -> u16 {
        let number = self.decoder();
        if number != 0 {
            self.set_decoder(0);
        }
        number
    }
}

/// A session.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct State {
    /// As it is in front of what waits.
    connection: Connection,
    sides: [Side; 2],
}

impl State {
    fn close_decoders(&mut self, scratch: &mut Scratch) {
        self.sides.iter_mut().for_each(|side| scratch.decoders.close(side.take_decoder()));
    }
}

impl StreamFunction for HttpEdit {
    const TYPE: &'static str = "http-edit";
    const USAGE: &'static str = config::USAGE;
    const HELP: &'static str = "changes headers, paths and bodies of HTTP messages";
    const DROP_REASONS: &'static [(&'static str, &'static str)] =
        &[("http-unedited", "a function `http-edit` has reset a connection that it cannot read or edit")];
    const EDITS: bool = true;

    type State = State;
    type Local = Scratch;

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        Ok(HttpEdit {
            config: Config::parse(setup)?,
            totals: WorkerCounters::new(setup.workers),
            causes: CauseCounters::new(setup.workers),
            refused: setup.drop_reason("http-unedited"),
        })
    }

    fn local(&self) -> Scratch {
        Scratch::new(&self.config)
    }

    fn accepts(&self) -> String {
        "tcp-sport".to_owned()
    }

    fn open(&self, state: &mut State, session: &SessionInfo, cx: &mut Context<'_, Scratch>) {
        if has_joined(session, cx.now) {
            self.give_up(Cause::Joined, state, cx.worker);
        }
    }

    fn edit(
        &self,
        data: &mut StreamEdit<'_, '_>,
        state: &mut State,
        cx: &mut Context<'_, Scratch>,
    ) -> StreamVerdict {
        let direction = data.direction() as usize;
        let side = state.sides[direction];
        if data.held() != side.held as usize {
            // Bytes that waited have gone on, or are lost.
            self.totals.add(cx.worker, Count::Lost as usize, 1);
            return StreamVerdict::Reset(self.refused);
        }
        if state.connection.given_up().is_some() {
            state.sides[direction].held = 0;
            return StreamVerdict::Detach;
        }
        if !data.can_resize() {
            self.totals.add(cx.worker, Count::NotEditable as usize, 1);
            state.connection.give_up(Cause::Joined);
            return StreamVerdict::Detach;
        }
        let is_ready = direction == 0 && state.connection.is_in_preface() || is_decidable(data, side.until());
        if data.can_hold() && !is_ready && data.hold_from(0) {
            state.sides[direction].held = data.len() as u32;
            return StreamVerdict::Pass;
        }
        let mut joined = std::mem::take(&mut cx.local.joined);
        let verdict = self.edit_bytes(data.joined(&mut joined), data, state, cx);
        cx.local.joined = joined;
        verdict
    }

    fn end(&self, direction: Direction, state: &mut State, cx: &mut Context<'_, Scratch>) -> StreamVerdict {
        if let Some(Event::Invalid(cause)) = state.connection.end(direction as usize) {
            self.causes.count(cx.worker, cause);
        }
        let number = state.sides[direction as usize].take_decoder();
        let decoders = &mut cx.local.decoders;
        let Some((result, has_garbage)) =
            decoders.get(number).map(|decoder| (decoder.end(), decoder.has_garbage()))
        else {
            return StreamVerdict::Pass;
        };
        decoders.close(number);
        self.totals.add(cx.worker, Count::Garbage as usize, has_garbage.into());
        result.map_or_else(|error| self.refuse_body(error, cx.worker), |()| StreamVerdict::Pass)
    }

    fn restart(&self, state: &mut State, cx: &mut Context<'_, Scratch>) {
        state.close_decoders(cx.local);
        *state = State::zeroed();
    }

    fn release(&self, state: &mut State, _: &SessionInfo, cx: &mut Context<'_, Scratch>) {
        state.close_decoders(cx.local);
    }

    fn request_headers(&self) -> Vec<Box<[u8]>> {
        let added = self.config.headers[0].added.iter().map(|(name, _)| name.clone());
        added.chain(self.config.adds_encoding().then(|| (*b"Accept-Encoding").into())).collect()
    }

    /// The rest of a body would come in chunks of the sender, or encoded.
    fn refuses(&self, state: &State) -> bool {
        state.sides.iter().any(|side| Treatment::of(side.treatment).has_chunks() || side.decoder() != 0)
    }

    fn describe(&self, state: &State) -> Option<String> {
        Some(match state.connection.given_up() {
            Some(cause) => format!("not read: {}", cause.name()),
            None => {
                let [requests, responses] = state.sides.map(|side| side.held);
                let unanswered = state.connection.unanswered();
                format!("{unanswered} requests without response, bytes that wait {requests}/{responses}")
            }
        })
    }

    fn report(&self) -> Vec<(String, String)> {
        let counted = COUNTS.iter().enumerate().map(|(which, one)| (one, self.totals.sum(which)));
        let shown = counted.filter(|((_, is_shown), count)| *is_shown || *count != 0);
        let shown = shown.map(|((name, _), count)| ((*name).to_owned(), count.to_string()));
        shown
            .chain(self.causes.report(if self.config.passes_errors { "not read" } else { "rejected" }))
            .collect()
    }
}

impl HttpEdit {
    fn edit_bytes(
        &self,
        bytes: &[u8],
        data: &mut StreamEdit<'_, '_>,
        state: &mut State,
        cx: &mut Context<'_, Scratch>,
    ) -> StreamVerdict {
        let direction = data.direction() as usize;
        let key = if self.config.names_addresses() { forward_key(data.packet()) } else { None };
        let mut reader = Reader::new(
            (&self.config, bytes, &mut *cx.local),
            (direction, data.can_hold()),
            (state.connection, state.sides[direction]),
            key,
        );
        let read = reader.read();
        // A decoder that was given back is not given back again when the session ends.
        state.sides[direction].set_decoder(reader.side.decoder());
        let hold = match read {
            Ok(hold) => hold,
            Err(ReadError::Body(error)) => return self.refuse_body(error, cx.worker),
            Err(ReadError::Http(cause)) => {
                let has_chunks = Treatment::of(reader.side.treatment).has_chunks();
                self.causes.count(cx.worker, cause);
                let passes = cause.is_opaque()
                    || self.config.passes_errors && !has_chunks && reader.side.decoder() == 0;
                if !passes {
                    return StreamVerdict::Reset(self.refused);
                }
                reader.connection.give_up(cause);
                bytes.len()
            }
        };
        let Reader { connection, side, counts, scratch, .. } = reader;
        if scratch.plan.apply(bytes, data).is_err() || hold < bytes.len() && !data.hold_from(hold) {
            self.totals.add(cx.worker, Count::Lost as usize, 1);
            return StreamVerdict::Reset(self.refused);
        }
        if hold < bytes.len() {
            read_again(&mut state.connection, direction, bytes.get(..hold).unwrap_or(&[]));
        } else {
            state.connection = connection;
        }
        state.sides[direction] = Side { held: (bytes.len() - hold) as u32, ..side };
        let counted = counts.0.iter().enumerate().filter(|(_, count)| **count != 0);
        counted.for_each(|(which, &count)| self.totals.add(cx.worker, which, count));
        StreamVerdict::Pass
    }

    /// A body cannot be decoded. Its head has gone on, and says that it is not encoded.
    #[cold]
    fn refuse_body(&self, error: DecodeError, worker: u16) -> StreamVerdict {
        let count = match error {
            DecodeError::Corrupt => Count::Corrupt,
            DecodeError::Truncated => Count::Truncated,
            DecodeError::TooLarge => Count::TooLarge,
            DecodeError::Memory => Count::Memory,
        };
        self.totals.add(worker, count as usize, 1);
        StreamVerdict::Reset(self.refused)
    }

    fn give_up(&self, cause: Cause, state: &mut State, worker: u16) {
        self.causes.count(worker, cause);
        state.connection.give_up(cause);
    }
}

/// Whether something can be decided about bytes that wait for something. They are read again as a whole, so
/// that each byte for itself would cost as much as all in front of it.
fn is_decidable(data: &StreamEdit<'_, '_>, until: u16) -> bool {
    match until {
        wait::ANY => return true,
        wait::LINE | wait::HEAD => {}
        bytes => return data.len() >= usize::from(bytes),
    }
    // Limits of lines and heads are noticed now and then.
    if data.len() / MOST_WAITING != data.held() / MOST_WAITING {
        return true;
    }
    if becomes_http2(data) {
        return true;
    }
    let (mut at, mut has_line) = (0, until == wait::LINE);
    for chunk in data.chunks() {
        // An empty line may begin in front of the new bytes.
        let skip = data.held().saturating_sub(2).saturating_sub(at).min(chunk.len());
        for (n, &byte) in chunk.iter().enumerate().skip(skip) {
            match byte {
                b'\n' if has_line && at + n >= data.held() => return true,
                b'\n' => has_line = true,
                b'\r' => {}
                _ => has_line = until == wait::LINE,
            }
        }
        at += chunk.len();
    }
    false
}

/// Whether the preface of HTTP/2 (RFC 9113, 3.4) is complete with the new bytes, as far as it is read.
/// Its head would wait while the server answers, and the answer is none to a request.
fn becomes_http2(data: &StreamEdit<'_, '_>) -> bool {
    let mut bytes = data.chunks().flatten().zip(1..).skip_while(|(byte, _)| matches!(byte, b'\r' | b'\n'));
    let mut end = 0;
    for expected in HTTP2 {
        match bytes.next() {
            Some((byte, behind)) if byte == expected => end = behind,
            _ => return false,
        }
    }
    end > data.held()
}

/// Reads bytes that were accepted before.
fn read_again(connection: &mut Connection, direction: usize, mut bytes: &[u8]) {
    loop {
        let (len, event) = connection.next(direction, bytes);
        bytes = bytes.get(len..).unwrap_or(&[]);
        if let Event::More | Event::Opaque(_) | Event::Invalid(_) = event {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
