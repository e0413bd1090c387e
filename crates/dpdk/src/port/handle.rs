//! The open device that a port, its queues and its flow rules share.

use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use mmb_dpdk_sys as sys;

use super::backlog::Backlog;
use super::device::Device;
use super::netdev::Promiscuous;
use super::spec::PortInfo;
use super::vnet::VnetPort;
use crate::error::{PortError, last_errno, strerror};
use crate::log;
use crate::memory::{Mempool, Registration};
use crate::xdp::{TcPort, XdpProgram};

/// An open device. It is closed when its port, all queues and all flow rules are dropped.
#[derive(Debug)]
pub(super) struct DeviceHandle {
    /// None: the port has no driver of DPDK.
    pub(super) eth: Option<EthDevice>,
    pub(super) info: PortInfo,
    pub(super) device: Device,
    pub(super) pool: Mempool,
    /// Descriptors that become readable when packets arrive: one for each receive queue, or none.
    pub(super) fds: Vec<RawFd>,
    /// Longest frame that can be sent.
    pub(super) max_frame: AtomicU32,
    /// Whether the driver sends packets of several segments.
    pub(super) sends_segments: bool,
    /// The XDP program of an AF_XDP port.
    pub(super) xdp: Option<XdpProgram>,
    /// The frames that the port has to send still.
    pub(super) backlog: Backlog,
    /// The tc programs of an AF_PACKET port.
    pub(super) tc: Option<TcPort>,
    /// The tap; or the socket by which an AF_PACKET port receives, and sends large frames.
    pub(super) vnet: Option<VnetPort>,
    /// Frames that the kernel dropped because the ring of an AF_PACKET port was full.
    pub(super) ring_drops: AtomicU64,
    /// Segments of large frames for which the port had no room.
    pub(super) segment_drops: AtomicU64,
    /// Whether send queues merge segments, if the port takes large frames.
    pub(super) merges: AtomicBool,
    /// Packets that left as a part of a packet before them.
    pub(super) merged: AtomicU64,
    /// Keeps the interface promiscuous.
    pub(super) _promiscuous: Option<Promiscuous>,
    /// Keeps the pool of an AF_XDP port from growing.
    pub(super) _registration: Option<Registration>,
}

/// DPDK's device of a port.
#[derive(Debug)]
pub(super) struct EthDevice {
    pub(super) id: u16,
    pub(super) plugged: NonNull<sys::rte_device>,
}

// SAFETY: DPDK's port functions that do not belong to a queue may be called from any thread; the device is
// unplugged once, at the end.
unsafe impl Send for DeviceHandle {}
// SAFETY: as above; functions of a queue are only reached through that queue's owner.
unsafe impl Sync for DeviceHandle {}

impl Drop for DeviceHandle {
    fn drop(&mut self) {
        let _guard = HOTPLUG.lock().unwrap_or_else(PoisonError::into_inner);
        // Before the socket closes, frames go to the kernel again.
        self.xdp = None;
        self.tc = None;
        if let Some(eth) = &self.eth {
            // SAFETY: the port is open and nothing uses its queues any more.
            unsafe { unplug(eth.id, eth.plugged) };
        }
    }
}

impl DeviceHandle {
    /// DPDK's number of the port.
    #[inline]
    pub(super) fn eth_id(&self) -> Option<u16> {
        self.eth.as_ref().map(|eth| eth.id)
    }

    /// Whether send queues merge segments into large frames.
    #[inline]
    pub(super) fn merges(&self) -> bool {
        self.vnet.is_some() && self.merges.load(Ordering::Relaxed)
    }
}

/// Held while a port is opened or closed: DPDK's hot-plug is not thread-safe.
pub(super) static HOTPLUG: Mutex<()> = Mutex::new(());

/// Stops and closes a port and removes its device.
///
/// # Safety
/// The port is open, nothing uses its queues any more, and the caller holds [`HOTPLUG`].
pub(super) unsafe fn unplug(id: u16, device: NonNull<sys::rte_device>) {
    // Failures have no remedy here, so the driver's messages are discarded.
    let _ = log::capture(|| {
        // SAFETY: the caller's promise. Removing the device closes the port.
        unsafe {
            sys::rte_eth_dev_stop(id);
            sys::rte_dev_remove(device.as_ptr())
        }
    });
}

/// Calls DPDK for a port. A negative result becomes an error with the driver's message.
pub(super) fn call(port: &str, step: &'static str, f: impl FnOnce() -> i32) -> Result<i32, PortError> {
    let (status, reason) = log::capture(f);
    if status >= 0 {
        return Ok(status);
    }
    // Drivers return -1 when they have no number; rte_errno is the best guess then.
    let errno = if status == -1 { last_errno() } else { status.saturating_abs() };
    let reason = reason.unwrap_or_else(|| strerror(errno));
    Err(PortError::Driver { port: port.to_owned(), step, errno, reason })
}

/// The MTU that DPDK knows of a port.
pub(super) fn device_mtu(id: u16) -> u32 {
    let mut mtu = 0;
    // SAFETY: a live integer; an unknown port gives an error.
    let status = unsafe { sys::rte_eth_dev_get_mtu(id, &mut mtu) };
    if status == 0 { u32::from(mtu) } else { sys::RTE_ETHER_MTU }
}
