//! One hash table: extendible hashing over pages that clones share.
//!
//! Theory of operation. The first `depth` bits of a key's hash index a directory of pages (Fagin et al., "Extendible
//! hashing", 1979). A page whose keys share fewer bits than that stands in several neighbouring entries. When a page
//! is full it splits in two by the next bit, and the directory doubles if it has no bit to tell them apart; nothing
//! else moves. The directory has two levels of [`Arc`], so inserting into a table that another clone shares copies
//! the top (one pointer per 64 entries), 64 entries and one page.
//!
//! A lookup works on a whole vector of packets in passes: hash all, look all pages up and prefetch each packet's group
//! of tags, compare all groups, and go to the keys only for those few whose tag agrees. A table of any size costs two
//! directory reads and one group of tags per packet.

use std::ops::Range;
use std::sync::Arc;

use mmb_packet::window::CHUNKS;
use mmb_packet::{Window, prefetch};

use crate::batch::{Hit, VECTOR};
use crate::group::{Group, LANES};
use crate::hash::{Hash, Seeds};
use crate::page::{Insertion, Page, Removal};
use crate::rules::{Nots, RuleList};

/// Directory entries under one pointer of its top level.
const BLOCK: usize = 64;

const _: () = assert!(VECTOR == 256, "a packet's number is a byte here");

/// Packets that one pass takes together: enough for their memory accesses to overlap, few enough for what one pass
/// leaves to the next to stay in the nearest cache.
const STRIDE: usize = 128;

/// The rules of one mask of `N` chunks, by key.
#[derive(Clone, Debug)]
pub(crate) struct Store<const N: usize> {
    seeds: Seeds,
    /// Which chunks, ascending; the first is always chunk 0.
    chunks: [usize; N],
    mask: [u128; N],
    depth: u32,
    /// `2^depth` pages in blocks of [`BLOCK`] (one block if there are fewer).
    directory: Arc<Vec<Arc<[Page<N>]>>>,
    /// Stands in the directory while a page is being changed, so that the page has no second owner there.
    nothing: Page<N>,
    keys: usize,
    rules: usize,
    /// Keys that found no room in pages that may not split: none unless the hash fails.
    spill: Arc<Vec<([u128; N], RuleList)>>,
}

/// Figures of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Distinct keys.
    pub keys: usize,
    /// Rules.
    pub rules: usize,
    /// Pages.
    pub pages: usize,
    /// Lanes in all pages: the room for keys.
    pub lanes: usize,
    /// Keys that stand outside the pages, where every packet is compared with them: 0 unless the hash fails.
    pub overflow: usize,
    /// Bytes of memory, shares with other clones included.
    pub bytes: usize,
}

