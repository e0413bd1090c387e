//! Deferred work: nodes below the root, further agreeing lanes, keys outside the pages.

use super::{HASHES, PAIRS, Walk};
use crate::lookup::head_hits::HeadHits;
use crate::lookup::passed_heads::PassedHeads;
use crate::table::{Branch, Node};
use crate::vector::{HitSink, VECTOR};

/// Maximum number of nodes that are visited with all of their packets at once.
const MAX_GROUPS: usize = 8;

/// What the passes need for a whole vector, and work that they defer; reused for each vector.
#[derive(Clone, Debug)]
pub(crate) struct DeferredWork {
    /// The heads that passed a filter.
    pub passed: PassedHeads,
    /// Heads and tables with further agreeing lanes.
    pub further_lanes: Vec<(u16, u8)>,
    pub(super) words: FirstWords,
    /// For each table the hashes of the next heads' keys, and the values of the extra bits.
    pub(super) hashes: [u64; HASHES],
    pub(super) values: [u16; HASHES],
}

impl Default for DeferredWork {
    fn default() -> Self {
        DeferredWork {
            passed: PassedHeads::default(),
            further_lanes: Vec::new(),
            words: [[0; 4]; VECTOR],
            hashes: [0; HASHES],
            values: [0; HASHES],
        }
    }
}

/// The words of the heads' first chunks, with ports in host byte order.
pub(super) type FirstWords = [[u32; 4]; VECTOR];

/// Deferred visits of nodes below the root.
pub(super) struct NodeVisits<'a> {
    /// Nodes with bit vectors, and the heads that visit each.
    groups: [(Option<&'a Node>, usize); MAX_GROUPS],
    heads: [[u16; VECTOR]; MAX_GROUPS],
    /// Other visits, until the end of the current passes.
    single: [Option<(u16, &'a Node)>; PAIRS],
    singles: usize,
}

impl<'a> NodeVisits<'a> {
    /// No visits.
    pub const NONE: Self = NodeVisits {
        groups: [(None, 0); MAX_GROUPS],
        heads: [[0; VECTOR]; MAX_GROUPS],
        single: [None; PAIRS],
        singles: 0,
    };

    /// Handles a branch that is neither a single rule nor a leaf; the head has its key. Returns its rules, or
    /// defers its node. It is a function of its own so that the common cases take only one branch.
    #[inline(never)]
    pub fn defer<'o>(&mut self, branch: &'a Branch, head: u16) -> &'o [u32]
    where
        'a: 'o,
    {
        match branch {
            Branch::Rules(slots) => return slots,
            Branch::Node(node) => self.push(node, head),
            Branch::Rule(_) | Branch::Leaf(_) | Branch::Free => {}
        }
        &[]
    }

    /// Defers the visit of a node. A head visits a node at most once, since it has one key in each table.
    fn push(&mut self, node: &'a Node, head: u16) {
        // Which node it is, is hard to predict.
        let is_it = |group: &(Option<&Node>, usize)| group.0.is_some_and(|own| std::ptr::eq(own, node));
        let groups = self.groups.iter().enumerate();
        let mut bits = groups.fold(0u32, |bits, (at, group)| bits | u32::from(is_it(group)) << at);
        if bits == 0 {
            let free = self.groups.iter().position(|(own, _)| own.is_none());
            let Some(free) = free.filter(|_| node.has_bit_vectors()) else {
                self.single[self.singles % PAIRS] = Some((head, node));
                self.singles += 1;
                return;
            };
            self.groups[free].0 = Some(node);
            bits = 1 << free;
        }
        let at = bits.trailing_zeros() as usize % MAX_GROUPS;
        let len = &mut self.groups[at].1;
        self.heads[at][*len % VECTOR] = head;
        *len += 1;
    }
}

impl<'a> Walk<'a> {
    /// Visits the nodes that are not visited with all of their packets at once.
    #[inline(always)]
    pub(super) fn visit_single_nodes(&self, visits: &mut NodeVisits<'a>, hits: &mut HeadHits) {
        for (head, node) in visits.single[..visits.singles].iter().flatten() {
            node.visit(&[self.packet(*head)], self.simd, &mut hits.unordered);
        }
        visits.singles = 0;
    }

    /// Visits the nodes with bit vectors.
    pub(super) fn visit_groups(&self, visits: &NodeVisits<'a>, hits: &mut HeadHits) {
        for (&(node, len), heads) in visits.groups.iter().zip(&visits.heads) {
            let Some(node) = node else { return };
            let mut packets = [self.packet(heads[0]); VECTOR];
            packets.iter_mut().zip(&heads[..len]).for_each(|(packet, head)| *packet = self.packet(*head));
            node.visit(&packets[..len], self.simd, &mut hits.unordered);
        }
    }

    /// Does the deferred work, except for visits of nodes.
    pub(super) fn visit_deferred(&self, deferred: &DeferredWork, hits: &mut HeadHits) {
        for (head, table) in &deferred.further_lanes {
            let facts = self.results.of_packet(self.heads[usize::from(*head)].into());
            let sink = &mut HitSink::new(&mut hits.unordered, *head);
            self.tables[usize::from(*table)].visit_lanes(1, self.window(*head), facts, sink);
        }
        for table in self.tables.iter().filter(|table| !table.store.spill().is_empty()) {
            for (head, &packet) in self.heads.iter().enumerate() {
                let sink = &mut HitSink::new(&mut hits.unordered, head as u16);
                table.visit_spill(self.window(head), self.results.of_packet(packet.into()), sink);
            }
        }
    }
}
