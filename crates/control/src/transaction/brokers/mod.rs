//! The brokers that run.
//!
//! Theory of operation. A broker has an [`Entrance`] for each place that its connections come from, and a
//! thread or process for each entrance. Before a change is published, the sockets of new entrances are
//! opened, and brokers in processes are started; if that fails, the change fails. If an entrance that ends
//! has the port of a new one, it pauses first, and goes on if the change fails. Afterwards entrances that are
//! not in the configuration any more stop to accept connections and finish their exchanges, and the others
//! get the functions of their chains; one whose functions run elsewhere now is replaced, on the same socket.
//! An entrance that cannot be opened at the start of the daemon is down. Addresses are tried again with each
//! change.
//!
//! Sockets of transparent brokers are in a network namespace ([`Namespace`]), in which a program of the
//! kernel gives them the connections that come in by their TAPs. Since the TAP ends with the broker, so do
//! its connections.

mod status;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mmb_broker::{Broker, Listener, Settings};
use mmb_dataplane::SocketSelector;
use mmb_nf::Instance;
use mmb_router::{Namespace, NamespaceError};
use mmb_system::log;

use super::state::State as ControlState;
use crate::config::brokers::{Entrance, is_low, settings};
use crate::config::{Config, broker_tap};
use status::BrokerStatus;

/// Why a broker gets no connections.
#[derive(Debug, thiserror::Error)]
#[error("broker `{name}` cannot {what}: {reason}")]
pub(crate) struct BrokerError {
    name: String,
    what: String,
    reason: String,
}

impl BrokerError {
    fn start(name: &str, reason: String) -> BrokerError {
        BrokerError { name: name.to_owned(), what: "start".to_owned(), reason }
    }

    fn new(name: &str, entrance: Entrance, reason: String) -> BrokerError {
        let what = match entrance {
            Entrance::Listen(address) => format!("listen on {address}"),
            Entrance::Transparent { .. } => "be transparent".to_owned(),
        };
        BrokerError { name: name.to_owned(), what, reason }
    }
}

/// Why a socket cannot be opened, as the end of a sentence.
fn reason(entrance: Entrance, error: &std::io::Error) -> String {
    match (error.kind(), entrance) {
        (ErrorKind::AddrInUse, _) => "another program listens there".to_owned(),
        (ErrorKind::AddrNotAvailable, _) => {
            "this machine does not have the address; `ip address add` gives it one".to_owned()
        }
        (ErrorKind::PermissionDenied, Entrance::Listen(address)) if is_low(address) => {
            "ports below 1024 need `mmb run --low-ports`".to_owned()
        }
        (ErrorKind::PermissionDenied, Entrance::Transparent { .. }) => {
            "the daemon has no right to transparent sockets; start it with CAP_NET_ADMIN".to_owned()
        }
        _ => error.to_string(),
    }
}

/// An entrance that is open, and what its event loop was told last.
struct Running {
    broker: Broker,
    functions: Vec<Arc<Instance>>,
    settings: Settings,
    /// None: it has paused.
    listener: Option<Listener>,
}

#[derive(Default)]
struct State {
    running: BTreeMap<Entrance, Running>,
    /// Brokers that finish their exchanges.
    draining: Vec<Broker>,
    /// Entrances that are not open: the names of their brokers, and why.
    down: BTreeMap<Entrance, (String, String)>,
    /// What gives transparent brokers their connections.
    selector: Option<Arc<SocketSelector>>,
}

/// Returns domain and processor of the functions of a broker, if it has copies of them. None: they run in the
/// daemon.
fn place(functions: &[Arc<Instance>]) -> Option<(String, Option<u16>)> {
    let first = functions.first().filter(|function| function.copies().is_some())?;
    Some((first.domain()?.name.to_string(), first.process_cpu()))
}

/// All brokers.
pub(crate) struct RunningBrokers {
    state: Mutex<State>,
    status: BrokerStatus,
    /// The network namespace of transparent brokers, or why there is none.
    namespace: Result<Arc<Namespace>, String>,
}

/// Sockets of new entrances.
#[derive(Default)]
pub(super) struct Listeners {
    opened: BTreeMap<Entrance, Listener>,
    /// Those whose brokers run already: their functions are in processes, which may not start.
    started: BTreeMap<Entrance, Running>,
    /// Entrances that will end, and have paused since they had the port of a new one.
    paused: Vec<Entrance>,
}

