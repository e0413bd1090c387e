//! Reports of sources that have reached their limit of sessions.

use std::net::IpAddr;

/// Time between two reports of a worker, in milliseconds.
const INTERVAL: u32 = 1_000;

/// A source that has reached its limit of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitedSource {
    /// The source.
    pub address: IpAddr,
    /// The limit.
    pub limit: u32,
    /// Packets of all sources that one worker has refused since its last report.
    pub refused: u64,
}

/// Lets one report through in a second.
#[derive(Debug, Default)]
pub(crate) struct LimitGate {
    last: Option<u32>,
    refused: u64,
}

impl LimitGate {
    /// Counts a packet that was refused. Returns the number to report, if it is time to.
    pub fn refuse(&mut self, now: u32) -> Option<u64> {
        self.refused += 1;
        if self.last.is_some_and(|last| now.wrapping_sub(last) < INTERVAL) {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_report_in_a_second() {
        let mut gate = LimitGate::default();
        let start = u32::MAX - 10;
        assert_eq!(gate.refuse(start), Some(1));
        assert_eq!(gate.refuse(start.wrapping_add(1)), None);
        assert_eq!(gate.refuse(start.wrapping_add(INTERVAL - 1)), None);
        assert_eq!(gate.refuse(start.wrapping_add(INTERVAL)), Some(3));
    }
}
