//! Stream functions between a socket and the messages on it.
//!
//! Theory of operation. Bytes of a client pass the functions before they are parsed, and bytes for a client
//! after they were written. So functions see what the client sends and gets, as they do in a stream of
//! packets. What a function holds back goes on when the response is complete, or after [`HOLD`].

use mmb_nf::{ByteStreams, Direction, Follows, Refusal};

/// For how many milliseconds functions may hold bytes of an exchange back while nothing is received.
pub(crate) const HOLD: u64 = 300;

/// The functions of a connection.
#[derive(Debug)]
pub(crate) struct Filter {
    streams: ByteStreams,
    /// What the functions have left of bytes.
    text: Vec<u8>,
    /// What follows the bytes for the client that are not filtered yet.
    follows: Follows,
    /// A function has not let the connection go on.
    refusal: Option<Refusal>,
}

impl Filter {
    pub fn new(streams: ByteStreams) -> Filter {
        Filter { streams, text: Vec::new(), follows: Follows::More, refusal: None }
    }

    /// Passes bytes of the client. Returns what goes on. None: nothing does any more.
    pub fn received(&mut self, bytes: &[u8], follows: Follows) -> Option<&mut Vec<u8>> {
        self.text.clear();
        self.push(Direction::Forward, bytes, follows).then_some(&mut self.text)
    }

    /// What follows the bytes for the client.
    pub fn set_follows(&mut self, follows: Follows) {
        if self.follows != Follows::End {
            self.follows = follows;
        }
    }

    /// Replaces the bytes of `text` from a position on by those that go on. False: nothing does any more.
    pub fn write(&mut self, text: &mut Vec<u8>, from: usize) -> bool {
        let follows = std::mem::replace(&mut self.follows, Follows::More);
        let new = text.get(from..).unwrap_or_default();
        if new.is_empty() && follows == Follows::More {
            return self.refusal.is_none();
        }
        self.text.clear();
        let goes_on = self.push(Direction::Reverse, new, follows);
        text.truncate(from);
        text.append(&mut self.text);
        goes_on
    }

    fn push(&mut self, direction: Direction, bytes: &[u8], follows: Follows) -> bool {
        if self.refusal.is_none() {
            self.refusal = self.streams.push(direction, bytes, follows, &mut self.text).err();
        }
        self.refusal.is_none()
    }

    /// Whether functions hold bytes back.
    pub fn is_holding(&self) -> bool {
        self.streams.is_holding(Direction::Forward) || self.streams.is_holding(Direction::Reverse)
    }

    /// Returns what becomes of the connection if a function has refused it.
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }
}
