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
mod tests {
    use super::*;
    use std::collections::HashSet;

    const A: [u8; 8] = [10, 0, 0, 1, 198, 18, 0, 1];

    fn reversed4([a, b, c, d, e, f, g, h]: [u8; 8]) -> [u8; 8] {
        [e, f, g, h, a, b, c, d]
    }

    #[test]
    fn both_directions_agree_and_protocols_differ() {
        let (there, back) = (flow_hash4(A, [0, 80, 1, 2], 6), flow_hash4(reversed4(A), [1, 2, 0, 80], 6));
        assert_eq!(there, back);
        assert_ne!(there, flow_hash4(A, [0, 80, 1, 2], 17));
        assert_ne!(there, flow_hash4(A, [1, 2, 0, 80], 6), "ports belong to their addresses");
        let (mut six, mut back6) = ([7; 32], [7; 32]);
        (six[3], back6[19]) = (1, 1);
        assert_eq!(flow_hash6(&six, [0, 80, 1, 2], 6), flow_hash6(&back6, [1, 2, 0, 80], 6));
        assert_ne!(flow_hash6(&six, [0, 80, 1, 2], 6), flow_hash6(&six, [1, 2, 0, 80], 6));
    }

    /// Flipping one input bit flips each output bit in about half of all cases.
    #[test]
    fn avalanche() {
        let mut flips = [0u32; 32];
        let mut trials = 0;
        for n in 0..64u8 {
            let base = [10, n, 3, n ^ 1, 198, 18, n, 9];
            for bit in 0..96 {
                let (mut addresses, mut ports) = (base, [n, 80, 4, n]);
                let byte = if bit < 64 { &mut addresses[bit / 8] } else { &mut ports[bit / 8 - 8] };
                *byte ^= 1 << (bit % 8);
                let change = flow_hash4(base, [n, 80, 4, n], 6) ^ flow_hash4(addresses, ports, 6);
                (0..32).for_each(|i| flips[i] += change >> i & 1);
                trials += 1;
            }
        }
        for (i, n) in flips.iter().enumerate() {
            assert!((trials * 2 / 5..trials * 3 / 5).contains(n), "bit {i}: {n} of {trials}");
        }
    }

    /// Consecutive addresses and ports, as traffic generators use them, neither collide nor cluster.
    #[test]
    fn regular_flows_spread() {
        let mut seen = HashSet::new();
        let mut workers = [0u32; 8];
        for n in 0..4096u16 {
            let [hi, lo] = n.to_be_bytes();
            for flow in [
                flow_hash4([10, 0, hi, lo, 198, 18, hi, lo], [0; 4], 17),
                flow_hash4([10, 0, 0, 1, 198, 18, 0, 1], [hi, lo, 0, 80], 6),
                flow_hash4([10, 0, hi, lo, 10, 0, 0, 1], [hi, lo, hi, lo], 6),
            ] {
                seen.insert(flow);
                workers[flow as usize % 8] += 1;
            }
        }
        assert!(seen.len() >= 3 * 4096 - 8, "{} different", seen.len());
        assert!(workers.iter().all(|n| (1380..1700).contains(n)), "{workers:?}");
    }
}
