//! The datagrams of a vector, and the ends of earlier ones that functions have kept.

use mmb_stream::KeptBytes;

use crate::set::{Set, VECTOR};

/// Most bytes of a worker that are kept of ends of datagrams, and most sessions and functions that have some.
const END_BYTES: usize = 32 << 20;
const ENDS: usize = 65_536;
/// Distinguishes the numbers of ends from those of tails.
pub const IS_END: u32 = 1 << 31;

/// The datagrams of a vector, and the ends of earlier ones.
#[derive(Debug)]
pub(crate) struct Datagrams {
    /// Positions of datagrams that can be edited.
    pub editable: Set,
    /// Those of them whose output was not asked for its limit.
    pub new: Set,
    /// Bytes of the longest IP packet that the output of each datagram takes.
    pub most: [u16; VECTOR],
    pub ends: KeptBytes,
}

impl Datagrams {
    /// Makes the memory of so many workers.
    pub fn new(workers: usize) -> Datagrams {
        let ends = KeptBytes::new(workers * END_BYTES, workers * ENDS);
        Datagrams { editable: Set::EMPTY, new: Set::EMPTY, most: [0; VECTOR], ends }
    }

    /// These places have other packets now.
    pub fn remove_all(&mut self, at: Set) {
        self.editable = self.editable.without(at);
        self.new = self.new.without(at);
    }

    /// Removes what is kept under a number.
    pub fn remove_end(&mut self, number: u32) {
        if number & IS_END != 0 {
            self.ends.remove(number & !IS_END);
        }
    }

    /// Sets the limits of new datagrams.
    #[inline]
    pub fn set_limits(&mut self, limit: impl Fn(usize) -> usize) {
        if !self.new.is_empty() {
            let new = std::mem::replace(&mut self.new, Set::EMPTY);
            new.for_each(|i| self.most[i & (VECTOR - 1)] = u16::try_from(limit(i)).unwrap_or(u16::MAX));
        }
    }
}
