//! The fast path with the engine's graph and a kernel table in memory.

mod sessions;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use mmb_dpdk::{FastAction, FastGranularity, FastHook, FastKey, FastPort};
use mmb_fastpath::testing::{FakeKernel, derive_action, parse_key};
use mmb_fastpath::{FastPathConfig, FastPathPort, RefusalReason, address_pairs};
use mmb_lang::{Command, FastPathMode, ReversePathMode, parse_line};
use mmb_packet::build::{Frame, Ip4, Ip6, Tcp, Udp};
use mmb_policy::Policy;
use mmb_route::{L3Interface, NextHop, NextHopKind, RouteTable, Routes};
use proptest::prelude::*;

use super::config;
use crate::engine::config::{AddressChecks, Forwarding, MAX_PORTS, PortConfig, PortId};
use crate::lab::{Lab, TURN};

const LEFT: PortId = PortId(0);
const RIGHT: PortId = PortId(1);
const OWN: [u8; 6] = [2, 0, 0, 0, 0, 2];
const NEXT: [u8; 6] = [2, 0, 0, 0, 7, 7];
const HOP: u32 = 5;

struct World {
    lab: Lab,
    kernel: Arc<FakeKernel>,
    can_redirect: Arc<AtomicBool>,
    routed: bool,
    checks: AddressChecks,
    now: u32,
}

fn policy(lines: &[&str]) -> Policy {
    let mut policy = Policy::new();
    let port = |name: &str| Some(if name == "left" { LEFT.0 } else { RIGHT.0 });
    for line in lines {
        let Ok(Some(Command::Add(rule))) = parse_line(line) else { panic!("{line}") };
        policy.add(&rule, &port).unwrap();
    }
    policy
}

/// Routes that all lead to the right port.
fn routes(is_stale: bool) -> Routes {
    let mut routes = Routes::default();
    let face = Some(L3Interface { table: 0, mac: OWN, ip4: None, ip6: None });
    routes.interfaces = vec![face, face];
    let mut hop = NextHop {
        kind: NextHopKind::Forward,
        port: RIGHT.0,
        mtu: 1400,
        neighbor_stale: is_stale,
        ..NextHop::default()
    };
    hop.header[..6].copy_from_slice(&NEXT);
    hop.header[6..].copy_from_slice(&OWN);
    routes.hops.set(HOP, hop);
    let mut table = RouteTable::default();
    table.ip4.insert([0, 0, 0, 0].into(), 0, HOP);
    table.ip6.insert([0; 16].into(), 0, HOP);
    routes.tables = vec![table];
    routes
}

impl World {
    fn new(routed: bool, lines: &[&str]) -> World {
        let lab = Lab::new(Forwarding::default(), routes(false), 64).unwrap();
        let can_redirect = Arc::new(AtomicBool::new(true));
        let mut world = World {
            lab,
            kernel: Arc::default(),
            can_redirect,
            routed,
            checks: AddressChecks::default(),
            now: 0,
        };
        world.publish(lines, true);
        world
    }

    fn publish(&mut self, lines: &[&str], fast_path: bool) {
        let policy = policy(lines);
        let enabled = !policy.is_empty();
        let port = |id, peer| match self.routed {
            true => PortConfig { enabled, ..PortConfig::routed(id, None) },
            false => PortConfig { enabled, ..PortConfig::wire(id, peer) },
        };
        let ports = vec![port(LEFT, RIGHT), port(RIGHT, LEFT)];
        let fast_path = if fast_path { FastPathMode::Auto } else { FastPathMode::Off };
        let address_checks = self.checks;
        let forwarding = Forwarding { policy, ports, fast_path, address_checks, ..Forwarding::default() };
        let mut ports = vec![None; MAX_PORTS];
        for id in [LEFT, RIGHT] {
            let can_redirect = self.can_redirect.clone();
            ports[usize::from(id.0)] =
                Some(FastPathPort { number: number(id), hook: FastHook::Xdp, can_redirect });
        }
        let is_learning = config::is_learning(&forwarding);
        let needs_sessions = forwarding.policy.is_stateful();
        let pairs = address_pairs(&forwarding.policy, needs_sessions);
        self.lab.publish_fast(
            forwarding,
            FastPathConfig {
                kernel: self.kernel.clone(),
                is_learning,
                needs_sessions,
                is_plain: false,
                pairs,
                ports: ports.into(),
            },
        );
    }

