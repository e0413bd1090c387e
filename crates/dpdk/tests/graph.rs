//! Graphs, in an environment without privileges.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::VecDeque;

use mmb_dpdk::{
    Burst, Emit, Error, Graph, Mbuf, Mempool, NodeDef, NodeKind, NodeStats, Packet, VECTOR_MAX, Vector,
    WALK_MAX,
};
use proptest::prelude::*;

fn pool(n: usize) -> Mempool {
    Mempool::create("graph", n, 64, 0).unwrap()
}

fn counts(stats: &[NodeStats]) -> Vec<(&'static str, u64, u64)> {
    stats.iter().map(|node| (node.name, node.packets, node.vectors)).collect()
}

/// A state that emits numbered packets and collects what arrives.
struct Line {
    pool: Mempool,
    /// How many packets each call of the source emits.
    plan: VecDeque<usize>,
    emitted: u32,
    arrived: Vec<u32>,
    vectors: Vec<usize>,
}

impl Line {
    fn new(pool: &Mempool, plan: &[usize]) -> Box<Line> {
        let (arrived, vectors) = (Vec::new(), Vec::new());
        Box::new(Line {
            pool: pool.clone(),
            plan: plan.iter().copied().collect(),
            emitted: 0,
            arrived,
            vectors,
        })
    }
}

fn line_source(line: &mut Line, emit: &mut Emit<'_>) -> usize {
    let (mut left, mut all) = (line.plan.pop_front().unwrap_or(0), 0);
    while left > 0 {
        let n = emit.emit(0, left, |slots| {
            while slots.room() > 0 {
                let packet = line.pool.alloc_from(&line.emitted.to_le_bytes()).unwrap();
                slots.push(packet).unwrap();
                line.emitted += 1;
            }
            assert!(slots.push(line.pool.alloc().unwrap()).is_err());
        });
        if n == 0 {
            break;
        }
        left -= n;
        all += n;
    }
    all
}

fn line_pass(line: &mut Line, mut vector: Vector<'_>) {
    line.vectors.push(vector.len());
    for packet in vector.packets() {
        packet.meta_mut().flow_hash = u32::from_le_bytes(packet.data().try_into().unwrap()) + 1;
    }
    vector.send_all(0);
}

fn line_sink(line: &mut Line, vector: Vector<'_>) {
    vector.drain(|packet| line.arrived.push(packet.meta().flow_hash - 1));
}

const LINE: [NodeDef<Line>; 3] = [
    NodeDef { name: "line-source", kind: NodeKind::Source(line_source), next: &["line-pass"] },
    NodeDef { name: "line-pass", kind: NodeKind::Inner(line_pass), next: &["line-sink"] },
    NodeDef { name: "line-sink", kind: NodeKind::Inner(line_sink), next: &[] },
];

#[test]
fn three_nodes_move_packets_in_order_and_count() {
    let _alone = common::alone();
    let pool = pool(1000);
    let mut graph = Graph::build("line", &LINE, Line::new(&pool, &[256, 0, 3])).unwrap();
    for _ in 0..4 {
        graph.walk();
    }
    assert_eq!(graph.state().arrived, (0..259).collect::<Vec<_>>());
    assert_eq!(
        counts(&graph.stats()),
        [("line-source", 259, 4), ("line-pass", 259, 2), ("line-sink", 259, 2)]
    );
    assert!(graph.stats().iter().all(|node| node.ticks > 0));
    graph.state_mut().plan.push_back(1);
    graph.walk();
    assert_eq!((graph.state().arrived.len(), pool.in_use()), (260, 0));
}

