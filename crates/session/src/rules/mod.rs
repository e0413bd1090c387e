//! Rules: the lists of sessions' rules, and the application of rules to a packet.

pub(crate) mod attached;
pub(crate) mod lists;
pub(crate) mod opening;

use mmb_flow::Table;
use mmb_policy::{Decision, Hit};
use rand::rngs::{SmallRng, StdRng};
use rand::{Rng, SeedableRng};

use crate::Environment;
use crate::established::decisions::Decisions;
use attached::{RuleLists, SessionRule};
use opening::OpeningRules;

/// Rules of sessions, and what applying rules needs.
#[derive(Debug)]
pub(crate) struct RuleState {
    /// The rule lists of sessions.
    pub lists: RuleLists,
    /// Random numbers for rules that drop at random.
    pub random: SmallRng,
    /// Random numbers for translations: nobody can predict them.
    pub secret_random: StdRng,
    /// The decision of no rule.
    no_rules: Decision,
    /// Buffer for slots of rules.
    pub slots: Vec<u32>,
    /// Buffer for rules of a session.
    pub buffer: Vec<SessionRule>,
    /// What follows from the rules that matched the last packet without session; `None` after rules have
    /// changed.
    pub opening: Option<Box<OpeningRules>>,
}

impl RuleState {
    /// Creates the state, with the seed of random numbers and the generator for translations.
    pub fn new(seed: u64, secret_random: StdRng) -> RuleState {
        RuleState {
            lists: RuleLists::new(),
            random: SmallRng::seed_from_u64(seed),
            secret_random,
            no_rules: Decision::default(),
            slots: Vec::with_capacity(64),
            buffer: Vec::with_capacity(64),
            opening: None,
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
        env.policy().decide_combined(decision, slots, edits, &mut || random.random(), count)
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
        policy.decide_combined(no_rules, slots.iter().copied(), edits, &mut || random.random(), count)
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
