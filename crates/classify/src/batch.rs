//! A vector of packets on its way through the classifier.

use bytemuck::{Pod, Zeroable};
use mmb_packet::Window;

use crate::predicate::Truths;
use crate::recent::Recent;
use crate::sink::{Heads, Hits};
use crate::walk::Left;
use crate::wide::Wide512;

/// Most packets in a batch.
pub const VECTOR: usize = 256;

/// A packet of the batch and the slot of a rule that matches it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
pub struct Hit {
    /// Index of the packet's window.
    pub pkt: u16,
    /// In place of padding, so that hits are written as words.
    zero: u16,
    /// The rule's slot.
    pub slot: u32,
}

impl Hit {
    /// This packet's hit of this rule.
    #[inline(always)]
    pub fn new(pkt: u16, slot: u32) -> Hit {
        Hit { pkt, zero: 0, slot }
    }
}

/// When to find out first whether there is anything to be found: not where that was in vain of late.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Glance {
    /// Vectors until it is tried again.
    wait: u8,
    /// How long to wait if it is in vain once more.
    patience: u8,
}

impl Glance {
    /// Most vectors to wait.
    const LONGEST: u8 = 64;

    /// Whether to try.
    #[inline]
    pub fn is_due(&mut self) -> bool {
        let due = self.wait == 0;
        self.wait -= u8::from(!due);
        due
    }

    /// What came of it.
    #[inline]
    pub fn learn(&mut self, in_vain: bool) {
        self.patience = if in_vain { (self.patience * 2).clamp(1, Self::LONGEST) } else { 0 };
        self.wait = self.patience;
    }
}

/// What paid of late.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Habits {
    /// Whether only few packets match.
    pub glance: Glance,
    /// Whether to ask the tables' filters before the tables.
    pub sifting: Glance,
    /// Whether many packets find something to look at in tables, which costs more than to recall what was found.
    pub is_dear: bool,
}

impl Habits {
    /// Fewer packets say nothing about the next ones.
    const FEW: usize = 32;

    /// So many packets found so many keys.
    #[inline]
    pub fn learn_dear(&mut self, found: usize, packets: usize) {
        if packets >= Self::FEW {
            self.is_dear = found * 3 > packets;
        }
    }
}

/// Windows in, hits out. Made once per worker and used for every vector: nothing is allocated once it has grown to what
/// rules and traffic need.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The packets' windows; the caller fills the first `n` with [`mmb_packet::fill_window`], at least the chunks
    /// that [`crate::Classifier::chunks`] names.
    pub windows: Box<[Window; VECTOR]>,
    /// How many windows there are; what exceeds [`VECTOR`] is ignored.
    pub len: usize,
    /// Every matching rule of every packet, in ascending order of packets (no order within a packet).
    pub hits: Vec<Hit>,
    /// Hits before every packet has its own.
    pub(crate) gathered: Hits,
    pub(crate) heads: Heads,
    pub(crate) left: Left,
    /// What is true of the packets' bytes.
    pub(crate) truths: Truths,
    /// What was found for the flows of earlier vectors.
    pub(crate) recent: Recent,
    pub(crate) habits: Habits,
    /// Whether sixteen entries can be compared at once.
    pub(crate) wide: Option<Wide512>,
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
            len: 0,
            hits: Vec::with_capacity(VECTOR),
            gathered: Hits::default(),
            heads: Heads::default(),
            left: Left::default(),
            truths: Truths::default(),
            recent: Recent::default(),
            habits: Habits::default(),
            wide: Wide512::detect(),
        }
    }

    /// The same as on a machine without 512-bit vectors: what is found is the same, for tests and measurements.
    pub fn without_wide_vectors(self) -> Self {
        Batch { wide: None, ..self }
    }
}