#[test]
fn an_observer_sees_packets_in_front_of_inner_nodes() {
    let _alone = common::alone();
    let pool = pool(3000);
    let mut graph = Graph::build("line", &LINE, Line::new(&pool, &[3, 300, 2])).unwrap();
    graph.walk();
    graph.observe(Some(|line, node, packets| line.vectors.push(node.len() * 1000 + packets.len())));
    assert!(graph.is_observed());
    graph.walk();
    graph.observe(None);
    graph.walk();
    assert_eq!(graph.state().arrived, (0..305).collect::<Vec<_>>(), "packets go on as without an observer");
    // `line-pass` notes its own vectors behind those that the observer sees.
    assert_eq!(graph.state().vectors, [3, 9256, 9044, 256, 44, 9256, 9044, 2]);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn long_streams_come_in_vectors() {
    let _alone = common::alone();
    let pool = pool(3000);
    let mut graph = Graph::build("line", &LINE, Line::new(&pool, &[2000])).unwrap();
    graph.walk();
    assert_eq!(graph.state().arrived, (0..2000).collect::<Vec<_>>());
    assert_eq!(graph.state().vectors, [256, 256, 256, 256, 256, 256, 256, 208]);
    assert_eq!(counts(&graph.stats())[1..], [("line-pass", 2000, 8), ("line-sink", 2000, 8)]);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_walk_receives_a_bounded_number_of_packets() {
    let _alone = common::alone();
    let pool = pool(40_000);
    let mut graph = Graph::build("line", &LINE, Line::new(&pool, &[40_000, 10])).unwrap();
    graph.walk();
    assert_eq!(graph.state().arrived.len(), WALK_MAX);
    graph.walk();
    assert_eq!((graph.state().arrived.len(), pool.in_use()), (WALK_MAX + 10, 0));
}

#[test]
fn graphs_are_independent_and_families_may_share_names() {
    let _alone = common::alone();
    let pool = pool(1000);
    let mut one = Graph::build("one", &LINE, Line::new(&pool, &[5])).unwrap();
    let mut two = Graph::build("one", &LINE, Line::new(&pool, &[7])).unwrap();
    const SHORT: [NodeDef<Line>; 2] = [
        NodeDef { name: "line-source", kind: NodeKind::Source(line_source), next: &["line-sink"] },
        NodeDef {
            name: "line-sink",
            kind: NodeKind::Inner(|line, vector| vector.drain(|p| line.arrived.push(p.pkt_len() as u32))),
            next: &[],
        },
    ];
    let mut short = Graph::build("short", &SHORT, Line::new(&pool, &[2])).unwrap();
    one.walk();
    two.walk();
    short.walk();
    assert_eq!([one.state().arrived.len(), two.state().arrived.len()], [5, 7]);
    assert_eq!(short.state().arrived, [4, 4]);
    assert_eq!(counts(&short.stats()), [("line-source", 2, 1), ("line-sink", 2, 1)]);
    drop(one);
    two.walk();
    assert_eq!(counts(&two.stats())[2], ("line-sink", 7, 1));
}

#[test]
fn invalid_graphs_have_an_error() {
    let _alone = common::alone();
    let pool = pool(10);
    let wrong = [NodeDef { name: "s", kind: NodeKind::Source(line_source), next: &["nowhere"] }];
    let error = Graph::build("wrong", &wrong, Line::new(&pool, &[])).err().unwrap();
    assert_eq!(
        error.to_string(),
        "cannot make the graph 'wrong': node 's' leads to 'nowhere', which does not exist"
    );
    assert!(matches!(error, Error::Graph { .. }));
}

#[test]
fn a_dropped_graph_frees_its_packets() {
    let _alone = common::alone();
    let pool = pool(100);
    struct Holder(Vec<Mbuf>, Mempool);
    const HOLD: [NodeDef<Holder>; 2] = [
        NodeDef {
            name: "hold-source",
            kind: NodeKind::Source(|holder, emit| {
                emit.emit(0, 10, |slots| {
                    holder.1.alloc_bulk(10, slots);
                    slots.get_mut(9).unwrap().append(1).unwrap()[0] = 1;
                    assert!(slots.get_mut(10).is_none());
                })
            }),
            next: &["hold"],
        },
        NodeDef {
            name: "hold",
            kind: NodeKind::Inner(|holder, vector| vector.drain(|p| holder.0.push(p))),
            next: &[],
        },
    ];
    let mut graph = Graph::build("hold", &HOLD, Box::new(Holder(Vec::new(), pool.clone()))).unwrap();
    graph.walk();
    assert_eq!((pool.in_use(), graph.state().0.len(), graph.state().0[9].pkt_len()), (10, 10, 1));
    let stats = graph.stats_handle();
    drop(graph);
    assert_eq!(pool.in_use(), 0, "the state goes with the graph");
    assert_eq!(counts(&stats.stats())[1], ("hold", 10, 1), "the counters with the last handle");
}

/// Numbers pass `gate`, where odd ones wait. They enter again behind the first number that is divisible by
/// ten.
struct Room {
    line: Box<Line>,
    waiting: Vec<Mbuf>,
    full: bool,
}

fn room_gate(room: &mut Room, mut vector: Vector<'_>) {
    let number = |packet: &Packet| u32::from_le_bytes(packet.data().try_into().unwrap());
    let numbers: Vec<_> = vector.packets().iter().map(|packet| number(packet)).collect();
    let again: Vec<_> = vector.packets().iter().map(|packet| packet.port() == 7).collect();
    let waits = |at: usize| numbers[at] % 2 == 1 && !again[at];
    vector.extract_if(waits, |packet| room.waiting.push(packet));
    let left: Vec<_> = vector.packets().iter().map(|packet| number(packet)).collect();
    let expected: Vec<_> = (0..numbers.len()).filter(|at| !waits(*at)).map(|at| numbers[at]).collect();
    assert_eq!(left, expected);
    if left.iter().any(|number| number % 10 == 0) {
        for mut packet in room.waiting.drain(..) {
            packet.set_port(7);
            room.full |= vector.inject(1, packet).is_err();
        }
    }
    let edges = vec![0; vector.len()];
    vector.send(&edges);
}

const ROOM: [NodeDef<Room>; 4] = [
    NodeDef {
        name: "room-source",
        kind: NodeKind::Source(|room, emit| line_source(&mut room.line, emit)),
        next: &["room-back"],
    },
    NodeDef {
        name: "room-back",
        kind: NodeKind::Inner(|_, vector| vector.send_all(0)),
        next: &["room-gate"],
    },
    NodeDef { name: "room-gate", kind: NodeKind::Inner(room_gate), next: &["room-sink", "room-back"] },
    NodeDef {
        name: "room-sink",
        kind: NodeKind::Inner(|room, vector| {
            let arrived = &mut room.line.arrived;
            vector.drain(|packet| arrived.push(u32::from_le_bytes(packet.data().try_into().unwrap())));
        }),
        next: &[],
    },
];

#[test]
fn packets_wait_outside_of_the_graph_and_come_back() {
    let _alone = common::alone();
    let pool = pool(40_000);
    // The fresh ports of the pool's packets are not 7.
    let room =
        |plan: &[usize]| Box::new(Room { line: Line::new(&pool, plan), waiting: Vec::new(), full: false });
    let mut graph = Graph::build("room", &ROOM, room(&[1, 5, 5, 700])).unwrap();
    graph.walk();
    graph.walk();
    assert_eq!((&graph.state().line.arrived[..], graph.state().waiting.len()), (&[0, 2, 4][..], 3));
    graph.walk();
    assert_eq!(graph.state().line.arrived, [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9]);
    graph.walk();
    let mut arrived = graph.state().line.arrived.clone();
    arrived.sort_unstable();
    assert_eq!(arrived, (0..711).collect::<Vec<_>>());
    assert_eq!(pool.in_use(), 0);
    drop(graph);
    // Packets that enter again count for the walk's limit.
    let mut graph = Graph::build("room", &ROOM, room(&[WALK_MAX])).unwrap();
    graph.walk();
    assert!(graph.state().full);
    assert_eq!((graph.state().line.arrived.len(), pool.in_use()), (WALK_MAX / 2, 0));
}

#[test]
fn a_vector_of_which_all_packets_are_taken_can_be_sent() {
    let _alone = common::alone();
    let pool = pool(1000);
    const TAKE: [NodeDef<Line>; 2] = [
        NodeDef { name: "take-source", kind: NodeKind::Source(line_source), next: &["take"] },
        NodeDef {
            name: "take",
            kind: NodeKind::Inner(|line, mut vector| {
                vector.extract_if(|_| true, |packet| line.arrived.push(packet.pkt_len() as u32));
                assert!(vector.is_empty());
                if line.arrived.len() > 5 { vector.send_all(0) } else { vector.send(&[]) }
            }),
            next: &["end"],
        },
    ];
    let end = NodeDef { name: "end", kind: NodeKind::Inner(line_sink), next: &[] };
    let [source, take] = TAKE;
    let mut graph = Graph::build("take", &[source, take, end], Line::new(&pool, &[5, 5])).unwrap();
    graph.walk();
    graph.walk();
    assert_eq!((graph.state().arrived.clone(), pool.in_use()), (vec![4; 10], 0));
    assert_eq!(counts(&graph.stats()), [("take-source", 10, 2), ("take", 10, 2), ("end", 0, 0)]);
}

#[test]
fn statistics_are_read_elsewhere_while_the_graph_runs() {
    let _alone = common::alone();
    let pool = pool(1000);
    let mut graph = Graph::build("line", &LINE, Line::new(&pool, &[100; 2000])).unwrap();
    let stats = graph.stats_handle();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut last = 0;
            while last < 200_000 {
                let now = stats.stats()[2].packets;
                assert!(now >= last && now <= 200_000 && now.is_multiple_of(100));
                last = now;
                std::thread::yield_now();
            }
        });
        scope.spawn(move || {
            let _worker = mmb_dpdk::register_thread().unwrap();
            for _ in 0..2000 {
                graph.walk();
                graph.state_mut().arrived.clear();
            }
        });
        reader.join().unwrap();
    });
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn many_threads_create_and_drop_graphs() {
    let _alone = common::alone();
    let pool = pool(4000);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let mut graph = Graph::build("line", &LINE, Line::new(&pool, &[300])).unwrap();
                    graph.walk();
                    assert_eq!(graph.state().arrived.len(), 300);
                    let _handle = graph.stats_handle();
                }
            });
        }
    });
    assert_eq!(pool.in_use(), 0);
}

