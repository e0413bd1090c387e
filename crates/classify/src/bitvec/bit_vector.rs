//! The entries of one node in bit vectors.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use mmb_packet::window::KIND;

use super::columns::FieldColumns;
use super::lanes::LANES;
use super::partition::{Partition, protocol};
use crate::pattern::{Entry, RuleEntry};
use crate::vector::{LookupPacket, Simd, VECTOR, VectorSummary};

/// A growing partition chooses its dimensions again at each power of two up to this many entries.
const MAX_RECHOOSE: usize = 256;

thread_local! {
    /// Memory for columns; a lookup allocates none.
    static COLUMNS: RefCell<FieldColumns> = const { RefCell::new(FieldColumns::new()) };
}

/// Entries, indexed by the values that they accept in each dimension. Clones share memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct BitVector {
    pub(super) partitions: Vec<Arc<Partition>>,
}

impl BitVector {
    /// A structure for these entries, each with its rule's slot.
    pub fn build(entries: &[RuleEntry]) -> BitVector {
        let mut vector = BitVector::default();
        for group in by_protocol(entries) {
            vector.extend(&group);
        }
        vector
    }

    /// Adds entries in partitions of their own.
    fn extend(&mut self, entries: &[RuleEntry]) {
        for part in entries.chunks(LANES) {
            let mut partition = Partition::new(part);
            for (slot, entry) in part {
                if !partition.has_room(entry) {
                    self.partitions.push(Arc::new(std::mem::replace(&mut partition, Partition::new(part))));
                }
                partition.insert(*slot, entry.clone());
            }
            self.partitions.push(Arc::new(partition));
        }
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
        let rooms = self.partitions.iter().enumerate().filter(|(_, partition)| partition.has_room(&entry));
        let room = rooms.min_by_key(|(_, partition)| !partition.is_about(&entry)).map(|(at, _)| at);
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

    /// Calls `hit` with the head of each packet (at most [`VECTOR`]) and the slot of each entry that matches
    /// it. Pivots are not checked.
    #[inline]
    pub fn classify(&self, packets: &[LookupPacket<'_>], simd: Simd, mut hit: impl FnMut(u16, u32)) {
        if let [packet] = packets {
            return self.partitions.iter().for_each(|partition| partition.classify_one(packet, &mut hit));
        }
        let mut kinds = [0; VECTOR];
        kinds.iter_mut().zip(packets).for_each(|(kind, packet)| *kind = packet.window.bytes()[KIND]);
        COLUMNS.with_borrow_mut(|columns| {
            for partition in &self.partitions {
                partition.classify(packets, &kinds, (columns, simd), &mut hit);
            }
        });
    }

    /// All entries with their rules' slots, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Arc<Entry>)> {
        self.partitions.iter().flat_map(|partition| {
            let lanes = partition.slots.iter().zip(&partition.lanes);
            lanes.filter_map(|(slot, lane)| Some((*slot, lane.as_ref()?)))
        })
    }

    /// Bytes of memory, including memory shared with clones, without the entries.
    pub fn bytes(&self) -> usize {
        let partition = |partition: &Arc<Partition>| {
            let lanes = partition.lanes.capacity() * size_of::<Option<Arc<Entry>>>();
            size_of::<Partition>() + lanes + partition.dims.iter().map(|dim| dim.bytes()).sum::<usize>()
        };
        self.partitions.iter().map(partition).sum()
    }
}

/// The entries in groups: one for each transport protocol that entries require, and one for all others.
fn by_protocol(entries: &[RuleEntry]) -> impl Iterator<Item = Vec<RuleEntry>> {
    let mut groups: BTreeMap<_, Vec<RuleEntry>> = BTreeMap::new();
    for item in entries {
        groups.entry(protocol(&item.1.cover())).or_default().push(item.clone());
    }
    groups.into_values()
}
