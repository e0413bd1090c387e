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

mod ring;
mod vnet;

use std::collections::VecDeque;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::sync::{Mutex, PoisonError};

use mmb_packet::LargeFrame;

use self::ring::{Ring, Slot};
use self::vnet::VnetHeader;
use super::device::PacketRing;
use super::netdev::{set_option, socket};
use super::spec::PortStats;
use crate::memory::{MAX_SEGMENTS, Mbuf, Mempool, Packet, Slots, complete_from, segment, segment_as};

/// Bytes of frames that may wait in the socket's queues; only as much as waits is used.
const QUEUE_BYTES: libc::c_int = 16 << 20;
/// Bytes of the longest frame: an IP packet, and the Ethernet header with two VLAN tags.
const LONGEST: usize = 65_535 + 22;
/// Longest frame whose end fits the metadata of a packet.
const LONGEST_WHOLE: usize = u16::MAX as usize;
/// Length of a VLAN tag.
const TAG: usize = 4;
/// Buffers of a large frame that is sent, and its virtio-net header.
const PIECES: usize = 256;

/// Which large frames are received whole. The others are segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ReceiveLarge {
    /// None.
    Segmented,
    /// Those of TCP: the segments of one of UDP are datagrams, each of which means something by itself.
    Tcp,
    /// All.
    Whole,
}

/// The socket.
#[derive(Debug)]
pub(super) struct PacketSocket {
    fd: OwnedFd,
    layout: PacketRing,
    /// The ring, until the reader has it.
    ring: Mutex<Option<Ring>>,
    /// A [`ReceiveLarge`].
    large: AtomicU8,
    pub(super) counters: Counters,
}

/// What the driver does not count.
#[derive(Debug, Default)]
pub(super) struct Counters {
    rx_packets: AtomicU64,
    rx_bytes: AtomicU64,
    /// Frames for which the socket's queue had no room.
    rx_missed: AtomicU64,
    rx_no_buffer: AtomicU64,
    tx_packets: AtomicU64,
    tx_bytes: AtomicU64,
    tx_errors: AtomicU64,
}

impl Counters {
    /// Adds the counts to those of the driver.
    pub(super) fn add_to(&self, stats: &mut PortStats) {
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        stats.rx_packets += count(&self.rx_packets);
        stats.rx_bytes += count(&self.rx_bytes);
        stats.rx_missed += count(&self.rx_missed);
        stats.rx_no_buffer += count(&self.rx_no_buffer);
        stats.tx_packets += count(&self.tx_packets);
        stats.tx_bytes += count(&self.tx_bytes);
        stats.tx_errors += count(&self.tx_errors);
    }
}

/// The result of sending a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Yes,
    /// There is no room now.
    NoRoom,
    /// The kernel has dropped the frame. Its device is busy, or cannot segment it: for sockets that bypass
    /// the queueing discipline, the kernel does not (`__dev_direct_xmit`, Linux 4.19 to 6.18).
    Dropped,
    /// The kernel refuses the frame.
    Refused,
}

impl PacketSocket {
    /// Opens the socket for the interface with that index, with slots for frames of that layout.
    pub(super) fn open(index: u32, layout: PacketRing) -> io::Result<PacketSocket> {
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
        let large = AtomicU8::new(ReceiveLarge::Whole as u8);
        Ok(PacketSocket { fd, layout, ring, large, counters: Counters::default() })
    }

    /// The descriptor, which becomes readable when frames arrive.
    pub(super) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Sets which large frames are received whole.
    pub(super) fn receive_large(&self, large: ReceiveLarge) {
        self.large.store(large as u8, Relaxed);
    }

    /// Receives no large frames whole but those of `most`.
    pub(super) fn restrict_large(&self, most: ReceiveLarge) {
        self.large.fetch_min(most as u8, Relaxed);
    }

