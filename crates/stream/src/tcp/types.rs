//! What goes into and comes out of [`super::TcpStream`].

use crate::View;

/// The facts about a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number. Valid with [`Segment::ACK`].
    pub ack: u32,
    /// Bytes of payload.
    pub len: u16,
    /// The window as in the header.
    pub window: u16,
    /// The lower eight flags as in the header.
    pub flags: u8,
    /// The window scale option of a SYN.
    pub scale: Option<u8>,
    /// A SYN permits selective acknowledgements (RFC 2018).
    pub permits_sack: bool,
}

impl Segment {
    /// Flags (RFC 9293, 3.1).
    pub const FIN: u8 = 0x01;
    /// See [`Segment::FIN`].
    pub const SYN: u8 = 0x02;
    /// See [`Segment::FIN`].
    pub const RST: u8 = 0x04;
    /// See [`Segment::FIN`].
    pub const ACK: u8 = 0x10;

    /// Returns the number behind its bytes. That of a FIN does not count.
    pub fn end(&self) -> u32 {
        let is_syn = self.flags & Segment::SYN != 0;
        self.seq.wrapping_add(self.len.into()).wrapping_add(is_syn.into())
    }

    /// Whether it opens a connection and has data already.
    pub(super) fn is_syn_with_data(&self) -> bool {
        self.flags & (Segment::SYN | Segment::ACK) == Segment::SYN && self.len != 0
    }
}

/// What becomes of connections whose beginning was not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnPickup {
    /// They pass, and are not read.
    #[default]
    Pass,
    /// They are read from the next byte on.
    Inspect,
    /// They are reset.
    Reset,
}

impl OnPickup {
    /// The word of the setting `stream-pickup`.
    pub fn word(self) -> &'static str {
        match self {
            OnPickup::Pass => "pass",
            OnPickup::Inspect => "inspect",
            OnPickup::Reset => "reset",
        }
    }
}

/// What becomes of a segment that has to wait if there is no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnOverflow {
    /// It is dropped. The sender will repeat it.
    #[default]
    Drop,
    /// The connection passes, and is not read any more.
    Pass,
    /// The connection is reset.
    Reset,
}

impl OnOverflow {
    /// The word of the setting `stream-overflow`.
    pub fn word(self) -> &'static str {
        match self {
            OnOverflow::Drop => "drop",
            OnOverflow::Pass => "pass",
            OnOverflow::Reset => "reset",
        }
    }
}

/// What becomes of connections that ask for several paths (RFC 8684), in front of functions that edit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnMptcp {
    /// The option is removed from SYNs, so that they become connections of one path.
    #[default]
    Strip,
    /// They pass, and are not edited.
    Pass,
}

impl OnMptcp {
    /// The word of the setting `stream-mptcp`.
    pub fn word(self) -> &'static str {
        match self {
            OnMptcp::Strip => "strip",
            OnMptcp::Pass => "pass",
        }
    }
}

/// Settings of all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What becomes of connections whose beginning was not seen.
    pub pickup: OnPickup,
    /// What becomes of a segment that has to wait if there is no room.
    pub overflow: OnOverflow,
    /// What becomes of connections that ask for several paths.
    pub mptcp: OnMptcp,
    /// Least time in milliseconds for which bytes that functions hold back do not go on although their sender
    /// repeats them.
    pub hold_time: u32,
}

impl Policy {
    /// The default of [`Policy::hold_time`]. It is longer than the shortest retransmission timeout of usual
    /// hosts, 200 ms: what follows the bytes may be lost once.
    pub const HOLD_TIME: u32 = 300;
    /// The greatest [`Policy::hold_time`]. Most hosts repeat for longer before they give up.
    pub const MOST_HOLD_TIME: u32 = 10_000;
}

impl Default for Policy {
    fn default() -> Self {
        let (pickup, overflow) = (OnPickup::default(), OnOverflow::default());
        Policy { pickup, overflow, mptcp: OnMptcp::default(), hold_time: Policy::HOLD_TIME }
    }
}

