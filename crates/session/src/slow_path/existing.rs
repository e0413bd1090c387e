//! Packets of sessions on the slow path: the session's rules, decision and tracking.

use mmb_flow::{
    Direction, FlowFlags, FlowRef, HostLocation, SessionFlags, SessionState, TcpSegment, TrackInput,
    TrackOutcome, TrackVerdict,
};
use mmb_packet::{DropReason, PacketBuf};

use super::opener;
use super::packet::SlowPacket;
use crate::lifetime::{DIRECTIONS, EndReason};
use crate::rules::attached::{self, SessionRule};
use crate::store::SessionStore;
use crate::{Environment, Next, tracking};

/// What becomes of a packet of a session.
pub(super) enum ExistingOutcome {
    /// The packet is to be translated and sent on.
    Passes,
    /// The packet is finished.
    Finished(Next),
    /// The session has ended, and the packet belongs to none.
    Ended,
}

/// Applies rules and tracking to a packet of a session, and counts it if it passes.
pub(super) fn admit_existing<E: Environment, P: PacketBuf>(
    store: &mut SessionStore,
    pkt: &mut SlowPacket<'_, E, P>,
    flow: FlowRef,
) -> ExistingOutcome {
    let id = flow.session();
    if changes_session(store, pkt, flow) {
        store.revoke(pkt.now, id, pkt.env);
    }
    if !refresh_rules(store, pkt, flow) {
        store.end(id, EndReason::RuleRemoved, pkt.env);
        return ExistingOutcome::Ended;
    }
    learn_from_reply(store, pkt, flow);
    let (mut track, mut acks) = (store.table.track(id), store.chains.acks(&store.table, id));
    let input = pkt.track_input(&store.table, &store.chains, flow);
    let outcome = track.update(flow.direction(), &input, &mut acks, &store.settings);
    match outcome.verdict {
        TrackVerdict::New => {
            store.end(id, EndReason::Replaced, pkt.env);
            return ExistingOutcome::Ended;
        }
        TrackVerdict::Drop(reason) => return ExistingOutcome::Finished(pkt.drop(reason)),
        TrackVerdict::Pass => {}
    }
    let (number, bytes) = (store.table.flow(flow).decision(), pkt.bytes());
    let (rules, decisions) = (&mut store.rules, &store.cache.decisions);
    if !pkt.is_looped() && rules.drops_packet(decisions, number, pkt.hits, (pkt.env, bytes), pkt.edits) {
        return ExistingOutcome::Finished(pkt.drop(DropReason::Rule));
    }
    if let Some(reason) = store.refusal(id) {
        return ExistingOutcome::Finished(pkt.drop(reason));
    }
    if is_syn(&input) {
        // It may begin another connection, which functions read.
        store.chains.end_bypass(&mut store.table, id);
    }
    record_packet(store, pkt, flow, &outcome);
    store.table.set_track(id, &track);
    tracking::set_acks(&mut store.table, id, acks);
    ExistingOutcome::Passes
}

fn is_syn(input: &TrackInput) -> bool {
    matches!(input, TrackInput::Tcp(segment) if segment.flags & TcpSegment::SYN != 0)
}

/// Whether a packet may change the session: its state, its rules or its translation. The counters of
/// offloaded flows must be collected.
fn changes_session<E: Environment, P: PacketBuf>(
    store: &SessionStore,
    pkt: &SlowPacket<'_, E, P>,
    flow: FlowRef,
) -> bool {
    let id = flow.session();
    let is_settled = DIRECTIONS
        .into_iter()
        .all(|direction| store.table.flow(FlowRef::new(id, direction)).flags.contains(FlowFlags::SETTLED));
    if !is_settled || needs_refresh(store, pkt, flow) {
        return true;
    }
    let track = store.table.track(id);
    let (mut after, mut acks) = (track, store.chains.acks(&store.table, id));
    let input = pkt.track_input(&store.table, &store.chains, flow);
    let verdict = after.update(flow.direction(), &input, &mut acks, &store.settings).verdict;
    let ends_bypass = is_syn(&input) && store.table.session(id).flags.contains(SessionFlags::BYPASSES);
    after != track || verdict != TrackVerdict::Pass || ends_bypass
}

/// Whether the flow has no current decision, or a packet matches a stateful rule that the session lacks.
fn needs_refresh<E: Environment, P: PacketBuf>(
    store: &SessionStore,
    pkt: &SlowPacket<'_, E, P>,
    flow: FlowRef,
) -> bool {
    let stamp = store.cache.decisions.stamp(pkt.in_port);
    !store.cache.decisions.is_current(store.table.flow(flow).decision(), stamp)
        || has_new_rules(store, pkt, flow)
}

