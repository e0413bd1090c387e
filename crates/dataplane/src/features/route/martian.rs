//! Addresses that a router must not forward, and those that no packet may have.
//!
//! Theory of operation. [`is_martian4`] and [`is_martian6`] are for packets that are about to be routed. They
//! are tested for whole vectors, without branches. [`is_impossible4`] and [`is_impossible6`] are for packets
//! as they come in, before NAT gives them another source. They hold less, because these packets may also stay
//! on their link: link-local sources are possible.

/// Whether a source is of this network, this host, a group, or reserved, or a destination of this network or
/// this host (RFC 1812, 5.3.7), or both are the same. Reserved destinations are routed, as by Linux.
#[inline(always)]
pub(crate) fn is_martian4(source: u32, destination: u32) -> bool {
    (source >> 29 == 7) | is_this_host4(source) | is_this_host4(destination) | (source == destination)
}

/// Whether no packet may have these addresses, except [`is_link_query4`].
#[inline(always)]
pub(crate) fn is_impossible4(source: u32, destination: u32) -> bool {
    is_martian4(source, destination)
}

/// 0.0.0.0/8 and 127.0.0.0/8.
#[inline(always)]
fn is_this_host4(address: u32) -> bool {
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
