//! A thread that restarts packet sockets whose ring the kernel no longer fills.
//!
//! Theory of operation. A frame that the kernel cannot describe stalls the ring of its port (see
//! `mmb_dpdk`'s packet socket). The kernel counts what it drops from then on. It may take some time for a new
//! ring, since it waits for all readers (RCU). So no worker makes one.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::device::OpenPorts;
use crate::engine::periodic::{PeriodicThread, UNTIL_WOKEN};

/// Pause between two checks. Frames are lost for up to two of them.
const PAUSE: Duration = Duration::from_millis(50);

/// Starts the thread, which checks these ports. Wake it when a port was opened: it sleeps while none has a
/// packet socket.
pub(crate) fn start_monitor(ports: Arc<OpenPorts>) -> io::Result<PeriodicThread> {
    PeriodicThread::start("mmb-ports", move || Some(if check(&ports) { PAUSE } else { UNTIL_WOKEN }))
}

/// Checks all ports. None closes meanwhile, or this thread might close it. Returns whether some have packet
/// sockets.
fn check(ports: &OpenPorts) -> bool {
    let ports = ports.lock().unwrap_or_else(PoisonError::into_inner);
    let mut has_some = false;
    for port in ports.iter().flatten().filter(|port| port.device().has_packet_socket()) {
        port.restart_if_stalled();
        has_some = true;
    }
    has_some
}
