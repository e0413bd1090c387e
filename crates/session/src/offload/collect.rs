//! The collection of the driver's counters.

use mmb_flow::{
    Direction, Flow, FlowRef, SessionId, SessionSettings, Table, TcpSegment, TrackInput, latest_ack,
};

use super::OffloadCounters;
use super::flows::{FlowPair, OffloadedFlow, OffloadedFlows};
use crate::established::DecisionCache;
use crate::lifetime::DIRECTIONS;
use crate::{Environment, tracking};

/// What the counters of offloaded flows are added to: the sessions, and the decisions of their flows.
pub(crate) type CountedSessions<'a> = (&'a mut Table, &'a mut DecisionCache, &'a SessionSettings);

impl OffloadedFlows {
    /// Collects the counters of a session's offloaded flows.
    #[cold]
    pub fn collect(
        &mut self,
        now: u32,
        id: SessionId,
        sessions: CountedSessions<'_>,
        env: &impl Environment,
    ) {
        let Some(mut flows) = self.get(id) else { return };
        self.collect_pair(now, id, &mut flows, sessions, env);
        self.set(id, flows);
    }

    /// Revokes the offloaded flows of a session, and collects their counters.
    #[cold]
    pub fn revoke(&mut self, now: u32, id: SessionId, sessions: CountedSessions<'_>, env: &impl Environment) {
        let Some(flows) = self.get(id) else { return };
        self.stop(&flows);
        self.collect(now, id, sessions, env);
        self.remove(id);
    }

    /// Collects all counters before rules change. Packets that are counted later, by flows offloaded under
    /// the old rules, are added to no rule.
    pub fn detach(
        &mut self,
        now: u32,
        (table, cache, settings): CountedSessions<'_>,
        env: &impl Environment,
    ) {
        for id in self.sessions() {
            self.collect(now, id, (table, cache, settings), env);
        }
        self.detach_rules();
    }

    /// Collects the counters of both flows of a session. The tracker sees the FINs that the driver has
    /// forwarded, and after a FIN the last acknowledgements, once those of both directions are known.
    pub(super) fn collect_pair(
        &self,
        now: u32,
        id: SessionId,
        flows: &mut FlowPair,
        (table, cache, settings): CountedSessions<'_>,
        env: &impl Environment,
    ) {
        let counters = self.counters(flows);
        if let Some(OffloadCounters { age, ack: Some(_), .. }) = counters[Direction::Forward as usize] {
            complete_handshake(table, settings, now.wrapping_sub(age), id);
        }
        for ((direction, flow), counters) in DIRECTIONS.into_iter().zip(flows).zip(counters) {
            if let (Some(flow), Some(counters)) = (flow, counters) {
                collect_flow((table, cache), now, FlowRef::new(id, direction), flow, counters, env);
            }
        }
        let seen = DIRECTIONS.into_iter().zip(counters).filter_map(|(way, seen)| Some((way, seen?)));
        for (direction, counters) in seen.clone() {
            if let Some(end) = counters.fin
                && !table.track(id).is_closed(direction)
            {
                track_fin(table, settings, FlowRef::new(id, direction), end);
            }
        }
        for (direction, counters) in seen {
            if let Some(ack) = counters.ack
                && table.track(id).has_fin()
            {
                let flow = FlowRef::new(id, direction);
                track_ack(table, settings, table.flow(flow).last_seen, flow, ack);
            }
        }
    }
}

/// Tells the tracker of the originator's first offloaded packet, which acknowledged the answer.
fn complete_handshake(table: &mut Table, settings: &SessionSettings, last: u32, id: SessionId) {
    if let Some(ack) = table.track(id).awaited_ack(&tracking::acks(table, id)) {
        track_ack(table, settings, last, FlowRef::new(id, Direction::Forward), ack);
    }
}

/// Tells the tracker of the last segment of a flow, which acknowledged `ack`.
fn track_ack(table: &mut Table, settings: &SessionSettings, last: u32, flow: FlowRef, ack: u32) {
    let seq = tracking::acks(table, flow.session())[flow.direction().opposite() as usize];
    let segment = TcpSegment { seq, ack, flags: TcpSegment::ACK, ..TcpSegment::default() };
    track(table, settings, last, flow, segment);
}

/// Tells the tracker of a FIN. The driver has compared its acknowledgement with the one before.
fn track_fin(table: &mut Table, settings: &SessionSettings, flow: FlowRef, end: u32) {
    let (flags, seq) = (TcpSegment::FIN | TcpSegment::ACK, end.wrapping_sub(1));
    let &Flow { ack, last_seen, .. } = table.flow(flow);
    let segment = TcpSegment { seq, ack, flags, ..TcpSegment::default() };
    track(table, settings, last_seen, flow, segment);
}

/// Tells the tracker of a segment of this time.
fn track(table: &mut Table, settings: &SessionSettings, time: u32, flow: FlowRef, segment: TcpSegment) {
    let id = flow.session();
    let (mut track, mut acks) = (table.track(id), tracking::acks(table, id));
    let outcome = track.update(flow.direction(), &TrackInput::Tcp(segment), &mut acks, settings);
    table.set_track(id, &track);
    tracking::set_acks(table, id, acks);
    tracking::apply(table, time, id, &outcome);
}

/// Collects the counters of a flow.
fn collect_flow(
    (table, cache): (&mut Table, &mut DecisionCache),
    now: u32,
    flow_ref: FlowRef,
    offloaded: &mut OffloadedFlow,
    counters: OffloadCounters,
    env: &impl Environment,
) {
    if let Some(ack) = counters.ack {
        let flow = table.flow_mut(flow_ref);
        flow.ack = latest_ack(flow.ack, ack);
    }
    let new_packets = counters.packets.wrapping_sub(offloaded.packets);
    let new_bytes = counters.bytes.wrapping_sub(offloaded.bytes);
    if new_packets == 0 {
        return;
    }
    (offloaded.packets, offloaded.bytes) = (counters.packets, counters.bytes);
    // These packets are credited below: counters deferred so far must be added to the rules first.
    cache.settle(table, flow_ref, env);
    let flow = table.flow_mut(flow_ref);
    let (mut packets, mut bytes) = (new_packets, new_bytes);
    while packets > 0 || bytes > 0 {
        let part = |left: u64| u32::try_from(left).unwrap_or(u32::MAX);
        flow.count(part(packets), part(bytes));
        packets -= u64::from(part(packets));
        bytes -= u64::from(part(bytes));
    }
    let last = now.wrapping_sub(counters.age);
    if last.wrapping_sub(flow.last_seen).cast_signed() > 0 {
        flow.last_seen = last;
    }
    if offloaded.credits_rules {
        cache.decisions.credit(flow.decision(), new_packets, new_bytes, env);
    }
}

#[cfg(test)]
mod closing;
#[cfg(test)]
mod tests;
