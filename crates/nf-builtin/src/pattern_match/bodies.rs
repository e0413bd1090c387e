//! `match … http-body`: patterns in the bodies of HTTP messages.
//!
//! Theory of operation. Both directions are read as HTTP/1.x. The content of a message, without the framing
//! of chunks, is a stream of the search of its own: `^` is its beginning, and `$` its end. Content with a
//! coding that is known is decoded first, a few bytes at a time, so that little memory is needed however much
//! it grows.
//!
//! What cannot be read as HTTP is searched as it comes, and so is a body that cannot be decoded: a message
//! with an error does not get past the search.

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use mmb_http::{Body, Cause, Connection, Element, Event};
use mmb_nf::{
    ArgError, Background, Context, Direction, LineSource, SessionInfo, Setup, StreamData, StreamFunction,
    StreamVerdict, WorkerCounters,
};

use super::coding::CodingReader;
use super::{PatternMatch, Place, State, Worker, close};
use crate::shared::content_coding::{DecodeError, Decoders, MOST_DECODED};
use crate::shared::http::{CauseCounters, has_joined};

/// Encoded bytes that are decoded at a time. With gzip, they mean at most a thousand times as many.
const PIECE: usize = 256;

const BODIES: usize = 0;
const DECODED: usize = 1;
const OTHER_CODING: usize = 2;
const NO_DECODER: usize = 3;
const NOT_DECODED: usize = 4;
const TOO_LARGE: usize = 5;
const NO_MEMORY: usize = 6;
const COUNTERS: [&str; 7] = [
    "bodies",
    "bodies decoded",
    "bodies not decoded: Content-Encoding",
    "bodies not decoded: too many are decoded",
    "bodies not decoded: corrupt data",
    "bodies not read to their end: they grow too much",
    "bodies not read to their end: too much memory",
];

/// What becomes of the content of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Content {
    /// It is searched, behind the decoder if there is one.
    Searched,
    /// The rest is not searched.
    Skipped,
}

/// See the module's documentation.
pub(crate) struct BodyMatch {
    search: PatternMatch,
    totals: WorkerCounters<{ COUNTERS.len() }>,
    causes: CauseCounters,
}

/// A session.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct BodyState {
    connection: Connection,
    /// Its streams are the bodies.
    search: State,
    codings: [CodingReader; 2],
    /// The decoders of the bodies that are being read. 0: none.
    decoders: [u16; 2],
    /// [`Content`] of the bodies that are being read.
    contents: [u8; 2],
    unused: [u8; 2],
}

/// What a worker has.
pub(crate) struct BodyWorker {
    worker: Worker,
    decoders: Decoders,
    decoded: Vec<u8>,
}

impl Default for BodyWorker {
    fn default() -> Self {
        BodyWorker { worker: Worker::default(), decoders: Decoders::new(0), decoded: Vec::new() }
    }
}

impl StreamFunction for BodyMatch {
    const TYPE: &'static str = PatternMatch::TYPE;
    const USAGE: &'static str = PatternMatch::USAGE;
    const HELP: &'static str = PatternMatch::HELP;

