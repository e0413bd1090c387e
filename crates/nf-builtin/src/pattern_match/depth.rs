//! The argument `first`: how far streams are searched.

use mmb_nf::{ArgError, Direction, StreamVerdict};

use crate::shared::direction::DirectionFilter;

/// Most bytes of the argument.
const MOST: u32 = 1 << 30;

/// Bytes at the beginning of each stream that are searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Depth(Option<u32>);

impl Depth {
    /// Parses the number of bytes.
    ///
    /// # Errors
    /// The number is invalid or too large.
    pub fn parse(number: &str) -> Result<Depth, ArgError> {
        let parsed = number.parse().ok().filter(|bytes| (1..=MOST).contains(bytes));
        let expected = || format!("must be a number of bytes from 1 to {MOST}");
        parsed.map(|bytes| Depth(Some(bytes))).ok_or_else(|| ArgError::invalid("first", number, expected()))
    }

    /// Returns how many bytes behind the first `read` are searched.
    #[inline(always)]
    pub fn left(self, read: u64) -> usize {
        let left = self.0.map(|first| u64::from(first).saturating_sub(read));
        left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// Returns the verdict on bytes that go on: a function that searches none of the following bytes of a
    /// session reads it no more. `read`: bytes of each stream. `ended`: a bit for each stream that has ended.
    #[inline(always)]
    pub fn verdict(self, which: DirectionFilter, read: [u64; 2], ended: u32) -> StreamVerdict {
        if self.0.is_none() {
            return StreamVerdict::Pass;
        }
        let is_done = |direction: Direction| {
            let at = direction as usize;
            !which.is(direction) || ended >> at & 1 != 0 || self.left(read[at]) == 0
        };
        let is_over = is_done(Direction::Forward) && is_done(Direction::Reverse);
        if is_over { StreamVerdict::Detach } else { StreamVerdict::Pass }
    }
}
