//! Chains that translate: what the functions before and behind see, and what becomes of such sessions.

use mmb_nf::DropReason;
use mmb_packet::PacketBuf;
use mmb_packet::build::{Frame, Ip4, Ip6, Udp};
use mmb_session_harness::Outcome;

use crate::common::*;
use crate::{CLIENT, SERVER, World};

const POOL: &str = "nat pool add p 200.0.0.1-200.0.0.1 filtering endpoint-independent";
const NAT: &[&str] = &[
    POOL,
    "nf add before see",
    "nf add nat source p",
    "nf add behind see",
    "nf add t tally",
    "chain add hide t | before | nat | behind",
    "add-stateful in port0 ip-proto != icmp chain hide",
];

/// A session of the client's; where its packets come from outside.
fn opened(world: &mut World, client: End) -> End {
    let (outcome, bytes) = world.net.one(IN, &udp(client, SERVER));
    assert_eq!(outcome, Outcome::Out(OUT));
    let outside = source(&bytes);
    assert_eq!((outside.0, &bytes[..]), ([200, 0, 0, 1], &udp(outside, SERVER).build()[..]));
    outside
}

fn text((address, port): End) -> String {
    format!("{}:{port}", std::net::Ipv4Addr::from(address))
}

#[test]
fn functions_see_packets_as_they_are_where_they_stand() {
    let mut world = World::new(NAT);
    let outside = opened(&mut world, CLIENT);
    world.net.becomes(OUT, &udp(SERVER, outside), &udp(SERVER, CLIENT));
    world.net.becomes(IN, &udp(CLIENT, SERVER), &udp(outside, SERVER));
    let expected = |end: End| {
        let (there, back) =
            (format!("{} {}", text(end), text(SERVER)), format!("{} {}", text(SERVER), text(end)));
        [format!("open {there}"), format!("there {there}"), format!("back {back}"), format!("there {there}")]
    };
    assert_eq!(world.seen("before"), expected(CLIENT));
    assert_eq!(world.seen("behind"), expected(outside));
    assert_eq!((world.count("t", "packets"), world.net.view().mapped), (3, true));
    world.net.wait(700_000);
    assert_eq!(world.net.harness.workers()[0].nat().mappings(), 0);
    assert_eq!(world.count("t", "released"), 1);
}

/// Errors are translated, though they pass the chain by.
#[test]
fn errors_about_translated_packets() {
    let mut world = World::new(NAT);
    let outside = opened(&mut world, CLIENT);
    let about = error(3, 3, SERVER.0, outside.0, &udp(outside, SERVER));
    world.net.becomes(OUT, &about, &error(3, 3, SERVER.0, CLIENT.0, &udp(CLIENT, SERVER)));
    assert_eq!(world.count("t", "packets"), 1);
    // One about nothing is not let out with an address that is to be hidden.
    let orphan = error(3, 3, CLIENT.0, SERVER.0, &udp(SERVER, ([10, 0, 0, 1], 9)));
    world.net.passes(IN, &orphan);
}

/// Rules translate as well: one translation, in the chain. A function has the last word.
#[test]
fn rules_and_functions_together() {
    let mut world = World::new(&[
        "nf add lb server 192.0.2.8 8080",
        "nf add behind see",
        "chain add web lb | behind",
        "add-stateful in port0 map ip-saddr 200.0.0.9 mod ip-dscp 3",
        "add-stateful in port0 map ip-daddr 192.0.2.7 chain web",
    ]);
    let outside = ([200, 0, 0, 9], CLIENT.1);
    let marked =
        Frame::new(Ip4 { tos: 12, ..Ip4::new(outside.0, [192, 0, 2, 8]) }, Udp::new(outside.1, 8080))
            .payload(b"payload".as_slice());
    for _ in 0..2 {
        world.net.becomes(IN, &udp(CLIENT, SERVER), &marked);
        let (_, bytes) = world.net.one(OUT, &udp(([192, 0, 2, 8], 8080), outside));
        assert_eq!((source(&bytes), destination(&bytes), bytes[15]), (SERVER, CLIENT, 12));
    }
    assert_eq!(world.seen("behind").len(), 5);
}

/// What rules translate has been translated before the chain, in both directions.
#[test]
fn rules_translate_before_the_chain() {
    let rule = "add-stateful in port0 map ip-saddr 200.0.0.9 chain web";
    let mut world = World::new(&["nf add s see", "chain add web s", rule]);
    let outside = ([200, 0, 0, 9], CLIENT.1);
    world.net.becomes(IN, &udp(CLIENT, SERVER), &udp(outside, SERVER));
    world.net.becomes(OUT, &udp(SERVER, outside), &udp(SERVER, CLIENT));
    let (there, back) =
        (format!("{} {}", text(outside), text(SERVER)), format!("{} {}", text(SERVER), text(CLIENT)));
    assert_eq!(world.seen("s"), [format!("open {there}"), format!("there {there}"), format!("back {back}")]);
}

