//! Packets of settled sessions for which rules that depend on each packet are to be applied.

use mmb_flow::{FlowFlags, FlowRef, parse_key};
use mmb_packet::DropReason;
use mmb_policy::{Hit, VECTOR};

use super::set_edits;
use super::uncommon::drop_packet;
use crate::lookup::summary::steady_ack;
use crate::store::SessionStore;
use crate::{Environment, Next, NextSet, Packets, broker};

/// See [`crate::Sessions::process_per_packet`].
pub(crate) fn process_per_packet(
    store: &mut SessionStore,
    now: u32,
    env: &impl Environment,
    packets: &mut impl Packets,
    hits: &[Hit],
    edits: &mut Vec<u32>,
    next: &mut [Next; VECTOR],
) -> NextSet {
    let mut set = NextSet::default();
    let mut rest = hits;
    for (at, next) in next.iter_mut().enumerate().take(packets.len()) {
        let end = rest.iter().position(|hit| usize::from(hit.pkt) != at).unwrap_or(rest.len());
        let (hits, others) = rest.split_at(end);
        rest = others;
        *next = apply_per_packet(store, now, env, packets, at, hits, edits);
        set.insert(*next);
    }
    set
}

/// Finishes one packet.
fn apply_per_packet(
    store: &mut SessionStore,
    now: u32,
    env: &impl Environment,
    packets: &mut impl Packets,
    at: usize,
    hits: &[Hit],
    edits: &mut Vec<u32>,
) -> Next {
    let (in_port, bytes) = (packets.in_port(at), packets.bytes(at));
    let (head, meta) = packets.head_and_meta(at);
    if !meta.stage.is_removals(store.lifetime.removals) {
        meta.session = parse_key(head, meta).map_or(FlowRef::NONE, |key| store.table.find(&key)).0;
    }
    let flow_ref = FlowRef(meta.session);
    if !flow_ref.is_some() {
        return Next::SlowPath;
    }
    let flow = store.table.flow(flow_ref);
    let (number, is_settled) = (flow.decision(), flow.flags.contains(FlowFlags::SETTLED));
    let is_chained = flow.flags.contains(FlowFlags::CHAINED);
    let decisions = &store.cache.decisions;
    let is_current = is_settled && decisions.is_current(number, decisions.stamp(in_port));
    let Some(ack) = steady_ack(head, meta).filter(|_| is_current) else {
        return Next::SlowPath;
    };
    let rule_list = store.table.session(flow_ref.session()).rule_list;
    // The slow path opens sessions, lets them join rules, answers what rules reject, and logs packets.
    let is_uncommon = |hit: &Hit| {
        let info = env.policy().rule_info(hit.slot);
        info.rejects
            || env.policy().logs_each_packet(hit.slot)
            || info.stateful && !store.rules.lists.contains(rule_list, hit.slot)
    };
    if hits.iter().any(is_uncommon) {
        return Next::SlowPath;
    }
    let first = edits.len();
    if store.rules.drops_packet(decisions, number, hits, (env, bytes), edits) {
        return drop_packet(meta, DropReason::Rule);
    }
    let mut path = store.established_path();
    if let Err(reason) = path.count_and_translate(now, flow_ref, (&mut *head, meta), bytes, ack) {
        edits.truncate(first);
        return drop_packet(meta, reason);
    }
    if broker::divert(path.table, env, flow_ref, in_port, (head, meta)) {
        return match set_edits(first, meta, edits) {
            Next::Pass => Next::Send,
            next => next,
        };
    }
    meta.out_port = env.out_port(in_port);
    let next = set_edits(first, meta, edits);
    if !is_chained {
        return next;
    }
    store.prefetch_scratchpad(flow_ref);
    Next::Chain
}
