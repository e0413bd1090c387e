//! Errors of ports.

use crate::engine::config::MAX_PORTS;
use crate::engine::pools::{ORDINARY, PoolError};
use mmb_system::FileError;

/// Why a port did not open, or does not do what it is told.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// All port numbers are in use.
    #[error("no room for port {0}: an engine has at most {MAX_PORTS} ports")]
    TooMany(String),
    /// A port with this number is open.
    #[error("{0} is open already")]
    Open(String),
    /// A null port cannot generate frames of this size.
    #[error("invalid frame size: null ports generate frames of at most {ORDINARY} bytes")]
    FrameSize,
    /// The device refused.
    #[error(transparent)]
    Device(#[from] mmb_dpdk::Error),
    /// A file of the port cannot be opened.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no memory for jumbo frames.
    #[error(transparent)]
    Memory(#[from] PoolError),
}
