//! Sessions that go through service chains, of functions that are made for these tests.

mod bypass;
#[path = "../common/mod.rs"]
mod common;
mod functions;
mod held;
#[path = "../../../nf/tests/common/holder.rs"]
mod holder;
mod kinds;
mod live;
mod numbers;
mod path_mtu;
mod settled;
mod translation;
mod vectors;
mod verdicts;
mod workers;

use mmb_flow::SessionSettings;
use mmb_session_harness::{Outcome, ProcessedPacket, RuleSet};

use common::*;

const CLIENT: End = ([10, 0, 0, 1], 4000);
const SERVER: End = ([192, 0, 2, 1], 80);

/// The functions that chains may have.
fn registry() -> mmb_nf::Registry {
    let mut registry = functions::registry();
    registry.add::<holder::Holder>().add::<holder::Trace>();
    registry
}

/// A middlebox whose rules may name chains.
struct World {
    net: Net,
    workers: u16,
}

impl World {
    #[track_caller]
    fn new(lines: &[&str]) -> World {
        World::with(lines, 1, SessionSettings::default())
    }

    #[track_caller]
    fn with(lines: &[&str], workers: u16, settings: SessionSettings) -> World {
        let rules = RuleSet::parse_with(lines, settings, None, &registry(), workers);
        World { net: Net::with(rules.unwrap_or_else(|error| panic!("{error}")), workers, 1000), workers }
    }

    /// Other rules, functions and chains; what has the same text stays what it is.
    #[track_caller]
    fn change(&mut self, lines: &[&str]) {
        let before = self.net.harness.rules();
        let rules = RuleSet::parse_with(lines, before.settings, Some(before), &registry(), self.workers);
        self.net.harness.replace_rules(rules.unwrap_or_else(|error| panic!("{error}")));
    }

    /// What a function says of itself.
    #[track_caller]
    fn report(&self, instance: &str) -> Vec<(String, String)> {
        self.net.harness.rules().chains.instance(instance).expect("there is one").report()
    }

    /// A number that it counts.
    #[track_caller]
    fn count(&self, instance: &str, name: &str) -> u64 {
        let report = self.report(instance);
        let (_, value) = report.iter().find(|(known, _)| known == name).expect("it counts that");
        value.parse().expect("a number")
    }

    /// What a `see` has seen since it was made.
    #[track_caller]
    fn seen(&self, instance: &str) -> Vec<String> {
        self.report(instance).into_iter().map(|(_, line)| line).collect()
    }

    /// The chains of all sessions.
    fn chains(&self) -> Vec<Option<String>> {
        self.net.views().iter().map(|view| view.chain.as_deref().map(str::to_owned)).collect()
    }
}

/// The packets that went on, and what functions have made.
fn parts(sent: Vec<ProcessedPacket>) -> (Vec<ProcessedPacket>, Vec<ProcessedPacket>) {
    sent.into_iter().partition(|sent| !matches!(sent.outcome, Outcome::Emitted(_)))
}
