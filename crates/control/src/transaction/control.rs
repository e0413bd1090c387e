//! The running configuration and the lock that orders its changes.
//!
//! Theory of operation. A change has five steps:
//!
//! 1. [`Control::begin`] takes the lock on changes and copies the current [`State`].
//! 2. The change computes the next state.
//! 3. `devices` opens the devices and mirrors the routes that the next state needs.
//! 4. [`Control::publish`] gives the next state to the engine. It returns when no worker uses the old one.
//! 5. [`Control::commit`] makes the next state the current one. What only the old state used is freed:
//!    devices, routes, and the slots of deleted rules, whose counters are set to zero.
//!
//! An error before the publication is undone, so a failed change has no effect. Readers copy the current
//! state and do not wait for changes: the lock around the state is held for the copy only.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use mmb_dataplane::{Engine, WorkerFailure};
use mmb_lang::SourceSpan;
use mmb_router::{Namespace, NamespaceError};
use mmb_system::syslog::DEFAULT_SOCKET;

use super::addresses::PortAddresses;
use super::background::Background;
use super::brokers::RunningBrokers;
use super::links::LinkThread;
use super::maintenance::{LimitedSources, Maintenance};
use super::memory::check_memory;
use super::mirror::Mirror;
use super::sets::queue::ElementQueue;
use super::state::State;
use crate::audit::AuditFile;
use crate::config::Config;
use crate::error::CommandError;
use crate::history::History;
use crate::refusals::ApiCounters;

/// The engine and the configuration that it runs.
pub struct Control {
    /// Declared first, so that it is dropped first: its threads may use everything below.
    background: Background,
    brokers: RunningBrokers,
    /// Dropped before the engine, to which it publishes routes.
    mirror: Mirror,
    engine: Arc<Engine>,
    /// Held by the change in progress.
    changes: Mutex<()>,
    /// Changes of elements of sets behind it.
    elements: ElementQueue,
    state: Mutex<State>,
    started: Instant,
    maintenance: Maintenance,
    limited: LimitedSources,
    link_thread: LinkThread,
    api: Arc<ApiCounters>,
    history: History,
    /// The file that the first configuration came from.
    file: OnceLock<PathBuf>,
    /// The socket of the system's log.
    syslog: OnceLock<PathBuf>,
    /// Where changes and refused logins are recorded.
    audit: OnceLock<Arc<AuditFile>>,
}

impl Control {
    /// A control for an engine, with an empty configuration. `state` is the directory of what the process
    /// keeps.
    pub(super) fn new(
        engine: Engine,
        state: Option<&Path>,
        namespace: Result<Namespace, NamespaceError>,
    ) -> Control {
        Control {
            background: Background::default(),
            brokers: RunningBrokers::new(namespace),
            mirror: Mirror::new(state),
            engine: Arc::new(engine),
            changes: Mutex::default(),
            elements: ElementQueue::default(),
            state: Mutex::default(),
            started: Instant::now(),
            maintenance: Maintenance::default(),
            limited: LimitedSources::default(),
            link_thread: LinkThread::default(),
            api: Arc::default(),
            history: History::default(),
            file: OnceLock::new(),
            syslog: OnceLock::new(),
            audit: OnceLock::new(),
        }
    }

    /// Begins a change: waits for the change in progress and copies the current state.
    pub(super) fn begin(&self) -> (MutexGuard<'_, ()>, State) {
        let turn = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        (turn, self.state())
    }