/// Rules that edit addresses come before the chain, which puts the session's in their place; checksums are
/// right.
#[test]
fn edits_of_addresses() {
    let mut world = World::new(&[
        POOL,
        "nf add nat source p",
        "nf add s see",
        "chain add hide s | nat",
        "add-stateful in port0 chain hide",
        "add in port0 mod ip-daddr 192.0.2.77 mod udp-dport 77",
    ]);
    for _ in 0..3 {
        let (_, bytes) = world.net.one(IN, &udp(CLIENT, SERVER));
        assert_eq!(bytes, udp(source(&bytes), SERVER).build());
    }
    assert_eq!(world.seen("s")[1], "there 10.0.0.1:4000 192.0.2.77:77");
}

#[test]
fn ip6_and_nothing_to_translate() {
    let mut world = World::new(&[
        "nf add lb server 2001:db8::8 8080 192.0.2.8 8080",
        "nf add t tally",
        "chain add web t | lb",
        "add-stateful in port0 chain web",
    ]);
    let [client, vip, server] =
        [1u16, 2, 8].map(|n| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n as u8]);
    let six = |from: ([u8; 16], u16), to: ([u8; 16], u16)| {
        Frame::new(Ip6::new(from.0, to.0), Udp::new(from.1, to.1)).payload(b"six".as_slice())
    };
    world.net.becomes(IN, &six((client, 9), (vip, 80)), &six((client, 9), (server, 8080)));
    world.net.becomes(OUT, &six((server, 8080), (client, 9)), &six((vip, 80), (client, 9)));
    world.net.becomes(IN, &udp(CLIENT, SERVER), &udp(CLIENT, ([192, 0, 2, 8], 8080)));
    // The next server is of the other family.
    for _ in 0..2 {
        world.net.passes(IN, &udp((CLIENT.0, 9), SERVER));
        world.net.passes(OUT, &udp(SERVER, (CLIENT.0, 9)));
    }
    assert_eq!(world.count("t", "packets"), 7);
}

#[test]
fn no_server_no_session() {
    let mut world = World::new(&["nf add lb server", "chain add web lb", "add-stateful in port0 chain web"]);
    world.net.drops(IN, &udp(CLIENT, SERVER), DropReason::NoBackend);
    assert!(world.net.views().is_empty());
}

/// A chain that translates can be had from the first packet on only.
#[test]
fn rules_that_match_later_translate_nothing() {
    let mut world = World::new(&[
        POOL,
        "nf add nat source p",
        "nf add a tally",
        "nf add b tally",
        "chain add hide a | nat",
        "chain add mere b",
        "add-stateful in port0 chain mere",
        "add-stateful ip-dscp 1 chain hide",
    ]);
    let marked = Frame::new(Ip4 { tos: 4, ..Ip4::new(CLIENT.0, SERVER.0) }, Udp::new(CLIENT.1, SERVER.1));
    world.net.passes(IN, &udp(CLIENT, SERVER));
    world.net.passes(IN, &marked);
    assert_eq!((world.net.view().rules, world.chains()), (vec![1, 2], vec![Some("mere".to_owned())]));
    assert_eq!([world.count("a", "packets"), world.count("b", "packets")], [0, 2]);
    // From the first packet on; a rule that matches later does not take its chain away.
    let mut world = World::new(&[
        POOL,
        "nf add nat source p",
        "nf add a tally",
        "nf add b tally",
        "chain add hide a | nat",
        "chain add mere b",
        "add-stateful in port0 chain hide",
        "add-stateful ip-dscp 1 chain mere",
    ]);
    let outside = opened(&mut world, CLIENT);
    let as_it_goes =
        Frame::new(Ip4 { tos: 4, ..Ip4::new(outside.0, SERVER.0) }, Udp::new(outside.1, SERVER.1));
    world.net.becomes(IN, &marked, &as_it_goes);
    world.net.becomes(OUT, &udp(SERVER, outside), &udp(SERVER, CLIENT));
    assert_eq!((world.net.view().rules, world.chains()), (vec![1, 2], vec![Some("hide".to_owned())]));
    assert_eq!([world.count("a", "packets"), world.count("b", "packets")], [3, 0]);
}

