//! A persistent allocator of blocks of words.
//!
//! Theory of operation. A block is a run of granules (`G` words) in one page. Its number is that of its
//! first granule. Blocks of two or more granules begin at an even granule, so a block of two never crosses
//! a cache line. Free blocks form one list per size; the first word of a free block holds the next block's
//! number. The lists are thus in the pages, which clones share. Number 0 is not a block.

use std::sync::Arc;

/// Granules per page: 4 KiB for each word of a granule.
const PAGE: usize = 1024;
/// Number of free lists: blocks of one granule, of two, of four, …
const SIZES: usize = 12;
/// Upper bound of block numbers.
pub(crate) const NUMBERS: u32 = 1 << 26;

#[derive(Clone, Debug)]
#[repr(align(64))]
struct Page<const G: usize>([[u32; G]; PAGE]);

/// Blocks by number. A clone shares all pages; a change copies one page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arena<const G: usize> {
    pages: Arc<Vec<Arc<Page<G>>>>,
    free: [u32; SIZES],
    /// First granule that has never been part of a block.
    fresh: usize,
}

impl<const G: usize> Arena<G> {
    const EMPTY: &Page<G> = &Page([[0; G]; PAGE]);

    /// An arena with blocks of one granule each, numbered from 0; at most one page of them.
    pub fn starting_with(blocks: impl Iterator<Item = [u32; G]>) -> Self {
        let mut page = Self::EMPTY.clone();
        let mut fresh = 0;
        for (granule, block) in page.0.iter_mut().zip(blocks) {
            *granule = block;
            fresh += 1;
        }
        Arena { pages: Arc::new(vec![Arc::new(page)]), free: [0; SIZES], fresh }
    }

    /// Number of granules of a block that holds this many words.
    pub fn granules(words: usize) -> usize {
        match words.div_ceil(G) {
            0 | 1 => 1,
            n => n.next_multiple_of(2),
        }
    }

    /// First granule of a block.
    #[inline(always)]
    pub fn granule(&self, block: u32) -> &[u32; G] {
        &self.page(block).0[block as usize % PAGE]
    }

    #[inline(always)]
    fn page(&self, block: u32) -> &Page<G> {
        self.pages.get(block as usize / PAGE).map_or(Self::EMPTY, |page| page)
    }

    /// First granule of a block, and a function that reads the block's words.
    #[inline(always)]
    pub fn block(&self, block: u32) -> (&[u32; G], impl Fn(usize) -> u32) {
        let page = &self.page(block).0;
        let first = block as usize;
        let words = page.as_flattened();
        (&page[first % PAGE], move |word| words[(first * G).wrapping_add(word) % (PAGE * G)])
    }

    /// The words of a block, mutable.
    pub fn write(&mut self, block: u32) -> &mut [u32] {
        match Arc::make_mut(&mut self.pages).get_mut(block as usize / PAGE) {
            Some(page) => Arc::make_mut(page).0[block as usize % PAGE..].as_flattened_mut(),
            None => &mut [],
        }
    }

    /// Allocates a block with this number of granules (see [`Arena::granules`]). `None` if no numbers are
    /// left.
    pub fn allocate(&mut self, granules: usize) -> Option<u32> {
        let list = granules / 2;
        let block = self.free[list];
        if block != 0 {
            self.free[list] = self.granule(block)[0];
            return Some(block);
        }
        self.fresh = self.fresh.max(2);
        if self.fresh % PAGE + granules > PAGE {
            self.fresh = self.fresh.next_multiple_of(PAGE);
        }
        if self.fresh + granules >= NUMBERS as usize {
            return None;
        }
        if self.fresh / PAGE >= self.pages.len() {
            Arc::make_mut(&mut self.pages).push(Arc::new(Self::EMPTY.clone()));
        }
        let mut block = self.fresh;
        if granules > 1 && !block.is_multiple_of(2) {
            self.free(block as u32, 1);
            block += 1;
        }
        self.fresh = block + granules;
        Some(block as u32)
    }

    /// Frees a block with this number of granules.
    pub fn free(&mut self, block: u32, granules: usize) {
        let next = std::mem::replace(&mut self.free[granules / 2], block);
        if let Some(word) = self.write(block).first_mut() {
            *word = next;
        }
    }

    /// Memory in bytes, shared pages included.
    pub fn bytes(&self) -> usize {
        self.pages.len() * (size_of::<Page<G>>() + size_of::<usize>())
    }
}
