//! Ports: using and closing them.
//!
//! # Theory of operation
//! [`Port::open`] plugs a device in, configures and starts it; from then on it is used through its queues, each of
//! which belongs to one thread at a time ([`RxQueue`] and [`TxQueue`] are not Clone and work by `&mut`). The device is
//! stopped and unplugged when the port and all its queues are dropped.
//!
//! Kernel interfaces stay as they were found: their MTU is read, never set, and promiscuous mode is asked for with a
//! socket that the kernel cleans up after, however the process ends.
//!
//! Drivers of DPDK trust their caller. What they would misread is kept from them here: packets longer than the port
//! takes, and packets in several segments where the driver sends the first one only (those are made one segment).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mmb_dpdk_sys as sys;

use crate::burst::{Burst, Slots, VECTOR_MAX};
use crate::device::{Device, LINK_BYTES, xdp_capacity};
use crate::eal::Eal;
use crate::error::{Error, PortError};
use crate::log;
use crate::mempool::Mempool;
use crate::netdev::{self, NetDev};
use crate::open;
use crate::packet::Packet;
use crate::xdp::{self, Steering, XdpProgram};

/// How to open a port.
#[derive(Clone, Debug)]
pub struct PortSpec<'a> {
    /// The port's name, for messages.
    pub name: &'a str,
    /// What it is made of.
    pub device: Device,
    /// Where received packets get their buffers.
    pub pool: &'a Mempool,
    /// Receive queues that are wanted; a device that has fewer gets fewer. More than one spread flows by a hash that is
    /// the same in both directions.
    pub rx_queues: u16,
    /// Send queues that are wanted; a device that has fewer gets fewer.
    pub tx_queues: u16,
    /// MTU to set on a device of the port's own (PCI, tap); None: 1500. Kernel interfaces keep theirs.
    pub mtu: Option<u16>,
}

/// What a port is.
#[derive(Clone, Debug)]
pub struct PortInfo {
    /// The port's name.
    pub name: String,
    /// DPDK's driver.
    pub driver: String,
    /// Index of the kernel interface behind it, if there is one.
    pub if_index: Option<u32>,
    /// Ethernet address.
    pub mac: [u8; 6],
    /// Receive queues.
    pub rx_queues: u16,
    /// Send queues.
    pub tx_queues: u16,
}

/// What a port has counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets lost because nobody fetched them in time.
    pub rx_missed: u64,
    /// Packets received wrongly.
    pub rx_errors: u64,
    /// Packets lost because there was no buffer.
    pub rx_no_buffer: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
}

/// What became of packets that were to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxCount {
    /// Sent.
    pub sent: usize,
    /// Freed, because the port had no room.
    pub no_room: usize,
    /// Freed, because they are longer than the port takes.
    pub too_big: usize,
}

/// An open port.
#[derive(Debug)]
pub struct Port {
    pub(crate) shared: Arc<Shared>,
    rx: Vec<Option<RxQueue>>,
    tx: Vec<Option<TxQueue>>,
}

/// A receive queue: one thread's.
#[derive(Debug)]
pub struct RxQueue {
    shared: Arc<Shared>,
    queue: u16,
}

/// A send queue: one thread's.
#[derive(Debug)]
pub struct TxQueue {
    shared: Arc<Shared>,
    queue: u16,
}

/// The open device; closed when the last of port and queues is gone.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) id: u16,
    pub(crate) plugged: NonNull<sys::rte_device>,
    pub(crate) info: PortInfo,
    pub(crate) device: Device,
    pub(crate) pool: Mempool,
    pub(crate) fds: Vec<RawFd>,
    /// Longest frame that can be sent.
    pub(crate) max_frame: AtomicU32,
    /// Whether the driver sends packets in several segments.
    pub(crate) chains: bool,
    /// What gives an AF_XDP port its frames.
    pub(crate) xdp: Option<XdpProgram>,
    /// Keeps the interface promiscuous.
    pub(crate) _promiscuous: Option<OwnedFd>,
}

// SAFETY: DPDK's functions on ports that are not about one queue may be called from any thread; unplugging happens
// once, at the end.
unsafe impl Send for Shared {}
// SAFETY: as above; what is about one queue is only reached through that queue's owner.
unsafe impl Sync for Shared {}

