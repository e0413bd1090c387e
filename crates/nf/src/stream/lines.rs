//! Lines of a log on their way out of a process.

use std::time::{Duration, Instant};

/// The lines that a function logs, for a function that runs in another process than the one with its log.
///
/// There, somebody takes the lines of the copy ([`LineSource::take`]). In the daemon, they are appended to
/// the log of the instance that the copy was made of ([`LineSource::append`]).
pub trait LineSource: Send + Sync {
    /// Whether something waits.
    fn is_waiting(&self) -> bool;
    /// Takes all that waits, as whole lines. Who is asked for that reports no log of its own any more.
    fn take(&self, text: &mut String);
    /// Counts lines that were taken and cannot be passed on, or that came and are not accepted.
    fn count_lost(&self, lines: u64);
    /// Returns how many lines a copy may log in a second.
    fn limit(&self) -> u32;
    /// Appends whole lines to the log.
    fn append(&self, lines: usize, text: &str);
    /// Returns names and values for `show functions`.
    fn report(&self) -> Vec<(String, String)>;
}

/// How the lines of a process leave it: at most one time in a tenth of a second.
#[derive(Debug, Default)]
pub struct LinePace {
    last: Option<Instant>,
}

impl LinePace {
    const PAUSE: Duration = Duration::from_millis(100);

    /// Returns how long lines have to wait. None: they leave now.
    pub fn wait(&mut self, now: Instant) -> Option<Duration> {
        let since = self.last.map_or(Self::PAUSE, |last| now.saturating_duration_since(last));
        if since < Self::PAUSE {
            return Some(Self::PAUSE - since);
        }
        self.last = Some(now);
        None
    }

    /// Divides lines into messages of at most so many bytes. A line that is longer is one by itself.
    pub fn messages(text: &str, most: usize) -> impl Iterator<Item = &str> {
        let mut left = text;
        std::iter::from_fn(move || {
            let mut end = 0;
            for line in left.split_inclusive('\n') {
                if end != 0 && end + line.len() > most {
                    break;
                }
                end += line.len();
            }
            let (message, rest) = left.split_at(end);
            left = rest;
            (end != 0).then_some(message)
        })
    }
}

/// Appends lines that come from a process, which is not trusted, to the log of its function: without control
/// characters, none beyond [`LineGate::LONGEST`], and as many in a second as the function may log.
#[derive(Debug, Default)]
pub struct LineGate {
    second: Option<Instant>,
    /// Lines of this second.
    lines: u32,
}

impl LineGate {
    /// Most bytes of a line.
    pub const LONGEST: usize = 48 << 10;

    /// Appends lines that have come at a time. `limit`: most lines in a second.
    pub fn append(&mut self, log: &dyn LineSource, limit: u32, text: &str, now: Instant) {
        if self.second.is_none_or(|second| now.duration_since(second) >= Duration::from_secs(1)) {
            (self.second, self.lines) = (Some(now), 0);
        }
        let (mut accepted, mut count, mut lost) = (String::new(), 0, 0);
        for line in text.lines() {
            if self.lines >= limit || line.len() > Self::LONGEST {
                lost += 1;
                continue;
            }
            self.lines += 1;
            count += 1;
            accepted.extend(line.chars().map(|one| if one.is_control() { ' ' } else { one }));
            accepted.push('\n');
        }
        if count > 0 {
            log.append(count, &accepted);
        }
        log.count_lost(lost);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[derive(Default)]
    struct Recorder {
        text: Mutex<String>,
        lost: AtomicU64,
    }

    impl LineSource for Recorder {
        fn is_waiting(&self) -> bool {
            false
        }

        fn take(&self, _: &mut String) {}

        fn count_lost(&self, lines: u64) {
            self.lost.fetch_add(lines, Relaxed);
        }

        fn limit(&self) -> u32 {
            2
        }

        fn append(&self, lines: usize, text: &str) {
            assert_eq!(text.lines().count(), lines);
            self.text.lock().unwrap().push_str(text);
        }

        fn report(&self) -> Vec<(String, String)> {
            Vec::new()
        }
    }

    #[test]
    fn messages_have_whole_lines() {
        let (line, long) = (format!("{}\n", "y".repeat(50)), format!("{}\n", "z".repeat(200)));
        let text = format!("{line}{line}{long}a\nb\n");
        let messages: Vec<_> = LinePace::messages(&text, 100).collect();
        assert_eq!(messages, [&*line, &line, &long, "a\nb\n"]);
        assert_eq!(LinePace::messages("", 100).count(), 0);
    }

    #[test]
    fn lines_leave_ten_times_in_a_second() {
        let (mut pace, begin) = (LinePace::default(), Instant::now());
        let at = |millis| begin + Duration::from_millis(millis);
        assert_eq!(pace.wait(begin), None);
        assert_eq!(pace.wait(at(30)), Some(Duration::from_millis(70)));
        assert_eq!((pace.wait(at(100)), pace.wait(at(199)).is_some()), (None, true));
    }

    #[test]
    fn a_log_gets_as_many_lines_in_a_second_as_it_takes() {
        let (log, mut gate, begin) = (Recorder::default(), LineGate::default(), Instant::now());
        gate.append(&log, log.limit(), "1\n2\u{1b}[m\u{9b}\n3\n", begin);
        gate.append(&log, log.limit(), "4\n", begin + Duration::from_millis(999));
        let long = "x".repeat(LineGate::LONGEST + 1);
        gate.append(&log, log.limit(), &format!("{long}\n5\n"), begin + Duration::from_secs(1));
        assert_eq!(*log.text.lock().unwrap(), "1\n2 [m \n5\n");
        assert_eq!(log.lost.load(Relaxed), 3);
    }
}