    type State = BodyState;
    type Local = BodyWorker;

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let search = PatternMatch::new(setup)?;
        let (totals, causes) = (WorkerCounters::new(setup.workers), CauseCounters::new(setup.workers));
        Ok(BodyMatch { search, totals, causes })
    }

    fn accepts(&self) -> String {
        "tcp-sport".to_owned()
    }

    fn open(&self, state: &mut BodyState, session: &SessionInfo, cx: &mut Context<'_, BodyWorker>) {
        if has_joined(session, cx.now) {
            self.causes.count(cx.worker, Cause::Joined);
            state.connection.give_up(Cause::Joined);
        }
    }

    fn data(
        &self,
        data: &StreamData<'_, '_>,
        state: &mut BodyState,
        cx: &mut Context<'_, BodyWorker>,
    ) -> StreamVerdict {
        for chunk in data.chunks() {
            let verdict = self.chunk(chunk, data, state, cx);
            if verdict != StreamVerdict::Pass {
                return verdict;
            }
        }
        StreamVerdict::Pass
    }

    fn end(
        &self,
        direction: Direction,
        state: &mut BodyState,
        cx: &mut Context<'_, BodyWorker>,
    ) -> StreamVerdict {
        if let Some(Event::Invalid(cause)) = state.connection.end(direction as usize) {
            self.causes.count(cx.worker, cause);
        }
        self.end_body(direction, state, cx)
    }

    fn restart(&self, state: &mut BodyState, cx: &mut Context<'_, BodyWorker>) {
        state.close(cx.local);
        *state = Zeroable::zeroed();
    }

    fn release(&self, state: &mut BodyState, _: &SessionInfo, cx: &mut Context<'_, BodyWorker>) {
        state.close(cx.local);
    }

    fn describe(&self, state: &BodyState) -> Option<String> {
        Some(match state.connection.given_up() {
            Some(cause) => format!("searched as it comes: {}", cause.name()),
            None => format!("{} requests without response", state.connection.unanswered()),
        })
    }

    fn set(&self, args: &[&str]) -> Result<(), ArgError> {
        self.search.set(args)
    }

    fn report(&self) -> Vec<(String, String)> {
        let counted = COUNTERS.iter().enumerate().map(|(which, name)| (which, name, self.totals.sum(which)));
        let shown = counted.filter(|(which, _, count)| *count != 0 || *which == BODIES);
        let shown = shown.map(|(_, name, count)| ((*name).to_owned(), count.to_string()));
        let mut report = self.search.report();
        report.extend(shown);
        report.extend(self.causes.report("not read"));
        report
    }

    fn background(&self) -> Option<Background> {
        self.search.background()
    }

    fn lines(&self) -> Option<Arc<dyn LineSource>> {
        self.search.lines()
    }
}

impl BodyState {
    fn close(&mut self, local: &mut BodyWorker) {
        close(&mut self.search, &mut local.worker);
        self.decoders.iter_mut().for_each(|decoder| local.decoders.close(std::mem::take(decoder)));
    }
}

impl BodyMatch {
    /// Reads bytes of a direction.
    fn chunk(
        &self,
        mut bytes: &[u8],
        data: &StreamData<'_, '_>,
        state: &mut BodyState,
        cx: &mut Context<'_, BodyWorker>,
    ) -> StreamVerdict {
        let direction = data.direction() as usize & 1;
        loop {
            let (len, event) = state.connection.next(direction, bytes);
            bytes = bytes.get(len..).unwrap_or(&[]);
            state.codings[direction].push(&event);
            let verdict = match event {
                Event::More => return StreamVerdict::Pass,
                Event::Bytes(Element::Body, content) => self.content(content, data, state, cx),
                Event::Opaque(content) => self.search((content, false), data, &mut state.search, cx),
                Event::Head(head) => {
                    if head.body == Body::Switched {
                        self.causes.count(cx.worker, Cause::Switched);
                    }
                    self.begin_body(direction, head.body.has_bytes(), state, cx);
                    StreamVerdict::Pass
                }
                Event::Done => self.end_body(data.direction(), state, cx),
                Event::Invalid(cause) => {
                    self.causes.count(cx.worker, cause);
                    state.connection.give_up(cause);
                    state.close(cx.local);
                    (state.search.read, state.codings) = ([0; 2], Zeroable::zeroed());
                    StreamVerdict::Pass
                }
                _ => StreamVerdict::Pass,
            };
            if verdict != StreamVerdict::Pass {
                return verdict;
            }
        }
    }

    /// A head is complete.
    fn begin_body(
        &self,
        direction: usize,
        has_body: bool,
        state: &mut BodyState,
        cx: &mut Context<'_, BodyWorker>,
    ) {
        let coding = state.codings[direction].end();
        state.contents[direction] = Content::Searched as u8;
        // The scanner has ended the stream of the body in front of it.
        (state.search.read[direction], state.search.before[direction]) = (0, 0);
        if !has_body {
            return;
        }
        self.totals.add(cx.worker, BODIES, 1);
        let Ok(coding) = coding else { return self.totals.add(cx.worker, OTHER_CODING, 1) };
        if let Some(coding) = coding {
            let decoder = cx.local.decoders.open(coding);
            self.totals.add(cx.worker, if decoder.is_some() { DECODED } else { NO_DECODER }, 1);
            state.decoders[direction] = decoder.unwrap_or(0);
        }
    }