    /// Sends a frame a millisecond later. Returns the frames that leave.
    fn send(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        self.now += 1;
        self.lab.run(self.now, vec![(LEFT, frame.to_vec())]).into_iter().map(|(_, frame)| frame).collect()
    }

    /// Sends a packet often enough for its flow to be learned. Whether it was learned.
    fn learns(&mut self, frame: &[u8]) -> bool {
        for _ in 0..4 {
            self.send(frame);
        }
        self.wait(1);
        self.action(frame).is_some()
    }

    /// Lets time pass without packets.
    fn wait(&mut self, milliseconds: u32) {
        self.now += milliseconds;
        self.lab.run(self.now, Vec::new());
    }

    fn refused(&self) -> Vec<RefusalReason> {
        let counters = &self.lab.shared().workers[0].counters.fast;
        RefusalReason::ALL.into_iter().filter(|why| counters.refused(*why) > 0).collect()
    }

    fn hits(&self, slot: u32) -> (u64, u64) {
        let counters = self.lab.shared().current().counters[0].get(slot);
        (counters.packets, counters.bytes)
    }
}

fn number(id: PortId) -> FastPort {
    FastPort(u32::from(id.0) + 7)
}

fn key(frame: &[u8]) -> FastKey {
    parse_key(number(LEFT), frame).unwrap()
}

impl World {
    /// The kernel's action for a frame.
    fn action(&self, frame: &[u8]) -> Option<FastAction> {
        let key = key(frame);
        match self.kernel.granularity() {
            FastGranularity::Flow => self.kernel.action(&key),
            FastGranularity::Pair => {
                self.kernel.action(&key.without_ports()).or_else(|| self.kernel.action(&key))
            }
            FastGranularity::Destination => {
                self.kernel.action(&FastKey::for_destination(key.port, key.destination))
            }
        }
    }

    /// The kernel's action for the pair of a frame's addresses.
    fn action_of_pair(&self, frame: &[u8]) -> Option<FastAction> {
        self.kernel
            .action(&key(frame).without_ports())
            .filter(|_| self.kernel.granularity() == FastGranularity::Pair)
    }
}

fn udp(sport: u16) -> Frame {
    Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Udp::new(sport, 53)).payload([7; 40])
}

#[test]
fn the_life_of_a_flow() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut world = World::new(false, &["add udp-dport 53 accept", "add tcp-dport 80 drop"]);
    let frame = udp(1).build();
    (0..3).for_each(|_| drop(world.send(&frame)));
    assert!(world.kernel.keys().is_empty());
    assert!(world.learns(&frame));
    let action = world.kernel.action(&key(&frame)).unwrap();
    assert_eq!((action.out, action.macs, action.translation), (number(RIGHT), None, None));
    // The kernel's counters are credited to the rule.
    let (packets, bytes) = world.hits(0);
    assert_eq!(packets, 7);
    world.kernel.count(&key(&frame), 10, 1000);
    world.wait(100);
    assert_eq!(world.hits(0), (packets + 10, bytes + 1000));
    assert_eq!(world.hits(1), (0, 0));
    // New rules: the kernel ignores all entries at once, and flows are learned again.
    world.publish(&["add udp-dport 54 accept"], true);
    assert!(world.kernel.action(&key(&frame)).is_none());
    assert!(world.learns(&frame));
    // New routes have the same effect, also for wires.
    world.lab.publish_routes(routes(false));
    assert!(world.kernel.action(&key(&frame)).is_none());
    assert!(world.learns(&frame));
    // A dropped flow is never learned.
    world.publish(&["add udp-dport 53 drop"], true);
    assert!(!world.learns(&frame));
    assert_eq!(world.refused(), [RefusalReason::NotSent]);
    world.publish(&[], false);
    assert_eq!(world.kernel.generation(), 0);
    assert!(!world.learns(&udp(9).build()));
    world.wait(1000);
    world.wait(1100);
    assert!(world.kernel.keys().is_empty(), "entries expire when the fast path is off");
}

