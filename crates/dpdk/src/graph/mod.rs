//! The graph: nodes that pass vectors of packets to each other.
//!
//! # Theory of operation
//! A graph is DPDK's `rte_graph`. [`Graph::walk`] calls every source node once, and then every node that has
//! packets, until no node has any. A node function gets the worker's state exclusively and a [`Vector`] of at
//! most [`crate::VECTOR_MAX`] packets that it must pass on. A longer stream arrives as several vectors.
//!
//! DPDK registers nodes once per process, by name and with their edges; graphs are instances of registered
//! nodes. A *family* is a list of node names, kinds and edges. Graphs with the same list share a family;
//! another list gets names with its own suffix. The node functions belong to a graph: after DPDK has made it,
//! each node's process function is replaced by a trampoline for the type of the worker's state. The node's
//! context holds the state's address and the node function.
//!
//! A packet has one owner: a vector's packets are unique `&mut`s with a lifetime that nothing else has. So no
//! packet with another owner can be put into a vector, and no reference outlives the vector that was sent.
//!
//! An [`Observer`] sees the packets of every inner node before the node does. While there is none, the nodes
//! are bound to trampolines that know nothing of observers, so that one that is not set costs nothing.
//!
//! DPDK doubles a node's stream when it is full and aborts beyond 65,535 entries. So [`Emit`] stops at
//! [`WALK_MAX`] packets per walk. Every packet that enters in a walk leaves in that walk.

mod register;
mod vector;

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use mmb_dpdk_sys as sys;

use crate::eal::Eal;
use crate::error::Error;
use crate::memory::Packet;
use register::FAMILIES;
pub use vector::{Emit, Vector};

/// Most packets that sources can bring into one walk.
pub const WALK_MAX: usize = 32_768;

/// One node of a graph whose worker state is a `W`.
pub struct NodeDef<W> {
    /// Name: letters, digits, '-', '_' and '.', at most 48 bytes.
    pub name: &'static str,
    /// The node's function.
    pub kind: NodeKind<W>,
    /// Names of the nodes it can pass packets to; an edge is an index into this list.
    pub next: &'static [&'static str],
}

