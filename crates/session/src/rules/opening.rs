//! What follows from the rules that match a packet without session.
//!
//! Theory of operation. Consecutive sessions are mostly opened by the same rules. Everything that does not
//! depend on the packet is therefore computed once for a list of matching rules. It is kept until a packet
//! arrives that other rules match, or until rules change ([`crate::Sessions::adopt`]).

use mmb_flow::{NatConfig, PoolId};
use mmb_packet::PacketBuf;
use mmb_policy::{Binding, Hit, Policy, RuleScope};

use super::attached::{RuleLists, SessionRule};
use super::lists::{EMPTY, ListHint};
use crate::Environment;
use crate::chains::{ChainState, NamedChain};
use crate::established::decisions::Decisions;
use crate::open::plan::is_pool;
use crate::slow_path::packet::SlowPacket;

/// What follows from a list of matching rules.
#[derive(Debug, Default)]
pub(crate) struct OpeningRules {
    /// The matching rules.
    hits: Vec<Hit>,
    /// Some rule opens a session.
    pub opens: bool,
    /// Some rule opens a session and translates it, by a binding or by a chain.
    pub binds: bool,
    /// No rule drops or edits packets: applying the rules means to count.
    pub only_counts: bool,
    /// The stateful rules, in ascending order of slots.
    pub rules: Vec<SessionRule>,
    /// Slots of the rules that translate, in the order of rules.
    pub translating: Vec<u32>,
    /// The chain of the session.
    pub chain: Option<NamedChain>,
    /// The port that leads to the broker of the session.
    pub broker: Option<u16>,
    /// Sessions of IPv4 get an address of this pool, and no other translation; others get none.
    pub pool: Option<PoolId>,
    /// Sessions get neither a translation nor a chain.
    pub is_plain: bool,
    /// The last rule, by index, that names a pool.
    pub pool_rule: Option<SessionRule>,
    /// Slots of the rules that the decision follows from, ascending.
    decision_slots: Vec<u32>,
    /// The rule list of the last session.
    list_hint: Option<ListHint>,
    /// The decision of the last session, and its stamp.
    decision_hint: Option<(u32, ListHint)>,
}

impl OpeningRules {
    /// Whether this was computed for the same rules.
    fn is_of(&self, hits: &[Hit]) -> bool {
        self.hits.len() == hits.len() && self.hits.iter().zip(hits).all(|(own, hit)| own.slot == hit.slot)
    }

    /// Computes what follows from the rules that match a packet.
    #[inline(never)]
    fn compute<E: Environment, P: PacketBuf>(&mut self, chains: &ChainState, pkt: &SlowPacket<'_, E, P>) {
        let policy = pkt.env.policy();
        self.hits.clear();
        self.hits.extend_from_slice(pkt.hits);
        (self.opens, self.binds, self.only_counts) = (false, false, true);
        self.decision_slots.clear();
        for hit in pkt.hits {
            let info = policy.rule_info(hit.slot);
            self.opens |= info.opens_sessions();
            self.binds |= info.opens_sessions() && (info.binds || chains.is_translated_by(policy, hit.slot));
            self.only_counts &= !info.drops && !info.edits;
            if info.stateful || info.scope == RuleScope::Session {
                self.decision_slots.push(hit.slot);
            }
        }
        self.decision_slots.sort_unstable();
        self.decision_slots.dedup();
        collect_stateful(pkt, &mut self.rules);
        self.translating.clear();
        self.translating.extend(self.rules.iter().filter(|rule| rule.translates).map(|rule| rule.slot));
        self.translating.sort_unstable_by_key(|&slot| policy.index(slot));
        self.chain = chains.opening_chain(policy, &self.rules);
        if let Some((slot, chain)) = self.chain
            && chains.translates(chain)
        {
            self.rules.iter_mut().filter(|rule| rule.slot == slot).for_each(|rule| rule.translates = true);
        }
        self.broker = broker(policy, &self.rules);
        (self.list_hint, self.decision_hint) = (None, None);
        self.compute_pool(policy, pkt.env.nat());
    }

