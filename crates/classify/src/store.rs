//! One hash table: extendible hashing over pages that clones share.
//!
//! Theory of operation. The first `depth` bits of a key's hash index a directory of pages (Fagin et al., "Extendible
//! hashing", 1979). A page whose keys share fewer bits than that stands in several neighbouring entries. When a page
//! is full it splits in two by the next bit, and the directory doubles if it has no bit to tell them apart; nothing
//! else moves. The directory has two levels of [`Arc`], so inserting into a table that another clone shares copies
//! the top (one pointer per 64 entries), 64 entries and one page.

use std::ops::Range;
use std::sync::Arc;

use crate::filter::Filter;
use crate::group::LANES;
use crate::hash::{Hash, Seeds};
use crate::owner::Owner;
use crate::page::Page;

/// Directory entries under one pointer of its top level.
const BLOCK: usize = 64;

/// Most keys that a larger filter gets while packets flow: some hundred microseconds.
const MOST_MOVED: usize = 1 << 13;

/// What the values of a masked chunk lead to.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub seeds: Seeds,
    depth: u32,
    /// `2^depth` pages in blocks of [`BLOCK`] (one block if there are fewer).
    directory: Arc<[Arc<[Page]>]>,
    keys: usize,
    /// Which keys there may be.
    pub filter: Filter,
    /// Keys that found no room in pages that may not split: none unless the hash fails.
    spill: Arc<Vec<(u128, Owner)>>,
}

/// Figures of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Distinct keys.
    pub keys: usize,
    /// Pages.
    pub pages: usize,
    /// Lanes in all pages: the room for keys.
    pub lanes: usize,
    /// Keys that stand outside the pages, where every packet is compared with them: 0 unless the hash fails.
    pub overflow: usize,
    /// Bytes of memory, shares with other clones included.
    pub bytes: usize,
}

impl Store {
    /// An empty table with a filter for so many keys.
    pub fn new(seeds: Seeds, keys: usize) -> Self {
        Store {
            seeds,
            depth: 0,
            directory: vec![vec![Page::new(0, 1)].into()].into(),
            keys: 0,
            filter: Filter::new(keys),
            spill: Arc::default(),
        }
    }

    /// Changes what a key leads to, which is [`Owner::Free`] if it is not here, and is not here afterwards if it is
    /// made that.
    pub fn change<R>(&mut self, key: u128, change: impl FnOnce(&mut Owner) -> R) -> R {
        let hash = self.seeds.hash(key);
        self.let_in(hash);
        if let Some(at) = self.spill.iter().position(|(k, _)| *k == key) {
            return self.change_in_spill(at, change);
        }
        if !self.make_room(hash, key) {
            Arc::make_mut(&mut self.spill).push((key, Owner::Free));
            self.keys += 1;
            return self.change_in_spill(self.spill.len() - 1, change);
        }
        let (result, last) = self.change_page(hash, |page| {
            let at = page.find(hash, key).unwrap_or_default();
            page.change(at, change)
        });
        if last {
            self.keys -= 1;
            self.merge(hash);
        }
        result
    }

    /// Lets a key through the filter, a larger one if it gets crowded; beyond [`MOST_MOVED`] that waits until the whole table is
    /// made anew.
    fn let_in(&mut self, hash: Hash) {
        if self.keys > self.filter.room() && self.keys <= MOST_MOVED {
            self.filter = Filter::new(self.keys * 2);
            self.iter().for_each(|(key, _)| self.filter.add(self.seeds.hash(key)));
        }
        self.filter.add(hash);
    }

    fn change_in_spill<R>(&mut self, at: usize, change: impl FnOnce(&mut Owner) -> R) -> R {
        let spill = Arc::make_mut(&mut self.spill);
        let result = change(&mut spill[at].1);
        if matches!(spill[at].1, Owner::Free) {
            spill.swap_remove(at);
            self.keys -= 1;
        }
        result
    }

    /// Makes sure that a key has a lane; false: there can be none.
    fn make_room(&mut self, hash: Hash, key: u128) -> bool {
        loop {
            let page = self.page(hash);
            if page.find(hash, key).is_some() {
                return true;
            }
            if page.tags[hash.group(page.tags.len())].free().is_some() {
                self.keys += 1;
                return self.change_page(hash, |page| page.place(hash, key, Owner::Free));
            }
            let run = self.locate(hash);
            if let Some(larger) = page.grown(&self.seeds) {
                self.put(run, larger);
                continue;
            }
            let Some((low, high)) = (if self.may_split(page) { page.split(&self.seeds) } else { None })
            else {
                return false;
            };
            let run = if low.body.depth > self.depth { self.double(run) } else { run };
            let (start, half) = (run.start, run.len() / 2);
            self.put(start..start + half, low);
            self.put(start + half..run.end, high);
        }
    }

