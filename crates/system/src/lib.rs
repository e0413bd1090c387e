//! What the process takes from the system: files that clients name, memory, and the log.

#![forbid(unsafe_code)]

mod files;
pub mod log;
mod memory;

pub use files::{FileAccess, FileError, SocketPlace};
pub use memory::{GroupMemory, exhausted_group};
