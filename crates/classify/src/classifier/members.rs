//! The elements of named sets, and the search for those that packets have.
//!
//! Theory of operation. A rule refers to a set by a predicate: the value of a field is in the set, or the
//! pair of an address and a port. The elements are not part of the rule. All elements of all sets, once for
//! each field or pair that rules compare with the set, are the rules of a second [`Classifier`]. It is asked
//! first, and its hits are the true predicates. So the lookup of an element costs what the lookup of a rule
//! on the same fields costs, an element is added without compiling a rule, and a clone shares memory as every
//! clone of a classifier does. Elements may overlap.

use std::sync::Arc;

use mmb_packet::window::CHUNKS;

use super::{Batch, Classifier};
use crate::paged::{PagedVec, SortedPages};
use crate::pattern::{MemberKey, Pattern, Predicate};
use crate::predicate::{PredicateResults, PredicateSet};
use crate::table::Seeds;
use crate::vector::VECTOR;

/// What an element contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bounds {
    /// First value of the field.
    pub first: u128,
    /// Last value of the field.
    pub last: u128,
    /// First and last port of a pair.
    pub ports: Option<(u16, u16)>,
}

impl From<(u128, u128)> for Bounds {
    fn from((first, last): (u128, u128)) -> Bounds {
        Bounds { first, last, ports: None }
    }
}

impl Bounds {
    /// The packets that have the element. None: the bounds do not belong to these fields.
    fn pattern(&self, key: &MemberKey) -> Option<Pattern> {
        let ports = match (key.port, self.ports) {
            (Some(field), Some((first, last))) => Some((field, (first.into(), last.into()))),
            (None, None) => None,
            _ => return None,
        };
        Pattern::of_ranges(std::iter::once((key.field, (self.first, self.last))).chain(ports))
    }
}

/// The elements of the sets that predicates refer to.
#[derive(Clone, Debug, Default)]
pub(super) struct Members {
    /// By the number of the predicate.
    lists: SortedPages<(u32, List), 64>,
    /// The predicates that a packet has fields.
    present: SortedPages<(u32, MemberKey), 64>,
    /// The elements of all lists. None: there are no lists.
    index: Option<Arc<Classifier>>,
    /// The predicate of each slot of the index.
    owners: PagedVec<u32, 1024>,
    /// Slots of the index that are free.
    free: SortedPages<u32, 1024>,
    chunks: u8,
}

/// The elements of one set for one field or pair.
#[derive(Clone, Debug)]
struct List {
    set: Arc<str>,
    key: MemberKey,
    is_filled: bool,
    /// Slot of each element.
    slots: SortedPages<(Bounds, u32), 256>,
}

