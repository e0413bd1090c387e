//! Ports whose frames have virtio-net headers: packet sockets and taps.
//!
//! # Theory of operation
//! A virtio-net header describes what segmentation offload has left undone: a large frame and the payload of
//! its segments, and a checksum that is not complete ([`header`]). So large frames pass between the kernel
//! and the engine as they are. What a received frame becomes is the same for both kinds of port
//! ([`receive`]). How frames come and go differs ([`packet`], [`tap`]).

mod header;
mod pace;
mod packet;
mod receive;
mod ring;
mod tap;

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};

use self::header::VnetHeader;
use self::packet::PacketReader;
pub(super) use self::packet::PacketSocket;
use self::tap::TapReader;
pub(super) use self::tap::{Tap, TapError};
use super::spec::PortStats;
use crate::memory::{Mempool, Packet, Slots};

/// Buffers of a frame, and its virtio-net header.
const PIECES: usize = 256;
/// Longest frame whose end fits the metadata of a packet.
const LONGEST_WHOLE: usize = u16::MAX as usize;
/// Bytes of the longest frame: an IP packet, and the Ethernet header with two VLAN tags.
const LONGEST: usize = 65_535 + 22;

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

/// What no driver of DPDK counts.
#[derive(Debug, Default)]
pub(super) struct Counters {
    rx_packets: AtomicU64,
    rx_bytes: AtomicU64,
    /// Frames for which the kernel had no room.
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

/// What frames come and go by.
#[derive(Debug)]
enum Link {
    Packet(PacketSocket),
    Tap(Tap),
}

/// The kernel's side of a port.
#[derive(Debug)]
pub(super) struct VnetPort {
    link: Link,
    /// A [`ReceiveLarge`].
    large: AtomicU8,
    pub(super) counters: Counters,
}

impl From<PacketSocket> for VnetPort {
    fn from(socket: PacketSocket) -> VnetPort {
        VnetPort::new(Link::Packet(socket))
    }
}

impl From<Tap> for VnetPort {
    fn from(tap: Tap) -> VnetPort {
        VnetPort::new(Link::Tap(tap))
    }
}

impl VnetPort {
    fn new(link: Link) -> VnetPort {
        VnetPort { link, large: AtomicU8::new(ReceiveLarge::Whole as u8), counters: Counters::default() }
    }

    /// Whether frames come and go by a packet socket.
    pub(super) fn is_packet_socket(&self) -> bool {
        matches!(self.link, Link::Packet(_))
    }

    /// The tap, if it is one.
    #[inline]
    pub(super) fn tap(&self) -> Option<&Tap> {
        match &self.link {
            Link::Packet(_) => None,
            Link::Tap(tap) => Some(tap),
        }
    }

    /// The reader of a receive queue, which has one.
    pub(super) fn reader(&self, queue: u16) -> VnetReader {
        match &self.link {
            Link::Packet(socket) => VnetReader::Packet(PacketReader::new(socket)),
            Link::Tap(tap) => VnetReader::Tap(TapReader::new(tap, queue)),
        }
    }

    /// Descriptors that become readable when a frame arrives, one for each receive queue.
    pub(super) fn fds(&self) -> Vec<RawFd> {
        match &self.link {
            Link::Packet(socket) => vec![socket.fd()],
            Link::Tap(tap) => tap.fds(),
        }
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
    pub(super) fn send_large(&self, queue: u16, packet: &mut Packet) -> Sent {
        let Some(frame) = packet.large_frame() else { return Sent::Refused };
        let header = VnetHeader::of(&frame, packet.data(), packet.segment_size());
        frame.write_partial_checksum(packet.data_mut());
        self.send(queue, packet, header)
    }

    /// Sends a frame whose checksums are complete.
    #[inline]
    pub(super) fn send_ordinary(&self, queue: u16, packet: &mut Packet) -> Sent {
        self.send(queue, packet, VnetHeader::ORDINARY)
    }

    #[inline]
    fn send(&self, queue: u16, packet: &mut Packet, header: VnetHeader) -> Sent {
        let length = packet.pkt_len() as u64;
        let result = with_pieces(&mut header.to_bytes(), Some(packet), |pieces| match &self.link {
            Link::Packet(socket) => socket.write(pieces),
            Link::Tap(tap) => tap.write(queue, pieces),
        });
        match result.map_err(|error| error.raw_os_error()) {
            Ok(()) => {
                self.counters.tx_packets.fetch_add(1, Relaxed);
                self.counters.tx_bytes.fetch_add(length, Relaxed);
                Sent::Yes
            }
            Err(Some(libc::EAGAIN | libc::ENOMEM)) => Sent::NoRoom,
            Err(Some(libc::ENOBUFS)) => Sent::Dropped,
            Err(_) => {
                self.counters.tx_errors.fetch_add(1, Relaxed);
                Sent::Refused
            }
        }
    }
}

/// The receiving side of one queue, which belongs to one thread.
#[derive(Debug)]
pub(super) enum VnetReader {
    Packet(PacketReader),
    Tap(TapReader),
}

impl VnetReader {
    /// Receives the frames that have arrived, as far as there is room. Returns their number. `port` is the
    /// one that made the reader.
    #[inline]
    pub(super) fn receive(&mut self, port: &VnetPort, pool: &Mempool, slots: &mut Slots<'_>) -> usize {
        match (self, &port.link) {
            (VnetReader::Packet(reader), Link::Packet(socket)) => reader.receive(port, socket, pool, slots),
            (VnetReader::Tap(reader), Link::Tap(tap)) => reader.receive(port, tap, pool, slots),
            _ => 0,
        }
    }

    /// See [`super::RxQueue::note_wait`]. To look into a ring costs no system call.
    pub(super) fn note_wait(&mut self, is_readable: bool, waits_again: bool) {
        if let VnetReader::Tap(reader) = self {
            reader.note_wait(is_readable, waits_again);
        }
    }

    /// See [`PacketReader::restart_if_stalled`]. A tap does not stall.
    pub(super) fn restart_if_stalled(&mut self, port: &VnetPort) -> bool {
        match (self, &port.link) {
            (VnetReader::Packet(reader), Link::Packet(socket)) => reader.restart_if_stalled(socket),
            _ => false,
        }
    }
}

/// Calls `f` with the header and the segments of a packet, described to the kernel, which may read and write
/// them. Without a packet, with the header alone.
#[inline]
fn with_pieces<R>(
    header: &mut [u8; VnetHeader::BYTES],
    packet: Option<&mut Packet>,
    f: impl FnOnce(&mut [libc::iovec]) -> R,
) -> R {
    let first = libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() };
    let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let Some(packet) = packet else { return f(&mut [first]) };
    if packet.nb_segs() == 1 {
        let mut pieces = [first, none];
        packet.describe_segments(&mut pieces[1..]);
        return f(&mut pieces);
    }
    let mut pieces = [none; PIECES];
    pieces[0] = first;
    let n = 1 + packet.describe_segments(&mut pieces[1..]);
    f(&mut pieces[..n])
}

/// Calls `transfer` until no signal interrupts it. Returns the number of bytes.
#[inline]
fn uninterrupted(mut transfer: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        match usize::try_from(transfer()) {
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
