//! The way of a vector of packets through the root's tables.
//!
//! Theory of operation. A few packets at a time go through passes, so that the memory accesses of all of them overlap
//! and hardly anything depends on a branch that only data decides: hash what each table's mask leaves of each packet
//! and prefetch the group of tags; compare the tags and note which agree; find the lanes and prefetch what they hold;
//! find the blocks of entries to be compared and prefetch them; compare. All passes go packet by packet, which gives
//! the hits their order. What does not fit that scheme (nodes below, lanes beyond the first that agree, keys that stand
//! outside the pages) is left to the end.

use std::ops::Range;

use mmb_packet::window::CHUNKS;
use mmb_packet::{Window, prefetch};

use crate::batch::{Hit, VECTOR};
use crate::bitvec::Packet;
use crate::group::Group;
use crate::hash::Hash;
use crate::leaf::{Block, words};
use crate::node::Node;
use crate::owner::Owner;
use crate::page::Page;
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
    /// The first lane of the group.
    first: u32,
    page: &'a Page,
}

impl Candidate<'_> {
    /// The first of the lanes.
    #[inline(always)]
    fn lane(&self) -> usize {
        self.first as usize + self.lanes.trailing_zeros() as usize
    }
}

/// A packet, and entries to be compared with it.
#[derive(Clone, Copy)]
struct Work<'a> {
    packet: u16,
    /// A rule that is known to match.
    slot: Option<u32>,
    blocks: &'a [Block],
}

/// Whether no packet's key has a tag in the tables: certain if true, and cheaper to find out than what is there.
pub(crate) fn finds_nothing(windows: &[Window], tables: &[Table], summary: &Summary) -> bool {
    tables.iter().all(|table| summary.excludes(table) || has_no_tag(windows, table))
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
    pub rest: &'a [Block],
    /// Tells packets that match none of them.
    pub sieve: Option<&'a Sieve>,
    /// At most [`TABLES`].
    pub tables: &'a [&'a Table],
}

/// What they leave to each other.
struct Scratch<'a> {
    probes: [(&'a Page, Hash); PAIRS],
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

impl<'a> Walk<'a> {
    /// Gives `hits` the hits of all heads.
    pub fn run(&self, left: &mut Left, hits: &mut Hits) {
        let Some(any) = self.tables.first() else { return self.compare(0..self.heads.len(), &[], hits) };
        let none = any.store.page(Hash::default());
        let mut scratch = Scratch {
            probes: [(none, Hash::default()); PAIRS],
            candidates: [Candidate { packet: 0, table: 0, lanes: 0, first: 0, page: none }; PAIRS],
            works: [Work { packet: 0, slot: None, blocks: &[] }; PAIRS],
        };
        left.nodes.clear();
        left.lanes_beyond.clear();
        let stride = STRIDE.min(PAIRS / self.tables.len());
        for first in (0..self.heads.len()).step_by(stride) {
            let heads = first..(first + stride).min(self.heads.len());
            let n = self.probe(heads.clone(), &mut scratch);
            for candidate in &scratch.candidates[..n] {
                candidate.page.body.prefetch(candidate.lane());
            }
            self.find_blocks(n, &mut scratch, left);
            self.compare(heads, &scratch.works[..n], hits);
        }
        self.visit_others(left, hits);
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
                let page = store.page(hash);
                prefetch::read(page.group(hash).1);
                *probe = (page, hash);
            }
        }
        let probes = &scratch.probes[..heads.len() * n];
        let mut lanes = [0u8; PAIRS];
        let mut any = 0;
        for (lanes, &(page, hash)) in lanes.iter_mut().zip(probes) {
            *lanes = page.group(hash).1.find(hash.tag()).bits();
            any |= *lanes;
        }
        // Nearly always so where few packets match.
        if any == 0 {
            return 0;
        }
        let mut found = 0;
        for (head, (probes, lanes)) in heads.zip(probes.chunks_exact(n).zip(lanes.chunks_exact(n))) {
            for (t, (&(page, hash), &lanes)) in probes.iter().zip(lanes).enumerate() {
                let first = page.group(hash).0 as u32;
                scratch.candidates[found % PAIRS] =
                    Candidate { packet: head as u16, table: t as u8, lanes, first, page };
                found += usize::from(lanes != 0);
            }
        }
        found
    }

    /// Finds the blocks of entries that candidates lead to.
    #[inline(always)]
    fn find_blocks(&self, n: usize, scratch: &mut Scratch<'a>, left: &mut Left) {
        for (candidate, work) in scratch.candidates[..n].iter().zip(&mut scratch.works) {
            let packet = candidate.packet;
            *work = Work { packet, slot: None, blocks: &[] };
            if candidate.lanes & (candidate.lanes - 1) != 0 {
                left.lanes_beyond.push((packet, candidate.table));
            }
            let is_key = |key| key == self.tables[usize::from(candidate.table)].key(self.window(packet));
            match candidate.page.body.at(candidate.lane()) {
                (_, Err(Owner::Leaf(leaf))) => {
                    work.blocks = leaf.blocks();
                    work.blocks.iter().take(1).for_each(Block::prefetch);
                }
                (key, Ok(slot)) => work.slot = is_key(key).then_some(slot),
                (key, Err(Owner::Node(_))) => {
                    if is_key(key) {
                        left.nodes.push((packet, candidate.table, candidate.lane() as u32));
                    }
                }
                (_, Err(Owner::One(_) | Owner::Free)) => {}
            }
        }
    }

    /// Compares.
    #[inline(always)]
    fn compare(&self, heads: Range<usize>, works: &[Work<'_>], hits: &mut Hits) {
        let mut works = works.iter().peekable();
        for head in heads {
            let packet = usize::from(self.heads[head]);
            let window = &self.windows[packet];
            let (words, facts) = (words(window.chunk[0]), self.truths.facts(packet));
            let may_match = self.sieve.is_none_or(|sieve| sieve.passes(window.chunk[0]));
            for block in if may_match { self.rest } else { &[] } {
                let lanes = block.matches(&words, window, facts);
                if lanes != 0 {
                    hits.four(lanes, &block.slots);
                }
            }
            while let Some(work) = works.next_if(|work| usize::from(work.packet) == head) {
                if let Some(slot) = work.slot {
                    hits.one(slot);
                }
                for block in work.blocks {
                    let lanes = block.matches(&words, window, facts);
                    hits.four(lanes, &block.slots);
                }
            }
            hits.end();
        }
    }

    /// The node that one of `left.nodes` is about.
    #[inline(always)]
    fn node(&self, (head, table, lane): (u16, u8, u32)) -> Option<&'a Node> {
        let table = self.tables[usize::from(table)];
        let page = table.store.page(table.store.seeds.hash(table.key(self.window(head))));
        match page.body.at(lane as usize) {
            (_, Err(Owner::Node(node))) => Some(node),
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
