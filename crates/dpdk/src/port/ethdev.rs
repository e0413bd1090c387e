//! Ports.
//!
//! # Theory of operation
//! [`Port::open`] plugs a device in, configures and starts it. Packets pass through its queues; a queue
//! belongs to one thread at a time ([`RxQueue`] and [`TxQueue`] are not Clone and take `&mut self`). The
//! device is stopped and unplugged when the port and all its queues are dropped.
//!
//! Kernel interfaces are not modified: their MTU is read, never set, and promiscuous mode is requested with a
//! socket, which the kernel undoes when the process ends.
//!
//! DPDK's drivers trust their caller. This module withholds what they would misread: packets longer than the
//! port takes, and packets of several segments where the driver sends only the first one (these are
//! linearized).

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mmb_dpdk_sys as sys;

use super::device::{Device, LINK_BYTES, max_frame};
use super::handle::{DeviceHandle, call, device_mtu};
use super::netdev::{self, NetDev};
use super::open;
use super::queue::{RxQueue, TxQueue};
use super::redirect::XdpFeatures;
use super::spec::{PortInfo, PortSpec, PortStats, TwinTraffic};
use super::vnet::{ReceiveLarge, Tap, VnetPort};
use crate::eal::Eal;
use crate::error::{Error, PortError};
use crate::memory::Burst;
use crate::xdp::{FastHook, FastPath, FastPort, Member, Steering, TcPort, XdpProgram, port_error};

/// Most vectors that are discarded from a queue: more than any ring has.
const DISCARDED: usize = 64;

/// An open port.
#[derive(Debug)]
pub struct Port {
    pub(super) handle: Arc<DeviceHandle>,
    rx: Vec<Option<RxQueue>>,
    tx: Vec<Option<TxQueue>>,
}

impl Port {
    /// Loads the program by which a port on this device has the fast path, which may be done while another
    /// process has the device. So [`Port::open`] and [`Port::engage_fast_path`] take less time. Errors are
    /// left to them.
    pub fn prepare_fast_path(device: &Device) {
        open::prepare(device);
    }

    /// Checks what makes [`Port::open`] fail before it asks the driver, as an interface that is not there or
    /// whose MTU is too large.
    ///
    /// # Errors
    /// As [`Port::open`].
    pub fn check(spec: &PortSpec<'_>) -> Result<(), Error> {
        open::check(Eal::running()?, spec)?;
        Ok(())
    }

    /// Opens a port.
    ///
    /// # Errors
    /// [`Error::NotStarted`], or a [`PortError`] with the reason and the remedy.
    pub fn open(spec: &PortSpec<'_>) -> Result<Port, Error> {
        let eal = Eal::running()?;
        let handle = Arc::new(open::open(eal, spec)?);
        let rx = |queue| Some(RxQueue::new(Arc::clone(&handle), queue));
        let tx = |queue| Some(TxQueue::new(Arc::clone(&handle), queue));
        let (rx, tx) =
            ((0..handle.info.rx_queues).map(rx).collect(), (0..handle.info.tx_queues).map(tx).collect());
        Ok(Port { handle, rx, tx })
    }

    /// Discards what has been received on the queues that were not taken, up to the size of a ring.
    pub fn discard_received(&mut self) {
        let mut burst = Burst::new();
        for queue in self.rx.iter_mut().flatten() {
            for _ in 0..DISCARDED {
                if burst.fill(|slots| queue.receive(slots)) == 0 {
                    break;
                }
                burst.clear();
            }
        }
    }

    /// Properties of the port.
    pub fn info(&self) -> &PortInfo {
        &self.handle.info
    }

    /// Takes a receive queue; None: no such queue, or it is taken.
    pub fn take_rx(&mut self, queue: u16) -> Option<RxQueue> {
        self.rx.get_mut(usize::from(queue))?.take()
    }

