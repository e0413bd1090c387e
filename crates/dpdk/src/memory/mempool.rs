//! Pools of packet buffers.
//!
//! # Theory of operation
//! A pool is one contiguous block of memory ([`super::pool_memory`]), packed with buffers from its first byte
//! on. AF_XDP registers the block with the kernel and computes buffer addresses in it.
//!
//! A pool of ordinary pages may begin with some of its buffers ([`Mempool::growing`]). The others have no
//! memory yet and are not in the ring. [`Mempool::grow_to`] adds them while other threads use the pool. Their
//! headers are written before they enter the ring, and nothing else that packets need changes then. AF_XDP's
//! driver registers the memory of the buffers that the pool has, and must get no others. So a pool does not
//! grow while it is registered ([`Mempool::register`]). Since the ring is a queue, all buffers that a pool
//! has are used in turn and stay in memory. A pool does not shrink.
//!
//! The ring is DPDK's default one for several producers and consumers. A thread that puts buffers into it
//! waits for another one that was interrupted while it did so, some nanoseconds for each buffer.
//!
//! Pools are never freed. A packet may outlive every handle of its pool, and the thread that returns the last
//! packet may still run the pool's code when another thread sees the pool complete. So a pool without handles
//! is *retired*, and reused for the next pool of the same parameters once all buffers are back. A pool whose
//! file was given away is not reused: another process may read it.

use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mmb_dpdk_sys as sys;

use super::burst::{Slots, VECTOR_MAX};
use super::mbuf::Mbuf;
use super::pool_memory::{PoolFile, PoolMemory};
use crate::eal::{Eal, meminfo};
use crate::error::{Error, PoolError, last_errno, strerror};
use crate::log;

/// Bytes kept free in front of every frame.
pub const HEADROOM: usize = sys::RTE_PKTMBUF_HEADROOM as usize;
/// Most bytes of frame in one buffer.
pub const MAX_DATA_ROOM: usize = u16::MAX as usize - HEADROOM;

/// Most segments of [`Mempool::alloc_chain`]: 64 KiB in the smallest buffers of a port.
pub(crate) const CHAIN: usize = 64;

/// The parameters of a pool; pools with equal parameters are interchangeable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PoolParameters {
    n: u32,
    data_room: usize,
    cache: u32,
}

#[derive(Debug)]
struct DpdkPool {
    pool: NonNull<sys::rte_mempool>,
    parameters: PoolParameters,
    /// The pool's memory, if it is one packed block.
    memory: Option<PoolMemory>,
    /// Number of buffers that have memory. Locked while it grows.
    populated: Mutex<u32>,
    /// How many drivers have registered their memory. Changed while `populated` is locked.
    registrations: AtomicU32,
    /// Whether another process may have the pool's file.
    is_shared: AtomicBool,
}

// SAFETY: DPDK's pools may be used from all threads at once, and they are never freed.
unsafe impl Send for DpdkPool {}
// SAFETY: as above.
unsafe impl Sync for DpdkPool {}

/// Pools whose handles are all gone.
static RETIRED: Mutex<Vec<DpdkPool>> = Mutex::new(Vec::new());

/// A pool of buffers of one size. A clone is another handle of the pool.
#[derive(Clone, Debug)]
pub struct Mempool(Arc<SharedPool>);

#[derive(Debug)]
struct SharedPool(Option<DpdkPool>);

impl Mempool {
    /// Makes a pool of `n` buffers for `data_room` bytes of frame each, besides [`HEADROOM`], with per-thread
    /// caches of `cache` buffers (at most 512 and two thirds of `n`).
    ///
    /// # Errors
    /// [`Error::NotStarted`]; [`Error::Pool`]: no memory, or an invalid size.
    pub fn create(name: &str, n: usize, data_room: usize, cache: usize) -> Result<Mempool, Error> {
        Mempool::growing(name, (n, n), data_room, cache)
    }

