//! What functions decide about packets.

use mmb_packet::DropReason;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// The packet goes on.
    #[default]
    Pass,
    /// The packet goes on by the output with this number. A number that does not exist drops it
    /// ([`DropReason::ChainError`]).
    Branch(u8),
    /// The packet is dropped.
    Drop(DropReason),
    /// The packet ends here, and is no drop: its bytes leave in other frames, or nothing of them is left.
    Consume,
    /// The packet is dropped. The flow manager drops all further packets of the session until rules or chains
    /// change.
    Refuse(DropReason),
    /// The packet is dropped, and its session ends.
    End(DropReason),
    /// The packet is kept until the function releases or drops it ([`crate::Context::held`]). Released ones
    /// go on behind the function, in front of later packets of their session and direction.
    ///
    /// The packet is dropped instead if the limits are reached ([`DropReason::HeldFull`]), or if
    /// [`crate::Function::HOLDS`] is not set ([`DropReason::ChainError`]). A held packet is dropped after the
    /// timeout `held`, and when its session ends or leaves the function.
    Hold,
}
