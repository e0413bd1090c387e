//! Extendible hashing over pages that clones share.
//!
//! Theory of operation. The first `depth` bits of a key's hash index a directory of pages (Fagin et al.,
//! "Extendible hashing", 1979). A page whose keys share fewer bits is in several neighbouring directory
//! entries. A full page splits in two by the next bit. The directory doubles if it has no bit to distinguish
//! them. Nothing else moves. The directory has two levels of [`Arc`]. An insertion into a store that a clone
//! shares copies the top level (one pointer per 64 entries), one block of 64 entries and one page.

use std::ops::Range;
use std::sync::Arc;

use super::filter::Filter;
use super::hash::Hash;
use super::page::{Hashing, Page, PageValue};
use super::tag_group::LANES;

/// Directory entries under one pointer of its top level.
const BLOCK: usize = 64;

/// Maximum number of keys that are moved to a larger filter during an update: some hundred microseconds.
const MAX_FILTER_REBUILD: usize = 1 << 13;

/// A map from masked chunks to values.
#[derive(Clone, Debug)]
pub(crate) struct Store<V> {
    pub hashing: Hashing,
    depth: u32,
    /// `2^depth` pages in blocks of [`BLOCK`] (one block if there are fewer).
    directory: Arc<[Arc<[Page<V>]>]>,
    keys: usize,
    /// A filter that all keys pass.
    pub filter: Filter,
    /// Keys that found no room in pages that may not split. Empty unless the hash fails.
    spill: Arc<Vec<(u128, V)>>,
}

/// Size of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Distinct keys.
    pub keys: usize,
    /// Pages.
    pub pages: usize,
    /// Number of lanes in all pages.
    pub lanes: usize,
    /// Number of keys outside the pages. Every packet is compared with them. 0 unless the hash fails.
    pub overflow: usize,
    /// Bytes of memory, including memory shared with clones.
    pub bytes: usize,
}

/// A copy of the directory's address and depth for a loop over many keys; see
/// [`FilterReader`](super::filter::FilterReader).
#[derive(Clone, Copy)]
pub(crate) struct PageReader<'a, V> {
    shift: u32,
    directory: &'a [Arc<[Page<V>]>],
}

impl<'a, V> PageReader<'a, V> {
    /// The page of a hash.
    #[inline(always)]
    pub fn page(&self, hash: Hash) -> &'a Page<V> {
        let index = ((hash.0 >> 32) >> self.shift) as usize;
        &self.directory[index / BLOCK][index % BLOCK]
    }
}

impl<V: PageValue> Store<V> {
    /// An empty store with a filter for this many keys.
    pub fn new(hashing: Hashing, keys: usize) -> Self {
        Store {
            hashing,
            depth: 0,
            directory: vec![vec![Page::new(0, 1)].into()].into(),
            keys: 0,
            filter: Filter::new(keys),
            spill: Arc::default(),
        }
    }

    /// Changes the value of a key. An absent key has the free value; a key that gets the free value is
    /// removed.
    pub fn change<R>(&mut self, key: u128, change: impl FnOnce(&mut V) -> R) -> R {
        let hash = self.hashing.hash(key);
        self.add_to_filter(hash);
        if let Some(at) = self.spill.iter().position(|(k, _)| *k == key) {
            return self.change_in_spill(at, change);
        }
        if !self.make_room(hash, key) {
            Arc::make_mut(&mut self.spill).push((key, V::FREE));
            self.keys += 1;
            return self.change_in_spill(self.spill.len() - 1, change);
        }
        let extra = self.hashing.extra;
        let (result, last) = self.change_page(hash, |page| {
            let at = page.find(hash, key).unwrap_or_default();
            page.change(at, &extra, change)
        });
        if last {
            self.keys -= 1;
            self.merge(hash);
        }
        result
    }

    /// Adds a key to the filter. A crowded filter is replaced by a larger one, up to [`MAX_FILTER_REBUILD`]
    /// keys; beyond that the replacement waits until the table is rebuilt.
    fn add_to_filter(&mut self, hash: Hash) {
        if self.keys > self.filter.room() && self.keys <= MAX_FILTER_REBUILD {
            self.filter = Filter::new(self.keys * 2);
            self.iter().for_each(|(key, _)| self.filter.add(self.hashing.hash(key)));
        }
        self.filter.add(hash);
    }

    fn change_in_spill<R>(&mut self, at: usize, change: impl FnOnce(&mut V) -> R) -> R {
        let spill = Arc::make_mut(&mut self.spill);
        let result = change(&mut spill[at].1);
        if spill[at].1.is_free() {
            spill.swap_remove(at);
            self.keys -= 1;
        }
        result
    }

    /// Ensures that a key has a lane. Returns false if that is impossible.
    fn make_room(&mut self, hash: Hash, key: u128) -> bool {
        loop {
            let page = self.page(hash);
            if page.find(hash, key).is_some() {
                return true;
            }
            if page.group(hash).tags.first_free().is_some() {
                self.keys += 1;
                let hashing = self.hashing;
                return self.change_page(hash, |page| page.place(&hashing, key, V::FREE));
            }
            let run = self.locate(hash);
            if let Some(larger) = page.grown(&self.hashing) {
                self.put(run, larger);
                continue;
            }
            let Some((low, high)) = (if self.can_split(page) { page.split(&self.hashing) } else { None })
            else {
                return false;
            };
            let run = if low.body.depth > self.depth { self.double(run) } else { run };
            let (start, half) = (run.start, run.len() / 2);
            self.put(start..start + half, low);
            self.put(start + half..run.end, high);
        }
    }

