use super::*;
use crate::rules::attached::SessionRule;
use crate::testing::{CountingRules, empty_store, udp_key};

/// Opens a session that holds a rule list and a decision of one packet, at time 0.
fn open(store: &mut SessionStore) -> SessionId {
    let (_, hashed) = store.table.find_with_hash(&udp_key());
    let id = store.table.open(&hashed, None, 0, 1000, true).expect("room");
    let policy = CountingRules::default().policy;
    let rules = [SessionRule { slot: 3, id: mmb_policy::RuleId(9), translates: false }];
    store.table.session_mut(id).rule_list = store.rules.lists.acquire(&rules);
    let stamp = store.cache.decisions.stamp(0);
    let number = store.cache.decisions.acquire(&policy, stamp, &[3]);
    store.cache.decisions.count(number, stamp, (1, 100));
    store.table.flow_mut(FlowRef::new(id, Direction::Forward)).set_decision(number);
    id
}

#[test]
fn the_end_of_a_session_releases_what_it_holds() {
    let (mut store, env) = (empty_store(), CountingRules::default());
    let id = open(&mut store);
    let list = store.table.session(id).rule_list;
    assert_eq!((store.open_sessions(), store.cache.decisions.len()), (1, 1));
    store.end(id, EndReason::Cleared, &env);
    assert_eq!((store.open_sessions(), store.cache.decisions.len()), (0, 0));
    assert_eq!(store.rules.lists.get(list).count(), 0, "the list is freed");
    assert_eq!(env.counts(3), (1, 100), "the packet is counted for its rule");
    assert_eq!((store.counters().cleared, store.lifetime.removals), (1, 1));
}

#[test]
fn an_opening_that_is_undone_is_not_counted() {
    let (mut store, env) = (empty_store(), CountingRules::default());
    let id = open(&mut store);
    store.counters.created = 1;
    store.undo_opening(id, &env);
    assert_eq!((store.counters().created, store.open_sessions()), (0, 0));
}

#[test]
fn a_redirect_is_no_session() {
    let (mut store, env) = (empty_store(), CountingRules::default());
    let id = store.table.insert_redirect(&udp_key(), (1, RedirectState::Open), 0).expect("room");
    store.counters.redirects += 1;
    assert_eq!(store.open_sessions(), 0);
    assert_eq!(store.deadline(id, 10), Some(300_000));
    store.end(id, EndReason::Expired, &env);
    assert_eq!((store.counters().expired, store.counters().redirects), (0, 0));
}

/// Timers have a resolution of some 64 ms.
#[test]
fn a_timer_ends_the_session_when_no_packet_came() {
    let (mut store, env) = (empty_store(), CountingRules::default());
    let id = open(&mut store);
    let idle = store.deadline(id, 0).expect("open");
    store.table.flow_mut(FlowRef::new(id, Direction::Reverse)).last_seen = 500;
    assert_eq!(store.deadline(id, 600), Some(500 + idle), "the last packet of either direction counts");
    store.tick(1100, &env, 16);
    assert!(store.table.is_live(id), "the timer is set again");
    store.tick(500 + idle + 100, &env, 16);
    assert_eq!((store.open_sessions(), store.counters().expired), (0, 1));
}
