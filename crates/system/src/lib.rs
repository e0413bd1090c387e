//! What the process takes from the system: files that clients name, and the log.

#![forbid(unsafe_code)]

mod files;

pub use files::{FileAccess, FileError, SocketPlace};
