//! The fast path with sessions: which flows are offloaded, and how their sessions continue.

mod answers;
mod closing;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError};

use mmb_dpdk::{FastAction, FastHook, FastKey, FastPort};
use mmb_fastpath::testing::{FakeKernel, derive_action, parse_key};
use mmb_fastpath::{FastPathConfig, FastPathPort, RefusalReason};
use mmb_flow::{NatConfig, PoolConfig, SessionSettings};
use mmb_lang::{Command, FastPathMode, SetKind, parse_element, parse_line};
use mmb_packet::build::{Frame, Ip4, Tcp, Udp};
use mmb_policy::Policy;
use mmb_route::Routes;
use proptest::prelude::*;

use super::{TURN, config};
use crate::engine::config::{Forwarding, MAX_PORTS, PortConfig, PortId};
use crate::lab::Lab;

const LEFT: PortId = PortId(0);
const RIGHT: PortId = PortId(1);
const INSIDE: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [192, 0, 2, 80];

struct World {
    lab: Lab,
    kernel: Arc<FakeKernel>,
    now: u32,
}

fn number(id: PortId) -> FastPort {
    FastPort(u32::from(id.0) + 7)
}

fn with_rules(mut policy: Policy, lines: &[&str]) -> Policy {
    for line in lines {
        let Ok(Some(Command::Add(rule))) = parse_line(line) else { panic!("{line}") };
        policy.add(&rule, &|name| Some(if name == "left" { 0 } else { 1 })).unwrap();
    }
    policy
}

fn forwarding(lines: &[&str]) -> Forwarding {
    let policy = with_rules(Policy::new(), lines);
    let pool = PoolConfig::new("p", [203, 0, 113, 1].into(), [203, 0, 113, 4].into()).unwrap();
    let nat = if lines.iter().any(|line| line.contains("nat p")) {
        NatConfig::new(vec![pool], Vec::new()).unwrap()
    } else {
        NatConfig::default()
    };
    Forwarding {
        policy,
        nat: Arc::new(nat),
        fast_path: FastPathMode::Auto,
        ports: vec![PortConfig::wire(LEFT, RIGHT), PortConfig::wire(RIGHT, LEFT)],
        ..Forwarding::default()
    }
}

impl World {
    fn new(lines: &[&str]) -> World {
        World::with(forwarding(lines))
    }

    fn with(forwarding: Forwarding) -> World {
        let lab = Lab::new(Forwarding::default(), Routes::default(), 64).unwrap();
        let mut world = World { lab, kernel: Arc::default(), now: 0 };
        world.publish(forwarding);
        world
    }

    fn publish(&mut self, forwarding: Forwarding) {
        let fast = self.fast(&forwarding);
        self.lab.publish_fast(forwarding, fast);
    }

    fn fast(&self, forwarding: &Forwarding) -> FastPathConfig {
        let mut ports = vec![None; MAX_PORTS];
        for id in [LEFT, RIGHT] {
            let can_redirect = Arc::new(AtomicBool::new(true));
            ports[usize::from(id.0)] =
                Some(FastPathPort { number: number(id), hook: FastHook::Xdp, can_redirect });
        }
        FastPathConfig {
            kernel: self.kernel.clone(),
            is_learning: config::is_learning(forwarding),
            needs_sessions: true,
            is_plain: false,
            pairs: None,
            ports: ports.into(),
        }
    }

    fn send(&mut self, port: PortId, frame: &[u8]) -> Option<Vec<u8>> {
        self.now += 1;
        self.lab.run(self.now, vec![(port, frame.to_vec())]).pop().map(|(_, frame)| frame)
    }

    fn learns(&mut self, port: PortId, frame: &[u8]) -> bool {
        for _ in 0..4 {
            self.send(port, frame);
        }
        self.wait(1);
        self.works(port, frame)
    }

    fn works(&self, port: PortId, frame: &[u8]) -> bool {
        self.kernel.action(&key(port, frame)).is_some()
    }

