//! The scratchpads of a table's sessions.
//!
//! # Theory of operation
//!
//! How many bytes a session needs depends on the chains in force, which change while sessions live. So the
//! memory has several areas, one for each size of scratchpads: powers of two, and the limit. Each area has a
//! place for every session. Places that are not written take no memory.
//!
//! Sessions with consecutive numbers are a *block*, whose scratchpads all have one size. A block has none
//! until one of its sessions needs one ([`Scratchpads::reserve`]). If a session needs more than its block
//! has, the block moves to the area of a larger size, with the scratchpads of its live sessions. It never
//! moves back, and the memory of its former place stays with the process. A move concerns one block, so that
//! it takes microseconds, however many sessions there are.
//!
//! Starts of scratchpads that were computed before a move are invalid after it. Packets of a vector therefore
//! pass chains after all their sessions have what they need.

use std::io;
use std::iter::successors;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use memmap2::MmapMut;
use mmb_packet::prefetch;

use crate::arena::{Arena, HUGE, next_request};
use crate::fcb::SessionId;
use crate::table::is_set;

/// Sessions of a block.
pub(super) const BLOCK: usize = 1024;
/// Minimum size of a scratchpad, in bytes.
const SMALLEST: usize = 16;
/// Bytes in a cache line.
const LINE: usize = 64;
/// Starts and sizes are in units of so many bytes.
const UNIT: usize = 8;

/// Memory for scratchpads in a file that other processes can map.
///
/// Another process that maps the file writable may change the scratchpads at any time. The size of the file
/// must be sealed, or a process could end this one by truncating it.
#[derive(Debug)]
pub struct ScratchpadFile {
    /// The file.
    pub file: OwnedFd,
    /// The file, mapped from its beginning on.
    pub map: MmapMut,
}

/// The place of a block's scratchpads, in units of 8 bytes.
#[derive(Clone, Copy, Debug)]
struct Block {
    start: u32,
    size: u32,
}

impl Block {
    /// A block without scratchpads.
    const NONE: Block = Block { start: ScratchpadStarts::NONE, size: 0 };

    #[inline(always)]
    fn start_of(self, session: u32) -> u32 {
        self.start.wrapping_add(session % BLOCK as u32 * self.size)
    }

    /// The bytes of a session's scratchpad. Empty if the block has none.
    #[inline]
    fn bytes_of(self, session: u32) -> Range<usize> {
        let start = if self.size == 0 { 0 } else { self.start_of(session) as usize * UNIT };
        start..start + self.size as usize * UNIT
    }
}

/// The places of scratchpads of one size.
#[derive(Debug)]
struct Area {
    start: usize,
    size: usize,
    /// The memory before this byte was allocated or requested. 0: none.
    requested: usize,
}

impl Area {
    /// The bytes that were not requested yet, of the places from session `first` on that are used now or
    /// soon.
    fn next(&mut self, first: usize, capacity: usize) -> Range<usize> {
        let place = |session: usize| self.start + session * self.size;
        let (used, end) = (place(first)..place(first + BLOCK), place(capacity));
        let next = next_request(&mut self.requested, used, self.size);
        next.start..next.end.min(end)
    }
}

/// The starts of scratchpads, by session.
#[derive(Clone, Copy, Debug)]
pub struct ScratchpadStarts<'t>(&'t [Block]);

impl ScratchpadStarts<'_> {
    /// The start of a session without a scratchpad.
    pub const NONE: u32 = u32::MAX;

    /// The start of a session's scratchpad, in units of 8 bytes.
    #[inline(always)]
    pub fn of(self, SessionId(session): SessionId) -> u32 {
        self.0.get(session as usize / BLOCK).map_or(Self::NONE, |block| block.start_of(session))
    }
}

/// Prefetches scratchpads while flows are changed.
#[derive(Clone, Copy, Debug)]
pub struct ScratchpadPrefetch<'t> {
    pads: &'t [u8],
    starts: ScratchpadStarts<'t>,
}

impl ScratchpadPrefetch<'_> {
    /// Prefetches the first `bytes` bytes of a session's scratchpad.
    #[inline(always)]
    pub fn read(self, id: SessionId, bytes: usize) {
        let start = self.starts.of(id) as usize * UNIT;
        for line in (0..bytes).step_by(LINE) {
            if let Some(byte) = self.pads.get(start + line) {
                prefetch::read(byte);
            }
        }
    }
}

/// The scratchpads of a table's sessions. See the module's theory of operation.
#[derive(Debug)]
pub(super) struct Scratchpads {
    memory: Arena<u8>,
    file: Option<OwnedFd>,
    capacity: usize,
    /// By size, ascending.
    areas: Vec<Area>,
    blocks: Vec<Block>,
}

impl Scratchpads {
    /// Scratchpads for `capacity` sessions, of at most `limit` bytes.
    ///
    /// # Errors
    /// The operating system's error if it cannot reserve the address space.
    pub fn new(capacity: usize, limit: usize) -> io::Result<Scratchpads> {
        let smaller = successors(Some(SMALLEST), |size| Some(size * 2)).take_while(|&size| size < limit);
        Scratchpads::in_memory(capacity, smaller.chain([largest(limit)]), Arena::new)
    }

