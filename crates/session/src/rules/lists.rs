//! Interned lists of numbers.
//!
//! Theory of operation. Equal lists are stored once and have one number. An open hash table of (hash, number)
//! finds a list by its contents. Each list has a reference count: [`InternedLists::acquire`] adds a
//! reference, [`InternedLists::release`] removes one. The last release frees the list and its number, so that
//! there are never more lists than holders. The table probes linearly and closes the gap when an entry leaves
//! it. It needs no tombstones. Short lists, which are nearly all, are stored inside the entry.

/// Number of the empty list, which always exists and has no reference count.
pub(crate) const EMPTY: u32 = 0;

/// Longest list stored inside its entry.
const INLINE: usize = 6;
/// Initial size of the hash table.
const MIN_INDEX: usize = 64;

#[derive(Debug)]
enum List {
    Short(u8, [u32; INLINE]),
    Long(Box<[u32]>),
}

impl List {
    fn new(list: &[u32]) -> List {
        if list.len() > INLINE {
            return List::Long(list.into());
        }
        let mut short = [0; INLINE];
        short[..list.len()].copy_from_slice(list);
        List::Short(list.len() as u8, short)
    }

    fn get(&self) -> &[u32] {
        match self {
            List::Short(len, list) => &list[..usize::from(*len).min(INLINE)],
            List::Long(list) => list,
        }
    }
}

#[derive(Debug)]
struct Entry {
    /// References; 0: the entry is free.
    refs: u32,
    /// Part of the list's identity: lists with the same numbers and different tags are different.
    tag: u32,
    list: List,
}

impl Entry {
    /// Whether the entry holds this list.
    fn holds(&self, tag: u32, list: &[u32]) -> bool {
        let own = self.list.get();
        // Lists are short: an inline loop is faster than a call of memcmp.
        self.refs > 0
            && self.tag == tag
            && own.len() == list.len()
            && own.iter().zip(list).all(|(a, b)| a == b)
    }
}

/// Interned lists; see the module's theory of operation.
#[derive(Debug)]
pub(crate) struct InternedLists {
    entries: Vec<Entry>,
    /// Hash and number; number 0: empty. The size is a power of two, and at limit half is used.
    index: Vec<(u32, u32)>,
    free: Vec<u32>,
    /// Upper bound of numbers, exclusive.
    limit: u32,
    /// The list acquired last, which is likely to be acquired next.
    last: u32,
    /// Lists freed so far.
    freed: u64,
}

/// Reference to an acquired list, by which it can be acquired again without a lookup. Valid until any list is
/// freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListHint {
    number: u32,
    freed: u64,
}

/// Result of [`InternedLists::acquire`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acquired {
    pub number: u32,
    /// The list is new.
    pub is_new: bool,
}

impl InternedLists {
    /// Creates an empty store whose numbers stay below `limit`.
    pub fn new(limit: u32) -> InternedLists {
        let empty = Entry { refs: 0, tag: 0, list: List::new(&[]) };
        InternedLists {
            entries: vec![empty],
            index: vec![(0, 0); MIN_INDEX],
            free: Vec::new(),
            limit,
            last: EMPTY,
            freed: 0,
        }
    }

    /// Returns the number of lists, without the empty one.
    pub fn len(&self) -> usize {
        self.entries.len() - 1 - self.free.len()
    }

    /// Returns the list with this number; the empty list if there is none.
    #[inline]
    pub fn get(&self, number: u32) -> &[u32] {
        self.entries.get(number as usize).map_or(&[], |entry| entry.list.get())
    }

    /// Returns the references to a list.
    pub fn refs(&self, number: u32) -> u32 {
        self.entries.get(number as usize).map_or(0, |entry| entry.refs)
    }

