//! `match`: patterns in streams.
//!
//! Theory of operation. A scanner of the worker reads each chunk once ([`mmb_search`]). What it has to know
//! between two chunks of a stream is in a slot of its memory; the session's scratchpad has the number. A
//! stream is opened with its first byte. Matches are counted by pattern. Lines of the log are limited, and go
//! to a thread that writes them.
//!
//! After a reload ([`patterns`]), a stream goes on with the next chunk and the new set: it is opened anew,
//! and what had begun to match in front of it is forgotten.

mod bodies;
mod coding;
mod config;
mod depth;
mod edit;
mod line;
mod patterns;

#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytemuck::{Pod, Zeroable};
use mmb_search::{Match, OnMatch, Scan, StreamNumber};

pub(crate) use self::bodies::BodyMatch;
use self::config::{Action, Config, Source};
use self::depth::Depth;
pub(crate) use self::edit::PatternEdit;
use self::line::{Occurrence, line};
use self::patterns::{Patterns, Room, SearchParts, WorkerPart};
use crate::shared::direction::DirectionFilter;
use crate::shared::export_queue::ExportQueue;
use crate::shared::http::forward_key;
use crate::shared::line_log::LineLog;
use mmb_nf::{
    ArgError, Background, Context, Direction, DropReason, LineSource, SessionInfo, Setup, StreamData,
    StreamFunction, StreamVerdict, WorkerCounters,
};

/// Most lines of a worker in a second.
const LINES_PER_SECOND: u32 = 100;
/// Patterns that `show functions` prints.
const TOP: usize = 10;
/// Number of a stream for which there was no room. No scanner knows it.
const NOT_SEARCHED: u32 = u32::MAX;

const MATCHES: usize = 0;
const SESSIONS: usize = 1;
const NO_ROOM: usize = 2;
const NO_LINE: usize = 3;

/// Whether the arguments are those of [`PatternEdit`].
pub(crate) fn is_edit(args: &[&str]) -> bool {
    config::EditConfig::applies(args)
}

/// Whether the arguments are those of [`BodyMatch`].
pub(crate) fn reads_bodies(args: &[&str]) -> bool {
    !is_edit(args) && Config::reads_bodies(args)
}

/// See the module's documentation.
pub(crate) struct PatternMatch {
    patterns: Patterns,
    source: Source,
    action: Action,
    which: DirectionFilter,
    depth: Depth,
    totals: WorkerCounters<4>,
    events: Arc<LineLog<Event>>,
}

/// What goes to the thread of the instance.
enum Event {
    Occurrence(Occurrence),
    /// To be freed there.
    Retired(#[expect(dead_code, reason = "dropped")] WorkerPart),
}

/// The state of a session.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct State {
    /// Bytes of each stream.
    read: [u64; 2],
    /// Bytes of each stream in front of those that its scanner has read.
    before: [u64; 2],
    /// Numbers of the streams. 0: not open.
    streams: [u32; 2],
    /// The generation of the set that the numbers belong to.
    generation: u32,
    /// A bit for each stream that has ended, or of which no more is searched.
    ended: u32,
}

/// Where bytes are.
#[derive(Clone, Copy)]
struct Place {
    direction: Direction,
    is_in_body: bool,
    now: u32,
    worker: u16,
}

/// A search of a stream.
struct Search<'a, 'b> {
    scan: &'a mut dyn Scan,
    stream: StreamNumber,
    on_match: &'a mut OnMatch<'b>,
}

/// What a worker has.
#[derive(Default)]
pub(crate) struct Worker {
    part: Option<WorkerPart>,
    lines: LineLimit,
}

/// Limits lines to a number in each second.
#[derive(Default)]
struct LineLimit {
    second: u32,
    lines: u32,
}

impl LineLimit {
    /// Whether there may be one more line. `now`: milliseconds.
    fn take(&mut self, now: u32) -> bool {
        let second = now / 1000;
        if self.second != second {
            *self = LineLimit { second, lines: 0 };
        }
        self.lines += 1;
        self.lines <= LINES_PER_SECOND
    }
}

impl StreamFunction for PatternMatch {
    const TYPE: &'static str = "match";
    const USAGE: &'static str = Config::USAGE;
    const HELP: &'static str = Config::HELP;

