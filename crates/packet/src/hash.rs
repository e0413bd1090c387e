//! The symmetric flow hash.
//!
//! Theory of operation. Each end of a flow (address and port) becomes one 64-bit number. The folded
//! 64x64->128 product of both is the same in both directions, because multiplication commutes. Unlike an
//! exclusive or, it keeps flows such as `a+k -> b+k` apart. A final multiplication between two shifts (as
//! in MurmurHash3) spreads the result. Numbers are read in native byte order, so the hash is local to a
//! machine.

const K1: u64 = 0x9e37_79b9_7f4a_7c15;
const K2: u64 = 0xa076_1d64_78bd_642f;
const K3: u64 = 0xe703_7ed1_a0b4_28db;
const LAST: u64 = 0xff51_afd7_ed55_8ccd;

#[inline]
fn fold_mul(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    wide as u64 ^ (wide >> 64) as u64
}

/// Hash of an IPv4 flow (see [`crate::Meta::flow_hash`]): source and destination address, then source and
/// destination port, all in wire order. Ports are zero for packets without ports.
#[inline]
pub fn flow_hash4(addresses: [u8; 8], ports: [u8; 4], proto: u8) -> u32 {
    let [source, destination]: [u32; 2] = bytemuck::cast(addresses);
    let [sport, dport]: [u16; 2] = bytemuck::cast(ports);
    let end = |address: u32, port: u16| u64::from(address) << 16 | u64::from(port);
    flow(end(source, sport), end(destination, dport), proto)
}

/// Hash of an IPv6 flow: 16 bytes of source, 16 bytes of destination address; ports as for [`flow_hash4`].
#[inline]
pub fn flow_hash6(addresses: &[u8; 32], ports: [u8; 4], proto: u8) -> u32 {
    let [s0, s1, d0, d1]: [u64; 4] = bytemuck::cast(*addresses);
    let [sport, dport]: [u16; 2] = bytemuck::cast(ports);
    let end = |hi, lo, port: u16| fold_mul(hi ^ K2, lo ^ K3).wrapping_add(u64::from(port));
    flow(end(s0, s1, sport), end(d0, d1, dport), proto)
}

#[inline]
fn flow(a: u64, b: u64, proto: u8) -> u32 {
    let mut h = fold_mul(a ^ K1, b ^ K1) ^ u64::from(proto);
    h ^= h >> 32;
    (h.wrapping_mul(LAST) >> 32) as u32
}

#[cfg(test)]
mod tests;
