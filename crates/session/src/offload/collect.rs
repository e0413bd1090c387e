//! Sessions as the source of offloaded flows, and the collection of the driver's counters.

use mmb_flow::{Direction, FlowFlags, FlowRef, SessionId, TcpSegment, TrackInput, latest_ack, parse_key};
use mmb_packet::Meta;

use super::flows::{FlowPair, OffloadedFlow, OffloadedFlows};
use super::{OffloadCandidate, OffloadCounters, OffloadDriver, OffloadSource, OffloadState};
use crate::Environment;
use crate::established::decisions::DecisionFlags;
use crate::lifetime::{DIRECTIONS, session_flags};
use crate::sessions::Sessions;

/// Flags of flows that exclude offload.
const EXCLUDED_FLOWS: FlowFlags =
    FlowFlags::REDIRECT.union(FlowFlags::CHAINED).union(FlowFlags::CHAIN_TRANSLATES);
/// Flags of sessions that exclude offload.
const EXCLUDED_SESSIONS: u8 = session_flags::MANGLE
    | session_flags::LOOP_FORWARD
    | session_flags::LOOP_REVERSE
    | session_flags::REFUSED;

impl OffloadSource for Sessions {
    fn set_offload_driver(&mut self, driver: Box<dyn OffloadDriver>) {
        self.offloaded = OffloadedFlows::new(driver);
    }

    fn removals(&self) -> u32 {
        self.lifetime.removals
    }

    fn offload_candidate(&self, head: &[u8], meta: &Meta) -> Option<OffloadCandidate> {
        let (flow, _) = self.table.find_with_hash(&parse_key(head, meta).ok()?);
        flow.is_some().then(|| OffloadCandidate { flow, uid: self.table.uid(flow.session()) })
    }

    fn is_translated_to(&self, candidate: OffloadCandidate, head: &[u8], meta: &Meta) -> bool {
        let flow = candidate.flow;
        let decided = self.cache.decisions.flags(self.table.flow(flow).decision());
        let key = self.table.key(flow.opposite()).reversed();
        !decided.contains(DecisionFlags::EDIT) && parse_key(head, meta).is_ok_and(|sent| sent == key)
    }

    fn offload_state(&self, candidate: OffloadCandidate, in_port: u16) -> OffloadState {
        let OffloadCandidate { flow: flow_ref, uid } = candidate;
        let id = flow_ref.session();
        if self.table.uid(id) != uid {
            return OffloadState::Ended;
        }
        let (flow, reply) = (self.table.flow(flow_ref), self.table.flow(flow_ref.opposite()));
        let (number, decisions) = (flow.decision(), &self.cache.decisions);
        let is_plain = !flow.flags.intersects(EXCLUDED_FLOWS)
            && self.table.session(id).flags & EXCLUDED_SESSIONS == 0
            && decisions.is_current(number, decisions.stamp(in_port))
            && !decisions.flags(number).intersects(DecisionFlags::MAY_DROP);
        if !is_plain || self.cache.has_per_packet_rules || self.settings.tcp_window_check {
            return OffloadState::Ineligible;
        }
        if flow.flags.contains(FlowFlags::SETTLED) {
            return OffloadState::Eligible { reply_settled: reply.flags.contains(FlowFlags::SETTLED) };
        }
        match self.table.session(id).track.awaited_ack(&self.acks(id)) {
            Some(ack) => OffloadState::AwaitingAck {
                expected_ack: (flow_ref.direction() == Direction::Forward).then_some(ack),
            },
            None => OffloadState::Unsettled,
        }
    }

    fn offload(&mut self, now: u32, candidate: OffloadCandidate, slot: u32, env: &impl Environment) {
        let (id, direction) = (candidate.flow.session(), candidate.flow.direction() as usize);
        let mut flows = self.offloaded.get(id).unwrap_or_default();
        if let Some(old) = flows[direction] {
            self.collect_pair(now, id, &mut flows, env);
            self.offloaded.push_revoked(old.slot);
        }
        flows[direction] = Some(OffloadedFlow { slot, packets: 0, bytes: 0, credits_rules: true });
        self.offloaded.set(id, flows);
    }

    fn collect_offloaded(
        &mut self,
        now: u32,
        candidate: OffloadCandidate,
        slot: u32,
        ended: bool,
        env: &impl Environment,
    ) {
        let (id, direction) = (candidate.flow.session(), candidate.flow.direction() as usize);
        let Some(mut flows) = self.offloaded.get(id) else { return };
        if flows[direction].is_none_or(|flow| flow.slot != slot) {
            return;
        }
        self.collect_pair(now, id, &mut flows, env);
        if ended {
            flows[direction] = None;
        }
        self.offloaded.set(id, flows);
    }

    fn next_revoked(&mut self) -> Option<u32> {
        self.offloaded.pop_revoked()
    }
}

