//! The facts about every packet that reaches a place in the tree.

use std::sync::Arc;

use crate::pattern::{Entry, MaskedKey};

/// A node with this many entries or fewer becomes a leaf again.
pub(crate) const MAX_LEAF_ENTRIES: usize = 8;

/// The facts about every packet that reaches a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// Known bits of the window.
    pub known: MaskedKey,
    /// A predicate that is true.
    pub pivot: Option<u32>,
}

impl Path {
    /// The path to the root of the tree: every packet there is an IP packet.
    pub const ROOT: Path = Path { known: MaskedKey::IP, pivot: None };

    /// Whether every packet is at the node that the path leads to.
    pub fn is_root(&self) -> bool {
        self.pivot.is_none() && self.known == MaskedKey::IP
    }

    /// Adds the bits `mask` of a chunk, with the values of `key`.
    pub fn with(&self, chunk: usize, mask: u128, key: u128) -> Path {
        Path { known: self.known.with(chunk, mask, key), pivot: self.pivot }
    }

    /// An entry that requires exactly what is known.
    pub fn entry(&self) -> Arc<Entry> {
        Arc::new(Entry::exact(&self.known, self.pivot))
    }
}

/// Whether an entry requires nothing that is not known.
pub(crate) fn is_exact(entry: &Entry, path: &Path) -> bool {
    entry.is_exact() && entry.is_implied_by(&path.known)
}