    type State = State;
    type Local = Worker;

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let Config { source, action, which, depth, log, streams } = Config::parse(setup)?;
        let queue = ExportQueue::new(setup.workers);
        let events = LineLog::new(queue, log, LINES_PER_SECOND, move |text, times, event| {
            let Event::Occurrence(found) = event else { return false };
            line(text, times.of(found.at), found, action);
            true
        });
        Ok(PatternMatch {
            patterns: Patterns::new(&source, Room { workers: setup.workers, streams })?,
            source,
            action,
            which,
            depth,
            totals: WorkerCounters::new(setup.workers),
            events,
        })
    }

    fn data(
        &self,
        data: &StreamData<'_, '_>,
        state: &mut State,
        cx: &mut Context<'_, Worker>,
    ) -> StreamVerdict {
        if !self.which.is(data.direction()) {
            return StreamVerdict::Pass;
        }
        let place = Place { direction: data.direction(), is_in_body: false, now: cx.now, worker: cx.worker };
        let verdict = self.read((data.chunks(), data.len()), data, state, cx.local, place);
        if verdict != StreamVerdict::Pass { verdict } else { self.depth_verdict(state) }
    }

    fn end(&self, direction: Direction, state: &mut State, cx: &mut Context<'_, Worker>) -> StreamVerdict {
        let place = Place { direction, is_in_body: false, now: cx.now, worker: cx.worker };
        state.ended |= 1 << direction as u32;
        let verdict = self.finish(state, cx.local, place);
        if verdict != StreamVerdict::Pass { verdict } else { self.depth_verdict(state) }
    }

    fn restart(&self, state: &mut State, cx: &mut Context<'_, Worker>) {
        close(state, cx.local);
        *state = Zeroable::zeroed();
    }

    fn release(&self, state: &mut State, _: &SessionInfo, cx: &mut Context<'_, Worker>) {
        close(state, cx.local);
    }

    fn describe(&self, state: &State) -> Option<String> {
        let [forward, reverse] = state.read;
        let is_searched = !state.streams.contains(&NOT_SEARCHED);
        Some(format!("{forward}/{reverse} bytes{}", if is_searched { "" } else { ", no room to search" }))
    }

    fn set(&self, args: &[&str]) -> Result<(), ArgError> {
        self.source.check_reload(args)?;
        self.patterns.reload(&self.source)
    }

    fn report(&self) -> Vec<(String, String)> {
        let compiled = self.patterns.current();
        let patterns = compiled.set.patterns();
        let engine = format!(
            "{}, {} bytes for each stream",
            compiled.set.backend().name(),
            compiled.set.stream_bytes()
        );
        let mut report = vec![
            ("patterns".to_owned(), patterns.len().to_string()),
            ("engine".to_owned(), engine),
            ("matches".to_owned(), self.totals.sum(MATCHES).to_string()),
        ];
        let mut count =
            |name: &str, which| report.push((name.to_owned(), self.totals.sum(which).to_string()));
        match self.action {
            Action::Alert => {}
            Action::Close => count("closed sessions", SESSIONS),
            Action::Reset => count("reset sessions", SESSIONS),
        }
        for (name, which) in [("streams without room", NO_ROOM), ("matches without a line", NO_LINE)] {
            if self.totals.sum(which) != 0 {
                count(name, which);
            }
        }
        let mut top: Vec<_> =
            patterns.iter().zip(compiled.counts()).filter(|(_, count)| *count != 0).collect();
        top.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let top = top.into_iter().take(TOP);
        report.extend(top.map(|(pattern, count)| (format!("pattern {:?}", pattern.text), count.to_string())));
        report.extend(self.events.report());
        report
    }

    fn background(&self) -> Option<Background> {
        Some(self.events.background())
    }

    fn lines(&self) -> Option<Arc<dyn LineSource>> {
        Some(self.events.clone())
    }
}

impl PatternMatch {
    /// Searches the next bytes of a stream. Returns what becomes of the session.
    #[inline(always)]
    fn read<'b>(
        &self,
        (chunks, len): (impl Iterator<Item = &'b [u8]>, usize),
        data: &StreamData<'_, '_>,
        state: &mut State,
        local: &mut Worker,
        place: Place,
    ) -> StreamVerdict {
        let at = place.direction as usize;
        let start = state.read[at];
        state.read[at] = start + len as u64;
        let mut left = self.depth.left(start);
        if left == 0 {
            return StreamVerdict::Pass;
        }
        self.renew(local, place);
        let Worker { part: Some(part), lines } = local else { return self.full(place.worker) };
        if state.generation != part.generation {
            // Their slots went with the scanner that they belonged to.
            (state.streams, state.generation) = ([0; 2], part.generation);
        }
        if state.streams[at] == 0 {
            let Some(stream) = part.open(forward_key(data.packet())) else {
                state.streams[at] = NOT_SEARCHED;
                return self.full(place.worker);
            };
            (state.streams[at], state.before[at]) = (stream.get(), start);
        }
        let mut chunks = chunks;
        let verdict = self.search(part, (state.streams[at], state.before[at]), lines, &place, |search| {
            chunks.try_for_each(|chunk| {
                let chunk = &chunk[..chunk.len().min(left)];
                left -= chunk.len();
                search.scan.scan(search.stream, chunk, search.on_match)
            })
        });
        if verdict == StreamVerdict::Pass
            && self.depth.left(state.read[at]) == 0
            && let Some(stream) = StreamNumber::new(std::mem::take(&mut state.streams[at]))
        {
            part.close(stream);
        }
        verdict
    }

