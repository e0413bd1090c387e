//! Doubly linked lists of tickets. The links are in the entries.

use super::Entry;

/// The links of a queue, or of its pending packets.
pub(super) const QUEUE: usize = 0;
/// The links of the list by age.
pub(super) const AGE: usize = 1;

const NONE: u32 = u32::MAX;

/// Neighbours in a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    previous: u32,
    next: u32,
}

impl Links {
    pub const NONE: Links = Links { previous: NONE, next: NONE };
}

/// A list of entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    first: u32,
    last: u32,
    pub len: u32,
    /// Bytes of the segments.
    pub bytes: u64,
}

impl Default for List {
    fn default() -> Self {
        List { first: NONE, last: NONE, len: 0, bytes: 0 }
    }
}

impl List {
    pub fn first_ticket(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    pub fn first<'a>(&self, entries: &'a [Entry]) -> Option<&'a Entry> {
        entries.get(self.first as usize)
    }

    pub fn last<'a>(&self, entries: &'a [Entry]) -> Option<&'a Entry> {
        entries.get(self.last as usize)
    }

    /// Returns the first of the entries at the end of a queue for which a predicate holds.
    pub fn rposition(&self, entries: &[Entry], is: impl Fn(&Entry) -> bool) -> Option<u32> {
        let (mut found, mut at) = (None, self.last);
        while let Some(entry) = entries.get(at as usize).filter(|entry| is(entry)) {
            found = Some(at);
            at = entry.links[QUEUE].previous;
        }
        found
    }

    /// Iterates over the entries of a queue.
    pub fn iter<'a>(&self, entries: &'a [Entry]) -> impl Iterator<Item = &'a Entry> + use<'a> {
        let first = entries.get(self.first as usize);
        std::iter::successors(first, |entry| entries.get(entry.links[QUEUE].next as usize))
    }

    pub fn push(&mut self, entries: &mut [Entry], which: usize, ticket: u32) {
        self.insert_before(entries, which, ticket, None);
    }

    /// Inserts an entry in front of another one, or at the end.
    pub fn insert_before(&mut self, entries: &mut [Entry], which: usize, ticket: u32, before: Option<u32>) {
        let next = before.unwrap_or(NONE);
        let previous = match entries.get(next as usize) {
            Some(entry) => entry.links[which].previous,
            None => self.last,
        };
        self.link(entries, which, previous, ticket);
        self.link(entries, which, ticket, next);
        self.len += 1;
        self.bytes += entries.get(ticket as usize).map_or(0, |entry| entry.range.len());
    }

    pub fn remove(&mut self, entries: &mut [Entry], which: usize, ticket: u32) {
        let Some(entry) = entries.get_mut(ticket as usize) else { return };
        let Links { previous, next } = std::mem::replace(&mut entry.links[which], Links::NONE);
        self.bytes = self.bytes.saturating_sub(entry.range.len());
        self.link(entries, which, previous, next);
        self.len = self.len.saturating_sub(1);
    }

    /// Makes two entries neighbours. [`NONE`] is the end of the list.
    fn link(&mut self, entries: &mut [Entry], which: usize, previous: u32, next: u32) {
        match entries.get_mut(previous as usize) {
            Some(entry) => entry.links[which].next = next,
            None => self.first = next,
        }
        match entries.get_mut(next as usize) {
            Some(entry) => entry.links[which].previous = previous,
            None => self.last = previous,
        }
    }
}
