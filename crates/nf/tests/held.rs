//! Packets that functions hold, with the runner alone.

#![allow(clippy::unwrap_used)]

#[path = "common/holder.rs"]
mod holder;

use holder::{Holder, Trace};
use mmb_flow::HeldLimits;
use mmb_nf::testing::{Bench, Forward, Reverse};
use mmb_nf::{
    ArgError, ChainVerdict, Context, DropReason, Function, Harness, Packet, Registry, Setup, Verdict,
};
use mmb_packet::build::{Frame, Ip4, Udp};
use proptest::prelude::*;

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 0, 2];

fn query(port: u16, payload: &str) -> Vec<u8> {
    Frame::new(Ip4::new(CLIENT, SERVER), Udp::new(port, 53)).payload(payload.as_bytes().to_vec()).build()
}

fn answer(port: u16, payload: &str) -> Vec<u8> {
    Frame::new(Ip4::new(SERVER, CLIENT), Udp::new(53, port)).payload(payload.as_bytes().to_vec()).build()
}

fn payload(frame: &[u8]) -> String {
    String::from_utf8_lossy(&frame[42..]).into_owned()
}

/// Frames of one session, in one vector: those with `<` in front are answers.
fn frames(payloads: &[&str]) -> Vec<Vec<u8>> {
    let frame = |text: &&str| match text.strip_prefix('<') {
        Some(text) => answer(1000, text),
        None => query(1000, text),
    };
    payloads.iter().map(frame).collect()
}

struct World(Harness);

impl World {
    fn new(lines: &str) -> World {
        let mut registry = Registry::default();
        registry.add::<Holder>().add::<Trace>();
        World(Harness::new(registry, lines).unwrap())
    }

    /// Sends frames in one vector. Returns the payloads that go on, in order, and the rest in brackets.
    fn send(&mut self, payloads: &[&str]) -> Vec<String> {
        let mut sent = self.0.send("c", &frames(payloads));
        sent.retain(|one| one.verdict != ChainVerdict::Hold);
        sent.extend(self.0.released());
        let show = |one: &mmb_nf::harness::Sent| match one.verdict {
            ChainVerdict::Pass => payload(&one.frame),
            ChainVerdict::Drop(reason) | ChainVerdict::Refuse(reason) | ChainVerdict::End(reason) => {
                format!("[{} {reason}]", payload(&one.frame))
            }
            ChainVerdict::Hold | ChainVerdict::Consume => unreachable!("it has gone on"),
        };
        sent.iter().map(show).collect()
    }

    /// What a function `trace` has seen.
    fn seen(&self, instance: &str) -> String {
        self.0.program().instance(instance).unwrap().report()[0].1.clone()
    }

    fn counts(&mut self) -> (u64, u64, u64) {
        let sum = self.0.runner().counters().iter();
        sum.fold((0, 0, 0), |(held, released, drops), stage| {
            (held + stage.held, released + stage.released, drops + stage.drops)
        })
    }
}

const ONE: &str = "nf add h hold\nnf add t trace\nchain add c h | t";

#[test]
fn packets_wait_for_a_marker_and_go_on_in_front_of_it() {
    let mut world = World::new(ONE);
    assert!(world.send(&["H1", "H2"]).is_empty());
    assert_eq!(world.send(&["pass"]), ["pass"]);
    assert_eq!(world.send(&["H3", "Rx", "later"]), ["*1", "*2", "*3", "Rx", "later"]);
    assert_eq!(world.seen("t"), "pass *1 *2 *3 Rx later");
    assert_eq!(world.counts(), (3, 3, 0));
    assert_eq!(world.0.runner().held().0, 0);
}

/// A packet that came before the release in the same vector has been passed already, and stays in front.
#[test]
fn packets_that_were_passed_stay_in_front() {
    let mut world = World::new(ONE);
    assert_eq!(world.send(&["H1", "first", "R", "last"]), ["first", "*1", "R", "last"]);
    assert_eq!(world.seen("t"), "first *1 R last");
}

#[test]
fn packets_go_on_behind_the_packet_if_the_function_says_so() {
    let mut world = World::new(ONE);
    assert_eq!(world.send(&["H1", "H2", "A", "last"]), ["A", "*1", "*2", "last"]);
    assert_eq!(world.seen("t"), "A *1 *2 last");
    // Packets that follow earlier ones are not overtaken by what is released later.
    let sent = world.send(&["H3", "R", "x", "H4", "A", "y"]);
    assert_eq!(sent, ["*3", "R", "x", "A", "*4", "y"]);
}

