//! A worker's part of the fast path.

use std::sync::Arc;

use mmb_dpdk::{FAST_SLOTS, FastGranularity, FastKey, Packet, Slots};
use mmb_packet::{Meta, parse};
use mmb_session::{OffloadSource, OffloadState};

use crate::config::FastPathConfig;
use crate::entries::{CounterDelta, Entries, SWEEP_INTERVAL};
use crate::generation::{self, FastPathState};
use crate::heartbeat;
use crate::host::{FastPathHost, PortSide, TxContext};
use crate::kernel::SessionDriver;
use crate::learn::{
    LearnedFlow, LearningBudget, PacketRole, PendingFlows, SampleCache, SampledFlow, SampledPackets,
    SessionTreatment, Treatment, frame_of, has_syn, is_tcp_answer, learn, packet_role, parse_key,
};
use crate::refusal::{FastCounters, RefusalReason};

/// Bytes of a frame that is copied without regard to its cost.
const SHORT_FRAME: usize = 256;
/// Packets of a vector that are considered for sampling, at most.
const CONSIDERED_MAX: usize = 32;

/// The flows that a worker learns and has installed.
pub struct FlowLearner {
    is_learning: bool,
    needs_maintenance: bool,
    pub(crate) config: Option<Arc<FastPathConfig>>,
    samples: SampleCache,
    pub(crate) entries: Option<Entries>,
    pub(crate) budget: LearningBudget,
    sampled: SampledPackets,
    /// For the first segment of a large frame.
    scratch: Vec<u8>,
    /// Flows learned in this walk, to be installed before the next one.
    learned: Vec<LearnedFlow>,
    /// Flows learned from TCP answers, to be installed before the answers are sent.
    urgent: Vec<LearnedFlow>,
    pub(crate) pending: PendingFlows,
    /// The next position of a vector to consider.
    next_position: usize,
    /// The time of this walk.
    pub(crate) now: u32,
    /// The generation in force when this walk began.
    pub(crate) generation: u64,
    /// How many sessions had ended when this walk began.
    removals: u32,
    worker: usize,
    /// The time of the last heartbeat, while there are entries.
    last_beat: Option<u32>,
}

impl Default for FlowLearner {
    fn default() -> FlowLearner {
        FlowLearner {
            is_learning: false,
            needs_maintenance: false,
            config: None,
            samples: SampleCache::new(),
            entries: None,
            budget: LearningBudget::default(),
            sampled: SampledPackets::default(),
            scratch: Vec::new(),
            learned: Vec::new(),
            urgent: Vec::new(),
            pending: PendingFlows::default(),
            next_position: 0,
            now: 0,
            generation: 0,
            removals: 0,
            worker: 0,
            last_beat: None,
        }
    }
}

impl FlowLearner {
    /// Whether flows are learned: packets must be passed to [`FlowLearner::sample`].
    #[inline(always)]
    pub fn is_learning(&self) -> bool {
        self.is_learning
    }

    /// Whether [`FlowLearner::maintain`] must be called between two walks.
    #[inline(always)]
    pub fn needs_maintenance(&self) -> bool {
        self.needs_maintenance
    }

    /// Whether sampled packets are under way: sent packets must be passed to [`FlowLearner::learn_from_tx`].
    #[inline(always)]
    pub fn has_samples(&self) -> bool {
        !self.sampled.is_empty()
    }

    /// Whether a sweep over all entries is in progress, so that the worker should not sleep.
    pub fn is_sweeping(&self) -> bool {
        self.entries.as_ref().is_some_and(Entries::is_sweeping)
    }

    /// Milliseconds until the next sweep, if there are entries.
    pub fn next_sweep(&self) -> Option<u32> {
        self.entries.as_ref().filter(|entries| entries.len() > 0).map(|_| SWEEP_INTERVAL)
    }

    /// Adopts a new configuration. `worker` is one of `workers`.
    pub fn adopt(
        &mut self,
        config: Option<&Arc<FastPathConfig>>,
        (worker, workers): (usize, usize),
        sessions: &mut impl OffloadSource,
    ) {
        self.is_learning = config.is_some_and(|config| config.is_learning);
        self.worker = worker;
        if let Some(config) = config {
            let is_other = |old: &Arc<FastPathConfig>| !old.has_same_kernel(config);
            if self.config.as_ref().is_none_or(is_other) {
                // The ports of the old entries are closed, and the kernel's table is gone.
                self.entries = None;
                sessions.set_offload_driver(Box::new(SessionDriver(config.kernel.clone())));
            }
            self.config = Some(config.clone());
        }
        if self.is_learning {
            self.entries.get_or_insert_with(|| Entries::new(slots_of(worker, workers)));
            self.samples.clear();
            self.pending.clear();
        }
        self.needs_maintenance = self.is_learning || self.has_entries();
    }

    fn has_entries(&self) -> bool {
        self.entries.as_ref().is_some_and(|entries| entries.len() > 0)
    }

