//! Tap interfaces: what the kernel sends by one is received here, and what is sent here the kernel receives.
//!
//! # Theory of operation
//! The interface is made by opening the device of taps, and ends when that is closed (tuntap.rst of the
//! kernel's documentation). A read takes one frame, a write gives one. A frame is read into as many buffers
//! as the longest one needs, and keeps those that it has filled.
//!
//! A read that finds nothing is a system call, too, so a queue is asked at times ([`Pace`]).

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::Ordering::Relaxed;

use super::header::VnetHeader;
use super::pace::{Pace, Pauses};
use super::receive::{Arrival, Next, PendingSegments};
use super::{Counters, LONGEST, VnetPort, uninterrupted};
use crate::eal::rdtsc;
use crate::memory::{Mempool, ScatterBuffers, Slots};
use crate::port::netdev::{InterfaceQuery, NetDev, socket};

/// The device of taps.
const DEVICE: &str = "/dev/net/tun";
/// The kernel puts the lowest free number into the name of a tap that was given none.
const NAMES: &str = "dtap%d";
/// What the engine takes from the kernel: checksums that are not complete, and large frames of TCP.
const OFFLOADS: libc::c_uint = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
/// Large frames of UDP, which Linux 6.2 and later have.
const UDP_OFFLOADS: libc::c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// A tap.
#[derive(Debug)]
pub(in crate::port) struct Tap {
    /// One for each queue.
    queues: Vec<OwnedFd>,
    /// For questions about the interface, in the network namespace in which it was made.
    control: OwnedFd,
    pauses: Pauses,
}

/// Why a tap cannot be made.
#[derive(Debug)]
pub(in crate::port) struct TapError {
    /// The failed step, as the end of a sentence that begins with "cannot".
    pub(in crate::port) step: &'static str,
    pub(in crate::port) error: io::Error,
}

impl Tap {
    /// Makes a tap with `queues` queues, and its interface, which is up and promiscuous. `mtu`: of the
    /// interface; None: the kernel's. `tsc_hz`: ticks of the time-stamp counter per second.
    pub(in crate::port) fn open(
        name: Option<&str>,
        queues: u16,
        mtu: Option<u16>,
        tsc_hz: u64,
    ) -> Result<Tap, TapError> {
        let failed = |step| move |error| TapError { step, error };
        let control = socket(libc::AF_INET, libc::SOCK_DGRAM, 0).map_err(failed("open a socket"))?;
        let mut query = InterfaceQuery::by(name.unwrap_or(NAMES), control).ok_or_else(|| TapError {
            step: "make its interface",
            error: io::ErrorKind::InvalidInput.into(),
        })?;
        let own = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        let shared = own | if queues > 1 { libc::IFF_MULTI_QUEUE } else { 0 };
        let queues = (0..queues.max(1))
            .map(|number| {
                let fd = open_device().map_err(failed("open /dev/net/tun"))?;
                // The first queue makes the interface; the others are added.
                let flags = if number == 0 { shared | libc::IFF_TUN_EXCL } else { shared };
                query.request.ifr_ifru.ifru_flags = flags as libc::c_short;
                query.ioctl_on(&fd, libc::TUNSETIFF).map_err(failed("make its interface"))?;
                Ok(fd)
            })
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(fd) = queues.first() {
            offer(fd, OFFLOADS | UDP_OFFLOADS)
                .or_else(|_| offer(fd, OFFLOADS))
                .map_err(failed("take large frames"))?;
        }
        if let Some(mtu) = mtu {
            query.set_mtu(mtu).map_err(failed("set its MTU"))?;
        }
        query.add_flags(libc::IFF_UP | libc::IFF_PROMISC).map_err(failed("switch on its interface"))?;
        Ok(Tap { queues, control: query.into_socket(), pauses: Pauses::new(tsc_hz) })
    }

    /// Descriptors that become readable when a frame arrives, one for each queue.
    pub(super) fn fds(&self) -> Vec<RawFd> {
        self.queues.iter().map(AsRawFd::as_raw_fd).collect()
    }

    /// Whether the interface exists. The kernel destroys it when a user deletes it.
    pub(in crate::port) fn is_attached(&self) -> bool {
        self.identify().is_some()
    }

    /// The current state of the interface, whatever its name is now. None: it is gone, or was moved to
    /// another network namespace.
    pub(in crate::port) fn interface(&self) -> Option<NetDev> {
        let (query, mac) = self.identify()?;
        // Another interface may have the name where this one was.
        NetDev::query(query).ok().flatten().filter(|found| found.mac == mac)
    }

