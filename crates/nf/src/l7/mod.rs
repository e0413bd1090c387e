//! Functions of layer 7: they see the requests and responses of a broker, which ends TCP connections itself.
//!
//! A chain of such functions is used by brokers only (`broker add NAME listen ADDRESS:PORT chain CHAIN`). A
//! request passes the functions in the order of the chain, its response in the reverse order. Functions run
//! in the thread of the broker, and must not wait.

mod message;
mod typed;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};

pub use message::{
    L7Answer, L7Finished, L7Request, L7Response, L7Verdict, Peer, ServerState, ServersWatcher,
};
pub use typed::DynL7;
pub(crate) use typed::TypedL7;

use mmb_http::MessageHead;

use crate::{ArgError, Background, Setup};

/// What a function does with requests and responses.
pub trait L7Handler: Send + Sync + 'static {
    /// The state that each broker keeps for the function.
    type Local: Send + 'static;

    /// Makes the state of a broker.
    fn local(&self) -> Self::Local;

    /// Processes the head of a request. The body follows it without being seen.
    fn request(&self, request: &mut L7Request<'_>, local: &mut Self::Local) -> L7Verdict;

    /// Processes the head of a final response. The body follows it without being seen.
    fn response(&self, response: &mut L7Response<'_>, local: &mut Self::Local) -> L7Verdict {
        let _ = (response, local);
        L7Verdict::Pass
    }

    /// An exchange has ended that the function has passed or answered.
    fn finished(&self, exchange: &L7Finished, local: &mut Self::Local) {
        let _ = (exchange, local);
    }

    /// Returns the servers to which requests go, if the function knows some.
    fn upstream(&self) -> Option<Arc<dyn Upstream>> {
        None
    }
}

/// A type of function that only brokers can use.
pub trait L7Function: L7Handler + Sized {
    /// See [`crate::Function::TYPE`].
    const TYPE: &'static str;
    /// See [`crate::Function::USAGE`].
    const USAGE: &'static str;
    /// See [`crate::Function::HELP`].
    const HELP: &'static str;

    /// Makes an instance from the arguments behind its type.
    ///
    /// # Errors
    /// The argument that is wrong, and what is accepted.
    fn new(setup: &Setup<'_>) -> Result<Self, ArgError>;

    /// See [`crate::Function::set`].
    ///
    /// # Errors
    /// The argument that is wrong.
    fn set(&self, args: &[&str]) -> Result<(), ArgError> {
        let _ = args;
        Err(format!("a function of type `{}` has no settings", Self::TYPE).into())
    }

    /// See [`crate::Function::report`].
    fn report(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// See [`crate::Function::background`].
    fn background(&self) -> Option<Background> {
        None
    }
}

/// A server that was chosen for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenServer {
    /// Its number among the servers of its group.
    pub number: u16,
    /// Where it listens.
    pub address: SocketAddr,
}

/// A version of the PROXY protocol (haproxy.org, "The PROXY protocol").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeader {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

impl ProxyHeader {
    /// The beginning of a header of version 2.
    const SIGNATURE: &'static [u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

    /// Writes the header of a connection. None: the sender speaks for itself, as checks do.
    pub fn write(self, peer: Option<Peer>, out: &mut Vec<u8>) {
        let ends = peer.map(|Peer { client, broker }| {
            (client.ip().to_canonical(), broker.ip().to_canonical(), [client.port(), broker.port()])
        });
        let (family, addresses, ports) = match ends {
            Some((IpAddr::V4(from), IpAddr::V4(to), ports)) => {
                ("TCP4", [from.octets().as_slice(), &to.octets()].concat(), ports)
            }
            Some((IpAddr::V6(from), IpAddr::V6(to), ports)) => {
                ("TCP6", [from.octets().as_slice(), &to.octets()].concat(), ports)
            }
            _ => ("UNKNOWN", Vec::new(), [0; 2]),
        };
        match (self, ends) {
            (ProxyHeader::V1, Some((from, to, [source, destination]))) if !addresses.is_empty() => {
                out.extend_from_slice(
                    format!("PROXY {family} {from} {to} {source} {destination}\r\n").as_bytes(),
                );
            }
            (ProxyHeader::V1, _) => out.extend_from_slice(b"PROXY UNKNOWN\r\n"),
            (ProxyHeader::V2, _) => {
                // Version and command, family and protocol, and the length of what follows.
                let (command, protocol) = match family {
                    "TCP4" => (0x21, 0x11),
                    "TCP6" => (0x21, 0x21),
                    _ => (0x20, 0),
                };
                let len = if addresses.is_empty() { 0 } else { addresses.len() as u16 + 4 };
                out.extend_from_slice(Self::SIGNATURE);
                out.extend_from_slice(&[command, protocol]);
                out.extend_from_slice(&len.to_be_bytes());
                out.extend_from_slice(&addresses);
                if len != 0 {
                    ports.iter().for_each(|port| out.extend_from_slice(&port.to_be_bytes()));
                }
            }
        }
    }
}

/// A group of servers.
pub trait Upstream: Send + Sync {
    /// Returns the server that a request names, by a cookie that it got with an earlier response.
    fn preferred(&self, request: &MessageHead) -> Option<u16> {
        let _ = request;
        None
    }

