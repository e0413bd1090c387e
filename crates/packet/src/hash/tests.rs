//! Tests of the parent module.

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