impl Sessions {
    /// Collects the counters of a session's offloaded flows.
    #[inline]
    pub(crate) fn collect_session(&mut self, now: u32, id: SessionId, env: &impl Environment) {
        if !self.offloaded.is_empty() {
            self.collect_if_offloaded(now, id, env);
        }
    }

    #[cold]
    fn collect_if_offloaded(&mut self, now: u32, id: SessionId, env: &impl Environment) {
        let Some(mut flows) = self.offloaded.get(id) else { return };
        self.collect_pair(now, id, &mut flows, env);
        self.offloaded.set(id, flows);
    }

    /// Revokes the offloaded flows of a session, and collects their counters.
    #[inline]
    pub(crate) fn revoke(&mut self, now: u32, id: SessionId, env: &impl Environment) {
        if !self.offloaded.is_empty() {
            self.revoke_if_offloaded(now, id, env);
        }
    }

    #[cold]
    fn revoke_if_offloaded(&mut self, now: u32, id: SessionId, env: &impl Environment) {
        let Some(flows) = self.offloaded.get(id) else { return };
        self.offloaded.stop(&flows);
        self.collect_if_offloaded(now, id, env);
        self.offloaded.remove(id);
    }

    /// Collects all counters before rules change. Packets that are counted later, by flows offloaded under
    /// the old rules, are added to no rule.
    pub(crate) fn detach_offloaded(&mut self, env: &impl Environment) {
        for id in self.offloaded.sessions() {
            self.collect_if_offloaded(self.lifetime.now, id, env);
        }
        self.offloaded.detach_rules();
    }

    /// Collects the counters of both flows of a session. After a FIN, the tracker sees the last
    /// acknowledgements, once those of both directions are known.
    fn collect_pair(&mut self, now: u32, id: SessionId, flows: &mut FlowPair, env: &impl Environment) {
        let counters = self.offloaded.counters(flows);
        if let Some(OffloadCounters { age, ack: Some(_), .. }) = counters[Direction::Forward as usize] {
            self.complete_handshake(now.wrapping_sub(age), id);
        }
        let mut collected = [None; 2];
        for (((direction, flow), counters), to) in
            DIRECTIONS.into_iter().zip(flows).zip(counters).zip(&mut collected)
        {
            if let (Some(flow), Some(counters)) = (flow, counters) {
                *to = self.collect_flow(now, FlowRef::new(id, direction), flow, counters, env);
            }
        }
        for (direction, collected) in DIRECTIONS.into_iter().zip(collected) {
            if let Some((last, OffloadCounters { ack: Some(ack), .. })) = collected
                && self.table.session(id).track.has_fin()
            {
                self.track_ack(last, FlowRef::new(id, direction), ack);
            }
        }
    }

    /// Tells the tracker of the originator's first offloaded packet, which acknowledged the answer.
    fn complete_handshake(&mut self, last: u32, id: SessionId) {
        if let Some(ack) = self.table.session(id).track.awaited_ack(&self.acks(id)) {
            self.track_ack(last, FlowRef::new(id, Direction::Forward), ack);
        }
    }

    /// Tells the tracker of the last segment of a flow, which acknowledged `ack`.
    fn track_ack(&mut self, last: u32, flow: FlowRef, ack: u32) {
        let id = flow.session();
        let (mut track, mut acks) = (self.table.session(id).track, self.acks(id));
        let seq = acks[flow.direction().opposite() as usize];
        let segment = TcpSegment { seq, ack, flags: TcpSegment::ACK, ..TcpSegment::default() };
        let outcome = track.update(flow.direction(), &TrackInput::Tcp(segment), &mut acks, &self.settings);
        self.table.session_mut(id).track = track;
        self.set_acks(id, acks);
        self.apply_tracking(last, id, &outcome);
    }

    /// Collects the counters of a flow. Returns them, with the time of the last packet, if there were packets
    /// since the last time.
    fn collect_flow(
        &mut self,
        now: u32,
        flow_ref: FlowRef,
        offloaded: &mut OffloadedFlow,
        counters: OffloadCounters,
        env: &impl Environment,
    ) -> Option<(u32, OffloadCounters)> {
        let new_packets = counters.packets.wrapping_sub(offloaded.packets);
        let new_bytes = counters.bytes.wrapping_sub(offloaded.bytes);
        if new_packets == 0 {
            return None;
        }
        (offloaded.packets, offloaded.bytes) = (counters.packets, counters.bytes);
        // These packets are credited below: counters deferred so far must be added to the rules first.
        self.cache.settle(&mut self.table, flow_ref, env);
        let flow = self.table.flow_mut(flow_ref);
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
        let last = flow.last_seen;
        if let Some(ack) = counters.ack {
            flow.ack = latest_ack(flow.ack, ack);
        }
        if offloaded.credits_rules {
            self.cache.decisions.credit(flow.decision(), new_packets, new_bytes, env);
        }
        Some((last, counters))
    }
}
