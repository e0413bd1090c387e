//! Listing and clearing sessions.

use mmb_flow::{Direction, FlowRef, SessionId};

use crate::lifetime::{DIRECTIONS, EndReason, SessionBatch};
use crate::store::SessionStore;
use crate::{DumpCursor, Environment, SessionView, tracking};

impl SessionStore {
    /// See [`crate::Sessions::dump`].
    pub fn dump(
        &self,
        now: u32,
        env: &impl Environment,
        cursor: &mut DumpCursor,
        limit: usize,
        mut f: impl FnMut(SessionView),
    ) -> bool {
        for _ in 0..limit {
            let Some(id) = self.table.next_session(cursor.0) else { return false };
            cursor.0 = id.0 + 1;
            if self.table.redirect_worker(FlowRef::new(id, Direction::Forward)).is_none() {
                f(self.view(id, now, env));
            }
        }
        self.table.next_session(cursor.0).is_some()
    }

    /// Returns the view of a session.
    pub fn view(&self, id: SessionId, now: u32, env: &impl Environment) -> SessionView {
        let [forward, reverse] = DIRECTIONS.map(|direction| self.table.flow(FlowRef::new(id, direction)));
        let session = self.table.session(id);
        let counts = [forward.counts(), reverse.counts()];
        SessionView {
            worker: self.config.worker,
            id,
            uid: self.table.uid(id),
            original: forward.key(),
            reply: reverse.key(),
            state: self.table.track(id).revised(&tracking::acks(&self.table, id)).state_name(),
            age: now.wrapping_sub(session.created),
            idle: now.wrapping_sub(forward.last_seen).min(now.wrapping_sub(reverse.last_seen)),
            expires: self.deadline(id, now).map_or(0, |deadline| deadline.wrapping_sub(now)),
            in_port: session.in_ports(),
            packets: counts.map(|(packets, _)| packets),
            bytes: counts.map(|(_, bytes)| bytes),
            rules: self.rules.indexes(session.rule_list, env),
            mapped: self.table.mapping(id).is_some(),
            chain: self.chains.name(&self.table, id).cloned(),
            refused: self.refusal(id),
            functions: self.chains.describe(&self.table, id),
        }
    }

    /// See [`crate::Sessions::open_session`].
    pub fn open_view(
        &self,
        id: SessionId,
        uid: u32,
        now: u32,
        env: &impl Environment,
    ) -> Option<SessionView> {
        let is_open = self.is_open(id, uid) && self.deadline(id, now).is_some();
        is_open.then(|| self.view(id, now, env))
    }

    /// Whether the session with this number and uid is in the table.
    fn is_open(&self, id: SessionId, uid: u32) -> bool {
        self.table.is_live(id)
            && self.table.uid(id) == uid
            && self.table.redirect_worker(FlowRef::new(id, Direction::Forward)).is_none()
    }

    /// See [`crate::Sessions::keep_in_engine`].
    pub fn keep_in_engine(&mut self, now: u32, session: Option<(SessionId, u32)>, env: &impl Environment) {
        self.kept = session;
        if let Some((id, uid)) = session
            && self.is_open(id, uid)
        {
            self.revoke(now, id, env);
        }
    }

    /// See [`crate::Sessions::clear`].
    pub fn clear(&mut self, id: SessionId, uid: u32, env: &impl Environment) -> bool {
        let is_open = self.table.is_live(id) && self.table.uid(id) == uid;
        if is_open {
            self.end(id, EndReason::Cleared, env);
        }
        is_open
    }

    /// See [`crate::Sessions::clear_batch`].
    pub fn clear_batch(&mut self, limit: usize, env: &impl Environment) -> bool {
        let mut left = limit;
        loop {
            let batch = SessionBatch::collect(|| {
                left = left.checked_sub(1)?;
                let id = self.table.next_session(self.lifetime.clear_position)?;
                self.lifetime.clear_position = id.0 + 1;
                Some(id)
            });
            self.prefetch_ends(batch.ids());
            batch.ids().iter().for_each(|&id| self.end(id, EndReason::RuleRemoved, env));
            if batch.ids().is_empty() {
                break;
            }
        }
        if self.table.next_session(self.lifetime.clear_position).is_none() {
            self.lifetime.clear_position = 0;
        }
        !self.table.is_empty()
    }
}
