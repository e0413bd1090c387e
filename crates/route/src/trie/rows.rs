//! A persistent array of numbers of which few are different, and neighbours mostly the same, in as few lines of the caches as
//! can be: where a million routes are looked up at random, each line that is not there costs more than all else.
//!
//! Theory of operation. 32 places are a row of 16 bytes: a bitmap of where runs of the same number begin, and the codes of up to
//! twelve runs (see [`super::palette`]), five bits each. Where there are more runs, or a code is too large, the number of a
//! block stands in the place of the codes: it has a byte for each, and behind these the numbers of those whose code is
//! [`OTHER`]. As a run always begins at the first place, its bit says something else: whether the codes are in the row. Rows
//! of one large code share a block: blocks 0 to 255 are theirs.

use std::sync::Arc;

use mmb_packet::prefetch;

use super::arena::Arena;
use super::codes::{ROW, Root};
use super::node::rank;
use super::palette::{OTHER, Palette};

/// Rows in a page: 64 KiB.
const PAGE: usize = 4096;
/// Pages: for 2^25 places.
const PAGES: usize = 256;
/// Bits of a code in a row.
const BITS: u32 = 5;
/// Codes in a row.
const HERE: usize = 12;
/// Blocks of rows of one run.
const UNIFORM: u32 = 256;

/// Blocks of 16 bytes and more.
type Blocks = Arena<4>;

/// See the module's theory of operation.
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
    fn is_here(self) -> bool {
        self.runs & 1 != 0
    }

    /// The code of a place, if it is in the row.
    #[inline(always)]
    fn code(self, at: usize) -> u8 {
        // The bit of the place goes to the top, those behind it fall out.
        let run = (self.runs << (63 - at % ROW)).count_ones().wrapping_sub(1);
        self.codes.wrapping_shr(BITS.wrapping_mul(run)) as u8 & ((1 << BITS) - 1)
    }

    /// Which run of a row a place is in.
    fn run(self, at: usize) -> usize {
        rank(self.runs | 1, at % ROW)
    }

    /// The word of a block behind the codes.
    fn numbers(self) -> usize {
        ((self.runs | 1).count_ones() as usize).div_ceil(4)
    }

    /// The block, if the row has one that is not shared.
    fn own_block(self) -> Option<u32> {
        (!self.is_here() && self.codes as u32 >= UNIFORM).then_some(self.codes as u32)
    }
}

type Page = [Row; PAGE];

/// The numbers of a row's places: their codes, and the numbers of those whose code is [`OTHER`].
struct Places {
    codes: [u8; ROW],
    numbers: [u32; ROW],
}

/// How many of four codes are [`OTHER`], which is all ones.
fn others(codes: u32) -> usize {
    (((codes & 0x7f7f_7f7f) + 0x0101_0101) & codes & 0x8080_8080).count_ones() as usize
}

