//! The conjunction of a rule's matches.

use mmb_lang::{Diagnostic, Match};

use super::condition::{self, Condition};
use super::{bits, split};
use crate::pattern::{Entry, Field, MaskedKey, Pattern, Predicate, Ranges, Test};

pub(super) fn contradiction(one: &Match) -> Diagnostic {
    Diagnostic::new(one.span.span(), "no packet can match this and the matches before it")
        .with_help("split the rule in two, or remove one of the matches")
}

/// The constraints of the matches so far. Functions that add to it return None if no packet can satisfy them.
#[derive(Default)]
pub(super) struct Constraints {
    cover: MaskedKey,
    /// Fields that the cover requires, with their allowed values. Each field occurs once.
    values: Vec<(Field, Ranges)>,
    /// Fields that may be absent, with their allowed values if present.
    if_present: Vec<(Field, Ranges)>,
    clauses: Vec<Test>,
    predicates: Vec<Predicate>,
}

impl Constraints {
    /// No constraint but that the packet is IP.
    pub fn of_ip() -> Constraints {
        Constraints { cover: MaskedKey::IP, ..Constraints::default() }
    }

    /// Adds a condition, whose consequences [`Constraints::propagate`] finds.
    pub fn add(&mut self, condition: Condition) -> Option<()> {
        match condition {
            Condition::Always => {}
            Condition::Value { field, implied, set } => {
                self.cover.restrict(&implied)?;
                self.narrow(field, &set)?;
            }
            Condition::Bytes { implied, exists, predicate, equal } => {
                self.cover.restrict(&implied)?;
                if equal {
                    self.clause(Some(predicate), None);
                } else {
                    self.clause(None, Some(predicate));
                    if let Some(exists) = exists {
                        self.clause(Some(exists), None);
                    }
                }
            }
            Condition::Member { implied, predicate, equal, .. } => {
                self.cover.restrict(&implied)?;
                match equal {
                    true => self.clause(Some(predicate), None),
                    false => self.clause(None, Some(predicate)),
                }
            }
        }
        Some(())
    }

    /// The pattern of the packets whose values of all of these fields are in their ranges.
    pub fn of_ranges(ranges: impl Iterator<Item = (Field, (u128, u128))>) -> Option<Pattern> {
        let mut constraints = Constraints::of_ip();
        for (field, range) in ranges {
            let implied = field.present.masked();
            constraints.add(Condition::Value { field, implied, set: Ranges::new([range]) })?;
        }
        constraints.propagate()?;
        constraints.into_pattern()
    }

    /// Adds the negations of conditions. It works in rounds, because one negation may imply the presence of
    /// another's field.
    pub fn exclude_all(&mut self, mut open: Vec<(&Match, Condition)>) -> Result<(), Diagnostic> {
        loop {
            let mut undecided = Vec::new();
            let before = self.cover;
            for (one, condition) in open {
                if let Some(condition) = self.exclude(condition).ok_or_else(|| contradiction(one))? {
                    undecided.push((one, condition));
                }
            }
            if self.cover == before {
                for (_, condition) in undecided {
                    self.exclude_if_present(condition);
                }
                return Ok(());
            }
            open = undecided;
        }
    }

    /// Adds the negation of a condition. Returns the condition if it is still open whether the packet has its
    /// field.
    fn exclude(&mut self, condition: Condition) -> Option<Option<Condition>> {
        match condition {
            Condition::Always => return None,
            Condition::Value { field, ref set, .. } => {
                let rest = set.complement(field.width);
                if rest.is_empty()
                    && let Some(other) = condition::other_network(&field.present)
                {
                    self.cover = self.cover.and(&other)?;
                    self.propagate()?;
                    return Some(None);
                }
                match self.cover.and(&field.present.masked()) {
                    // Packets without the field satisfy the negation.
                    None => {}
                    Some(both) if both == self.cover => {
                        self.narrow(field, &rest)?;
                        self.propagate()?;
                    }
                    Some(_) => return Some(Some(condition)),
                }
            }
            Condition::Bytes { implied, exists, predicate, equal } => {
                if self.cover.and(&implied).is_none() {
                    return Some(None);
                }
                match (equal, exists) {
                    (true, _) => self.clause(None, Some(predicate)),
                    (false, exists) => self.clause(Some(predicate), exists),
                }
            }
            Condition::Member { implied, present, predicate, equal } => match self.cover.and(&implied) {
                None => {}
                Some(_) if equal => self.clause(None, Some(predicate)),
                Some(both) => self.clause(Some(predicate), (both != self.cover).then_some(present)),
            },
        }
        Some(None)
    }

