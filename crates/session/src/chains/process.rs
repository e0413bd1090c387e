//! Packets through the chains of their sessions.
//!
//! Theory of operation. A vector of packets of any sessions and directions is given to the
//! [`mmb_nf::Runner`]. It accesses sessions through [`ChainSessions`]: all scratchpads at once, and the
//! translation of sessions whose chains translate. Then the verdict for each packet becomes the packet's
//! outcome.
//!
//! A packet arrives here some time after the lookup of its session. Meanwhile other packets may have ended
//! the session, and its number may belong to another one. If no session has ended since the last
//! [`crate::Sessions::tick`], when no packet was under way, this cannot be. Otherwise each packet is checked.

use mmb_flow::{
    Direction, FlowFlags, FlowRef, KeyError, ScratchpadStarts, SessionId, Table, parse_key, translate,
    translate_ip4,
};
use mmb_nf::{ChainVerdict, Packet, SessionAccess, SessionInfo};
use mmb_packet::{DropReason, Meta, PacketFlags};
use mmb_policy::VECTOR;

use super::path_mtu::PathMtus;
use super::{ChainBatch, ChainState, OUT_HAIRPIN, has_chain, session_info};
use crate::lifetime::EndReason;
use crate::store::SessionStore;
use crate::translation::record::SessionRecords;
use crate::{Environment, Next, NextSet};

