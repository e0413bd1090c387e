//! Sealed memory files, mapped by several processes.
//!
//! # Theory of operation
//! The file is a memfd: it has no name in any file system, and a process maps it only if it is given the
//! descriptor. The size is sealed before the descriptor is given away, so no holder can cut the file and make
//! the others fault (SIGBUS). A process that gets a descriptor checks the seals for the same reason.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};

use crate::words::Words;

/// A mapped memory file.
#[derive(Debug)]
pub struct SharedMemory {
    file: OwnedFd,
    map: MmapRaw,
    words: usize,
}

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

impl SharedMemory {
    /// Creates a file with so many words, all zeros, and maps it. Pages take memory once they are written.
    /// The name is shown in `/proc` only.
    ///
    /// # Errors
    /// The error of the operating system: no memory file can be made, sealed or mapped.
    pub fn create(name: &str, words: usize) -> io::Result<SharedMemory> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels before 6.3 do not know the flag; later ones may require it (vm.memfd_noexec).
        let file = memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL);
        let file = File::from(file.or_else(|_| memfd_create(name, flags))?);
        file.set_len(words as u64 * 8)?;
        fcntl_add_seals(&file, SEALS)?;
        Self::map(file.into(), words)
    }

    /// Maps a file that another process has created.
    ///
    /// # Errors
    /// The size of the file is not sealed, or it is no whole number of words, or the file cannot be mapped.
    pub fn open(file: OwnedFd) -> io::Result<SharedMemory> {
        if !fcntl_get_seals(&file)?.contains(SEALS) {
            return Err(io::Error::other("the size of the memory file is not sealed"));
        }
        let bytes = usize::try_from(fstat(&file)?.st_size).unwrap_or(0);
        match bytes % 8 {
            0 if bytes > 0 => Self::map(file, bytes / 8),
            _ => {
                Err(io::Error::other(format!("a memory file of {bytes} bytes has no whole number of words")))
            }
        }
    }

    fn map(file: OwnedFd, words: usize) -> io::Result<SharedMemory> {
        let map = MmapRaw::map_raw(&File::from(file.try_clone()?))?;
        if map.len() < words * 8 {
            return Err(io::Error::other("the memory file is shorter than its mapping"));
        }
        Ok(SharedMemory { file, map, words })
    }

    /// Returns the address of the mapping, for the process to which the memory belongs while it uses it.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Words for SharedMemory {
    type Word = AtomicU64;

    #[inline(always)]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping lives as long as `self`, has at least this many words (checked in `map`; the
        // size of the file is sealed), and is aligned to pages. Any bits are a valid AtomicU64. All accesses
        // of this process go through atomic words, or follow the rules of [`crate::pool`].
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.words) }
    }
}

/// Memory of another process, mapped to read.
#[derive(Debug)]
pub struct ReadMemory {
    map: MmapRaw,
}

impl ReadMemory {
    /// Maps `bytes` bytes of a file from `offset` on, a multiple of the page size. The file keeps its size.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn map(file: OwnedFd, offset: u64, bytes: usize) -> io::Result<ReadMemory> {
        let map = MmapOptions::new().offset(offset).len(bytes).map_raw_read_only(&File::from(file))?;
        Ok(ReadMemory { map })
    }

    /// Returns the address of `len` bytes at an offset. None: they are not all in the memory.
    pub fn at(&self, offset: u64, len: usize) -> Option<*const u8> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(len)?;
        (end <= self.map.len()).then(|| self.map.as_ptr().wrapping_add(start))
    }
}

/// Some words of a shared memory.
#[derive(Clone, Debug)]
pub struct Region {
    memory: Arc<SharedMemory>,
    first: usize,
    len: usize,
}

impl Region {
    /// Returns `len` words from word `first` on. None: the memory has fewer.
    pub fn new(memory: &Arc<SharedMemory>, first: usize, len: usize) -> Option<Region> {
        let end = first.checked_add(len)?;
        (end <= memory.words).then(|| Region { memory: memory.clone(), first, len })
    }

    /// Returns the address of the region: see [`SharedMemory::as_mut_ptr`].
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.memory.as_mut_ptr().wrapping_add(self.first * 8)
    }
}

impl Words for Region {
    type Word = AtomicU64;

    #[inline(always)]
    fn words(&self) -> &[AtomicU64] {
        self.memory.words().get(self.first..self.first + self.len).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn two_mappings_show_the_same_words() {
        let here = SharedMemory::create("test", 1024).unwrap();
        let there = SharedMemory::open(here.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_ne!(here.as_mut_ptr(), there.as_mut_ptr());
        here.words()[1000].store(7, Relaxed);
        assert_eq!(there.words()[1000].load(Relaxed), 7);
        assert_eq!(there.words().len(), 1024);
    }

    #[test]
    fn nobody_changes_the_size() {
        let memory = SharedMemory::create("test", 1024).unwrap();
        let file = File::from(memory.as_fd().try_clone_to_owned().unwrap());
        assert_eq!(file.set_len(0).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(file.set_len(1 << 20).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn files_without_seals_are_refused() {
        let file = memfd_create("open", MemfdFlags::ALLOW_SEALING).unwrap();
        let error = SharedMemory::open(file).unwrap_err();
        assert_eq!(error.to_string(), "the size of the memory file is not sealed");
    }

    #[test]
    fn memory_to_read_shows_what_the_owner_writes() {
        let memory = SharedMemory::create("test", 1024).unwrap();
        let read = ReadMemory::map(memory.as_fd().try_clone_to_owned().unwrap(), 4096, 4096).unwrap();
        memory.words()[513].store(7, Relaxed);
        // SAFETY: the bytes are in the mapping, and nobody writes them now.
        assert_eq!(unsafe { *read.at(8, 8).unwrap() }, 7);
        assert!(read.at(4089, 8).is_none() && read.at(u64::MAX, 8).is_none());
    }

    #[test]
    fn regions_are_inside_of_the_memory() {
        let memory = Arc::new(SharedMemory::create("test", 16).unwrap());
        assert_eq!(Region::new(&memory, 8, 8).unwrap().words().len(), 8);
        assert!(Region::new(&memory, 9, 8).is_none());
        assert!(Region::new(&memory, usize::MAX, 8).is_none());
    }
}