    /// Whether a change is in progress.
    pub(crate) fn is_changing(&self) -> bool {
        matches!(self.changes.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Ends a change: makes `state` the current state, and records its lines in the history.
    pub(super) fn commit(&self, state: State) {
        let needs_rebuild = state.config.policy().is_stale();
        let has_pools = !state.config.nat().pools().is_empty();
        let has_log = state.config.policy().has_log();
        self.background.sync(state.config.chains().program());
        self.history.record(&state.config);
        let old = std::mem::replace(&mut *self.lock(), state);
        // Freeing many rules takes long. It happens outside the lock, so that readers do not wait.
        drop(old);
        if needs_rebuild {
            self.maintenance.request_rebuild();
        }
        if has_pools {
            self.addresses().wake();
        }
        if has_pools || has_log {
            self.maintenance.request_event_check();
        }
    }

    /// Ends a change of the elements of sets: makes `state` the current state.
    pub(super) fn commit_elements(&self, state: State) {
        let needs_rebuild = state.config.policy().is_stale();
        self.history.update_elements(&state.config);
        let old = std::mem::replace(&mut *self.lock(), state);
        drop(old);
        if needs_rebuild {
            self.maintenance.request_rebuild();
        }
    }

    /// Publishes a state to the engine. Returns when no worker uses the state before it.
    ///
    /// # Errors
    /// The engine works no longer; the process should end.
    pub(super) fn publish(&self, state: &State) -> Result<(), WorkerFailure> {
        self.engine.publish(state.config.forwarding(|id| state.is_up(id)))
    }

    /// Calls `hook` when a worker has ended or does not respond. The process should end then.
    pub fn on_failure(&self, hook: impl FnOnce(WorkerFailure) + Send + 'static) {
        self.engine.on_failure(hook);
    }

    /// Frees the slots of deleted rules and sets their counters to zero. Call it after the publication
    /// without them.
    pub(super) fn release(&self, config: &mut Config, slots: impl IntoIterator<Item = u32>) {
        for slot in slots {
            self.engine.zero_rule_counters(slot);
            config.policy_mut().release(slot);
        }
    }

    /// Adds something to the configuration.
    ///
    /// # Errors
    /// Those of [`Control::change`], and too little memory.
    pub(super) fn add<T>(
        &self,
        edit: impl FnOnce(&mut Config) -> Result<T, CommandError>,
    ) -> Result<T, CommandError> {
        check_memory(0).map_err(|error| CommandError::failed(error.to_string(), SourceSpan::default()))?;
        self.change(edit)
    }

    /// Changes the configuration in a way that deletes no rule.
    ///
    /// # Errors
    /// Those of `edit`, and devices or routes that the next state needs and cannot get.
    pub(super) fn change<T>(
        &self,
        edit: impl FnOnce(&mut Config) -> Result<T, CommandError>,
    ) -> Result<T, CommandError> {
        let (_turn, state) = self.begin();
        let mut next = state.clone();
        let value = edit(&mut next.config)?;
        next.forget_deleted_ports();
        self.transition(state, &next)
            .map_err(|error| CommandError::failed(error.reason(), SourceSpan::default()))?;
        self.commit(next);
        Ok(value)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is replaced as a whole at the end of a change. A panic before that leaves the old one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of the current state.
    pub(crate) fn state(&self) -> State {
        self.lock().clone()
    }

    /// Changes of elements of sets that wait for their turn.
    pub(super) fn waiting_elements(&self) -> &ElementQueue {
        &self.elements
    }

    /// The engine.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The mirror of the kernel's routes.
    pub(crate) fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// The addresses of routed ports.
    pub(super) fn addresses(&self) -> &PortAddresses {
        self.mirror.addresses()
    }

    /// The queue of maintenance work.
    pub(super) fn limited(&self) -> &LimitedSources {
        &self.limited
    }

    /// The thread that watches the kernel's interfaces.
    pub(super) fn link_thread(&self) -> &LinkThread {
        &self.link_thread
    }

    /// Requests to the maintenance thread.
    pub(super) fn maintenance(&self) -> &Maintenance {
        &self.maintenance
    }

    /// The brokers that run.
    pub(crate) fn running_brokers(&self) -> &RunningBrokers {
        &self.brokers
    }

    /// What the API refused.
    pub(crate) fn api_counters(&self) -> &Arc<ApiCounters> {
        &self.api
    }

    /// The configurations that were in force.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Notes the file that the first configuration came from, once.
    pub fn set_file(&self, file: PathBuf) {
        self.file.get_or_init(|| file);
    }

    /// The file that the first configuration came from.
    pub fn file(&self) -> Option<&Path> {
        self.file.get().map(PathBuf::as_path)
    }

    /// Notes the socket of the system's log, once. Without a call, it is that of syslog(3).
    pub fn set_syslog_socket(&self, socket: PathBuf) {
        self.syslog.get_or_init(|| socket);
    }

    /// The socket of the system's log.
    pub(super) fn syslog_socket(&self) -> &Path {
        self.syslog.get().map_or(Path::new(DEFAULT_SOCKET), PathBuf::as_path)
    }

    /// Sets where changes and refused logins are recorded, once. To be called before clients are served.
    pub fn set_audit(&self, audit: Arc<AuditFile>) {
        self.audit.get_or_init(|| audit);
    }

    /// Where changes and refused logins are recorded.
    pub(crate) fn audit(&self) -> Option<&Arc<AuditFile>> {
        self.audit.get()
    }

    /// Time since the start.
    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}