/// As TCP does it: packets arrive in any order, and a prefix goes on.
#[test]
fn packets_are_ordered_by_number() {
    let mut world = World::new(ONE);
    assert!(world.send(&["7a", "2a", "4a", "2b", "9a"]).is_empty());
    assert_eq!(world.send(&["1a", "B"]), ["B", "*a", "*a", "*b", "*a"]);
    assert_eq!(world.send(&["R"]), ["*a", "*a", "R"]);
    assert_eq!(world.seen("t"), "B *a *a *b *a *a *a R");
}

#[test]
fn directions_and_sessions_are_apart() {
    let mut world = World::new(ONE);
    assert!(world.send(&["Hf", "<Hr"]).is_empty());
    let other = world.0.send("c", &[query(2000, "H"), query(2000, "R")]);
    assert_eq!(other[1].verdict, ChainVerdict::Hold);
    assert_eq!(world.0.released().len(), 2);
    assert_eq!(world.send(&["<R", "x"]), ["x", "*r", "R"]);
    // A packet releases the packets of the other direction, which stay in front of later ones.
    assert_eq!(world.send(&["Hg", "<O", "y", "<z"]), ["O", "z", "*f", "*g", "y"]);
    // Packets of the reverse direction pass `t` first.
    assert_eq!(world.seen("t"), "(Hr) * R (R) x (O) (z) *f *g y");
}

#[test]
fn some_are_released_and_some_are_dropped() {
    let mut world = World::new(ONE);
    assert_eq!(world.send(&["H1", "H2", "H3", "r", "x"]), ["*1", "r", "x"]);
    assert_eq!(world.send(&["D"]), ["D", "[H2 police]", "[H3 police]"]);
    assert_eq!(world.send(&["R"]), ["R"]);
    assert_eq!(world.counts().0, 3);
}

#[test]
fn held_packets_have_a_time() {
    let mut world = World::new(ONE);
    assert!(world.send(&["H1"]).is_empty());
    world.0.expire(9_999);
    assert!(world.send(&["H2"]).is_empty());
    world.0.expire(1);
    assert_eq!(world.send(&["R"]), ["[H1 held-timeout]", "*2", "R"]);
}

#[test]
fn packets_of_a_session_that_ends_are_dropped() {
    let mut world = World::new(ONE);
    assert!(world.send(&["H1", "<H2"]).is_empty());
    world.0.end_all();
    let dropped: Vec<_> = world.0.released().into_iter().map(|one| one.verdict).collect();
    assert_eq!(dropped, [ChainVerdict::Drop(DropReason::HeldEnded); 2]);
    assert_eq!(world.0.runner().held().0, 0);
}

/// A function that ends a session may release its packets first.
#[test]
fn packets_that_are_released_before_the_end_of_the_session_go_on() {
    let mut world = World::new(ONE);
    assert_eq!(world.send(&["H1", "<H2", "E"]), ["[E backend-down]", "*1", "[H2 held-ended]"]);
    assert_eq!(world.0.runner().held().0, 0);
}

/// A function `flow` has sessions of its own, which end apart from those of the flow manager.
#[test]
fn packets_that_are_released_before_the_end_of_an_inner_session_go_on() {
    let mut world = World::new("nf add f flow\nnf add h hold\nchain add c f | h");
    assert_eq!(world.send(&["H1", "E"]), ["[E backend-down]", "*1"]);
    assert_eq!(world.send(&["x"]), ["x"], "a new inner session");
    assert_eq!(world.0.runner().held().0, 0);
}

#[test]
fn packets_of_a_function_that_leaves_the_chain_are_dropped() {
    let mut world = World::new("nf add h hold\nnf add k hold\nchain add c h | k");
    assert_eq!(world.send(&["H1"]), Vec::<String>::new());
    // The session moves with its next packet. The function that stays keeps its packets.
    world.0.load("nf add h hold\nnf add t trace\nchain add c t | h | t2\nnf add t2 trace").unwrap();
    assert_eq!(world.send(&["R"]), ["*1", "R"]);
    assert_eq!((world.seen("t"), world.seen("t2")), ("R".into(), "*1 R".into()));
    assert_eq!(world.send(&["H1"]), Vec::<String>::new());
    world.0.load("nf add t trace\nchain add c t").unwrap();
    assert_eq!(world.send(&["x"]), ["x", "[H1 held-ended]"]);
    assert_eq!(world.0.runner().held().0, 0);
}

