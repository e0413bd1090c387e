//! Packets of all kinds come by their session's functions, each once.

use std::net::IpAddr;

use mmb_flow::SessionSettings;
use mmb_nf::DropReason;
use mmb_packet::build::{Frame, Ip4, Transport, Udp};
use mmb_packet::{PacketBuf, VecPacket};
use mmb_session_harness::{Outcome, RuleSet};

use crate::common::*;
use crate::functions::registry;
use crate::{CLIENT, SERVER, World, parts};

const WATCH: &[&str] =
    &["nf add t tally", "nf add s see", "chain add watch t | s", "add-stateful in port0 chain watch"];

#[test]
fn both_directions_run_in_their_order() {
    let mut world = World::new(WATCH);
    world.net.connect(CLIENT, SERVER);
    world.net.passes(OUT, &tcp(SERVER, CLIENT, ACK, 501, 101));
    let (there, back) = ("10.0.0.1:4000 192.0.2.1:80", "192.0.2.1:80 10.0.0.1:4000");
    let expected = [
        format!("open {there}"),
        format!("there {there}"),
        format!("back {back}"),
        format!("there {there}"),
        format!("back {back}"),
    ];
    assert_eq!(world.seen("s"), expected);
    let view = world.net.view();
    assert_eq!((view.chain.as_deref(), view.packets), (Some("watch"), [2, 2]));
    assert_eq!(world.net.matched(1), 4);
    world.net.wait(8_000_000);
    assert!(world.net.views().is_empty());
    assert_eq!(world.seen("s").last(), Some(&format!("release {there}")));
    assert_eq!(
        [world.count("t", "opened"), world.count("t", "released"), world.count("t", "packets")],
        [1, 1, 4]
    );
}

#[test]
fn sessions_without_a_chain_have_none() {
    let mut world = World::new(&[
        "nf add t tally",
        "chain add watch t",
        "add-stateful udp-dport 53 chain watch",
        "add-stateful in port0 accept",
    ]);
    world.net.passes(IN, &udp(CLIENT, ([192, 0, 2, 1], 54)));
    assert_eq!(world.chains(), [None]);
    world.net.passes(IN, &udp(CLIENT, ([192, 0, 2, 1], 53)));
    assert_eq!(world.count("t", "packets"), 1);
    // Another session in the place of one that had a chain.
    world.net.wait(400_000);
    world.net.passes(IN, &udp(CLIENT, ([192, 0, 2, 1], 54)));
    world.net.passes(OUT, &udp(([192, 0, 2, 1], 54), CLIENT));
    assert_eq!(world.count("t", "packets"), 1);
}

/// Of several rules that name a chain the last one by index counts; those that match later are heard as well.
#[test]
fn the_last_rule_names_the_chain() {
    let mut world = World::new(&[
        "nf add a tally",
        "nf add b tally",
        "nf add c tally",
        "chain add one a",
        "chain add two b | a",
        "chain add three c",
        "add-stateful in port0 chain one",
        "add-stateful udp-dport 53 chain two",
        "add-stateful in port1 ip-dscp 1 chain three",
    ]);
    let server = ([192, 0, 2, 1], 53);
    world.net.passes(IN, &udp(CLIENT, server));
    assert_eq!(world.chains(), [Some("two".to_owned())]);
    world.net.passes(OUT, &udp(server, CLIENT));
    let marked = Frame::new(Ip4 { tos: 4, ..Ip4::new(server.0, CLIENT.0) }, Udp::new(server.1, CLIENT.1));
    world.net.passes(OUT, &marked);
    assert_eq!(world.chains(), [Some("three".to_owned())]);
    world.net.passes(IN, &udp(CLIENT, server));
    let counts =
        ["a", "b", "c"].map(|name| ["opened", "released", "packets"].map(|count| world.count(name, count)));
    assert_eq!(counts, [[1, 1, 2], [1, 1, 2], [1, 0, 2]]);
}

