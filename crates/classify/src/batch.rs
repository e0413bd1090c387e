//! A vector of packets on its way through the classifier.

use mmb_packet::Window;

/// Most packets in a batch.
pub const VECTOR: usize = 256;

/// A packet of the batch and the slot of a rule that matches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hit {
    /// Index of the packet's window.
    pub pkt: u16,
    /// The rule's slot.
    pub slot: u32,
}

/// Windows in, hits out. Made once per worker and used for every vector: nothing is allocated once `hits` has grown to
/// what the traffic needs.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The packets' windows; the caller fills the first `n` with [`mmb_packet::fill_window`], at least the chunks
    /// that [`crate::Classifier::chunks`] names.
    pub windows: Box<[Window; VECTOR]>,
    /// How many windows there are; what exceeds [`VECTOR`] is ignored.
    pub n: usize,
    /// Every matching rule of every packet, in ascending order of packets (no order within a packet).
    pub hits: Vec<Hit>,
    /// Hits before they are put in order.
    unordered: Vec<Hit>,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// An empty batch with room for a hit per packet.
    pub fn new() -> Self {
        Batch {
            windows: Box::new([Window::default(); VECTOR]),
            n: 0,
            hits: Vec::with_capacity(VECTOR),
            unordered: Vec::with_capacity(VECTOR),
        }
    }

    /// Puts the hits in order of packets: a counting sort, since there are few packets and maybe many hits.
    pub(crate) fn sort_hits(&mut self) {
        let mut next = [0u32; VECTOR + 1];
        for hit in &self.hits {
            next[usize::from(hit.pkt) % VECTOR + 1] += 1;
        }
        for i in 1..=VECTOR {
            next[i] += next[i - 1];
        }
        self.unordered.clear();
        self.unordered.extend_from_slice(&self.hits);
        for hit in &self.unordered {
            let at = &mut next[usize::from(hit.pkt) % VECTOR];
            self.hits[*at as usize] = *hit;
            *at += 1;
        }
    }
}
