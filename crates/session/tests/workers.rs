//! Several workers, and fragments: packets find their session wherever they come first.

mod common;

use std::collections::HashSet;

use common::*;
use mmb_packet::DropReason;
use mmb_packet::build::{Frame, Ip4, Transport};
use mmb_session_harness::Outcome;

const CLIENT: End = ([10, 0, 0, 1], 40_000);
const SERVER: End = ([192, 0, 2, 7], 80);
const NAT: [u8; 4] = [200, 0, 0, 1];

const POOL: &str = "nat pool add p 200.0.0.1";
const USE: &str = "add-stateful ip-saddr 10.0.0.0/8 nat p";

/// Two hosts inside that both match the pool's rule: a reply is a reply, with any worker.
#[test]
fn hosts_inside_answer_each_other() {
    for workers in 1..5 {
        for n in 0..12 {
            let mut net = Net::with(rules(&[POOL, USE]), workers, 100);
            let server: End = ([10, 0, 1, n], 80);
            let shown = source(&net.one(IN, &udp(CLIENT, server)).1);
            for _ in 0..2 {
                net.becomes(OUT, &udp(server, shown), &udp(server, CLIENT));
                net.becomes(IN, &udp(CLIENT, server), &udp(shown, server));
            }
            assert_eq!(net.view().packets, [3, 2]);
        }
    }
}

/// Rules change while workers have notes of who has what.
#[test]
fn workers_agree_after_a_change() {
    let plain = "add-stateful ip-saddr 10.0.0.0/8 accept";
    let map = "add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 200.0.0.1";
    let deny = "add all drop";
    for workers in 2..5 {
        let mut net = Net::with(rules(&[map]), workers, 1000);
        let flows: Vec<End> = (0..60u8).map(|n| ([10, 0, 0, n], 3000 + u16::from(n))).collect();
        flows.iter().for_each(|&from| net.becomes(IN, &udp(from, SERVER), &udp((NAT, from.1), SERVER)));
        net.change(&[plain, deny]);
        for &from in &flows {
            net.passes(IN, &udp(from, SERVER));
            net.passes(OUT, &udp(SERVER, from));
        }
        net.change(&[POOL, USE]);
        let mut ends = HashSet::new();
        for &from in &flows {
            let (_, bytes) = net.one(IN, &udp(from, SERVER));
            let shown = source(&bytes);
            assert!(ends.insert(shown) && shown.0 == NAT);
            net.becomes(OUT, &udp(SERVER, shown), &udp(SERVER, from));
            // One mapping for all places.
            net.becomes(IN, &udp(from, ([9, 9, 9, 9], 1)), &udp(shown, ([9, 9, 9, 9], 1)));
        }
    }
}

/// Fragments of a datagram, in whatever order, all get the new addresses.
#[test]
fn fragments_follow_the_first() {
    for pool in [true, false] {
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [2, 0, 1]] {
            let bind = if pool { USE } else { "add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 200.0.0.1" };
            let mut net = Net::new(if pool { &[POOL, USE] } else { std::slice::from_ref(&bind) });
            let pieces = |from: End, to: End| fragments(&udp(from, to).payload(vec![7; 2500]).build(), 1000);
            let (sent, expected) = (pieces(CLIENT, SERVER), pieces((NAT, CLIENT.1), SERVER));
            let mut came = Vec::new();
            for (n, piece) in order.into_iter().enumerate() {
                let out = net.harness.process(IN, mmb_packet::VecPacket::new(&sent[piece]));
                if n == 0 && piece != 0 {
                    assert!(out.is_empty(), "it waits");
                }
                came.extend(out.into_iter().map(|sent| {
                    assert_eq!(sent.outcome, Outcome::Out(OUT));
                    mmb_packet::PacketBuf::head(&sent.packet).to_vec()
                }));
            }
            assert_eq!(came.len(), 3);
            assert!(expected.iter().all(|piece| came.contains(piece)), "{order:?}");
            assert_eq!(came[0], expected[0], "the first one goes first");
        }
    }
}

/// A fragment whose first one does not come is lost.
#[test]
fn fragments_wait_for_a_while() {
    let mut net = Net::new(&[POOL, USE]);
    let pieces = fragments(&udp(CLIENT, SERVER).payload(vec![7; 2500]).build(), 1000);
    assert!(net.harness.process(IN, mmb_packet::VecPacket::new(&pieces[1])).is_empty());
    let lost = net.wait(2_100);
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].outcome, Outcome::Dropped(DropReason::FragmentLost));
}

