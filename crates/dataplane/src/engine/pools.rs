//! Packet memory: a pool for ordinary frames, and a pool for jumbo frames that is created when first needed.
//! The memory that other processes can map.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use mmb_dpdk::{Mempool, PinnedFrame, ReadablePool};
use mmb_nf::process::PacketMemory;
use mmb_session::Sessions;
use mmb_system::{GroupMemory, exhausted_group};

/// There is no memory for a pool.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// DPDK cannot allocate it.
    #[error("no memory for {buffers} packets of {bytes} bytes ({reason}); start with a larger --memory")]
    Allocation {
        /// Packets asked for.
        buffers: usize,
        /// Bytes of each packet.
        bytes: usize,
        /// DPDK's error.
        reason: mmb_dpdk::Error,
    },
    /// The kernel would kill the process that uses it.
    #[error(
        "{buffers} packets of {bytes} bytes need {needed} MiB, and {memory}; \
         raise its limit, or ask for less with --memory"
    )]
    Limit {
        /// Packets asked for.
        buffers: usize,
        /// Bytes of each packet.
        bytes: usize,
        /// MiB that they need, together with the process.
        needed: u64,
        /// What limits the process.
        memory: GroupMemory,
    },
}

/// Frame bytes of an ordinary buffer.
pub(crate) const ORDINARY: usize = 2048;
/// Frame bytes of a jumbo buffer: a packet-socket frame of 16 KiB.
pub(crate) const JUMBO: usize = 16_384;
const JUMBO_BUFFERS: usize = 4096;
/// Buffers in a worker's own cache: two vectors. So receiving and sending a vector never needs the shared
/// ring, and buffers that are in the processor's cache are used again.
const CACHE: usize = 512;
/// Memory of the headers of a buffer, with alignment.
const HEADERS: usize = 448;
/// Memory of one ordinary buffer.
const ORDINARY_FOOTPRINT: usize = ORDINARY + HEADERS;
/// Memory that the process needs besides the pools, in bytes: 40 MiB were measured.
const PROCESS: u64 = 48 << 20;

/// The pools of an engine.
pub(crate) struct Pools {
    ordinary: Mempool,
    jumbo: Mutex<Option<Mempool>>,
}

impl Pools {
    /// Creates the ordinary pool in half of `memory_mb`; the rest is for jumbo frames, rings and devices.
    pub fn create(memory_mb: u32) -> Result<Pools, PoolError> {
        let ordinary = create("mmb-packets", ordinary_buffers(memory_mb), ORDINARY)?;
        Ok(Pools { ordinary, jumbo: Mutex::new(None) })
    }

    /// The pool for ordinary frames.
    pub fn ordinary(&self) -> Mempool {
        self.ordinary.clone()
    }

    /// The pools that exist.
    pub fn all(&self) -> Vec<Mempool> {
        let jumbo = self.jumbo.lock().unwrap_or_else(PoisonError::into_inner);
        [self.ordinary()].into_iter().chain(jumbo.clone()).collect()
    }

    /// Buffers for ordinary frames.
    pub fn buffers(&self) -> usize {
        self.ordinary.size()
    }

    /// The pool for jumbo frames; it is created by the first call.
    pub fn jumbo(&self) -> Result<Mempool, PoolError> {
        let mut jumbo = self.jumbo.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = &*jumbo {
            return Ok(pool.clone());
        }
        let pool = create("mmb-jumbo", JUMBO_BUFFERS, JUMBO)?;
        Ok(jumbo.insert(pool).clone())
    }
}

fn ordinary_buffers(memory_mb: u32) -> usize {
    (((memory_mb as usize) << 19) / ORDINARY_FOOTPRINT).max(4096)
}

/// Checks that the process may have memory for the ordinary pool. Call it before DPDK starts.
///
/// # Errors
/// A control group leaves less.
pub(crate) fn check_memory(memory_mb: u32) -> Result<(), PoolError> {
    check_limit(ordinary_buffers(memory_mb), ORDINARY, PROCESS)
}

/// Checks that the process may have memory for a pool and `more` bytes.
fn check_limit(buffers: usize, bytes: usize, more: u64) -> Result<(), PoolError> {
    let needed = (buffers * (bytes + HEADERS)) as u64 + more;
    match exhausted_group(needed) {
        Some(memory) => Err(PoolError::Limit { buffers, bytes, needed: needed.div_ceil(1 << 20), memory }),
        None => Ok(()),
    }
}

fn create(name: &str, buffers: usize, data_room: usize) -> Result<Mempool, PoolError> {
    check_limit(buffers, data_room, 0)?;
    let allocation = |reason| PoolError::Allocation { buffers, bytes: data_room, reason };
    Mempool::create(name, buffers, data_room, CACHE).map_err(allocation)
}

/// The ordinary pool, for processes of `zero-copy` domains.
pub(crate) struct ReadablePackets(pub ReadablePool);

impl PacketMemory for ReadablePackets {
    fn file(&self) -> (BorrowedFd<'_>, u64) {
        (self.0.fd(), self.0.offset())
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    #[inline]
    fn pin(&self, frame: &[u8]) -> Option<(u64, u32)> {
        self.0.pin(frame).map(|PinnedFrame { offset, buffer }| (offset, buffer))
    }

    #[inline]
    fn unpin(&self, buffer: u32) {
        self.0.unpin(buffer);
    }
}

/// Scratchpads of one worker's sessions, in a file that other processes can map.
#[derive(Debug)]
pub struct SharedScratchpads {
    /// The file. Its size is sealed.
    pub file: OwnedFd,
    /// Distance of two scratchpads in bytes. The scratchpad of session `n` begins at `n` times the distance;
    /// [`mmb_nf::Program::scratchpads`] tells where a function's bytes lie in it.
    pub distance: usize,
}

impl SharedScratchpads {
    /// The scratchpads of `sessions`; `None` if they are private.
    pub(crate) fn of(sessions: &Sessions) -> io::Result<Option<SharedScratchpads>> {
        let Some((file, distance)) = sessions.scratchpad_file() else { return Ok(None) };
        Ok(Some(SharedScratchpads { file: file.try_clone_to_owned()?, distance }))
    }
}
