//! The connection tracker's part of a session in the table.

use mmb_flow::{FlowFlags, FlowRef, SessionFlags, SessionId, Table, TrackInput, TrackOutcome};
use mmb_packet::Meta;

use crate::chains::ChainState;
use crate::lifetime::DIRECTIONS;

/// Returns the highest acknowledgement numbers of both directions.
pub(crate) fn acks(table: &Table, id: SessionId) -> [u32; 2] {
    DIRECTIONS.map(|direction| table.flow(FlowRef::new(id, direction)).ack)
}

/// Stores the highest acknowledgement numbers of both directions.
pub(crate) fn set_acks(table: &mut Table, id: SessionId, acks: [u32; 2]) {
    for (direction, ack) in DIRECTIONS.into_iter().zip(acks) {
        table.flow_mut(FlowRef::new(id, direction)).ack = ack;
    }
}

/// Returns what the tracker sees of a packet: sequence numbers as the originator of the session sees them. If
/// functions edit the connection, those of each direction are as their sender sees them.
pub(crate) fn input(
    table: &Table,
    chains: &ChainState,
    flow: FlowRef,
    head: &[u8],
    meta: &Meta,
) -> TrackInput {
    let mut input = TrackInput::of(head, meta);
    if let TrackInput::Tcp(segment) = &mut input {
        segment.ack = chains.records.tracked_ack(table, flow, segment.ack);
        segment.seq = chains.records.tracked_sequence(table, flow, segment.seq);
        // Functions count as the originator does.
        chains.untranslate(table, flow, segment);
    }
    input
}

/// Applies the tracker's outcome for a packet of this time: settled flows and the timer.
pub(crate) fn apply(table: &mut Table, now: u32, id: SessionId, outcome: &TrackOutcome) {
    let flags = table.session(id).flags;
    for direction in DIRECTIONS {
        let at = direction as usize;
        let flow = table.flow_mut(FlowRef::new(id, direction));
        let is_settled = outcome.settled[at] && !flags.contains(SessionFlags::LOOPS[at]);
        flow.flags.set(FlowFlags::SETTLED, is_settled);
    }
    if !outcome.embryonic {
        table.remove_embryonic(id);
    }
    arm_earlier(table, id, now.wrapping_add(outcome.timeout));
}

/// Arms the timer of a session, unless it fires before. A later deadline is computed when it fires.
pub(crate) fn arm_earlier(table: &mut Table, id: SessionId, deadline: u32) {
    if (deadline.wrapping_sub(table.deadline(id)) as i32) < 0 {
        table.arm_timer(id, deadline);
    }
}

#[cfg(test)]
mod tests;