/// Two functions hold: packets pass both in order, also if both release in one vector.
#[test]
fn several_functions_of_a_chain_hold() {
    let mut world = World::new("nf add h hold\nnf add k hold\nnf add t trace\nchain add c h | k | t");
    assert!(world.send(&["H1", "H2"]).is_empty());
    // The first function writes over the first byte. So the second one passes these packets.
    assert_eq!(world.send(&["R", "x"]), ["*1", "*2", "R", "x"]);
    assert_eq!(world.send(&["<H1"]), Vec::<String>::new());
    assert_eq!(world.send(&["<R", "<y"]), ["*1", "R", "y"]);
    assert_eq!(world.seen("t"), "*1 *2 R x (H1) (R) (y)");
}

#[test]
fn packets_keep_their_branches() {
    let lines = "nf add h hold outputs\nnf add a trace\nnf add b trace\nnf add t trace\n\
                 chain add c h [a: a, b: b] | t";
    let mut world = World::new(lines);
    assert_eq!(world.send(&["H1", "H2", "R", "s", "x"]), ["*1", "*2", "R", "s", "x"]);
    assert_eq!((world.seen("a"), world.seen("b")), ("*1 *2 R x".into(), "s".into()));
    assert_eq!(world.seen("t"), "*1 *2 R s x");
}

/// The function that holds is in an arm, behind functions `flow`.
#[test]
fn packets_go_on_in_nested_chains() {
    let lines = "nf add f flow\nnf add g flow\nnf add h hold\nnf add a trace\nnf add b trace\n\
                 nf add s hold outputs\nchain add c a | f | s [a: g | h | b, b: drop]";
    let mut world = World::new(lines);
    assert!(world.send(&["H1"]).is_empty());
    assert_eq!(world.send(&["x"]), ["x"]);
    assert_eq!(world.send(&["R", "y"]), ["*1", "R", "y"]);
    assert_eq!((world.seen("a"), world.seen("b")), ("H1 x R y".into(), "x *1 R y".into()));
    assert!(world.send(&["H2"]).is_empty());
    // The outer session ends, and the inner ones live on.
    world.0.end_all();
    assert_eq!(world.send(&["R"]), ["[H2 held-ended]", "R"]);
    assert_eq!(world.0.runner().held().0, 0);
}

/// `undeclared-hold`: holds packets, although it does not say that it does.
struct UndeclaredHold;

impl Function for UndeclaredHold {
    const TYPE: &'static str = "undeclared-hold";
    const USAGE: &'static str = "";
    const HELP: &'static str = "holds packets";
    type Pad = ();
    type Local = ();

    fn new(_: &Setup<'_>) -> Result<Self, ArgError> {
        Ok(UndeclaredHold)
    }

    fn packet(&self, _: &mut Packet<'_>, (): &mut (), _: &mut Context<'_, ()>) -> Verdict {
        Verdict::Hold
    }
}

#[test]
fn only_functions_that_say_so_hold_packets() {
    let mut bench = Bench::<UndeclaredHold>::new("");
    let session = bench.open(&query(1, "x"));
    let verdict = bench.packet(session, Forward, &query(1, "x")).verdict;
    assert_eq!(verdict, Verdict::Drop(DropReason::ChainError));
    let mut registry = Registry::default();
    registry.add::<Holder>();
    let flows = "nf add a flow\nnf add b flow\nnf add c flow\nnf add d flow\nnf add h hold\n";
    assert!(Harness::new(registry, &format!("{flows}chain add c a | b | c | h")).is_ok());
    let mut registry = Registry::default();
    registry.add::<Holder>();
    let error = Harness::new(registry, &format!("{flows}chain add c a | b | c | d | h")).err().unwrap();
    assert_eq!(
        error.to_string(),
        "`h` holds packets, and more than 3 functions of type flow are in front of it"
    );
}

#[test]
fn there_are_bounds() {
    let mut bench = Bench::<Holder>::new("");
    bench.set_held_limits(HeldLimits { session: 3, worker: 5 });
    let sessions: Vec<usize> = (0..3).map(|port| bench.open(&query(port, "H"))).collect();
    let hold = |bench: &mut Bench<Holder>, session: usize| {
        bench.packet(session, Forward, &query(session as u16, "H")).verdict
    };
    let full = Verdict::Drop(DropReason::HeldFull);
    let verdicts: Vec<_> = (0..4).map(|_| hold(&mut bench, sessions[0])).collect();
    assert_eq!(verdicts, [Verdict::Hold, Verdict::Hold, Verdict::Hold, full]);
    let reverse = bench.packet(sessions[0], Reverse, &answer(0, "H")).verdict;
    assert_eq!(reverse, full, "both directions together");
    let verdicts: Vec<_> = (0..3).map(|_| hold(&mut bench, sessions[1])).collect();
    assert_eq!(verdicts, [Verdict::Hold, Verdict::Hold, full], "the worker's limit");
    bench.packet(sessions[0], Forward, &query(0, "D"));
    let dropped: Vec<_> = bench.released().into_iter().map(|done| done.verdict).collect();
    assert_eq!(dropped, [Verdict::Drop(DropReason::Police); 3]);
    assert_eq!(hold(&mut bench, sessions[2]), Verdict::Hold);
}

