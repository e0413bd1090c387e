//! What the process takes from the system: files that clients name, and the log.

#![forbid(unsafe_code)]

mod files;
pub mod log;

pub use files::{FileAccess, FileError, SocketPlace};
