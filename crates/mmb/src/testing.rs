//! Tests of network functions: packets pass rules and chains one by one, with the sessions of the daemon,
//! without devices.

use mmb_flow::SessionSettings;
use mmb_nf::Registry;
pub use mmb_packet::build::{Frame, Ip4, Ip6, Tcp, Udp};
use mmb_packet::{PacketBuf, VecPacket};
pub use mmb_session_harness::Outcome;
use mmb_session_harness::{ProcessedPacket, RuleSet, SessionHarness};

/// Maximum number of sessions of a [`Bench`].
const SESSIONS: usize = 1024;

/// Seed of random numbers.
const SEED: u64 = 1;

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BenchError {
    /// A line is wrong.
    #[error("{reason}")]
    Configuration {
        /// The line and its error.
        reason: String,
    },
    /// There is not enough memory.
    #[error("no memory for sessions: {reason}")]
    Memory {
        /// The reason.
        reason: String,
    },
}

/// One worker with two wires: between ports 0 and 1, and between 2 and 3. Interfaces have the names `port0`,
/// `port1`, …
pub struct Bench {
    harness: SessionHarness,
    now: u32,
    processed: Vec<ProcessedPacket>,
}

impl Bench {
    /// A worker with a configuration and the function types of a registry.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub fn new(functions: &Registry, lines: &str) -> Result<Bench, BenchError> {
        let rules = rules(functions, lines, None)?;
        let harness = SessionHarness::new(1, SESSIONS, SEED, rules)
            .map_err(|error| BenchError::Memory { reason: error.to_string() })?;
        Ok(Bench { harness, now: 0, processed: Vec::new() })
    }

    /// Applies a new configuration, as `mmb apply` does.
    ///
    /// # Errors
    /// See [`BenchError`]. Nothing has changed then.
    pub fn apply(&mut self, functions: &Registry, lines: &str) -> Result<(), BenchError> {
        let rules = rules(functions, lines, Some(self.harness.rules()))?;
        self.harness.replace_rules(rules);
        Ok(())
    }

    /// Receives a frame on a port, and returns the outcome.
    pub fn send(&mut self, in_port: u16, frame: &[u8]) -> Outcome {
        self.processed = self.harness.process(in_port, VecPacket::new(frame));
        self.processed.first().map_or(Outcome::Lost, |packet| packet.outcome)
    }

    /// The frames of the last call with their outcomes: the received packet, possibly edited, and then the
    /// frames that functions emitted.
    pub fn frames(&self) -> impl Iterator<Item = (Outcome, &[u8])> {
        self.processed.iter().map(|frame| (frame.outcome, frame.packet.head()))
    }

    /// Lets time pass. Sessions expire.
    pub fn wait(&mut self, milliseconds: u32) {
        self.now = self.now.wrapping_add(milliseconds);
        self.processed = self.harness.advance(self.now);
    }

    /// The values that an instance reports; empty without such an instance.
    pub fn report(&self, instance: &str) -> Vec<(String, String)> {
        self.harness.rules().chains.instance(instance).map(|instance| instance.report()).unwrap_or_default()
    }
}

fn rules(functions: &Registry, lines: &str, previous: Option<&RuleSet>) -> Result<RuleSet, BenchError> {
    let lines: Vec<&str> = lines.lines().filter(|line| !line.trim().is_empty()).collect();
    RuleSet::parse_with(&lines, SessionSettings::default(), previous, functions, 1)
        .map_err(|error| BenchError::Configuration { reason: error.to_string() })
}
