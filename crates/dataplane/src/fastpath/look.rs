//! A thread that asks the kernel again and again which interfaces take redirected frames, while there is a fast path; and what the
//! engine tells of it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mmb_dpdk::FastGranularity;
use serde::Serialize;

use super::Refused;
use super::shared::granularity;
use crate::engine::config::{MAX_PORTS, PortId};
use crate::engine::control::Engine;
use crate::engine::shared::Shared;
use crate::features::port::device::OpenPort;

/// Between two looks: for as long frames may be lost when an interface takes them no more.
const PAUSE: Duration = Duration::from_millis(50);

/// The engine's table of ports.
pub(crate) type OpenPorts = Mutex<[Option<Arc<OpenPort>>; MAX_PORTS]>;

/// The thread; ends when this is dropped.
pub(crate) struct PortMonitor {
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl PortMonitor {
    pub fn start(shared: Arc<Shared>, ports: Arc<OpenPorts>) -> io::Result<PortMonitor> {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let body = move || {
            while !told.load(Ordering::Acquire) {
                if shared.fast.learns() {
                    look(&shared, &ports);
                    std::thread::park_timeout(PAUSE);
                } else {
                    std::thread::park();
                }
            }
        };
        let thread = std::thread::Builder::new().name("mmb-fast-path".to_owned()).spawn(body)?;
        Ok(PortMonitor { thread: Some(thread), stop })
    }

    /// Has it look at once.
    pub fn look(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for PortMonitor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.look();
        if let Some(thread) = self.thread.take() {
            // One that panicked has nothing to clean up.
            let _ = thread.join();
        }
    }
}

/// Asks about all ports. None is closed meanwhile, so that the last to hold one is whoever closes it.
fn look(shared: &Shared, ports: &OpenPorts) {
    let ports = ports.lock().unwrap_or_else(PoisonError::into_inner);
    let mut changed = false;
    for port in ports.iter().flatten().filter(|port| port.device().fast_port().is_some()) {
        let takes = port.device().can_receive_redirects();
        changed |= port.redirects().swap(takes, Ordering::AcqRel) != takes;
    }
    drop(ports);
    if changed {
        shared.fast.ends_changed();
    }
}

/// What `show fast-path` tells of the engine.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FastPathInfo {
    /// Flows are learnt.
    pub learns: bool,
    /// While they are, what packets of one entry have in common, in a word ([`FastGranularity`]).
    pub key: Option<&'static str>,
    /// Flows in the kernel, those included that it does not heed any more.
    pub entries: u64,
    /// Flows given to the kernel so far.
    pub installed: u64,
    /// Packets that the kernel has sent on.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Flows that were not given to the kernel, for each reason there is.
    pub refused: Vec<(&'static str, u64)>,
}

/// What a port is to the fast path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FastPortInfo {
    /// Flows may come in and go out.
    Both,
    /// Flows may come in, but its interface takes no redirected frames.
    InOnly,
    /// Neither: why.
    None(String),
}

impl Engine {
    /// What the fast path has done.
    pub fn fast_path(&self) -> FastPathInfo {
        let counters = || self.shared().workers.iter().map(|worker| &worker.counters.fast);
        let refused = |why: Refused| (why.name(), counters().map(|fast| fast.refused(why)).sum());
        let in_force = self.shared().fast.in_force();
        FastPathInfo {
            learns: in_force != 0,
            key: (in_force != 0).then(|| match granularity(in_force) {
                FastGranularity::Flow => "flow",
                FastGranularity::Pair => "pair",
                FastGranularity::Destination => "destination",
            }),
            entries: counters().map(|fast| fast.entries.get()).sum(),
            installed: counters().map(|fast| fast.installed.get()).sum(),
            packets: counters().map(|fast| fast.packets.get()).sum(),
            bytes: counters().map(|fast| fast.bytes.get()).sum(),
            refused: Refused::ALL.map(refused).to_vec(),
        }
    }

    /// What a port is to it, as of the last look if there are any. None: it is not open.
    pub fn fast_port(&self, id: PortId) -> Option<FastPortInfo> {
        let port = self.open(id)?;
        let device = port.device();
        // While nobody looks, what was seen last is old.
        let takes = || match self.shared().fast.learns() {
            true => port.redirects().load(Ordering::Acquire),
            false => device.can_receive_redirects(),
        };
        Some(match (device.fast_port(), device.fast_path_error()) {
            (Some(_), _) if takes() => FastPortInfo::Both,
            (Some(_), _) => FastPortInfo::InOnly,
            (None, why) => FastPortInfo::None(why.unwrap_or_else(|| "not af-xdp".to_owned())),
        })
    }
}
