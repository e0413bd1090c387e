//! The patterns in force, and what each worker has of them.
//!
//! Theory of operation. A set of patterns is compiled by the thread that reloads it, together with a scanner
//! for each worker, whose memory is reserved. A worker looks at the generation with each packet. If it is
//! another one, the worker takes its scanner, and gives the one before to the thread that writes the log,
//! which frees it. So a worker neither waits nor frees memory, and what remains of a set after a reload is at
//! most what idle workers have.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use crossbeam_queue::ArrayQueue;
use mmb_nf::{ArgError, Key};
use mmb_search::{Pattern, PatternSet, Scan, StreamNumber};

use super::config::Source;

/// A compiled set of patterns.
pub(super) struct Compiled {
    pub set: PatternSet,
    generation: u32,
    workers: Box<[WorkerRoom]>,
    /// Matches of each pattern before the set was loaded.
    earlier: Vec<u64>,
}

/// What a worker uses of a set.
struct WorkerRoom {
    /// The scanner, until the worker takes it.
    scanner: ArrayQueue<Scanner>,
    /// Matches of each pattern.
    counts: Box<[AtomicU64]>,
}

/// A scanner, and the keys of its streams.
struct Scanner {
    scan: Box<dyn Scan>,
    keys: Vec<Option<Key>>,
}

impl Compiled {
    fn new(set: PatternSet, generation: u32, room: Room, earlier: Vec<u64>) -> Result<Compiled, ArgError> {
        let worker = |_| {
            let scanner = ArrayQueue::new(1);
            let scan = set.scanner(room.streams).map_err(|error| error.to_string())?;
            let keys = Vec::with_capacity(scan.most_streams() + 1);
            // The queue is empty.
            let _ = scanner.push(Scanner { scan, keys });
            let counts = set.patterns().iter().map(|_| AtomicU64::new(0)).collect();
            Ok(WorkerRoom { scanner, counts })
        };
        let workers = (0..room.workers.max(1)).map(worker).collect::<Result<_, String>>()?;
        Ok(Compiled { set, generation, workers, earlier })
    }

    /// Returns the matches of each pattern.
    pub fn counts(&self) -> Vec<u64> {
        let count = |index: usize| {
            let counts = self.workers.iter().filter_map(|worker| worker.counts.get(index));
            counts.map(|count| count.load(Ordering::Relaxed)).sum::<u64>()
                + self.earlier.get(index).copied().unwrap_or(0)
        };
        (0..self.set.patterns().len()).map(count).collect()
    }

    /// Returns the counts for the patterns of another set.
    fn counts_for(&self, patterns: &[Pattern]) -> Vec<u64> {
        let texts = self.set.patterns().iter().map(|pattern| &*pattern.text);
        let known: HashMap<&str, u64> = texts.zip(self.counts()).collect();
        patterns.iter().map(|pattern| known.get(&*pattern.text).copied().unwrap_or(0)).collect()
    }
}

/// The set in force. Another one can take its place at any time.
pub(super) struct Patterns {
    current: ArcSwap<Compiled>,
    generation: AtomicU32,
    room: Room,
}

/// For how much a set has room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub workers: u16,
    /// Most streams of a worker.
    pub streams: usize,
}

impl Patterns {
    pub fn new(source: &Source, room: Room) -> Result<Patterns, ArgError> {
        let set = source.compile()?;
        let earlier = vec![0; set.patterns().len()];
        let compiled = Compiled::new(set, 1, room, earlier)?;
        Ok(Patterns { current: ArcSwap::from_pointee(compiled), generation: AtomicU32::new(1), room })
    }

    /// Reads and compiles the patterns again, and puts them in force. With an error, nothing changes.
    pub fn reload(&self, source: &Source) -> Result<(), ArgError> {
        let set = source.compile()?;
        let before = self.current.load();
        let earlier = before.counts_for(set.patterns());
        // Generation 0 is that of sessions without a stream.
        let generation = before.generation.wrapping_add(1).max(1);
        drop(before);
        self.current.store(Arc::new(Compiled::new(set, generation, self.room, earlier)?));
        self.generation.store(generation, Ordering::Release);
        Ok(())
    }

    /// Returns the set in force.
    pub fn current(&self) -> Arc<Compiled> {
        self.current.load_full()
    }

    /// Returns the generation of the set in force.
    #[inline(always)]
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// Takes a worker's scanner of the set in force.
    pub fn take(&self, worker: u16) -> Option<WorkerPart> {
        let compiled = self.current();
        let scanner = compiled.workers.get(usize::from(worker))?.scanner.pop()?;
        Some(WorkerPart { generation: compiled.generation, compiled, worker, scanner: Some(scanner) })
    }
}

/// A worker's scanner with the set that it belongs to.
pub(super) struct WorkerPart {
    pub compiled: Arc<Compiled>,
    pub generation: u32,
    worker: u16,
    /// None only when the part is dropped.
    scanner: Option<Scanner>,
}

/// What a search uses.
pub(super) struct SearchParts<'a> {
    pub scan: &'a mut dyn Scan,
    pub compiled: &'a Arc<Compiled>,
    /// Matches of each pattern.
    pub counts: &'a [AtomicU64],
    /// Keys by number of the stream.
    pub keys: &'a [Option<Key>],
}

impl WorkerPart {
    /// Returns what a search uses.
    #[inline(always)]
    pub fn parts(&mut self) -> Option<SearchParts<'_>> {
        let counts = &self.compiled.workers.get(usize::from(self.worker))?.counts;
        let Scanner { scan, keys } = self.scanner.as_mut()?;
        Some(SearchParts { scan: &mut **scan, compiled: &self.compiled, counts, keys })
    }

    /// Opens a stream. None: there is no room.
    pub fn open(&mut self, key: Option<Key>) -> Option<StreamNumber> {
        let Scanner { scan, keys } = self.scanner.as_mut()?;
        let stream = scan.open()?;
        let at = stream.get() as usize;
        if keys.len() <= at {
            // Numbers are given out in order, up to the capacity.
            keys.resize(at + 1, None);
        }
        keys[at] = key;
        Some(stream)
    }

    /// Closes a stream.
    pub fn close(&mut self, stream: StreamNumber) {
        if let Some(scanner) = &mut self.scanner {
            scanner.scan.close(stream);
        }
    }
}

impl Drop for WorkerPart {
    /// A worker that leaves the instance and comes back finds its scanner again.
    fn drop(&mut self) {
        if let (Some(room), Some(scanner)) =
            (self.compiled.workers.get(usize::from(self.worker)), self.scanner.take())
        {
            let _ = room.scanner.push(scanner);
        }
    }
}
