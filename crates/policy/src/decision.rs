//! The combined effect of several rules, computed once for all packets that they apply to.

use crate::Policy;
use crate::effect::{EffectFlags, MAX_EDITS, draw_part};

/// The combined effect of a list of rules on every packet that all of them match. Equal lists of rules of
/// one policy have equal decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Decision {
    slots: Box<[u32]>,
    edits: Box<[u32]>,
    /// For each rule with a percentage, the number of packets to drop in 10,000.
    chances: Box<[u16]>,
    /// [`EffectFlags::ACCEPT`] and [`EffectFlags::BLOCK`] of the rules.
    flags: EffectFlags,
    drop: bool,
    chain: Option<u32>,
}

impl Decision {
    /// The rules' slots in ascending order, without duplicates.
    pub fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// Slots of the rules with edits in rule order, for [`Policy::edit`].
    #[inline]
    pub fn edits(&self) -> &[u32] {
        &self.edits
    }

    /// Slot of the effective rule with a service chain: of several the last one. `None`: no rule has one.
    #[inline]
    pub fn chain(&self) -> Option<u32> {
        self.chain
    }

    /// Whether packets are dropped. `None` if percentages decide per packet.
    #[inline]
    pub fn verdict(&self) -> Option<bool> {
        match (self.flags.is_accepted(), self.drop) {
            (true, _) => Some(false),
            (false, true) => Some(true),
            (false, false) => self.chances.is_empty().then_some(false),
        }
    }

    /// Whether one packet is dropped. `random` is as for [`Policy::decide`].
    #[inline]
    pub fn drops(&self, random: &mut impl FnMut() -> u32) -> bool {
        self.verdict().unwrap_or_else(|| self.draw(random))
    }

    /// Draws for every percentage, so that their probabilities are independent.
    fn draw(&self, random: &mut impl FnMut() -> u32) -> bool {
        self.chances.iter().fold(false, |drop, part| draw_part(*part, random) | drop)
    }
}

impl Policy {
    /// Combines the rules in these slots. Slots without a rule are skipped.
    pub fn decision(&self, slots: impl IntoIterator<Item = u32>) -> Decision {
        let mut slots: Vec<u32> = slots.into_iter().filter(|slot| self.has(*slot)).collect();
        slots.sort_unstable();
        slots.dedup();
        let mut decision = Decision::default();
        let (mut edits, mut chances) = (Vec::new(), Vec::new());
        for (&slot, effect) in slots.iter().filter_map(|slot| Some((slot, self.effect(*slot)?))) {
            decision.flags |= effect.flags & (EffectFlags::ACCEPT | EffectFlags::BLOCK);
            match effect.drop {
                0 => {}
                10_000.. => decision.drop = true,
                part => chances.push(part),
            }
            if effect.edits() {
                edits.push(slot);
            }
        }
        self.sort_in_rule_order(&mut edits, 0);
        decision.chain = self.chain_rule(slots.iter().copied());
        Decision { slots: slots.into(), edits: edits.into(), chances: chances.into(), ..decision }
    }

    /// Decides about one packet from `known` rules and the matching rules in `more`; each rule counts once.
    ///
    /// Returns whether the packet is dropped. If not, appends the slots of the rules whose edits apply to
    /// `edits`, in rule order. `count` is called with the slot of every rule; `random` is as for
    /// [`Policy::decide`].
    pub fn decide_combined(
        &self,
        known: &Decision,
        more: impl IntoIterator<Item = u32>,
        edits: &mut Vec<u32>,
        random: &mut impl FnMut() -> u32,
        count: &mut impl FnMut(u32),
    ) -> bool {
        let first = edits.len();
        edits.extend_from_slice(&known.edits);
        known.slots.iter().for_each(|slot| count(*slot));
        let (mut flags, mut drop) = (known.flags, known.drop | known.draw(random));
        for slot in more {
            let Some(effect) = self.effect(slot) else { continue };
            if known.slots.binary_search(&slot).is_ok() {
                continue;
            }
            count(slot);
            flags |= effect.flags;
            drop |= draw_part(effect.drop, random);
            if effect.edits() {
                edits.push(slot);
            }
        }
        if drop && !flags.is_accepted() {
            edits.truncate(first);
            return true;
        }
        if edits.len() - first > known.edits.len() {
            self.sort_in_rule_order(edits, first);
        }
        debug_assert!(edits.len() - first <= MAX_EDITS);
        false
    }
}
