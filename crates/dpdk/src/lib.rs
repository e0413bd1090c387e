//! Safe wrappers of DPDK 22.11. Nearly all `unsafe` code of the project is here.
//!
//! * [`Eal`] starts the environment, once per process; root, devices and huge pages are optional.
//! * [`Mempool`] holds packet buffers. [`Mbuf`] is a packet, [`Packet`] a borrowed one, [`Burst`] an array of
//!   packets.
//! * [`Mempool::file`] is the pool's memory as a file that other processes can map ([`SharedMemory`]).
//! * [`Port`] is a device: a kernel interface (AF_XDP, AF_PACKET, tap), a PCI device, shared memory, a
//!   capture. Each of its [`RxQueue`]s and [`TxQueue`]s belongs to one thread.
//! * [`ring()`] passes packets from several threads to one.
//! * [`Graph`] runs nodes over vectors of packets.
//! * [`NetDev`] queries a kernel interface; [`LroGuard`] prepares one for reading raw frames.
//! * [`Steering`] selects the frames of an AF_XDP port that stay with the kernel; [`FastPath`] holds the
//!   flows that the kernel forwards by itself.
//!
//! The owner of a packet frees it. Objects of one thread cannot be shared (queues, receivers) or moved
//! ([`ThreadGuard`]). No input, and no use of this interface without `unsafe`, makes DPDK access memory that
//! it must not access.
//!
//! ```
//! use mmb_dpdk::{Eal, EalConfig, Emit, Graph, HugePages, Mempool, NodeDef, NodeKind, Vector};
//!
//! struct Worker { pool: Mempool, freed: usize }
//!
//! fn source(worker: &mut Worker, emit: &mut Emit<'_>) -> usize {
//!     emit.emit(0, 32, |slots| { worker.pool.alloc_bulk(32, slots); })
//! }
//!
//! fn sink(worker: &mut Worker, mut vector: Vector<'_>) {
//!     worker.freed += vector.packets().len();
//!     vector.free();
//! }
//!
//! # fn main() -> Result<(), mmb_dpdk::Error> {
//! Eal::init(&EalConfig { huge: HugePages::Never, privileged: false, ..EalConfig::default() })?;
//! let pool = Mempool::create("packets", 1024, 2048, 256)?;
//! let nodes = [
//!     NodeDef { name: "source", kind: NodeKind::Source(source), next: &["sink"] },
//!     NodeDef { name: "sink", kind: NodeKind::Inner(sink), next: &[] },
//! ];
//! let mut graph = Graph::build("example", &nodes, Box::new(Worker { pool, freed: 0 }))?;
//! graph.walk();
//! assert_eq!((graph.state().freed, graph.stats()[1].packets), (32, 32));
//! # Ok(())
//! # }
//! ```

mod eal;
mod error;
mod graph;
mod log;
mod memory;
mod port;
mod xdp;

pub use eal::{Eal, EalConfig, HugePages, ThreadGuard, needs_physical_addresses, rdtsc, register_thread};
pub use error::{Error, GraphError, PoolError, PortError, RingError};
pub use graph::{Emit, Graph, NodeDef, NodeKind, NodeStats, Observer, StatsHandle, Vector, WALK_MAX};
pub use log::LogLevel;
pub use memory::{
    Burst, HEADROOM, MAX_DATA_ROOM, Mbuf, MemoryFile, Mempool, Packet, PinnedFrame, PoolFile, ReadablePool,
    RingReceiver, RingSender, Segments, SharedMemory, Slots, Tail, VECTOR_MAX, populate, ring, segment,
};
pub use port::{
    Device, FlowAddresses, FlowError, FlowFate, FlowHandle, FlowPattern, FlowProto, FlowRule, LroGuard,
    NetDev, Offloads, Port, PortInfo, PortSpec, PortStats, ReceiveLarge, ReceiveOffload, RxQueue,
    TwinTraffic, TxCount, TxQueue, is_veth, redirect_reports,
};
pub use xdp::{
    FAST_FIN, FAST_RST, FAST_SLOTS, FastAction, FastFlowStats, FastGranularity, FastHook, FastKey, FastMacs,
    FastNumbers, FastPath, FastPort, FastTranslation, SelectorError, SocketSelector, Steering,
};
