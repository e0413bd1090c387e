//! Receive and send queues.

use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mmb_dpdk_sys as sys;
use mmb_packet::Merger;

use super::handle::DeviceHandle;
use super::merge::merge;
use super::netdev;
use super::spec::TxCount;
use super::vnet::{Sent, VnetReader};
use crate::memory::{Burst, Mbuf, Packet, Slots, VECTOR_MAX, complete_single, segment};

/// While packets arrive, frames that wait to be sent are offered to the kernel each time after so many looks.
const TURNS_PER_OFFER: u8 = 16;
/// Attempts without progress to send the segments of a large frame.
const SEGMENT_TRIES: u32 = 64;
/// Large frames that are segmented behind one that the kernel has dropped, before it gets one again.
const SEGMENTED_BEHIND_DROP: u32 = 63;

/// A receive queue. It belongs to one thread.
#[derive(Debug)]
pub struct RxQueue {
    handle: Arc<DeviceHandle>,
    queue: u16,
    /// Of a port whose frames have virtio-net headers.
    reader: Option<VnetReader>,
    turn: u8,
}

/// A send queue. It belongs to one thread.
#[derive(Debug)]
pub struct TxQueue {
    handle: Arc<DeviceHandle>,
    queue: u16,
    /// Whether large frames are among the packets to send.
    has_large: bool,
    /// Segments of large frames; taken while they are sent.
    segments: Option<Burst>,
    /// Large frames that are not to be given to the kernel whole.
    to_segment: u32,
    merger: Merger,
}

impl RxQueue {
    pub(super) fn new(handle: Arc<DeviceHandle>, queue: u16) -> RxQueue {
        let reader = handle.vnet.as_ref().map(|vnet| vnet.reader(queue));
        RxQueue { handle, queue, reader, turn: 0 }
    }

    /// Receives the packets that have arrived, as far as there is room. Returns their number. Does not wait.
    #[inline]
    pub fn receive(&mut self, slots: &mut Slots<'_>) -> usize {
        let received = self.receive_burst(slots);
        self.turn = self.turn.wrapping_add(1);
        if received == 0 || self.turn.is_multiple_of(TURNS_PER_OFFER) {
            self.handle.backlog.offer();
        }
        received
    }

    #[inline]
    fn receive_burst(&mut self, slots: &mut Slots<'_>) -> usize {
        if let (Some(reader), Some(vnet)) = (&mut self.reader, &self.handle.vnet) {
            return reader.receive(vnet, &self.handle.pool, slots);
        }
        let Some(id) = self.handle.eth_id() else { return 0 };
        // SAFETY: the port is open and started, `&mut self` makes this the queue's only user, and the driver
        // gives away the packets that it returns.
        unsafe {
            slots.fill(VECTOR_MAX, |place, room| usize::from(sys::mmb_rx_burst(id, self.queue, place, room)))
        }
    }

    /// The descriptor that becomes readable when a packet arrives. Valid while the port or one of its queues
    /// lives. None: the port's kind has none.
    pub fn rx_fd(&self) -> Option<RawFd> {
        self.handle.fds.get(usize::from(self.queue)).copied()
    }

    /// Notes what a wait on the descriptor has shown: whether frames are there. `waits_again`: the caller
    /// waits again as soon as it finds no packets. Where looking for frames costs a system call,
    /// [`Self::receive`] then leaves it to the waits.
    pub fn note_wait(&mut self, is_readable: bool, waits_again: bool) {
        if let Some(reader) = &mut self.reader {
            reader.note_wait(is_readable, waits_again);
        }
    }

    /// Makes an AF_PACKET port receive again if the kernel no longer fills its ring. To be called when
    /// [`crate::Port::ring_drops`] has grown since the last call. Returns whether the port was restarted.
    pub fn restart_if_stalled(&mut self) -> bool {
        let (Some(reader), Some(vnet)) = (&mut self.reader, &self.handle.vnet) else { return false };
        reader.restart_if_stalled(vnet)
    }

    /// Clears a pending error of the descriptor and returns it. Otherwise it would report POLLERR for ever,
    /// as an AF_PACKET socket does after its interface went down.
    pub fn clear_errors(&mut self) -> Option<io::Error> {
        self.rx_fd().and_then(netdev::take_socket_error)
    }
}

