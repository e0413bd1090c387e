//! The machine's own addresses, for ports whose devices cannot recognise them (an XDP program can).
//!
//! Theory of operation. Packets for the machine itself go to the kernel, and its answers do not pass rules or
//! sessions. So these packets must not meet rules or sessions either. Few packets have such a destination. A
//! filter of 64 bits, of which each address sets one, excludes most others; only then is the list of
//! addresses searched.
//!
//! *Shared* addresses are the machine's, too, and a rule or NAT gives some packets to them away. These
//! packets are known only after sessions and rules were asked. So the slow path of sessions finds what is
//! left for the machine. Where no sessions are looked up, no rule can give an address away, and the packets
//! are the machine's.

use std::net::IpAddr;

use crate::engine::config::{MAX_PORTS, PortId};

/// The addresses of one port.
#[derive(Clone, Debug, Default)]
struct PortAddresses {
    own: AddressList,
    shared: AddressList,
}

/// A sorted list, and the filter in front of it.
#[derive(Clone, Debug, Default)]
struct AddressList {
    bits: u64,
    addresses: Vec<IpAddr>,
}

impl AddressList {
    fn new(addresses: &[IpAddr]) -> AddressList {
        let mut addresses = addresses.to_vec();
        addresses.sort_unstable();
        let bit = |address: &IpAddr| match *address {
            IpAddr::V4(address) => 1 << hash4(address.octets()),
            IpAddr::V6(address) => 1 << hash6(address.into()),
        };
        let bits = addresses.iter().map(bit).fold(0u64, |bits, bit| bits | bit);
        AddressList { bits, addresses }
    }

    fn contains(&self, address: &IpAddr) -> bool {
        self.addresses.binary_search(address).is_ok()
    }
}

/// The machine's own addresses, by input port.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalAddresses([PortAddresses; MAX_PORTS]);

/// Hashes an IPv4 address to a number from 0 to 63.
#[inline(always)]
pub(crate) fn hash4(address: [u8; 4]) -> u32 {
    u32::from_le_bytes(address).wrapping_mul(0x9e37_79b1) >> 26
}

/// Hashes an IPv6 address to a number from 0 to 63.
#[inline(always)]
pub(crate) fn hash6(address: u128) -> u32 {
    let folded = (address >> 64) as u64 ^ address as u64;
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as u32
}

impl LocalAddresses {
    /// A copy in which these are the addresses of one port: those that are the machine's alone, and the
    /// shared ones.
    pub fn with(&self, port: PortId, own: &[IpAddr], shared: &[IpAddr]) -> LocalAddresses {
        let mut all = self.clone();
        if let Some(index) = port.index() {
            let (own, shared) = (AddressList::new(own), AddressList::new(shared));
            all.0[index] = PortAddresses { own, shared };
        }
        all
    }

    /// The filter of a port: bit `h` is set if some address has the hash `h`, of those that are the machine's
    /// alone or, if `has_shared`, of all.
    #[inline(always)]
    pub fn bits(&self, port: u16, has_shared: bool) -> u64 {
        let bits = |port: &PortAddresses| port.own.bits | if has_shared { port.shared.bits } else { 0 };
        self.0.get(usize::from(port)).map_or(0, bits)
    }

    /// Whether an address with this hash may be the machine's, shared or not; false is exact.
    #[inline(always)]
    pub fn may_contain(&self, port: u16, hash: u32) -> bool {
        self.bits(port, true) >> hash & 1 != 0
    }

    /// Whether the address is the machine's alone.
    #[cold]
    pub fn contains(&self, port: u16, address: Option<IpAddr>) -> bool {
        let Some(address) = address else { return false };
        self.0.get(usize::from(port)).is_some_and(|port| port.own.contains(&address))
    }

    /// Whether the address is shared.
    #[cold]
    pub fn is_shared(&self, port: u16, address: Option<IpAddr>) -> bool {
        let Some(address) = address else { return false };
        self.0.get(usize::from(port)).is_some_and(|port| port.shared.contains(&address))
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
            .with(PortId(3), &own, &[])
            .with(PortId(4), &own[..1], &[])
            .with(PortId(4), &own[1..2], &own[2..]);
        for (port, all) in [(3, &own[..]), (4, &own[1..2]), (5, &[]), (u16::MAX, &[])] {
            for address in own {
                let hash = match address {
                    IpAddr::V4(address) => hash4(address.octets()),
                    IpAddr::V6(address) => hash6(address.into()),
                };
                assert_eq!(locals.contains(port, Some(address)), all.contains(&address));
                assert!(locals.may_contain(port, hash) || !all.contains(&address));
            }
        }
        assert!(!locals.contains(3, Some(address("10.0.0.2"))) && !locals.contains(3, None));
        for (port, shared) in [(3, &[][..]), (4, &own[2..]), (u16::MAX, &[])] {
            for address in own {
                assert_eq!(locals.is_shared(port, Some(address)), shared.contains(&address));
            }
        }
        assert_ne!(locals.bits(4, true), locals.bits(4, false));
    }
}
