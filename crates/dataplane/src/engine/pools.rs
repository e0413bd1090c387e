//! Packet memory: a pool for ordinary frames, and a pool for jumbo frames that is created when first needed.
//! The memory that other processes can map.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use mmb_dpdk::Mempool;
use mmb_session::Sessions;

/// There is no memory for a pool.
#[derive(Debug, thiserror::Error)]
#[error("no memory for {buffers} packets of {bytes} bytes ({reason}); start with a larger --memory")]
pub struct PoolError {
    /// Packets asked for.
    pub buffers: usize,
    /// Bytes of each packet.
    pub bytes: usize,
    /// DPDK's error.
    pub reason: mmb_dpdk::Error,
}

/// Frame bytes of an ordinary buffer.
pub(crate) const ORDINARY: usize = 2048;
/// Frame bytes of a jumbo buffer: a packet-socket frame of 16 KiB.
pub(crate) const JUMBO: usize = 16_384;
const JUMBO_BUFFERS: usize = 4096;
/// Buffers in a worker's own cache: two vectors. So receiving and sending a vector never needs the shared
/// ring, and buffers that are in the processor's cache are used again.
const CACHE: usize = 512;
/// Memory of one ordinary buffer with its headers and alignment.
const ORDINARY_FOOTPRINT: usize = 2_496;

/// The pools of an engine.
pub(crate) struct Pools {
    ordinary: Mempool,
    jumbo: Mutex<Option<Mempool>>,
}

impl Pools {
    /// Creates the ordinary pool in half of `memory_mb`; the rest is for jumbo frames, rings and devices.
    pub fn create(memory_mb: u32) -> Result<Pools, PoolError> {
        let buffers = (((memory_mb as usize) << 19) / ORDINARY_FOOTPRINT).max(4096);
        let ordinary = create("mmb-packets", buffers, ORDINARY)?;
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

fn create(name: &str, buffers: usize, data_room: usize) -> Result<Mempool, PoolError> {
    Mempool::create(name, buffers, data_room, CACHE).map_err(|reason| PoolError {
        buffers,
        bytes: data_room,
        reason,
    })
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