    /// Acquires the rule list of a session that these rules open.
    pub fn acquire_list(&mut self, lists: &mut RuleLists) -> u32 {
        if let Some(number) = self.list_hint.and_then(|hint| lists.acquire_by_hint(hint)) {
            return number;
        }
        let number = lists.acquire(&self.rules);
        self.list_hint = (number != EMPTY).then(|| lists.hint(number));
        number
    }

    /// Acquires the decision of the forward flow of a session that these rules open.
    pub fn acquire_decision<E: Environment, P: PacketBuf>(
        &mut self,
        decisions: &mut Decisions,
        pkt: &SlowPacket<'_, E, P>,
        stamp: u32,
    ) -> u32 {
        if let Some((hint_stamp, hint)) = self.decision_hint
            && hint_stamp == stamp
            && !pkt.is_looped()
            && let Some(number) = decisions.acquire_by_hint(hint)
        {
            return number;
        }
        let number = pkt.acquire_decision(decisions, &self.decision_slots, stamp);
        let lasts = number != EMPTY && !pkt.is_looped();
        self.decision_hint = lasts.then(|| (stamp, decisions.hint(number)));
        number
    }

    /// Computes which pool the rules name, and whether they translate otherwise.
    fn compute_pool(&mut self, policy: &Policy, nat: &NatConfig) {
        let bindings = |slot: u32| policy.stateful(slot).map_or(&[][..], |rule| &rule.bindings);
        let slot = self.translating.iter().rfind(|&&slot| bindings(slot).iter().any(is_pool));
        self.pool_rule = slot.and_then(|slot| self.rules.iter().find(|rule| rule.slot == *slot).copied());
        self.is_plain = self.translating.is_empty() && self.chain.is_none();
        let mut all = self.translating.iter().flat_map(|&slot| bindings(slot));
        let last = all.clone().last().filter(|_| self.chain.is_none() && all.all(is_pool));
        self.pool = last.and_then(|binding| match binding {
            Binding::Nat { pool } => nat.pool(pool),
            _ => None,
        });
    }
}

/// What follows from the rules that matched the last packet without session. It is empty after rules have
/// changed.
#[derive(Debug, Default)]
pub(crate) struct LastOpening(Option<Box<OpeningRules>>);

impl LastOpening {
    /// Returns what follows from the rules that match the packet. The caller gives it back by
    /// [`LastOpening::keep`].
    pub fn take<E: Environment, P: PacketBuf>(
        &mut self,
        chains: &ChainState,
        pkt: &SlowPacket<'_, E, P>,
    ) -> Box<OpeningRules> {
        match self.0.take() {
            Some(opening) if opening.is_of(pkt.hits) => opening,
            other => {
                let mut opening = other.unwrap_or_default();
                opening.compute(chains, pkt);
                opening
            }
        }
    }

    /// Keeps what was computed for the next packet.
    pub fn keep(&mut self, opening: Box<OpeningRules>) {
        self.0 = Some(opening);
    }
}

/// Returns the port that leads to the broker of a session that these rules open: of several the one of the
/// last rule.
pub(crate) fn broker(policy: &Policy, rules: &[SessionRule]) -> Option<u16> {
    let opens = |rule: &&SessionRule| policy.rule_info(rule.slot).opens_sessions();
    let ports = rules
        .iter()
        .filter(opens)
        .filter_map(|rule| Some((policy.index(rule.slot)?, policy.stateful(rule.slot)?.broker?)));
    ports.max().map(|(_, port)| port)
}

/// Collects the stateful rules that match, in ascending order of slots.
pub(crate) fn collect_stateful<E: Environment, P: PacketBuf>(
    pkt: &SlowPacket<'_, E, P>,
    list: &mut Vec<SessionRule>,
) {
    let policy = pkt.env.policy();
    list.clear();
    let rules = pkt.stateful_slots();
    list.extend(rules.filter_map(|slot| SessionRule::new(policy, slot, policy.rule_info(slot).binds)));
    list.sort_unstable_by_key(|rule| rule.slot);
}