impl TxQueue {
    pub(super) fn new(handle: Arc<DeviceHandle>, queue: u16) -> TxQueue {
        TxQueue {
            handle,
            queue,
            has_large: false,
            segments: Some(Burst::new()),
            to_segment: 0,
            merger: Merger::default(),
        }
    }

    /// Sends packets from the front of `burst`. Packets that the port has no room for stay in it, in order.
    #[inline]
    pub fn send(&mut self, burst: &mut Burst) -> TxCount {
        let mut count = TxCount::default();
        // SAFETY: the burst owns its packets; `send_from` leaves the unsent ones behind the sent ones.
        unsafe {
            burst.take_front(|packets, n| {
                count = self.send_from(packets, n);
                // `take_front` moves the rest up; the entries of freed packets are cut off below.
                count.sent
            });
            burst.forget_last(count.too_big + count.merged);
        }
        count
    }

    /// Sends all packets of `burst` and frees those that the port does not take. The burst is empty
    /// afterwards.
    #[inline]
    pub fn send_all(&mut self, burst: &mut Burst) -> TxCount {
        let mut count = TxCount::default();
        // SAFETY: the burst owns its packets; the unsent ones behind the sent ones are freed, so that none is
        // left.
        unsafe {
            burst.take_front(|packets, n| {
                count = self.send_from(packets, n);
                count.no_room = usize::from(n) - count.sent - count.too_big - count.merged;
                sys::mmb_pktmbuf_free_bulk(packets.add(count.sent), count.no_room as u32);
                usize::from(n)
            });
        }
        count
    }

    /// Longest frame that can be sent, Ethernet header included.
    #[inline]
    pub fn max_frame(&self) -> u32 {
        self.handle.max_frame.load(Ordering::Relaxed)
    }

    /// Sends packets from the front. Packets that the port has no room for stand behind the sent ones, in
    /// order. As many entries at the end as packets were too big or merged are no longer valid.
    ///
    /// # Safety
    /// `packets` points to `n` owned packets; those that are sent, too big or merged change owner.
    #[inline]
    pub(crate) unsafe fn send_from(&mut self, packets: *mut *mut sys::rte_mbuf, n: u16) -> TxCount {
        // SAFETY: the caller's promise. `admit` leaves the packets to send at the front; `push` takes from
        // the front.
        unsafe {
            // While the queue sends the segments of a large frame, they stay as they are.
            let can_merge = n > 1 && self.handle.merges() && self.segments.is_some();
            let left = if can_merge { self.merge(packets, n) } else { n };
            let good = self.admit(packets, left);
            let sent = usize::from(self.push(packets, good));
            let (too_big, merged) = (usize::from(left - good), usize::from(n - left));
            TxCount { sent, no_room: 0, too_big, merged }
        }
    }

    /// Merges segments into large frames, if the kernel takes such. Returns how many packets are left.
    ///
    /// # Safety
    /// `packets` points to `n` owned packets; those that are merged change owner.
    unsafe fn merge(&mut self, packets: *mut *mut sys::rte_mbuf, n: u16) -> u16 {
        if self.to_segment > 0 {
            // The next frame that is merged shows whether the kernel takes it again.
            self.to_segment -= 1;
            return n;
        }
        let longest = self.max_frame() as usize;
        // SAFETY: the caller's promise.
        let left = unsafe { merge(&mut self.merger, packets, n, longest) };
        if left < n {
            self.handle.merged.fetch_add((n - left).into(), Ordering::Relaxed);
        }
        left
    }

    /// Prepares packets for the driver: linearizes where necessary, frees those that do not fit and moves the
    /// others up. Returns how many are left.
    ///
    /// # Safety
    /// `packets` points to `n` owned packets.
    #[inline]
    unsafe fn admit(&mut self, packets: *mut *mut sys::rte_mbuf, n: u16) -> u16 {
        let (longest, segments) = (self.max_frame() as usize, self.handle.sends_segments);
        // Almost always all packets fit; then nothing is written.
        let fits = |packet: &Packet| {
            packet.pkt_len() <= longest && (segments || packet.nb_segs() == 1) && !packet.is_large()
        };
        // SAFETY: the caller's promise.
        let packet = |at: usize| unsafe { &*(*packets.add(at)).cast::<Packet>() };
        let fitting = (0..usize::from(n)).take_while(|&at| fits(packet(at))).count();
        let mut good = fitting;
        for at in fitting..usize::from(n) {
            // SAFETY: the caller's promise; a Packet is reached through its header's address.
            unsafe {
                let header = *packets.add(at);
                let packet = &mut *header.cast::<Packet>();
                let is_ready = packet.is_large() && !becomes_ordinary(packet);
                self.has_large |= is_ready;
                let fits = packet.longest_frame() <= longest && (!is_ready || packet.segment_size() > 0);
                if fits && (is_ready || segments || packet.linearize()) {
                    *packets.add(good) = header;
                    good += 1;
                } else {
                    sys::mmb_pktmbuf_free(header);
                }
            }
        }
        good as u16
    }

