//! Copying the sessions of a worker.

use std::collections::HashMap;

use mmb_flow::{Direction, FlowFlags, FlowRef, HostLocation, MappingId, SessionFlags, SessionId};

use super::{KEPT_FLAGS, NO_POOL, NO_PORT, SavedRule, SavedSession, SavedSessions};
use crate::chains::has_chain;
use crate::lifetime::DIRECTIONS;
use crate::store::SessionStore;
use crate::{DumpCursor, Environment, Sessions};

impl Sessions {
    /// Returns copies of at most `limit` sessions from the cursor on, and moves the cursor. The second value
    /// is `true` if there may be more. No packet may be under way, and none may come until all are copied.
    pub fn save(
        &mut self,
        now: u32,
        env: &impl Environment,
        cursor: &mut DumpCursor,
        limit: usize,
    ) -> (SavedSessions, bool) {
        let store = &mut self.store;
        let (mut saved, mut numbers) = (SavedSessions::default(), HashMap::new());
        for _ in 0..limit {
            let Some(id) = store.table.next_session(cursor.0) else { return (saved, false) };
            cursor.0 = id.0 + 1;
            if store.table.redirect_worker(FlowRef::new(id, Direction::Forward)).is_some() {
                continue;
            }
            store.collect(now, id, env);
            let Some(rules) = store.saved_rules(id, env).filter(|_| store.can_be_saved(id, now)) else {
                saved.left_out += 1;
                continue;
            };
            let list = numbers.entry(store.table.session(id).rule_list).or_insert_with(|| {
                saved.lists.push(rules);
                saved.lists.len() as u32 - 1
            });
            saved.sessions.push(store.copy(id, now, *list));
        }
        (saved, store.table.next_session(cursor.0).is_some())
    }
}

impl SessionStore {
    /// Whether a session can outlive the process: it has not timed out, no broker of the process ends it, and
    /// functions hold nothing that cannot be copied.
    fn can_be_saved(&self, id: SessionId, now: u32) -> bool {
        let flow = self.table.flow(FlowRef::new(id, Direction::Forward));
        let session = self.table.session(id);
        let is_mapped = session.mapping != u32::MAX;
        self.deadline(id, now).is_some()
            && !session.flags.contains(SessionFlags::REFUSED)
            && session.broker().is_none()
            && !(has_chain(&self.table, id) && flow.flags.contains(FlowFlags::CHAIN_TRANSLATES))
            && !self.chains.is_edited(&self.table, id)
            && (!is_mapped || self.pools.is_live(MappingId(session.mapping)))
    }

    /// Returns the rules of a session that exist. None: a rule that translates it is gone.
    fn saved_rules(&self, id: SessionId, env: &impl Environment) -> Option<Vec<SavedRule>> {
        let mut rules = Vec::new();
        for rule in self.rules.lists.get(self.table.session(id).rule_list) {
            match rule.is_alive(env.policy()) {
                true => rules.push(SavedRule { slot: rule.slot, translates: rule.translates }),
                false if rule.translates => return None,
                false => {}
            }
        }
        Some(rules)
    }

    /// Returns the copy of a session. `rule_list`: the index of its list of rules.
    fn copy(&self, id: SessionId, now: u32, rule_list: u32) -> SavedSession {
        let session = self.table.session(id);
        let flows = DIRECTIONS.map(|direction| self.table.flow(FlowRef::new(id, direction)));
        let mapping = (session.mapping != u32::MAX).then_some(MappingId(session.mapping));
        let host = mapping.and_then(|mapping| self.pools.host_location(mapping));
        let HostLocation { mac, in_port } = host.unwrap_or(HostLocation { mac: [0; 6], in_port: NO_PORT });
        let pool = mapping.and_then(|mapping| self.pools.pool_of(mapping));
        let seen = flows.map(|flow| flow.flags.contains(FlowFlags::SEEN));
        SavedSession {
            counts: flows.map(|flow| flow.counts().into()),
            keys: flows.map(|flow| flow.key()),
            numbers: self.chains.layout.saved_numbers(&self.table, id),
            idle: flows.map(|flow| now.wrapping_sub(flow.last_seen)),
            age: now.wrapping_sub(session.created),
            acks: self.chains.acks(&self.table, id),
            rule_list,
            track: session.track,
            in_port: session.in_ports(),
            pool: pool.map_or(NO_POOL, |pool| pool.0),
            host_port: in_port,
            host_mac: mac,
            flags: session.flags & KEPT_FLAGS,
            seen: u8::from(seen[0]) | u8::from(seen[1]) << 1,
            is_mapped: u8::from(mapping.is_some()),
            zero: [0; 5],
        }
    }
}
