//! Bytes of connections that a broker ends, for stream functions.

mod connection;
pub(crate) mod raw;

pub use connection::ByteStreams;
pub use raw::{Follows, Refusal};