/// Whether a packet matches a stateful rule that the session lacks.
fn has_new_rules<E: Environment, P: PacketBuf>(
    store: &SessionStore,
    pkt: &SlowPacket<'_, E, P>,
    flow: FlowRef,
) -> bool {
    let rule_list = store.table.session(flow.session()).rule_list;
    pkt.stateful_slots().any(|slot| !store.rules.lists.contains(rule_list, slot))
}

/// Refreshes the rules of the session and the decision of the flow. Returns `false` if nothing keeps the
/// session any more.
fn refresh_rules<E: Environment, P: PacketBuf>(
    store: &mut SessionStore,
    pkt: &SlowPacket<'_, E, P>,
    flow: FlowRef,
) -> bool {
    let policy = pkt.env.policy();
    let &SessionState { rule_list, flags, .. } = store.table.session(flow.session());
    let stamp = store.cache.decisions.stamp(pkt.in_port);
    if !needs_refresh(store, pkt, flow) {
        return true;
    }
    let has_new_rules = has_new_rules(store, pkt, flow);
    let mut list = std::mem::take(&mut store.rules.buffer);
    list.clear();
    list.extend(store.rules.lists.get(rule_list));
    let lost_translation = list.iter().any(|rule| rule.translates && !rule.is_alive(policy));
    let had_rules = !list.is_empty();
    list.retain(|rule| rule.is_alive(policy));
    if had_rules && list.is_empty() && !lost_translation {
        let key = store.table.key(FlowRef::new(flow.session(), Direction::Forward));
        let ports = store.table.session(flow.session()).in_ports();
        opener::add_opening_rules(&mut store.rules, &store.chains, pkt.env, (&key, ports), &mut list);
    }
    let has_cause = !list.is_empty()
        || flags.contains(SessionFlags::RULELESS)
        || store.table.broker(flow.session()).is_some()
        || store.chains.has_offsets(&store.table, flow.session());
    let has_mapping = store.table.mapping(flow.session()).is_none_or(|mapping| store.pools.is_live(mapping));
    for rule in pkt.stateful_slots().filter_map(|slot| SessionRule::new(policy, slot, false)) {
        attached::insert(&mut list, rule);
    }
    let lives = has_cause
        && has_mapping
        && !lost_translation
        && store.chains.update(&mut store.table, pkt, flow, &list);
    if lives {
        store.rules.replace_list(&mut store.table, flow, &list);
        if has_new_rules {
            // The other flow needs another decision, too.
            store.cache.replace_decision(&mut store.table, flow.opposite(), 0, pkt.env);
        }
        let number = store.rules.acquire_decision(&mut store.cache.decisions, pkt, &list, stamp);
        store.cache.replace_decision(&mut store.table, flow, number, pkt.env);
    }
    store.rules.buffer = list;
    lives
}

/// Learns from a reply what was unknown when the session was opened: the location of a host inside, and
/// the answering side's first sequence number.
fn learn_from_reply<E: Environment, P: PacketBuf>(
    store: &mut SessionStore,
    pkt: &SlowPacket<'_, E, P>,
    flow_ref: FlowRef,
) {
    if flow_ref.direction() == Direction::Forward {
        return;
    }
    let id = flow_ref.session();
    let (session, flow) = (store.table.session(id), store.table.flow(flow_ref));
    if !flow.flags.contains(FlowFlags::SEEN)
        && session.flags.contains(SessionFlags::INBOUND)
        && let Some(mapping) = store.table.mapping(id)
        && let Some(&[.., a, b, c, d, e, f]) = pkt.packet.head().first_chunk::<12>()
    {
        let inside = HostLocation { mac: [a, b, c, d, e, f], in_port: pkt.in_port };
        store.pools.learn(mapping, inside);
    }
    if store.chains.records.awaits_isn(&store.table, id)
        && let TrackInput::Tcp(segment) = TrackInput::of(pkt.packet.head(), pkt.meta)
        && segment.flags & TcpSegment::SYN != 0
    {
        store.chains.records.set_isn(id, segment.seq);
    }
}

/// Counts a packet that passes, and applies the tracker's outcome.
fn record_packet<E: Environment, P: PacketBuf>(
    store: &mut SessionStore,
    pkt: &SlowPacket<'_, E, P>,
    flow_ref: FlowRef,
    outcome: &TrackOutcome,
) {
    let id = flow_ref.session();
    store.cache.settle(&mut store.table, flow_ref, pkt.env);
    let flow = store.table.flow_mut(flow_ref);
    flow.count(1, pkt.bytes());
    flow.last_seen = pkt.now;
    flow.flags |= FlowFlags::SEEN;
    store.table.session_mut(id).set_in_port(flow_ref.direction(), pkt.in_port);
    tracking::apply(&mut store.table, pkt.now, id, outcome);
}
