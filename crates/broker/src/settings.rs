//! Limits and times of a broker.

use serde::{Deserialize, Serialize};

/// Limits and times of a broker. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Most connections of clients. Others wait in the queue of the kernel.
    pub connections: usize,
    /// Most connections of a source address (IPv6: of a network of 64 bits). Others are closed.
    pub source_connections: usize,
    /// Most bytes of the body of a request. None: any number.
    pub body_limit: Option<u64>,
    /// How long a client has for the head of a request.
    pub header_timeout: u64,
    /// How long a connection of a client is kept without a request.
    pub idle_timeout: u64,
    /// How long a server has to accept a connection.
    pub connect_timeout: u64,
    /// How long an exchange may wait for either side without a byte.
    pub response_timeout: u64,
    /// How long a tunnel is kept without a byte.
    pub tunnel_timeout: u64,
    /// Servers see the addresses of clients. The thread must be where the addresses of others can be used.
    pub keeps_source: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            connections: 16_384,
            source_connections: 4096,
            body_limit: None,
            header_timeout: 10_000,
            idle_timeout: 60_000,
            connect_timeout: 5_000,
            response_timeout: 60_000,
            tunnel_timeout: 3_600_000,
            keeps_source: false,
        }
    }
}

/// How long a connection to a server is kept without a request. Servers close theirs later. Since the one
/// that was used last is used first, no more are kept than were in use at once within this time.
pub(crate) const SERVER_IDLE: u64 = 30_000;
/// How long the bytes of a client are discarded behind an answer that ends its connection.
pub(crate) const LINGER: u64 = 2_000;
/// How long open exchanges have after the broker was deleted.
pub(crate) const GRACE: u64 = 30_000;
/// How long connections of a deleted broker are kept behind their last request. A client that is just sending
/// another one gets its answer, and learns from it that the connection ends.
pub(crate) const PARTING: u64 = 1_000;