/// The function of a node.
pub enum NodeKind<W> {
    /// Brings packets into the graph. Returns their number, for the statistics.
    Source(fn(&mut W, &mut Emit<'_>) -> usize),
    /// Receives packets and passes them on.
    Inner(fn(&mut W, Vector<'_>)),
}

/// Sees the packets of an inner node, in vectors of at most [`crate::VECTOR_MAX`], before the node with this
/// name processes them.
pub type Observer<W> = fn(&mut W, &'static str, &mut [&mut Packet]);

/// Statistics of a node since the graph was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeStats {
    /// Its name.
    pub name: &'static str,
    /// Packets processed.
    pub packets: u64,
    /// Vectors processed; for a source, calls.
    pub vectors: u64,
    /// Time-stamp-counter ticks spent in it.
    pub ticks: u64,
}

/// A graph and its worker's state.
pub struct Graph<W> {
    memory: Arc<Memory>,
    /// From Box::leak; nodes reach it through their contexts.
    worker: NonNull<Worker<W>>,
    owns: PhantomData<Worker<W>>,
}

/// The state that node contexts point to.
struct Worker<W> {
    state: Box<W>,
    emitted: usize,
    observer: Option<Observer<W>>,
    /// The inner nodes with their names.
    inner: Vec<(&'static str, NonNull<sys::rte_node>)>,
}

/// DPDK's side of a graph.
struct Memory {
    id: sys::rte_graph_t,
    graph: NonNull<sys::rte_graph>,
    nodes: Vec<(&'static str, NonNull<sys::rte_node>)>,
}

// SAFETY: the worker's state is Send, and nothing in a graph is bound to a thread.
unsafe impl<W: Send> Send for Graph<W> {}
// SAFETY: a shared Memory is used only to read statistics atomically, and the last owner destroys the graph.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// Reads a graph's statistics from any thread, during and after its life.
#[derive(Clone)]
pub struct StatsHandle(Arc<Memory>);

impl<W> Graph<W> {
    /// Builds a graph. Every node must be reachable from a source; no edge may lead to a source or to its own
    /// node.
    ///
    /// # Errors
    /// [`Error::NotStarted`]; [`Error::Graph`] with the offending node.
    pub fn build(name: &str, defs: &[NodeDef<W>], state: Box<W>) -> Result<Graph<W>, Error> {
        Eal::running()?;
        let failed = |error| Error::Graph { name: name.to_owned(), error };
        register::check(defs).map_err(failed)?;
        // Serialized: DPDK walks its lists of nodes and graphs partly without a lock.
        let mut families = FAMILIES.lock().unwrap_or_else(PoisonError::into_inner);
        let family = register::family(&mut families, defs).map_err(failed)?;
        let memory = register::create(family, defs).map_err(failed)?;
        drop(families);
        let is_inner = |def: &NodeDef<W>| matches!(def.kind, NodeKind::Inner(_));
        let inner = memory.nodes.iter().zip(defs).filter(|(_, def)| is_inner(def)).map(|(node, _)| *node);
        let worker = Worker { state, emitted: 0, observer: None, inner: inner.collect() };
        let worker = NonNull::from(Box::leak(Box::new(worker)));
        for ((_, node), def) in memory.nodes.iter().zip(defs) {
            // SAFETY: the nodes belong to this graph, which nothing walks yet.
            unsafe { vector::bind(node.as_ptr(), &def.kind, worker) };
        }
        Ok(Graph { memory: Arc::new(memory), worker, owns: PhantomData })
    }

    /// Calls the sources once, and then every node with packets until all packets have left.
    #[inline]
    pub fn walk(&mut self) {
        // SAFETY: the graph is whole, `&mut self` makes this the only walk, and no reference to the worker's
        // state is alive while nodes use it.
        unsafe {
            (*self.worker.as_ptr()).emitted = 0;
            sys::mmb_graph_walk(self.memory.graph.as_ptr());
        }
    }

    /// Sets the observer of all inner nodes, or removes it.
    pub fn observe(&mut self, observer: Option<Observer<W>>) {
        // SAFETY: as in `state_mut`; the nodes belong to this graph, which nothing walks now.
        unsafe {
            let worker = self.worker.as_mut();
            worker.observer = observer;
            for (_, node) in &worker.inner {
                vector::set_observed::<W>(node.as_ptr(), observer.is_some());
            }
        }
    }

    /// Whether there is an observer.
    #[inline]
    pub fn is_observed(&self) -> bool {
        // SAFETY: as in `state`.
        unsafe { self.worker.as_ref().observer.is_some() }
    }

    /// The worker's state.
    #[inline]
    pub fn state(&self) -> &W {
        // SAFETY: nodes use the state only during `walk`, which needs `&mut self`.
        unsafe { &self.worker.as_ref().state }
    }

    /// The worker's state, mutable.
    #[inline]
    pub fn state_mut(&mut self) -> &mut W {
        // SAFETY: as in `state`.
        unsafe { &mut self.worker.as_mut().state }
    }

    /// The statistics of all nodes, in the order of their definitions.
    pub fn stats(&self) -> Vec<NodeStats> {
        self.memory.stats()
    }

    /// A handle for reading the statistics from other threads. It keeps the graph's memory.
    pub fn stats_handle(&self) -> StatsHandle {
        StatsHandle(Arc::clone(&self.memory))
    }
}

impl<W> Drop for Graph<W> {
    fn drop(&mut self) {
        // SAFETY: leaked by `build`. A graph with only handles left is never walked again, so its node
        // contexts are not used.
        drop(unsafe { Box::from_raw(self.worker.as_ptr()) });
    }
}

impl StatsHandle {
    /// The statistics of all nodes, in the order of their definitions. A running node counts when it returns.
    /// The three numbers of a node may be of different moments.
    pub fn stats(&self) -> Vec<NodeStats> {
        self.0.stats()
    }
}

impl Memory {
    fn stats(&self) -> Vec<NodeStats> {
        let read = |(name, node): &(&'static str, NonNull<sys::rte_node>)| {
            // SAFETY: the node lives as long as `self`; its counters are aligned 64-bit numbers that only the
            // walking thread writes, each with one store.
            let load = |counter: *mut u64| unsafe { AtomicU64::from_ptr(counter) }.load(Ordering::Relaxed);
            let node = node.as_ptr();
            // SAFETY: as above; no reference to the fields is made.
            let (packets, vectors, ticks) = unsafe {
                (&raw mut (*node).total_objs, &raw mut (*node).total_calls, &raw mut (*node).total_cycles)
            };
            NodeStats { name, packets: load(packets), vectors: load(vectors), ticks: load(ticks) }
        };
        self.nodes.iter().map(read).collect()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // DPDK reads its list of graphs without a lock while another graph is built.
        let _guard = FAMILIES.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the last owner; nothing walks the graph and it holds no packets between walks.
        unsafe { sys::rte_graph_destroy(self.id) };
    }
}
