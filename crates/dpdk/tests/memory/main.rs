//! Packets, pools and rings, in an environment without privileges.

// A helper that fails panics, and so fails its test.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod growth;
mod packets;
mod pools;
mod rings;
mod sharing;

use std::collections::BTreeSet;

use mmb_dpdk::{Mbuf, Mempool};

fn pool(n: usize, room: usize) -> Mempool {
    Mempool::create("test", n, room, 0).unwrap()
}

/// Bytes of which adjacent ones differ.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// All packets that a pool has.
fn drain(pool: &Mempool) -> Vec<Mbuf> {
    std::iter::from_fn(|| pool.alloc()).collect()
}

/// Addresses of the buffers of packets.
fn places(packets: &[Mbuf]) -> BTreeSet<usize> {
    packets.iter().map(|packet| packet.data().as_ptr().addr()).collect()
}
