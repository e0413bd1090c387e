//! What a matching rule does, in a form for the packet path.

use bitflags::bitflags;

use crate::scope::RuleScope;

/// Maximum number of rules whose edits apply to one packet. If more match, those with the lowest indexes
/// are left out, because later edits usually overwrite theirs.
pub const MAX_EDITS: usize = u16::MAX as usize;

/// What a rule does to matching packets, in 8 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Effect {
    /// The rule's index, which orders edits; 0: no rule in the slot.
    pub index: u32,
    /// Number of packets to drop in 10,000; [`Effect::REJECT`]: all, and their senders get answers.
    pub drop: u16,
    /// Flags.
    pub flags: EffectFlags,
    /// How long a match result holds within a session.
    pub scope: RuleScope,
}

bitflags! {
    /// Flags of [`Effect::flags`].
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub(crate) struct EffectFlags: u8 {
        /// Accept the packet, unless a rule blocks it.
        const ACCEPT = 1 << 0;
        /// The rule has edits.
        const EDITS = 1 << 1;
        /// The rule is stateful.
        const STATEFUL = 1 << 2;
        /// The rule has bindings.
        const BINDS = 1 << 3;
        /// The rule matches on the output interface.
        const READS_OUT = 1 << 4;
        /// The rule assigns its sessions to a service chain.
        const CHAIN = 1 << 5;
        /// The rule's effect can differ between packets of one flow ([`crate::offload`]).
        const NOT_OFFLOADABLE = 1 << 6;
        /// Drop the packet, even if a rule accepts it. [`Effect::drop`] is all.
        const BLOCK = 1 << 7;
    }
}

const _: () = assert!(size_of::<Effect>() == 8);

impl Effect {
    /// The value of [`Effect::drop`] of rules that reject.
    pub(crate) const REJECT: u16 = u16::MAX;

    #[inline]
    pub(crate) fn rejects(self) -> bool {
        self.drop == Effect::REJECT
    }

    #[inline]
    pub(crate) fn edits(self) -> bool {
        self.flags.contains(EffectFlags::EDITS)
    }
}

/// Finds the rule that decides about a packet, among those that match it: one that blocks; else one that
/// accepts; else one that drops. Of several it is the one with the lowest index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Decider {
    /// The class of the rule in the upper half, the complement of its index in the lower half. 0: no rule.
    rank: u64,
    slot: u32,
    /// Some rule drops packets, all or a share.
    has_drop: bool,
}

impl Decider {
    const DROP: u64 = 1;
    const ACCEPT: u64 = 2;
    const BLOCK: u64 = 3;

    /// Considers one more rule. `draws`: a rule that drops a share drops this packet.
    #[inline]
    pub(crate) fn consider(&mut self, slot: u32, effect: &Effect, draws: bool) {
        let class = if effect.flags.contains(EffectFlags::BLOCK) {
            Decider::BLOCK
        } else if effect.flags.contains(EffectFlags::ACCEPT) {
            Decider::ACCEPT
        } else {
            u64::from(draws) * Decider::DROP
        };
        self.has_drop |= effect.drop != 0;
        let rank = class << 32 | u64::from(!effect.index);
        if class != 0 && rank > self.rank {
            (self.rank, self.slot) = (rank, slot);
        }
    }

    fn class(self) -> u64 {
        self.rank >> 32
    }

    /// Whether the packet is accepted or blocked, whatever rules drop it.
    pub(crate) fn overrides_drops(self) -> bool {
        self.class() >= Decider::ACCEPT
    }

    /// What the rules decide together.
    #[inline]
    pub(crate) fn outcome(self) -> Outcome {
        let drop = matches!(self.class(), Decider::DROP | Decider::BLOCK);
        Outcome { drop, decider: (drop || self.is_accepted()).then_some(self.slot) }
    }

    /// Whether a rule accepts a packet that another would drop.
    fn is_accepted(self) -> bool {
        self.class() == Decider::ACCEPT && self.has_drop
    }
}

/// What the rules that match a packet decide together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the packet is dropped.
    pub drop: bool,
    /// Slot of the rule that decided: that drops the packet, or accepts it although a rule with `drop`
    /// matches. None: no rule decides, and the packet passes.
    pub decider: Option<u32>,
}

/// Draws whether a packet is among `part` of 10,000.
#[inline]
pub(crate) fn draw_part(part: u16, random: &mut impl FnMut() -> u32) -> bool {
    match part {
        0 => false,
        10_000.. => true,
        // Scales to a number below 10,000 without a division.
        part => (u64::from(random()) * 10_000) >> 32 < u64::from(part),
    }
}
