//! A persistent array of numbers with few distinct values and long runs, in as few cache lines as possible.
//! With a million routes and random lookups, cache misses dominate the cost.
//!
//! Theory of operation. 32 slots form a row of 16 bytes: a bitmap of the starts of runs, and the codes of
//! up to twelve runs, five bits each (see [`super::palette`]). A row with more runs, or with a larger code,
//! holds the number of a block instead of the codes. The block has one byte per code, followed by the
//! numbers of the runs with code [`OVERFLOW`]. A run always begins at the first slot, so that bit is free: it
//! tells whether the codes are in the row. Rows with one large code share blocks 0 to 255.

use std::sync::Arc;

use mmb_packet::prefetch;

use super::arena::Arena;
use super::codes::{ROW, Root};
use super::entry::rank;
use super::palette::{OVERFLOW, Palette};

/// Rows per page: 64 KiB.
const PAGE: usize = 4096;
/// Number of pages, for 2^25 slots.
const PAGES: usize = 256;
/// Address per code in a row.
const BITS: u32 = 5;
/// Maximum number of codes in a row.
const INLINE_CODES: usize = 12;
/// Number of blocks that rows of one run share.
const UNIFORM: u32 = 256;

/// Arena of blocks of 16 bytes or more.
type Blocks = Arena<4>;

/// Run bitmap, and codes or the number of a block; see the module's theory of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(16))]
struct Row {
    runs: u64,
    codes: u64,
}

/// A row of code 0.
const EMPTY: Row = Row { runs: 1, codes: 0 };

impl Row {
    #[inline(always)]
    fn is_inline(self) -> bool {
        self.runs & 1 != 0
    }

    /// The code of a slot if the codes are in the row; unspecified otherwise.
    #[inline(always)]
    fn code(self, at: usize) -> u8 {
        // Shifts the slot's bit to the top and the later ones out.
        let run = (self.runs << (63 - at % ROW)).count_ones().wrapping_sub(1);
        self.codes.wrapping_shr(BITS.wrapping_mul(run)) as u8 & ((1 << BITS) - 1)
    }

    /// The run that contains a slot.
    fn run(self, at: usize) -> usize {
        rank(self.runs | 1, at % ROW)
    }

    /// Index of the first number behind a block's codes.
    fn numbers(self) -> usize {
        ((self.runs | 1).count_ones() as usize).div_ceil(4)
    }

    /// The row's block unless it is shared.
    fn own_block(self) -> Option<u32> {
        (!self.is_inline() && self.codes as u32 >= UNIFORM).then_some(self.codes as u32)
    }
}

type Page = [Row; PAGE];

/// Codes of a row's slots, and the numbers of those with code [`OVERFLOW`].
struct RowValues {
    codes: [u8; ROW],
    numbers: [u32; ROW],
}

/// Counts the codes [`OVERFLOW`] (all ones) among four codes.
fn count_overflow(codes: u32) -> usize {
    (((codes & 0x7f7f_7f7f) + 0x0101_0101) & codes & 0x8080_8080).count_ones() as usize
}

/// Numbers of 2^25 slots; unset ones are 0. A clone shares all pages; a change copies a few.
#[derive(Clone, Debug)]
pub struct Rows {
    pages: Arc<[Arc<Page>; PAGES]>,
    /// The page of unset slots, so that a lookup needs no test for a missing page.
    empty: Arc<Page>,
    blocks: Blocks,
    palette: Arc<Palette>,
}

impl Default for Rows {
    fn default() -> Self {
        let empty = Arc::new([EMPTY; PAGE]);
        let pages = Arc::new(std::array::from_fn(|_| Arc::clone(&empty)));
        let blocks = Blocks::starting_with((0..UNIFORM).map(|code| [code, 0, 0, 0]));
        Rows { pages, empty, blocks, palette: Arc::default() }
    }
}

impl Rows {
    #[inline(always)]
    fn row(&self, row: usize) -> &Row {
        &self.pages[row / PAGE % PAGES][row % PAGE]
    }

