//! The changes of some bytes, before they are made.

use std::ops::Range;

use mmb_nf::{EditError, StreamEdit};

/// Most changes that are made one by one. More of them become one.
const MOST_CHANGES: usize = 4096;
/// Most bytes of new texts, besides those of heads.
const MOST_TEXT: usize = 160 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    range: Range<usize>,
    /// Position among the changes as they were planned.
    order: usize,
    /// The new bytes, in the plan's text.
    new: Range<usize>,
}

/// Changes that do not overlap.
#[derive(Debug, Default)]
pub(super) struct Plan {
    changes: Vec<Change>,
    text: Vec<u8>,
    /// Bytes of the text that are decoded bodies.
    body_bytes: usize,
}

impl Plan {
    pub fn clear(&mut self) {
        self.changes.clear();
        self.text.clear();
        self.body_bytes = 0;
    }

    /// Returns the number of changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Forgets all changes but the first ones.
    pub fn truncate(&mut self, len: usize) {
        self.changes.truncate(len);
    }

    /// Whether there is room for one more replacement in a body.
    pub fn has_room(&self, len: usize) -> bool {
        self.text.len() - self.body_bytes + len <= MOST_TEXT
    }

    /// Returns the number of bytes of decoded bodies.
    pub fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    /// Replaces a range by what a closure writes: a decoded body.
    pub fn replace_body(&mut self, range: Range<usize>, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.text.len();
        self.replace(range, write);
        self.body_bytes += self.text.len() - before;
    }

    /// Replaces a range by what a closure writes.
    pub fn replace(&mut self, range: Range<usize>, write: impl FnOnce(&mut Vec<u8>)) {
        let from = self.text.len();
        write(&mut self.text);
        let new = from..self.text.len();
        if !range.is_empty() || !new.is_empty() {
            self.changes.push(Change { range, order: self.changes.len(), new });
        }
    }

    pub fn remove(&mut self, range: Range<usize>) {
        self.replace(range, |_| {});
    }

    pub fn insert(&mut self, at: usize, bytes: &[u8]) {
        self.replace(at..at, |text| text.extend_from_slice(bytes));
    }

    /// Puts the changes from a position of the plan on in order.
    pub fn sort_from(&mut self, from: usize) {
        if let Some(changes) = self.changes.get_mut(from..) {
            changes.sort_unstable_by_key(|change| (change.range.start, change.order));
        }
    }

    /// Makes the changes.
    ///
    /// # Errors
    /// See [`EditError`]. Some changes may have been made.
    pub fn apply(&mut self, bytes: &[u8], data: &mut StreamEdit<'_, '_>) -> Result<(), EditError> {
        if self.changes.len() > MOST_CHANGES {
            self.join(bytes);
        }
        self.changes.iter().try_for_each(|change| {
            data.replace(change.range.clone(), self.text.get(change.new.clone()).unwrap_or(&[]))
        })
    }

    /// Makes one change of all.
    fn join(&mut self, bytes: &[u8]) {
        let (Some(first), Some(last)) = (self.changes.first(), self.changes.last()) else { return };
        let (range, from) = (first.range.start..last.range.end, self.text.len());
        let mut at = range.start;
        for change in &self.changes {
            self.text.extend_from_slice(bytes.get(at..change.range.start).unwrap_or(&[]));
            self.text.extend_from_within(change.new.clone());
            at = change.range.end;
        }
        let new = from..self.text.len();
        self.changes.clear();
        self.changes.push(Change { range, order: 0, new });
    }
}
