//! Where functions have their bytes in scratchpads.
//!
//! Theory of operation. Chains give a graph to [`mmb_flow::layout`], of which this is the part that knows chains. An
//! instance is one node, however many chains it stands in. Edges lead from each function to those that may come next; as
//! two chains may have the same instances in different orders, without any packet going in a circle, an edge is entered only
//! if it leads from an instance that was met earlier to one that was met later, and that two instances stand on one way is
//! said besides, pair by pair.

use std::collections::{HashMap, HashSet};

use mmb_flow::layout::{Graph, LayoutError, Node, Order};

use super::HEADER_BYTES;

/// Functions whose bytes stand in the same scratchpads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Space {
    /// Instances in the order in which they were met.
    order: Vec<u16>,
    sizes: HashMap<u16, (usize, usize)>,
    edges: HashSet<(u16, u16)>,
    meetings: HashSet<(u16, u16)>,
    /// Where each one's bytes are, once they are.
    places: HashMap<u16, (usize, usize)>,
    bytes: usize,
}

impl Space {
    /// An instance with `size` bytes, aligned.
    pub fn add(&mut self, instance: u16, size: usize, align: usize) {
        if self.sizes.insert(instance, (size, align)).is_none() {
            self.order.push(instance);
        }
    }

    /// Packets go from one to the other.
    pub fn edge(&mut self, from: u16, to: u16) {
        self.edges.insert((from, to));
    }

    /// A session may see both.
    pub fn meet(&mut self, a: u16, b: u16) {
        self.meetings.insert((a.min(b), a.max(b)));
    }

    /// Finds all places. At most `limit` bytes, those of the header included.
    pub fn lay_out(&mut self, order: Order, limit: usize) -> Result<(), LayoutError> {
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

    /// Offset and size of an instance's bytes.
    pub fn place(&self, instance: u16) -> Option<(usize, usize)> {
        self.places.get(&instance).copied()
    }

    /// Instances with bytes, by offset: instance, offset, size.
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

    /// Bytes of the scratchpads; 0 if there is no function.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn meets(&self, a: u16, b: u16) -> bool {
        self.meetings.contains(&(a.min(b), a.max(b)))
    }
}
