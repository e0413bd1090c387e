//! What was counted with sessions and has not been given to their rules.
//!
//! Theory of operation. Where there are many decisions, they are out of the near caches, and a packet that asks for its
//! session's only to find it up to date, and to count, waits for memory. So an IPv4 half keeps, in a word that its key has no use
//! for ([`Flow::opaque4`]), the stamp under which its decision was found to say nothing but to accept; packets under that stamp
//! are counted with the half alone. The first of them puts the half in a queue, with what it had counted before; when
//! the half's turn comes, or before anything else becomes of it ([`Owed::settle`]), the difference is given to the decision's rules. The
//! half knows its place in the queue. Whoever counts a packet with a half and gives it to rules himself settles first.

use std::collections::VecDeque;

use mmb_flow::{Flow, FlowRef};
use mmb_packet::prefetch;

use crate::Environment;
use crate::decisions::Decisions;

/// A half that owes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// None: it has settled.
    found: FlowRef,
    decision: u32,
    /// What it had counted before.
    counts: (u64, u64),
}

/// All halves that owe, in the order in which they began to.
#[derive(Debug)]
pub(crate) struct Owed {
    queue: VecDeque<Entry>,
    /// The place of the first one. Places wrap, and none is 0.
    first: u32,
}

impl Owed {
    pub fn new() -> Owed {
        Owed { queue: VecDeque::new(), first: 1 }
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Lets a half owe what it counts from now on. It has a note, and owes nothing.
    #[inline(never)]
    pub fn owe(&mut self, found: FlowRef, half: &mut Flow) {
        let entry = Entry { found, decision: half.decision(), counts: half.counts() };
        if self.first.wrapping_add(self.queue.len() as u32) == 0 {
            self.queue.push_back(Entry { found: FlowRef::NONE, ..entry });
        }
        let place = self.first.wrapping_add(self.queue.len() as u32);
        self.queue.push_back(entry);
        let [stamp, _] = half.opaque4();
        half.set_opaque4([stamp, place]);
    }

    /// Gives what a half owes to the rules, and takes its note away.
    #[inline]
    pub fn settle(&mut self, half: &mut Flow, decisions: &Decisions, host: &impl Environment) {
        let [_, place] = half.opaque4();
        half.set_opaque4([0, 0]);
        if place != 0
            && half.is_ip4()
            && let Some(entry) = self.queue.get_mut(place.wrapping_sub(self.first) as usize)
        {
            entry.found = FlowRef::NONE;
            let (packets, bytes) = half.counts_since(entry.counts);
            decisions.credit(entry.decision, packets, bytes, host);
        }
    }

    /// Gives what at most `most` halves owe to the rules.
    pub fn flush(
        &mut self,
        halves: &mut [Flow],
        decisions: &Decisions,
        host: &impl Environment,
        most: usize,
    ) {
        // In steps, each of which waits for memory once.
        for entry in self.queue.iter().take(most.min(AHEAD)) {
            decisions.prefetch_only(entry.decision);
            if let Some(half) = halves.get(entry.found.0 as usize) {
                prefetch::read(half);
            }
        }
        for entry in self.queue.iter().take(most.min(AHEAD)) {
            decisions.prefetch_credit(entry.decision, host);
        }
        for _ in 0..most {
            let Some(entry) = self.queue.pop_front() else { break };
            self.first = self.first.wrapping_add(1);
            if let Some(half) = halves.get_mut(entry.found.0 as usize) {
                let [stamp, _] = half.opaque4();
                half.set_opaque4([stamp, 0]);
                let (packets, bytes) = half.counts_since(entry.counts);
                decisions.credit(entry.decision, packets, bytes, host);
            }
        }
    }
}

/// For at most so many the caches are told at a time.
const AHEAD: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rules;
    use mmb_flow::{Direction, Key, Table};
    use mmb_packet::Kind;

    /// A table with so many sessions of IPv4, and a decision of one rule for each.
    fn scene(sessions: u8) -> (Table, Decisions, Rules, Owed) {
        let mut table = Table::new(8, 0, 1).expect("memory");
        let (mut decisions, rules) = (Decisions::new(), Rules::default());
        let stamp = decisions.stamp(0);
        for n in 0..sessions {
            let kind = Kind::IP4 | Kind::TCP;
            let key = Key { source_port: [1, n], destination_port: [2, n], kind, proto: 6, ..Key::default() };
            let id = table.insert(&key, &key.reversed(), 0).expect("room");
            let half = table.flow_mut(FlowRef::new(id, Direction::Forward));
            half.set_decision(decisions.take(&rules.policy, stamp, &[u32::from(n)]));
            half.set_opaque4([stamp, 0]);
            half.count(7, 700);
        }
        (table, decisions, rules, Owed::new())
    }

    fn count(table: &mut Table, owed: &mut Owed, found: FlowRef) {
        let half = table.flow_mut(found);
        if half.opaque4()[1] == 0 {
            owed.owe(found, half);
        }
        half.count(1, 100);
    }

    #[test]
    fn what_is_owed_arrives_once() {
        let (mut table, decisions, rules, mut owed) = scene(3);
        // Places come round.
        owed.first = u32::MAX - 1;
        let halves = [0, 2, 4].map(FlowRef);
        for found in [0, 1, 1, 2, 0, 2, 2].map(|at: usize| halves[at]) {
            count(&mut table, &mut owed, found);
        }
        owed.settle(table.flow_mut(halves[1]), &decisions, &rules);
        assert_eq!([0, 1, 2].map(|slot| rules.counts(slot)), [(0, 0), (2, 200), (0, 0)]);
        owed.flush(table.flows_mut(), &decisions, &rules, 1);
        assert_eq!([0, 1, 2].map(|slot| rules.counts(slot)), [(2, 200), (2, 200), (0, 0)]);
        count(&mut table, &mut owed, halves[0]);
        owed.settle(table.flow_mut(halves[1]), &decisions, &rules);
        owed.flush(table.flows_mut(), &decisions, &rules, usize::MAX);
        owed.settle(table.flow_mut(halves[0]), &decisions, &rules);
        assert_eq!([0, 1, 2].map(|slot| rules.counts(slot)), [(3, 300), (2, 200), (3, 300)]);
        assert!(owed.is_empty() && halves.iter().all(|&found| table.flow(found).opaque4()[1] == 0));
    }
}