    /// A query with the interface's name, and its Ethernet address. None: it is gone.
    fn identify(&self) -> Option<(InterfaceQuery, [u8; 6])> {
        let fd = self.queues.first()?;
        let mut query = InterfaceQuery::by(NAMES, self.control.try_clone().ok()?)?;
        query.ioctl_on(fd, libc::SIOCGIFHWADDR).ok()?;
        let mac = query.mac();
        query.ioctl_on(fd, libc::TUNGETIFF).ok()?;
        Some((query, mac))
    }

    /// Sends a frame with its virtio-net header.
    #[inline]
    pub(super) fn write(&self, queue: u16, pieces: &[libc::iovec]) -> io::Result<()> {
        let Some(fd) = self.queues.get(usize::from(queue)) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        // SAFETY: live buffers, which the kernel reads.
        uninterrupted(|| unsafe { libc::writev(fd.as_raw_fd(), pieces.as_ptr(), pieces.len() as _) })
            .map(drop)
    }

    /// Reads the frame that waits first in a queue.
    #[inline]
    fn read(&self, queue: u16, buffers: &mut ScatterBuffers, pool: &Mempool, counters: &Counters) -> Next {
        let Some(fd) = self.queues.get(usize::from(queue)) else { return Next::Nothing };
        let mut header = [0u8; VnetHeader::BYTES];
        let first = libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() };
        let is_filled = buffers.fill(pool);
        let pieces = buffers.pieces(first);
        // Without buffers, the frame is discarded.
        let count = if is_filled { pieces.len() } else { 1 };
        // SAFETY: the kernel writes to the header, and to buffers that are owned here.
        let read = uninterrupted(|| unsafe { libc::readv(fd.as_raw_fd(), pieces.as_ptr(), count as _) });
        // A descriptor whose interface is gone has no frames.
        let Ok(read) = read else { return Next::Nothing };
        // What fills all buffers may be cut.
        let length = read.checked_sub(VnetHeader::BYTES).filter(|n| is_filled && *n < buffers.capacity());
        match length.and_then(|n| buffers.take(n)) {
            Some(packet) => Next::Frame(Arrival::new(packet, &VnetHeader::from_bytes(&header), None)),
            None => {
                counters.rx_no_buffer.fetch_add(1, Relaxed);
                Next::Lost
            }
        }
    }
}

/// The receiving side of a queue, which belongs to one thread.
#[derive(Debug)]
pub(in crate::port) struct TapReader {
    queue: u16,
    /// Made when the first frame is asked for.
    buffers: Option<ScatterBuffers>,
    pending: PendingSegments,
    pace: Pace,
}

impl TapReader {
    /// The reader of a queue, which has one.
    pub(super) fn new(tap: &Tap, queue: u16) -> TapReader {
        TapReader { queue, buffers: None, pending: PendingSegments::new(), pace: Pace::new(tap.pauses) }
    }

    /// See [`super::super::RxQueue::note_wait`].
    pub(super) fn note_wait(&mut self, is_readable: bool, waits_again: bool) {
        self.pace.note_wait(rdtsc(), is_readable, waits_again);
    }

    /// Receives the frames that have arrived, as far as there is room. Returns their number.
    #[inline]
    pub(super) fn receive(
        &mut self,
        port: &VnetPort,
        tap: &Tap,
        pool: &Mempool,
        slots: &mut Slots<'_>,
    ) -> usize {
        let is_due = self.pace.is_due(rdtsc(), port.counters.tx_packets.load(Relaxed));
        if self.pending.is_empty() && !is_due {
            return 0;
        }
        let TapReader { queue, buffers, pending, pace } = self;
        let buffers = buffers.get_or_insert_with(|| ScatterBuffers::new(pool, LONGEST + 1));
        let (mut frames, expects_one) = (0, pace.expects_one());
        let read = || {
            if expects_one && frames == 1 {
                return Next::Nothing;
            }
            let next = tap.read(*queue, buffers, pool, &port.counters);
            frames += u32::from(!matches!(next, Next::Nothing));
            next
        };
        let (received, is_drained) = pending.receive(port, slots, read);
        pace.note_read(rdtsc(), frames, is_drained);
        received
    }
}

/// Opens the device of taps.
fn open_device() -> io::Result<OwnedFd> {
    let device = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE)?;
    Ok(device.into())
}

/// Tells the kernel what it may leave undone in frames that it sends by a tap.
fn offer(tap: &OwnedFd, offloads: libc::c_uint) -> io::Result<()> {
    // SAFETY: this request has a number as its argument.
    let status = unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads)) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