/// A function `hold` for the packets of one session, one packet after the other. Orders and payloads by
/// direction.
#[derive(Default)]
struct Model([Vec<(u8, String)>; 2]);

impl Model {
    /// Returns the packets that go on, with their directions.
    fn packet(&mut self, direction: usize, payload: &str) -> Vec<(usize, String)> {
        let held = &mut self.0[direction];
        let star = |(_, payload): (u8, String)| format!("*{}", &payload[1..]);
        let (mut before, mut behind) = (Vec::new(), Vec::new());
        match payload.as_bytes()[0] {
            b'H' => {
                held.push((held.last().map_or(0, |last| last.0), payload.into()));
                return Vec::new();
            }
            digit @ b'0'..=b'9' => {
                let at = held.partition_point(|(order, _)| *order <= digit - b'0');
                held.insert(at, (digit - b'0', payload.into()));
                return Vec::new();
            }
            b'R' => before.extend(held.drain(..).map(|one| (direction, star(one)))),
            b'r' => before.extend(held.drain(..held.len().min(1)).map(|one| (direction, star(one)))),
            b'A' => behind.extend(held.drain(..).map(|one| (direction, star(one)))),
            b'B' => {
                let n = held.partition_point(|(order, _)| *order < 5);
                behind.extend(held.drain(..n).map(|one| (direction, star(one))));
            }
            b'O' => before.extend(self.0[1 - direction].drain(..).map(|one| (1 - direction, star(one)))),
            b'D' => held.clear(),
            _ => {}
        }
        before.push((direction, payload.into()));
        before.extend(behind);
        before
    }
}

/// The payloads that leave, by session and direction.
type Leaving = [[Vec<String>; 2]; 2];

proptest! {
    /// However packets come in vectors, packets of a session and direction leave in the order that one
    /// packet after the other gives.
    #[test]
    fn vectors_do_not_change_the_order(
        packets in prop::collection::vec((0..2usize, 0..2usize, 0..13usize), 1..120),
        cuts in prop::collection::vec(1..20usize, 1..20),
        functions in 1..3usize,
    ) {
        let lines = ["nf add h hold\nchain add c h", "nf add h hold\nnf add k hold\nchain add c h | k"];
        let mut world = World::new(lines[functions - 1]);
        let (mut expected, mut sent): (Leaving, Leaving) = Default::default();
        // The first packet of a session is forward.
        let mut all: Vec<(usize, usize, String)> = vec![(0, 0, "x".into()), (1, 0, "x".into())];
        all.extend(packets.into_iter().enumerate().map(|(n, (session, direction, what))| {
            // Two functions would see the other direction at different times.
            let words = if functions == 1 { b"HH1379RrABDxO" } else { b"HH1379RrABDxx" };
            (session, direction, format!("{}{n}", char::from(words[what])))
        }));
        let mut models: [[Model; 2]; 2] = Default::default();
        for (session, direction, payload) in &all {
            let mut on = vec![(*direction, payload.clone())];
            let mut order: Vec<usize> = (0..functions).collect();
            if *direction == 1 {
                order.reverse();
            }
            for function in order {
                let model = &mut models[*session][function];
                on = on.into_iter().flat_map(|(way, payload)| model.packet(way, &payload)).collect();
            }
            on.into_iter().for_each(|(way, payload)| expected[*session][way].push(payload));
        }
        let mut rest = &all[..];
        for cut in cuts.iter().cycle() {
            let (vector, later) = rest.split_at((*cut).min(rest.len()));
            rest = later;
            let frames = vector.iter().map(|(session, direction, payload)| match direction {
                0 => query(1000 + *session as u16, payload),
                _ => answer(1000 + *session as u16, payload),
            });
            let mut done = world.0.send("c", &frames.collect::<Vec<_>>());
            done.extend(world.0.released());
            for one in done.iter().filter(|one| one.verdict == ChainVerdict::Pass) {
                let [from, to] = [34, 36].map(|at| u16::from_be_bytes([one.frame[at], one.frame[at + 1]]));
                let (session, direction) = if to == 53 { (from - 1000, 0) } else { (to - 1000, 1) };
                sent[usize::from(session)][direction].push(payload(&one.frame));
            }
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(sent, expected);
        let waiting: usize = models.iter().flatten().flat_map(|model| &model.0).map(Vec::len).sum();
        prop_assert_eq!(world.0.runner().held().0, waiting);
    }
}
