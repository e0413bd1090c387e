//! Deferred work: nodes below the root, further agreeing lanes, keys outside the pages.

use super::{Candidate, STRIDE, Walk};
use crate::lookup::head_hits::HeadHits;
use crate::table::{Branch, Node};
use crate::vector::{Hit, HitSink, VECTOR};

/// Maximum number of nodes that are visited with all of their packets at once.
const MAX_GROUPED_NODES: usize = 8;

/// Work that the passes defer; reused for each vector.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeferredWork {
    /// Heads that visit nodes: the head, the table, and the lane of the key's page.
    pub nodes: Vec<(u16, u8, u32)>,
    /// Heads and tables with further agreeing lanes.
    pub further_lanes: Vec<(u16, u8)>,
}

impl DeferredWork {
    /// Handles a branch that is neither a single rule nor a leaf; the packet has its key. Returns its rules,
    /// or defers its node. It is a function of its own so that the common cases take only one branch.
    #[inline(never)]
    pub(super) fn defer<'o>(&mut self, branch: &'o Branch, candidate: &Candidate<'_>) -> &'o [u32] {
        match branch {
            Branch::Rules(slots) => return slots,
            Branch::Node(_) => self.nodes.push((candidate.head, candidate.table, candidate.lane)),
            Branch::Rule(_) | Branch::Leaf(_) | Branch::Free => {}
        }
        &[]
    }
}

impl<'a> Walk<'a> {
    /// The node of a deferred visit.
    #[inline(always)]
    fn node(&self, (head, table, lane): (u16, u8, u32)) -> Option<&'a Node> {
        let table = self.tables[usize::from(table)];
        let page = table.store.page(table.store.seeds.hash(table.key(self.window(head))));
        match page.body.value(lane as usize) {
            Err(Branch::Node(node)) => Some(node),
            _ => None,
        }
    }

    /// Visits up to [`VECTOR`] nodes, some of them with all of their packets at once.
    fn visit_nodes(&self, deferred: &[(u16, u8, u32)], hits: &mut Vec<Hit>) {
        let mut nodes = [None; VECTOR];
        nodes.iter_mut().zip(deferred).for_each(|(node, one)| *node = self.node(*one));
        let mut grouped = 0;
        for (at, &(head, ..)) in deferred.iter().enumerate() {
            let Some(node) = nodes[at].take() else { continue };
            let packet = self.packet(head);
            if !node.has_bit_vectors() || grouped == MAX_GROUPED_NODES {
                node.visit(&[packet], hits);
                continue;
            }
            grouped += 1;
            let (mut packets, mut n) = ([packet; STRIDE], 1);
            for (other, &(head, ..)) in nodes.iter_mut().zip(deferred).skip(at + 1) {
                if other.take_if(|other| std::ptr::eq(*other, node)).is_none() {
                    continue;
                }
                if n == STRIDE {
                    node.visit(&packets, hits);
                    n = 0;
                }
                packets[n] = self.packet(head);
                n += 1;
            }
            node.visit(&packets[..n], hits);
        }
    }

    /// Does the deferred work.
    pub(super) fn visit_deferred(&self, deferred: &DeferredWork, hits: &mut HeadHits) {
        for nodes in deferred.nodes.chunks(VECTOR) {
            self.visit_nodes(nodes, &mut hits.unordered);
        }
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