    /// Makes a pool as [`Mempool::create`] does. Of its `n` buffers, `first` or a few more have memory; the
    /// others get it from [`Mempool::grow_to`]. All have memory at once if it comes from huge pages.
    ///
    /// # Errors
    /// As [`Mempool::create`].
    pub fn growing(
        name: &str,
        (n, first): (usize, usize),
        data_room: usize,
        cache: usize,
    ) -> Result<Mempool, Error> {
        let eal = Eal::running()?;
        let failed = |error| Error::Pool { name: name.to_owned(), error };
        if data_room > MAX_DATA_ROOM {
            return Err(failed(PoolError::BufferTooLarge { bytes: data_room, limit: MAX_DATA_ROOM }));
        }
        let count = u32::try_from(n).ok().filter(|n| (1..1 << 28).contains(n));
        let Some(n) = count else { return Err(failed(PoolError::BufferCount { count: n })) };
        let cache = (cache.min(sys::RTE_MEMPOOL_CACHE_MAX_SIZE as usize) as u32).min(n * 2 / 3);
        let (parameters, first) = (PoolParameters { n, data_room, cache }, first.max(1));
        let inner = match take_retired(parameters) {
            Some(inner) => inner,
            None => {
                let (made, message) = log::capture(|| make(eal, parameters, first));
                made.map_err(|error| failed(message.map_or(error, |reason| PoolError::Dpdk { reason })))?
            }
        };
        let pool = Mempool(Arc::new(SharedPool(Some(inner))));
        pool.grow_to(first).map_err(failed)?;
        Ok(pool)
    }

    /// Gives memory to more buffers, until `buffers` or a few more have some, or all. Other threads may use
    /// the pool meanwhile. The kernel takes 0.2 to 5 ms for each huge page.
    ///
    /// # Errors
    /// There is no memory, or the pool is registered. It works on with the buffers that it has.
    pub fn grow_to(&self, buffers: usize) -> Result<(), PoolError> {
        self.inner().grow_to(buffers)
    }

    /// Keeps the pool from growing for as long as the result lives: a driver registers its memory.
    pub(crate) fn register(&self) -> Registration {
        let inner = self.inner();
        let _populated = inner.populated();
        inner.registrations.fetch_add(1, Ordering::Relaxed);
        Registration(self.clone())
    }

    /// Whether the pool cannot grow, since a driver has registered its memory.
    pub fn is_registered(&self) -> bool {
        self.inner().registrations.load(Ordering::Relaxed) != 0
    }

    fn inner(&self) -> &DpdkPool {
        match &self.0.0 {
            Some(inner) => inner,
            // Only SharedPool::drop takes it.
            None => unreachable!("a pool handle in use has its pool"),
        }
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut sys::rte_mempool {
        self.inner().pool.as_ptr()
    }

    /// Whether the buffers fill the pool's memory without gaps from its first byte on.
    pub(crate) fn is_packed(&self) -> bool {
        self.inner().memory.is_some()
    }

    /// The file with the pool's memory, for a process that maps it. None: the kernel makes no such files, or
    /// devices use physical addresses.
    pub fn file(&self) -> Option<PoolFile<'_>> {
        let inner = self.inner();
        let file = inner.memory.as_ref()?.file()?;
        inner.is_shared.store(true, Ordering::Relaxed);
        Some(file)
    }

    /// Takes a buffer: an empty packet. None when the pool is exhausted.
    #[inline]
    pub fn alloc(&self) -> Option<Mbuf> {
        // SAFETY: the pool is never freed; it gives away the packet it returns.
        NonNull::new(unsafe { sys::mmb_pktmbuf_alloc(self.raw()) })
            .map(|packet| unsafe { Mbuf::from_raw(packet) })
    }