impl<const N: usize> Store<N> {
    /// An empty table for the masks of these chunks.
    pub fn new(seeds: Seeds, chunks: [usize; N], mask: &[u128; CHUNKS]) -> Self {
        Store {
            seeds,
            chunks,
            mask: chunks.map(|i| mask[i]),
            depth: 0,
            directory: Arc::new(vec![vec![Page::new(0, 1)].into()]),
            nothing: Page::new(0, 0),
            keys: 0,
            rules: 0,
            spill: Arc::default(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.rules == 0
    }

    /// Adds a rule to the key that `full` has in this table's chunks; returns the key's hash.
    pub fn insert(&mut self, full: &[u128; CHUNKS], slot: u32, nots: Option<&Nots>) -> u64 {
        let key = self.chunks.map(|i| full[i]);
        let hash = self.seeds.hash(&key);
        self.rules += 1;
        if self.spill.iter().any(|(k, _)| *k == key) || !self.insert_in_page(hash, &key, slot, nots) {
            self.insert_in_spill(key, slot, nots);
        }
        hash.0
    }

    fn insert_in_page(&mut self, hash: Hash, key: &[u128; N], slot: u32, nots: Option<&Nots>) -> bool {
        loop {
            let outcome = self.change(hash, |page| page.insert(hash, key, slot, nots));
            if outcome != Insertion::Full {
                self.keys += usize::from(outcome == Insertion::New);
                return true;
            }
            let (index, run) = self.locate(hash);
            let page = self.page(index);
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
    fn may_split(&self, page: &Page<N>) -> bool {
        let largest = self.keys.min(1 << Hash::DIRECTORY_BITS);
        page.body.depth < self.depth || 1 << self.depth < largest
    }

    fn insert_in_spill(&mut self, key: [u128; N], slot: u32, nots: Option<&Nots>) {
        let spill = Arc::make_mut(&mut self.spill);
        if let Some((_, list)) = spill.iter_mut().find(|(k, _)| *k == key) {
            return list.insert(slot, nots);
        }
        let mut list = RuleList::default();
        list.insert(slot, nots);
        spill.push((key, list));
        self.keys += 1;
    }

    /// Takes out a rule whose key has this hash. None: it is not here; otherwise the chunks that its residual
    /// constraints read, as bits.
    pub fn remove(&mut self, hash: u64, slot: u32) -> Option<u8> {
        let hash = Hash(hash);
        let removal = self.change(hash, |page| page.remove(hash, slot));
        let Removal { chunks, last } = match removal {
            Some(removal) => removal,
            None => self.remove_from_spill(slot)?,
        };
        self.rules -= 1;
        if last {
            self.keys -= 1;
            self.merge(hash);
        }
        Some(chunks)
    }

    fn remove_from_spill(&mut self, slot: u32) -> Option<Removal> {
        let at = self.spill.iter().position(|(_, list)| list.contains(slot))?;
        let spill = Arc::make_mut(&mut self.spill);
        let chunks = spill[at].1.remove(slot)?;
        let last = spill[at].1.len() == 0;
        if last {
            spill.swap_remove(at);
        }
        Some(Removal { chunks, last })
    }

    /// The page at a directory index, if there is one.
    #[inline(always)]
    fn page(&self, index: usize) -> &Page<N> {
        &self.directory[index / BLOCK][index % BLOCK]
    }

    /// The directory entry of a hash, and all entries of its page.
    fn locate(&self, hash: Hash) -> (usize, Range<usize>) {
        let index = hash.directory(self.depth);
        let entries = 1 << (self.depth - self.page(index).body.depth);
        let start = index & !(entries - 1);
        (index, start..start + entries)
    }

    /// Changes the page of a hash.
    fn change<R>(&mut self, hash: Hash, change: impl FnOnce(&mut Page<N>) -> R) -> R {
        let (index, run) = self.locate(hash);
        if run.len() == 1 {
            let directory = Arc::make_mut(&mut self.directory);
            return change(&mut Arc::make_mut(&mut directory[index / BLOCK])[index % BLOCK]);
        }
        // Out of the directory meanwhile: with a second owner there the page would be copied for nothing.
        let mut page = self.page(index).clone();
        self.put(run.clone(), self.nothing.clone());
        let result = change(&mut page);
        self.put(run, page);
        result
    }

    /// Puts a page into directory entries.
    fn put(&mut self, run: Range<usize>, page: Page<N>) {
        let directory = Arc::make_mut(&mut self.directory);
        for index in run {
            Arc::make_mut(&mut directory[index / BLOCK])[index % BLOCK] = page.clone();
        }
    }

    /// Doubles the directory; returns where the entries of `run` are now.
    fn double(&mut self, run: Range<usize>) -> Range<usize> {
        let pages = self.directory.iter().flat_map(|block| block.iter());
        let twice: Vec<_> = pages.flat_map(|page| [page.clone(), page.clone()]).collect();
        self.directory = Arc::new(twice.chunks(BLOCK).map(Arc::from).collect());
        self.depth += 1;
        run.start * 2..run.end * 2
    }

    /// Joins the page of a hash with its other half, and so on while they are nearly empty.
    fn merge(&mut self, hash: Hash) {
        let (_, mut run) = self.locate(hash);
        while run.len() < 1 << self.depth {
            let other = run.start ^ run.len();
            let start = run.start.min(other);
            let Some(page) = self.page(run.start).merged(self.page(other), &self.seeds) else { return };
            run = start..start + 2 * run.len();
            self.put(run.clone(), page);
        }
    }

    /// The table's figures; walks all pages.
    pub fn occupancy(&self) -> Occupancy {
        let mut sum = Occupancy {
            keys: self.keys,
            rules: self.rules,
            overflow: self.spill.len(),
            ..Occupancy::default()
        };
        let mut index = 0;
        while index < 1 << self.depth {
            let page = self.page(index);
            sum.pages += 1;
            sum.lanes += page.tags.len() * LANES;
            sum.bytes += page.bytes();
            index += 1 << (self.depth - page.body.depth);
        }
        let spill = |(_, list): &([u128; N], RuleList)| size_of::<[u128; N]>() + list.bytes();
        sum.bytes += self.spill.iter().map(spill).sum::<usize>();
        sum.bytes += size_of::<Page<N>>() << self.depth;
        sum
    }

    #[inline(always)]
    fn masked(&self, window: &Window) -> [u128; N] {
        // Chunk 0 is in every mask; saying so saves the commonest tables an index.
        std::array::from_fn(|k| window.chunk[if k == 0 { 0 } else { self.chunks[k] }] & self.mask[k])
    }

    /// Appends a hit for each rule that matches each of the windows, in ascending order of packets. At most [`VECTOR`]
    /// windows are looked at.
    pub fn classify(&self, windows: &[Window], hits: &mut Vec<Hit>) {
        let first = hits.len();
        let mut hashes = [Hash::default(); VECTOR];
        let mut agree = [0u8; VECTOR];
        let mut n = 0;
        let blocks = windows.chunks(STRIDE).zip(hashes.chunks_exact_mut(STRIDE));
        for (number, (windows, hashes)) in blocks.enumerate() {
            for (hash, window) in hashes.iter_mut().zip(windows) {
                *hash = self.seeds.hash(&self.masked(window));
            }
            let mut groups = [&Group::EMPTY; STRIDE];
            for (group, hash) in groups.iter_mut().zip(&hashes[..windows.len()]) {
                *group = self.group(*hash);
                prefetch::read(*group);
            }
            for (at, (hash, group)) in hashes.iter().zip(&groups).enumerate() {
                agree[n % VECTOR] = (number * STRIDE + at) as u8;
                n += usize::from(!group.find(hash.tag()).is_empty());
            }
        }
        if n != 0 {
            self.compare(windows, &hashes, &agree[..n], hits);
        }
        if !self.spill.is_empty() {
            self.search_spill(windows, hits);
            hits[first..].sort_by_key(|hit| hit.pkt);
        }
    }

    /// The group of tags for a hash.
    #[inline(always)]
    fn group(&self, hash: Hash) -> &Group {
        let tags = &self.page(hash.directory(self.depth)).tags;
        &tags[hash.group(tags.len())]
    }

    /// The last pass: compares the keys of those packets (`agree`: their numbers) of which a tag agrees.
    fn compare(&self, windows: &[Window], hashes: &[Hash; VECTOR], agree: &[u8], hits: &mut Vec<Hit>) {
        for &pkt in agree {
            let hash = hashes[usize::from(pkt)];
            let page = self.page(hash.directory(self.depth));
            if let Some(lane) = page.candidates(hash).next() {
                page.body.prefetch(lane);
            }
        }
        hits.reserve(agree.len());
        for &pkt in agree {
            let (hash, window) = (hashes[usize::from(pkt)], &windows[usize::from(pkt)]);
            let page = self.page(hash.directory(self.depth));
            let key = self.masked(window);
            for lane in page.candidates(hash).filter(|&lane| page.body.key(lane) == Some(&key)) {
                match page.body.value(lane) {
                    Ok(slot) => hits.push(Hit { pkt: pkt.into(), slot }),
                    Err(list) => list.visit(window, |slot| hits.push(Hit { pkt: pkt.into(), slot })),
                }
            }
        }
    }

    #[cold]
    fn search_spill(&self, windows: &[Window], hits: &mut Vec<Hit>) {
        for (at, window) in windows.iter().take(VECTOR).enumerate() {
            let key = self.masked(window);
            for (_, list) in self.spill.iter().filter(|(k, _)| *k == key) {
                list.visit(window, |slot| hits.push(Hit { pkt: at as u16, slot }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a hash that tells no keys apart, everything beyond the first group lands in the overflow, and works.
    #[test]
    fn survives_a_useless_hash() {
        let mut store = Store::<1>::new(Seeds::useless(), [0], &[u128::MAX, 0, 0, 0, 0]);
        let key = |i: u32| [u128::from(i / 2), 0, 0, 0, 0];
        let hashes: Vec<u64> = (0..100).map(|slot| store.insert(&key(slot), slot, None)).collect();
        let found = |store: &Store<1>, i: u32| {
            let mut hits = Vec::new();
            store.classify(
                &[Window { chunk: key(99) }, Window { chunk: key(i) }, Window::default()],
                &mut hits,
            );
            assert!(hits.is_sorted_by_key(|hit| hit.pkt));
            hits.retain(|hit| hit.pkt == 1);
            hits.iter().map(|hit| hit.slot).collect::<Vec<_>>()
        };
        assert_eq!((store.occupancy().keys, store.occupancy().rules), (50, 100));
        assert_eq!(store.spill.len(), 42);
        for i in 0..100 {
            assert_eq!(found(&store, i), [i & !1, i | 1]);
        }
        for i in 0..100 {
            assert!(store.remove(hashes[i as usize], i).is_some());
            assert!(store.remove(hashes[i as usize], i).is_none());
            assert_eq!(found(&store, i), if i % 2 == 0 { vec![i | 1] } else { vec![] });
        }
        assert!(store.is_empty() && store.spill.is_empty() && store.keys == 0);
    }
}
