//! Rules, sessions and translation against a model: random packets of many conversations, in both directions,
//! ICMP errors about them, fragments in any order, time, changes of rules and of pools, one worker and
//! several.
//!
//! Half of the worlds have chains as well, whose functions watch or translate: that makes no difference.
//!
//! The model ([`world`]) is a list. It knows rules as predicates, sessions by their tuples, and a few lines
//! of TCP. After every step the engine's sessions must be the model's, and every packet must have come out as
//! the model says, to the byte, or not at all. No two sessions may ever look the same from outside.

#[path = "../common/mod.rs"]
mod common;
#[path = "../chains/functions.rs"]
mod functions;
mod packet;
mod rules;
mod session;
mod world;

use proptest::prelude::*;

use common::{ACK, IN, OUT, SYN};
use packet::{Detail, ECHO, ICMP, TCP, Tuple, UDP};
use rules::{FIXED, FORWARD_ENDPOINT, POOL, SERVERS, VIP};
use session::Direction;
use world::{World, port_of};

#[derive(Clone, Debug)]
enum Step {
    /// From a host inside to one outside: a datagram, an echo, a SYN or a segment from nowhere.
    Out {
        host: u8,
        server: usize,
        proto: u8,
        ports: [u8; 2],
        syn: bool,
    },
    /// From outside to an address of NAT's, or to a host inside.
    In {
        server: usize,
        to: usize,
        port: u16,
        proto: u8,
    },
    /// The next packet of a session.
    Proceed(usize, u8),
    Complain {
        at: usize,
        about: bool,
        by_router: bool,
        quoted: usize,
    },
    Fragments {
        host: u8,
        server: usize,
        ports: [u8; 2],
        order: u8,
    },
    FragmentedReply(usize, u8),
    Orphan(u8),
    Wait(u8),
    Rules(u16, bool),
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    let (host, server, ports) = (1..5u8, 0..5usize, [0..6u8, 0..4u8]);
    let proto = prop_oneof![Just(TCP), Just(UDP), Just(ICMP)];
    let port = prop_oneof![Just(FORWARD_ENDPOINT.1), 2000..2008u16, 40_000..40_006u16];
    prop_oneof![
        12 => (host.clone(), server.clone(), proto, ports.clone(), prop::bool::weighted(0.8))
            .prop_map(|(host, server, proto, ports, syn)| Step::Out { host, server, proto, ports, syn }),
        4 => (server.clone(), 0..4usize, port, prop_oneof![Just(TCP), Just(UDP)])
            .prop_map(|(server, to, port, proto)| Step::In { server, to, port, proto }),
        30 => (0..30usize, any::<u8>()).prop_map(|(at, choice)| Step::Proceed(at, choice)),
        // Not half of a checksum.
        4 => (0..30usize, any::<bool>(), any::<bool>(), prop_oneof![28..37usize, 38..100usize])
            .prop_map(|(at, about, by_router, quoted)| Step::Complain { at, about, by_router, quoted }),
        2 => (host.clone(), server, ports, any::<u8>())
            .prop_map(|(host, server, ports, order)| Step::Fragments { host, server, ports, order }),
        2 => (0..30usize, any::<u8>()).prop_map(|(at, order)| Step::FragmentedReply(at, order)),
        1 => host.prop_map(Step::Orphan),
        5 => (1..8u8).prop_map(Step::Wait),
        2 => (mask(), any::<bool>()).prop_map(|(mask, port_forward)| Step::Rules(mask, port_forward)),
        1 => prop::bool::weighted(0.1).prop_map(|all| if all { Step::Clear } else { Step::Wait(1) }),
    ]
}

/// Some of the rules; the one that drops what comes from outside less often.
fn mask() -> impl Strategy<Value = u16> {
    any::<[u16; 2]>().prop_map(|[a, b]| (a | b) & !(1 << 8) | a & b & 1 << 8)
}

fn server(n: usize) -> [u8; 4] {
    [SERVERS[0], SERVERS[1], SERVERS[2], VIP, [198, 51, 100, 5]][n]
}

fn outward(host: u8, n: usize, proto: u8, ports: [u8; 2]) -> Tuple {
    let port = 40_000 + u16::from(ports[0]);
    let to = [80, 53, 7, 5353][usize::from(ports[1])];
    Tuple {
        proto,
        source: ([10, 0, 0, host], port),
        destination: (server(n), if proto == ICMP { ECHO } else { to }),
    }
}

