//! Memory for large tables.

use std::io;
use std::marker::PhantomData;

use bytemuck::Pod;
use memmap2::MmapMut;

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;

/// An array of zeros that costs memory where it is written to only, in huge pages if the system has them to give.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    map: MmapMut,
    /// Bytes before the array, which begins with a huge page.
    skip: usize,
    bytes: usize,
    of: PhantomData<T>,
}

impl<T: Pod> Arena<T> {
    /// # Errors
    /// The system's, if there is not as much address space.
    pub fn new(len: usize) -> io::Result<Self> {
        let bytes = len.checked_mul(size_of::<T>()).and_then(|b| b.checked_add(HUGE).map(|_| b));
        let bytes = bytes.ok_or(io::ErrorKind::OutOfMemory)?;
        let map = MmapMut::map_anon(bytes + HUGE)?;
        #[cfg(target_os = "linux")]
        // A system without transparent huge pages says no; small ones do as well, if slower.
        let _ = map.advise(memmap2::Advice::HugePage);
        let skip = map.as_ptr().align_offset(HUGE).min(HUGE);
        Ok(Arena { map, skip, bytes, of: PhantomData })
    }

    #[inline(always)]
    pub fn get(&self) -> &[T] {
        bytemuck::cast_slice(&self.map[self.skip..self.skip + self.bytes])
    }

    #[inline(always)]
    pub fn get_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.map[self.skip..self.skip + self.bytes])
    }
}
