//! The brokers that run.
//!
//! Theory of operation. A broker is known by the address on which it listens. Before a change is published,
//! the sockets of new brokers are opened; if one cannot be, the change fails. If a broker that ends has the
//! port of a new one, it pauses first, and goes on if the change fails. Afterwards brokers that are not
//! in the configuration any more stop to accept connections and finish their exchanges, and the others get
//! the functions of their chains. A broker that cannot listen at the start of the daemon is down, and is
//! tried again with each change.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mmb_broker::{Broker, Counters, Listener, Settings};
use mmb_nf::Instance;
use mmb_system::log;

use crate::config::Config;
use crate::config::brokers::{is_low, settings};

/// Why a broker cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("broker `{name}` cannot listen on {address}: {reason}")]
pub(crate) struct BrokerError {
    name: String,
    address: SocketAddr,
    reason: String,
}

impl BrokerError {
    fn new(name: &str, address: SocketAddr, error: &std::io::Error) -> BrokerError {
        let reason = match error.kind() {
            ErrorKind::AddrInUse => "another program listens there".to_owned(),
            ErrorKind::AddrNotAvailable => {
                "this machine does not have the address; `ip address add` gives it one".to_owned()
            }
            ErrorKind::PermissionDenied if is_low(address) => {
                "ports below 1024 need `mmb run --low-ports`".to_owned()
            }
            _ => error.to_string(),
        };
        BrokerError { name: name.to_owned(), address, reason }
    }
}

/// A broker that runs, and what it was told last.
struct Running {
    broker: Broker,
    functions: Vec<Arc<Instance>>,
    settings: Settings,
}

#[derive(Default)]
struct State {
    running: BTreeMap<SocketAddr, Running>,
    /// Brokers that finish their exchanges.
    draining: Vec<Broker>,
    /// Why brokers do not run, by name.
    down: BTreeMap<String, String>,
}

/// All brokers.
#[derive(Default)]
pub(crate) struct RunningBrokers(Mutex<State>);

/// Sockets of new brokers.
#[derive(Default)]
pub(super) struct Listeners {
    opened: BTreeMap<SocketAddr, Listener>,
    /// Addresses of brokers that will end, and have paused since they had the port of a new one.
    paused: Vec<SocketAddr>,
}

impl RunningBrokers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the sockets of the brokers that do not run.
    ///
    /// # Errors
    /// A broker that `old` does not have cannot listen.
    pub(super) fn prepare(&self, old: &Config, new: &Config) -> Result<Listeners, BrokerError> {
        let (state, mut listeners) = (self.lock(), Listeners::default());
        for broker in new.brokers().all().iter().filter(|one| !state.running.contains_key(&one.listen)) {
            let mut bound = Listener::bind(broker.listen);
            if bound.as_ref().is_err_and(|error| error.kind() == ErrorKind::AddrInUse) {
                let paused = state.pause_for(broker.listen, new);
                if !paused.is_empty() {
                    listeners.paused.extend(paused);
                    bound = Listener::bind(broker.listen);
                }
            }
            match bound {
                Ok(listener) => drop(listeners.opened.insert(broker.listen, listener)),
                Err(error) if old.brokers().all().iter().all(|known| known.listen != broker.listen) => {
                    drop(state);
                    self.give_up(listeners);
                    return Err(BrokerError::new(&broker.name, broker.listen, &error));
                }
                // It was down before.
                Err(_) => {}
            }
        }
        Ok(listeners)
    }

    /// Closes the sockets of a change that failed. Brokers that have paused for it go on.
    pub(super) fn give_up(&self, listeners: Listeners) {
        let Listeners { opened, paused } = listeners;
        drop(opened);
        let state = self.lock();
        for address in paused {
            let Some(running) = state.running.get(&address) else { continue };
            match Listener::bind(address) {
                Ok(listener) => running.broker.resume(listener),
                Err(error) => {
                    log::error(format!("error: a broker cannot listen on {address} again: {error}\n"));
                }
            }
        }
    }

    /// Opens the sockets that can be opened, and starts their brokers.
    pub(super) fn start(&self, config: &Config) {
        let mut listeners = Listeners::default();
        for broker in config.brokers().all() {
            match Listener::bind(broker.listen) {
                Ok(listener) => drop(listeners.opened.insert(broker.listen, listener)),
                Err(error) => {
                    let reason = BrokerError::new(&broker.name, broker.listen, &error).to_string();
                    self.lock().down.insert(broker.name.to_string(), reason);
                }
            }
        }
        self.switch(config, listeners);
    }

    /// Makes the brokers of a configuration run.
    pub(super) fn switch(&self, config: &Config, mut listeners: Listeners) {
        let state = &mut *self.lock();
        state.draining.retain(|broker| !broker.has_ended());
        let wanted = config.brokers().all();
        state.down.retain(|name, _| wanted.iter().any(|broker| *broker.name == **name));
        let is_wanted = |address: &SocketAddr| wanted.iter().any(|broker| broker.listen == *address);
        for (_, gone) in state.running.extract_if(.., |address, _| !is_wanted(address)) {
            gone.broker.drain();
            state.draining.push(gone.broker);
        }
        for broker in wanted {
            let (functions, settings) = (config.chains().l7_functions(&broker.chain), settings(broker));
            if let Some(running) = state.running.get_mut(&broker.listen) {
                running.update(functions, settings);
                continue;
            }
            let Some(listener) = listeners.opened.remove(&broker.listen) else { continue };
            match Broker::start(&broker.name, listener, functions.clone(), settings) {
                Ok(started) => {
                    state.down.remove(&*broker.name.text);
                    state.running.insert(broker.listen, Running { broker: started, functions, settings });
                }
                Err(error) => {
                    log::error(format!("error: broker `{}` cannot start: {error}\n", &*broker.name));
                    state.down.insert(broker.name.to_string(), error.to_string());
                }
            }
        }
    }

    /// Returns the brokers that do not run, with the reasons.
    pub(crate) fn down(&self) -> Vec<(String, String)> {
        self.lock().down.iter().map(|(name, reason)| (name.clone(), reason.clone())).collect()
    }

    /// Returns the counters of the broker that listens on an address.
    pub(crate) fn counters(&self, address: SocketAddr) -> Option<Arc<Counters>> {
        self.lock().running.get(&address).map(|running| running.broker.counters().clone())
    }
}

impl State {
    /// Pauses the brokers that have the port of a new broker and that a configuration does not have any more:
    /// one of both listens on all addresses. Returns their addresses.
    fn pause_for(&self, new: SocketAddr, config: &Config) -> Vec<SocketAddr> {
        let is_wanted =
            |address: &SocketAddr| config.brokers().all().iter().any(|one| one.listen == *address);
        let has_port = |old: &SocketAddr| {
            old.port() == new.port() && (old.ip().is_unspecified() || new.ip().is_unspecified())
        };
        let gone = self.running.iter().filter(|(address, _)| has_port(address) && !is_wanted(address));
        gone.map(|(address, running)| {
            running.broker.pause();
            *address
        })
        .collect()
    }
}

impl Running {
    fn update(&mut self, functions: Vec<Arc<Instance>>, settings: Settings) {
        let is_same = functions.len() == self.functions.len()
            && functions.iter().zip(&self.functions).all(|(new, old)| Arc::ptr_eq(new, old));
        if !is_same || settings != self.settings {
            self.broker.update(functions.clone(), settings);
            (self.functions, self.settings) = (functions, settings);
        }
    }
}