    /// Takes a send queue; None: no such queue, or it is taken.
    pub fn take_tx(&mut self, queue: u16) -> Option<TxQueue> {
        self.tx.get_mut(usize::from(queue))?.take()
    }

    /// Whether taken queues or flow rules of the port exist, so that dropping the port does not close the
    /// device yet.
    pub fn is_in_use(&self) -> bool {
        let own = 1 + self.rx.iter().flatten().count() + self.tx.iter().flatten().count();
        Arc::strong_count(&self.handle) > own
    }

    /// The descriptor that becomes readable when a packet arrives on a receive queue: the AF_XDP or AF_PACKET
    /// socket, or the tap's queue. None for all other kinds of port, or if there is no such queue.
    pub fn rx_fd(&self, queue: u16) -> Option<BorrowedFd<'_>> {
        let fd = *self.handle.fds.get(usize::from(queue))?;
        // SAFETY: the descriptor stays open as long as the port, which the result borrows.
        Some(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Whether the port receives by a packet socket of its own.
    pub fn has_packet_socket(&self) -> bool {
        self.handle.vnet.as_ref().is_some_and(VnetPort::is_packet_socket)
    }

    /// Whether the port is a tap.
    #[inline]
    pub fn is_tap(&self) -> bool {
        matches!(self.handle.device, Device::Tap { .. })
    }

    /// Whether frames wait to be sent until the kernel takes them. Receiving offers them again.
    #[inline]
    pub fn has_backlog(&self) -> bool {
        self.handle.backlog.waits()
    }

    /// Frames that the kernel dropped because the ring of an AF_PACKET port was full, or which it could not
    /// describe.
    pub fn ring_drops(&self) -> u64 {
        let Device::AfPacket { .. } = self.handle.device else { return 0 };
        let more: u64 = self.handle.fds.iter().map(|fd| netdev::take_packet_drops(*fd)).sum();
        self.handle.ring_drops.fetch_add(more, Ordering::Relaxed) + more
    }

    /// Counters. The drivers of some ports miscount packets that they free themselves.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn stats(&self) -> Result<PortStats, PortError> {
        let mut stats = sys::rte_eth_stats::default();
        if let Some(id) = self.handle.eth_id() {
            call(&self.handle.info.name, "read its counters", || {
                // SAFETY: the port is open; `stats` is a live structure.
                unsafe { sys::rte_eth_stats_get(id, &mut stats) }
            })?;
        }
        let rx_no_buffer = match self.handle.device {
            // The driver counts a whole burst for each attempt. The kernel's counter has the lost frames.
            Device::AfXdp { .. } => 0,
            _ => stats.rx_nombuf,
        };
        let mut stats = PortStats {
            rx_packets: stats.ipackets,
            rx_bytes: stats.ibytes,
            rx_missed: stats.imissed + self.ring_drops(),
            rx_errors: stats.ierrors,
            rx_no_buffer,
            tx_packets: stats.opackets,
            tx_bytes: stats.obytes,
            tx_errors: stats.oerrors + self.handle.segment_drops.load(Ordering::Relaxed),
            tx_merged: self.handle.merged.load(Ordering::Relaxed),
            twin: self.handle.tc.as_ref().map_or_else(TwinTraffic::default, TcPort::twin_traffic),
        };
        if let Some(vnet) = &self.handle.vnet {
            vnet.counters.add_to(&mut stats);
        }
        Ok(stats)
    }

    /// Sets which large frames ([`crate::Packet::is_large`]) are received whole: at first, all. Ports other
    /// than AF_PACKET and taps receive none.
    pub fn receive_large(&self, large: ReceiveLarge) {
        if let Some(vnet) = &self.handle.vnet {
            vnet.receive_large(large);
        }
    }

    /// Receives no large frames whole from now on but those of `most`.
    pub fn restrict_large(&self, most: ReceiveLarge) {
        if let Some(vnet) = &self.handle.vnet {
            vnet.restrict_large(most);
        }
    }

