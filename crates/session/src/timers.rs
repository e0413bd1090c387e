//! Time: timers of sessions, and their end.
//!
//! Theory of operation. Each session has a timer in the table. When it fires, the session's real deadline is
//! computed from its last packet; the timer is armed again or the session ends. Sessions whose timers have
//! fired are processed in batches, so that their memory is prefetched together. Whatever a session holds is
//! released in [`SessionStore::end`]: offloaded flows, its chain, decisions, rules and NAT mapping.

use mmb_flow::SessionId;

use crate::Environment;
use crate::chains::process::{end_drained, end_unread};
use crate::lifetime::{Ageing, EndReason, SessionBatch};
use crate::store::SessionStore;

/// Decisions, and flows, whose counters are added to rules at a time. Counters of many rules are in no cache.
/// A later flush finds more packets to add for the same cost.
const FLUSH_LIMIT: usize = 8;
/// Ticks between two flushes.
const FLUSH_INTERVAL: u32 = 4;
/// Sessions that are examined in a tick behind a change of chains.
const SWEEP: usize = 64;
/// Milliseconds between two ticks without traffic: the resolution of timers.
pub(crate) const IDLE_TICK: u32 = 64;

impl SessionStore {
    /// Ends sessions that have timed out, at most `budget` of them, and adds counters to rules. Returns
    /// `true` if there is more to do at once. No packet may be under way.
    pub fn tick(&mut self, now: u32, env: &impl Environment, budget: usize) -> bool {
        self.lifetime.now = now;
        let has_chain_work = self.chains.runner.tick(now, budget);
        end_drained(self, env);
        end_unread(self);
        self.leave_removed(env);
        self.revoke_changed(now, env);
        let mut left = u32::try_from(budget).unwrap_or(u32::MAX);
        loop {
            let due = SessionBatch::collect(|| self.table.next_expired(now, &mut left));
            self.prefetch_ends(due.ids());
            due.ids().iter().for_each(|&id| self.on_timer(id, now, env));
            if due.ids().is_empty() {
                break;
            }
        }
        self.lifetime.ticks = self.lifetime.ticks.wrapping_add(1);
        if self.lifetime.ticks.is_multiple_of(FLUSH_INTERVAL) {
            self.cache.flush(&mut self.table, env, FLUSH_LIMIT);
        }
        self.cache.hop_numbers.sweep(self.table.flows_mut());
        self.admission.give_back(self.open_sessions());
        self.age(now, env);
        self.lifetime.removals_at_tick = self.lifetime.removals;
        left == 0 || has_chain_work
    }

    /// Takes idle sessions out of removed functions that edit. Each change of chains begins a walk through
    /// all sessions, some at a time. No packet may be under way.
    fn leave_removed(&mut self, env: &impl Environment) {
        let SessionStore { lifetime, table, chains, rules, .. } = self;
        if lifetime.chain_position == u32::MAX || chains.runner.is_draining() {
            return;
        }
        if !chains.runner.has_earlier_programs() {
            lifetime.chain_position = u32::MAX;
            return;
        }
        let mut list = std::mem::take(&mut rules.buffer);
        for _ in 0..SWEEP {
            let Some(id) = table.next_session(lifetime.chain_position) else {
                lifetime.chain_position = u32::MAX;
                break;
            };
            lifetime.chain_position = id.0 + 1;
            list.clear();
            list.extend(rules.lists.get(table.session(id).rule_list));
            chains.leave_removed(table, (env.policy(), &mut list), (lifetime.now, id));
        }
        rules.buffer = list;
    }

    /// Whether [`SessionStore::tick`] has something to do at once.
    pub fn needs_tick(&self) -> bool {
        self.cache.has_counts() || self.chains.runner.has_held_events()
    }

    /// Whether [`SessionStore::tick`] has nothing to do before a packet arrives.
    pub fn is_idle(&self) -> bool {
        self.table.is_empty() && self.chains.runner.is_idle()
    }

    /// Ends a session whose timer has fired, or arms the timer again.
    fn on_timer(&mut self, id: SessionId, now: u32, env: &impl Environment) {
        self.collect(now, id, env);
        match self.deadline(id, now) {
            Some(deadline) => self.table.arm_timer(id, deadline),
            None => self.end(id, EndReason::Expired, env),
        }
    }

    /// Shortens timeouts if the table is nearly full, and ends sessions that are idle for too long then.
    fn age(&mut self, now: u32, env: &impl Environment) {
        let free = self.admission.free(self.open_sessions());
        self.lifetime.ageing = Ageing::new(free, self.admission.capacity());
        if !self.lifetime.ageing.is_active() {
            return;
        }
        // The timers of these sessions are armed for the whole timeout.
        let batch = SessionBatch::collect(|| {
            let id = self.table.next_session(self.lifetime.sweep_position)?;
            self.lifetime.sweep_position = id.0 + 1;
            Some(id)
        });
        if batch.ids().is_empty() {
            self.lifetime.sweep_position = 0;
        }
        for &id in batch.ids() {
            if self.deadline(id, now).is_none() {
                self.collect(now, id, env);
                if self.deadline(id, now).is_none() {
                    self.end(id, EndReason::Aged, env);
                }
            }
        }
    }
}
