//! Deferred counters: packets counted by flows and not yet added to rules.
//!
//! Theory of operation. With many decisions, decisions are out of the near caches. A packet would wait for
//! memory only to find that its decision is valid and to count. Therefore a flow of IPv4 stores a *note* in a
//! word that its key does not use ([`Flow::opaque4`]): the stamp under which its decision was found to do
//! nothing but accept. Packets with that stamp are counted by the flow alone.
//!
//! The first such packet appends the flow to a queue, with the counters that the flow has then. When the flow
//! reaches the front of the queue, or before anything else happens to the flow
//! ([`DeferredCounters::settle`]), the difference is added to the rules of the decision. The flow stores its
//! queue position in the note. A caller that counts packets of a flow and credits rules itself must settle
//! the flow first.

use std::collections::VecDeque;

use mmb_flow::{Flow, FlowRef};
use mmb_packet::prefetch;

use super::decisions::Decisions;
use crate::Environment;

/// Flows that are prefetched together by [`DeferredCounters::flush`].
const PREFETCH: usize = 64;

/// A flow with deferred counters.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// [`FlowRef::NONE`]: settled.
    flow: FlowRef,
    decision: u32,
    /// The flow's counters when the entry was made.
    counts: (u64, u64),
}

/// The queue of flows with deferred counters, in the order of their first deferred packet.
#[derive(Debug)]
pub(crate) struct DeferredCounters {
    queue: VecDeque<Entry>,
    /// Position of the front entry. Positions wrap; 0 is not a position.
    first: u32,
}

impl DeferredCounters {
    pub fn new() -> DeferredCounters {
        DeferredCounters { queue: VecDeque::new(), first: 1 }
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Appends a flow. The flow has a current note and no deferred counters.
    #[inline(never)]
    pub fn defer(&mut self, flow_ref: FlowRef, flow: &mut Flow) {
        let entry = Entry { flow: flow_ref, decision: flow.decision(), counts: flow.counts() };
        if self.first.wrapping_add(self.queue.len() as u32) == 0 {
            self.queue.push_back(Entry { flow: FlowRef::NONE, ..entry });
        }
        let position = self.first.wrapping_add(self.queue.len() as u32);
        self.queue.push_back(entry);
        let [stamp, _] = flow.opaque4();
        flow.set_opaque4([stamp, position]);
    }

    /// Adds the deferred counters of a flow to the rules, and clears the flow's note.
    #[inline]
    pub fn settle(&mut self, flow: &mut Flow, decisions: &Decisions, env: &impl Environment) {
        let [_, position] = flow.opaque4();
        flow.set_opaque4([0, 0]);
        if position != 0
            && flow.is_ip4()
            && let Some(entry) = self.queue.get_mut(position.wrapping_sub(self.first) as usize)
        {
            entry.flow = FlowRef::NONE;
            let (packets, bytes) = flow.counts_since(entry.counts);
            decisions.credit(entry.decision, packets, bytes, env);
        }
    }

    /// Adds the deferred counters of at most `limit` flows to the rules.
    pub fn flush(&mut self, flows: &mut [Flow], decisions: &Decisions, env: &impl Environment, limit: usize) {
        // Each loop waits for memory once, for all flows together.
        for entry in self.queue.iter().take(limit.min(PREFETCH)) {
            decisions.prefetch_single(entry.decision);
            if let Some(flow) = flows.get(entry.flow.0 as usize) {
                prefetch::read(flow);
            }
        }
        for entry in self.queue.iter().take(limit.min(PREFETCH)) {
            decisions.prefetch_credit(entry.decision, env);
        }
        for _ in 0..limit {
            let Some(entry) = self.queue.pop_front() else { break };
            self.first = self.first.wrapping_add(1);
            if let Some(flow) = flows.get_mut(entry.flow.0 as usize) {
                let [stamp, _] = flow.opaque4();
                flow.set_opaque4([stamp, 0]);
                let (packets, bytes) = flow.counts_since(entry.counts);
                decisions.credit(entry.decision, packets, bytes, env);
            }
        }
    }
}

#[cfg(test)]
mod tests;