    /// The kernel forwards a segment that acknowledges `ack`; then a sweep runs.
    fn passes(&mut self, port: PortId, frame: &[u8], ack: u32) {
        self.kernel.count(&key(port, frame), 1, 60);
        self.kernel.acknowledge(&key(port, frame), ack);
        self.wait(60);
    }

    fn wait(&mut self, milliseconds: u32) {
        self.now += milliseconds;
        self.lab.run(self.now, Vec::new());
    }

    fn sessions(&self) -> u64 {
        self.lab.sessions()[0]
    }

    fn hits(&self, slot: u32) -> u64 {
        self.lab.shared().current().counters[0].get(slot).packets
    }

    fn refused(&self) -> Vec<RefusalReason> {
        let counters = &self.lab.shared().workers[0].counters.fast;
        RefusalReason::ALL.into_iter().filter(|why| counters.refused(*why) > 0).collect()
    }
}

fn key(port: PortId, frame: &[u8]) -> FastKey {
    parse_key(number(port), frame).unwrap()
}

fn udp(payload: u8) -> Vec<u8> {
    Frame::new(Ip4::new(INSIDE, SERVER), Udp::new(1000, 53)).payload([payload; 20]).build()
}

/// The other flows stay in the kernel, and none has to be learned again.
#[test]
fn a_change_of_elements_revokes_the_flows_that_it_concerns() {
    const OTHER: [u8; 4] = [10, 0, 0, 2];
    let mut policy = Policy::new();
    policy.define_set("blocked", SetKind::Address);
    let lines = ["add-stateful in left accept", "add ip-saddr @blocked block"];
    let mut rules = Forwarding { policy: with_rules(policy, &lines), ..forwarding(&[]) };
    let mut world = World::with(rules.clone());
    let datagram = |from| Frame::new(Ip4::new(from, SERVER), Udp::new(1000, 53)).payload([7; 20]).build();
    let [kept, blocked] = [INSIDE, OTHER].map(datagram);
    assert!(world.learns(LEFT, &kept) && world.learns(LEFT, &blocked));
    let generation = world.kernel.generation();
    for is_blocked in [true, false] {
        let element = parse_element("10.0.0.2").unwrap();
        match is_blocked {
            true => rules.policy.add_elements("blocked", [(element, Default::default())]),
            false => rules.policy.del_elements("blocked", &[element]),
        };
        let change = rules.policy.take_element_change().unwrap();
        let fast = Arc::new(world.fast(&rules));
        world.lab.publish_fast_elements(rules.clone(), fast, change);
        world.wait(1);
        assert!(world.works(LEFT, &kept) && !world.works(LEFT, &blocked));
        assert!(world.send(LEFT, &kept).is_some());
        assert_eq!(world.send(LEFT, &blocked).is_some(), !is_blocked);
    }
    assert_eq!(world.kernel.generation(), generation);
    world.publish(rules);
    world.wait(1);
    assert!(!world.works(LEFT, &kept), "other rules: all flows are learned again");
}

/// A reply to a sent packet.
fn back(out: &[u8], flags: u8, seq: u32, ack: u32) -> Vec<u8> {
    let end = key(LEFT, out);
    let (std::net::IpAddr::V4(from), std::net::IpAddr::V4(to)) = (end.destination, end.source) else {
        panic!("IPv4")
    };
    let (sport, dport) = (end.destination_port, end.source_port);
    let ip = Ip4::new(from, to);
    match end.proto {
        17 => Frame::new(ip, Udp::new(sport, dport)).payload([9; 20]).build(),
        _ => Frame::new(ip, Tcp { flags, seq, ack, ..Tcp::new(sport, dport) }).build(),
    }
}

fn tcp(flags: u8, seq: u32, ack: u32) -> Vec<u8> {
    Frame::new(Ip4::new(INSIDE, SERVER), Tcp { flags, seq, ack, ..Tcp::new(2000, 80) }).build()
}

