//! Brokers of layer 7.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::Word;

/// `broker add NAME [listen ADDRESS:PORT] [transparent [keep-source]] chain CHAIN [OPTION NUMBER]…`:
/// connections whose HTTP requests pass a chain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Broker {
    /// Its name.
    pub name: Word,
    /// The address on which it listens. The port is not 0. None: it is transparent only.
    pub listen: Option<SocketAddr>,
    /// It gets the connections, to any address, that rules with the target `broker` select.
    pub is_transparent: bool,
    /// Servers see the addresses of the clients of a transparent broker.
    pub keeps_source: bool,
    /// A chain of functions of layer 7.
    pub chain: Word,
    /// Limits and times that are not the defaults.
    pub options: BTreeMap<BrokerOption, u64>,
}

/// A limit or a time of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BrokerOption {
    /// Most connections of clients.
    Connections,
    /// Most connections of a source.
    SourceConnections,
    /// Most bytes of the body of a request.
    BodyLimit,
    /// Seconds that a client has for the head of a request.
    HeaderTimeout,
    /// Seconds for which a connection is kept without a request.
    IdleTimeout,
    /// Seconds that a server has to accept a connection.
    ConnectTimeout,
    /// Seconds that an exchange may wait for a byte.
    ResponseTimeout,
    /// Seconds for which a tunnel is kept without a byte.
    TunnelTimeout,
}

impl BrokerOption {
    /// The greatest number. The least one is 1, of a limit of bytes 0.
    pub fn max(self) -> u64 {
        match self {
            BrokerOption::Connections | BrokerOption::SourceConnections => 1_000_000,
            BrokerOption::BodyLimit => 1 << 50,
            _ => 604_800,
        }
    }

    /// The least number.
    pub fn min(self) -> u64 {
        u64::from(self != BrokerOption::BodyLimit)
    }
}
