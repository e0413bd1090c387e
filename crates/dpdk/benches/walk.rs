//! The cost of the graph itself: ticks per packet of a walk through three empty nodes, with full vectors.
//!
//! `source` takes packets from a pool, `pass` passes them on and `sink` frees them. The second figure adds a
//! node that sends packets by edge, in runs of eight. Ticks are those of the time-stamp counter.

use mmb_dpdk::{
    Eal, EalConfig, Emit, Error, Graph, HugePages, Mempool, NodeDef, NodeKind, VECTOR_MAX, Vector,
};

struct State {
    pool: Mempool,
    edges: [u16; VECTOR_MAX],
}

fn source(state: &mut State, emit: &mut Emit<'_>) -> usize {
    emit.emit(0, VECTOR_MAX, |slots| {
        state.pool.alloc_bulk(VECTOR_MAX, slots);
    })
}

fn pass(_: &mut State, vector: Vector<'_>) {
    vector.send_all(0);
}

fn spread(state: &mut State, vector: Vector<'_>) {
    let n = vector.len();
    vector.send(&state.edges[..n]);
}

fn sink(_: &mut State, vector: Vector<'_>) {
    vector.free();
}

const STRAIGHT: [NodeDef<State>; 3] = [
    NodeDef { name: "source", kind: NodeKind::Source(source), next: &["pass"] },
    NodeDef { name: "pass", kind: NodeKind::Inner(pass), next: &["sink"] },
    NodeDef { name: "sink", kind: NodeKind::Inner(sink), next: &[] },
];

const SPREAD: [NodeDef<State>; 4] = [
    NodeDef { name: "source", kind: NodeKind::Source(source), next: &["spread"] },
    NodeDef { name: "spread", kind: NodeKind::Inner(spread), next: &["sink", "sink-2"] },
    NodeDef { name: "sink", kind: NodeKind::Inner(sink), next: &[] },
    NodeDef { name: "sink-2", kind: NodeKind::Inner(sink), next: &[] },
];

fn main() -> Result<(), Error> {
    Eal::init(&EalConfig { huge: HugePages::Never, privileged: false, ..EalConfig::default() })?;
    let _worker = mmb_dpdk::register_thread()?;
    measure("straight", &STRAIGHT, |_| 0)?;
    measure("one edge, by packet", &SPREAD, |_| 0)?;
    measure("runs of eight", &SPREAD, |at| (at as u16 / 8) % 2)?;
    measure("every other packet", &SPREAD, |at| at as u16 % 2)
}

/// The minimum of many short measurements: other programs only add to it.
fn measure(what: &str, defs: &[NodeDef<State>], edge: fn(usize) -> u16) -> Result<(), Error> {
    const WALKS: u64 = 200;
    let state = State { pool: Mempool::create("bench", 8192, 2048, 512)?, edges: std::array::from_fn(edge) };
    let mut graph = Graph::build("bench", defs, Box::new(state))?;
    let packets = (WALKS * VECTOR_MAX as u64) as f64;
    let (mut best, mut nodes) = (f64::MAX, vec![f64::MAX; defs.len()]);
    for _ in 0..1000 {
        let (before, start) = (graph.stats(), mmb_dpdk::rdtsc());
        for _ in 0..WALKS {
            graph.walk();
        }
        best = best.min((mmb_dpdk::rdtsc() - start) as f64 / packets);
        for ((node, after), before) in nodes.iter_mut().zip(graph.stats()).zip(before) {
            let packets = (after.packets - before.packets).max(1) as f64;
            *node = node.min((after.ticks - before.ticks) as f64 / packets);
        }
    }
    print!("{what}: {best:.2} ticks a packet");
    for (def, node) in defs.iter().zip(nodes) {
        print!(", {} {node:.2}", def.name);
    }
    println!();
    Ok(())
}
