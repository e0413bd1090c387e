//! Inserting a session: its entry in the table, rules, decision, translation and chain.

use mmb_flow::{
    Direction, FlowFlags, FlowRef, InsertError, Key, MappingId, SessionFlags, SessionId, TrackOutcome,
    TrackState,
};
use mmb_nf::ChainId;
use mmb_packet::{DropReason, PacketBuf};

use super::nat::nat_key;
use super::refusal::Refusal;
use crate::lifetime::EndReason;
use crate::rules::attached::SessionRule;
use crate::rules::opening::OpeningRules;
use crate::slow_path::packet::SlowPacket;
use crate::store::SessionStore;
use crate::translation::record::{NumberTranslation, set_translation};
use crate::{Environment, broker};

/// A session that is to be inserted.
///
/// Begins with a cache line. A write across two pages takes 20 ticks longer, and where the stack lies is the
/// same for all packets.
#[derive(Default)]
#[repr(C, align(64))]
pub(super) struct NewSession {
    pub track: TrackState,
    pub mapping: Option<MappingId>,
    /// The key of replies, if addresses or ports change.
    pub translated: Option<Key>,
    /// The tracker's outcome for the first packet.
    pub outcome: TrackOutcome,
    pub acks: [u32; 2],
    /// [`SessionFlags`].
    pub flags: SessionFlags,
    pub numbers: Option<NumberTranslation>,
    pub chain: Option<ChainId>,
    /// The port that leads to the broker of the session.
    pub broker: Option<u16>,
    /// The chain translates the session.
    pub chain_translates: bool,
}

