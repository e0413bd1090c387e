//! Named sets: their elements, and the rules that refer to them.
//!
//! Theory of operation. A [`SetTable`] is a value: clones share memory, and a change copies the pages that
//! it changes. The classifiers of a policy index the elements of the sets that rules refer to
//! ([`mmb_classify::Classifier::insert_element`]), so a change of elements compiles no rule. The policy
//! with the change is published with what has changed ([`ElementChange`]): the sessions that it concerns ask
//! the rules again. The sessions that a stateful rule has opened stay open when their packets are in the set
//! no more. A stateful rule that drops gets a new identity ([`RuleId`]): to sessions it is another rule from
//! then on, and those that it has matched are judged anew.
//!
//! An element may have a deadline, in milliseconds of a clock of the caller. The elements of a set are also
//! sorted by deadline, so that finding those that have expired costs nothing if there are none.

mod change;

use std::collections::BTreeMap;
use std::sync::Arc;

use mmb_classify::paged::SortedPages;
use mmb_classify::{Bounds, Classifier};
use mmb_lang::{Diagnostic, Match, Rule, SetElement, SetKind, Word};

pub use self::change::ElementChange;
use crate::{Policy, RuleId};

/// The time and the comment of an element.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElementInfo {
    /// When the element is removed, in milliseconds of the caller's clock. None: it stays.
    pub deadline: Option<u64>,
    /// Why it is there.
    pub comment: Option<Arc<str>>,
    /// Whether a file lists it.
    pub from_file: bool,
}

/// The elements of a named set.
#[derive(Clone, Debug)]
pub struct PolicySet {
    kind: SetKind,
    elements: SortedPages<(SetElement, ElementInfo), 256>,
    /// Elements with a deadline.
    deadlines: SortedPages<((u64, SetElement), ()), 256>,
}

impl PolicySet {
    /// A set without elements.
    pub fn new(kind: SetKind) -> PolicySet {
        PolicySet { kind, elements: SortedPages::default(), deadlines: SortedPages::default() }
    }

    /// What its elements are.
    pub fn kind(&self) -> SetKind {
        self.kind
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// Whether both are copies of one set without a change since.
    pub fn is_same(&self, other: &PolicySet) -> bool {
        self.kind == other.kind && self.elements.is_same(&other.elements)
    }

    /// Number of elements with a deadline.
    pub fn expiring(&self) -> usize {
        self.deadlines.len()
    }

    /// The elements in ascending order.
    pub fn elements(&self) -> impl Iterator<Item = (&SetElement, &ElementInfo)> {
        self.elements.iter().map(|(element, info)| (element, info))
    }

    /// The time and the comment of an element. None: the set does not have it.
    pub fn get(&self, element: &SetElement) -> Option<&ElementInfo> {
        self.elements.get(*element).map(|(_, info)| info)
    }

    /// Whether a value of a field of `width` bits is in the set, or together with a port.
    pub fn contains(&self, width: u8, value: u128, port: Option<u16>) -> bool {
        let has = |element: &SetElement| {
            let (first, last) = element.bounds();
            let has_port = match (element.pair_ports(), port) {
                (Some((first, last)), Some(port)) => (first..=last).contains(&port),
                (None, None) => true,
                _ => false,
            };
            element.width() == width && (first..=last).contains(&value) && has_port
        };
        self.elements.iter().any(|(element, _)| has(element))
    }

    /// Adds an element, or replaces what is known of it. Returns whether it is new.
    pub fn insert(&mut self, element: SetElement, info: ElementInfo) -> bool {
        let deadline = info.deadline;
        let old = self.elements.insert((element, info)).map(|(_, info)| info);
        if let Some(before) = old.as_ref().and_then(|old| old.deadline) {
            self.deadlines.remove((before, element));
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert(((deadline, element), ()));
        }
        old.is_none()
    }

    /// Removes an element. Returns whether it was there.
    pub fn remove(&mut self, element: &SetElement) -> bool {
        let Some((_, info)) = self.elements.remove(*element) else { return false };
        if let Some(deadline) = info.deadline {
            self.deadlines.remove((deadline, *element));
        }
        true
    }

    /// The earliest deadline.
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.iter().next().map(|((deadline, _), ())| *deadline)
    }

    /// The elements whose deadline is not after `now`.
    fn expired(&self, now: u64) -> impl Iterator<Item = SetElement> {
        let is_over = move |((deadline, _), ()): &&((u64, SetElement), ())| *deadline <= now;
        self.deadlines.iter().take_while(is_over).map(|((_, element), ())| *element)
    }
}