    /// The number of a slot in a row with a block.
    fn block_number(&self, row: Row, at: usize) -> u32 {
        let run = row.run(at);
        let (_, word) = self.blocks.block(row.codes as u32);
        let code = (word(run / 4) >> (8 * (run % 4))) as u8;
        if code != OVERFLOW {
            return self.palette.number(code);
        }
        let before = (0..run / 4).map(|n| count_overflow(word(n))).sum::<usize>()
            + count_overflow(word(run / 4) & !(u32::MAX << (8 * (run % 4))));
        word(row.numbers() + before)
    }

    /// Reads a row's slots.
    fn load(&self, row: Row) -> RowValues {
        let (_, word) = self.blocks.block(row.codes as u32);
        let mut slots = RowValues { codes: [0; ROW], numbers: [0; ROW] };
        let (mut starts, mut run, mut at) = (row.runs | 1, 0, row.numbers());
        while starts != 0 {
            let start = starts.trailing_zeros() as usize;
            starts &= starts - 1;
            let end = (starts.trailing_zeros() as usize).min(ROW);
            let code = match row.is_inline() {
                true => row.code(start),
                false => (word(run / 4) >> (8 * (run % 4))) as u8,
            };
            slots.codes[start..end].fill(code);
            if code == OVERFLOW {
                slots.numbers[start..end].fill(word(at));
                at += 1;
            }
            run += 1;
        }
        slots
    }

    /// Writes a row in slot of `old`. Without memory the row stays unchanged.
    fn store(&mut self, at: usize, old: Row, slots: &RowValues) {
        let (mut runs, mut n, mut largest) = (0u64, 0, 0);
        let (mut codes, mut rest, mut n_rest) = ([0u8; ROW], [0u32; ROW], 0);
        for (slot, (code, number)) in slots.codes.iter().zip(&slots.numbers).enumerate() {
            if slot == 0 || (slots.codes[slot - 1], slots.numbers[slot - 1]) != (*code, *number) {
                runs |= 1 << slot;
                codes[n] = *code;
                n += 1;
                largest = largest.max(*code);
                rest[n_rest] = *number;
                n_rest += usize::from(*code == OVERFLOW);
            }
        }
        let now = self.granules(old);
        let words = n.div_ceil(4);
        let is_inline = n <= INLINE_CODES && largest < 1 << BITS;
        let then =
            if is_inline || (n == 1 && largest != OVERFLOW) { 0 } else { Blocks::granules(words + n_rest) };
        let block = match (then, old.own_block()) {
            (0, _) => Some(u32::from(codes[0])),
            (_, Some(block)) if then == now => Some(block),
            _ => self.blocks.allocate(then),
        };
        let Some(block) = block else { return };
        if let Some(freed) = old.own_block()
            && freed != block
        {
            self.blocks.free(freed, now);
        }
        let row = if is_inline {
            let put = |word, (run, code): (usize, &u8)| word | u64::from(*code) << (BITS as usize * run);
            Row { runs, codes: codes[..n].iter().enumerate().fold(0, put) }
        } else {
            Row { runs: runs & !1, codes: block.into() }
        };
        if then > 0 {
            let to = self.blocks.write(block);
            for (to, codes) in to[..words].iter_mut().zip(codes.as_chunks().0) {
                *to = u32::from_le_bytes(*codes);
            }
            to[words..words + n_rest].copy_from_slice(&rest[..n_rest]);
        }
        if row != old {
            Arc::make_mut(&mut Arc::make_mut(&mut self.pages)[at / PAGE % PAGES])[at % PAGE] = row;
        }
    }

    /// Number of granules of a row's own block; 0: none.
    fn granules(&self, row: Row) -> usize {
        let Some(block) = row.own_block() else { return 0 };
        let (_, word) = self.blocks.block(block);
        let words = row.numbers();
        Blocks::granules(words + (0..words).map(|n| count_overflow(word(n))).sum::<usize>())
    }
}

