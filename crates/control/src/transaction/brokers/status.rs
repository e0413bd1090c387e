//! What `show brokers` prints.
//!
//! Theory of operation. The lock around the brokers is held while processes start, which may take seconds.
//! So what is printed has a lock of its own, which nobody holds for longer than a copy takes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mmb_broker::{BrokerView, Count};

use super::RunningBrokers;
use crate::config::Config;
use crate::config::brokers::Entrance;

/// The state of the brokers, for `show brokers`.
#[derive(Default)]
pub(super) struct BrokerStatus(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    running: BTreeMap<Entrance, BrokerView>,
    /// Entrances that are not open: the names of their brokers, and why.
    down: BTreeMap<Entrance, (String, String)>,
    /// Brokers whose processes are being started, for a configuration that may not be published yet.
    starting: Vec<mmb_lang::Broker>,
}

impl BrokerStatus {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the brokers that run, and those that do not.
    pub fn set(&self, running: BTreeMap<Entrance, BrokerView>, down: BTreeMap<Entrance, (String, String)>) {
        let mut entries = self.lock();
        (entries.running, entries.down) = (running, down);
    }

    /// Runs what starts the process of a broker.
    pub fn starting<T>(&self, broker: &mmb_lang::Broker, start: impl FnOnce() -> T) -> T {
        self.lock().starting.push(broker.clone());
        let started = start();
        let mut entries = self.lock();
        if let Some(at) = entries.starting.iter().position(|one| one.name.text == broker.name.text) {
            entries.starting.remove(at);
        }
        started
    }
}

impl RunningBrokers {
    /// Returns the brokers of which an entrance is not open, with the reasons.
    pub(crate) fn down(&self) -> Vec<(String, String)> {
        self.status.lock().down.values().cloned().collect()
    }

    /// Returns the brokers whose processes are being started.
    pub(crate) fn starting(&self) -> Vec<mmb_lang::Broker> {
        self.status.lock().starting.clone()
    }

    /// Whether a broker has no process at the moment, and gets another one.
    pub(crate) fn is_restarting(&self, config: &Config, name: &str) -> bool {
        let entries = self.status.lock();
        let mut own = config.brokers().entrances().filter(|(broker, _)| *broker.name == *name);
        own.any(|(_, entrance)| entries.running.get(&entrance).is_some_and(BrokerView::is_starting))
    }

    /// Returns a counter of the broker with these entrances.
    pub(crate) fn count(&self, config: &Config, name: &str, which: Count) -> u64 {
        let entries = self.status.lock();
        let own = config.brokers().entrances().filter(|(broker, _)| *broker.name == *name);
        let running = own.filter_map(|(_, entrance)| entries.running.get(&entrance));
        running.map(|view| view.counters().get(which)).sum()
    }
}
