//! A list of positions in a vector.

use mmb_policy::VECTOR;

/// Positions of packets in a vector, in the order of insertion.
#[derive(Debug)]
pub(crate) struct Positions {
    n: usize,
    at: [u8; VECTOR],
}

const _: () = assert!(VECTOR <= 256, "positions are bytes");

impl Default for Positions {
    fn default() -> Self {
        Positions { n: 0, at: [0; VECTOR] }
    }
}

impl Positions {
    /// Appends a position; ignored if the list is full.
    #[inline(always)]
    pub fn push(&mut self, at: usize) {
        if let Some(slot) = self.at.get_mut(self.n) {
            *slot = at as u8;
            self.n += 1;
        }
    }

    pub fn clear(&mut self) {
        self.n = 0;
    }

    /// Returns the positions.
    pub fn get(&self) -> &[u8] {
        self.at.get(..self.n).unwrap_or(&[])
    }
}