    /// Adds a reference to the list with this tag and these contents. `None`: all numbers are in use.
    pub fn acquire(&mut self, tag: u32, list: &[u32]) -> Option<Acquired> {
        if let Some(entry) = self.entries.get_mut(self.last as usize)
            && entry.holds(tag, list)
        {
            entry.refs += 1;
            return Some(Acquired { number: self.last, is_new: false });
        }
        let hash = hash(tag, list);
        let mask = self.index.len() - 1;
        let mut at = hash as usize & mask;
        while let Some(&(other, number)) = self.index.get(at)
            && number != 0
        {
            if other == hash
                && let Some(entry) = self.entries.get_mut(number as usize)
                && entry.holds(tag, list)
            {
                entry.refs += 1;
                self.last = number;
                return Some(Acquired { number, is_new: false });
            }
            at = (at + 1) & mask;
        }
        self.add(tag, list, hash).map(|number| Acquired { number, is_new: true })
    }

    /// Returns a hint for a list to which the caller has a reference.
    pub fn hint(&self, number: u32) -> ListHint {
        ListHint { number, freed: self.freed }
    }

    /// Adds a reference to the list of a hint. `None`: the hint is out of date, and the list must be looked
    /// up.
    #[inline]
    pub fn acquire_by_hint(&mut self, hint: ListHint) -> Option<u32> {
        let entry = self.entries.get_mut(hint.number as usize).filter(|_| hint.freed == self.freed)?;
        entry.refs += 1;
        Some(hint.number)
    }

    /// Stores a new list.
    fn add(&mut self, tag: u32, list: &[u32], hash: u32) -> Option<u32> {
        let entry = Entry { refs: 1, tag, list: List::new(list) };
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.entries.len() >= self.limit as usize => return None,
            None => {
                self.entries.push(Entry { refs: 0, tag: 0, list: List::new(&[]) });
                self.entries.len() as u32 - 1
            }
        };
        *self.entries.get_mut(number as usize)? = entry;
        if self.len() * 2 > self.index.len() {
            self.grow();
        }
        self.index_insert(hash, number);
        Some(number)
    }

    /// Stores a number in the first empty slot from the slot of its hash on.
    fn index_insert(&mut self, hash: u32, number: u32) {
        let mask = self.index.len() - 1;
        let mut at = hash as usize & mask;
        while self.index[at].1 != 0 {
            at = (at + 1) & mask;
        }
        self.index[at] = (hash, number);
    }

    /// Doubles the hash table.
    fn grow(&mut self) {
        let larger = vec![(0, 0); self.index.len() * 2];
        for (hash, number) in std::mem::replace(&mut self.index, larger) {
            if number != 0 {
                self.index_insert(hash, number);
            }
        }
    }

    /// Removes a reference. Returns `true` if it was the last one and the list is freed.
    pub fn release(&mut self, number: u32) -> bool {
        let Some(entry) = self.entries.get_mut(number as usize).filter(|_| number != EMPTY) else {
            return false;
        };
        if entry.refs > 1 {
            entry.refs -= 1;
            return false;
        }
        let hash = hash(entry.tag, entry.list.get());
        *entry = Entry { refs: 0, tag: 0, list: List::new(&[]) };
        self.index_remove(hash, number);
        self.free.push(number);
        self.freed += 1;
        true
    }

    /// Removes a number from the hash table and closes the gap: later entries move up, but not before the
    /// slot of their hash.
    fn index_remove(&mut self, hash: u32, number: u32) {
        let mask = self.index.len() - 1;
        let mut gap = hash as usize & mask;
        while self.index[gap].1 != number {
            if self.index[gap].1 == 0 {
                return;
            }
            gap = (gap + 1) & mask;
        }
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let (hash, number) = self.index[at];
            if number == 0 {
                break;
            }
            let home = hash as usize & mask;
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(gap) & mask {
                self.index[gap] = (hash, number);
                gap = at;
            }
        }
        self.index[gap] = (0, 0);
    }
}

/// Hashes a tag and a list. Rule numbers are not chosen by senders of packets, so that no secret is needed.
#[inline]
fn hash(tag: u32, list: &[u32]) -> u32 {
    let mut h = u64::from(tag) ^ 0x9e37_79b9_7f4a_7c15;
    for &n in list {
        h = (h ^ u64::from(n)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        h ^= h >> 32;
    }
    h = h.wrapping_mul(0xa076_1d64_78bd_642f);
    (h >> 32) as u32
}

#[cfg(test)]
mod tests;