impl ChainState {
    /// Takes packets through their chains, and stores the verdicts. Returns whether all packets pass.
    fn run(
        &mut self,
        table: &mut Table,
        now: u32,
        env: &impl Environment,
        packets: &mut [Packet<'_>],
    ) -> bool {
        let ChainState { runner, records, verdicts, paths, .. } = self;
        let sessions = &mut ChainSessions { table, records, paths, env, now };
        let all_pass = runner.run(now, packets, sessions, verdicts);
        all_pass & translate_behind_chain(table, records, packets, verdicts)
    }

    /// Takes those packets through their chains whose sessions still exist, and stores the verdicts.
    #[cold]
    fn run_checked(
        &mut self,
        table: &mut Table,
        now: u32,
        env: &impl Environment,
        packets: &mut [Packet<'_>],
    ) {
        let mut all = [ChainVerdict::Drop(DropReason::ChainError); VECTOR];
        let mut first = 0;
        while first < packets.len() {
            let ended = (first..packets.len()).find(|&at| !is_packet_of_session(table, &packets[at]));
            let end = ended.unwrap_or(packets.len());
            self.run(table, now, env, &mut packets[first..end]);
            all[first..end].copy_from_slice(&self.verdicts[..end - first]);
            first = end + 1;
        }
        *self.verdicts = all;
    }
}

/// See [`crate::Sessions::process_chain`].
pub(crate) fn process_chain(
    store: &mut SessionStore,
    now: u32,
    env: &impl Environment,
    batch: &mut ChainBatch<'_>,
    next: &mut [Next; VECTOR],
) -> NextSet {
    store.lifetime.now = now;
    let ChainBatch { packets, has_hairpins, .. } = batch;
    let all_pass = if store.lifetime.removals == store.lifetime.removals_at_tick {
        store.chains.run(&mut store.table, now, env, packets)
    } else {
        store.chains.run_checked(&mut store.table, now, env, packets);
        false
    };
    if all_pass && !*has_hairpins {
        next[..packets.len()].fill(Next::Send);
        return NextSet::one(Next::Send);
    }
    apply_verdicts(store, env, packets, next)
}

/// See [`crate::Sessions::process_released`].
pub(crate) fn process_released(
    store: &mut SessionStore,
    now: u32,
    env: &impl Environment,
    ChainBatch { packets, .. }: &mut ChainBatch<'_>,
    next: &mut [Next; VECTOR],
) -> NextSet {
    store.lifetime.now = now;
    let ChainState { runner, records, verdicts, paths, .. } = &mut store.chains;
    let sessions = &mut ChainSessions { table: &mut store.table, records, paths, env, now };
    runner.resume(now, packets, sessions, verdicts);
    translate_behind_chain(&store.table, &store.chains.records, packets, &mut store.chains.verdicts);
    let set = apply_verdicts(store, env, packets, next);
    end_drained(store, env);
    set
}

/// Translates the numbers of forward packets that have passed their chains, while all their sessions live.
/// Returns whether all could be translated.
#[inline(always)]
fn translate_behind_chain(
    table: &Table,
    records: &SessionRecords,
    packets: &mut [Packet<'_>],
    verdicts: &mut [ChainVerdict; VECTOR],
) -> bool {
    !records.translates_numbers() || translate_numbers(table, records, packets, verdicts)
}

#[inline(never)]
fn translate_numbers(
    table: &Table,
    records: &SessionRecords,
    packets: &mut [Packet<'_>],
    verdicts: &mut [ChainVerdict; VECTOR],
) -> bool {
    let mut are_translated = true;
    for (packet, verdict) in packets.iter_mut().zip(verdicts) {
        let flow = packet.flow_ref();
        if packet.direction == Direction::Forward
            && table.flow(flow).flags.contains(FlowFlags::XLAT_SLOW)
            && *verdict == ChainVerdict::Pass
            && let Err(reason) = records.translate_numbers(table, flow, packet.head, packet.meta)
        {
            *verdict = ChainVerdict::Drop(reason);
            are_translated = false;
        }
    }
    are_translated
}

/// Turns the verdicts of a vector into outcomes.
#[inline(always)]
fn apply_verdicts(
    store: &mut SessionStore,
    env: &impl Environment,
    packets: &mut [Packet<'_>],
    next: &mut [Next; VECTOR],
) -> NextSet {
    let mut set = NextSet::default();
    for (at, (packet, next)) in packets.iter_mut().zip(next.iter_mut()).enumerate() {
        *next = match store.chains.verdicts[at] {
            ChainVerdict::Pass if packet.meta.out_port != OUT_HAIRPIN => Next::Send,
            verdict => apply_verdict(store, env, packet, verdict),
        };
        set.insert(*next);
    }
    set
}

/// Returns the outcome of a packet that is dropped or hairpinned.
#[inline(never)]
fn apply_verdict(
    store: &mut SessionStore,
    env: &impl Environment,
    packet: &mut Packet<'_>,
    verdict: ChainVerdict,
) -> Next {
    let id = packet.session;
    let reason = match verdict {
        ChainVerdict::Pass => return hairpin_from_chain(store, env, packet),
        ChainVerdict::Hold => return Next::Hold,
        ChainVerdict::Consume => return Next::Consume,
        ChainVerdict::Drop(reason) => reason,
        ChainVerdict::Refuse(reason) => {
            if is_chained(&store.table, id) {
                store.revoke(store.lifetime.now, id, env);
                let epoch = store.cache.decisions.epoch();
                store.chains.records.refuse(&mut store.table, id, reason, epoch);
            }
            reason
        }
        ChainVerdict::End(reason) => {
            // An earlier packet of the vector may have ended the session.
            if is_chained(&store.table, id) {
                end_session(store, id, reason, env);
            }
            reason
        }
    };
    packet.meta.drop_reason = reason as u8;
    Next::Drop
}

/// Ends a session whose function demands it. Packets that functions have released go on first: until then,
/// the session drops all others.
fn end_session(store: &mut SessionStore, id: SessionId, reason: DropReason, env: &impl Environment) {
    let SessionStore { chains, table, cache, .. } = &mut *store;
    if !chains.runner.is_draining() || chains.ending.len() == chains.ending.capacity() {
        store.end(id, EndReason::Function, env);
        return;
    }
    chains.records.refuse(table, id, reason, cache.decisions.epoch());
    chains.ending.push((id, table.uid(id)));
}

/// Ends the sessions that functions have ended, if no released packet is under way any more.
pub(crate) fn end_drained(store: &mut SessionStore, env: &impl Environment) {
    while !store.chains.runner.is_draining()
        && let Some((id, uid)) = store.chains.ending.pop()
    {
        if store.table.is_live(id) && store.table.uid(id) == uid {
            store.end(id, EndReason::Function, env);
        }
    }
}

/// Returns a packet from inside to another host inside.
fn hairpin_from_chain(store: &mut SessionStore, env: &impl Environment, packet: &mut Packet<'_>) -> Next {
    if !is_chained(&store.table, packet.session) {
        packet.meta.drop_reason = DropReason::ChainError as u8;
        return Next::Drop;
    }
    let key = store.table.key(packet.flow_ref().opposite()).reversed();
    let owner = store.first_worker(env.nat(), &key);
    packet.meta.flags |= PacketFlags::LOOPED;
    packet.meta.edits_len = 0;
    match owner == store.config.worker {
        true => Next::Relookup,
        false => store.hand_off(packet.meta, owner),
    }
}

/// Whether the session exists and has a chain.
fn is_chained(table: &Table, id: SessionId) -> bool {
    table.is_live(id) && has_chain(table, id)
}

/// Lets sessions that no function reads any more pass without their chains. No packet may be under way: one
/// that was looked up before would not be translated.
pub(crate) fn end_unread(store: &mut SessionStore) {
    let SessionStore { chains, table, lifetime, .. } = store;
    while let Some(id) = chains.runner.next_unread() {
        if is_chained(table, id) {
            chains.leave_unread(table, lifetime.now, id);
        }
    }
}

/// Whether a packet still belongs to the session of its lookup. The packet may have been translated already.
fn is_packet_of_session(table: &Table, packet: &Packet<'_>) -> bool {
    if !is_chained(table, packet.session) {
        return false;
    }
    let flow = packet.flow_ref();
    match parse_key(packet.head, packet.meta) {
        // Edits may have changed the key.
        _ if packet.meta.edits_len != 0 => true,
        Ok(key) | Err(KeyError::FirstFragment(key)) => {
            key == table.key(flow) || key == table.key(flow.opposite()).reversed()
        }
        Err(_) => true,
    }
}

/// The sessions of packets in chains.
struct ChainSessions<'a, E> {
    table: &'a mut Table,
    records: &'a SessionRecords,
    paths: &'a PathMtus,
    env: &'a E,
    now: u32,
}

impl<E: Environment> SessionAccess for ChainSessions<'_, E> {
    #[inline(always)]
    fn pads(&mut self) -> (&mut [u8], ScratchpadStarts<'_>) {
        self.table.scratchpads_mut()
    }

    fn pad(&mut self, id: SessionId) -> &mut [u8] {
        self.table.scratch_mut(id)
    }

    #[inline(always)]
    fn translator(&mut self) -> impl FnMut(FlowRef, &mut [u8], &Meta) -> Result<(), DropReason> {
        const PLAIN: FlowFlags = FlowFlags::CHAIN_TRANSLATES.union(FlowFlags::XLAT4);
        let (this, flows) = (&*self, self.table.flows());
        move |flow_ref, head, meta| match flows.get(flow_ref.0 as usize) {
            Some(flow) if flow.flags.contains(PLAIN) && meta.edits_len == 0 => {
                translate_ip4(&flow.xlat4(), head, meta);
                Ok(())
            }
            Some(flow) if flow.flags.contains(FlowFlags::CHAIN_TRANSLATES) => {
                this.translate_uncommon(flow_ref, head, meta)
            }
            _ => Ok(()),
        }
    }

    fn finish_emission(&mut self, flow: FlowRef, has_addresses: bool, frame: &mut [u8]) -> bool {
        let flags = self.table.flow(flow).flags;
        if !flags.intersects(FlowFlags::XLAT4 | FlowFlags::XLAT_SLOW) {
            return true;
        }
        let mut meta = Meta::default();
        if mmb_packet::parse(frame, frame.len(), &mut meta).is_err() {
            return false;
        }
        let (table, records) = (&*self.table, self.records);
        (has_addresses || records.translate_addresses(table, flow, frame, &meta).is_ok())
            && (flow.direction() == Direction::Reverse
                || records.translate_numbers(table, flow, frame, &meta).is_ok())
    }

    fn info(&self, id: SessionId) -> SessionInfo {
        session_info(self.table, id, self.now)
    }

    fn uid(&self, id: SessionId) -> Option<u32> {
        is_chained(self.table, id).then(|| self.table.uid(id))
    }

    #[inline]
    fn mtu(&self, packet: &Packet<'_>) -> usize {
        let own = || parse_key(packet.head, packet.meta).map(|key| key.destination).unwrap_or_default();
        // The session's key is that behind the translations, unless rules have edited the packet.
        let to = match packet.meta.edits_len {
            0 => self.table.key(packet.flow_ref().opposite()).source,
            _ => own(),
        };
        self.env.mtu(packet, &to).min(self.paths.get(self.now, &to))
    }
}

impl<E> ChainSessions<'_, E> {
    /// Translates a packet of a session that its chain translates. Rules may have given it other addresses
    /// and ports: then it is translated from its present key.
    #[inline(never)]
    fn translate_uncommon(&self, flow_ref: FlowRef, head: &mut [u8], meta: &Meta) -> Result<(), DropReason> {
        if meta.edits_len == 0 {
            return self.records.translate_addresses(self.table, flow_ref, head, meta);
        }
        if !self.table.flow(flow_ref).flags.intersects(FlowFlags::XLAT4 | FlowFlags::XLAT_SLOW) {
            return Ok(());
        }
        let (Ok(from) | Err(KeyError::FirstFragment(from))) = parse_key(head, meta) else {
            return self.records.translate_addresses(self.table, flow_ref, head, meta);
        };
        let to = self.table.key(flow_ref.opposite()).reversed();
        translate(head, meta, &from, &to, None, flow_ref.direction())
    }
}
