//! The combined effect of several rules, computed once for all packets that they apply to.

use crate::Policy;
use crate::effect::{Decider, Effect, MAX_EDITS, Outcome, draw_part};

/// The combined effect of a list of rules on every packet that all of them match. Equal lists of rules of
/// one policy have equal decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Decision {
    slots: Box<[u32]>,
    edits: Box<[u32]>,
    /// The rules that drop a share of the packets.
    chances: Box<[Chance]>,
    /// What the other rules decide.
    fixed: Decider,
    chain: Option<u32>,
}

/// A rule that drops a share of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Chance {
    slot: u32,
    index: u32,
    /// The number of packets to drop in 10,000.
    part: u16,
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
        let drop = self.fixed.outcome().drop;
        (drop || self.fixed.overrides_drops() || self.chances.is_empty()).then_some(drop)
    }

    /// Slot of the rule that accepts all packets although a rule with `drop` matches them.
    #[inline]
    pub fn accepting(&self) -> Option<u32> {
        let Outcome { drop, decider } = self.fixed.outcome();
        decider.filter(|_| !drop)
    }

    /// Decides about one packet. `random` is as for [`Policy::decide`].
    #[inline]
    pub fn decide(&self, random: &mut impl FnMut() -> u32) -> Outcome {
        self.draw(random).outcome()
    }

    /// Draws for every percentage, so that their probabilities are independent.
    fn draw(&self, random: &mut impl FnMut() -> u32) -> Decider {
        let mut decider = self.fixed;
        for &Chance { slot, index, part } in &self.chances {
            let effect = Effect { index, drop: part, ..Effect::default() };
            decider.consider(slot, &effect, draw_part(part, random));
        }
        decider
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
            decision.fixed.consider(slot, effect, effect.drop >= 10_000);
            if (1..10_000).contains(&effect.drop) {
                chances.push(Chance { slot, index: effect.index, part: effect.drop });
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
    /// Returns what the rules decide. If the packet is not dropped, appends the slots of the rules whose
    /// edits apply to `edits`, in rule order. `count` is called with the slot of every rule; `random` is as
    /// for [`Policy::decide`].
    pub fn decide_combined(
        &self,
        known: &Decision,
        more: impl IntoIterator<Item = u32>,
        edits: &mut Vec<u32>,
        random: &mut impl FnMut() -> u32,
        count: &mut impl FnMut(u32),
    ) -> Outcome {
        let first = edits.len();
        edits.extend_from_slice(&known.edits);
        known.slots.iter().for_each(|slot| count(*slot));
        let mut decider = known.draw(random);
        for slot in more {
            let Some(effect) = self.effect(slot) else { continue };
            if known.slots.binary_search(&slot).is_ok() {
                continue;
            }
            count(slot);
            decider.consider(slot, effect, draw_part(effect.drop, random));
            if effect.edits() {
                edits.push(slot);
            }
        }
        let outcome = decider.outcome();
        if outcome.drop {
            edits.truncate(first);
            return outcome;
        }
        if edits.len() - first > known.edits.len() {
            self.sort_in_rule_order(edits, first);
        }
        debug_assert!(edits.len() - first <= MAX_EDITS);
        outcome
    }
}