/// All named sets, by name.
pub type SetTable = BTreeMap<Box<str>, PolicySet>;

impl Policy {
    /// The named sets.
    pub fn sets(&self) -> &SetTable {
        &self.sets
    }

    /// The policy with other sets. The rules of this policy keep their elements.
    pub fn with_sets(self, sets: SetTable) -> Policy {
        let mut policy = self;
        policy.sets = Arc::new(sets);
        policy
    }

    /// Adds a set without elements, or removes the elements of one.
    pub fn define_set(&mut self, name: &str, kind: SetKind) {
        self.remove_elements(name, |_| true);
        Arc::make_mut(&mut self.sets).insert(name.into(), PolicySet::new(kind));
    }

    /// Removes a set. The caller has checked that no rule refers to it.
    pub fn remove_set(&mut self, name: &str) {
        Arc::make_mut(&mut self.sets).remove(name);
    }

    /// Adds elements to a set, or replaces what is known of them. Returns how many are new. Elements that the
    /// kind of the set does not accept are ignored.
    pub fn add_elements(
        &mut self,
        name: &str,
        elements: impl IntoIterator<Item = (SetElement, ElementInfo)>,
    ) -> usize {
        let Some(set) = Arc::make_mut(&mut self.sets).get_mut(name) else { return 0 };
        let kind = set.kind;
        let mut new = Vec::new();
        for (element, info) in elements {
            if kind.accepts(&element) && set.insert(element, info) {
                new.push(element);
            }
        }
        self.note_change(name, &new);
        for element in &new {
            self.classifier.insert_element(name, element.width(), bounds(element));
            self.per_packet.insert_element(name, element.width(), bounds(element));
        }
        if !new.is_empty() {
            self.renew_rules(name);
        }
        new.len()
    }

    /// Removes some elements of a set. Returns how many were there.
    pub fn del_elements(&mut self, name: &str, elements: &[SetElement]) -> usize {
        let Some(set) = Arc::make_mut(&mut self.sets).get_mut(name) else { return 0 };
        let removed: Vec<_> = elements.iter().filter(|element| set.remove(element)).copied().collect();
        self.unindex(name, &removed);
        removed.len()
    }

    /// Removes the elements of a set for which `is_gone` returns true. Returns how many there were.
    pub fn remove_elements(&mut self, name: &str, is_gone: impl Fn(&ElementInfo) -> bool) -> usize {
        let Some(set) = self.sets.get(name) else { return 0 };
        let gone: Vec<_> =
            set.elements().filter(|(_, info)| is_gone(info)).map(|(element, _)| *element).collect();
        self.del_elements(name, &gone)
    }

    /// The earliest deadline of an element.
    pub fn next_deadline(&self) -> Option<u64> {
        self.sets.values().filter_map(PolicySet::next_deadline).min()
    }

    /// Removes the elements whose deadline is not after `now`. Returns how many there were.
    pub fn expire_elements(&mut self, now: u64) -> usize {
        if self.next_deadline().is_none_or(|deadline| deadline > now) {
            return 0;
        }
        let over: Vec<(Box<str>, Vec<SetElement>)> =
            self.sets.iter().map(|(name, set)| (name.clone(), set.expired(now).collect())).collect();
        over.iter().map(|(name, elements)| self.del_elements(name, elements)).sum()
    }

    /// Notes elements of a set that were added or removed, if a rule refers to it.
    fn note_change(&mut self, name: &str, elements: &[SetElement]) {
        if self.set_rules.contains_key(name) {
            elements.iter().for_each(|element| self.changed.note(element));
        }
    }

    /// Returns the changes of elements since the last call. None: there are too many.
    pub fn take_element_change(&mut self) -> Option<ElementChange> {
        std::mem::take(&mut self.changed).merge()
    }

    fn unindex(&mut self, name: &str, removed: &[SetElement]) {
        self.note_change(name, removed);
        for element in removed {
            self.classifier.remove_element(name, element.width(), bounds(element));
            self.per_packet.remove_element(name, element.width(), bounds(element));
        }
        if !removed.is_empty() {
            self.renew_rules(name);
        }
    }

    /// Indexes of the rules that refer to a set, ascending.
    pub fn rules_with_set(&self, name: &str) -> impl Iterator<Item = u32> {
        self.set_rules
            .get(name)
            .into_iter()
            .flat_map(|slots| slots.iter())
            .filter_map(|slot| self.index(*slot))
    }

