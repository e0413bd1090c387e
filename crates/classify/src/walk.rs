//! The way of a vector of packets through the root's tables.
//!
//! Theory of operation. A few packets at a time go through passes, so that the memory accesses of all of them overlap
//! and hardly anything depends on a branch that only data decides: hash what each table's mask leaves of each packet
//! and prefetch the group of tags (or ask the table's filter first, where most packets have no key there, [`crate::filter`]);
//! compare the tags and note which agree; find the lanes and prefetch what they hold;
//! find the blocks of entries to be compared and prefetch them; compare. All passes go packet by packet, which gives
//! the hits their order. What does not fit that scheme (nodes below, lanes beyond the first that agree, keys that stand
//! outside the pages) is left to the end.

use std::ops::Range;

use bytemuck::cast;
use mmb_packet::window::CHUNKS;
use mmb_packet::{Window, prefetch};

use crate::batch::{Habits, Hit, VECTOR};
use crate::bitvec::Packet;
use crate::block::{Narrow, Wide};
use crate::group::Group;
use crate::hash::Hash;
use crate::leaf::Concerned;
use crate::node::Node;
use crate::owner::Owner;
use crate::page::Body;
use crate::predicate::Truths;
use crate::sieve::Sieve;
use crate::sink::{Hits, Sink};
use crate::summary::Summary;
use crate::table::Table;
use crate::wide::Wide512;

mod compare;
mod sift;

/// Most tables that are probed together; those beyond are probed packet by packet.
pub(crate) const TABLES: usize = 64;
/// Pairs of packets and tables that go through the passes together: enough for their memory accesses to overlap, few
/// enough for what one pass leaves to the next to stay in the nearest cache.
const PAIRS: usize = 128;
/// Most packets that do, or that come to a node together.
pub(crate) const STRIDE: usize = 64;
/// Most nodes that are visited with all of their packets at once.
const MANY: usize = 8;

/// A glance was worth it where no more than one packet in so many may match.
const SOME: usize = 3;

/// All numbers of heads.
static EACH: [u16; VECTOR] = {
    let (mut each, mut head) = ([0; VECTOR], 0);
    while head < VECTOR {
        each[head] = head as u16;
        head += 1;
    }
    each
};

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
    narrow: Option<&'a Narrow>,
    wide: &'a [Wide],
}

impl Work<'_> {
    /// Nothing to be compared with.
    const NONE: Work<'static> = Work { packet: 0, slots: &[], narrow: None, wide: &[] };
}