/// An IPv4 frame in pieces of `size` bytes of payload, without options.
fn fragments(frame: &[u8], size: usize) -> Vec<Vec<u8>> {
    let pieces = frame[34..].chunks(size);
    let last = pieces.len() - 1;
    pieces
        .enumerate()
        .map(|(n, payload)| {
            let ip = Ip4 {
                id: 99,
                flags: u8::from(n != last),
                fragment_offset: (n * size / 8) as u16,
                ..Ip4::new(
                    <[u8; 4]>::try_from(&frame[26..30]).expect("there"),
                    <[u8; 4]>::try_from(&frame[30..34]).expect("there"),
                )
            };
            Frame::new(ip, Transport::Raw(frame[23])).payload(payload).build()
        })
        .collect()
}

/// Flows of many hosts over several workers: no two look the same outside, and each reply comes back to who
/// asked.
#[test]
fn workers_agree() {
    for lines in [
        vec![POOL, USE],
        vec!["add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 200.0.0.1"],
        vec!["add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 200.0.0.0/29 shuffle udp-sport"],
        vec!["add-stateful ip-saddr 10.0.0.0/8 map ip-daddr {192.0.2.7,192.0.2.8} map udp-dport 53"],
        vec!["add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 200.0.0.1 map udp-sport {1000,2000-2009}"],
        vec!["add-stateful ip-saddr 10.0.0.0/8 accept", "add all drop"],
    ] {
        for workers in [2, 3, 4] {
            let mut net = Net::with(rules(&lines), workers, 4000);
            let mut seen = HashSet::new();
            let flows: Vec<(End, End)> = (0..200u8)
                .map(|n| {
                    (
                        ([10, 0, n % 7, n % 11], 3000 + u16::from(n)),
                        ([192, 0, 2, n % 5], 80 + u16::from(n % 3)),
                    )
                })
                .collect();
            let mut shown = Vec::new();
            for &(from, to) in &flows {
                let (outcome, bytes) = net.one(IN, &udp(from, to));
                if outcome != Outcome::Out(OUT) {
                    // Eleven ports may be too few for the ones that talk to the same place.
                    assert_eq!(
                        (outcome, lines[0].contains("2000-2009")),
                        (Outcome::Answered(IN, DropReason::NatExhausted), true)
                    );
                    shown.push(None);
                    continue;
                }
                let ends = (source(&bytes), destination(&bytes));
                assert_eq!(bytes, udp(ends.0, ends.1).build());
                assert!(seen.insert(ends), "{lines:?} {ends:?}");
                shown.push(Some(ends));
            }
            for _ in 0..2 {
                for (&(from, to), shown) in flows.iter().zip(&shown) {
                    let Some((outer, target)) = *shown else { continue };
                    net.becomes(OUT, &udp(target, outer), &udp(to, from));
                    net.becomes(IN, &udp(from, to), &udp(outer, target));
                    // Where the server's address is not shown, a router's is not either (RFC 5508 REQ-5 c).
                    let complainer = if target.0 == to.0 { [9, 9, 9, 9] } else { to.0 };
                    net.becomes(
                        OUT,
                        &error(11, 0, [9, 9, 9, 9], outer.0, &udp(outer, target)),
                        &error(11, 0, complainer, from.0, &udp(from, to)),
                    );
                }
            }
            // First fragments come to the worker of their addresses.
            for (&(from, to), shown) in flows.iter().zip(&shown).step_by(9) {
                let Some((outer, target)) = *shown else { continue };
                let sent = fragments(&udp(from, to).payload(vec![1; 999]).build(), 400);
                let expected = fragments(&udp(outer, target).payload(vec![1; 999]).build(), 400);
                for (sent, expected) in sent.iter().zip(&expected) {
                    let out = net.harness.process(IN, mmb_packet::VecPacket::new(sent));
                    assert_eq!(out.len(), 1);
                    assert_eq!(mmb_packet::PacketBuf::head(&out[0].packet), expected);
                }
                net.wait(2_500);
            }
            assert_eq!(net.views().len(), shown.iter().flatten().count());
        }
    }
}