    /// Samples received packets that are worth it. `handed_off`: another worker has received them.
    pub fn sample(&mut self, slots: &mut Slots<'_>, handed_off: bool) {
        let n = slots.len();
        let considered = if self.budget.is_ample() { n.min(CONSIDERED_MAX) } else { n.min(1) };
        for step in 1..=considered {
            if let Some(packet) = slots.get_mut((self.next_position + step) % n) {
                self.sample_packet(packet, handed_off);
            }
        }
        self.next_position = self.next_position.wrapping_add(considered) & 0xffff;
    }

    fn sample_packet(&mut self, packet: &Packet, handed_off: bool) {
        let mut scratch = std::mem::take(&mut self.scratch);
        if let Some(frame) = frame_of(packet, &mut scratch) {
            self.sample_frame(packet, frame, handed_off);
        }
        self.scratch = scratch;
    }

    fn sample_frame(&mut self, packet: &Packet, data: &[u8], handed_off: bool) {
        let (Some(config), Some(entries)) = (&self.config, &mut self.entries) else { return };
        let Some(ingress) = config.ingress(packet.port()) else { return };
        if !self.sampled.has_room(data.len()) {
            return;
        }
        let Some(key) = parse_key(ingress.number, data) else { return };
        let (key, role) = match generation::granularity(self.generation) {
            FastGranularity::Destination => {
                (FastKey::for_destination(key.port, key.destination), PacketRole::First)
            }
            FastGranularity::Pair if config.is_pair(packet.port(), &key) => {
                (key.without_ports(), PacketRole::First)
            }
            _ => (key, packet_role(&key, data, config.needs_sessions)),
        };
        if role == PacketRole::Last {
            return;
        }
        let flow = SampledFlow { key, handed_off };
        let Some(is_frequent) = self.samples.count(&flow, packet.is_large(), self.now) else { return };
        if entries.contains(&key, self.generation) {
            return;
        }
        let (is_admitted, is_paid) = match role {
            // A session's first direction may be waiting for this packet, unless copying it is expensive.
            PacketRole::Later if config.needs_sessions => {
                (self.budget.is_available() && (is_frequent || data.len() <= SHORT_FRAME), false)
            }
            PacketRole::Later if !is_frequent => (false, false),
            PacketRole::Opening => (self.budget.try_spend_opening(), false),
            _ => (self.budget.try_spend(is_frequent), true),
        };
        if is_admitted {
            self.sampled.insert((packet, data), flow, is_frequent, is_paid);
        }
    }

    /// Learns from a packet that is about to be sent, if it was sampled. `match_rules` returns the slots of
    /// the rules that match the packet as it was received (its bytes and ingress port), each as often as it
    /// was counted.
    pub fn learn_from_tx<H: FastPathHost>(
        &mut self,
        packet: &Packet,
        context: &TxContext<'_, H>,
        sessions: &mut impl OffloadSource,
        match_rules: impl FnOnce(&[u8], u16) -> Result<Vec<u32>, RefusalReason>,
    ) {
        let Some(sample) = self.sampled.take(packet) else { return };
        let Some(config) = &self.config else { return };
        let received = self.sampled.received(&sample);
        let mut scratch = Vec::new();
        let Some(sent) = frame_of(packet, &mut scratch) else {
            return self.refuse(&sample.flow, RefusalReason::Otherwise, context.counters);
        };
        let treatment = if !context.host.has_rules(sample.port) {
            Ok(Treatment::Rules(Vec::new()))
        } else if config.needs_sessions {
            self.find_session((received, sample.port), sent, sessions)
        } else {
            match_rules(received, sample.port).map(Treatment::Rules)
        };
        let learned = treatment
            .and_then(|treatment| learn(config, context, (&sample, received), (packet, sent), treatment));
        match learned {
            Ok(flow) => {
                let is_urgent = flow.credit.session.is_some() && is_tcp_answer(&sample.flow.key, received);
                if is_urgent { &mut self.urgent } else { &mut self.learned }.push(flow);
            }
            Err(reason) => {
                let may_pass = reason.may_pass() || has_syn(&sample.flow.key, received);
                self.refuse_or_forgive(&sample.flow, (reason, may_pass), context.counters);
            }
        }
        while let Some(flow) = self.urgent.pop() {
            self.settle(flow, sessions, context.host, context.counters);
        }
    }

    /// The session that has treated a sampled packet.
    fn find_session(
        &self,
        (received, port): (&[u8], u16),
        sent: &[u8],
        sessions: &impl OffloadSource,
    ) -> Result<Treatment, RefusalReason> {
        let parsed = |frame: &[u8]| {
            let mut meta = Meta::default();
            parse(frame, frame.len(), &mut meta).map_err(|_| RefusalReason::Otherwise)?;
            Ok::<Meta, RefusalReason>(meta)
        };
        let session =
            sessions.offload_candidate(received, &parsed(received)?).ok_or(RefusalReason::Session)?;
        // If a session has ended in this walk, the one found may be a new one; then it must do the same to
        // the packet.
        if sessions.removals() != self.removals && !sessions.is_translated_to(session, sent, &parsed(sent)?) {
            return Err(RefusalReason::Session);
        }
        if sessions.offload_state(session, port) == OffloadState::Ineligible {
            // A packet that functions have changed teaches nothing.
            return Err(RefusalReason::Session);
        }
        Ok(Treatment::Session(SessionTreatment {
            candidate: session,
            added: sessions.added_numbers(session),
            may_pass_fins: sessions.may_pass_fins(session),
        }))
    }

