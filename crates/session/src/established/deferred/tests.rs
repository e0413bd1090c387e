use mmb_flow::{Direction, Key, Table};
use mmb_packet::Kind;

use super::*;
use crate::testing::CountingRules;

/// A table with IPv4 sessions, and a decision of one rule for each.
fn setup(sessions: u8) -> (Table, Decisions, CountingRules, DeferredCounters) {
    let mut table = Table::new(8, 0, 1).expect("memory");
    let (mut decisions, rules) = (Decisions::new(), CountingRules::default());
    let stamp = decisions.stamp(0);
    for n in 0..sessions {
        let kind = Kind::IP4 | Kind::TCP;
        let key = Key { source_port: [1, n], destination_port: [2, n], kind, proto: 6, ..Key::default() };
        let id = table.insert(&key, &key.reversed(), 0).expect("room");
        let flow = table.flow_mut(FlowRef::new(id, Direction::Forward));
        flow.set_decision(decisions.acquire(&rules.policy, stamp, &[u32::from(n)]));
        flow.set_opaque4([stamp, 0]);
        flow.count(7, 700);
    }
    (table, decisions, rules, DeferredCounters::new())
}

/// Counts a packet of a flow.
fn count(table: &mut Table, deferred: &mut DeferredCounters, flow_ref: FlowRef) {
    let flow = table.flow_mut(flow_ref);
    if flow.opaque4()[1] == 0 {
        deferred.defer(flow_ref, flow);
    }
    flow.count(1, 100);
}

#[test]
fn deferred_counters_are_added_once() {
    let (mut table, decisions, rules, mut deferred) = setup(3);
    // Positions wrap.
    deferred.first = u32::MAX - 1;
    let flows = [0, 2, 4].map(FlowRef);
    for flow in [0, 1, 1, 2, 0, 2, 2].map(|at: usize| flows[at]) {
        count(&mut table, &mut deferred, flow);
    }
    deferred.settle(table.flow_mut(flows[1]), &decisions, &rules);
    assert_eq!([0, 1, 2].map(|slot| rules.counts(slot)), [(0, 0), (2, 200), (0, 0)]);
    deferred.flush(table.flows_mut(), &decisions, &rules, 1);
    assert_eq!([0, 1, 2].map(|slot| rules.counts(slot)), [(2, 200), (2, 200), (0, 0)]);
    count(&mut table, &mut deferred, flows[0]);
    deferred.settle(table.flow_mut(flows[1]), &decisions, &rules);
    deferred.flush(table.flows_mut(), &decisions, &rules, usize::MAX);
    deferred.settle(table.flow_mut(flows[0]), &decisions, &rules);
    assert_eq!([0, 1, 2].map(|slot| rules.counts(slot)), [(3, 300), (2, 200), (3, 300)]);
    assert!(deferred.is_empty() && flows.iter().all(|&flow| table.flow(flow).opaque4()[1] == 0));
}