fn run(world: &mut World, step: Step) {
    match step {
        Step::Out { host, server, proto, ports, syn } => {
            let tuple = outward(host, server, proto, ports);
            let flags = if syn { SYN } else { ACK };
            // A segment from nowhere is no answer to what is known.
            if proto == TCP && world.sessions.iter().any(|session| session.direction_of(tuple).is_some()) {
                return;
            }
            let detail = match proto {
                TCP => Detail { flags, seq: 0xffff_fffe, ack: if syn { 0 } else { 7 }, ..Detail::default() },
                _ => Detail { len: 11, ..Detail::default() },
            };
            world.packet(IN, tuple, detail);
        }
        Step::In { server: n, to, port, proto } => {
            let to = [POOL[0], POOL[1], FIXED, [10, 0, 0, 1]][to];
            let tuple = Tuple { proto, source: (server(n), 53), destination: (to, port) };
            if proto == TCP && world.sessions.iter().any(|session| session.direction_of(tuple).is_some()) {
                return;
            }
            let flags = if proto == TCP { SYN } else { 0 };
            world.packet(OUT, tuple, Detail { flags, seq: 1, ..Detail::default() });
        }
        Step::Proceed(at, choice) => world.proceed(at, choice),
        Step::Complain { at, about, by_router, quoted } => {
            world.complain(
                at,
                if about { Direction::Forward } else { Direction::Reverse },
                by_router,
                quoted,
            );
        }
        Step::Fragments { host, server, ports, order } => {
            world.in_fragments(IN, outward(host, server, UDP, ports), order);
        }
        Step::FragmentedReply(at, order) => {
            if let Some(session) = world.sessions.get(at).filter(|session| session.original.proto == UDP) {
                world.in_fragments(port_of(&session.original) ^ 1, session.outside.reversed(), order);
            }
        }
        Step::Orphan(host) => world.orphan(outward(host, 0, UDP, [0, 0])),
        Step::Wait(seconds) => world.wait(seconds),
        Step::Rules(mask, port_forward) => world.change(mask, port_forward),
        Step::Clear => world.clear(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn sessions_agree_with_the_model(
        workers in 1..4u16,
        mask in mask(),
        port_forward in any::<bool>(),
        window_check in any::<bool>(),
        chained in any::<bool>(),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut world = World::new(workers, mask, port_forward, window_check, chained);
        for step in steps {
            run(&mut world, step);
            world.compare();
        }
        // All comes to its end, and nothing is left behind.
        for _ in 0..9 {
            world.wait(100);
        }
        prop_assert!(world.sessions.is_empty() && world.is_released());
        world.compare();
        world.change(0, false);
        for sessions in world.net.harness.workers() {
            prop_assert_eq!(sessions.nat().mappings(), 0);
        }
    }
}

/// Sequences in which the property above once failed, each with its number of workers.
fn past_failures() -> Vec<(u16, Vec<Step>)> {
    let udp = |host, server, ports| Step::Out { host, server, proto: UDP, ports, syn: false };
    let ping = |host, server, ports| Step::Out { host, server, proto: ICMP, ports, syn: false };
    let fragments = |host, server, ports, order| Step::Fragments { host, server, ports, order };
    vec![
        // Two workers that each took the other's for the place of a datagram's session.
        (
            2,
            vec![
                Step::Rules(0xa4, false),
                udp(2, 1, [1, 1]),
                Step::Rules(0x3f8, false),
                fragments(2, 1, [1, 1], 0),
            ],
        ),
        // The first fragment goes to another worker; those that waited for it follow.
        (2, vec![Step::Rules(0x25a, false), fragments(1, 2, [2, 1], 58)]),
        // An end that had a session of other rules keeps to one mapping.
        (
            2,
            vec![
                Step::Rules(0xfa, false),
                fragments(3, 2, [0, 3], 0),
                Step::Rules(0x64, false),
                Step::Wait(7),
                udp(3, 0, [0, 0]),
                udp(3, 2, [0, 3]),
            ],
        ),
        // Replies to a session whose translation has gone find it where it is now.
        (
            2,
            vec![
                Step::Rules(0x2a4, false),
                ping(1, 1, [0, 0]),
                Step::Rules(0x271, false),
                Step::Proceed(0, 74),
                Step::Proceed(0, 49),
            ],
        ),
        // An error from inside about a packet that a forward let in.
        (
            2,
            vec![
                Step::Rules(0x67, true),
                Step::In { server: 0, to: 0, port: FORWARD_ENDPOINT.1, proto: TCP },
                Step::Complain { at: 0, about: true, by_router: false, quoted: 28 },
            ],
        ),
        // A pool's filter lets those in that the host talks to, whatever it calls them.
        (
            1,
            vec![
                Step::Rules(0x2fc, false),
                udp(2, 3, [1, 1]),
                udp(2, 1, [1, 1]),
                Step::Rules(0x2b4, false),
                Step::Proceed(0, 47),
            ],
        ),
        // A session that nothing translates, with the replies of one that is.
        (1, vec![Step::Rules(0x2f9, false), ping(3, 3, [1, 0]), ping(3, 0, [1, 0])]),
    ]
}

/// Past failures stay repaired, with and without chains.
#[test]
fn earlier_failures_stay_fixed() {
    for (workers, story) in past_failures() {
        for chained in [false, true] {
            let mut world = World::new(workers, 0, false, false, chained);
            for step in story.clone() {
                run(&mut world, step);
                world.compare();
            }
        }
    }
}
