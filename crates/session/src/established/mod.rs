//! The established path: packets of sessions whose rules are known.
//!
//! Theory of operation. A packet of a settled flow needs the flow (64 bytes) and its decision (16 bytes). If
//! the packet opens, closes and resets nothing and the decision is valid, the packet is counted, the flow
//! records time and acknowledgement number, and the packet is translated in place ([`process`]). The flow may
//! know that its decision only accepts; then the decision is not read ([`deferred`]). The flow may know its
//! next hop; then the packet is routed at once ([`next_hops`]).
//!
//! Packets that need more take one of three ways: rules that edit or drop, complex translation, redirects and
//! refused sessions ([`uncommon`]); decisions from before a change of elements ([`carry_over`]); rules that
//! depend on each packet ([`per_packet`]); everything else takes the slow path.

pub(crate) mod carry_over;
pub(crate) mod decisions;
pub(crate) mod deferred;
mod hop_numbers;
pub(crate) mod next_hops;
pub(crate) mod per_packet;
pub(crate) mod positions;
pub(crate) mod process;
mod uncommon;

use mmb_flow::{FlowRef, Table};

use crate::Environment;
use decisions::Decisions;
use deferred::DeferredCounters;
use hop_numbers::HopNumbers;
use next_hops::NoteStamps;
use positions::Positions;
pub(crate) use uncommon::{EstablishedPath, hand_off, set_edits};

/// The cached decisions of flows, and what flows note of them.
#[derive(Debug)]
pub(crate) struct DecisionCache {
    pub decisions: Decisions,
    pub deferred: DeferredCounters,
    pub stamps: NoteStamps,
    /// Next hops of IPv6 flows.
    pub hop_numbers: HopNumbers,
    /// Positions of packets of the last vector whose flow could cache a next hop and has none.
    pub next_hop_misses: Positions,
    /// Positions of packets of the last vector whose decisions are of an earlier generation, which may hold.
    pub stale: Positions,
    /// The last vector read decisions that may be out of the near caches: they are prefetched for the next
    /// vector.
    pub prefetch_decisions: bool,
    /// Some rule depends on each packet.
    pub has_per_packet_rules: bool,
}

impl DecisionCache {
    pub fn new() -> DecisionCache {
        DecisionCache {
            decisions: Decisions::new(),
            deferred: DeferredCounters::new(),
            stamps: NoteStamps::new(),
            hop_numbers: HopNumbers::new(),
            next_hop_misses: Positions::default(),
            stale: Positions::default(),
            prefetch_decisions: true,
            has_per_packet_rules: false,
        }
    }

    /// Adds the deferred counters of a flow to its rules. This must precede any other counting for the flow,
    /// a change of its decision, and its end.
    #[inline]
    pub fn settle(&mut self, table: &mut Table, flow: FlowRef, env: &impl Environment) {
        self.deferred.settle(table.flow_mut(flow), &self.decisions, env);
    }

    /// Gives a flow another decision and releases the old one.
    pub fn replace_decision(
        &mut self,
        table: &mut Table,
        flow: FlowRef,
        number: u32,
        env: &impl Environment,
    ) {
        self.settle(table, flow, env);
        let flow = table.flow_mut(flow);
        let old = flow.decision();
        flow.set_decision(number);
        if !flow.is_ip4() {
            // The new decision may be for another input port.
            flow.set_next_hop(0);
        }
        self.decisions.release(old, env);
    }

    /// Whether counters wait to be added to rules.
    pub fn has_counts(&self) -> bool {
        self.decisions.has_counts() || !self.deferred.is_empty()
    }

    /// Adds the counters of at most `limit` decisions, and of at most `limit` flows, to the rules.
    pub fn flush(&mut self, table: &mut Table, env: &impl Environment, limit: usize) {
        self.decisions.flush(env, limit);
        self.deferred.flush(table.flows_mut(), &self.decisions, env, limit);
    }

    /// Prefetches the decisions of flows whose notes do not replace them.
    pub fn prefetch_decisions(&self, table: &mut Table, flows: &[FlowRef]) {
        let all = table.flows_mut();
        for flow in flows {
            if let Some(flow) = all.get(flow.0 as usize)
                && !(flow.is_ip4() && self.stamps.is_current(flow.opaque4()[0]))
            {
                self.decisions.prefetch(flow.decision());
            }
        }
    }
}
