//! Packet memory: one pool for ordinary frames, one for jumbo frames that is made when it is first needed.

use std::sync::{Mutex, PoisonError};

use mmb_dpdk::Mempool;

use crate::engine::error::EngineError;

/// Frame bytes of an ordinary buffer.
pub(crate) const ORDINARY: usize = 2048;
/// Frame bytes of a jumbo buffer: a packet-socket frame of 16 KiB.
pub(crate) const JUMBO: usize = 16_384;
const JUMBO_BUFFERS: usize = 4096;
/// Buffers in a worker's own cache: two vectors, so that a vector received and a vector sent never reach the shared ring and
/// the same buffers, warm in the caches, are used again and again.
const CACHE: usize = 512;
/// Memory of one ordinary buffer with its headers and alignment.
const ORDINARY_FOOTPRINT: usize = 2_496;

pub(crate) struct Pools {
    ordinary: Mempool,
    jumbo: Mutex<Option<Mempool>>,
}

impl Pools {
    /// Makes the ordinary pool, with half of `memory_mb`; the rest is for jumbo frames, rings and devices.
    pub fn create(memory_mb: u32) -> Result<Pools, EngineError> {
        let buffers = (((memory_mb as usize) << 19) / ORDINARY_FOOTPRINT).max(4096);
        let ordinary = create("mmb-packets", buffers, ORDINARY)?;
        Ok(Pools { ordinary, jumbo: Mutex::new(None) })
    }

    /// The pool for ordinary frames.
    pub fn ordinary(&self) -> Mempool {
        self.ordinary.clone()
    }

    /// Buffers for ordinary frames.
    pub fn buffers(&self) -> usize {
        self.ordinary.size()
    }

    /// The pool for jumbo frames.
    pub fn jumbo(&self) -> Result<Mempool, EngineError> {
        let mut jumbo = self.jumbo.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = &*jumbo {
            return Ok(pool.clone());
        }
        let pool = create("mmb-jumbo", JUMBO_BUFFERS, JUMBO)?;
        Ok(jumbo.insert(pool).clone())
    }
}

fn create(name: &str, buffers: usize, data_room: usize) -> Result<Mempool, EngineError> {
    Mempool::create(name, buffers, data_room, CACHE).map_err(|e| {
        EngineError(format!(
            "no memory for {buffers} packets of {data_room} bytes ({e}); start with a larger --memory"
        ))
    })
}
