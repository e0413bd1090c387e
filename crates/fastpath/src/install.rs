//! Installing learned flows: at once, or together with the other direction of their session.

use mmb_dpdk::{FastKey, FastNumbers};
use mmb_session::{AddedNumbers, OffloadCandidate, OffloadSource, OffloadState};

use crate::entries::InstallError;
use crate::host::FastPathHost;
use crate::learn::{LearnedFlow, TCP};
use crate::learner::FlowLearner;
use crate::refusal::{FastCounters, RefusalReason};

impl FlowLearner {
    /// Installs a flow. A flow of a session is installed together with the other direction, once that is
    /// learned too.
    pub(crate) fn settle(
        &mut self,
        flow: LearnedFlow,
        sessions: &mut impl OffloadSource,
        host: &impl FastPathHost,
        counters: &FastCounters,
    ) {
        let Some(session) = flow.credit.session else {
            return self.install(flow, sessions, host, counters);
        };
        match sessions.offload_state(session, flow.credit.ingress.id) {
            OffloadState::Ended => {}
            OffloadState::Ineligible => self.refuse(&flow.flow, RefusalReason::Session, counters),
            _ if !has_current_numbers(&flow, session, sessions) => {
                self.refuse(&flow.flow, RefusalReason::Session, counters);
            }
            OffloadState::Eligible { reply_settled } if reply_settled || flow.is_frequent => {
                self.settle_eligible(flow, session, sessions, host, counters);
            }
            OffloadState::AwaitingAck { expected_ack } => {
                self.settle_answered(flow, (session, expected_ack), sessions, host, counters);
            }
            OffloadState::Eligible { .. } | OffloadState::Unsettled => {
                self.pending.insert(session, Box::new(flow));
            }
        }
    }

    /// Installs a flow of an open session, and the other direction if it is pending.
    fn settle_eligible(
        &mut self,
        flow: LearnedFlow,
        session: OffloadCandidate,
        sessions: &mut impl OffloadSource,
        host: &impl FastPathHost,
        counters: &FastCounters,
    ) {
        let other = self.pending.take(session.other());
        let is_admitted =
            flow.is_paid || (other.is_some() || flow.is_frequent) && self.budget.try_spend(true);
        let Some(other) = other else {
            if is_admitted {
                self.install(flow, sessions, host, counters);
            }
            return;
        };
        if !is_admitted {
            return self.pending.insert(session.other(), other);
        }
        self.install(flow, sessions, host, counters);
        let state = sessions.offload_state(session.other(), other.credit.ingress.id);
        let is_current = has_current_numbers(&other, session.other(), sessions);
        if let (OffloadState::Eligible { .. }, true) = (state, is_current) {
            self.install(*other, sessions, host, counters);
        }
    }

    /// Installs both directions of a TCP connection that lacks only the acknowledgement of its answer, if
    /// both are learned.
    fn settle_answered(
        &mut self,
        mut flow: LearnedFlow,
        (session, expected_ack): (OffloadCandidate, Option<u32>),
        sessions: &mut impl OffloadSource,
        host: &impl FastPathHost,
        counters: &FastCounters,
    ) {
        let Some(mut other) = self.pending.take(session.other()) else {
            return self.pending.insert(session, Box::new(flow));
        };
        let state = sessions.offload_state(session.other(), other.credit.ingress.id);
        let OffloadState::AwaitingAck { expected_ack: others } = state else { return };
        self.budget.count_answer();
        if !(flow.is_paid || other.is_paid || self.budget.try_spend(false)) {
            return;
        }
        (flow.action.awaited_ack, other.action.awaited_ack) = (expected_ack, others);
        self.install(flow, sessions, host, counters);
        self.install(*other, sessions, host, counters);
    }

    /// Installs one flow, unless its generation is no longer in force or it is installed already.
    fn install(
        &mut self,
        flow: LearnedFlow,
        sessions: &mut impl OffloadSource,
        host: &impl FastPathHost,
        counters: &FastCounters,
    ) {
        let (Some(config), Some(entries)) = (&self.config, &mut self.entries) else { return };
        let LearnedFlow { flow, action, generation, credit, .. } = flow;
        if generation != self.generation || entries.contains(&flow.key, generation) {
            return;
        }
        let session = credit.session;
        match entries.install(&*config.kernel, (&flow.key, &action), generation, credit, self.now) {
            Ok(slot) => {
                if let Some(session) = session {
                    sessions.offload(self.now, session, slot, host);
                }
                counters.installed.add(1);
                counters.entries.set(entries.len() as u64);
            }
            Err(InstallError::Full) => self.refuse(&flow, RefusalReason::Full, counters),
            Err(InstallError::Kernel(_)) => self.refuse(&flow, RefusalReason::Kernel, counters),
        }
    }
}

/// Whether the session still adds to the numbers of segments what it has added to the sampled one. It changes
/// when functions that edit leave.
fn has_current_numbers(flow: &LearnedFlow, session: OffloadCandidate, sessions: &impl OffloadSource) -> bool {
    flow.action.numbers == numbers_of(&flow.flow.key, sessions.added_numbers(session))
}

/// Returns what the kernel is to add to the numbers of a session's flow. `None`: nothing.
pub(crate) fn numbers_of(key: &FastKey, added: AddedNumbers) -> Option<FastNumbers> {
    let AddedNumbers { sequence, acknowledgment, timestamp, echo, window_shift } = added;
    let numbers = FastNumbers { sequence, acknowledgment, timestamp, echo, window_shift };
    (key.proto == TCP && !numbers.is_zero()).then_some(numbers)
}
