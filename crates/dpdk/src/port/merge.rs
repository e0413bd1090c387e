//! Merges TCP segments into large frames before a port sends them (see [`Merger`]).

use std::ptr::NonNull;

use mmb_dpdk_sys as sys;
use mmb_packet::{MergePackets, MergeRole, Merger, TcpSegment, Train};

use crate::memory::{MAX_BUFFERS, Mbuf, Packet, is_intact};

/// Most buffers of a packet that is merged. A train of [`Train::MOST`] of them fits a packet.
const MOST_BUFFERS: u16 = 3;
/// Packets whose first bytes are prefetched.
const AHEAD: usize = 4;

const _: () = assert!(MOST_BUFFERS as usize * Train::MOST < MAX_BUFFERS as usize);

/// Owned packets.
struct Packets {
    start: *mut *mut sys::rte_mbuf,
    /// The packet to which payload was appended last, and its last segment.
    appended: Option<(usize, *mut sys::rte_mbuf)>,
}

impl Packets {
    /// The packet at a position.
    ///
    /// # Safety
    /// The position has an owned packet, to which there is no unique reference while the result lives.
    #[inline]
    unsafe fn get<'a>(&self, at: usize) -> &'a Packet {
        // SAFETY: the caller's promise; a Packet is reached through its header's address.
        unsafe { &*(*self.start.add(at)).cast::<Packet>() }
    }

    /// The packet at a position, to write.
    ///
    /// # Safety
    /// The position has an owned packet, to which there is no other reference while the result lives.
    #[inline]
    unsafe fn get_mut<'a>(&mut self, at: usize) -> &'a mut Packet {
        // SAFETY: the caller's promise; a Packet is reached through its header's address.
        unsafe { &mut *(*self.start.add(at)).cast::<Packet>() }
    }

    /// Appends what follows the headers of a packet to the one at `first`.
    ///
    /// # Safety
    /// There are owned packets at `first` and in `packet`, to which there are no references, and of which the
    /// second one begins with `headers` contiguous bytes. It changes owner.
    #[inline]
    unsafe fn append(&mut self, first: usize, packet: NonNull<sys::rte_mbuf>, headers: usize) {
        // SAFETY: the caller's promise. Trains are short enough for one packet. `appended` is the end of a
        // packet that only this function lengthens.
        unsafe {
            let mut payload = Mbuf::from_raw(packet);
            payload.adj(headers);
            let to = self.get_mut(first);
            let last = self.appended.filter(|(at, _)| *at == first).map(|(_, last)| last);
            self.appended = Some((first, payload.last_segment()));
            to.chain_behind(last.unwrap_or_else(|| to.last_segment()), payload);
        }
    }
}

impl MergePackets for Packets {
    fn is_intact(&self, at: usize, segment: &TcpSegment) -> bool {
        // SAFETY: the merger passes positions that it was given, while there are no unique references.
        is_intact(unsafe { self.get(at) }, segment)
    }

    fn finish(&mut self, train: &Train) {
        // SAFETY: the position is that of a packet before the one that the merger is given now.
        let packet = unsafe { self.get_mut(train.at()) };
        train.write_headers(packet.data_mut());
        packet.set_large(train.segment_size());
    }
}

/// Merges segments among packets, and moves the others up. Packets longer than `longest` stay as they are.
/// Returns how many packets are left.
///
/// # Safety
/// `packets` points to `n` owned packets.
pub(super) unsafe fn merge(
    merger: &mut Merger,
    packets: *mut *mut sys::rte_mbuf,
    n: u16,
    longest: usize,
) -> u16 {
    let mut packets = Packets { start: packets, appended: None };
    let mut left = 0;
    for from in 0..usize::from(n) {
        // SAFETY: the caller's promise: entries up to `left` and from `from` on are owned packets. One that
        // is appended is no longer among them.
        unsafe {
            if from + AHEAD < usize::from(n) {
                packets.get(from + AHEAD).prefetch_data();
            }
            let header = *packets.start.add(from);
            *packets.start.add(left) = header;
            let packet = packets.get(left);
            let can_merge =
                !packet.is_large() && packet.pkt_len() <= longest && packet.nb_segs() <= MOST_BUFFERS;
            let role = if can_merge {
                MergeRole::parse(packet.data(), packet.pkt_len())
            } else {
                MergeRole::Unknown
            };
            let first = merger.take(&role, packet.data(), left, &mut packets);
            match (first, NonNull::new(header)) {
                (Some(first), Some(header)) => packets.append(first, header, role.header_len()),
                _ => left += 1,
            }
        }
    }
    merger.finish(&mut packets);
    left as u16
}
