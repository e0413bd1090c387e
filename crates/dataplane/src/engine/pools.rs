//! Packet memory: a pool for ordinary frames, and a pool for jumbo frames that is created when first needed.
//! The memory that other processes can map.
//!
//! Theory of operation. The ordinary pool is as large as `--memory` says. Without huge pages, it begins with
//! as many buffers as workers can have in use at a time by default, and the others have no memory yet. A
//! thread adds buffers when few are free ([`super::pool_growth`]), and another one does so for jumbo frames.
//! The publisher adds them when functions may hold more packets. The first AF_XDP port adds those that the
//! rings of all AF_XDP ports of the configuration take ([`Pools::provide_for_xdp`]): the kernel pins the
//! memory that the pool has then, and the pool does not grow while such a port is open. Jumbo frames come by
//! no such port. Memory that is not allocated yet is reserved in the control group: rules and ports do not
//! take it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mmb_dpdk::{Mempool, PinnedFrame, ReadablePool};
use mmb_nf::process::PacketMemory;
use mmb_session::Sessions;
use mmb_system::{GroupMemory, exhausted_group, exhausted_group_of_reserved, reserve_memory};

use super::pool_growth::{PoolGrowth, PoolGrowths};

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
    /// A pool cannot grow.
    #[error("no memory for {buffers} more packets of {bytes} bytes ({reason})")]
    Growth {
        /// Packets asked for.
        buffers: usize,
        /// Bytes of each packet.
        bytes: usize,
        /// The reason.
        reason: mmb_dpdk::PoolError,
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
/// Buffers with which the ordinary pool begins, for each worker: twice the packets that the functions of a
/// worker hold by default (`set held-packets`). Besides those, a worker has a vector, its cache, and packets
/// that wait for neighbours: some 1,500 together.
const OF_WORKER: usize = 2 * DEFAULT_HELD;
const DEFAULT_HELD: usize = 4096;
/// With fewer free buffers, the ordinary pool grows. It begins with as many more: the rings to a worker that
/// does not run have room for as many packets.
const FEW: usize = 8192;
/// Most buffers in the rings of an AF_XDP port, each of which has 2,048 places: in those to receive, which
/// share as many; to send; and that the kernel has sent.
const OF_XDP_PORT: usize = 3 * 2048;
/// AF_XDP ports that there are buffers for at least: an operator may add them one by one.
const XDP_PORTS: usize = 4;
/// With fewer free buffers, the pool of jumbo frames grows. It begins with as many, and as many for each
/// worker: a vector and a cache take three quarters of them.
const FEW_JUMBO: usize = 1024;

/// The pools of an engine.
pub(crate) struct Pools {
    ordinary: Mempool,
    jumbo: Mutex<Option<Mempool>>,
    /// None: pools have all their buffers.
    growing: Option<Growing>,
    growths: Arc<PoolGrowths>,
}

struct Growing {
    /// The CPUs of the workers.
    cpus: Vec<Option<usize>>,
    registers_all: bool,
    needs: Mutex<Needs>,
}

/// What the ordinary pool has to have buffers for, besides workers.
#[derive(Clone, Copy)]
struct Needs {
    xdp_ports: usize,
    /// Packets that the functions of a worker may hold.
    held: u32,
}

impl Growing {
    fn needs(&self) -> MutexGuard<'_, Needs> {
        self.needs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Buffers for workers and what their functions may hold.
    fn for_workers(&self) -> usize {
        let more = (self.needs().held as usize).saturating_sub(DEFAULT_HELD);
        FEW + self.cpus.len() * (OF_WORKER + more)
    }
}

impl Pools {
    /// Creates the ordinary pool in half of `memory_mb`; the rest is for jumbo frames, rings and devices.
    pub fn create(memory_mb: u32) -> Result<Pools, PoolError> {
        let buffers = ordinary_buffers(memory_mb);
        let ordinary = create("mmb-packets", (buffers, buffers), ORDINARY)?;
        Ok(Pools { ordinary, jumbo: Mutex::new(None), growing: None, growths: Arc::default() })
    }

    /// Creates pools as [`Pools::create`] does, for workers on these CPUs. They grow.
    /// `registers_all`: they have all buffers before an AF_XDP port opens.
    pub fn create_growing(
        memory_mb: u32,
        registers_all: bool,
        cpus: Vec<Option<usize>>,
    ) -> Result<Pools, PoolError> {
        let size = (ordinary_buffers(memory_mb), FEW + cpus.len() * OF_WORKER);
        let ordinary = create("mmb-packets", size, ORDINARY)?;
        let needs = Mutex::new(Needs { xdp_ports: 0, held: 0 });
        let mut rests = rests();
        rests.clear();
        reserve_rest(&mut rests, &ordinary);
        let growing = Some(Growing { cpus, registers_all, needs });
        Ok(Pools { ordinary, jumbo: Mutex::new(None), growing, growths: Arc::default() })
    }

    /// Starts the thread that adds buffers to the ordinary pool, if pools grow.
    ///
    /// # Errors
    /// The operating system's error if it cannot start a thread.
    pub fn start_growth(&self) -> io::Result<()> {
        if let Some(growing) = &self.growing {
            let growth = PoolGrowth::start("mmb-buffers", self.ordinary(), growing.cpus.clone())?;
            let _ = self.growths.ordinary.set(growth);
        }
        Ok(())
    }

    /// What adds buffers to the pools, for workers.
    pub fn growths(&self) -> Arc<PoolGrowths> {
        self.growths.clone()
    }

    /// Sets what the pool needs buffers for when an AF_XDP port opens.
    pub fn plan(&self, xdp_ports: usize, held: u32) {
        if let Some(growing) = &self.growing {
            *growing.needs() = Needs { xdp_ports, held };
        }
    }

    /// Adds buffers to the ordinary pool for AF_XDP ports, unless one is open.
    ///
    /// # Errors
    /// There is no memory.
    pub fn provide_for_xdp(&self) -> Result<(), PoolError> {
        let Some(growing) = self.growing.as_ref().filter(|_| !self.ordinary.is_registered()) else {
            return Ok(());
        };
        // One more may be added later.
        let ports = XDP_PORTS.max(growing.needs().xdp_ports + 1);
        let needed = growing.for_workers() + ports * OF_XDP_PORT;
        grow(&self.ordinary, if growing.registers_all { self.ordinary.size() } else { needed })
    }

    /// Whether the pool has fewer buffers than so many AF_XDP ports, the workers and what functions may hold
    /// need, and `--memory` permits.
    pub fn is_short_of(&self, xdp_ports: usize) -> bool {
        let needed = |growing: &Growing| growing.for_workers() + xdp_ports * OF_XDP_PORT;
        let populated = self.ordinary.populated();
        populated < self.ordinary.size() && self.growing.as_ref().is_some_and(|g| populated < needed(g))
    }

    /// Adds buffers to the ordinary pool, if each of the workers may hold so many packets. If there is no
    /// memory, or an AF_XDP port is open, packets will be dropped for want of buffers.
    pub fn provide_for_held(&self, packets: u32) {
        if let Some(growing) = &self.growing {
            growing.needs().held = packets;
            let _ = grow(&self.ordinary, growing.for_workers());
        }
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
        if let Some(jumbo) = &*jumbo {
            return Ok(jumbo.clone());
        }
        let first =
            self.growing.as_ref().map_or(JUMBO_BUFFERS, |growing| (1 + growing.cpus.len()) * FEW_JUMBO);
        let pool = create("mmb-jumbo", (JUMBO_BUFFERS, first.min(JUMBO_BUFFERS)), JUMBO)?;
        reserve_rest(&mut rests(), &pool);
        let growth =
            |growing: &Growing| PoolGrowth::start("mmb-jumbo", pool.clone(), growing.cpus.clone()).ok();
        match self.growing.as_ref().and_then(growth) {
            // The mutex is locked, so no other call has set one.
            Some(growth) => drop(self.growths.jumbo.set(growth)),
            None => grow(&pool, pool.size())?,
        }
        Ok(jumbo.insert(pool).clone())
    }
}

/// How a pool is supplied with buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Supply {
    /// It has all.
    Complete,
    /// Enough are free.
    Ample,
    /// Some were added a moment ago.
    Grown,
    /// It cannot grow while ports are open that have registered its memory.
    Registered,
}

