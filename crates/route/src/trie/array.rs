//! A persistent sparse array of numbers.
//!
//! Theory of operation. Pages are behind shared pointers. A clone copies a pointer, a read follows two, and
//! a change of a shared page copies 16 KiB. Persistent vectors of crates were measured beside this one, with
//! a million numbers (the lowest of several runs on a loaded machine). A read that depends on the one before
//! takes 27 ns here, 298 ns with `imbl::Vector` and some 1,100 ns with `rpds::Vector`; each packet reads.
//! The first change of a clone takes 5.2 µs here, 2.6 µs and 1.3 µs there. Of 64 changes of neighbours in
//! one clone, as routes are published, each takes 34 ns here, 67 ns and 46 ns there.

use std::sync::Arc;

use mmb_packet::prefetch;

/// Numbers per page: 16 KiB.
const PAGE: usize = 4096;

type Page = [u32; PAGE];

/// Numbers by index; unset ones are 0. A clone shares all pages; a change copies one page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Array {
    pages: Arc<Vec<Option<Arc<Page>>>>,
}

impl Array {
    /// Prefetches the memory that [`Array::get`] reads.
    #[inline(always)]
    pub fn prefetch(&self, at: usize) {
        if let Some(Some(page)) = self.pages.get(at / PAGE) {
            prefetch::read(&page[at % PAGE]);
        }
    }

    /// The number at an index.
    #[inline(always)]
    pub fn get(&self, at: usize) -> u32 {
        match self.pages.get(at / PAGE) {
            Some(Some(page)) => page[at % PAGE],
            _ => 0,
        }
    }

    /// Sets a number. A shared page is copied if the number changes.
    pub fn set(&mut self, at: usize, value: u32) {
        if self.get(at) == value {
            return;
        }
        let pages = Arc::make_mut(&mut self.pages);
        if pages.len() <= at / PAGE {
            pages.resize(at / PAGE + 1, None);
        }
        let page = pages[at / PAGE].get_or_insert_with(|| Arc::new([0; PAGE]));
        Arc::make_mut(page)[at % PAGE] = value;
    }

    /// Memory in bytes, shared pages included.
    pub fn bytes(&self) -> usize {
        self.pages.len() * size_of::<Option<Arc<Page>>>()
            + self.pages.iter().flatten().count() * size_of::<Page>()
    }
}
