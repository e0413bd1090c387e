//! Work that no command waits for: rebuilding the classifier, logging events of NAT pools and packets that
//! rules log, and taking back changes that nobody has confirmed.
//!
//! Theory of operation. All of it runs on one thread.
//!
//! A rule that is added alone goes into the existing tables of the classifier. After many such rules other
//! tables would be faster ([`mmb_policy::Policy::is_stale`]). The thread then builds a new classifier from a
//! copy of the configuration. It holds no lock meanwhile, so commands go on during the seconds that the
//! largest policies take. The result is published if the rules and the elements of sets have not changed
//! since; otherwise the thread starts again, and after some attempts changes wait for it. Rules keep their
//! indexes, slots and counters.
//!
//! While there are NAT pools, the thread fetches the events of the workers four times a second and writes one
//! line each to standard error. So it does with the sources that have reached their limit of sessions, and
//! with packets that rules log, which may go to the system's log instead.
//! Workers never wait for it. Events that did not fit the workers' buffers are counted, and the log has their
//! number.

mod limited;
mod nat_log;
mod rule_log;

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use mmb_system::log;
use mmb_system::syslog::Syslog;

pub(super) use self::limited::LimitedSources;
use self::rule_log::RuleLogWriter;
use super::control::Control;
use crate::text::count;
pub(super) use crate::text::utc;

/// Time between two attempts to rebuild while rules change.
const RETRY: Duration = Duration::from_millis(200);

/// Rebuilds that changes have made useless, one after the other, before changes have to wait for one.
const MAX_FAILED: u32 = 10;

/// Time between two reads of the workers' events.
const LOG_INTERVAL: Duration = Duration::from_millis(250);

/// Requests to the thread that runs [`Control::run_maintenance`].
#[derive(Debug, Default)]
pub(super) struct Maintenance {
    requests: Mutex<Requests>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Requests {
    /// Build a new classifier.
    rebuild: bool,
    /// See whether there are NAT pools or rules that log now.
    check_events: bool,
    /// See how long a change waits for its confirmation.
    check_confirmation: bool,
    /// See when the next element of a set expires.
    check_expiry: bool,
    /// End the thread.
    stop: bool,
}

impl Maintenance {
    fn request(&self, set: impl FnOnce(&mut Requests)) {
        set(&mut self.requests.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Requests a new classifier.
    pub fn request_rebuild(&self) {
        self.request(|requests| requests.rebuild = true);
    }

    /// Requests a check whether there are NAT pools or rules that log.
    pub fn request_event_check(&self) {
        self.request(|requests| requests.check_events = true);
    }

    /// Requests a check whether a change waits for its confirmation.
    pub fn request_confirmation_check(&self) {
        self.request(|requests| requests.check_confirmation = true);
    }

    /// Requests a check when the next element of a set expires.
    pub fn request_expiry(&self) {
        self.request(|requests| requests.check_expiry = true);
    }

    /// Waits for requests, at most for `timeout` if it is given, and takes them.
    fn wait(&self, timeout: Option<Duration>) -> Requests {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let is_idle = |r: &mut Requests| {
            !(r.rebuild || r.check_events || r.check_confirmation || r.check_expiry || r.stop)
        };
        let mut requests = match timeout {
            None => self.changed.wait_while(requests, is_idle).unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                let waited = self.changed.wait_timeout_while(requests, timeout, is_idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        std::mem::take(&mut *requests)
    }
}

impl Control {
    /// Runs maintenance work until [`Control::stop_maintenance`]. Call it on a thread of its own.
    pub fn run_maintenance(&self) {
        let (mut lost, mut failed_rebuilds) = (0, 0);
        let mut rule_log = RuleLogWriter::new(Syslog::new(self.syslog_socket().to_owned()));
        loop {
            let config = self.state().config;
            let has_pools = !config.nat().pools().is_empty();
            let logs_packets = config.policy().has_log();
            let has_sessions = has_pools || config.policy().is_stateful() || logs_packets;
            drop(config);
            let confirmation = self.check_confirmation();
            let expiry = self.expire_elements();
            let retry = (failed_rebuilds > 0).then_some(RETRY);
            let log = has_sessions.then_some(LOG_INTERVAL);
            let timeout = [log, confirmation, expiry, retry].into_iter().flatten().min();
            let requests = self.maintenance().wait(timeout);
            self.log_packets(&mut rule_log);
            if requests.stop {
                return;
            }
            lost = self.log_events(has_pools, lost);
            if requests.rebuild || failed_rebuilds > 0 {
                let rebuilt =
                    if failed_rebuilds < MAX_FAILED { self.rebuild() } else { self.rebuild_alone() };
                failed_rebuilds = if rebuilt { 0 } else { failed_rebuilds + 1 };
            }
        }
    }

    /// Logs the packets that rules have logged since the last call.
    fn log_packets(&self, writer: &mut RuleLogWriter) {
        let (packets, lost) = self.engine().logged_packets();
        writer.write((&packets, lost), &self.state().config);
    }

    /// Logs the events of NAT pools, and sources that have reached their limit, since the last call.
    /// `lost_before` and the result count the events lost since the start, before and now.
    fn log_events(&self, has_pools: bool, lost_before: u64) -> u64 {
        // Without pools, workers are not woken up.
        let (events, lost) = if has_pools { self.engine().nat_events() } else { (Vec::new(), lost_before) };
        let now = utc(SystemTime::now());
        let mut text: String = events.iter().map(|event| nat_log::line(&now, event)).collect();
        if lost > lost_before {
            let lost = count(lost - lost_before, "event");
            text.push_str(&format!("{now} nat: {lost} lost: too many at once\n"));
        }
        text.push_str(&self.limited_lines(&now));
        if !text.is_empty() {
            log::error(text);
        }
        lost
    }

    /// Makes [`Control::run_maintenance`] return after its current work.
    pub fn stop_maintenance(&self) {
        self.maintenance().request(|requests| requests.stop = true);
    }

    /// Builds a new classifier if the current one is stale. False: the rules changed meanwhile, and the
    /// result was dropped.
    pub fn rebuild(&self) -> bool {
        let before = self.state().config;
        if !before.policy().is_stale() {
            return true;
        }
        let rebuilt = before.policy().rebuilt();
        let (_turn, mut state) = self.begin();
        if !state.config.has_same_rules(&before) {
            return false;
        }
        state.config.set_rebuilt(rebuilt);
        if self.publish(&state).is_ok() {
            self.commit(state);
        }
        true
    }

    /// Builds a new classifier while changes wait.
    fn rebuild_alone(&self) -> bool {
        let (_turn, mut state) = self.begin();
        let rebuilt = state.config.policy().rebuilt();
        state.config.set_rebuilt(rebuilt);
        if self.publish(&state).is_ok() {
            self.commit(state);
        }
        true
    }
}