/// The graph of the property test: three inner nodes in a row, each with edges to the later ones and to two
/// sinks. Every packet carries its route: one edge per node.
struct Maze {
    pool: Mempool,
    routes: VecDeque<[u8; 3]>,
    /// Sizes of the source's emissions, and how each inner vector is sent.
    bursts: VecDeque<usize>,
    reorder: bool,
    kept: Burst,
    seen: Vec<(usize, [u8; 3])>,
}

fn maze_source(maze: &mut Maze, emit: &mut Emit<'_>) -> usize {
    let mut all = 0;
    while let Some(burst) = maze.bursts.pop_front() {
        all += emit.emit(0, burst, |slots| {
            while slots.room() > 0 {
                let Some(route) = maze.routes.pop_front() else { break };
                slots.push(maze.pool.alloc_from(&route).unwrap()).unwrap();
            }
        });
    }
    all
}

fn maze_node<const AT: usize>(maze: &mut Maze, mut vector: Vector<'_>) {
    if maze.reorder {
        vector.packets().sort_by_key(|packet| packet.data()[AT]);
    }
    let edges: Vec<u16> = vector.packets().iter().map(|packet| u16::from(packet.data()[AT])).collect();
    vector.send(&edges);
}

fn maze_keep(maze: &mut Maze, vector: Vector<'_>) {
    vector.drain(|packet| {
        maze.seen.push((0, packet.data().try_into().unwrap()));
        if let Err(packet) = maze.kept.push(packet) {
            drop(packet);
        }
    });
}

