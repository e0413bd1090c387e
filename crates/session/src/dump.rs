//! Sessions as they are shown, and ended by hand.

use mmb_flow::{Direction, FlowRef, SessionId};

use crate::engine::{End, Group, Sessions};
use crate::{DumpCursor, Environment, SessionView};

impl Sessions {
    /// Calls `f` with at most `most` sessions from the cursor on, which it moves behind them. True: there may be more.
    /// Sessions that begin or end between two calls may be in it or not; all others come once.
    pub fn dump(
        &self,
        now: u32,
        host: &impl Environment,
        cursor: &mut DumpCursor,
        most: usize,
        mut f: impl FnMut(SessionView),
    ) -> bool {
        for _ in 0..most {
            let Some(id) = self.table.next_session(cursor.0) else { return false };
            cursor.0 = id.0 + 1;
            if self.table.redirect_worker(FlowRef::new(id, Direction::Forward)).is_none() {
                f(self.view(id, now, host));
            }
        }
        self.table.next_session(cursor.0).is_some()
    }

    fn view(&self, id: SessionId, now: u32, host: &impl Environment) -> SessionView {
        let [there, back] =
            [Direction::Forward, Direction::Reverse].map(|way| self.table.flow(FlowRef::new(id, way)));
        let common = self.table.session(id);
        let policy = host.policy();
        let rules = self.rules.get(common.rule_list).filter(|rule| rule.is_alive(policy));
        let mut rules: Vec<u32> = rules.filter_map(|rule| policy.index(rule.slot)).collect();
        rules.sort_unstable();
        let counts = [there.counts(), back.counts()];
        SessionView {
            worker: self.config.worker,
            id,
            uid: self.table.uid(id),
            original: there.key(),
            reply: back.key(),
            state: common.track.state_name(),
            age: now.wrapping_sub(common.created),
            idle: now.wrapping_sub(there.last_seen).min(now.wrapping_sub(back.last_seen)),
            expires: self.lives_until(id, now).map_or(0, |deadline| deadline.wrapping_sub(now)),
            in_port: common.in_port,
            packets: counts.map(|(packets, _)| packets),
            bytes: counts.map(|(_, bytes)| bytes),
            rules,
            mapped: common.mapping != u32::MAX,
            chain: self.chain_name(id).cloned(),
            refused: self.refused(id),
        }
    }

    /// Ends the session with this number if it has this uid. False: it has ended before.
    pub fn clear(&mut self, id: SessionId, uid: u32, host: &impl Environment) -> bool {
        let there = self.table.is_live(id) && self.table.uid(id) == uid;
        if there {
            self.end(id, End::Cleared, host);
        }
        there
    }

    /// Ends at most `most` sessions, whichever they are: for when there is no rule any more that keeps them. True: there are
    /// more.
    pub fn clear_batch(&mut self, most: usize, host: &impl Environment) -> bool {
        let mut left = most;
        loop {
            let some = Group::of(|| {
                left = left.checked_sub(1)?;
                let id = self.table.next_session(self.swept)?;
                self.swept = id.0 + 1;
                Some(id)
            });
            self.prefetch_ends(some.ids());
            some.ids().iter().for_each(|&id| self.end(id, End::RuleGone, host));
            if some.ids().is_empty() {
                break;
            }
        }
        if self.table.next_session(self.swept).is_none() {
            self.swept = 0;
        }
        !self.table.is_empty()
    }
}