    /// Scratchpads in a file. All have the same size, so that another process finds them. `create` makes the
    /// file and maps it; its argument is the number of bytes.
    ///
    /// # Errors
    /// The error of `create`, or as [`Scratchpads::new`].
    pub fn in_file(
        capacity: usize,
        limit: usize,
        create: impl FnOnce(usize) -> io::Result<ScratchpadFile>,
    ) -> io::Result<Scratchpads> {
        let mut file = None;
        let map = |bytes| {
            let scratchpads = create(bytes)?;
            file = Some(scratchpads.file);
            Ok(scratchpads.map)
        };
        let memory = |bytes| Arena::in_memory(bytes, map);
        let scratchpads = Scratchpads::in_memory(capacity, [largest(limit)].into_iter(), memory)?;
        Ok(Scratchpads { file, ..scratchpads })
    }

    fn in_memory(
        capacity: usize,
        sizes: impl Iterator<Item = usize>,
        memory: impl FnOnce(usize) -> io::Result<Arena<u8>>,
    ) -> io::Result<Scratchpads> {
        let (mut areas, mut end) = (Vec::new(), 0_usize);
        for size in sizes {
            areas.push(Area { start: end, size, requested: 0 });
            let bytes = capacity.checked_mul(size).and_then(|bytes| bytes.checked_next_multiple_of(LINE));
            end = bytes.and_then(|bytes| end.checked_add(bytes)).ok_or(io::ErrorKind::OutOfMemory)?;
        }
        let blocks = vec![Block::NONE; capacity.div_ceil(BLOCK)];
        Ok(Scratchpads { memory: memory(end)?, file: None, capacity, areas, blocks })
    }

    /// The file, and the distance of two scratchpads in it, in bytes.
    pub fn file(&self) -> Option<(BorrowedFd<'_>, usize)> {
        Some((self.file.as_ref()?.as_fd(), self.areas.last()?.size))
    }

    /// Bytes of memory when all sessions have scratchpads of the limit.
    pub fn bytes(&self) -> usize {
        self.areas.last().map_or(0, |area| area.size * self.capacity) + size_of_val(&*self.blocks)
    }

    /// Makes the system allocate the memory of the first scratchpads that have `bytes` bytes.
    pub fn touch(&mut self, bytes: usize) {
        let Scratchpads { areas, memory, capacity, .. } = self;
        let area = areas.iter_mut().find(|area| area.size >= bytes);
        if let Some(area) = area.filter(|area| bytes > 0 && area.requested == 0) {
            area.requested = area.start + HUGE.min(area.size * *capacity);
            memory.touch(area.start..area.requested);
        }
    }

    /// Sees to it that the scratchpad of a session has `bytes` bytes or more. Returns `false` if that is
    /// beyond the limit. `live`: a bit for each session, set if its scratchpad is in use.
    #[inline]
    pub fn reserve(&mut self, SessionId(session): SessionId, bytes: usize, live: &[u64]) -> bool {
        let number = session as usize / BLOCK;
        match self.blocks.get(number) {
            Some(block) => bytes <= block.size as usize * UNIT || self.enlarge(number, bytes, live),
            None => false,
        }
    }

    #[cold]
    fn enlarge(&mut self, number: usize, bytes: usize, live: &[u64]) -> bool {
        let Some(area) = self.areas.iter_mut().find(|area| area.size >= bytes) else { return false };
        let first = number * BLOCK;
        // All starts in the block have to fit into 32 bits.
        let units = |session: usize| u32::try_from((area.start + session * area.size) / UNIT);
        let (Ok(start), Ok(_)) = (units(first), units(first + BLOCK)) else { return false };
        let before = self.blocks[number];
        let block = Block { start, size: (area.size / UNIT) as u32 };
        if before.size > 0 {
            let memory = self.memory.get_mut();
            let all = first..self.capacity.min(first + BLOCK);
            for session in all.map(|session| session as u32).filter(|session| is_set(live, *session)) {
                memory.copy_within(before.bytes_of(session), block.bytes_of(session).start);
            }
        }
        self.blocks[number] = block;
        self.memory.request(area.next(first, self.capacity));
        true
    }

    /// The scratchpad of a session.
    #[inline]
    pub fn get(&self, SessionId(session): SessionId) -> &[u8] {
        &self.memory.get()[self.blocks[session as usize / BLOCK].bytes_of(session)]
    }

    /// The scratchpad of a session, mutable.
    #[inline]
    pub fn get_mut(&mut self, SessionId(session): SessionId) -> &mut [u8] {
        let bytes = self.blocks[session as usize / BLOCK].bytes_of(session);
        &mut self.memory.get_mut()[bytes]
    }

    /// Returns what prefetches scratchpads.
    #[inline(always)]
    pub fn prefetch(&self) -> ScratchpadPrefetch<'_> {
        ScratchpadPrefetch { pads: self.memory.get(), starts: ScratchpadStarts(&self.blocks) }
    }

    /// All scratchpads, mutable, and their starts.
    #[inline(always)]
    pub fn all_mut(&mut self) -> (&mut [u8], ScratchpadStarts<'_>) {
        (self.memory.get_mut(), ScratchpadStarts(&self.blocks))
    }
}

/// The size of the largest scratchpads. Those of a cache line or more begin at a cache line, so that the
/// bytes that are used first are in one line.
fn largest(limit: usize) -> usize {
    limit.next_multiple_of(if limit < LINE { UNIT } else { LINE })
}
