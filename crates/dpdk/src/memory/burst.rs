//! Arrays of packets, on which receiving, sending, rings and pools operate.

use std::marker::PhantomData;
use std::ptr::NonNull;

use mmb_dpdk_sys as sys;

use super::mbuf::Mbuf;
use super::packet::Packet;

/// Most packets of a graph's vector and of a [`Burst`].
pub const VECTOR_MAX: usize = sys::RTE_GRAPH_BURST_SIZE as usize;

/// Free entries of an array of packets, to which a producer pushes packets in order.
#[derive(Debug)]
pub struct Slots<'a> {
    start: *mut *mut sys::rte_mbuf,
    room: usize,
    len: usize,
    array: PhantomData<&'a mut Mbuf>,
}

impl Slots<'_> {
    /// `room` free entries from `start` on.
    ///
    /// # Safety
    /// `start` points to `room` writable pointers. The caller takes ownership of the first [`Slots::len`]
    /// packets afterwards.
    pub(crate) unsafe fn new<'a>(start: *mut *mut sys::rte_mbuf, room: usize) -> Slots<'a> {
        Slots { start, room, len: 0, array: PhantomData }
    }

    /// Number of packets pushed so far.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no packet was pushed yet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of free entries left.
    #[inline]
    pub fn room(&self) -> usize {
        self.room - self.len
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// The packet, when there is no room.
    #[inline]
    pub fn push(&mut self, packet: Mbuf) -> Result<(), Mbuf> {
        if self.room() == 0 {
            return Err(packet);
        }
        // SAFETY: inside the array.
        unsafe { *self.start.add(self.len) = packet.into_raw() };
        self.len += 1;
        Ok(())
    }

    /// Calls `fill` with the first free entry and the room (at most `max`); it returns how many packets it
    /// wrote.
    ///
    /// # Safety
    /// `fill` writes as many owned, valid packets as it returns.
    #[inline]
    pub(crate) unsafe fn fill(
        &mut self,
        max: usize,
        fill: impl FnOnce(*mut *mut sys::rte_mbuf, u16) -> usize,
    ) -> usize {
        let room = self.room().min(max).min(usize::from(u16::MAX));
        // SAFETY: inside the array.
        let n = fill(unsafe { self.start.add(self.len) }, room as u16).min(room);
        self.len += n;
        n
    }

    /// A packet that was pushed.
    #[inline]
    pub fn get_mut(&mut self, at: usize) -> Option<&mut Packet> {
        // SAFETY: the first `len` entries are owned packets; a Packet is reached through its header's
        // address.
        (at < self.len).then(|| unsafe { &mut *(*self.start.add(at)).cast::<Packet>() })
    }
}

/// An owned array of up to [`VECTOR_MAX`] packets. Dropping it frees them.
pub struct Burst {
    packets: Box<[*mut sys::rte_mbuf; VECTOR_MAX]>,
    len: usize,
}

// SAFETY: a burst owns its packets, which may move between threads.
unsafe impl Send for Burst {}
// SAFETY: a shared burst only lets its packets be read.
unsafe impl Sync for Burst {}

impl Default for Burst {
    fn default() -> Self {
        Self { packets: Box::new([std::ptr::null_mut(); VECTOR_MAX]), len: 0 }
    }
}

impl Burst {
    /// An empty burst.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of packets.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether no packet more fits.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len == VECTOR_MAX
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// The packet, when the burst is full.
    #[inline]
    pub fn push(&mut self, packet: Mbuf) -> Result<(), Mbuf> {
        self.fill(|slots| slots.push(packet))
    }

    /// Removes the last packet.
    pub fn pop(&mut self) -> Option<Mbuf> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: the entry holds a packet that the burst owned until now.
        NonNull::new(self.packets[self.len]).map(|packet| unsafe { Mbuf::from_raw(packet) })
    }

    /// Calls `f`, which may push packets to the free entries.
    #[inline]
    pub fn fill<T>(&mut self, f: impl FnOnce(&mut Slots<'_>) -> T) -> T {
        // SAFETY: the rest of the array; what `f` pushed is owned by the burst through `len` afterwards. If
        // `f` panics, what it pushed leaks.
        let mut slots = unsafe { Slots::new(self.packets.as_mut_ptr().add(self.len), VECTOR_MAX - self.len) };
        let result = f(&mut slots);
        self.len += slots.len;
        result
    }

    /// The packets.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Packet> {
        // SAFETY: the first `len` entries are owned packets; a Packet is reached through its header's
        // address.
        self.packets[..self.len].iter().map(|packet| unsafe { &*packet.cast::<Packet>() })
    }

    /// The packets, mutable. One by one: in a slice of references, a packet could be replaced by one with
    /// another owner.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut Packet> {
        // SAFETY: as in `iter`; the entries are different packets, and the burst is borrowed exclusively.
        self.packets[..self.len].iter_mut().map(|packet| unsafe { &mut *packet.cast::<Packet>() })
    }

    /// Gives every packet to `f`, in order. The burst is empty afterwards.
    pub fn drain(&mut self, mut f: impl FnMut(Mbuf)) {
        let n = std::mem::take(&mut self.len);
        for packet in &self.packets[..n] {
            if let Some(packet) = NonNull::new(*packet) {
                // SAFETY: owned by the burst until `len` became 0. If `f` panics, the rest leaks.
                f(unsafe { Mbuf::from_raw(packet) });
            }
        }
    }

    /// Frees all packets.
    pub fn clear(&mut self) {
        let n = std::mem::take(&mut self.len);
        // SAFETY: the first `n` entries are owned packets; the burst does not own them any more.
        unsafe { sys::mmb_pktmbuf_free_bulk(self.packets.as_mut_ptr(), n as u32) };
    }

    /// Calls `take` with the first packet and their number; it returns how many it took from the front. The
    /// others move up.
    ///
    /// # Safety
    /// `take` becomes the owner of exactly as many of the first packets as it returns.
    #[inline]
    pub(crate) unsafe fn take_front(
        &mut self,
        take: impl FnOnce(*mut *mut sys::rte_mbuf, u16) -> usize,
    ) -> usize {
        let n = take(self.packets.as_mut_ptr(), self.len as u16).min(self.len);
        self.packets.copy_within(n..self.len, 0);
        self.len -= n;
        n
    }
}

impl Burst {
    /// Removes the last `n` entries without freeing their packets.
    ///
    /// # Safety
    /// Those packets were freed or have another owner.
    pub(crate) unsafe fn forget_last(&mut self, n: usize) {
        self.len = self.len.saturating_sub(n);
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        self.clear();
    }
}

impl std::fmt::Debug for Burst {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Burst({} packets)", self.len)
    }
}
