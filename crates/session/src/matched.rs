//! What follows from the rules that match a packet, if it opens a session.
//!
//! Theory of operation. Sessions that are opened one after the other are mostly opened by the same rules. What can be said
//! without a look at the packet is therefore worked out for a list of matching rules and kept until a packet comes that
//! others match, or the rules change ([`Sessions::adopt`]).

use mmb_flow::{NatConfig, PoolId};
use mmb_packet::PacketBuf;
use mmb_policy::{Binding, Hit, Policy, RuleScope};

use crate::Environment;
use crate::attached::Attached;
use crate::chains::Named;
use crate::engine::Sessions;
use crate::lists::Again;
use crate::related::is_pool;
use crate::slow::Call;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Matched {
    /// What is known here is known of packets that these rules match.
    of: Vec<Hit>,
    /// Some rule opens a session.
    pub opens: bool,
    /// … and gives it something, or a chain that translates.
    pub binds: bool,
    /// No rule drops or edits a packet: all there is to judging is to count.
    pub harmless: bool,
    /// The stateful rules, in ascending order of slots.
    pub rules: Vec<Attached>,
    /// Slots of those that translate, in the order of the rules.
    pub translating: Vec<u32>,
    /// The chain of the session.
    pub chain: Option<Named>,
    /// All that the rules give to a session over IPv4 is an end out of this pool; to others, nothing.
    pub pool: Option<PoolId>,
    /// … or there is nothing that they give to any.
    pub plain: bool,
    /// The rule that names a pool, of several the last one by index.
    pub pool_rule: Option<Attached>,
    /// Slots of the stateful rules and of those that match all packets of the direction, ascending.
    pub deciding: Vec<u32>,
    /// What the last session took for its list of rules, and for its decision, which was made under this stamp.
    pub list: Option<Again>,
    pub decision: Option<(u32, Again)>,
}

impl Matched {
    /// Whether this is about packets that these rules match.
    fn is_of(&self, hits: &[Hit]) -> bool {
        self.of.len() == hits.len() && self.of.iter().zip(hits).all(|(known, hit)| known.slot == hit.slot)
    }
}

impl Matched {
    /// Works out what pools the rules name, and what else they give.
    fn hear(&mut self, policy: &Policy, nat: &NatConfig) {
        let given = |slot: u32| policy.stateful(slot).map_or(&[][..], |rule| &rule.bindings);
        let slot = self.translating.iter().rfind(|&&slot| given(slot).iter().any(is_pool));
        self.pool_rule = slot.and_then(|slot| self.rules.iter().find(|rule| rule.slot == *slot).copied());
        self.plain = self.translating.is_empty() && self.chain.is_none();
        let mut given = self.translating.iter().flat_map(|&slot| given(slot));
        let last = given.clone().last().filter(|_| self.chain.is_none() && given.all(is_pool));
        self.pool = last.and_then(|binding| match binding {
            Binding::Nat { pool } => nat.pool(pool),
            _ => None,
        });
    }
}

impl Sessions {
    /// What follows from the rules that match the packet. To be given back ([`Sessions::keep`]).
    pub(crate) fn matched<H: Environment, P: PacketBuf>(&mut self, call: &Call<'_, H, P>) -> Box<Matched> {
        match self.matched.take() {
            Some(matched) if matched.is_of(call.hits) => matched,
            other => self.work_out(call, other.unwrap_or_default()),
        }
    }

    /// Keeps what was worked out for the next packet.
    pub(crate) fn keep(&mut self, matched: Box<Matched>) {
        self.matched = Some(matched);
    }

    #[inline(never)]
    fn work_out<H: Environment, P: PacketBuf>(
        &self,
        call: &Call<'_, H, P>,
        mut matched: Box<Matched>,
    ) -> Box<Matched> {
        let policy = call.host.policy();
        let Matched { of, opens, binds, harmless, rules, translating, chain, deciding, .. } = &mut *matched;
        of.clear();
        of.extend_from_slice(call.hits);
        (*opens, *binds, *harmless) = (false, false, true);
        deciding.clear();
        for hit in call.hits {
            let traits = policy.rule_info(hit.slot);
            *opens |= traits.opens_sessions();
            *binds |= traits.opens_sessions() && (traits.binds || self.is_translated_by(policy, hit.slot));
            *harmless &= !traits.drops && !traits.edits;
            if traits.stateful || traits.scope == RuleScope::Session {
                deciding.push(hit.slot);
            }
        }
        deciding.sort_unstable();
        deciding.dedup();
        self.collect_rules(call, rules);
        translating.clear();
        translating.extend(rules.iter().filter(|rule| rule.translates).map(|rule| rule.slot));
        translating.sort_unstable_by_key(|&slot| policy.index(slot));
        *chain = self.first_chain(policy, rules);
        if let Some((slot, chain)) = *chain
            && self.defers(chain)
        {
            rules.iter_mut().filter(|rule| rule.slot == slot).for_each(|rule| rule.translates = true);
        }
        (matched.list, matched.decision) = (None, None);
        matched.hear(policy, call.host.nat());
        matched
    }
}
