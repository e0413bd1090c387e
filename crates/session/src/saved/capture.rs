//! Copying the sessions of a worker.

use std::collections::HashMap;

use mmb_flow::{Direction, FlowFlags, FlowRef, HostLocation, SessionFlags, SessionId};

use super::{
    CopiedSession, CopyMarks, KEPT_FLAGS, NO_POOL, NO_PORT, SavedRule, SavedSession, SavedSessions,
    SessionSet,
};
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
        self.save_changed(now, env, cursor, limit, &SessionSet::default())
    }

    /// Does what [`Sessions::save`] does, without the sessions in `unchanged`.
    pub fn save_changed(
        &mut self,
        now: u32,
        env: &impl Environment,
        cursor: &mut DumpCursor,
        limit: usize,
        unchanged: &SessionSet,
    ) -> (SavedSessions, bool) {
        self.store.save(now, env, (cursor, limit), |_, id| !unchanged.contains(id), |_| {})
    }

    /// Does what [`Sessions::save`] does while packets go on. Sessions with chains are left out: what
    /// functions know of them changes without packets, too.
    pub fn save_running(
        &mut self,
        now: u32,
        env: &impl Environment,
        cursor: &mut DumpCursor,
        limit: usize,
    ) -> (SavedSessions, CopyMarks, bool) {
        let mut sessions = Vec::new();
        let has_no_chain = |store: &SessionStore, id| !has_chain(&store.table, id);
        let (saved, more) =
            self.store.save(now, env, (cursor, limit), has_no_chain, |copied| sessions.push(copied));
        (saved, CopyMarks { at: now, sessions }, more)
    }

    /// Finds the sessions that are as they were when they were copied, and adds them to `unchanged`. Returns
    /// the positions of the others: they have changed or ended.
    pub fn find_changed(
        &mut self,
        now: u32,
        env: &impl Environment,
        copies: &CopyMarks,
        unchanged: &mut SessionSet,
    ) -> Vec<u32> {
        let mut changed = Vec::new();
        for (at, copied) in (0..).zip(&copies.sessions) {
            match self.store.is_unchanged(copied, copies.at, now, env) {
                true => unchanged.insert(copied.id),
                false => changed.push(at),
            }
        }
        changed
    }
}

impl SessionStore {
    /// Copies at most `limit` of the sessions that are `wanted`, from the cursor on. `copied` gets each of
    /// them.
    fn save(
        &mut self,
        now: u32,
        env: &impl Environment,
        (cursor, limit): (&mut DumpCursor, usize),
        wanted: impl Fn(&SessionStore, SessionId) -> bool,
        mut copied: impl FnMut(CopiedSession),
    ) -> (SavedSessions, bool) {
        let (mut saved, mut numbers) = (SavedSessions::default(), HashMap::new());
        for _ in 0..limit {
            let Some(id) = self.table.next_session(cursor.0) else { return (saved, false) };
            cursor.0 = id.0 + 1;
            let is_redirect = self.table.redirect_worker(FlowRef::new(id, Direction::Forward)).is_some();
            if is_redirect || !wanted(self, id) {
                continue;
            }
            self.collect(now, id, env);
            let Some(rules) = self.saved_rules(id, env).filter(|_| self.can_be_saved(id, now)) else {
                saved.left_out += 1;
                continue;
            };
            let list = numbers.entry(self.table.session(id).rule_list).or_insert_with(|| {
                saved.lists.push(rules);
                saved.lists.len() as u32 - 1
            });
            saved.sessions.push(self.copy(id, now, *list));
            copied(CopiedSession { id, uid: self.table.uid(id) });
        }
        (saved, self.table.next_session(cursor.0).is_some())
    }

    /// Whether no packet of a session has come since the worker's time `since`.
    fn is_unchanged(
        &mut self,
        &CopiedSession { id, uid }: &CopiedSession,
        since: u32,
        now: u32,
        env: &impl Environment,
    ) -> bool {
        if !self.table.is_live(id) || self.table.uid(id) != uid || has_chain(&self.table, id) {
            return false;
        }
        self.collect(now, id, env);
        // A packet of the same millisecond may have come before or after.
        let is_older = |last_seen: u32| since.wrapping_sub(last_seen).cast_signed() > 0;
        DIRECTIONS.iter().all(|direction| is_older(self.table.flow(FlowRef::new(id, *direction)).last_seen))
    }

    /// Whether a session can outlive the process: it has not timed out, no broker of the process ends it, and
    /// functions hold nothing that cannot be copied.
    fn can_be_saved(&self, id: SessionId, now: u32) -> bool {
        let flow = self.table.flow(FlowRef::new(id, Direction::Forward));
        let session = self.table.session(id);
        self.deadline(id, now).is_some()
            && !session.flags.contains(SessionFlags::REFUSED)
            && self.table.broker(id).is_none()
            && !(has_chain(&self.table, id) && flow.flags.contains(FlowFlags::CHAIN_TRANSLATES))
            && !self.chains.is_edited(&self.table, id)
            && self.table.mapping(id).is_none_or(|mapping| self.pools.is_live(mapping))
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
        let mapping = self.table.mapping(id);
        let host = mapping.and_then(|mapping| self.pools.host_location(mapping));
        let HostLocation { mac, in_port } = host.unwrap_or(HostLocation { mac: [0; 6], in_port: NO_PORT });
        let pool = mapping.and_then(|mapping| self.pools.pool_of(mapping));
        let seen = flows.map(|flow| flow.flags.contains(FlowFlags::SEEN));
        SavedSession {
            counts: flows.map(|flow| flow.counts().into()),
            keys: flows.map(|flow| flow.key()),
            numbers: self.chains.records.saved_numbers(&self.table, id),
            idle: flows.map(|flow| now.wrapping_sub(flow.last_seen)),
            age: now.wrapping_sub(session.created),
            acks: self.chains.acks(&self.table, id),
            rule_list,
            track: self.table.track(id),
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
