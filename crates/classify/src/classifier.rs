//! All tables together.

use std::collections::HashMap;
use std::sync::Arc;

use mmb_packet::Window;
use mmb_packet::window::{CHUNKS, KIND};

use crate::batch::{Batch, VECTOR};
use crate::hash::Seeds;
use crate::masked::{Masked, Test};
use crate::pattern::Pattern;
use crate::rules::{Not, Nots};
use crate::store::Occupancy;
use crate::table::{Table, chunks_of, kind_bit};

/// Where a rule stands: what [`Classifier::insert`] returns and [`Classifier::remove`] wants back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    hash: u64,
    table: u32,
}

/// What there is to know about one table.
#[derive(Clone, Debug)]
pub struct TableInfo {
    /// The table's mask; the key is zero.
    pub mask: Masked,
    /// Keys, rules, memory.
    pub occupancy: Occupancy,
}

/// Rules by what they match. See the crate's documentation.
#[derive(Clone, Debug)]
pub struct Classifier {
    seeds: Seeds,
    /// Tables keep their index as long as they have rules.
    tables: Arc<Vec<Option<Arc<Table>>>>,
    /// Index of each mask's table.
    by_mask: Arc<HashMap<[u128; CHUNKS], u32>>,
    /// Where the last rule was inserted: the next one's mask is often the same.
    last: u32,
    /// How many rules read each chunk.
    readers: [u32; CHUNKS],
    rules: usize,
}

impl Default for Classifier {
    fn default() -> Self {
        Self::new()
    }
}

impl Classifier {
    /// A classifier without rules, hashing by a seed of its own.
    pub fn new() -> Self {
        Self::with_seeds(Seeds::random())
    }

    /// A classifier without rules whose hashing follows from `seed`: for measurements that are to repeat.
    pub fn with_seed(seed: u64) -> Self {
        Self::with_seeds(Seeds::from_seed(seed))
    }

    pub(crate) fn with_seeds(seeds: Seeds) -> Self {
        Classifier {
            seeds,
            tables: Arc::default(),
            by_mask: Arc::default(),
            last: 0,
            readers: [0; CHUNKS],
            rules: 0,
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

    /// The chunks of the window that some rule reads, as bits: what [`mmb_packet::fill_window`] has to fill.
    pub fn chunks(&self) -> u8 {
        (0..CHUNKS).fold(0, |chunks, i| chunks | u8::from(self.readers[i] != 0) << i)
    }

    /// Adds the rule that the caller calls `slot` (below 2³¹ and not in use). Copies one page of one table if a clone
    /// shares it.
    pub fn insert(&mut self, slot: u32, pattern: &Pattern) -> Place {
        let nots = nots_of(pattern);
        let chunks = nots.iter().flat_map(|nots| nots.iter()).fold(0, |chunks, not| chunks | not.chunks());
        let mask = pattern.must().mask();
        let table = self.table_of(mask);
        self.last = table;
        let mut hash = 0;
        if let Some(Some(table)) = Arc::make_mut(&mut self.tables).get_mut(table as usize) {
            hash = Arc::make_mut(table).insert(pattern.must(), slot, nots.as_ref());
        }
        self.count_readers(chunks | chunks_of(mask), 1);
        self.rules += 1;
        Place { hash, table }
    }

    /// Takes out the rule `slot` that was inserted at `place`; false, and nothing done, if it is not there.
    pub fn remove(&mut self, slot: u32, place: Place) -> bool {
        let tables = Arc::make_mut(&mut self.tables);
        let Some(entry) = tables.get_mut(place.table as usize) else { return false };
        let Some(table) = entry else { return false };
        let Some(chunks) = Arc::make_mut(table).remove(place.hash, slot) else { return false };
        let chunks = chunks | chunks_of(table.mask());
        if table.is_empty() {
            Arc::make_mut(&mut self.by_mask).remove(table.mask());
            *entry = None;
        }
        self.count_readers(chunks, -1);
        self.rules -= 1;
        true
    }

    fn count_readers(&mut self, chunks: u8, by: i32) {
        for (i, readers) in self.readers.iter_mut().enumerate() {
            if chunks & 1 << i != 0 {
                *readers = readers.wrapping_add_signed(by);
            }
        }
    }

    /// Index of the table for a mask, which is made if there is none.
    fn table_of(&mut self, mask: &[u128; CHUNKS]) -> u32 {
        if let Some(Some(table)) = self.tables.get(self.last as usize)
            && table.mask() == mask
        {
            return self.last;
        }
        if let Some(&index) = self.by_mask.get(mask) {
            return index;
        }
        let table = Some(Arc::new(Table::new(self.seeds, mask)));
        let tables = Arc::make_mut(&mut self.tables);
        let full = tables.len() == self.by_mask.len();
        let index = match if full { None } else { tables.iter().position(Option::is_none) } {
            Some(index) => {
                tables[index] = table;
                index as u32
            }
            None => {
                tables.push(table);
                tables.len() as u32 - 1
            }
        };
        Arc::make_mut(&mut self.by_mask).insert(*mask, index);
        index
    }

    /// The tables and what is in them; walks all their pages.
    pub fn tables(&self) -> impl Iterator<Item = TableInfo> {
        self.tables
            .iter()
            .flatten()
            .map(|table| TableInfo { mask: Masked::mask_only(table.mask()), occupancy: table.occupancy() })
    }

    /// Replaces `batch.hits` by every matching rule of each of the batch's windows.
    pub fn classify(&self, batch: &mut Batch) {
        batch.hits.clear();
        let windows = &batch.windows[..batch.n.min(VECTOR)];
        let mut tables = self.tables.iter().flatten();
        let (Some(first), second) = (tables.next(), tables.next()) else { return };
        let Some(second) = second else { return first.classify(windows, &mut batch.hits) };
        let kinds = windows.iter().fold(0, |kinds, window| kinds | kind_bit(kind(window)));
        let mut contributors = 0;
        for table in [first, second].into_iter().chain(tables) {
            if table.concerns(kinds) {
                let before = batch.hits.len();
                table.classify(windows, &mut batch.hits);
                contributors += usize::from(batch.hits.len() > before);
            }
        }
        if contributors > 1 {
            batch.sort_hits();
        }
    }
}

/// The window's [`KIND`] byte.
fn kind(window: &Window) -> u8 {
    window.bytes()[KIND]
}

/// The residual constraints of a pattern; None if there are none.
fn nots_of(pattern: &Pattern) -> Option<Nots> {
    let not = |exclusion: &crate::Exclusion| Not {
        what: Test::new(&exclusion.what),
        unless: exclusion.unless.as_ref().map(Test::new),
    };
    (!pattern.not().is_empty()).then(|| pattern.not().iter().map(not).collect())
}
