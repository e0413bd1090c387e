//! Memory that changes may take.

use mmb_system::{GroupMemory, exhausted_group};

/// Bytes that every change leaves to packets and sessions. A line of commands takes less.
const RESERVE: u64 = 24 << 20;
/// Bytes of memory for each byte of a configuration, while the old one is still in use: 20 to 32 were
/// measured.
const PER_BYTE: u64 = 40;

/// A change does not fit into the memory that a control group leaves.
#[derive(Debug, thiserror::Error)]
#[error("the change may need {needed} MiB of memory, and {left}; raise its limit, or delete rules")]
pub(super) struct OutOfMemory {
    /// MiB.
    needed: u64,
    left: GroupMemory,
}

/// Checks that a change fits into the memory that the control groups of the process leave. Otherwise the
/// kernel would kill the process. `text`: length of a configuration in bytes; 0 for a single line.
///
/// # Errors
/// It does not fit.
pub(super) fn check_memory(text: usize) -> Result<(), OutOfMemory> {
    let needed = RESERVE + PER_BYTE * text as u64;
    match exhausted_group(needed) {
        None => Ok(()),
        Some(left) => Err(OutOfMemory { needed: needed.div_ceil(1 << 20), left }),
    }
}
