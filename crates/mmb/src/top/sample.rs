//! Samples of the daemon's counters, and their rates.
//!
//! Theory of operation. A sample has the documents of the API that the views show. A rate is the difference
//! of a counter to the sample before, over the time between both. A counter that is new or has begun again
//! has the rate 0.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use mmb_control::api::{
    ConnectionEntry, DropList, FunctionList, InterfaceList, NatReply, RuleList, Runtime, VersionEntry,
};
use mmb_control::{Client, ClientError};

/// Samples of a history.
pub const HISTORY: usize = 30;
/// Rules that are read at most. More would take longer than the time between two samples.
const RULES: u64 = 20_000;
/// Sessions that are read at most.
const SESSIONS: usize = 5_000;

/// Documents that only some views need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// Nothing.
    None,
    /// Rules.
    Rules,
    /// Sessions.
    Sessions,
}

/// The documents at one moment.
#[derive(Debug, Default)]
pub struct Sample {
    /// Release of the daemon.
    pub version: String,
    /// Seconds since its start.
    pub uptime: u64,
    pub interfaces: InterfaceList,
    pub runtime: Runtime,
    pub drops: DropList,
    pub nat: NatReply,
    pub functions: FunctionList,
    pub rules: RuleList,
    /// There are too many rules to read them.
    pub too_many_rules: bool,
    pub connections: Vec<ConnectionEntry>,
}

impl Sample {
    /// Reads a sample. `matches` select rules or sessions.
    ///
    /// # Errors
    /// No daemon answers, or it refuses the matches.
    pub fn read(client: &mut Client, extra: Extra, matches: &str) -> Result<Sample, ClientError> {
        let version: VersionEntry = client.get("/v1/version")?;
        let mut sample = Sample {
            uptime: version.uptime_seconds,
            version: version.version,
            interfaces: client.get("/v1/interfaces")?,
            runtime: client.get("/v1/runtime")?,
            drops: client.get("/v1/drops")?,
            nat: client.get("/v1/nat")?,
            functions: client.get("/v1/functions")?,
            ..Sample::default()
        };
        match extra {
            Extra::None => {}
            Extra::Rules if version.rules > RULES => sample.too_many_rules = true,
            Extra::Rules => {
                let mut text = Vec::new();
                client.print(&format!("list {matches}"), true, |piece| {
                    text.extend_from_slice(piece);
                    true
                })?;
                sample.rules = serde_json::from_slice(&text).unwrap_or_default();
            }
            Extra::Sessions => sample.connections = connections(client, matches)?,
        }
        Ok(sample)
    }
}

/// The first sessions of a listing, which has one session on each line.
fn connections(client: &mut Client, matches: &str) -> Result<Vec<ConnectionEntry>, ClientError> {
    let (mut found, mut rest) = (Vec::new(), Vec::new());
    client.print(&format!("show connections {matches}"), true, |piece| {
        rest.extend_from_slice(piece);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            found.extend(connection(&line));
        }
        found.len() < SESSIONS
    })?;
    found.extend(connection(&rest));
    found.truncate(SESSIONS);
    Ok(found)
}

/// The session on a line of the listing; none on its other lines.
fn connection(line: &[u8]) -> Option<ConnectionEntry> {
    let text = std::str::from_utf8(line).ok()?.trim();
    let begin = text.find("{\"protocol\"")?;
    let text = text[begin..].trim_end_matches("]}").trim_end_matches(',');
    serde_json::from_str(text).ok()
}

/// Rates of counters by their keys.
#[derive(Debug, Default)]
pub struct Rates {
    before: HashMap<String, u64>,
    now: HashMap<String, u64>,
    at: Option<Instant>,
    seconds: f64,
    histories: HashMap<String, VecDeque<f64>>,
}

impl Rates {
    /// Begins a sample that was read at this moment.
    pub fn begin(&mut self, at: Instant) {
        self.seconds = self.at.map_or(0.0, |before| at.duration_since(before).as_secs_f64());
        self.at = Some(at);
        self.before = std::mem::take(&mut self.now);
    }

    /// Records a counter and returns its rate per second.
    pub fn of(&mut self, key: String, value: u64) -> f64 {
        let rate = match self.before.get(&key) {
            Some(&before) if self.seconds > 0.0 => value.saturating_sub(before) as f64 / self.seconds,
            _ => 0.0,
        };
        self.now.insert(key, value);
        rate
    }

    /// Appends a value to a history and returns the history.
    pub fn history(&mut self, key: String, value: f64) -> Vec<f64> {
        let values = self.histories.entry(key).or_default();
        values.push_back(value);
        if values.len() > HISTORY {
            values.pop_front();
        }
        values.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn rates_are_differences_over_time() {
        let (mut rates, start) = (Rates::default(), Instant::now());
        let mut at = |seconds, value| {
            rates.begin(start + Duration::from_secs(seconds));
            rates.of("a".into(), value)
        };
        assert_eq!([at(0, 100), at(2, 300), at(4, 300), at(5, 10)], [0.0, 100.0, 0.0, 0.0]);
        assert_eq!(rates.of("new".into(), 7), 0.0);
    }

    #[test]
    fn histories_have_a_limited_length() {
        let mut rates = Rates::default();
        let last = (0..100).map(|n| rates.history("a".into(), f64::from(n))).last().unwrap();
        assert_eq!((last.len(), last[0], last[HISTORY - 1]), (HISTORY, 70.0, 99.0));
    }

    #[test]
    fn lines_without_a_session_are_left_out() {
        assert!(connection(b"{\"connections\":[\n").is_none());
        assert!(connection(b"]}\n").is_none());
    }
}
