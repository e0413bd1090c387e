//! Properties of the mirror of the kernel's routes for any messages. The fuzz target `netlink` runs them on
//! the fuzzer's bytes, a test of the crate on the corpus.
//!
//! * No datagram panics, and the walk over its messages ends.
//! * Each entry of a table has a different prefix, and they are in order.
//! * Each address of an entry has a next hop that is no group.
//! * After a dump that reports nothing, nothing is left.

use std::net::IpAddr;

use mmb_route::NextHopKind;
use mmb_router::testing::MirroredState;

/// Maximum number of datagrams of an input.
const DATAGRAMS: usize = 64;

/// Panics if a property does not hold. An input is a list of datagrams: a byte that tells what happens, a
/// byte with the length in units of four bytes, and the datagram.
pub fn check(mut bytes: &[u8]) {
    let mut state = MirroredState::default();
    state.set_ports(&[1, 2, 3]);
    for _ in 0..DATAGRAMS {
        let Some((&[what, length], rest)) = bytes.split_first_chunk() else { break };
        let (datagram, rest) = rest.split_at(rest.len().min(usize::from(length) * 4));
        bytes = rest;
        match what & 7 {
            0 => state.begin_dump(),
            1 => state.end_dump(),
            2 => state.set_ports(&[u32::from(what >> 3), 2]),
            3 => {
                state.receive(datagram, true);
            }
            _ => {
                state.receive(datagram, false);
            }
        }
        check_state(&mut state);
    }
    for _ in 0..2 {
        state.begin_dump();
        state.end_dump();
    }
    assert_eq!(state.entries(), []);
    check_state(&mut state);
}

fn check_state(state: &mut MirroredState) {
    let entries = state.entries();
    let key = |n: usize| (entries[n].key.table, entries[n].key.prefix, entries[n].key.length);
    for n in 1..entries.len() {
        assert_ne!(key(n - 1), key(n));
    }
    let routes = state.routes(&[]);
    for table in &routes.tables {
        for entry in &entries {
            let hop = match entry.key.prefix {
                IpAddr::V4(address) => table.ip4.lookup(address.to_bits()),
                IpAddr::V6(address) => table.ip6.lookup(address.to_bits()),
            };
            assert_ne!(routes.hops.for_flow(hop, 7).kind, NextHopKind::Group, "a group within a group");
        }
    }
}
