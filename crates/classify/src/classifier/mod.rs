//! The classifier: all rules together.

mod batch;
mod info;
mod lookup;
mod members;
mod sparse;
#[cfg(test)]
mod tests;
mod update;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mmb_packet::window::CHUNKS;

pub use batch::Batch;
pub use info::{Structure, TableInfo};
pub use members::Bounds;
use members::Members;

use crate::leaf::PreFilter;
use crate::lookup::PacketClasses;
use crate::paged::{PagedVec, SortedPages};
use crate::pattern::Entry;
use crate::predicate::PredicateSet;
use crate::table::{Node, Seeds};

/// The next stamp. Every change of a classifier takes a new one.
static STAMPS: AtomicU64 = AtomicU64::new(1);

fn new_stamp() -> u64 {
    STAMPS.fetch_add(1, Ordering::Relaxed)
}

/// Where a rule's entries are.
#[derive(Clone, Debug, Default)]
enum RuleLocation {
    /// There is no such rule.
    #[default]
    None,
    /// A single entry that requires exactly a key of one of the root's tables. Contains the key's hash.
    Exact(u64),
    /// The rule's entries.
    Entries(Arc<[Arc<Entry>]>),
}

/// An index of rules by what they match. See the crate's documentation.
#[derive(Clone, Debug)]
pub struct Classifier {
    seeds: Seeds,
    /// Changes with every update; clones have the same stamp until one of them is changed.
    stamp: u64,
    root: Arc<Node>,
    /// Filter for the root's leaf.
    pre_filter: Option<PreFilter>,
    /// The chunks for which a vector summary is useful, as a bit set.
    summary_chunks: u8,
    /// Whether a scan of windows costs less than columns of them: there is only the filter of one table, a
    /// leaf with conditions beyond the compared chunks, or a block of few entries that a summary may exclude.
    scans_windows: bool,
    predicates: PredicateSet,
    /// Elements of named sets.
    members: Members,
    /// Classes of packets that no entry below the root distinguishes.
    classes: PacketClasses,
    /// For each predicate, the entries that are found through it.
    pivots: SortedPages<(u32, Arc<Node>), 64>,
    /// Indexed by slot.
    locations: PagedVec<RuleLocation, 256>,
    /// For each chunk the number of entries that read it.
    readers: [u32; CHUNKS],
    rules: usize,
    /// Number of rules when the tree was last built as a whole.
    rules_at_build: usize,
    changes: usize,
}

impl Default for Classifier {
    fn default() -> Self {
        Self::new()
    }
}

impl Classifier {
    /// A classifier without rules, with a random hash seed.
    pub fn new() -> Self {
        Self::with_seeds(Seeds::random())
    }

    /// A classifier without rules whose hashes follow from `seed`; for reproducible measurements.
    pub fn with_seed(seed: u64) -> Self {
        Self::with_seeds(Seeds::from_seed(seed))
    }

    pub(crate) fn with_seeds(seeds: Seeds) -> Self {
        Classifier {
            seeds,
            stamp: new_stamp(),
            root: Arc::new(Node::new(seeds)),
            pre_filter: None,
            summary_chunks: 0,
            scans_windows: false,
            predicates: PredicateSet::default(),
            members: Members::default(),
            classes: PacketClasses::default(),
            pivots: SortedPages::default(),
            locations: PagedVec::default(),
            readers: [0; CHUNKS],
            rules: 0,
            rules_at_build: 0,
            changes: 0,
        }
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.rules
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules == 0
    }

    /// The chunks of the window that some rule reads, as a bit set. [`mmb_packet::fill_window`] must fill
    /// them.
    pub fn chunks(&self) -> u8 {
        self.compared_chunks() | self.predicates.chunks()
    }

    /// The chunks that rules compare: not those that only [`Classifier::needs_inspection`] reads.
    fn compared_chunks(&self) -> u8 {
        (0..CHUNKS).fold(self.members.chunks(), |chunks, i| chunks | u8::from(self.readers[i] != 0) << i)
    }
}
