//! `match`: patterns in streams.
//!
//! Theory of operation. A scanner of the worker reads each chunk once ([`mmb_search`]). What it has to know
//! between two chunks of a stream is in a slot of its memory; the session's scratchpad has the number. A
//! stream is opened with its first byte. Matches are counted by pattern. Lines of the log are limited, and go
//! to a thread that writes them.
//!
//! After a reload ([`patterns`]), a stream goes on with the next chunk and the new set: it is opened anew,
//! and what had begun to match in front of it is forgotten.

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

use self::config::{Action, Config, Source};
use self::depth::Depth;
pub(crate) use self::edit::PatternEdit;
use self::line::{Occurrence, line};
use self::patterns::{Patterns, Room, SearchParts, WorkerPart};
use crate::shared::direction::DirectionFilter;
use crate::shared::export_queue::ExportQueue;
use crate::shared::http::forward_key;
use crate::shared::log_file::LogFile;
use mmb_nf::{
    ArgError, Background, Context, Direction, DropReason, SessionInfo, Setup, StreamData, StreamFunction,
    StreamVerdict, WorkerCounters,
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

/// See the module's documentation.
pub(crate) struct PatternMatch {
    patterns: Patterns,
    source: Source,
    action: Action,
    which: DirectionFilter,
    depth: Depth,
    file: LogFile,
    totals: WorkerCounters<4>,
    events: Arc<ExportQueue<Event>>,
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
struct Place {
    direction: Direction,
    /// Bytes of the stream in front of those that its scanner has read.
    before: u64,
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
        Ok(PatternMatch {
            patterns: Patterns::new(&source, Room { workers: setup.workers, streams })?,
            source,
            action,
            which,
            depth,
            file: log,
            totals: WorkerCounters::new(setup.workers),
            events: Arc::new(ExportQueue::new(setup.workers)),
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
        let at = data.direction() as usize;
        let start = state.read[at];
        state.read[at] = start + data.len() as u64;
        let mut left = self.depth.left(start);
        if left == 0 {
            return self.depth.verdict(self.which, state.read, state.ended);
        }
        self.renew(cx);
        let Worker { part: Some(part), lines } = &mut *cx.local else { return self.full(cx.worker) };
        if state.generation != part.generation {
            // Their slots went with the scanner that they belonged to.
            (state.streams, state.generation) = ([0; 2], part.generation);
        }
        if state.streams[at] == 0 {
            let Some(stream) = part.open(forward_key(data.packet())) else {
                state.streams[at] = NOT_SEARCHED;
                return self.full(cx.worker);
            };
            (state.streams[at], state.before[at]) = (stream.get(), start);
        }
        let place =
            Place { direction: data.direction(), before: state.before[at], now: cx.now, worker: cx.worker };
        let verdict = self.search(part, state.streams[at], lines, &place, |search| {
            data.chunks().try_for_each(|chunk| {
                let chunk = &chunk[..chunk.len().min(left)];
                left -= chunk.len();
                search.scan.scan(search.stream, chunk, search.on_match)
            })
        });
        if verdict != StreamVerdict::Pass || self.depth.left(state.read[at]) != 0 {
            return verdict;
        }
        if let Some(stream) = StreamNumber::new(std::mem::take(&mut state.streams[at])) {
            part.close(stream);
        }
        self.depth.verdict(self.which, state.read, state.ended)
    }

    fn end(&self, direction: Direction, state: &mut State, cx: &mut Context<'_, Worker>) -> StreamVerdict {
        let at = direction as usize;
        state.ended |= 1 << at;
        let Worker { part, lines } = &mut *cx.local;
        let Some(part) = part.as_mut().filter(|part| part.generation == state.generation) else {
            return StreamVerdict::Pass;
        };
        let place = Place { direction, before: state.before[at], now: cx.now, worker: cx.worker };
        self.search(part, state.streams[at], lines, &place, |search| {
            search.scan.finish(search.stream, search.on_match)
        })
    }

    fn restart(&self, state: &mut State, cx: &mut Context<'_, Worker>) {
        close(state, cx);
        *state = Zeroable::zeroed();
    }

    fn release(&self, state: &mut State, _: &SessionInfo, cx: &mut Context<'_, Worker>) {
        close(state, cx);
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
        let (events, file, action) = (Arc::clone(&self.events), self.file.clone(), self.action);
        Some(Box::new(move |stop| {
            events.serve(stop, |all| {
                let (mut text, mut lines) = (String::new(), 0);
                for (times, event) in &all {
                    if let Event::Occurrence(found) = event {
                        line(&mut text, times.of(found.at), found, action);
                        lines += 1;
                    }
                }
                if lines != 0 {
                    events.record(lines, file.append(&text));
                }
            });
        }))
    }
}

impl PatternMatch {
    /// If another set is in force, the worker takes its scanner.
    #[inline(always)]
    fn renew(&self, cx: &mut Context<'_, Worker>) {
        let generation = self.patterns.generation();
        if cx.local.part.as_ref().is_none_or(|part| part.generation != generation) {
            self.exchange(cx);
        }
    }

    #[cold]
    fn exchange(&self, cx: &mut Context<'_, Worker>) {
        if let Some(part) = self.patterns.take(cx.worker)
            && let Some(retired) = cx.local.part.replace(part)
        {
            self.events.put(cx.worker, cx.now, Event::Retired(retired));
        }
    }

    /// There is no room for a stream. Who only observes does not interfere.
    #[cold]
    fn full(&self, worker: u16) -> StreamVerdict {
        self.totals.add(worker, NO_ROOM, 1);
        if self.action == Action::Alert { StreamVerdict::Pass } else { StreamVerdict::NoRoom }
    }

    /// Runs a search of a stream, and notes what it finds. Returns what becomes of the session.
    #[inline(always)]
    fn search(
        &self,
        part: &mut WorkerPart,
        number: u32,
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
                let (end, direction, at) = (place.before + one.end, place.direction, place.now);
                let found =
                    Occurrence { compiled: compiled.clone(), pattern: one.pattern, key, direction, end, at };
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
fn close(state: &mut State, cx: &mut Context<'_, Worker>) {
    let part = cx.local.part.as_mut().filter(|part| part.generation == state.generation);
    if let Some(part) = part {
        state.streams.into_iter().filter_map(StreamNumber::new).for_each(|stream| part.close(stream));
    }
    state.streams = [0; 2];
}
