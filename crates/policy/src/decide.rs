//! Decides about packets from their matching rules: block over accept over drop over edits.

use mmb_classify::{Batch, Hit};
use mmb_packet::prefetch;

use crate::Policy;
use crate::effect::{Effect, EffectFlags, MAX_EDITS, draw_part};

/// Decision about a packet that some rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Index of the packet in the batch.
    pub pkt: u16,
    /// Whether the packet is dropped.
    pub drop: bool,
    /// Number of rules whose edits apply; 0 if the packet is dropped.
    pub edits_len: u16,
    /// Index of their first slot in the list of edits.
    pub edits_at: u32,
}

impl Policy {
    /// Decides about the packets of a batch that [`Policy::classify`] has processed.
    ///
    /// Calls `verdict` for every packet that some rule matches, in ascending order. Appends the slots of
    /// rules whose edits apply to `edits`, in rule order; [`Policy::edit`] applies them.
    ///
    /// `count` is called with slot and packet for every matching rule. `random` returns uniformly
    /// distributed numbers, one for each match of a rule with `drop` under 100 %.
    pub fn decide(
        &self,
        batch: &Batch,
        edits: &mut Vec<u32>,
        mut random: impl FnMut() -> u32,
        mut count: impl FnMut(u32, u16),
        mut verdict: impl FnMut(Verdict),
    ) {
        for effect in batch.hits.iter().filter_map(|hit| self.effect(hit.slot)) {
            prefetch::read(effect);
        }
        for hits in batch.hits.chunk_by(|a, b| a.pkt == b.pkt) {
            let first = edits.len();
            let drop = self.collect(hits, edits, &mut random, &mut count);
            if drop {
                edits.truncate(first);
            }
            self.sort_in_rule_order(edits, first);
            verdict(Verdict {
                pkt: hits[0].pkt,
                drop,
                edits_len: (edits.len() - first) as u16,
                edits_at: first as u32,
            });
        }
    }

    /// Counts one packet's rules and appends those with edits. Returns whether the packet is dropped.
    #[inline]
    fn collect(
        &self,
        hits: &[Hit],
        edits: &mut Vec<u32>,
        random: &mut impl FnMut() -> u32,
        count: &mut impl FnMut(u32, u16),
    ) -> bool {
        let (mut flags, mut drop) = (EffectFlags::empty(), false);
        for &Hit { pkt, slot, .. } in hits {
            let Some(effect) = self.effect(slot) else { continue };
            count(slot, pkt);
            flags |= effect.flags;
            drop |= draw_part(effect.drop, random);
            if effect.edits() {
                edits.push(slot);
            }
        }
        drop && !flags.is_accepted()
    }

    /// The index of the rule that decides whether a packet goes on to which the rules in these slots apply:
    /// of the rules with the strongest target, the first one. The order is block, accept, drop, drop with a
    /// percentage. The last one decides about packets that are dropped by a rule (`is_dropped`). None: no
    /// rule decides.
    pub fn decider(&self, slots: impl IntoIterator<Item = u32>, is_dropped: bool) -> Option<u32> {
        let strength = |effect: &Effect| match effect {
            effect if effect.flags.contains(EffectFlags::BLOCK) => Some(0),
            effect if effect.flags.contains(EffectFlags::ACCEPT) => Some(1),
            Effect { drop: 10_000.., .. } => Some(2),
            Effect { drop: 1.., .. } if is_dropped => Some(3),
            _ => None,
        };
        let effects =
            slots.into_iter().filter_map(|slot| self.effect(slot)).filter(|effect| effect.index != 0);
        effects.filter_map(|effect| Some((strength(effect)?, effect.index))).min().map(|(_, index)| index)
    }

    #[inline]
    pub(crate) fn sort_in_rule_order(&self, edits: &mut Vec<u32>, first: usize) {
        if edits.len() - first < 2 {
            return;
        }
        edits[first..].sort_unstable_by_key(|&slot| self.effect(slot).map_or(0, |effect| effect.index));
        let excess = (edits.len() - first).saturating_sub(MAX_EDITS);
        edits.drain(first..first + excess);
    }
}
