//! The memory of packet pools.
//!
//! # Theory of operation
//! A pool's memory is one contiguous block in a file that other processes can map ([`PoolFile`]). Without
//! huge pages, the file is a [`MemoryFile`] of the pool. The kernel does not give such files transparent huge
//! pages by default, so the pool asks for them (MADV_COLLAPSE, since Linux 6.1). With huge pages, the block
//! is EAL memory, which devices can reach, and the file is EAL's. If the kernel makes no such file, the
//! memory is anonymous.

use std::ffi::{c_char, c_void};
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

type Free = sys::rte_mempool_memchunk_free_cb_t;

impl PoolMemory {
    /// The pool's file.
    pub(super) fn file(&self) -> Option<PoolFile<'_>> {
        let (file, offset) = self.file.as_ref()?;
        Some(PoolFile { file: file.as_fd(), offset: *offset, memory: self })
    }

    /// Gives a pool of `n` objects, each of `object` bytes with its headers, its memory. The error is a
    /// negative error number.
    ///
    /// # Safety
    /// `pool` is a valid pool without memory. It is not used after an error.
    pub(super) unsafe fn populate(
        eal: Eal,
        pool: *mut sys::rte_mempool,
        n: u32,
        object: usize,
    ) -> Result<PoolMemory, i32> {
        // One more buffer than needed covers the alignment of the first one.
        let bytes = ((n as usize + 1) * object).next_multiple_of(HUGE);
        let (memory, free) = if eal.huge_pages() {
            (eal_memory(bytes).ok_or(-libc::ENOMEM)?, free_eal_memory as _)
        } else {
            (mapping(bytes).ok_or(-libc::ENOMEM)?, unmap as _)
        };
        let start = memory.start.as_ptr();
        // Devices use the program's addresses.
        let iova = start.addr() as u64;
        let free: Free = Some(free);
        // SAFETY: the caller's promise; the memory stays allocated as long as the pool uses it.
        let populated = unsafe {
            sys::rte_mempool_populate_iova(
                pool,
                start.cast::<c_char>(),
                iova,
                bytes,
                free,
                std::ptr::without_provenance_mut(bytes),
            )
        };
        if populated == n as i32 { Ok(memory) } else { Err(populated.min(-libc::ENOMEM)) }
    }
}

/// `bytes` bytes of EAL's huge pages, with EAL's file of them.
fn eal_memory(bytes: usize) -> Option<PoolMemory> {
    // SAFETY: EAL runs. The alignment makes the chunk's address the allocation's, for `free_eal_memory`.
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
    Some(PoolMemory { start, bytes, file: file.map(|file| (file, offset as u64)) })
}

/// Frees the memory of a pool that could not be made.
unsafe extern "C" fn free_eal_memory(chunk: *mut sys::rte_mempool_memhdr, _bytes: *mut c_void) {
    // SAFETY: DPDK calls this once for the chunk that `eal_memory` allocated.
    unsafe { sys::rte_free((*chunk).addr) };
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
        if file.is_some() {
            collapse(start, bytes);
        }
        Some(PoolMemory { start, bytes, file: file.map(|file| (file.into(), 0)) })
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

/// Unmaps the memory of a pool that could not be made.
unsafe extern "C" fn unmap(chunk: *mut sys::rte_mempool_memhdr, bytes: *mut c_void) {
    // SAFETY: DPDK calls this once for the chunk that `mapping` mapped, with its length.
    unsafe { libc::munmap((*chunk).addr, bytes.addr()) };
}