/// Rules that look at each packet, edits of rules, drops of rules.
#[test]
fn rules_come_first() {
    let mut world = World::new(&[
        "nf add t tally",
        "nf add e copies",
        "chain add watch t | e",
        "add-stateful in port0 chain watch mod ip-dscp 10",
        "add ip-len > 500 drop",
        "add ip-len 100-499 mod ip-ttl 9",
    ]);
    let frame = |from: End, to: End, length: usize, tos: u8, ttl: u8| {
        Frame::new(Ip4 { tos, ttl, ..Ip4::new(from.0, to.0) }, Udp::new(from.1, to.1))
            .payload(vec![7; length])
    };
    for _ in 0..2 {
        for (length, ttl) in [(10, 64), (200, 9)] {
            let (packets, emitted) = parts(world.net.run(IN, &frame(CLIENT, SERVER, length, 0, 64)));
            let expected = frame(CLIENT, SERVER, length, 40, ttl).build();
            assert_eq!((packets[0].outcome, packets[0].packet.head()), (Outcome::Out(OUT), &expected[..]));
            // Functions see what rules have made of it.
            let copy =
                emitted.iter().find(|sent| sent.outcome == Outcome::Emitted(OUT)).expect("one is sent on");
            assert_eq!(copy.packet.head(), expected);
        }
        world.net.drops(IN, &frame(CLIENT, SERVER, 600, 0, 64), DropReason::Rule);
    }
    assert_eq!(world.count("t", "packets"), 4);
}

/// What functions send: back, onward, out by a port, when sessions begin and when they end.
#[test]
fn functions_send_frames() {
    let mut world = World::new(&["nf add e copies", "chain add loud e", "add-stateful in port0 chain loud"]);
    let (packets, emitted) = parts(world.net.run(IN, &udp(CLIENT, SERVER)));
    assert_eq!(packets[0].outcome, Outcome::Out(OUT));
    let emitted: Vec<_> = emitted.iter().map(|sent| (sent.outcome, sent.packet.head().to_vec())).collect();
    let frame = udp(CLIENT, SERVER).build();
    let expected = [
        (Outcome::Emitted(5), b"a session begins".to_vec()),
        (Outcome::Emitted(IN), b"back".to_vec()),
        (Outcome::Emitted(OUT), frame),
    ];
    assert_eq!(emitted, expected);
    let ended = world.net.wait(500_000);
    assert_eq!(ended.len(), 1);
    assert_eq!((ended[0].outcome, ended[0].packet.head()), (Outcome::Emitted(IN), &b"a session ends"[..]));
}

/// Behind the chain, packets and frames that are sent onward go where routing says.
#[test]
fn routed_ports() {
    let lines =
        ["nf add e copies", "nf add t tally", "chain add web t | e", "add-stateful in port0 chain web"];
    let rules =
        RuleSet::parse_with(&lines, SessionSettings::default(), None, &registry(), 1).expect("good lines");
    let inside = |to: IpAddr| matches!(to, IpAddr::V4(to) if to.octets()[0] == 10);
    let rules = rules.with_routing(&[0, 1, 2], move |to| Some(if inside(to) { 0 } else { 2 }));
    let mut world = World { net: Net::with(rules, 1, 100), workers: 1 };
    for (in_port, frame, out) in [(0, udp(CLIENT, SERVER), 2), (2, udp(SERVER, CLIENT), 0)] {
        let (packets, emitted) = parts(world.net.run(in_port, &frame));
        assert_eq!((packets[0].outcome, packets[0].packet.head()), (Outcome::Out(out), &frame.build()[..]));
        let outcomes: Vec<_> = emitted.iter().map(|sent| sent.outcome).collect();
        assert!(outcomes.ends_with(&[Outcome::Emitted(in_port), Outcome::Emitted(out)]), "{outcomes:?}");
    }
    assert_eq!(world.count("t", "packets"), 2);
}

