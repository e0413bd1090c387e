//! Allocation of memory before it is written.

use std::ops::Range;

use super::pool_memory::HUGE;

const PAGE: usize = 4096;

/// Makes the kernel allocate the memory of these addresses, as if each of its pages was written
/// (MADV_POPULATE_WRITE, since Linux 5.14). Other threads may use the memory meanwhile.
///
/// Where nothing is mapped, nothing happens. Without memory, or with an older kernel, the first write
/// allocates the memory.
pub fn populate(addresses: Range<usize>) {
    let mut start = addresses.start / PAGE * PAGE;
    while start < addresses.end {
        // Threads that map memory wait for each call.
        let bytes = (HUGE - start % HUGE).min(addresses.end - start);
        // SAFETY: the call changes no byte of the memory and no mapping, whatever the addresses are.
        let done = unsafe {
            libc::madvise(std::ptr::without_provenance_mut(start), bytes, libc::MADV_POPULATE_WRITE)
        };
        if done != 0 {
            return;
        }
        start += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 3 << 20;

    /// How many pages of a map are in memory.
    fn resident(map: &memmap2::MmapMut) -> usize {
        let mut pages = vec![0_u8; map.len() / PAGE];
        // SAFETY: `pages` has a byte for each page of the map.
        let failed = unsafe { libc::mincore(map.as_ptr().cast_mut().cast(), map.len(), pages.as_mut_ptr()) };
        assert_eq!(failed, 0);
        pages.iter().filter(|&&page| page & 1 == 1).count()
    }

    #[test]
    fn memory_is_allocated_and_keeps_its_content() {
        let mut map = memmap2::MmapMut::map_anon(BYTES).unwrap();
        map.advise(memmap2::Advice::NoHugePage).unwrap();
        map[5000] = 7;
        let start = map.as_ptr().addr();
        assert_eq!(resident(&map), 1);
        populate(start + 5000..start + BYTES / 2);
        assert_eq!((resident(&map), map[5000]), (BYTES / 2 / PAGE - 1, 7));
        populate(start..start + BYTES);
        assert_eq!(resident(&map), BYTES / PAGE);
    }

    #[test]
    fn addresses_without_memory_are_ignored() {
        let map = memmap2::MmapMut::map_anon(BYTES).unwrap();
        let start = map.as_ptr().addr();
        drop(map);
        for range in [start..start + BYTES, 0..4096, usize::MAX - 4096..usize::MAX] {
            populate(range);
        }
    }
}