#[test]
fn ineligible_flows_stay_with_the_engine() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for line in ["add ip-ttl 64 accept", "add udp-dport 53 mod ip-dscp 3"] {
        let mut world = World::new(false, &[line]);
        assert!(!world.learns(&udp(1).build()), "{line}");
        assert_eq!((world.kernel.generation(), world.refused()), (0, Vec::new()), "{line}");
    }
    let mut world = World::new(false, &["add all accept"]);
    world.can_redirect.store(false, Ordering::Release);
    assert!(!world.learns(&udp(1).build()));
    assert_eq!(world.refused(), [RefusalReason::Target]);
    // The flow is tried again after a while, or when a port has changed.
    world.can_redirect.store(true, Ordering::Release);
    assert!(!world.learns(&udp(1).build()));
    world.wait(10_000);
    assert!(world.learns(&udp(1).build()));
    world.can_redirect.store(false, Ordering::Release);
    world.lab.shared().fast.ports_changed();
    assert!(!world.learns(&udp(1).build()));
    world.can_redirect.store(true, Ordering::Release);
    world.lab.shared().fast.ports_changed();
    assert!(world.learns(&udp(1).build()));
    world.lab.shared().fast.ports_changed();
    assert!(world.action(&udp(1).build()).is_none());
}

/// Without sessions, a connection's first segment is enough.
#[test]
fn a_connection_is_learned_from_its_first_segment() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut world = World::new(false, &["add tcp-dport 80 accept"]);
    world.wait(100);
    for sport in 1..=16 {
        let syn = Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Tcp { flags: 2, ..Tcp::new(sport, 80) })
            .build();
        world.send(&syn);
        world.wait(0);
        assert!(world.kernel.action(&key(&syn)).unwrap().pass_control);
    }
}

/// A change of the headers of a large frame holds in each of its segments. Its checksum has no meaning.
#[test]
fn large_frames_teach_what_their_segments_would() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for line in ["add udp-dport 53 accept", "add udp-dport 53 mod ip-daddr 10.0.0.9 mod udp-sport 7"] {
        let [ordinary, large] = [(0, 100), (1400, 9000)].map(|(segment_size, len)| {
            let mut world = World::new(false, &[line]);
            world.lab.receive_large(segment_size);
            let mut frame = udp(1).payload(vec![7; len]).build();
            if segment_size != 0 {
                frame[40..42].fill(0xab);
            }
            assert!(world.learns(&frame), "{line}: {:?}", world.refused());
            world.kernel.action(&key(&frame))
        });
        assert_eq!(ordinary, large, "{line}");
    }
}

/// All packets of a burst are sampled, up to the limits.
#[test]
fn many_flows_of_a_vector_are_learned() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut world = World::new(false, &["add udp-dport 53 accept"]);
    world.wait(100);
    let frames: Vec<_> = (1..=12).map(|sport| (LEFT, udp(sport).build())).collect();
    world.lab.run(world.now, frames.clone());
    world.wait(1);
    assert_eq!(world.kernel.keys().len(), 12);
    assert!(frames.iter().all(|(_, frame)| world.kernel.action(&key(frame)).is_some()));
    // Flows with several packets earn budget for more flows.
    frames.iter().for_each(|(_, frame)| world.kernel.count(&key(frame), 9, 900));
    world.wait(100);
    for sport in 100..160 {
        world.lab.run(world.now, vec![(LEFT, udp(sport).build())]);
    }
    world.wait(0);
    assert_eq!(world.kernel.keys().len(), 72);
    // A flood of single packets earns nothing, and few of them are learned.
    for burst in 0..200u16 {
        let flood = (0..60).map(|n| (LEFT, udp(1000 + burst * 60 + n).build())).collect();
        world.lab.run(world.now, flood);
    }
    world.wait(0);
    assert!(world.kernel.keys().len() < 72 + 60, "{}", world.kernel.keys().len());
}

