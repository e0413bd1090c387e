//! The sessions of a worker, and all that they hold.
//!
//! Theory of operation. A session holds an entry of the table, a list of rules, a decision for each flow, its
//! place in a chain, a NAT mapping, offloaded flows, and a count of its source. [`SessionStore`] owns all of
//! them, so that a session can be ended from anywhere: [`SessionStore::end`] releases what it holds. What
//! only the lookup, the opening or the slow path needs belongs to these parts.

use std::io;
use std::sync::Arc;

use mmb_flow::{
    Direction, FlowFlags, FlowRef, Key, Nat, NatConfig, RedirectState, SessionFlags, SessionId,
    SessionSettings, SessionState, Table,
};
use mmb_packet::{DropReason, Meta};
use mmb_policy::ElementChange;

use crate::chains::{ChainState, has_chain};
use crate::established::carry_over::is_concerned;
use crate::established::{DecisionCache, EstablishedPath, hand_off};
use crate::hash::mix;
use crate::lifetime::{DIRECTIONS, EndReason, Lifetime};
use crate::lookup::forecasts::OpeningForecast;
use crate::offload::flows::OffloadedFlows;
use crate::open::nat::nat_key;
use crate::rules::RuleState;
use crate::shared::{Admission, SharedSessions};
use crate::{Environment, Next, SessionConfig, SessionCounters, tracking};

/// The sessions of a worker, and all that they hold.
#[derive(Debug)]
pub(crate) struct SessionStore {
    pub config: SessionConfig,
    pub settings: SessionSettings,
    pub table: Table,
    pub cache: DecisionCache,
    pub rules: RuleState,
    pub chains: ChainState,
    /// NAT pools and their mappings.
    pub pools: Nat,
    pub offloaded: OffloadedFlows,
    /// The session with this uid is not offloaded: its packets are captured.
    pub kept: Option<(SessionId, u32)>,
    pub lifetime: Lifetime,
    pub counters: SessionCounters,
    pub admission: Admission,
}

impl SessionStore {
    /// Prefetches the scratchpad of a session whose packet is about to pass its chain.
    #[inline]
    pub fn prefetch_scratchpad(&self, flow: FlowRef) {
        self.table.scratchpad_prefetch().read(flow.session(), self.chains.scratchpad_bytes);
    }

    /// Creates a store without sessions. `table` creates the table; its arguments are those of
    /// [`Table::new`].
    pub fn new(
        config: SessionConfig,
        shared: Arc<SharedSessions>,
        table: impl FnOnce(u32, usize, u64) -> io::Result<Table>,
    ) -> io::Result<SessionStore> {
        // With several workers, as many redirects have room.
        let parts = if config.workers > 1 { 2 } else { 1 };
        let capacity = shared.capacity().saturating_mul(parts);
        let secret = mix(config.seed, u64::from(config.worker) + 1);
        let chains = ChainState::new(&config, capacity)?;
        let place = (usize::from(config.worker), usize::from(config.workers));
        Ok(SessionStore {
            settings: SessionSettings::default(),
            table: table(capacity, config.scratchpad, secret)?,
            cache: DecisionCache::new(),
            rules: RuleState::new(secret),
            chains,
            pools: Nat::of_worker(Arc::default(), config.sessions, place, config.seed, shared.ports.clone())?,
            offloaded: OffloadedFlows::default(),
            kept: None,
            lifetime: Lifetime::default(),
            counters: SessionCounters::default(),
            admission: Admission::new(shared),
            config,
        })
    }

    /// Adopts new rules, pools, chains or settings. `old`: the previous environment, whose rules get the
    /// packets counted so far.
    pub fn adopt(&mut self, old: &impl Environment, new: &impl Environment) {
        let SessionStore { offloaded, table, cache, settings, lifetime, .. } = self;
        offloaded.detach(lifetime.now, (table, cache, settings), old);
        self.flush(old);
        self.cache.decisions.renew();
        self.routes_changed();
        self.settings = new.settings();
        self.admission.adopt(&self.settings);
        self.cache.has_per_packet_rules = new.policy().per_packet().is_some();
        self.pools.adopt(new.nat().clone());
        self.chains.adopt(&mut self.table, new.chains(), &self.settings);
        self.lifetime.chain_position = 0;
    }

