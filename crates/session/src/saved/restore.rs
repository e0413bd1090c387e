//! Inserting the sessions of an earlier process.

use mmb_flow::{
    FlowFlags, HostLocation, Key, MappingId, PoolId, RedirectState, SavedMapping, SessionFlags, SessionId,
};

use super::{KEPT_FLAGS, KeptRules, NO_POOL, NO_PORT, NotRestored, SavedSession};
use crate::lifetime::{DIRECTIONS, EndReason};
use crate::open::nat::nat_key;
use crate::open::plan::is_pool;
use crate::rules::attached::SessionRule;
use crate::slow_path::opener;
use crate::store::SessionStore;
use crate::translation::record::set_translation;
use crate::{Environment, Sessions, tracking};

impl Sessions {
    /// Inserts a session of an earlier process. Its ports and its pool are numbers of this process. `kept`:
    /// what is left of its rules. This worker must be its [owner](super::Placement).
    ///
    /// # Errors
    /// It is not restored, and nothing has changed.
    pub fn restore(
        &mut self,
        saved: &SavedSession,
        kept: &KeptRules,
        now: u32,
        env: &impl Environment,
    ) -> Result<(), NotRestored> {
        let store = &mut self.store;
        store.lifetime.now = now;
        let timeout = store.ageing_timeout(saved);
        let idle = saved.idle[0].min(saved.idle[1]);
        let left = timeout.checked_sub(idle).filter(|left| *left > 0).ok_or(NotRestored::Expired)?;
        let list = store.restored_rules(saved, kept, env).ok_or(NotRestored::NotAllowed)?;
        if !store.admission.has_room(store.open_sessions()) {
            return Err(NotRestored::NoRoom);
        }
        let mapping = match saved.is_mapped() {
            true => Some(store.restored_mapping(saved, now).ok_or(NotRestored::NoMapping)?),
            false => None,
        };
        let deadline = now.wrapping_add(left);
        let Some(id) = store.insert_restored(saved, now, deadline) else {
            if let Some(mapping) = mapping {
                store.pools.release(mapping, &held_key(saved), now);
            }
            return Err(NotRestored::NoRoom);
        };
        store.init_restored(id, saved, now, mapping, &list);
        let is_pool_rule = |rule: &&SessionRule| {
            let rule = env.policy().stateful(rule.slot).filter(|_| rule.translates);
            rule.is_some_and(|rule| rule.bindings.iter().any(is_pool))
        };
        if let Some(mapping) = mapping
            && let Some(rule) =
                list.iter().filter(is_pool_rule).max_by_key(|rule| env.policy().index(rule.slot))
        {
            self.slow_path.opener.mapping_rules.set(mapping, Some(*rule), &mut store.rules.lists);
        }
        Ok(())
    }

    /// Forgets the restored session or redirect with this key, if there is one: the earlier process has
    /// another one by now, or none. Returns whether it was a session.
    pub fn forget_restored(&mut self, key: &Key, now: u32, env: &impl Environment) -> bool {
        let store = &mut self.store;
        store.lifetime.now = now;
        let flow = store.table.find(key);
        if !flow.is_some() {
            return false;
        }
        let is_redirect = store.table.redirect_worker(flow).is_some();
        match is_redirect {
            true => store.end(flow.session(), EndReason::Cleared, env),
            false => store.undo_opening(flow.session(), env),
        }
        !is_redirect
    }

    /// Stores that packets with this key belong to a session of another worker. `redirect`: its owner and
    /// [state](super::Placement::state).
    pub fn restore_redirect(&mut self, key: &Key, redirect: (u16, RedirectState), now: u32) {
        if !self.store.table.find(key).is_some() {
            self.store.insert_redirect(key, redirect, now);
        }
    }
}

/// The key by which the pools know a session.
fn held_key(saved: &SavedSession) -> Key {
    match saved.flags.contains(SessionFlags::INBOUND) {
        true => saved.keys[0],
        false => nat_key(&saved.keys[0], &saved.translated()),
    }
}