    /// Reads content of a body.
    fn content(
        &self,
        content: &[u8],
        data: &StreamData<'_, '_>,
        state: &mut BodyState,
        cx: &mut Context<'_, BodyWorker>,
    ) -> StreamVerdict {
        let direction = data.direction() as usize & 1;
        if !self.search.which.is(data.direction()) || state.contents[direction] == Content::Skipped as u8 {
            return StreamVerdict::Pass;
        }
        let mut rest = content;
        while state.decoders[direction] != 0 && state.contents[direction] == Content::Searched as u8 {
            if rest.is_empty() {
                return StreamVerdict::Pass;
            }
            let (piece, behind) = rest.split_at(rest.len().min(PIECE));
            let mut decoded = std::mem::take(&mut cx.local.decoded);
            decoded.clear();
            let decoder = cx.local.decoders.get(state.decoders[direction]);
            let result = decoder.map(|decoder| decoder.decode(piece, &mut decoded, MOST_DECODED));
            let mut verdict = match decoded.is_empty() {
                true => StreamVerdict::Pass,
                false => self.search((&decoded, true), data, &mut state.search, cx),
            };
            cx.local.decoded = decoded;
            match result {
                Some(Err(error)) if verdict == StreamVerdict::Pass => {
                    verdict = self.not_decoded(error, direction, state, cx);
                }
                _ => rest = behind,
            }
            if verdict != StreamVerdict::Pass {
                return verdict;
            }
        }
        match state.contents[direction] == Content::Skipped as u8 {
            true => StreamVerdict::Pass,
            false => self.search((rest, true), data, &mut state.search, cx),
        }
    }

    /// A body cannot be decoded further.
    #[cold]
    fn not_decoded(
        &self,
        error: DecodeError,
        direction: usize,
        state: &mut BodyState,
        cx: &mut Context<'_, BodyWorker>,
    ) -> StreamVerdict {
        if matches!(error, DecodeError::TooLarge | DecodeError::Memory) {
            let counter = if error == DecodeError::TooLarge { TOO_LARGE } else { NO_MEMORY };
            self.totals.add(cx.worker, counter, 1);
            state.contents[direction] = Content::Skipped as u8;
            return self.search.full(cx.worker);
        }
        self.totals.add(cx.worker, NOT_DECODED, 1);
        cx.local.decoders.close(std::mem::take(&mut state.decoders[direction]));
        StreamVerdict::Pass
    }

    /// Searches bytes of a body, or bytes that are not HTTP.
    fn search(
        &self,
        (bytes, is_in_body): (&[u8], bool),
        data: &StreamData<'_, '_>,
        state: &mut State,
        cx: &mut Context<'_, BodyWorker>,
    ) -> StreamVerdict {
        if !self.search.which.is(data.direction()) {
            return StreamVerdict::Pass;
        }
        let place = Place { direction: data.direction(), is_in_body, now: cx.now, worker: cx.worker };
        self.search.read((std::iter::once(bytes), bytes.len()), data, state, &mut cx.local.worker, place)
    }

    /// A message is complete, or the stream has ended.
    fn end_body(
        &self,
        direction: Direction,
        state: &mut BodyState,
        cx: &mut Context<'_, BodyWorker>,
    ) -> StreamVerdict {
        let at = direction as usize & 1;
        let decoders = &mut cx.local.decoders;
        let number = std::mem::take(&mut state.decoders[at]);
        let is_read = state.contents[at] == Content::Searched as u8;
        let is_cut = is_read && decoders.get(number).is_some_and(|decoder| decoder.end().is_err());
        self.totals.add(cx.worker, NOT_DECODED, is_cut.into());
        decoders.close(number);
        let is_in_body = state.connection.given_up().is_none();
        let place = Place { direction, is_in_body, now: cx.now, worker: cx.worker };
        self.search.finish(&state.search, &mut cx.local.worker, place)
    }
}

#[cfg(test)]
mod tests;
