//! A kernel made of a table, for tests: it takes down what it is told, and counts what it is told to have sent.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mmb_dpdk::{FastAction, FastFlowStats, FastGranularity, FastKey, FastPort, FastTcpState};

use super::Kernel;

/// One flow of many.
pub(crate) fn key(n: u16) -> FastKey {
    FastKey {
        granularity: FastGranularity::Flow,
        port: FastPort(1),
        proto: 17,
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        source_port: n,
        destination_port: 53,
    }
}

#[derive(Default)]
pub(crate) struct Fake(Mutex<Table>);

#[derive(Default)]
struct Table {
    generation: u64,
    granularity: FastGranularity,
    slots: HashMap<u32, (u64, FastAction, FastFlowStats)>,
    keys: HashMap<FastKey, u32>,
    /// The slot that a flow has or had last: packets may be under way.
    last: HashMap<FastKey, u32>,
    full: bool,
}

impl Fake {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn generation(&self) -> u64 {
        self.table().generation
    }

    /// What settles where packets go.
    pub fn granularity(&self) -> FastGranularity {
        self.table().granularity
    }

    /// Has it take no more flows.
    pub fn set_full(&self, full: bool) {
        self.table().full = full;
    }

    /// Flows that it knows.
    pub fn keys(&self) -> Vec<FastKey> {
        self.table().keys.keys().copied().collect()
    }

    /// What it would do with a packet of this flow.
    pub fn action(&self, key: &FastKey) -> Option<FastAction> {
        let table = self.table();
        let (generation, action, _) = table.slots.get(table.keys.get(key)?)?;
        (*generation != 0 && *generation == table.generation).then_some(*action)
    }

    /// Has seen this acknowledgement.
    pub fn acknowledge(&self, key: &FastKey, ack: u32) {
        self.tcp(key, 0, ack, 0);
    }

    /// Has sent on a segment that has moved a direction on to `end` and acknowledged `ack`, with these flags of a connection's end.
    pub fn tcp(&self, key: &FastKey, end: u32, ack: u32, ended: u8) {
        let mut table = self.table();
        let Some(slot) = table.last.get(key).copied() else { return };
        if let Some((_, _, tally)) = table.slots.get_mut(&slot) {
            tally.tcp = Some(FastTcpState { end, ack, window: 0 });
            tally.ended |= ended;
        }
    }

    /// Counts packets of a flow.
    pub fn count(&self, key: &FastKey, packets: u64, bytes: u64) {
        let mut table = self.table();
        let Some(slot) = table.last.get(key).copied() else { return };
        if let Some((_, _, tally)) = table.slots.get_mut(&slot) {
            tally.packets += packets;
            tally.bytes += bytes;
        }
    }
}

impl Kernel for Fake {
    fn set_generation(&self, generation: u64, granularity: FastGranularity) {
        let mut table = self.table();
        (table.generation, table.granularity) = (generation, granularity);
    }

    fn install(&self, slot: u32, generation: u64, key: &FastKey, action: &FastAction) -> Result<(), i32> {
        let mut table = self.table();
        if table.full {
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

    fn forget(&self, key: &FastKey, slot: u32) {
        let mut table = self.table();
        if table.keys.get(key) == Some(&slot) {
            table.keys.remove(key);
        }
    }

    fn age(&self, _: &FastFlowStats) -> u32 {
        0
    }

    fn tally(&self, slot: u32) -> FastFlowStats {
        self.table().slots.get(&slot).map(|(.., tally)| *tally).unwrap_or_default()
    }
}
