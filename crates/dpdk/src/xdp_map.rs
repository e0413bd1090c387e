//! Maps that programs in the kernel and the process have together.

use std::ffi::{CStr, c_int};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use mmb_dpdk_sys as sys;

use crate::log;

/// Calls libbpf, whose messages are kept back. What is below zero is an error number, which is answered as positive.
pub(crate) fn ask(f: impl FnOnce() -> c_int) -> Result<c_int, i32> {
    let (status, _) = log::capture(f);
    if status < 0 { Err(status.saturating_neg()) } else { Ok(status) }
}

/// The number of an error of the system.
pub(crate) fn number(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Makes a map of `entries` entries, with keys of type `K` and values of type `V`.
pub(crate) fn create<K, V>(
    name: &CStr,
    kind: sys::bpf_map_type,
    flags: u32,
    entries: u32,
) -> Result<OwnedFd, i32> {
    let options = sys::bpf_map_create_opts {
        sz: size_of::<sys::bpf_map_create_opts>(),
        map_flags: flags,
        ..Default::default()
    };
    let (key, value) = (size_of::<K>() as u32, size_of::<V>() as u32);
    // SAFETY: a name and options that live, which say their size.
    let fd =
        ask(|| unsafe { sys::bpf_map_create(kind, name.as_ptr(), key, value, entries, &raw const options) })?;
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Puts a value into a map.
///
/// # Safety
/// Key and value are as long as the map's.
pub(crate) unsafe fn put(map: RawFd, key: &[u8], value: &[u8]) -> Result<(), i32> {
    // SAFETY: the caller's promise; the kernel only reads them. libbpf has no message for this.
    let status = unsafe { sys::bpf_map_update_elem(map, key.as_ptr().cast(), value.as_ptr().cast(), 0) };
    if status < 0 { Err(status.saturating_neg()) } else { Ok(()) }
}

/// Takes a value out of a map.
///
/// # Safety
/// The key is as long as the map's.
pub(crate) unsafe fn delete(map: RawFd, key: &[u8]) -> Result<(), i32> {
    // SAFETY: the caller's promise; the kernel only reads it. libbpf has no message for this.
    let status = unsafe { sys::bpf_map_delete_elem(map, key.as_ptr().cast()) };
    if status < 0 { Err(status.saturating_neg()) } else { Ok(()) }
}

/// The values of a map, mapped into the process's memory.
#[derive(Debug)]
pub(crate) struct Mapped<T> {
    first: NonNull<T>,
    count: usize,
}

// SAFETY: memory that stays mapped until this is dropped, and of which only shared references are given.
unsafe impl<T: Sync> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Mapped<T> {}

impl<T> Mapped<T> {
    /// Maps the first values of a map.
    ///
    /// # Safety
    /// The map has that many, they are of type `T`, which any bytes are and which is made of atomics.
    pub(crate) unsafe fn map(map: RawFd, count: usize) -> io::Result<Mapped<T>> {
        // SAFETY: a new mapping, which the kernel starts at a page and with the map's first value.
        let at = unsafe {
            let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            libc::mmap(std::ptr::null_mut(), count * size_of::<T>(), access, shared, map, 0)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let first = NonNull::new(at.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Mapped { first, count })
    }

    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        // SAFETY: one of the values that are mapped until this is dropped.
        (at < self.count).then(|| unsafe { self.first.add(at).as_ref() })
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: this mapping, which is not used any more.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.count * size_of::<T>()) };
    }
}