    /// Takes `n` empty packets, or none if the pool has fewer or `slots` has no room. Returns their number.
    #[inline]
    pub fn alloc_bulk(&self, n: usize, slots: &mut Slots<'_>) -> usize {
        if n > slots.room().min(VECTOR_MAX) {
            return 0;
        }
        // SAFETY: the pool is never freed; on success it wrote `room` = n owned packets, otherwise none.
        unsafe {
            slots.fill(n, |place, room| {
                let status = sys::mmb_pktmbuf_alloc_bulk(self.raw(), place, u32::from(room));
                if status == 0 { usize::from(room) } else { 0 }
            })
        }
    }

    /// Takes a packet with these bytes, in as many segments as they need. None: the pool is exhausted, or the
    /// frame needs more than [`CHAIN`] segments.
    pub fn alloc_from(&self, bytes: &[u8]) -> Option<Mbuf> {
        if bytes.len() <= self.data_room() {
            return self.segment(bytes);
        }
        let mut packet = self.alloc_chain(bytes.len())?;
        packet.overwrite(bytes);
        Some(packet)
    }

    /// Takes a packet of `n` bytes of any content, in as many segments as they need. None: the pool is
    /// exhausted, or the frame needs more than [`CHAIN`] segments.
    pub(crate) fn alloc_chain(&self, n: usize) -> Option<Mbuf> {
        let room = self.data_room().max(1);
        let count = n.div_ceil(room).max(1);
        let mut headers = [std::ptr::null_mut::<sys::rte_mbuf>(); CHAIN];
        if count > CHAIN {
            return None;
        }
        // SAFETY: the pool is never freed; on success it wrote `count` owned packets, otherwise none.
        if unsafe { sys::mmb_pktmbuf_alloc_bulk(self.raw(), headers.as_mut_ptr(), count as u32) } != 0 {
            return None;
        }
        // SAFETY: the headers are valid, owned and empty.
        unsafe { link_buffers(&headers[..count], n, room) }
    }

    fn segment(&self, bytes: &[u8]) -> Option<Mbuf> {
        let mut packet = self.alloc()?;
        packet.append(bytes.len())?.copy_from_slice(bytes);
        Some(packet)
    }

    /// Bytes of frame that fit one buffer.
    pub fn data_room(&self) -> usize {
        self.inner().parameters.data_room
    }

    /// Number of buffers, with those that have no memory yet.
    pub fn size(&self) -> usize {
        self.inner().parameters.n as usize
    }

    /// Number of buffers that have memory. Waits while the pool grows.
    pub fn populated(&self) -> usize {
        *self.inner().populated() as usize
    }

    /// Bytes of memory of one buffer, including its headers.
    pub fn buffer_bytes(&self) -> usize {
        // SAFETY: the pool is never freed; these fields do not change.
        unsafe { object_bytes(self.raw()) }
    }

    /// Buffers that are allocated and not returned. Exact only while no thread uses the pool. Buffers in a
    /// thread's cache count as returned.
    pub fn in_use(&self) -> usize {
        self.inner().in_use()
    }

    /// Buffers that can be taken: those without memory cannot.
    pub fn available(&self) -> usize {
        self.inner().available()
    }

    /// Buffers that every thread can take: those in the ring, without those in the caches of threads. This
    /// reads two words.
    #[inline]
    pub fn in_ring(&self) -> usize {
        // SAFETY: the pool is never freed.
        unsafe { sys::mmb_mempool_in_ring(self.raw()) as usize }
    }
}

/// A driver has registered the memory of a pool.
#[derive(Debug)]
pub(crate) struct Registration(Mempool);

