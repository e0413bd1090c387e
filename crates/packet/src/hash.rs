//! The symmetric flow hash.
//!
//! Theory of operation. Each end of a flow (address and port) becomes one 64-bit number. The folded
//! 64x64->128 product of both is the same in both directions, because multiplication commutes. Unlike an
//! exclusive or, it keeps flows such as `a+k -> b+k` apart. A final multiplication spreads the result.
//!
//! The key selects one of the functions. Each factor contains a word of the key, so that no sender knows the
//! difference between two products, nor an end that makes the product 0. The last factor is odd: two
//! different products are on the same of n workers with a probability of at most 2/n (multiply-shift;
//! Dietzfelbinger et al., 1997). The daemon draws the key at start, so that no sender can choose flows that
//! all belong to one worker. Numbers are read in native byte order, so the hash is local to a machine.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The key of [`flow_hash4`] and [`flow_hash6`], the same for all threads.
static KEY: [AtomicU64; 4] = {
    let [ends, high, low, last] = FlowHashKey::FIXED.0;
    [AtomicU64::new(ends), AtomicU64::new(high), AtomicU64::new(low), AtomicU64::new(last)]
};

/// Sets the key of [`flow_hash4`] and [`flow_hash6`] for the whole process. Call it before the first packet:
/// a flow has another hash afterwards.
pub fn set_flow_hash_key(key: FlowHashKey) {
    KEY.iter().zip(key.0).for_each(|(word, new)| word.store(new, Relaxed));
}

/// A secret that selects a flow hash. It has no `Debug`, so that it does not get into a log.
#[derive(Clone, Copy)]
pub struct FlowHashKey([u64; 4]);

impl FlowHashKey {
    /// The key of a process that has set none, for simulations and tests: packets are hashed alike each time.
    pub const FIXED: FlowHashKey = FlowHashKey([
        0x9e37_79b9_7f4a_7c15,
        0xa076_1d64_78bd_642f,
        0xe703_7ed1_a0b4_28db,
        0xff51_afd7_ed55_8ccd,
    ]);

    /// A key of random words.
    pub fn new([ends, high, low, last]: [u64; 4]) -> FlowHashKey {
        FlowHashKey([ends, high, low, last | 1])
    }

    #[inline(always)]
    fn of_process() -> FlowHashKey {
        let [ends, high, low, last] = &KEY;
        FlowHashKey([ends.load(Relaxed), high.load(Relaxed), low.load(Relaxed), last.load(Relaxed)])
    }

    /// Hash of an IPv4 flow with this key; see [`flow_hash4`].
    #[inline(always)]
    pub fn hash4(self, addresses: [u8; 8], ports: [u8; 4], proto: u8) -> u32 {
        let [source, destination]: [u32; 2] = bytemuck::cast(addresses);
        let [sport, dport]: [u16; 2] = bytemuck::cast(ports);
        let end = |address: u32, port: u16| u64::from(address) << 16 | u64::from(port);
        self.hash(end(source, sport), end(destination, dport), proto)
    }

    /// Hash of an IPv6 flow with this key; see [`flow_hash6`].
    #[inline(always)]
    pub fn hash6(self, addresses: &[u8; 32], ports: [u8; 4], proto: u8) -> u32 {
        let [_, high, low, _] = self.0;
        let [s0, s1, d0, d1]: [u64; 4] = bytemuck::cast(*addresses);
        let [sport, dport]: [u16; 2] = bytemuck::cast(ports);
        let end = |hi, lo, port: u16| fold_mul(hi ^ high, lo ^ low).wrapping_add(u64::from(port));
        self.hash(end(s0, s1, sport), end(d0, d1, dport), proto)
    }

    #[inline(always)]
    fn hash(self, a: u64, b: u64, proto: u8) -> u32 {
        let [ends, .., last] = self.0;
        let mut h = fold_mul(a ^ ends, b ^ ends) ^ u64::from(proto);
        h ^= h >> 32;
        (h.wrapping_mul(last) >> 32) as u32
    }
}

#[inline]
fn fold_mul(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    wide as u64 ^ (wide >> 64) as u64
}

/// Hash of an IPv4 flow (see [`crate::Meta::flow_hash`]): source and destination address, then source and
/// destination port, all in wire order. Ports are zero for packets without ports.
#[inline]
pub fn flow_hash4(addresses: [u8; 8], ports: [u8; 4], proto: u8) -> u32 {
    FlowHashKey::of_process().hash4(addresses, ports, proto)
}

/// Hash of an IPv6 flow: 16 bytes of source, 16 bytes of destination address; ports as for [`flow_hash4`].
#[inline]
pub fn flow_hash6(addresses: &[u8; 32], ports: [u8; 4], proto: u8) -> u32 {
    FlowHashKey::of_process().hash6(addresses, ports, proto)
}

#[cfg(test)]
mod tests;