impl RunningBrokers {
    pub(super) fn new(namespace: Result<Namespace, NamespaceError>) -> RunningBrokers {
        let namespace = namespace.map(Arc::new).map_err(|error| error.to_string());
        RunningBrokers { state: Mutex::default(), status: BrokerStatus::default(), namespace }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The network namespace of transparent brokers. The error: why there is none.
    pub(super) fn namespace(&self) -> Result<&Arc<Namespace>, String> {
        self.namespace.as_ref().map_err(Clone::clone)
    }

    /// Opens the sockets of the entrances that are not open.
    ///
    /// # Errors
    /// An entrance that `old` does not have cannot be opened.
    pub(super) fn prepare(&self, old: &ControlState, new: &ControlState) -> Result<Listeners, BrokerError> {
        let (mut state, mut listeners) = (self.lock(), Listeners::default());
        for (broker, entrance) in new.entrances() {
            let is_known = old.entrances().any(|(_, known)| known == entrance);
            let prepared = match state.running.get(&entrance) {
                Some(running) => self.prepare_running(running, (new, broker, entrance), &mut listeners),
                None => self.prepare_new(&mut state, (new, broker, entrance), &mut listeners),
            };
            match prepared {
                Ok(()) => {}
                // It was down before.
                Err(_) if is_known && !state.running.contains_key(&entrance) => {}
                Err(error) => {
                    drop(state);
                    self.give_up(listeners);
                    return Err(error);
                }
            }
        }
        Ok(listeners)
    }

    /// Opens the socket of an entrance, and starts its broker if it will be in a process.
    fn prepare_new(
        &self,
        state: &mut State,
        (new, broker, entrance): (&ControlState, &mmb_lang::Broker, Entrance),
        listeners: &mut Listeners,
    ) -> Result<(), BrokerError> {
        let mut opened = self.open(state, entrance);
        if opened.as_ref().is_err_and(|(kind, _)| *kind == ErrorKind::AddrInUse) {
            let paused = state.pause_for(entrance, &new.config);
            if !paused.is_empty() {
                listeners.paused.extend(paused);
                opened = self.open(state, entrance);
            }
        }
        let listener = opened.map_err(|(_, reason)| BrokerError::new(&broker.name, entrance, reason))?;
        self.add_listener((new, broker, entrance), listener, listeners)
    }

    /// Makes the functions that a broker will have, or another broker if they are elsewhere.
    fn prepare_running(
        &self,
        running: &Running,
        (new, broker, entrance): (&ControlState, &mmb_lang::Broker, Entrance),
        listeners: &mut Listeners,
    ) -> Result<(), BrokerError> {
        let functions = new.config.chains().l7_functions(&broker.chain);
        let failed = |reason| BrokerError::start(&broker.name, reason);
        if place(&functions) == place(&running.functions) {
            return running.broker.prepare(&functions).map_err(failed);
        }
        // New connections wait in the same queue.
        let Some(listener) = &running.listener else { return Ok(()) };
        let listener = listener.try_clone().map_err(|error| failed(error.to_string()))?;
        self.add_listener((new, broker, entrance), listener, listeners)
    }

    /// Adds the socket of an entrance, or the broker if its functions are in a process.
    fn add_listener(
        &self,
        (new, broker, entrance): (&ControlState, &mmb_lang::Broker, Entrance),
        listener: Listener,
        listeners: &mut Listeners,
    ) -> Result<(), BrokerError> {
        if place(&new.config.chains().l7_functions(&broker.chain)).is_none() {
            listeners.opened.insert(entrance, listener);
            return Ok(());
        }
        let start = || self.start_broker((new, broker, entrance), listener);
        let started =
            self.status.starting(broker, start).map_err(|reason| BrokerError::start(&broker.name, reason))?;
        listeners.started.insert(entrance, started);
        Ok(())
    }

    /// Opens the socket of an entrance. The error has a kind and a reason.
    fn open(&self, state: &mut State, entrance: Entrance) -> Result<Listener, (ErrorKind, String)> {
        let Entrance::Listen(address) = entrance else {
            return self.open_transparent(state, entrance).map_err(|reason| (ErrorKind::Other, reason));
        };
        Listener::bind(address).map_err(|error| (error.kind(), reason(entrance, &error)))
    }

    fn open_transparent(&self, state: &mut State, entrance: Entrance) -> Result<Listener, String> {
        let namespace = self.namespace()?;
        let failed = |error: std::io::Error| reason(entrance, &error);
        if state.selector.is_none() {
            let attached = namespace.run(SocketSelector::attach).map_err(failed)?;
            state.selector = Some(Arc::new(attached.map_err(|error| error.to_string())?));
        }
        namespace.run(Listener::transparent).and_then(|opened| opened).map_err(failed)
    }

    /// Closes the sockets of a change that failed. Brokers that have paused for it go on.
    pub(super) fn give_up(&self, listeners: Listeners) {
        let Listeners { opened, started, paused } = listeners;
        drop((opened, started));
        let mut state = self.lock();
        for entrance in paused {
            let opened = self.open(&mut state, entrance);
            let Some(running) = state.running.get_mut(&entrance) else { continue };
            let resumed = opened.and_then(|listener| {
                running.listener =
                    Some(listener.try_clone().map_err(|error| (error.kind(), error.to_string()))?);
                running.broker.resume(listener);
                Ok(())
            });
            if let Err((_, reason)) = resumed {
                log::error(format!("error: a broker has paused, and cannot go on: {reason}\n"));
            }
        }
    }

    /// Opens the sockets that can be opened, and starts their brokers.
    pub(super) fn start(&self, new: &ControlState) {
        let mut listeners = Listeners::default();
        for (broker, entrance) in new.config.brokers().entrances() {
            let down = match entrance {
                Entrance::Transparent { port, .. } => new.down.get(&port).cloned(),
                Entrance::Listen(_) => None,
            };
            let mut state = self.lock();
            let opened = down.map_or_else(|| self.open(&mut state, entrance).map_err(|error| error.1), Err);
            let opened = opened.map_err(|reason| BrokerError::new(&broker.name, entrance, reason));
            let added = opened
                .and_then(|listener| self.add_listener((new, broker, entrance), listener, &mut listeners));
            if let Err(error) = added {
                state.note_down(&broker.name, entrance, error.to_string());
            }
        }
        self.switch(new, listeners);
    }

    /// Ends the transparent brokers that a new configuration does not have. Returns whether there were some:
    /// their ports have what the kernel tells the clients.
    pub(super) fn end_transparent(&self, new: &ControlState) -> bool {
        let is_gone = |entrance: &Entrance| {
            matches!(entrance, Entrance::Transparent { .. })
                && new.entrances().all(|(_, wanted)| wanted != *entrance)
        };
        let gone: Vec<_> = self.lock().running.extract_if(.., |entrance, _| is_gone(entrance)).collect();
        self.show(&self.lock());
        !gone.is_empty()
    }

    /// Makes the brokers of a state run.
    pub(super) fn switch(&self, new: &ControlState, mut listeners: Listeners) {
        let state = &mut *self.lock();
        state.draining.retain(|broker| !broker.has_ended());
        let wanted: Vec<_> = new.config.brokers().entrances().collect();
        let is_wanted = |entrance: &Entrance| wanted.iter().any(|(_, other)| other == entrance);
        state.down.retain(|entrance, _| is_wanted(entrance));
        for (_, gone) in state.running.extract_if(.., |entrance, _| !is_wanted(entrance)) {
            gone.broker.drain();
            state.draining.push(gone.broker);
        }
        for (broker, entrance) in wanted {
            let started = match (listeners.started.remove(&entrance), listeners.opened.remove(&entrance)) {
                (Some(running), _) => Ok(Some(running)),
                (None, Some(listener)) => self.start_broker((new, broker, entrance), listener).map(Some),
                (None, None) => Ok(None),
            };
            let started = started
                .map(|running| running.into_iter().for_each(|running| state.replace(entrance, running)));
            if let Some(running) = state.running.get_mut(&entrance) {
                let functions = new.config.chains().l7_functions(&broker.chain);
                running.update(functions, settings(broker, entrance));
            }
            if let Err(reason) = started.and_then(|()| self.select(state, entrance)) {
                let error = BrokerError::start(&broker.name, reason);
                log::error(format!("error: {error}\n"));
                state.note_down(&broker.name, entrance, error.to_string());
            }
        }
        self.show(state);
    }

    /// Lets `show brokers` print a state.
    fn show(&self, state: &State) {
        let views = state.running.iter().map(|(entrance, running)| (*entrance, running.broker.view()));
        self.status.set(views.collect(), state.down.clone());
    }

    /// Starts the broker of an entrance, in the namespace if its connections to servers are to be there.
    fn start_broker(
        &self,
        (new, broker, entrance): (&ControlState, &mmb_lang::Broker, Entrance),
        listener: Listener,
    ) -> Result<Running, String> {
        let (functions, settings) =
            (new.config.chains().l7_functions(&broker.chain), settings(broker, entrance));
        let own_listener = listener.try_clone().map_err(|error| error.to_string())?;
        let (name, own_functions) = (broker.name.to_string(), functions.clone());
        let supervisor = new.config.platform().supervisor.clone().filter(|_| place(&functions).is_some());
        let start = move || match supervisor {
            Some(supervisor) => {
                Broker::start_in_process(&name, own_listener, own_functions, settings, &supervisor)
            }
            None => {
                let started = Broker::start(&name, own_listener, own_functions, settings);
                started.map_err(|error| error.to_string())
            }
        };
        let broker = match settings.keeps_source {
            true => self.namespace()?.run(start).map_err(|error| error.to_string())??,
            false => start()?,
        };
        Ok(Running { broker, functions, settings, listener: Some(listener) })
    }

    /// Makes the kernel give the connections of a transparent entrance to its socket. Its TAP may be a new
    /// one.
    fn select(&self, state: &State, entrance: Entrance) -> Result<(), String> {
        let (Entrance::Transparent { port, .. }, Some(running)) = (entrance, state.running.get(&entrance))
        else {
            return Ok(());
        };
        let (Some(socket), Some(selector)) = (&running.listener, &state.selector) else { return Ok(()) };
        let tap = broker_tap(port);
        let index = self.namespace()?.run(move || nix::net::if_::if_nametoindex(tap.as_str()));
        let index = index.and_then(|found| Ok(found?)).map_err(|error| error.to_string())?;
        selector.select(index, socket.as_fd()).map_err(|error| error.to_string())
    }
}

impl State {
    /// An entrance has a broker from here on. The one that it has had finishes its exchanges.
    fn replace(&mut self, entrance: Entrance, running: Running) {
        self.down.remove(&entrance);
        if let Some(former) = self.running.insert(entrance, running) {
            former.broker.drain();
            self.draining.push(former.broker);
        }
    }