impl Drop for Shared {
    fn drop(&mut self) {
        let _alone = HOTPLUG.lock().unwrap_or_else(PoisonError::into_inner);
        // Before the socket goes, the kernel gets its frames back.
        self.xdp = None;
        // SAFETY: the port is open and nothing uses its queues any more.
        unsafe { unplug(self.id, self.plugged) };
    }
}

/// One port is opened or closed at a time: DPDK's hot-plug is not made for more, and which descriptors a driver opens
/// is found by comparison.
pub(crate) static HOTPLUG: Mutex<()> = Mutex::new(());

/// Stops and closes a port and takes its device away.
///
/// # Safety
/// The port is open, nothing uses its queues any more, and the caller holds [`HOTPLUG`].
pub(crate) unsafe fn unplug(id: u16, device: NonNull<sys::rte_device>) {
    // Nobody can do anything about what fails here; the driver's messages go nowhere.
    let _ = log::capture(|| {
        // SAFETY: the caller's promise. Unplugging closes the port.
        unsafe {
            sys::rte_eth_dev_stop(id);
            sys::rte_dev_remove(device.as_ptr())
        }
    });
}

impl Port {
    /// Opens a port.
    ///
    /// # Errors
    /// [`Error::NotStarted`], or a [`PortError`] that says why not and what to do.
    pub fn open(spec: &PortSpec<'_>) -> Result<Port, Error> {
        let eal = Eal::running()?;
        let shared = Arc::new(open::open(eal, spec)?);
        let rx = |queue| Some(RxQueue { shared: Arc::clone(&shared), queue });
        let tx = |queue| Some(TxQueue { shared: Arc::clone(&shared), queue });
        let (rx, tx) =
            ((0..shared.info.rx_queues).map(rx).collect(), (0..shared.info.tx_queues).map(tx).collect());
        Ok(Port { shared, rx, tx })
    }

    /// What the port is.
    pub fn info(&self) -> &PortInfo {
        &self.shared.info
    }

    /// Takes a receive queue; None when there is no such queue or it is taken.
    pub fn take_rx(&mut self, queue: u16) -> Option<RxQueue> {
        self.rx.get_mut(usize::from(queue))?.take()
    }

    /// Takes a send queue; None when there is no such queue or it is taken.
    pub fn take_tx(&mut self, queue: u16) -> Option<TxQueue> {
        self.tx.get_mut(usize::from(queue))?.take()
    }

    /// Whether queues of the port are still in someone's hands, so that dropping the port will not close it yet.
    pub fn in_use(&self) -> bool {
        let own = 1 + self.rx.iter().flatten().count() + self.tx.iter().flatten().count();
        Arc::strong_count(&self.shared) > own
    }

    /// The descriptors that become readable when a packet arrives: the AF_XDP or AF_PACKET socket, or the tap's queue.
    /// Borrowed: valid while the port or one of its queues lives. Empty when the driver has none (all other kinds).
    pub fn rx_fds(&self) -> &[RawFd] {
        &self.shared.fds
    }

