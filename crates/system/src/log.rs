//! Output of the daemon that never makes a thread wait.
//!
//! Theory of operation. A write to standard output or standard error waits while the pipe behind it is full.
//! A thread that waits so may hold a lock, or be a worker. So lines go into a queue, and one thread for each
//! of the two streams writes them. The queue has a limit. Lines that do not fit are lost and counted, and a
//! line tells how many when the reader reads again. (The descriptors stay in blocking mode: other processes
//! may share them.)

use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// Maximum number of bytes that wait in a queue.
const ROOM: usize = 1 << 20;
/// Time that the message of a panic gets before the process goes on, or aborts.
const PANIC_FLUSH: Duration = Duration::from_secs(1);

static OUT: LazyLock<Stream> =
    LazyLock::new(|| Stream::start("mmb-stdout", |text| io::stdout().write_all(text)));
static ERR: LazyLock<Stream> =
    LazyLock::new(|| Stream::start("mmb-stderr", |text| io::stderr().write_all(text)));

/// Writes whole lines to standard error.
pub fn error(text: impl Into<String>) {
    ERR.put(text.into());
}

/// Writes whole lines to standard output.
pub fn info(text: impl Into<String>) {
    OUT.put(text.into());
}

/// Lines that other outputs have lost.
static LOST_ELSEWHERE: AtomicU64 = AtomicU64::new(0);

/// Number of lines that were lost because nobody read them in time.
pub fn lost() -> u64 {
    OUT.shared.lost.load(Relaxed) + ERR.shared.lost.load(Relaxed) + LOST_ELSEWHERE.load(Relaxed)
}

/// Counts lines that another output has lost.
pub(crate) fn count_lost(lines: u64) {
    LOST_ELSEWHERE.fetch_add(lines, Relaxed);
}

/// Waits until all lines before this call are written, at most for `timeout` for each stream. Returns whether
/// they are.
pub fn flush(timeout: Duration) -> bool {
    let written = [&OUT, &ERR].map(|stream| stream.flush(timeout));
    written == [true; 2]
}

/// Starts the threads, and makes panics use them. Call it before other threads are pinned to processors.
pub fn install() {
    LazyLock::force(&OUT);
    LazyLock::force(&ERR);
    std::panic::set_hook(Box::new(|panic: &PanicHookInfo<'_>| {
        let thread = std::thread::current();
        error(format!("thread `{}` {panic}\n", thread.name().unwrap_or("?")));
        ERR.flush(PANIC_FLUSH);
    }));
}

enum Item {
    Text(String),
    /// The sender is dropped when all before it is written.
    Flush(#[allow(dead_code)] Sender<()>),
}

/// A stream with its queue.
struct Stream {
    queue: Mutex<Option<Sender<Item>>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Bytes in the queue.
    waiting: AtomicUsize,
    lost: AtomicU64,
}

impl Stream {
    /// Starts the thread that passes lines to `write`.
    fn start(name: &str, write: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static) -> Stream {
        let (queue, items) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        let state = shared.clone();
        let started = std::thread::Builder::new().name(name.into()).spawn(move || run(&items, &state, write));
        // Without a thread, lines are lost, and counted.
        Stream { queue: Mutex::new(started.is_ok().then_some(queue)), shared }
    }

    fn send(&self, item: Item) -> bool {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.as_ref().is_some_and(|queue| queue.send(item).is_ok())
    }

    fn put(&self, text: String) {
        let (bytes, lines) = (text.len(), text.matches('\n').count() as u64);
        let fits = self.shared.waiting.fetch_add(bytes, Relaxed) + bytes <= ROOM;
        if !fits || !self.send(Item::Text(text)) {
            self.shared.waiting.fetch_sub(bytes, Relaxed);
            self.shared.lost.fetch_add(lines, Relaxed);
        }
    }

    fn flush(&self, timeout: Duration) -> bool {
        let (sender, done) = mpsc::channel();
        self.send(Item::Flush(sender))
            && done.recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Disconnected)
    }
}

/// Writes what is in the queue until its sender is gone.
fn run(items: &Receiver<Item>, shared: &Shared, mut write: impl FnMut(&[u8]) -> io::Result<()>) {
    let mut told = 0;
    for item in items {
        let Item::Text(text) = item else { continue };
        // An error means that nobody reads.
        let _ = write(text.as_bytes());
        shared.waiting.fetch_sub(text.len(), Relaxed);
        let lost = shared.lost.load(Relaxed);
        if lost > told {
            let _ = write(
                format!("{} lines of this output were lost: nobody read them in time\n", lost - told)
                    .as_bytes(),
            );
            told = lost;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_does_not_read_stops_nobody_and_learns_what_it_lost() {
        let (written, read) = mpsc::sync_channel(0);
        let stream = Stream::start("test", move |text: &[u8]| {
            written
                .send(String::from_utf8_lossy(text).into_owned())
                .map_err(|_| io::ErrorKind::BrokenPipe.into())
        });
        let line = "x".repeat(ROOM / 4 - 1) + "\n";
        (0..7).for_each(|_| stream.put(line.clone()));
        assert!(!stream.flush(Duration::from_millis(1)));
        assert_eq!(stream.shared.lost.load(Relaxed), 3);
        assert_eq!(read.recv().unwrap().len(), ROOM / 4);
        assert_eq!(read.recv().unwrap(), "3 lines of this output were lost: nobody read them in time\n");
        (0..3).for_each(|_| assert_eq!(read.recv().unwrap().len(), ROOM / 4));
        assert!(stream.flush(Duration::from_secs(10)));
        stream.put("more\n".into());
        assert_eq!(read.recv().unwrap(), "more\n");
    }
}
