//! The machine's own addresses, for ports whose devices cannot recognise them (an XDP program can).
//!
//! Theory of operation. Packets for the machine itself go to the kernel, and its answers do not pass rules or
//! sessions. So these packets must not meet rules or sessions either. Few packets have such a destination. A
//! filter of 64 bits, of which each address sets one, excludes most others; only then is the list of
//! addresses searched.

use std::net::IpAddr;

use crate::engine::config::{MAX_PORTS, PortId};

/// The addresses of one port.
#[derive(Clone, Debug, Default)]
struct PortAddresses {
    bits: u64,
    addresses: Vec<IpAddr>,
}

/// The machine's own addresses, by input port.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalAddresses([PortAddresses; MAX_PORTS]);

/// Hashes an IPv4 address to a number from 0 to 63.
#[inline(always)]
pub(crate) fn hash4(address: u32) -> u32 {
    address.wrapping_mul(0x9e37_79b1) >> 26
}

/// Hashes an IPv6 address to a number from 0 to 63.
#[inline(always)]
pub(crate) fn hash6(address: u128) -> u32 {
    let folded = (address >> 64) as u64 ^ address as u64;
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as u32
}

impl LocalAddresses {
    /// A copy in which `addresses` are the addresses of one port.
    pub fn with(&self, port: PortId, addresses: &[IpAddr]) -> LocalAddresses {
        let mut all = self.clone();
        if let Some(index) = port.index() {
            let mut addresses = addresses.to_vec();
            addresses.sort_unstable();
            let bit = |address: &IpAddr| match *address {
                IpAddr::V4(address) => 1 << hash4(address.into()),
                IpAddr::V6(address) => 1 << hash6(address.into()),
            };
            let bits = addresses.iter().map(bit).fold(0u64, |bits, bit| bits | bit);
            all.0[index] = PortAddresses { bits, addresses };
        }
        all
    }

    /// The filter of a port: bit `h` is set if some address has the hash `h`.
    #[inline(always)]
    pub fn bits(&self, port: u16) -> u64 {
        self.0.get(usize::from(port)).map_or(0, |port| port.bits)
    }

    /// Whether an address with this hash may be in the list; false is exact.
    #[inline(always)]
    pub fn may_contain(&self, port: u16, hash: u32) -> bool {
        self.bits(port) >> hash & 1 != 0
    }

    /// Whether the address is in the list.
    #[cold]
    pub fn contains(&self, port: u16, address: Option<IpAddr>) -> bool {
        let Some(address) = address else { return false };
        self.0.get(usize::from(port)).is_some_and(|port| port.addresses.binary_search(&address).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_has_its_own_addresses() {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let own = [address("10.0.0.1"), address("2001:db8::1"), address("192.0.2.1")];
        let locals = LocalAddresses::default()
            .with(PortId(3), &own)
            .with(PortId(4), &own[..1])
            .with(PortId(4), &own[1..2]);
        for (port, all) in [(3, &own[..]), (4, &own[1..2]), (5, &[]), (u16::MAX, &[])] {
            for address in own {
                let hash = match address {
                    IpAddr::V4(address) => hash4(address.into()),
                    IpAddr::V6(address) => hash6(address.into()),
                };
                assert_eq!(locals.contains(port, Some(address)), all.contains(&address));
                assert!(locals.may_contain(port, hash) || !all.contains(&address));
            }
        }
        assert!(!locals.contains(3, Some(address("10.0.0.2"))) && !locals.contains(3, None));
    }
}
