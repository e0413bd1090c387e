//! Source addresses that have reached their limit of sessions: who they are, for the log and for queries.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use mmb_dataplane::LimitedSource;

use crate::api::LimitedEntry;
use crate::text::count;
use crate::transaction::Control;

/// Addresses that are remembered.
const REMEMBERED: usize = 16;

/// The addresses, the latest first, each with its limit and the time.
#[derive(Debug, Default)]
pub(in crate::transaction) struct LimitedSources(Mutex<VecDeque<(IpAddr, u32, Instant)>>);

impl LimitedSources {
    /// Adds addresses.
    fn add(&self, reports: &[LimitedSource], now: Instant) {
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for report in reports {
            sources.retain(|(address, ..)| *address != report.address);
            sources.push_front((report.address, report.limit, now));
        }
        sources.truncate(REMEMBERED);
    }

    fn entries(&self, now: Instant) -> Vec<LimitedEntry> {
        let sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = |&(address, limit, at): &(IpAddr, u32, Instant)| LimitedEntry {
            address,
            limit,
            seconds_ago: now.saturating_duration_since(at).as_secs(),
        };
        sources.iter().map(entry).collect()
    }
}

/// The log line of a report.
fn line(now: &str, report: &LimitedSource) -> String {
    let LimitedSource { address, limit, refused } = report;
    let (limit, refused) = (count(u64::from(*limit), "session"), count(*refused, "packet"));
    format!("{now} sessions: {address} has reached its limit of {limit}; {refused} refused\n")
}

impl Control {
    /// Log lines of the sources that have reached their limit since the last call.
    pub(super) fn limited_lines(&self, now: &str) -> String {
        let reports = self.engine().take_limited_sources();
        self.limited().add(&reports, Instant::now());
        reports.iter().map(|report| line(now, report)).collect()
    }

    /// The sources that have reached their limit.
    pub(crate) fn limited_sources(&self) -> Vec<LimitedEntry> {
        self.limited().entries(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_sources_are_remembered() {
        let sources = LimitedSources::default();
        let report = |n: u8| LimitedSource { address: [10, 0, 0, n].into(), limit: 7, refused: 3 };
        let start = Instant::now();
        for n in 0..40 {
            sources.add(&[report(n)], start);
        }
        sources.add(&[report(30)], start + std::time::Duration::from_secs(5));
        let entries = sources.entries(start + std::time::Duration::from_secs(9));
        let last = |entry: &LimitedEntry| entry.address.to_string();
        assert_eq!(
            (entries.len(), last(&entries[0]), last(&entries[1])),
            (REMEMBERED, "10.0.0.30".into(), "10.0.0.39".into())
        );
        assert_eq!((entries[0].seconds_ago, entries[1].seconds_ago), (4, 9));
        assert_eq!(
            line("T", &report(1)),
            "T sessions: 10.0.0.1 has reached its limit of 7 sessions; 3 packets refused\n"
        );
    }
}
