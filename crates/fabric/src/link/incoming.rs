//! Descriptors that come back from a process.

use crate::descriptor::Descriptor;
use crate::memory::Region;
use crate::ring::{Broken, Consumer};

/// Most descriptors that are copied from the ring at a time.
const VECTOR: usize = 64;

/// A ring from which descriptors are copied a vector at a time. What the process writes to the ring later
/// changes none of them.
pub struct Incoming {
    ring: Consumer<Region>,
    vector: [Descriptor; VECTOR],
    /// The part of the vector that was not taken.
    start: usize,
    end: usize,
}

impl Incoming {
    pub fn new(ring: Consumer<Region>) -> Incoming {
        Incoming { ring, vector: [Descriptor::default(); VECTOR], start: 0, end: 0 }
    }

    /// Returns the next descriptor. None: there is none now.
    ///
    /// # Errors
    /// The process has broken the ring.
    #[inline]
    pub fn next(&mut self) -> Result<Option<Descriptor>, Broken> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            self.end = self.ring.pop_vector(&mut self.vector)?;
            // The slots were copied, so the process may use them again.
            self.ring.publish();
        }
        let descriptor = self.vector[..self.end].get(self.start).copied();
        self.start += usize::from(descriptor.is_some());
        Ok(descriptor)
    }
}
