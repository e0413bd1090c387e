//! Choices from a string of bytes.

/// Turns bytes into choices.
///
/// Every choice consumes bytes. When they run out, every choice is the first one, which is the simplest by
/// convention. Thus any byte string gives a case, and a shorter or smaller one gives a simpler case, which
/// lets property tests shrink. A fuzzer that mutates bytes mutates choices.
#[derive(Clone, Debug)]
pub struct ByteChoices<'a>(std::slice::Iter<'a, u8>);

impl<'a> ByteChoices<'a> {
    /// Choices from these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes.iter())
    }

    /// Whether all bytes have been consumed.
    pub fn is_spent(&self) -> bool {
        self.0.len() == 0
    }

    /// The next byte; 0 at the end.
    pub fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    /// A number less than `n`, which must not be 0; almost uniform for `n` up to some thousands.
    pub fn below(&mut self, n: usize) -> usize {
        let high = if n > 16 { usize::from(self.byte()) << 8 } else { 0 };
        (high | usize::from(self.byte())) % n
    }

    /// True with a probability of 1 in `n`.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// `n` bytes as a big-endian number.
    pub fn number(&mut self, n: usize) -> u128 {
        (0..n).fold(0, |number, _| number << 8 | u128::from(self.byte()))
    }
}
