//! The layout of scratchpads.
//!
//! Theory of operation. The chains give a graph to [`mmb_flow::layout`], the algorithm that knows no chains.
//! An instance is one node, in however many chains it is used. Edges lead from each function to those that
//! may come next. Two chains may use the same instances in different orders without any packet going in a
//! circle. So only edges from an instance that was met earlier to one that was met later are entered. That
//! two instances are on one path is noted in addition, pair by pair.

use std::collections::{HashMap, HashSet};

use mmb_flow::layout::{Graph, LayoutError, Node, Order};

/// Bytes at the start of every scratchpad that belong to the engine: number of the program, of the chain, and
/// the branches that the session has taken.
pub const HEADER_BYTES: usize = 8;

/// Functions whose bytes are in the same scratchpads.
#[derive(Clone, Debug, Default)]
pub(crate) struct PadLayout {
    /// Instances in the order in which chains use them.
    order: Vec<u16>,
    sizes: HashMap<u16, (usize, usize)>,
    edges: HashSet<(u16, u16)>,
    meetings: HashSet<(u16, u16)>,
    /// Offset and size of each instance's bytes, after [`PadLayout::compute`].
    places: HashMap<u16, (usize, usize)>,
    bytes: usize,
}

impl PadLayout {
    /// Adds an instance with a size and an alignment.
    pub fn add(&mut self, instance: u16, size: usize, align: usize) {
        if self.sizes.insert(instance, (size, align)).is_none() {
            self.order.push(instance);
        }
    }

    /// Notes that packets go from one instance to another.
    pub fn edge(&mut self, from: u16, to: u16) {
        self.edges.insert((from, to));
    }

    /// Notes that a session may pass both instances.
    pub fn meet(&mut self, a: u16, b: u16) {
        self.meetings.insert((a.min(b), a.max(b)));
    }

    /// Computes all offsets. Fails beyond `limit` bytes, header included.
    pub fn compute(&mut self, order: Order, limit: usize) -> Result<(), LayoutError> {
        let mut graph = Graph::default();
        let nodes: Vec<Node> = self
            .order
            .iter()
            .map(|instance| self.sizes[instance])
            .map(|(size, align)| graph.add(size, align))
            .collect();
        let rank: HashMap<u16, usize> =
            self.order.iter().enumerate().map(|(n, &instance)| (instance, n)).collect();
        let mut edges: Vec<_> = self.edges.iter().map(|(from, to)| (rank[from], rank[to])).collect();
        edges.sort_unstable();
        edges
            .into_iter()
            .filter(|(from, to)| from < to)
            .for_each(|(from, to)| graph.edge(nodes[from], nodes[to]));
        for (a, b) in &self.meetings {
            graph.meet(nodes[rank[a]], nodes[rank[b]]);
        }
        let layout = graph.layout(order, usize::MAX)?;
        for (instance, node) in self.order.iter().zip(nodes) {
            let place = layout.place(node);
            self.places.insert(*instance, (place.start + HEADER_BYTES, place.len()));
        }
        self.bytes = layout.bytes() + HEADER_BYTES;
        if self.bytes > limit { Err(LayoutError::TooLarge(self.bytes)) } else { Ok(()) }
    }

    /// Returns offset and size of an instance's bytes.
    pub fn place(&self, instance: u16) -> Option<(usize, usize)> {
        self.places.get(&instance).copied()
    }

    /// Returns instances with bytes, ordered by offset: instance, offset, size.
    pub fn places(&self) -> Vec<(u16, usize, usize)> {
        let mut places: Vec<_> = self
            .order
            .iter()
            .filter_map(|&instance| {
                self.place(instance)
                    .filter(|place| place.1 > 0)
                    .map(|(offset, size)| (instance, offset, size))
            })
            .collect();
        places.sort_by_key(|&(instance, offset, _)| (offset, instance));
        places
    }

    /// Returns the bytes of a scratchpad; 0 if there is no function.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a session may pass both instances.
    pub fn meets(&self, a: u16, b: u16) -> bool {
        self.meetings.contains(&(a.min(b), a.max(b)))
    }
}
