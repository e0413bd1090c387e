//! Addresses that a router must not forward.

/// Whether a source is of this network, this host, a group, or reserved, or a destination of this network or
/// this host (RFC 1812, 5.3.7). Reserved destinations are routed, as by Linux.
#[inline(always)]
pub(super) fn is_martian4(source: u32, destination: u32) -> bool {
    (source >> 29 == 7) | is_this_host4(source) | is_this_host4(destination)
}

/// 0.0.0.0/8 and 127.0.0.0/8.
#[inline(always)]
fn is_this_host4(address: u32) -> bool {
    (address >> 24 == 0) | (address >> 24 == 127)
}

/// Whether a source is multicast, unspecified, loopback or link-local, or a destination unspecified or
/// loopback (RFC 4291, 2.5.2, 2.5.3, 2.5.6, 2.7).
#[inline(always)]
pub(super) fn is_martian6(source: u128, destination: u128) -> bool {
    (source >> 120 == 0xff) | (source <= 1) | is_link_local(source) | (destination <= 1)
}

/// Whether an IPv6 address is link-local (fe80::/10). Packets to such a destination are never forwarded; they
/// may be for the machine itself, so they go to the kernel, whatever routes say.
#[inline(always)]
pub(super) fn is_link_local(address: u128) -> bool {
    address >> 118 == 0x3fa
}
