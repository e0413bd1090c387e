//! Decisions from before a change of the elements of sets.
//!
//! Theory of operation. A change of elements begins a new generation of rules. The first packet of each flow
//! behind it compares the keys of its session with the elements. If the change does not concern them, the
//! same rules match as before, and the flow gets the decision of these rules under the new generation. No
//! rule is asked, and nothing is done for flows without packets. All others take the slow path.

use mmb_flow::{FlowRef, SessionId, Table};
use mmb_packet::Meta;
use mmb_policy::ElementChange;

use super::next_hops::{PacketStamps, count_by_decision};
use super::{DecisionCache, EstablishedPath};
use crate::lifetime::DIRECTIONS;
use crate::lookup::summary::PacketSummary;
use crate::{Environment, Next};

/// Whether a change may concern packets of a session, before or behind its translation.
pub(crate) fn is_concerned(table: &Table, id: SessionId, change: &ElementChange) -> bool {
    DIRECTIONS.iter().any(|&direction| change.concerns(&table.key(FlowRef::new(id, direction))))
}

impl EstablishedPath<'_> {
    /// Finishes a packet that was not counted, since the decision of its flow was of an earlier generation.
    /// An earlier packet of the vector may have renewed it.
    #[cold]
    pub fn process_stale(
        &mut self,
        (now, env): (u32, &impl Environment),
        (flow, summary): (FlowRef, &PacketSummary),
        packet: (&mut [u8], &mut Meta),
        edits: &mut Vec<u32>,
    ) -> Next {
        let DecisionCache { decisions, stamps, .. } = &mut *self.cache;
        let (decision, note) = (decisions.stamp(summary.in_port), stamps.stamp(summary.in_port));
        let stamps = PacketStamps { decision, note, note_decision: false };
        if !decisions.is_current(self.table.flow(flow).decision(), decision)
            && !self.carry_over(flow, summary.in_port, env)
        {
            return Next::SlowPath;
        }
        let decisions = &mut self.cache.decisions;
        match count_by_decision(self.table.flow_mut(flow), decisions, (1, summary.bytes), stamps) {
            Some(_) => self.process_uncommon((now, env), (flow, summary), packet, edits),
            None => Next::SlowPath,
        }
    }

    /// Gives a flow its decision under the rules in force, if only elements have changed that do not concern
    /// its session. Returns false if the rules have to be asked.
    fn carry_over(&mut self, flow: FlowRef, in_port: u16, env: &impl Environment) -> bool {
        let (number, id) = (self.table.flow(flow).decision(), flow.session());
        let decisions = &mut self.cache.decisions;
        let Some(mut changes) = decisions.changes_since(number, in_port) else { return false };
        if changes.any(|change| is_concerned(self.table, id, change)) {
            return false;
        }
        drop(changes);
        let (policy, rule_list) = (env.policy(), self.table.session(id).rule_list);
        // A rule that drops sessions has another identity when its set has changed.
        if !self.lists.get(rule_list).all(|rule| rule.is_alive(policy)) {
            return false;
        }
        self.slots.clear();
        self.slots.extend_from_slice(decisions.slots(number));
        let number = decisions.acquire(policy, decisions.stamp(in_port), self.slots);
        self.cache.replace_decision(self.table, flow, number, env);
        true
    }
}
