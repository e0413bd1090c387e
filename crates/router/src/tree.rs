//! The routes of one table and family, and what of them the workers see.
//!
//! Theory of operation. The kernel looks into tables one after the other: `local`, `main`, `default`. They are one tree
//! here, whose routes have a **rank**: the table that they are from. At each prefix the best route whose way is alive
//! wins, and goes into the FIB. A longer prefix of a lower rank would win over a shorter one of a higher rank, which the
//! kernel would have found first; such prefixes are **covered** and stay out. (With IPv4 the kernel keeps `local` and `main`
//! in one tree itself, unless it has rules, so these two do not cover each other.) A `throw` route sends the kernel on to the
//! next table: it gets what the next rank has for the prefix. The addresses of neighbours on connected networks get entries of
//! their own where no route has one.
//!
//! Whatever changes at a prefix is **settled** there: the winner is found again, and if it is another one, what it covers and
//! the neighbours inside are settled too.

use std::collections::{BTreeMap, BTreeSet};

use mmb_route::{NextHopId, RouteTable};
use smallvec::SmallVec;

use crate::event::{Leg, Legs};
use crate::hops::{Recipe, Ways};
use crate::prefix::{Bits, Prefix};

/// Ranks: `local`, `main`, `default`.
pub(crate) const RANKS: usize = 3;

/// A route at its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub metric: u32,
    pub way: NextHopId,
    pub rank: u8,
    /// `RTN_…`.
    pub kind: u8,
    /// `RTPROT_…`.
    pub protocol: u8,
    /// When it was last heard of; see [`crate::lines`].
    pub stamp: u8,
}

/// What there is at a prefix.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    /// In the order in which the kernel considers them.
    pub lines: SmallVec<[Line; 1]>,
    /// What the FIB has; 0: nothing.
    pub hop: NextHopId,
    /// A bit for each rank that has a route here which is alive, and behind them one for each whose first says "throw".
    present: u8,
    /// What the FIB has is a neighbour, and this entry holds its way.
    pub neighbor: bool,
}

const _: () = assert!(size_of::<Entry>() == 32);

/// Interfaces behind which an address is a neighbour.
pub(crate) type Neighbors<A> = BTreeMap<A, SmallVec<[u32; 2]>>;

/// What settling needs besides the tree.
pub(crate) struct Context<'a, A> {
    pub ways: &'a mut Ways,
    pub neighbors: &'a Neighbors<A>,
    pub fib: &'a mut RouteTable,
}

/// The routes of one table and family; see the module's theory of operation.
#[derive(Debug, Default)]
pub(crate) struct Tree<A> {
    entries: BTreeMap<Prefix<A>, Entry>,
    /// Prefixes of each length at which a rank is present.
    present: [Lengths; RANKS],
    /// Prefixes of each length that the FIB has from routes.
    installed: Lengths,
    /// Routes of each rank.
    routes: [usize; RANKS],
    throws: BTreeSet<Prefix<A>>,
}

/// Numbers of prefixes by length.
#[derive(Debug)]
struct Lengths([u32; 129]);

impl Default for Lengths {
    fn default() -> Self {
        Lengths([0; 129])
    }
}

impl Lengths {
    fn count(&mut self, length: u8, more: bool) {
        let number = &mut self.0[usize::from(length)];
        *number = if more { *number + 1 } else { number.saturating_sub(1) };
    }

    fn has(&self, length: u8) -> bool {
        self.0[usize::from(length)] > 0
    }

    /// The lengths up to this one that there are, longest first.
    fn up_to(&self, length: u8) -> impl Iterator<Item = u8> + '_ {
        (0..=length).rev().filter(|length| self.0[usize::from(*length)] > 0)
    }
}

impl<A: Bits> Tree<A> {
    /// Routes.
    pub fn count(&self) -> usize {
        self.routes.iter().sum()
    }

    /// All entries from a prefix on, in order.
    pub fn from(&self, start: Prefix<A>) -> impl Iterator<Item = (&Prefix<A>, &Entry)> {
        self.entries.range(start..)
    }

    /// The entry that packets to an address follow.
    pub fn find(&self, address: A) -> Option<(Prefix<A>, &Entry)> {
        let host = Prefix::host(address);
        let neighbor = self.entries.get_key_value(&host).filter(|(_, entry)| entry.neighbor);
        neighbor.map(|(prefix, entry)| (*prefix, entry)).or_else(|| self.route_to(host))
    }

    fn route_to(&self, host: Prefix<A>) -> Option<(Prefix<A>, &Entry)> {
        self.installed.up_to(host.length).find_map(|length| {
            let (prefix, entry) = self.entries.get_key_value(&host.within(length))?;
            (entry.hop != 0 && !entry.neighbor).then_some((*prefix, entry))
        })
    }

