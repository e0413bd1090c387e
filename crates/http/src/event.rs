//! What the parser reports.

use crate::Cause;

/// What bytes belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// The method of a request.
    Method,
    /// The target of a request.
    Target,
    /// The reason phrase of a response.
    Reason,
    /// The name of a header.
    Name,
    /// The value of a header. White space in front of it is left out, behind it not.
    Value,
    /// The content of a message, without the framing of chunks.
    Body,
    /// The name of a trailer.
    TrailerName,
    /// The value of a trailer.
    TrailerValue,
}

/// A request's properties that decide how its response ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestClass {
    /// The method is HEAD.
    pub is_head: bool,
    /// The method is CONNECT.
    pub is_connect: bool,
    /// The request has a header Upgrade.
    pub has_upgrade: bool,
}

/// How a message ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// With the headers.
    None,
    /// After a number of bytes.
    Length(u64),
    /// With a chunk of length 0 and trailers.
    Chunked,
    /// With the connection.
    UntilClose,
    /// Never: the bytes behind the headers belong to another protocol.
    Switched,
}

impl Body {
    /// Whether the message may have a byte behind its headers.
    pub fn has_bytes(self) -> bool {
        !matches!(self, Body::None | Body::Length(0) | Body::Switched)
    }
}

/// The headers of a message are complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The status of a response. 0: a request.
    pub status: u16,
    /// The version is 1.`minor`.
    pub minor: u8,
    /// How the message ends.
    pub body: Body,
    /// The request, or the one that a response answers. None: the response answers none.
    pub request: Option<RequestClass>,
}

impl Head {
    /// Whether a final response follows this one (RFC 9110, 15.2).
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }
}

/// What the parser has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'b> {
    /// All bytes are used, and more are needed.
    More,
    /// Bytes of an element, at least one. More of them may follow in the next event.
    Bytes(Element, &'b [u8]),
    /// An element of the first line or of a header is complete. It may have no bytes.
    End(Element),
    /// The headers are complete.
    Head(Head),
    /// A chunk of this many bytes follows. 0: the trailers follow.
    Chunk(u64),
    /// The message is complete.
    Done,
    /// Bytes that are not read, since the connection is not HTTP/1.x or not any more.
    Opaque(&'b [u8]),
    /// The bytes are not accepted. Further calls return the same, until the caller gives up the connection.
    Invalid(Cause),
}
