//! Connections that close while the driver forwards their segments: the tracker arrives at the state that it
//! reaches when it sees each of the segments.

use std::sync::{Arc, Mutex};

use mmb_flow::{Key, TcpSegment, TrackInput, TrackState};
use mmb_packet::Kind;
use proptest::prelude::*;

use super::super::{OffloadDriver, flows::OffloadedFlow};
use super::*;
use crate::lifetime::DIRECTIONS;
use crate::store::SessionStore;
use crate::testing::{CountingRules, empty_store, udp_key};

/// A driver as the kernel's programs are (bpf/fast.h): it records acknowledgements and the first FIN.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<[OffloadCounters; 2]>>);

impl OffloadDriver for Recorder {
    fn revoke(&self, _: u32) {}

    fn counters(&self, slot: u32) -> OffloadCounters {
        self.0.lock().expect("no panic")[slot as usize]
    }
}

impl Recorder {
    /// Forwards a segment, or leaves it to the engine.
    fn forward(&self, direction: Direction, segment: &TcpSegment) -> bool {
        let counters = &mut self.0.lock().expect("no panic")[direction as usize];
        if segment.flags & TcpSegment::FIN != 0 {
            let end = segment.data_end().wrapping_add(1);
            if counters.ack.is_none() || counters.fin.is_some_and(|fin| fin != end) {
                return false;
            }
            counters.fin = Some(end);
        }
        counters.packets += 1;
        counters.ack = Some(latest_ack(counters.ack.unwrap_or(segment.ack), segment.ack));
        true
    }
}

/// A side of the connection: the number that it sends next, and whether it has closed.
#[derive(Clone, Copy)]
struct Side {
    next: u32,
    has_closed: bool,
}

/// What a side does. Its segments acknowledge all that the other side has sent.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send(u16),
    Close,
    Acknowledge,
    Collect,
}

/// A session whose handshake is complete, and both sides of the connection. The originator's first number is
/// `first`.
fn open(store: &mut SessionStore, first: u32) -> (SessionId, [Side; 2]) {
    let settings = &store.settings;
    let key = Key { kind: Kind::IP4 | Kind::TCP, proto: 6, ..udp_key() };
    let id = store.table.insert(&key, &key.reversed(), 0).expect("room");
    let segment = |flags, seq, ack| TcpSegment { flags, seq, ack, window: 1000, ..TcpSegment::default() };
    let (syn, mut acks) = (segment(TcpSegment::SYN, first, 0), [0; 2]);
    let (mut track, _) = TrackState::open(&TrackInput::Tcp(syn), &mut acks, settings).expect("a SYN");
    let both = segment(TcpSegment::SYN | TcpSegment::ACK, !first, first.wrapping_add(1));
    let third = segment(TcpSegment::ACK, first.wrapping_add(1), (!first).wrapping_add(1));
    for (direction, segment) in [(Direction::Reverse, both), (Direction::Forward, third)] {
        track.update(direction, &TrackInput::Tcp(segment), &mut acks, settings);
    }
    assert_eq!(track.state_name(), "established");
    store.table.set_track(id, &track);
    tracking::set_acks(&mut store.table, id, acks);
    store.offloaded.set(id, [0, 1].map(|slot| Some(OffloadedFlow::new(slot, 0))));
    (id, [first, !first].map(|first| Side { next: first.wrapping_add(1), has_closed: false }))
}

/// The segment of a step. None: the side has nothing to say.
fn segment(sides: &mut [Side; 2], direction: Direction, step: Step) -> Option<TcpSegment> {
    let ack = sides[direction.opposite() as usize].next;
    let side = &mut sides[direction as usize];
    let segment = TcpSegment { seq: side.next, ack, flags: TcpSegment::ACK, ..TcpSegment::default() };
    match step {
        Step::Collect => None,
        Step::Acknowledge => Some(segment),
        Step::Send(_) if side.has_closed => None,
        Step::Send(len) => {
            side.next = side.next.wrapping_add(len.into());
            Some(TcpSegment { len: len.into(), ..segment })
        }
        Step::Close => {
            // Once more is a retransmission.
            let seq = side.next.wrapping_sub(side.has_closed.into());
            (side.next, side.has_closed) = (seq.wrapping_add(1), true);
            Some(TcpSegment { seq, flags: TcpSegment::ACK | TcpSegment::FIN, ..segment })
        }
    }
}

fn step() -> impl Strategy<Value = (bool, Step)> {
    let step = prop_oneof![
        3 => (1u16..9000).prop_map(Step::Send),
        2 => Just(Step::Close),
        3 => Just(Step::Acknowledge),
        1 => Just(Step::Collect),
    ];
    (any::<bool>(), step)
}

proptest! {
    #[test]
    fn what_is_recorded_has_the_effect_of_what_is_seen(
        first in prop_oneof![Just(u32::MAX - 3), any::<u32>()],
        steps in prop::collection::vec(step(), 1..20),
    ) {
        let (mut store, driver, env) = (empty_store(), Recorder::default(), CountingRules::default());
        let settings = store.settings;
        store.offloaded = OffloadedFlows::new(Box::new(driver.clone()));
        let (id, mut sides) = open(&mut store, first);
        let (mut seen, mut seen_acks) = (store.table.track(id), tracking::acks(&store.table, id));
        for (is_reply, step) in steps {
            let direction = DIRECTIONS[usize::from(is_reply)];
            let Some(segment) = segment(&mut sides, direction, step) else {
                store.collect(1000, id, &env);
                continue;
            };
            seen.update(direction, &TrackInput::Tcp(segment), &mut seen_acks, &settings);
            if !driver.forward(direction, &segment) {
                store.collect(1000, id, &env);
                track(&mut store.table, &settings, 1000, FlowRef::new(id, direction), segment);
            }
        }
        store.collect(1000, id, &env);
        let track = store.table.track(id);
        prop_assert_eq!(track.state_name(), seen.state_name());
        prop_assert_eq!(tracking::acks(&store.table, id), seen_acks);
        prop_assert_eq!(DIRECTIONS.map(|way| track.is_closed(way)), sides.map(|side| side.has_closed));
    }
}
