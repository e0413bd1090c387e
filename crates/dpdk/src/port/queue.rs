//! Receive and send queues.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mmb_dpdk_sys as sys;

use super::handle::DeviceHandle;
use super::netdev;
use super::spec::TxCount;
use crate::memory::{Burst, Packet, Slots, VECTOR_MAX};

/// A receive queue. It belongs to one thread.
#[derive(Debug)]
pub struct RxQueue {
    handle: Arc<DeviceHandle>,
    queue: u16,
}

/// A send queue. It belongs to one thread.
#[derive(Debug)]
pub struct TxQueue {
    handle: Arc<DeviceHandle>,
    queue: u16,
}

impl RxQueue {
    pub(super) fn new(handle: Arc<DeviceHandle>, queue: u16) -> RxQueue {
        RxQueue { handle, queue }
    }

    /// Receives the packets that have arrived, as far as there is room. Returns their number. Does not wait.
    #[inline]
    pub fn receive(&mut self, slots: &mut Slots<'_>) -> usize {
        // SAFETY: the port is open and started, `&mut self` makes this the queue's only user, and the driver
        // gives away the packets that it returns.
        unsafe {
            slots.fill(VECTOR_MAX, |place, room| {
                usize::from(sys::mmb_rx_burst(self.handle.id, self.queue, place, room))
            })
        }
    }

    /// See [`crate::Port::rx_fds`].
    pub fn rx_fds(&self) -> &[RawFd] {
        &self.handle.fds
    }

    /// Clears pending errors of the descriptors and returns one of them. Otherwise they would report POLLERR
    /// for ever, as an AF_PACKET socket does after its interface went down.
    pub fn clear_errors(&mut self) -> Option<io::Error> {
        self.handle.fds.iter().fold(None, |error, fd| netdev::take_socket_error(*fd).or(error))
    }
}

impl TxQueue {
    pub(super) fn new(handle: Arc<DeviceHandle>, queue: u16) -> TxQueue {
        TxQueue { handle, queue }
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
            burst.forget_last(count.too_big);
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
        self.handle.max_frame.load(Ordering::Relaxed)
    }

    /// Sends packets from the front. Packets that the port has no room for stand behind the sent ones, in
    /// order. As many entries at the end as packets were too big are no longer valid.
    ///
    /// # Safety
    /// `packets` points to `n` owned packets; those that are sent or too big change owner.
    #[inline]
    pub(crate) unsafe fn send_from(&mut self, packets: *mut *mut sys::rte_mbuf, n: u16) -> TxCount {
        // SAFETY: the caller's promise. `admit` leaves the packets to send at the front; `push` takes from
        // the front.
        unsafe {
            let good = self.admit(packets, n);
            let sent = usize::from(self.push(packets, good));
            TxCount { sent, no_room: 0, too_big: usize::from(n - good) }
        }
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
        let fits = |packet: &Packet| packet.pkt_len() <= longest && (segments || packet.nb_segs() == 1);
        // SAFETY: the caller's promise.
        let packet = |at: usize| unsafe { &*(*packets.add(at)).cast::<Packet>() };
        let fitting = (0..usize::from(n)).take_while(|&at| fits(packet(at))).count();
        let mut good = fitting;
        for at in fitting..usize::from(n) {
            // SAFETY: the caller's promise; a Packet is reached through its header's address.
            unsafe {
                let header = *packets.add(at);
                let packet = &mut *header.cast::<Packet>();
                if packet.pkt_len() <= longest && (segments || packet.linearize()) {
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
        let mut sent = 0;
        while sent < n {
            // SAFETY: the port is open and started, and `&mut self` makes this the queue's only user.
            let more = unsafe {
                sys::mmb_tx_burst(self.handle.id, self.queue, packets.add(usize::from(sent)), n - sent)
            };
            if more == 0 {
                break;
            }
            sent += more;
        }
        sent
    }
}
