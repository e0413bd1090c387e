//! Prefixes of both address families.

use std::fmt::Debug;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mmb_route::{NextHopId, RouteTable};

/// An address as a number, in host byte order.
pub(crate) trait AddressBits: Copy + Ord + Hash + Default + Debug + 'static {
    /// Number of bits of an address.
    const BITS: u8;
    /// Whether the family is IPv6.
    const V6: bool;
    /// Prefixes that are never routed: multicast and link-local. They belong to the kernel.
    const RESERVED: &'static [Prefix<Self>];

    fn of(address: IpAddr) -> Option<Self>;
    fn address(self) -> IpAddr;
    /// The first `length` bits.
    fn first(self, length: u8) -> Self;
    /// Sets all bits behind the first `length`.
    fn last(self, length: u8) -> Self;
    fn insert(table: &mut RouteTable, prefix: Prefix<Self>, hop: NextHopId);
    fn remove(table: &mut RouteTable, prefix: Prefix<Self>);
}

/// A prefix. In the order of prefixes, a prefix precedes those inside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Prefix<A> {
    pub bits: A,
    pub length: u8,
}

impl<A: AddressBits> Prefix<A> {
    /// The prefix of this length. Bits behind it are ignored. None if the address is of the other family.
    pub fn new(address: IpAddr, length: u8) -> Option<Prefix<A>> {
        let length = length.min(A::BITS);
        Some(Prefix { bits: A::of(address)?.first(length), length })
    }

    /// The prefix of one address.
    pub fn host(bits: A) -> Prefix<A> {
        Prefix { bits, length: A::BITS }
    }

    /// The prefix of this length that contains this one.
    pub fn within(self, length: u8) -> Prefix<A> {
        Prefix { bits: self.bits.first(length), length }
    }

    pub fn contains(self, other: Prefix<A>) -> bool {
        other.length >= self.length && other.bits.first(self.length) == self.bits
    }

    /// The last prefix, in order, inside this one.
    pub fn end(self) -> Prefix<A> {
        Prefix { bits: self.bits.last(self.length), length: A::BITS }
    }

    /// Whether packets to it always belong to the kernel.
    pub fn is_reserved(self) -> bool {
        A::RESERVED.iter().any(|reserved| reserved.contains(self))
    }
}

impl AddressBits for u32 {
    const BITS: u8 = 32;
    const V6: bool = false;
    // RFC 5771, RFC 919.
    const RESERVED: &'static [Prefix<u32>] =
        &[Prefix { bits: 0xe000_0000, length: 4 }, Prefix { bits: u32::MAX, length: 32 }];

    fn of(address: IpAddr) -> Option<u32> {
        match address {
            IpAddr::V4(address) => Some(address.into()),
            IpAddr::V6(_) => None,
        }
    }

    fn address(self) -> IpAddr {
        Ipv4Addr::from(self).into()
    }

    fn first(self, length: u8) -> u32 {
        self & u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
    }

    fn last(self, length: u8) -> u32 {
        self | u32::MAX.checked_shr(u32::from(length)).unwrap_or(0)
    }

    fn insert(table: &mut RouteTable, prefix: Prefix<u32>, hop: NextHopId) {
        table.ip4.insert(prefix.bits.into(), prefix.length, hop);
    }

    fn remove(table: &mut RouteTable, prefix: Prefix<u32>) {
        table.ip4.remove(prefix.bits.into(), prefix.length);
    }
}

impl AddressBits for u128 {
    const BITS: u8 = 128;
    const V6: bool = true;
    // RFC 4291, sections 2.5.6 and 2.7.
    const RESERVED: &'static [Prefix<u128>] =
        &[Prefix { bits: 0xfe80 << 112, length: 10 }, Prefix { bits: 0xff << 120, length: 8 }];

    fn of(address: IpAddr) -> Option<u128> {
        match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(address.into()),
        }
    }

    fn address(self) -> IpAddr {
        Ipv6Addr::from(self).into()
    }

    fn first(self, length: u8) -> u128 {
        self & u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
    }

    fn last(self, length: u8) -> u128 {
        self | u128::MAX.checked_shr(u32::from(length)).unwrap_or(0)
    }

    fn insert(table: &mut RouteTable, prefix: Prefix<u128>, hop: NextHopId) {
        table.ip6.insert(prefix.bits.into(), prefix.length, hop);
    }

    fn remove(table: &mut RouteTable, prefix: Prefix<u128>) {
        table.ip6.remove(prefix.bits.into(), prefix.length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(bits: u32, length: u8) -> Prefix<u32> {
        Prefix { bits, length }
    }

    #[test]
    fn a_prefix_precedes_those_inside_it() {
        let outer = p(0x0a00_0000, 8);
        for inner in [outer, p(0x0a00_0000, 32), p(0x0a01_0000, 16), p(0x0aff_ffff, 32)] {
            assert!(outer.contains(inner) && outer <= inner && inner <= outer.end());
        }
        for other in [p(0x0b00_0000, 8), p(0x0900_0000, 8), p(0x0a00_0000, 7), p(0, 0)] {
            assert!(!(outer.contains(other) || (outer <= other && other <= outer.end())));
        }
        assert_eq!(p(0, 0).end(), p(u32::MAX, 32));
        assert_eq!(Prefix::<u128>::default().end().bits, u128::MAX);
    }

    #[test]
    fn reserved_prefixes() {
        assert!(p(0xe100_0000, 8).is_reserved() && p(u32::MAX, 32).is_reserved());
        assert!(!p(0, 0).is_reserved() && !p(0xf000_0000, 4).is_reserved());
        let six = |text: &str, length| Prefix::<u128>::new(text.parse().expect("an address"), length);
        assert!(six("fe80::", 64).is_some_and(Prefix::is_reserved));
        assert!(six("ff02::1", 128).is_some_and(Prefix::is_reserved));
        assert!(!six("fc00::", 7).is_some_and(Prefix::is_reserved));
    }
}
