//! Memory for large tables.

mod requests;

use std::hint::black_box;
use std::io;
use std::marker::PhantomData;
use std::ops::Range;

use bytemuck::Pod;
use memmap2::MmapMut;

pub use requests::memory_requests;

/// Size of a huge page, in bytes.
pub(crate) const HUGE: usize = 2 << 20;
/// Size of a base page, in bytes.
const PAGE: usize = 4096;
/// How many elements before an element is written its memory is requested. At a million sessions a second,
/// each with two flows, that is 8 ms.
const LEAD: usize = 16_384;

/// A zeroed array that uses memory only where it is written, in huge pages if the system provides them.
#[derive(Debug)]
pub struct Arena<T> {
    /// The array, and the rest of its last huge page. The length is stored, since packets use the array
    /// often.
    map: MmapMut,
    bytes: usize,
    /// The memory of the bytes before this one was requested or is in use.
    requested: usize,
    of: PhantomData<T>,
}

impl<T: Pod> Arena<T> {
    /// Reserves the memory of `len` elements.
    ///
    /// # Errors
    /// The operating system's error if it cannot reserve the address space.
    pub fn new(len: usize) -> io::Result<Self> {
        Self::in_memory(len, map)
    }

    /// An array of `len` elements in the memory that `map` makes for their bytes: at least that many, aligned
    /// to a page, all zero.
    ///
    /// # Errors
    /// The error of `map`; [`io::ErrorKind::OutOfMemory`]: there are too many bytes, or the memory has fewer.
    pub(crate) fn in_memory(len: usize, map: impl FnOnce(usize) -> io::Result<MmapMut>) -> io::Result<Self> {
        let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| bytes <= isize::MAX as usize - 2 * HUGE);
        let bytes = bytes.ok_or(io::ErrorKind::OutOfMemory)?;
        let map = map(bytes)?;
        if map.len() < bytes {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        #[cfg(target_os = "linux")]
        // A system without transparent huge pages refuses. Base pages work too, more slowly.
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Arena { map, bytes, requested: HUGE, of: PhantomData })
    }

    /// Makes the system allocate a range of bytes now. The first write to a huge page takes up to some
    /// milliseconds, for which packets would wait.
    pub(crate) fn touch(&mut self, range: Range<usize>) {
        let end = self.bytes.min(range.end);
        for byte in self.map.get_mut(range.start..end).unwrap_or(&mut []).iter_mut().step_by(PAGE) {
            *byte = black_box(*byte);
        }
    }

    /// Makes the system allocate the memory of a range of bytes soon, or now if no thread does so.
    pub(crate) fn allocate(&mut self, range: Range<usize>) {
        if !self.request(range.clone()) {
            self.touch(range);
        }
    }

    /// Requests memory for an array that fills from the front: `used` elements are in use. Call this at least
    /// once for each thousand elements.
    #[inline]
    pub fn request_next(&mut self, used: usize) {
        let used = used * size_of::<T>();
        if used + lead(size_of::<T>()) > self.requested && self.requested < self.bytes {
            self.request_behind(used);
        }
    }

    #[cold]
    fn request_behind(&mut self, used: usize) {
        let next = next_request(&mut self.requested, used / HUGE * HUGE..used, size_of::<T>());
        self.request(next);
    }

    /// Requests the memory of a range of bytes. False if nobody allocates it.
    pub(crate) fn request(&self, range: Range<usize>) -> bool {
        let range = range.start..range.end.min(self.bytes);
        if range.is_empty() {
            return true;
        }
        let start = self.map.as_ptr().addr();
        requests::request(start + range.start..start + range.end)
    }

    /// The memory of the bytes before this one was requested or is in use.
    #[cfg(test)]
    pub(crate) fn requested(&self) -> usize {
        self.requested
    }

    /// An element. Unlike an access to the slice of all, it does not divide by the size of elements.
    #[inline(always)]
    pub fn at(&self, index: usize) -> &T {
        let start = index * size_of::<T>();
        bytemuck::from_bytes(&self.map[start..start + size_of::<T>()])
    }

    /// An element, mutable.
    #[inline(always)]
    pub fn at_mut(&mut self, index: usize) -> &mut T {
        let start = index * size_of::<T>();
        bytemuck::from_bytes_mut(&mut self.map[start..start + size_of::<T>()])
    }

    /// The elements.
    #[inline(always)]
    pub fn get(&self) -> &[T] {
        bytemuck::cast_slice(&self.map[..self.bytes])
    }

    /// The elements, mutable.
    #[inline(always)]
    pub fn get_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.map[..self.bytes])
    }
}

/// How many bytes before an element of this size is written its memory is requested.
fn lead(size: usize) -> usize {
    HUGE.min(LEAD * size)
}

/// The bytes to request for elements of this size, now that bytes are `used`: these and those behind them,
/// without those before `requested`, which moves behind them. What was not requested in front of `used` stays
/// as it is: nobody may ever write there.
pub(crate) fn next_request(requested: &mut usize, used: Range<usize>, size: usize) -> Range<usize> {
    let from = used.start.max(*requested);
    let end = used.end + lead(size);
    if from < end {
        *requested = end.next_multiple_of(HUGE);
    }
    from..*requested
}

/// Maps `bytes` bytes. Large maps begin at a huge page if possible.
fn map(bytes: usize) -> io::Result<MmapMut> {
    if bytes < HUGE {
        return MmapMut::map_anon(bytes);
    }
    let whole = bytes.next_multiple_of(HUGE);
    let map = MmapMut::map_anon(whole)?;
    match map.as_ptr().addr() % HUGE {
        0 => Ok(map),
        // Before Linux 6.7, a map is placed directly below the previous one. A gap of the missing size aligns
        // it.
        over => {
            drop(map);
            let _between = MmapMut::map_anon(over)?;
            MmapMut::map_anon(whole)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_have_the_requested_length() {
        for len in [0, 1, 1000, HUGE / 8 - 1, HUGE / 8, HUGE / 8 + 1] {
            assert_eq!(Arena::<u64>::new(len).unwrap().get().len(), len);
        }
        assert!(Arena::<u64>::new(usize::MAX / 8).is_err() && Arena::<u64>::new(usize::MAX).is_err());
    }

    #[test]
    fn touching_pages_keeps_their_content() {
        let mut arena = Arena::<u64>::new(3 * HUGE / 8 + 5).unwrap();
        arena.get_mut().iter_mut().zip(0..).for_each(|(word, n)| *word = n);
        for range in [0..0, 0..1, 7..HUGE, 0..usize::MAX, usize::MAX..usize::MAX] {
            arena.touch(range);
        }
        assert!(arena.get().iter().zip(0..).all(|(word, n)| *word == n));
    }
}
