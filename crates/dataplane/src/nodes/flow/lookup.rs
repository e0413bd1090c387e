//! `flow-lookup`: finds the packets' sessions; those that are under way go on with what was decided before.

use mmb_dpdk::Vector;
use mmb_session::Next;

use super::{Shown, dispatch};
use crate::nodes::VECTOR;
use crate::worker::Worker;

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let Worker { id, now, snapshot, sessions, edits, .. } = worker;
    let mut next = [Next::Pass; VECTOR];
    let tally = sessions.lookup(*now, &snapshot.of(*id), &mut Shown(vector.packets()), edits, &mut next);
    dispatch(worker, vector, &mut next, tally);
}