const SYN: u8 = 2;
const FIN: u8 = 1;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Opens and answers a connection. Returns a packet of it as sent on the right.
fn answered(world: &mut World) -> Vec<u8> {
    let syn = world.send(LEFT, &tcp(SYN, 100, 0)).unwrap();
    let (address, port) = source(&syn);
    let answer = Tcp { flags: SYN | ACK, seq: 500, ack: 101, ..Tcp::new(80, port) };
    world.send(RIGHT, &Frame::new(Ip4::new(SERVER, address), answer).build()).unwrap();
    syn
}

/// Opens a connection completely, by a packet through the engine or the kernel.
fn open(world: &mut World) -> Vec<u8> {
    let (out, third) = (answered(world), tcp(ACK, 101, 501));
    match world.works(LEFT, &third) {
        true => world.passes(LEFT, &third, 501),
        false => drop(world.send(LEFT, &third).unwrap()),
    }
    out
}

/// Source address and port.
fn source(frame: &[u8]) -> ([u8; 4], u16) {
    ([frame[26], frame[27], frame[28], frame[29]], u16::from_be_bytes([frame[34], frame[35]]))
}

#[test]
fn a_session_lives_while_the_kernel_forwards_its_packets() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut world = World::new(&["add-stateful in left accept", "add all drop"]);
    let out = world.send(LEFT, &udp(1)).unwrap();
    assert!(world.learns(LEFT, &udp(1)));
    let reply = back(&out, 0, 0, 0);
    assert!(world.learns(RIGHT, &reply), "both directions");
    let before = world.hits(0);
    // An hour with packets that are rarer than sweeps and more frequent than the timeout.
    for _ in 0..60 {
        world.kernel.count(&key(LEFT, &udp(1)), 1, 100);
        for _ in 0..30 {
            world.wait(1000);
        }
        assert_eq!(world.sessions(), 1);
        if !world.works(LEFT, &udp(1)) {
            assert!(world.learns(LEFT, &udp(1)));
        }
    }
    assert!(world.hits(0) > before + 60);
    // Without packets, the session ends.
    for _ in 0..400 {
        world.wait(1000);
    }
    assert_eq!((world.sessions(), world.works(LEFT, &udp(1)), world.works(RIGHT, &reply)), (0, false, false));
    assert!(world.send(RIGHT, &reply).is_none());
}

/// The timer fires before the next sweep: it takes the kernel's counters into account.
#[test]
fn a_timer_reads_the_kernel_counters_first() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut settings = SessionSettings::default();
    settings.timeouts.udp_unreplied = 1000;
    let mut world =
        World::with(Forwarding { settings, ..forwarding(&["add-stateful in left accept", "add all drop"]) });
    assert!(world.learns(LEFT, &udp(1)));
    for _ in 0..5 {
        world.wait(900);
        world.kernel.count(&key(LEFT, &udp(1)), 1, 100);
        // The timeout and the sweep interval have both passed.
        world.wait(200);
        assert_eq!(world.sessions(), 1);
    }
    world.wait(1200);
    world.wait(100);
    assert_eq!(world.sessions(), 0);
    assert!(!world.works(LEFT, &udp(1)), "revoked when the session ends");
}

/// Opens a short connection: its first packets go through the engine, all others through the kernel. `world`
/// has a budget.
fn opened(world: &mut World) -> ([Vec<u8>; 2], Vec<u8>) {
    let out = open(world);
    let (data, answer) = (tcp(ACK, 101, 501), back(&out, ACK, 501, 101));
    assert!(
        world.works(LEFT, &data) && world.works(RIGHT, &answer),
        "both directions, with the second packet"
    );
    let action = world.kernel.action(&key(LEFT, &data)).unwrap();
    assert!(action.track_tcp && !action.pass_control);
    ([data, answer], out)
}

const RULES_OF_NAT: [&str; 2] = ["add-stateful in left nat p accept", "add in right drop"];