    /// A page may split unless the directory had to grow beyond all proportion for it: a page has room for hundreds of
    /// keys, so a directory with as many entries as there are keys means that the hash does not tell them apart.
    fn may_split(&self, page: &Page) -> bool {
        let largest = self.keys.min(1 << Hash::DIRECTORY_BITS);
        page.body.depth < self.depth || 1 << self.depth < largest
    }

    /// The page of a hash.
    #[inline(always)]
    pub fn page(&self, hash: Hash) -> &Page {
        self.page_at(hash.directory(self.depth))
    }

    #[inline(always)]
    fn page_at(&self, index: usize) -> &Page {
        &self.directory[index / BLOCK][index % BLOCK]
    }

    /// All directory entries of a hash's page.
    fn locate(&self, hash: Hash) -> Range<usize> {
        let index = hash.directory(self.depth);
        let entries = 1 << (self.depth - self.page_at(index).body.depth);
        let start = index & !(entries - 1);
        start..start + entries
    }

    /// Changes the page of a hash.
    fn change_page<R>(&mut self, hash: Hash, change: impl FnOnce(&mut Page) -> R) -> R {
        let run = self.locate(hash);
        if run.len() == 1 {
            let directory = Arc::make_mut(&mut self.directory);
            return change(&mut Arc::make_mut(&mut directory[run.start / BLOCK])[run.start % BLOCK]);
        }
        // Out of the directory meanwhile: with a second owner there the page would be copied for nothing.
        let mut page = self.page(hash).clone();
        self.put(run.clone(), Page::new(page.body.depth, 0));
        let result = change(&mut page);
        self.put(run, page);
        result
    }

    /// Puts a page into directory entries.
    fn put(&mut self, run: Range<usize>, page: Page) {
        let directory = Arc::make_mut(&mut self.directory);
        for index in run {
            Arc::make_mut(&mut directory[index / BLOCK])[index % BLOCK] = page.clone();
        }
    }

    /// Doubles the directory; returns where the entries of `run` are now.
    fn double(&mut self, run: Range<usize>) -> Range<usize> {
        let pages = self.directory.iter().flat_map(|block| block.iter());
        let twice: Vec<_> = pages.flat_map(|page| [page.clone(), page.clone()]).collect();
        self.directory = twice.chunks(BLOCK).map(Arc::from).collect();
        self.depth += 1;
        run.start * 2..run.end * 2
    }

    /// Joins the page of a hash with its other half, and so on while they are nearly empty.
    fn merge(&mut self, hash: Hash) {
        let mut run = self.locate(hash);
        while run.len() < 1 << self.depth {
            let other = run.start ^ run.len();
            let start = run.start.min(other);
            let merged = self.page_at(run.start).merged(self.page_at(other), &self.seeds);
            let Some(page) = merged else { return };
            run = start..start + 2 * run.len();
            self.put(run.clone(), page);
        }
    }

    /// Every page once.
    fn pages(&self) -> impl Iterator<Item = &Page> {
        let mut index = 0;
        std::iter::from_fn(move || {
            let page = (index < 1 << self.depth).then(|| self.page_at(index))?;
            index += 1 << (self.depth - page.body.depth);
            Some(page)
        })
    }

    /// All keys and what they lead to.
    pub fn iter(&self) -> impl Iterator<Item = (u128, Owner)> + '_ {
        self.pages().flat_map(Page::keys).chain(self.spill.iter().cloned())
    }

    /// The key whose hash is `hash` and that leads to `slot`, alone or with others.
    pub fn key_of(&self, hash: u64, slot: u32) -> Option<u128> {
        let page = self.page(Hash(hash));
        let own = |(_, owner): &(u128, Owner)| owner.has_exact(slot);
        let lanes = page.candidates(Hash(hash)).map(|at| page.lane(at));
        lanes
            .filter(|(key, _)| self.seeds.hash(*key).0 == hash)
            .chain(self.spill.iter().cloned())
            .find(own)
            .map(|(key, _)| key)
    }

    /// The table's figures, without what keys lead to; walks all pages.
    pub fn occupancy(&self) -> Occupancy {
        let mut sum = Occupancy { keys: self.keys, overflow: self.spill.len(), ..Occupancy::default() };
        for page in self.pages() {
            sum.pages += 1;
            sum.lanes += page.tags.len() * LANES;
            sum.bytes += page.bytes();
        }
        sum.bytes += self.filter.bytes()
            + self.spill.len() * size_of::<(u128, Owner)>()
            + (size_of::<Page>() << self.depth);
        sum
    }

    /// What stands outside the pages.
    #[inline(always)]
    pub fn spill(&self) -> &[(u128, Owner)] {
        &self.spill
    }
}
