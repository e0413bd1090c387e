//! The order of functions, the packets that they see, and their effect on sessions.

use mmb_dataplane::Forwarding;
use mmb_lang::ErrorPolicy;
use mmb_packet::build::{Frame, Ip4, Tcp};

use super::functions::ID;
use super::world::*;

/// The identifications of frames.
fn ids(out: &[(mmb_dataplane::PortId, Vec<u8>)]) -> Vec<u16> {
    out.iter().map(|(_, frame)| u16::from_be_bytes([frame[ID.start], frame[ID.start + 1]])).collect()
}

const AB: [&str; 4] =
    ["nf add a digit 1", "nf add b digit 2", "chain add ab a | b", "add-stateful udp-dport 53 chain ab"];

#[test]
fn functions_run_in_order_and_mirrored_on_the_reverse_path() {
    let mut world = world(forwarding(&AB, None));
    for _ in 0..3 {
        let out = world.send(LEFT, &there(5_000, b"question"));
        assert_eq!((out.len(), out[0].0, ids(&out)[0]), (1, RIGHT, 0x12));
        let out = world.send(RIGHT, &back(5_000, b"answer"));
        assert_eq!((out.len(), out[0].0, ids(&out)[0]), (1, LEFT, 0x21));
    }
    // A packet without a chain is unchanged.
    let other =
        Frame::new(Ip4 { id: 0, ..Ip4::new(INSIDE, OUTSIDE) }, mmb_packet::build::Udp::new(5_000, 54))
            .build();
    assert_eq!(world.send(LEFT, &other), [(RIGHT, other.clone())]);
    assert_eq!(world.drops(), []);
}

#[test]
fn a_vector_of_many_sessions_keeps_them_apart() {
    let lines = ["nf add n number", "chain add c n", "add-stateful udp-dport 53 chain c"];
    let mut world = world(forwarding(&lines, None));
    for round in 1..4 {
        let frames: Vec<_> = (5_000..5_100).map(|port| (LEFT, there(port, b"x"))).collect();
        let out = world.lab.run(0, frames);
        assert_eq!(ids(&out), [round * 2 - 1; 100]);
        let frames: Vec<_> = (5_000..5_100).rev().map(|port| (RIGHT, back(port, b"x"))).collect();
        assert_eq!(ids(&world.lab.run(0, frames)), [round * 2; 100]);
    }
}

#[test]
fn a_devices_hash_is_no_more_than_a_hint() {
    let lines = ["nf add n number", "chain add c n", "add-stateful udp-dport 53 chain c"];
    let mut world = world(forwarding(&lines, None));
    // The same function for all flows and both directions.
    for round in 1..40 {
        let frames: Vec<_> = (5_000..5_010).map(|port| (LEFT, there(port, b"x"))).collect();
        assert_eq!(ids(&world.lab.run_hashed(0, 7, frames)), [round * 2 - 1; 10]);
        let frames: Vec<_> = (5_000..5_010).map(|port| (RIGHT, back(port, b"x"))).collect();
        assert_eq!(ids(&world.lab.run_hashed(0, 7, frames)), [round * 2; 10]);
    }
}

#[test]
fn edits_of_rules_come_before_the_chain() {
    // Once for all packets of a direction, and once per packet.
    for edit in ["add udp-dport 53 mod ip-id 7", "add udp-dport 53 ip-ttl 64 mod ip-id 7"] {
        let mut world = world(forwarding(&[&AB[..], &[edit]].concat(), None));
        for _ in 0..3 {
            assert_eq!(ids(&world.send(LEFT, &there(5_000, b"x"))), [0x712], "{edit}");
            assert_eq!(ids(&world.send(RIGHT, &back(5_000, b"x"))), [0x21], "{edit}");
        }
    }
}

#[test]
fn a_rule_redirects_packets_after_the_chain() {
    let mut world = world(forwarding(&[&AB[..], &["add udp-dport 53 mod out side"]].concat(), None));
    for _ in 0..2 {
        let out = world.send(LEFT, &there(5_000, b"x"));
        assert_eq!((out[0].0, ids(&out)[0]), (SIDE, 0x12));
    }
}

#[test]
fn the_error_policy_drops_uneditable_packets_before_the_chain() {
    let lines = [
        "nf add n number",
        "chain add c n",
        "add-stateful tcp-dport 80 chain c",
        "add tcp-dport 80 mod ip-ttl 3 add tcp-opt-timestamp 5",
    ];
    let tcp = |flags, seq, options: &[u8]| {
        let net = Ip4 { id: 0, ..Ip4::new(INSIDE, OUTSIDE) };
        Frame::new(net, Tcp { flags, seq, ack: 1, options: options.to_vec(), ..Tcp::new(9, 80) }).build()
    };
    let full = [&[253, 36][..], &[0; 34]].concat();
    let frames = || {
        let rest = [&full[..], &[], &full, &full, &[], &[]].map(|options| (LEFT, tcp(16, 101, options)));
        rest.to_vec()
    };
    for (on_error, expected, drops) in [
        (ErrorPolicy::Forward, &[1, 2, 3, 4, 5, 6, 7][..], vec![]),
        (ErrorPolicy::Drop, &[1, 2, 3, 4], vec![("option-space", 3)]),
    ] {
        let mut world = world(Forwarding { on_error, ..forwarding(&lines, None) });
        let mut out = world.send(LEFT, &tcp(2, 100, &[]));
        out.extend(world.lab.run(0, frames()));
        assert_eq!((ids(&out), world.drops()), (expected.to_vec(), drops));
    }
}