/// Sessions that come in by a mapping are translated by NAT; chains that do not translate may be theirs.
#[test]
fn sessions_from_outside() {
    let lines = |more: &'static str| [NAT, &["nf add u tally", "chain add watch u", more]].concat();
    let mut world = World::new(&lines("add-stateful in port1 chain watch"));
    let outside = opened(&mut world, CLIENT);
    let stranger = ([198, 51, 100, 5], 53);
    for _ in 0..2 {
        world.net.becomes(OUT, &udp(stranger, outside), &udp(stranger, CLIENT));
        world.net.becomes(IN, &udp(CLIENT, stranger), &udp(outside, stranger));
    }
    let mut chains = world.chains();
    chains.sort();
    assert_eq!(chains, [Some("hide".to_owned()), Some("watch".to_owned())]);
    assert_eq!([world.count("t", "packets"), world.count("u", "packets")], [1, 4]);
    // Without a chain of its own, it has none. It ends with the rule whose chain has mapped the host.
    let mut world = World::new(NAT);
    let outside = opened(&mut world, CLIENT);
    world.net.becomes(OUT, &udp(stranger, outside), &udp(stranger, CLIENT));
    let mut chains = world.chains();
    chains.sort();
    assert_eq!(chains, [None, Some("hide".to_owned())]);
    world.change(&NAT[..6]);
    world.net.drops(OUT, &udp(stranger, outside), DropReason::NatUnmapped);
}

/// From one inside host to another by its outside address: both sessions go through their chains, once each.
#[test]
fn hairpins_through_a_chain() {
    let lines =
        [NAT, &["nf add u tally", "chain add watch u", "nat forward add udp 200.0.0.1 53 to 10.0.0.2 5353"]];
    let mut world = World::new(&lines.concat());
    let (server, port_forward) = (([10, 0, 0, 2], 5353), ([200, 0, 0, 1], 53));
    // Where the server is has to be known.
    let stranger = ([198, 51, 100, 5], 9);
    world.net.becomes(OUT, &udp(stranger, port_forward), &udp(stranger, server));
    world.net.becomes(IN, &udp(server, stranger), &udp(port_forward, stranger));
    for _ in 0..3 {
        let (outcome, bytes) = world.net.one(IN, &udp(CLIENT, port_forward));
        assert_eq!(outcome, Outcome::Out(IN), "back where it came from");
        let seen_by_server = source(&bytes);
        assert_eq!((seen_by_server.0, destination(&bytes)), ([200, 0, 0, 1], server));
        let (outcome, bytes) = world.net.one(IN, &udp(server, seen_by_server));
        assert_eq!((outcome, source(&bytes), destination(&bytes)), (Outcome::Out(IN), port_forward, CLIENT));
    }
    assert_eq!(world.count("t", "packets"), 6, "of the client's session");
}

/// What keeps a session translated is there or it ends.
#[test]
fn a_session_ends_with_its_translation() {
    for (change, lives) in [
        (NAT.to_vec(), true),
        (
            [&NAT[..6], &["add-stateful in port0 ip-proto != icmp chain hide", "add-stateful all accept"]]
                .concat(),
            true,
        ),
        ([&NAT[..6], &["add-stateful in port0 ip-proto udp chain hide"]].concat(), false),
        // Functions come and go around the one that translates.
        ([&NAT[..5], &["chain add hide nat | t", NAT[6]]].concat(), true),
        // Another one of the same name.
        (
            [
                &[POOL, "nat pool add q 200.0.1.1-200.0.1.1", "nf add nat source q"],
                &NAT[3..5],
                &["chain add hide t | nat", NAT[6]],
            ]
            .concat(),
            false,
        ),
        ([&NAT[..5], &["chain add hide t", NAT[6]]].concat(), false),
    ] {
        let mut world = World::new(NAT);
        let outside = opened(&mut world, CLIENT);
        let tally = world.net.harness.rules().chains.instance("t").expect("there").clone();
        world.change(&change);
        let sent = world.net.run(OUT, &udp(SERVER, outside));
        match lives {
            true => {
                assert_eq!(
                    (sent[0].outcome, sent[0].packet.head()),
                    (Outcome::Out(IN), &udp(SERVER, CLIENT).build()[..])
                );
                assert!(std::sync::Arc::ptr_eq(
                    &tally,
                    world.net.harness.rules().chains.instance("t").expect("there")
                ));
            }
            false => {
                assert!(!world.net.views().iter().any(|view| view.mapped), "{change:?}: {sent:?}");
                let released = tally.report()[1].clone();
                assert_eq!(released, ("released".to_owned(), "1".to_owned()), "{change:?}");
            }
        }
    }
}
