//! Rules: the lists of sessions' rules, and the application of rules to a packet.

pub(crate) mod attached;
pub(crate) mod lists;
pub(crate) mod opening;

use mmb_flow::Table;
use mmb_packet::PacketBuf;
use mmb_policy::{Decision, Hit, Outcome, RuleScope};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::Environment;
use crate::established::decisions::Decisions;
use crate::slow_path::opener::OpenerScratch;
use crate::slow_path::packet::SlowPacket;
use attached::{RuleLists, SessionRule};

/// Rules of sessions, and what applying rules needs.
#[derive(Debug)]
pub(crate) struct RuleState {
    /// The rule lists of sessions.
    pub lists: RuleLists,
    /// Random numbers for rules that drop at random.
    pub random: SmallRng,
    /// The decision of no rule.
    no_rules: Decision,
    /// The rule that decided about the last packet to which rules were applied.
    pub last_decider: Option<SessionRule>,
    /// Buffers for the first packets of sessions.
    pub opener: OpenerScratch,
    /// Buffer for slots of rules.
    pub slots: Vec<u32>,
    /// Buffer for rules of a session.
    pub buffer: Vec<SessionRule>,
}

impl RuleState {
    /// Creates the state, with the seed of random numbers.
    pub fn new(seed: u64) -> RuleState {
        RuleState {
            lists: RuleLists::new(),
            random: SmallRng::seed_from_u64(seed),
            no_rules: Decision::default(),
            last_decider: None,
            opener: OpenerScratch::default(),
            slots: Vec::with_capacity(64),
            buffer: Vec::with_capacity(64),
        }
    }

    /// Applies the decision with this number, and the rules in `hits`, to a packet. Counts all rules. Appends
    /// the edits and returns `false`, or returns `true` if the packet is dropped.
    pub fn drops_packet(
        &mut self,
        decisions: &Decisions,
        number: u32,
        hits: &[Hit],
        (env, bytes): (&impl Environment, u32),
        edits: &mut Vec<u32>,
    ) -> bool {
        let RuleState { random, no_rules, .. } = self;
        let decision = decisions.full(number).unwrap_or(no_rules);
        let slots = hits.iter().map(|hit| hit.slot);
        let count = &mut |slot| env.count(slot, 1, u64::from(bytes));
        let outcome = env.policy().decide_combined(decision, slots, edits, &mut || random.random(), count);
        self.note_outcome(outcome, env)
    }

    /// Counts what a rule decided about a packet. Returns whether the packet is dropped.
    fn note_outcome(&mut self, outcome: Outcome, env: &impl Environment) -> bool {
        self.last_decider = outcome.decider.and_then(|slot| SessionRule::new(env.policy(), slot, false));
        if let Some(slot) = outcome.decider {
            env.count_decided(slot, 1);
        }
        outcome.drop
    }

    /// Applies the rules of a session, and the rules in `hits`, to a packet that belongs to the session and
    /// has another key. Returns as [`RuleState::drops_packet`].
    pub fn drops_related(
        &mut self,
        rule_list: u32,
        hits: &[Hit],
        (env, bytes): (&impl Environment, u32),
        edits: &mut Vec<u32>,
    ) -> bool {
        let policy = env.policy();
        let RuleState { lists, random, no_rules, slots, .. } = self;
        slots.clear();
        slots.extend(lists.get(rule_list).filter(|rule| rule.is_alive(policy)).map(|rule| rule.slot));
        slots.extend(hits.iter().map(|hit| hit.slot));
        slots.sort_unstable();
        slots.dedup();
        let count = &mut |slot| env.count(slot, 1, u64::from(bytes));
        let slots = slots.iter().copied();
        let outcome = policy.decide_combined(no_rules, slots, edits, &mut || random.random(), count);
        self.note_outcome(outcome, env)
    }

    /// Acquires the decision of the session's rules and of the rules that match all packets of the flow.
    pub fn acquire_decision<E: Environment, P: PacketBuf>(
        &mut self,
        decisions: &mut Decisions,
        pkt: &SlowPacket<'_, E, P>,
        list: &[SessionRule],
        stamp: u32,
    ) -> u32 {
        let policy = pkt.env.policy();
        self.slots.clear();
        self.slots.extend(list.iter().map(|rule| rule.slot));
        let matching = pkt.hits.iter().map(|hit| hit.slot);
        self.slots.extend(matching.filter(|&slot| policy.rule_info(slot).scope == RuleScope::Session));
        self.slots.sort_unstable();
        self.slots.dedup();
        pkt.acquire_decision(decisions, &self.slots, stamp)
    }

    /// Returns the indexes of the rules of a list that still exist, ascending.
    pub fn indexes(&self, rule_list: u32, env: &impl Environment) -> Vec<u32> {
        let policy = env.policy();
        let rules = self.lists.get(rule_list).filter(|rule| rule.is_alive(policy));
        let mut indexes: Vec<u32> = rules.filter_map(|rule| policy.index(rule.slot)).collect();
        indexes.sort_unstable();
        indexes
    }

    /// Gives the session another rule list, and releases the old one.
    pub fn replace_list(&mut self, table: &mut Table, flow: mmb_flow::FlowRef, list: &[SessionRule]) {
        let number = self.lists.acquire(list);
        let old = std::mem::replace(&mut table.session_mut(flow.session()).rule_list, number);
        self.lists.release(old);
    }
}
