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
    /// Number of packets to drop in 10,000.
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

impl EffectFlags {
    /// Whether rules with these flags together accept a packet.
    #[inline]
    pub(crate) fn is_accepted(self) -> bool {
        self.intersection(EffectFlags::ACCEPT.union(EffectFlags::BLOCK)).bits() == EffectFlags::ACCEPT.bits()
    }
}

const _: () = assert!(size_of::<Effect>() == 8);

impl Effect {
    #[inline]
    pub(crate) fn edits(self) -> bool {
        self.flags.contains(EffectFlags::EDITS)
    }
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
