//! Decides about packets from their matching rules: block over accept over drop over edits.

use mmb_classify::{Batch, Hit};
use mmb_packet::prefetch;

use crate::Policy;
use crate::effect::{Decider, Effect, MAX_EDITS, Outcome, draw_part};

/// What the packet path reads and writes for this many rules stays in the first-level cache: effect and
/// counters of a rule take 32 bytes. Small in builds with assertions, so that tests reach it.
const L1_RULES: usize = if cfg!(debug_assertions) { 2 } else { 256 };

/// Decision about a packet that some rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Index of the packet in the batch.
    pub pkt: u16,
    /// Whether the packet is dropped, and the rule that decided.
    pub outcome: Outcome,
    /// Number of rules whose edits apply; 0 if the packet is dropped.
    pub edits_len: u16,
    /// Index of their first slot in the list of edits.
    pub edits_at: u32,
}

/// Takes what [`Policy::decide`] finds. A pair of functions is one.
pub trait DecisionSink {
    /// A rule, by its slot, matches a packet.
    fn count(&mut self, slot: u32, packet: u16);

    /// The decision about a packet, after its rules were counted.
    fn verdict(&mut self, verdict: Verdict);
}

impl<C: FnMut(u32, u16), V: FnMut(Verdict)> DecisionSink for (C, V) {
    #[inline(always)]
    fn count(&mut self, slot: u32, packet: u16) {
        self.0(slot, packet);
    }

    #[inline(always)]
    fn verdict(&mut self, verdict: Verdict) {
        self.1(verdict);
    }
}

impl Policy {
    /// Whether what the packet path reads and writes for each rule may be out of the first-level cache, so
    /// that prefetching pays.
    #[inline]
    pub fn exceeds_cache(&self) -> bool {
        self.effects.len() > L1_RULES
    }

    /// Returns the slot of the one rule that matches each packet of the batch, and what it decides for all of
    /// them. None: packets match different rules or several, or the rule edits, or it drops a share.
    #[inline]
    pub fn decide_alike(&self, batch: &Batch) -> Option<(u32, Outcome)> {
        let (hits, &Hit { slot, .. }) = (&batch.hits, batch.hits.first()?);
        let differs = |(packet, hit): (u16, &Hit)| u32::from(hit.pkt ^ packet) | (hit.slot ^ slot);
        if hits.len() != batch.len || (0..).zip(hits).fold(0, |any, hit| any | differs(hit)) != 0 {
            return None;
        }
        let effect = self.effect(slot)?;
        if effect.edits() || !matches!(effect.drop, 0 | 10_000..) {
            return None;
        }
        let mut decider = Decider::default();
        decider.consider(slot, effect, effect.drop != 0);
        Some((slot, decider.outcome()))
    }

    /// Decides about the packets of a batch that [`crate::Classifier::classify`] has processed.
    ///
    /// Gives `sink` a verdict for every packet that some rule matches, in ascending order. Appends the slots
    /// of rules whose edits apply to `edits`, in rule order; [`Policy::edit`] applies them.
    ///
    /// `random` returns uniformly distributed numbers, one for each match of a rule with `drop` under 100 %.
    pub fn decide(
        &self,
        batch: &Batch,
        edits: &mut Vec<u32>,
        mut random: impl FnMut() -> u32,
        sink: &mut impl DecisionSink,
    ) {
        if self.exceeds_cache() {
            for effect in batch.hits.iter().filter_map(|hit| self.effect(hit.slot)) {
                prefetch::read(effect);
            }
        }
        for hits in batch.hits.chunk_by(|a, b| a.pkt == b.pkt) {
            let first = edits.len();
            let outcome = self.collect(hits, edits, &mut random, sink);
            if outcome.drop {
                edits.truncate(first);
            }
            self.sort_in_rule_order(edits, first);
            sink.verdict(Verdict {
                pkt: hits[0].pkt,
                outcome,
                edits_len: (edits.len() - first) as u16,
                edits_at: first as u32,
            });
        }
    }

    /// Counts one packet's rules and appends those with edits. Returns what they decide.
    #[inline]
    fn collect(
        &self,
        hits: &[Hit],
        edits: &mut Vec<u32>,
        random: &mut impl FnMut() -> u32,
        sink: &mut impl DecisionSink,
    ) -> Outcome {
        let mut decider = Decider::default();
        for &Hit { pkt, slot, .. } in hits {
            let Some(effect) = self.effect(slot) else { continue };
            sink.count(slot, pkt);
            decider.consider(slot, effect, draw_part(effect.drop, random));
            if effect.edits() {
                edits.push(slot);
            }
        }
        decider.outcome()
    }

    /// The index of the rule that decides about a packet to which the rules in these slots apply
    /// ([`Outcome::decider`]). Rules that drop a share of packets decide about packets that are dropped by a
    /// rule (`is_dropped`), if no other rule drops them.
    pub fn decider(&self, slots: impl IntoIterator<Item = u32>, is_dropped: bool) -> Option<u32> {
        let effects = slots.into_iter().filter_map(|slot| Some((slot, self.effect(slot)?)));
        let effects: Vec<_> = effects.filter(|(_, effect)| effect.index != 0).collect();
        let drops_all = |effect: &Effect| effect.drop >= 10_000;
        let is_drawn = is_dropped && !effects.iter().any(|(_, effect)| drops_all(effect));
        let mut decider = Decider::default();
        for (slot, effect) in effects {
            decider.consider(slot, effect, drops_all(effect) || is_drawn && effect.drop != 0);
        }
        self.effect(decider.outcome().decider?).map(|effect| effect.index)
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
