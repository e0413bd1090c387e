//! The memory of packet pools.
//!
//! # Theory of operation
//! A pool's memory is one contiguous block in a file that other processes can map ([`PoolFile`]). Without
//! huge pages, the file is a [`MemoryFile`] of the pool. The kernel does not give such files transparent huge
//! pages by default, so the pool asks for them (MADV_COLLAPSE, since Linux 6.1). With huge pages, the block
//! is EAL memory, which devices can reach, and the file is EAL's. If the kernel makes no such file, the
//! memory is anonymous.
//!
//! Addresses and the file's size are those of all buffers from the beginning. The kernel allocates memory
//! where it is first written: [`PoolMemory::populate`] does so for the buffers that it adds to the pool.

use std::ffi::c_char;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use mmb_dpdk_sys as sys;

use super::file::MemoryFile;
use crate::eal::Eal;

/// Alignment of transparent huge pages, and size of EAL's huge pages.
pub(super) const HUGE: usize = 2 << 20;
/// Advice of madvise(2): back the range by huge pages now. libc does not know it for all targets.
const MADV_COLLAPSE: i32 = 25;
/// How often one huge page is asked for.
const COLLAPSE_TRIES: usize = 3;

/// The memory of a pool, which lives for ever.
#[derive(Debug)]
pub(super) struct PoolMemory {
    start: NonNull<u8>,
    bytes: usize,
    /// Whether it is EAL's.
    is_eal: bool,
    /// The file with the memory, and the memory's offset in it.
    file: Option<(OwnedFd, u64)>,
}

/// Memory of a pool in a file that other processes can map.
///
/// The file holds the headers of the packets besides their bytes. A process that may write it must be as
/// trusted as this one.
#[derive(Clone, Copy, Debug)]
pub struct PoolFile<'a> {
    file: BorrowedFd<'a>,
    offset: u64,
    memory: &'a PoolMemory,
}

impl<'a> PoolFile<'a> {
    /// The descriptor to give to the other process.
    pub fn fd(&self) -> BorrowedFd<'a> {
        self.file
    }

    /// Where the pool's memory begins in the file: a multiple of the page size.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Size of the pool's memory in bytes.
    pub fn bytes(&self) -> usize {
        self.memory.bytes
    }

    /// Address of the pool's memory in this process.
    pub(super) fn start(&self) -> usize {
        self.memory.start.as_ptr().expose_provenance()
    }

    /// Offset in the file of bytes that belong to a packet of the pool, such as [`crate::Packet::data`] or
    /// one of [`crate::Packet::segments`]. None: they lie elsewhere.
    #[inline]
    pub fn offset_of(&self, bytes: &[u8]) -> Option<u64> {
        let at = bytes.as_ptr().addr().checked_sub(self.memory.start.as_ptr().addr())?;
        let is_inside = bytes.len() <= self.memory.bytes && at <= self.memory.bytes - bytes.len();
        is_inside.then(|| self.offset + at as u64)
    }
}

impl PoolMemory {
    /// The pool's file.
    pub(super) fn file(&self) -> Option<PoolFile<'_>> {
        let (file, offset) = self.file.as_ref()?;
        Some(PoolFile { file: file.as_fd(), offset: *offset, memory: self })
    }

    /// Reserves the memory of a pool of `n` objects, each of `object` bytes with its headers. None: there is
    /// none.
    pub(super) fn reserve(eal: Eal, n: u32, object: usize) -> Option<PoolMemory> {
        // One more buffer than needed covers the alignment of the first one.
        let bytes = ((n as usize + 1) * object).next_multiple_of(HUGE);
        if eal.huge_pages() { eal_memory(bytes) } else { mapping(bytes) }
    }

    /// Whether the kernel allocates the memory as it is populated. EAL has allocated its own.
    pub(super) fn is_lazy(&self) -> bool {
        !self.is_eal
    }

    /// Returns how many objects of `object` bytes fit into the huge pages that `n` of them take.
    pub(super) fn fill_pages(n: u32, object: usize) -> u32 {
        ((n as usize * object).next_multiple_of(HUGE) / object) as u32
    }

    /// Adds objects to the pool: those with these numbers, which follow those that it has. Returns how many
    /// were added. The error is a negative error number. Other threads may use the pool meanwhile.
    ///
    /// DPDK puts each object into the ring at once, so another thread may take it at once. So it is a packet
    /// before.
    ///
    /// # Safety
    /// `pool` is a valid pool of packets with objects of `object` bytes. All its objects are in this memory,
    /// which has room for these. One thread at a time calls this.
    pub(super) unsafe fn populate(
        &self,
        pool: *mut sys::rte_mempool,
        numbers: Range<u32>,
        object: usize,
    ) -> Result<u32, i32> {
        let bytes = numbers.start as usize * object..numbers.end as usize * object;
        // SAFETY: the range is within the memory, and nothing is in use behind the objects before.
        unsafe { self.allocate(bytes.clone()) };
        let place = |at: usize| self.start.as_ptr().wrapping_add(at);
        // SAFETY: the caller's promise. The objects are in this memory and in nobody's hands. DPDK writes the
        // same to their headers. The pool is not freed while it has objects, so its chunks need no function
        // that frees them.
        let added = unsafe {
            let front = (*pool).header_size as usize;
            for number in numbers {
                let packet = place(number as usize * object + front);
                let header = packet.sub(size_of::<sys::rte_mempool_objhdr>());
                (*header.cast::<sys::rte_mempool_objhdr>()).iova = packet.addr() as u64;
                sys::rte_pktmbuf_init(pool, std::ptr::null_mut(), packet.cast(), number);
            }
            let start = place(bytes.start);
            // Devices use the program's addresses.
            let (iova, len) = (start.addr() as u64, bytes.len());
            let (free, argument) = (None, std::ptr::null_mut());
            sys::rte_mempool_populate_iova(pool, start.cast::<c_char>(), iova, len, free, argument)
        };
        u32::try_from(added).ok().filter(|added| *added > 0).ok_or(added.min(-libc::ENOMEM))
    }

    /// Makes the kernel allocate the memory of these bytes, in huge pages if it has some.
    ///
    /// # Safety
    /// The bytes are in this memory. No byte behind their first one is in use.
    unsafe fn allocate(&self, bytes: Range<usize>) {
        // Pages that begin before belong to what is in use.
        let pages = bytes.start.next_multiple_of(HUGE)..bytes.end.next_multiple_of(HUGE).min(self.bytes);
        if self.file.is_some() && self.is_lazy() && !pages.is_empty() {
            // SAFETY: the caller's promise.
            unsafe { collapse(self.start.add(pages.start), pages.len()) }
        }
    }

    /// Gives back the memory of a pool that could not be made.
    ///
    /// # Safety
    /// Nothing refers to the memory.
    pub(super) unsafe fn release(self) {
        let start = self.start.as_ptr().cast();
        // SAFETY: the memory is EAL's from rte_malloc, or a mapping of that length.
        unsafe {
            if self.is_eal {
                sys::rte_free(start);
            } else {
                libc::munmap(start, self.bytes);
            }
        }
    }
}