    /// Counts a refusal, and suspends the flow. The first ones whose reason may pass do not suspend it.
    pub(crate) fn refuse(&mut self, flow: &SampledFlow, reason: RefusalReason, counters: &FastCounters) {
        self.refuse_or_forgive(flow, (reason, reason.may_pass()), counters);
    }

    /// As [`FlowLearner::refuse`]; `may_pass`: whether what this packet was refused for may pass.
    fn refuse_or_forgive(
        &mut self,
        flow: &SampledFlow,
        (reason, may_pass): (RefusalReason, bool),
        counters: &FastCounters,
    ) {
        counters.count_refusal(reason);
        self.samples.refuse(flow, self.now, (reason.suspension(), may_pass));
    }

    /// Installs the flows of the last walk, revokes what sessions have revoked, and credits what the kernel
    /// has counted. To be called between two walks.
    pub fn maintain<H: FastPathHost>(
        &mut self,
        (now, state): (u32, &FastPathState),
        sessions: &mut impl OffloadSource,
        host: &H,
        counters: &FastCounters,
    ) {
        let in_force = state.in_force();
        self.beat(now, state);
        if in_force != self.generation {
            // Flows that were refused may be eligible now.
            self.samples.clear();
        }
        (self.now, self.generation, self.removals) = (now, in_force, sessions.removals());
        while let Some(flow) = self.sampled.pop_unsent() {
            self.refuse(&flow, RefusalReason::NotSent, counters);
        }
        self.budget.refill(now);
        while let Some(flow) = self.learned.pop() {
            self.settle(flow, sessions, host, counters);
        }
        let (Some(config), Some(entries)) = (&self.config, &mut self.entries) else { return };
        while let Some(slot) = sessions.next_revoked() {
            entries.revoke(&*config.kernel, slot, now);
        }
        let before = entries.len();
        let budget = &mut self.budget;
        entries.sweep(&*config.kernel, in_force, now, |delta| {
            budget.earn(delta.earned);
            credit(&delta, host, counters);
            if let Some(session) = delta.credit.session {
                sessions.collect_offloaded(now, session, delta.slot, delta.is_final, host);
            }
        });
        if entries.len() != before {
            counters.entries.set(entries.len() as u64);
            self.needs_maintenance = self.is_learning || self.has_entries();
        }
    }
}

impl FlowLearner {
    /// Tells the kernel from time to time that the workers are alive.
    #[inline]
    fn beat(&mut self, now: u32, state: &FastPathState) {
        if !self.has_entries() {
            if self.last_beat.take().is_some() {
                state.heartbeats.clear(self.worker);
            }
        } else if self.last_beat.is_none_or(|last| now.wrapping_sub(last) >= heartbeat::INTERVAL) {
            self.last_beat = Some(now);
            let age = state.heartbeats.note(self.worker, now);
            if let Some(config) = &self.config {
                config.kernel.beat(age);
            }
        }
    }
}

/// Credits packets that the kernel has forwarded. Rules and ports that no longer exist or were replaced get
/// nothing.
fn credit(delta: &CounterDelta<'_>, host: &impl FastPathHost, counters: &FastCounters) {
    counters.packets.add(delta.packets);
    counters.bytes.add(delta.bytes);
    let (ingress, egress) = (delta.credit.ingress, delta.credit.egress);
    for (side, port) in [(PortSide::Ingress, ingress), (PortSide::Egress, egress)] {
        host.count_forwarded(port.id, port.number, side, delta.packets, delta.bytes);
    }
    let packets = u32::try_from(delta.packets).unwrap_or(u32::MAX);
    for rule in &delta.credit.rules {
        if host.policy().rule_id(rule.slot) == Some(rule.id) {
            host.count(rule.slot, packets, delta.bytes);
        }
    }
}

/// The slots of one of `workers`.
fn slots_of(worker: usize, workers: usize) -> std::ops::Range<u32> {
    let each = (FAST_SLOTS - 1) / workers as u32;
    let first = 1 + worker as u32 * each;
    first..first + each
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_share_all_slots_but_the_first() {
        for workers in 1..=32 {
            let mut next = 1;
            for worker in 0..workers {
                let slots = slots_of(worker, workers);
                assert_eq!(slots.start, next);
                assert!(slots.len() > 4000);
                next = slots.end;
            }
            assert!(next <= FAST_SLOTS);
        }
    }
}
