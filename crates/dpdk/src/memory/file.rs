//! Memory in files that other processes can map.
//!
//! # Theory of operation
//! A [`MemoryFile`] is a memfd: it has no name in any file system, and only a process that is given its
//! descriptor can map it. Its size is sealed, so that no holder of the descriptor can truncate it and make
//! the owner fault (SIGBUS). Its content is not sealed: a process that maps it writable may change bytes at
//! any time. The owner must not trust them, and reads once what it checks.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU8;

use memmap2::{MmapMut, MmapOptions};

/// A file of memory with a fixed size. See the module's theory of operation.
#[derive(Debug)]
pub struct MemoryFile {
    file: OwnedFd,
    bytes: usize,
}

impl MemoryFile {
    /// Creates a file of `bytes` zeros. The name is only shown in `/proc`. Memory is used where it is
    /// written.
    ///
    /// # Errors
    /// The operating system's error: no memory file can be made, or it cannot be sealed.
    pub fn create(name: &CStr, bytes: usize) -> io::Result<MemoryFile> {
        let basic = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // Kernels before 6.3 do not know the flag; later ones may require it (vm.memfd_noexec).
        let file = open(name, basic | libc::MFD_NOEXEC_SEAL).or_else(|_| open(name, basic))?;
        let file = File::from(file);
        file.set_len(bytes as u64)?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: a call with integers; the descriptor is open.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(MemoryFile { file: file.into(), bytes })
    }

    /// Maps the whole file for its owner.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn map(&self) -> io::Result<MmapMut> {
        // SAFETY: the file has these bytes for ever, since its size is sealed. Other processes may write
        // them: any bytes are valid, and their users know (see the theory of operation).
        unsafe { MmapOptions::new().len(self.bytes).map_mut(self.file.as_raw_fd()) }
    }
}

impl AsFd for MemoryFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl From<MemoryFile> for OwnedFd {
    fn from(memory: MemoryFile) -> OwnedFd {
        memory.file
    }
}

fn open(name: &CStr, flags: u32) -> io::Result<OwnedFd> {
    // SAFETY: the name is zero-terminated; the descriptor that is returned is new.
    unsafe {
        let fd = libc::memfd_create(name.as_ptr(), flags);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Memory of another owner, mapped to read and write: the view of a process that was given the descriptor.
///
/// The bytes are atomic, because the owner uses them at the same time.
#[derive(Debug)]
pub struct SharedMemory {
    start: NonNull<AtomicU8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the value and is not bound to a thread.
unsafe impl Send for SharedMemory {}
// SAFETY: all accesses are atomic.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Maps `bytes` bytes of a file from `offset` on, a multiple of the page size.
    ///
    /// # Errors
    /// The operating system's error; [`io::ErrorKind::InvalidInput`]: the file is not that long.
    pub fn map(file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<SharedMemory> {
        let whole = File::from(file.try_clone_to_owned()?).metadata()?.len();
        let end = offset.checked_add(bytes as u64).filter(|end| *end <= whole);
        let (Some(_), Ok(offset)) = (end, libc::off_t::try_from(offset)) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: maps at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), offset)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast::<AtomicU8>()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(SharedMemory { start, bytes })
    }
}

impl Deref for SharedMemory {
    type Target = [AtomicU8];

    fn deref(&self) -> &[AtomicU8] {
        // SAFETY: the mapping has these bytes and lives as long as `self`; this process accesses it by atomic
        // operations only.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is the value's own, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn owner_and_others_see_the_same_bytes() {
        let memory = MemoryFile::create(c"test", 8192).expect("a memory file");
        let mut own = memory.map().expect("a mapping");
        let other = SharedMemory::map(memory.as_fd(), 4096, 4096).expect("a second mapping");
        own[4096 + 17] = 5;
        other[18].store(6, Relaxed);
        assert_eq!((other[17].load(Relaxed), own[4096 + 18], other.len()), (5, 6, 4096));
    }

    #[test]
    fn nobody_resizes_the_file() {
        let memory = MemoryFile::create(c"test", 8192).expect("a memory file");
        let holder = File::from(memory.as_fd().try_clone_to_owned().expect("a descriptor"));
        for bytes in [0, 4096, 16384] {
            assert_eq!(holder.set_len(bytes).unwrap_err().raw_os_error(), Some(libc::EPERM));
        }
    }

    #[test]
    fn a_view_ends_with_the_file() {
        let memory = MemoryFile::create(c"test", 8192).expect("a memory file");
        for (offset, bytes) in [(0, 8193), (4096, 4097), (u64::MAX, 1), (8192, 1)] {
            let refused = SharedMemory::map(memory.as_fd(), offset, bytes).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{offset} {bytes}");
        }
    }
}