impl Members {
    /// Whether no rule refers to a set.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.index.is_none()
    }

    /// The chunks of the window that are read, as a bit set.
    #[inline]
    pub fn chunks(&self) -> u8 {
        self.chunks
    }

    /// Adds the predicates that are new, without elements, and removes those that are gone.
    pub fn sync(&mut self, predicates: &PredicateSet, seeds: Seeds) {
        if self.index.is_none() && predicates.about_sets().next().is_none() {
            return;
        }
        let gone = |(id, list): &(u32, List)| {
            let same = |p: &Predicate| matches!(p, Predicate::Member { set, key } if **set == *list.set && *key == list.key);
            (!predicates.predicate(*id).is_some_and(same)).then_some(*id)
        };
        let gone: Vec<u32> = self.lists.iter().filter_map(gone).collect();
        gone.into_iter().for_each(|id| self.remove_list(id));
        self.present = SortedPages::default();
        self.chunks = 0;
        for (id, predicate) in predicates.about_sets() {
            match predicate {
                Predicate::Member { set, key } => {
                    self.chunks |= key.chunks();
                    if self.lists.get(id).is_none() {
                        let (set, slots) = (Arc::from(&**set), SortedPages::default());
                        self.lists.insert((id, List { set, key: *key, is_filled: false, slots }));
                    }
                }
                Predicate::Present(key) => {
                    self.chunks |= key.chunks();
                    self.present.insert((id, *key));
                }
                _ => {}
            }
        }
        match self.lists.is_empty() && self.present.is_empty() {
            true => *self = Members::default(),
            false if self.index.is_none() => self.index = Some(Arc::new(Classifier::with_seeds(seeds))),
            false => {}
        }
    }

    fn remove_list(&mut self, id: u32) {
        let Some((_, list)) = self.lists.remove(id) else { return };
        let Some(index) = &mut self.index else { return };
        let index = Arc::make_mut(index);
        for (_, slot) in list.slots.iter() {
            index.remove(*slot);
            self.free.insert(*slot);
        }
    }

    /// A set without its elements, and the width of the field, or of a pair's address, that is compared with
    /// it.
    pub fn unfilled(&self) -> Option<(Arc<str>, u8)> {
        let (_, list) = self.lists.iter().find(|(_, list)| !list.is_filled)?;
        Some((list.set.clone(), list.key.field.width))
    }

    /// Adds the elements of the set that [`Members::unfilled`] returns.
    pub fn fill(&mut self, elements: impl Iterator<Item = Bounds>) {
        let Some(id) = self.lists.iter().find(|(_, list)| !list.is_filled).map(|(id, _)| *id) else { return };
        let Some((_, mut list)) = self.lists.get(id).cloned() else { return };
        let mut patterns = Vec::new();
        for bounds in elements {
            if let Some(pattern) = bounds.pattern(&list.key) {
                let slot = self.new_slot(id);
                list.slots.insert((bounds, slot));
                patterns.push((slot, pattern));
            }
        }
        list.is_filled = true;
        self.lists.insert((id, list));
        if let Some(index) = &mut self.index {
            Arc::make_mut(index).extend(patterns);
        }
    }

    fn new_slot(&mut self, owner: u32) -> u32 {
        match self.free.pop_first() {
            Some(slot) => {
                if let Some(of) = self.owners.get_mut(slot as usize) {
                    *of = owner;
                }
                slot
            }
            None => {
                self.owners.push(owner);
                self.owners.len() as u32 - 1
            }
        }
    }

    /// The lists of a set for fields of this width.
    fn lists_of(&self, set: &str, width: u8) -> Vec<u32> {
        let fits = |list: &List| *list.set == *set && list.key.field.width == width && list.is_filled;
        self.lists.iter().filter(|(_, list)| fits(list)).map(|(id, _)| *id).collect()
    }

    /// Adds an element to a set, for fields of this width.
    pub fn insert(&mut self, set: &str, width: u8, bounds: Bounds) {
        for id in self.lists_of(set, width) {
            let Some((_, list)) = self.lists.get(id) else { continue };
            let key = list.key;
            if list.slots.get(bounds).is_some() {
                continue;
            }
            let Some(pattern) = bounds.pattern(&key) else { continue };
            let slot = self.new_slot(id);
            if let (Some((_, list)), Some(index)) = (self.lists.get_mut(id), &mut self.index) {
                list.slots.insert((bounds, slot));
                Arc::make_mut(index).insert(slot, &pattern);
            }
        }
    }

    /// Removes an element from a set, for fields of this width.
    pub fn remove(&mut self, set: &str, width: u8, bounds: Bounds) {
        for id in self.lists_of(set, width) {
            let removed = self.lists.get_mut(id).and_then(|(_, list)| list.slots.remove(bounds));
            if let (Some((_, slot)), Some(index)) = (removed, &mut self.index) {
                Arc::make_mut(index).remove(slot);
                self.free.insert(slot);
            }
        }
    }

    /// Adds the predicates that are true for the packets of a batch to its results.
    #[inline(never)]
    pub fn mark(&self, batch: &mut Batch) {
        let Some(index) = &self.index else { return };
        let mut inner = batch.members.take().unwrap_or_default();
        std::mem::swap(&mut inner.windows, &mut batch.windows);
        inner.len = batch.len.min(VECTOR);
        inner.simd = batch.simd;
        index.classify(&mut inner);
        std::mem::swap(&mut inner.windows, &mut batch.windows);
        for hits in inner.hits.chunk_by(|a, b| a.pkt == b.pkt) {
            let owners = hits.iter().filter_map(|hit| self.owners.get(hit.slot as usize).copied());
            batch.results.add(hits[0].pkt.into(), owners);
        }
        batch.members = Some(inner);
        if !self.present.is_empty() {
            self.mark_present(batch);
        }
    }

    fn mark_present(&self, batch: &mut Batch) {
        let Batch { windows, len, results, .. }: &mut Batch = batch;
        let results: &mut PredicateResults = results;
        for (pkt, window) in windows[..(*len).min(VECTOR)].iter().enumerate() {
            let present = self.present.iter().filter(|(_, key)| key.is_present(window));
            results.add(pkt, present.map(|(id, _)| *id));
        }
    }

    /// Whether [`Members::rebuilt`] may be faster.
    pub fn is_stale(&self) -> bool {
        self.index.as_ref().is_some_and(|index| index.is_stale())
    }

    /// Returns the same elements in a rebuilt tree.
    pub fn rebuilt(&self) -> Members {
        let index = self.index.as_ref().map(|index| match index.is_stale() {
            true => Arc::new(index.rebuilt()),
            false => index.clone(),
        });
        Members { index, ..self.clone() }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        let slots = |(_, list): &(u32, List)| list.slots.bytes();
        self.lists.iter().map(slots).sum::<usize>()
            + self.owners.bytes()
            + self.index.as_ref().map_or(0, |index| index.bytes())
    }
}

const _: () = assert!(CHUNKS <= u8::BITS as usize);

impl Classifier {
    /// A named set that rules refer to and whose elements are not known yet, and the width in bits of the
    /// fields that are compared with it. Add its elements with [`Classifier::fill_set`].
    pub fn unfilled_set(&self) -> Option<(Arc<str>, u8)> {
        self.members.unfilled()
    }

    /// Adds all elements of the set that [`Classifier::unfilled_set`] returns.
    pub fn fill_set<B: Into<Bounds>>(&mut self, elements: impl Iterator<Item = B>) {
        self.members.fill(elements.map(B::into));
    }

    /// Adds an element to a named set: values of fields of this width, or addresses of this width with ports.
    /// It has no effect for sets that no rule refers to.
    pub fn insert_element(&mut self, set: &str, width: u8, bounds: impl Into<Bounds>) {
        self.members.insert(set, width, bounds.into());
    }

    /// Removes an element that was added with the same bounds.
    pub fn remove_element(&mut self, set: &str, width: u8, bounds: impl Into<Bounds>) {
        self.members.remove(set, width, bounds.into());
    }
}