#[test]
fn a_handshake_installs_both_directions() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for rules in [&["add-stateful in left accept", "add all drop"], &RULES_OF_NAT] {
        let mut world = World::new(rules);
        world.wait(100);
        opened(&mut world);
        assert_eq!(world.refused(), []);
    }
    // Datagrams: with the first answer, or earlier if there are many.
    let mut world = World::new(&["add-stateful in left accept", "add all drop"]);
    world.wait(100);
    let out = world.send(LEFT, &udp(1)).unwrap();
    world.wait(0);
    assert!(!world.works(LEFT, &udp(1)));
    let reply = back(&out, 0, 0, 0);
    world.send(RIGHT, &reply).unwrap();
    world.wait(0);
    assert!(world.works(LEFT, &udp(1)) && world.works(RIGHT, &reply));
}

/// FINs go to the engine, which compares them with what the kernel has counted.
#[test]
fn forged_segments_neither_close_a_connection_nor_slow_it_down() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut world = World::new(&RULES_OF_NAT);
    world.wait(100);
    let ([data, answer], out) = opened(&mut world);
    world.passes(LEFT, &data, 990_000);
    for flags in [FIN | ACK, RST, RST | ACK, SYN] {
        for seq in [0, 100_000, 2_000_000, 3_000_000_000] {
            world.send(RIGHT, &back(&out, flags, seq, 3_000_000)).unwrap();
            world.send(LEFT, &tcp(flags, seq, 3_000_000)).unwrap();
        }
    }
    assert_eq!(world.lab.states(), ["established"]);
    // The first SYN of each direction is noted.
    assert!(world.learns(LEFT, &data) && world.learns(RIGHT, &answer));
    world.send(RIGHT, &back(&out, FIN | ACK, 3_000_000_000, 101)).unwrap();
    world.send(RIGHT, &back(&out, RST, 990_001, 101)).unwrap();
    world.wait(100);
    assert!(world.works(LEFT, &data) && world.works(RIGHT, &answer), "nothing is revoked");
    assert_eq!(world.lab.states(), ["established"]);
}

/// A connection closes after much was acknowledged through the kernel, in the same sweep interval.
#[test]
fn connections_close_after_data_through_the_kernel() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut world = World::new(&RULES_OF_NAT);
    let state = |world: &World| world.lab.states();
    world.wait(100);
    let ([data, _], out) = opened(&mut world);
    assert_eq!(state(&world), ["established"]);
    world.kernel.count(&key(LEFT, &data), 9, 540);
    world.kernel.acknowledge(&key(LEFT, &data), 990_000);
    world.send(RIGHT, &back(&out, FIN | ACK, 1_000_501, 101)).unwrap();
    assert_eq!(state(&world), ["close-wait"]);
    world.send(LEFT, &tcp(ACK, 101, 1_000_502)).unwrap();
    assert_eq!(state(&world), ["close-wait"]);
    world.send(LEFT, &tcp(FIN | ACK, 101, 1_000_502)).unwrap();
    assert_eq!(state(&world), ["closing"]);
    world.send(RIGHT, &back(&out, ACK, 1_000_502, 102)).unwrap();
    assert_eq!(state(&world), ["closed"]);
    world.wait(100);
    world.wait(100);
    assert!(world.kernel.keys().is_empty(), "the slots are free at once");
    let timeout = SessionSettings::default().timeouts.tcp_closed;
    world.wait(timeout - 1000);
    assert_eq!(world.sessions(), 1);
    world.wait(2000);
    world.wait(200);
    assert_eq!(world.sessions(), 0);
}

#[test]
fn counters_are_credited_to_the_session_and_its_rules() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut world = World::new(&["add-stateful in left accept", "add udp-dport 53 accept", "add all drop"]);
    assert!(world.learns(LEFT, &udp(1)));
    let before = (world.hits(0), world.hits(1), world.hits(2));
    assert_eq!(before.0, before.1);
    world.kernel.count(&key(LEFT, &udp(1)), 7, 700);
    world.wait(100);
    world.wait(100);
    assert_eq!((world.hits(0), world.hits(1), world.hits(2)), (before.0 + 7, before.1 + 7, before.2 + 7));
    // Packets counted under old rules are not credited to new rules in the same slots.
    world.kernel.count(&key(LEFT, &udp(1)), 5, 500);
    world.publish(forwarding(&["add-stateful in left udp-dport 1-60 accept", "add all drop"]));
    let new = world.hits(0);
    world.kernel.count(&key(LEFT, &udp(1)), 3, 300);
    world.wait(100);
    world.wait(1100);
    assert_eq!(world.hits(0), new, "packets in flight");
}

