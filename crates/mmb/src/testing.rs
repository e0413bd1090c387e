//! Packets through rules and chains, one by one, for tests of network functions: sessions as in the daemon, no devices.

use mmb_flow::SessionSettings;
use mmb_nf::Registry;
pub use mmb_packet::build::{Frame, Ip4, Ip6, Tcp, Udp};
use mmb_packet::{PacketBuf, VecPacket};
pub use mmb_session::Outcome;
use mmb_session::{Driver, Rules, Sent};

/// Sessions that a [`Bench`] has room for.
const SESSIONS: usize = 1024;

/// Seed of everything random.
const SEED: u64 = 1;

/// Two wires: between ports 0 and 1, and between 2 and 3. Interfaces are called `port0`, `port1`, …
pub struct Bench {
    driver: Driver,
    now: u32,
    sent: Vec<Sent>,
}

impl Bench {
    /// One worker under a configuration, with functions of these types.
    ///
    /// # Errors
    /// The line that is wrong, and what is wrong with it.
    pub fn new(functions: &Registry, lines: &str) -> Result<Bench, String> {
        let rules = rules(functions, lines, None)?;
        let driver =
            Driver::new(1, SESSIONS, SEED, rules).map_err(|e| format!("no memory for sessions: {e}"))?;
        Ok(Bench { driver, now: 0, sent: Vec::new() })
    }

    /// Goes on under another configuration, as by `mmb apply`.
    ///
    /// # Errors
    /// As [`Bench::new`]; nothing has changed then.
    pub fn apply(&mut self, functions: &Registry, lines: &str) -> Result<(), String> {
        let rules = rules(functions, lines, Some(self.driver.rules()))?;
        self.driver.change(rules);
        Ok(())
    }

    /// Sends a frame in by a port, and says what becomes of it.
    pub fn send(&mut self, in_port: u16, frame: &[u8]) -> Outcome {
        self.sent = self.driver.run(in_port, VecPacket::new(frame));
        self.sent.first().map_or(Outcome::Lost, |sent| sent.outcome)
    }

    /// The frames that the last call brought forth, with what became of each: the packet itself first, as it has become,
    /// then those that functions have made.
    pub fn frames(&self) -> impl Iterator<Item = (Outcome, &[u8])> {
        self.sent.iter().map(|sent| (sent.outcome, sent.packet.head()))
    }

    /// Lets so many milliseconds pass: sessions end that are over.
    pub fn wait(&mut self, milliseconds: u32) {
        self.now = self.now.wrapping_add(milliseconds);
        self.sent = self.driver.pass(self.now);
    }

    /// What an instance says of itself; nothing if there is none.
    pub fn report(&self, instance: &str) -> Vec<(String, String)> {
        self.driver.rules().chains.instance(instance).map(|instance| instance.report()).unwrap_or_default()
    }
}

fn rules(functions: &Registry, lines: &str, before: Option<&Rules>) -> Result<Rules, String> {
    let lines: Vec<&str> = lines.lines().filter(|line| !line.trim().is_empty()).collect();
    Rules::read_with(&lines, SessionSettings::default(), before, functions, 1)
}
