//! `http-log`: a line for each HTTP request and its response.
//!
//! Theory of operation. What is known of a request lies in a record of the worker's slab, whose memory is
//! reserved when the instance is made. The records of a session are a list in the order of the requests,
//! since responses come in that order. When a response is complete, its record goes to a thread that writes
//! the line. A session that finds no room is not read, and counted.

mod line;
mod record;

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use mmb_http::{Cause, Connection, Element, Event, Head};

use self::line::{Format, line};
use self::record::{NAMES, Record, Records};
use crate::shared::export_queue::ExportQueue;
use crate::shared::http::{CauseCounters, has_joined};
use crate::shared::line_log::LineLog;
use crate::shared::log_file::LogFile;
use mmb_flow::parse_key;
use mmb_nf::{
    ArgError, Background, Context, Direction, LineSource, SessionInfo, Setup, StreamData, StreamFunction,
    StreamVerdict, WorkerCounters,
};

/// Records that wait for the thread, for each worker.
const QUEUE: usize = 4096;
/// Most lines of a process in a second.
const LINES_PER_SECOND: u32 = 100_000;

const REQUESTS: usize = 0;
const RESPONSES: usize = 1;
const NO_ROOM: usize = 2;

/// See the module's documentation.
pub(crate) struct HttpLog {
    totals: WorkerCounters<3>,
    causes: CauseCounters,
    finished: Arc<LineLog<Record>>,
}

/// A session.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct State {
    connection: Connection,
    /// The record of the first request without a complete response. 0: none.
    first: u16,
    /// The record of the last such request.
    last: u16,
    /// The record of the request that is being read. 0: none.
    reading: u16,
    /// The final response to the first request is being read.
    is_answer: u16,
}

impl StreamFunction for HttpLog {
    const TYPE: &'static str = "http-log";
    const USAGE: &'static str = "[common|combined|json] [file PATH]";
    const HELP: &'static str = "writes a line for each HTTP request and its response";

    type State = State;
    type Local = Records;

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let (mut format, mut file) = (Format::Combined, LogFile::default());
        let mut words = setup.args;
        while let [word, rest @ ..] = words {
            words = match (*word, rest) {
                ("file", [path, rest @ ..]) => {
                    file = LogFile::at(path, setup.files)?;
                    rest
                }
                ("file", []) => return Err(ArgError::missing("file", "a path")),
                (word, rest) => {
                    let usage = || format!("unknown argument `{word}`: `http-log` takes {}", Self::USAGE);
                    format = Format::of(word).ok_or_else(usage)?;
                    rest
                }
            };
        }
        let queue = ExportQueue::with_room(setup.workers, QUEUE);
        let finished = LineLog::new(queue, file, LINES_PER_SECOND, move |text, times, record: &Record| {
            line(text, format, times.of(record.begin), record);
            true
        });
        Ok(HttpLog {
            totals: WorkerCounters::new(setup.workers),
            causes: CauseCounters::new(setup.workers),
            finished,
        })
    }

    fn accepts(&self) -> String {
        "tcp-sport".to_owned()
    }

    fn open(&self, state: &mut State, session: &SessionInfo, cx: &mut Context<'_, Records>) {
        if has_joined(session, cx.now) {
            self.give_up(Cause::Joined, state, cx);
        }
    }

    fn data(
        &self,
        data: &StreamData<'_, '_>,
        state: &mut State,
        cx: &mut Context<'_, Records>,
    ) -> StreamVerdict {
        let direction = data.direction() as usize;
        for mut bytes in data.chunks() {
            loop {
                let (len, event) = state.connection.next(direction, bytes);
                bytes = bytes.get(len..).unwrap_or(&[]);
                match (direction, event) {
                    (_, Event::More | Event::Opaque(_)) => break,
                    (_, Event::Invalid(cause)) => self.give_up(cause, state, cx),
                    (0, event) => self.request(&event, data, state, cx),
                    (_, event) => self.response(&event, state, cx),
                }
            }
        }
        match state.connection.given_up() {
            Some(_) => StreamVerdict::Detach,
            None => StreamVerdict::Pass,
        }
    }

    fn end(&self, direction: Direction, state: &mut State, cx: &mut Context<'_, Records>) -> StreamVerdict {
        match state.connection.end(direction as usize) {
            Some(Event::Invalid(cause)) => self.give_up(cause, state, cx),
            Some(event) if direction == Direction::Reverse => self.response(&event, state, cx),
            _ => {}
        }
        StreamVerdict::Pass
    }

    fn restart(&self, state: &mut State, cx: &mut Context<'_, Records>) {
        self.flush(state, cx);
        *state = State::zeroed();
    }

    fn release(&self, state: &mut State, _: &SessionInfo, cx: &mut Context<'_, Records>) {
        self.flush(state, cx);
    }

    fn describe(&self, state: &State) -> Option<String> {
        Some(match state.connection.given_up() {
            Some(cause) => format!("not read: {}", cause.name()),
            None => format!("{} requests without response", state.connection.unanswered()),
        })
    }

    fn report(&self) -> Vec<(String, String)> {
        let mut names = vec![("requests", REQUESTS), ("responses", RESPONSES)];
        if self.totals.sum(NO_ROOM) != 0 {
            names.push(("connections without room", NO_ROOM));
        }
        let counted = names.into_iter().map(|(name, which)| (name.to_owned(), self.totals.sum(which)));
        let counted = counted.map(|(name, count)| (name, count.to_string()));
        counted.chain(self.causes.report("not read")).chain(self.finished.report()).collect()
    }

    fn background(&self) -> Option<Background> {
        Some(self.finished.background())
    }

    fn lines(&self) -> Option<Arc<dyn LineSource>> {
        Some(self.finished.clone())
    }
}