    /// Changes the routes at a prefix with `f`, which keeps their references to ways, and settles it.
    pub fn change(
        &mut self,
        prefix: Prefix<A>,
        context: &mut Context<'_, A>,
        f: impl FnOnce(&mut SmallVec<[Line; 1]>, &mut Ways),
    ) {
        let entry = self.entries.entry(prefix).or_default();
        entry.lines.iter().for_each(|line| self.routes[usize::from(line.rank)] -= 1);
        f(&mut entry.lines, context.ways);
        entry.lines.iter().for_each(|line| self.routes[usize::from(line.rank)] += 1);
        if entry.lines.iter().any(is_throw) {
            self.throws.insert(prefix);
        } else if !self.throws.is_empty() {
            self.throws.remove(&prefix);
        }
        self.settle(prefix, context);
    }

    /// Keeps the routes that `keep` says, and settles all prefixes that lose one or have one that `look` says.
    pub fn retain(
        &mut self,
        context: &mut Context<'_, A>,
        keep: impl Fn(&Line, &Ways) -> bool,
        look: impl Fn(&Line) -> bool,
    ) {
        let concerned =
            |entry: &Entry| entry.lines.iter().any(|line| look(line) || !keep(line, context.ways));
        let concerned: Vec<Prefix<A>> =
            self.entries.iter().filter(|(_, entry)| concerned(entry)).map(|(prefix, _)| *prefix).collect();
        for prefix in concerned {
            self.change(prefix, context, |lines, ways| {
                let (kept, lost) = lines.iter().copied().partition(|line| keep(line, ways));
                *lines = kept;
                let lost: SmallVec<[Line; 1]> = lost;
                lost.iter().for_each(|line| ways.release(line.way));
            });
        }
    }

    /// Something has changed for the neighbour with this address.
    pub fn settle_neighbor(&mut self, address: A, context: &mut Context<'_, A>) {
        self.settle(Prefix::host(address), context);
    }

    /// Finds out what the FIB is to have at a prefix, and sees to it; then for what depends on that.
    fn settle(&mut self, prefix: Prefix<A>, context: &mut Context<'_, A>) {
        let before = self.entries.get(&prefix).map_or((0, 0, false), |e| (e.hop, e.present, e.neighbor));
        let present = self.update_presence(prefix, before.1, context.ways);
        let route = self.winner(prefix, context.ways);
        let mut found = (route.unwrap_or(0), false);
        if prefix.length == A::BITS {
            // A route for the address alone may be a network too. Otherwise it is the one around.
            let around = || self.route_to(prefix.within(A::BITS - 1)).map_or(0, |(_, entry)| entry.hop);
            let network = if found.0 != 0 { found.0 } else { around() };
            let way = self.neighbor_way(prefix.bits, network, context);
            found = if way != 0 { (way, true) } else { found };
        }
        let (hop, neighbor) = found;
        self.put(prefix, before, (hop, neighbor), context);
        let routed = |(hop, neighbor): (NextHopId, bool)| if neighbor { 0 } else { hop };
        let moved = routed((before.0, before.2)) != routed((hop, neighbor));
        // What is thrown on follows ways that do not show here.
        if (moved || present != before.1 || !self.throws.is_empty()) && prefix.length < A::BITS {
            self.settle_inside(prefix, present ^ before.1, context);
        }
    }

    fn update_presence(&mut self, prefix: Prefix<A>, before: u8, ways: &Ways) -> u8 {
        let Some(entry) = self.entries.get_mut(&prefix) else { return 0 };
        if prefix.is_reserved() {
            return 0;
        }
        let mut present = 0;
        for line in entry.lines.iter().rev().filter(|line| ways.is_alive(line.way)) {
            // The first one of a rank says whether the kernel looks on.
            let (bit, throw) = (1 << line.rank, 1 << (usize::from(line.rank) + RANKS));
            present |= bit;
            present = if is_throw(line) { present | throw } else { present & !throw };
        }
        entry.present = present;
        for rank in 0..RANKS {
            let bit = 1 << rank;
            if (before ^ present) & bit != 0 {
                self.present[rank].count(prefix.length, present & bit != 0);
            }
        }
        present
    }

