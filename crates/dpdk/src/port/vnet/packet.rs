//! The socket by which an AF_PACKET port receives all frames and sends large ones.
//!
//! # Theory of operation
//! Frames have virtio-net headers (PACKET_VNET_HDR), so the kernel passes large frames of segmentation
//! offload and of GRO as they are, and takes large frames.
//!
//! Frames arrive in a ring that the process shares with the kernel (TPACKET_V2), whose slots are as long as
//! ordinary frames. A longer frame is cut in its slot; the whole frame waits in the socket's queue
//! (PACKET_COPY_THRESH), from which it is copied to a chain of buffers. The slot keeps its place in the
//! order.
//!
//! The kernel has no virtio-net header for large frames of SCTP, and of UDP that are to be fragmented (UFO).
//! It drops them, and takes the slot for one that it is still filling (`tpacket_rcv`, Linux 5.6 to 6.18), so
//! that it drops all later frames, too. Only a new ring ends that
//! ([`PacketReader::restart_if_stalled`]).
//!
//! Ordinary frames are sent by DPDK's driver, in a ring of a socket of its own, which receives nothing
//! (shim/packet.c). Large frames are sent by this socket, in one copy each.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use super::header::VnetHeader;
use super::receive::{Arrival, Next, PendingSegments};
use super::ring::{Ring, Slot};
use super::{Counters, LONGEST, VnetPort, uninterrupted, with_pieces};
use crate::memory::{Mbuf, Mempool, Slots};
use crate::port::device::PacketRing;
use crate::port::netdev::{set_option, socket};

/// Bytes of frames that may wait in the socket's queues; only as much as waits is used.
const QUEUE_BYTES: libc::c_int = 16 << 20;

/// The socket.
#[derive(Debug)]
pub(in crate::port) struct PacketSocket {
    fd: OwnedFd,
    layout: PacketRing,
    /// The ring, until the reader has it.
    ring: Mutex<Option<Ring>>,
}

impl PacketSocket {
    /// Opens the socket for the interface with that index, with slots for frames of that layout.
    pub(in crate::port) fn open(index: u32, layout: PacketRing) -> io::Result<PacketSocket> {
        let fd = socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0)?;
        let raw = fd.as_raw_fd();
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        for (option, value) in [
            (libc::PACKET_VERSION, version),
            (libc::PACKET_VNET_HDR, 1),
            (libc::PACKET_COPY_THRESH, 1),
            (libc::PACKET_IGNORE_OUTGOING, 1),
            (libc::PACKET_QDISC_BYPASS, 1),
        ] {
            set_option(raw, libc::SOL_PACKET, option, &value)?;
        }
        for (force, ask) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
        {
            set_option(raw, libc::SOL_SOCKET, force, &QUEUE_BYTES)
                .or_else(|_| set_option(raw, libc::SOL_SOCKET, ask, &QUEUE_BYTES))?;
        }
        let ring = Mutex::new(Some(Ring::create(&fd, &layout)?));
        bind(&fd, index)?;
        Ok(PacketSocket { fd, layout, ring })
    }

    /// The descriptor, which becomes readable when frames arrive.
    pub(super) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Sends a frame with its virtio-net header.
    pub(super) fn write(&self, pieces: &mut [libc::iovec]) -> io::Result<()> {
        let message = message(pieces);
        // SAFETY: a valid message, whose buffers the kernel reads.
        uninterrupted(|| unsafe { libc::sendmsg(self.fd(), &raw const message, libc::MSG_DONTWAIT) })
            .map(drop)
    }

    /// The frame of a slot.
    #[inline]
    fn read_slot(&self, slot: &Slot<'_>, pool: &Mempool, counters: &Counters) -> Next {
        let (packet, header) = if slot.is_copied() {
            let Some(long) = self.read_long(slot.length(), pool, counters) else { return Next::Lost };
            long
        } else {
            let Some((header, frame)) = slot.frame() else {
                counters.rx_missed.fetch_add(1, Relaxed);
                return Next::Lost;
            };
            let Some(packet) = pool.alloc_from(frame) else {
                counters.rx_no_buffer.fetch_add(1, Relaxed);
                return Next::Lost;
            };
            (packet, VnetHeader::from_bytes(header))
        };
        Next::Frame(Arrival::new(packet, &header, slot.stripped_tag()))
    }

    /// Reads the frame that waits first in the socket's queue, of `length` bytes. `None` if there is no
    /// memory for it, or it is longer than a packet can be; it is discarded.
    fn read_long(&self, length: usize, pool: &Mempool, counters: &Counters) -> Option<(Mbuf, VnetHeader)> {
        let mut header = [0u8; VnetHeader::BYTES];
        let mut packet = (length <= LONGEST).then(|| pool.alloc_chain(length)).flatten();
        let read = with_pieces(&mut header, packet.as_deref_mut(), |pieces| {
            let mut message = message(pieces);
            // SAFETY: a valid message. The kernel writes to the header, and to the segments of a packet that
            // is owned here.
            uninterrupted(|| unsafe { libc::recvmsg(self.fd(), &raw mut message, libc::MSG_DONTWAIT) })
        });
        let read = read.ok()?.checked_sub(header.len());
        let packet = packet.filter(|_| read == Some(length));
        if packet.is_none() {
            counters.rx_no_buffer.fetch_add(1, Relaxed);
        }
        Some((packet?, VnetHeader::from_bytes(&header)))
    }
}

