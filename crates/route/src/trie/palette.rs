//! Codes of one byte for numbers of which few are different.
//!
//! Theory of operation. The palette counts how many places have each code; one that no place has is given to the next new
//! number. Numbers that find no free code, and entries of nodes, which are all different, have the code [`OTHER`], and stand
//! elsewhere. Code 0 is 0.

use super::node::NODE;

/// The code of places whose number stands elsewhere.
pub(crate) const OTHER: u8 = 255;

/// Numbers by codes.
#[derive(Clone, Debug)]
pub(crate) struct Palette {
    numbers: [u32; 256],
    counts: [u32; 256],
    /// The code that was asked for last: neighbours are often painted with the same.
    last: u8,
}

impl Default for Palette {
    fn default() -> Self {
        Palette { numbers: [0; 256], counts: [0; 256], last: 0 }
    }
}

impl Palette {
    /// The number of a code; [`OTHER`] has none.
    #[inline(always)]
    pub fn number(&self, code: u8) -> u32 {
        self.numbers[usize::from(code)]
    }

    /// The code of a number, which may be a new one.
    pub fn code(&mut self, number: u32) -> u8 {
        if number == 0 {
            return 0;
        }
        if number & NODE != 0 {
            return OTHER;
        }
        let is = |code: &usize| self.numbers[*code] == number && self.counts[*code] > 0;
        if is(&usize::from(self.last)) {
            return self.last;
        }
        let mut codes = 1..usize::from(OTHER);
        let known = codes.clone().find(is).or_else(|| codes.find(|code| self.counts[*code] == 0));
        let Some(code) = known else { return OTHER };
        self.numbers[code] = number;
        self.last = code as u8;
        self.last
    }

    /// Places have changed from one code to another.
    pub fn count(&mut self, before: u8, now: u8, places: u32) {
        let count = &mut self.counts[usize::from(before)];
        *count = count.saturating_sub(places);
        self.counts[usize::from(now)] += places;
    }
}