    /// Notes why an entrance is not open, in one sentence.
    fn note_down(&mut self, name: &str, entrance: Entrance, reason: String) {
        self.down.insert(entrance, (name.to_owned(), reason));
    }

    /// Pauses the brokers that have the port of a new one and that a configuration does not have any more:
    /// one of both listens on all addresses. Returns their entrances.
    fn pause_for(&mut self, new: Entrance, config: &Config) -> Vec<Entrance> {
        let is_wanted = |entrance: &Entrance| config.brokers().entrances().any(|(_, one)| one == *entrance);
        let has_port = |old: &Entrance| match (old, new) {
            (Entrance::Listen(old), Entrance::Listen(new)) => {
                old.port() == new.port() && (old.ip().is_unspecified() || new.ip().is_unspecified())
            }
            _ => false,
        };
        let gone = self.running.iter_mut().filter(|(entrance, _)| has_port(entrance) && !is_wanted(entrance));
        gone.map(|(entrance, running)| {
            running.broker.pause();
            running.listener = None;
            *entrance
        })
        .collect()
    }
}

impl ControlState {
    /// The entrances of brokers whose devices are not down.
    fn entrances(&self) -> impl Iterator<Item = (&mmb_lang::Broker, Entrance)> {
        self.config.brokers().entrances().filter(|(_, entrance)| match entrance {
            Entrance::Transparent { port, .. } => self.is_up(*port),
            Entrance::Listen(_) => true,
        })
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