fn maze_free(maze: &mut Maze, mut vector: Vector<'_>) {
    maze.seen.extend(vector.packets().iter().map(|packet| (1, packet.data().try_into().unwrap())));
    vector.free();
}

fn maze_forget(maze: &mut Maze, mut vector: Vector<'_>) {
    maze.seen.extend(vector.packets().iter().map(|packet| (2, packet.data().try_into().unwrap())));
}

const MAZE: [NodeDef<Maze>; 7] = [
    NodeDef { name: "maze-source", kind: NodeKind::Source(maze_source), next: &["maze-0"] },
    NodeDef {
        name: "maze-0",
        kind: NodeKind::Inner(maze_node::<0>),
        next: &["maze-1", "maze-2", "keep", "free"],
    },
    NodeDef { name: "maze-1", kind: NodeKind::Inner(maze_node::<1>), next: &["maze-2", "free", "forget"] },
    NodeDef { name: "maze-2", kind: NodeKind::Inner(maze_node::<2>), next: &["keep", "forget"] },
    NodeDef { name: "keep", kind: NodeKind::Inner(maze_keep), next: &[] },
    NodeDef { name: "free", kind: NodeKind::Inner(maze_free), next: &[] },
    NodeDef { name: "forget", kind: NodeKind::Inner(maze_forget), next: &[] },
];

