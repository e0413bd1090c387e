//! Addresses that a router must not forward, and those that no packet may have.
//!
//! Theory of operation. [`is_martian4`] and [`is_martian6`] are for packets that are about to be routed. They
//! are tested for whole vectors, without branches. [`is_impossible4`] and [`is_impossible6`] are for packets
//! as they come in, before NAT gives them another source. They hold less, because these packets may also stay
//! on their link: link-local sources are possible.

/// Whether a source is of this network, this host, a group, or reserved, or a destination of this network or
/// this host (RFC 1812, 5.3.7), or both are the same. Reserved destinations are routed, as by Linux.
#[inline(always)]
pub(crate) const fn is_martian4(source: u32, destination: u32) -> bool {
    (source >> 29 == 7) | is_this_host4(source) | is_this_host4(destination) | (source == destination)
}

/// Whether no packet may have these addresses, except [`is_link_query4`]: they are martian. For single
/// packets, where a table takes fewer instructions than [`is_martian4`].
#[inline(always)]
pub(crate) fn is_impossible4(source: [u8; 4], destination: [u8; 4]) -> bool {
    let (from, to) = (IMPOSSIBLE[usize::from(source[0])], IMPOSSIBLE[usize::from(destination[0])]);
    ((from | to >> 1) & 1 != 0) | (source == destination)
}

/// By the first octet of an address: bit 0 if no source begins with it, bit 1 if no destination does.
static IMPOSSIBLE: [u8; 256] = {
    let (mut bits, mut octet) = ([0; 256], 0);
    while octet < 256 {
        let (address, other) = ((octet as u32) << 24, 0x0a00_0001);
        bits[octet] = is_martian4(address, other) as u8 | (is_martian4(other, address) as u8) << 1;
        octet += 1;
    }
    bits
};

/// 0.0.0.0/8 and 127.0.0.0/8.
#[inline(always)]
const fn is_this_host4(address: u32) -> bool {
    (address >> 24 == 0) | (address >> 24 == 127)
}

/// Whether a host without an address may send the packet on its link: source 0.0.0.0, and a destination that
/// is a group or all hosts. DHCP (RFC 2131, 4.1) and queries of snooping switches (RFC 4541, 2.1.1) need it.
pub(crate) fn is_link_query4(source: u32, destination: u32) -> bool {
    source == 0 && (destination >> 28 == 0xe || destination == u32::MAX)
}

/// Whether a source is link-local, or the addresses are impossible (RFC 4291, 2.5.6).
#[inline(always)]
pub(crate) fn is_martian6(source: u128, destination: u128) -> bool {
    is_impossible6(source, destination) | is_link_local(source)
}

/// Whether a source is multicast, unspecified, loopback or a mapped IPv4 address, or a destination
/// unspecified or loopback (RFC 4291, 2.5.2, 2.5.3, 2.5.5.2, 2.7), or both are the same.
#[inline(always)]
pub(crate) fn is_impossible6(source: u128, destination: u128) -> bool {
    (source >> 120 == 0xff)
        | (source <= 1)
        | (source >> 32 == 0xffff)
        | (destination <= 1)
        | (source == destination)
}

/// Whether a host without an address may send the packet on its link: an unspecified source, and a group as
/// destination. Duplicate address detection (RFC 4862, 5.4.2) and multicast listeners (RFC 3590) need it.
pub(crate) fn is_link_query6(source: u128, destination: u128) -> bool {
    source == 0 && destination >> 120 == 0xff
}

/// Whether an IPv6 address is link-local (fe80::/10). Packets to such a destination are never forwarded; they
/// may be for the machine itself, so they go to the kernel, whatever routes say.
#[inline(always)]
pub(crate) fn is_link_local(address: u128) -> bool {
    address >> 118 == 0x3fa
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An address whose first octet is often special.
    fn address() -> impl Strategy<Value = u32> {
        let octet =
            prop_oneof![Just(0u8), Just(126), Just(127), Just(128), Just(223), Just(224), any::<u8>()];
        (octet, 0..3u32).prop_map(|(octet, rest)| u32::from(octet) << 24 | rest)
    }

    proptest! {
        #[test]
        fn the_table_is_about_martian_addresses(source in address(), destination in address()) {
            let impossible = is_impossible4(source.to_be_bytes(), destination.to_be_bytes());
            prop_assert_eq!(impossible, is_martian4(source, destination));
        }
    }
}
