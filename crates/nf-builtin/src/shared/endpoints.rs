//! A session's key as records and log lines show it.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use mmb_flow::Key;
use mmb_packet::Kind;

/// Addresses and ports of a [`Key`] as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoints {
    pub proto: u8,
    pub source: IpAddr,
    pub destination: IpAddr,
    /// TCP and UDP: source and destination port.
    pub ports: Option<(u16, u16)>,
    /// ICMP queries: type of the request and identifier.
    pub query: Option<(u8, u16)>,
}

impl Endpoints {
    pub fn of(key: &Key) -> Endpoints {
        let port = u16::from_be_bytes;
        let (source, destination) = (port(key.source_port), port(key.destination_port));
        let (mut ports, mut query) = (None, None);
        match (Kind(key.kind).l4(), key.asks) {
            (Kind::TCP | Kind::UDP, _) => ports = Some((source, destination)),
            (_, Key::BY_SOURCE) => query = Some((destination as u8, source)),
            (_, Key::BY_DESTINATION) => query = Some((source as u8, destination)),
            _ => {}
        }
        let address = |bytes: &[u8; 16]| match bytes.first_chunk::<4>() {
            Some(four) if key.is_ip4() => IpAddr::from(*four),
            _ => IpAddr::from(*bytes),
        };
        let (source, destination) = (address(&key.source), address(&key.destination));
        Endpoints { proto: key.proto, source, destination, ports, query }
    }

    /// Returns the name of the protocol, or its number.
    pub fn protocol(&self) -> Cow<'static, str> {
        mmb_lang::protocol_name(self.proto).map_or_else(|| self.proto.to_string().into(), Cow::from)
    }
}

/// `10.0.0.1:4000 -> 10.0.0.2:80`, `[2001:db8::1]:4000 -> [2001:db8::2]:53`, `10.0.0.1 -> 10.0.0.2 type 8 id
/// 5`.
impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.ports, self.query) {
            (Some((from, to)), _) => {
                let [source, destination] =
                    [(self.source, from), (self.destination, to)].map(std::net::SocketAddr::from);
                write!(f, "{source} -> {destination}")
            }
            (None, Some((kind, id))) => {
                write!(f, "{} -> {} type {kind} id {id}", self.source, self.destination)
            }
            (None, None) => write!(f, "{} -> {}", self.source, self.destination),
        }
    }
}

#[cfg(test)]
mod tests {
    use mmb_packet::build::{Frame, Icmp, Ip4, Ip6, Tcp, Transport, Udp};

    use super::*;
    use mmb_nf::testing::key_of_frame;

    #[test]
    fn endpoints_are_parsed_as_operators_write_them() {
        let ip4 = || Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]);
        let ip6 = |to: u16| Ip6::new([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], [0x2001, 0xdb8, 0, 0, 0, 0, 0, to]);
        let echo = |kind| Icmp { rest: [0, 5, 0, 1], ..Icmp::new(kind) };
        for (frame, text) in [
            (Frame::new(ip4(), Tcp::new(4000, 80)), "tcp 10.0.0.1:4000 -> 10.0.0.2:80"),
            (Frame::new(ip6(9), Udp::new(4000, 53)), "udp [2001:db8::1]:4000 -> [2001:db8::9]:53"),
            (Frame::new(ip4(), echo(8)), "icmp 10.0.0.1 -> 10.0.0.2 type 8 id 5"),
            (Frame::new(ip4(), echo(0)), "icmp 10.0.0.1 -> 10.0.0.2 type 8 id 5"),
            (Frame::new(ip6(3), echo(128)), "icmp6 2001:db8::1 -> 2001:db8::3 type 128 id 5"),
            (Frame::new(ip4(), Transport::Raw(47)), "gre 10.0.0.1 -> 10.0.0.2"),
        ] {
            let ends = Endpoints::of(&key_of_frame(&frame.build()));
            assert_eq!(format!("{} {ends}", ends.protocol()), text);
        }
    }
}
