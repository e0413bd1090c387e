//! Time: timers of sessions, and their end.
//!
//! Theory of operation. Each session has a timer in the table. When it fires, the session's real deadline is
//! computed from its last packet; the timer is armed again or the session ends. Sessions whose timers have
//! fired are processed in batches, so that their memory is prefetched together. Whatever a session holds is
//! released in [`Sessions::end`]: offloaded flows, its chain, decisions, rules and NAT mapping.

use mmb_flow::{Direction, FlowFlags, FlowRef, MappingId, SessionId, SessionState};

use crate::Environment;
use crate::lifetime::{Ageing, DIRECTIONS, EndReason, SessionBatch, session_flags};
use crate::open::nat::{REDIRECT_TIMEOUT, nat_key};
use crate::sessions::Sessions;

/// Decisions, and flows, whose counters are added to rules at a time. Counters of many rules are in no cache.
/// A later flush finds more packets to add for the same cost.
const FLUSH_LIMIT: usize = 8;
/// Ticks between two flushes.
const FLUSH_INTERVAL: u32 = 4;
/// Milliseconds between two ticks without traffic: the resolution of the timer wheel.
const IDLE_TICK: u32 = 64;

impl Sessions {
    /// Ends sessions that have timed out, at most `budget` of them, releases fragments that have waited too
    /// long, and adds counters to rules. Returns `true` if there is more to do at once. No packet may be
    /// under way.
    pub fn tick(&mut self, now: u32, env: &impl Environment, budget: usize) -> bool {
        self.lifetime.now = now;
        let has_chain_work = self.chains.runner.tick(now, budget);
        let mut left = u32::try_from(budget).unwrap_or(u32::MAX);
        loop {
            let due = SessionBatch::collect(|| self.table.next_expired(now, &mut left));
            self.prefetch_ends(due.ids());
            due.ids().iter().for_each(|&id| self.on_timer(id, now, env));
            if due.ids().is_empty() {
                break;
            }
        }
        if !self.fragments.is_empty() {
            self.fragments.expire(now, self.settings.timeouts.fragment);
        }
        self.lifetime.ticks = self.lifetime.ticks.wrapping_add(1);
        if self.lifetime.ticks.is_multiple_of(FLUSH_INTERVAL) {
            self.cache.flush(&mut self.table, env, FLUSH_LIMIT);
        }
        self.admission.give_back(self.open_sessions());
        self.age(now, env);
        self.lifetime.removals_at_tick = self.lifetime.removals;
        left == 0 || has_chain_work
    }

    /// Returns the milliseconds until [`Sessions::tick`] has something to do. `None`: not before a packet
    /// arrives.
    pub fn next_tick(&self) -> Option<u32> {
        if self.cache.has_counts() || self.has_held_events() {
            return Some(0);
        }
        let is_idle = self.table.is_empty() && self.fragments.is_empty() && self.chains.runner.is_idle();
        (!is_idle).then_some(IDLE_TICK)
    }

    /// Ends a session whose timer has fired, or arms the timer again.
    fn on_timer(&mut self, id: SessionId, now: u32, env: &impl Environment) {
        self.collect_session(now, id, env);
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
                self.collect_session(now, id, env);
                if self.deadline(id, now).is_none() {
                    self.end(id, EndReason::Aged, env);
                }
            }
        }
    }

    /// Prefetches what ending these sessions reads.
    pub(crate) fn prefetch_ends(&self, ids: &[SessionId]) {
        let mapping = |id| MappingId(self.table.session(id).mapping);
        let nat = &self.nat.pools;
        for &id in ids {
            self.table.prefetch_keys(id);
            if !nat.is_empty() {
                nat.prefetch_mapping(mapping(id));
            }
        }
        if !nat.is_empty() {
            ids.iter().for_each(|&id| nat.prefetch_release(mapping(id)));
        }
    }

    /// Returns when the session ends if no packet arrives. `None`: it has timed out.
    pub(crate) fn deadline(&self, id: SessionId, now: u32) -> Option<u32> {
        let [forward, reverse] = DIRECTIONS.map(|direction| self.table.flow(FlowRef::new(id, direction)));
        let tracked = || self.table.session(id).track.revised(&self.acks(id)).timeout(&self.settings);
        let timeout = if forward.flags.contains(FlowFlags::REDIRECT) {
            REDIRECT_TIMEOUT
        } else if forward.flags.contains(FlowFlags::CHAINED) {
            tracked().max(self.chains.timeout(&self.table, id))
        } else {
            tracked()
        };
        let timeout = self.lifetime.ageing.apply(timeout);
        let idle = now.wrapping_sub(forward.last_seen).min(now.wrapping_sub(reverse.last_seen));
        (idle < timeout).then(|| now.wrapping_add(timeout - idle))
    }

    /// Ends a session or redirect, and releases all that it holds.
    pub(crate) fn end(&mut self, id: SessionId, reason: EndReason, env: &impl Environment) {
        if self.table.redirect_worker(FlowRef::new(id, Direction::Forward)).is_some() {
            self.counters.redirects -= 1;
        } else {
            self.release(id, env);
            *match reason {
                EndReason::Expired => &mut self.counters.expired,
                EndReason::Aged => &mut self.counters.aged,
                EndReason::Replaced => &mut self.counters.replaced,
                EndReason::Evicted => &mut self.counters.evicted,
                EndReason::RuleRemoved => &mut self.counters.ended,
                EndReason::Cleared => &mut self.counters.cleared,
                EndReason::Function => &mut self.counters.closed,
            } += 1;
        }
        self.table.remove(id);
        self.lifetime.removals = self.lifetime.removals.wrapping_add(1);
    }

    /// Removes a session as if it had not been opened.
    pub(crate) fn undo_opening(&mut self, id: SessionId, env: &impl Environment) {
        self.release(id, env);
        self.table.remove(id);
        self.lifetime.removals = self.lifetime.removals.wrapping_add(1);
        self.counters.created -= 1;
    }

    /// Releases what a session holds.
    fn release(&mut self, id: SessionId, env: &impl Environment) {
        let now = self.lifetime.now;
        self.revoke(now, id, env);
        self.chains.leave(&mut self.table, now, id);
        for direction in DIRECTIONS {
            let flow = FlowRef::new(id, direction);
            self.cache.settle(&mut self.table, flow, env);
            self.cache.decisions.release(self.table.flow(flow).decision(), env);
        }
        let &SessionState { rule_list, mapping, flags, .. } = self.table.session(id);
        self.rules.lists.release(rule_list);
        if flags & session_flags::COUNTED != 0 {
            self.admission.remove(&self.table.key(FlowRef::new(id, Direction::Forward)));
        }
        if mapping != u32::MAX {
            let mut key = self.table.key(FlowRef::new(id, Direction::Forward));
            if flags & session_flags::INBOUND == 0 {
                key = nat_key(&key, &self.table.key(FlowRef::new(id, Direction::Reverse)).reversed());
            }
            self.nat.pools.release(MappingId(mapping), &key, now);
        }
    }
}
