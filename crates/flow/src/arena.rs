//! Memory for large tables.

use std::hint::black_box;
use std::io;
use std::marker::PhantomData;

use bytemuck::Pod;
use memmap2::MmapMut;

/// Bytes of a huge page.
pub(crate) const HUGE: usize = 2 << 20;
/// Bytes of a page where there are no huge ones.
const PAGE: usize = 4096;

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

    /// Has the system give the memory of the first `bytes` bytes now. The first write to a huge page takes it up to some
    /// milliseconds, for which packets would wait.
    pub fn touch(&mut self, bytes: usize) {
        let bytes = self.bytes.min(bytes);
        for byte in self.map[self.skip..].iter_mut().take(bytes).step_by(PAGE) {
            *byte = black_box(*byte);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_leaves_what_is_there() {
        let mut arena = Arena::<u64>::new(3 * HUGE / 8 + 5).unwrap();
        arena.get_mut().iter_mut().zip(0..).for_each(|(word, n)| *word = n);
        for bytes in [0, 1, HUGE, usize::MAX] {
            arena.touch(bytes);
        }
        assert!(arena.get().iter().zip(0..).all(|(word, n)| *word == n));
    }
}