const GATE: [&str; 4] =
    ["nf add g gate", "nf add n number", "chain add c g | n", "add-stateful udp-dport 53 chain c"];

#[test]
fn functions_drop_refuse_and_end() {
    let mut world = world(forwarding(&GATE, None));
    let mut say = |port, word: &[u8]| ids(&world.send(LEFT, &there(port, word)));
    assert_eq!((say(5_000, b"a"), say(5_000, b"Drop"), say(5_000, b"a")), (vec![1], vec![], vec![2]));
    // A packet of another session.
    assert_eq!((say(6_000, b"a"), say(6_000, b"Refuse"), say(6_000, b"a")), (vec![1], vec![], vec![]));
    assert_eq!((say(7_000, b"a"), say(7_000, b"End"), say(7_000, b"a")), (vec![1], vec![], vec![1]));
    assert_eq!(say(5_000, b"a"), [3]);
    assert_eq!(world.send(RIGHT, &back(6_000, b"a")), []);
    let mut drops = world.drops();
    drops.sort_unstable();
    assert_eq!(drops, [("acl", 3), ("backend-down", 1), ("chain-error", 1)]);
}

#[test]
fn the_class_of_a_chain_is_part_of_the_rule() {
    let lines = [
        "nf add g gate",
        "nf add n number",
        "chain add c g | n",
        "add-stateful ip-saddr 10.0.0.0/24 chain c",
    ];
    let mut world = world(forwarding(&lines, None));
    let tcp =
        Frame::new(Ip4 { id: 0, ..Ip4::new(INSIDE, OUTSIDE) }, Tcp { flags: 2, ..Tcp::new(9, 80) }).build();
    assert_eq!(world.send(LEFT, &tcp), [(RIGHT, tcp.clone())]);
    assert_eq!(ids(&world.send(LEFT, &there(5_000, b"a"))), [1]);
}

#[test]
fn functions_keep_their_state_across_changes() {
    let n = ["nf add n number", "chain add c n", "add-stateful udp-dport 53 chain c"];
    let first = forwarding(&n, None);
    let longer = ["nf add n number", "nf add d digit 5", "nf add m number", "chain add c m | n | d", n[2]];
    let second = forwarding(&longer, Some(&first));
    let third = forwarding(&[], Some(&second));
    let mut world = world(first);
    let send = |world: &mut World| ids(&world.send(LEFT, &there(5_000, b"x")));
    assert_eq!([send(&mut world), send(&mut world)], [[1], [2]]);
    world.lab.publish(second);
    // New instances start anew; the digit is last.
    assert_eq!([send(&mut world), send(&mut world)], [[0x35], [0x45]]);
    world.lab.publish(third);
    assert_eq!(send(&mut world), [0]);
}

#[test]
fn workers_share_sessions_out_among_themselves() {
    let lines = ["nf add n number", "chain add c n", "add-stateful udp-dport 53 chain c"];
    let mut world = world_of(2, forwarding(&lines, None));
    for round in 1..4 {
        let frames: Vec<_> = (5_000..5_200).map(|port| (LEFT, there(port, b"x"))).collect();
        assert_eq!(ids(&world.lab.run(0, frames)), [round * 2 - 1; 200]);
        let frames: Vec<_> = (5_000..5_200).map(|port| (RIGHT, back(port, b"x"))).collect();
        assert_eq!(ids(&world.lab.run(0, frames)), [round * 2; 200]);
    }
    let shares = world.lab.sessions();
    assert!(
        shares.len() == 2 && shares.iter().sum::<u64>() == 200 && shares.iter().all(|n| *n > 50),
        "{shares:?}"
    );
}

#[test]
fn routed_packets_go_through_chains_before_they_are_routed() {
    let mut world = world(routed(&AB));
    for _ in 0..3 {
        let out = world.send(LEFT, &there(5_000, b"x"));
        assert_eq!((out.len(), out[0].0, ids(&out)[0], out[0].1[22]), (1, RIGHT, 0x12, 63));
        assert_eq!(out[0].1[..12], [NEIGHBOR_MAC, RIGHT_MAC].concat());
        let out = world.send(RIGHT, &back(5_000, b"x"));
        assert_eq!((out.len(), out[0].0, ids(&out)[0], out[0].1[22]), (1, LEFT, 0x21, 63));
    }
    assert_eq!(world.drops(), []);
}
