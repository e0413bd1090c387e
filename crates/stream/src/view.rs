//! Which bytes of a packet are new.

/// The part of a packet's payload that stream functions have not seen yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Bytes at the beginning of the payload that are left out.
    pub skip: u16,
    /// Bytes that follow in order. 0: there is nothing new.
    pub len: u16,
    /// The sender's stream ends behind these bytes.
    pub is_end: bool,
    /// A new connection begins in front of these bytes, with the addresses and ports of the one before.
    pub is_restart: bool,
    /// Bytes that functions hold back have to go on: the sender repeats them.
    pub is_release: bool,
    /// The functions that read no more of the session: their bits, see [`crate::TcpStream::detach`].
    pub detached: u8,
}

impl View {
    /// The view of a packet without anything new.
    pub const NONE: View =
        View { skip: 0, len: 0, is_end: false, is_restart: false, is_release: false, detached: 0 };

    /// Returns the view of a packet whose payload of `len` bytes is new.
    #[inline(always)]
    pub fn all(len: u16) -> View {
        View { len, ..View::NONE }
    }

    /// Whether there is nothing to tell a stream function.
    #[inline(always)]
    pub fn is_none(self) -> bool {
        self.len == 0 && !self.is_end && !self.is_restart && !self.is_release
    }
}
