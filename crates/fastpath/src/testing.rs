//! A kernel table in memory, for tests: it records entries and counts the packets that a test reports.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mmb_dpdk::{FAST_FIN, FastAction, FastFlowStats, FastGranularity, FastKey, FastPort};

use crate::entries::{CreditTargets, Entries, PortRef};
use crate::kernel::KernelTable;
use crate::learn;

/// One of many flows.
pub fn key(n: u16) -> FastKey {
    FastKey {
        granularity: FastGranularity::Flow,
        port: FastPort(1),
        proto: 17,
        source: IpAddr::from([10, 0, 0, 1]),
        destination: IpAddr::from([10, 0, 0, 2]),
        source_port: n,
        destination_port: 53,
    }
}

/// The flow of a frame from a port.
pub fn parse_key(port: FastPort, frame: &[u8]) -> Option<FastKey> {
    learn::parse_key(port, frame)
}

/// The action that turns a received frame into the sent one, with this egress port and length limit.
#[cfg(feature = "testing")]
pub fn derive_action(
    port: FastPort,
    is_routed: bool,
    (received, sent): (&[u8], &[u8]),
    (out, max_len): (FastPort, u16),
) -> Option<FastAction> {
    Some(learn::derive_rewrite(port, is_routed, None, received, sent).ok()?.into_action(out, max_len))
}

/// The table.
#[derive(Default)]
pub struct FakeKernel(Mutex<Table>);

#[derive(Default)]
struct Table {
    beat_age: u32,
    generation: u64,
    granularity: FastGranularity,
    slots: HashMap<u32, (u64, FastAction, FastFlowStats)>,
    keys: HashMap<FastKey, u32>,
    /// The slot that a flow has or had last: packets may still be counted in it.
    last: HashMap<FastKey, u32>,
    is_full: bool,
}

impl FakeKernel {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The generation in force.
    pub fn generation(&self) -> u64 {
        self.table().generation
    }

    /// The granularity of its keys.
    pub fn granularity(&self) -> FastGranularity {
        self.table().granularity
    }

    /// The age of the last heartbeat, in milliseconds.
    pub fn beat_age(&self) -> u32 {
        self.table().beat_age
    }

    /// Makes the table refuse more flows.
    pub fn set_full(&self, is_full: bool) {
        self.table().is_full = is_full;
    }

    /// The flows in the table.
    pub fn keys(&self) -> Vec<FastKey> {
        self.table().keys.keys().copied().collect()
    }

    /// The action for a packet of this flow.
    pub fn action(&self, key: &FastKey) -> Option<FastAction> {
        let table = self.table();
        let (generation, action, _) = table.slots.get(table.keys.get(key)?)?;
        (*generation != 0 && *generation == table.generation).then_some(*action)
    }

    /// Replaces what the kernel has counted for a flow.
    pub fn set_stats(&self, key: &FastKey, stats: FastFlowStats) {
        self.update(key, |counted| *counted = stats);
    }

    /// Records an acknowledgement.
    pub fn acknowledge(&self, key: &FastKey, ack: u32) {
        self.update(key, |stats| stats.ack = Some(ack));
    }

    /// Records segments with these flags of a connection's end.
    pub fn end(&self, key: &FastKey, ended: u8) {
        self.update(key, |stats| stats.ended |= ended);
    }

    /// Records a FIN, behind which this number is.
    pub fn finish(&self, key: &FastKey, end: u32) {
        self.update(key, |stats| (stats.ended, stats.fin_end) = (stats.ended | FAST_FIN, end));
    }

    /// Counts packets of a flow.
    pub fn count(&self, key: &FastKey, packets: u64, bytes: u64) {
        self.update(key, |stats| {
            stats.packets += packets;
            stats.bytes += bytes;
        });
    }

    fn update(&self, key: &FastKey, change: impl FnOnce(&mut FastFlowStats)) {
        let mut table = self.table();
        let Some(slot) = table.last.get(key).copied() else { return };
        if let Some((_, _, stats)) = table.slots.get_mut(&slot) {
            change(stats);
        }
    }
}

impl KernelTable for FakeKernel {
    fn set_generation(&self, generation: u64, granularity: FastGranularity) {
        let mut table = self.table();
        (table.generation, table.granularity) = (generation, granularity);
    }

    fn beat(&self, age: u32) {
        self.table().beat_age = age;
    }

    fn install(&self, slot: u32, generation: u64, key: &FastKey, action: &FastAction) -> Result<(), i32> {
        let mut table = self.table();
        if table.is_full {
            return Err(7);
        }
        assert!(slot != 0 && generation != 0);
        table.slots.insert(slot, (generation, *action, FastFlowStats::default()));
        table.keys.insert(*key, slot);
        table.last.insert(*key, slot);
        Ok(())
    }

    fn revoke(&self, slot: u32) {
        if let Some((generation, ..)) = self.table().slots.get_mut(&slot) {
            *generation = 0;
        }
    }

    fn remove(&self, key: &FastKey, slot: u32) {
        let mut table = self.table();
        if table.keys.get(key) == Some(&slot) {
            table.keys.remove(key);
        }
    }

    fn age(&self, _: &FastFlowStats) -> u32 {
        0
    }

    fn flow_stats(&self, slot: u32) -> FastFlowStats {
        self.table().slots.get(&slot).map(|(.., stats)| *stats).unwrap_or_default()
    }
}

/// The entries of a worker over a kernel table in memory.
pub struct EntryTable {
    /// The kernel's table.
    pub kernel: FakeKernel,
    entries: Entries,
}

/// What a sweep has credited for all flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credited {
    /// Packets, modulo 2^64.
    pub packets: u64,
    /// Bytes, modulo 2^64.
    pub bytes: u64,
    /// Entries that ended.
    pub ended: usize,
}

impl EntryTable {
    /// A table with this many slots.
    pub fn new(slots: u32) -> EntryTable {
        EntryTable { kernel: FakeKernel::default(), entries: Entries::new(1..1 + slots) }
    }

    /// Number of slots in use, including revoked ones.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no slot is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Installs the flow [`key`] `(n)`. False: there is no room.
    pub fn install(&mut self, n: u16, generation: u64, now: u32) -> bool {
        let port = |id: u16| PortRef { id, number: FastPort(u32::from(id) + 1) };
        let credit = CreditTargets { ingress: port(0), egress: port(1), rules: Box::new([]), session: None };
        let action = FastAction::forward_unchanged(FastPort(2), 1500);
        self.entries.install(&self.kernel, (&key(n), &action), generation, credit, now).is_ok()
    }

    /// Checks all slots.
    pub fn sweep(&mut self, in_force: u64, now: u32) -> Credited {
        let mut credited = Credited::default();
        loop {
            self.entries.sweep(&self.kernel, in_force, now, |delta| {
                credited.packets = credited.packets.wrapping_add(delta.packets);
                credited.bytes = credited.bytes.wrapping_add(delta.bytes);
                credited.ended += usize::from(delta.is_final);
            });
            if !self.entries.is_sweeping() {
                return credited;
            }
        }
    }
}

#[cfg(test)]
mod tests;
