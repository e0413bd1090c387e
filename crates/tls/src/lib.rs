//! The first message of a TLS client: which server it asks for.
//!
//! [`read_client_hello`] takes the first bytes of a connection, from its beginning on. It puts the message
//! together from its records, so that the borders of segments and records do not matter (RFC 8446, 5.1). What
//! two programs may understand differently is an error: a second name, a byte that names do not have.
//!
//! A server may ask for another ClientHello, and take the name of that: see [`retry`].
//!
//! [`quic`] finds the same message in the first datagrams of a QUIC client.

#![forbid(unsafe_code)]

mod cursor;
mod parse;
pub mod quic;
pub mod retry;

pub use parse::{ClientHello, HelloError, MOST_HELLO, Progress, read_client_hello};