/// Without rules, one entry serves all flows to a destination.
#[test]
fn destinations_are_learned_without_rules() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut world = World::new(true, &[]);
    assert_eq!(world.kernel.granularity(), FastGranularity::Destination);
    let frame = udp(1).macs(NEXT, OWN).build();
    assert!(world.learns(&frame));
    assert_eq!(world.kernel.keys(), [FastKey::for_destination(number(LEFT), [10, 0, 0, 2].into())]);
    for sport in 2..20 {
        world.send(&udp(sport).macs(NEXT, OWN).build());
    }
    world.wait(1);
    assert_eq!(world.kernel.keys().len(), 1);
    // A connection ends; the entry stays for the others.
    let to = FastKey::for_destination(number(LEFT), [10, 0, 0, 2].into());
    world.kernel.count(&to, 9, 900);
    world.kernel.end(&to, 1);
    world.wait(100);
    world.wait(1000);
    assert!(world.kernel.action(&to).is_some());
    // With several next hops, each flow is learned separately.
    let mut spread = routes(false);
    spread.hops.members_mut().push(HOP);
    world.lab.publish_routes(spread);
    assert_eq!((world.kernel.granularity(), world.kernel.action(&to)), (FastGranularity::Flow, None));
    assert!(world.learns(&frame));
    assert!(world.kernel.keys().contains(&parse_key(number(LEFT), &frame).unwrap()));
    // With rules, too.
    world.lab.publish_routes(routes(false));
    world.publish(&["add ! tcp-dport 7 accept"], true);
    assert_eq!(world.kernel.granularity(), FastGranularity::Flow);
    assert!(world.learns(&frame));
}

/// Routes that keep flows, as after a scan of unused addresses, take none back.
#[test]
fn flows_outlive_routes_that_do_not_concern_them() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for lines in [&[][..], &["add-stateful all accept"]] {
        let mut world = World::new(true, lines);
        let frame = udp(1).macs(NEXT, OWN).build();
        // The first is the number of the routes before. 0 never keeps flows.
        for (flow_generation, is_kept) in
            [(7, false), (7, true), (8, false), (8, true), (0, false), (0, false)]
        {
            world.lab.publish_routes(Routes { flow_generation, ..routes(false) });
            // Before the worker takes them over, and after.
            for _ in 0..2 {
                assert_eq!(world.action(&frame).is_some(), is_kept, "{lines:?} {flow_generation}");
                world.wait(1);
            }
            assert!(is_kept || world.learns(&frame), "{lines:?} {flow_generation}");
        }
    }
}

/// A reverse path filter looks at sources, without rules, too: another source has its own entry.
#[test]
fn sources_are_learned_with_a_reverse_path_filter() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut world = World::new(true, &[]);
    for reverse_path in [ReversePathMode::Loose, ReversePathMode::Strict] {
        world.checks.reverse_path = reverse_path;
        world.publish(&[], true);
        assert_eq!(world.kernel.granularity(), FastGranularity::Pair, "{reverse_path:?}");
    }
    world.checks.reverse_path = ReversePathMode::Loose;
    world.publish(&[], true);
    let frame = udp(1).macs(NEXT, OWN).build();
    assert!(world.learns(&frame));
    assert_eq!(world.kernel.keys(), [key(&frame).without_ports()]);
    world.checks.reverse_path = ReversePathMode::Off;
    world.publish(&[], true);
    assert_eq!(world.kernel.granularity(), FastGranularity::Destination);
}

