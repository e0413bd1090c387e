//! Sessions as the source of offloaded flows.

use mmb_flow::{Direction, FlowFlags, SessionFlags, parse_key};
use mmb_packet::Meta;

use super::flows::{OffloadedFlow, OffloadedFlows};
use super::{AddedNumbers, OffloadCandidate, OffloadDriver, OffloadSource, OffloadState};
use crate::chains::has_chain;
use crate::established::decisions::DecisionFlags;
use crate::sessions::Sessions;
use crate::store::SessionStore;
use crate::{Environment, tracking};

/// Flags of sessions that exclude offload.
const EXCLUDED_SESSIONS: SessionFlags =
    SessionFlags::LOOP_FORWARD.union(SessionFlags::LOOP_REVERSE).union(SessionFlags::REFUSED);

impl SessionStore {
    /// Revokes the offloaded flows of sessions whose functions have to see all packets again.
    pub(crate) fn revoke_changed(&mut self, now: u32, env: &impl Environment) {
        if self.offloaded.is_empty() || !self.offloaded.set_revision(self.chains.runner.revision()) {
            return;
        }
        for id in self.offloaded.sessions() {
            if self.chains.constant_rewrite(&self.table, id).is_none() {
                self.revoke(now, id, env);
            }
        }
    }
}

impl OffloadSource for Sessions {
    fn set_offload_driver(&mut self, driver: Box<dyn OffloadDriver>) {
        self.store.offloaded = OffloadedFlows::new(driver);
    }

    fn removals(&self) -> u32 {
        self.store.lifetime.removals
    }

    fn offload_candidate(&self, head: &[u8], meta: &Meta) -> Option<OffloadCandidate> {
        let (flow, _) = self.store.table.find_with_hash(&parse_key(head, meta).ok()?);
        flow.is_some().then(|| OffloadCandidate { flow, uid: self.store.table.uid(flow.session()) })
    }

    fn is_translated_to(&self, candidate: OffloadCandidate, head: &[u8], meta: &Meta) -> bool {
        let flow = candidate.flow;
        let decided = self.store.cache.decisions.flags(self.store.table.flow(flow).decision());
        let key = self.store.table.key(flow.opposite()).reversed();
        !decided.contains(DecisionFlags::EDIT) && parse_key(head, meta).is_ok_and(|sent| sent == key)
    }

    fn offload_state(&self, candidate: OffloadCandidate, in_port: u16) -> OffloadState {
        let OffloadCandidate { flow: flow_ref, uid } = candidate;
        let id = flow_ref.session();
        if self.store.table.uid(id) != uid {
            return OffloadState::Ended;
        }
        if self.store.kept == Some((id, uid)) {
            return OffloadState::Ineligible;
        }
        let (flow, reply) = (self.store.table.flow(flow_ref), self.store.table.flow(flow_ref.opposite()));
        let (number, decisions) = (flow.decision(), &self.store.cache.decisions);
        let (records, flags) = (&self.store.chains.records, self.store.table.session(id).flags);
        let is_plain = !flow.flags.contains(FlowFlags::REDIRECT)
            && !flags.intersects(EXCLUDED_SESSIONS)
            && self.store.table.broker(id).is_none()
            && (!flags.contains(SessionFlags::MANGLE) || records.has_only_numbers(id))
            && decisions.is_current(number, decisions.stamp(in_port))
            && !decisions.flags(number).intersects(DecisionFlags::MAY_DROP)
            && self.store.chains.constant_rewrite(&self.store.table, id).is_some();
        if !is_plain || self.store.cache.has_per_packet_rules || self.store.settings.tcp_window_check {
            return OffloadState::Ineligible;
        }
        if flow.flags.contains(FlowFlags::SETTLED) {
            return OffloadState::Eligible { reply_settled: reply.flags.contains(FlowFlags::SETTLED) };
        }
        match self.store.table.track(id).awaited_ack(&tracking::acks(&self.store.table, id)) {
            Some(ack) => OffloadState::AwaitingAck {
                expected_ack: (flow_ref.direction() == Direction::Forward).then_some(ack),
            },
            None => OffloadState::Unsettled,
        }
    }

    fn added_numbers(&self, candidate: OffloadCandidate) -> AddedNumbers {
        let SessionStore { table, chains, .. } = &self.store;
        let (id, direction) = (candidate.flow.session(), candidate.flow.direction());
        let rewrite = chains.constant_rewrite(table, id).unwrap_or_default();
        let (sequence, acknowledgment) = chains.records.added_numbers(table, candidate.flow);
        AddedNumbers {
            sequence,
            acknowledgment,
            timestamp: rewrite.timestamp(direction),
            echo: rewrite.echo(direction),
            window_shift: rewrite.window_shift(direction),
        }
    }

    fn may_pass_fins(&self, candidate: OffloadCandidate) -> bool {
        let (table, id) = (&self.store.table, candidate.flow.session());
        // Functions of a chain read FINs, and where they edit, numbers differ.
        !has_chain(table, id) && !table.session(id).flags.contains(SessionFlags::MANGLE)
    }

    fn offload(&mut self, now: u32, candidate: OffloadCandidate, slot: u32, env: &impl Environment) {
        let (id, direction) = (candidate.flow.session(), candidate.flow.direction() as usize);
        let mut flows = self.store.offloaded.get(id).unwrap_or_default();
        if let Some(old) = flows[direction] {
            let SessionStore { offloaded, table, cache, settings, .. } = &mut self.store;
            offloaded.collect_pair(now, id, &mut flows, (table, cache, settings), env);
            self.store.offloaded.push_revoked(old.slot);
        }
        let added_ack = self.store.chains.records.tracked_ack(&self.store.table, candidate.flow, 0);
        flows[direction] = Some(OffloadedFlow::new(slot, added_ack));
        self.store.offloaded.set(id, flows);
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
        let Some(mut flows) = self.store.offloaded.get(id) else { return };
        if flows[direction].is_none_or(|flow| flow.slot != slot) {
            return;
        }
        let SessionStore { offloaded, table, cache, settings, .. } = &mut self.store;
        offloaded.collect_pair(now, id, &mut flows, (table, cache, settings), env);
        if ended {
            flows[direction] = None;
        }
        self.store.offloaded.set(id, flows);
        if self.store.table.track(id).has_both_fins() {
            self.store.revoke(now, id, env);
        }
    }

    fn next_revoked(&mut self) -> Option<u32> {
        self.store.offloaded.pop_revoked()
    }
}