    /// The same descriptors, borrowed from the port for the compiler as well.
    pub fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        // SAFETY: the descriptors are the driver's and stay open as long as the port, which the result borrows.
        self.rx_fds().iter().map(|fd| unsafe { BorrowedFd::borrow_raw(*fd) }).collect()
    }

    /// Counters. The drivers of some ports count wrongly packets that they free themselves.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn stats(&self) -> Result<PortStats, PortError> {
        let mut stats = sys::rte_eth_stats::default();
        // SAFETY: the port is open; `stats` is a live structure.
        self.ask("read its counters", || unsafe { sys::rte_eth_stats_get(self.shared.id, &mut stats) })?;
        Ok(PortStats {
            rx_packets: stats.ipackets,
            rx_bytes: stats.ibytes,
            rx_missed: stats.imissed,
            rx_errors: stats.ierrors,
            rx_no_buffer: stats.rx_nombuf,
            tx_packets: stats.opackets,
            tx_bytes: stats.obytes,
            tx_errors: stats.oerrors,
        })
    }

    /// Whether the link is up: of the kernel interface behind the port, or as the driver says.
    pub fn is_link_up(&self) -> bool {
        if let Some(device) = self.net_dev() {
            return device.up && device.running;
        }
        let mut link = sys::rte_eth_link::default();
        // SAFETY: the port is open; `link` is a live structure.
        let status = unsafe { sys::rte_eth_link_get_nowait(self.shared.id, &mut link) };
        status == 0 && u32::from(link.link_status()) == sys::RTE_ETH_LINK_UP
    }

    /// The kernel interface behind the port, as it is now.
    pub fn net_dev(&self) -> Option<NetDev> {
        let name = NetDev::name_of(self.shared.info.if_index?)?;
        NetDev::lookup(&name).ok().flatten()
    }

    /// The MTU now: of the kernel interface behind the port, or of the device. Also sets what the send queues take for
    /// the longest frame, so call it when the interface's MTU may have changed.
    pub fn mtu(&self) -> u32 {
        let known = device_mtu(self.shared.id);
        let mut mtu = self.net_dev().map_or(known, |device| device.mtu);
        if matches!(self.shared.device, Device::Tap { .. }) && mtu != known {
            let told = u16::try_from(mtu).unwrap_or(u16::MAX);
            // SAFETY: the port is a tap, and started.
            let status = unsafe { sys::mmb_tap_follow_mtu(self.shared.id, told) };
            mtu = if status == 0 { mtu } else { known };
        }
        let longest = max_frame(&self.shared.device, &self.shared.pool, mtu);
        self.shared.max_frame.store(longest, Ordering::Relaxed);
        mtu
    }

    /// Longest frame that the send queues take, Ethernet header included.
    pub fn max_frame(&self) -> u32 {
        self.shared.max_frame.load(Ordering::Relaxed)
    }

    /// Longest frame whose network header stands behind `link` bytes: what counts for the kernel is the IP packet and as
    /// many tags as there are.
    #[inline]
    pub fn max_frame_behind(&self, link: u32) -> u32 {
        let longest = self.max_frame();
        longest.min(longest.saturating_sub(LINK_BYTES).saturating_add(link))
    }

    /// Has an AF_XDP port leave to the kernel what is its own, from now on; None: the port gets every frame, as when it
    /// was opened. May be called at any time; no frame is lost. Ports of other kinds have nothing to steer.
    ///
    /// # Errors
    /// When the kernel refuses; nothing has changed then.
    pub fn steer(&self, steering: Option<&Steering>) -> Result<(), PortError> {
        let Some(program) = &self.shared.xdp else { return Ok(()) };
        program.steer(steering).map_err(|(step, errno)| {
            let interface = self.shared.device.interface().unwrap_or_default();
            xdp::refused(self.shared.info.name.clone(), interface, step, errno, None)
        })
    }

    /// Whether the driver of an AF_XDP port's interface has no XDP, so that the kernel does it in the driver's place,
    /// and slower.
    pub fn is_generic_xdp(&self) -> bool {
        self.shared.xdp.as_ref().is_some_and(XdpProgram::is_generic)
    }

    fn ask(&self, step: &'static str, f: impl FnOnce() -> i32) -> Result<(), PortError> {
        open::step(&self.shared.info.name, step, f).map(|_| ())
    }
}

/// The MTU that DPDK knows of.
pub(crate) fn device_mtu(id: u16) -> u32 {
    let mut mtu = 0;
    // SAFETY: a live integer; an unknown port gives an error.
    let status = unsafe { sys::rte_eth_dev_get_mtu(id, &mut mtu) };
    if status == 0 { u32::from(mtu) } else { sys::RTE_ETHER_MTU }
}

/// Longest frame that may be handed to a driver, two tags included.
pub(crate) fn max_frame(device: &Device, pool: &Mempool, mtu: u32) -> u32 {
    match device {
        // Goes out in a buffer of the pool.
        Device::AfXdp { .. } => (mtu + LINK_BYTES).min(xdp_capacity(pool)),
        // These take what a packet can be: a capture file, memory, nothing.
        Device::Null { .. } => u32::MAX,
        Device::Pcap { .. } => sys::RTE_ETHER_MAX_JUMBO_FRAME_LEN,
        _ => mtu + LINK_BYTES,
    }
}

impl RxQueue {
    /// Fetches packets that have arrived, as far as there is room, and answers how many. Does not wait.
    #[inline]
    pub fn receive(&mut self, slots: &mut Slots<'_>) -> usize {
        // SAFETY: the port is open and started, `&mut self` makes this the queue's only user, and the packets that the
        // driver gives are owned.
        unsafe {
            slots.fill(VECTOR_MAX, |place, room| {
                usize::from(sys::mmb_rx_burst(self.shared.id, self.queue, place, room))
            })
        }
    }

    /// As [`Port::rx_fds`].
    pub fn rx_fds(&self) -> &[RawFd] {
        &self.shared.fds
    }

