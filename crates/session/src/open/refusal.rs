//! Why a session is not opened by this worker.

use mmb_flow::InsertError;
use mmb_packet::DropReason;

/// Why a session is not opened by this worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The packet is dropped.
    Drop(DropReason),
    /// The session is another worker's to open.
    HandOff(u16),
    /// It is another worker's to find. If that worker has none, it opens none.
    HandOffUnopened(u16),
    /// The packet came from this worker, which opens the session with the translation that is left there.
    Return(u16),
    /// The packet is dropped, and its sender gets an ICMP error from this address.
    Reject(DropReason, [u8; 16]),
    /// A function has turned the packet into its answer.
    Answered,
}

impl From<DropReason> for Refusal {
    fn from(reason: DropReason) -> Refusal {
        Refusal::Drop(reason)
    }
}

impl From<InsertError> for Refusal {
    fn from(error: InsertError) -> Refusal {
        Refusal::Drop(match error {
            InsertError::Taken(_) => DropReason::NatExhausted,
            InsertError::Full | InsertError::Crowded => DropReason::SessionFull,
        })
    }
}
