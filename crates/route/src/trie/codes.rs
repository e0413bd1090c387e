//! A persistent array of numbers with few distinct values: one byte each.
//!
//! Pages are large, so lookups miss fewer TLB entries than with small pages. See [`super::palette`] for the
//! codes.

use std::sync::Arc;

use mmb_packet::prefetch;

use super::array::Array;
use super::palette::{OVERFLOW, Palette};

/// Slots per page: 128 KiB.
const PAGE: usize = 1 << 17;

/// Number of pages.
const PAGES: usize = (1 << 24) / PAGE;

type Page = [u8; PAGE];

/// Slots per row.
pub(crate) const ROW: usize = 32;

/// Values by the first bits of an address; unset ones are 0.
pub trait Root: Clone + Default + std::fmt::Debug {
    /// Prefetches the memory that [`Root::code`] reads.
    fn prefetch(&self, at: usize);
    /// The code of a slot, and whether it is valid. If not, [`Root::get`] has the value.
    fn code(&self, at: usize) -> (u8, bool);
    /// The value of a code; unspecified for an invalid code.
    fn number(&self, code: u8) -> u32;
    /// Prefetches the memory that [`Root::get`] reads for a slot without a valid code.
    fn prefetch_other(&self, at: usize);
    /// The value of a slot.
    fn get(&self, at: usize) -> u32;
    /// Sets the value of the slots of a row whose bits are set in `slots`. A row has [`ROW`] slots.
    fn fill(&mut self, row: usize, slots: u64, value: u32);
    /// Sets the value of a slot.
    fn set(&mut self, at: usize, value: u32) {
        self.fill(at / ROW, 1 << (at % ROW), value);
    }
    /// Memory in bytes, shared pages included.
    fn bytes(&self) -> usize;
}

/// Values of 2^24 slots; unset ones are 0. A clone shares all pages; a change copies a few.
#[derive(Clone, Debug)]
pub struct Codes {
    pages: Arc<[Arc<Page>; PAGES]>,
    /// The page of unset slots, so that a lookup needs no test for a missing page.
    empty: Arc<Page>,
    palette: Arc<Palette>,
    /// Values of slots whose code is [`OVERFLOW`].
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
        (code, code != OVERFLOW)
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

    fn fill(&mut self, row: usize, slots: u64, value: u32) {
        let mut rest = slots;
        while rest != 0 {
            self.set(row * ROW + rest.trailing_zeros() as usize, value);
            rest &= rest - 1;
        }
    }

    fn set(&mut self, at: usize, value: u32) {
        let (before, _) = self.code(at);
        let code = Arc::make_mut(&mut self.palette).code(value);
        if code == OVERFLOW || before == OVERFLOW {
            self.others.set(at, if code == OVERFLOW { value } else { 0 });
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
    use super::super::entry::NODE;
    use super::*;

    #[test]
    fn numbers_beyond_the_palette_overflow() {
        let mut codes = Codes::default();
        let mut past = Vec::new();
        for n in 0..600 {
            past.push(codes.clone());
            codes.set(n * 700, n as u32 + 5);
        }
        assert_eq!((codes.number(codes.code(0).0), codes.code(599 * 700)), (5, (OVERFLOW, false)));
        for (upto, codes) in past.into_iter().enumerate() {
            assert!((0..600).all(|n| codes.get(n * 700) == if n < upto { n as u32 + 5 } else { 0 }));
            assert_eq!((codes.get(1), codes.get(1 << 20)), (0, 0));
        }
    }

    #[test]
    fn unused_codes_are_reused() {
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
