//! Rings that pass packets from several threads to one.

use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use mmb_dpdk_sys as sys;

use super::burst::{Burst, Slots, VECTOR_MAX};
use super::mbuf::Mbuf;
use crate::eal::Eal;
use crate::error::{Error, RingError, last_errno, strerror};
use crate::log;

/// Several producers, none of which waits for one that was interrupted in an operation; one consumer.
const FLAGS: u32 = sys::RING_F_MP_RTS_ENQ | sys::RING_F_SC_DEQ;

/// The sending side of a ring. Each sending thread has a clone.
#[derive(Clone, Debug)]
pub struct RingSender(Arc<DpdkRing>);

/// The receiving side of a ring. It belongs to one thread.
#[derive(Debug)]
pub struct RingReceiver(Arc<DpdkRing>);

#[derive(Debug)]
struct DpdkRing(NonNull<sys::rte_ring>);

// SAFETY: the ring supports several producers. RingReceiver (not Clone, receives by &mut) is the only
// consumer. Drop runs when both sides are gone.
unsafe impl Send for DpdkRing {}
// SAFETY: as above.
unsafe impl Sync for DpdkRing {}

/// Makes a ring for at least `capacity` packets (rounded up to a power of two less one).
///
/// # Errors
/// [`Error::NotStarted`]; [`Error::Ring`]: no memory, or a capacity over 2^24.
pub fn ring(name: &str, capacity: usize) -> Result<(RingSender, RingReceiver), Error> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    Eal::running()?;
    let failed = |error| Error::Ring { name: name.to_owned(), error };
    let size = (capacity.max(1) + 1).next_power_of_two();
    let size = u32::try_from(size).ok().filter(|size| *size <= 1 << 24);
    let Some(size) = size else { return Err(failed(RingError::TooLarge)) };
    // DPDK requires unique names of at most 29 bytes; the caller's name is for messages.
    let internal =
        CString::new(format!("mmb-ring-{}", NUMBER.fetch_add(1, Ordering::Relaxed))).unwrap_or_default();
    // SAFETY: EAL runs; the name is zero-terminated.
    let create = || unsafe { sys::rte_ring_create(internal.as_ptr(), size, -1, FLAGS) };
    let (ring, message) = log::capture(create);
    let ring = NonNull::new(ring).ok_or_else(|| {
        failed(RingError::Dpdk { reason: message.unwrap_or_else(|| strerror(last_errno())) })
    })?;
    let inner = Arc::new(DpdkRing(ring));
    Ok((RingSender(Arc::clone(&inner)), RingReceiver(inner)))
}

impl RingSender {
    /// Sends one packet.
    ///
    /// # Errors
    /// The packet, when the ring is full.
    pub fn send(&self, packet: Mbuf) -> Result<(), Mbuf> {
        let raw = packet.into_raw();
        // SAFETY: the ring lives; it owns the packet if it took it.
        if unsafe { sys::mmb_ring_enqueue_burst(self.0.0.as_ptr(), (&raw const raw).cast(), 1) } == 1 {
            return Ok(());
        }
        // SAFETY: the ring did not take it.
        NonNull::new(raw).map_or(Ok(()), |raw| Err(unsafe { Mbuf::from_raw(raw) }))
    }

    /// Sends as many packets from the front of `burst` as there is room for. Returns their number; the others
    /// stay.
    pub fn send_burst(&self, burst: &mut Burst) -> usize {
        // SAFETY: the ring lives; it owns as many of the first packets as it returns.
        unsafe {
            burst.take_front(|packets, n| {
                sys::mmb_ring_enqueue_burst(self.0.0.as_ptr(), packets.cast(), u32::from(n)) as usize
            })
        }
    }

    /// Number of packets in the ring.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the ring is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl RingReceiver {
    /// Receives waiting packets, as far as there is room. Returns their number.
    #[inline]
    pub fn receive(&mut self, slots: &mut Slots<'_>) -> usize {
        // SAFETY: the ring lives and `&mut self` makes this the only consumer; the packets it gives are
        // owned.
        unsafe {
            slots.fill(VECTOR_MAX, |place, room| {
                sys::mmb_ring_dequeue_burst(self.0.0.as_ptr(), place.cast(), u32::from(room)) as usize
            })
        }
    }

    /// Number of packets in the ring.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the ring is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl DpdkRing {
    fn len(&self) -> usize {
        // SAFETY: the ring lives.
        unsafe { sys::mmb_ring_count(self.0.as_ptr()) as usize }
    }
}

impl Drop for DpdkRing {
    fn drop(&mut self) {
        let mut burst = Burst::new();
        // SAFETY: both sides are gone, so this thread is the only consumer. The burst owns the packets. The
        // ring is not used afterwards.
        unsafe {
            let take = |slots: &mut Slots<'_>| {
                slots.fill(VECTOR_MAX, |place, room| {
                    sys::mmb_ring_dequeue_burst(self.0.as_ptr(), place.cast(), u32::from(room)) as usize
                })
            };
            while burst.fill(take) > 0 {
                burst.clear();
            }
            sys::rte_ring_free(self.0.as_ptr());
        }
    }
}
