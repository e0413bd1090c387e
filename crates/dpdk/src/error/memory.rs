//! Why a pool or a ring cannot be made.

/// Why a packet pool cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// The buffers are too large.
    #[error("buffers of {bytes} bytes are over the limit of {limit}")]
    BufferTooLarge {
        /// Requested bytes of frame in a buffer.
        bytes: usize,
        /// Highest possible number.
        limit: usize,
    },
    /// The number of buffers is 0 or too large.
    #[error("{count} is not a valid number of buffers")]
    BufferCount {
        /// Requested buffers.
        count: usize,
    },
    /// The machine has too little memory.
    #[error("it needs {wanted} MiB, and {available} MiB are available")]
    TooLittleMemory {
        /// Memory of the pool in MiB.
        wanted: u64,
        /// Available memory in MiB.
        available: u64,
    },
    /// A driver has registered the memory of the buffers that the pool has.
    #[error("a port has registered its memory")]
    Registered,
    /// The huge pages are used up.
    #[error("{reason} (huge pages used up; see vm.nr_hugepages)")]
    HugePages {
        /// The description of DPDK's error.
        reason: String,
    },
    /// DPDK refuses.
    #[error("{reason}")]
    Dpdk {
        /// DPDK's message, or the description of its error.
        reason: String,
    },
}

/// Why a ring cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The capacity is over 2^24.
    #[error("the capacity is too large")]
    TooLarge,
    /// DPDK refuses.
    #[error("{reason}")]
    Dpdk {
        /// DPDK's message, or the description of its error.
        reason: String,
    },
}
