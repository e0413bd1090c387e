//! `digest`: the digest of each stream, compared with a set of known ones.
//!
//! Theory of operation. A digest in progress is larger than a scratchpad should be, so each worker has a slab
//! of them, and a session's scratchpad has a number in it. Its memory is reserved when the instance is made.
//! A session that finds no room is not digested, and counted. At the end of a stream the digest is looked up
//! in the set, and goes to a thread that writes a line.

mod known;
mod line;

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use self::known::KnownFile;
use self::line::line;
use crate::shared::direction::DirectionFilter;
use crate::shared::export_queue::ExportQueue;
use crate::shared::line_log::LineLog;
use crate::shared::log_file::LogFile;
use mmb_nf::{
    ArgError, Background, Context, Direction, Key, LineSource, SessionInfo, Setup, StreamData,
    StreamFunction, StreamVerdict, WorkerCounters,
};

/// Most sessions of a worker whose streams are digested at the same time.
const MOST_SESSIONS: usize = 65_536;
/// Most lines of a process in a second.
const LINES_PER_SECOND: u32 = 100_000;

const STREAMS: usize = 0;
const BYTES: usize = 1;
const KNOWN: usize = 2;
const NO_ROOM: usize = 3;

/// See the module's documentation.
pub(crate) struct Digest {
    algorithm: Algorithm,
    which: DirectionFilter,
    known: Option<KnownFile>,
    totals: WorkerCounters<4>,
    finished: Arc<LineLog<Finished>>,
}

/// The function that is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Sha256,
    Crc32c,
}

impl Algorithm {
    fn name(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "sha256",
            Algorithm::Crc32c => "crc32c",
        }
    }

    fn begin(self) -> Running {
        match self {
            Algorithm::Sha256 => Running::Sha256(Sha256::new()),
            Algorithm::Crc32c => Running::Crc32c(0),
        }
    }

    /// Returns the length of a digest in bytes.
    fn len(self) -> usize {
        match self {
            Algorithm::Sha256 => 32,
            Algorithm::Crc32c => 4,
        }
    }
}

/// A digest in progress.
#[derive(Clone, Debug)]
enum Running {
    Sha256(Sha256),
    Crc32c(u32),
}

/// A stream whose digest is in progress.
#[derive(Clone, Debug)]
struct Stream {
    running: Running,
    bytes: u64,
    is_finished: bool,
}

impl Stream {
    fn new(algorithm: Algorithm) -> Stream {
        Stream { running: algorithm.begin(), bytes: 0, is_finished: false }
    }

    fn update(&mut self, chunk: &[u8]) {
        match &mut self.running {
            Running::Sha256(state) => state.update(chunk),
            Running::Crc32c(sum) => *sum = crc32c::crc32c_append(*sum, chunk),
        }
    }
}

/// The digest of a stream that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    /// The digest, from the left. A CRC has its most significant byte first.
    digest: [u8; 32],
    algorithm: Algorithm,
    bytes: u64,
    direction: Direction,
    key: Key,
    at: u32,
    /// The stream has ended with a FIN.
    is_whole: bool,
    is_known: Option<bool>,
}

/// A session whose streams are digested.
struct Session {
    key: Key,
    streams: [Stream; 2],
}

/// The sessions of a worker.
pub(crate) struct Slab {
    sessions: Vec<Option<Session>>,
    free: Vec<u32>,
}

impl Default for Slab {
    fn default() -> Self {
        // Memory that is not used stays with the kernel.
        Slab { sessions: Vec::with_capacity(MOST_SESSIONS), free: Vec::with_capacity(MOST_SESSIONS) }
    }
}

impl Slab {
    /// Stores a session. Returns its number, which is not 0. None: there is no room.
    fn insert(&mut self, session: Session) -> Option<u32> {
        if let Some(number) = self.free.pop() {
            *self.sessions.get_mut(number as usize - 1)? = Some(session);
            return Some(number);
        }
        if self.sessions.len() == MOST_SESSIONS {
            return None;
        }
        self.sessions.push(Some(session));
        Some(self.sessions.len() as u32)
    }

    fn get(&mut self, number: u32) -> Option<&mut Session> {
        self.sessions.get_mut((number as usize).checked_sub(1)?)?.as_mut()
    }

    fn remove(&mut self, number: u32) {
        let session = (number as usize).checked_sub(1).and_then(|at| self.sessions.get_mut(at));
        if session.is_some_and(|session| session.take().is_some()) {
            self.free.push(number);
        }
    }
}

impl StreamFunction for Digest {
    const TYPE: &'static str = "digest";
    const USAGE: &'static str = "sha256|crc32c [forward|reverse] [known FILE] [file PATH]";
    const HELP: &'static str = "computes the digest of each stream, compares it with known ones, and logs it";

