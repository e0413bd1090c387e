use std::sync::{Arc, Mutex};

use super::super::{OffloadDriver, flows::OffloadedFlow};
use super::*;
use crate::store::SessionStore;
use crate::testing::{CountingRules, empty_store, udp_key};

/// A driver whose counters the test sets.
#[derive(Clone, Default)]
struct SetCounters(Arc<Mutex<OffloadCounters>>);

impl OffloadDriver for SetCounters {
    fn revoke(&self, _: u32) {}

    fn counters(&self, _: u32) -> OffloadCounters {
        *self.0.lock().expect("no panic")
    }
}

/// A store with a session whose forward flow is offloaded in slot 5 and whose decision is the rule in slot 3.
fn setup() -> (SessionStore, SetCounters, SessionId) {
    let (mut store, driver) = (empty_store(), SetCounters::default());
    store.offloaded = OffloadedFlows::new(Box::new(driver.clone()));
    let id = store.table.insert(&udp_key(), &udp_key().reversed(), 0).expect("room");
    let decisions = &mut store.cache.decisions;
    let number = decisions.acquire(&CountingRules::default().policy, decisions.stamp(0), &[3]);
    store.table.flow_mut(FlowRef::new(id, Direction::Forward)).set_decision(number);
    let flow = OffloadedFlow::new(5, 0);
    store.offloaded.set(id, [Some(flow), None]);
    (store, driver, id)
}

fn set(driver: &SetCounters, packets: u64, age: u32) {
    let counters = OffloadCounters { packets, bytes: packets * 100, age, ..OffloadCounters::default() };
    *driver.0.lock().expect("no panic") = counters;
}

#[test]
fn packets_are_added_to_the_flow_and_its_rule_once() {
    let ((mut store, driver, id), env) = (setup(), CountingRules::default());
    let forward = FlowRef::new(id, Direction::Forward);
    for (total, now) in [(4, 1000), (4, 1200), (9, 1500)] {
        set(&driver, total, 50);
        store.collect(now, id, &env);
        assert_eq!(store.table.flow(forward).counts(), (total, total * 100));
        assert_eq!(env.counts(3), (total, total * 100));
    }
    assert_eq!(store.table.flow(forward).last_seen, 1450, "the time of the last packet");
}

/// Packets that the driver counts after a change of rules belong to no rule of before.
#[test]
fn after_a_change_of_rules_packets_count_for_the_flow_alone() {
    let ((mut store, driver, id), env) = (setup(), CountingRules::default());
    set(&driver, 2, 0);
    let SessionStore { offloaded, table, cache, settings, .. } = &mut store;
    offloaded.detach(1000, (table, cache, settings), &env);
    assert_eq!(env.counts(3), (2, 200), "packets of before");
    set(&driver, 5, 0);
    store.collect(1100, id, &env);
    assert_eq!(env.counts(3), (2, 200));
    assert_eq!(store.table.flow(FlowRef::new(id, Direction::Forward)).counts(), (5, 500));
}

#[test]
fn a_revoked_flow_is_collected_and_reported() {
    let ((mut store, driver, id), env) = (setup(), CountingRules::default());
    set(&driver, 3, 0);
    store.revoke(1000, id, &env);
    assert_eq!(env.counts(3), (3, 300));
    assert!(store.offloaded.is_empty() && store.offloaded.pop_revoked() == Some(5));
    set(&driver, 8, 0);
    store.collect(1100, id, &env);
    assert_eq!(env.counts(3), (3, 300), "nothing is offloaded any more");
}