    /// Gives the stateful rules that drop and refer to a set new identities. Sessions that other stateful
    /// rules have opened stay open.
    fn renew_rules(&mut self, name: &str) {
        let Some(slots) = self.set_rules.get(name).cloned() else { return };
        for slot in slots.iter() {
            let info = self.rule_info(*slot);
            if info.stateful
                && info.drops
                && let Some(Some(record)) = self.records.get_mut(*slot as usize)
            {
                record.id = RuleId::new();
            }
        }
    }

    /// Gives the rules of sets whose elements are others than in `earlier` new identities.
    pub(crate) fn renew_changed_sets(&mut self, earlier: &Policy) {
        let is_same = |name: &str| match (self.sets.get(name), earlier.sets.get(name)) {
            (Some(now), Some(before)) => {
                now.is_same(before) || now.elements().map(|(e, _)| e).eq(before.elements().map(|(e, _)| e))
            }
            _ => false,
        };
        let changed: Vec<_> = self.set_rules.keys().filter(|name| !is_same(name)).cloned().collect();
        changed.iter().for_each(|name| self.renew_rules(name));
    }

    /// Adds the elements of sets to which rules refer for the first time.
    pub(crate) fn fill_sets(&mut self) {
        for classifier in [&mut self.classifier, &mut self.per_packet] {
            fill(classifier, &self.sets);
        }
    }

    /// Notes the sets that the rule in a slot refers to.
    pub(crate) fn add_set_rule(&mut self, slot: u32, names: &[Box<str>]) {
        for name in names {
            Arc::make_mut(&mut self.set_rules).entry(name.clone()).or_default().push(slot);
        }
    }

    /// Undoes [`Policy::add_set_rule`].
    pub(crate) fn remove_set_rule(&mut self, slot: u32) {
        if self.set_rules.values().any(|slots| slots.contains(&slot)) {
            let sets = Arc::make_mut(&mut self.set_rules);
            sets.values_mut().for_each(|slots| slots.retain(|other| *other != slot));
            sets.retain(|_, slots| !slots.is_empty());
        }
    }

    /// Checks that the sets of a rule exist and fit the fields that are compared with them.
    pub(crate) fn check_sets(&self, rule: &Rule) -> Result<(), Diagnostic> {
        self.check_set_matches(&rule.matches)
    }

    /// Checks that the sets of matches exist and fit the fields that are compared with them.
    ///
    /// # Errors
    /// The first one that does not.
    pub fn check_set_matches(&self, matches: &[Match]) -> Result<(), Diagnostic> {
        for one in matches {
            let Some((field, name)) = one.named_set() else { continue };
            let Some(set) = self.sets.get(&*name.text) else { return Err(unknown_set(name)) };
            let port = one.pair_port();
            if !port.map_or_else(|| set.kind.fits(field), |_| set.kind.has_pairs()) {
                let fields = port.map_or(field.name().to_owned(), |port| format!("{field},{port}"));
                let (set, kind) = (&**name, set.kind);
                let message =
                    format!("the elements of `@{set}` are of kind {}, and `{fields}` is not", kind.word());
                let help = match kind.has_pairs() {
                    true => format!("compare an address and a port with it: ip-daddr,tcp-dport @{set}"),
                    false => "`show sets` lists the sets and their kinds".to_owned(),
                };
                return Err(Diagnostic::new(name.span.span(), message).with_help(help));
            }
        }
        Ok(())
    }
}

/// The error for a set that does not exist.
pub fn unknown_set(name: &Word) -> Diagnostic {
    Diagnostic::new(name.span.span(), format!("there is no set `{}`", &**name))
        .with_help("`set add <name> <kind>` adds one; `show sets` lists all sets")
}

/// The names of the sets that matches refer to.
pub(crate) fn names(matches: &[Match]) -> Vec<Box<str>> {
    let mut names: Vec<Box<str>> =
        matches.iter().filter_map(Match::named_set).map(|(_, name)| name.text.clone()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// What an element contains, for classifiers.
fn bounds(element: &SetElement) -> Bounds {
    Bounds { ports: element.pair_ports(), ..element.bounds().into() }
}

fn fill(classifier: &mut Classifier, sets: &SetTable) {
    while let Some((name, width)) = classifier.unfilled_set() {
        let elements = sets.get(&*name).into_iter().flat_map(PolicySet::elements);
        let fitting = elements.filter(|(element, _)| element.width() == width);
        classifier.fill_set(fitting.map(|(element, _)| bounds(element)));
    }
}

#[cfg(test)]
mod tests;
