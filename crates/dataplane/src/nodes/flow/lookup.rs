//! `flow-lookup`: finds the packets' sessions; those that are under way go on with what was decided before.
//! What has been taken in by `ip4-input` or `ip6-input` in this walk and goes on to be routed needs no look at where it goes.

use mmb_dpdk::Vector;
use mmb_session::Next;

use super::{Shown, WAYS, dispatch};
use crate::nodes::VECTOR;
use crate::worker::Worker;

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let Worker { id, now, snapshot, sessions, edits, .. } = worker;
    let mut next = [Next::Pass; VECTOR];
    let tally = sessions.lookup(*now, &snapshot.of(*id), &mut Shown(vector.packets()), edits, &mut next);
    if tally.all(Next::Pass)
        && snapshot.routed
        && let Some(version) = sessions.version()
    {
        return vector.send_all(WAYS.of_version(version));
    }
    dispatch(worker, vector, &mut next, tally);
}
