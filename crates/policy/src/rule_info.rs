//! What sessions ask about single rules, and the rules that have to be asked again for every packet.

use std::sync::atomic::{AtomicU32, Ordering};

use mmb_classify::{Batch, Classifier};
use mmb_packet::Meta;

use crate::decide::{Effect, flags};
use crate::{Policy, RuleScope, StatefulRule};

/// Identity of a rule. A rule that goes and comes again has another; one that [`Policy::replace`] finds again keeps its
/// own. A rule also keeps its slot, so that of a rule with a known slot it is enough to compare the identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u32);

impl RuleId {
    /// One that no rule has had (but four thousand million rules before).
    pub(crate) fn new() -> RuleId {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        RuleId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What a rule is, in short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleInfo {
    /// How often sessions ask.
    pub scope: RuleScope,
    /// It is stateful.
    pub stateful: bool,
    /// It drops packets, all or a share.
    pub drops: bool,
    /// It accepts.
    pub accepts: bool,
    /// It edits packets.
    pub edits: bool,
    /// It is stateful and has bindings.
    pub binds: bool,
    /// It gives its sessions to a service chain.
    pub chains: bool,
}

impl RuleInfo {
    /// Whether it opens a session for a packet that it matches: stateful rules that drop have nothing to open one for.
    pub fn opens_sessions(self) -> bool {
        self.stateful && !self.drops
    }
}

impl From<&Effect> for RuleInfo {
    #[inline]
    fn from(effect: &Effect) -> RuleInfo {
        let has = |flag: u8| effect.flags & flag != 0;
        RuleInfo {
            scope: effect.scope,
            stateful: has(flags::STATEFUL),
            drops: effect.drop != 0,
            accepts: has(flags::ACCEPT),
            edits: has(flags::EDITS),
            binds: has(flags::BINDS),
            chains: has(flags::CHAIN),
        }
    }
}

impl Policy {
    /// Whether some rule is stateful.
    pub fn is_stateful(&self) -> bool {
        self.stateful != 0
    }

    /// Whether some rule asks by which interface a packet leaves.
    #[inline]
    pub fn needs_out_port(&self) -> bool {
        self.reads_out != 0
    }

    /// The index of the rule in this slot.
    pub fn index(&self, slot: u32) -> Option<u32> {
        self.effect(slot).map(|effect| effect.index).filter(|index| *index != 0)
    }

    /// The identity of the rule in this slot.
    pub fn rule_id(&self, slot: u32) -> Option<RuleId> {
        Some(self.record(slot)?.id)
    }

    /// What the rule in this slot is; for the packet path. Of a slot without a rule it says that nothing is done.
    #[inline]
    pub fn rule_info(&self, slot: u32) -> RuleInfo {
        self.effect(slot).map(RuleInfo::from).unwrap_or_default()
    }

    /// What the rule in this slot gives to sessions, if it is stateful.
    pub fn stateful(&self, slot: u32) -> Option<&StatefulRule> {
        self.record(slot)?.stateful.as_deref()
    }

    /// The rules of [`RuleScope::Packet`]; None: there are none.
    #[inline]
    pub fn per_packet(&self) -> Option<PerPacketRules<'_>> {
        (!self.per_packet.is_empty()).then_some(PerPacketRules(&self.per_packet))
    }
}

/// Rules that may match one packet of a session and not the next, to be asked as the whole [`Policy`] is.
#[derive(Clone, Copy, Debug)]
pub struct PerPacketRules<'a>(&'a Classifier);

impl PerPacketRules<'_> {
    /// As [`Policy::chunks`].
    #[inline]
    pub fn chunks(&self) -> u8 {
        self.0.chunks()
    }

    /// As [`Policy::needs_bytes`].
    #[inline]
    pub fn needs_bytes(&self) -> bool {
        self.0.needs_bytes()
    }

    /// As [`Policy::needs_inspection`].
    #[inline]
    pub fn needs_inspection(&self, frame: &[u8], meta: &Meta) -> bool {
        self.0.needs_inspection(frame, meta)
    }

    /// As [`Policy::inspect`].
    #[inline]
    pub fn inspect(&self, batch: &mut Batch, pkt: usize, frame: &[u8], meta: &Meta) {
        self.0.inspect(batch, pkt, frame, meta);
    }

    /// As [`Policy::classify`].
    #[inline]
    pub fn classify(&self, batch: &mut Batch) {
        self.0.classify(batch);
    }
}
