//! What the fast path asks of the engine, and what the engine reports about it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use mmb_dpdk::{FastHook, FastPort};
use mmb_fastpath::{FastPathHost, FastPathInfo, FastPortInfo, FastPortRole, PortSide};
use mmb_lang::PuntClass;

use crate::engine::config::{Forwarding, PortId};
use crate::engine::control::Engine;
use crate::engine::snapshot::{WorkerSnapshot, path};
use crate::features::port::device::{OpenPort, OpenPorts};

impl FastPathHost for WorkerSnapshot<'_> {
    fn has_rules(&self, in_port: u16) -> bool {
        self.snapshot.path(in_port) & path::RULES != 0
    }

    fn max_frame(&self, port: u16, link: u16) -> usize {
        self.snapshot.frame_max(port, link)
    }

    fn count_forwarded(&self, port: u16, number: FastPort, side: PortSide, packets: u64, bytes: u64) {
        let port = self.snapshot.port(port).filter(|port| port.device().fast_port() == Some(number));
        if let Some(port) = port {
            port.count_forwarded(side, packets, bytes);
        }
    }
}

/// Asks the kernel how it can deliver to ports, and which of them take redirected frames. Returns whether the
/// latter has changed for one. The ports stay locked, so that none is closed by the calling thread.
pub(crate) fn update_redirects(ports: &OpenPorts) -> bool {
    let ports = ports.lock().unwrap_or_else(PoisonError::into_inner);
    let mut has_changed = false;
    for port in ports.iter().flatten().filter(|port| port.device().fast_port().is_some()) {
        let can_redirect = port.device().update_delivery();
        has_changed |= port.can_redirect().swap(can_redirect, Ordering::AcqRel) != can_redirect;
    }
    has_changed
}

/// Lets packets for the machine itself pass between ports on the fast path and their twins without the
/// engine, which would only limit them, unless there is a limit.
pub(crate) fn connect_twins(forwarding: &Forwarding, open: impl Fn(PortId) -> Option<Arc<OpenPort>>) {
    let has_limit = forwarding.punt_limits.get(PuntClass::Local).is_some();
    for config in &forwarding.ports {
        let twin = config.routed.and_then(|routed| routed.punt).filter(|_| !has_limit).and_then(&open);
        if let Some(port) = open(config.id) {
            port.device().connect_twin(twin.as_ref().map(|twin| twin.device()));
        }
    }
}

impl Engine {
    /// The state and the counters of the fast path.
    pub fn fast_path(&self) -> FastPathInfo {
        let counters = self.shared().workers.iter().map(|worker| &worker.counters.fast);
        FastPathInfo::collect(&self.shared().fast, counters)
    }

    /// A port's role on the fast path; None: the port is not open.
    pub fn fast_port(&self, id: PortId) -> Option<FastPortInfo> {
        let port = self.open(id)?;
        let device = port.device();
        // While flows are not learned, the last check may be long ago.
        let can_redirect = || match self.shared().fast.is_learning() {
            true => port.can_redirect().load(Ordering::Acquire),
            false => device.can_receive_redirects(),
        };
        let hook = device.fast_hook();
        let role = match (hook, device.fast_path_error()) {
            (None, _) => FastPortRole::None("neither af-xdp nor af-packet".to_owned()),
            (_, Some(error)) => FastPortRole::None(error),
            (Some(FastHook::Xdp), _) if !can_redirect() => FastPortRole::InOnly,
            _ if !device.is_fast() => FastPortRole::Unused,
            _ => FastPortRole::Both,
        };
        Some(FastPortInfo { hook, role })
    }
}
