//! The heads that are being read.

use mmb_http::HeadBuffer;

/// Most heads of a worker that are incomplete at the same time.
const MOST_HEADS: usize = 16_384;
/// Most bytes of the parts of a head that are kept.
const HEAD: usize = 4096;

/// The heads of a worker. They are numbered from 1.
pub(crate) struct Slab {
    heads: Vec<HeadBuffer<HEAD>>,
    free: Vec<u16>,
    /// Room for the normal form of a path.
    path: [u8; HEAD + 1],
}

impl Default for Slab {
    fn default() -> Self {
        // Memory that is not used stays with the kernel.
        let (heads, free) = (Vec::with_capacity(MOST_HEADS), Vec::with_capacity(MOST_HEADS));
        Slab { heads, free, path: [0; HEAD + 1] }
    }
}

impl Slab {
    /// Begins a head. Returns its number. None: there is no room.
    pub fn insert(&mut self) -> Option<u16> {
        if let Some(number) = self.free.pop() {
            self.get(number)?.clear();
            return Some(number);
        }
        if self.heads.len() == MOST_HEADS {
            return None;
        }
        self.heads.push(HeadBuffer::default());
        Some(self.heads.len() as u16)
    }

    pub fn get(&mut self, number: u16) -> Option<&mut HeadBuffer<HEAD>> {
        self.heads.get_mut((number as usize).checked_sub(1)?)
    }

    /// Returns a head, and room for the normal form of its path.
    pub fn get_with_room(&mut self, number: u16) -> Option<(&HeadBuffer<HEAD>, &mut [u8])> {
        Some((self.heads.get((number as usize).checked_sub(1)?)?, &mut self.path))
    }

    /// Frees a head that is in use. 0: none.
    pub fn remove(&mut self, number: u16) {
        if number != 0 {
            self.free.push(number);
        }
    }
}
