//! Lines that processes send for the logs of their functions.

use std::time::{Duration, Instant};

use mmb_nf::LineGate;

use crate::shared::Shared;

/// A process sends at most one message in a tenth of a second; a long one is sent in parts.
const MOST_MESSAGES: u32 = 1000;
const SECOND: Duration = Duration::from_secs(1);

/// Counts the messages of a process.
#[derive(Debug, Default)]
pub struct LineReceiver {
    begin: Option<Instant>,
    messages: u32,
    gate: LineGate,
}

impl LineReceiver {
    /// Writes lines that a process has sent. Returns false if it has sent too many messages.
    pub fn take(&mut self, shared: &Shared, text: &str, lost: u64) -> bool {
        let now = Instant::now();
        if self.begin.is_none_or(|begin| now.duration_since(begin) >= SECOND) {
            (self.begin, self.messages) = (Some(now), 0);
        }
        self.messages += 1;
        let Some(log) = shared.log.as_ref().filter(|_| self.messages <= MOST_MESSAGES) else { return false };
        // The limit is that of a worker.
        let limit = log.limit().saturating_mul(shared.counters.len() as u32);
        self.gate.append(&**log, limit, text, now);
        log.count_lost(lost);
        true
    }
}
