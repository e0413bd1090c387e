//! BPF maps that the kernel's programs and the process share.

use std::ffi::{CStr, c_int};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use mmb_dpdk_sys as sys;

use crate::log;

/// Calls libbpf with its messages suppressed. A negative result is returned as a positive error number.
pub(super) fn call(f: impl FnOnce() -> c_int) -> Result<c_int, i32> {
    let (status, _) = log::capture(f);
    if status < 0 { Err(status.saturating_neg()) } else { Ok(status) }
}

/// The number of a system error.
pub(super) fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Creates a map of `entries` entries with keys of type `K` and values of type `V`.
pub(super) fn create<K, V>(
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
    // SAFETY: the name is zero-terminated and the options are live and carry their size.
    let fd = call(|| unsafe {
        sys::bpf_map_create(kind, name.as_ptr(), key, value, entries, &raw const options)
    })?;
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Writes an entry of a map.
///
/// # Safety
/// Key and value have the sizes of the map's keys and values.
pub(super) unsafe fn put(map: RawFd, key: &[u8], value: &[u8]) -> Result<(), i32> {
    // SAFETY: the caller's promise; the kernel only reads them. libbpf prints no message for this.
    let status = unsafe { sys::bpf_map_update_elem(map, key.as_ptr().cast(), value.as_ptr().cast(), 0) };
    if status < 0 { Err(status.saturating_neg()) } else { Ok(()) }
}

/// Removes an entry from a map.
///
/// # Safety
/// The key has the size of the map's keys.
pub(super) unsafe fn delete(map: RawFd, key: &[u8]) -> Result<(), i32> {
    // SAFETY: the caller's promise; the kernel only reads it. libbpf prints no message for this.
    let status = unsafe { sys::bpf_map_delete_elem(map, key.as_ptr().cast()) };
    if status < 0 { Err(status.saturating_neg()) } else { Ok(()) }
}

/// The values of a map, mapped into the process's memory.
#[derive(Debug)]
pub(super) struct Mapped<T> {
    first: NonNull<T>,
    count: usize,
}

// SAFETY: the memory stays mapped until this is dropped, and only shared references to it are handed out.
unsafe impl<T: Sync> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Mapped<T> {}

impl<T> Mapped<T> {
    /// Maps the first `count` values of a map.
    ///
    /// # Safety
    /// The map has that many values of type `T`; `T` consists of atomics and any bytes are valid in it.
    pub(super) unsafe fn map(map: RawFd, count: usize) -> io::Result<Mapped<T>> {
        // SAFETY: a new mapping; the kernel places the map's first value at the start of a page.
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

    pub(super) fn get(&self, at: usize) -> Option<&T> {
        // SAFETY: inside the mapped values, which stay mapped until this is dropped.
        (at < self.count).then(|| unsafe { self.first.add(at).as_ref() })
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: this value's own mapping, which is not used afterwards.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.count * size_of::<T>()) };
    }
}
