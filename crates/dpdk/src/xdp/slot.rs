//! A slot of the fast path in memory that kernel and process share (`struct fast_slot` in bpf/steer.h).

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use mmb_dpdk_sys as sys;

use super::fast_flow::{FAST_FIN, FAST_RST, FastFlowStats};
use super::format::{Action, Key, STAMP_WORDS};

/// One slot: three cache lines.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Slot {
    key: [AtomicU32; size_of::<Key>() / 4],
    version: AtomicU32,
    pub(super) stamp: AtomicU64,
    action: [AtomicU32; size_of::<Action>() / 4 - STAMP_WORDS],
    packets: AtomicU64,
    bytes: AtomicU64,
    pub(super) last: AtomicU64,
    seen: AtomicU32,
    ack: AtomicU32,
    rst: AtomicU32,
    padding2: AtomicU32,
    fin: AtomicU64,
}

const _: () = {
    assert!(size_of::<Slot>() == size_of::<sys::fast_slot>());
    assert!(offset_of!(Slot, key) == offset_of!(sys::fast_slot, key));
    assert!(offset_of!(Slot, version) == offset_of!(sys::fast_slot, version));
    assert!(offset_of!(Slot, stamp) == offset_of!(sys::fast_slot, action));
    assert!(offset_of!(sys::fast_action, stamp) == 0);
    assert!(offset_of!(sys::fast_action, out) == STAMP_WORDS * 4);
    assert!(offset_of!(Slot, packets) == offset_of!(sys::fast_slot, packets));
    assert!(offset_of!(Slot, last) == offset_of!(sys::fast_slot, last));
    assert!(offset_of!(Slot, seen) == offset_of!(sys::fast_slot, seen));
    assert!(offset_of!(Slot, ack) == offset_of!(sys::fast_slot, ack));
    assert!(offset_of!(Slot, fin) == offset_of!(sys::fast_slot, fin));
    assert!(offset_of!(Slot, rst) == offset_of!(sys::fast_slot, rst));
};

impl Slot {
    /// Writes a key and its action and resets the counters. The program ignores a slot whose version is odd
    /// or changes between two reads.
    pub(super) fn write(&self, stamp: u64, key: &Key, action: &Action) {
        let version = self.version.load(Ordering::Relaxed) & !1;
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.stamp.store(stamp, Ordering::Relaxed);
        let words = key.iter().chain(&action[STAMP_WORDS..]);
        for (to, word) in self.key.iter().chain(&self.action).zip(words) {
            to.store(*word, Ordering::Relaxed);
        }
        for counter in [&self.packets, &self.bytes, &self.last, &self.fin] {
            counter.store(0, Ordering::Relaxed);
        }
        for flag in [&self.seen, &self.rst] {
            flag.store(0, Ordering::Relaxed);
        }
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// Reads the counters.
    pub(super) fn stats(&self) -> FastFlowStats {
        // The program writes `fin` and `rst` last: a reader that sees them sees the rest.
        let (fin, rst) = (self.fin.load(Ordering::Acquire), self.rst.load(Ordering::Acquire));
        let bit = |is_set: bool, bit| if is_set { bit } else { 0 };
        let ended = bit(fin != 0, FAST_FIN) | bit(rst != 0, FAST_RST);
        let ack = (self.seen.load(Ordering::Relaxed) != 0).then(|| self.ack.load(Ordering::Relaxed));
        FastFlowStats {
            packets: self.packets.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            last: self.last.load(Ordering::Relaxed),
            ended,
            fin_end: (fin & !sys::STEER_FAST_HAS_FIN) as u32,
            ack,
        }
    }
}
