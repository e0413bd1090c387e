//! From the rules that match to what happens to a packet: accept over drop over edits.

use mmb_classify::{Batch, Hit};
use mmb_packet::prefetch;

use crate::{Policy, RuleScope};

/// Most rules whose edits one packet gets. If more match, those with the lowest indexes are left out: what they write
/// is overwritten but for the oddest of policies.
pub const MAX_EDITS: usize = u16::MAX as usize;

/// What a rule does to packets that match, in 8 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Effect {
    /// The rule's index, which orders edits; 0: there is no rule in the slot.
    pub index: u32,
    /// How many of 10,000 packets to drop; 10,000 is all.
    pub drop: u16,
    /// Bits of [`flags`].
    pub flags: u8,
    /// How often sessions ask.
    pub scope: RuleScope,
}

/// Bits of [`Effect::flags`].
pub(crate) mod flags {
    /// Keep the packet whatever others say.
    pub const ACCEPT: u8 = 1 << 0;
    /// The rule has edits.
    pub const EDITS: u8 = 1 << 1;
    /// The rule is stateful.
    pub const STATEFUL: u8 = 1 << 2;
    /// The rule has bindings.
    pub const BINDS: u8 = 1 << 3;
    /// The rule asks by which interface a packet leaves.
    pub const READS_OUT: u8 = 1 << 4;
    /// The rule gives its sessions to a service chain.
    pub const CHAIN: u8 = 1 << 5;
    /// What becomes of a packet by the rule is not the same for all of its flow ([`crate::offload`]).
    pub const NOT_OFFLOADABLE: u8 = 1 << 6;
}

const _: () = assert!(size_of::<Effect>() == 8);

impl Effect {
    #[inline]
    pub(crate) fn accepts(self) -> bool {
        self.flags & flags::ACCEPT != 0
    }

    #[inline]
    pub(crate) fn edits(self) -> bool {
        self.flags & flags::EDITS != 0
    }
}

/// Whether a packet is among `part` of 10,000.
#[inline]
pub(crate) fn part_of(part: u16, random: &mut impl FnMut() -> u32) -> bool {
    match part {
        0 => false,
        10_000.. => true,
        // A random number below 10,000 without a division.
        part => (u64::from(random()) * 10_000) >> 32 < u64::from(part),
    }
}

/// What happens to a packet that some rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Index of the packet in the batch.
    pub pkt: u16,
    /// The packet is dropped.
    pub drop: bool,
    /// Number of rules whose edits apply; 0 if the packet is dropped.
    pub edits_len: u16,
    /// Where their slots begin in the list of edits.
    pub edits_at: u32,
}

impl Policy {
    /// Decides about each packet of a batch that [`Policy::classify`] has found rules for: calls `verdict` for every
    /// packet that some rule matches, in ascending order. The slots of the rules whose edits apply are appended to
    /// `edits`, in rule order; [`Policy::edit`] applies them one by one.
    ///
    /// `count` is called with slot and packet for every matching rule, whatever is decided. `random` gives uniformly
    /// distributed numbers, one for each time a rule with `drop` under 100 % matches.
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
            self.put_in_rule_order(edits, first);
            verdict(Verdict {
                pkt: hits[0].pkt,
                drop,
                edits_len: (edits.len() - first) as u16,
                edits_at: first as u32,
            });
        }
    }

    /// Counts one packet's rules, appends those with edits and says whether the packet is dropped.
    #[inline]
    fn collect(
        &self,
        hits: &[Hit],
        edits: &mut Vec<u32>,
        random: &mut impl FnMut() -> u32,
        count: &mut impl FnMut(u32, u16),
    ) -> bool {
        let (mut accept, mut drop) = (false, false);
        for &Hit { pkt, slot, .. } in hits {
            let Some(effect) = self.effect(slot) else { continue };
            count(slot, pkt);
            accept |= effect.accepts();
            drop |= part_of(effect.drop, random);
            if effect.edits() {
                edits.push(slot);
            }
        }
        drop && !accept
    }

    #[inline]
    pub(crate) fn put_in_rule_order(&self, edits: &mut Vec<u32>, first: usize) {
        if edits.len() - first < 2 {
            return;
        }
        edits[first..].sort_unstable_by_key(|&slot| self.effect(slot).map_or(0, |effect| effect.index));
        let excess = (edits.len() - first).saturating_sub(MAX_EDITS);
        edits.drain(first..first + excess);
    }
}
