//! The literals and existence predicates of one source of bytes.

use super::contains::Contains;
use super::results::{Ids, Scan};
use super::trie::Trie;

/// The predicates about one source of bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceIndex {
    pub exists: Ids,
    pub starts: Trie<Ids>,
    pub equals: Trie<Ids>,
    pub contains: Contains,
}

impl SourceIndex {
    pub fn is_empty(&self) -> bool {
        self.exists.is_empty() && self.starts.is_empty() && self.equals.is_empty() && self.contains.is_empty()
    }

    pub fn search(&self, bytes: &[u8], scan: &mut Scan<'_>) {
        scan.add(&self.exists);
        if !self.starts.is_empty() {
            self.starts.prefixes(bytes, |_, ids| scan.add(ids));
        }
        if let Some(ids) = self.equals.get(bytes) {
            scan.add(ids);
        }
        if !self.contains.is_empty() {
            self.contains.search(bytes, scan);
        }
    }
}
