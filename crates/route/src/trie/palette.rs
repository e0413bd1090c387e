//! One-byte codes for numbers with few distinct values.
//!
//! Theory of operation. The palette counts the slots of each code. A code without slots is reused for the
//! next new number. Numbers that find no free code have the code [`OVERFLOW`] and are stored elsewhere. So
//! are entries of nodes, which are all different. Code 0 is the number 0.

use super::entry::NODE;

/// Code of slots whose number is stored elsewhere.
pub(crate) const OVERFLOW: u8 = 255;

/// Numbers by code.
#[derive(Clone, Debug)]
pub(crate) struct Palette {
    numbers: [u32; 256],
    counts: [u32; 256],
    /// The last code returned: adjacent slots often have the same number.
    last: u8,
}

impl Default for Palette {
    fn default() -> Self {
        Palette { numbers: [0; 256], counts: [0; 256], last: 0 }
    }
}

impl Palette {
    /// The number of a code; unspecified for [`OVERFLOW`].
    #[inline(always)]
    pub fn number(&self, code: u8) -> u32 {
        self.numbers[usize::from(code)]
    }

    /// Returns the code of a number, a new one if necessary.
    pub fn code(&mut self, number: u32) -> u8 {
        if number == 0 {
            return 0;
        }
        if number & NODE != 0 {
            return OVERFLOW;
        }
        let is = |code: &usize| self.numbers[*code] == number && self.counts[*code] > 0;
        if is(&usize::from(self.last)) {
            return self.last;
        }
        let mut codes = 1..usize::from(OVERFLOW);
        let known = codes.clone().find(is).or_else(|| codes.find(|code| self.counts[*code] == 0));
        let Some(code) = known else { return OVERFLOW };
        self.numbers[code] = number;
        self.last = code as u8;
        self.last
    }

    /// Records that `slots` slots changed their code.
    pub fn count(&mut self, before: u8, now: u8, slots: u32) {
        let count = &mut self.counts[usize::from(before)];
        *count = count.saturating_sub(slots);
        self.counts[usize::from(now)] += slots;
    }
}