    /// Adopts rules that differ in elements of sets. `old`: the previous environment.
    pub fn adopt_elements(&mut self, change: &Arc<ElementChange>, old: &impl Environment) {
        for id in self.offloaded.sessions() {
            if is_concerned(&self.table, id, change) {
                self.revoke(self.lifetime.now, id, old);
            }
        }
        self.cache.decisions.renew_elements(change.clone());
        // Notes replace decisions.
        self.cache.invalidate_next_hops(&mut self.table);
    }

    /// Invalidates cached next hops.
    pub fn routes_changed(&mut self) {
        self.cache.invalidate_next_hops(&mut self.table);
    }

    /// Adds all counted packets to the counters of the rules.
    pub fn flush(&mut self, env: &impl Environment) {
        self.cache.flush(&mut self.table, env, usize::MAX);
    }

    /// Returns the number of sessions of this worker.
    #[inline]
    pub fn open_sessions(&self) -> u32 {
        self.table.len() - self.counters.redirects as u32
    }

    /// Returns counters and gauges.
    pub fn counters(&self) -> SessionCounters {
        let occupancy = self.table.occupancy();
        SessionCounters {
            sessions: self.open_sessions().into(),
            half_open: occupancy.embryonic.into(),
            // The room belongs to all workers; one of them reports it.
            capacity: if self.config.worker == 0 { self.admission.capacity().into() } else { 0 },
            decisions: self.cache.decisions.len() as u64,
            decided: self.cache.decisions.acquired(),
            chain_held: self.chains.runner.held().0 as u64,
            ..self.counters
        }
    }