    /// Sets whether consecutive TCP segments leave as large frames: at first, they do. Ports other than
    /// AF_PACKET and taps send none.
    pub fn merge_segments(&self, merges: bool) {
        self.handle.merges.store(merges, Ordering::Relaxed);
    }

    /// Whether the link is up, according to the kernel interface behind the port or to the driver.
    pub fn is_link_up(&self) -> bool {
        if let Some(device) = self.net_dev() {
            return device.up && device.running;
        }
        let Some(id) = self.handle.eth_id() else { return self.is_attached() };
        let mut link = sys::rte_eth_link::default();
        // SAFETY: the port is open; `link` is a live structure.
        let status = unsafe { sys::rte_eth_link_get_nowait(id, &mut link) };
        status == 0 && u32::from(link.link_status()) == sys::RTE_ETH_LINK_UP
    }

    /// Whether the interface of a tap exists, in any network namespace; true for ports of other kinds. A user
    /// can delete it.
    pub fn is_attached(&self) -> bool {
        self.handle.vnet.as_ref().and_then(VnetPort::tap).is_none_or(Tap::is_attached)
    }

    /// The current state of the kernel interface behind the port. None: there is none, or it is in another
    /// network namespace.
    pub fn net_dev(&self) -> Option<NetDev> {
        if let Some(tap) = self.handle.vnet.as_ref().and_then(VnetPort::tap) {
            return tap.interface();
        }
        let name = NetDev::name_of(self.handle.info.if_index?)?;
        NetDev::lookup(&name).ok().flatten()
    }

    /// The current MTU, of the kernel interface behind the port or of the device. Also updates the longest
    /// frame that the send queues take, so it must be called when the interface's MTU may have changed.
    pub fn mtu(&self) -> u32 {
        let of_device = || self.handle.eth_id().map_or(sys::RTE_ETHER_MTU, device_mtu);
        let mtu = self.net_dev().map_or_else(of_device, |device| device.mtu);
        let longest = max_frame(&self.handle.device, &self.handle.pool, mtu);
        self.handle.max_frame.store(longest, Ordering::Relaxed);
        mtu
    }

    /// Longest frame that the send queues take, Ethernet header included.
    pub fn max_frame(&self) -> u32 {
        self.handle.max_frame.load(Ordering::Relaxed)
    }

    /// Longest frame whose network header stands behind `link` bytes. The kernel limits the IP packet,
    /// whatever number of tags precedes it.
    #[inline]
    pub fn max_frame_behind(&self, link: u32) -> u32 {
        let longest = self.max_frame();
        longest.min(longest.saturating_sub(LINK_BYTES).saturating_add(link))
    }

    /// Sets which frames of an AF_XDP port stay with the kernel; None: none, as after opening. May be called
    /// at any time; no frame is lost. On an AF_PACKET port, it sets which frames may take the fast path:
    /// those to the steering's Ethernet address. The kernel's stack then gets no IP packets that are
    /// addressed to the interface, and its twin may get those to `local` ([`Port::connect_twin`]). Ports of
    /// other kinds ignore it.
    ///
    /// # Errors
    /// When the kernel refuses; nothing has changed then.
    pub fn steer(&self, steering: Option<&Steering>) -> Result<(), PortError> {
        if let Some(tc) = &self.handle.tc {
            tc.steer(steering);
        }
        let Some(program) = &self.handle.xdp else { return Ok(()) };
        program.steer(steering).map_err(|error| {
            let interface = self.handle.device.interface().unwrap_or_default();
            port_error(&self.handle.info.name, interface, error, None)
        })
    }

    /// Whether the driver of an AF_XDP port's interface has no XDP, so that the kernel runs the program in
    /// its stack, which is slower.
    pub fn is_generic_xdp(&self) -> bool {
        self.handle.xdp.as_ref().is_some_and(XdpProgram::is_generic)
    }