/// The sink of a route: 0 keep, 1 free, 2 forget; derived by hand from the definitions above.
fn end(route: [u8; 3]) -> usize {
    let two = |edge: u8| if edge == 0 { 0 } else { 2 };
    match route {
        [0, 0, edge] | [1, _, edge] => two(edge),
        [0, 1, _] | [3, _, _] => 1,
        [0, 2, _] => 2,
        _ => 0,
    }
}

fn routes() -> impl Strategy<Value = Vec<[u8; 3]>> {
    // Runs of equal routes, as in real traffic, and single packets.
    let run = ((0..4u8, 0..3u8, 0..2u8), prop_oneof![3 => 1..4usize, 1 => 1..300usize]);
    prop::collection::vec(run.prop_map(|((a, b, c), n)| vec![[a, b, c]; n]), 0..40)
        .prop_map(|runs| runs.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_packet_arrives_once_where_its_route_ends(
        routes in routes(),
        bursts in prop::collection::vec(0..=VECTOR_MAX, 1..30),
        reorder: bool,
    ) {
        let _alone = common::alone();
        let pool = pool(12_000);
        let state = Maze {
            pool: pool.clone(),
            routes: routes.iter().copied().collect(),
            bursts: bursts.iter().copied().collect(),
            reorder,
            kept: Burst::new(),
            seen: Vec::new(),
        };
        let mut graph = Graph::build("maze", &MAZE, Box::new(state)).unwrap();
        graph.walk();
        let emitted = bursts.iter().sum::<usize>().min(routes.len());
        let mut expected: Vec<_> = routes[..emitted].iter().map(|route| (end(*route), *route)).collect();
        let mut seen = graph.state().seen.clone();
        let kept = graph.state().kept.len();
        prop_assert_eq!(pool.in_use(), kept, "nothing is lost");
        expected.sort();
        seen.sort();
        prop_assert_eq!(seen, expected);
        let stats = graph.stats();
        let ends: u64 = stats[4..].iter().map(|node| node.packets).sum();
        prop_assert_eq!((stats[0].packets, stats[1].packets, ends), (emitted as u64, emitted as u64, emitted as u64));
        drop(graph);
        prop_assert_eq!(pool.in_use(), 0);
    }
}
