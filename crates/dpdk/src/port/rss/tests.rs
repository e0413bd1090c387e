//! Tests of the parent module.

use std::collections::HashSet;

use super::*;

/// The Toeplitz hash of an IPv4 flow: source address, destination address, source port, destination port.
fn toeplitz(key: &[u8], input: [u8; 12]) -> u32 {
    let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
    let window = |at: usize| (at..at + 32).fold(0, |word: u32, at| word << 1 | u32::from(bit(key, at)));
    (0..96).filter(|&at| bit(&input, at) == 1).fold(0, |hash, at| hash ^ window(at))
}

fn flow(source: [u8; 4], destination: [u8; 4], ports: [u16; 2]) -> [u8; 12] {
    let [from, to] = ports.map(u16::to_be_bytes);
    bytemuck::cast([source, destination, [from[0], from[1], to[0], to[1]]])
}

/// Flows whose 16-bit words have the same exclusive or: the source address follows the source port.
fn crafted() -> impl Iterator<Item = [u8; 12]> {
    (1..=2000u16).map(|port| {
        let [high, low] = port.to_be_bytes();
        flow([10, 0, high, low], [198, 18, 0, 1], [port, 80])
    })
}

/// Microsoft, "Verifying the RSS hash calculation": key and first two results.
#[test]
fn the_hash_of_these_tests_is_the_one_of_devices() {
    let key = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
        0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
        0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];
    assert_eq!(toeplitz(&key, flow([66, 9, 149, 187], [161, 142, 100, 80], [2794, 1766])), 0x51cc_c178);
    assert_eq!(toeplitz(&key, flow([199, 92, 111, 2], [65, 69, 140, 83], [14230, 4739])), 0xc626_b0ea);
}

#[test]
fn flows_that_collide_under_every_symmetric_key_spread() {
    for pattern in [0x6d5a, 0x1234, 0xfedc, 0x8001] {
        let key: Vec<u8> = [u16::to_be_bytes(pattern); 20].concat();
        let hashes: HashSet<_> = crafted().map(|flow| toeplitz(&key, flow)).collect();
        assert_eq!(hashes.len(), 1, "{pattern:x}");
    }
    // A random linear map of 11 bits onto 32 loses a bit of them with a probability of 2^-21 or so.
    let key = draw_key();
    let hashes: HashSet<_> = crafted().map(|flow| toeplitz(&key, flow)).collect();
    assert!(hashes.len() >= 500, "{} of 2000 hashes", hashes.len());
}

#[test]
fn each_port_has_a_key_of_its_own() {
    let keys: HashSet<_> = (0..8).map(|_| draw_key()).collect();
    assert_eq!(keys.len(), 8);
    assert!(keys.iter().all(|key| key.iter().collect::<HashSet<_>>().len() > 16), "no pattern repeats");
}