/// With fewer free buffers in its ring, a pool grows.
pub(crate) fn few_buffers(pool: &Mempool) -> usize {
    if pool.data_room() == JUMBO { FEW_JUMBO } else { FEW }
}

/// Adds buffers to a pool if few are free: as many as are few.
///
/// # Errors
/// There is no memory.
pub(crate) fn supply(pool: &Mempool) -> Result<Supply, PoolError> {
    let (few, populated) = (few_buffers(pool), pool.populated());
    if populated == pool.size() {
        return Ok(Supply::Complete);
    }
    if pool.in_ring() >= few {
        return Ok(Supply::Ample);
    }
    if pool.is_registered() {
        return Ok(Supply::Registered);
    }
    grow(pool, populated + few)?;
    Ok(Supply::Grown)
}

/// The memory that each pool does not have yet, by the bytes of a frame. Locked while a pool grows, so that
/// what is reserved is what the last growth left.
static RESTS: Mutex<BTreeMap<usize, u64>> = Mutex::new(BTreeMap::new());

fn rests() -> MutexGuard<'static, BTreeMap<usize, u64>> {
    RESTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds buffers to a pool until it has `buffers`, or all.
fn grow(pool: &Mempool, buffers: usize) -> Result<(), PoolError> {
    let mut rests = rests();
    let (before, buffers) = (pool.populated(), buffers.min(pool.size()));
    if buffers <= before {
        return Ok(());
    }
    let (more, bytes) = (buffers - before, pool.data_room());
    let needed = (more * pool.buffer_bytes()) as u64;
    if let Some(memory) = exhausted_group_of_reserved(needed) {
        return Err(PoolError::Limit { buffers: more, bytes, needed: needed.div_ceil(1 << 20), memory });
    }
    let grown = pool.grow_to(buffers);
    reserve_rest(&mut rests, pool);
    grown.map_err(|reason| PoolError::Growth { buffers: more, bytes, reason })
}

/// Reserves the memory of the buffers that a pool does not have yet.
fn reserve_rest(rests: &mut BTreeMap<usize, u64>, pool: &Mempool) {
    let rest = (pool.size() - pool.populated()) * pool.buffer_bytes();
    rests.insert(pool.data_room(), rest as u64);
    reserve_memory(rests.values().sum());
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

/// Creates a pool. Of its buffers, so many or a few more have memory at first.
fn create(name: &str, (buffers, first): (usize, usize), data_room: usize) -> Result<Mempool, PoolError> {
    check_limit(buffers, data_room, 0)?;
    let allocation = |reason| PoolError::Allocation { buffers, bytes: data_room, reason };
    Mempool::growing(name, (buffers, first), data_room, CACHE).map_err(allocation)
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
