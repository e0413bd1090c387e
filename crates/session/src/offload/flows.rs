//! The offloaded flows of a worker.

use std::collections::HashMap;
use std::fmt;

use foldhash::fast::RandomState;
use mmb_flow::SessionId;

use super::{OffloadCounters, OffloadDriver};

/// An offloaded flow.
#[derive(Clone, Copy)]
pub(super) struct OffloadedFlow {
    /// The driver's slot.
    pub slot: u32,
    /// Packets collected so far.
    pub packets: u64,
    /// Bytes collected so far.
    pub bytes: u64,
    /// The rules have not changed since the flow was offloaded: they get what is counted.
    pub credits_rules: bool,
    /// Added to the flow's acknowledgement numbers, which the driver counts before.
    pub added_ack: u32,
}

impl OffloadedFlow {
    /// A flow of which nothing was collected yet.
    pub fn new(slot: u32, added_ack: u32) -> OffloadedFlow {
        OffloadedFlow { slot, packets: 0, bytes: 0, credits_rules: true, added_ack }
    }
}

/// The flows of a session, by direction.
pub(super) type FlowPair = [Option<OffloadedFlow>; 2];

/// All offloaded flows of a worker.
#[derive(Default)]
pub(crate) struct OffloadedFlows {
    driver: Option<Box<dyn OffloadDriver>>,
    by_session: HashMap<SessionId, FlowPair, RandomState>,
    /// The last [`mmb_nf::Runner::revision`] for which they were checked.
    revision: u64,
    /// Slots that were revoked and not yet reported to the driver's owner.
    revoked: Vec<u32>,
}

impl fmt::Debug for OffloadedFlows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OffloadedFlows").field("sessions", &self.by_session.len()).finish_non_exhaustive()
    }
}

impl OffloadedFlows {
    /// Creates an empty set with a driver.
    pub(super) fn new(driver: Box<dyn OffloadDriver>) -> OffloadedFlows {
        OffloadedFlows { driver: Some(driver), ..OffloadedFlows::default() }
    }

    /// Whether nothing is offloaded.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.by_session.is_empty()
    }

    /// Returns the flows of a session, if one of them is offloaded.
    pub(super) fn get(&self, id: SessionId) -> Option<FlowPair> {
        self.by_session.get(&id).copied()
    }

    /// Stores the flows of a session.
    pub(super) fn set(&mut self, id: SessionId, flows: FlowPair) {
        if flows.iter().all(Option::is_none) {
            self.by_session.remove(&id);
        } else {
            self.by_session.insert(id, flows);
        }
    }

    /// Returns the sessions with offloaded flows.
    pub fn sessions(&self) -> Vec<SessionId> {
        self.by_session.keys().copied().collect()
    }

    /// Notes the revision of the functions of chains. Returns whether it is another one than before.
    pub(super) fn set_revision(&mut self, revision: u64) -> bool {
        std::mem::replace(&mut self.revision, revision) != revision
    }

    /// From now on, rules get nothing of what is counted for the flows that are offloaded now.
    pub(super) fn detach_rules(&mut self) {
        self.by_session.values_mut().flatten().flatten().for_each(|flow| flow.credits_rules = false);
    }

    /// Returns what the driver has counted for each flow, with acknowledgement numbers as the tracker counts.
    pub(super) fn counters(&self, flows: &FlowPair) -> [Option<OffloadCounters>; 2] {
        flows.map(|flow| {
            let OffloadedFlow { slot, added_ack, .. } = flow?;
            let counters = self.driver.as_ref()?.counters(slot);
            Some(OffloadCounters { ack: counters.ack.map(|ack| ack.wrapping_add(added_ack)), ..counters })
        })
    }

    /// Records a slot as revoked.
    pub(super) fn push_revoked(&mut self, slot: u32) {
        self.revoked.push(slot);
    }

    /// Removes and returns a revoked slot.
    pub(super) fn pop_revoked(&mut self) -> Option<u32> {
        self.revoked.pop()
    }

    /// Makes the driver stop forwarding for these flows.
    pub(super) fn stop(&self, flows: &FlowPair) {
        if let Some(driver) = &self.driver {
            flows.iter().flatten().for_each(|flow| driver.revoke(flow.slot));
        }
    }

    /// Removes a session whose flows were stopped.
    pub(super) fn remove(&mut self, id: SessionId) {
        let flows = self.by_session.remove(&id).unwrap_or_default();
        self.revoked.extend(flows.iter().flatten().map(|flow| flow.slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl OffloadDriver for Nothing {
        fn revoke(&self, _: u32) {}

        fn counters(&self, slot: u32) -> OffloadCounters {
            OffloadCounters { packets: u64::from(slot), ..OffloadCounters::default() }
        }
    }

    #[test]
    fn a_removed_session_reports_its_slots_as_revoked() {
        let mut flows = OffloadedFlows::new(Box::new(Nothing));
        let flow = |slot| Some(OffloadedFlow::new(slot, 0));
        let pair = [flow(7), flow(9)];
        flows.set(SessionId(1), pair);
        assert_eq!(flows.counters(&pair).map(|counters| counters.map(|c| c.packets)), [Some(7), Some(9)]);
        flows.remove(SessionId(1));
        assert!(flows.is_empty() && flows.get(SessionId(1)).is_none());
        assert_eq!([flows.pop_revoked(), flows.pop_revoked(), flows.pop_revoked()], [Some(9), Some(7), None]);
    }
}