fn tcp(sport: u16, flags: u8) -> Vec<u8> {
    let tcp = Tcp { flags, ..Tcp::new(sport, 80) };
    Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), tcp).macs(NEXT, OWN).build()
}

/// If no rule looks at the ports of a pair, one entry serves all its flows.
#[test]
fn pairs_are_learned_where_ports_do_not_matter() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let rules = ["add ip-daddr 10.9.0.0/16 tcp-dport 22 drop", "add ip-saddr 10.0.0.0/8 accept"];
    let mut world = World::new(true, &rules);
    assert_eq!(world.kernel.granularity(), FastGranularity::Pair);
    world.wait(100);
    let pair = key(&tcp(1, 2)).without_ports();
    world.send(&tcp(1, 2));
    world.wait(1);
    assert_eq!(world.kernel.keys(), [pair]);
    assert!(world.kernel.action(&pair).unwrap().pass_control);
    // Packets of the pair teach nothing new; another protocol is another pair.
    (2..20).for_each(|sport| drop(world.send(&tcp(sport, 16))));
    world.wait(1);
    assert_eq!(world.kernel.keys(), [pair]);
    assert!(world.learns(&udp(1).macs(NEXT, OWN).build()));
    assert_eq!(world.kernel.keys().len(), 2);
    // A connection ends; the entry stays, and the matching rule is credited with all packets.
    let (before, _) = world.hits(1);
    world.kernel.count(&pair, 9, 900);
    world.kernel.end(&pair, 1);
    world.wait(100);
    world.wait(1000);
    assert!(world.kernel.action(&pair).is_some());
    assert_eq!((world.hits(0), world.hits(1).0), ((0, 0), before + 9));
    // A rule that looks at a port of the pair: its flows are learned one by one.
    world.publish(&[rules[0], rules[1], "add ip-daddr 10.0.0.2 tcp-sport 7 mod tcp-sport 8"], true);
    assert_eq!((world.kernel.granularity(), world.kernel.action(&pair)), (FastGranularity::Pair, None));
    assert!(world.learns(&tcp(1, 16)) && world.learns(&tcp(7, 16)));
    assert_eq!(world.kernel.action(&pair), None);
    assert_eq!(world.kernel.action(&key(&tcp(1, 16))).unwrap().translation, None);
    assert_eq!(world.kernel.action(&key(&tcp(7, 16))).unwrap().translation.unwrap().source_port, 8);
    assert!(world.learns(&udp(2).macs(NEXT, OWN).build()));
    assert!(world.action_of_pair(&udp(3).build()).is_some());
    world.publish(&rules, true);
    assert!(world.learns(&tcp(1, 16)) && world.action_of_pair(&tcp(2, 16)).is_some());
    // Several next hops, and sessions, end the granularity of pairs.
    let mut spread = routes(false);
    spread.hops.members_mut().push(HOP);
    world.lab.publish_routes(spread);
    assert!(world.kernel.granularity() == FastGranularity::Flow && world.learns(&tcp(1, 16)));
    world.lab.publish_routes(routes(false));
    assert_eq!(world.kernel.granularity(), FastGranularity::Pair);
    world.publish(&[rules[1], "add-stateful udp-dport 53 accept"], true);
    assert_eq!(world.kernel.granularity(), FastGranularity::Flow);
}

#[test]
fn routed_flows_are_forwarded_by_a_hop() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for lines in [&[][..], &["add all accept"], &["add udp-dport 53 mod ip-daddr 192.0.2.9"]] {
        let mut world = World::new(true, lines);
        let frame = udp(1).macs(NEXT, OWN).build();
        assert!(world.learns(&frame), "{lines:?}");
        let action = world.action(&frame).unwrap();
        let macs = action.macs.unwrap();
        assert_eq!((macs.destination, macs.source), (NEXT, OWN));
        assert!(action.decrement_ttl && action.max_len == 1400);
        assert_eq!(
            action.translation.map(|to| to.destination),
            lines.iter().find(|l| l.contains("mod")).map(|_| [192, 0, 2, 9].into())
        );
        // A stale neighbour: the engine's packets have the kernel probe it.
        world.lab.publish_routes(routes(true));
        assert!(!world.learns(&frame), "{lines:?}");
        assert_eq!(world.refused(), [RefusalReason::NextHop]);
    }
}

