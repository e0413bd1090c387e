//! Why edits are refused.

use mmb_packet::PacketFlags;

use crate::Packet;

/// Why an edit is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The stream cannot be edited: see [`StreamEdit::can_edit`].
    #[error("the connection cannot be edited")]
    NotEditable,
    /// The number of bytes would change, and no segment of the other direction was seen: see
    /// [`StreamEdit::can_resize`].
    #[error("only one direction of the connection was seen, so its bytes can only be overwritten")]
    OneWay,
    /// The bytes are in an IP fragment of a datagram.
    #[error("fragments of datagrams are not edited")]
    Fragment,
    /// Some of the bytes have left in an earlier datagram: see [`StreamEdit::gone`].
    #[error("the bytes have left in an earlier datagram")]
    Gone,
    /// The datagram would become longer than its output takes.
    #[error("the datagram would exceed the MTU of its output")]
    Mtu,
    /// The length of the datagram would change, and its UDP length is not that of its IP packet.
    #[error("the UDP length is not that of the IP packet")]
    UdpLength,
    /// There are too many edits, or too many new bytes, at a time.
    #[error("too many edits or new bytes at a time")]
    TooMany,
    /// Edits are not in order, overlap, or are outside of the bytes.
    #[error("the edit is outside of the bytes, or in front of the end of another one")]
    OutOfOrder,
}

impl EditError {
    /// All reasons, in the order of their numbers.
    pub const ALL: [EditError; 8] = [
        EditError::NotEditable,
        EditError::OneWay,
        EditError::Fragment,
        EditError::Gone,
        EditError::Mtu,
        EditError::UdpLength,
        EditError::TooMany,
        EditError::OutOfOrder,
    ];

    /// Returns the name of the reason, as counters have it.
    pub fn name(self) -> &'static str {
        match self {
            EditError::NotEditable => "not-editable",
            EditError::OneWay => "one-way",
            EditError::Fragment => "fragment",
            EditError::Gone => "gone",
            EditError::Mtu => "mtu",
            EditError::UdpLength => "udp-length",
            EditError::TooMany => "too-many",
            EditError::OutOfOrder => "order",
        }
    }

    /// Returns why a packet cannot be edited.
    pub(super) fn of_packet(packet: &Packet<'_>) -> EditError {
        match packet.meta.flags.contains(PacketFlags::FRAGMENT) {
            true => EditError::Fragment,
            false => EditError::NotEditable,
        }
    }
}
