//! Functions that drop packets, refuse sessions and end them, and that answer for others.

use mmb_nf::DropReason;
use mmb_packet::PacketBuf;
use mmb_session_harness::Outcome;

use crate::common::*;
use crate::functions::Greeter;
use crate::{CLIENT, SERVER, World};

fn gated(verdict: &str) -> Vec<String> {
    [
        "nf add t tally",
        &format!("nf add g gate {verdict}"),
        "chain add web t | g",
        "add-stateful in port0 chain web",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn world(verdict: &str) -> World {
    let lines = gated(verdict);
    World::new(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn dropped_packets_still_belong_to_their_session() {
    let mut world = world("drop 2");
    world.net.passes(IN, &udp(CLIENT, SERVER));
    for n in 2..5 {
        world.net.drops(IN, &udp(CLIENT, SERVER), DropReason::Police);
        assert_eq!((world.count("t", "packets"), world.net.view().packets), (n, [n, 0]));
    }
    assert_eq!(world.net.matched(1), 4);
}

/// No function sees packets of a session that one of them has refused, until rules change.
#[test]
fn refused_sessions() {
    let mut world = world("refuse 3");
    world.net.passes(IN, &udp(CLIENT, SERVER));
    world.net.passes(OUT, &udp(SERVER, CLIENT));
    world.net.drops(IN, &udp(CLIENT, SERVER), DropReason::Acl);
    assert_eq!(world.net.view().refused, Some(DropReason::Acl));
    for (port, from, to) in [(IN, CLIENT, SERVER), (OUT, SERVER, CLIENT)] {
        for _ in 0..3 {
            world.net.drops(port, &udp(from, to), DropReason::Acl);
        }
    }
    world.net.drops(OUT, &error(3, 3, SERVER.0, CLIENT.0, &udp(CLIENT, SERVER)), DropReason::Acl);
    assert_eq!((world.count("t", "packets"), world.net.view().packets), (3, [2, 1]));
    assert_eq!(world.net.matched(1), 10, "rules match them");
    // The session is over some time after the last packet that was let pass.
    world.net.wait(299_000);
    world.net.drops(IN, &udp(CLIENT, SERVER), DropReason::Acl);
    world.net.wait(2_000);
    world.net.passes(IN, &udp(CLIENT, SERVER));
    assert_eq!((world.count("t", "released"), world.net.view().refused), (1, None));
}

#[test]
fn refusals_end_when_rules_change() {
    let mut world = world("refuse 1");
    for _ in 0..2 {
        world.net.drops(IN, &tcp(CLIENT, SERVER, SYN, 100, 0), DropReason::Acl);
    }
    assert_eq!(world.count("t", "packets"), 1);
    let mut lines = gated("refuse 1");
    lines.push("add-stateful tcp-dport 81 accept".to_owned());
    world.change(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(world.net.view().refused, None);
    world.net.drops(IN, &tcp(CLIENT, SERVER, SYN, 100, 0), DropReason::Acl);
    assert_eq!(world.count("t", "packets"), 2, "the function has been asked again");
    // Without the function, the session goes on.
    let lines = ["nf add t tally", "chain add web t", "add-stateful in port0 chain web"];
    world.change(&lines);
    world.net.connect(CLIENT, SERVER);
    assert_eq!((world.net.view().state, world.count("t", "packets")), ("established", 5));
}

#[test]
fn ended_sessions() {
    let mut world = world("end 2");
    world.net.passes(IN, &udp(CLIENT, SERVER));
    world.net.drops(IN, &udp(CLIENT, SERVER), DropReason::BackendDown);
    assert!(world.net.views().is_empty());
    assert_eq!((world.count("t", "released"), world.net.counters().closed), (1, 1));
    world.net.passes(IN, &udp(CLIENT, SERVER));
    assert_eq!(world.net.view().packets, [1, 0]);
}

/// A client that has not proved that it receives answers gets no state. After that, the server's sequence
/// numbers follow those that the client was sent.
#[test]
fn sessions_that_a_function_answers_for() {
    let mut world = World::new(&[
        "nf add g greeter",
        "nf add t tally",
        "nf add s see",
        "chain add web s | g | t",
        "add-stateful in port0 chain web",
    ]);
    let number = Greeter::NUMBER;
    let (outcome, bytes) = world.net.one(IN, &tcp(CLIENT, SERVER, SYN, 100, 0));
    assert_eq!(outcome, Outcome::Answered(IN, DropReason::SynCookie));
    assert_eq!(bytes[47], SYN | ACK);
    assert!(world.net.views().is_empty());
    world.net.drops(IN, &tcp(CLIENT, SERVER, ACK, 101, 99), DropReason::SynCookieBad);
    assert!(world.net.views().is_empty() && world.seen("s").is_empty());
    // The function would send a SYN in its place; numbers of the other side are not known yet.
    let opener = world.net.run(IN, &tcp(CLIENT, SERVER, ACK, 101, number + 1));
    assert_eq!(opener[0].outcome, Outcome::Out(OUT));
    assert_eq!((world.net.view().state, world.count("t", "opened")), ("syn-sent", 1));
    world.net.becomes(
        OUT,
        &tcp(SERVER, CLIENT, SYN | ACK, 500, 101),
        &tcp(SERVER, CLIENT, SYN | ACK, number, 101),
    );
    world.net.becomes(IN, &tcp(CLIENT, SERVER, ACK, 101, number + 1), &tcp(CLIENT, SERVER, ACK, 101, 501));
    assert_eq!(world.net.view().state, "established");
    world.net.becomes(OUT, &tcp(SERVER, CLIENT, ACK, 501, 101), &tcp(SERVER, CLIENT, ACK, number + 1, 101));
    world.net.becomes(IN, &tcp(CLIENT, SERVER, ACK, 101, number + 9), &tcp(CLIENT, SERVER, ACK, 101, 509));
    assert_eq!(world.count("t", "packets"), 5);
    let (_, bytes) = world.net.one(OUT, &tcp(SERVER, CLIENT, FIN | ACK, 509, 101));
    assert_eq!(bytes, tcp(SERVER, CLIENT, FIN | ACK, number + 9, 101).build());
    assert!(opener[0].packet.head().len() >= 54);
}
