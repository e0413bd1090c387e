//! A persistent array of numbers, most of which are 0.

use std::sync::Arc;

use mmb_packet::prefetch;

/// Numbers in a page: 16 KiB.
const PAGE: usize = 4096;

type Page = [u32; PAGE];

/// Numbers by place: 0 where nothing was set. Cloning shares all pages; a change copies one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Array {
    pages: Arc<Vec<Option<Arc<Page>>>>,
}

impl Array {
    /// Asks for what [`Array::get`] needs.
    #[inline(always)]
    pub fn prefetch(&self, at: usize) {
        if let Some(Some(page)) = self.pages.get(at / PAGE) {
            prefetch::read(&page[at % PAGE]);
        }
    }

    /// The number at a place.
    #[inline(always)]
    pub fn get(&self, at: usize) -> u32 {
        match self.pages.get(at / PAGE) {
            Some(Some(page)) => page[at % PAGE],
            _ => 0,
        }
    }

    /// Sets a number. A page is copied if it is shared and the number another one.
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

    /// Bytes of memory, what clones share included.
    pub fn bytes(&self) -> usize {
        self.pages.len() * size_of::<Option<Arc<Page>>>()
            + self.pages.iter().flatten().count() * size_of::<Page>()
    }
}
