use mmb_flow::{Direction, Key};
use mmb_packet::Kind;

use super::*;
use crate::established::deferred::DeferredCounters;
use crate::testing::CountingRules;

#[test]
fn a_stamp_is_a_generation_and_a_port() {
    let mut stamps = NoteStamps::new();
    let old = stamps.stamp(3);
    assert!(stamps.is_current(old) && stamps.is_current(old | NoteStamps::READ_DECISION));
    assert!(!stamps.is_current(0), "no note");
    assert!(
        have_same_origin(old, old | NoteStamps::READ_DECISION) && !have_same_origin(old, stamps.stamp(4))
    );
    assert!(!stamps.renew());
    assert!(!stamps.is_current(old) && !have_same_origin(old, stamps.stamp(3)));
    stamps.generation = (1 << NoteStamps::BITS) - 1;
    assert!(stamps.is_current(stamps.stamp(255)));
    assert!(stamps.renew(), "old notes must be cleared");
    assert_eq!(stamps.stamp(3), old);
}

/// A flow of a session with the decision of one rule.
fn setup(kind: u8) -> (Table, Decisions, CountingRules, FlowRef) {
    let mut table = Table::new(8, 0, 1).expect("memory");
    let (mut decisions, rules) = (Decisions::new(), CountingRules::default());
    let key = Key { source_port: [1, 1], destination_port: [2, 2], kind, proto: 6, ..Key::default() };
    let id = table.insert(&key, &key.reversed(), 0).expect("room");
    let flow = FlowRef::new(id, Direction::Forward);
    table.flow_mut(flow).set_decision(decisions.acquire(&rules.policy, decisions.stamp(3), &[0]));
    (table, decisions, rules, flow)
}

#[test]
fn a_next_hop_is_valid_as_long_as_its_stamp() {
    let (mut table, mut decisions, _, flow) = setup(Kind::IP4 | Kind::TCP);
    let (flow, decision) = (table.flow_mut(flow), decisions.stamp(3));
    for note_decision in [false, true] {
        flow.set_opaque4([0, 0]);
        for (note, hop) in [(0x103, 0), (0x103, 7), (0x103, 7), (0x203, 0), (0x203, 7), (0x204, 0)] {
            let stamps = PacketStamps { decision, note, note_decision };
            let flags = count_by_decision(flow, &mut decisions, (1, 100), stamps);
            assert_eq!(flags, Some(DecisionFlags::empty()));
            assert_eq!(flow.next_hop(), hop);
            flow.set_next_hop(7);
        }
    }
    let stamps = PacketStamps { decision: decision + 1, note: 0x303, note_decision: true };
    assert_eq!(count_by_decision(flow, &mut decisions, (1, 100), stamps), None, "no decision");
}

/// A flow with deferred counters keeps counting alone when routes change, and nothing is counted twice.
#[test]
fn counters_stay_deferred_when_routes_change() {
    let (mut table, mut decisions, rules, flow_ref) = setup(Kind::IP4 | Kind::TCP);
    let (mut deferred, decision) = (DeferredCounters::new(), decisions.stamp(3));
    let flow = table.flow_mut(flow_ref);
    let stamps = PacketStamps { decision, note: 0x103, note_decision: true };
    let empty = Some(DecisionFlags::empty());
    assert_eq!(count_by_decision(flow, &mut decisions, (1, 100), stamps), empty);
    flow.count(1, 100);
    deferred.defer(flow_ref, flow);
    flow.count(1, 100);
    for note in [0x203, 0x303] {
        let stamps = PacketStamps { decision, note, note_decision: false };
        assert_eq!(count_by_decision(flow, &mut decisions, (1, 100), stamps), empty);
        flow.count(1, 100);
        assert_eq!(flow.opaque4()[0], note, "the decision is still noted");
    }
    deferred.settle(flow, &decisions, &rules);
    decisions.flush(&rules, 9);
    assert_eq!(rules.counts(0), (4, 400));
}

#[test]
fn ip6_flows_have_no_notes() {
    let (mut table, mut decisions, _, flow) = setup(Kind::IP6 | Kind::TCP);
    let (flow, decision) = (table.flow_mut(flow), decisions.stamp(3));
    let key = flow.key();
    let stamps = PacketStamps { decision, note: 0x103, note_decision: true };
    assert_eq!(count_by_decision(flow, &mut decisions, (1, 100), stamps), Some(DecisionFlags::empty()));
    assert_eq!((flow.key(), flow.next_hop()), (key, 0));
}