/// Where the rules of a new session come from.
pub(super) enum RuleSource<'a> {
    /// The rules that match the first packet.
    Opening(&'a mut OpeningRules),
    /// A list.
    List(&'a [SessionRule]),
}

impl NewSession {
    /// Inserts the session. An old half-open session is evicted if the table is full. The packet's key
    /// has been looked up.
    pub fn insert<E: Environment, P: PacketBuf>(
        &self,
        store: &mut SessionStore,
        pkt: &SlowPacket<'_, E, P>,
        key: &Key,
        rules: RuleSource<'_>,
    ) -> Result<FlowRef, InsertError> {
        let mut inserted = insert_entry(store, pkt, self);
        if inserted == Err(InsertError::Full)
            && let Some(evicted) = eviction_candidate(store, pkt)
        {
            store.end(evicted, EndReason::Evicted, pkt.env);
            inserted = insert_entry(store, pkt, self);
        }
        if let Err(InsertError::Taken(found)) = inserted
            && self.mapping.is_some()
            && !self.flags.contains(SessionFlags::INBOUND)
            && store.table.redirect_worker(found).is_some()
        {
            // Replies went to the worker that had the external port before.
            store.end(found.session(), EndReason::Replaced, pkt.env);
            inserted = insert_entry(store, pkt, self);
        }
        let id = inserted.inspect_err(|_| {
            if let Some(mapping) = self.mapping {
                let is_inbound = self.flags.contains(SessionFlags::INBOUND);
                let reverse = self.translated.filter(|_| !is_inbound);
                let held = reverse.map_or(*key, |reverse| nat_key(key, &reverse.reversed()));
                store.pools.release(mapping, &held, pkt.now);
            }
        })?;
        store.counters.created += 1;
        init_session(store, pkt, id, key, self, rules);
        let flow = FlowRef::new(id, Direction::Forward);
        if let Some(port) = self.broker {
            let is_of_broker = pkt.env.leads_to_broker(pkt.in_port);
            let towards = if is_of_broker { Direction::Reverse } else { Direction::Forward };
            broker::join(&mut store.table, id, port, towards);
        }
        if let Some(numbers) = self.numbers {
            store.chains.records.set_mangle(&mut store.table, id, numbers);
        }
        if let Some(chain) = self.chain {
            // Functions see the session before its first packet is counted.
            store.chains.join(&mut store.table, pkt, flow, chain);
            store.table.flow_mut(flow).count(1, pkt.bytes());
        }
        Ok(flow)
    }
}

/// Checks that the source of a packet may open one more session.
///
/// # Errors
/// It may not: the packet is to be dropped.
pub(super) fn check_source<E: Environment, P: PacketBuf>(
    store: &mut SessionStore,
    pkt: &mut SlowPacket<'_, E, P>,
    key: &Key,
) -> Result<(), Refusal> {
    // Looped packets have the address of a pool as source, and were counted for their host.
    if pkt.is_looped() {
        return Ok(());
    }
    let foreseen = pkt.forecast.and_then(|forecast| forecast.source);
    pkt.source = store.admission.may_open(pkt.now, key, foreseen).ok_or(DropReason::SessionLimit)?;
    Ok(())
}

/// Counts a new session for its source. Returns the flag that says so.
#[inline]
fn count_source<E: Environment, P: PacketBuf>(
    store: &SessionStore,
    pkt: &SlowPacket<'_, E, P>,
) -> SessionFlags {
    let is_counted = !pkt.is_looped() && store.admission.add(pkt.source);
    if is_counted { SessionFlags::COUNTED } else { SessionFlags::empty() }
}

/// Returns the session to be evicted. The counters of offloaded flows are collected first: they may show
/// that a candidate is established.
fn eviction_candidate<E: Environment, P: PacketBuf>(
    store: &mut SessionStore,
    pkt: &SlowPacket<'_, E, P>,
) -> Option<SessionId> {
    loop {
        let id = store.table.eviction_candidate()?;
        store.collect(pkt.now, id, pkt.env);
        if store.table.is_embryonic(id) {
            return Some(id);
        }
    }
}

/// Inserts the entry of a session into the table.
#[inline]
fn insert_entry<E: Environment, P: PacketBuf>(
    store: &mut SessionStore,
    pkt: &SlowPacket<'_, E, P>,
    session: &NewSession,
) -> Result<SessionId, InsertError> {
    if !store.admission.has_room(store.open_sessions()) {
        return Err(InsertError::Full);
    }
    let TrackOutcome { timeout, embryonic, .. } = session.outcome;
    let deadline = pkt.now.wrapping_add(timeout);
    store.table.open(&pkt.hashed_key, session.translated.as_ref(), pkt.now, deadline, embryonic)
}

/// Initializes a new session. All its memory is written at once, since it may be in no cache.
fn init_session<E: Environment, P: PacketBuf>(
    store: &mut SessionStore,
    pkt: &SlowPacket<'_, E, P>,
    id: SessionId,
    key: &Key,
    new: &NewSession,
    rules: RuleSource<'_>,
) {
    let mut flags = new.flags | count_source(store, pkt);
    if pkt.is_looped() {
        // Replies return to the inside, where the packet came from.
        flags |= SessionFlags::LOOP_REVERSE;
    }
    let stamp = store.cache.decisions.stamp(pkt.in_port);
    let (rule_list, decision) = match rules {
        RuleSource::Opening(opening) => (
            opening.acquire_list(&mut store.rules.lists),
            opening.acquire_decision(&mut store.cache.decisions, pkt, stamp),
        ),
        RuleSource::List(list) => (
            store.rules.lists.acquire(list),
            store.rules.acquire_decision(&mut store.cache.decisions, pkt, list, stamp),
        ),
    };
    store.table.set_track(id, &new.track);
    store.table.set_mapping(id, new.mapping);
    let (flows, session) = store.table.parts_mut(id);
    (session.rule_list, session.flags) = (rule_list, flags);
    session.set_in_port(Direction::Forward, pkt.in_port);
    session.set_in_port(Direction::Reverse, u16::MAX);
    let chain_flag = if new.chain_translates { FlowFlags::CHAIN_TRANSLATES } else { FlowFlags::empty() };
    for (at, flow) in flows.iter_mut().enumerate() {
        let is_settled = new.outcome.settled[at] && !flags.contains(SessionFlags::LOOPS[at]);
        flow.ack = new.acks[at];
        flow.flags |= chain_flag;
        flow.flags.set(FlowFlags::SETTLED, is_settled);
    }
    match &new.translated {
        Some(reverse) if new.numbers.is_some() || !reverse.is_reversed(key) => {
            set_translation(flows, key, reverse, new.numbers.is_none());
        }
        None if new.numbers.is_some() => set_translation(flows, key, &key.reversed(), false),
        _ => {}
    }
    let [forward, _] = flows;
    forward.set_decision(decision);
    forward.flags |= FlowFlags::SEEN;
    if new.chain.is_none() {
        forward.count(1, pkt.bytes());
    }
}
