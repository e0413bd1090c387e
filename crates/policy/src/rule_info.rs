//! Properties of single rules, for sessions.

pub(crate) mod log;
pub(crate) mod text;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use self::log::RuleLog;
use crate::effect::{Effect, EffectFlags};
use crate::{Policy, RuleScope, StatefulRule};

/// Identity of a rule. A rule that is deleted and added again has a new one; one that [`Policy::replace`]
/// keeps retains it. A kept rule also retains its slot, so for a known slot comparing identities is
/// sufficient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u32);

impl RuleId {
    /// An unused identity; they repeat after 2^32 rules.
    pub(crate) fn new() -> RuleId {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        RuleId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Properties of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleInfo {
    /// How long a match result holds within a session.
    pub scope: RuleScope,
    /// The rule is stateful.
    pub stateful: bool,
    /// The rule drops packets, all or a share.
    pub drops: bool,
    /// The rule accepts packets.
    pub accepts: bool,
    /// The rule drops packets, and their senders get answers.
    pub rejects: bool,
    /// The rule drops packets that others accept.
    pub blocks: bool,
    /// The rule edits packets.
    pub edits: bool,
    /// The rule is stateful and has bindings.
    pub binds: bool,
    /// The rule assigns its sessions to a service chain.
    pub chains: bool,
}

impl RuleInfo {
    /// Whether the rule opens a session for a matching packet. Stateful rules that drop do not.
    pub fn opens_sessions(self) -> bool {
        self.stateful && !self.drops
    }
}

impl From<&Effect> for RuleInfo {
    #[inline]
    fn from(effect: &Effect) -> RuleInfo {
        let has = |flag| effect.flags.contains(flag);
        RuleInfo {
            scope: effect.scope,
            stateful: has(EffectFlags::STATEFUL),
            drops: effect.drop != 0,
            rejects: effect.rejects(),
            accepts: has(EffectFlags::ACCEPT),
            blocks: has(EffectFlags::BLOCK),
            edits: has(EffectFlags::EDITS),
            binds: has(EffectFlags::BINDS),
            chains: has(EffectFlags::CHAIN),
        }
    }
}

impl Policy {
    /// Whether some rule is stateful.
    pub fn is_stateful(&self) -> bool {
        self.stateful != 0
    }

    /// Whether some rule rejects packets.
    pub fn has_reject(&self) -> bool {
        self.rejecting != 0
    }

    /// Whether some rule logs packets.
    #[inline]
    pub fn has_log(&self) -> bool {
        self.logging != 0
    }

    /// How the rule in this slot logs packets. `None`: it does not.
    pub fn rule_log(&self, slot: u32) -> Option<&Arc<RuleLog>> {
        self.record(slot)?.log.as_ref()
    }

    /// Whether the rule in this slot logs each packet, not only those that open sessions.
    pub fn logs_each_packet(&self, slot: u32) -> bool {
        self.has_log() && self.rule_log(slot).is_some() && !self.rule_info(slot).opens_sessions()
    }

    /// Whether some rule matches on the output interface.
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

    /// The properties of the rule in this slot; those of a rule without effect for an empty slot. For the
    /// packet path.
    #[inline]
    pub fn rule_info(&self, slot: u32) -> RuleInfo {
        self.effect(slot).map(RuleInfo::from).unwrap_or_default()
    }

    /// The bindings and the chain of the rule in this slot, if it is stateful.
    pub fn stateful(&self, slot: u32) -> Option<&StatefulRule> {
        self.record(slot)?.stateful.as_deref()
    }
}
