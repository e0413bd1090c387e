//! The entries of one node in bit vectors.

use std::sync::Arc;

use super::lanes::{BLOCKS, LANES, LaneBlock};
use super::partition::{LaneEntry, Partition, STRIDE};
use crate::pattern::Entry;
use crate::vector::{LookupPacket, VectorSummary};

/// A growing partition chooses its dimensions again at each power of two up to this many entries.
const MAX_RECHOOSE: usize = 256;

/// Entries, indexed by the values that they accept in each dimension. Clones share memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct BitVector {
    pub(super) partitions: Vec<Arc<Partition>>,
}

impl BitVector {
    /// A structure for these entries, each with its rule's slot.
    pub fn build(entries: &[(u32, Arc<Entry>)]) -> BitVector {
        let mut vector = BitVector::default();
        for part in entries.chunks(LANES) {
            let mut partition = Partition::new(part);
            for (slot, entry) in part {
                if !partition.has_room(entry) {
                    vector.partitions.push(Arc::new(std::mem::replace(&mut partition, Partition::new(part))));
                }
                partition.insert(*slot, entry.clone());
            }
            vector.partitions.push(Arc::new(partition));
        }
        vector
    }

    /// The chunks that [`BitVector::is_excluded`] needs in the summary, as a bit set.
    pub fn common_chunks(&self) -> u8 {
        self.partitions.iter().fold(0, |chunks, partition| chunks | partition.common.chunks())
    }

    /// Whether no packet of a vector can match an entry.
    pub fn is_excluded(&self, summary: &VectorSummary) -> bool {
        self.partitions.iter().all(|partition| summary.excludes_cover(&partition.common))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.partitions.iter().map(|partition| partition.len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// Adds an entry of a rule.
    pub fn insert(&mut self, slot: u32, entry: Arc<Entry>) {
        let room = self.partitions.iter().position(|partition| partition.has_room(&entry));
        let at = room.unwrap_or_else(|| {
            self.partitions.push(Arc::new(Partition::new(&[(slot, entry.clone())])));
            self.partitions.len() - 1
        });
        let partition = Arc::make_mut(&mut self.partitions[at]);
        partition.insert(slot, entry);
        if partition.len.is_power_of_two() && partition.len <= MAX_RECHOOSE {
            partition.choose_dimensions_again();
        }
    }

    /// Removes one entry of a rule. None if there is none.
    pub fn remove(&mut self, slot: u32) -> Option<Arc<Entry>> {
        let found =
            self.partitions.iter().enumerate().find_map(|(at, partition)| Some((at, partition.find(slot)?)));
        let (at, lane) = found?;
        let partition = Arc::make_mut(&mut self.partitions[at]);
        let entry = partition.remove(lane);
        if partition.len == 0 {
            self.partitions.remove(at);
        }
        entry
    }

    /// Calls `hit` with the head of each packet and the slot of each entry that matches it. Pivots are not
    /// checked.
    #[inline]
    pub fn classify(&self, packets: &[LookupPacket<'_>], mut hit: impl FnMut(u16, u32)) {
        if self.partitions.is_empty() {
            return;
        }
        if packets.len() == 1 {
            for partition in &self.partitions {
                partition.classify(packets, &partition.all(), &mut [LaneBlock::EMPTY; BLOCKS], &mut hit);
            }
            return;
        }
        let mut scratch = [LaneBlock::EMPTY; BLOCKS * STRIDE];
        for partition in &self.partitions {
            let Some(start) = partition.shared_start(packets) else { continue };
            for packets in packets.chunks(STRIDE) {
                partition.classify(packets, &start, &mut scratch, &mut hit);
            }
        }
    }

    /// All entries with their rules' slots, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Arc<Entry>)> {
        self.partitions.iter().flat_map(|partition| {
            let lanes = partition.slots.iter().zip(&partition.lanes);
            lanes.filter_map(|(slot, lane)| Some((*slot, &lane.as_ref()?.entry)))
        })
    }

    /// Bytes of memory, including memory shared with clones, without the entries.
    pub fn bytes(&self) -> usize {
        let partition = |partition: &Arc<Partition>| {
            let lanes = partition.lanes.capacity() * (size_of::<LaneEntry>() + 2 * size_of::<usize>());
            size_of::<Partition>() + lanes + partition.dims.iter().map(|dim| dim.bytes()).sum::<usize>()
        };
        self.partitions.iter().map(partition).sum()
    }
}