    /// Whether a large frame is received whole.
    fn receives_whole(&self, packet: &Packet) -> bool {
        let large = self.large.load(Relaxed);
        packet.pkt_len() <= LONGEST_WHOLE
            && (large == ReceiveLarge::Whole as u8
                || large == ReceiveLarge::Tcp as u8
                    && packet.large_frame().is_some_and(|frame| frame.is_tcp()))
    }

    /// Sends a large frame as it is.
    pub(super) fn send(&self, packet: &mut Packet) -> Sent {
        let Some(frame) = packet.large_frame() else { return Sent::Refused };
        let mut header = VnetHeader::of(&frame, packet.data(), packet.segment_size()).to_bytes();
        frame.write_partial_checksum(packet.data_mut());
        let mut pieces = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PIECES];
        pieces[0] = libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() };
        let n = 1 + packet.describe_segments(&mut pieces[1..]);
        match self.transfer(&mut pieces[..n], |fd, message| {
            // SAFETY: a valid message, whose buffers the kernel reads.
            unsafe { libc::sendmsg(fd, message, libc::MSG_DONTWAIT) }
        }) {
            Ok(_) => {
                self.counters.tx_packets.fetch_add(1, Relaxed);
                self.counters.tx_bytes.fetch_add(packet.pkt_len() as u64, Relaxed);
                Sent::Yes
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::ENOMEM) => Sent::NoRoom,
                Some(libc::ENOBUFS) => Sent::Dropped,
                _ => {
                    self.counters.tx_errors.fetch_add(1, Relaxed);
                    Sent::Refused
                }
            },
        }
    }

    /// Reads the frame that waits first in the socket's queue, of `length` bytes. `None` if there is no
    /// memory for it, or it is longer than a packet can be; it is discarded.
    fn read_long(&self, length: usize, pool: &Mempool) -> Option<(Mbuf, VnetHeader)> {
        let mut header = [0u8; VnetHeader::BYTES];
        let mut pieces = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PIECES];
        pieces[0] = libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() };
        let mut packet = (length <= LONGEST).then(|| pool.alloc_chain(length)).flatten();
        let n = 1 + packet.as_mut().map_or(0, |packet| packet.describe_segments(&mut pieces[1..]));
        let read = self.transfer(&mut pieces[..n], |fd, message| {
            // SAFETY: a valid message. The kernel writes to the header, and to the segments of a packet that
            // is owned here.
            unsafe { libc::recvmsg(fd, message, libc::MSG_DONTWAIT) }
        });
        let read = read.ok()?.checked_sub(header.len());
        let packet = packet.filter(|_| read == Some(length));
        if packet.is_none() {
            self.counters.rx_no_buffer.fetch_add(1, Relaxed);
        }
        Some((packet?, VnetHeader::from_bytes(&header)))
    }

    /// Calls `transfer` with a message of these pieces, until no signal interrupts it.
    fn transfer(
        &self,
        pieces: &mut [libc::iovec],
        transfer: impl Fn(RawFd, &mut libc::msghdr) -> isize,
    ) -> io::Result<usize> {
        // SAFETY: all zeros is a valid message.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = pieces.as_mut_ptr();
        message.msg_iovlen = pieces.len() as _;
        loop {
            match usize::try_from(transfer(self.fd(), &mut message)) {
                Ok(n) => return Ok(n),
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
    }
}

/// The receiving side of a socket, which belongs to one thread.
#[derive(Debug)]
pub(super) struct PacketReader {
    /// None: there is no memory for a ring.
    ring: Option<Ring>,
    /// The next slot.
    next: u32,
    /// Slots that were read, in total and when the last loss was noticed.
    read: u64,
    read_before: u64,
    /// Segments of a large frame for which there was no room.
    pending: VecDeque<Mbuf>,
}

impl PacketReader {
    /// The reader of a socket, which has one.
    pub(super) fn new(socket: &PacketSocket) -> PacketReader {
        let ring = socket.ring.lock().unwrap_or_else(PoisonError::into_inner).take();
        let pending = VecDeque::with_capacity(MAX_SEGMENTS);
        PacketReader { ring, next: 0, read: 0, read_before: 0, pending }
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
    pub(super) fn receive(&mut self, socket: &PacketSocket, pool: &Mempool, slots: &mut Slots<'_>) -> usize {
        let (before, mut bytes) = (slots.len(), 0);
        loop {
            while slots.room() > 0
                && let Some(packet) = self.pending.pop_front()
            {
                bytes += packet.pkt_len();
                // There is room.
                drop(slots.push(packet));
            }
            if slots.room() == 0 {
                break;
            }
            let Some((ring, slot)) =
                self.ring.as_ref().and_then(|ring| Some((ring, ring.filled(self.next)?)))
            else {
                break;
            };
            let packet = receive_slot(socket, &slot, pool);
            slot.release();
            self.next = ring.behind(self.next);
            self.read += 1;
            let Some((packet, tunnel)) = packet else { continue };
            let output = |segment| self.pending.push_back(segment);
            let is_done = match tunnel {
                Some((frame, size)) => segment_as(&packet, &frame, size, output),
                None if packet.is_large() && packet.segment_size() > 0 && !socket.receives_whole(&packet) => {
                    segment(&packet, output)
                }
                None => {
                    bytes += packet.pkt_len();
                    // There is room.
                    drop(slots.push(packet));
                    true
                }
            };
            if !is_done {
                socket.counters.rx_no_buffer.fetch_add(1, Relaxed);
            }
        }
        let received = slots.len() - before;
        if received > 0 {
            socket.counters.rx_packets.fetch_add(received as u64, Relaxed);
            socket.counters.rx_bytes.fetch_add(bytes as u64, Relaxed);
        }
        received
    }
}

/// The frame of a slot, as it was on the wire. If its segments are inside a tunnel, with their headers and
/// bytes of payload: the engine knows large frames of the outermost packet only.
fn receive_slot(
    socket: &PacketSocket,
    slot: &Slot<'_>,
    pool: &Mempool,
) -> Option<(Mbuf, Option<(LargeFrame, u16)>)> {
    let (mut packet, header) = if slot.is_copied() {
        socket.read_long(slot.length(), pool)?
    } else {
        let Some((header, frame)) = slot.frame() else {
            socket.counters.rx_missed.fetch_add(1, Relaxed);
            return None;
        };
        let Some(packet) = pool.alloc_from(frame) else {
            socket.counters.rx_no_buffer.fetch_add(1, Relaxed);
            return None;
        };
        (packet, VnetHeader::from_bytes(header))
    };
    if header.is_large() {
        let size = packet.large_frame().filter(|frame| header.describes(frame, packet.pkt_len()));
        packet.set_large(size.map_or(0, |_| header.size()));
    } else if let Some((start, field)) = header.tunnelled_checksum(packet.data()) {
        complete_from(&mut packet, start, field);
    }
    let tag = slot.stripped_tag();
    if let Some(tag) = tag {
        insert_tag(&mut packet, tag);
    }
    let is_tunnelled = packet.is_large() && packet.segment_size() == 0;
    let shift = if tag.is_some() { TAG } else { 0 };
    let tunnel = is_tunnelled.then(|| header.tunnel(packet.data(), packet.pkt_len(), shift)).flatten();
    Some((packet, tunnel.map(|frame| (frame, header.size()))))
}

/// Inserts a VLAN tag behind the Ethernet addresses. The headroom of a received packet has room for it.
fn insert_tag(packet: &mut Packet, tag: [u16; 2]) {
    const ADDRESSES: usize = 12;
    let [[a, b], [c, d]] = tag.map(u16::to_be_bytes);
    if packet.data().len() >= ADDRESSES && packet.prepend(TAG).is_some() {
        let frame = packet.data_mut();
        frame.copy_within(TAG..TAG + ADDRESSES, 0);
        frame[ADDRESSES..ADDRESSES + TAG].copy_from_slice(&[a, b, c, d]);
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