impl Root for Rows {
    #[inline(always)]
    fn prefetch(&self, at: usize) {
        prefetch::read(self.row(at / ROW));
    }

    #[inline(always)]
    fn code(&self, at: usize) -> (u8, bool) {
        let row = self.row(at / ROW);
        (row.code(at), row.is_inline())
    }

    #[inline(always)]
    fn number(&self, code: u8) -> u32 {
        self.palette.number(code)
    }

    #[inline(always)]
    fn prefetch_other(&self, at: usize) {
        prefetch::read(self.blocks.granule(self.row(at / ROW).codes as u32));
    }

    #[inline]
    fn get(&self, at: usize) -> u32 {
        let row = *self.row(at / ROW);
        if row.is_inline() { self.palette.number(row.code(at)) } else { self.block_number(row, at) }
    }

    fn fill(&mut self, row: usize, slots: u64, value: u32) {
        let code = Arc::make_mut(&mut self.palette).code(value);
        let number = if code == OVERFLOW { value } else { 0 };
        let old = *self.row(row);
        let mut all = self.load(old);
        let palette = Arc::make_mut(&mut self.palette);
        let (mut rest, mut changed) = (slots, false);
        while rest != 0 {
            let slot = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            if (all.codes[slot], all.numbers[slot]) != (code, number) {
                palette.count(all.codes[slot], code, 1);
                (all.codes[slot], all.numbers[slot]) = (code, number);
                changed = true;
            }
        }
        if changed {
            self.store(row, old, &all);
        }
    }

    fn bytes(&self) -> usize {
        self.pages.iter().filter(|page| !Arc::ptr_eq(page, &self.empty)).count() * size_of::<Page>()
            + self.blocks.bytes()
            + size_of::<Palette>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::NODE;
    use super::*;

    /// Looks up a slot in the steps of a batch lookup.
    fn get_as_batch(rows: &Rows, at: usize) -> u32 {
        match rows.code(at) {
            (code, true) => rows.number(code),
            (_, false) => rows.get(at),
        }
    }

    #[test]
    fn behaves_like_an_array() {
        let (mut rows, mut plain, mut past) = (Rows::default(), vec![0; 400], Vec::new());
        let mut state = 1u32;
        for n in 0..6000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = (state >> 16) as usize % plain.len();
            let value = [0, n % 7, n % 50, n, NODE | n][(state >> 8) as usize % 5];
            let end = (at + 1 + (state >> 4) as usize % 9).min(plain.len());
            plain[at..end].fill(value);
            for row in at / ROW..end.div_ceil(ROW) {
                let slots = (at..end).filter(|at| at / ROW == row).fold(0, |all, at| all | 1 << (at % ROW));
                rows.fill(row, slots, value);
            }
            if n % 500 == 0 {
                past.push((rows.clone(), plain.clone()));
            }
        }
        past.push((rows.clone(), plain.clone()));
        for (rows, plain) in past {
            assert!((0..400).all(|at| rows.get(at) == plain[at] && get_as_batch(&rows, at) == plain[at]));
            assert_eq!((rows.get(1 << 20), rows.get((1 << 25) - 1)), (0, 0));
        }
        (0..400).for_each(|at| rows.set(at, 0));
        assert!((0..400 / ROW).all(|row| *rows.row(row) == EMPTY));
    }

    #[test]
    fn twelve_small_codes_are_inline() {
        let mut rows = Rows::default();
        for n in 0..ROW {
            rows.set(ROW * 9 + n, n as u32);
            assert_eq!(rows.row(9).is_inline(), n < INLINE_CODES - 1, "{n}");
        }
        // Codes were assigned in numeric order: 31 is the last of five bits.
        (1..40).for_each(|n| rows.fill(n, (1 << ROW) - 1, n as u32));
        assert!(
            (1..40)
                .all(|n| rows.row(n).is_inline() == (n < 32) && get_as_batch(&rows, n * ROW + 5) == n as u32)
        );
        assert!((1..40).all(|n| rows.row(n).own_block().is_none()));
    }
}