    /// The verdict on bytes that go on: a function that searches none of the following ones detaches.
    #[inline(always)]
    fn depth_verdict(&self, state: &State) -> StreamVerdict {
        self.depth.verdict(self.which, state.read, state.ended)
    }

    /// A stream has ended. Returns what becomes of the session.
    fn finish(&self, state: &State, local: &mut Worker, place: Place) -> StreamVerdict {
        let at = place.direction as usize;
        let Worker { part, lines } = local;
        let Some(part) = part.as_mut().filter(|part| part.generation == state.generation) else {
            return StreamVerdict::Pass;
        };
        self.search(part, (state.streams[at], state.before[at]), lines, &place, |search| {
            search.scan.finish(search.stream, search.on_match)
        })
    }

    /// If another set is in force, the worker takes its scanner.
    #[inline(always)]
    fn renew(&self, local: &mut Worker, place: Place) {
        let generation = self.patterns.generation();
        if local.part.as_ref().is_none_or(|part| part.generation != generation) {
            self.exchange(local, place);
        }
    }

    #[cold]
    fn exchange(&self, local: &mut Worker, place: Place) {
        if let Some(part) = self.patterns.take(place.worker)
            && let Some(retired) = local.part.replace(part)
        {
            self.events.put(place.worker, place.now, Event::Retired(retired));
        }
    }

    /// There is no room for a stream. Who only observes does not interfere.
    #[cold]
    fn full(&self, worker: u16) -> StreamVerdict {
        self.totals.add(worker, NO_ROOM, 1);
        if self.action == Action::Alert { StreamVerdict::Pass } else { StreamVerdict::NoRoom }
    }

    /// Runs a search of a stream, and notes what it finds. Returns what becomes of the session. `before`:
    /// bytes of the stream in front of those that its scanner has read.
    #[inline(always)]
    fn search(
        &self,
        part: &mut WorkerPart,
        (number, before): (u32, u64),
        lines: &mut LineLimit,
        place: &Place,
        run: impl FnOnce(Search<'_, '_>) -> ControlFlow<()>,
    ) -> StreamVerdict {
        let Some(stream) = StreamNumber::new(number) else { return StreamVerdict::Pass };
        let Some(SearchParts { scan, compiled, counts, keys }) = part.parts() else {
            return StreamVerdict::Pass;
        };
        let mut on_match = |one: Match| {
            self.totals.add(place.worker, MATCHES, 1);
            if let Some(count) = counts.get(one.pattern as usize) {
                count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            }
            if lines.take(place.now) {
                let key = keys.get(number as usize).copied().flatten();
                let Place { direction, is_in_body, now: at, .. } = *place;
                let (compiled, pattern, end) = (compiled.clone(), one.pattern, before + one.end);
                let found = Occurrence { compiled, pattern, key, direction, end, is_in_body, at };
                self.events.put(place.worker, place.now, Event::Occurrence(found));
            } else {
                self.totals.add(place.worker, NO_LINE, 1);
            }
            if self.action == Action::Alert { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        if run(Search { scan, stream, on_match: &mut on_match }).is_continue() {
            return StreamVerdict::Pass;
        }
        self.totals.add(place.worker, SESSIONS, 1);
        match self.action {
            Action::Alert => StreamVerdict::Pass,
            Action::Close => StreamVerdict::Close(DropReason::Match),
            Action::Reset => StreamVerdict::Reset(DropReason::Match),
        }
    }
}

/// Closes the streams of a session.
fn close(state: &mut State, local: &mut Worker) {
    let part = local.part.as_mut().filter(|part| part.generation == state.generation);
    if let Some(part) = part {
        state.streams.into_iter().filter_map(StreamNumber::new).for_each(|stream| part.close(stream));
    }
    state.streams = [0; 2];
}
