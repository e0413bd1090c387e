//! Functions in processes of their own: pools and rings of descriptors in shared memory (MiddleNet,
//! sections III and IV).
//!
//! # Theory of operation
//! A *pool* is a sealed memory file of buffers with a fixed size. A packet is copied into a buffer, and a
//! *descriptor* of 16 bytes goes to the function's process over a *ring*. The descriptor comes back over
//! another ring, with the verdict. Each ring has one producer and one consumer. Nothing but offsets is
//! shared: processes map the memory at different addresses.
//!
//! The owner of the pool trusts nothing that comes back. It notes in memory of its own what is in flight
//! ([`Ledger`]) and compares ([`Ledger::accept`]). All shared words are atomic, so bytes that change at any
//! time are no undefined behaviour here; what is checked is read once.
//!
//! The types are generic over the words ([`Words`]): of a [`SharedMemory`], of a slice in tests under Miri,
//! or of `loom` in its models.

mod descriptor;
mod doorbell;
mod memory;
mod pool;
mod ring;
mod words;

pub use descriptor::Descriptor;
pub use doorbell::{Bell, EventBell, Sleeper, Waker};
pub use memory::{Region, SharedMemory};
pub use pool::{BUFFER_HEADER, Ledger, Pool, Rejected};
pub use ring::{Broken, Consumer, Producer, clear as clear_ring, words as ring_words};
pub use words::{Word, Words, read_bytes, write_bytes};
