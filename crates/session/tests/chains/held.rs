//! Functions that hold packets: order, translation, and what becomes of the packets of a session that ends.

use mmb_flow::{HeldLimits, SessionSettings};
use mmb_nf::DropReason;
use mmb_packet::PacketBuf;
use mmb_packet::build::Frame;
use mmb_session::SessionCounters;
use mmb_session_harness::{Outcome, ProcessedPacket};

use crate::common::*;
use crate::{CLIENT, SERVER, World};

const HOLD: &[&str] =
    &["nf add h hold", "nf add t trace", "chain add web h | t", "add-stateful in port0 chain web"];

fn datagram(from: End, to: End, payload: &str) -> Frame {
    udp(from, to).payload(payload.as_bytes())
}

/// Payloads and outcomes of what comes out.
fn outcomes(sent: &[ProcessedPacket]) -> Vec<(String, Outcome)> {
    let payload = |sent: &ProcessedPacket| String::from_utf8_lossy(&sent.packet.head()[42..]).into_owned();
    sent.iter().map(|sent| (payload(sent), sent.outcome)).collect()
}

fn query(world: &mut World, payload: &str) -> Vec<(String, Outcome)> {
    outcomes(&world.net.run(IN, &datagram(CLIENT, SERVER, payload)))
}

fn answer(world: &mut World, payload: &str) -> Vec<(String, Outcome)> {
    outcomes(&world.net.run(OUT, &datagram(SERVER, CLIENT, payload)))
}

fn gone(payloads: &[&str], port: u16) -> Vec<(String, Outcome)> {
    payloads.iter().map(|payload| ((*payload).to_owned(), Outcome::Out(port))).collect()
}

fn lost(payloads: &[&str], reason: DropReason) -> Vec<(String, Outcome)> {
    payloads.iter().map(|payload| ((*payload).to_owned(), Outcome::Dropped(reason))).collect()
}

#[test]
fn held_packets_go_on_in_order_in_both_directions() {
    for workers in [1, 3] {
        let mut world = World::with(HOLD, workers, SessionSettings::default());
        assert!(query(&mut world, "H1").is_empty() && answer(&mut world, "H2").is_empty());
        assert!(query(&mut world, "H3").is_empty());
        assert_eq!(world.net.harness.workers().iter().map(|w| w.counters().chain_held).sum::<u64>(), 3);
        assert_eq!(query(&mut world, "pass"), gone(&["pass"], OUT));
        assert_eq!(answer(&mut world, "R"), gone(&["*2", "R"], IN));
        assert_eq!(query(&mut world, "R"), gone(&["*1", "*3", "R"], OUT));
        assert_eq!(world.seen("t"), ["(H2) pass (R) *1 *3 R"]);
        assert_eq!(world.net.harness.workers().iter().map(|w| w.counters().chain_held).sum::<u64>(), 0);
    }
}

/// Rules count a packet once, when it arrives.
#[test]
fn held_packets_are_counted_when_they_arrive() {
    let mut world = World::new(HOLD);
    query(&mut world, "H1");
    assert_eq!((world.net.matched(1), world.net.view().packets), (1, [1, 0]));
    query(&mut world, "R");
    assert_eq!((world.net.matched(1), world.net.view().packets), (2, [2, 0]));
    let counters = world.net.harness.workers()[0].chain_counters()[0];
    assert_eq!((counters.packets, counters.held, counters.released, counters.drops), (2, 1, 1, 0));
}

/// The function is in front of the translation, or behind it.
#[test]
fn held_packets_are_translated_as_others_are() {
    for chain in ["chain add web h | nat", "chain add web nat | h"] {
        let pool = "nat pool add p 200.0.0.1-200.0.0.1 filtering endpoint-independent";
        let rule = "add-stateful in port0 chain web";
        let mut world = World::new(&[pool, "nf add h hold", "nf add nat source p", chain, rule]);
        assert!(world.net.run(IN, &datagram(CLIENT, SERVER, "H1")).is_empty());
        let sent = world.net.run(IN, &datagram(CLIENT, SERVER, "R"));
        let outside = source(sent[0].packet.head());
        assert_eq!(outside.0, [200, 0, 0, 1]);
        for (sent, payload) in sent.iter().zip(["*1", "R"]) {
            assert_eq!(sent.packet.head(), datagram(outside, SERVER, payload).build());
        }
        assert!(world.net.run(OUT, &datagram(SERVER, outside, "H2")).is_empty());
        let sent = world.net.run(OUT, &datagram(SERVER, outside, "R"));
        for (sent, payload) in sent.iter().zip(["*2", "R"]) {
            assert_eq!(sent.packet.head(), datagram(SERVER, CLIENT, payload).build());
        }
        assert_eq!(sent.len(), 2);
    }
}

