//! Several workers: sessions of chains live with the worker that both directions' packets find.

use mmb_flow::SessionSettings;
use mmb_packet::PacketBuf;
use mmb_session_harness::Outcome;
use proptest::prelude::*;

use crate::common::*;
use crate::{SERVER, World};

const SERVERS: [[u8; 4]; 3] = [[192, 0, 2, 7], [192, 0, 2, 8], [192, 0, 2, 9]];
const LB: &str = "nf add lb server 192.0.2.7 8080 192.0.2.8 8080 192.0.2.9 8080";

/// Each client's packets go to one server, whatever the worker, and replies come back; nobody counts anything
/// twice.
fn balance(workers: u16, clients: u16, more: &[&str], chain: &str) {
    let chain = format!("chain add web {chain}");
    let lines = [&["nf add t tally", LB, &chain, "add-stateful in port0 chain web"], more].concat();
    let mut world = World::with(&lines, workers, SessionSettings::default());
    let mut used = [0; 3];
    for n in 0..clients {
        let client = ([10, 0, (n >> 8) as u8, n as u8], 4000 + n);
        let (outcome, bytes) = world.net.one(IN, &udp(client, SERVER));
        assert_eq!(outcome, Outcome::Out(OUT));
        let (from, to) = (source(&bytes), destination(&bytes));
        assert_eq!(bytes, udp(from, to).build());
        used[SERVERS.iter().position(|server| (*server, 8080) == to).expect("one of them")] += 1;
        for _ in 0..2 {
            world.net.becomes(OUT, &udp(to, from), &udp(SERVER, client));
            world.net.becomes(IN, &udp(client, SERVER), &udp(from, to));
        }
    }
    let sessions = u64::from(clients);
    assert_eq!(world.net.views().len() as u64, sessions);
    assert_eq!([world.count("t", "opened"), world.count("t", "packets")], [sessions, 5 * sessions]);
    assert!(used.iter().all(|&used| used > clients / 6), "{used:?}");
    world.net.wait(700_000);
    assert_eq!(world.count("t", "released"), sessions);
    assert!(world.net.views().is_empty());
}

#[test]
fn servers_in_turn() {
    for workers in 1..5 {
        balance(workers, 200, &[], "t | lb");
    }
}

#[test]
fn servers_and_a_pool() {
    let pool = ["nat pool add p 200.0.0.1-200.0.0.4", "nf add nat source p"];
    for workers in [1, 3, 4] {
        balance(workers, 150, &pool, "lb | t | nat");
        balance(workers, 50, &pool, "nat | lb | t");
    }
}

/// From one inside host to another, with sessions of both with different workers.
#[test]
fn hairpins_between_workers() {
    let lines = [
        "nat pool add p 200.0.0.1-200.0.0.2",
        "nf add nat source p",
        "nf add t tally",
        "chain add hide t | nat",
        "add-stateful in port0 chain hide",
        "nat forward add udp 200.0.0.1 53 to 10.0.0.2 5353",
    ];
    let (server, port_forward, stranger) =
        (([10, 0, 0, 2], 5353), ([200, 0, 0, 1], 53), ([198, 51, 100, 5], 9));
    for workers in [1, 2, 3, 4] {
        let mut world = World::with(&lines, workers, SessionSettings::default());
        world.net.becomes(OUT, &udp(stranger, port_forward), &udp(stranger, server));
        world.net.becomes(IN, &udp(server, stranger), &udp(port_forward, stranger));
        for n in 0..40 {
            let client = ([10, 0, 1, n], 4000);
            for _ in 0..2 {
                let (outcome, bytes) = world.net.one(IN, &udp(client, port_forward));
                assert_eq!((outcome, destination(&bytes)), (Outcome::Out(IN), server), "{n} of {workers}");
                let (outcome, bytes) = world.net.one(IN, &udp(server, source(&bytes)));
                assert_eq!(
                    (outcome, source(&bytes), destination(&bytes)),
                    (Outcome::Out(IN), port_forward, client)
                );
            }
        }
        assert_eq!(world.count("t", "packets"), 160);
    }
}

