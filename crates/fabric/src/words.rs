//! Words of memory that two sides use at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A word of 64 bits that other threads and processes read and write at any time.
pub trait Word {
    /// Reads the word.
    fn load(&self, order: Ordering) -> u64;
    /// Writes the word.
    fn store(&self, value: u64, order: Ordering);
    /// Writes the word, and returns its former value.
    fn swap(&self, value: u64, order: Ordering) -> u64;
    /// A fence between accesses to such words.
    fn fence(order: Ordering);
}

impl Word for AtomicU64 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }

    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }

    #[inline(always)]
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        AtomicU64::swap(self, value, order)
    }

    #[inline(always)]
    fn fence(order: Ordering) {
        fence(order);
    }
}

/// Memory made of [`Word`]s.
pub trait Words {
    /// The type of a word.
    type Word: Word;
    /// Returns all words.
    fn words(&self) -> &[Self::Word];
}

impl<W: Word> Words for Arc<[W]> {
    type Word = W;

    fn words(&self) -> &[W] {
        self
    }
}

/// Copies bytes to the beginning of words. Bytes behind the last word are left out. The last word is filled
/// with zeros.
#[inline]
pub fn write_bytes<W: Word>(words: &[W], bytes: &[u8]) {
    let (chunks, rest) = bytes.as_chunks::<8>();
    for (word, chunk) in words.iter().zip(chunks) {
        word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
    }
    if !rest.is_empty()
        && let Some(word) = words.get(chunks.len())
    {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        word.store(u64::from_ne_bytes(last), Ordering::Relaxed);
    }
}

/// Copies the first bytes of words. Each word is read once. Bytes behind the last word are not changed.
#[inline]
pub fn read_bytes<W: Word>(words: &[W], bytes: &mut [u8]) {
    let (chunks, rest) = bytes.as_chunks_mut::<8>();
    for (chunk, word) in chunks.iter_mut().zip(words) {
        *chunk = word.load(Ordering::Relaxed).to_ne_bytes();
    }
    if !rest.is_empty()
        && let Some(word) = words.get(chunks.len())
    {
        let last = word.load(Ordering::Relaxed).to_ne_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_are_copied(bytes in prop::collection::vec(any::<u8>(), 0..100), room in 0_usize..20) {
            let words: Vec<AtomicU64> = (0..room).map(|_| AtomicU64::new(u64::MAX)).collect();
            write_bytes(&words, &bytes);
            let mut back = vec![0xee; bytes.len()];
            read_bytes(&words, &mut back);
            let fits = bytes.len().min(room * 8);
            prop_assert_eq!(&back[..fits], &bytes[..fits]);
            prop_assert!(back[fits..].iter().all(|&byte| byte == 0xee));
            let used = bytes.len().div_ceil(8).min(room);
            prop_assert!(words[used..].iter().all(|word| word.load(Ordering::Relaxed) == u64::MAX));
        }
    }
}