    fn put(
        &mut self,
        prefix: Prefix<A>,
        before: (NextHopId, u8, bool),
        (hop, neighbor): (NextHopId, bool),
        context: &mut Context<'_, A>,
    ) {
        let entry = self.entries.entry(prefix).or_default();
        (entry.hop, entry.neighbor) = (hop, neighbor);
        if entry.lines.is_empty() && hop == 0 {
            self.entries.remove(&prefix);
        }
        let from_route = |hop: NextHopId, neighbor: bool| hop != 0 && !neighbor;
        if from_route(before.0, before.2) != from_route(hop, neighbor) {
            self.installed.count(prefix.length, from_route(hop, neighbor));
        }
        if before.0 != hop {
            context.ways.note_change();
            match hop {
                0 => A::remove(context.fib, prefix),
                hop => A::insert(context.fib, prefix, hop),
            }
        }
        if before.2 {
            context.ways.release(before.0);
        }
    }

    /// The way of the route that wins at a prefix. It is kept by the route that it is of, or for ever.
    fn winner(&self, prefix: Prefix<A>, ways: &mut Ways) -> Option<NextHopId> {
        if prefix.is_reserved() {
            return None;
        }
        let entry = self.entries.get(&prefix)?;
        let mut thrown = false;
        for stage in stages(A::V6) {
            let own = first_of(entry, stage, ways);
            match own.or_else(|| self.best(prefix, stage, ways)) {
                None => {}
                Some(line) if is_throw(line) => thrown |= own.is_some(),
                // A shorter prefix says it already, or covers what comes later.
                Some(line) => return (own.is_some() || thrown).then_some(line.way),
            }
        }
        thrown.then(|| ways.no_route())
    }

    /// The route of the longest prefix around this one in the tables of a stage.
    fn best(&self, prefix: Prefix<A>, stage: &[u8], ways: &Ways) -> Option<&Line> {
        let lengths = (0..=prefix.length).rev();
        let is_there = |length: &u8| stage.iter().any(|rank| self.present[usize::from(*rank)].has(*length));
        let mut lengths = lengths.filter(is_there);
        lengths.find_map(|length| first_of(self.entries.get(&prefix.within(length))?, stage, ways))
    }

    /// The way to a neighbour with this address, if `network` leads to one that is connected; 0 if not. The caller gets a
    /// reference.
    fn neighbor_way(&self, address: A, network: NextHopId, context: &mut Context<'_, A>) -> NextHopId {
        let reserved = Prefix::host(address).is_reserved();
        let Some(interfaces) = context.neighbors.get(&address).filter(|_| !reserved) else { return 0 };
        let Some(Recipe::Legs { v6, mtu, legs }) = context.ways.recipe(network) else { return 0 };
        let [leg @ Leg { gateway: None, kernel: false, .. }] = legs[..] else { return 0 };
        if !interfaces.contains(&leg.interface) || context.ways.port(leg.interface).is_none() {
            return 0;
        }
        let leg = Leg { gateway: Some(address.address()), ..leg };
        let recipe = Recipe::Legs { v6: *v6, mtu: *mtu, legs: Legs::from_elem(leg, 1) };
        context.ways.acquire(recipe)
    }

    /// Settles what depends on a prefix at which these ranks have come or gone.
    fn settle_inside(&mut self, prefix: Prefix<A>, ranks: u8, context: &mut Context<'_, A>) {
        let inside = |other: &Prefix<A>| *other != prefix;
        let range = prefix..=prefix.end();
        let mut again: Vec<Prefix<A>> = Vec::new();
        if self.covers_any(ranks) {
            again.extend(self.entries.range(range).map(|(other, _)| *other).filter(inside));
        } else if !self.throws.is_empty() {
            again.extend(self.throws.range(range).copied().filter(inside));
        }
        let hosts = context.neighbors.range(prefix.bits..=prefix.end().bits);
        again.extend(hosts.map(|(address, _)| Prefix::host(*address)));
        for prefix in again {
            self.settle(prefix, context);
        }
    }

    /// Whether there are routes that could be covered by those of these ranks.
    fn covers_any(&self, ranks: u8) -> bool {
        let top = (ranks | ranks >> RANKS).trailing_zeros();
        let behind = stages(A::V6)
            .iter()
            .skip_while(|stage| !stage.iter().any(|rank| u32::from(*rank) == top))
            .skip(1);
        behind.flat_map(|stage| stage.iter()).any(|rank| self.routes[usize::from(*rank)] > 0)
    }
}

/// Ranks that are looked into at once, in order.
fn stages(v6: bool) -> &'static [&'static [u8]] {
    if v6 { &[&[0], &[1], &[2]] } else { &[&[0, 1], &[2]] }
}

/// The route of a stage that the kernel considers first.
fn first_of<'a>(entry: &'a Entry, stage: &[u8], ways: &Ways) -> Option<&'a Line> {
    entry.lines.iter().find(|line| stage.contains(&line.rank) && ways.is_alive(line.way))
}

fn is_throw(line: &Line) -> bool {
    line.kind == libc::RTN_THROW
}
