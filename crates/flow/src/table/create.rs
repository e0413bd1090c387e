//! Creation of a table, and its memory.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use memmap2::MmapMut;

use super::hash::Hasher;
use super::index::Index;
use super::{MAX_CAPACITY, NONE, Table};
use crate::arena::{Arena, HUGE};
use crate::wheel::Wheel;

/// Bytes in a cache line.
const LINE: usize = 64;

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

impl Table {
    /// Creates a table for `capacity` sessions, each with a scratchpad of `scratch_bytes` bytes.
    ///
    /// The capacity is clamped to 1 to [`MAX_CAPACITY`]. Scratchpads are rounded up to a multiple of 8 bytes,
    /// and of 64 bytes if they have 64 or more. `seed` must be secret: with it, an attacker can construct
    /// keys that collide.
    ///
    /// # Errors
    /// The operating system's error if it cannot reserve the address space.
    pub fn new(capacity: u32, scratch_bytes: usize, seed: u64) -> io::Result<Table> {
        Table::in_memory(capacity, scratch_bytes, seed, Arena::new)
    }

    /// Creates a table like [`Table::new`], with scratchpads in a file. `create` makes the file and maps it;
    /// its argument is the number of bytes.
    ///
    /// # Errors
    /// The error of `create`, or as [`Table::new`].
    pub fn with_scratchpad_file(
        capacity: u32,
        scratch_bytes: usize,
        seed: u64,
        create: impl FnOnce(usize) -> io::Result<ScratchpadFile>,
    ) -> io::Result<Table> {
        let mut file = None;
        let map = |bytes| {
            let scratchpads = create(bytes)?;
            file = Some(scratchpads.file);
            Ok(scratchpads.map)
        };
        let mut table =
            Table::in_memory(capacity, scratch_bytes, seed, |bytes| Arena::in_memory(bytes, map))?;
        table.scratchpad_file = file;
        Ok(table)
    }

    fn in_memory(
        capacity: u32,
        scratch_bytes: usize,
        seed: u64,
        scratchpads: impl FnOnce(usize) -> io::Result<Arena<u8>>,
    ) -> io::Result<Table> {
        let capacity = capacity.clamp(1, MAX_CAPACITY);
        // Scratchpads of a cache line or more begin at a cache line: the bytes that are used first are in one
        // line.
        let stride = scratch_bytes.next_multiple_of(if scratch_bytes < LINE { 8 } else { LINE });
        let count = capacity as usize;
        let scratch = count.checked_mul(stride).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut flows = Arena::new(count * 2)?;
        let mut sessions = Arena::new(count)?;
        let mut scratch = scratchpads(scratch)?;
        // These arrays fill from the front.
        flows.touch(HUGE);
        sessions.touch(HUGE);
        scratch.touch(HUGE);
        Ok(Table {
            hasher: Hasher::new(seed),
            index: Index::new(capacity * 2)?,
            flows,
            sessions,
            scratch,
            scratchpad_file: None,
            stride,
            live: vec![0; count.div_ceil(64)],
            capacity,
            len: 0,
            fresh: 0,
            free: Vec::with_capacity(count),
            embryonic: [NONE; 2],
            embryonic_len: 0,
            wheel: Wheel::new(),
        })
    }

    /// The file with the scratchpads, if they lie in one. The scratchpad of session `n` begins at `n` times
    /// the distance ([`Table::scratchpads`]).
    pub fn scratchpad_file(&self) -> Option<BorrowedFd<'_>> {
        self.scratchpad_file.as_ref().map(AsFd::as_fd)
    }

    /// Bytes of memory when all sessions are in use.
    pub fn bytes(&self) -> usize {
        let parts =
            [size_of_val(self.flows.get()), size_of_val(self.sessions.get()), size_of_val(&*self.live)];
        parts.iter().sum::<usize>()
            + self.scratch.get().len()
            + self.index.bytes()
            + self.capacity as usize * size_of::<u32>()
    }
}