/// Later fragments go through the chain of their datagram's session, in whatever order they come.
#[test]
fn fragments() {
    let mut world = World::new(WATCH);
    let whole = Frame::new(Ip4 { id: 7, ..Ip4::new(CLIENT.0, SERVER.0) }, Udp::new(CLIENT.1, SERVER.1))
        .payload(vec![3; 1000]);
    let bytes = whole.build();
    let datagram = &bytes[34..];
    let piece = |offset: usize, end: usize, more: bool| {
        let ip = Ip4 {
            id: 7,
            flags: u8::from(more),
            fragment_offset: (offset / 8) as u16,
            ..Ip4::new(CLIENT.0, SERVER.0)
        };
        Frame::new(ip, Transport::Raw(17)).payload(datagram[offset..end].to_vec()).build()
    };
    let pieces = [piece(0, 400, true), piece(400, 800, true), piece(800, 1008, false)];
    let run = |world: &mut World, n: usize| world.net.harness.process(IN, VecPacket::new(&pieces[n]));
    assert!(run(&mut world, 2).is_empty());
    let sent = run(&mut world, 0);
    assert_eq!(sent.iter().map(|sent| sent.outcome).collect::<Vec<_>>(), [Outcome::Out(OUT); 2]);
    assert_eq!(run(&mut world, 1)[0].outcome, Outcome::Out(OUT));
    assert_eq!((world.count("t", "packets"), world.net.view().packets), (3, [3, 0]));
    assert_eq!(world.seen("s")[3], "there LaterFragment");
}

/// ICMP errors about a session pass its chain by.
#[test]
fn errors_bypass_chains() {
    let mut world = World::new(WATCH);
    let packet = udp(CLIENT, SERVER);
    world.net.passes(IN, &packet);
    world.net.passes(OUT, &error(3, 3, SERVER.0, CLIENT.0, &packet));
    assert_eq!(world.count("t", "packets"), 1);
}

/// Sessions live as long as the functions of their chain want it, if the tracker does not want more.
#[test]
fn timeouts() {
    let mut world = World::new(&[
        "nf add t tally 200000",
        "chain add slow t",
        "add-stateful udp-dport 53 chain slow",
        "add-stateful in port0 accept",
    ]);
    world.net.passes(IN, &udp(CLIENT, ([192, 0, 2, 1], 53)));
    world.net.passes(IN, &udp(CLIENT, ([192, 0, 2, 1], 54)));
    let expires: Vec<u32> = world.net.views().iter().map(|view| view.expires).collect();
    assert_eq!(expires, [200_000, 120_000]);
    world.net.wait(190_000);
    assert_eq!(world.chains(), [Some("slow".to_owned())]);
    world.net.wait(20_000);
    assert!(world.net.views().is_empty());
    // An open connection's own timeout is longer.
    let mut world =
        World::new(&["nf add t tally 1000", "chain add quick t", "add-stateful in port0 chain quick"]);
    world.net.connect(CLIENT, SERVER);
    assert!(world.net.view().expires > 1_000_000);
}

/// A second flow manager has sessions of its own, which end when their time is over.
#[test]
fn inner_sessions_expire() {
    let mut world = World::new(&[
        "nf add f flow",
        "nf add t tally",
        "chain add twice f | t",
        "add-stateful in port0 chain twice",
    ]);
    world.net.passes(IN, &udp(CLIENT, SERVER));
    world.net.passes(OUT, &udp(SERVER, CLIENT));
    let (workers, _) = world.net.harness.workers_mut();
    assert!(workers[0].next_tick().is_some());
    assert_eq!((world.count("t", "opened"), world.count("t", "packets")), (1, 2));
    world.net.wait(700_000);
    assert_eq!(world.count("t", "released"), 1);
    let (workers, _) = world.net.harness.workers_mut();
    assert_eq!(workers[0].next_tick(), None);
}