/// Numbers by place, of which there are 2^25: 0 where nothing was set. Cloning shares all pages; a change copies a few.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    pages: Arc<[Arc<Page>; PAGES]>,
    /// The page that stands where nothing was set, so that no lookup has to ask whether there is one.
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

    /// The number of a place in a row with a block.
    fn elsewhere(&self, row: Row, at: usize) -> u32 {
        let run = row.run(at);
        let (_, word) = self.blocks.block(row.codes as u32);
        let code = (word(run / 4) >> (8 * (run % 4))) as u8;
        if code != OTHER {
            return self.palette.number(code);
        }
        let before = (0..run / 4).map(|n| others(word(n))).sum::<usize>()
            + others(word(run / 4) & !(u32::MAX << (8 * (run % 4))));
        word(row.numbers() + before)
    }

    /// A row's places.
    fn load(&self, row: Row) -> Places {
        let (_, word) = self.blocks.block(row.codes as u32);
        let mut places = Places { codes: [0; ROW], numbers: [0; ROW] };
        let (mut starts, mut run, mut at) = (row.runs | 1, 0, row.numbers());
        while starts != 0 {
            let start = starts.trailing_zeros() as usize;
            starts &= starts - 1;
            let end = (starts.trailing_zeros() as usize).min(ROW);
            let code = match row.is_here() {
                true => row.code(start),
                false => (word(run / 4) >> (8 * (run % 4))) as u8,
            };
            places.codes[start..end].fill(code);
            if code == OTHER {
                places.numbers[start..end].fill(word(at));
                at += 1;
            }
            run += 1;
        }
        places
    }

    /// Writes a row in the place of `old`. Without memory for it the row stays as it was.
    fn store(&mut self, at: usize, old: Row, places: &Places) {
        let (mut runs, mut n, mut largest) = (0u64, 0, 0);
        let (mut codes, mut rest, mut n_rest) = ([0u8; ROW], [0u32; ROW], 0);
        for (place, (code, number)) in places.codes.iter().zip(&places.numbers).enumerate() {
            if place == 0 || (places.codes[place - 1], places.numbers[place - 1]) != (*code, *number) {
                runs |= 1 << place;
                codes[n] = *code;
                n += 1;
                largest = largest.max(*code);
                rest[n_rest] = *number;
                n_rest += usize::from(*code == OTHER);
            }
        }
        let now = self.granules(old);
        let words = n.div_ceil(4);
        let is_here = n <= HERE && largest < 1 << BITS;
        let then = if is_here || (n == 1 && largest != OTHER) { 0 } else { Blocks::granules(words + n_rest) };
        let block = match (then, old.own_block()) {
            (0, _) => Some(u32::from(codes[0])),
            (_, Some(block)) if then == now => Some(block),
            _ => self.blocks.take(then),
        };
        let Some(block) = block else { return };
        if let Some(freed) = old.own_block()
            && freed != block
        {
            self.blocks.free(freed, now);
        }
        let row = if is_here {
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

    /// Granules of a row's own block; 0: it has none.
    fn granules(&self, row: Row) -> usize {
        let Some(block) = row.own_block() else { return 0 };
        let (_, word) = self.blocks.block(block);
        let words = row.numbers();
        Blocks::granules(words + (0..words).map(|n| others(word(n))).sum::<usize>())
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
        (row.code(at), row.is_here())
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
        if row.is_here() { self.palette.number(row.code(at)) } else { self.elsewhere(row, at) }
    }

    fn fill(&mut self, row: usize, places: u64, value: u32) {
        let code = Arc::make_mut(&mut self.palette).code(value);
        let number = if code == OTHER { value } else { 0 };
        let old = *self.row(row);
        let mut all = self.load(old);
        let palette = Arc::make_mut(&mut self.palette);
        let (mut rest, mut changed) = (places, false);
        while rest != 0 {
            let place = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            if (all.codes[place], all.numbers[place]) != (code, number) {
                palette.count(all.codes[place], code, 1);
                (all.codes[place], all.numbers[place]) = (code, number);
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
    use super::super::node::NODE;
    use super::*;

    /// What a lookup of many addresses finds, step by step.
    fn by_code(rows: &Rows, at: usize) -> u32 {
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
                let places = (at..end).filter(|at| at / ROW == row).fold(0, |all, at| all | 1 << (at % ROW));
                rows.fill(row, places, value);
            }
            if n % 500 == 0 {
                past.push((rows.clone(), plain.clone()));
            }
        }
        past.push((rows.clone(), plain.clone()));
        for (rows, plain) in past {
            assert!((0..400).all(|at| rows.get(at) == plain[at] && by_code(&rows, at) == plain[at]));
            assert_eq!((rows.get(1 << 20), rows.get((1 << 25) - 1)), (0, 0));
        }
        (0..400).for_each(|at| rows.set(at, 0));
        assert!((0..400 / ROW).all(|row| *rows.row(row) == EMPTY));
    }

    #[test]
    fn as_many_codes_as_there_is_room_for_are_in_the_row() {
        let mut rows = Rows::default();
        for n in 0..ROW {
            rows.set(ROW * 9 + n, n as u32);
            assert_eq!(rows.row(9).is_here(), n < HERE - 1, "{n}");
        }
        // Numbers have been given codes in their order: 31 is the last one of five bits.
        (1..40).for_each(|n| rows.fill(n, (1 << ROW) - 1, n as u32));
        assert!(
            (1..40).all(|n| rows.row(n).is_here() == (n < 32) && by_code(&rows, n * ROW + 5) == n as u32)
        );
        assert!((1..40).all(|n| rows.row(n).own_block().is_none()));
    }
}