    /// Number of the session in the worker's slab. 0: none.
    type State = u32;
    type Local = Slab;

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let algorithm = match setup.args {
            ["sha256", ..] => Algorithm::Sha256,
            ["crc32c", ..] => Algorithm::Crc32c,
            [other, ..] => return Err(ArgError::invalid("digest", other, "must be `sha256` or `crc32c`")),
            [] => return Err(ArgError::missing("digest", "`sha256` or `crc32c`")),
        };
        let (mut which, mut known, mut file) = (DirectionFilter::Both, None, LogFile::default());
        let mut words = &setup.args[1..];
        while let [word, rest @ ..] = words {
            words = match (*word, rest) {
                ("known", [path, rest @ ..]) => {
                    known = Some(KnownFile::new(path, setup.files, algorithm.len())?);
                    rest
                }
                ("file", [path, rest @ ..]) => {
                    file = LogFile::at(path, setup.files)?;
                    rest
                }
                ("known" | "file", []) => return Err(format!("`{word}` needs a path").into()),
                _ => {
                    let one = DirectionFilter::of(word);
                    which = one.ok_or_else(|| format!("unknown word `{word}`: {}", Self::USAGE))?;
                    rest
                }
            };
        }
        let queue = ExportQueue::new(setup.workers);
        let finished = LineLog::new(queue, file, LINES_PER_SECOND, |text, times, one: &Finished| {
            line(text, times.of(one.at), one);
            true
        });
        Ok(Digest { algorithm, which, known, totals: WorkerCounters::new(setup.workers), finished })
    }

    fn open(&self, number: &mut u32, session: &SessionInfo, cx: &mut Context<'_, Slab>) {
        let streams = std::array::from_fn(|_| Stream::new(self.algorithm));
        match cx.local.insert(Session { key: session.key, streams }) {
            Some(new) => *number = new,
            None => self.totals.add(cx.worker, NO_ROOM, 1),
        }
    }

    fn data(&self, data: &StreamData<'_, '_>, number: &mut u32, cx: &mut Context<'_, Slab>) -> StreamVerdict {
        if let Some(session) = cx.local.get(*number).filter(|_| self.which.is(data.direction())) {
            let stream = &mut session.streams[data.direction() as usize];
            data.chunks().for_each(|chunk| stream.update(chunk));
            stream.bytes += data.len() as u64;
        }
        StreamVerdict::Pass
    }

    fn end(&self, direction: Direction, number: &mut u32, cx: &mut Context<'_, Slab>) -> StreamVerdict {
        self.finish(direction, *number, true, cx);
        StreamVerdict::Pass
    }

    fn restart(&self, number: &mut u32, cx: &mut Context<'_, Slab>) {
        self.finish_both(*number, cx);
        if let Some(session) = cx.local.get(*number) {
            session.streams = std::array::from_fn(|_| Stream::new(self.algorithm));
        }
    }

    fn release(&self, number: &mut u32, _: &SessionInfo, cx: &mut Context<'_, Slab>) {
        self.finish_both(*number, cx);
        cx.local.remove(*number);
    }

    fn set(&self, args: &[&str]) -> Result<(), ArgError> {
        match (args, &self.known) {
            (["reload"], Some(known)) => known.reload(),
            (["reload"], None) => Err("there is no file of known digests".into()),
            _ => Err("`digest` has one setting: `reload` reads the file of known digests again".into()),
        }
    }

    fn report(&self) -> Vec<(String, String)> {
        let mut names = vec![("streams", STREAMS), ("bytes", BYTES)];
        if self.known.is_some() {
            names.push(("known streams", KNOWN));
        }
        if self.totals.sum(NO_ROOM) != 0 {
            names.push(("sessions without room", NO_ROOM));
        }
        let counted = names.into_iter().map(|(name, which)| (name.to_owned(), self.totals.sum(which)));
        counted.map(|(name, count)| (name, count.to_string())).chain(self.finished.report()).collect()
    }

    fn background(&self) -> Option<Background> {
        Some(self.finished.background())
    }

    fn lines(&self) -> Option<Arc<dyn LineSource>> {
        Some(self.finished.clone())
    }
}

impl Digest {
    fn finish_both(&self, number: u32, cx: &mut Context<'_, Slab>) {
        for direction in [Direction::Forward, Direction::Reverse] {
            self.finish(direction, number, false, cx);
        }
    }

    /// Completes the digest of a stream, unless that has happened. Streams without bytes have none.
    fn finish(&self, direction: Direction, number: u32, is_whole: bool, cx: &mut Context<'_, Slab>) {
        let Some(session) = cx.local.get(number) else { return };
        let (key, stream) = (session.key, &mut session.streams[direction as usize]);
        if std::mem::replace(&mut stream.is_finished, true) || stream.bytes == 0 {
            return;
        }
        let mut digest = [0; 32];
        match &mut stream.running {
            Running::Sha256(state) => digest = state.finalize_reset().into(),
            Running::Crc32c(sum) => digest[..4].copy_from_slice(&sum.to_be_bytes()),
        }
        let bytes = stream.bytes;
        let is_known = self.known.as_ref().map(|known| known.contains(&digest[..self.algorithm.len()]));
        self.totals.add(cx.worker, STREAMS, 1);
        self.totals.add(cx.worker, BYTES, bytes);
        self.totals.add(cx.worker, KNOWN, u64::from(is_known == Some(true)));
        // With a set, only what is in it is worth a line.
        if is_known != Some(false) {
            let (algorithm, at) = (self.algorithm, cx.now);
            let one = Finished { digest, algorithm, bytes, direction, key, at, is_whole, is_known };
            self.finished.put(cx.worker, cx.now, one);
        }
    }
}

#[cfg(test)]
mod tests;