    /// Hands packets to the driver as long as it takes some. Returns how many it took.
    ///
    /// # Safety
    /// `packets` points to `n` owned packets that the driver can take. As many of the first ones as returned
    /// change owner.
    #[inline]
    unsafe fn push(&mut self, packets: *mut *mut sys::rte_mbuf, n: u16) -> u16 {
        if std::mem::take(&mut self.has_large) {
            // SAFETY: the caller's promise.
            return unsafe { self.push_with_large(packets, n) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.push_ordinary(packets, n) }
    }

    /// [`TxQueue::push`] for packets without large frames.
    ///
    /// # Safety
    /// As there.
    #[inline]
    unsafe fn push_ordinary(&mut self, packets: *mut *mut sys::rte_mbuf, n: u16) -> u16 {
        let Some(id) = self.handle.eth_id() else {
            // SAFETY: the caller's promise.
            return unsafe { self.push_one_by_one(packets, n) };
        };
        // SAFETY: the caller's promise.
        let given = unsafe { self.bytes_given(packets, n) };
        let mut sent = 0;
        while sent < n {
            // SAFETY: the port is open and started, and `&mut self` makes this the queue's only user.
            let more = unsafe { sys::mmb_tx_burst(id, self.queue, packets.add(usize::from(sent)), n - sent) };
            if more == 0 {
                break;
            }
            sent += more;
        }
        self.handle.backlog.note(given);
        sent
    }

    /// Bytes of packets for [`super::backlog::Backlog::note`], which the driver frees.
    ///
    /// # Safety
    /// As [`TxQueue::push`].
    #[inline]
    unsafe fn bytes_given(&self, packets: *mut *mut sys::rte_mbuf, n: u16) -> usize {
        // Packet sockets say how many bytes the kernel takes, AF_XDP sockets do not.
        if self.handle.vnet.is_none() || self.handle.backlog.waits() {
            return usize::MAX;
        }
        // SAFETY: the caller's promise.
        (0..usize::from(n)).map(|at| unsafe { (**packets.add(at)).pkt_len } as usize).sum()
    }

    /// [`TxQueue::push_ordinary`] for a port that has no driver of DPDK.
    ///
    /// # Safety
    /// As there.
    unsafe fn push_one_by_one(&mut self, packets: *mut *mut sys::rte_mbuf, n: u16) -> u16 {
        let Some(vnet) = &self.handle.vnet else { return 0 };
        // SAFETY: the caller's promise; a Packet is reached through its header's address.
        let packet = |at: u16| unsafe { &mut *(*packets.add(usize::from(at))).cast::<Packet>() };
        let has_room = |at: &u16| vnet.send_ordinary(self.queue, packet(*at)) != Sent::NoRoom;
        let sent = (0..n).take_while(has_room).count() as u16;
        // SAFETY: the packets are owned, and counted as sent.
        unsafe { sys::mmb_pktmbuf_free_bulk(packets, sent.into()) };
        sent
    }

    /// [`TxQueue::push`] for packets of which some are large frames.
    ///
    /// # Safety
    /// As there.
    #[cold]
    unsafe fn push_with_large(&mut self, packets: *mut *mut sys::rte_mbuf, n: u16) -> u16 {
        if self.handle.vnet.is_none() {
            // SAFETY: the caller's promise.
            return unsafe { self.push_segmented(packets, n) };
        }
        // SAFETY: the caller's promise; a Packet is reached through its header's address.
        let packet = |at: u16| unsafe { &mut *(*packets.add(usize::from(at))).cast::<Packet>() };
        let mut sent = 0;
        while sent < n {
            let ordinary = (sent..n).take_while(|at| !packet(*at).is_large()).count() as u16;
            if ordinary > 0 {
                // SAFETY: the caller's promise.
                let more = unsafe { self.push_ordinary(packets.add(usize::from(sent)), ordinary) };
                sent += more;
                if more < ordinary {
                    break;
                }
            } else if self.send_large(packet(sent)) {
                // SAFETY: the packet is owned, and counted as sent.
                unsafe { sys::mmb_pktmbuf_free(*packets.add(usize::from(sent))) };
                sent += 1;
            } else {
                break;
            }
        }
        sent
    }

    /// [`TxQueue::push_with_large`] for a port to which no large frame can be given. The driver gets the
    /// segments together with the ordinary packets around them, as it makes a system call each time.
    ///
    /// # Safety
    /// As there.
    unsafe fn push_segmented(&mut self, packets: *mut *mut sys::rte_mbuf, n: u16) -> u16 {
        let Some(mut burst) = self.segments.take() else { return 0 };
        let mut lost = 0;
        for at in 0..usize::from(n) {
            // SAFETY: the packets are owned, and all of them are counted as sent.
            let packet = unsafe { NonNull::new(*packets.add(at)).map(|header| Mbuf::from_raw(header)) };
            let Some(packet) = packet else { continue };
            if packet.is_large() {
                lost += self.segment_into(&mut burst, &packet);
            } else {
                lost += self.add(&mut burst, packet);
            }
        }
        self.end_segments(burst, lost);
        n
    }

    /// Sends a large frame, whole or segmented. False: there is no room now.
    fn send_large(&mut self, packet: &mut Packet) -> bool {
        if self.to_segment > 0 {
            self.to_segment -= 1;
        } else if let Some(vnet) = &self.handle.vnet {
            match vnet.send_large(self.queue, packet) {
                Sent::NoRoom => return false,
                Sent::Yes | Sent::Refused => return true,
                Sent::Dropped => self.to_segment = SEGMENTED_BEHIND_DROP,
            }
        }
        let Some(mut burst) = self.segments.take() else { return true };
        let lost = self.segment_into(&mut burst, packet);
        self.end_segments(burst, lost);
        true
    }

    /// Adds the segments of a large frame to a burst, which is sent whenever it is full. Returns the number
    /// of packets that were lost.
    fn segment_into(&mut self, burst: &mut Burst, packet: &Packet) -> u64 {
        let mut lost = 0;
        let is_whole = segment(packet, |segment| lost += self.add(burst, segment));
        lost + u64::from(!is_whole)
    }

    /// Adds a packet to a burst, which is sent first if it is full. Returns the number of packets that were
    /// lost.
    fn add(&mut self, burst: &mut Burst, packet: Mbuf) -> u64 {
        let lost = if burst.is_full() { self.send_segments(burst) } else { 0 };
        // There is room.
        drop(burst.push(packet));
        lost
    }

    /// Sends what is left in the burst of segments. `lost`: packets that were lost before.
    fn end_segments(&mut self, mut burst: Burst, lost: u64) {
        let lost = lost + self.send_segments(&mut burst);
        self.handle.segment_drops.fetch_add(lost, Ordering::Relaxed);
        self.segments = Some(burst);
    }

    /// Sends segments of large frames, and ordinary packets between them. Returns the number of those for
    /// which there is no room, which are freed.
    fn send_segments(&mut self, burst: &mut Burst) -> u64 {
        let mut tries = 0;
        while !burst.is_empty() && tries < SEGMENT_TRIES {
            tries = if self.send(burst).sent > 0 { 0 } else { tries + 1 };
        }
        let lost = burst.len() as u64;
        burst.clear();
        lost
    }
}

/// Makes a large frame an ordinary packet if its payload fits one segment, or if it has become another
/// packet, such as an ICMP error. Returns whether it is ordinary now.
#[cold]
fn becomes_ordinary(packet: &mut Packet) -> bool {
    match packet.large_frame() {
        Some(frame) => {
            packet.trim(packet.pkt_len().saturating_sub(frame.header_len() + frame.payload_len()));
            complete_single(packet, &frame)
        }
        None if packet.segment_size() > 0 => {
            packet.clear_large();
            true
        }
        None => false,
    }
}
