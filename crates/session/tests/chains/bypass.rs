//! Sessions that no function of their chain reads any more pass without it.

use mmb_packet::build::Frame;
use mmb_packet::{Meta, parse};
use mmb_session::{OffloadSource, OffloadState};

use crate::common::*;
use crate::{CLIENT, SERVER, World};

/// It does not read what does not begin with a ClientHello.
const LINES: [&str; 3] =
    ["nf add s sni errors pass deny a", "chain add web s", "add-stateful in port0 tcp-dport 80 chain web"];

/// Whether the client's packets pass without a chain, so that the fast path may forward them.
fn is_bypassed(world: &mut World) -> bool {
    // Sessions leave their chains when no packet is under way.
    world.net.wait(1);
    let frame = tcp(CLIENT, SERVER, ACK, 101, 501).build();
    let mut meta = Meta::default();
    parse(&frame, frame.len(), &mut meta).expect("a frame");
    let sessions = &world.net.harness.workers()[0];
    let candidate = sessions.offload_candidate(&frame, &meta).expect("a session");
    matches!(sessions.offload_state(candidate, IN), OffloadState::Eligible { .. })
}

fn data(seq: u32, bytes: &str) -> Frame {
    tcp(CLIENT, SERVER, ACK, seq, 501).payload(bytes)
}

/// Sends the first bytes, and has them acknowledged.
fn begin(world: &mut World) {
    world.net.connect(CLIENT, SERVER);
    world.net.passes(IN, &data(101, "GET / "));
    assert!(!is_bypassed(world), "the bytes may be repeated");
    world.net.passes(OUT, &tcp(SERVER, CLIENT, ACK, 501, 107));
    world.net.passes(IN, &data(107, "HTTP/1.0"));
}

#[test]
fn a_session_that_nobody_reads_leaves_its_chain() {
    let mut world = World::new(&LINES);
    begin(&mut world);
    assert!(is_bypassed(&mut world));
    assert_eq!(world.chains(), [Some("web".to_owned())]);
    for seq in [115, 130, 90_000, 115] {
        world.net.passes(IN, &data(seq, "unread"));
    }
    world.net.passes(OUT, &tcp(SERVER, CLIENT, ACK, 900, 121));
    assert!(is_bypassed(&mut world));
    // It ends with the session.
    world.net.passes(IN, &tcp(CLIENT, SERVER, FIN | ACK, 121, 501));
    world.net.passes(OUT, &tcp(SERVER, CLIENT, FIN | ACK, 900, 122));
    world.net.passes(IN, &tcp(CLIENT, SERVER, ACK, 122, 901));
    world.net.wait(600_000);
    assert!(world.net.views().is_empty());
}

#[test]
fn the_next_connection_is_read() {
    let mut world = World::new(&LINES);
    begin(&mut world);
    assert!(is_bypassed(&mut world));
    // Both ends have forgotten the connection.
    world.net.run(IN, &tcp(CLIENT, SERVER, SYN, 5_000_000, 0));
    assert!(!is_bypassed(&mut world));
}

#[test]
fn a_change_brings_sessions_back() {
    let mut world = World::new(&LINES);
    begin(&mut world);
    // The same functions: nothing to read.
    let others = ["nf add t tally", "chain add other t", "add-stateful udp-dport 80 chain other"];
    world.change(&[&LINES[..], &others].concat());
    world.net.passes(IN, &data(115, "more"));
    world.net.passes(IN, &data(119, "more"));
    world.net.passes(IN, &data(123, "more"));
    assert!(is_bypassed(&mut world));
    // A function that sees packets.
    world.change(&[LINES[0], "nf add t tally", "chain add web s | t", LINES[2]]);
    world.net.passes(IN, &data(127, "more"));
    world.net.passes(IN, &data(131, "more"));
    assert_eq!((is_bypassed(&mut world), world.count("t", "packets")), (false, 2));
    // No chain.
    world.change(&["add-stateful in port0 tcp-dport 80 accept", LINES[2], LINES[0], LINES[1]]);
    world.net.passes(IN, &data(135, "more"));
    world.net.passes(IN, &data(139, "more"));
    assert!(is_bypassed(&mut world));
    world.change(&["add-stateful in port0 tcp-dport 80 accept"]);
    world.net.run(IN, &data(143, "more"));
}

/// The chain has another function, which sees all packets.
#[test]
fn other_functions_keep_the_session() {
    let mut world = World::new(&[LINES[0], "nf add t tally", "chain add web t | s", LINES[2]]);
    begin(&mut world);
    for seq in [115, 119] {
        world.net.passes(IN, &data(seq, "more"));
    }
    assert_eq!((is_bypassed(&mut world), world.count("t", "packets")), (false, 8));
}
