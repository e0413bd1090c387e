//! The calls beside the packet path: time, listings, counters.

use std::os::fd::BorrowedFd;

use mmb_flow::{Direction, Key, KeyError, Nat, SessionId, parse_key, parse_quote};
use mmb_nf::{FunctionVisit, StageCounters};
use mmb_packet::Meta;

use crate::sessions::Sessions;
use crate::timers::IDLE_TICK;
use crate::{DumpCursor, Environment, SessionCounters, SessionView};

impl Sessions {
    /// Ends sessions that have timed out, at most `budget` of them, releases fragments that have waited too
    /// long, and adds counters to rules. Returns `true` if there is more to do at once. No packet may be
    /// under way.
    pub fn tick(&mut self, now: u32, env: &impl Environment, budget: usize) -> bool {
        let has_more = self.store.tick(now, env, budget);
        if !self.slow_path.fragments.is_empty() {
            self.slow_path.fragments.expire(now, self.store.settings.timeouts.fragment);
        }
        has_more
    }

    /// Returns the milliseconds until [`Sessions::tick`] has something to do. `None`: not before a packet
    /// arrives.
    pub fn next_tick(&self) -> Option<u32> {
        if self.store.needs_tick() {
            return Some(0);
        }
        let is_idle = self.store.is_idle() && self.slow_path.fragments.is_empty();
        (!is_idle).then_some(IDLE_TICK)
    }

    /// Invalidates cached next hops: routes or local addresses have changed.
    pub fn routes_changed(&mut self) {
        self.store.routes_changed();
    }

    /// Adds all counted packets to the counters of the rules.
    pub fn flush(&mut self, env: &impl Environment) {
        self.store.flush(env);
    }

    /// Calls `f` with at most `limit` sessions from the cursor on, and moves the cursor. Returns `true` if
    /// there may be more. A session that begins or ends between two calls may be missing. All others are
    /// listed once.
    pub fn dump(
        &self,
        now: u32,
        env: &impl Environment,
        cursor: &mut DumpCursor,
        limit: usize,
        f: impl FnMut(SessionView),
    ) -> bool {
        self.store.dump(now, env, cursor, limit, f)
    }

    /// Returns the session with this number and uid. `None`: it has ended.
    pub fn open_session(
        &self,
        (id, uid): (SessionId, u32),
        now: u32,
        env: &impl Environment,
    ) -> Option<SessionView> {
        self.store.open_view(id, uid, now, env)
    }

    /// Returns the packets of the session with this number and uid to the engine, and offloads it no more. It
    /// replaces the session of the last call; with `None`, each session may be offloaded.
    pub fn keep_in_engine(&mut self, now: u32, session: Option<(SessionId, u32)>, env: &impl Environment) {
        self.store.keep_in_engine(now, session, env);
    }

    /// Ends the session with this number and uid. Returns `false` if it has ended before.
    pub fn clear(&mut self, id: SessionId, uid: u32, env: &impl Environment) -> bool {
        self.store.clear(id, uid, env)
    }

    /// Ends at most `limit` sessions of any kind: used when no rule keeps sessions any more. Returns `true`
    /// if there are more.
    pub fn clear_batch(&mut self, limit: usize, env: &impl Environment) -> bool {
        self.store.clear_batch(limit, env)
    }

    /// Returns counters and gauges.
    pub fn counters(&self) -> SessionCounters {
        self.store.counters()
    }

    /// Returns the file with the scratchpads, if they lie in one, and the distance of two scratchpads in
    /// bytes. The scratchpad of session `n` begins at `n` times the distance.
    pub fn scratchpad_file(&self) -> Option<(BorrowedFd<'_>, usize)> {
        self.store.table.scratchpad_file()
    }

    /// Returns the NAT mappings, with usage and events.
    pub fn nat(&self) -> &Nat {
        &self.store.pools
    }

    /// Returns the NAT mappings, to take events out.
    pub fn nat_mut(&mut self) -> &mut Nat {
        &mut self.store.pools
    }

    /// Sets the clock by which functions are measured.
    pub fn set_clock(&mut self, clock: fn() -> u64) {
        self.store.chains.runner.set_clock(clock);
    }

    /// Watches packets of the next vectors in chains ([`mmb_nf::Runner::watch`]).
    pub fn watch(&mut self, packets: Option<&[usize]>) {
        self.store.chains.runner.watch(packets);
    }

    /// Takes what functions did to watched packets since the last call.
    pub fn take_visits(&mut self) -> Vec<FunctionVisit> {
        self.store.chains.runner.take_visits()
    }

    /// Returns the key by which [`Sessions::lookup`] finds the session of a packet; `head` and `meta` are
    /// those in front of the lookup. None: the packet has no key of its own, as a later fragment.
    pub fn lookup_key(head: &[u8], meta: &Meta) -> Option<Key> {
        match parse_key(head, meta) {
            Ok(key) | Err(KeyError::FirstFragment(key)) => Some(key),
            Err(KeyError::IcmpError) => Some(parse_quote(head, meta)?.key.reversed()),
            Err(KeyError::LaterFragment | KeyError::NotIp) => None,
        }
    }

    /// Returns the session that has a flow with this key, and the flow's direction.
    pub fn find(&self, key: &Key, now: u32, env: &impl Environment) -> Option<(SessionView, Direction)> {
        let table = &self.store.table;
        let flow = table.find(key);
        let is_session = flow.is_some() && table.redirect_worker(flow).is_none();
        is_session.then(|| (self.store.view(flow.session(), now, env), flow.direction()))
    }

    /// Returns the counters of the chains' stages, by stage number.
    pub fn chain_counters(&self) -> &[StageCounters] {
        self.store.chains.runner.counters()
    }
}