impl SessionStore {
    /// Returns the lifetime of a saved session without packets, in milliseconds.
    fn ageing_timeout(&self, saved: &SavedSession) -> u32 {
        self.lifetime.ageing.apply(saved.track.revised(&saved.acks).timeout(&self.settings))
    }

    /// Returns the rules of a saved session. None: no rule allows it.
    fn restored_rules(
        &mut self,
        saved: &SavedSession,
        kept: &KeptRules,
        env: &impl Environment,
    ) -> Option<Vec<SessionRule>> {
        if kept.lost_translation {
            return None;
        }
        let rules = kept.rules.iter();
        let mut list: Vec<_> =
            rules.filter_map(|rule| SessionRule::new(env.policy(), rule.slot, rule.translates)).collect();
        if list.is_empty() && !saved.flags.contains(SessionFlags::RULELESS) {
            opener::add_opening_rules(
                &mut self.rules,
                &self.chains,
                env,
                (&saved.keys[0], saved.in_port),
                &mut list,
            );
            // Edits that functions have left must go on, whatever rules say.
            if list.is_empty() && !saved.has_edits() {
                return None;
            }
        }
        Some(list)
    }

    fn restored_mapping(&mut self, saved: &SavedSession, now: u32) -> Option<MappingId> {
        let location = HostLocation { mac: saved.host_mac, in_port: saved.host_port };
        self.pools.restore(
            &SavedMapping {
                key: &held_key(saved),
                to: &saved.translated(),
                is_inbound: saved.flags.contains(SessionFlags::INBOUND),
                pool: (saved.pool != NO_POOL).then_some(PoolId(saved.pool)),
                location: (saved.host_port != NO_PORT).then_some(location),
            },
            now,
        )
    }

    /// Inserts the entry of a session into the table.
    fn insert_restored(&mut self, saved: &SavedSession, now: u32, deadline: u32) -> Option<SessionId> {
        let [forward, reverse] = &saved.keys;
        let (found, hashed) = self.table.find_with_hash(forward);
        if found.is_some() {
            return None;
        }
        self.table.open(&hashed, Some(reverse), now, deadline, saved.track.is_embryonic()).ok()
    }

    /// Initializes a session behind its insertion.
    fn init_restored(
        &mut self,
        id: SessionId,
        saved: &SavedSession,
        now: u32,
        mapping: Option<MappingId>,
        list: &[SessionRule],
    ) {
        // The flag of translated numbers comes with them.
        let has_numbers = saved.flags.contains(SessionFlags::MANGLE);
        let mut flags = (saved.flags & KEPT_FLAGS) - SessionFlags::MANGLE;
        // Looped packets have the address of a pool as source.
        let is_counted =
            !flags.contains(SessionFlags::LOOP_REVERSE) && self.admission.add_open(saved.keys[0].source);
        flags.set(SessionFlags::COUNTED, is_counted);
        let rule_list = self.rules.lists.acquire(list);
        let mut track = saved.track;
        track.drop_unchecked_windows(&self.settings);
        self.table.set_track(id, &track);
        self.table.set_mapping(id, mapping);
        let (flows, session) = self.table.parts_mut(id);
        (session.rule_list, session.flags) = (rule_list, flags);
        session.created = now.wrapping_sub(saved.age);
        for direction in DIRECTIONS {
            session.set_in_port(direction, saved.in_port[direction as usize]);
        }
        let [forward, reverse] = &saved.keys;
        if has_numbers || *reverse != forward.reversed() {
            set_translation(flows, forward, reverse, !has_numbers);
        }
        let settled = saved.track.settled(&self.settings);
        for (at, flow) in flows.iter_mut().enumerate() {
            flow.last_seen = now.wrapping_sub(saved.idle[at]);
            flow.set_counts(saved.counts[at]);
            flow.flags.set(FlowFlags::SEEN, saved.seen >> at & 1 != 0);
            flow.flags.set(FlowFlags::SETTLED, settled[at] && !flags.contains(SessionFlags::LOOPS[at]));
        }
        tracking::set_acks(&mut self.table, id, saved.acks);
        if has_numbers {
            self.chains.records.restore_numbers(&mut self.table, id, &saved.numbers);
        }
        self.counters.created += 1;
    }
}