#[test]
fn ineligible_sessions_are_not_offloaded() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // No session.
    let mut world = World::new(&["add-stateful tcp-dport 80 accept"]);
    assert!(world.send(LEFT, &udp(1)).is_some());
    assert!(!world.learns(LEFT, &udp(1)));
    assert_eq!(world.refused(), [RefusalReason::Session]);
    // Rules that depend on the egress port, which may change.
    drop(world);
    let mut world = World::new(&["add-stateful in left accept", "add out right drop"]);
    assert!(!world.learns(LEFT, &udp(1)));
    assert_eq!(world.kernel.generation(), 0);
    let settings = SessionSettings { tcp_window_check: true, ..SessionSettings::default() };
    let checked = Forwarding { settings, ..forwarding(&["add-stateful in left accept"]) };
    assert!(mmb_fastpath::fast_path_obstacle(&checked.policy, &checked.nat, &checked.settings).is_some());
}

const RULES: [&str; 7] = [
    "add-stateful in left nat p",
    "add-stateful in left accept",
    "add-stateful udp-dport < 100 lb 198.51.100.1 198.51.100.2 198.51.100.3",
    "add-stateful udp-dport > 60 map udp-dport 4000-5000",
    "add-stateful in left shuffle udp-sport",
    "add udp-dport < 50 mod ip-saddr 10.9.9.9",
    "add ip-daddr 10.128.0.0/9 drop",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// In both directions, the learned action of a flow is what the engine does to every packet of it.
    #[test]
    fn a_learned_action_of_a_session_fits_every_packet(
        rules in prop::sample::subsequence(&RULES[..], 1..RULES.len()),
        flows in prop::collection::vec((any::<u8>(), any::<u8>(), 1..120u16, 1..120u16), 1..5),
        others in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..60), 1..=255u8), 1..5),
    ) {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut world = World::new(&rules);
        for (a, b, sport, dport) in flows {
            let frame = |payload: &[u8], ttl| {
                let ip = Ip4 { ttl, ..Ip4::new([10, 0, 0, a], [10, b, 0, 2]) };
                Frame::new(ip, Udp::new(sport, dport)).payload(payload).build()
            };
            let first = frame(&[1; 30], 64);
            let Some(out) = world.send(LEFT, &first) else { continue };
            let reply = |payload: &[u8], ttl| {
                let end = key(RIGHT, &back(&out, 0, 0, 0));
                let (std::net::IpAddr::V4(from), std::net::IpAddr::V4(to)) = (end.source, end.destination) else {
                    panic!("IPv4")
                };
                let ip = Ip4 { ttl, ..Ip4::new(from, to) };
                Frame::new(ip, Udp::new(end.source_port, end.destination_port)).payload(payload).build()
            };
            for (port, of) in [(LEFT, &frame as &dyn Fn(&[u8], u8) -> Vec<u8>), (RIGHT, &reply)] {
                let sample = of(&[2; 9], 9);
                if !world.learns(port, &sample) {
                    continue;
                }
                let action = world.kernel.action(&key(port, &sample)).unwrap();
                for (payload, ttl) in &others {
                    let before = of(payload, *ttl);
                    let after = world.send(port, &before).unwrap();
                    let (frames, target) = ((&before[..], &after[..]), (action.out, action.max_len));
                    let derived = derive_action(number(port), false, frames, target).unwrap();
                    let FastAction { pass_control, pass_fin, track_tcp, awaited_ack, .. } = action;
                    let derived =
                        FastAction { pass_control, pass_fin, track_tcp, awaited_ack, ..derived };
                    prop_assert_eq!(derived, action);
                }
            }
        }
    }
}
