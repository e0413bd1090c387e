//! The way of a vector of packets through the root's tables.
//!
//! Theory of operation. A few packets at a time go through passes, so that the memory accesses of all of them overlap
//! and hardly anything depends on a branch that only data decides: hash what each table's mask leaves of each packet
//! and prefetch the group of tags; compare the tags and note which agree; find the lanes and prefetch what they hold;
//! find the blocks of entries to be compared and prefetch them; compare. All passes go packet by packet, which gives
//! the hits their order. What does not fit that scheme (nodes below, lanes beyond the first that agree, keys that stand
//! outside the pages) is left to the end.

use std::ops::Range;
use std::slice;

use mmb_packet::window::CHUNKS;
use mmb_packet::{Window, prefetch};

use crate::batch::{Hit, VECTOR};
use crate::bitvec::Packet;
use crate::group::Group;
use crate::hash::Hash;
use crate::leaf::{Block, first_words};
use crate::node::Node;
use crate::owner::Owner;
use crate::page::Body;
use crate::predicate::Truths;
use crate::sieve::Sieve;
use crate::sink::{Hits, Sink};
use crate::summary::Summary;
use crate::table::Table;

/// Most tables that are probed together; those beyond are probed packet by packet.
pub(crate) const TABLES: usize = 64;
/// Pairs of packets and tables that go through the passes together: enough for their memory accesses to overlap, few
/// enough for what one pass leaves to the next to stay in the nearest cache.
const PAIRS: usize = 128;
/// Most packets that do, or that come to a node together.
pub(crate) const STRIDE: usize = 64;
/// Most nodes that are visited with all of their packets at once.
const MANY: usize = 8;

/// A packet and a table whose tags agree.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    /// Number of the packet among the heads.
    packet: u16,
    table: u8,
    /// Lanes of the group that agree, as bits.
    lanes: u8,
    /// The first of those, as a lane of the page.
    lane: u32,
    body: &'a Body,
}

/// A packet, and entries to be compared with it.
#[derive(Clone, Copy)]
struct Work<'a> {
    packet: u16,
    /// Rules that are known to match.
    slots: &'a [u32],
    blocks: &'a [Block],
}

/// Whether no packet's key has a tag in the tables, and none agrees with a block: certain if true, and cheaper to find
/// out than what is there.
pub(crate) fn finds_nothing(
    windows: &[Window],
    tables: &[Table],
    (blocks, sieve): (&[Block], Option<&Sieve>),
    summary: &Summary,
) -> bool {
    let mut blocks = blocks.iter().filter(|block| !summary.excludes_block(block));
    let may_match = match sieve {
        Some(sieve) => windows.iter().any(|window| {
            sieve.passes(window.chunk[0])
                && blocks.clone().any(|block| block.may_match(slice::from_ref(window)))
        }),
        None => blocks.any(|block| block.may_match(windows)),
    };
    !may_match && tables.iter().all(|table| summary.excludes(table) || has_no_tag(windows, table))
}

fn has_no_tag(windows: &[Window], table: &Table) -> bool {
    let mut agree = 0;
    for windows in windows.chunks(PAIRS) {
        let mut probes = [(&Group::EMPTY, 0); PAIRS];
        for (probe, window) in probes.iter_mut().zip(windows) {
            let hash = table.store.seeds.hash(table.key(window));
            let group = table.store.page(hash).group(hash).1;
            prefetch::read(group);
            *probe = (group, hash.tag());
        }
        agree |= probes[..windows.len()].iter().fold(0, |all, (group, tag)| all | group.find(*tag).bits());
    }
    agree == 0 && table.store.spill().is_empty()
}

/// What the passes have to do with.
pub(crate) struct Walk<'a> {
    pub windows: &'a [Window],
    /// Numbers of the packets to be looked at.
    pub heads: &'a [u16],
    pub truths: &'a Truths,
    /// Blocks that every packet is compared with.
    pub rest: &'a [&'a Block],
    /// Tells packets that match none of them.
    pub sieve: Option<&'a Sieve>,
    /// At most [`TABLES`].
    pub tables: &'a [&'a Table],
}

