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
//! A function with `process` in its line runs in a process that the [`Supervisor`] starts ([`Host`]). Each
//! worker has a [`link`] with it. The process runs the same function as a worker would ([`runtime`]).
//!
//! A broker with such functions runs in such a process as a whole: [`run_function`] hands it over.
//!
//! The types of the base are generic over the words ([`Words`]): of a [`SharedMemory`], of a slice in tests
//! under Miri, or of `loom` in its models.

mod descriptor;
mod doorbell;
mod host;
mod layout;
mod link;
mod memory;
pub mod message;
mod pool;
mod report;
mod ring;
mod runtime;
pub mod sandbox;
mod shared;
mod supervisor;
mod words;

pub use descriptor::Descriptor;
pub use doorbell::{Bell, EventBell, Sleeper, Waker};
pub use host::{HANG, Host};
pub use memory::{Region, SharedMemory};
pub use pool::{BUFFER_HEADER, Ledger, Pool, Rejected};
pub use report::{cpu_time, is_runnable};
pub use ring::{Broken, Consumer, Producer, words as ring_words};
pub use runtime::{BrokerStart, RunBroker, run_function};
pub use supervisor::{
    FUNCTION, FunctionCount, NewProcess, RestartPace, SUPERVISOR, Supervisor, has_ended, run_supervisor,
};
pub use words::{Word, Words, read_bytes, write_bytes};