    /// Takes pending errors off the descriptors, which would otherwise report POLLERR for ever (an AF_PACKET socket
    /// does when its interface goes down). Answers one of them.
    pub fn clear_errors(&mut self) -> Option<io::Error> {
        self.shared.fds.iter().fold(None, |error, fd| netdev::take_socket_error(*fd).or(error))
    }
}

impl TxQueue {
    /// Sends packets from the front of `burst`. What the port has no room for stays in it, in order.
    #[inline]
    pub fn send(&mut self, burst: &mut Burst) -> TxCount {
        let mut count = TxCount::default();
        // SAFETY: the burst's packets are owned; those that are left stand where `send_from` says.
        unsafe {
            burst.take_front(|packets, n| {
                count = self.send_from(packets, n);
                // The rest moves up by itself; the places of what was freed are cut off below.
                count.sent
            });
            burst.forget_last(count.too_big);
        }
        count
    }

    /// Sends all packets of `burst`; those that the port does not take are freed. The burst is empty afterwards.
    #[inline]
    pub fn send_all(&mut self, burst: &mut Burst) -> TxCount {
        let mut count = TxCount::default();
        // SAFETY: the burst's packets are owned; those that are left behind what was sent are freed, so that all are gone.
        unsafe {
            burst.take_front(|packets, n| {
                count = self.send_from(packets, n);
                count.no_room = usize::from(n) - count.sent - count.too_big;
                sys::mmb_pktmbuf_free_bulk(packets.add(count.sent), count.no_room as u32);
                usize::from(n)
            });
        }
        count
    }

    /// Longest frame that can be sent, Ethernet header included.
    #[inline]
    pub fn max_frame(&self) -> u32 {
        self.shared.max_frame.load(Ordering::Relaxed)
    }

    /// Sends packets from the front. What the port has no room for stands behind what was sent, in order; the last places,
    /// as many as packets were too big, are empty.
    ///
    /// # Safety
    /// `packets` points to `n` owned packets; those that were sent or too big are given away.
    #[inline]
    pub(crate) unsafe fn send_from(&mut self, packets: *mut *mut sys::rte_mbuf, n: u16) -> TxCount {
        // SAFETY: the caller's promise. What `admit` moves to the end it frees, so that all before it and nothing else is
        // left to send; `push` takes from the front.
        unsafe {
            let good = self.admit(packets, n);
            let sent = usize::from(self.push(packets, good));
            TxCount { sent, no_room: 0, too_big: usize::from(n - good) }
        }
    }

    /// Makes packets what the driver can take. Those that cannot be are freed, the others move up; answers how many
    /// are left.
    ///
    /// # Safety
    /// `packets` points to `n` owned packets.
    #[inline]
    unsafe fn admit(&mut self, packets: *mut *mut sys::rte_mbuf, n: u16) -> u16 {
        let (longest, chains) = (self.max_frame() as usize, self.shared.chains);
        // Almost always all of them can: then nothing is written.
        let fits = |packet: &Packet| packet.pkt_len() <= longest && (chains || packet.nb_segs() == 1);
        // SAFETY: the caller's promise.
        let packet = |at: usize| unsafe { &*(*packets.add(at)).cast::<Packet>() };
        let fitting = (0..usize::from(n)).take_while(|&at| fits(packet(at))).count();
        let mut good = fitting;
        for at in fitting..usize::from(n) {
            // SAFETY: the caller's promise; a Packet is reached through its header's address.
            unsafe {
                let header = *packets.add(at);
                let packet = &mut *header.cast::<Packet>();
                if packet.pkt_len() <= longest && (chains || packet.linearize()) {
                    *packets.add(good) = header;
                    good += 1;
                } else {
                    sys::mmb_pktmbuf_free(header);
                }
            }
        }
        good as u16
    }

    /// Hands packets to the driver for as long as it takes some; answers how many it took.
    ///
    /// # Safety
    /// `packets` points to `n` owned packets that the driver can take. The first ones, as many as answered, are given
    /// away.
    #[inline]
    unsafe fn push(&mut self, packets: *mut *mut sys::rte_mbuf, n: u16) -> u16 {
        let mut sent = 0;
        while sent < n {
            // SAFETY: the port is open and started, and `&mut self` makes this the queue's only user.
            let more = unsafe {
                sys::mmb_tx_burst(self.shared.id, self.queue, packets.add(usize::from(sent)), n - sent)
            };
            if more == 0 {
                break;
            }
            sent += more;
        }
        sent
    }
}
