//! Buffers that belong to a connection only while it has bytes.

use super::filter::Filter;

/// Bytes that are read at a time.
pub(crate) const BLOCK: usize = 16 << 10;
/// Bytes that wait for a receiver, at which nothing more is read for it.
pub(crate) const HIGH_WATER: usize = 64 << 10;
/// Most blocks of a kind that are kept for the next connection.
const MOST_FREE: usize = 64;

/// Memory for buffers.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    blocks: Vec<Box<[u8]>>,
    texts: Vec<Vec<u8>>,
}

impl Pool {
    fn block(&mut self) -> Box<[u8]> {
        self.blocks.pop().unwrap_or_else(|| vec![0; BLOCK].into())
    }

    fn give_block(&mut self, block: Box<[u8]>) {
        if self.blocks.len() < MOST_FREE && block.len() == BLOCK {
            self.blocks.push(block);
        }
    }

    fn text(&mut self) -> Vec<u8> {
        self.texts.pop().unwrap_or_default()
    }

    fn give_text(&mut self, mut text: Vec<u8>) {
        if self.texts.len() < MOST_FREE && text.capacity() <= 2 * HIGH_WATER {
            text.clear();
            self.texts.push(text);
        }
    }
}

/// Bytes that were received and not used.
#[derive(Debug, Default)]
pub(crate) struct Input {
    /// Empty, or [`BLOCK`] bytes.
    block: Box<[u8]>,
    /// What functions have left of the bytes. Empty: the bytes are in the block.
    text: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    pub fn bytes(&self) -> &[u8] {
        let all = if self.text.is_empty() { &*self.block } else { &self.text };
        all.get(self.start..self.end).unwrap_or_default()
    }

    /// Replaces all bytes. The buffer gets the memory of those before.
    pub fn replace(&mut self, text: &mut Vec<u8>) {
        std::mem::swap(&mut self.text, text);
        (self.start, self.end) = (0, self.text.len());
    }

    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Returns the room for bytes that are received, at most a block.
    pub fn room(&mut self, pool: &mut Pool) -> &mut [u8] {
        if self.block.is_empty() {
            self.block = pool.block();
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            self.text.clear();
        }
        self.block.get_mut(self.end..).unwrap_or_default()
    }

    /// Bytes were received into the room.
    pub fn received(&mut self, len: usize) {
        self.end = (self.end + len).min(self.block.len());
    }

    /// Bytes were used.
    pub fn consume(&mut self, len: usize) {
        self.start = (self.start + len).min(self.end);
    }

    /// Gives back the memory, if there are no bytes.
    pub fn rest(&mut self, pool: &mut Pool) {
        if self.is_empty() && !self.block.is_empty() {
            pool.give_block(std::mem::take(&mut self.block));
            self.text = Vec::new();
            (self.start, self.end) = (0, 0);
        }
    }
}

/// Bytes that are to be sent.
#[derive(Debug, Default)]
pub(crate) struct Output {
    text: Vec<u8>,
    start: usize,
    /// Position behind the bytes that functions have let go on.
    filtered: usize,
}

impl Output {
    pub fn bytes(&self) -> &[u8] {
        self.text.get(self.start..).unwrap_or_default()
    }

    pub fn len(&self) -> usize {
        self.text.len() - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether nothing more should be read for the receiver.
    pub fn is_full(&self) -> bool {
        self.len() >= HIGH_WATER
    }

    /// Returns the buffer, to append bytes.
    pub fn text(&mut self, pool: &mut Pool) -> &mut Vec<u8> {
        if self.text.capacity() == 0 {
            self.text = pool.text();
        }
        &mut self.text
    }

    /// Passes the new bytes through functions. False: a function has refused the connection.
    pub fn filter(&mut self, filter: &mut Filter) -> bool {
        let goes_on = filter.write(&mut self.text, self.filtered);
        self.filtered = self.text.len();
        goes_on
    }

    /// Bytes were sent.
    pub fn consume(&mut self, len: usize) {
        self.start = (self.start + len).min(self.text.len());
        if self.start == self.text.len() {
            self.text.clear();
            (self.start, self.filtered) = (0, 0);
        } else if self.start >= HIGH_WATER {
            self.text.drain(..self.start);
            self.filtered = self.filtered.saturating_sub(self.start);
            self.start = 0;
        }
    }

    pub fn clear(&mut self) {
        self.consume(usize::MAX - self.start);
    }

    /// Gives back the memory, if there are no bytes.
    pub fn rest(&mut self, pool: &mut Pool) {
        if self.is_empty() && self.text.capacity() != 0 {
            self.filtered = 0;
            pool.give_text(std::mem::take(&mut self.text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_gives_its_memory_back() {
        let (mut pool, mut input) = (Pool::default(), Input::default());
        input.room(&mut pool)[..3].copy_from_slice(b"abc");
        input.received(3);
        input.consume(1);
        input.rest(&mut pool);
        assert_eq!((input.bytes(), pool.blocks.len()), (&b"bc"[..], 0));
        assert_eq!(input.room(&mut pool).len(), BLOCK - 3);
        input.consume(9);
        input.rest(&mut pool);
        assert!(input.is_empty() && pool.blocks.len() == 1);
        assert_eq!(input.room(&mut pool).len(), BLOCK);
    }

    #[test]
    fn output_keeps_what_was_not_sent() {
        let (mut pool, mut output) = (Pool::default(), Output::default());
        output.text(&mut pool).extend_from_slice(&[7; HIGH_WATER + 10]);
        assert!(output.is_full());
        output.consume(HIGH_WATER + 4);
        assert_eq!((output.bytes(), output.is_full()), (&[7; 6][..], false));
        output.clear();
        output.rest(&mut pool);
        assert!(output.is_empty() && pool.texts.len() == 1);
    }
}