    /// Whether a page may split. A page has room for hundreds of keys. If the directory would have as many
    /// entries as there are keys, the hash does not distinguish them, and the page may not split.
    fn can_split(&self, page: &Page<V>) -> bool {
        let largest = self.keys.min(1 << Hash::DIRECTORY_BITS);
        page.body.depth < self.depth || 1 << self.depth < largest
    }

    /// The page of a hash.
    #[inline(always)]
    pub fn page(&self, hash: Hash) -> &Page<V> {
        self.page_at(hash.directory(self.depth))
    }

    /// A reader of pages for loops over many keys.
    #[inline(always)]
    pub fn reader(&self) -> PageReader<'_, V> {
        PageReader { shift: 32 - self.depth, directory: &self.directory }
    }

    #[inline(always)]
    fn page_at(&self, index: usize) -> &Page<V> {
        &self.directory[index / BLOCK][index % BLOCK]
    }

    /// The range of directory entries of a hash's page.
    fn locate(&self, hash: Hash) -> Range<usize> {
        let index = hash.directory(self.depth);
        let entries = 1 << (self.depth - self.page_at(index).body.depth);
        let start = index & !(entries - 1);
        start..start + entries
    }

    /// Changes the page of a hash.
    fn change_page<R>(&mut self, hash: Hash, change: impl FnOnce(&mut Page<V>) -> R) -> R {
        let run = self.locate(hash);
        if run.len() == 1 {
            let directory = Arc::make_mut(&mut self.directory);
            return change(&mut Arc::make_mut(&mut directory[run.start / BLOCK])[run.start % BLOCK]);
        }
        // Remove the page from the directory meanwhile. With a second owner there it would be copied for
        // nothing.
        let mut page = self.page(hash).clone();
        self.put(run.clone(), Page::new(page.body.depth, 0));
        let result = change(&mut page);
        self.put(run, page);
        result
    }

    /// Stores a page in directory entries.
    fn put(&mut self, run: Range<usize>, page: Page<V>) {
        let directory = Arc::make_mut(&mut self.directory);
        for index in run {
            Arc::make_mut(&mut directory[index / BLOCK])[index % BLOCK] = page.clone();
        }
    }

    /// Doubles the directory. Returns the new position of the entries `run`.
    fn double(&mut self, run: Range<usize>) -> Range<usize> {
        let pages = self.directory.iter().flat_map(|block| block.iter());
        let twice: Vec<_> = pages.flat_map(|page| [page.clone(), page.clone()]).collect();
        self.directory = twice.chunks(BLOCK).map(Arc::from).collect();
        self.depth += 1;
        run.start * 2..run.end * 2
    }

    /// Merges the page of a hash with its sibling, and continues upwards while both are nearly empty.
    fn merge(&mut self, hash: Hash) {
        let mut run = self.locate(hash);
        while run.len() < 1 << self.depth {
            let other = run.start ^ run.len();
            let start = run.start.min(other);
            let merged = self.page_at(run.start).merged(self.page_at(other), &self.hashing);
            let Some(page) = merged else { return };
            run = start..start + 2 * run.len();
            self.put(run.clone(), page);
        }
    }

    /// Every page once.
    fn pages(&self) -> impl Iterator<Item = &Page<V>> {
        let mut index = 0;
        std::iter::from_fn(move || {
            let page = (index < 1 << self.depth).then(|| self.page_at(index))?;
            index += 1 << (self.depth - page.body.depth);
            Some(page)
        })
    }

    /// All keys and what they lead to.
    pub fn iter(&self) -> impl Iterator<Item = (u128, V)> + '_ {
        self.pages().flat_map(Page::keys).chain(self.spill.iter().cloned())
    }

    /// The key whose hash is `hash` and that leads to `slot`, alone or with others.
    pub fn key_of(&self, hash: u64, is_it: impl Fn(&V) -> bool) -> Option<u128> {
        let page = self.page(Hash(hash));
        let own = |(_, value): &(u128, V)| is_it(value);
        let lanes = page.candidates(Hash(hash)).map(|at| page.lane(at));
        lanes
            .filter(|(key, _)| self.hashing.hash(*key).0 == hash)
            .chain(self.spill.iter().cloned())
            .find(own)
            .map(|(key, _)| key)
    }

    /// The table's figures, without what keys lead to; walks all pages.
    pub fn occupancy(&self) -> Occupancy {
        let mut sum = Occupancy { keys: self.keys, overflow: self.spill.len(), ..Occupancy::default() };
        for page in self.pages() {
            sum.pages += 1;
            sum.lanes += page.groups.len() * LANES;
            sum.bytes += page.bytes();
        }
        sum.bytes += self.filter.bytes()
            + self.spill.len() * size_of::<(u128, V)>()
            + (size_of::<Page<V>>() << self.depth);
        sum
    }

    /// What stands outside the pages.
    #[inline(always)]
    pub fn spill(&self) -> &[(u128, V)] {
        &self.spill
    }
}
