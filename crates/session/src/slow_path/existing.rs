//! Packets of sessions on the slow path: the session's rules, decision and tracking.

use mmb_flow::{
    Direction, FlowFlags, FlowRef, HostLocation, MappingId, SessionId, SessionState, TcpSegment, TrackInput,
    TrackOutcome, TrackVerdict,
};
use mmb_packet::{DropReason, PacketBuf};
use mmb_policy::RuleScope;

use super::packet::SlowPacket;
use crate::lifetime::{DIRECTIONS, EndReason, session_flags};
use crate::rules::attached::{self, SessionRule};
use crate::sessions::Sessions;
use crate::{Environment, Next};

impl Sessions {
    /// Processes a packet of a session. `None`: the session has ended, and the packet belongs to none.
    pub(super) fn process_existing<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &mut SlowPacket<'_, E, P>,
        flow: FlowRef,
    ) -> Option<Next> {
        let id = flow.session();
        if self.changes_session(pkt, flow) {
            self.revoke(pkt.now, id, pkt.env);
        }
        if !self.refresh_rules(pkt, flow) {
            self.end(id, EndReason::RuleRemoved, pkt.env);
            return None;
        }
        self.learn_from_reply(pkt, flow);
        let (mut track, mut acks) = (self.table.session(id).track, self.acks(id));
        let input = self.track_input(pkt, flow);
        let outcome = track.update(flow.direction(), &input, &mut acks, &self.settings);
        match outcome.verdict {
            TrackVerdict::New => {
                self.end(id, EndReason::Replaced, pkt.env);
                return None;
            }
            TrackVerdict::Drop(reason) => return Some(pkt.drop(reason)),
            TrackVerdict::Pass => {}
        }
        let (number, bytes) = (self.table.flow(flow).decision(), pkt.bytes());
        let (rules, decisions) = (&mut self.rules, &self.cache.decisions);
        if !pkt.is_looped() && rules.drops_packet(decisions, number, pkt.hits, (pkt.env, bytes), pkt.edits) {
            return Some(pkt.drop(DropReason::Rule));
        }
        if let Some(reason) = self.refusal(id) {
            return Some(pkt.drop(reason));
        }
        self.record_packet(pkt, flow, &outcome);
        self.table.session_mut(id).track = track;
        self.set_acks(id, acks);
        Some(self.translate_and_send(pkt, flow))
    }

    /// Whether a packet may change the session: its state, its rules or its translation. The counters of
    /// offloaded flows must be collected.
    fn changes_session<E: Environment, P: PacketBuf>(
        &self,
        pkt: &SlowPacket<'_, E, P>,
        flow: FlowRef,
    ) -> bool {
        let id = flow.session();
        let is_settled = DIRECTIONS
            .into_iter()
            .all(|direction| self.table.flow(FlowRef::new(id, direction)).flags.contains(FlowFlags::SETTLED));
        if !is_settled || self.needs_refresh(pkt, flow) {
            return true;
        }
        let track = self.table.session(id).track;
        let (mut after, mut acks) = (track, self.acks(id));
        let input = self.track_input(pkt, flow);
        let verdict = after.update(flow.direction(), &input, &mut acks, &self.settings).verdict;
        after != track || verdict != TrackVerdict::Pass
    }

    /// Whether the flow has no current decision, or a packet matches a stateful rule that the session lacks.
    fn needs_refresh<E: Environment, P: PacketBuf>(&self, pkt: &SlowPacket<'_, E, P>, flow: FlowRef) -> bool {
        let stamp = self.cache.decisions.stamp(pkt.in_port);
        !self.cache.decisions.is_current(self.table.flow(flow).decision(), stamp)
            || self.has_new_rules(pkt, flow)
    }

    /// Whether a packet matches a stateful rule that the session lacks.
    fn has_new_rules<E: Environment, P: PacketBuf>(&self, pkt: &SlowPacket<'_, E, P>, flow: FlowRef) -> bool {
        let rule_list = self.table.session(flow.session()).rule_list;
        pkt.stateful_slots().any(|slot| !self.rules.lists.contains(rule_list, slot))
    }

    /// Returns why all packets of the session are dropped, if a function has refused it.
    pub(crate) fn refusal(&self, id: SessionId) -> Option<DropReason> {
        self.chains.layout.refusal(&self.table, id, self.cache.decisions.epoch())
    }

    /// Returns what the tracker sees of a packet: sequence numbers as the originator of the session sees
    /// them.
    fn track_input<E: Environment, P: PacketBuf>(
        &self,
        pkt: &SlowPacket<'_, E, P>,
        flow: FlowRef,
    ) -> TrackInput {
        let mut input = TrackInput::of(pkt.packet.head(), pkt.meta);
        if flow.direction() == Direction::Reverse
            && let TrackInput::Tcp(segment) = &mut input
            && let Some(mangle) = self.chains.layout.mangle(&self.table, flow.session())
        {
            segment.ack = segment.ack.wrapping_sub(mangle.sequence);
            segment.seq = segment.seq.wrapping_sub(mangle.acknowledgment);
        }
        input
    }

    /// Returns the highest acknowledgement numbers of both directions.
    pub(crate) fn acks(&self, id: SessionId) -> [u32; 2] {
        DIRECTIONS.map(|direction| self.table.flow(FlowRef::new(id, direction)).ack)
    }

    /// Stores the highest acknowledgement numbers of both directions.
    pub(crate) fn set_acks(&mut self, id: SessionId, acks: [u32; 2]) {
        for (direction, ack) in DIRECTIONS.into_iter().zip(acks) {
            self.table.flow_mut(FlowRef::new(id, direction)).ack = ack;
        }
    }

    /// Refreshes the rules of the session and the decision of the flow. Returns `false` if nothing keeps the
    /// session any more.
    fn refresh_rules<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &SlowPacket<'_, E, P>,
        flow: FlowRef,
    ) -> bool {
        let policy = pkt.env.policy();
        let &SessionState { rule_list, mapping, flags, .. } = self.table.session(flow.session());
        let stamp = self.cache.decisions.stamp(pkt.in_port);
        if !self.needs_refresh(pkt, flow) {
            return true;
        }
        let has_new_rules = self.has_new_rules(pkt, flow);
        let mut list = std::mem::take(&mut self.rules.buffer);
        list.clear();
        list.extend(self.rules.lists.get(rule_list));
        let lost_translation = list.iter().any(|rule| rule.translates && !rule.is_alive(policy));
        list.retain(|rule| rule.is_alive(policy));
        let has_cause = !list.is_empty() || flags & session_flags::RULELESS != 0;
        let has_mapping = mapping == u32::MAX || self.nat.pools.is_live(MappingId(mapping));
        for rule in pkt.stateful_slots().filter_map(|slot| SessionRule::new(policy, slot, false)) {
            attached::insert(&mut list, rule);
        }
        let lives = has_cause
            && has_mapping
            && !lost_translation
            && self.chains.update(&mut self.table, pkt, flow, &list);
        if lives {
            self.rules.replace_list(&mut self.table, flow, &list);
            if has_new_rules {
                // The other flow needs another decision, too.
                self.cache.replace_decision(&mut self.table, flow.opposite(), 0, pkt.env);
            }
            let number = self.acquire_decision(pkt, &list, stamp);
            self.cache.replace_decision(&mut self.table, flow, number, pkt.env);
        }
        self.rules.buffer = list;
        lives
    }

    /// Acquires the decision of the session's rules and of the rules that match all packets of the flow.
    pub(crate) fn acquire_decision<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &SlowPacket<'_, E, P>,
        list: &[SessionRule],
        stamp: u32,
    ) -> u32 {
        let policy = pkt.env.policy();
        let mut slots = std::mem::take(&mut self.rules.slots);
        slots.clear();
        slots.extend(list.iter().map(|rule| rule.slot));
        let matching = pkt.hits.iter().map(|hit| hit.slot);
        slots.extend(matching.filter(|&slot| policy.rule_info(slot).scope == RuleScope::Session));
        slots.sort_unstable();
        slots.dedup();
        let number = self.acquire_decision_of(pkt, &slots, stamp);
        self.rules.slots = slots;
        number
    }

    /// Acquires the decision of the rules in these slots.
    pub(crate) fn acquire_decision_of<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &SlowPacket<'_, E, P>,
        slots: &[u32],
        stamp: u32,
    ) -> u32 {
        // No rules were matched against a looped packet: its decision must not remain valid.
        let stamp = if pkt.is_looped() { 0 } else { stamp };
        self.counters.decided += 1;
        self.cache.decisions.acquire(pkt.env.policy(), stamp, slots)
    }

    /// Learns from a reply what was unknown when the session was opened: the location of a host inside, and
    /// the answering side's first sequence number.
    fn learn_from_reply<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &SlowPacket<'_, E, P>,
        flow_ref: FlowRef,
    ) {
        if flow_ref.direction() == Direction::Forward {
            return;
        }
        let id = flow_ref.session();
        let (session, flow) = (self.table.session(id), self.table.flow(flow_ref));
        if !flow.flags.contains(FlowFlags::SEEN)
            && session.flags & session_flags::INBOUND != 0
            && let Some(&[.., a, b, c, d, e, f]) = pkt.packet.head().first_chunk::<12>()
        {
            let inside = HostLocation { mac: [a, b, c, d, e, f], in_port: pkt.in_port };
            self.nat.pools.learn(MappingId(session.mapping), inside);
        }
        if self.chains.layout.awaits_isn(&self.table, id)
            && let TrackInput::Tcp(segment) = TrackInput::of(pkt.packet.head(), pkt.meta)
            && segment.flags & TcpSegment::SYN != 0
        {
            self.chains.layout.set_isn(&mut self.table, id, segment.seq);
        }
    }

    /// Counts a packet that passes, and applies the tracker's outcome.
    fn record_packet<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &SlowPacket<'_, E, P>,
        flow_ref: FlowRef,
        outcome: &TrackOutcome,
    ) {
        let id = flow_ref.session();
        self.cache.settle(&mut self.table, flow_ref, pkt.env);
        let flow = self.table.flow_mut(flow_ref);
        flow.count(1, pkt.bytes());
        flow.last_seen = pkt.now;
        flow.flags |= FlowFlags::SEEN;
        self.table.session_mut(id).in_port[flow_ref.direction() as usize] = pkt.in_port;
        self.apply_tracking(pkt.now, id, outcome);
    }

    /// Applies the tracker's outcome for a packet of this time: settled flows and the timer.
    pub(crate) fn apply_tracking(&mut self, now: u32, id: SessionId, outcome: &TrackOutcome) {
        let flags = self.table.session(id).flags;
        for direction in DIRECTIONS {
            let at = direction as usize;
            let flow = self.table.flow_mut(FlowRef::new(id, direction));
            match outcome.settled[at] && flags & session_flags::LOOPS[at] == 0 {
                true => flow.flags |= FlowFlags::SETTLED,
                false => flow.flags &= !FlowFlags::SETTLED,
            }
        }
        if !outcome.embryonic {
            self.table.remove_embryonic(id);
        }
        let deadline = now.wrapping_add(outcome.timeout);
        // A later deadline is computed when the timer fires.
        if (deadline.wrapping_sub(self.table.deadline(id)) as i32) < 0 {
            self.table.arm_timer(id, deadline);
        }
    }
}