#[test]
fn held_packets_time_out() {
    let mut world = World::new(HOLD);
    query(&mut world, "H1");
    assert_eq!(outcomes(&world.net.wait(9_000)), []);
    assert_eq!(outcomes(&world.net.wait(2_000)), lost(&["H1"], DropReason::HeldTimeout));
    assert_eq!(query(&mut world, "R"), gone(&["R"], OUT));
}

/// A session that is cleared, times out, or is ended by its function.
#[test]
fn packets_of_a_session_that_ends() {
    let mut settings = SessionSettings::default();
    settings.timeouts.held = 10_000_000;
    let mut world = World::with(HOLD, 1, settings);
    query(&mut world, "H1");
    let view = world.net.view();
    let (workers, rules) = world.net.harness.workers_mut();
    assert!(workers[0].clear(view.id, view.uid, rules));
    assert_eq!(outcomes(&world.net.wait(1)), lost(&["H1"], DropReason::HeldEnded));

    query(&mut world, "H2");
    assert_eq!(outcomes(&world.net.wait(130_000)), lost(&["H2"], DropReason::HeldEnded));

    assert_eq!(world.net.counters().chain_held, 0);
}

/// A function that ends a session may release its packets first. They go on; the packets behind are dropped.
#[test]
fn packets_that_are_released_before_the_end_of_the_session() {
    for workers in [1, 3] {
        let mut world = World::with(HOLD, workers, SessionSettings::default());
        query(&mut world, "H1");
        answer(&mut world, "H2");
        let expected =
            [lost(&["E"], DropReason::BackendDown), gone(&["*1"], OUT), lost(&["H2"], DropReason::HeldEnded)];
        assert_eq!(query(&mut world, "E"), expected.concat(), "{workers} workers");
        assert_eq!(world.seen("t"), ["(H2) *1"]);
        let total = |count: fn(SessionCounters) -> u64| {
            world.net.harness.workers().iter().map(|worker| count(worker.counters())).sum::<u64>()
        };
        assert_eq!((total(|c| c.closed), total(|c| c.sessions), total(|c| c.chain_held)), (1, 0, 0));
        assert_eq!(query(&mut world, "y"), gone(&["y"], OUT), "a new session");
    }
}

/// The chain, the function or the rule is removed while packets are held.
#[test]
fn packets_of_a_function_that_is_removed() {
    let rule = "add-stateful in port0 chain web";
    for lines in [&[][..], &["add-stateful in port0 accept"], &["nf add t trace", "chain add web t", rule]] {
        let mut world = World::new(HOLD);
        query(&mut world, "H1");
        world.change(lines);
        let sent = query(&mut world, "x");
        assert_eq!(sent, [gone(&["x"], OUT), lost(&["H1"], DropReason::HeldEnded)].concat(), "{lines:?}");
        assert_eq!(world.net.counters().chain_held, 0);
    }
    // The function stays, and the chain changes around it.
    let mut world = World::new(HOLD);
    query(&mut world, "H1");
    world.change(&["nf add u trace", "nf add h hold", "chain add web u | h", rule]);
    assert_eq!(query(&mut world, "R"), gone(&["*1", "R"], OUT));
    assert_eq!(world.seen("u"), ["R"]);
}

#[test]
fn there_are_limits_for_sessions_and_workers() {
    let held = HeldLimits { session: 2, worker: 3 };
    let mut world = World::with(HOLD, 1, SessionSettings { held, ..SessionSettings::default() });
    let full = lost(&["H"], DropReason::HeldFull);
    for expected in [&[][..], &[], &full] {
        assert_eq!(query(&mut world, "H"), expected);
    }
    let other = ([10, 0, 0, 2], 4000);
    for expected in [&[][..], &full] {
        assert_eq!(outcomes(&world.net.run(IN, &datagram(other, SERVER, "H"))), expected);
    }
    assert_eq!(query(&mut world, "D"), [gone(&["D"], OUT), lost(&["H"; 2], DropReason::Police)].concat());
    assert_eq!(outcomes(&world.net.run(IN, &datagram(other, SERVER, "H"))), []);
}
