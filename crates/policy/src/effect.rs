//! What a matching rule does, in a form for the packet path.

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
    /// Bits of [`flags`].
    pub flags: u8,
    /// How long a match result holds within a session.
    pub scope: RuleScope,
}

/// Bits of [`Effect::flags`].
pub(crate) mod flags {
    /// Accept the packet, whatever other rules decide.
    pub const ACCEPT: u8 = 1 << 0;
    /// The rule has edits.
    pub const EDITS: u8 = 1 << 1;
    /// The rule is stateful.
    pub const STATEFUL: u8 = 1 << 2;
    /// The rule has bindings.
    pub const BINDS: u8 = 1 << 3;
    /// The rule matches on the output interface.
    pub const READS_OUT: u8 = 1 << 4;
    /// The rule assigns its sessions to a service chain.
    pub const CHAIN: u8 = 1 << 5;
    /// The rule's effect can differ between packets of one flow ([`crate::offload`]).
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
