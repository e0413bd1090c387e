//! The rules of one key.

use std::sync::Arc;

use mmb_packet::Window;

use crate::masked::Test;
use crate::paged::SortedPages;

/// One residual constraint: the packet must not satisfy `what`, unless it satisfies `unless` too.
#[derive(Clone, Debug)]
pub(crate) struct Not {
    pub what: Test,
    pub unless: Option<Test>,
}

impl Not {
    fn allows(&self, window: &Window) -> bool {
        !self.what.holds(window) || self.unless.as_ref().is_some_and(|unless| unless.holds(window))
    }

    /// The chunks of the window that it reads, as bits.
    pub fn chunks(&self) -> u8 {
        self.what.chunks() | self.unless.as_ref().map_or(0, Test::chunks)
    }
}

/// The residual constraints of one rule; all must allow a packet.
pub(crate) type Nots = Arc<[Not]>;

/// Who owns a key: nearly always one rule without residual constraints.
#[derive(Clone, Debug)]
pub(crate) enum Owner {
    One(u32),
    Many(Arc<RuleList>),
}

impl Owner {
    /// The owner of a key with one rule.
    pub fn new(slot: u32, nots: Option<&Nots>) -> Owner {
        match nots {
            None => Owner::One(slot),
            Some(_) => {
                let mut list = RuleList::default();
                list.insert(slot, nots);
                Owner::Many(Arc::new(list))
            }
        }
    }
}

/// Several rules, or rules with residual constraints, by slot. A change copies one page of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleList {
    plain: SortedPages<u32, 512>,
    guarded: SortedPages<(u32, Nots), 64>,
}

impl RuleList {
    pub fn insert(&mut self, slot: u32, nots: Option<&Nots>) {
        match nots {
            None => drop(self.plain.insert(slot)),
            Some(nots) => drop(self.guarded.insert((slot, nots.clone()))),
        }
    }

    /// Takes a rule out. None: it was not there; otherwise the chunks that its residual constraints read.
    pub fn remove(&mut self, slot: u32) -> Option<u8> {
        if self.plain.remove(slot).is_some() {
            return Some(0);
        }
        let (_, nots) = self.guarded.remove(slot)?;
        Some(nots.iter().fold(0, |chunks, not| chunks | not.chunks()))
    }

    pub fn contains(&self, slot: u32) -> bool {
        self.plain.get(slot).is_some() || self.guarded.get(slot).is_some()
    }

    pub fn len(&self) -> usize {
        self.plain.len() + self.guarded.len()
    }

    /// The only rule, if it has no residual constraints.
    pub fn single(&self) -> Option<u32> {
        if self.len() == 1 { self.plain.iter().next().copied() } else { None }
    }

    /// Calls `hit` with each rule whose residual constraints allow the packet.
    pub fn visit(&self, window: &Window, mut hit: impl FnMut(u32)) {
        for &slot in self.plain.iter() {
            hit(slot);
        }
        for (slot, nots) in self.guarded.iter() {
            if nots.iter().all(|not| not.allows(window)) {
                hit(*slot);
            }
        }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        let nots = |(_, nots): &(u32, Nots)| nots.len() * size_of::<Not>();
        let nots: usize = self.guarded.iter().map(nots).sum();
        size_of::<Self>() + self.plain.bytes() + self.guarded.bytes() + nots
    }
}
