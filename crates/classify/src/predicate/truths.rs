//! Which predicates are true of which packet of a batch.

use super::Ids;
use crate::batch::VECTOR;
use crate::pattern::Facts;

/// The true predicates of each packet of a batch. Made once per worker: nothing is allocated once it has grown to what
/// rules and traffic need.
#[derive(Clone, Debug)]
pub struct Truths {
    ids: Vec<u32>,
    /// Where in `ids` each packet's stand.
    of: Box<[(u32, u32); VECTOR]>,
    /// For each predicate, and for each literal, when it was last met.
    met: [Vec<u32>; 2],
    now: [u32; 2],
}

impl Default for Truths {
    fn default() -> Self {
        Truths { ids: Vec::new(), of: Box::new([(0, 0); VECTOR]), met: Default::default(), now: [0; 2] }
    }
}

impl Truths {
    /// Forgets all packets. Costs nothing if there was nothing true of any.
    pub fn clear(&mut self) {
        if !self.ids.is_empty() {
            self.ids.clear();
            self.of.fill((0, 0));
        }
    }

    /// What is true of a packet; nothing if nobody has looked.
    #[inline]
    pub fn facts(&self, pkt: usize) -> Facts<'_> {
        let (from, to) = self.of.get(pkt).copied().unwrap_or_default();
        Facts::new(self.ids.get(from as usize..to as usize).unwrap_or_default())
    }

    /// Whether nothing is true of any packet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Replaces what is true of a packet by what `find` adds.
    pub(super) fn record(&mut self, pkt: usize, find: impl FnOnce(&mut Scan<'_>)) {
        let from = self.ids.len();
        self.tick(PREDICATES);
        find(&mut Scan(self));
        self.ids[from..].sort_unstable();
        if let Some(of) = self.of.get_mut(pkt) {
            *of = (from as u32, self.ids.len() as u32);
        }
    }

    fn tick(&mut self, which: usize) {
        self.now[which] = self.now[which].wrapping_add(1);
        if self.now[which] == 0 {
            self.met[which].fill(0);
            self.now[which] = 1;
        }
    }

    fn first_time(&mut self, which: usize, number: u32) -> bool {
        let (met, at) = (&mut self.met[which], number as usize);
        if at >= met.len() {
            met.resize((at + 1).next_power_of_two(), 0);
        }
        std::mem::replace(&mut met[at], self.now[which]) != self.now[which]
    }
}

const PREDICATES: usize = 0;
const LITERALS: usize = 1;

/// One packet while it is looked at.
pub(super) struct Scan<'a>(&'a mut Truths);

impl Scan<'_> {
    /// These predicates are true.
    pub fn add(&mut self, ids: &Ids) {
        for id in ids.iter() {
            if self.0.first_time(PREDICATES, *id) {
                self.0.ids.push(*id);
            }
        }
    }

    /// Literals' numbers are from now on those of other bytes.
    pub fn start_text(&mut self) {
        self.0.tick(LITERALS);
    }

    /// Whether the literal has not been met in these bytes.
    pub fn first_time(&mut self, literal: u32) -> bool {
        self.0.first_time(LITERALS, literal)
    }
}
