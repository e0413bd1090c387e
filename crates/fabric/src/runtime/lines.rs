//! Lines of a function for its log, which the daemon writes.
//!
//! A message has the lines of a tenth of a second. Without room in the socket, they are lost and counted: the
//! process waits for nobody.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use mmb_nf::process::HostedFunction;

use crate::message::{self, Reply};

/// Least time between two messages.
const PAUSE: Duration = Duration::from_millis(100);
/// Most bytes of a message.
const LONGEST: usize = 32 << 10;

/// The lines of a message.
#[derive(Default)]
struct Part {
    text: String,
    count: usize,
}

/// Sends lines to the engine.
#[derive(Debug, Default)]
pub struct LineSender {
    last: Option<Instant>,
    /// Lines that had no room.
    lost: usize,
}

impl LineSender {
    /// Sends the lines that wait, if it is time. Returns when to send again. None: no lines wait.
    pub fn send(
        &mut self,
        function: &HostedFunction,
        socket: BorrowedFd<'_>,
        now: Instant,
    ) -> Option<Duration> {
        if !function.has_lines() {
            return None;
        }
        let since = self.last.map_or(PAUSE, |last| now.saturating_duration_since(last));
        if since < PAUSE {
            return Some(PAUSE - since);
        }
        self.last = Some(now);
        let mut all = String::new();
        function.take_lines(&mut all);
        let (mut part, mut left) = (Part::default(), all.as_str());
        while !left.is_empty() {
            let line = left.find('\n').map_or(left, |end| &left[..=end]);
            if part.text.len() + line.len() > LONGEST {
                self.send_part(socket, std::mem::take(&mut part));
            }
            part.text.push_str(line);
            part.count += 1;
            left = &left[line.len()..];
        }
        self.send_part(socket, part);
        None
    }

    fn send_part(&mut self, socket: BorrowedFd<'_>, part: Part) {
        if part.count == 0 {
            return;
        }
        let (count, lost) = (part.count, std::mem::take(&mut self.lost));
        if message::try_send(socket, &Reply::Lines { text: part.text, lost: lost as u64 }).is_err() {
            self.lost = lost + count;
        }
    }
}