    fn exclude_if_present(&mut self, condition: Condition) {
        let Condition::Value { field, set, .. } = condition else { return };
        let rest = set.complement(field.width);
        match self.if_present.iter_mut().find(|(other, _)| *other == field) {
            Some((_, values)) => *values = values.and(&rest),
            None => self.if_present.push((field, rest)),
        }
    }

    /// Restricts a field's values to `set`.
    fn narrow(&mut self, field: Field, set: &Ranges) -> Option<()> {
        let place = |field: &Field| (field.chunk, field.shift, field.width);
        if field.width == 0 {
            return (!set.is_empty()).then_some(());
        }
        match self.values.iter_mut().find(|(other, _)| place(other) == place(&field)) {
            Some((_, values)) => *values = values.and(set),
            None => self.values.push((field, set.within(field.width))),
        }
        Some(())
    }

    /// Moves common bits of the values into the cover, and removes values that the cover excludes, until
    /// nothing changes. Fields may overlap.
    pub fn propagate(&mut self) -> Option<()> {
        loop {
            let mut has_changed = false;
            for (field, values) in &mut self.values {
                *values = bits::trim(values, field, &self.cover);
                has_changed |= self.cover.restrict(&bits::prefix(field, values.ends()?)?)?;
            }
            if !has_changed {
                return Some(());
            }
        }
    }

    fn clause(&mut self, positive: Option<Predicate>, negative: Option<Predicate>) {
        let positive = positive.map(|predicate| self.number(predicate));
        let negative = negative.map(|predicate| self.number(predicate));
        let clause = Test::Clause { positive, negative };
        if !self.clauses.contains(&clause) {
            self.clauses.push(clause);
        }
    }

    fn number(&mut self, predicate: Predicate) -> u32 {
        let at =
            self.predicates.iter().position(|other| *other == predicate).unwrap_or(self.predicates.len());
        if at == self.predicates.len() {
            self.predicates.push(predicate);
        }
        at as u32
    }

    pub fn into_pattern(mut self) -> Option<Pattern> {
        let pivot = self.take_pivot();
        let if_present = self.if_present.drain(..);
        let mut common_bits: Vec<Test> =
            if_present.map(|(field, ranges)| Test::InRanges { field, ranges, absent: true }).collect();
        common_bits.append(&mut self.clauses);
        let parts = split::entries(&self.cover, &self.values);
        let entries = parts.into_iter().filter_map(|(cover, values)| {
            let within =
                values.into_iter().map(|(field, ranges)| Test::InRanges { field, ranges, absent: false });
            let entry = Entry::new(&cover, within.chain(common_bits.iter().cloned()))?;
            Some(entry.with_pivot(pivot))
        });
        Pattern::new(entries.collect(), self.predicates)
    }

    /// Removes the most selective clause. The entries are found through its predicate.
    fn take_pivot(&mut self) -> Option<u32> {
        let weight = |clause: &Test| match clause {
            Test::Clause { positive: Some(id), negative: None } => {
                self.predicates.get(*id as usize).map_or(0, Predicate::selectivity)
            }
            _ => 0,
        };
        let (at, weight) = self
            .clauses
            .iter()
            .map(weight)
            .enumerate()
            .max_by_key(|(at, weight)| (*weight, usize::MAX - at))?;
        if weight == 0 {
            return None;
        }
        match self.clauses.remove(at) {
            Test::Clause { positive, .. } => positive,
            Test::InRanges { .. } => None,
        }
    }
}
