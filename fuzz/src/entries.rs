//! Properties of a worker's entries in the XDP fast path, whatever the kernel's table says. The fuzz target
//! `entries` runs them on the fuzzer's bytes, a test of the crate on random bytes.
//!
//! * No value that is read back panics.
//! * Each entry ends once, and its slot is used again.

use mmb_dpdk::FastFlowStats;
use mmb_fastpath::testing::{EntryTable, key};

/// Slots of the table, and different flows.
const SLOTS: u32 = 8;
const FLOWS: u16 = 12;
/// Longer than all timeouts, in milliseconds.
const FOREVER: u32 = 20_000;

/// Panics if a property does not hold. An input is a list of steps: a byte that tells what happens, a byte
/// that selects a flow or a time, and what the kernel's table says.
pub fn check(mut bytes: &[u8]) {
    let mut table = EntryTable::new(SLOTS);
    let (mut now, mut generation) = (u32::MAX - 5_000, 1);
    let (mut installed, mut ended) = (0, 0);
    while let Some((&[what, value], rest)) = bytes.split_first_chunk() {
        bytes = rest;
        let flow = u16::from(value) % FLOWS;
        match what & 3 {
            0 => installed += usize::from(table.install(flow, generation, now)),
            1 => {
                let Some((words, rest)) = bytes.split_first_chunk::<29>() else { break };
                bytes = rest;
                table.kernel.set_stats(&key(flow), stats(words));
            }
            2 => now = now.wrapping_add(u32::from(value) * u32::from(what >> 2)),
            _ => generation += u64::from(what >> 7),
        }
        ended += table.sweep(generation, now).ended;
        assert!(table.len() <= SLOTS as usize);
        assert_eq!(table.len(), installed - ended);
    }
    for _ in 0..3 {
        now = now.wrapping_add(FOREVER);
        ended += table.sweep(generation + 1, now).ended;
    }
    assert_eq!((table.len(), ended), (0, installed));
    assert!((0..SLOTS as u16).all(|flow| table.install(flow, generation + 1, now)));
}

/// Whatever the kernel's table can say.
fn stats(words: &[u8; 29]) -> FastFlowStats {
    let number = |at: usize| u64::from_le_bytes(words[at..at + 8].try_into().expect("eight bytes"));
    let ack = u32::from_le_bytes(words[24..28].try_into().expect("four bytes"));
    FastFlowStats {
        packets: number(0),
        bytes: number(8),
        last: number(16),
        ended: words[28],
        fin_end: ack,
        ack: (words[28] & 0x80 != 0).then_some(ack),
    }
}