/// `bytes` bytes of EAL's huge pages, with EAL's file of them.
fn eal_memory(bytes: usize) -> Option<PoolMemory> {
    // SAFETY: EAL runs.
    let start = unsafe { sys::rte_malloc(std::ptr::null(), bytes, HUGE as u32) };
    let start = NonNull::new(start.cast::<u8>())?;
    let mut offset = 0;
    // SAFETY: EAL runs. All segments of the block are in one list, and with --single-file-segments a list has
    // one file, in which the segments lie in the order of their addresses. EAL keeps the descriptor open.
    let file = unsafe {
        let address = start.as_ptr().cast();
        let segment = sys::rte_mem_virt2memseg(address, sys::rte_mem_virt2memseg_list(address));
        let known = !segment.is_null() && sys::rte_memseg_get_fd_offset(segment, &mut offset) == 0;
        let fd = if known { sys::rte_memseg_get_fd(segment) } else { -1 };
        (fd >= 0).then(|| BorrowedFd::borrow_raw(fd).try_clone_to_owned().ok()).flatten()
    };
    Some(PoolMemory { start, bytes, is_eal: true, file: file.map(|file| (file, offset as u64)) })
}

/// `bytes` bytes of memory in a file of their own, aligned to and advised for huge pages.
fn mapping(bytes: usize) -> Option<PoolMemory> {
    let file = MemoryFile::create(c"mmb-packets", bytes).ok();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let place = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: maps fresh memory at an address of the kernel's choice, unmaps what lies outside the aligned
    // part, and maps the file in place of the rest. The file has that size for ever.
    unsafe {
        let all = libc::mmap(std::ptr::null_mut(), bytes + HUGE, protection, place, -1, 0);
        if all == libc::MAP_FAILED {
            return None;
        }
        let skip = all.align_offset(HUGE);
        let memory = all.add(skip);
        if skip > 0 {
            libc::munmap(all, skip);
        }
        libc::munmap(memory.add(bytes), HUGE - skip);
        if let Some(file) = &file {
            let (fd, shared) = (file.as_fd().as_raw_fd(), libc::MAP_SHARED | libc::MAP_FIXED);
            if libc::mmap(memory, bytes, protection, shared, fd, 0) == libc::MAP_FAILED {
                return None;
            }
        }
        // Advice only: without it the memory is slower.
        libc::madvise(memory, bytes, libc::MADV_HUGEPAGE);
        let start = NonNull::new(memory.cast::<u8>())?;
        Some(PoolMemory { start, bytes, is_eal: false, file: file.map(|file| (file.into(), 0)) })
    }
}

/// Makes the kernel back fresh memory of a file by huge pages, which takes a used page in each.
///
/// # Safety
/// The memory is mapped to write and not in use. It is aligned to huge pages.
unsafe fn collapse(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's promise. Advice only: without it the memory is slower.
    unsafe {
        for at in (0..bytes).step_by(HUGE) {
            start.add(at).write_volatile(0);
        }
        let advise = |at, bytes| libc::madvise(start.add(at).as_ptr().cast(), bytes, MADV_COLLAPSE) == 0;
        if !advise(0, bytes) {
            // The kernel stops at the first huge page that it cannot make, often for a moment only.
            for at in (0..bytes).step_by(HUGE) {
                let _ = (0..COLLAPSE_TRIES).any(|_| advise(at, HUGE));
            }
        }
    }
}