/// The functions whose state the property compares.
const TALLIES: [&str; 3] = ["a", "b", "c"];

/// A configuration with chains; `choice` selects their order and whether a rule uses the second one.
fn configuration(choice: u8) -> Vec<String> {
    let mut lines: Vec<String> = vec![
        "nat pool add p 200.0.0.1-200.0.0.2".into(),
        "nf add nat source p".into(),
        "nf add split parity".into(),
    ];
    lines.extend(TALLIES.map(|name| format!("nf add {name} tally")));
    let body =
        ["a", "b | c", "c | a | b", "split [even: a, odd: b | c]", "a | b | c"][usize::from(choice % 5)];
    let nat = ["a | nat | b", "nat", "c | nat"][usize::from(choice % 3)];
    lines.push(format!("chain add web {body}"));
    lines.push(format!("chain add hide {nat}"));
    lines.push("add-stateful in port0 udp-dport 80 chain hide".into());
    lines.push("add-stateful in port0 accept".into());
    if choice & 32 == 0 {
        lines.push("add-stateful in port0 udp-dport 81 chain web".into());
    }
    lines
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Chains change under sessions of many workers, with any packets in between: nobody gets another's
    /// scratchpad, nothing that was opened is not released, and packets come out as if nothing were changed.
    #[test]
    fn chains_change_at_random(
        workers in 1..4u16,
        steps in prop::collection::vec((0..10u8, 0..12u8, any::<bool>(), 0..64u8), 1..120),
    ) {
        let first = configuration(0);
        let first: Vec<&str> = first.iter().map(String::as_str).collect();
        let mut world = World::with(&first, workers, SessionSettings::default());
        let mut outsides = std::collections::HashMap::new();
        let functions = TALLIES.map(|name| world.net.harness.rules().chains.instance(name).expect("there").clone());
        for (kind, host, back, choice) in steps {
            let client = ([10, 0, 0, host], 4000 + u16::from(choice % 4));
            let server = ([192, 0, 2, 1], 80 + u16::from(choice % 3));
            match kind {
                0 => {
                    let lines = configuration(choice);
                    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
                    world.change(&lines);
                }
                1 => {
                    world.net.wait(u32::from(choice) * 5_000);
                    if choice > 60 {
                        outsides.clear();
                    }
                    // Who is gone may get another port.
                    let views = world.net.views();
                    outsides.retain(|(client, server), _| {
                        let is = |view: &mmb_session::SessionView| {
                            view.original.source[..4] == client_address(client)
                                && view.original.source_port == client_port(client)
                                && view.original.destination_port == client_port(server)
                                && view.expires > 0
                        };
                        views.iter().any(is)
                    });
                }
                _ => {
                    let known = outsides.get(&(client, server)).copied();
                    if back && let Some(outside) = known {
                        let sent = world.net.run(OUT, &udp(server, outside));
                        prop_assert_eq!(sent[0].outcome, Outcome::Out(IN));
                        prop_assert_eq!(sent[0].packet.head(), udp(server, client).build());
                    } else {
                        let sent = world.net.run(IN, &udp(client, server));
                        let outside = source(sent[0].packet.head());
                        prop_assert_eq!(sent[0].outcome, Outcome::Out(OUT));
                        prop_assert_eq!(sent[0].packet.head(), udp(outside, server).build());
                        prop_assert!(known.is_none_or(|known| known == outside), "its translation stays");
                        prop_assert_eq!(outside.0[0] == 200, server.1 == 80);
                        outsides.insert((client, server), outside);
                    }
                }
            }
        }
        world.net.wait(900_000);
        prop_assert!(world.net.views().is_empty());
        for function in functions {
            let report = function.report();
            prop_assert_eq!(&report[0].1, &report[1].1, "all that was opened is released");
        }
    }
}

fn client_address((address, _): &End) -> [u8; 4] {
    *address
}

fn client_port((_, port): &End) -> [u8; 2] {
    port.to_be_bytes()
}
