//! The destination for hits of one packet.

use super::hit::Hit;

/// Collects hits of one head in any order. The `pkt` of these hits is the number of the head.
#[derive(Debug)]
pub(crate) struct HitSink<'a> {
    hits: &'a mut Vec<Hit>,
    head: u16,
}

impl<'a> HitSink<'a> {
    /// A sink for the hits of this head.
    pub fn new(hits: &'a mut Vec<Hit>, head: u16) -> Self {
        HitSink { hits, head }
    }

    /// Calls `visit` with the head's number and the list of hits.
    #[inline(always)]
    pub fn with(&mut self, visit: impl FnOnce(u16, &mut Vec<Hit>)) {
        visit(self.head, self.hits);
    }

    /// Adds one hit.
    #[inline(always)]
    pub fn push(&mut self, slot: u32) {
        self.hits.push(Hit::new(self.head, slot));
    }

    /// Adds a hit for each slot whose bit is set in `lanes`.
    #[inline(always)]
    pub fn push_lanes<const N: usize>(&mut self, mut lanes: u32, slots: &[u32; N]) {
        while lanes != 0 {
            self.push(slots[lanes.trailing_zeros() as usize % N]);
            lanes &= lanes - 1;
        }
    }
}
