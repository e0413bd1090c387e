//! HTTP/1.x as bytes come: requests, responses and their pairing (RFC 9110, RFC 9112).
//!
//! Theory of operation. A [`Connection`] is what is kept of both directions of a connection, as plain data
//! without pointers. It gets the bytes of a direction in pieces that may end anywhere, and turns them into
//! [`Event`]s: bytes of an element, the end of an element, the end of the headers, the end of a message. No
//! byte is kept. [`HeadBuffer`] puts together what a caller needs in one piece, such as target and host.
//!
//! The parser is strict. Where two recipients may understand a message differently, it reports a [`Cause`]
//! instead of a guess, since such messages carry hidden requests past filters ("request smuggling"). The
//! caller then ends the connection, or lets it pass unread.
//!
//! Characters are classified by one table ([`table`]); elements are taken in runs of a class. Packets are not
//! known here.

#![forbid(unsafe_code)]

mod cause;
mod connection;
mod event;
mod head;
mod message;
mod parser;
mod path;
mod reader;
mod table;
mod target;
mod word;

pub use cause::Cause;
pub use connection::Connection;
pub use event::{Body, Element, Event, Head, RequestClass};
pub use head::HeadBuffer;
pub use message::MessageHead;
pub use parser::{MOST_CHUNK_LINE, MOST_FIELDS, MOST_HEAD, MOST_LINE};
pub use path::normalize_path;
pub use reader::{RequestReader, ResponseReader};
pub use target::Target;
