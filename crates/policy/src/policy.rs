//! The policy value: rules by index and slot, with everything compiled from them.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use mmb_classify::paged::{PagedVec, SortedPages};
use mmb_classify::{Classifier, Pattern, TableInfo};
use mmb_lang::{Diagnostic, Rule, RuleLabel};
use mmb_packet::{DropReason, Meta, PacketBuf};
use mmb_rewrite::{EditLimits, EditProgram, apply_programs};

use crate::chain::{ChainClasses, all_traffic};
use crate::compile::{Compiled, compile};
use crate::effect::{Effect, EffectFlags};
use crate::rule_info::log::RuleLog;
use crate::rule_info::text::RuleText;
use crate::{ElementChange, PortDependence, RuleId, RuleScope, SetTable, StatefulRule};

/// A rule set. See the crate's documentation.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(crate) classifier: Classifier,
    /// The rules of [`RuleScope::Packet`] only.
    pub(crate) per_packet: Classifier,
    /// Number of stateful rules.
    pub(crate) stateful: usize,
    /// Number of rules that reject packets.
    pub(crate) rejecting: usize,
    /// Number of rules that log packets.
    pub(crate) logging: usize,
    /// Number of rules that match on the output interface.
    pub(crate) reads_out: usize,
    /// Number of rules that prevent offloading.
    pub(crate) not_offloadable: usize,
    /// How decisions depend on ports.
    pub(crate) port_dependence: PortDependence,
    /// Slot by index of each rule with a service chain.
    pub(crate) chained: SortedPages<(u32, u32), 256>,
    /// Slot by index of each rule with virtual addresses ([`StatefulRule::virtual_addresses`]).
    virtuals: SortedPages<(u32, u32), 256>,
    /// Index of each rule with a name. Copied whole when it changes: names are for people.
    names: Arc<BTreeMap<Box<str>, u32>>,
    /// The named sets.
    pub(crate) sets: Arc<SetTable>,
    /// Elements that have changed since [`Policy::take_element_change`].
    pub(crate) changed: ElementChange,
    /// Slots of the rules that refer to each set.
    pub(crate) set_rules: Arc<BTreeMap<Box<str>, Vec<u32>>>,
    /// Slot of each rule by index.
    pub(crate) slots: SortedPages<(u32, u32), 2048>,
    /// Effect by slot: everything that the packet path reads of most rules.
    pub(crate) effects: PagedVec<Effect, 1024>,
    /// The rest of each rule by slot; shorter than `next_slot` after a flush.
    pub(crate) records: PagedVec<Option<Record>, 64>,
    next_index: u32,
    /// First slot that has never been used.
    next_slot: u32,
    /// Released slots.
    free: SortedPages<u32, 2048>,
}

#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub id: RuleId,
    /// The rule's mark in [`Policy::port_dependence`].
    area: Option<NonZeroU32>,
    pub text: RuleText,
    edits: Option<Arc<EditProgram>>,
    pub stateful: Option<Arc<StatefulRule>>,
    pub log: Option<Arc<RuleLog>>,
}

/// A rule of a policy.
#[derive(Clone, Copy, Debug)]
pub struct RuleView<'a> {
    /// The user's number of the rule.
    pub index: u32,
    /// The number of the rule's counters.
    pub slot: u32,
    /// Canonical text of the rule.
    pub text: &'a str,
    /// The text without name and comment: rules that do the same have equal bodies.
    pub body: &'a str,
}

