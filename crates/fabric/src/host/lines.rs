//! Lines that processes send for the logs of their functions.

use std::time::{Duration, Instant};

use crate::shared::Shared;

/// A process sends at most one message in a tenth of a second; a long one is sent in parts.
const MOST_MESSAGES: u32 = 1000;
const SECOND: Duration = Duration::from_secs(1);

/// Counts the messages of a process.
#[derive(Debug, Default)]
pub struct LineReceiver {
    begin: Option<Instant>,
    messages: u32,
}

impl LineReceiver {
    /// Writes lines that a process has sent. Returns false if it has sent too many.
    ///
    /// What a process sends is not trusted: characters that could do something to a terminal are replaced.
    pub fn take(&mut self, shared: &Shared, text: String, (count, lost): (usize, usize)) -> bool {
        let now = Instant::now();
        if self.begin.is_none_or(|begin| now.duration_since(begin) >= SECOND) {
            (self.begin, self.messages) = (Some(now), 0);
        }
        self.messages += 1;
        let Some(log) = shared.log.as_ref().filter(|_| self.messages <= MOST_MESSAGES) else { return false };
        let is_plain = |one: char| !one.is_control() || one == '\n';
        let text: String = text.chars().map(|one| if is_plain(one) { one } else { ' ' }).collect();
        log.append(count, &text);
        log.count_lost(lost as u64);
        true
    }
}
