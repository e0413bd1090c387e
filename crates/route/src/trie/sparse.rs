//! A persistent array of numbers of which few are different, and neighbours mostly the same.
//!
//! Theory of operation. 64 places are a row: a bitmap of where runs of the same number begin, the codes of the runs (see [`super::palette`]), and the
//! numbers of those
//! whose code is [`OTHER`], in a block of 16 bytes for up to eight runs, of 32 for up to 24, and so on. Rows of one run are not stored: blocks 0 to 255 are such rows, of all
//! codes, and no row has one of its own. So any place is found in the same way, without a branch.

use std::sync::Arc;

use mmb_packet::prefetch;

use super::arena::Arena;
use super::array::Array;
use super::codes::Others;
use super::node::rank;
use super::palette::{OTHER, Palette};

/// Places in a row.
const ROW: usize = 64;
/// Bytes of a row's bitmap.
const BITMAP: usize = 8;
/// Blocks of rows of one run.
const UNIFORM: u32 = 256;

/// A row's bitmap.
#[inline(always)]
fn bitmap(first: &[u32; 4]) -> u64 {
    u64::from(first[0]) | u64::from(first[1]) << 32
}

/// The word behind the codes of a row; bytes behind the last code are 0.
fn numbers(bitmap: u64) -> usize {
    (BITMAP + bitmap.count_ones() as usize).div_ceil(4)
}

/// How many of four codes are [`OTHER`], which is all ones.
fn others(codes: u32) -> usize {
    (((codes & 0x7f7f_7f7f) + 0x0101_0101) & codes & 0x8080_8080).count_ones() as usize
}

/// Blocks of 16 bytes and more.
type Rows = Arena<4>;

/// Numbers by place: 0 where nothing was set. Cloning shares all pages; a change copies a few.
#[derive(Clone, Debug)]
pub(crate) struct Sparse {
    /// Blocks of rows.
    rows: Array,
    blocks: Rows,
    palette: Arc<Palette>,
}

impl Default for Sparse {
    fn default() -> Self {
        let blocks = Rows::starting_with((0..UNIFORM).map(|code| [1, 0, code, 0]));
        Sparse { rows: Array::default(), blocks, palette: Arc::default() }
    }
}

impl Sparse {
    /// The code of a place, and which run of its row it is in.
    #[inline(always)]
    fn code(&self, block: u32, at: usize) -> (u8, usize) {
        let (first, word) = self.blocks.block(block);
        let run = rank(bitmap(first), at % ROW);
        let byte = BITMAP + run;
        ((word(byte / 4) >> (8 * (byte % 4))) as u8, run)
    }

    /// The number of a run whose code is [`OTHER`].
    fn other(&self, block: u32, run: usize) -> u32 {
        let (first, word) = self.blocks.block(block);
        let words = numbers(bitmap(first));
        let before = (0..run / 4).map(|n| others(word(BITMAP / 4 + n))).sum::<usize>()
            + others(word(BITMAP / 4 + run / 4) & !(u32::MAX << (8 * (run % 4))));
        word(words + before)
    }

    /// A row's codes, and the numbers of those that are [`OTHER`].
    fn load(&self, block: u32) -> [(u8, u32); ROW] {
        let (first, word) = self.blocks.block(block);
        let bitmap = bitmap(first);
        let (mut byte, mut at, mut last) = (BITMAP, numbers(bitmap), (0, 0));
        std::array::from_fn(|place| {
            if bitmap >> place & 1 != 0 {
                let code = (word(byte / 4) >> (8 * (byte % 4))) as u8;
                last = (code, if code == OTHER { word(at) } else { 0 });
                at += usize::from(code == OTHER);
                byte += 1;
            }
            last
        })
    }

    /// Writes a row in the place of a block. Without memory for it the row stays as it was.
    fn store(&mut self, row: usize, old: u32, places: &[(u8, u32); ROW]) {
        let (mut bits, mut codes, mut n) = (0u64, [0u32; ROW / 4], 0);
        let (mut rest, mut n_rest) = ([0u32; ROW], 0);
        for (place, (code, number)) in places.iter().enumerate() {
            if place == 0 || places[place - 1] != (*code, *number) {
                bits |= 1 << place;
                codes[n / 4] |= u32::from(*code) << (8 * (n % 4));
                n += 1;
                rest[n_rest] = *number;
                n_rest += usize::from(*code == OTHER);
            }
        }
        let now = self.granules(old);
        let words = numbers(bits);
        let then = if n == 1 && n_rest == 0 { 0 } else { Rows::granules(words + n_rest) };
        let block = match then {
            0 => Some(places[0].0.into()),
            _ if then == now => Some(old),
            _ => self.blocks.take(then),
        };
        let Some(block) = block else { return };
        if block != old && now > 0 {
            self.blocks.free(old, now);
        }
        if then > 0 {
            let to = self.blocks.write(block);
            (to[0], to[1]) = (bits as u32, (bits >> 32) as u32);
            to[2..words].copy_from_slice(&codes[..words - 2]);
            to[words..words + n_rest].copy_from_slice(&rest[..n_rest]);
        }
        self.rows.set(row, block);
    }

    /// Granules of a row's own block; 0: it has none.
    fn granules(&self, block: u32) -> usize {
        if block < UNIFORM {
            return 0;
        }
        let (first, word) = self.blocks.block(block);
        let words = numbers(bitmap(first));
        Rows::granules(words + (BITMAP / 4..words).map(|n| others(word(n))).sum::<usize>())
    }
}

impl Others for Sparse {
    #[inline(always)]
    fn prefetch(&self, at: usize) {
        prefetch::read(self.blocks.granule(self.rows.get(at / ROW)));
    }

    #[inline]
    fn get(&self, at: usize) -> u32 {
        let block = self.rows.get(at / ROW);
        let (code, run) = self.code(block, at);
        if code == OTHER { self.other(block, run) } else { self.palette.number(code) }
    }

    fn set(&mut self, at: usize, value: u32) {
        let block = self.rows.get(at / ROW);
        let (before, run) = self.code(block, at);
        let code = Arc::make_mut(&mut self.palette).code(value);
        if code == before && (code != OTHER || self.other(block, run) == value) {
            return;
        }
        Arc::make_mut(&mut self.palette).count(before, code, 1);
        let mut places = self.load(block);
        places[at % ROW] = (code, if code == OTHER { value } else { 0 });
        self.store(at / ROW, block, &places);
    }

    fn bytes(&self) -> usize {
        self.rows.bytes() + self.blocks.bytes() + size_of::<Palette>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::NODE;
    use super::*;

    #[test]
    fn behaves_like_an_array() {
        let (mut sparse, mut plain, mut past) = (Sparse::default(), vec![0; 400], Vec::new());
        let mut state = 1u32;
        for n in 0..6000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = (state >> 16) as usize % plain.len();
            let value = [0, n % 7, n, NODE | n][(state >> 8) as usize % 4];
            let run = 1 + (state >> 4) as usize % 9;
            for at in at..(at + run).min(plain.len()) {
                sparse.set(at, value);
                plain[at] = value;
            }
            if n % 500 == 0 {
                past.push((sparse.clone(), plain.clone()));
            }
        }
        past.push((sparse.clone(), plain.clone()));
        for (sparse, plain) in past {
            assert!((0..400).all(|at| sparse.get(at) == plain[at]) && sparse.get(1 << 20) == 0);
        }
        (0..400).for_each(|at| sparse.set(at, 0));
        assert!((0..7).all(|row| sparse.rows.get(row) == 0));
    }
}
