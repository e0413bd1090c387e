//! Comparing a word with known ones, byte by byte.

use bytemuck::{Pod, Zeroable};

/// The known words that a word may still be.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct Word {
    /// A bit for each.
    candidates: u16,
    /// Bytes so far.
    len: u8,
    unused: u8,
}

impl Word {
    /// Begins a word. At most 16 words can be known; further ones are not found.
    pub fn begin(known: &[&[u8]]) -> Word {
        let count = known.len().min(16) as u32;
        Word { candidates: 1u32.wrapping_shl(count).wrapping_sub(1) as u16, ..Word::default() }
    }

    /// Adds bytes. `fold` is applied to each before it is compared.
    pub fn push(&mut self, known: &[&[u8]], bytes: &[u8], fold: impl Fn(u8) -> u8) {
        for &byte in bytes {
            if self.candidates == 0 {
                return;
            }
            let mut left = self.candidates;
            while left != 0 {
                let at = left.trailing_zeros() as usize;
                let expected = known.get(at).and_then(|word| word.get(usize::from(self.len)));
                if expected != Some(&fold(byte)) {
                    self.candidates &= !(1 << at);
                }
                left &= left - 1;
            }
            self.len = self.len.saturating_add(1);
        }
    }

    /// Returns the position of the known word that equals the whole word.
    pub fn end(&self, known: &[&[u8]]) -> Option<usize> {
        let len = usize::from(self.len);
        (0..known.len().min(16)).find(|&at| self.candidates & 1 << at != 0 && known[at].len() == len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_however_they_are_cut() {
        let known: [&[u8]; 3] = [b"host", b"hosts", b"upgrade"];
        let find = |pieces: &[&str]| {
            let mut word = Word::begin(&known);
            pieces.iter().for_each(|piece| word.push(&known, piece.as_bytes(), |b| b.to_ascii_lowercase()));
            word.end(&known)
        };
        assert_eq!(
            [find(&["Host"]), find(&["ho", "", "STS"]), find(&["u", "pgrade"])],
            [Some(0), Some(1), Some(2)]
        );
        assert_eq!([find(&["hos"]), find(&[]), find(&["hostsx"]), find(&[&"x".repeat(300)])], [None; 4]);
        let many = [b"a".as_slice(); 20];
        assert_eq!(Word::begin(&many).candidates, u16::MAX);
    }
}
