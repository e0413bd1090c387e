//! Tests of the parent module.

use super::*;
use proptest::prelude::*;
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

/// The worker of a hash, as `ip-input` chooses it.
fn worker(hash: u32, workers: u32) -> usize {
    ((u64::from(hash) * u64::from(workers)) >> 32) as usize
}

/// Counts how many of the hashes belong to each of eight workers.
fn shares(hashes: impl Iterator<Item = u32>) -> [usize; 8] {
    let mut shares = [0; 8];
    hashes.for_each(|hash| shares[worker(hash, 8)] += 1);
    shares
}

/// Whether each of eight workers has about its share: 3,000 of 8 give 375 each, with a deviation of 18.
fn is_even(shares: &[usize; 8]) -> bool {
    shares.iter().all(|share| (275..475).contains(share))
}

/// A sender that knows one key finds flows of one worker. With another key they are spread.
#[test]
fn flows_chosen_for_one_worker_spread_with_another_key() {
    let ours = FlowHashKey::new([1, 2, 3, 4].map(|n: u64| n.wrapping_mul(0xd6e8_feb8_6659_fd93)));
    let flows = |n: u32| ([10, 0, 0, 1, 198, 18, 0, 1], n.to_be_bytes());
    let crafted: Vec<_> = (0..)
        .map(flows)
        .filter(|&(addresses, ports)| worker(FlowHashKey::FIXED.hash4(addresses, ports, 6), 8) == 5)
        .take(3000)
        .collect();
    let with =
        |key: FlowHashKey| shares(crafted.iter().map(|&(addresses, ports)| key.hash4(addresses, ports, 6)));
    assert_eq!(with(FlowHashKey::FIXED)[5], 3000);
    assert!(is_even(&with(ours)), "{:?}", with(ours));
}

/// With a known key, all sources of a /64 can be given one hash: the upper half equals a word of the key, and
/// the product is 0. With another key they are spread.
#[test]
fn addresses_that_cancel_a_known_key_spread_with_another() {
    let [_, high, ..] = FlowHashKey::FIXED.0;
    let source = |n: u64| {
        let mut addresses = [9; 32];
        addresses[..8].copy_from_slice(&high.to_ne_bytes());
        addresses[8..16].copy_from_slice(&n.to_be_bytes());
        addresses
    };
    let with = |key: FlowHashKey| shares((0..3000).map(|n| key.hash6(&source(n), [1, 2, 3, 4], 17)));
    assert!(with(FlowHashKey::FIXED).contains(&3000));
    let ours = FlowHashKey::new([11, 12, 13, 14].map(|n: u64| n.wrapping_mul(0xd6e8_feb8_6659_fd93)));
    assert!(is_even(&with(ours)), "{:?}", with(ours));
}

proptest! {
    /// Whatever the key, both directions of a flow belong to the same worker.
    #[test]
    fn both_directions_agree_with_any_key(words: [u64; 4], ends: [[u8; 18]; 2], proto: u8) {
        let key = FlowHashKey::new(words);
        let hash = |[from, to]: [[u8; 18]; 2]| {
            let (four, six) = (|end: [u8; 18]| [end[0], end[1], end[2], end[3]], |end: [u8; 18]| end[2..].to_vec());
            let ports = [from[0], from[1], to[0], to[1]];
            let addresses6: Vec<u8> = [six(from), six(to)].concat();
            let addresses4: Vec<u8> = [four(from), four(to)].concat();
            (
                key.hash4(addresses4.try_into().unwrap(), ports, proto),
                key.hash6(&addresses6.try_into().unwrap(), ports, proto),
            )
        };
        prop_assert_eq!(hash(ends), hash([ends[1], ends[0]]));
    }
}
