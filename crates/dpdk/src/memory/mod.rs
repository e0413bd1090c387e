//! Packet memory: pools of buffers, owned and borrowed packets, arrays of packets, rings between threads.

mod burst;
mod file;
mod mbuf;
mod mempool;
mod packet;
mod pool_memory;
mod populate;
mod readable;
mod ring;
mod scatter;
mod segment;

pub use burst::{Burst, Slots, VECTOR_MAX};
pub use file::{MemoryFile, SharedMemory};
pub(crate) use mbuf::MAX_BUFFERS;
pub use mbuf::Mbuf;
pub(crate) use mempool::Registration;
pub use mempool::{HEADROOM, MAX_DATA_ROOM, Mempool};
pub(crate) use packet::register_fields;
pub use packet::{Packet, Segments, Tail};
pub use pool_memory::PoolFile;
pub use populate::populate;
pub use readable::{PinnedFrame, ReadablePool};
pub use ring::{RingReceiver, RingSender, ring};
pub(crate) use scatter::ScatterBuffers;
pub use segment::segment;
pub(crate) use segment::{MAX_SEGMENTS, complete_from, complete_single, is_intact, segment_as};
