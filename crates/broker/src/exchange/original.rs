//! The server that a client of a transparent broker has connected to.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use mmb_nf::{ChosenServer, Upstream};

/// The original destination of a connection, as the only server.
pub(super) struct Original(SocketAddr);

impl Original {
    pub fn upstream(address: SocketAddr) -> Arc<dyn Upstream> {
        Arc::new(Original(address))
    }
}

/// Whether an address names a server on any other machine. A client must not get to what this machine offers
/// to itself.
pub(crate) fn is_server(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(ip) => {
            !(ip.is_loopback()
                || ip.is_unspecified()
                || ip.is_multicast()
                || ip.is_broadcast()
                || ip.is_link_local())
        }
        IpAddr::V6(ip) => {
            !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || ip.is_unicast_link_local())
        }
    }
}

impl Upstream for Original {
    fn choose(&self, _: IpAddr, _: Option<u16>, tried: &[u16]) -> Option<ChosenServer> {
        let Original(address) = *self;
        (tried.is_empty() && is_server(address.ip().to_canonical()))
            .then_some(ChosenServer { number: 0, address })
    }

    fn retries(&self) -> usize {
        0
    }

    fn begin(&self, _: u16) {}

    fn end(&self, _: u16, _: bool) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_destination_is_tried_once() {
        let address: SocketAddr = "192.0.2.1:80".parse().unwrap();
        let server = Original::upstream(address);
        let choose = |tried: &[u16]| server.choose(address.ip(), None, tried).map(|server| server.address);
        assert_eq!((choose(&[]), choose(&[0]), server.retries()), (Some(address), None, 0));
    }

    #[test]
    fn this_machine_and_groups_are_no_servers() {
        for text in [
            "127.0.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "169.254.1.1",
            "::1",
            "::",
            "ff02::1",
            "fe80::1",
            "::ffff:127.0.0.1",
        ] {
            let server = Original::upstream(SocketAddr::new(text.parse().unwrap(), 80));
            assert!(server.choose(IpAddr::from([192, 0, 2, 1]), None, &[]).is_none(), "{text}");
        }
    }
}