impl Drop for Registration {
    fn drop(&mut self) {
        let inner = self.0.inner();
        let _populated = inner.populated();
        inner.registrations.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DpdkPool {
    fn populated(&self) -> MutexGuard<'_, u32> {
        self.populated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn available(&self) -> usize {
        self.available_of(*self.populated()) as usize
    }

    fn in_use(&self) -> usize {
        let populated = *self.populated();
        (populated - self.available_of(populated)) as usize
    }

    /// Buffers that can be taken, of those that have memory.
    fn available_of(&self, populated: u32) -> u32 {
        // SAFETY: the pool is never freed. Buffers that move between caches meanwhile may be counted twice.
        unsafe { sys::mmb_mempool_available(self.pool.as_ptr()) }.min(populated)
    }

    fn grow_to(&self, buffers: usize) -> Result<(), PoolError> {
        let mut populated = self.populated();
        let Some(memory) = &self.memory else { return Ok(()) };
        let n = self.parameters.n;
        let wanted = u32::try_from(buffers).unwrap_or(n).min(n);
        if wanted <= *populated {
            return Ok(());
        }
        if self.registrations.load(Ordering::Relaxed) != 0 {
            return Err(PoolError::Registered);
        }
        // SAFETY: the pool is never freed.
        let object = unsafe { object_bytes(self.pool.as_ptr()) };
        let end = if memory.is_lazy() { PoolMemory::fill_pages(wanted, object).min(n) } else { n };
        if memory.is_lazy() {
            check_available(end - *populated, object)?;
        }
        // SAFETY: the pool is valid, the memory has room for all its objects, and the lock is held.
        let added = unsafe { memory.populate(self.pool.as_ptr(), *populated..end, object) };
        *populated += added.map_err(|status| PoolError::Dpdk { reason: strerror(status) })?;
        Ok(())
    }
}

impl Drop for SharedPool {
    fn drop(&mut self) {
        if let Some(inner) = self.0.take()
            && !inner.is_shared.load(Ordering::Relaxed)
        {
            RETIRED.lock().unwrap_or_else(PoisonError::into_inner).push(inner);
        }
    }
}

/// Makes one packet of `n` bytes of any content of empty packets with room for `room` bytes each. None: there
/// are no packets.
///
/// # Safety
/// The packets are valid, have one segment each, and change owner. They have room for `n` bytes, and no more
/// of them than it takes.
#[inline]
pub(super) unsafe fn link_buffers(headers: &[*mut sys::rte_mbuf], n: usize, room: usize) -> Option<Mbuf> {
    let mut left = n;
    for (at, &header) in headers.iter().enumerate() {
        let part = left.min(room);
        left -= part;
        // SAFETY: the caller's promise. Each header becomes a segment of the first one, and its buffer has
        // room for its part.
        unsafe {
            (*header).data_len = part as u16;
            (*header).pkt_len = part as u32;
            (*header).next = headers.get(at + 1).copied().unwrap_or(std::ptr::null_mut());
        }
    }
    // SAFETY: the first header is the head of the chain, which has `n` bytes.
    headers.first().and_then(|&head| NonNull::new(head)).map(|head| unsafe {
        (*head.as_ptr()).nb_segs = headers.len() as u16;
        (*head.as_ptr()).pkt_len = n as u32;
        Mbuf::from_raw(head)
    })
}

/// A retired pool with these parameters whose buffers have all been returned.
fn take_retired(parameters: PoolParameters) -> Option<DpdkPool> {
    let mut retired = RETIRED.lock().unwrap_or_else(PoisonError::into_inner);
    let at = retired.iter().position(|inner| inner.parameters == parameters && inner.in_use() == 0)?;
    Some(retired.swap_remove(at))
}

/// # Safety
/// `pool` is a valid pool.
unsafe fn object_bytes(pool: *const sys::rte_mempool) -> usize {
    // SAFETY: the caller's promise.
    unsafe { ((*pool).header_size + (*pool).elt_size + (*pool).trailer_size) as usize }
}

/// Makes a pool whose first `first` buffers have memory.
fn make(eal: Eal, parameters: PoolParameters, first: usize) -> Result<DpdkPool, PoolError> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    // DPDK requires unique names of at most 25 bytes; the caller's name is for messages.
    let name =
        CString::new(format!("mmb-pool-{}", NUMBER.fetch_add(1, Ordering::Relaxed))).unwrap_or_default();
    // Buffers may cross pages as long as devices use the program's addresses.
    let flags = if eal.iova_va() { sys::RTE_MEMPOOL_F_NO_IOVA_CONTIG } else { 0 };
    let room = (parameters.data_room + HEADROOM) as u16;
    let element = (size_of::<sys::rte_mbuf>() + usize::from(room)).next_multiple_of(8) as u32;
    if !eal.huge_pages() {
        check_available(parameters.n, element as usize)?;
    }
    // SAFETY: EAL runs. The pool is set up in the order that DPDK prescribes: empty, handler, private data,
    // memory, objects. On failure it is freed before it is used.
    unsafe {
        let private = size_of::<sys::rte_pktmbuf_pool_private>() as u32;
        let pool = sys::rte_mempool_create_empty(
            name.as_ptr(),
            parameters.n,
            element,
            parameters.cache,
            private,
            -1,
            flags,
        );
        let pool = NonNull::new(pool).ok_or_else(|| PoolError::Dpdk { reason: strerror(last_errno()) })?;
        let mut sizes = sys::rte_pktmbuf_pool_private {
            mbuf_data_room_size: room,
            mbuf_priv_size: 0,
            ..Default::default()
        };
        let status =
            sys::rte_mempool_set_ops_byname(pool.as_ptr(), c"ring_mp_mc".as_ptr(), std::ptr::null_mut());
        if status == 0 {
            sys::rte_pktmbuf_pool_init(pool.as_ptr(), (&raw mut sizes).cast());
        }
        let memory = match status {
            0 => provide_memory(eal, pool.as_ptr(), parameters.n),
            status => Err(status),
        };
        let memory = match memory {
            Ok(memory) => memory,
            Err(status) => {
                sys::rte_mempool_free(pool.as_ptr());
                return Err(out_of_memory(eal, status));
            }
        };
        let populated = Mutex::new(if memory.is_some() { 0 } else { parameters.n });
        let (registrations, is_shared) = (AtomicU32::new(0), AtomicBool::new(false));
        let made = DpdkPool { pool, parameters, memory, populated, registrations, is_shared };
        if let Err(error) = made.grow_to(first) {
            sys::rte_mempool_free(pool.as_ptr());
            if let Some(memory) = made.memory {
                memory.release();
            }
            return Err(error);
        }
        Ok(made)
    }
}

/// Reserves the memory of a pool of `n` objects: one packed block if devices use the program's addresses.
/// Otherwise populates the pool. The error is a negative error number.
///
/// # Safety
/// `pool` is a valid pool without memory. It is not used after an error.
unsafe fn provide_memory(eal: Eal, pool: *mut sys::rte_mempool, n: u32) -> Result<Option<PoolMemory>, i32> {
    // SAFETY: the caller's promise.
    unsafe {
        if eal.iova_va() {
            return PoolMemory::reserve(eal, n, object_bytes(pool)).map(Some).ok_or(-libc::ENOMEM);
        }
        match sys::rte_mempool_populate_default(pool) {
            status if status < 0 => Err(status),
            _ => {
                sys::rte_mempool_obj_iter(pool, Some(sys::rte_pktmbuf_init), std::ptr::null_mut());
                Ok(None)
            }
        }
    }
}

/// Checks that the machine has memory for so many buffers: the kernel overcommits memory and kills a process
/// when it runs out.
fn check_available(buffers: u32, bytes: usize) -> Result<(), PoolError> {
    let wanted = (u64::from(buffers) * bytes as u64) >> 20;
    match meminfo("MemAvailable").map(|kib| kib >> 10).filter(|available| wanted >= *available) {
        Some(available) => Err(PoolError::TooLittleMemory { wanted, available }),
        None => Ok(()),
    }
}

fn out_of_memory(eal: Eal, status: i32) -> PoolError {
    let reason = strerror(status);
    if eal.huge_pages() { PoolError::HugePages { reason } } else { PoolError::Dpdk { reason } }
}
