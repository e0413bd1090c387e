//! Chains change while sessions go through them.

use mmb_session_harness::RuleSet;

use crate::common::*;
use crate::{CLIENT, SERVER, World};

const RULE: &str = "add-stateful in port0 chain web";

fn counts(world: &World, names: &[&str]) -> Vec<[u64; 3]> {
    names.iter().map(|name| ["opened", "released", "packets"].map(|count| world.count(name, count))).collect()
}

/// Functions are put in and taken out in front, in the middle, behind, in any order; what stays keeps what it
/// knows.
#[test]
fn functions_are_added_and_removed() {
    let mut world = World::new(&["nf add a tally", "nf add b tally", "chain add web a | b", RULE]);
    world.net.connect(CLIENT, SERVER);
    assert_eq!(counts(&world, &["a", "b"]), [[1, 0, 3]; 2]);
    world.change(&["nf add c see", "nf add a tally", "nf add b tally", "chain add web c | b | a", RULE]);
    world.net.passes(OUT, &tcp(SERVER, CLIENT, ACK, 501, 101));
    world.net.passes(IN, &tcp(CLIENT, SERVER, ACK, 101, 501));
    assert_eq!(counts(&world, &["a", "b"]), [[1, 0, 5]; 2]);
    assert_eq!(
        world.seen("c"),
        [
            "open 10.0.0.1:4000 192.0.2.1:80",
            "back 192.0.2.1:80 10.0.0.1:4000",
            "there 10.0.0.1:4000 192.0.2.1:80"
        ]
    );
    let a = world.net.harness.rules().chains.instance("a").expect("there").clone();
    world.change(&["nf add b tally", "nf add d tally", "chain add web d | b", RULE]);
    assert_eq!(a.report()[1].1, "0", "not before a packet comes");
    world.net.passes(IN, &tcp(CLIENT, SERVER, ACK, 101, 501));
    world.net.passes(OUT, &tcp(SERVER, CLIENT, ACK, 501, 101));
    assert_eq!((a.report()[1].1.as_str(), a.report()[2].1.as_str()), ("1", "5"));
    assert_eq!(counts(&world, &["b", "d"]), [[1, 0, 7], [1, 0, 2]]);
    assert_eq!(world.net.view().packets, [4, 3], "the same session all the time");
}

/// Chains need larger scratchpads while thousands of sessions are open: each keeps what it has, whether its
/// packets come before others of its block, after them, or never.
#[test]
fn scratchpads_grow_under_open_sessions() {
    const SESSIONS: u16 = 3000;
    let rules = RuleSet::parse_with(
        &["nf add a tally", "chain add web a", RULE],
        Default::default(),
        None,
        &crate::registry(),
        1,
    );
    let mut world = World { net: Net::with(rules.expect("good lines"), 1, SESSIONS.into()), workers: 1 };
    let pass = |world: &mut World, ports: &mut dyn Iterator<Item = u16>| {
        ports.for_each(|port| world.net.passes(IN, &udp((CLIENT.0, port), SERVER)));
    };
    pass(&mut world, &mut (1..=SESSIONS));
    let (two, four) = (["nf add b tally", "nf add c tally"], "chain add web c | a | b");
    world.change(&["nf add a tally", two[0], "chain add web b | a", RULE]);
    pass(&mut world, &mut (1..=SESSIONS).rev().step_by(3));
    world.change(&["nf add a tally", two[0], two[1], four, RULE]);
    pass(&mut world, &mut (1..=SESSIONS).step_by(2));
    world.change(&["nf add a tally", "chain add web a", RULE]);
    pass(&mut world, &mut (1..=SESSIONS).rev().step_by(5));
    let (workers, rules) = world.net.harness.workers_mut();
    while workers[0].clear_batch(100, rules) {}
    assert_eq!(counts(&world, &["a"]), [[3000, 3000, 3000 + 1000 + 1500 + 600]]);
}

/// A session that sees no packet ends under whatever program it has.
#[test]
fn idle_sessions_expire_under_their_old_program() {
    let mut world = World::new(&["nf add a tally 300000", "nf add b tally", "chain add web a | b", RULE]);
    world.net.passes(IN, &udp(CLIENT, SERVER));
    let a = world.net.harness.rules().chains.instance("a").expect("there").clone();
    for _ in 0..5 {
        world.change(&["nf add b tally", "chain add web b", RULE]);
        world.change(&["nf add b tally", "chain add other b", "add-stateful in port0 chain other"]);
    }
    assert_eq!(world.chains(), [Some("web".to_owned())]);
    world.net.wait(250_000);
    assert_eq!(world.net.views().len(), 1, "as long as `a` wanted it");
    world.net.wait(60_000);
    assert!(world.net.views().is_empty());
    assert_eq!((a.report()[1].1.as_str(), world.count("b", "released")), ("1", 1));
}

