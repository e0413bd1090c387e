//! What the process takes from the system: files that clients name, files that outlive it, memory, and the
//! log.

#![forbid(unsafe_code)]

mod files;
mod interface_files;
pub mod log;
mod memory;
pub mod syslog;
mod whole_file;

pub use files::{FileAccess, FileError, FromStart, SocketPlace};
pub use interface_files::{InterfaceFiles, LeftFile};
pub use memory::{GroupMemory, exhausted_group, exhausted_group_of_reserved, reserve_memory};
pub use whole_file::{replace_file, take_file};