/// Rules that the fast path allows.
const RULES: [&str; 10] = [
    "add all accept",
    "add udp-dport < 100 mod udp-dport 4000",
    "add tcp-dport < 100 mod tcp-sport 77",
    "add ip-saddr 10.0.0.0/9 mod ip-saddr 192.0.2.1",
    "add ip-proto udp mod ip-daddr 198.51.100.7",
    "add ip6-daddr 2001:db8::/33 mod ip6-daddr 2001:db8:9::1",
    "add in left tcp-sport 1-60000 mod tcp-dport 8080",
    "add ip-daddr 10.128.0.0/9 drop",
    "add tcp-dport 1-150 ip-daddr 10.0.0.0/9 drop",
    "add udp-sport < 120 ip-saddr 10.64.0.0/10 drop",
];

fn frame(
    (six, tcp, a, b, sport, dport): (bool, bool, u8, u8, u16, u16),
    (payload, ttl, ack): (Vec<u8>, u8, u32),
) -> Vec<u8> {
    let transport = |frame: Frame| frame.macs(NEXT, OWN).payload(payload.clone()).build();
    let tcp_header = Tcp { flags: 0x10, ack, seq: !ack, ..Tcp::new(sport, dport) };
    let four = Ip4 { ttl, ..Ip4::new([10, a, 0, 1], [10, b, 0, 2]) };
    let mut far = [0x20, 1, 0xd, 0xb8, b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let six_header = |far| Ip6 { hop_limit: ttl, ..Ip6::new([a; 16], far) };
    far[15] = b;
    transport(match (six, tcp) {
        (false, true) => Frame::new(four, tcp_header),
        (false, false) => Frame::new(four, Udp::new(sport, dport)),
        (true, true) => Frame::new(six_header(far), tcp_header),
        (true, false) => Frame::new(six_header(far), Udp::new(sport, dport)),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// The learned action of a flow is what the engine does to every packet of it; that of a pair, to every
    /// packet between its addresses.
    #[test]
    fn a_learned_action_fits_every_packet_of_its_flow(
        routed: bool,
        rules in prop::sample::subsequence(&RULES[..], 0..RULES.len()),
        flows in prop::collection::vec(
            (any::<bool>(), any::<bool>(), any::<u8>(), any::<u8>(), 1..200u16, 1..200u16),
            1..6,
        ),
        others in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..60), 2..=255u8, any::<u32>()),
            1..6,
        ),
        ports in prop::collection::vec((1..200u16, 1..200u16), 6),
    ) {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut world = World::new(routed, &rules);
        for ends in flows {
            let first = frame(ends, (vec![1; 30], 64, 9));
            let passes = !world.send(&first).is_empty();
            let learned = world.learns(&first);
            prop_assert_eq!(learned, passes);
            let Some(action) = world.action(&first) else { continue };
            let of_pair = world.action_of_pair(&first).is_some();
            for (what, ports) in others.iter().zip(&ports) {
                let (six, tcp, a, b, ..) = ends;
                let ends = if of_pair { (six, tcp, a, b, ports.0, ports.1) } else { ends };
                let before = frame(ends, what.clone());
                let after = world.send(&before);
                let frames = (&before[..], &after[0][..]);
                let target = (action.out, action.max_len);
                let derived = derive_action(number(LEFT), routed, frames, target).unwrap();
                let FastAction { pass_control, track_tcp, .. } = action;
                prop_assert_eq!(FastAction { pass_control, track_tcp, ..derived }, action);
            }
        }
    }
}
