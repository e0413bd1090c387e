//! Lines of a function for its log, which the daemon writes.
//!
//! Without room in the socket, they are lost and counted: the process waits for nobody.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use mmb_nf::LinePace;
use mmb_nf::process::HostedFunction;

use crate::message::{self, Reply};

/// Most bytes of a message.
const LONGEST: usize = 32 << 10;

/// Sends lines to the engine.
#[derive(Debug, Default)]
pub struct LineSender {
    pace: LinePace,
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
        if let Some(wait) = self.pace.wait(now) {
            return Some(wait);
        }
        let mut lines = String::new();
        function.take_lines(&mut lines);
        for text in LinePace::messages(&lines, LONGEST) {
            let lost = std::mem::take(&mut self.lost);
            if message::try_send(socket, &Reply::Lines { text: text.to_owned(), lost: lost as u64 }).is_err()
            {
                self.lost = lost + text.lines().count();
            }
        }
        None
    }
}