/// Writes to `out` those of a vector of packets, by number, that may match through these tables and blocks, and returns how many
/// there are, if that is worth knowing: surely none beside them, and cheaper to find out than what is there.
pub(crate) fn glance(
    windows: &[Window],
    tables: &[Table],
    (rest, sieve): (&Concerned<'_>, Option<&Sieve>),
    summary: &Summary,
    out: &mut [u16; VECTOR],
) -> Option<usize> {
    let mut tables = tables.iter().filter(|table| !summary.excludes(table)).peekable();
    let in_rest =
        |window: &Window| sieve.is_none_or(|sieve| sieve.passes(window.chunk[0])) && rest.agree(window) != 0;
    let any_in_rest = match sieve {
        Some(_) => windows.iter().any(in_rest),
        None => rest.agrees_with_any(windows),
    };
    if !any_in_rest && tables.peek().is_none() {
        return Some(0);
    }
    let mut maybe = [0u8; VECTOR];
    if any_in_rest {
        maybe.iter_mut().zip(windows).for_each(|(maybe, window)| *maybe = u8::from(in_rest(window)));
    }
    for table in tables {
        let (may_have, all) = (table.look(), !table.store.spill().is_empty());
        maybe.iter_mut().zip(windows).for_each(|(maybe, window)| *maybe |= u8::from(all | may_have(window)));
    }
    let mut n = 0;
    for (word, eight) in cast::<[u8; VECTOR], [u64; VECTOR / 8]>(maybe).iter().enumerate() {
        let mut bits = eight.to_le();
        while bits != 0 {
            out[n % VECTOR] = word as u16 * 8 + bits.trailing_zeros() as u16 / 8;
            n += 1;
            bits &= bits - 1;
        }
    }
    (n <= windows.len() / SOME).then_some(n)
}

/// What the passes have to do with.
pub(crate) struct Walk<'a> {
    pub windows: &'a [Window],
    /// Numbers of the packets to be looked at.
    pub heads: &'a [u16],
    pub truths: &'a Truths,
    /// Blocks that every packet is compared with.
    pub rest: &'a Concerned<'a>,
    /// Tells packets that match none of them.
    pub sieve: Option<&'a Sieve>,
    /// At most [`TABLES`].
    pub tables: &'a [&'a Table],
    /// Whether sixteen entries can be compared at once.
    pub wide: Option<Wide512>,
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
    /// Gives `hits` the hits of all heads; asks the tables' filters first where that pays. Returns how many pairs of a packet and a
    /// table there were that may have to do with each other.
    pub fn run(&self, left: &mut Left, habits: &mut Habits, hits: &mut Hits) -> usize {
        left.nodes.clear();
        left.lanes_beyond.clear();
        let Some(any) = self.tables.first() else {
            self.compare(&EACH[..self.heads.len()], &[], hits);
            return 0;
        };
        let none = any.store.page(Hash::default());
        let mut scratch = Scratch {
            probes: [(&Group::EMPTY, Hash::default()); PAIRS],
            candidates: [Candidate { packet: 0, table: 0, lanes: 0, lane: 0, body: &none.body }; PAIRS],
            works: [Work::NONE; PAIRS],
        };
        let found = if habits.sifting.is_due() {
            let found = self.sift(&mut scratch, left, hits);
            habits.sifting.learn(found > self.heads.len() * self.tables.len() / 2);
            found
        } else {
            self.pass(&mut scratch, left, hits)
        };
        self.visit_others(left, hits);
        found
    }

    /// The passes, in order; returns the same.
    fn pass(&self, scratch: &mut Scratch<'a>, left: &mut Left, hits: &mut Hits) -> usize {
        let mut all = 0;
        let stride = STRIDE.min(PAIRS / self.tables.len());
        for first in (0..self.heads.len()).step_by(stride) {
            let heads = first..(first + stride).min(self.heads.len());
            let found = self.probe(heads.clone(), scratch);
            self.look(&EACH[heads], found, scratch, left, hits);
            all += found;
        }
        all
    }

    /// The last passes, for some heads and so many candidates.
    #[inline(always)]
    fn look(&self, heads: &[u16], n: usize, scratch: &mut Scratch<'a>, left: &mut Left, hits: &mut Hits) {
        for candidate in &scratch.candidates[..n] {
            candidate.body.prefetch(candidate.lane as usize);
        }
        self.find_blocks(n, scratch, left);
        self.compare(heads, &scratch.works[..n], hits);
    }

    #[inline(always)]
    fn window(&self, head: impl Into<usize>) -> &'a Window {
        &self.windows[usize::from(self.heads[head.into()])]
    }

    /// Whether a packet may match some of the blocks that every packet is compared with.
    #[inline(always)]
    fn may_match_rest(&self, window: &Window) -> bool {
        self.sieve.is_none_or(|sieve| sieve.passes(window.chunk[0]))
    }

    /// A head.
    #[inline(always)]
    pub fn packet(&self, head: u16) -> Packet<'a> {
        let packet = usize::from(self.heads[usize::from(head)]);
        Packet { window: &self.windows[packet], facts: self.truths.facts(packet), head }
    }

    /// Calls `visit` with each table, the hash of the key that each head has there, and the number of the pair: they are numbered
    /// packet by packet.
    #[inline(always)]
    fn each_key(&self, heads: Range<usize>, mut visit: impl FnMut(usize, &'a Table, Hash)) {
        let mut chunks = [0; STRIDE];
        let mut chunk = usize::MAX;
        for (t, &table) in self.tables.iter().enumerate() {
            if chunk != table.chunk {
                chunk = table.chunk;
                for (at, &packet) in chunks.iter_mut().zip(&self.heads[heads.clone()]) {
                    *at = self.windows[usize::from(packet)].chunk[chunk % CHUNKS];
                }
            }
            let pairs = (t..PAIRS).step_by(self.tables.len());
            for (chunk, pair) in chunks[..heads.len()].iter().zip(pairs) {
                visit(pair % PAIRS, table, table.store.seeds.hash(chunk & table.mask));
            }
        }
    }

    /// Finds the tables that may have a packet's key, packet by packet; returns how many pairs there are.
    #[inline(always)]
    fn probe(&self, heads: Range<usize>, scratch: &mut Scratch<'a>) -> usize {
        let n = self.tables.len();
        self.each_key(heads.clone(), |pair, table, hash| {
            let group = table.store.page(hash).group(hash).1;
            prefetch::read(group);
            scratch.probes[pair] = (group, hash);
        });
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
            *candidate = self.candidate(heads.start as u16 + u16::from(at), table, lanes, hash);
        }
        found
    }

    /// A head and a table in which these lanes of the hash's group agree.
    #[inline(always)]
    fn candidate(&self, packet: u16, table: u8, lanes: u8, hash: Hash) -> Candidate<'a> {
        let page = self.tables[usize::from(table)].store.page(hash);
        let lane = page.group(hash).0 + lanes.trailing_zeros() as usize;
        prefetch::read(&*page.body);
        Candidate { packet, table, lanes, lane: lane as u32, body: &page.body }
    }

    /// Finds the blocks of entries that candidates lead to.
    #[inline(always)]
    fn find_blocks(&self, n: usize, scratch: &mut Scratch<'a>, left: &mut Left) {
        for (candidate, work) in scratch.candidates[..n].iter().zip(&mut scratch.works) {
            let packet = candidate.packet;
            *work = Work { packet, ..Work::NONE };
            if candidate.lanes & (candidate.lanes - 1) != 0 {
                left.lanes_beyond.push((packet, candidate.table));
            }
            match candidate.body.value(candidate.lane as usize) {
                Err(Owner::Leaf(leaf)) => {
                    (work.narrow, work.wide) = leaf.blocks();
                    leaf.prefetch();
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