    /// Chooses a server for a request of a client, other than those that were tried: the preferred one, if it
    /// can be reached. None: there is none.
    fn choose(&self, client: IpAddr, preferred: Option<u16>, tried: &[u16]) -> Option<ChosenServer>;

    /// Returns how a server learns the addresses of the client, if it does so in front of all requests. Then
    /// a connection to it is for one connection of a client.
    fn proxy_header(&self) -> Option<ProxyHeader> {
        None
    }

    /// Returns how many other servers are tried for a request.
    fn retries(&self) -> usize;

    /// Returns where the servers listen, in the order of their numbers.
    fn addresses(&self) -> Vec<SocketAddr> {
        Vec::new()
    }

    /// Returns the states of the servers, in the order of their numbers.
    fn states(&self) -> Vec<ServerState> {
        Vec::new()
    }

    /// Sets the states of the servers. A copy of a function, in a process without sockets, gets them from
    /// the daemon.
    fn set_states(&self, states: &[ServerState]) {
        let _ = states;
    }

    /// Tells a watcher of changes of states.
    fn watch(&self, watcher: Weak<dyn ServersWatcher>) {
        let _ = watcher;
    }

    /// A request is under way to a server.
    fn begin(&self, server: u16);

    /// A request to a server is over. `failed`: the server has not answered it.
    fn end(&self, server: u16, failed: bool);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(header: ProxyHeader, ends: Option<[&str; 2]>) -> Vec<u8> {
        let address = |end: &str| end.parse().unwrap();
        let peer = ends.map(|[client, broker]| Peer { client: address(client), broker: address(broker) });
        let mut out = Vec::new();
        header.write(peer, &mut out);
        out
    }

    /// The examples are those of the protocol's text, with other addresses.
    #[test]
    fn headers_name_both_ends() {
        let (v1, v2) = (ProxyHeader::V1, ProxyHeader::V2);
        let four = Some(["192.0.2.1:56324", "192.0.2.2:443"]);
        let six = Some(["[2001:db8::1]:1", "[2001:db8::2]:258"]);
        let mapped = Some(["192.0.2.1:56324", "[::ffff:192.0.2.2]:443"]);
        assert_eq!(written(v1, four), b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n");
        assert_eq!(written(v1, mapped), written(v1, four));
        assert_eq!(written(v1, six), b"PROXY TCP6 2001:db8::1 2001:db8::2 1 258\r\n");
        assert_eq!(written(v1, None), b"PROXY UNKNOWN\r\n");
        assert_eq!(written(v1, Some(["192.0.2.1:1", "[2001:db8::2]:2"])), b"PROXY UNKNOWN\r\n");
        let bytes = written(v2, four);
        assert_eq!(bytes[..12], *b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a");
        assert_eq!(bytes[12..], [0x21, 0x11, 0, 12, 192, 0, 2, 1, 192, 0, 2, 2, 0xdc, 4, 1, 0xbb]);
        let bytes = written(v2, six);
        assert_eq!(
            (bytes.len(), &bytes[12..16], &bytes[48..]),
            (52, &[0x21, 0x21, 0, 36][..], &[0, 1, 1, 2][..])
        );
        assert_eq!(written(v2, None)[12..], [0x20, 0, 0, 0]);
    }
}