    /// The program by which the port can take part in the fast path; None: its kind has none.
    pub fn fast_hook(&self) -> Option<FastHook> {
        let xdp = self.handle.xdp.as_ref().map(|_| FastHook::Xdp);
        xdp.or_else(|| self.handle.tc.as_ref().map(|_| FastHook::Tc))
    }

    /// Makes the port a member of the fast path, or makes an AF_PACKET port leave it: an AF_XDP port stays a
    /// member. Returns [`Port::is_fast`]. No packet is lost or received twice by the change.
    pub fn engage_fast_path(&self, engaged: bool) -> bool {
        match (&self.handle.xdp, &self.handle.tc) {
            (Some(program), _) if engaged => program.engage(),
            (None, Some(tc)) => _ = tc.engage(engaged),
            _ => {}
        }
        self.is_fast()
    }

    /// Connects the interface of an AF_PACKET port on the fast path to its twin, an interface of the kernel
    /// that has the machine's addresses ([`Port::steer`]): tc gives packets to these addresses to the twin,
    /// and sends what the twin sends, so that neither passes through the engine. None: both do. Ports of
    /// other kinds ignore it.
    pub fn connect_twin(&self, twin: Option<&Port>) {
        if let Some(tc) = &self.handle.tc {
            tc.connect_twin(twin.and_then(|twin| twin.handle.info.if_index));
        }
    }

    fn fast_member(&self) -> Option<&Member> {
        let xdp = self.handle.xdp.as_ref().and_then(|program| program.fast()?.ok());
        xdp.or_else(|| self.handle.tc.as_ref()?.member())
    }

    /// The fast path of the process's ports. None where the kernel refuses ([`Port::fast_path_error`]), for
    /// ports that were never engaged ([`Port::engage_fast_path`]), and for ports of other kinds.
    pub fn fast_path(&self) -> Option<&Arc<FastPath>> {
        Some(&self.fast_member()?.path)
    }

    /// The port's number on the fast path, under the conditions of [`Port::fast_path`].
    pub fn fast_port(&self) -> Option<FastPort> {
        Some(self.fast_member()?.port)
    }

    /// Whether packets that the port receives can take the fast path.
    pub fn is_fast(&self) -> bool {
        match &self.handle.tc {
            Some(tc) => tc.is_engaged(),
            None => self.fast_port().is_some(),
        }
    }

    /// Why a port is not on the fast path; None: it is or was not asked to be, or its kind has none.
    pub fn fast_path_error(&self) -> Option<String> {
        let tc = self.handle.tc.as_ref().and_then(|tc| tc.error());
        Some(tc.or_else(|| self.handle.xdp.as_ref()?.fast()?.err())?.to_string())
    }

    /// Lets tc give packets for an AF_PACKET port to the other end of the interface's veth pair, past the
    /// interface and its queues, if nothing but the cost changes by it. That may change at any time, so each
    /// call asks the kernel. Returns [`Port::can_receive_redirects`].
    pub fn update_delivery(&self) -> bool {
        let device = self.running_device();
        let features = device.as_ref().map_or(XdpFeatures::default(), |device| XdpFeatures::of(device.index));
        if let Some(member) = self.handle.tc.as_ref().and_then(|tc| tc.member()) {
            member.set_to_peer(device.is_some_and(|device| features.has_plain_peer(device.index)));
        }
        features.takes_redirects()
    }

    /// Whether the interface takes frames that the kernel redirects to it; frames it does not take are lost
    /// silently. One end of a veth pair takes them while the other end has GRO or an XDP program. The answer
    /// may change at any time, so each call asks the kernel.
    pub fn can_receive_redirects(&self) -> bool {
        self.running_device().is_some_and(|device| XdpFeatures::of(device.index).takes_redirects())
    }

    /// The interface of a port that can have a fast path, if it is up.
    fn running_device(&self) -> Option<NetDev> {
        self.fast_hook()?;
        self.net_dev().filter(|device| device.up && device.running)
    }
}
