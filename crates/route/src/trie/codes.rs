//! A persistent array of numbers of which few are different: one byte each.
//!
//! Pages are large, so that few pointers lead to them and their memory is in one piece: lookups miss fewer entries of the
//! processor's page table cache than with small ones. See [`super::palette`] for the codes.

use std::sync::Arc;

use mmb_packet::prefetch;

use super::array::Array;
use super::palette::{OTHER, Palette};

/// Places of a page: 128 KiB.
const PAGE: usize = 1 << 17;

/// Pages.
const PAGES: usize = (1 << 24) / PAGE;

type Page = [u8; PAGE];

/// Places of a row.
pub(crate) const ROW: usize = 32;

/// Numbers by the first bits of an address: 0 where nothing was set.
pub(crate) trait Root: Clone + Default + std::fmt::Debug {
    /// Asks for what [`Root::code`] needs.
    fn prefetch(&self, at: usize);
    /// The code of a place, and whether it counts: if not, [`Root::get`] has the number.
    fn code(&self, at: usize) -> (u8, bool);
    /// The number of a code; of one that does not count, any.
    fn number(&self, code: u8) -> u32;
    /// Asks for what [`Root::get`] needs at a place whose code does not count.
    fn prefetch_other(&self, at: usize);
    /// The number at a place.
    fn get(&self, at: usize) -> u32;
    /// Sets the number at some of the [`ROW`] places of a row: those whose bits are set; the others' are 0.
    fn fill(&mut self, row: usize, places: u64, value: u32);
    /// Sets a number.
    fn set(&mut self, at: usize, value: u32) {
        self.fill(at / ROW, 1 << (at % ROW), value);
    }
    /// Bytes of memory, what clones share included.
    fn bytes(&self) -> usize;
}

/// Numbers by place, of which there are 2^24: 0 where nothing was set. Cloning shares all pages; a change copies a few.
#[derive(Clone, Debug)]
pub(crate) struct Codes {
    pages: Arc<[Arc<Page>; PAGES]>,
    /// The page that stands where nothing was set, so that no lookup has to ask whether there is one.
    empty: Arc<Page>,
    palette: Arc<Palette>,
    /// Numbers of places whose code is [`OTHER`].
    others: Array,
}

impl Default for Codes {
    fn default() -> Self {
        let empty = Arc::new([0; PAGE]);
        let pages = Arc::new(std::array::from_fn(|_| Arc::clone(&empty)));
        Codes { pages, empty, palette: Arc::default(), others: Array::default() }
    }
}

impl Root for Codes {
    #[inline(always)]
    fn prefetch(&self, at: usize) {
        prefetch::read(&self.pages[at / PAGE % PAGES][at % PAGE]);
    }

    #[inline(always)]
    fn code(&self, at: usize) -> (u8, bool) {
        let code = self.pages[at / PAGE % PAGES][at % PAGE];
        (code, code != OTHER)
    }

    #[inline(always)]
    fn number(&self, code: u8) -> u32 {
        self.palette.number(code)
    }

    #[inline(always)]
    fn prefetch_other(&self, at: usize) {
        self.others.prefetch(at);
    }

    #[inline]
    fn get(&self, at: usize) -> u32 {
        match self.code(at) {
            (code, true) => self.palette.number(code),
            (_, false) => self.others.get(at),
        }
    }

    fn fill(&mut self, row: usize, places: u64, value: u32) {
        let mut rest = places;
        while rest != 0 {
            self.set(row * ROW + rest.trailing_zeros() as usize, value);
            rest &= rest - 1;
        }
    }

    fn set(&mut self, at: usize, value: u32) {
        let (before, _) = self.code(at);
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

    fn bytes(&self) -> usize {
        self.pages.iter().filter(|page| !Arc::ptr_eq(page, &self.empty)).count() * PAGE
            + size_of::<Palette>()
            + self.others.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::NODE;
    use super::*;

    #[test]
    fn more_numbers_than_codes() {
        let mut codes = Codes::default();
        let mut past = Vec::new();
        for n in 0..600 {
            past.push(codes.clone());
            codes.set(n * 700, n as u32 + 5);
        }
        assert_eq!((codes.number(codes.code(0).0), codes.code(599 * 700)), (5, (OTHER, false)));
        for (upto, codes) in past.into_iter().enumerate() {
            assert!((0..600).all(|n| codes.get(n * 700) == if n < upto { n as u32 + 5 } else { 0 }));
            assert_eq!((codes.get(1), codes.get(1 << 20)), (0, 0));
        }
    }

    #[test]
    fn codes_are_used_again() {
        let mut codes = Codes::default();
        for n in 0..10_000 {
            codes.set(PAGE + n % 100, n as u32);
            codes.set(7 + n % 3, if n % 5 == 0 { NODE | n as u32 } else { 0 });
        }
        assert!((0..100).all(|at| codes.number(codes.code(PAGE + at).0) == 9900 + at as u32));
        (0..100).for_each(|at| codes.set(PAGE + at, 0));
        assert!((0..400).all(|n| {
            codes.set(n, n as u32 + 1);
            n > 253 || codes.number(codes.code(n).0) == n as u32 + 1
        }));
    }
}
