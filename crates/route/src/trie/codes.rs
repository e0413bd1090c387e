//! A persistent array of numbers of which few are different: one byte each.
//!
//! Pages are large, so that few pointers lead to them and their memory is in one piece: lookups miss fewer entries of the
//! processor's page table cache than with small ones. See [`super::palette`] for the codes.

use std::sync::Arc;

use super::palette::{OTHER, Palette};

/// Places of a page: 128 KiB.
const PAGE: usize = 1 << 17;

/// Pages.
const PAGES: usize = (1 << 24) / PAGE;

type Page = [u8; PAGE];

/// Where numbers without a code stand.
pub(crate) trait Others: Clone + Default + std::fmt::Debug {
    /// Asks for what [`Others::get`] needs.
    fn prefetch(&self, at: usize);
    /// The number at a place, 0 if none was set.
    fn get(&self, at: usize) -> u32;
    /// Sets a number.
    fn set(&mut self, at: usize, value: u32);
    /// Bytes of memory.
    fn bytes(&self) -> usize;
}

/// Numbers by place, of which there are 2^24: 0 where nothing was set. Cloning shares all pages; a change copies a few.
#[derive(Clone, Debug)]
pub(crate) struct Codes<O> {
    pages: Arc<[Arc<Page>; PAGES]>,
    /// The page that stands where nothing was set, so that no lookup has to ask whether there is one.
    empty: Arc<Page>,
    palette: Arc<Palette>,
    /// Numbers of places whose code is [`OTHER`].
    others: O,
}

impl<O: Others> Default for Codes<O> {
    fn default() -> Self {
        let empty = Arc::new([0; PAGE]);
        let pages = Arc::new(std::array::from_fn(|_| Arc::clone(&empty)));
        Codes { pages, empty, palette: Arc::default(), others: O::default() }
    }
}

impl<O: Others> Codes<O> {
    /// The code of a place.
    #[inline(always)]
    pub fn code(&self, at: usize) -> u8 {
        self.pages[at / PAGE % PAGES][at % PAGE]
    }

    /// The number of a code; [`super::palette::ELSEWHERE`]: [`Codes::get`] has it.
    #[inline(always)]
    pub fn number(&self, code: u8) -> u32 {
        self.palette.number(code)
    }

    /// Asks for what [`Codes::get`] needs at a place whose code is [`OTHER`].
    #[inline(always)]
    pub fn prefetch_other(&self, at: usize) {
        self.others.prefetch(at);
    }

    /// The number at a place.
    #[inline]
    pub fn get(&self, at: usize) -> u32 {
        match self.code(at) {
            OTHER => self.others.get(at),
            code => self.palette.number(code),
        }
    }

    /// Sets a number.
    pub fn set(&mut self, at: usize, value: u32) {
        let before = self.code(at);
        let code = Arc::make_mut(&mut self.palette).code(value);
        if code == OTHER || before == OTHER {
            self.others.set(at, if code == OTHER { value } else { 0 });
        }
        if code == before {
            return;
        }
        Arc::make_mut(&mut self.palette).count(before, code, 1);
        let pages = Arc::make_mut(&mut self.pages);
        Arc::make_mut(&mut pages[at / PAGE % PAGES])[at % PAGE] = code;
    }

    /// Bytes of memory, what clones share included.
    pub fn bytes(&self) -> usize {
        self.pages.iter().filter(|page| !Arc::ptr_eq(page, &self.empty)).count() * PAGE
            + size_of::<Palette>()
            + self.others.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::NODE;
    use super::super::palette::ELSEWHERE;
    use super::super::sparse::Sparse;
    use super::*;

    #[test]
    fn more_numbers_than_codes() {
        let mut codes = Codes::<Sparse>::default();
        let mut past = Vec::new();
        for n in 0..600 {
            past.push(codes.clone());
            codes.set(n * 700, n as u32 + 5);
        }
        assert_eq!((codes.number(codes.code(0)), codes.number(codes.code(599 * 700))), (5, ELSEWHERE));
        for (upto, codes) in past.into_iter().enumerate() {
            assert!((0..600).all(|n| codes.get(n * 700) == if n < upto { n as u32 + 5 } else { 0 }));
            assert_eq!((codes.get(1), codes.get(1 << 20)), (0, 0));
        }
    }

    #[test]
    fn codes_are_used_again() {
        let mut codes = Codes::<Sparse>::default();
        for n in 0..10_000 {
            codes.set(PAGE + n % 100, n as u32);
            codes.set(7 + n % 3, if n % 5 == 0 { NODE | n as u32 } else { 0 });
        }
        assert!((0..100).all(|at| codes.number(codes.code(PAGE + at)) == 9900 + at as u32));
        (0..100).for_each(|at| codes.set(PAGE + at, 0));
        assert!((0..400).all(|n| {
            codes.set(n, n as u32 + 1);
            n > 253 || codes.number(codes.code(n)) == n as u32 + 1
        }));
    }
}
