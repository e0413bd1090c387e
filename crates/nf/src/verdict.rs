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

/// What a stream function decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamVerdict {
    /// The bytes go on.
    #[default]
    Pass,
    /// The bytes go on, and the function reads no more of the session, in neither direction. If no other
    /// function reads it, its packets pass without being put in order, kept or copied.
    ///
    /// The function may still get bytes of packets that have arrived before. If it holds bytes back, this is
    /// as [`StreamVerdict::Pass`]. After a [`StreamFunction::restart`] it reads again. After a change of the
    /// chain it may read again, too.
    Detach,
    /// The packet and all further ones of the session are dropped, in both directions, until rules or chains
    /// change.
    Block(DropReason),
    /// As [`StreamVerdict::Block`], and both ends of a TCP connection get a reset.
    Reset(DropReason),
    /// As [`StreamVerdict::Block`], and both ends of a TCP connection get a FIN: they read an end of file.
    /// The FIN has the place of the packet's new bytes. FINs of the ends are acknowledged later, and further
    /// bytes are answered by a reset. A connection that functions edit is reset.
    Close(DropReason),
    /// The function has no room for the state of this stream. The setting `stream-overflow` decides: the
    /// bytes go on, or the session is blocked or reset.
    NoRoom,
    /// The packet is dropped. Its bytes would come again and not be read, so a function that drops a packet
    /// drops all later ones of the session too: see [`StreamFunction::packet`] and [`crate::TakenOver`].
    Drop(DropReason),
    /// The packet is dropped, and its session ends.
    End(DropReason),
}

impl StreamVerdict {
    /// Whether no further packet of the session goes on.
    pub(crate) fn ends_stream(self) -> bool {
        match self {
            StreamVerdict::Block(_)
            | StreamVerdict::Reset(_)
            | StreamVerdict::Close(_)
            | StreamVerdict::End(_) => true,
            StreamVerdict::Pass | StreamVerdict::Detach | StreamVerdict::NoRoom | StreamVerdict::Drop(_) => {
                false
            }
        }
    }

    /// Returns the verdict on further packets of a session that does not go on.
    pub(crate) fn on_following(self) -> StreamVerdict {
        match self {
            // Both ends have got a reset already.
            StreamVerdict::Reset(reason) => StreamVerdict::Block(reason),
            // The ends have got a FIN, and the session waits for theirs.
            StreamVerdict::Close(reason) | StreamVerdict::End(reason) => StreamVerdict::Drop(reason),
            other => other,
        }
    }
}

/// What comes back of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessVerdict {
    /// The verdict of a function of packets.
    Packet(Verdict),
    /// The verdict of a stream function on the new bytes of the packet.
    Stream(StreamVerdict),
    /// The function has not got the packet, or its state of the session went with an earlier process.
    Lost,
}

/// What a function in a process may do with the bytes of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EditRights {
    /// Bytes can be edited.
    pub can_edit: bool,
    /// No segment of the other direction was seen: the number of bytes stays.
    pub is_one_way: bool,
    /// Bytes of the longest IP packet that the output of a datagram takes.
    pub most: u16,
    /// An answer to the client could follow now: see [`crate::TakenOver::can_begin`].
    pub may_answer: bool,
    /// Functions in front have changed the bytes: the packet that the process gets has these in the place of
    /// its payload.
    pub changed: Option<ChangedBytes>,
}

impl EditRights {
    /// Of bytes that cannot be edited.
    pub const NONE: EditRights =
        EditRights { can_edit: false, is_one_way: false, most: 0, may_answer: false, changed: None };
}

/// What bytes that functions have changed stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangedBytes {
    /// The sender's number of the first one.
    pub from: u32,
    /// Bytes of the sender. 0: nothing is left of the packet, neither bytes nor removed ones.
    pub input: u32,
}

/// Most bytes of what a function in a process asks for in a packet: see [`HostedFunction::result`].
pub const MOST_RESULT: usize = 65_000;