/// Rules say which chain a session goes through, or none; that may change, too.
#[test]
fn sessions_get_a_chain_and_lose_it() {
    let accept = "add-stateful in port0 udp-dport 80 accept";
    let mut world = World::new(&[accept]);
    world.net.passes(IN, &udp(CLIENT, SERVER));
    assert_eq!(world.chains(), [None]);
    let functions = ["nf add a tally", "nf add b tally", "chain add web a | b", "chain add other b"];
    let with = |rules: &[&'static str]| [&functions[..], &[accept], rules].concat();
    world.change(&with(&[RULE]));
    assert_eq!(world.chains(), [None], "not before a packet comes");
    world.net.passes(OUT, &udp(SERVER, CLIENT));
    assert_eq!(world.chains(), [None], "the rule is about the other direction's packets");
    world.net.passes(IN, &udp(CLIENT, SERVER));
    assert_eq!(world.chains(), [Some("web".to_owned())]);
    world.net.passes(OUT, &udp(SERVER, CLIENT));
    assert_eq!(counts(&world, &["a", "b"]), [[1, 0, 2]; 2]);
    world.change(&with(&[RULE, "add-stateful in port0 chain other"]));
    world.net.passes(IN, &udp(CLIENT, SERVER));
    assert_eq!(counts(&world, &["a", "b"]), [[1, 1, 2], [1, 0, 3]]);
    world.change(&with(&[]));
    world.net.passes(OUT, &udp(SERVER, CLIENT));
    world.net.passes(IN, &udp(CLIENT, SERVER));
    assert_eq!((world.chains(), world.net.view().packets), (vec![None], [4, 3]));
    assert_eq!(counts(&world, &["a", "b"]), [[1, 1, 2], [1, 1, 3]]);
    world.change(&with(&[RULE]));
    world.net.passes(IN, &udp(CLIENT, SERVER));
    assert_eq!(counts(&world, &["a", "b"]), [[2, 1, 3], [2, 1, 4]]);
    // It ends with its last rule.
    world.change(&functions);
    world.net.passes(IN, &udp(CLIENT, SERVER));
    assert!(world.net.views().is_empty());
    assert_eq!(counts(&world, &["a", "b"]), [[2, 2, 3], [2, 2, 4]]);
}

/// An operator clears sessions; functions are told.
#[test]
fn cleared_sessions_are_released() {
    let mut world = World::new(&["nf add a tally", "chain add web a", RULE]);
    for port in 1..20 {
        world.net.passes(IN, &udp((CLIENT.0, port), SERVER));
    }
    let view = world.net.views()[7].clone();
    let (workers, rules) = world.net.harness.workers_mut();
    assert!(workers[0].clear(view.id, view.uid, rules) && !workers[0].clear(view.id, view.uid, rules));
    assert_eq!(counts(&world, &["a"]), [[19, 1, 19]]);
    let (workers, rules) = world.net.harness.workers_mut();
    while workers[0].clear_batch(3, rules) {}
    assert_eq!(counts(&world, &["a"]), [[19, 19, 19]]);
}

/// A full table makes room; the functions of those that had to go are told.
#[test]
fn evicted_sessions_are_released() {
    let lines = ["nf add a tally", "chain add web a", RULE];
    let rules = RuleSet::parse_with(&lines, Default::default(), None, &crate::registry(), 1);
    let mut world = World { net: Net::with(rules.expect("good lines"), 1, 16), workers: 1 };
    for port in 1..100 {
        world.net.passes(IN, &udp((CLIENT.0, port), SERVER));
    }
    assert_eq!(counts(&world, &["a"]), [[99, 83, 99]]);
}

/// More than the scratchpads hold is not heard of; control refuses it before it comes to that.
#[test]
fn too_large_for_the_scratchpads() {
    let mut lines: Vec<String> = (0..8).map(|n| format!("nf add t{n} tally")).collect();
    lines.push(format!("chain add web {}", (0..8).map(|n| format!("t{n}")).collect::<Vec<_>>().join(" | ")));
    let parsed = RuleSet::parse_with(&lines, Default::default(), None, &crate::registry(), 1);
    assert!(parsed.is_err_and(|error| error.to_string().contains("scratchpad")));
}