    /// Borrows the parts that the established path uses.
    #[inline(always)]
    pub fn established_path(&mut self) -> EstablishedPath<'_> {
        let SessionStore { table, cache, rules, chains, counters, .. } = self;
        let RuleState { random, lists, slots, .. } = rules;
        EstablishedPath { table, cache, random, lists, slots, records: &chains.records, counters }
    }

    /// Returns the worker that processes packets with this key first, NAT included.
    pub fn first_worker(&self, nat: &NatConfig, key: &Key) -> u16 {
        if nat.is_nat_destination(key) { self.nat_owner(key) } else { self.config.home_worker(key) }
    }

    /// Returns the worker that owns the external address and port to which packets with this key go. If
    /// nobody has the port, it is this worker.
    pub fn nat_owner(&self, key: &Key) -> u16 {
        self.pools.owner_worker(key).map_or(self.config.worker, |worker| worker as u16)
    }

    /// Gives a packet to another worker.
    pub fn hand_off(&mut self, meta: &mut Meta, worker: u16) -> Next {
        hand_off(&mut self.counters, meta, worker)
    }

    /// Returns why all packets of the session are dropped, if a function has refused it.
    pub fn refusal(&self, id: SessionId) -> Option<DropReason> {
        self.chains.records.refusal(&self.table, id, self.cache.decisions.epoch())
    }

    /// Collects the counters of a session's offloaded flows.
    #[inline]
    pub fn collect(&mut self, now: u32, id: SessionId, env: &impl Environment) {
        if !self.offloaded.is_empty() {
            let SessionStore { offloaded, table, cache, settings, .. } = self;
            offloaded.collect(now, id, (table, cache, settings), env);
        }
    }

    /// Revokes the offloaded flows of a session, and collects their counters.
    #[inline]
    pub fn revoke(&mut self, now: u32, id: SessionId, env: &impl Environment) {
        if !self.offloaded.is_empty() {
            let SessionStore { offloaded, table, cache, settings, .. } = self;
            offloaded.revoke(now, id, (table, cache, settings), env);
        }
    }

    /// Prefetches what the next packet to open a session reads. [`crate::lookup::foresee_openings`] has
    /// brought it into the L2 cache, with that of the other packets of the vector.
    #[inline]
    pub fn prefetch_opening(&self, forecast: &OpeningForecast) {
        self.table.prefetch_foreseen(&forecast.flow);
        if let Some(source) = forecast.source {
            self.admission.prefetch_foreseen(source);
        }
        if let Some(mapping) = &forecast.mapping {
            self.pools.prefetch_foreseen(mapping);
        }
    }

    /// Prefetches what ending these sessions reads.
    pub fn prefetch_ends(&self, ids: &[SessionId]) {
        for &id in ids {
            self.table.prefetch_keys(id);
            self.admission.prefetch(self.table.flow(FlowRef::new(id, Direction::Forward)).source());
        }
        if !self.pools.is_empty() {
            let mappings = || ids.iter().filter_map(|&id| self.table.mapping(id));
            mappings().for_each(|mapping| self.pools.prefetch_mapping(mapping));
            mappings().for_each(|mapping| self.pools.prefetch_host(mapping));
            mappings().for_each(|mapping| self.pools.prefetch_release(mapping));
        }
    }

    /// Returns when the session ends if no packet arrives. `None`: it has timed out.
    pub fn deadline(&self, id: SessionId, now: u32) -> Option<u32> {
        let [forward, reverse] = DIRECTIONS.map(|direction| self.table.flow(FlowRef::new(id, direction)));
        let tracked =
            || self.table.track(id).revised(&tracking::acks(&self.table, id)).timeout(&self.settings);
        let timeout = if forward.flags.contains(FlowFlags::REDIRECT) {
            self.redirect_timeout(FlowRef::new(id, Direction::Forward))
        } else if has_chain(&self.table, id) {
            tracked().max(self.chains.timeout(&self.table, id))
        } else {
            tracked()
        };
        let timeout = self.lifetime.ageing.apply(timeout);
        let idle = now.wrapping_sub(forward.last_seen).min(now.wrapping_sub(reverse.last_seen));
        (idle < timeout).then(|| now.wrapping_add(timeout - idle))
    }

    /// Stores that packets with this key go to another worker.
    pub fn insert_redirect(&mut self, key: &Key, (worker, state): (u16, RedirectState), now: u32) {
        // Without a redirect, this worker judges the next packet as one that opens a session. In most cases
        // it is then handed off, too.
        if self.counters.redirects < u64::from(self.admission.capacity())
            && let Ok(id) = self.table.insert_redirect(key, (worker, state), now)
        {
            // A redirect has no room of a session, and so cannot make room for one.
            self.table.remove_embryonic(id);
            self.counters.redirects += 1;
            self.table.arm_timer(id, now.wrapping_add(state.timeout(key, &self.settings.timeouts)));
        }
    }

    /// Notes a packet of a redirect. `flags`: those of TCP; 0 for other protocols.
    pub fn refresh_redirect(&mut self, redirect: FlowRef, flags: u8, now: u32) {
        let state = self.table.redirect_state(redirect).after(flags);
        self.table.set_redirect_state(redirect, state);
        self.table.flow_mut(redirect).last_seen = now;
        let deadline = now.wrapping_add(self.redirect_timeout(redirect));
        tracking::arm_earlier(&mut self.table, redirect.session(), deadline);
    }

    /// Returns how long a redirect lives without packets.
    fn redirect_timeout(&self, redirect: FlowRef) -> u32 {
        let state = self.table.redirect_state(redirect);
        state.timeout(&self.table.key(redirect), &self.settings.timeouts)
    }

    /// Ends a session or redirect, and releases all that it holds.
    pub fn end(&mut self, id: SessionId, reason: EndReason, env: &impl Environment) {
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
    pub fn undo_opening(&mut self, id: SessionId, env: &impl Environment) {
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
        let &SessionState { rule_list, flags, .. } = self.table.session(id);
        self.rules.lists.release(rule_list);
        self.chains.records.release(flags);
        if flags.contains(SessionFlags::COUNTED) {
            self.admission.remove(self.table.flow(FlowRef::new(id, Direction::Forward)).source());
        }
        if let Some(mapping) = self.table.mapping(id) {
            let mut key = self.table.key(FlowRef::new(id, Direction::Forward));
            if !flags.contains(SessionFlags::INBOUND) {
                key = nat_key(&key, &self.table.key(FlowRef::new(id, Direction::Reverse)).reversed());
            }
            self.pools.release(mapping, &key, now);
        }
    }
}

#[cfg(test)]
mod tests;