impl HttpLog {
    /// An event of the requests.
    fn request(
        &self,
        event: &Event<'_>,
        data: &StreamData<'_, '_>,
        state: &mut State,
        cx: &mut Context<'_, Records>,
    ) {
        if state.reading == 0 && matches!(event, Event::Bytes(Element::Method, _)) {
            let packet = data.packet();
            let key = parse_key(packet.head, packet.meta).ok();
            match key.and_then(|key| cx.local.insert(key, cx.now)) {
                Some(number) => state.reading = number,
                None => {
                    self.totals.add(cx.worker, NO_ROOM, 1);
                    self.flush(state, cx);
                    return state.connection.give_up(Cause::None);
                }
            }
        }
        let Some(record) = cx.local.get(state.reading) else { return };
        match event {
            Event::Bytes(Element::Body, bytes) => record.request_bytes += bytes.len() as u64,
            Event::Head(head) => {
                record.minor = head.minor;
                self.totals.add(cx.worker, REQUESTS, 1);
                match cx.local.get(state.last) {
                    Some(last) => last.next = state.reading,
                    None => state.first = state.reading,
                }
                state.last = state.reading;
            }
            Event::Done => state.reading = 0,
            event => record.head.push(&NAMES, event),
        }
    }

    /// An event of the responses.
    fn response(&self, event: &Event<'_>, state: &mut State, cx: &mut Context<'_, Records>) {
        let Some(record) = cx.local.get(state.first) else { return };
        match event {
            Event::Head(head) if head.is_interim() || head.request.is_none() => {}
            Event::Head(Head { status, .. }) => {
                (record.status, state.is_answer) = (*status, 1);
                if state.connection.given_up().is_some() {
                    // The protocol is another one from here on.
                    self.causes.count(cx.worker, Cause::Switched);
                    self.finish(state, cx);
                }
            }
            Event::Bytes(Element::Body, bytes) if state.is_answer != 0 => {
                record.response_bytes += bytes.len() as u64;
            }
            Event::Done if state.is_answer != 0 => {
                record.is_complete = true;
                self.finish(state, cx);
            }
            _ => {}
        }
    }

    /// The response to the first request is complete, or will not be.
    fn finish(&self, state: &mut State, cx: &mut Context<'_, Records>) {
        let number = state.first;
        let Some(record) = cx.local.get(number) else { return };
        self.totals.add(cx.worker, RESPONSES, u64::from(record.status != 0));
        record.end = cx.now;
        state.first = record.next;
        if state.first == 0 {
            state.last = 0;
        }
        if state.reading == number {
            // The rest of its body is not counted.
            state.reading = 0;
        }
        state.is_answer = 0;
        self.finished.put(cx.worker, cx.now, record.clone());
        cx.local.remove(number);
    }

    /// Logs all requests as they are. A request whose head is not complete is forgotten.
    fn flush(&self, state: &mut State, cx: &mut Context<'_, Records>) {
        let reading = state.reading;
        let mut is_listed = false;
        while state.first != 0 {
            is_listed |= state.first == reading;
            self.finish(state, cx);
        }
        if !is_listed {
            cx.local.remove(reading);
        }
        state.reading = 0;
    }

    /// The connection is not read any more.
    fn give_up(&self, cause: Cause, state: &mut State, cx: &mut Context<'_, Records>) {
        self.causes.count(cx.worker, cause);
        self.flush(state, cx);
        state.connection.give_up(cause);
    }
}

#[cfg(test)]
mod tests;
