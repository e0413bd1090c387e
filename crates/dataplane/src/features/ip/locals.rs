//! The machine's own addresses, for packets that come in by ports whose devices cannot tell them apart (an XDP program can).
//!
//! Theory of operation. Packets for the machine itself are the kernel's, and come back from there past rules and sessions; so they
//! must not meet any on their way to it. Few packets are for these addresses, so a packet's is first held against 64 bits, one of
//! which each address sets; only if that is set is it looked for.

use std::net::IpAddr;

use crate::engine::config::{MAX_PORTS, PortId};

/// The addresses of one port.
#[derive(Clone, Debug, Default)]
struct OfPort {
    bits: u64,
    addresses: Vec<IpAddr>,
}

/// By port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locals([OfPort; MAX_PORTS]);

/// An IPv4 address as a number from 0 to 63.
#[inline(always)]
pub(crate) fn hash4(address: u32) -> u32 {
    address.wrapping_mul(0x9e37_79b1) >> 26
}

/// An IPv6 address as a number from 0 to 63.
#[inline(always)]
pub(crate) fn hash6(address: u128) -> u32 {
    let folded = (address >> 64) as u64 ^ address as u64;
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as u32
}

impl Locals {
    /// The same, but for a port, for which these are all.
    pub fn with(&self, port: PortId, addresses: &[IpAddr]) -> Locals {
        let mut all = self.clone();
        if let Some(index) = port.index() {
            let mut addresses = addresses.to_vec();
            addresses.sort_unstable();
            let bit = |address: &IpAddr| match *address {
                IpAddr::V4(address) => 1 << hash4(address.into()),
                IpAddr::V6(address) => 1 << hash6(address.into()),
            };
            let bits = addresses.iter().map(bit).fold(0u64, |bits, bit| bits | bit);
            all.0[index] = OfPort { bits, addresses };
        }
        all
    }

    /// A bit for each hash that addresses of a port have.
    #[inline(always)]
    pub fn bits(&self, port: u16) -> u64 {
        self.0.get(usize::from(port)).map_or(0, |of_port| of_port.bits)
    }

    /// Whether an address with this hash may be one; `false` is for sure.
    #[inline(always)]
    pub fn may_have(&self, port: u16, hash: u32) -> bool {
        self.bits(port) >> hash & 1 != 0
    }

    /// Whether the address is one.
    #[cold]
    pub fn has(&self, port: u16, address: Option<IpAddr>) -> bool {
        let Some(address) = address else { return false };
        self.0.get(usize::from(port)).is_some_and(|of_port| of_port.addresses.binary_search(&address).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_has_its_own() {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let own = [address("10.0.0.1"), address("2001:db8::1"), address("192.0.2.1")];
        let locals =
            Locals::default().with(PortId(3), &own).with(PortId(4), &own[..1]).with(PortId(4), &own[1..2]);
        for (port, all) in [(3, &own[..]), (4, &own[1..2]), (5, &[]), (u16::MAX, &[])] {
            for address in own {
                let hash = match address {
                    IpAddr::V4(address) => hash4(address.into()),
                    IpAddr::V6(address) => hash6(address.into()),
                };
                assert_eq!(locals.has(port, Some(address)), all.contains(&address));
                assert!(locals.may_have(port, hash) || !all.contains(&address));
            }
        }
        assert!(!locals.has(3, Some(address("10.0.0.2"))) && !locals.has(3, None));
    }
}
