//! Lines of functions on their way from the workers to a log.
//!
//! Theory of operation. Workers queue items ([`ExportQueue`]). In the daemon, a thread of the instance writes
//! their lines to the log. The process of a broker has no such thread: its event loop takes the lines, and
//! the daemon appends them to the log of its own instance ([`LineSource`]).

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use mmb_nf::{Background, LineSource};

use super::export_queue::{ClockReading, Clocks, ExportQueue};
use super::log_file::LogFile;

/// Appends the line of an item, if it has one. Returns whether it has.
type WriteLine<T> = Box<dyn Fn(&mut String, &ClockReading, &T) -> bool + Send + Sync>;

/// See the module's documentation.
pub(crate) struct LineLog<T> {
    queue: ExportQueue<T>,
    file: LogFile,
    write: WriteLine<T>,
    /// Lines that a copy may log in a second.
    limit: u32,
    /// The clocks of the one who takes lines. None: nobody has.
    taking: Mutex<Option<Clocks>>,
    /// Lines that were taken, or came from a copy, and are lost.
    lost: AtomicU64,
}

impl<T: Send + 'static> LineLog<T> {
    pub fn new(
        queue: ExportQueue<T>,
        file: LogFile,
        limit: u32,
        write: impl Fn(&mut String, &ClockReading, &T) -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (taking, lost) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(LineLog { queue, file, write: Box::new(write), limit, taking, lost })
    }

    /// See [`ExportQueue::put`].
    #[inline]
    pub fn put(&self, worker: u16, now: u32, item: T) {
        self.queue.put(worker, now, item);
    }

    /// Returns the number of items that were lost.
    pub fn lost(&self) -> u64 {
        self.queue.lost() + self.lost.load(Relaxed)
    }

    /// The work of the thread that writes the lines.
    pub fn background(self: &Arc<Self>) -> Background {
        let log = self.clone();
        Box::new(move |stop| {
            log.queue.serve(stop, |items| {
                let mut text = String::new();
                let lines = log.lines(&items, &mut text);
                if lines != 0 {
                    log.queue.record(lines, log.file.append(&text));
                }
            });
        })
    }

    fn lines(&self, items: &[(ClockReading, T)], text: &mut String) -> usize {
        items.iter().filter(|(times, item)| (self.write)(text, times, item)).count()
    }

    /// For `show functions`.
    pub fn report(&self) -> Vec<(String, String)> {
        let is_copy = self.taking.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let lost = self.lost();
        match is_copy {
            // The daemon knows what becomes of the lines.
            true if lost == 0 => Vec::new(),
            true => vec![("lost in the process".to_owned(), lost.to_string())],
            false => self.queue.report_with(lost),
        }
    }
}

impl<T: Send + 'static> LineSource for LineLog<T> {
    fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    fn take(&self, text: &mut String) {
        let mut taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        let items = self.queue.take_all(taking.get_or_insert_with(Clocks::default));
        self.lines(&items, text);
    }

    fn count_lost(&self, lines: u64) {
        self.lost.fetch_add(lines, Relaxed);
    }

    fn limit(&self) -> u32 {
        self.limit
    }

    fn append(&self, lines: usize, text: &str) {
        self.queue.record(lines, self.file.append(text));
    }

    fn report(&self) -> Vec<(String, String)> {
        LineLog::report(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_copy_are_appended_by_the_original() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.log");
        let log = |file| {
            LineLog::new(ExportQueue::new(1), file, 5, |text, _, item: &u32| {
                text.push_str(&format!("{item}\n"));
                true
            })
        };
        let copy = log(LogFile::default());
        let original = log(LogFile::at(path.to_str().unwrap(), &Arc::default()).unwrap());
        assert!(!copy.is_waiting());
        (1..4).for_each(|item| copy.put(0, 7, item));
        assert!(copy.is_waiting());
        let mut text = String::new();
        copy.take(&mut text);
        assert_eq!((text.as_str(), copy.is_waiting(), copy.report()), ("1\n2\n3\n", false, Vec::new()));
        copy.count_lost(1);
        assert_eq!(copy.report(), [("lost in the process".to_owned(), "1".to_owned())]);
        original.append(3, &text);
        original.count_lost(2);
        assert_eq!(std::fs::read_to_string(path).unwrap(), text);
        let report = original.report();
        assert!(report.contains(&("written".to_owned(), "3".to_owned())), "{report:?}");
        assert!(report.contains(&("lost".to_owned(), "2".to_owned())), "{report:?}");
    }
}
