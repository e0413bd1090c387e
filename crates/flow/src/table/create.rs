//! Creation of a table, and its memory.

use std::io;
use std::os::fd::BorrowedFd;

use super::hash::Hasher;
use super::index::Index;
use super::rare::RareField;
use super::scratchpads::{ScratchpadFile, Scratchpads};
use super::{MAX_CAPACITY, Table};
use crate::arena::{Arena, HUGE};
use crate::numbers::NumberSet;
use crate::timers::Timers;

impl Table {
    /// Creates a table for `capacity` sessions, each with a scratchpad of at most `scratch_bytes` bytes.
    ///
    /// The capacity is clamped to 1 to [`MAX_CAPACITY`]. Scratchpads are rounded up to a multiple of 8 bytes,
    /// and of 64 bytes if they have 64 or more. `seed` must be secret: with it, an attacker can construct
    /// keys that collide.
    ///
    /// # Errors
    /// The operating system's error if it cannot reserve the address space.
    pub fn new(capacity: u32, scratch_bytes: usize, seed: u64) -> io::Result<Table> {
        Table::with(capacity, seed, |capacity| Scratchpads::new(capacity, scratch_bytes))
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
        Table::with(capacity, seed, |capacity| Scratchpads::in_file(capacity, scratch_bytes, create))
    }

    fn with(
        capacity: u32,
        seed: u64,
        scratchpads: impl FnOnce(usize) -> io::Result<Scratchpads>,
    ) -> io::Result<Table> {
        let capacity = capacity.clamp(1, MAX_CAPACITY);
        let count = capacity as usize;
        let mut flows = Arena::new(count * 2)?;
        let mut sessions = Arena::new(count)?;
        let mut timers = Timers::new(count)?;
        // These arrays fill from the front.
        flows.touch(0..HUGE);
        sessions.touch(0..HUGE);
        timers.touch(HUGE);
        Ok(Table {
            hasher: Hasher::new(seed),
            index: Index::new(capacity * 2)?,
            flows,
            sessions,
            scratchpads: scratchpads(count)?,
            timers,
            windows: RareField::new(count)?,
            mappings: RareField::new(count)?,
            brokers: RareField::new(count)?,
            live: vec![0; count.div_ceil(64)],
            capacity,
            len: 0,
            fresh: 0,
            free: Vec::with_capacity(count),
            half_open: NumberSet::new(count),
            hand: 0,
        })
    }

    /// The file with the scratchpads, if they lie in one, and the distance of two scratchpads in bytes. The
    /// scratchpad of session `n` begins at `n` times the distance.
    pub fn scratchpad_file(&self) -> Option<(BorrowedFd<'_>, usize)> {
        self.scratchpads.file()
    }

    /// Bytes of memory when all sessions are in use, with the largest scratchpads and all fields.
    pub fn bytes(&self) -> usize {
        let arrays =
            [size_of_val(self.flows.get()), size_of_val(self.sessions.get()), size_of_val(&*self.live)];
        let fields = [self.windows.bytes(), self.mappings.bytes(), self.brokers.bytes()];
        arrays.iter().chain(&fields).sum::<usize>()
            + self.scratchpads.bytes()
            + self.index.bytes()
            + self.timers.bytes()
            + self.half_open.bytes()
            + self.capacity as usize * size_of::<u32>()
    }
}