/// What they leave to each other.
struct Scratch<'a> {
    probes: [(&'a Group, Hash); PAIRS],
    candidates: [Candidate<'a>; PAIRS],
    works: [Work<'a>; PAIRS],
}

/// What they leave to the end, in vectors to be used again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Left {
    /// Packets that come to nodes: heads, tables, lanes of the keys' pages.
    nodes: Vec<(u16, u8, u32)>,
    /// Packets, and tables in which lanes beyond the first agree.
    lanes_beyond: Vec<(u16, u8)>,
}

impl Left {
    /// What a candidate's key, which its packet has, leads to: rules, or a node that is left to the end. Apart from what
    /// most keys lead to, so that those take no more than a branch.
    #[inline(never)]
    fn other<'o>(&mut self, owner: &'o Owner, candidate: &Candidate<'_>) -> &'o [u32] {
        match owner {
            Owner::Same(slots) => return slots,
            Owner::Node(_) => self.nodes.push((candidate.packet, candidate.table, candidate.lane)),
            Owner::One(_) | Owner::Leaf(_) | Owner::Free => {}
        }
        &[]
    }
}

impl<'a> Walk<'a> {
    /// Gives `hits` the hits of all heads.
    pub fn run(&self, left: &mut Left, hits: &mut Hits) {
        left.nodes.clear();
        left.lanes_beyond.clear();
        self.pass(left, hits);
        self.visit_others(left, hits);
    }

    /// The passes, in order.
    fn pass(&self, left: &mut Left, hits: &mut Hits) {
        let Some(any) = self.tables.first() else { return self.compare(0..self.heads.len(), &[], hits) };
        let none = any.store.page(Hash::default());
        let mut scratch = Scratch {
            probes: [(&Group::EMPTY, Hash::default()); PAIRS],
            candidates: [Candidate { packet: 0, table: 0, lanes: 0, lane: 0, body: &none.body }; PAIRS],
            works: [Work { packet: 0, slots: &[], blocks: &[] }; PAIRS],
        };
        let stride = STRIDE.min(PAIRS / self.tables.len());
        for first in (0..self.heads.len()).step_by(stride) {
            let heads = first..(first + stride).min(self.heads.len());
            let n = self.probe(heads.clone(), &mut scratch);
            for candidate in &scratch.candidates[..n] {
                candidate.body.prefetch(candidate.lane as usize);
            }
            self.find_blocks(n, &mut scratch, left);
            self.compare(heads, &scratch.works[..n], hits);
        }
    }

    #[inline(always)]
    fn window(&self, head: impl Into<usize>) -> &'a Window {
        &self.windows[usize::from(self.heads[head.into()])]
    }

    /// A head.
    #[inline(always)]
    pub fn packet(&self, head: u16) -> Packet<'a> {
        let packet = usize::from(self.heads[usize::from(head)]);
        Packet { window: &self.windows[packet], facts: self.truths.facts(packet), head }
    }

    /// Finds the tables that may have a packet's key, packet by packet; returns how many pairs there are.
    #[inline(always)]
    fn probe(&self, heads: Range<usize>, scratch: &mut Scratch<'a>) -> usize {
        let n = self.tables.len();
        let mut chunks = [0; STRIDE];
        let mut chunk = usize::MAX;
        for (t, table) in self.tables.iter().enumerate() {
            if chunk != table.chunk {
                chunk = table.chunk;
                for (at, &packet) in chunks.iter_mut().zip(&self.heads[heads.clone()]) {
                    *at = self.windows[usize::from(packet)].chunk[chunk % CHUNKS];
                }
            }
            let mut probes = scratch.probes[t..].iter_mut().step_by(n);
            let store = &table.store;
            for (chunk, probe) in chunks[..heads.len()].iter().zip(&mut probes) {
                let hash = store.seeds.hash(chunk & table.mask);
                let group = store.page(hash).group(hash).1;
                prefetch::read(group);
                *probe = (group, hash);
            }
        }
        let probes = &scratch.probes[..heads.len() * n];
        let (mut agreed, mut found) = ([(0u8, 0u8, 0u8); PAIRS], 0);
        for (at, probes) in probes.chunks_exact(n).enumerate() {
            for (t, &(group, hash)) in probes.iter().enumerate() {
                let lanes = group.find(hash.tag()).bits();
                agreed[found % PAIRS] = (at as u8, t as u8, lanes);
                found += usize::from(lanes != 0);
            }
        }
        for (&(at, table, lanes), candidate) in agreed[..found].iter().zip(&mut scratch.candidates) {
            let hash = probes[usize::from(at) * n + usize::from(table)].1;
            let page = self.tables[usize::from(table)].store.page(hash);
            let lane = page.group(hash).0 + lanes.trailing_zeros() as usize;
            prefetch::read(&*page.body);
            let packet = heads.start as u16 + u16::from(at);
            *candidate = Candidate { packet, table, lanes, lane: lane as u32, body: &page.body };
        }
        found
    }

    /// Finds the blocks of entries that candidates lead to.
    #[inline(always)]
    fn find_blocks(&self, n: usize, scratch: &mut Scratch<'a>, left: &mut Left) {
        for (candidate, work) in scratch.candidates[..n].iter().zip(&mut scratch.works) {
            let packet = candidate.packet;
            *work = Work { packet, slots: &[], blocks: &[] };
            if candidate.lanes & (candidate.lanes - 1) != 0 {
                left.lanes_beyond.push((packet, candidate.table));
            }
            match candidate.body.value(candidate.lane as usize) {
                Err(Owner::Leaf(leaf)) => {
                    work.blocks = leaf.blocks();
                    work.blocks.iter().take(1).for_each(Block::prefetch);
                }
                Ok(slot) => {
                    work.slots = &std::slice::from_ref(slot)[..usize::from(self.is_key(candidate))];
                }
                Err(other) if self.is_key(candidate) => work.slots = left.other(other, candidate),
                Err(_) => {}
            }
        }
    }

    /// Whether a candidate's packet has the key.
    #[inline(always)]
    fn is_key(&self, candidate: &Candidate<'_>) -> bool {
        let table = self.tables[usize::from(candidate.table)];
        candidate.body.key(candidate.lane as usize) == table.key(self.window(candidate.packet))
    }

    /// Compares where there is no block that every packet is compared with: most packets may have nothing to do.
    #[inline(always)]
    fn compare_works(&self, works: &[Work<'_>], hits: &mut Hits) {
        for work in works {
            let from = hits.begin();
            hits.several(work.slots);
            if let [_, ..] = work.blocks {
                let packet = usize::from(self.heads[usize::from(work.packet)]);
                let window = &self.windows[packet];
                let words = first_words(window.chunk[0]);
                for block in work.blocks {
                    let lanes = block.matches(&words, window, || self.truths.facts(packet));
                    hits.four(lanes, &block.slots);
                }
            }
            hits.end(work.packet.into(), from);
        }
    }

    /// Compares.
    #[inline(always)]
    fn compare(&self, heads: Range<usize>, works: &[Work<'_>], hits: &mut Hits) {
        if self.rest.is_empty() {
            return self.compare_works(works, hits);
        }
        let mut works = works.iter().peekable();
        for head in heads {
            let packet = usize::from(self.heads[head]);
            let window = &self.windows[packet];
            let (words, facts) = (first_words(window.chunk[0]), || self.truths.facts(packet));
            let from = hits.begin();
            let may_match = self.sieve.is_none_or(|sieve| sieve.passes(window.chunk[0]));
            for block in if may_match { self.rest } else { &[] } {
                let lanes = block.matches(&words, window, facts);
                if lanes != 0 {
                    hits.four(lanes, &block.slots);
                }
            }
            while let Some(work) = works.next_if(|work| usize::from(work.packet) == head) {
                hits.several(work.slots);
                for block in work.blocks {
                    let lanes = block.matches(&words, window, facts);
                    hits.four(lanes, &block.slots);
                }
            }
            hits.end(head, from);
        }
    }

    /// The node that one of `left.nodes` is about.
    #[inline(always)]
    fn node(&self, (head, table, lane): (u16, u8, u32)) -> Option<&'a Node> {
        let table = self.tables[usize::from(table)];
        let page = table.store.page(table.store.seeds.hash(table.key(self.window(head))));
        match page.body.value(lane as usize) {
            Err(Owner::Node(node)) => Some(node),
            _ => None,
        }
    }

    /// Visits nodes, up to [`VECTOR`], some of them with all of their packets at once.
    fn visit_nodes(&self, left: &[(u16, u8, u32)], hits: &mut Vec<Hit>) {
        let mut nodes = [None; VECTOR];
        nodes.iter_mut().zip(left).for_each(|(node, one)| *node = self.node(*one));
        let mut many = 0;
        for (at, &(head, ..)) in left.iter().enumerate() {
            let Some(node) = nodes[at].take() else { continue };
            let packet = self.packet(head);
            if !node.gains_by_many() || many == MANY {
                node.visit(&[packet], hits);
                continue;
            }
            many += 1;
            let (mut packets, mut n) = ([packet; STRIDE], 1);
            for (other, &(head, ..)) in nodes.iter_mut().zip(left).skip(at + 1) {
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

    /// Visits what was left.
    fn visit_others(&self, left: &Left, hits: &mut Hits) {
        for nodes in left.nodes.chunks(VECTOR) {
            self.visit_nodes(nodes, &mut hits.others);
        }
        for (head, table) in &left.lanes_beyond {
            let facts = self.truths.facts(self.heads[usize::from(*head)].into());
            let sink = &mut Sink::new(&mut hits.others, *head);
            self.tables[usize::from(*table)].visit_lanes(1, self.window(*head), facts, sink);
        }
        for table in self.tables.iter().filter(|table| !table.store.spill().is_empty()) {
            for (head, &packet) in self.heads.iter().enumerate() {
                let sink = &mut Sink::new(&mut hits.others, head as u16);
                table.visit_spill(self.window(head), self.truths.facts(packet.into()), sink);
            }
        }
    }
}