/// A message of these pieces.
fn message(pieces: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: all zeros is a valid message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = pieces.len() as _;
    message
}

/// The receiving side of a socket, which belongs to one thread.
#[derive(Debug)]
pub(in crate::port) struct PacketReader {
    /// None: there is no memory for a ring.
    ring: Option<Ring>,
    /// The next slot.
    next: u32,
    /// Slots that were read, in total and when the last loss was noticed.
    read: u64,
    read_before: u64,
    pending: PendingSegments,
}

impl PacketReader {
    /// The reader of a socket, which has one.
    pub(super) fn new(socket: &PacketSocket) -> PacketReader {
        let ring = socket.ring.lock().unwrap_or_else(PoisonError::into_inner).take();
        PacketReader { ring, next: 0, read: 0, read_before: 0, pending: PendingSegments::new() }
    }

    /// Makes a new ring if the kernel has lost frames although the ring is empty, and if none has come since
    /// the last call. To be called when frames were lost since then. Returns whether there is a new one.
    pub(super) fn restart_if_stalled(&mut self, socket: &PacketSocket) -> bool {
        let has_read = std::mem::replace(&mut self.read_before, self.read) != self.read;
        let is_stalled = match &self.ring {
            Some(ring) => !has_read && ring.filled(self.next).is_none(),
            None => true,
        };
        if is_stalled {
            // The kernel replaces no ring that is mapped.
            self.ring = None;
            self.next = 0;
            self.ring = Ring::remove(&socket.fd).and_then(|()| Ring::create(&socket.fd, &socket.layout)).ok();
        }
        is_stalled && self.ring.is_some()
    }

    /// Receives the frames that have arrived, as far as there is room. Returns their number.
    #[inline]
    pub(super) fn receive(
        &mut self,
        port: &VnetPort,
        socket: &PacketSocket,
        pool: &Mempool,
        slots: &mut Slots<'_>,
    ) -> usize {
        let PacketReader { ring, next, read, pending, .. } = self;
        let (received, _) = pending.receive(port, slots, || {
            let Some((ring, slot)) = ring.as_ref().and_then(|ring| Some((ring, ring.filled(*next)?))) else {
                return Next::Nothing;
            };
            let frame = socket.read_slot(&slot, pool, &port.counters);
            slot.release();
            *next = ring.behind(*next);
            *read += 1;
            frame
        });
        received
    }
}

/// Binds the socket to an interface, for frames of all protocols.
fn bind(fd: &OwnedFd, index: u32) -> io::Result<()> {
    // SAFETY: all zeros is a valid address.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index.cast_signed();
    let size = size_of_val(&address) as libc::socklen_t;
    // SAFETY: passes a live address and its size.
    let status = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

const _: () = assert!(offset_of!(libc::tpacket2_hdr, tp_status) == 0);
