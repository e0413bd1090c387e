//! Events of functions on their way from the workers to a background thread.
//!
//! Theory of operation. Each worker has a bounded queue, so that workers wait neither for each other nor for
//! the thread. Events that do not fit are lost, and counted. The thread ([`ExportQueue::serve`]) looks every
//! 100 milliseconds, takes all events, and passes them on with the time of day that the worker's milliseconds
//! stand for.
//!
//! A worker's clock counts milliseconds from an unknown moment. Each event has the worker's time at which it
//! was queued, and is taken out later. So the least difference between the thread's clock and these times is
//! the difference between the clocks, up to the shortest stay in a queue. A jump of the difference means that
//! a worker's clock began anew.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crossbeam_queue::ArrayQueue;

use mmb_nf::StopSignal;

/// Capacity of a worker's queue in items.
const ROOM: usize = 16_384;
/// Interval at which the thread looks.
const PAUSE: Duration = Duration::from_millis(100);
/// Greatest growth of the difference between two clocks, in milliseconds. Beyond it, one of them began anew.
const JUMP: u32 = 10_000;

/// Why items cannot be written or sent. Errors of the system are kept as text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExportError {
    #[error("{0}")]
    File(String),
    #[error("cannot write to {target}: {error}")]
    Write { target: String, error: String },
    #[error("cannot find {collector}: {error}")]
    Resolve { collector: String, error: String },
    #[error("{collector} has no address")]
    NoAddress { collector: String },
    #[error("cannot open a socket: {error}")]
    Socket { error: String },
    #[error("cannot send to {target}: {error}")]
    Send { target: String, error: String },
    #[error("cannot make an IPFIX message: {error}")]
    Encode { error: String },
    #[error("no attempt yet")]
    NotTried,
}

/// See the module's documentation.
pub(crate) struct ExportQueue<T> {
    lanes: Box<[Lane<T>]>,
    /// Items that are written or sent.
    done: AtomicU64,
    failed: AtomicU64,
    last_error: Mutex<Option<ExportError>>,
}

#[repr(align(64))]
struct Lane<T> {
    queue: ArrayQueue<(u32, T)>,
    lost: AtomicU64,
}

/// A reading of both clocks, to convert a worker's time to the time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockReading {
    /// The time of day.
    day: SystemTime,
    /// The worker's clock at that time.
    worker: u32,
}

impl ClockReading {
    /// Returns the time of day of a worker's time within 24 days from now.
    pub fn of(&self, at: u32) -> SystemTime {
        let since = self.worker.wrapping_sub(at).cast_signed();
        let distance = Duration::from_millis(since.unsigned_abs().into());
        let then = if since < 0 { self.day.checked_add(distance) } else { self.day.checked_sub(distance) };
        then.unwrap_or(self.day)
    }

    #[cfg(test)]
    pub fn at(day: SystemTime, worker: u32) -> ClockReading {
        ClockReading { day, worker }
    }
}

/// The thread's milliseconds less a worker's.
#[derive(Clone, Copy, Default)]
struct Ahead(Option<u32>);

impl Ahead {
    fn learn(&mut self, thread: u32, worker: u32) {
        let ahead = thread.wrapping_sub(worker);
        let more = self.0.map_or(0, |known| ahead.wrapping_sub(known));
        if self.0.is_none() || more.cast_signed() < 0 || more > JUMP {
            self.0 = Some(ahead);
        }
    }
}

/// The clock of the one who takes items out, and what is known of those of the workers.
pub(crate) struct Clocks {
    origin: Instant,
    ahead: Vec<Ahead>,
}

impl Default for Clocks {
    fn default() -> Clocks {
        Clocks { origin: Instant::now(), ahead: Vec::new() }
    }
}

impl<T> ExportQueue<T> {
    /// Makes a queue for each worker.
    pub fn new(workers: u16) -> Self {
        Self::with_room(workers, ROOM)
    }

    /// Makes a queue for each worker that holds `room` items.
    pub fn with_room(workers: u16, room: usize) -> Self {
        let lane = |_| Lane { queue: ArrayQueue::new(room), lost: AtomicU64::new(0) };
        ExportQueue {
            lanes: (0..workers.max(1)).map(lane).collect(),
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            last_error: Mutex::new(None),
        }
    }

    /// Appends an item to a worker's queue. `now` is the worker's time.
    #[inline]
    pub fn put(&self, worker: u16, now: u32, item: T) {
        if let Some(lane) = self.lanes.get(usize::from(worker))
            && lane.queue.push((now, item)).is_err()
        {
            lane.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of items that did not fit.
    pub fn lost(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.lost.load(Ordering::Relaxed)).sum()
    }

    /// Counts items that are written or sent, or that are not because of an error.
    pub fn record(&self, items: usize, outcome: Result<(), ExportError>) {
        let count = if outcome.is_ok() { &self.done } else { &self.failed };
        count.fetch_add(items as u64, Ordering::Relaxed);
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = outcome.err();
    }

    /// For `show functions`.
    pub fn report(&self) -> Vec<(String, String)> {
        self.report_with(self.lost())
    }

    /// For `show functions`, with so many lost items.
    pub fn report_with(&self, lost: u64) -> Vec<(String, String)> {
        let counts = [
            ("written", self.done.load(Ordering::Relaxed)),
            ("lost", lost),
            ("failed", self.failed.load(Ordering::Relaxed)),
        ];
        let mut report: Vec<_> =
            counts.into_iter().map(|(name, n)| (name.to_owned(), n.to_string())).collect();
        let trouble = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        report.extend(trouble.clone().map(|trouble| ("trouble".to_owned(), trouble.to_string())));
        report
    }

    /// Passes items to `write` until the stop signal, those of a worker in order.
    pub fn serve(&self, stop: &StopSignal, mut write: impl FnMut(Vec<(ClockReading, T)>)) {
        let (mut clocks, mut full) = (Clocks::default(), false);
        loop {
            let stopped = stop.wait(if full { Duration::ZERO } else { PAUSE });
            let items = self.take_all(&mut clocks);
            full = self.lanes.iter().map(|lane| lane.queue.capacity()).max() < Some(2 * items.len());
            if !items.is_empty() {
                write(items);
            }
            if stopped {
                return;
            }
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.queue.is_empty())
    }

    /// Takes all items out, those of a worker in order.
    pub fn take_all(&self, clocks: &mut Clocks) -> Vec<(ClockReading, T)> {
        clocks.ahead.resize(self.lanes.len(), Ahead::default());
        self.take(&mut clocks.ahead, clocks.origin.elapsed().as_millis() as u32)
    }

    /// Takes all items out. `now` is the time of the thread's clock.
    fn take(&self, ahead: &mut [Ahead], now: u32) -> Vec<(ClockReading, T)> {
        let mut all = Vec::new();
        for (lane, ahead) in self.lanes.iter().zip(ahead) {
            let most = lane.queue.capacity();
            let items: Vec<_> = std::iter::from_fn(|| lane.queue.pop()).take(most).collect();
            items.iter().for_each(|(at, _)| ahead.learn(now, *at));
            let times =
                ClockReading { day: SystemTime::now(), worker: now.wrapping_sub(ahead.0.unwrap_or(0)) };
            all.extend(items.into_iter().map(|(_, item)| (times, item)));
        }
        all
    }
}

#[cfg(test)]
mod tests;
