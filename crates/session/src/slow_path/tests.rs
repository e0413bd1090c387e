//! The slow path alone, with a store of sessions and without rules.

use mmb_flow::{Direction, FlowRef, HashedKey, Key, SessionFlags};
use mmb_packet::{DropReason, Meta, VecPacket};

use super::SlowPath;
use super::packet::SlowPacket;
use crate::Next;
use crate::shared::SourceCount;
use crate::store::SessionStore;
use crate::testing::{CountingRules, empty_store, udp_frame, udp_key};

/// More fragments follow; the offset of the second fragment, in 8 bytes (RFC 791, 3.1).
const FIRST: u16 = 0x2000;
const LATER: u16 = 2;

fn setup() -> (SlowPath, SessionStore) {
    let store = empty_store();
    (SlowPath::new(&store.config).unwrap(), store)
}

/// Processes a packet that comes in by port 0.
fn process(
    slow_path: &mut SlowPath,
    store: &mut SessionStore,
    now: u32,
    (mut packet, mut meta): (VecPacket, Meta),
) -> (Next, Meta) {
    let (env, mut edits) = (CountingRules::default(), Vec::new());
    let mut pkt = SlowPacket {
        now,
        env: &env,
        packet: &mut packet,
        meta: &mut meta,
        in_port: 0,
        hits: &[],
        edits: &mut edits,
        first_edit: 0,
        hashed_key: HashedKey::default(),
        forecast: None,
        was_foreseen: false,
        source: SourceCount::default(),
    };
    let next = slow_path.process(store, &mut pkt);
    (next, meta)
}

/// Inserts a session for packets with this key.
fn insert(store: &mut SessionStore, key: &Key, flags: SessionFlags) -> FlowRef {
    let id = store.table.insert(key, &key.reversed(), 0).expect("room");
    store.table.session_mut(id).flags = flags;
    FlowRef::new(id, Direction::Forward)
}

#[test]
fn a_packet_without_session_passes() {
    let (mut slow_path, mut store) = setup();
    let (next, meta) = process(&mut slow_path, &mut store, 1, udp_frame(&udp_key(), 0));
    assert_eq!((next, meta.out_port, meta.session), (Next::Pass, 1, FlowRef::NONE.0));
    assert_eq!(store.open_sessions(), 0);
}

#[test]
fn a_reply_is_counted_for_its_session() {
    let (mut slow_path, mut store) = setup();
    let flow = insert(&mut store, &udp_key(), SessionFlags::RULELESS);
    let (next, meta) = process(&mut slow_path, &mut store, 5, udp_frame(&udp_key().reversed(), 0));
    assert_eq!((next, FlowRef(meta.session)), (Next::Pass, flow.opposite()));
    let reply = store.table.flow(flow.opposite());
    assert_eq!((reply.counts(), reply.last_seen), ((1, 50), 5));
}

/// A session without rules that needs one ends with its next packet, which belongs to none then.
#[test]
fn a_session_that_nothing_keeps_ends() {
    let (mut slow_path, mut store) = setup();
    insert(&mut store, &udp_key(), SessionFlags::empty());
    let (next, meta) = process(&mut slow_path, &mut store, 5, udp_frame(&udp_key(), 0));
    assert_eq!((next, meta.session), (Next::Pass, FlowRef::NONE.0));
    assert_eq!((store.open_sessions(), store.counters().ended), (0, 1));
}

#[test]
fn a_session_that_has_timed_out_ends_before_its_timer() {
    let (mut slow_path, mut store) = setup();
    let flow = insert(&mut store, &udp_key(), SessionFlags::RULELESS);
    let end = store.deadline(flow.session(), 0).expect("open");
    process(&mut slow_path, &mut store, end, udp_frame(&udp_key(), 0));
    assert_eq!((store.open_sessions(), store.counters().expired), (0, 1));
}

#[test]
fn a_later_fragment_waits_for_the_first() {
    let (mut slow_path, mut store) = setup();
    let flow = insert(&mut store, &udp_key(), SessionFlags::RULELESS);
    let (next, meta) = process(&mut slow_path, &mut store, 1, udp_frame(&udp_key(), LATER));
    assert_eq!((next, store.counters().held), (Next::Hold, 1));
    let (next, _) = process(&mut slow_path, &mut store, 2, udp_frame(&udp_key(), FIRST));
    assert_eq!(next, Next::Pass);
    let released = slow_path.fragments.pop_released().expect("the fragment that waits");
    assert_eq!(released.ticket.0, meta.stage.ticket());
    let (next, meta) = process(&mut slow_path, &mut store, 2, udp_frame(&udp_key(), LATER + 2));
    assert_eq!((next, FlowRef(meta.session)), (Next::Pass, flow), "a fragment that comes after the first");
}

/// RFC 5722: overlapping fragments are dropped.
#[test]
fn a_second_first_fragment_is_dropped() {
    let (mut slow_path, mut store) = setup();
    process(&mut slow_path, &mut store, 1, udp_frame(&udp_key(), FIRST));
    let (next, meta) = process(&mut slow_path, &mut store, 2, udp_frame(&udp_key(), FIRST));
    assert_eq!((next, meta.drop_reason), (Next::Drop, DropReason::FragmentOverlap as u8));
}