/// Why something has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// Nothing to count.
    #[default]
    None,
    /// All bytes of the segment have gone on before.
    Retransmitted,
    /// Some bytes of the segment have gone on before.
    Overlap,
    /// A reset that the receiver does not accept.
    ResetOutside,
    /// The segment is outside of the receiver's window.
    OutsideWindow,
    /// The segment has bytes behind the end of the stream.
    BehindEnd,
    /// A held segment has the same bytes.
    Duplicate,
    /// There is no room to hold the segment.
    NoRoom,
    /// No SYN was seen.
    NoSyn,
    /// The receiver has acknowledged bytes that were not seen.
    Gap,
    /// The segment is in several IP fragments.
    Fragment,
    /// The segment repeats bytes with others in their place.
    Conflict,
    /// There is no room to keep bytes until they are acknowledged.
    NotKept,
    /// The segment comes in by the port of the other end.
    WrongPort,
    /// No function reads the connection any more.
    Detached,
}

impl Cause {
    /// All causes.
    pub const ALL: [Cause; 15] = [
        Cause::None,
        Cause::Retransmitted,
        Cause::Overlap,
        Cause::ResetOutside,
        Cause::OutsideWindow,
        Cause::BehindEnd,
        Cause::Duplicate,
        Cause::NoRoom,
        Cause::NoSyn,
        Cause::Gap,
        Cause::Fragment,
        Cause::Conflict,
        Cause::NotKept,
        Cause::WrongPort,
        Cause::Detached,
    ];
}

/// What becomes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The segment goes on. The view has its new bytes. Segments that wait may follow it.
    Pass(View, Cause),
    /// The segment waits for the bytes in front of it, unless the caller has no room.
    Hold(HeldRange),
    /// The segment is dropped.
    Drop(Cause),
    /// The connection is not read any more. The segment and all that wait go on without views.
    Stop(Cause),
    /// The connection is to be reset.
    Reset(Cause),
}

/// The bytes of a segment that waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldRange {
    /// Number of its first byte.
    pub from: u32,
    /// Number behind its last byte.
    pub to: u32,
    /// A FIN follows.
    pub has_fin: bool,
}

impl HeldRange {
    /// Returns the number of bytes.
    pub fn len(self) -> u64 {
        self.to.wrapping_sub(self.from).into()
    }

    /// Whether the segment has neither bytes nor a FIN.
    pub fn is_empty(self) -> bool {
        self.from == self.to && !self.has_fin
    }

    /// Whether all of another segment is in this one.
    pub fn contains(self, other: HeldRange) -> bool {
        let is_end_inside = !crate::is_after(other.to, self.to);
        !crate::is_before(other.from, self.from)
            && is_end_inside
            && (!other.has_fin || self.has_fin && self.to == other.to)
    }
}

/// What becomes of the first segment that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHeld {
    /// Bytes in front of it are missing.
    Wait,
    /// It goes on, with these new bytes.
    Pass(View),
    /// It has bytes behind the end of the stream, and is dropped.
    Drop,
}

/// Whether a connection is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// No segment was seen.
    New,
    /// The connection is read.
    Read,
    /// No function wants to read the connection any more. It passes from the next segment on.
    Leaving,
    /// The connection passes and is not read.
    Passed(Cause),
}

impl Status {
    pub(super) const fn number(self) -> u8 {
        match self {
            Status::New => 0,
            Status::Read => 1,
            Status::Leaving => 2,
            Status::Passed(cause) => 3 + cause as u8,
        }
    }

    pub(super) fn of(number: u8) -> Status {
        match number {
            0 => Status::New,
            1 => Status::Read,
            2 => Status::Leaving,
            _ => Status::Passed(Cause::ALL.get(usize::from(number) - 3).copied().unwrap_or_default()),
        }
    }
}
