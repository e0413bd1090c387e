//! The ring of received frames that a packet socket shares with the kernel (TPACKET_V2).

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::header::VnetHeader;
use crate::port::device::PacketRing;
use crate::port::netdev::set_option;

/// The ethertype of a customer tag (IEEE 802.1Q).
const CUSTOMER_TAG: u16 = 0x8100;

/// The mapped ring.
#[derive(Debug)]
pub(super) struct Ring {
    start: NonNull<u8>,
    /// Bytes of a slot, and number of slots. They lie one behind the other.
    slot: usize,
    slots: u32,
}

// SAFETY: the memory belongs to no thread. What is read and written in a slot is agreed with the kernel by
// the slot's status, which is atomic.
unsafe impl Send for Ring {}
// SAFETY: as above; a slot is read by the thread that owns the receive queue.
unsafe impl Sync for Ring {}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, to which no slot refers any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes()) };
    }
}

impl Ring {
    /// Makes the ring of a socket that has none, with this layout.
    pub(super) fn create(fd: &OwnedFd, layout: &PacketRing) -> io::Result<Ring> {
        let request = libc::tpacket_req {
            tp_block_size: layout.block,
            tp_block_nr: layout.blocks(),
            tp_frame_size: layout.frame,
            tp_frame_nr: layout.frames,
        };
        set_option(fd.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        Ring::map(fd, layout)
    }

    /// Removes the ring of a socket, which is not mapped, with all frames that wait.
    pub(super) fn remove(fd: &OwnedFd) -> io::Result<()> {
        let none = libc::tpacket_req { tp_block_size: 0, tp_block_nr: 0, tp_frame_size: 0, tp_frame_nr: 0 };
        set_option(fd.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_RX_RING, &none)
    }

    /// Maps the ring of a socket, which has this layout.
    fn map(fd: &OwnedFd, layout: &PacketRing) -> io::Result<Ring> {
        let (slot, slots) = (layout.frame as usize, layout.frames);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe {
            let fd = fd.as_raw_fd();
            libc::mmap(std::ptr::null_mut(), slot * slots as usize, protection, libc::MAP_SHARED, fd, 0)
        };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Ring { start, slot, slots }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn bytes(&self) -> usize {
        self.slot * self.slots as usize
    }

    /// The slot with a number, if the kernel has filled it.
    #[inline]
    pub(super) fn filled(&self, number: u32) -> Option<Slot<'_>> {
        // SAFETY: the slot lies inside the mapping.
        let start = unsafe { self.start.add((number % self.slots) as usize * self.slot) };
        let slot = Slot { start, bytes: self.slot, ring: PhantomData };
        (slot.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0).then_some(slot)
    }

    /// The number of the next slot.
    #[inline]
    pub(super) fn behind(&self, number: u32) -> u32 {
        if number + 1 < self.slots { number + 1 } else { 0 }
    }
}

/// A slot that the kernel has filled.
pub(super) struct Slot<'a> {
    start: NonNull<u8>,
    bytes: usize,
    ring: PhantomData<&'a Ring>,
}

impl Slot<'_> {
    fn status(&self) -> &AtomicU32 {
        // SAFETY: the status is the first word of the slot, which is aligned to 16 bytes and mapped as long
        // as the ring lives.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().cast()) }
    }

    #[inline]
    fn header(&self) -> libc::tpacket2_hdr {
        // SAFETY: a slot begins with this header, which any bytes are; the kernel does not write to it now.
        unsafe { self.start.cast().read() }
    }

    /// Whether the whole frame is in the socket's queue.
    #[inline]
    pub(super) fn is_copied(&self) -> bool {
        self.header().tp_status & libc::TP_STATUS_COPY != 0
    }

    /// Length of the frame.
    #[inline]
    pub(super) fn length(&self) -> usize {
        self.header().tp_len as usize
    }

    /// The frame and its virtio-net header. `None` if the frame was cut.
    #[inline]
    pub(super) fn frame(&self) -> Option<(&[u8; VnetHeader::BYTES], &[u8])> {
        let header = self.header();
        let (from, length) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        let start = from.checked_sub(VnetHeader::BYTES)?;
        if header.tp_len != header.tp_snaplen || from + length > self.bytes {
            return None;
        }
        // SAFETY: the bytes lie inside the slot, which the kernel does not write to now.
        let bytes =
            unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(start), VnetHeader::BYTES + length) };
        bytes.split_first_chunk()
    }

    /// Ethertype and control information of the VLAN tag that the kernel has stripped.
    #[inline]
    pub(super) fn stripped_tag(&self) -> Option<[u16; 2]> {
        let header = self.header();
        let has = |flag| header.tp_status & flag != 0;
        let kind = if has(libc::TP_STATUS_VLAN_TPID_VALID) { header.tp_vlan_tpid } else { CUSTOMER_TAG };
        has(libc::TP_STATUS_VLAN_VALID).then_some([kind, header.tp_vlan_tci])
    }

    /// Gives the slot back to the kernel.
    #[inline]
    pub(super) fn release(self) {
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}