impl RuleView<'_> {
    /// Parses the rule's syntax tree from the text; its spans refer to the text.
    ///
    /// # Errors
    /// None, as long as the formatter and the parser of the language agree.
    pub fn rule(&self) -> Result<Rule, Diagnostic> {
        match mmb_lang::parse_line(self.text)? {
            Some(mmb_lang::Command::Add(rule)) => Ok(rule),
            _ => Err(Diagnostic::new(Default::default(), format!("`{}` is not a rule", self.text))),
        }
    }

    /// Name and comment of the rule; both none for a rule without.
    pub fn label(&self) -> RuleLabel {
        match self.body.len() < self.text.len() {
            true => self.rule().ok().and_then(|rule| rule.label).map(|label| *label).unwrap_or_default(),
            false => RuleLabel::default(),
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy {
    /// A policy without rules.
    pub fn new() -> Self {
        Policy {
            classifier: Classifier::new(),
            per_packet: Classifier::new(),
            stateful: 0,
            rejecting: 0,
            logging: 0,
            reads_out: 0,
            not_offloadable: 0,
            port_dependence: PortDependence::default(),
            chained: SortedPages::default(),
            virtuals: SortedPages::default(),
            names: Arc::default(),
            sets: Arc::default(),
            changed: ElementChange::default(),
            set_rules: Arc::default(),
            slots: SortedPages::default(),
            effects: PagedVec::default(),
            records: PagedVec::default(),
            next_index: 1,
            next_slot: 0,
            free: SortedPages::default(),
        }
    }

    /// The virtual addresses of all rules ([`StatefulRule::virtual_addresses`]), in no order, some twice.
    pub fn virtual_addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let rules = self.virtuals.iter().filter_map(|&(_, slot)| self.stateful(slot));
        rules.flat_map(|rule| rule.virtual_addresses.iter().copied())
    }

    /// Whether some rule has virtual addresses.
    #[inline]
    pub fn has_virtual_addresses(&self) -> bool {
        !self.virtuals.is_empty()
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Upper bound of all slots, those of deleted rules included: the required number of counters.
    pub fn slots(&self) -> usize {
        self.next_slot as usize
    }

    /// All rules by ascending index.
    pub fn rules(&self) -> impl Iterator<Item = RuleView<'_>> {
        self.slots.iter().filter_map(|&entry| self.view(entry))
    }

    /// The rule with this index.
    pub fn rule(&self, index: u32) -> Option<RuleView<'_>> {
        self.slots.get(index).and_then(|&entry| self.view(entry))
    }

    /// The rule with this name.
    pub fn named(&self, name: &str) -> Option<RuleView<'_>> {
        self.rule(*self.names.get(name)?)
    }

    /// Checks that the name of a new rule is not in use.
    fn check_name(&self, rule: &Rule) -> Result<(), Diagnostic> {
        let Some(name) = rule.name() else { return Ok(()) };
        match self.names.get(&*name.text) {
            None => Ok(()),
            Some(index) => {
                let message = format!("rule {index} has the name `{name}` already");
                Err(Diagnostic::new(name.span.span(), message).with_help("names of rules are unique"))
            }
        }
    }

    pub(crate) fn view(&self, (index, slot): (u32, u32)) -> Option<RuleView<'_>> {
        let Record { text, .. } = self.record(slot)?;
        Some(RuleView { index, slot, text: text.whole(), body: text.body() })
    }

    #[inline]
    pub(crate) fn has(&self, slot: u32) -> bool {
        self.effect(slot).is_some_and(|effect| effect.index != 0)
    }

    #[inline]
    pub(crate) fn record(&self, slot: u32) -> Option<&Record> {
        self.records.get(slot as usize)?.as_ref()
    }

    /// Adds a rule as [`Policy::add_with`] does; every chain exists and accepts all traffic.
    ///
    /// # Errors
    /// As [`Policy::add_with`].
    pub fn add(&mut self, rule: &Rule, ifaces: &dyn Fn(&str) -> Option<u16>) -> Result<u32, Diagnostic> {
        self.add_with(rule, ifaces, &all_traffic)
    }

    /// Adds a rule and returns its index.
    ///
    /// `ifaces` maps an interface to its port, `classes` a service chain to its traffic class. A rule with
    /// a chain matches only what its chain accepts.
    ///
    /// # Errors
    /// A diagnostic on the rule, or its name is in use; the policy is unchanged.
    pub fn add_with(
        &mut self,
        rule: &Rule,
        ifaces: &dyn Fn(&str) -> Option<u16>,
        classes: &ChainClasses<'_>,
    ) -> Result<u32, Diagnostic> {
        self.check_name(rule)?;
        self.check_sets(rule)?;
        let compiled = compile(rule, ifaces, classes)?;
        if self.next_index == u32::MAX || self.next_slot > SLOTS {
            return Err(Diagnostic::new(rule.span.span(), "no rule index is left")
                .with_help("`flush` restarts the indexes"));
        }
        let slot = self.new_slot();
        let (pattern, area) = self.put(slot, RuleId::new(), compiled);
        self.port_dependence.add(area.into_iter().collect());
        self.classifier.insert(slot, &pattern);
        if self.rule_info(slot).scope == RuleScope::Packet {
            self.per_packet.insert(slot, &pattern);
        }
        self.fill_sets();
        Ok(self.next_index - 1)
    }

    fn new_slot(&mut self) -> u32 {
        self.free.pop_first().unwrap_or_else(|| {
            self.next_slot += 1;
            self.next_slot - 1
        })
    }

    /// Stores a rule under the next index. Returns the parts that the caller adds: its pattern, and its
    /// mark of port dependence.
    fn put(&mut self, slot: u32, id: RuleId, compiled: Compiled) -> (Pattern, Option<NonZeroU32>) {
        let Compiled { pattern, effect, edits, stateful, log, area, text, name, sets } = compiled;
        let index = self.next_index;
        if let Some(name) = name {
            Arc::make_mut(&mut self.names).insert(name, index);
        }
        self.add_set_rule(slot, &sets);
        self.next_index += 1;
        self.slots.insert((index, slot));
        self.stateful += usize::from(stateful.is_some());
        self.rejecting += usize::from(effect.rejects());
        self.logging += usize::from(log.is_some());
        self.reads_out += usize::from(effect.flags.contains(EffectFlags::READS_OUT));
        self.not_offloadable += usize::from(effect.flags.contains(EffectFlags::NOT_OFFLOADABLE));
        if effect.flags.contains(EffectFlags::CHAIN) {
            self.chained.insert((index, slot));
        }
        if stateful.as_ref().is_some_and(|stateful| !stateful.virtual_addresses.is_empty()) {
            self.virtuals.insert((index, slot));
        }
        let area = area.map(|area| self.port_dependence.add_shape(&area));
        while self.records.len() <= slot as usize {
            self.records.push(None);
            self.effects.push(Effect::default());
        }
        if let Some(record) = self.records.get_mut(slot as usize) {
            *record = Some(Record { id, area, text, edits, stateful, log });
        }
        if let Some(entry) = self.effects.get_mut(slot as usize) {
            *entry = Effect { index, ..effect };
        }
        (pattern, area)
    }

    /// Deletes the rule with this index and returns its slot. The caller passes the slot to
    /// [`Policy::release`] once no worker uses an older policy. `None`: no such rule.
    pub fn del(&mut self, index: u32) -> Option<u32> {
        let name = self.rule(index)?.label().name;
        let (_, slot) = self.slots.remove(index)?;
        if let Some(name) = name {
            Arc::make_mut(&mut self.names).remove(&name.text);
        }
        let record = self.records.get_mut(slot as usize)?.take()?;
        let effect = std::mem::take(self.effects.get_mut(slot as usize)?);
        self.rejecting -= usize::from(effect.rejects());
        self.reads_out -= usize::from(effect.flags.contains(EffectFlags::READS_OUT));
        self.not_offloadable -= usize::from(effect.flags.contains(EffectFlags::NOT_OFFLOADABLE));
        self.logging -= usize::from(record.log.is_some());
        self.stateful -= usize::from(record.stateful.is_some());
        record.area.into_iter().for_each(|area| self.port_dependence.remove(area));
        self.chained.remove(index);
        self.virtuals.remove(index);
        self.remove_set_rule(slot);
        self.classifier.remove(slot);
        self.per_packet.remove(slot);
        Some(slot)
    }

    /// Deletes all rules and returns their slots, as [`Policy::del`] does. Indexes start at 1 again.
    pub fn flush(&mut self) -> Vec<u32> {
        let slots = self.slots.iter().map(|&(_, slot)| slot).collect();
        *self = self.emptied();
        slots
    }

    /// A policy without rules that keeps the slots in use, and the named sets.
    fn emptied(&self) -> Policy {
        let (free, sets) = (self.free.clone(), self.sets.clone());
        Policy { next_slot: self.next_slot, free, sets, ..Policy::new() }
    }

    /// Allows reusing the slot of a deleted rule. The caller has zeroed the slot's counters, and no worker
    /// uses a policy with the deleted rule any more.
    pub fn release(&mut self, slot: u32) {
        if slot < self.next_slot && self.record(slot).is_none() {
            self.free.insert(slot);
        }
    }

    /// Replaces the rules as [`Policy::replace_with`] does; every chain exists and accepts all traffic.
    ///
    /// # Errors
    /// As [`Policy::replace_with`].
    pub fn replace(
        &self,
        new: &[Rule],
        ifaces: &dyn Fn(&str) -> Option<u16>,
    ) -> Result<Policy, (usize, Diagnostic)> {
        self.replace_with(new, ifaces, &all_traffic)
    }

    /// Returns a policy of exactly these rules, with indexes 1, 2, … in their order.
    ///
    /// A rule that is in this policy, too, keeps its slot, counters and identity, also with another name or
    /// comment. The slots of the others
    /// are free after [`Policy::release`]. `ifaces` and `classes` are as for [`Policy::add_with`].
    ///
    /// # Errors
    /// Position (from 0) of the first invalid rule, and its diagnostic.
    pub fn replace_with(
        &self,
        new: &[Rule],
        ifaces: &dyn Fn(&str) -> Option<u16>,
        classes: &ChainClasses<'_>,
    ) -> Result<Policy, (usize, Diagnostic)> {
        self.replace_all(new, &self.sets, ifaces, classes)
    }

    /// Returns a policy of exactly these rules and named sets, otherwise as [`Policy::replace_with`].
    ///
    /// # Errors
    /// As [`Policy::replace_with`].
    pub fn replace_all(
        &self,
        new: &[Rule],
        sets: &SetTable,
        ifaces: &dyn Fn(&str) -> Option<u16>,
        classes: &ChainClasses<'_>,
    ) -> Result<Policy, (usize, Diagnostic)> {
        let mut kept = SlotsByBody::of(self);
        let (mut policy, mut classifier) = (self.emptied().with_sets(sets.clone()), Classifier::new());
        let (mut wrong, mut per_packet, mut areas) = (None, Vec::new(), Vec::new());
        // Patterns are compiled one by one: all at once would dominate the memory use.
        let patterns = new.iter().enumerate().map_while(|(position, rule)| {
            let checked = policy.check_name(rule).and_then(|()| policy.check_sets(rule));
            match checked.and_then(|()| compile(rule, ifaces, classes)) {
                Ok(compiled) => {
                    let kept = kept.take(compiled.text.body());
                    let slot = kept.unwrap_or_else(|| policy.new_slot());
                    let id = kept.and_then(|slot| self.rule_id(slot)).unwrap_or_else(RuleId::new);
                    let is_per_packet = compiled.effect.scope == RuleScope::Packet;
                    let (pattern, area) = policy.put(slot, id, compiled);
                    areas.extend(area);
                    if is_per_packet {
                        per_packet.push((slot, pattern.clone()));
                    }
                    Some((slot, pattern))
                }
                Err(diagnostic) => {
                    wrong = Some((position, diagnostic));
                    None
                }
            }
        });
        classifier.extend(patterns);
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        policy.classifier = classifier;
        policy.per_packet.extend(per_packet);
        policy.fill_sets();
        policy.renew_changed_sets(self);
        policy.port_dependence.add(areas);
        Ok(policy)
    }

    /// Finds the rules that match packets: their slots are those of the policy.
    #[inline]
    pub fn classifier(&self) -> &Classifier {
        &self.classifier
    }

    /// As [`Policy::classifier`], for the rules of [`RuleScope::Packet`] only; `None` if there are none.
    #[inline]
    pub fn per_packet(&self) -> Option<&Classifier> {
        (!self.per_packet.is_empty()).then_some(&self.per_packet)
    }

    /// Applies the edits of the rules in `slots`, in this order, to a packet that [`mmb_packet::parse`]
    /// parsed into `meta`. `meta.out_port` holds the output port before redirections.
    ///
    /// # Errors
    /// The error of [`mmb_rewrite::apply_programs`]; packet and `meta` are unchanged.
    #[inline]
    pub fn edit(
        &self,
        slots: &[u32],
        packet: &mut impl PacketBuf,
        meta: &mut Meta,
        limits: EditLimits<impl Fn(u16) -> usize>,
    ) -> Result<(), DropReason> {
        let programs = slots.iter().filter_map(|&slot| self.record(slot)?.edits.as_deref());
        apply_programs(programs, packet, meta, limits)
    }

    #[inline]
    pub(crate) fn effect(&self, slot: u32) -> Option<&Effect> {
        self.effects.get(slot as usize)
    }

    /// Whether a new classifier would be noticeably faster.
    pub fn is_stale(&self) -> bool {
        self.classifier.is_stale() || self.per_packet.is_stale()
    }

    /// Returns the policy with newly built classifiers. Rules keep indexes, slots and identities.
    pub fn rebuilt(&self) -> Policy {
        Policy {
            classifier: self.classifier.rebuilt(),
            per_packet: self.per_packet.rebuilt(),
            ..self.clone()
        }
    }

    /// The classifier's tables; reads all their pages.
    pub fn tables(&self) -> impl Iterator<Item = TableInfo> {
        self.classifier.tables()
    }
}

/// Maximum number of slots, as for [`Classifier::insert`].
const SLOTS: u32 = u32::MAX / 2;

/// A policy's slots by the body of the rule; those with the lowest indexes are taken first.
struct SlotsByBody<'a> {
    first: HashMap<&'a str, u32>,
    /// The next slot with the same body.
    next: HashMap<u32, u32>,
}

impl<'a> SlotsByBody<'a> {
    fn of(policy: &'a Policy) -> Self {
        let mut slots = SlotsByBody { first: HashMap::with_capacity(policy.len()), next: HashMap::new() };
        let mut rules: Vec<_> = policy.rules().collect();
        while let Some(RuleView { slot, body, .. }) = rules.pop() {
            if let Some(behind) = slots.first.insert(body, slot) {
                slots.next.insert(slot, behind);
            }
        }
        slots
    }

    fn take(&mut self, body: &str) -> Option<u32> {
        let slot = *self.first.get(body)?;
        match self.next.remove(&slot) {
            Some(next) => self.first.get_mut(body).map(|first| std::mem::replace(first, next)),
            None => self.first.remove(body),
        }
    }
}
